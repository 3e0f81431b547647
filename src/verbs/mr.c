/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Memory regions (ibv_reg_mr(3), ibv_rereg_mr(3), ibv_advise_mr(3)). */
#include <stdlib.h>

#include "verbs/object.h"
#include "verbs/real.h"

static void show(struct mr *mr)
{
	struct nic_mr_info info;

	nic_mr_info(mr->nic, &info);
	mr->ibv.addr = (void *)(uintptr_t)info.addr;
	mr->ibv.length = info.length;
	mr->ibv.handle = info.key;
	mr->ibv.lkey = info.key;
	mr->ibv.rkey = info.key;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct mr *mr = calloc(1, sizeof(*mr));
	int ret;

	if (!mr)
		return NO_POINTER(ENOMEM);
	/*
	 * Optional flags are hints (relaxed ordering): a device may ignore them, and this one keeps its
	 * order.
	 */
	access &= ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE;
	ret = nic_mr_create(to_pd(pd)->nic, (uintptr_t)addr, length, iova, (int)access, &mr->nic);
	if (ret) {
		free(mr);
		return NO_POINTER(-ret);
	}
	mr->ibv.context = pd->context;
	mr->ibv.pd = pd;
	show(mr);
	return &mr->ibv;
}

UNPIN_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_reg_mr, NO_POINTER(EOPNOTSUPP), pd, addr, length, access);
	return reg_mr(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

UNPIN_EXPORT struct ibv_mr *ibv_reg_mr_iova(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_reg_mr_iova, NO_POINTER(EOPNOTSUPP), pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, (unsigned)access);
}

UNPIN_EXPORT struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_reg_mr_iova2, NO_POINTER(EOPNOTSUPP), pd, addr, length, iova, access);
	return reg_mr(pd, addr, length, iova, access);
}

/* Arguments that no combination of flags allows. */
static bool rereg_invalid(
	struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		return true;
	/* The real library takes no address 0 here; an implicit region has it. */
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!length || (!addr && length != SIZE_MAX)))
		return true;
	if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != mr->context))
		return true;
	return access && !(flags & IBV_REREG_MR_CHANGE_ACCESS);
}

/*
 * Answers by enum ibv_rereg_mr_err_code: ERR_INPUT says that the old region stands, ERR_CMD that it is gone.
 */
UNPIN_EXPORT int ibv_rereg_mr(
	struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	int still_valid = 1;
	int ret;

	if (!context_is_ours(mr->context)) {
		errno = EOPNOTSUPP;
		return PASS(ibv_rereg_mr, IBV_REREG_MR_ERR_INPUT, mr, flags, pd, addr, length, access);
	}
	if (rereg_invalid(mr, flags, pd, addr, length, access)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	access &= ~(int)IBV_ACCESS_OPTIONAL_RANGE;
	ret = nic_mr_rereg(to_mr(mr)->nic, flags, pd ? to_pd(pd)->nic : NULL, (uintptr_t)addr, length, access,
		&still_valid);
	if (ret) {
		errno = -ret;
		return still_valid ? IBV_REREG_MR_ERR_INPUT : IBV_REREG_MR_ERR_CMD;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	show(to_mr(mr));
	return 0;
}

UNPIN_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (!context_is_ours(mr->context))
		return PASS(ibv_dereg_mr, EOPNOTSUPP, mr);
	nic_mr_destroy(to_mr(mr)->nic);
	free(to_mr(mr));
	return 0;
}

int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sg_list,
	uint32_t num_sge)
{
	return -nic_mr_advise(to_pd(pd)->nic, advice, flags, sg_list, num_sge);
}

/* --- not offered ---------------------------------------------------------------------------------- */

UNPIN_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_reg_dmabuf_mr, NO_POINTER(EOPNOTSUPP), pd, offset, length, iova, fd, access);
	return REFUSED("ibv_reg_dmabuf_mr", NO_POINTER(EOPNOTSUPP));
}

UNPIN_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_reg_mr_ex, NO_POINTER(EOPNOTSUPP), pd, attr);
	return REFUSED("ibv_reg_mr_ex", NO_POINTER(EOPNOTSUPP));
}

UNPIN_EXPORT struct ibv_mr *ibv_reg_buf_mr(
	struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_reg_buf_mr, NO_POINTER(EOPNOTSUPP), pd, buf, addr, length, access);
	return REFUSED("ibv_reg_buf_mr", NO_POINTER(EOPNOTSUPP));
}

UNPIN_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_import_mr, NO_POINTER(EOPNOTSUPP), pd, mr_handle);
	return REFUSED("ibv_import_mr", NO_POINTER(EOPNOTSUPP));
}

UNPIN_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	if (!context_is_ours(mr->context))
		PASS(ibv_unimport_mr, (void)0, mr);
}

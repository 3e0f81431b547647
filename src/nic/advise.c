/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Prefetch: ibv_advise_mr(3). */
#include <errno.h>

#include "nic/nic.h"

static const unsigned prefetch_flags[] = {
	[IBV_ADVISE_MR_ADVICE_PREFETCH] = 0,
	[IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE] = ODP_PREFETCH_WRITE,
	[IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT] = ODP_PREFETCH_NO_FAULT,
};

#define ADVICES (sizeof(prefetch_flags) / sizeof(prefetch_flags[0]))

static int check_inside(const struct nic_mr *mr, struct nic_pd *pd, const struct ibv_sge *sge, unsigned flags)
{
	if (atomic_load(&mr->pd) != pd)
		return -EINVAL;
	if (!mr->on_demand)
		return -EOPNOTSUPP;
	if ((flags & ODP_PREFETCH_WRITE) && !mr->region.writable)
		return -EPERM;
	if (sge->addr < mr->iova || sge->length > mr->length ||
		sge->addr - mr->iova > mr->length - sge->length)
		return -EFAULT;
	return 0;
}

/*
 * Enters the region of an element, if it is one that may be advised about. It may end between the check of
 * all elements and the work on this one, so both come here.
 */
static int enter(struct nic_pd *pd, const struct ibv_sge *sge, unsigned flags, struct nic_mr **out)
{
	struct nic_mr *mr = nic_mr_enter(pd->ctx->nic, sge->lkey);
	int err = mr ? check_inside(mr, pd, sge, flags) : -ENOENT;

	if (mr && err)
		nic_mr_leave(mr);
	*out = mr;
	return err;
}

/*
 * A flush waits inside the region; its end (odp_region_fini) breaks that off before it waits for those
 * inside. What is only queued does not hold the region.
 */
static int prefetch(struct nic_pd *pd, const struct ibv_sge *sge, unsigned flags)
{
	struct nic_mr *mr;
	int err = enter(pd, sge, flags, &mr);

	if (err)
		return err;
	err = odp_prefetch(&mr->region, mr->addr + (sge->addr - mr->iova), sge->length, flags);
	nic_mr_leave(mr);
	switch (err) {
	case -ECANCELED:
		return -ENOENT;
	case -EACCES:
		return -EPERM;
	case -EAGAIN:
		/* Pages that others take away as fast as they come: an access will make its way, and advice
		 * that cannot last is no error of the caller's. */
		return 0;
	}
	return err;
}

int nic_mr_advise(struct nic_pd *pd, unsigned advice, unsigned flags, const struct ibv_sge *sge, uint32_t n)
{
	unsigned how;
	int err = nic_context_check(pd->ctx);

	if (err)
		return err;
	if (!pd->ctx->nic->caps.prefetch)
		return -EOPNOTSUPP;
	if (advice >= ADVICES || (flags & ~(unsigned)IBV_ADVISE_MR_FLAG_FLUSH) || !n || !sge)
		return -EINVAL;
	how = prefetch_flags[advice] | (flags & IBV_ADVISE_MR_FLAG_FLUSH ? ODP_PREFETCH_WAIT : 0u);
	for (uint32_t i = 0; i < n; i++) {
		struct nic_mr *mr;

		err = enter(pd, &sge[i], how, &mr);
		if (err)
			return err;
		nic_mr_leave(mr);
	}
	for (uint32_t i = 0; i < n && !err; i++)
		err = prefetch(pd, &sge[i], how);
	return err;
}

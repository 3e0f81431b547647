/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Public verbs that this device does not offer: their capability bits are off, and they answer EOPNOTSUPP by
 * each call's own convention. They exist because without them an object of ours would reach the real library.
 * What is about a real device goes there.
 */
#include "base/log.h"
#include "verbs/object.h"
#include "verbs/real.h"

void verb_refused(const char *call)
{
	log_info("%s is refused: this device does not offer it", call);
}

/*
 * NAME, what it returns when refused, the object's context, prototype, arguments. The newer objects (dmah,
 * comp_cntr) begin with their context, as every verbs object does.
 */
#define ABSENT(type, name, refused, context, prototype, ...)                                                 \
	UNPIN_EXPORT type name prototype                                                                     \
	{                                                                                                    \
		if (!context_is_ours(context))                                                               \
			return PASS(name, refused, __VA_ARGS__);                                             \
		return REFUSED(#name, refused);                                                              \
	}

static struct ibv_context *first_word(const void *object)
{
	return *(struct ibv_context *const *)object;
}

/* clang-format off */

/* Shared receive queues */
ABSENT(struct ibv_srq *, ibv_create_srq, NO_POINTER(EOPNOTSUPP), pd->context,
	(struct ibv_pd *pd, struct ibv_srq_init_attr *init), pd, init)
ABSENT(int, ibv_modify_srq, EOPNOTSUPP, srq->context,
	(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask), srq, attr, mask)
ABSENT(int, ibv_query_srq, EOPNOTSUPP, srq->context, (struct ibv_srq *srq, struct ibv_srq_attr *attr), srq,
	attr)
ABSENT(int, ibv_destroy_srq, EOPNOTSUPP, srq->context, (struct ibv_srq *srq), srq)

/* Address handles and multicast (unreliable datagrams) */
ABSENT(struct ibv_ah *, ibv_create_ah, NO_POINTER(EOPNOTSUPP), pd->context,
	(struct ibv_pd *pd, struct ibv_ah_attr *attr), pd, attr)
ABSENT(int, ibv_init_ah_from_wc, NO_INT(EOPNOTSUPP), context,
	(struct ibv_context *context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
		struct ibv_ah_attr *attr),
	context, port_num, wc, grh, attr)
ABSENT(struct ibv_ah *, ibv_create_ah_from_wc, NO_POINTER(EOPNOTSUPP), pd->context,
	(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port_num), pd, wc, grh, port_num)
ABSENT(int, ibv_destroy_ah, EOPNOTSUPP, ah->context, (struct ibv_ah *ah), ah)
ABSENT(int, ibv_resolve_eth_l2_from_gid, -EOPNOTSUPP, context,
	(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t eth_mac[ETHERNET_LL_SIZE],
		uint16_t *vid),
	context, attr, eth_mac, vid)
ABSENT(int, ibv_attach_mcast, EOPNOTSUPP, qp->context,
	(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), qp, gid, lid)
ABSENT(int, ibv_detach_mcast, EOPNOTSUPP, qp->context,
	(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), qp, gid, lid)

/* Device memory */
ABSENT(struct ibv_dm *, ibv_import_dm, NO_POINTER(EOPNOTSUPP), context,
	(struct ibv_context *context, uint32_t dm_handle), context, dm_handle)
ABSENT(int, ibv_dm_export_dmabuf_fd, NO_INT(EOPNOTSUPP), dm->context, (struct ibv_dm *dm), dm)

UNPIN_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	if (!context_is_ours(dm->context))
		PASS(ibv_unimport_dm, (void)0, dm);
}

/* DMA handles */
ABSENT(struct ibv_dmah *, ibv_alloc_dmah, NO_POINTER(EOPNOTSUPP), context,
	(struct ibv_context *context, struct ibv_dmah_init_attr *attr), context, attr)
ABSENT(int, ibv_dealloc_dmah, EOPNOTSUPP, first_word(dmah), (struct ibv_dmah *dmah), dmah)

/* Buffers of the provider's choice. A buffer does not show its context; none of them is ours. */
ABSENT(void *, ibv_alloc_buf, NO_POINTER(EOPNOTSUPP), pd->context,
	(struct ibv_pd *pd, size_t size, struct ibv_buf **buf), pd, size, buf)

UNPIN_EXPORT void ibv_free_buf(struct ibv_buf *buf)
{
	PASS(ibv_free_buf, (void)0, buf);
}

UNPIN_EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	return PASS(ibv_export_buf_dmabuf_fd, NO_INT(EOPNOTSUPP), buf);
}

/* Completion counters */
ABSENT(int, _ibv_query_comp_cntr_caps, EOPNOTSUPP, context,
	(struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t caps_size), context, caps,
	caps_size)
ABSENT(struct ibv_comp_cntr *, ibv_create_comp_cntr, NO_POINTER(EOPNOTSUPP), context,
	(struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr), context, attr)
ABSENT(int, ibv_destroy_comp_cntr, EOPNOTSUPP, first_word(counter), (struct ibv_comp_cntr *counter), counter)
ABSENT(int, ibv_set_comp_cntr, EOPNOTSUPP, first_word(counter),
	(struct ibv_comp_cntr *counter, uint64_t value), counter, value)
ABSENT(int, ibv_set_err_comp_cntr, EOPNOTSUPP, first_word(counter),
	(struct ibv_comp_cntr *counter, uint64_t value), counter, value)
ABSENT(int, ibv_inc_comp_cntr, EOPNOTSUPP, first_word(counter),
	(struct ibv_comp_cntr *counter, uint64_t amount), counter, amount)
ABSENT(int, ibv_inc_err_comp_cntr, EOPNOTSUPP, first_word(counter),
	(struct ibv_comp_cntr *counter, uint64_t amount), counter, amount)
ABSENT(int, ibv_read_comp_cntr, EOPNOTSUPP, first_word(counter),
	(struct ibv_comp_cntr *counter, uint64_t *value), counter, value)
ABSENT(int, ibv_read_err_comp_cntr, EOPNOTSUPP, first_word(counter),
	(struct ibv_comp_cntr *counter, uint64_t *value), counter, value)
ABSENT(int, ibv_qp_attach_comp_cntr, EOPNOTSUPP, qp->context,
	(struct ibv_qp *qp, struct ibv_comp_cntr *counter, struct ibv_qp_attach_comp_cntr_attr *attr), qp,
	counter, attr)

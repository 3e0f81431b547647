/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ibv_wr_* way of posting (ibv_wr_post(3)): start, then per request one operation and its data, then
 * complete or abort.
 *
 * The send queue is nic's and locked from start to the end. A mistake anywhere is remembered by nic (the
 * first one counts) and told by complete, which then posts nothing; what follows a mistake writes nowhere,
 * since there is no element then.
 */
#include <string.h>

#include "verbs/object.h"
#include "verbs/real.h"

#define SEND_FLAGS (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE)

static struct qp *of(struct ibv_qp_ex *ex)
{
	return container_of(ex, struct qp, ex);
}

static void fail(struct qp *qp, int err)
{
	nic_wr_fail(qp->nic, -err);
	qp->wqe = NULL;
}

static bool is_atomic(const struct ib_wqe *wqe)
{
	return wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* The request before this point has all that it will get. */
static void finish(struct qp *qp)
{
	if (qp->wqe && is_atomic(qp->wqe) && qp->wqe->num_sge != 1)
		fail(qp, EINVAL);
}

/* A new request of this operation; NULL when it may not be, or there is no room. */
static struct ib_wqe *begin(struct qp *qp, enum ibv_wr_opcode opcode, uint64_t needs)
{
	unsigned flags = qp->ex.wr_flags;
	struct ib_wqe *wqe;

	finish(qp);
	if (!(qp->send_ops & needs) || (flags & ~(unsigned)SEND_FLAGS)) {
		fail(qp, EINVAL);
		return NULL;
	}
	wqe = qp->wqe = nic_wr_next(qp->nic);
	if (!wqe)
		return NULL;
	wqe->wr_id = qp->ex.wr_id;
	wqe->opcode = opcode;
	wqe->signaled = qp->sq_sig_all || (flags & IBV_SEND_SIGNALED);
	wqe->solicited = flags & IBV_SEND_SOLICITED;
	wqe->fence = flags & IBV_SEND_FENCE;
	return wqe;
}

/* --- operations ----------------------------------------------------------------------------------- */

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(of(ex), IBV_WR_SEND, IBV_QP_EX_WITH_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm_data)
{
	struct ib_wqe *wqe = begin(of(ex), IBV_WR_SEND_WITH_IMM, IBV_QP_EX_WITH_SEND_WITH_IMM);

	if (wqe)
		wqe->imm = imm_data;
}

static struct ib_wqe *begin_rdma(
	struct qp *qp, enum ibv_wr_opcode opcode, uint64_t needs, uint32_t rkey, uint64_t remote_addr)
{
	struct ib_wqe *wqe = begin(qp, opcode, needs);

	if (wqe) {
		wqe->rkey = rkey;
		wqe->remote_addr = remote_addr;
	}
	return wqe;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(of(ex), IBV_WR_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, rkey, remote_addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm_data)
{
	struct ib_wqe *wqe = begin_rdma(
		of(ex), IBV_WR_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, rkey, remote_addr);

	if (wqe)
		wqe->imm = imm_data;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(of(ex), IBV_WR_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, rkey, remote_addr);
}

static void wr_atomic_cmp_swp(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t compare, uint64_t swap)
{
	struct ib_wqe *wqe = begin_rdma(
		of(ex), IBV_WR_ATOMIC_CMP_AND_SWP, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, rkey, remote_addr);

	if (wqe) {
		wqe->compare_add = compare;
		wqe->swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, uint64_t add)
{
	struct ib_wqe *wqe = begin_rdma(
		of(ex), IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, rkey, remote_addr);

	if (wqe)
		wqe->compare_add = add;
}

/* --- data ----------------------------------------------------------------------------------------- */

/* The element that data is for; NULL after a mistake, or (one more) before any operation. */
static struct ib_wqe *current(struct qp *qp)
{
	if (!qp->wqe)
		fail(qp, EINVAL);
	return qp->wqe;
}

static void set_sges(struct qp *qp, size_t n, const struct ibv_sge *list)
{
	struct ib_wqe *wqe = current(qp);
	uint64_t length = 0;
	unsigned used = 0;

	if (!wqe)
		return;
	if (n > qp->max_send_sge) {
		fail(qp, EINVAL);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (list[i].length == 0) /* names no memory: its key is not looked at */
			continue;
		wqe->sge[used++] = list[i];
		length += list[i].length;
	}
	if (length > NIC_MAX_MSG || (is_atomic(wqe) && (used != 1 || length != sizeof(uint64_t)))) {
		fail(qp, EINVAL);
		return;
	}
	wqe->is_inline = false;
	wqe->inline_len = 0;
	wqe->num_sge = (uint8_t)used;
	wqe->length = (uint32_t)length;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	const struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	set_sges(of(ex), 1, &sge);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *sg_list)
{
	set_sges(of(ex), num_sge, sg_list);
}

static bool takes_inline(const struct ib_wqe *wqe)
{
	return wqe->opcode != IBV_WR_RDMA_READ && !is_atomic(wqe);
}

static void set_inline(struct qp *qp, size_t n, const struct ibv_data_buf *list)
{
	struct ib_wqe *wqe = current(qp);
	size_t length = 0;

	if (!wqe)
		return;
	if (!takes_inline(wqe)) {
		fail(qp, EINVAL);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > qp->max_inline - length) {
			fail(qp, EINVAL);
			return;
		}
		if (list[i].length)
			memcpy((uint8_t *)ib_wqe_inline(wqe) + length, list[i].addr, list[i].length);
		length += list[i].length;
	}
	wqe->is_inline = true;
	wqe->inline_len = (uint16_t)length;
	wqe->num_sge = 0;
	wqe->length = (uint32_t)length;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	const struct ibv_data_buf buf = { .addr = addr, .length = length };

	set_inline(of(ex), 1, &buf);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf, const struct ibv_data_buf *buf_list)
{
	set_inline(of(ex), num_buf, buf_list);
}

/* --- start and end -------------------------------------------------------------------------------- */

static void wr_start(struct ibv_qp_ex *ex)
{
	nic_wr_start(of(ex)->nic);
	of(ex)->wqe = NULL;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct qp *qp = of(ex);

	finish(qp);
	qp->wqe = NULL;
	return -nic_wr_complete(qp->nic);
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	of(ex)->wqe = NULL;
	nic_wr_abort(of(ex)->nic);
}

/* --- what is not offered -------------------------------------------------------------------------- */

/* Windows, invalidation, TSO, atomic write, flush, addresses of other transports. */
static void wr_unsupported(struct ibv_qp_ex *ex)
{
	fail(of(ex), EOPNOTSUPP);
}

/* The first argument is all that it looks at, so it can stand for every operation there is or will be. */
static void fill_unsupported(struct qp *qp)
{
	const size_t first = offsetof(struct ibv_qp_ex, wr_atomic_cmp_swp) / sizeof(void *);

	for (size_t i = first; i < sizeof(qp->words) / sizeof(qp->words[0]); i++)
		qp->words[i] = (void *)wr_unsupported;
}

void wr_attach(struct qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	fill_unsupported(qp);
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
}

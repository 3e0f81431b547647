/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Posting work requests: ibv_post_send(3), ibv_post_recv(3), ibv_wr_post(3). */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/trace.h"
#include "mm/generation.h"
#include "nic/nic.h"

/* --- the send queue
 * ------------------------------------------------------------------------------------------------ */

/* The next free WQE behind those being built, or NULL: full. Under sq_lock. */
static struct ib_wqe *sq_slot(struct nic_qp *qp)
{
	struct ib_sq *sq = &qp->sq;
	uint32_t at = atomic_load_explicit(&sq->prod, memory_order_relaxed) + qp->sq_building;

	if (at - atomic_load_explicit(&sq->freed, memory_order_acquire) >= sq->max_wr)
		return NULL;
	return ib_sq_at(sq, at);
}

static void trace_built(struct nic_qp *qp, uint32_t prod)
{
	for (uint32_t i = 0; i < qp->sq_building; i++)
		trace_point(TRACE_POST_SEND, qp->num, ib_sq_at(&qp->sq, prod + i)->wr_id);
}

/* Everything built becomes visible to the requester. Under sq_lock. */
static void sq_publish(struct nic_qp *qp)
{
	uint32_t prod = atomic_load_explicit(&qp->sq.prod, memory_order_relaxed);

	if (trace_enabled())
		trace_built(qp, prod);
	atomic_store_explicit(&qp->sq.prod, prod + qp->sq_building, memory_order_release);
	qp->sq_building = 0;
}

static bool may_send(const struct nic_qp *qp)
{
	int state = atomic_load_explicit(&qp->ib.state, memory_order_relaxed);

	return state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_SQE || state == IBV_QPS_ERR;
}

/* Bytes of a scatter/gather list, saturated just above what a message may have. */
static uint32_t sge_total(const struct ibv_sge *sge, int n)
{
	uint64_t total = 0;

	for (int i = 0; i < n; i++)
		total += sge[i].length;
	return total > NIC_MAX_MSG ? NIC_MAX_MSG + 1u : (uint32_t)total;
}

static void copy_sges(struct ibv_sge *to, const struct ibv_sge *from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] = from[i];
}

static int fill_data(struct nic_qp *qp, struct ib_wqe *wqe, const struct ibv_send_wr *wr)
{
	uint8_t *to = ib_wqe_inline(wqe);
	uint32_t total;

	if (wr->num_sge < 0 ||
		(!(wr->send_flags & IBV_SEND_INLINE) && (uint32_t)wr->num_sge > qp->sq.max_sge))
		return -EINVAL;
	total = sge_total(wr->sg_list, wr->num_sge);
	wqe->length = total;
	wqe->is_inline = wr->send_flags & IBV_SEND_INLINE;
	if (!wqe->is_inline) {
		wqe->num_sge = (uint8_t)wr->num_sge;
		wqe->inline_len = 0;
		copy_sges(wqe->sge, wr->sg_list, wr->num_sge);
		return 0;
	}
	if (total > qp->sq.max_inline)
		return -EINVAL;
	wqe->num_sge = 0;
	wqe->inline_len = (uint16_t)total;
	/* The application's own access, by its own thread: its own fault if it is none. */
	for (int i = 0; i < wr->num_sge; i++) {
		memcpy(to, (const void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		to += wr->sg_list[i].length;
	}
	return 0;
}

static int fill_remote(struct ib_wqe *wqe, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return 0;
	case IBV_WR_RDMA_READ:
		if (wr->send_flags & IBV_SEND_INLINE)
			return -EINVAL;
		/* fall through */
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wqe->remote_addr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (wr->send_flags & IBV_SEND_INLINE)
			return -EINVAL;
		wqe->remote_addr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->compare_add = wr->wr.atomic.compare_add;
		wqe->swap = wr->wr.atomic.swap;
		return 0;
	default:
		return -EINVAL; /* local invalidate, bind, TSO, driver's own: not offered */
	}
}

static int fill_wqe(struct nic_qp *qp, struct ib_wqe *wqe, const struct ibv_send_wr *wr)
{
	int err = fill_remote(wqe, wr);

	if (!err)
		err = fill_data(qp, wqe, wr);
	if (err)
		return err;
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->signaled = qp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED);
	wqe->solicited = wr->send_flags & IBV_SEND_SOLICITED;
	wqe->fence = wr->send_flags & IBV_SEND_FENCE;
	wqe->imm = wr->imm_data;
	/* Less than that stays so, and is a local length error (ib/requester.c). */
	if ((wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) &&
		wqe->length > 8)
		wqe->length = 8;
	return 0;
}

int nic_qp_post_send(struct nic_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct nic_burst burst = { 0 };
	struct ib_wqe *wqe;
	int err = 0;

	if (generation_now() != qp->ctx->generation) {
		*bad = wr;
		return -EIO;
	}
	lock_take(&qp->sq_lock);
	for (; wr; wr = wr->next) {
		if (!may_send(qp)) {
			err = -EINVAL;
			break;
		}
		wqe = sq_slot(qp);
		err = wqe ? fill_wqe(qp, wqe, wr) : -ENOMEM;
		if (err)
			break;
		qp->sq_building++;
	}
	if (err)
		*bad = wr;
	sq_publish(qp);
	lock_drop(&qp->sq_lock);
	nic_qp_run(qp, &burst);
	return err;
}

/* --- ibv_wr_*
 * ------------------------------------------------------------------------------------------------------ */

/* In a forked child nothing is locked: another thread of the parent may have held it. */
static bool inherited(const struct nic_qp *qp)
{
	return generation_now() != qp->ctx->generation;
}

void nic_wr_start(struct nic_qp *qp)
{
	if (inherited(qp)) {
		qp->sq_error = -EIO;
		return;
	}
	lock_take(&qp->sq_lock);
	lock_lend(&qp->sq_lock);
	qp->sq_building = 0;
	qp->sq_error = may_send(qp) ? 0 : -EINVAL;
}

struct ib_wqe *nic_wr_next(struct nic_qp *qp)
{
	struct ib_wqe *wqe = qp->sq_error ? NULL : sq_slot(qp);

	if (!wqe) {
		nic_wr_fail(qp, -ENOMEM);
		return NULL;
	}
	memset(wqe, 0, sizeof(*wqe));
	qp->sq_building++;
	return wqe;
}

void nic_wr_fail(struct nic_qp *qp, int err)
{
	if (!qp->sq_error)
		qp->sq_error = err;
}

int nic_wr_complete(struct nic_qp *qp)
{
	struct nic_burst burst = { 0 };
	int err = qp->sq_error;

	if (inherited(qp))
		return -EIO;
	if (err)
		qp->sq_building = 0;
	else
		sq_publish(qp);
	lock_drop_lent(&qp->sq_lock);
	if (!err)
		nic_qp_run(qp, &burst);
	return err;
}

void nic_wr_abort(struct nic_qp *qp)
{
	if (inherited(qp))
		return;
	qp->sq_building = 0;
	lock_drop_lent(&qp->sq_lock);
}

uint32_t nic_qp_max_inline(const struct nic_qp *qp)
{
	return qp->sq.max_inline;
}

uint32_t nic_qp_max_send_sge(const struct nic_qp *qp)
{
	return qp->sq.max_sge;
}

/* --- the receive queue
 * --------------------------------------------------------------------------------------------- */

static int post_one_recv(struct nic_qp *qp, const struct ibv_recv_wr *wr)
{
	struct nic_rq *rq = &qp->rq;
	uint32_t prod = atomic_load_explicit(&rq->prod, memory_order_relaxed);
	struct nic_rqe *e;

	if (prod - atomic_load_explicit(&rq->freed, memory_order_acquire) >= rq->max_wr)
		return -ENOMEM;
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return -EINVAL;
	e = nic_rq_at(rq, prod);
	e->wr_id = wr->wr_id;
	e->num_sge = (uint32_t)wr->num_sge;
	e->length = sge_total(wr->sg_list, wr->num_sge);
	copy_sges(e->sge, wr->sg_list, wr->num_sge);
	trace_point(TRACE_POST_RECV, qp->num, wr->wr_id);
	atomic_store_explicit(&rq->prod, prod + 1, memory_order_release);
	return 0;
}

int nic_qp_post_recv(struct nic_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct nic_burst burst = { 0 };
	int err = 0;

	if (generation_now() != qp->ctx->generation) {
		*bad = wr;
		return -EIO;
	}
	lock_take(&qp->rq.lock);
	if (atomic_load(&qp->ib.state) == IBV_QPS_RESET)
		err = -EINVAL;
	for (; wr && !err; wr = err ? wr : wr->next)
		err = post_one_recv(qp, wr);
	if (err)
		*bad = wr;
	lock_drop(&qp->rq.lock);
	if (atomic_load(&qp->ib.state) == IBV_QPS_ERR) {
		atomic_store(&qp->recv_posted, true);
		nic_qp_run(qp, &burst);
	}
	return err;
}

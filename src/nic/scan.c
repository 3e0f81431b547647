/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a queue pair has outstanding in a region, for fault events that name no more than these two
 * (odp/space.h, ODP_IMPRECISE): what is left of the request whose step waits, then what was posted after it,
 * in order.
 *
 * A driver thread reads here without the run lock. It may, because the lane waits: its step, and what the
 * lane alone writes of the responder's state, stay as they are until the wait has been withdrawn, which waits
 * for the scan (odp_cancel); and so do the elements from lane->scan_from on, since requests complete in order
 * and every wait that was overtaken (the request failed, or was acknowledged after all) is withdrawn before a
 * completion gives elements back (run.c). Elements posted meanwhile are seen or not.
 */
#include <string.h>

#include "nic/nic.h"

struct scan {
	struct nic_mr *mr; /* entered */
	uint32_t key;
	unsigned skip; /* extents before the nth */
	struct odp_extent *out;
	unsigned n, most;
};

/* Everything is compared: what does not fit the region is another's, or will fail when its turn comes. */
static void add(struct scan *s, uint32_t key, uint64_t va, uint64_t len, bool write)
{
	const struct nic_mr *mr = s->mr;

	if (!len || key != s->key || va < mr->iova || len > mr->length || va - mr->iova > mr->length - len)
		return;
	if (s->skip) {
		s->skip--;
		return;
	}
	s->out[s->n++] = (struct odp_extent){ mr->addr + (va - mr->iova), len, write };
}

static bool full(const struct scan *s)
{
	return s->n == s->most;
}

/* A scatter/gather list from a byte offset on. */
static void add_list(struct scan *s, const struct ibv_sge *sge, uint32_t num, uint32_t offset, bool write)
{
	for (; num && !full(s); num--, sge++) {
		if (offset >= sge->length) {
			offset -= sge->length;
			continue;
		}
		add(s, sge->lkey, sge->addr + offset, sge->length - offset, write);
		offset = 0;
	}
}

static void add_send_queue(struct scan *s, const struct ib_sq *sq, uint32_t from)
{
	uint32_t end = atomic_load_explicit(&sq->prod, memory_order_acquire);

	for (uint32_t i = from; i != end && !full(s); i++) {
		const struct ib_wqe *wqe = ib_sq_at(sq, i);

		add_list(s, wqe->sge, wqe->num_sge, 0, ib_wr_table[wqe->opcode].answered);
	}
}

static void add_receive_queue(struct scan *s, const struct nic_rq *rq, uint32_t from)
{
	uint32_t end = atomic_load_explicit(&rq->prod, memory_order_acquire);

	for (uint32_t i = from; i != end && !full(s); i++) {
		const struct nic_rqe *e = nic_rq_at(rq, i);

		add_list(s, e->sge, e->num_sge, 0, true);
	}
}

/* What a request of the peer still needs of memory that it named: all that is left of a WRITE or READ. */
static void add_remote(struct scan *s, const struct ib_qp *ib, const struct ib_step *step)
{
	const struct ib_responder *resp = &ib->resp;
	uint64_t va = step->mem.remote.va, len = step->mem.length;

	if (step->op == IB_TX)
		len = resp->read_left;
	else if (step->op == IB_SCATTER)
		len = resp->va + resp->dma_len - va;
	add(s, step->mem.remote.rkey, va, len, step->op != IB_TX);
}

static void add_step(struct scan *s, const struct ib_qp *ib, const struct ib_step *step)
{
	if (step->mem.kind == IB_MEM_LOCAL)
		add_list(s, step->mem.local.sge, step->mem.local.num, step->mem.local.offset,
			step->op == IB_SCATTER);
	else if (step->mem.kind == IB_MEM_REMOTE)
		add_remote(s, ib, step);
}

void nic_scan_prepare(struct nic_qp *qp, enum ib_lane l)
{
	qp->lane[l].scan_from = l == IB_REQUESTER   ? qp->ib.req.index + 1
				: l == IB_COMPLETER ? qp->sq.done + 1
						    : qp->rq.next;
}

unsigned nic_scan(
	struct odp_waiter *w, const struct odp_region *r, unsigned nth, struct odp_extent *out, unsigned most)
{
	struct nic_lane *lane = container_of(w, struct nic_lane, waiter);
	struct nic_qp *qp = w->owner;
	enum ib_lane l = (enum ib_lane)(lane - qp->lane);
	struct scan s = {
		.mr = container_of(r, struct nic_mr, region), .skip = nth, .out = out, .most = most
	};

	/* A region that is going away has nothing outstanding. */
	if (!rundown_enter(&s.mr->users))
		return 0;
	s.key = atomic_load_explicit(&s.mr->key, memory_order_relaxed);
	if (most)
		add_step(&s, &qp->ib, &qp->ib.step[l]);
	if (l == IB_RESPONDER)
		add_receive_queue(&s, &qp->rq, lane->scan_from);
	else
		add_send_queue(&s, &qp->sq, lane->scan_from);
	rundown_leave(&s.mr->users);
	return s.n;
}

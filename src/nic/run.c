/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Carrying out the transport's steps: where ib/, wire/, odp/ and the completion queues meet.
 *
 * One thread at a time runs a queue pair (run_lock). A thread that finds it taken leaves a kick, and the one
 * inside looks again before it goes; so a thread that is stuck in a copy never holds up another, and no kick
 * is lost.
 *
 * A lane whose step waits for a fault is parked until its waiter is told; one whose step waits for a slot of
 * the wire is blocked until credit comes. Both keep their step pending in ib/ and carry it out again from the
 * start; the other lanes go on.
 */
#include <errno.h>
#include <sched.h>

#include "base/clock.h"
#include "base/log.h"
#include "nic/nic.h"

/* Steps per run: then it is the next queue pair's turn, and the calling thread gets out of a stream without
 * end. */
#define BUDGET 128u

/* Results of a step beside 0 and the errors that ib_done() takes. */
enum { PARKED = 1, BLOCKED, HAND_OVER };

/* --- waiting
 * ------------------------------------------------------------------------------------------------------- */

void nic_lane_fault_over(struct odp_waiter *w, int result)
{
	struct nic_lane *lane = container_of(w, struct nic_lane, waiter);
	struct nic_qp *qp = w->owner;

	/* Whatever the result, the access is made again and finds out for itself. */
	(void)result;
	atomic_store(&lane->ready, true);
	nic_qp_schedule(qp);
}

/* Takes the lane's wait back. On return the waiter is not queued anywhere and ready() is not running. */
void nic_qp_withdraw(struct nic_qp *qp, enum ib_lane l)
{
	struct nic_lane *lane = &qp->lane[l];

	/* Even when nothing waits: what the last fault came to must not be told to another access. */
	if (!odp_cancel(&lane->waiter) && lane->parked)
		while (!atomic_load(&lane->ready))
			sched_yield(); /* the teller is between its decision and its call */
	lane->parked = false;
	atomic_store(&lane->ready, false);
	atomic_store(&lane->blocked, false);
}

/* --- the steps
 * ----------------------------------------------------------------------------------------------------- */

/* Who waits if the step meets a fault; NULL: nobody, the peer is told to come again. */
static struct odp_waiter *waiter_of(struct nic_qp *qp, enum ib_lane l, const struct ib_step *s)
{
	const struct settings *set = &qp->nic->set;

	if (s->may_defer && set->value[SETTING_FAULT_REPLY_ID] == FAULT_REPLY_RNR)
		return NULL;
	if (set->value[SETTING_FAULT_MODE_ID] == FAULT_MODE_IMPRECISE)
		nic_scan_prepare(qp, l);
	return &qp->lane[l].waiter;
}

/* Walks a scatter/gather list from mem->local.offset on, copying mem->length bytes from or to buf. */
static int copy_local(struct nic_qp *qp, struct nic_burst *b, struct odp_waiter *w, const struct ib_mem *mem,
	void *buf, bool in)
{
	uint32_t skip = mem->local.offset, left = mem->length;
	uint8_t *at = buf;

	for (uint32_t i = 0; i < mem->local.num && left; i++) {
		const struct ibv_sge *sge = &mem->local.sge[i];
		uint32_t n;
		int err;

		if (skip >= sge->length) {
			skip -= sge->length;
			continue;
		}
		n = sge->length - skip < left ? sge->length - skip : left;
		err = in ? nic_mr_copy_in(qp->nic, b, qp->pd, sge->lkey, sge->addr + skip, at, n,
				   IBV_ACCESS_LOCAL_WRITE, w)
			 : nic_mr_copy_out(qp->nic, b, qp->pd, sge->lkey, sge->addr + skip, at, n, 0, w);
		if (err)
			return err;
		skip = 0;
		at += n;
		left -= n;
	}
	return left ? -EFAULT : 0;
}

static int gather(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, const struct ib_step *s, void *to)
{
	switch (s->mem.kind) {
	case IB_MEM_NONE:
		return 0;
	case IB_MEM_BUF:
		__builtin_memcpy(to, s->mem.buf, s->mem.length);
		return 0;
	case IB_MEM_LOCAL:
		return copy_local(qp, b, waiter_of(qp, l, s), &s->mem, to, false);
	case IB_MEM_REMOTE:
		return nic_mr_copy_out(qp->nic, b, qp->pd, s->mem.remote.rkey, s->mem.remote.va, to,
			s->mem.length, s->access, waiter_of(qp, l, s));
	}
	return -EINVAL;
}

static int translate(int err)
{
	return err == -EINPROGRESS ? PARKED : err == -EAGAIN ? HAND_OVER : err;
}

static int do_tx(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, struct ib_step *s)
{
	struct wire_flow *flow = &qp->flow[l == IB_REQUESTER ? 0 : 1];
	uint8_t hdr[IB_HDR_MAX] __attribute__((aligned(8)));
	uint32_t len = s->mem.kind == IB_MEM_NONE ? 0 : s->mem.length;
	struct nic_lane *lane = &qp->lane[l];
	struct wire_tx tx;
	int err = -EPIPE;

	if (qp->channel) {
		/* Before the try: credit may come between the refusal and the return. */
		atomic_store(&lane->blocked, true);
		err = wire_reserve(flow, len, &tx);
		if (err == -EAGAIN)
			return BLOCKED;
		atomic_store(&lane->blocked, false);
	}
	if (err) {
		/* Nobody there (or no memory for slots): lost, as on any network. The transport is told when
		 * it knows that the packet was sent; retries and their counts decide what comes of it. Who
		 * waits for a response has no timer on a wire that loses nothing. */
		if (l == IB_RESPONDER)
			wire_notify_dropped(qp->nic->wire, atomic_load(&qp->peer_slot), s->pkt.dest_qpn);
		else
			atomic_store(&qp->peer_lost, true);
		return 0;
	}
	err = gather(qp, b, l, s, tx.payload);
	if (err) {
		wire_cancel(flow, &tx);
		return translate(err);
	}
	wire_commit(flow, &tx, qp->num, s->pkt.dest_qpn, hdr, (uint32_t)ib_packet_encode(&s->pkt, len, hdr));
	counter_add(&qp->nic->seg->dev.tx_packets, 1);
	counter_add(&qp->nic->seg->dev.tx_bytes, len);
	return 0;
}

static int do_scatter(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, struct ib_step *s)
{
	struct nic_lane *lane = &qp->lane[l];
	const uint8_t *from = s->src ? s->src : (const uint8_t *)lane->current->payload + s->pkt_offset;

	if (s->mem.kind == IB_MEM_LOCAL)
		return translate(
			copy_local(qp, b, waiter_of(qp, l, s), &s->mem, (void *)(uintptr_t)from, true));
	if (s->mem.kind == IB_MEM_REMOTE)
		return translate(nic_mr_copy_in(qp->nic, b, qp->pd, s->mem.remote.rkey, s->mem.remote.va,
			from, s->mem.length, s->access, waiter_of(qp, l, s)));
	return s->mem.length ? -EFAULT : 0;
}

static int do_check(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, struct ib_step *s)
{
	(void)b, (void)l;
	return nic_mr_check(qp->nic, qp->pd, s->mem.remote.rkey, s->mem.remote.va, s->mem.length, s->access);
}

static int do_atomic(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, struct ib_step *s)
{
	return translate(nic_mr_atomic(
		qp->nic, b, qp->pd, s->mem.remote.rkey, s->mem.remote.va, s, waiter_of(qp, l, s)));
}

static int do_recv(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, struct ib_step *s)
{
	struct nic_rq *rq = &qp->rq;
	const struct nic_rqe *e;

	(void)b, (void)l;
	if (rq->next == atomic_load_explicit(&rq->prod, memory_order_acquire))
		return -ENOENT;
	e = nic_rq_at(rq, rq->next);
	s->recv.wr_id = e->wr_id;
	s->recv.sge = e->sge;
	s->recv.num_sge = e->num_sge;
	s->recv.length = e->length;
	s->recv.index = rq->next++;
	return 0;
}

/* Steps that were withdrawn by the transport while they waited. */
static void end_overtaken_waits(struct nic_qp *qp)
{
	for (enum ib_lane l = 0; l < IB_LANES; l++)
		if (qp->lane[l].parked && !ib_step_is_pending(&qp->ib, l, qp->lane[l].serial))
			nic_qp_withdraw(qp, l);
}

static int do_cqe(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, struct ib_step *s)
{
	struct nic_cq *cq = s->wc.recv ? qp->recv_cq : qp->send_cq;

	(void)b, (void)l;
	/* A completion gives elements of the queues back, which the scan for such a wait might read (scan.c).
	 */
	end_overtaken_waits(qp);
	if (nic_cq_push(cq, qp, &s->wc))
		return 0;
	if (ib_qp_is(&qp->ib, IBV_QPS_ERR))
		nic_cq_raise_overrun(cq);
	else
		qp->overrun = cq;
	return 0;
}

static int do_event(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, struct ib_step *s)
{
	(void)b, (void)l;
	nic_qp_raise(qp, s->event);
	return 0;
}

static int (*const carry_out[])(struct nic_qp *, struct nic_burst *, enum ib_lane, struct ib_step *) = {
	[IB_TX] = do_tx,
	[IB_SCATTER] = do_scatter,
	[IB_CHECK] = do_check,
	[IB_ATOMIC] = do_atomic,
	[IB_RECV] = do_recv,
	[IB_CQE] = do_cqe,
	[IB_EVENT] = do_event,
};

/* --- packets
 * ------------------------------------------------------------------------------------------------------- */

/* All that wait are taken at once: one lock for a burst. */
static struct wire_rx *next_packet(struct nic_qp *qp, enum ib_lane l)
{
	struct nic_lane *lane = &qp->lane[l];
	struct list *node = list_pop(&lane->taken);

	if (!node && atomic_load(&lane->waiting)) {
		lock_take(&qp->rx_lock);
		list_splice_tail(&lane->taken, &lane->rxq);
		qp->rx_count -= atomic_exchange_explicit(&lane->waiting, 0, memory_order_relaxed);
		lock_drop(&qp->rx_lock);
		node = list_pop(&lane->taken);
	}
	return node ? container_of(node, struct wire_rx, node) : NULL;
}

/* The lane is done with its packet. A request that ended with the queue pair may not have been answered: its
 * sender is told. */
static void packet_over(struct nic_qp *qp, enum ib_lane l, bool answered)
{
	struct wire_rx *rx = qp->lane[l].current;

	if (!rx)
		return;
	qp->lane[l].current = NULL;
	if (l == IB_RESPONDER && (!answered || ib_qp_is(&qp->ib, IBV_QPS_ERR))) {
		nic_rx_drop(qp->nic, rx);
		return;
	}
	wire_release(qp->nic->wire, rx);
	nic_rx_put(qp->nic, rx);
}

/* A queue pair's number says who sent: what a peer of an earlier connection still sends, or the peer of
 * another queue pair that had this number, is not for this one, whatever its sequence number. */
static bool is_from_peer(const struct nic_qp *qp, const struct wire_rx *rx)
{
	return rx->src_slot == atomic_load_explicit(&qp->peer_slot, memory_order_relaxed) &&
	       rx->src_qpn == qp->ib.attr.dest_qpn;
}

static bool tell_waiting_in(struct nic_qp *qp, const struct list *queue)
{
	list_for_each_safe (node, queue) {
		const struct wire_rx *rx = container_of(node, struct wire_rx, node);
		struct ib_packet pkt;

		if (!is_from_peer(qp, rx))
			continue;
		ib_packet_decode(&pkt, rx->hdr, rx->hdrlen);
		if (!ib_waits(&qp->ib, pkt.opcode, pkt.psn))
			return false;
	}
	return true;
}

/* What waits behind the request in hand. */
static void tell_waiting(struct nic_qp *qp)
{
	struct nic_lane *lane = &qp->lane[IB_RESPONDER];

	if (!ib_asks_what_waits(&qp->ib) || !tell_waiting_in(qp, &lane->taken) ||
		!atomic_load(&lane->waiting))
		return;
	lock_take(&qp->rx_lock);
	tell_waiting_in(qp, &lane->rxq);
	lock_drop(&qp->rx_lock);
}

/* Hands the lane, which is idle, its next packet. false: there is none. */
static bool feed(struct nic_qp *qp, enum ib_lane l, uint64_t now)
{
	struct nic_lane *lane = &qp->lane[l];
	struct ib_packet pkt;
	struct wire_rx *rx;

	packet_over(qp, l, true);
	rx = next_packet(qp, l);
	if (!rx)
		return false;
	lane->current = rx;
	counter_add(&qp->nic->seg->dev.rx_packets, 1);
	counter_add(&qp->nic->seg->dev.rx_bytes, rx->paylen);
	/* Decoded once on arrival to find the lane: it cannot fail now. */
	ib_packet_decode(&pkt, rx->hdr, rx->hdrlen);
	if (!is_from_peer(qp, rx) || ib_rx(&qp->ib, &pkt, rx->paylen, now)) {
		lane->current = NULL;
		nic_rx_drop(qp->nic, rx);
	} else if (l == IB_RESPONDER) {
		tell_waiting(qp);
	}
	return true;
}

void nic_qp_drop_packets(struct nic_qp *qp)
{
	for (enum ib_lane l = IB_COMPLETER; l < IB_LANES; l++) {
		struct wire_rx *rx;

		packet_over(qp, l, false);
		while ((rx = next_packet(qp, l)))
			nic_rx_drop(qp->nic, rx);
	}
}

/* --- the run
 * ------------------------------------------------------------------------------------------------------- */

/* A step that was parked or blocked may have been withdrawn by the transport meanwhile (the queue pair went
 * to ERR). */
static bool lane_waits(struct nic_qp *qp, enum ib_lane l)
{
	struct nic_lane *lane = &qp->lane[l];

	if (!lane->parked && !atomic_load(&lane->blocked))
		return false;
	if (!ib_step_is_pending(&qp->ib, l, lane->serial)) {
		nic_qp_withdraw(qp, l);
		return false;
	}
	if (lane->parked && atomic_exchange(&lane->ready, false)) {
		lane->parked = false;
		return false;
	}
	return lane->parked || atomic_load(&lane->blocked);
}

/* A completion is lost: the queue pair cannot go on as if nothing had happened (IBTA 10.10.2.3). */
static void fail_overrun(struct nic_qp *qp, uint64_t now)
{
	ib_qp_error(&qp->ib, now);
	nic_cq_raise_overrun(qp->overrun);
	nic_qp_raise(qp, IBV_EVENT_QP_FATAL);
	qp->overrun = NULL;
}

static bool run_lane(struct nic_qp *qp, struct nic_burst *b, enum ib_lane l, uint64_t now)
{
	struct nic_lane *lane = &qp->lane[l];
	bool did = false;
	struct ib_step *s;
	int r;

	while (!lane_waits(qp, l)) {
		s = ib_next(&qp->ib, l, now);
		if (!s) {
			if (!feed(qp, l, now))
				break;
			did = true;
			continue;
		}
		if (!qp->budget) {
			qp->more = true;
			break;
		}
		qp->budget--;
		lane->serial = s->serial;
		atomic_store_explicit(&lane->ready, false, memory_order_relaxed);
		r = carry_out[s->op](qp, b, l, s);
		if (r == PARKED) {
			lane->parked = true;
			qp->parked_ns = clock_ns();
			qp->parkings++;
			continue; /* the fault may be over already */
		}
		if (r == BLOCKED)
			continue;
		if (r == HAND_OVER) {
			qp->hand_over = true;
			break;
		}
		ib_done(&qp->ib, l, r, now);
		did = true;
		if (qp->overrun)
			fail_overrun(qp, now);
	}
	return did;
}

/* The peer is dead, and what it had sent before has been handled now, unless a lane waits for a fault and
 * holds more back. */
static bool peer_is_over(struct nic_qp *qp, uint64_t now)
{
	uint32_t dead = atomic_load(&qp->dead_connection);

	if (dead != atomic_load_explicit(&qp->connection, memory_order_relaxed) ||
		qp->lane[IB_COMPLETER].parked)
		return false;
	/* Told once: no connection has this number. */
	atomic_store(&qp->dead_connection, dead - 1);
	ib_peer_dead(&qp->ib, now);
	return true;
}

/* Packets were lost, or may be from now on: of the latter the wire tells in the same way, once. */
static void tell_lost(struct nic_qp *qp, uint64_t now)
{
	if (qp->channel && wire_lossy(qp->channel))
		ib_lossy(&qp->ib, now);
	ib_lost(&qp->ib, now);
}

static void run_locked(struct nic_qp *qp, struct nic_burst *b)
{
	uint64_t now = clock_ns();
	bool did;

	qp->budget = BUDGET;
	qp->more = false;
	for (;;) {
		int was = atomic_load_explicit(&qp->ib.state, memory_order_relaxed);

		if (atomic_load(&qp->recv_posted) && atomic_exchange(&qp->recv_posted, false))
			ib_recv_posted(&qp->ib);
		did = atomic_load(&qp->peer_lost) && atomic_exchange(&qp->peer_lost, false);
		if (did)
			tell_lost(qp, now);
		qp->hand_over = false;
		/* Responses first: they free what requests wait for. */
		did |= run_lane(qp, b, IB_COMPLETER, now);
		/* Not before the answers that have come: this process may have been kept from running. Who
		 * has not looked for them leaves the timer to whoever does. */
		if (b->polled && ib_deadline(&qp->ib) <= now && !qp->more) {
			ib_tick(&qp->ib, now);
			did = true;
		}
		did |= run_lane(qp, b, IB_RESPONDER, now);
		did |= run_lane(qp, b, IB_REQUESTER, now);
		if (qp->hand_over || qp->more)
			break;
		/* A lane that found nothing to do may have found that everything has to be flushed. */
		did |= atomic_load_explicit(&qp->ib.state, memory_order_relaxed) != was;
		if (!did && !peer_is_over(qp, now))
			break;
		/* Copies and faults have taken their time: timers begin from now on. */
		if (qp->budget < BUDGET - 8)
			now = clock_ns();
	}
	nic_timer_set(qp, ib_deadline(&qp->ib));
	nic_segment_qp_set(qp);
}

void nic_qp_run(struct nic_qp *qp, struct nic_burst *b)
{
	bool hand_over = false, more = false;

	atomic_exchange(&qp->kick, 1);
	while (lock_try(&qp->run_lock)) {
		if (atomic_exchange(&qp->kick, 0) && qp->live) {
			run_locked(qp, b);
			hand_over = qp->hand_over;
			more = qp->more;
		}
		lock_drop(&qp->run_lock);
		if (hand_over || more || !atomic_load(&qp->kick))
			break;
	}
	if (hand_over)
		nic_qp_schedule_engine(qp);
	else if (more)
		nic_qp_schedule(qp);
}

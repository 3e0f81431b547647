/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "nic/cq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/trace.h"
#include "mm/generation.h"
#include "nic/nic.h"

/* A poller that always finds something still has to drive progress now and then. */
#define POLLS_BETWEEN_PROGRESS 64
#define POLLS_PER_WORK	       16
/* Empty polls in a row before the processor is offered to others, and between such offers: a poll takes some
 * 50 ns. */
#define YIELD_AFTER 512
#define YIELD_EVERY 256

/* --- channels
 * ------------------------------------------------------------------------------------------------------ */

int nic_channel_create(struct nic_context *ctx, struct nic_channel **out)
{
	struct nic_channel *ch;
	int err = nic_context_check(ctx);

	if (err)
		return err;
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	ch->ctx = ctx;
	err = nic_event_queue_init(&ch->queue);
	if (err) {
		free(ch);
		return err;
	}
	nic_context_ref(ctx);
	*out = ch;
	return 0;
}

int nic_channel_destroy(struct nic_channel *ch)
{
	struct nic_context *ctx;

	if (nic_context_check(ch->ctx))
		return 0; /* inherited: forgotten, memory is left */
	if (atomic_load(&ch->users))
		return -EBUSY;
	nic_event_queue_fini(&ch->queue);
	ctx = ch->ctx;
	free(ch);
	nic_context_unref(ctx);
	return 0;
}

int nic_channel_get_event(struct nic_channel *ch, void **cookie)
{
	int err = nic_context_check(ch->ctx);

	if (err)
		return err;
	return nic_event_get(&ch->queue, cookie, NULL, NULL);
}

void nic_cq_ack_events(struct nic_cq *cq, unsigned n)
{
	if (cq->channel && !nic_context_check(cq->ctx))
		nic_event_ack(&cq->channel->queue, &cq->comp_source, n);
}

/* --- life
 * ----------------------------------------------------------------------------------------------------------
 */

static uint32_t power_of_two_at_least(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

int nic_cq_create(struct nic_context *ctx, int cqe, struct nic_channel *ch, void *cookie, struct nic_cq **out,
	int *actual)
{
	struct nic_cq *cq;
	int err = nic_context_check(ctx);

	if (err)
		return err;
	if (cqe < 1 || cqe > NIC_MAX_CQE)
		return -EINVAL;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->size = power_of_two_at_least((uint32_t)cqe);
	cq->capacity = (uint32_t)cqe;
	cq->ring = calloc(cq->size, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return -ENOMEM;
	}
	cq->ctx = ctx;
	cq->channel = ch;
	lock_init(&cq->lock, LOCK_CQ);
	cq->comp_source.cookie = cookie;
	cq->comp_event.source = &cq->comp_source;
	list_init(&cq->comp_event.node);
	cq->async_source.cookie = cookie;
	cq->async_event.source = &cq->async_source;
	cq->async_event.type = IBV_EVENT_CQ_ERR;
	list_init(&cq->async_event.node);
	if (ch)
		atomic_fetch_add(&ch->users, 1);
	nic_context_ref(ctx);
	atomic_fetch_add_explicit(&ctx->nic->seg->cqs, 1, memory_order_relaxed);
	*actual = cqe;
	*out = cq;
	return 0;
}

int nic_cq_resize(struct nic_cq *cq, int cqe, int *actual)
{
	struct nic_cqe *ring, *old;
	uint32_t size, head, n;
	int err = nic_context_check(cq->ctx);

	if (err)
		return err;
	if (cqe < 1 || cqe > NIC_MAX_CQE)
		return -EINVAL;
	size = power_of_two_at_least((uint32_t)cqe);
	ring = calloc(size, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	lock_take(&cq->lock);
	head = atomic_load(&cq->head);
	n = atomic_load(&cq->tail) - head;
	if (n > (uint32_t)cqe) {
		lock_drop(&cq->lock);
		free(ring);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < n; i++)
		ring[(head + i) & (size - 1)] = cq->ring[(head + i) & (cq->size - 1)];
	old = cq->ring;
	cq->ring = ring;
	cq->size = size;
	cq->capacity = (uint32_t)cqe;
	*actual = cqe; /* under the lock: it is the application's field, which two threads may set */
	lock_drop(&cq->lock);
	free(old);
	return 0;
}

int nic_cq_destroy(struct nic_cq *cq)
{
	struct nic_context *ctx = cq->ctx;

	if (nic_context_check(ctx))
		return 0; /* inherited: forgotten, memory is left */
	if (atomic_load(&cq->users))
		return -EBUSY;
	if (cq->channel) {
		nic_event_retire(&cq->channel->queue, &cq->comp_source, &cq->comp_event, 1);
		atomic_fetch_sub(&cq->channel->users, 1);
	}
	nic_event_retire(&ctx->async, &cq->async_source, &cq->async_event, 1);
	atomic_fetch_sub_explicit(&ctx->nic->seg->cqs, 1, memory_order_relaxed);
	lock_fini(&cq->lock);
	free(cq->ring);
	free(cq);
	nic_context_unref(ctx);
	return 0;
}

/* --- the data path
 * ------------------------------------------------------------------------------------------------- */

static void raise_comp_event(struct nic_cq *cq, bool solicited)
{
	if (cq->armed == NIC_CQ_ANY || (cq->armed == NIC_CQ_SOLICITED && solicited)) {
		cq->armed = NIC_CQ_QUIET;
		if (cq->channel)
			nic_event_post(&cq->channel->queue, &cq->comp_event);
	}
}

bool nic_cq_push(struct nic_cq *cq, struct nic_qp *qp, const struct ib_wc *wc)
{
	struct nic_cqe *e;
	uint32_t tail;

	lock_take(&cq->lock);
	tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&cq->head, memory_order_relaxed) >= cq->capacity || cq->overrun) {
		cq->overrun = true;
		lock_drop(&cq->lock);
		return false;
	}
	e = &cq->ring[tail & (cq->size - 1)];
	e->wc.wr_id = wc->wr_id;
	e->wc.status = wc->status;
	e->wc.opcode = wc->opcode;
	e->wc.vendor_err = wc->status == IBV_WC_SUCCESS ? 0 : (uint32_t)wc->status;
	e->wc.byte_len = wc->byte_len;
	e->wc.imm_data = wc->imm;
	e->wc.qp_num = qp->num;
	e->wc.src_qp = qp->ib.attr.dest_qpn;
	e->wc.wc_flags = wc->wc_flags;
	e->wc.pkey_index = 0;
	e->wc.slid = 0;
	e->wc.sl = 0;
	e->wc.dlid_path_bits = 0;
	e->qp = qp;
	e->index = wc->index;
	e->recv = wc->recv;
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_release);
	raise_comp_event(cq, wc->solicited || wc->status != IBV_WC_SUCCESS);
	lock_drop(&cq->lock);
	trace_point(TRACE_COMPLETION, qp->num, wc->wr_id);
	return true;
}

void nic_cq_raise_overrun(struct nic_cq *cq)
{
	if (!atomic_exchange(&cq->overrun_told, true))
		nic_event_post(&cq->ctx->async, &cq->async_event);
}

/* What a poller was told about is free again, and with it everything posted before. */
static void give_back(const struct nic_cqe *e)
{
	_Atomic uint32_t *freed = e->recv ? &e->qp->rq.freed : &e->qp->sq.freed;

	atomic_store_explicit(freed, e->index + 1, memory_order_release);
}

static int take(struct nic_cq *cq, int n, struct ibv_wc *wc)
{
	uint32_t head;
	int got = 0;

	if (atomic_load_explicit(&cq->head, memory_order_relaxed) ==
		atomic_load_explicit(&cq->tail, memory_order_acquire))
		return 0;
	lock_take(&cq->lock);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	while (got < n && head != atomic_load_explicit(&cq->tail, memory_order_relaxed)) {
		const struct nic_cqe *e = &cq->ring[head++ & (cq->size - 1)];

		wc[got++] = e->wc;
		give_back(e);
	}
	atomic_store_explicit(&cq->head, head, memory_order_release);
	atomic_store_explicit(&cq->empty_run, 0, memory_order_relaxed);
	lock_drop(&cq->lock);
	return got;
}

/*
 * A program that spins on an empty queue may be what keeps its peer from running: two that poll each other on
 * one processor would each use up a whole time slice (milliseconds) before the other answers. After a while
 * of nothing the processor is offered to whoever else wants it; alone on it, that costs a fraction of a
 * microsecond in every few.
 */
static void give_way(struct nic_cq *cq)
{
	uint32_t run = atomic_load_explicit(&cq->empty_run, memory_order_relaxed) + 1;

	atomic_store_explicit(&cq->empty_run, run, memory_order_relaxed);
	if (run >= YIELD_AFTER && run % YIELD_EVERY == 0)
		syscall(SYS_sched_yield);
}

int nic_cq_poll(struct nic_cq *cq, int n, struct ibv_wc *wc)
{
	struct nic *nic = cq->ctx->nic;
	struct nic_burst burst = { 0 };
	int got;

	if (generation_now() != cq->ctx->generation)
		return -EIO;
	if (n <= 0)
		return n ? -EINVAL : 0;
	nic_engine_polled(nic, 1);
	got = take(cq, n, wc);
	if (got) {
		unsigned polls = atomic_load_explicit(&cq->polls, memory_order_relaxed) + (unsigned)got;

		if (polls >= POLLS_BETWEEN_PROGRESS) {
			polls = 0;
			nic_progress(nic, &burst);
		}
		atomic_store_explicit(&cq->polls, polls, memory_order_relaxed);
		return got;
	}
	if (cq->overrun)
		return -EOVERFLOW;
	if (nic_progress(nic, &burst)) {
		/* Work done in polls makes them few. */
		nic_engine_polled(nic, POLLS_PER_WORK);
		got = take(cq, n, wc);
	} else {
		give_way(cq);
	}
	return got;
}

int nic_cq_req_notify(struct nic_cq *cq, bool solicited_only)
{
	if (nic_context_check(cq->ctx))
		return -EIO;
	lock_take(&cq->lock);
	/* A request for any completion stands over one for solicited ones (IBTA 11.4.2.2). */
	if (!solicited_only)
		cq->armed = NIC_CQ_ANY;
	else if (cq->armed == NIC_CQ_QUIET)
		cq->armed = NIC_CQ_SOLICITED;
	lock_drop(&cq->lock);
	nic_engine_sleeping(cq->ctx->nic);
	return 0;
}

void nic_cq_purge(struct nic_cq *cq, struct nic_qp *qp)
{
	uint32_t head, tail, to;

	lock_take(&cq->lock);
	head = to = atomic_load(&cq->head);
	tail = atomic_load(&cq->tail);
	for (uint32_t i = head; i != tail; i++) {
		struct nic_cqe *e = &cq->ring[i & (cq->size - 1)];

		if (e->qp != qp)
			cq->ring[to++ & (cq->size - 1)] = *e;
	}
	atomic_store(&cq->tail, to);
	lock_drop(&cq->lock);
}

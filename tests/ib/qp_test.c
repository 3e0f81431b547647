/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Two queue pairs, end to end: what one side's errors and losses are on the other. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "endpoint.h"

enum { SEG = 256 };

static void fill(struct endpoint *e, uint32_t at, uint32_t n, uint8_t seed)
{
	for (uint32_t i = 0; i < n; i++)
		e->mem[at + i] = (uint8_t)(seed + i * 5 + i / 256);
}

static bool post(
	struct endpoint *e, uint8_t opcode, uint32_t local, uint32_t length, uint64_t remote, uint64_t wr_id)
{
	struct test_wr wr = { .opcode = opcode,
		.wr_id = wr_id,
		.local = local,
		.length = length,
		.remote = remote,
		.sges = 2,
		.imm = 77,
		.compare_add = 1 };

	return endpoint_post_send(e, &wr);
}

static void completes(struct endpoint *e, unsigned nth, bool recv, uint64_t wr_id, enum ibv_wc_status status)
{
	assert_true(e->wcs > nth);
	assert_int_equal(e->wc[nth].wc.recv, recv);
	assert_int_equal(e->wc[nth].wc.wr_id, wr_id);
	assert_int_equal(e->wc[nth].wc.status, status);
}

static void every_kind_of_request_does_its_work(void **state)
{
	struct pair *p = *state;
	struct endpoint *a = &p->a, *b = &p->b;
	uint64_t word;

	fill(a, 0, 1000, 1);
	fill(b, 8192, 1000, 99);
	endpoint_post_recv(b, 100, 4096, 1000, 3);
	endpoint_post_recv(b, 101, 0, 0, 1);
	assert_true(post(a, IBV_WR_SEND_WITH_IMM, 0, 1000, 0, 1));
	assert_true(post(a, IBV_WR_RDMA_WRITE, 0, 777, b->base + 16384, 2));
	assert_true(post(a, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 300, b->base + 20000, 3));
	assert_true(post(a, IBV_WR_RDMA_READ, 30000, 999, b->base + 8192, 4));
	assert_true(post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 40000, 8, b->base + 32768, 5));
	assert_true(post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, 40008, 8, b->base + 32768, 6));
	pair_settle(p);
	for (unsigned i = 0; i < 6; i++)
		completes(a, i, false, i + 1, IBV_WC_SUCCESS);
	completes(b, 0, true, 100, IBV_WC_SUCCESS);
	completes(b, 1, true, 101, IBV_WC_SUCCESS);
	assert_int_equal(b->wc[1].wc.byte_len, 300);
	assert_memory_equal(b->mem + 4096, a->mem, 1000);
	assert_memory_equal(b->mem + 16384, a->mem, 777);
	assert_memory_equal(b->mem + 20000, a->mem, 300);
	assert_memory_equal(a->mem + 30000, b->mem + 8192, 999);
	memcpy(&word, a->mem + 40008, 8);
	assert_int_equal(word, 1);
	memcpy(&word, b->mem + 32768, 8);
	assert_int_equal(word, 2);
}

static void both_directions_run_at_once(void **state)
{
	struct pair *p = *state;

	for (unsigned i = 0; i < 20; i++) {
		assert_true(post(&p->a, IBV_WR_RDMA_WRITE, 0, 2000, p->b.base + 4096, i));
		assert_true(post(&p->b, IBV_WR_RDMA_READ, 8192, 2000, p->a.base, i));
	}
	pair_settle(p);
	assert_int_equal(p->a.wcs, 20);
	assert_int_equal(p->b.wcs, 20);
}

static void an_8_byte_send_costs_six_steps(void **state)
{
	struct pair *p = *state;

	endpoint_post_recv(&p->b, 1, 0, 8, 1);
	assert_true(post(&p->a, IBV_WR_SEND, 0, 8, 0, 1));
	pair_settle(p);
	assert_int_equal(p->a.wcs + p->b.wcs, 2);
	assert_int_equal(p->a.steps + p->b.steps, 6);
}

static bool drop_nth(struct pair *p, struct endpoint *from, struct frame *f)
{
	(void)from;
	(void)f;
	return p->seen == p->limit;
}

/* Whichever packet is lost, everything arrives, once. */
static void any_one_packet_may_be_lost(void **state)
{
	unsigned total = 0;

	(void)state;
	for (unsigned n = 0; n == 0 || n <= total; n++) {
		struct pair p;
		uint64_t word;

		pair_init(&p);
		p.filter = drop_nth;
		p.limit = n;
		fill(&p.a, 0, 1000, 3);
		fill(&p.b, 8192, 1000, 50);
		endpoint_post_recv(&p.b, 1, 4096, 600, 1);
		assert_true(post(&p.a, IBV_WR_RDMA_WRITE, 0, 600, p.b.base + 16384, 1));
		assert_true(post(&p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 40000, 8, p.b.base + 32768, 2));
		assert_true(post(&p.a, IBV_WR_RDMA_READ, 30000, 900, p.b.base + 8192, 3));
		assert_true(post(&p.a, IBV_WR_SEND, 0, 600, 0, 4));
		assert_true(post(&p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, 40008, 8, p.b.base + 32768, 5));
		pair_settle(&p);
		if (n == 0)
			total = p.seen;
		while (p.a.wcs < 5)
			assert_true(pair_expire(&p));
		for (unsigned i = 0; i < 5; i++)
			completes(&p.a, i, false, i + 1, IBV_WC_SUCCESS);
		assert_int_equal(p.b.wcs, 1);
		assert_memory_equal(p.b.mem + 4096, p.a.mem, 600);
		assert_memory_equal(p.b.mem + 16384, p.a.mem, 600);
		assert_memory_equal(p.a.mem + 30000, p.b.mem + 8192, 900);
		memcpy(&word, p.b.mem + 32768, 8);
		assert_int_equal(word, 2);
		assert_int_equal(p.b.atomics, 2);
		memcpy(&word, p.a.mem + 40008, 8);
		assert_int_equal(word, 1);
		assert_false(pair_expire(&p)); /* no timer is left running */
		pair_fini(&p);
	}
	assert_true(total > 10);
}

static bool drop_requests(struct pair *p, struct endpoint *from, struct frame *f)
{
	if (ib_lane_of(f->pkt.opcode) != IB_RESPONDER)
		return false;
	(void)from;
	p->note++;
	return true;
}

static void retries_run_out_after_exactly_retry_cnt(void **state)
{
	struct pair *p = *state;

	p->filter = drop_requests;
	p->a.qp.attr.retry_cnt = 5;
	ib_qp_modify(&p->a.qp, IBV_QPS_RTS, &p->a.qp.attr, false, p->now);
	assert_true(post(&p->a, IBV_WR_SEND, 0, 8, 0, 1));
	pair_settle(p);
	while (pair_expire(p))
		;
	assert_int_equal(p->note, 6);
	completes(&p->a, 0, false, 1, IBV_WC_RETRY_EXC_ERR);
	assert_true(ib_qp_is(&p->b.qp, IBV_QPS_RTS));
}

static void a_receiver_that_comes_late_is_waited_for(void **state)
{
	struct pair *p = *state;

	assert_true(post(&p->a, IBV_WR_SEND, 0, 600, 0, 1));
	assert_true(post(&p->a, IBV_WR_SEND, 0, 8, 0, 2));
	pair_settle(p);
	for (unsigned i = 0; i < 20; i++)
		assert_true(pair_expire(p));
	assert_int_equal(p->b.wcs, 0);
	endpoint_post_recv(&p->b, 1, 0, 600, 1);
	endpoint_post_recv(&p->b, 2, 0, 600, 1);
	assert_true(pair_expire(p));
	assert_int_equal(p->a.wcs, 2);
	assert_int_equal(p->b.wcs, 2);
	assert_true(atomic_load(&p->b.counters.rnr_nak_sent) >= 20);
}

static void a_receive_missing_in_the_middle_of_the_queue_keeps_order(void **state)
{
	struct pair *p = *state;

	endpoint_post_recv(&p->b, 10, 0, 600, 1);
	for (unsigned i = 0; i < 4; i++)
		assert_true(
			post(&p->a, i == 2 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, 0, 300, p->b.base + 4096, i));
	pair_settle(p);
	assert_int_equal(p->a.wcs, 1);
	endpoint_post_recv(&p->b, 11, 0, 600, 1);
	endpoint_post_recv(&p->b, 12, 0, 600, 1);
	assert_true(pair_expire(p));
	for (unsigned i = 0; i < 4; i++)
		completes(&p->a, i, false, i, IBV_WC_SUCCESS);
}

static unsigned not_ready; /* so many more steps find their memory not ready */

static bool defer_some(struct endpoint *e, const struct ib_step *step)
{
	(void)e, (void)step;
	return not_ready ? not_ready--, true : false;
}

/* Two waits at each of three packets in turn are within a limit of two: each packet that got through restores
 * it. */
static void waits_for_memory_count_from_the_last_progress_on(void **state)
{
	struct pair *p = *state;

	p->b.defer = defer_some;
	p->a.qp.attr.rnr_retry = 2;
	ib_qp_modify(&p->a.qp, IBV_QPS_RTS, &p->a.qp.attr, false, p->now);
	fill(&p->a, 0, 3 * SEG, 9);
	for (unsigned i = 0; i < 3; i++) {
		not_ready = 2;
		assert_true(post(&p->a, IBV_WR_RDMA_WRITE, i * SEG, SEG, p->b.base + i * SEG, i));
		pair_settle(p);
		while (p->a.wcs <= i)
			assert_true(pair_expire(p));
		assert_int_equal(not_ready, 0);
		completes(&p->a, i, false, i, IBV_WC_SUCCESS);
	}
	assert_memory_equal(p->b.mem, p->a.mem, 3 * SEG);
	assert_int_equal(atomic_load(&p->b.counters.rnr_nak_sent), 6);
	assert_int_equal(atomic_load(&p->a.counters.rnr_nak_rcvd), 6);
	not_ready = 3;
	assert_true(post(&p->a, IBV_WR_RDMA_WRITE, 0, SEG, p->b.base, 3));
	pair_settle(p);
	while (p->a.wcs <= 3)
		assert_true(pair_expire(p));
	completes(&p->a, 3, false, 3, IBV_WC_RNR_RETRY_EXC_ERR);
}

static bool defer_each_once(struct endpoint *e, const struct ib_step *step)
{
	static uint64_t last;

	(void)e;
	if (step->mem.remote.va == last)
		return false;
	last = step->mem.remote.va;
	return true;
}

/* Every packet of a long message is refused once, in the middle of bursts: the requester goes back to that
 * packet and no further. */
static void a_message_goes_on_at_the_packet_whose_memory_was_not_ready(void **state)
{
	struct pair *p = *state;
	unsigned naks = 0;

	p->b.defer = defer_each_once;
	fill(&p->a, 0, 40 * SEG, 3);
	assert_true(post(&p->a, IBV_WR_RDMA_WRITE, 0, 40 * SEG, p->b.base, 1));
	pair_settle(p);
	while (!p->a.wcs) {
		assert_true(pair_expire(p));
		assert_true(naks++ < 100);
	}
	completes(&p->a, 0, false, 1, IBV_WC_SUCCESS);
	assert_memory_equal(p->b.mem, p->a.mem, 40 * SEG);
	assert_int_equal(atomic_load(&p->b.counters.rnr_nak_sent), 40);
	assert_int_equal(atomic_load(&p->b.counters.naks_sent), 0);
	/* The first burst is dropped; from then on the window is one packet, and two when that got through.
	 */
	assert_true(atomic_load(&p->a.counters.retransmits) <= 2 * 40 + p->a.attr.window);
}

static void a_wire_that_turns_out_lossy_runs_the_timer_for_what_is_out(void **state)
{
	struct pair *p = *state;

	p->a.qp.attr.lossless = true;
	ib_qp_modify(&p->a.qp, IBV_QPS_RTS, &p->a.qp.attr, false, p->now);
	p->filter = drop_requests;
	assert_true(post(&p->a, IBV_WR_RDMA_WRITE, 0, 8, p->b.base, 1));
	pair_settle(p);
	assert_int_equal(ib_deadline(&p->a.qp), UINT64_MAX);
	ib_lossy(&p->a.qp, p->now);
	p->filter = NULL;
	assert_true(pair_expire(p));
	completes(&p->a, 0, false, 1, IBV_WC_SUCCESS);
	assert_int_equal(ib_deadline(&p->a.qp), UINT64_MAX);
}

static void a_fatal_nak_ends_both_sides(void **state)
{
	static const struct {
		uint8_t opcode;
		uint64_t remote;
		uint32_t length;
		enum ibv_wc_status status;
		int event;
	} cases[] = {
		{ IBV_WR_RDMA_WRITE, 0x123, 600, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
		{ IBV_WR_RDMA_READ, 0x123, 600, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0x20, 8, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 0x20000001, 8, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR },
		{ IBV_WR_SEND, 0, 601, IBV_WC_REM_INV_REQ_ERR, -1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pair p;

		(void)state;
		pair_init(&p);
		endpoint_post_recv(&p.b, 1, 0, 600, 1);
		endpoint_post_recv(&p.b, 2, 0, 600, 1);
		assert_true(post(&p.a, cases[i].opcode, 0, cases[i].length, cases[i].remote, 1));
		assert_true(post(&p.a, IBV_WR_SEND, 0, 8, 0, 2));
		pair_settle(&p);
		assert_int_equal(p.a.wcs, 2);
		completes(&p.a, 0, false, 1, cases[i].status);
		completes(&p.a, 1, false, 2, IBV_WC_WR_FLUSH_ERR);
		completes(&p.b, 0, true, 1, cases[i].event < 0 ? IBV_WC_LOC_LEN_ERR : IBV_WC_WR_FLUSH_ERR);
		completes(&p.b, 1, true, 2, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(p.b.events, cases[i].event >= 0);
		if (p.b.events)
			assert_int_equal(p.b.event[0], cases[i].event);
		assert_int_equal(p.a.events, 0);
		assert_true(ib_qp_is(&p.a.qp, IBV_QPS_ERR) && ib_qp_is(&p.b.qp, IBV_QPS_ERR));
		pair_fini(&p);
	}
}

/* An end that has requests in both of its queues, whose lanes are asked in any order. */
static void load(struct endpoint *e, const struct endpoint *peer, unsigned first)
{
	e->first = first;
	for (unsigned i = 0; i < 3; i++)
		endpoint_post_recv(e, 100 + i, 4096, 16, 1);
	for (unsigned i = 0; i < 3; i++)
		assert_true(post(e, IBV_WR_RDMA_WRITE, 0, 8, peer->base, 10 + i));
}

/* The first that is not a success is the cause; it is of the queue named. */
static void cause_comes_first(const struct endpoint *e, bool recv, enum ibv_wc_status status)
{
	unsigned i = 0;

	while (i < e->wcs && e->wc[i].wc.status == IBV_WC_SUCCESS)
		i++;
	assert_true(i < e->wcs);
	assert_int_equal(e->wc[i].wc.recv, recv);
	assert_int_equal(e->wc[i].wc.status, status);
	for (i++; i < e->wcs; i++)
		assert_int_equal(e->wc[i].wc.status, IBV_WC_WR_FLUSH_ERR);
}

static bool drop_all(struct pair *p, struct endpoint *from, struct frame *f)
{
	(void)p;
	(void)from;
	(void)f;
	return true;
}

/* The timer, the peer's answer, our own memory, the end of the peer: whatever fails a request. */
static void the_cause_comes_before_the_flushes_of_both_queues(void **state)
{
	enum { TIMER, NAK, MEMORY, PEER_DEAD, KINDS };
	static const enum ibv_wc_status status[KINDS] = { IBV_WC_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR,
		IBV_WC_LOC_PROT_ERR, IBV_WC_RETRY_EXC_ERR };

	(void)state;
	for (unsigned n = 0; n < KINDS * IB_LANES; n++) {
		unsigned kind = n / IB_LANES;
		struct pair p;

		pair_init(&p);
		p.b.rights = kind == NAK ? 0 : p.b.rights;
		p.a.local_refused = kind == MEMORY;
		p.filter = kind == TIMER || kind == PEER_DEAD ? drop_all : NULL;
		load(&p.a, &p.b, n % IB_LANES);
		if (kind == PEER_DEAD) {
			endpoint_run(&p.a, p.now);
			ib_peer_dead(&p.a.qp, p.now);
		}
		pair_settle(&p);
		while (kind == TIMER && pair_expire(&p))
			;
		assert_int_equal(p.a.wcs, 6);
		cause_comes_first(&p.a, false, status[kind]);
		pair_fini(&p);
	}
}

/* The responder's completions and events are held up for as long as the context is not NULL. */
static bool hold_news(struct endpoint *e, enum ib_lane lane, const struct ib_step *step)
{
	return e->context && lane == IB_RESPONDER && (step->op == IB_CQE || step->op == IB_EVENT);
}

/* The same at the end that refuses the request, where a receive fails or an event says why. */
static void a_receive_or_event_that_says_why_comes_before_the_flushes(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t length;
		bool hole;		   /* where the receives are */
		enum ibv_wc_status status; /* of the receive; SUCCESS: there is an event instead */
	} cases[] = {
		{ IBV_WR_SEND, 17, false, IBV_WC_LOC_LEN_ERR },
		{ IBV_WR_SEND, 16, true, IBV_WC_LOC_PROT_ERR },
		{ IBV_WR_RDMA_WRITE, 16, false, IBV_WC_SUCCESS },
	};

	(void)state;
	for (unsigned n = 0; n < 3 * IB_LANES; n++) {
		unsigned i = n / IB_LANES;
		struct pair p;

		pair_init(&p);
		if (cases[i].hole) {
			p.b.hole = 4096;
			p.b.hole_end = 8192;
		}
		p.b.park = hold_news;
		p.b.context = &p;
		/* Its own requests are under way when the other's comes. */
		load(&p.b, &p.a, n % IB_LANES);
		endpoint_run(&p.b, p.now);
		assert_true(post(&p.a, cases[i].opcode, 0, cases[i].length, 0x666, 1));
		pair_settle(&p);
		assert_true(ib_qp_is(&p.b.qp, IBV_QPS_ERR));
		assert_int_equal(p.b.wcs, 0);
		p.b.context = NULL;
		pair_settle(&p);
		assert_int_equal(p.b.wcs, 6);
		if (cases[i].status != IBV_WC_SUCCESS)
			cause_comes_first(&p.b, true, cases[i].status);
		else
			for (unsigned k = 0; k < 6; k++)
				assert_int_equal(p.b.wc[k].events_before, 1);
		pair_fini(&p);
	}
}

static void modify_to_err_flushes_both_queues_and_the_peer_finds_out(void **state)
{
	struct pair *p = *state;

	p->a.qp.attr.lossless = p->b.qp.attr.lossless = true;
	p->filter = drop_requests;
	endpoint_post_recv(&p->a, 1, 0, 8, 1);
	assert_true(post(&p->a, IBV_WR_SEND, 0, 8, 0, 1));
	assert_true(post(&p->a, IBV_WR_SEND, 0, 8, 0, 2));
	assert_true(post(&p->b, IBV_WR_SEND, 0, 8, 0, 3));
	pair_settle(p);
	ib_qp_modify(&p->a.qp, IBV_QPS_ERR, &p->a.qp.attr, false, p->now);
	pair_settle(p);
	assert_int_equal(p->a.wcs, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(p->a.wc[i].wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_false(pair_expire(p)); /* lossless: nothing runs yet at the peer */
	p->filter = NULL;
	ib_lost(&p->b.qp, p->now);
	while (pair_expire(p))
		ib_lost(&p->b.qp, p->now); /* refused by a queue pair in ERR, and told so */
	completes(&p->b, 0, false, 3, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(p->a.dropped, 7);
}

static void no_news_sets_a_timer_where_there_is_none(void **state)
{
	static const enum ibv_qp_state before[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR };
	struct pair *p = *state;
	struct endpoint e;

	for (unsigned i = 0; i < 3; i++) {
		endpoint_init(&e, 0x10000000, PAIR_MEM, 64);
		if (before[i] != IBV_QPS_RESET)
			endpoint_to(&e, before[i], 0);
		ib_lossy(&e.qp, 0);
		ib_lost(&e.qp, 0);
		ib_peer_dead(&e.qp, 0);
		assert_int_equal(ib_deadline(&e.qp), UINT64_MAX);
		assert_null(ib_broken_rule(&e.qp));
		endpoint_fini(&e);
	}
	p->filter = drop_requests;
	assert_true(post(&p->a, IBV_WR_SEND, 0, 8, 0, 1));
	pair_settle(p);
	assert_true(ib_deadline(&p->a.qp) != UINT64_MAX);
	/* In ERR, and so before what failed has been completed. */
	ib_qp_error(&p->a.qp, p->now);
	for (unsigned i = 0; i < 2; i++) {
		ib_lossy(&p->a.qp, p->now);
		ib_lost(&p->a.qp, p->now);
		assert_int_equal(ib_deadline(&p->a.qp), UINT64_MAX);
		assert_null(ib_broken_rule(&p->a.qp));
		pair_settle(p);
	}
	completes(&p->a, 0, false, 1, IBV_WC_WR_FLUSH_ERR);
}

static void a_peer_that_is_not_ready_yet_is_retried_on_a_lossless_wire(void **state)
{
	struct pair p;

	(void)state;
	memset(&p, 0, sizeof(p));
	endpoint_init(&p.a, 0x10000000, PAIR_MEM, 64);
	endpoint_init(&p.b, 0x20000000, PAIR_MEM, 64);
	p.a.attr.lossless = p.b.attr.lossless = true;
	endpoint_to(&p.a, IBV_QPS_RTS, 0);
	endpoint_to(&p.b, IBV_QPS_INIT, 0);
	endpoint_post_recv(&p.b, 1, 0, 8, 1);
	assert_true(post(&p.a, IBV_WR_SEND, 0, 8, 0, 1));
	pair_settle(&p);
	assert_int_equal(p.b.dropped, 1);
	ib_lost(&p.a.qp, p.now);
	endpoint_to(&p.b, IBV_QPS_RTR, p.now);
	assert_true(pair_expire(&p));
	completes(&p.a, 0, false, 1, IBV_WC_SUCCESS);
	completes(&p.b, 0, true, 1, IBV_WC_SUCCESS);
	assert_int_equal(p.b.event[0], IBV_EVENT_COMM_EST);
	pair_fini(&p);
}

static void a_lane_that_works_refuses_another_packet(void **state)
{
	struct pair *p = *state;
	struct ib_packet pkt = { .opcode = IB_WRITE_ONLY,
		.psn = p->b.attr.rq_psn,
		.va = p->b.base,
		.rkey = TEST_RKEY,
		.dma_len = 8 };

	assert_int_equal(ib_rx(&p->b.qp, &pkt, 8, 0), 0);
	assert_int_equal(ib_rx(&p->b.qp, &pkt, 8, 0), -EBUSY);
	pkt.opcode = 0xc0;
	assert_int_equal(ib_rx(&p->b.qp, &pkt, 8, 0), -EINVAL);
	ib_qp_modify(&p->b.qp, IBV_QPS_RESET, &p->b.attr, false, 0);
	pkt.opcode = IB_WRITE_ONLY;
	assert_int_equal(ib_rx(&p->b.qp, &pkt, 8, 0), -ENOTCONN);
	pkt.opcode = IB_ACKNOWLEDGE;
	assert_int_equal(ib_rx(&p->b.qp, &pkt, 0, 0), -ENOTCONN);
}

static int setup(void **state)
{
	struct pair *p = malloc(sizeof(*p));

	pair_init(p);
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	pair_fini(*state);
	free(*state);
	return 0;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_kind_of_request_does_its_work),
		T(both_directions_run_at_once),
		T(an_8_byte_send_costs_six_steps),
		cmocka_unit_test(any_one_packet_may_be_lost),
		T(retries_run_out_after_exactly_retry_cnt),
		T(a_receiver_that_comes_late_is_waited_for),
		T(a_receive_missing_in_the_middle_of_the_queue_keeps_order),
		T(waits_for_memory_count_from_the_last_progress_on),
		T(a_message_goes_on_at_the_packet_whose_memory_was_not_ready),
		T(a_wire_that_turns_out_lossy_runs_the_timer_for_what_is_out),
		cmocka_unit_test(a_fatal_nak_ends_both_sides),
		cmocka_unit_test(the_cause_comes_before_the_flushes_of_both_queues),
		cmocka_unit_test(a_receive_or_event_that_says_why_comes_before_the_flushes),
		T(modify_to_err_flushes_both_queues_and_the_peer_finds_out),
		cmocka_unit_test(a_peer_that_is_not_ready_yet_is_retried_on_a_lossless_wire),
		T(no_news_sets_a_timer_where_there_is_none),
		T(a_lane_that_works_refuses_another_packet),
	};

	return cmocka_run_group_tests_name("ib/qp", tests, NULL, NULL);
}

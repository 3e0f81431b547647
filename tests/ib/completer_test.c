/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The completer alone: responses written by hand, timers, and what becomes of the requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "endpoint.h"

enum { SEG = 256, PSN0 = 0xfffffe, ACK = 0x1f, SEQ = 0x60, RNR = 0x20, T0 = 1000 };

struct fixture {
	struct endpoint e;
	uint64_t now;
	bool park_scatter, park_tx, park_cqe;
};

static bool maybe_park(struct endpoint *e, enum ib_lane lane, const struct ib_step *step)
{
	struct fixture *f = e->context;

	return (f->park_scatter && step->op == IB_SCATTER) ||
	       (f->park_tx && step->op == IB_TX && lane == IB_REQUESTER) ||
	       (f->park_cqe && step->op == IB_CQE);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	endpoint_init(&f->e, 0x10000000, 1 << 16, 64);
	f->e.attr.sq_psn = PSN0;
	f->e.attr.retry_cnt = 3;
	f->e.attr.rnr_retry = 2;
	f->e.attr.window = 64;
	f->e.context = f;
	f->e.park = maybe_park;
	f->now = T0;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	endpoint_fini(&f->e);
	free(f);
	return 0;
}

static void post(struct fixture *f, uint8_t opcode, uint32_t length, uint64_t wr_id)
{
	struct test_wr wr = { .opcode = opcode, .length = length, .wr_id = wr_id, .sges = 2 };

	assert_true(endpoint_post_send(&f->e, &wr));
}

static void run(struct fixture *f)
{
	endpoint_run(&f->e, f->now);
}

static void begin(struct fixture *f)
{
	endpoint_to(&f->e, IBV_QPS_RTS, f->now);
	run(f);
}

static void responds(struct fixture *f, uint8_t opcode, uint8_t syndrome, uint32_t psn, uint32_t paylen)
{
	struct ib_packet pkt = { .opcode = opcode,
		.psn = psn & IB_PSN_MASK,
		.syndrome = syndrome,
		.orig = 0x1122334455667788ull };
	static uint8_t payload[1024];

	memset(payload, (int)(psn & 0xff), sizeof(payload));
	endpoint_give(&f->e, &pkt, payload, paylen);
	run(f);
}

static void answer(struct fixture *f, uint8_t syndrome, uint32_t psn)
{
	responds(f, IB_ACKNOWLEDGE, syndrome, psn, 0);
}

/* The packets sent since the last call have exactly these PSNs, counted from PSN0. */
static void sent(struct fixture *f, unsigned first, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct frame *r = endpoint_take(&f->e);

		assert_non_null(r);
		assert_int_equal(r->pkt.psn, (PSN0 + first + i) & IB_PSN_MASK);
		free(r);
	}
	assert_null(f->e.out.head);
}

static void completes(struct fixture *f, unsigned nth, uint64_t wr_id, enum ibv_wc_status status)
{
	assert_true(f->e.wcs > nth);
	assert_int_equal(f->e.wc[nth].wc.wr_id, wr_id);
	assert_int_equal(f->e.wc[nth].wc.status, status);
}

/* Lets the timer that runs expire. What was sent before is forgotten. */
static void expire(struct fixture *f)
{
	uint64_t at = ib_deadline(&f->e.qp);

	for (struct frame *r = endpoint_take(&f->e); r; r = endpoint_take(&f->e))
		free(r);
	assert_true(at != UINT64_MAX);
	f->now = at - 1;
	ib_tick(&f->e.qp, f->now); /* a moment too early: nothing */
	run(f);
	assert_null(f->e.out.head);
	f->now = at;
	ib_tick(&f->e.qp, f->now);
	run(f);
}

static void one_acknowledgement_completes_all_before_it(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 4; i++)
		post(f, IBV_WR_SEND, 8, i);
	begin(f);
	answer(f, ACK, PSN0 + 2);
	assert_int_equal(f->e.wcs, 3);
	for (unsigned i = 0; i < 3; i++) {
		completes(f, i, i, IBV_WC_SUCCESS);
		assert_int_equal(f->e.wc[i].wc.index, i);
	}
}

static void acknowledgements_of_the_past_and_of_the_future_are_ignored(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	answer(f, ACK, PSN0 + 2); /* never sent */
	answer(f, ACK, PSN0 - 1);
	answer(f, 0x61, PSN0 + 2);
	answer(f, 0x61, PSN0 - 1);
	answer(f, SEQ, PSN0 + 2);
	answer(f, RNR | 1, PSN0 - 1);
	answer(f, 0x40, PSN0); /* a syndrome that is reserved */
	answer(f, 0x6f, PSN0); /* a NAK code that is reserved */
	assert_int_equal(f->e.wcs, 0);
	assert_true(ib_qp_is(&f->e.qp, IBV_QPS_RTS));
	sent(f, 0, 2);
	answer(f, ACK, PSN0 + 1);
	assert_int_equal(f->e.wcs, 2);
}

static void read_responses_are_scattered_in_place(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_RDMA_READ, 2 * SEG + 3, 7);
	begin(f);
	responds(f, IB_READ_RESP_FIRST, ACK, PSN0, SEG);
	responds(f, IB_READ_RESP_MIDDLE, 0, PSN0 + 1, SEG);
	assert_int_equal(f->e.wcs, 0);
	responds(f, IB_READ_RESP_LAST, ACK, PSN0 + 2, 3);
	completes(f, 0, 7, IBV_WC_SUCCESS);
	assert_int_equal(f->e.wc[0].wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(f->e.wc[0].wc.byte_len, 2 * SEG + 3);
	assert_int_equal(f->e.mem[0], 0xfe);
	assert_int_equal(f->e.mem[SEG], 0xff);
	assert_int_equal(f->e.mem[2 * SEG + 2], 0x00);
}

static void an_atomic_response_puts_the_original_into_the_buffer(void **state)
{
	struct fixture *f = *state;
	uint64_t word;

	post(f, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 7);
	begin(f);
	responds(f, IB_ATOMIC_ACK, ACK, PSN0, 0);
	completes(f, 0, 7, IBV_WC_SUCCESS);
	assert_int_equal(f->e.wc[0].wc.opcode, IBV_WC_FETCH_ADD);
	assert_int_equal(f->e.wc[0].wc.byte_len, 8);
	memcpy(&word, f->e.mem, 8);
	assert_true(word == 0x1122334455667788ull);
}

static void each_nak_code_has_its_status(void **state)
{
	static const enum ibv_wc_status status[] = { 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR,
		IBV_WC_REM_OP_ERR };

	for (unsigned code = 1; code < 4; code++) {
		struct fixture *f = *state;

		for (unsigned i = 0; i < 4; i++)
			post(f, IBV_WR_SEND, 8, i);
		begin(f);
		answer(f, (uint8_t)(SEQ | code), PSN0 + 1);
		assert_int_equal(f->e.wcs, 4);
		completes(f, 0, 0, IBV_WC_SUCCESS); /* what is before the NAK is acknowledged */
		completes(f, 1, 1, status[code]);
		completes(f, 2, 2, IBV_WC_WR_FLUSH_ERR);
		completes(f, 3, 3, IBV_WC_WR_FLUSH_ERR);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(f->e.wc[i].wc.index, i);
		assert_true(ib_qp_is(&f->e.qp, IBV_QPS_ERR));
		assert_int_equal(atomic_load(&f->e.counters.req_flushed), 2);
		assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
		teardown(state);
		setup(state);
	}
}

static void requests_posted_in_err_are_flushed(void **state)
{
	struct fixture *f = *state;

	begin(f);
	ib_qp_error(&f->e.qp, f->now);
	post(f, IBV_WR_SEND, 8, 1);
	run(f);
	post(f, IBV_WR_RDMA_READ, 8, 2);
	run(f);
	completes(f, 0, 1, IBV_WC_WR_FLUSH_ERR);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(f->e.wc[1].wc.index, 1);
	assert_int_equal(f->e.sq.next, 2);
	assert_int_equal(f->e.sq.done, 2);
	sent(f, 0, 0);
}

static void a_nak_within_a_read_fails_it_even_if_responses_are_missing(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_RDMA_READ, 4 * SEG, 1);
	begin(f);
	answer(f, 0x62, PSN0 + 2);
	completes(f, 0, 1, IBV_WC_REM_ACCESS_ERR);
}

static void a_nak_behind_a_read_that_misses_responses_asks_for_these_first(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_RDMA_READ, 2 * SEG, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	answer(f, 0x61, PSN0 + 2);
	assert_int_equal(f->e.wcs, 0);
	assert_true(ib_qp_is(&f->e.qp, IBV_QPS_RTS));
}

static void a_sequence_nak_goes_back_to_it(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 5; i++)
		post(f, IBV_WR_SEND, 8, i);
	begin(f);
	sent(f, 0, 5);
	answer(f, SEQ, PSN0 + 2);
	assert_int_equal(f->e.wcs, 2);
	sent(f, 2, 3);
	answer(f, SEQ, PSN0 + 2); /* a copy */
	sent(f, 0, 0);
	assert_int_equal(atomic_load(&f->e.counters.retransmits), 3);
}

static void retries_after_timeouts_are_counted_exactly(void **state)
{
	struct fixture *f = *state;
	uint64_t start = f->now;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	sent(f, 0, 2);
	for (unsigned i = 0; i < 3; i++) {
		expire(f);
		sent(f, 0, 2);
		assert_int_equal(f->now, start + (i + 1) * ib_timeout_ns(f->e.attr.timeout));
	}
	assert_int_equal(f->e.wcs, 0);
	expire(f);
	sent(f, 0, 0);
	completes(f, 0, 1, IBV_WC_RETRY_EXC_ERR);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
}

static void progress_restores_the_retries(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	for (unsigned i = 0; i < 3; i++)
		expire(f);
	answer(f, ACK, PSN0);
	for (unsigned i = 0; i < 3; i++)
		expire(f);
	assert_int_equal(f->e.wcs, 1);
	expire(f);
	completes(f, 1, 2, IBV_WC_RETRY_EXC_ERR);
}

static void sequence_naks_use_up_retries_too(void **state)
{
	struct fixture *f = *state;

	f->e.attr.retry_cnt = 1;
	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	sent(f, 0, 1);
	answer(f, SEQ, PSN0);
	sent(f, 0, 1);
	expire(f);
	completes(f, 0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void with_no_retries_the_first_timeout_is_the_last(void **state)
{
	struct fixture *f = *state;

	f->e.attr.retry_cnt = 0;
	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	expire(f);
	completes(f, 0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void a_timeout_that_is_changed_counts_from_now_on(void **state)
{
	struct fixture *f = *state;
	struct ib_qp_attr attr;

	f->e.attr.timeout = 0;
	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	sent(f, 0, 1);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	attr = f->e.qp.attr;
	for (uint8_t code = 31; code; code = code == 31 ? 5 : 0) {
		attr.timeout = code;
		ib_qp_modify(&f->e.qp, IBV_QPS_SQD, &attr, false, f->now);
		assert_int_equal(ib_deadline(&f->e.qp) - f->now, 4096ull << code);
	}
	attr.timeout = 0;
	ib_qp_modify(&f->e.qp, IBV_QPS_SQD, &attr, false, f->now);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
}

static void timeout_zero_never_expires(void **state)
{
	struct fixture *f = *state;

	f->e.attr.timeout = 0;
	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
}

static void the_timer_stops_when_all_is_acknowledged(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	assert_int_equal(ib_deadline(&f->e.qp), f->now + ib_timeout_ns(5));
	answer(f, ACK, PSN0);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
}

static void rnr_naks_are_waited_for_and_counted_exactly(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	sent(f, 0, 2);
	for (unsigned i = 0; i < 2; i++) {
		answer(f, RNR | 14, PSN0);
		sent(f, 0, 0);
		assert_int_equal(ib_deadline(&f->e.qp), f->now + 1280000);
		answer(f, RNR | 1, PSN0); /* a copy changes nothing */
		assert_int_equal(ib_deadline(&f->e.qp), f->now + 1280000);
		post(f, IBV_WR_SEND, 8, 3 + i); /* nothing passes the wait */
		run(f);
		sent(f, 0, 0);
		expire(f);
		sent(f, 0, 1);
	}
	answer(f, RNR | 14, PSN0);
	completes(f, 0, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(atomic_load(&f->e.counters.rnr_nak_rcvd), 5);
}

static void after_an_rnr_nak_the_window_opens_anew(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 12; i++)
		post(f, IBV_WR_RDMA_WRITE, 8, i);
	begin(f);
	sent(f, 0, 12);
	answer(f, RNR | 1, PSN0 + 3);
	expire(f);
	sent(f, 3, 1);
	answer(f, ACK, PSN0 + 3);
	sent(f, 4, 2);
	answer(f, ACK, PSN0 + 4);
	sent(f, 6, 3);
	answer(f, ACK, PSN0 + 8);
	sent(f, 9, 3);
	answer(f, ACK, PSN0 + 11);
	completes(f, 11, 11, IBV_WC_SUCCESS);
}

/* Nothing is left that nobody has asked for. */
static void a_lone_packet_after_an_rnr_nak_asks(void **state)
{
	struct fixture *f = *state;
	struct frame *r;

	post(f, IBV_WR_RDMA_WRITE, 8 * SEG, 1);
	begin(f);
	sent(f, 0, 8);
	answer(f, RNR | 1, PSN0 + 2);
	expire(f);
	r = endpoint_take(&f->e);
	assert_non_null(r);
	assert_int_equal(r->pkt.psn, (PSN0 + 2) & IB_PSN_MASK);
	assert_true(r->pkt.ack_req);
	free(r);
	sent(f, 0, 0);
	expire(f); /* lost: it asks again */
	r = endpoint_take(&f->e);
	assert_non_null(r);
	assert_true(r->pkt.ack_req);
	free(r);
}

/* All is sent again after it, and what is lost of that will be announced. */
static void an_rnr_nak_makes_a_loss_good(void **state)
{
	struct fixture *f = *state;

	f->e.attr.lossless = true;
	f->e.attr.retry_cnt = 0;
	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	sent(f, 0, 2);
	ib_lost(&f->e.qp, f->now);
	answer(f, RNR | 14, PSN0);
	expire(f);
	sent(f, 0, 1);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
}

static void rnr_retry_seven_is_for_ever(void **state)
{
	struct fixture *f = *state;

	f->e.attr.rnr_retry = 7;
	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	for (unsigned i = 0; i < 100; i++) {
		answer(f, RNR | 1, PSN0);
		expire(f);
		sent(f, 0, 1);
	}
	answer(f, ACK, PSN0);
	completes(f, 0, 1, IBV_WC_SUCCESS);
}

static void rnr_retry_zero_fails_at_once(void **state)
{
	struct fixture *f = *state;

	f->e.attr.rnr_retry = 0;
	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	answer(f, RNR | 1, PSN0);
	completes(f, 0, 1, IBV_WC_RNR_RETRY_EXC_ERR);
}

static void an_acknowledgement_ends_an_rnr_wait(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	sent(f, 0, 2);
	answer(f, RNR | 14, PSN0);
	answer(f, ACK, PSN0); /* a copy of the request found a receive */
	completes(f, 0, 1, IBV_WC_SUCCESS);
	sent(f, 1, 1);
}

static void a_skipped_read_response_is_asked_for_from_there_on_and_once(void **state)
{
	struct fixture *f = *state;
	struct frame *r;

	post(f, IBV_WR_RDMA_READ, 4 * SEG, 1);
	begin(f);
	sent(f, 0, 1);
	responds(f, IB_READ_RESP_FIRST, ACK, PSN0, SEG);
	responds(f, IB_READ_RESP_MIDDLE, 0, PSN0 + 2, SEG);
	responds(f, IB_READ_RESP_LAST, ACK, PSN0 + 3, SEG);
	r = endpoint_take(&f->e);
	assert_non_null(r);
	assert_int_equal(r->pkt.opcode, IB_READ_REQUEST);
	assert_int_equal(r->pkt.psn, (PSN0 + 1) & IB_PSN_MASK);
	assert_int_equal(r->pkt.va, SEG);
	assert_int_equal(r->pkt.dma_len, 3 * SEG);
	free(r);
	sent(f, 0, 0);
	responds(f, IB_READ_RESP_FIRST, ACK, PSN0 + 1, SEG);
	responds(f, IB_READ_RESP_MIDDLE, 0, PSN0 + 2, SEG);
	responds(f, IB_READ_RESP_LAST, ACK, PSN0 + 3, SEG);
	completes(f, 0, 1, IBV_WC_SUCCESS);
}

static void an_acknowledgement_past_a_read_is_an_implied_nak(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_RDMA_READ, SEG, 2);
	post(f, IBV_WR_SEND, 8, 3);
	begin(f);
	sent(f, 0, 3);
	answer(f, ACK, PSN0 + 2);
	assert_int_equal(f->e.wcs, 1); /* the SEND before it is done, the READ and what follows are not */
	sent(f, 1, 2);
	responds(f, IB_READ_RESP_ONLY, ACK, PSN0 + 1, SEG);
	answer(f, ACK, PSN0 + 2);
	assert_int_equal(f->e.wcs, 3);
}

static void a_read_response_acknowledges_what_is_before_it(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_RDMA_WRITE, 3 * SEG, 2);
	post(f, IBV_WR_RDMA_READ, 1, 3);
	begin(f);
	responds(f, IB_READ_RESP_ONLY, ACK, PSN0 + 4, 1);
	assert_int_equal(f->e.wcs, 3);
	completes(f, 2, 3, IBV_WC_SUCCESS);
}

static void responses_that_cannot_be_are_errors(void **state)
{
	static const struct {
		uint8_t request, response;
		uint32_t paylen;
		enum ibv_wc_status status;
	} cases[] = {
		{ IBV_WR_RDMA_READ, IB_READ_RESP_FIRST, SEG - 1, IBV_WC_LOC_LEN_ERR },
		{ IBV_WR_RDMA_READ, IB_READ_RESP_FIRST, 0, IBV_WC_LOC_LEN_ERR },
		{ IBV_WR_RDMA_READ, IB_READ_RESP_MIDDLE, SEG + 1, IBV_WC_LOC_LEN_ERR },
		{ IBV_WR_RDMA_READ, IB_READ_RESP_ONLY, SEG, IBV_WC_BAD_RESP_ERR },
		{ IBV_WR_RDMA_READ, IB_READ_RESP_LAST, SEG, IBV_WC_BAD_RESP_ERR },
		{ IBV_WR_RDMA_READ, IB_ATOMIC_ACK, 0, IBV_WC_BAD_RESP_ERR },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, IB_READ_RESP_ONLY, 8, IBV_WC_BAD_RESP_ERR },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture *f = *state;

		post(f, cases[i].request, cases[i].request == IBV_WR_RDMA_READ ? 2 * SEG : 8, 1);
		begin(f);
		responds(f, cases[i].response, ACK, PSN0, cases[i].paylen);
		completes(f, 0, 1, cases[i].status);
		assert_int_equal(f->e.mem[0], 0);
		teardown(state);
		setup(state);
	}
}

static void a_response_to_a_send_is_an_error(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	begin(f);
	responds(f, IB_READ_RESP_ONLY, ACK, PSN0, 8);
	completes(f, 0, 1, IBV_WC_BAD_RESP_ERR);
}

static void a_refused_scatter_is_a_local_protection_error(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_RDMA_READ, 2 * SEG, 2);
	post(f, IBV_WR_SEND, 8, 3);
	begin(f);
	f->e.local_refused = true;
	responds(f, IB_READ_RESP_FIRST, ACK, PSN0 + 1, SEG);
	completes(f, 0, 1, IBV_WC_SUCCESS);
	completes(f, 1, 2, IBV_WC_LOC_PROT_ERR);
	completes(f, 2, 3, IBV_WC_WR_FLUSH_ERR);
}

static void completions_that_are_due_survive_an_error(void **state)
{
	struct fixture *f = *state;

	for (unsigned i = 0; i < 4; i++)
		post(f, IBV_WR_SEND, 8, i);
	begin(f);
	f->park_cqe = true;
	answer(f, ACK, PSN0 + 1);
	assert_int_equal(f->e.wcs, 0);
	ib_qp_error(&f->e.qp, f->now);
	f->park_cqe = false;
	run(f);
	completes(f, 0, 0, IBV_WC_SUCCESS);
	completes(f, 1, 1, IBV_WC_SUCCESS);
	completes(f, 2, 2, IBV_WC_WR_FLUSH_ERR);
	completes(f, 3, 3, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(f->e.wcs, 4);
}

static void the_timer_waits_while_a_response_is_being_scattered(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_RDMA_READ, 2 * SEG, 1);
	begin(f);
	sent(f, 0, 1);
	f->park_scatter = true;
	responds(f, IB_READ_RESP_FIRST, ACK, PSN0, SEG);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	f->now += NSEC_PER_SEC;
	ib_tick(&f->e.qp, f->now);
	run(f);
	sent(f, 0, 0);
	f->park_scatter = false;
	run(f);
	assert_int_equal(ib_deadline(&f->e.qp), f->now + ib_timeout_ns(5));
}

static void while_a_gather_is_parked_behind_packets_that_did_not_ask_nothing_times_out(void **state)
{
	struct fixture *f = *state;

	f->park_tx = true;
	post(f, IBV_WR_SEND, 3 * SEG, 1);
	endpoint_to(&f->e, IBV_QPS_RTS, f->now);
	assert_non_null(ib_next(&f->e.qp, IB_REQUESTER, f->now));
	ib_done(&f->e.qp, IB_REQUESTER, 0, f->now); /* the first packet is out */
	run(f);
	assert_true(f->e.parked[IB_REQUESTER]);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	f->park_tx = false;
	f->now += NSEC_PER_SEC;
	run(f);
	assert_int_equal(ib_deadline(&f->e.qp), f->now + ib_timeout_ns(5));
}

static void an_acknowledgement_that_was_not_asked_for_leaves_no_timer(void **state)
{
	struct fixture *f = *state;

	f->park_tx = true;
	post(f, IBV_WR_SEND, 3 * SEG, 1);
	endpoint_to(&f->e, IBV_QPS_RTS, f->now);
	for (unsigned i = 0; i < 2; i++) {
		assert_non_null(ib_next(&f->e.qp, IB_REQUESTER, f->now));
		ib_done(&f->e.qp, IB_REQUESTER, 0, f->now);
	}
	answer(f, ACK, PSN0);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
}

static void on_a_lossless_wire_no_timer_runs_until_a_loss_is_announced(void **state)
{
	struct fixture *f = *state;

	f->e.attr.lossless = true;
	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	sent(f, 0, 2);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	for (unsigned i = 0; i < 3; i++) {
		ib_lost(&f->e.qp, f->now);
		expire(f);
		sent(f, 0, 2);
		/* What is lost of these will be announced; a page fault over there may take as long as it
		 * likes. */
		assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	}
	ib_lost(&f->e.qp, f->now);
	answer(f, ACK, PSN0);
	assert_true(ib_deadline(&f->e.qp) != UINT64_MAX); /* the second one may be among the lost */
	answer(f, ACK, PSN0 + 1);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	post(f, IBV_WR_SEND, 8, 3);
	run(f);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	assert_int_equal(f->e.wcs, 2);
}

static void a_loss_that_is_never_made_good_ends_in_an_error(void **state)
{
	struct fixture *f = *state;

	f->e.attr.lossless = true;
	post(f, IBV_WR_RDMA_READ, 8, 1);
	begin(f);
	sent(f, 0, 1);
	ib_lost(&f->e.qp, f->now);
	for (unsigned i = 0; i < 3; i++) {
		expire(f);
		sent(f, 0, 1);
		ib_lost(&f->e.qp, f->now);
	}
	expire(f);
	completes(f, 0, 1, IBV_WC_RETRY_EXC_ERR);
}

static void a_loss_with_nothing_outstanding_is_no_news(void **state)
{
	struct fixture *f = *state;

	f->e.attr.lossless = true;
	begin(f);
	ib_lost(&f->e.qp, f->now);
	post(f, IBV_WR_SEND, 8, 1);
	run(f);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
}

static void a_dead_peer_fails_what_is_outstanding(void **state)
{
	struct fixture *f = *state;

	f->e.attr.lossless = true;
	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	ib_peer_dead(&f->e.qp, f->now);
	run(f);
	completes(f, 0, 1, IBV_WC_RETRY_EXC_ERR);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR);
}

static void a_dead_peer_fails_what_is_posted_later(void **state)
{
	struct fixture *f = *state;

	begin(f);
	endpoint_post_recv(&f->e, 5, 0, 8, 1);
	ib_peer_dead(&f->e.qp, f->now);
	run(f);
	assert_true(ib_qp_is(&f->e.qp, IBV_QPS_RTS)); /* who never sends never learns of it */
	assert_int_equal(f->e.wcs, 0);
	post(f, IBV_WR_SEND, 8, 1);
	run(f);
	completes(f, 0, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(f->e.wcs, 2); /* and the receive is flushed */
	sent(f, 0, 0);
}

static void reset_forgets_everything(void **state)
{
	struct fixture *f = *state;

	post(f, IBV_WR_SEND, 8, 1);
	post(f, IBV_WR_SEND, 8, 2);
	begin(f);
	answer(f, ACK, PSN0);
	sent(f, 0, 2);
	ib_peer_dead(&f->e.qp, f->now);
	ib_qp_modify(&f->e.qp, IBV_QPS_RESET, &f->e.attr, false, f->now);
	run(f);
	assert_int_equal(f->e.wcs, 1);
	assert_int_equal(f->e.sq.done, 2);
	assert_int_equal(f->e.sq.next, 2);
	assert_int_equal(atomic_load(&f->e.sq.freed), 2);
	assert_int_equal(ib_deadline(&f->e.qp), UINT64_MAX);
	endpoint_to(&f->e, IBV_QPS_RTS, f->now);
	post(f, IBV_WR_SEND, 8, 3);
	run(f);
	sent(f, 0, 1);
	answer(f, ACK, PSN0);
	completes(f, 1, 3, IBV_WC_SUCCESS);
	assert_int_equal(f->e.wc[1].wc.index, 2);
}

static void rnr_timer_codes_are_those_of_the_specification(void **state)
{
	static const struct {
		uint8_t code;
		uint64_t us;
	} cases[] = { { 0, 655360 }, { 1, 10 }, { 5, 60 }, { 12, 640 }, { 17, 3840 }, { 24, 40960 },
		{ 31, 491520 } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(ib_rnr_ns(cases[i].code), cases[i].us * NSEC_PER_USEC);
	for (uint8_t code = 2; code < 32; code++)
		assert_true(ib_rnr_ns(code) > ib_rnr_ns(code - 1));
	assert_int_equal(ib_timeout_ns(0), UINT64_MAX);
	assert_int_equal(ib_timeout_ns(1), 8192);
	assert_int_equal(ib_timeout_ns(14), 67108864);
	assert_int_equal(ib_timeout_ns(31), 4096ull << 31);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(one_acknowledgement_completes_all_before_it),
		T(acknowledgements_of_the_past_and_of_the_future_are_ignored),
		T(read_responses_are_scattered_in_place),
		T(an_atomic_response_puts_the_original_into_the_buffer),
		T(each_nak_code_has_its_status),
		T(requests_posted_in_err_are_flushed),
		T(a_nak_within_a_read_fails_it_even_if_responses_are_missing),
		T(a_nak_behind_a_read_that_misses_responses_asks_for_these_first),
		T(a_sequence_nak_goes_back_to_it),
		T(retries_after_timeouts_are_counted_exactly),
		T(progress_restores_the_retries),
		T(sequence_naks_use_up_retries_too),
		T(with_no_retries_the_first_timeout_is_the_last),
		T(a_timeout_that_is_changed_counts_from_now_on),
		T(timeout_zero_never_expires),
		T(the_timer_stops_when_all_is_acknowledged),
		T(rnr_naks_are_waited_for_and_counted_exactly),
		T(after_an_rnr_nak_the_window_opens_anew),
		T(a_lone_packet_after_an_rnr_nak_asks),
		T(an_rnr_nak_makes_a_loss_good),
		T(rnr_retry_seven_is_for_ever),
		T(rnr_retry_zero_fails_at_once),
		T(an_acknowledgement_ends_an_rnr_wait),
		T(a_skipped_read_response_is_asked_for_from_there_on_and_once),
		T(an_acknowledgement_past_a_read_is_an_implied_nak),
		T(a_read_response_acknowledges_what_is_before_it),
		T(responses_that_cannot_be_are_errors),
		T(a_response_to_a_send_is_an_error),
		T(a_refused_scatter_is_a_local_protection_error),
		T(completions_that_are_due_survive_an_error),
		T(the_timer_waits_while_a_response_is_being_scattered),
		T(while_a_gather_is_parked_behind_packets_that_did_not_ask_nothing_times_out),
		T(an_acknowledgement_that_was_not_asked_for_leaves_no_timer),
		T(on_a_lossless_wire_no_timer_runs_until_a_loss_is_announced),
		T(a_loss_that_is_never_made_good_ends_in_an_error),
		T(a_loss_with_nothing_outstanding_is_no_news),
		T(a_dead_peer_fails_what_is_outstanding),
		T(a_dead_peer_fails_what_is_posted_later),
		T(reset_forgets_everything),
		T(rnr_timer_codes_are_those_of_the_specification),
	};

	return cmocka_run_group_tests_name("ib/completer", tests, NULL, NULL);
}

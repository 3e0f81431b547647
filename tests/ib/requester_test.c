/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The requester alone: what it sends, when it stops, what it does with acknowledgements that the tests write
 * by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "endpoint.h"

enum { SEG = 256, PSN0 = 0xfffffe };

struct fixture {
	struct endpoint e;
	bool park_tx;
};

static bool maybe_park(struct endpoint *e, enum ib_lane lane, const struct ib_step *step)
{
	struct fixture *f = e->context;

	return f->park_tx && lane == IB_REQUESTER && step->op == IB_TX;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	endpoint_init(&f->e, 0x10000000, 1 << 16, 64);
	f->e.attr.sq_psn = PSN0;
	f->e.attr.window = 8;
	f->e.attr.lossless = true;
	f->e.context = f;
	f->e.park = maybe_park;
	for (uint32_t i = 0; i < f->e.size; i++)
		f->e.mem[i] = (uint8_t)(i * 7 + i / 256);
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

static void post(struct endpoint *e, uint8_t opcode, uint32_t length, bool unsignaled)
{
	struct test_wr wr = { .opcode = opcode,
		.length = length,
		.local = 64,
		.remote = 0x5000,
		.sges = 3,
		.unsignaled = unsignaled,
		.imm = 0xabcd };

	assert_true(endpoint_post_send(e, &wr));
}

/* The next packet is this one. */
static void sends(struct endpoint *e, uint8_t opcode, uint32_t psn, uint32_t paylen, bool ack_req)
{
	struct frame *f = endpoint_take(e);

	assert_non_null(f);
	assert_int_equal(f->pkt.opcode, opcode);
	assert_int_equal(f->pkt.psn, psn & IB_PSN_MASK);
	assert_int_equal(f->paylen, paylen);
	assert_int_equal(f->pkt.ack_req, ack_req);
	free(f);
}

static void sends_nothing(struct endpoint *e)
{
	assert_null(e->out.head);
}

static void answer(struct endpoint *e, uint8_t syndrome, uint32_t psn, uint64_t now)
{
	struct ib_packet pkt = { .opcode = IB_ACKNOWLEDGE, .psn = psn & IB_PSN_MASK, .syndrome = syndrome };

	endpoint_give(e, &pkt, NULL, 0);
	endpoint_run(e, now);
}

static void ack(struct endpoint *e, uint32_t psn)
{
	answer(e, 0x1f, psn, 0);
}

static void drop_out(struct endpoint *e)
{
	for (struct frame *f = endpoint_take(e); f; f = endpoint_take(e))
		free(f);
}

static void a_message_is_cut_into_segments_across_the_psn_wrap(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	uint32_t at = 64;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_RDMA_WRITE_WITH_IMM, 3 * SEG + 1, false);
	endpoint_run(e, 0);
	assert_int_equal(e->out.count, 4);
	for (unsigned i = 0; i < 4; i++) {
		struct frame *f = endpoint_take(e);

		assert_int_equal(f->pkt.psn, (PSN0 + i) & IB_PSN_MASK);
		assert_memory_equal(f->payload, e->mem + at, f->paylen);
		at += f->paylen;
		assert_int_equal(f->pkt.opcode, i == 0	 ? IB_WRITE_FIRST
						: i == 3 ? IB_WRITE_LAST_IMM
							 : IB_WRITE_MIDDLE);
		if (i == 0) {
			assert_int_equal(f->pkt.va, 0x5000);
			assert_int_equal(f->pkt.dma_len, 3 * SEG + 1);
		}
		if (i == 3)
			assert_int_equal(f->pkt.imm, 0xabcd);
		free(f);
	}
	assert_int_equal(at, 64 + 3 * SEG + 1);
}

static void each_kind_has_its_opcodes(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	uint32_t psn = PSN0;

	e->attr.window = 64;
	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 2 * SEG, false);
	post(e, IBV_WR_SEND_WITH_IMM, SEG + 1, false);
	post(e, IBV_WR_SEND_WITH_IMM, 0, false);
	post(e, IBV_WR_SEND, SEG, false);
	post(e, IBV_WR_RDMA_WRITE, SEG, false);
	post(e, IBV_WR_RDMA_WRITE, SEG + 1, false);
	post(e, IBV_WR_RDMA_WRITE_WITH_IMM, 1, false);
	post(e, IBV_WR_RDMA_READ, 3 * SEG, false);
	post(e, IBV_WR_ATOMIC_CMP_AND_SWP, 8, false);
	post(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, false);
	endpoint_run(e, 0);
	sends(e, IB_SEND_FIRST, psn++, SEG, false);
	sends(e, IB_SEND_LAST, psn++, SEG, true);
	sends(e, IB_SEND_FIRST, psn++, SEG, false);
	sends(e, IB_SEND_LAST_IMM, psn++, 1, true);
	sends(e, IB_SEND_ONLY_IMM, psn++, 0, true);
	sends(e, IB_SEND_ONLY, psn++, SEG, true);
	sends(e, IB_WRITE_ONLY, psn++, SEG, true);
	sends(e, IB_WRITE_FIRST, psn++, SEG, false);
	sends(e, IB_WRITE_LAST, psn++, 1, true);
	sends(e, IB_WRITE_ONLY_IMM, psn++, 1, true);
	sends(e, IB_READ_REQUEST, psn, 0, true);
	psn += 3; /* one for each response */
	sends(e, IB_CMP_SWAP, psn++, 0, true);
	sends(e, IB_FETCH_ADD, psn++, 0, true);
	sends_nothing(e);
}

static void a_read_of_nothing_takes_one_psn(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_RDMA_READ, 0, false);
	post(e, IBV_WR_SEND, 1, false);
	endpoint_run(e, 0);
	sends(e, IB_READ_REQUEST, PSN0, 0, true);
	sends(e, IB_SEND_ONLY, PSN0 + 1, 1, true);
}

static void the_window_bounds_what_is_not_acknowledged(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 20 * SEG, false);
	endpoint_run(e, 0);
	assert_int_equal(e->out.count, 8);
	for (unsigned i = 0; i < 8; i++) /* every second one asks: a quarter of the window */
		sends(e, i ? IB_SEND_MIDDLE : IB_SEND_FIRST, PSN0 + i, SEG, i % 2 == 1);
	ack(e, PSN0 + 1);
	assert_int_equal(e->out.count, 2);
	ack(e, PSN0 + 7);
	assert_int_equal(e->out.count, 8);
}

static void a_long_read_takes_one_place_in_the_window(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_RDMA_READ, 100 * SEG, false);
	for (unsigned i = 0; i < 10; i++)
		post(e, IBV_WR_RDMA_WRITE, 1, false);
	endpoint_run(e, 0);
	assert_int_equal(e->out.count, 8);
}

static void unsignaled_requests_ask_only_when_nothing_follows(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	e->attr.window = 64;
	endpoint_to(e, IBV_QPS_RTS, 0);
	for (unsigned i = 0; i < 3; i++)
		post(e, IBV_WR_SEND, 8, true);
	endpoint_run(e, 0);
	sends(e, IB_SEND_ONLY, PSN0, 8, false);
	sends(e, IB_SEND_ONLY, PSN0 + 1, 8, false);
	sends(e, IB_SEND_ONLY, PSN0 + 2, 8, true);
	ack(e, PSN0 + 2);
	assert_int_equal(e->wcs, 0); /* a success that nobody wants */
	assert_int_equal(e->sq.done, 3);
}

static void sq_sig_all_signals_everything(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	e->qp.cfg.sq_sig_all = true;
	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 8, true);
	post(e, IBV_WR_SEND, 8, true);
	endpoint_run(e, 0);
	sends(e, IB_SEND_ONLY, PSN0, 8, true);
	sends(e, IB_SEND_ONLY, PSN0 + 1, 8, true);
	ack(e, PSN0 + 1);
	assert_int_equal(e->wcs, 2);
}

static void max_rd_atomic_bounds_reads_and_atomics_together(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	struct ib_packet resp = { .opcode = IB_READ_RESP_ONLY, .psn = PSN0 };
	uint8_t byte = 1;

	e->attr.max_rd_atomic = 2;
	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_RDMA_READ, 1, false);
	post(e, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, false);
	post(e, IBV_WR_RDMA_READ, 1, false);
	post(e, IBV_WR_SEND, 1, false); /* order: it waits behind */
	endpoint_run(e, 0);
	assert_int_equal(e->out.count, 2);
	endpoint_give(e, &resp, &byte, 1);
	endpoint_run(e, 0);
	assert_int_equal(e->out.count, 4);
}

static void a_fence_waits_for_reads_and_atomics_only(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	struct test_wr fenced = { .opcode = IBV_WR_SEND, .length = 1, .fence = true };
	struct ib_packet resp = { .opcode = IB_READ_RESP_ONLY, .psn = PSN0 + 2 };
	uint8_t byte = 1;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 1, false);
	assert_true(endpoint_post_send(e, &fenced)); /* nothing to wait for: the SEND does not count */
	post(e, IBV_WR_RDMA_READ, 1, false);
	assert_true(endpoint_post_send(e, &fenced));
	endpoint_run(e, 0);
	assert_int_equal(e->out.count, 3);
	endpoint_give(e, &resp, &byte, 1);
	endpoint_run(e, 0);
	assert_int_equal(e->out.count, 4);
}

static void inline_data_is_sent_from_the_wqe(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	struct test_wr wr = { .opcode = IBV_WR_SEND, .length = 100, .is_inline = true, .local = 0 };
	uint8_t was[100];
	struct frame *f;

	e->local_refused = true; /* needs no key */
	endpoint_to(e, IBV_QPS_RTS, 0);
	memcpy(was, e->mem, 100);
	assert_true(endpoint_post_send(e, &wr));
	memset(e->mem, 0, 100);
	endpoint_run(e, 0);
	f = endpoint_take(e);
	assert_non_null(f);
	assert_memory_equal(f->payload, was, 100);
	free(f);
}

static void nothing_is_sent_before_rts(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	endpoint_to(e, IBV_QPS_RTR, 0);
	post(e, IBV_WR_SEND, 1, false);
	endpoint_run(e, 0);
	sends_nothing(e);
	endpoint_to(e, IBV_QPS_RTS, 0);
	endpoint_run(e, 0);
	sends(e, IB_SEND_ONLY, PSN0, 1, true);
}

static void fails(struct endpoint *e, unsigned nth, enum ibv_wc_status status)
{
	assert_true(e->wcs > nth);
	assert_int_equal(e->wc[nth].wc.status, status);
	assert_true(e->wc[nth].wc.solicited || status == IBV_WC_SUCCESS);
}

static void a_request_that_cannot_be_fails_locally(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t length;
		bool is_inline;
		uint8_t max_rd;
		enum ibv_wc_status status;
	} cases[] = {
		{ IBV_WR_SEND, (1u << 31) + 1, false, 1, IBV_WC_LOC_LEN_ERR },
		{ IBV_WR_RDMA_WRITE, UINT32_MAX, false, 1, IBV_WC_LOC_LEN_ERR },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 16, false, 1, IBV_WC_LOC_LEN_ERR },
		{ IBV_WR_RDMA_READ, 8, false, 0, IBV_WC_LOC_QP_OP_ERR },
		{ IBV_WR_ATOMIC_CMP_AND_SWP, 8, false, 0, IBV_WC_LOC_QP_OP_ERR },
		{ IBV_WR_RDMA_READ, 8, true, 1, IBV_WC_LOC_QP_OP_ERR },
		{ IBV_WR_BIND_MW, 0, false, 1, IBV_WC_LOC_QP_OP_ERR },
		{ 200, 0, false, 1, IBV_WC_LOC_QP_OP_ERR },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture *f = *state;
		struct endpoint *e = &f->e;
		struct test_wr wr = { .opcode = cases[i].opcode,
			.length = cases[i].length,
			.wr_id = 77,
			.is_inline = cases[i].is_inline };

		e->attr.max_rd_atomic = cases[i].max_rd;
		endpoint_to(e, IBV_QPS_RTS, 0);
		assert_true(endpoint_post_send(e, &wr));
		post(e, IBV_WR_SEND, 1, false);
		endpoint_run(e, 0);
		sends_nothing(e);
		assert_int_equal(e->wcs, 2);
		fails(e, 0, cases[i].status);
		assert_int_equal(e->wc[0].wc.wr_id, 77);
		fails(e, 1, IBV_WC_WR_FLUSH_ERR);
		assert_true(ib_qp_is(&e->qp, IBV_QPS_ERR));
		teardown(state);
		setup(state);
	}
}

static void a_refused_gather_completes_behind_those_before_it(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 8, false);
	endpoint_run(e, 0);
	e->hole = 64 + 2 * SEG;
	e->hole_end = e->hole + 1;
	post(e, IBV_WR_SEND, 4 * SEG, false);
	post(e, IBV_WR_SEND, 8, false);
	endpoint_run(e, 0);
	assert_int_equal(e->wcs, 0);
	assert_true(ib_qp_is(&e->qp, IBV_QPS_RTS));
	ack(e, PSN0);
	assert_int_equal(e->wcs, 3);
	fails(e, 0, IBV_WC_SUCCESS);
	fails(e, 1, IBV_WC_LOC_PROT_ERR);
	fails(e, 2, IBV_WC_WR_FLUSH_ERR);
}

static void before_a_local_error_an_acknowledgement_is_asked_for(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	struct test_wr bad = { .opcode = IBV_WR_SEND, .length = 8, .local = 1 << 15 };

	e->attr.window = 64;
	e->hole = 1 << 15;
	e->hole_end = e->hole + 1;
	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 2 * SEG, true);
	post(e, IBV_WR_SEND, SEG, true);
	assert_true(endpoint_post_send(e, &bad));
	endpoint_run(e, 0);
	sends(e, IB_SEND_FIRST, PSN0, SEG, false);
	sends(e, IB_SEND_LAST, PSN0 + 1, SEG, false); /* more was to follow */
	sends(e, IB_SEND_ONLY, PSN0 + 2, SEG, false);
	sends(e, IB_SEND_ONLY, PSN0 + 2, SEG, true); /* once more: nothing else will ask */
	sends_nothing(e);
	ack(e, PSN0 + 2);
	assert_int_equal(e->wcs, 1);
	fails(e, 0, IBV_WC_LOC_PROT_ERR);
}

static void in_sqd_an_acknowledgement_is_asked_for_and_the_rest_waits(void **state)
{
	struct fixture *f = *state;
	struct endpoint *e = &f->e;

	e->attr.window = 64;
	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 8, true);
	post(e, IBV_WR_SEND, 8, false);
	assert_non_null(ib_next(&e->qp, IB_REQUESTER, 0));
	ib_done(&e->qp, IB_REQUESTER, 0, 0); /* the first is sent, without asking */
	ib_qp_modify(&e->qp, IBV_QPS_SQD, &e->attr, true, 0);
	assert_false(ib_sq_drained(&e->qp));
	endpoint_run(e, 0);
	sends(e, IB_SEND_ONLY, PSN0, 8, true);
	sends_nothing(e);
	assert_int_equal(e->events, 0);
	ack(e, PSN0);
	assert_int_equal(e->events, 1);
	assert_int_equal(e->event[0], IBV_EVENT_SQ_DRAINED);
	assert_true(ib_sq_drained(&e->qp));
	sends_nothing(e);
	ib_qp_modify(&e->qp, IBV_QPS_RTS, &e->attr, false, 0);
	endpoint_run(e, 0);
	sends(e, IB_SEND_ONLY, PSN0 + 1, 8, true);
}

static void a_message_that_was_begun_is_finished_in_sqd(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 12 * SEG, false);
	endpoint_run(e, 0); /* the window is full */
	drop_out(e);
	ib_qp_modify(&e->qp, IBV_QPS_SQD, &e->attr, true, 0);
	ack(e, PSN0 + 7);
	assert_int_equal(e->out.count, 4);
	assert_int_equal(e->events, 0);
	ack(e, PSN0 + 11);
	assert_int_equal(e->wcs, 1);
	assert_int_equal(e->events, 1);
}

static void the_drained_event_comes_at_once_when_idle_and_only_if_wanted(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;

	endpoint_to(e, IBV_QPS_RTS, 0);
	ib_qp_modify(&e->qp, IBV_QPS_SQD, &e->attr, false, 0);
	endpoint_run(e, 0);
	assert_int_equal(e->events, 0);
	ib_qp_modify(&e->qp, IBV_QPS_RTS, &e->attr, false, 0);
	ib_qp_modify(&e->qp, IBV_QPS_SQD, &e->attr, true, 0);
	ib_qp_modify(&e->qp, IBV_QPS_SQD, &e->attr, false, 0); /* attributes only */
	endpoint_run(e, 0);
	assert_int_equal(e->events, 1);
	endpoint_run(e, 0);
	assert_int_equal(e->events, 1);
}

static void a_parked_retransmission_is_withdrawn_when_its_packet_is_acknowledged(void **state)
{
	struct fixture *f = *state;
	struct endpoint *e = &f->e;
	uint32_t serial;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 8, false);
	post(e, IBV_WR_SEND, 8, false);
	endpoint_run(e, 0);
	drop_out(e);
	f->park_tx = true;
	answer(e, 0x60, PSN0, 0); /* sequence NAK: from the first on */
	assert_true(e->parked[IB_REQUESTER]);
	serial = e->parked_serial[IB_REQUESTER];
	assert_true(ib_step_is_pending(&e->qp, IB_REQUESTER, serial));
	ack(e, PSN0); /* of the first transmission */
	assert_false(ib_step_is_pending(&e->qp, IB_REQUESTER, serial));
	assert_int_equal(e->wcs, 1);
	f->park_tx = false;
	endpoint_run(e, 0); /* the endpoint has scribbled over the first WQE: a step from it would fail */
	sends(e, IB_SEND_ONLY, PSN0 + 1, 8, true);
	sends_nothing(e);
	ack(e, PSN0 + 1);
	assert_int_equal(e->wcs, 2);
	fails(e, 1, IBV_WC_SUCCESS);
}

static void reporting_a_withdrawn_step_changes_nothing(void **state)
{
	struct fixture *f = *state;
	struct endpoint *e = &f->e;

	endpoint_to(e, IBV_QPS_RTS, 0);
	post(e, IBV_WR_SEND, 8, false);
	endpoint_run(e, 0);
	drop_out(e);
	f->park_tx = true;
	answer(e, 0x60, PSN0, 0);
	ack(e, PSN0);
	ib_done(&e->qp, IB_REQUESTER, -14, 0);
	f->park_tx = false;
	endpoint_run(e, 0);
	assert_true(ib_qp_is(&e->qp, IBV_QPS_RTS));
	assert_int_equal(e->wcs, 1);
}

static void a_message_of_2_gib_takes_every_offset(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	struct test_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .length = 1u << 31 };
	uint32_t packets = (1u << 31) / SEG, i;

	e->attr.window = 1 << 20;
	endpoint_to(e, IBV_QPS_RTS, 0);
	assert_true(endpoint_post_send(e, &wr));
	for (i = 0; i < packets; i++) {
		struct ib_step *step = ib_next(&e->qp, IB_REQUESTER, 0);

		assert_non_null(step);
		assert_int_equal(step->pkt.psn, (PSN0 + i) & IB_PSN_MASK);
		assert_int_equal(step->mem.local.offset, i * SEG);
		assert_int_equal(step->mem.length, SEG);
		assert_int_equal(!!(ib_opcode_table[step->pkt.opcode].flags & IB_F_LAST), i + 1 == packets);
		ib_done(&e->qp, IB_REQUESTER, 0, 0);
		if (i % 65536 == 65535) {
			struct ib_packet pkt = {
				.opcode = IB_ACKNOWLEDGE, .psn = (PSN0 + i) & IB_PSN_MASK, .syndrome = 0x1f
			};

			assert_int_equal(ib_rx(&e->qp, &pkt, 0, 0), 0);
		}
	}
	endpoint_run(e, 0);
	assert_int_equal(e->wcs, 1);
	fails(e, 0, IBV_WC_SUCCESS);
	assert_int_equal(e->wc[0].wc.byte_len, 1u << 31);
}

static void a_read_of_2_gib_takes_half_of_the_psns_and_nothing_passes_it(void **state)
{
	struct endpoint *e = &((struct fixture *)*state)->e;
	struct test_wr wr = { .opcode = IBV_WR_RDMA_READ, .length = 1u << 31 };
	uint32_t packets = (1u << 31) / SEG, i;

	endpoint_to(e, IBV_QPS_RTS, 0);
	assert_true(endpoint_post_send(e, &wr));
	post(e, IBV_WR_SEND, 8, false);
	endpoint_run(e, 0);
	sends(e, IB_READ_REQUEST, PSN0, 0, true);
	sends_nothing(e);
	for (i = 0; i < packets; i++) {
		struct ib_packet pkt = { .psn = (PSN0 + i) & IB_PSN_MASK,
			.syndrome = 0x1f,
			.opcode = i == 0	     ? IB_READ_RESP_FIRST
				  : i + 1 == packets ? IB_READ_RESP_LAST
						     : IB_READ_RESP_MIDDLE };
		struct ib_step *step;

		assert_int_equal(ib_rx(&e->qp, &pkt, SEG, 0), 0);
		step = ib_next(&e->qp, IB_COMPLETER, 0);
		assert_non_null(step);
		assert_int_equal(step->op, IB_SCATTER);
		assert_int_equal(step->mem.local.offset, i * SEG);
		ib_done(&e->qp, IB_COMPLETER, 0, 0);
	}
	endpoint_run(e, 0);
	assert_int_equal(e->wcs, 1);
	fails(e, 0, IBV_WC_SUCCESS);
	sends(e, IB_SEND_ONLY, PSN0 + packets, 8, true);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_message_is_cut_into_segments_across_the_psn_wrap),
		T(each_kind_has_its_opcodes),
		T(a_read_of_nothing_takes_one_psn),
		T(the_window_bounds_what_is_not_acknowledged),
		T(a_long_read_takes_one_place_in_the_window),
		T(unsignaled_requests_ask_only_when_nothing_follows),
		T(sq_sig_all_signals_everything),
		T(max_rd_atomic_bounds_reads_and_atomics_together),
		T(a_fence_waits_for_reads_and_atomics_only),
		T(inline_data_is_sent_from_the_wqe),
		T(nothing_is_sent_before_rts),
		T(a_request_that_cannot_be_fails_locally),
		T(a_refused_gather_completes_behind_those_before_it),
		T(before_a_local_error_an_acknowledgement_is_asked_for),
		T(in_sqd_an_acknowledgement_is_asked_for_and_the_rest_waits),
		T(a_message_that_was_begun_is_finished_in_sqd),
		T(the_drained_event_comes_at_once_when_idle_and_only_if_wanted),
		T(a_parked_retransmission_is_withdrawn_when_its_packet_is_acknowledged),
		T(reporting_a_withdrawn_step_changes_nothing),
		T(a_message_of_2_gib_takes_every_offset),
		T(a_read_of_2_gib_takes_half_of_the_psns_and_nothing_passes_it),
	};

	return cmocka_run_group_tests_name("ib/requester", tests, NULL, NULL);
}

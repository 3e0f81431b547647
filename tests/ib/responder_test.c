/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The responder alone: requests written by hand, and what comes back for each. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "endpoint.h"

enum {
	SEG = 256,
	PSN0 = 0xffffff,
	ACK = 0x1f,
	SEQ = 0x60,
	INV = 0x61,
	ACC = 0x62,
	OPR = 0x63,
	RNR = 0x20,
	BASE = 0x10000000
};

struct fixture {
	struct endpoint e;
	unsigned not_ready; /* so many more steps that may be deferred are */
	uint32_t psn;	    /* of the next request */
	uint8_t payload[4 * SEG];
	enum ib_op park;
	unsigned after; /* steps of that kind let through first */
};

static bool maybe_park(struct endpoint *e, enum ib_lane lane, const struct ib_step *step)
{
	struct fixture *f = e->context;

	if (lane != IB_RESPONDER || step->op != f->park)
		return false;
	return f->after ? f->after--, false : true;
}

static bool maybe_defer(struct endpoint *e, const struct ib_step *step)
{
	struct fixture *f = e->context;

	(void)step;
	return f->not_ready ? f->not_ready--, true : false;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	endpoint_init(&f->e, BASE, 1 << 16, 16);
	f->e.attr.rq_psn = f->psn = PSN0;
	f->e.context = f;
	f->e.park = maybe_park;
	f->e.defer = maybe_defer;
	f->e.attr.min_rnr_timer = 13;
	for (size_t i = 0; i < sizeof(f->payload); i++)
		f->payload[i] = (uint8_t)(i * 3 + 1);
	endpoint_to(&f->e, IBV_QPS_RTS, 0);
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

static struct ib_packet request(struct fixture *f, uint8_t opcode)
{
	struct ib_packet pkt = { .opcode = opcode,
		.psn = f->psn,
		.ack_req = true,
		.va = BASE,
		.rkey = TEST_RKEY,
		.dma_len = SEG,
		.imm = 0x1234 };

	return pkt;
}

static void give(struct fixture *f, const struct ib_packet *pkt, uint32_t paylen)
{
	endpoint_give(&f->e, pkt, f->payload, paylen);
	endpoint_run(&f->e, 0);
}

/* The next request in sequence, of that opcode. */
static void comes(struct fixture *f, uint8_t opcode, uint32_t paylen)
{
	struct ib_packet pkt = request(f, opcode);

	give(f, &pkt, paylen);
	f->psn = ib_psn_add(f->psn, 1);
}

static void answers(struct fixture *f, uint8_t opcode, uint8_t syndrome, uint32_t psn)
{
	struct frame *r = endpoint_take(&f->e);

	assert_non_null(r);
	assert_int_equal(r->pkt.opcode, opcode);
	assert_int_equal(r->pkt.psn, psn & IB_PSN_MASK);
	if (ib_opcode_table[opcode].flags & IB_F_AETH)
		assert_int_equal(r->pkt.syndrome, syndrome);
	free(r);
}

static void acks(struct fixture *f, uint8_t syndrome, uint32_t psn)
{
	answers(f, IB_ACKNOWLEDGE, syndrome, psn);
}

static void silent(struct fixture *f)
{
	assert_null(f->e.out.head);
}

/* After a NAK that ends it: the state, and the event, 0 for none. */
static void in_error(struct fixture *f, int event)
{
	assert_true(ib_qp_is(&f->e.qp, IBV_QPS_ERR));
	assert_int_equal(f->e.events, event ? 1 : 0);
	if (event)
		assert_int_equal(f->e.event[0], event);
	silent(f);
}

static void completes(
	struct fixture *f, unsigned nth, uint64_t wr_id, enum ibv_wc_status status, uint32_t byte_len)
{
	assert_true(f->e.wcs > nth);
	assert_int_equal(f->e.wc[nth].wc.recv, true);
	assert_int_equal(f->e.wc[nth].wc.wr_id, wr_id);
	assert_int_equal(f->e.wc[nth].wc.status, status);
	if (status == IBV_WC_SUCCESS)
		assert_int_equal(f->e.wc[nth].wc.byte_len, byte_len);
}

static void a_send_is_scattered_acknowledged_and_then_completed(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 0, 1000, 3);
	comes(f, IB_SEND_FIRST, SEG);
	comes(f, IB_SEND_MIDDLE, SEG);
	assert_int_equal(f->e.wcs, 0);
	comes(f, IB_SEND_LAST_IMM, 7);
	acks(f, ACK, PSN0);
	acks(f, ACK, PSN0 + 1);
	acks(f, ACK, PSN0 + 2);
	assert_int_equal(f->e.wcs, 1);
	completes(f, 0, 1, IBV_WC_SUCCESS, 2 * SEG + 7);
	assert_int_equal(f->e.wc[0].tx_before, 3); /* the ACK was sent before */
	assert_int_equal(f->e.wc[0].wc.opcode, IBV_WC_RECV);
	assert_int_equal(f->e.wc[0].wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(f->e.wc[0].wc.imm, 0x1234);
	for (unsigned i = 0; i < 2; i++)
		assert_memory_equal(f->e.mem + i * SEG, f->payload, SEG);
	assert_memory_equal(f->e.mem + 2 * SEG, f->payload, 7);
	assert_int_equal(f->e.mem[2 * SEG + 7], 0);
}

static void only_packets_that_ask_are_acknowledged(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_WRITE_ONLY);

	pkt.ack_req = false;
	give(f, &pkt, SEG);
	silent(f);
	f->psn = ib_psn_add(f->psn, 1);
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACK, PSN0 + 1); /* both */
}

static void the_msn_counts_messages(void **state)
{
	struct fixture *f = *state;
	static const uint32_t msn[] = { 0, 1, 2 };
	struct ib_packet pkt;

	pkt = request(f, IB_WRITE_FIRST);
	pkt.dma_len = SEG + 1;
	give(f, &pkt, SEG);
	f->psn = ib_psn_add(f->psn, 1);
	comes(f, IB_WRITE_LAST, 1);
	comes(f, IB_FETCH_ADD, 0);
	for (unsigned i = 0; i < 3; i++) {
		struct frame *r = endpoint_take(&f->e);

		assert_non_null(r);
		assert_int_equal(r->pkt.msn, msn[i]);
		free(r);
	}
}

static void a_solicited_bit_reaches_the_completion(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_SEND_ONLY);

	endpoint_post_recv(&f->e, 1, 0, 8, 1);
	endpoint_post_recv(&f->e, 2, 0, 8, 1);
	pkt.solicited = true;
	give(f, &pkt, 1);
	f->psn = ib_psn_add(f->psn, 1);
	comes(f, IB_SEND_ONLY, 1);
	assert_true(f->e.wc[0].wc.solicited);
	assert_false(f->e.wc[1].wc.solicited);
}

static void a_write_with_immediate_takes_a_receive_but_not_its_buffer(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 9, 4096, 0, 1);
	comes(f, IB_WRITE_ONLY_IMM, SEG);
	completes(f, 0, 9, IBV_WC_SUCCESS, SEG);
	assert_int_equal(f->e.wc[0].wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(f->e.wc[0].wc.imm, 0x1234);
	assert_memory_equal(f->e.mem, f->payload, SEG);
}

static void without_a_receive_the_peer_is_told_once_to_wait(void **state)
{
	struct fixture *f = *state;
	uint32_t first = f->psn;
	static const uint8_t kinds[] = { IB_SEND_ONLY, IB_WRITE_ONLY_IMM };

	for (unsigned i = 0; i < 2; i++) {
		comes(f, kinds[i], SEG);
		acks(f, RNR | 13, first);
		assert_int_equal(f->e.mem[0], 0); /* nothing written yet */
		comes(f, kinds[i], SEG);	  /* the next one: dropped without an answer */
		silent(f);
		endpoint_post_recv(&f->e, 1, 1024, SEG, 1);
		endpoint_post_recv(&f->e, 2, 1024, SEG, 1);
		f->psn = first;
		comes(f, kinds[i], SEG);
		comes(f, kinds[i], SEG);
		acks(f, ACK, first);
		acks(f, ACK, first + 1);
		first = f->psn;
		memset(f->e.mem, 0, SEG);
	}
	assert_int_equal(f->e.wcs, 4);
	assert_int_equal(atomic_load(&f->e.counters.rnr_nak_sent), 2);
}

/* What is given from psn on, twice in a row: the first time one step finds its memory not ready. */
static void not_ready_at(struct fixture *f, uint32_t psn)
{
	f->psn = psn;
	f->not_ready = 1;
}

static void a_send_whose_memory_is_not_ready_keeps_its_receive(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 0, SEG, 1);
	endpoint_post_recv(&f->e, 2, 1024, SEG, 1);
	for (unsigned tries = 0; tries < 3; tries++) {
		not_ready_at(f, PSN0);
		comes(f, IB_SEND_ONLY_IMM, SEG);
		acks(f, RNR | 13, PSN0);
		comes(f, IB_SEND_ONLY, SEG); /* behind it: dropped without an answer */
		comes(f, IB_WRITE_ONLY, SEG);
		silent(f);
	}
	assert_int_equal(f->e.wcs, 0);
	assert_int_equal(endpoint_recvs(&f->e), 1);
	f->psn = PSN0;
	comes(f, IB_SEND_ONLY_IMM, SEG);
	acks(f, ACK, PSN0);
	completes(f, 0, 1, IBV_WC_SUCCESS, SEG);
	assert_int_equal(f->e.wc[0].wc.imm, 0x1234);
	assert_memory_equal(f->e.mem, f->payload, SEG);
	comes(f, IB_SEND_ONLY, 8);
	acks(f, ACK, PSN0 + 1);
	completes(f, 1, 2, IBV_WC_SUCCESS, 8);
	assert_int_equal(atomic_load(&f->e.counters.rnr_nak_sent), 3);
	assert_int_equal(atomic_load(&f->e.counters.naks_sent), 0);
}

static void memory_may_be_not_ready_in_any_packet_of_a_message(void **state)
{
	struct fixture *f = *state;
	static const uint8_t kinds[2][3] = { { IB_SEND_FIRST, IB_SEND_MIDDLE, IB_SEND_LAST },
		{ IB_WRITE_FIRST, IB_WRITE_MIDDLE, IB_WRITE_LAST_IMM } };
	uint32_t first = PSN0;

	for (unsigned kind = 0; kind < 2; kind++) {
		endpoint_post_recv(&f->e, kind, 4096, 3 * SEG, 2);
		for (unsigned i = 0; i < 3; i++) {
			struct ib_packet pkt = request(f, kinds[kind][i]);

			pkt.psn = ib_psn_add(first, i);
			pkt.dma_len = 2 * SEG + 9;
			f->not_ready = 1;
			give(f, &pkt, i == 2 ? 9 : SEG);
			acks(f, RNR | 13, first + i);
			give(f, &pkt, i == 2 ? 9 : SEG);
			acks(f, ACK, first + i);
		}
		completes(f, kind, kind, IBV_WC_SUCCESS, 2 * SEG + 9);
		first = ib_psn_add(first, 3);
	}
	assert_int_equal(f->e.wcs, 2);
	assert_int_equal(endpoint_recvs(&f->e), 0);
}

/* Whoever sends something else instead finds a receive that waits for a message that takes one. */
static void a_kept_receive_is_for_a_message_that_takes_one(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 1024, SEG, 1);
	not_ready_at(f, PSN0);
	comes(f, IB_SEND_ONLY, 8);
	acks(f, RNR | 13, PSN0);
	f->psn = PSN0;
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACK, PSN0);
	assert_int_equal(f->e.wcs, 0);
	comes(f, IB_SEND_ONLY, 8);
	acks(f, ACK, PSN0 + 1);
	completes(f, 0, 1, IBV_WC_SUCCESS, 8);
}

static void a_kept_receive_is_flushed_with_the_others(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 1024, SEG, 1);
	endpoint_post_recv(&f->e, 2, 1024, SEG, 1);
	not_ready_at(f, PSN0);
	comes(f, IB_SEND_ONLY, 8);
	acks(f, RNR | 13, PSN0);
	ib_qp_error(&f->e.qp, 0);
	endpoint_run(&f->e, 0);
	completes(f, 0, 1, IBV_WC_WR_FLUSH_ERR, 0);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(f->e.wcs, 2);
}

static void an_atomic_whose_memory_is_not_ready_is_executed_once(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_FETCH_ADD);
	uint64_t word;

	pkt.swap_add = 7;
	f->not_ready = 2;
	for (unsigned i = 0; i < 2; i++) {
		give(f, &pkt, 0);
		acks(f, RNR | 13, PSN0);
	}
	give(f, &pkt, 0);
	answers(f, IB_ATOMIC_ACK, ACK, PSN0);
	give(f, &pkt, 0); /* a duplicate is answered from what was kept */
	answers(f, IB_ATOMIC_ACK, ACK, PSN0);
	memcpy(&word, f->e.mem, 8);
	assert_int_equal(word, 7);
	assert_int_equal(f->e.atomics, 1);
}

static void a_read_may_be_deferred_before_its_first_response_only(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST);

	pkt.dma_len = 2 * SEG;
	f->not_ready = 1;
	give(f, &pkt, 0);
	acks(f, RNR | 13, PSN0);
	f->psn = ib_psn_add(PSN0, 2); /* what follows the READ in sequence is not in sequence now */
	comes(f, IB_WRITE_ONLY, SEG);
	silent(f);
	f->park = IB_TX;
	f->after = 1;
	give(f, &pkt, 0);
	assert_int_equal(f->e.out.head->pkt.msn, 1);
	answers(f, IB_READ_RESP_FIRST, ACK, PSN0);
	assert_false(f->e.qp.step[IB_RESPONDER].may_defer);
	ib_done(&f->e.qp, IB_RESPONDER, -EBUSY, 0); /* has no answer: it stays to be done */
	assert_non_null(ib_next(&f->e.qp, IB_RESPONDER, 0));
	f->park = 0;
	f->not_ready = 1; /* nobody asks: neither for the rest nor for a duplicate */
	endpoint_run(&f->e, 0);
	answers(f, IB_READ_RESP_LAST, ACK, PSN0 + 1);
	give(f, &pkt, 0);
	answers(f, IB_READ_RESP_FIRST, ACK, PSN0);
	answers(f, IB_READ_RESP_LAST, ACK, PSN0 + 1);
	assert_int_equal(f->not_ready, 1);
	f->not_ready = 0;
	f->psn = ib_psn_add(PSN0, 2);
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACK, PSN0 + 2);
}

static void a_gap_is_naked_once_with_the_expected_psn(void **state)
{
	struct fixture *f = *state;

	f->psn = ib_psn_add(PSN0, 2);
	comes(f, IB_WRITE_ONLY, SEG);
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, SEQ, PSN0);
	silent(f);
	f->psn = PSN0;
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACK, PSN0);
	f->psn = ib_psn_add(PSN0, 3); /* a new gap */
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, SEQ, PSN0 + 1);
	assert_true(ib_qp_is(&f->e.qp, IBV_QPS_RTS));
}

static void duplicate_sends_and_writes_are_acknowledged_and_not_executed(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 0, 8, 1);
	comes(f, IB_SEND_ONLY, 8);
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACK, PSN0);
	acks(f, ACK, PSN0 + 1);
	memset(f->e.mem, 0, SEG);
	f->psn = PSN0;
	comes(f, IB_SEND_ONLY, 8);
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACK, PSN0 + 1); /* all that has been executed */
	acks(f, ACK, PSN0 + 1);
	assert_int_equal(f->e.mem[0], 0);
	assert_int_equal(f->e.wcs, 1);
}

static void a_duplicate_in_a_message_does_not_disturb_it(void **state)
{
	struct fixture *f = *state;
	uint32_t psn;

	endpoint_post_recv(&f->e, 1, 0, 1000, 1);
	comes(f, IB_SEND_FIRST, SEG);
	comes(f, IB_SEND_MIDDLE, SEG);
	psn = f->psn;
	f->psn = PSN0;
	comes(f, IB_SEND_FIRST, SEG);
	f->psn = ib_psn_add(PSN0, (uint32_t)-1);
	comes(f, IB_WRITE_LAST, SEG);
	f->psn = psn;
	comes(f, IB_SEND_LAST, 5);
	completes(f, 0, 1, IBV_WC_SUCCESS, 2 * SEG + 5);
}

static void a_read_is_answered_in_segments(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST);
	static const uint8_t opcodes[] = { IB_READ_RESP_FIRST, IB_READ_RESP_MIDDLE, IB_READ_RESP_LAST };

	memcpy(f->e.mem + 100, f->payload, sizeof(f->payload));
	pkt.va = BASE + 100;
	pkt.dma_len = 2 * SEG + 9;
	give(f, &pkt, 0);
	for (unsigned i = 0; i < 3; i++) {
		struct frame *r = endpoint_take(&f->e);

		assert_non_null(r);
		assert_int_equal(r->pkt.opcode, opcodes[i]);
		assert_int_equal(r->pkt.psn, (PSN0 + i) & IB_PSN_MASK);
		assert_int_equal(r->paylen, i == 2 ? 9 : SEG);
		assert_memory_equal(r->payload, f->payload + i * SEG, r->paylen);
		free(r);
	}
	f->psn = ib_psn_add(PSN0, 3);
	comes(f, IB_WRITE_ONLY, SEG); /* the PSN after its responses */
	acks(f, ACK, PSN0 + 3);
}

static void nothing_needs_no_key(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST);

	pkt.va = 0xdeadbeef;
	pkt.rkey = 0xdead;
	pkt.dma_len = 0;
	give(f, &pkt, 0);
	answers(f, IB_READ_RESP_ONLY, ACK, PSN0);
	pkt.opcode = IB_WRITE_ONLY;
	pkt.psn = ib_psn_add(PSN0, 1);
	give(f, &pkt, 0);
	acks(f, ACK, PSN0 + 1);
	assert_int_equal(f->e.checks, 0);
	endpoint_post_recv(&f->e, 3, 0, 0, 1);
	pkt.opcode = IB_SEND_ONLY;
	pkt.psn = ib_psn_add(PSN0, 2);
	give(f, &pkt, 0);
	completes(f, 0, 3, IBV_WC_SUCCESS, 0);
}

static void a_duplicate_read_is_read_again_from_any_response_on(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST);

	pkt.dma_len = 3 * SEG;
	give(f, &pkt, 0);
	for (unsigned i = 0; i < 3; i++)
		free(endpoint_take(&f->e));
	f->e.mem[2 * SEG] = 0x77;
	pkt.psn = ib_psn_add(PSN0, 1);
	pkt.va += SEG;
	pkt.dma_len -= SEG;
	give(f, &pkt, 0);
	answers(f, IB_READ_RESP_FIRST, ACK, PSN0 + 1);
	assert_int_equal(f->e.out.head->payload[0], 0x77); /* memory as it is now */
	answers(f, IB_READ_RESP_LAST, ACK, PSN0 + 2);
	f->psn = ib_psn_add(PSN0, 3);
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACK, PSN0 + 3);
}

static void a_duplicate_read_of_something_else_is_dropped(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST), bad;

	pkt.dma_len = 3 * SEG;
	give(f, &pkt, 0);
	for (unsigned i = 0; i < 3; i++)
		free(endpoint_take(&f->e));
	for (unsigned i = 0; i < 6; i++) {
		bad = pkt;
		bad.va += i == 0;
		bad.rkey += i == 1;
		bad.dma_len += i == 2;
		if (i == 3)
			bad.psn = ib_psn_add(
				bad.psn, 1); /* of the second response, with the address of the first */
		if (i == 4)
			bad.psn = ib_psn_add(bad.psn, (uint32_t)-1);
		if (i == 5)
			bad.dma_len = 0;
		give(f, &bad, 0);
		silent(f);
	}
	assert_true(ib_qp_is(&f->e.qp, IBV_QPS_RTS));
}

static void a_duplicate_read_that_is_refused_now_is_no_error_of_ours(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST);

	give(f, &pkt, 0);
	free(endpoint_take(&f->e));
	f->e.rights = 0; /* deregistered since */
	give(f, &pkt, 0);
	acks(f, ACC, PSN0);
	assert_true(ib_qp_is(&f->e.qp, IBV_QPS_RTS));
	assert_int_equal(f->e.events, 0);
}

static void a_duplicate_atomic_is_answered_from_what_was_kept(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_FETCH_ADD);
	uint64_t word = 40;

	memcpy(f->e.mem, &word, 8);
	pkt.swap_add = 2;
	for (unsigned i = 0; i < 3; i++) {
		struct frame *r;

		give(f, &pkt, 0);
		r = endpoint_take(&f->e);
		assert_non_null(r);
		assert_int_equal(r->pkt.opcode, IB_ATOMIC_ACK);
		assert_int_equal(r->pkt.orig, 40);
		free(r);
	}
	memcpy(&word, f->e.mem, 8);
	assert_int_equal(word, 42);
	assert_int_equal(f->e.atomics, 1);
}

static void compare_and_swap_swaps_when_equal_only(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_CMP_SWAP);
	uint64_t word = 5;

	memcpy(f->e.mem, &word, 8);
	pkt.compare = 4;
	pkt.swap_add = 9;
	give(f, &pkt, 0);
	memcpy(&word, f->e.mem, 8);
	assert_int_equal(word, 5);
	pkt.compare = 5;
	pkt.psn = ib_psn_add(PSN0, 1);
	give(f, &pkt, 0);
	memcpy(&word, f->e.mem, 8);
	assert_int_equal(word, 9);
}

static void only_max_dest_rd_atomic_results_are_kept(void **state)
{
	struct fixture *f = *state;
	unsigned kept = f->e.attr.max_dest_rd_atomic;

	for (unsigned i = 0; i <= kept; i++)
		comes(f, IB_FETCH_ADD, 0);
	for (unsigned i = 0; i <= kept; i++)
		answers(f, IB_ATOMIC_ACK, ACK, PSN0 + i);
	f->psn = PSN0;
	comes(f, IB_FETCH_ADD, 0); /* one too many ago: forgotten */
	silent(f);
	comes(f, IB_FETCH_ADD, 0);
	answers(f, IB_ATOMIC_ACK, ACK, PSN0 + 1);
}

/* Errors. */

static void wrong_orders_of_opcodes_are_invalid(void **state)
{
	enum { NONE = 0xff };
	static const uint8_t cases[][2] = {
		{ IB_SEND_MIDDLE, NONE },
		{ IB_SEND_LAST, NONE },
		{ IB_SEND_LAST_IMM, NONE },
		{ IB_WRITE_MIDDLE, NONE },
		{ IB_WRITE_LAST, NONE },
		{ IB_WRITE_LAST_IMM, NONE },
		{ IB_SEND_FIRST, IB_SEND_FIRST },
		{ IB_SEND_FIRST, IB_SEND_ONLY },
		{ IB_SEND_FIRST, IB_WRITE_MIDDLE },
		{ IB_SEND_FIRST, IB_WRITE_ONLY },
		{ IB_SEND_FIRST, IB_READ_REQUEST },
		{ IB_SEND_FIRST, IB_FETCH_ADD },
		{ IB_WRITE_FIRST, IB_WRITE_FIRST },
		{ IB_WRITE_FIRST, IB_SEND_LAST },
		{ IB_WRITE_FIRST, IB_SEND_ONLY_IMM },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture *f = *state;
		bool second = cases[i][1] != NONE;
		struct ib_packet pkt = request(f, cases[i][0]);

		endpoint_post_recv(&f->e, 1, 0, 1000, 1);
		endpoint_post_recv(&f->e, 2, 0, 1000, 1);
		pkt.dma_len = 3 * SEG;
		give(f, &pkt, SEG);
		if (second) {
			acks(f, ACK, PSN0);
			pkt = request(f, cases[i][1]);
			pkt.psn = ib_psn_add(PSN0, 1);
			give(f, &pkt, ib_opcode_table[pkt.opcode].flags & IB_F_PAYLOAD ? SEG : 0);
		}
		acks(f, INV, PSN0 + second);
		in_error(f, IBV_EVENT_QP_REQ_ERR);
		assert_int_equal(f->e.wcs, 2);
		completes(f, 0, 1,
			cases[i][0] == IB_SEND_FIRST ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_WR_FLUSH_ERR, 0);
		completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
		teardown(state);
		setup(state);
	}
}

static void wrong_lengths_are_invalid(void **state)
{
	static const struct {
		uint8_t opcode;
		uint32_t dma_len, paylen;
	} cases[] = {
		{ IB_SEND_FIRST, 0, SEG - 1 },
		{ IB_SEND_FIRST, 0, SEG + 1 },
		{ IB_SEND_ONLY, 0, SEG + 1 },
		{ IB_WRITE_FIRST, SEG, SEG },
		{ IB_WRITE_FIRST, 1, SEG },
		{ IB_WRITE_ONLY, 8, 9 },
		{ IB_WRITE_ONLY, 9, 8 },
		{ IB_WRITE_ONLY, 0, 1 },
		{ IB_WRITE_FIRST, (1u << 31) + 1, SEG },
		{ IB_READ_REQUEST, (1u << 31) + 1, 0 },
		{ IB_READ_REQUEST, UINT32_MAX, 0 },
		{ IB_READ_REQUEST, 8, 4 },
		{ IB_FETCH_ADD, 0, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture *f = *state;
		struct ib_packet pkt = request(f, cases[i].opcode);

		pkt.dma_len = cases[i].dma_len;
		endpoint_post_recv(&f->e, 1, 0, 1000, 1);
		give(f, &pkt, cases[i].paylen);
		acks(f, INV, PSN0);
		in_error(f, IBV_EVENT_QP_REQ_ERR);
		assert_int_equal(f->e.mem[0], 0);
		assert_int_equal(f->e.checks, 0);
		teardown(state);
		setup(state);
	}
}

static void a_write_whose_payloads_do_not_add_up_is_invalid(void **state)
{
	static const uint32_t last[] = { 4, 6, 0 };

	for (unsigned i = 0; i < 3; i++) {
		struct fixture *f = *state;
		struct ib_packet pkt = request(f, IB_WRITE_FIRST);

		pkt.dma_len = SEG + 5;
		give(f, &pkt, SEG);
		acks(f, ACK, PSN0);
		f->psn = ib_psn_add(PSN0, 1);
		comes(f, IB_WRITE_LAST, last[i]);
		acks(f, INV, PSN0 + 1);
		in_error(f, IBV_EVENT_QP_REQ_ERR);
		teardown(state);
		setup(state);
	}
}

static void a_send_longer_than_its_receive_is_a_length_error(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 0, SEG + 4, 2);
	endpoint_post_recv(&f->e, 2, 0, SEG + 4, 2);
	comes(f, IB_SEND_FIRST, SEG);
	comes(f, IB_SEND_LAST, 5);
	acks(f, ACK, PSN0);
	acks(f, INV, PSN0 + 1);
	in_error(f, 0); /* the receive tells */
	completes(f, 0, 1, IBV_WC_LOC_LEN_ERR, 0);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
}

static void what_the_queue_pair_does_not_allow_is_invalid(void **state)
{
	static const struct {
		uint8_t opcode;
		int missing;
	} cases[] = {
		{ IB_WRITE_ONLY, IBV_ACCESS_REMOTE_WRITE },
		{ IB_READ_REQUEST, IBV_ACCESS_REMOTE_READ },
		{ IB_CMP_SWAP, IBV_ACCESS_REMOTE_ATOMIC },
		{ IB_FETCH_ADD, IBV_ACCESS_REMOTE_ATOMIC },
	};

	for (size_t i = 0; i < 4; i++) {
		struct fixture *f = *state;

		f->e.qp.attr.access &= ~cases[i].missing;
		comes(f, cases[i].opcode, cases[i].opcode == IB_WRITE_ONLY ? SEG : 0);
		acks(f, INV, PSN0);
		in_error(f, IBV_EVENT_QP_REQ_ERR);
		teardown(state);
		setup(state);
	}
}

static void reads_and_atomics_without_responder_resources_are_invalid(void **state)
{
	struct fixture *f = *state;

	f->e.qp.attr.max_dest_rd_atomic = 0;
	comes(f, IB_READ_REQUEST, 0);
	acks(f, INV, PSN0);
	in_error(f, IBV_EVENT_QP_REQ_ERR);
}

/* Requests that have all come when the first one is taken up: READs of so many segments, 0: an atomic. */
static void come_together(struct fixture *f, unsigned first, unsigned n, const uint32_t *segments)
{
	uint32_t psn = f->psn;

	for (unsigned i = 0; i < n; i++) {
		struct ib_packet pkt = request(f, segments[i] ? IB_READ_REQUEST : IB_CMP_SWAP);

		pkt.psn = psn;
		pkt.dma_len = segments[i] * SEG;
		if (i >= first)
			endpoint_give(&f->e, &pkt, NULL, 0);
		psn = ib_psn_add(psn, segments[i] ? segments[i] : 1);
	}
}

static void answered(struct fixture *f, uint32_t segments)
{
	if (!segments)
		answers(f, IB_ATOMIC_ACK, ACK, f->psn);
	for (uint32_t i = 0; i < segments; i++)
		answers(f,
			segments == 1	    ? IB_READ_RESP_ONLY
			: i == 0	    ? IB_READ_RESP_FIRST
			: i == segments - 1 ? IB_READ_RESP_LAST
					    : IB_READ_RESP_MIDDLE,
			ACK, f->psn + i);
	f->psn = ib_psn_add(f->psn, segments ? segments : 1);
}

static void more_reads_and_atomics_at_once_than_resources_are_refused(void **state)
{
	static const uint32_t segments[] = { 1, 3, 0, 2, 0, 1 };

	for (uint8_t limit = 1; limit <= 6; limit++) {
		struct fixture *f = *state;

		f->e.qp.attr.max_dest_rd_atomic = limit;
		come_together(f, 0, 6, segments);
		endpoint_run(&f->e, 0);
		for (unsigned i = 0; i < limit; i++)
			answered(f, segments[i]);
		if (limit < 6) {
			acks(f, INV, f->psn);
			in_error(f, IBV_EVENT_QP_REQ_ERR);
		}
		silent(f);
		teardown(state);
		setup(state);
	}
}

/* One after the other there may be any number; SENDs and WRITEs between them take none. */
static void reads_and_atomics_within_the_resources_are_not_refused(void **state)
{
	static const uint32_t segments[] = { 2, 0 };
	struct fixture *f = *state;

	f->e.qp.attr.max_dest_rd_atomic = 2;
	for (unsigned i = 0; i < 20; i++) {
		struct ib_packet write = request(f, IB_WRITE_ONLY);

		come_together(f, 0, 2, segments);
		write.psn = f->psn + 3;
		endpoint_give(&f->e, &write, f->payload, SEG);
		endpoint_run(&f->e, 0);
		answered(f, 2);
		answered(f, 0);
		acks(f, ACK, f->psn);
		f->psn = ib_psn_add(f->psn, 1);
	}
	silent(f);
}

/* Sent again while the first ones still wait: they are no more than they were. */
static void reads_that_are_sent_again_count_once(void **state)
{
	static const uint32_t segments[] = { 2, 0 };
	struct fixture *f = *state;

	f->e.qp.attr.max_dest_rd_atomic = 2;
	come_together(f, 0, 2, segments);
	come_together(f, 0, 2, segments);
	come_together(f, 1, 2, segments);
	endpoint_run(&f->e, 0);
	assert_false(ib_qp_is(&f->e.qp, IBV_QPS_ERR));
	answered(f, 2);
	answered(f, 0);
	assert_int_equal(f->e.atomics, 1);
}

static void a_key_that_refuses_is_a_remote_access_error(void **state)
{
	static const uint8_t kinds[] = { IB_WRITE_ONLY, IB_READ_REQUEST, IB_FETCH_ADD };

	for (unsigned i = 0; i < 9; i++) {
		struct fixture *f = *state;
		struct ib_packet pkt = request(f, kinds[i % 3]);

		if (i < 3)
			pkt.rkey++;
		else if (i < 6)
			f->e.rights = 0;
		else
			pkt.va = BASE + (1 << 16) - (kinds[i % 3] == IB_FETCH_ADD ? 0 : 8);
		give(f, &pkt, i % 3 ? 0 : SEG);
		acks(f, ACC, PSN0);
		in_error(f, IBV_EVENT_QP_ACCESS_ERR);
		assert_int_equal(f->e.mem[0], 0);
		teardown(state);
		setup(state);
	}
}

static void a_range_that_wraps_is_refused_unasked(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST);

	pkt.va = UINT64_MAX - 10;
	give(f, &pkt, 0);
	acks(f, ACC, PSN0);
	in_error(f, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(f->e.checks, 0);
}

static void a_write_is_checked_over_its_whole_length_before_its_first_byte(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_WRITE_FIRST);

	pkt.va = BASE + (1 << 16) - SEG;
	pkt.dma_len = SEG + 1;
	give(f, &pkt, SEG);
	acks(f, ACC, PSN0);
	in_error(f, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(f->e.mem[f->e.size - SEG], 0);
}

static void a_misaligned_atomic_is_invalid(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_FETCH_ADD);

	pkt.va = BASE + 4;
	give(f, &pkt, 0);
	acks(f, INV, PSN0);
	in_error(f, IBV_EVENT_QP_REQ_ERR);
}

static void a_hole_under_a_write_is_a_remote_access_error(void **state)
{
	struct fixture *f = *state;

	f->e.hole = 10;
	f->e.hole_end = 20;
	comes(f, IB_WRITE_ONLY, SEG);
	acks(f, ACC, PSN0);
	in_error(f, IBV_EVENT_QP_ACCESS_ERR);
}

static void a_hole_in_a_read_is_naked_with_the_psn_of_its_response(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_READ_REQUEST);

	f->e.hole = SEG + 1;
	f->e.hole_end = SEG + 2;
	pkt.dma_len = 3 * SEG;
	give(f, &pkt, 0);
	answers(f, IB_READ_RESP_FIRST, ACK, PSN0);
	acks(f, ACC, PSN0 + 1);
	in_error(f, IBV_EVENT_QP_ACCESS_ERR);
}

static void a_receive_whose_memory_refuses_is_a_remote_operation_error(void **state)
{
	struct fixture *f = *state;

	f->e.local_refused = true;
	endpoint_post_recv(&f->e, 1, 0, SEG, 1);
	comes(f, IB_SEND_ONLY, 8);
	acks(f, OPR, PSN0);
	in_error(f, 0);
	completes(f, 0, 1, IBV_WC_LOC_PROT_ERR, 0);
}

static void the_first_packet_in_rtr_raises_comm_est_once(void **state)
{
	struct fixture *f = *state;

	ib_qp_modify(&f->e.qp, IBV_QPS_RESET, &f->e.attr, false, 0);
	endpoint_to(&f->e, IBV_QPS_RTR, 0);
	comes(f, IB_WRITE_ONLY, SEG);
	comes(f, IB_WRITE_ONLY, SEG);
	assert_int_equal(f->e.events, 1);
	assert_int_equal(f->e.event[0], IBV_EVENT_COMM_EST);
	acks(f, ACK, PSN0);
	acks(f, ACK, PSN0 + 1);
}

static void in_rts_there_is_no_comm_est(void **state)
{
	struct fixture *f = *state;

	comes(f, IB_WRITE_ONLY, SEG);
	assert_int_equal(f->e.events, 0);
}

static void a_parked_scatter_is_the_same_step_until_it_is_done(void **state)
{
	struct fixture *f = *state;
	struct ib_step *step;

	f->park = IB_SCATTER;
	comes(f, IB_WRITE_ONLY, SEG);
	silent(f);
	step = ib_next(&f->e.qp, IB_RESPONDER, 0);
	assert_non_null(step);
	assert_int_equal(step->op, IB_SCATTER);
	assert_int_equal(step->serial, f->e.parked_serial[IB_RESPONDER]);
	endpoint_run(&f->e, 0);
	silent(f);
	f->park = 0;
	endpoint_run(&f->e, 0);
	acks(f, ACK, PSN0);
	assert_memory_equal(f->e.mem, f->payload, SEG);
}

static void an_error_while_parked_withdraws_the_step_and_flushes(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 0, SEG, 1);
	endpoint_post_recv(&f->e, 2, 0, SEG, 1);
	f->park = IB_SCATTER;
	comes(f, IB_SEND_ONLY, 8);
	assert_true(f->e.parked[IB_RESPONDER]);
	ib_qp_error(&f->e.qp, 0);
	assert_false(ib_step_is_pending(&f->e.qp, IB_RESPONDER, f->e.parked_serial[IB_RESPONDER]));
	endpoint_run(&f->e, 0);
	silent(f);
	assert_int_equal(f->e.mem[0], 0);
	completes(f, 0, 1, IBV_WC_WR_FLUSH_ERR, 0);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	endpoint_post_recv(&f->e, 3, 0, SEG, 1); /* receives posted in ERR are flushed as well */
	endpoint_run(&f->e, 0);
	completes(f, 2, 3, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(f->e.wcs, 3);
	assert_int_equal(f->e.wc[2].wc.index, 2);
}

static void a_message_that_was_acknowledged_completes_in_success_even_after_an_error(void **state)
{
	struct fixture *f = *state;

	endpoint_post_recv(&f->e, 1, 0, SEG, 1);
	endpoint_post_recv(&f->e, 2, 0, SEG, 1);
	f->park = IB_CQE;
	comes(f, IB_SEND_ONLY, 8);
	acks(f, ACK, PSN0);
	ib_qp_error(&f->e.qp, 0);
	f->park = 0;
	endpoint_run(&f->e, 0);
	completes(f, 0, 1, IBV_WC_SUCCESS, 8);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(f->e.wcs, 2);
}

static void an_error_between_acknowledgement_and_completion_leaves_it_a_success(void **state)
{
	struct fixture *f = *state;
	struct ib_packet pkt = request(f, IB_SEND_ONLY);
	struct ib_step *step;

	endpoint_post_recv(&f->e, 1, 0, SEG, 1);
	f->park = IB_TX;
	give(f, &pkt, 8);
	step = ib_next(&f->e.qp, IB_RESPONDER, 0);
	assert_int_equal(step->op, IB_TX);
	ib_done(&f->e.qp, IB_RESPONDER, 0, 0);
	ib_qp_error(&f->e.qp, 0);
	f->park = 0;
	endpoint_run(&f->e, 0);
	completes(f, 0, 1, IBV_WC_SUCCESS, 8);
	assert_int_equal(f->e.wcs, 1);
}

static void receives_posted_in_init_are_flushed_by_an_error(void **state)
{
	struct fixture *f = *state;

	ib_qp_modify(&f->e.qp, IBV_QPS_RESET, &f->e.attr, false, 0);
	endpoint_to(&f->e, IBV_QPS_INIT, 0);
	endpoint_post_recv(&f->e, 1, 0, 8, 1);
	endpoint_post_recv(&f->e, 2, 0, 8, 1);
	ib_qp_modify(&f->e.qp, IBV_QPS_ERR, &f->e.attr, false, 0);
	endpoint_run(&f->e, 0);
	assert_int_equal(f->e.wcs, 2);
	completes(f, 0, 1, IBV_WC_WR_FLUSH_ERR, 0);
	completes(f, 1, 2, IBV_WC_WR_FLUSH_ERR, 0);
	assert_int_equal(atomic_load(&f->e.counters.req_flushed), 2);
}

static void requests_are_dropped_outside_of_rtr_rts_and_sqd(void **state)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_ERR };
	struct fixture *f = *state;

	for (unsigned i = 0; i < 3; i++) {
		ib_qp_modify(&f->e.qp, IBV_QPS_RESET, &f->e.attr, false, 0);
		ib_qp_modify(&f->e.qp, states[i], &f->e.attr, false, 0);
		comes(f, IB_WRITE_ONLY, SEG);
		silent(f);
		assert_int_equal(f->e.dropped, i + 1);
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_send_is_scattered_acknowledged_and_then_completed),
		T(only_packets_that_ask_are_acknowledged),
		T(the_msn_counts_messages),
		T(a_solicited_bit_reaches_the_completion),
		T(a_write_with_immediate_takes_a_receive_but_not_its_buffer),
		T(without_a_receive_the_peer_is_told_once_to_wait),
		T(a_send_whose_memory_is_not_ready_keeps_its_receive),
		T(memory_may_be_not_ready_in_any_packet_of_a_message),
		T(a_kept_receive_is_for_a_message_that_takes_one),
		T(a_kept_receive_is_flushed_with_the_others),
		T(an_atomic_whose_memory_is_not_ready_is_executed_once),
		T(a_read_may_be_deferred_before_its_first_response_only),
		T(a_gap_is_naked_once_with_the_expected_psn),
		T(duplicate_sends_and_writes_are_acknowledged_and_not_executed),
		T(a_duplicate_in_a_message_does_not_disturb_it),
		T(a_read_is_answered_in_segments),
		T(nothing_needs_no_key),
		T(a_duplicate_read_is_read_again_from_any_response_on),
		T(a_duplicate_read_of_something_else_is_dropped),
		T(a_duplicate_read_that_is_refused_now_is_no_error_of_ours),
		T(a_duplicate_atomic_is_answered_from_what_was_kept),
		T(compare_and_swap_swaps_when_equal_only),
		T(only_max_dest_rd_atomic_results_are_kept),
		T(wrong_orders_of_opcodes_are_invalid),
		T(wrong_lengths_are_invalid),
		T(a_write_whose_payloads_do_not_add_up_is_invalid),
		T(a_send_longer_than_its_receive_is_a_length_error),
		T(what_the_queue_pair_does_not_allow_is_invalid),
		T(reads_and_atomics_without_responder_resources_are_invalid),
		T(more_reads_and_atomics_at_once_than_resources_are_refused),
		T(reads_and_atomics_within_the_resources_are_not_refused),
		T(reads_that_are_sent_again_count_once),
		T(a_key_that_refuses_is_a_remote_access_error),
		T(a_range_that_wraps_is_refused_unasked),
		T(a_write_is_checked_over_its_whole_length_before_its_first_byte),
		T(a_misaligned_atomic_is_invalid),
		T(a_hole_under_a_write_is_a_remote_access_error),
		T(a_hole_in_a_read_is_naked_with_the_psn_of_its_response),
		T(a_receive_whose_memory_refuses_is_a_remote_operation_error),
		T(the_first_packet_in_rtr_raises_comm_est_once),
		T(in_rts_there_is_no_comm_est),
		T(a_parked_scatter_is_the_same_step_until_it_is_done),
		T(an_error_while_parked_withdraws_the_step_and_flushes),
		T(a_message_that_was_acknowledged_completes_in_success_even_after_an_error),
		T(an_error_between_acknowledgement_and_completion_leaves_it_a_success),
		T(receives_posted_in_init_are_flushed_by_an_error),
		T(requests_are_dropped_outside_of_rtr_rts_and_sqd),
	};

	return cmocka_run_group_tests_name("ib/responder", tests, NULL, NULL);
}

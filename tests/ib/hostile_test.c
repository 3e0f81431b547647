/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A queue pair in every state under packets that a hostile peer could send: random fields and lengths,
 * mutations of what would be right, raw bytes through the decoder. The endpoint checks each step: no byte
 * outside of the payload, of a receive, of a send's list; no remote step without its check. Here: nothing
 * crashes or hangs, whatever was posted completes once, in order, and a queue pair that failed is in ERR.
 *
 *   hostile_test         runs the seeds 1 .. HOSTILE_SEEDS (environment; default 3000)
 *   hostile_test SEED    runs one
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "endpoint.h"

enum { MEM = 8192, BASE = 0x10000000, PACKETS = 120 };

struct hostile {
	uint64_t seed, rng, now;
	struct endpoint e;
	unsigned park, defer; /* of a hundred steps */
	uint64_t sends_posted, recvs_posted, sends_done, recvs_done;
	struct ib_packet last; /* the last one that was sent to us, to be mutated */
};

static uint64_t rnd(struct hostile *h)
{
	uint64_t z = h->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint32_t below(struct hostile *h, uint32_t n)
{
	return (uint32_t)(rnd(h) % n);
}

static bool maybe_park(struct endpoint *e, enum ib_lane lane, const struct ib_step *step)
{
	struct hostile *h = e->context;

	(void)lane;
	(void)step;
	return below(h, 100) < h->park;
}

static bool maybe_defer(struct endpoint *e, const struct ib_step *step)
{
	struct hostile *h = e->context;

	(void)step;
	return below(h, 100) < h->defer;
}

static void on_wc(struct endpoint *e, const struct ib_wc *wc)
{
	struct hostile *h = e->context;

	if (wc->recv) {
		assert_int_equal(wc->index, h->recvs_done);
		h->recvs_done++;
	} else {
		assert_int_equal(wc->index, h->sends_done);
		h->sends_done++;
	}
	if (wc->status != IBV_WC_SUCCESS)
		assert_true(ib_qp_is(&e->qp, IBV_QPS_ERR));
}

/* Values that are right, or nearly, or anything. */
static uint32_t odd32(struct hostile *h, uint32_t right)
{
	static const uint32_t edges[] = { 0, 1, 255, 256, 257, 512, 0x7fffffff, 0x80000000, 0x80000001,
		0xffffffff };

	switch (below(h, 8)) {
	case 0:
		return edges[below(h, 10)];
	case 1:
		return right + below(h, 5) - 2;
	case 2:
		return (uint32_t)rnd(h);
	default:
		return right;
	}
}

static uint64_t odd_va(struct hostile *h)
{
	switch (below(h, 8)) {
	case 0:
		return rnd(h);
	case 1:
		return UINT64_MAX - below(h, 600);
	case 2:
		return BASE + MEM - below(h, 600);
	default:
		return BASE + 8 * below(h, MEM / 8);
	}
}

static uint32_t likely_psn(struct hostile *h, uint8_t opcode)
{
	return ib_lane_of(opcode) == IB_RESPONDER ? h->e.qp.resp.epsn : h->e.qp.comp.una;
}

static uint32_t likely_paylen(struct hostile *h, const struct ib_packet *pkt)
{
	uint32_t flags = ib_opcode_table[pkt->opcode].flags;

	if (!(flags & IB_F_PAYLOAD))
		return 0;
	if (!(flags & IB_F_LAST))
		return 256;
	return flags & IB_F_RETH && pkt->dma_len <= 256 ? pkt->dma_len : below(h, 257);
}

static void make_packet(struct hostile *h, struct ib_packet *pkt)
{
	static const uint8_t syndromes[] = { 0x1f, 0x00, 0x60, 0x61, 0x62, 0x63, 0x64, 0x21, 0x3f, 0x40 };

	pkt->opcode = below(h, 20) ? (uint8_t)below(h, 0x15) : (uint8_t)rnd(h);
	pkt->solicited = below(h, 2);
	pkt->ack_req = below(h, 2);
	pkt->psn = odd32(h, likely_psn(h, pkt->opcode));
	pkt->va = odd_va(h);
	pkt->rkey = odd32(h, TEST_RKEY);
	pkt->dma_len = odd32(h, below(h, 700));
	pkt->swap_add = rnd(h);
	pkt->compare = rnd(h);
	pkt->syndrome = below(h, 4) ? 0x1f : syndromes[below(h, 10)];
	pkt->msn = odd32(h, 1);
	pkt->orig = rnd(h);
	pkt->imm = (uint32_t)rnd(h);
}

/* A packet that the endpoint itself would send, mutated: or bytes, through the decoder. */
static bool make_bytes(struct hostile *h, struct ib_packet *pkt)
{
	uint8_t buf[IB_HDR_MAX];
	size_t n;

	make_packet(h, pkt);
	if (!(ib_opcode_table[pkt->opcode].flags & IB_F_VALID))
		return false;
	n = ib_packet_encode(pkt, likely_paylen(h, pkt), buf);
	for (unsigned flips = below(h, 4); flips; flips--)
		buf[below(h, (uint32_t)n)] ^= (uint8_t)(1u << below(h, 8));
	return !ib_packet_decode(pkt, buf, below(h, 10) ? n : below(h, (uint32_t)n + 1));
}

static void send_one(struct hostile *h)
{
	uint8_t payload[2048];
	struct ib_packet pkt;
	uint32_t paylen;

	memset(payload, (int)below(h, 256), sizeof(payload));
	if (below(h, 3) == 0) {
		if (!make_bytes(h, &pkt))
			return;
	} else if (below(h, 5) == 0) {
		pkt = h->last;
	} else {
		make_packet(h, &pkt);
	}
	h->last = pkt;
	paylen = odd32(h, likely_paylen(h, &pkt));
	if (paylen > sizeof(payload))
		paylen = sizeof(payload);
	endpoint_give(&h->e, &pkt, payload, paylen);
}

static void post_something(struct hostile *h)
{
	static const uint8_t opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct test_wr wr = {
		.opcode = opcodes[below(h, 6)], .wr_id = h->sends_posted, .sges = 1 + below(h, 4)
	};

	wr.length = wr.opcode >= IBV_WR_ATOMIC_CMP_AND_SWP ? 8 : below(h, 1200);
	wr.local = below(h, MEM - 1200);
	if (below(h, 2) && endpoint_post_send(&h->e, &wr))
		h->sends_posted++;
	if (below(h, 2) && endpoint_recvs(&h->e) < 100) {
		uint32_t n = below(h, 800);

		endpoint_post_recv(&h->e, h->recvs_posted, below(h, MEM - 800), n, 1 + below(h, 4));
		h->recvs_posted++;
	}
}

static void check_rules(struct hostile *h)
{
	const char *broken = ib_broken_rule(&h->e.qp);

	if (broken)
		fail_msg("seed %" PRIu64 ": %s", h->seed, broken);
}

static void something_happens(struct hostile *h)
{
	switch (below(h, 60)) {
	case 0:
		ib_lost(&h->e.qp, h->now);
		break;
	case 6:
		ib_lossy(&h->e.qp, h->now);
		break;
	case 1:
		h->e.hole = below(h, MEM);
		h->e.hole_end = h->e.hole + below(h, 64);
		break;
	case 2:
		h->e.rights = (int)below(h, 16);
		break;
	case 3:
		if (ib_qp_is(&h->e.qp, IBV_QPS_RTS))
			ib_qp_modify(&h->e.qp, IBV_QPS_SQD, &h->e.attr, true, h->now);
		break;
	case 4:
		if (ib_qp_is(&h->e.qp, IBV_QPS_SQD))
			ib_qp_modify(&h->e.qp, IBV_QPS_RTS, &h->e.attr, false, h->now);
		break;
	case 5:
		if (below(h, 4) == 0)
			ib_peer_dead(&h->e.qp, h->now);
		break;
	default:
		break;
	}
	h->now += below(h, 100000);
	ib_tick(&h->e.qp, h->now);
	assert_true(ib_deadline(&h->e.qp) > h->now);
	check_rules(h);
}

static void drain_out(struct hostile *h)
{
	for (struct frame *f = endpoint_take(&h->e); f; f = endpoint_take(&h->e)) {
		assert_true(f->paylen <= 256);
		free(f);
	}
}

/* Out of ERR again, by way of RESET, when all has been flushed. */
static void revive(struct hostile *h)
{
	unsigned park = h->park;

	h->park = 0;
	endpoint_run(&h->e, h->now);
	h->park = park;
	assert_int_equal(h->sends_done, h->sends_posted);
	assert_int_equal(h->recvs_done, h->recvs_posted);
	ib_qp_modify(&h->e.qp, IBV_QPS_RESET, &h->e.attr, false, h->now);
	h->e.rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	h->e.events = 0;
	endpoint_to(&h->e, below(h, 4) ? IBV_QPS_RTS : IBV_QPS_RTR, h->now);
}

static uint64_t current_seed;

static void run_seed(uint64_t seed)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTR,
		IBV_QPS_SQD, IBV_QPS_INIT, IBV_QPS_ERR, IBV_QPS_RESET };
	struct hostile *h = calloc(1, sizeof(*h));
	enum ibv_qp_state state;

	assert_non_null(h);
	current_seed = seed;
	h->seed = h->rng = seed;
	endpoint_init(&h->e, BASE, MEM, 16);
	h->e.hostile = true;
	h->e.context = h;
	h->e.park = maybe_park;
	h->e.defer = maybe_defer;
	h->e.on_wc = on_wc;
	h->e.qp.cfg.sq_sig_all = true;
	h->e.attr.sq_psn = (uint32_t)rnd(h) | (below(h, 2) ? 0xfffff0 : 0);
	h->e.attr.rq_psn = (uint32_t)rnd(h) | (below(h, 2) ? 0xfffff0 : 0);
	h->e.attr.window = 2 + below(h, 20);
	h->e.attr.lossless = below(h, 2);
	h->e.attr.access = below(h, 4) ? h->e.attr.access : (int)below(h, 16);
	h->e.attr.max_dest_rd_atomic = (uint8_t)below(h, 5);
	h->park = below(h, 2) ? below(h, 60) : 0;
	h->defer = below(h, 2) ? below(h, 60) : 0;
	state = states[below(h, 8)];
	if (state == IBV_QPS_SQD)
		endpoint_to(&h->e, IBV_QPS_RTS, 0);
	if (state != IBV_QPS_RESET)
		endpoint_to(&h->e, state, 0);
	for (unsigned i = 0; i < PACKETS; i++) {
		if (state != IBV_QPS_RESET && state != IBV_QPS_INIT && below(h, 3) == 0)
			post_something(h);
		send_one(h);
		something_happens(h);
		endpoint_run(&h->e, h->now);
		check_rules(h);
		drain_out(h);
		if (ib_qp_is(&h->e.qp, IBV_QPS_ERR) && below(h, 4) == 0)
			revive(h);
	}
	h->park = 0;
	ib_qp_error(&h->e.qp, h->now);
	endpoint_run(&h->e, h->now);
	drain_out(h);
	assert_int_equal(h->sends_done, h->sends_posted);
	assert_int_equal(h->recvs_done, h->recvs_posted);
	assert_int_equal(ib_deadline(&h->e.qp), UINT64_MAX);
	endpoint_fini(&h->e);
	free(h);
}

static uint64_t first_seed = 1, seeds = 3000;

static void garbage_harms_nobody(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < seeds; i++)
		run_seed(first_seed + i);
}

static int say_seed(void **state)
{
	(void)state;
	print_message("last seed: %" PRIu64 " (run it alone: hostile_test %" PRIu64 ")\n", current_seed,
		current_seed);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(garbage_harms_nobody, say_seed),
	};
	const char *env = getenv("HOSTILE_SEEDS");

	if (env && *env)
		seeds = strtoull(env, NULL, 0);
	if (argc > 1) {
		first_seed = strtoull(argv[1], NULL, 0);
		seeds = 1;
	}
	return cmocka_run_group_tests_name("ib/hostile", tests, NULL, NULL);
}

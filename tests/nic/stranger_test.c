/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What becomes of requests whose peer is not, or not any more, connected to the queue pair that sent them:
 * each completes with IBV_WC_RETRY_EXC_ERR, as on a network, and nothing of it reaches whom the peer is
 * connected to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "nic/nic.h"
#include "pair.h"

static const struct pair_options brief = { .timeout = 8, .retry_cnt = 2 };

struct third {
	struct nic_cq *cq;
	struct nic_qp *qp;
};

static struct nic_qp *make_qp(struct pair *p, struct nic_cq *cq)
{
	struct nic_qp_init init = { .send_cq = cq, .recv_cq = cq, .sq_sig_all = true };
	struct nic_qp *qp;

	init.cap = (struct ibv_qp_cap){
		.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1
	};
	assert_int_equal(0, nic_qp_create(p->pd, &init, &qp));
	return qp;
}

static void third_make(struct pair *p, struct third *t)
{
	int actual;

	assert_int_equal(0, nic_cq_create(p->ctx, 16, NULL, t, &t->cq, &actual));
	t->qp = make_qp(p, t->cq);
}

static void third_unmake(struct third *t)
{
	assert_int_equal(0, nic_qp_destroy(t->qp));
	assert_int_equal(0, nic_cq_destroy(t->cq));
}

static void to(struct nic_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1 };
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	assert_int_equal(0, nic_qp_modify(qp, &attr, mask));
}

/* What happens to the peer, p->qp[1]. */

static void reset(struct pair *p, struct third *t)
{
	(void)t;
	to(p->qp[1], IBV_QPS_RESET);
}

static void initialise(struct pair *p, struct third *t)
{
	reset(p, t);
	to(p->qp[1], IBV_QPS_INIT);
}

static void fail_it(struct pair *p, struct third *t)
{
	(void)t;
	to(p->qp[1], IBV_QPS_ERR);
}

/* With the sequence numbers of the connection before: what the old peer sends would fit. */
static void elsewhere(struct pair *p, struct third *t)
{
	reset(p, t);
	pair_connect(p->qp[1], nic_qp_num(t->qp), &brief);
	pair_connect(t->qp, nic_qp_num(p->qp[1]), &brief);
}

static void destroy(struct pair *p, struct third *t)
{
	(void)t;
	assert_int_equal(0, nic_qp_destroy(p->qp[1]));
	p->qp[1] = NULL;
}

/* Another queue pair gets its number, however many have to be made until it comes back. */
static void reuse(struct pair *p, struct third *t)
{
	static struct nic_qp *other[NIC_MAX_QP];
	uint32_t num = nic_qp_num(p->qp[1]);
	unsigned n = 0;

	destroy(p, t);
	for (;;) {
		struct nic_qp *qp = make_qp(p, p->cq[1]);

		if (nic_qp_num(qp) == num) {
			p->qp[1] = qp;
			break;
		}
		assert_true(n < NIC_MAX_QP);
		other[n++] = qp;
	}
	while (n)
		assert_int_equal(0, nic_qp_destroy(other[--n]));
}

static void reuse_elsewhere(struct pair *p, struct third *t)
{
	reuse(p, t);
	elsewhere(p, t);
}

typedef void (*happening)(struct pair *, struct third *);
static const happening happenings[] = { reset, initialise, fail_it, elsewhere, destroy, reuse,
	reuse_elsewhere };
#define HAPPENINGS (sizeof(happenings) / sizeof(happenings[0]))

static bool connected_anew(happening it)
{
	return it == elsewhere || it == reuse_elsewhere;
}

/* The new connection works, and carries what its own ends send only. */
static void talk(struct pair *p, struct third *t, uint8_t *mem, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)(mem + 64), 8, key };
	struct ibv_send_wr wr = { .wr_id = 9, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 }, *bad;
	uint64_t end = clock_ns() + 10 * NSEC_PER_SEC;
	struct ibv_wc wc;

	memset(mem, 0, 64);
	memcpy(mem + 64, "new peer", 8);
	assert_int_equal(0, pair_recv(p, 1, mem, 64, key));
	assert_int_equal(0, nic_qp_post_send(t->qp, &wr, &bad));
	pair_wait(p, 1, 1, &wc);
	assert_int_equal(IBV_WC_SUCCESS, wc.status);
	assert_int_equal(8, wc.byte_len);
	assert_memory_equal("new peer", mem, 8);
	while (!nic_cq_poll(t->cq, 1, &wc))
		assert_true(clock_ns() < end);
	assert_int_equal(IBV_WC_SUCCESS, wc.status);
	assert_int_equal(9, wc.wr_id);
}

static void open_all(struct pair *p, struct third *t)
{
	pair_open(p, NULL);
	for (int i = 0; i < 2; i++) {
		to(p->qp[i], IBV_QPS_RESET);
		pair_connect(p->qp[i], nic_qp_num(p->qp[!i]), &brief);
	}
	third_make(p, t);
}

static void close_all(struct pair *p, struct third *t)
{
	third_unmake(t);
	if (!p->qp[1])
		p->qp[1] = make_qp(p, p->cq[1]);
	pair_close(p);
}

/* The request has been answered "not ready", and waits for its time when it happens. */
static void requests_that_were_put_off_fail(void **state)
{
	static uint8_t mem[128];

	(void)state;
	for (unsigned i = 0; i < HAPPENINGS; i++) {
		struct nic_mr *mr;
		struct third t;
		struct pair p;

		open_all(&p, &t);
		mr = pair_reg(&p, mem, sizeof(mem), 0);
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, NULL, 0, 0, 0, 0));
		while (!atomic_load(&p.ctx->nic->seg->dev.rnr_nak_rcvd)) {
			struct ibv_wc wc;

			assert_int_equal(0, nic_cq_poll(p.cq[0], 1, &wc));
		}
		happenings[i](&p, &t);
		pair_expect(&p, 0, IBV_WC_RETRY_EXC_ERR);
		if (connected_anew(happenings[i]))
			talk(&p, &t, mem, pair_key(mr));
		nic_mr_destroy(mr);
		close_all(&p, &t);
	}
}

/* Nothing is under way when it happens; the requests come later, of each kind. */
static void requests_that_come_later_fail(void **state)
{
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD };
	static uint8_t mem[128] __attribute__((aligned(8)));

	(void)state;
	for (unsigned n = 0; n < HAPPENINGS * 4; n++) {
		happening it = happenings[n / 4];
		struct nic_mr *mr;
		struct third t;
		struct pair p;

		open_all(&p, &t);
		mr = pair_reg(&p, mem, sizeof(mem), 0);
		it(&p, &t);
		memset(mem, 0xee, sizeof(mem));
		assert_int_equal(0, pair_send(&p, 0, ops[n % 4], mem, 8, pair_key(mr), (uintptr_t)mem + 64,
					    pair_key(mr)));
		pair_expect(&p, 0, IBV_WC_RETRY_EXC_ERR);
		for (unsigned i = 0; i < sizeof(mem); i++)
			assert_int_equal(0xee, mem[i]);
		if (connected_anew(it))
			talk(&p, &t, mem, pair_key(mr));
		nic_mr_destroy(mr);
		close_all(&p, &t);
	}
}

/* As on hardware: told or not, it is waited for. */
static void without_a_timeout_requests_stay_outstanding(void **state)
{
	struct pair_options o = brief;
	struct third t;
	struct pair p;
	struct ibv_wc wc;

	(void)state;
	open_all(&p, &t);
	o.timeout = -1;
	to(p.qp[0], IBV_QPS_RESET);
	pair_connect(p.qp[0], nic_qp_num(p.qp[1]), &o);
	reset(&p, &t);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, NULL, 0, 0, 0, 0));
	for (bool lost = false; !lost;) {
		assert_int_equal(0, nic_cq_poll(p.cq[0], 1, &wc));
		lock_take(&p.qp[0]->run_lock);
		lost = p.qp[0]->ib.comp.lost;
		lock_drop(&p.qp[0]->run_lock);
	}
	assert_true(atomic_load(&p.qp[0]->deadline) == UINT64_MAX);
	to(p.qp[0], IBV_QPS_ERR);
	pair_expect(&p, 0, IBV_WC_WR_FLUSH_ERR);
	close_all(&p, &t);
}

/* 192.0.2.77 and 2001:db8::1 are nobody's (RFC 5737, RFC 3849); nor is a link-local one that we did not make.
 */
static void a_gid_that_is_not_of_this_host_reaches_nobody(void **state)
{
	static const union ibv_gid far[] = {
		{ .raw = { [10] = 0xff, [11] = 0xff, [12] = 192, [14] = 2, [15] = 77 } },
		{ .raw = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 } },
		{ .raw = { 0xfe, 0x80, [8] = 0x02, [15] = 0x77 } },
		{ .raw = { 0 } },
	};
	struct ibv_wc wc;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	for (unsigned i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		struct pair_options o = brief;

		/* The other end means us; that does not help. */
		to(p.qp[0], IBV_QPS_RESET);
		to(p.qp[1], IBV_QPS_RESET);
		pair_connect(p.qp[1], nic_qp_num(p.qp[0]), &brief);
		o.dgid = &far[i];
		pair_connect(p.qp[0], nic_qp_num(p.qp[1]), &o);
		assert_int_equal(0, pair_recv(&p, 1, NULL, 0, 0));
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, NULL, 0, 0, 0, 0));
		pair_expect(&p, 0, IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(0, nic_cq_poll(p.cq[1], 1, &wc));
		/* Nor is its queue pair reached in the other direction. */
		to(p.qp[0], IBV_QPS_RESET);
		pair_connect(p.qp[0], nic_qp_num(p.qp[1]), &o);
		assert_int_equal(0, pair_recv(&p, 0, NULL, 0, 0));
		assert_int_equal(0, pair_send(&p, 1, IBV_WR_SEND, NULL, 0, 0, 0, 0));
		pair_expect(&p, 1, IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(0, nic_cq_poll(p.cq[0], 1, &wc));
	}
	pair_close(&p);
}

static void answers_of_the_old_peer_are_not_for_the_new_connection(void **state)
{
	struct third t;
	struct pair p;
	struct ibv_wc wc;

	(void)state;
	open_all(&p, &t);
	/* A has a request under way to B, which is put off; then A is connected to the third one instead. */
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, NULL, 0, 0, 0, 0));
	while (!atomic_load(&p.ctx->nic->seg->dev.rnr_nak_rcvd))
		assert_int_equal(0, nic_cq_poll(p.cq[0], 1, &wc));
	to(p.qp[0], IBV_QPS_RESET);
	pair_connect(p.qp[0], nic_qp_num(t.qp), &brief);
	/* B goes on sending to A, with sequence numbers that fit: B is told that it is not connected. */
	assert_int_equal(0, pair_recv(&p, 0, NULL, 0, 0));
	assert_int_equal(0, pair_send(&p, 1, IBV_WR_SEND, NULL, 0, 0, 0, 0));
	pair_expect(&p, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(0, nic_cq_poll(p.cq[0], 1, &wc));
	close_all(&p, &t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_that_were_put_off_fail),
		cmocka_unit_test(requests_that_come_later_fail),
		cmocka_unit_test(without_a_timeout_requests_stay_outstanding),
		cmocka_unit_test(a_gid_that_is_not_of_this_host_reaches_nobody),
		cmocka_unit_test(answers_of_the_old_peer_are_not_for_the_new_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

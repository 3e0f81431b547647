/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Operations between two queue pairs of one process, over the real wire, on pinned and on-demand memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nic/nic.h"
#include "pair.h"

#define PAGE 4096u

struct memory {
	uint8_t *at;
	size_t len;
	struct nic_mr *mr;
	uint32_t key;
};

static void memory_get(struct pair *p, struct memory *m, size_t len, int more)
{
	m->len = len;
	m->at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(m->at != MAP_FAILED);
	m->mr = pair_reg(p, m->at, len, more);
	m->key = pair_key(m->mr);
}

static void memory_put(struct memory *m)
{
	nic_mr_destroy(m->mr);
	munmap(m->at, m->len);
}

static void pattern(uint8_t *at, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

static const uint32_t sizes[] = { 1, 7, 8, 64, 65, 255, 4096, 4097, 16384, 16385, 70001, 1 << 20 };

/* Every size by SEND, WRITE and READ, at odd offsets, between memory of the two kinds. */
static void move_all_sizes(int more_a, int more_b)
{
	const size_t room = (1 << 20) + 3 * PAGE;
	struct memory a, b;
	struct pair p;

	pair_open(&p, NULL);
	memory_get(&p, &a, room, more_a);
	memory_get(&p, &b, room, more_b);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = sizes[i], off = 13 * i + 1;

		pattern(a.at + off, n, i);
		memset(b.at, 0xee, room);
		assert_int_equal(0, pair_recv(&p, 1, b.at + off + 1, n, b.key));
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, a.at + off, n, a.key, 0, 0));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		pair_expect(&p, 1, IBV_WC_SUCCESS);
		assert_memory_equal(a.at + off, b.at + off + 1, n);
		assert_int_equal(0xee, b.at[off]);
		assert_int_equal(0xee, b.at[off + 1 + n]);

		pattern(a.at + off, n, i + 100);
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at + off, n, a.key,
					    (uintptr_t)b.at + off + 2, b.key));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		assert_memory_equal(a.at + off, b.at + off + 2, n);

		pattern(b.at + off, n, i + 200);
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_READ, a.at + off, n, a.key,
					    (uintptr_t)b.at + off, b.key));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		assert_memory_equal(b.at + off, a.at + off, n);
	}
	memory_put(&a);
	memory_put(&b);
	pair_close(&p);
}

static void every_size_arrives_in_pinned_memory(void **state)
{
	(void)state;
	move_all_sizes(0, 0);
}

static void every_size_arrives_in_on_demand_memory(void **state)
{
	(void)state;
	move_all_sizes(IBV_ACCESS_ON_DEMAND, IBV_ACCESS_ON_DEMAND);
}

static void pinned_and_on_demand_memory_mix(void **state)
{
	(void)state;
	move_all_sizes(0, IBV_ACCESS_ON_DEMAND);
}

static void atomics_return_the_value_before(void **state)
{
	uint64_t *a, *b;
	struct memory ma, mb;
	struct pair p;

	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		pair_open(&p, NULL);
		memory_get(&p, &ma, PAGE, kind ? IBV_ACCESS_ON_DEMAND : 0);
		memory_get(&p, &mb, PAGE, kind ? IBV_ACCESS_ON_DEMAND : 0);
		a = (uint64_t *)ma.at;
		b = (uint64_t *)mb.at;
		assert_int_equal(
			0, pair_send(&p, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, a, 8, ma.key, (uintptr_t)b, mb.key));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		assert_int_equal(0, a[0]);
		assert_int_equal(5, b[0]);
		assert_int_equal(
			0, pair_send(&p, 0, IBV_WR_ATOMIC_CMP_AND_SWP, a, 8, ma.key, (uintptr_t)b, mb.key));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		assert_int_equal(5, a[0]);
		assert_int_equal(77, b[0]);
		memory_put(&ma);
		memory_put(&mb);
		pair_close(&p);
	}
}

static void a_cold_page_is_one_fault_and_a_warm_one_none(void **state)
{
	struct memory a, b;
	struct pair p;
	uint64_t faults;

	(void)state;
	pair_open(&p, NULL);
	memory_get(&p, &a, PAGE, 0);
	memory_get(&p, &b, 64 * PAGE, IBV_ACCESS_ON_DEMAND);
	assert_int_equal(
		0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 100, a.key, (uintptr_t)b.at + 9 * PAGE, b.key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	faults = atomic_load(&b.mr->counters->page_faults);
	assert_true(faults >= 1);
	assert_int_equal(faults, atomic_load(&b.mr->counters->page_faults_handled));
	assert_int_equal(
		0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 100, a.key, (uintptr_t)b.at + 9 * PAGE, b.key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	assert_int_equal(faults, atomic_load(&b.mr->counters->page_faults));
	memory_put(&a);
	memory_put(&b);
	pair_close(&p);
}

static void zero_length_messages_need_no_key(void **state)
{
	struct ibv_wc wc;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, pair_recv(&p, 1, NULL, 0, 0));
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, NULL, 0, 0, 0, 0));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	pair_wait(&p, 1, 1, &wc);
	assert_int_equal(IBV_WC_RECV, wc.opcode);
	assert_int_equal(0, wc.byte_len);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, NULL, 0, 0, 0x1234567, 99));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_READ, NULL, 0, 0, 0x1234567, 99));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	pair_close(&p);
}

static void a_full_send_queue_refuses_and_names_the_request(void **state)
{
	const struct pair_options o = { .max_wr = 4 };
	struct ibv_send_wr wr[6], *bad = NULL;
	struct ibv_wc wc[4];
	struct pair p;

	(void)state;
	pair_open(&p, &o);
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < 6; i++) {
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].next = i < 5 ? &wr[i + 1] : NULL;
		wr[i].wr_id = (uint64_t)i;
	}
	assert_int_equal(-ENOMEM, nic_qp_post_send(p.qp[0], wr, &bad));
	assert_ptr_equal(&wr[4], bad);
	/* They may be complete by now, but nobody polled: the queue is still full. */
	assert_int_equal(-ENOMEM, nic_qp_post_send(p.qp[0], &wr[5], &bad));
	pair_wait(&p, 0, 4, wc);
	for (int i = 0; i < 4; i++)
		assert_int_equal(i, wc[i].wr_id);
	assert_int_equal(0, nic_qp_post_send(p.qp[0], &wr[5], &bad));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	for (int i = 0; i < 4; i++)
		assert_int_equal(0, pair_recv(&p, 0, NULL, 0, 0));
	assert_int_equal(-ENOMEM, pair_recv(&p, 0, NULL, 0, 0));
	pair_close(&p);
}

static void an_error_flushes_the_rest_in_order(void **state)
{
	struct ibv_wc wc[8];
	struct memory a;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	memory_get(&p, &a, PAGE, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(0, pair_recv(&p, 0, a.at, 16, a.key));
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 8, a.key, (uintptr_t)a.at, a.key + 1));
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 8, a.key, (uintptr_t)a.at, a.key));
	pair_wait(&p, 0, 7, wc);
	for (int i = 0, sends = 0; i < 7; i++)
		if (wc[i].status == IBV_WC_REM_ACCESS_ERR)
			assert_int_equal(0, sends++);
		else
			assert_int_equal(IBV_WC_WR_FLUSH_ERR, wc[i].status);
	assert_int_equal(IBV_QPS_ERR, pair_state(p.qp[0]));
	memory_put(&a);
	pair_close(&p);
}

static void a_wrong_local_key_is_a_local_protection_error(void **state)
{
	struct memory a;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	memory_get(&p, &a, PAGE, 0);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 8, a.key + 1, (uintptr_t)a.at, a.key));
	pair_expect(&p, 0, IBV_WC_LOC_PROT_ERR);
	memory_put(&a);
	pair_close(&p);
}

static void a_key_is_dead_after_deregistration(void **state)
{
	struct memory a, b;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	memory_get(&p, &a, PAGE, 0);
	memory_get(&p, &b, PAGE, IBV_ACCESS_ON_DEMAND);
	nic_mr_destroy(b.mr);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 8, a.key, (uintptr_t)b.at, b.key));
	pair_expect(&p, 0, IBV_WC_REM_ACCESS_ERR);
	munmap(b.at, b.len);
	memory_put(&a);
	pair_close(&p);
}

static void a_hole_under_an_on_demand_region_fails_only_the_request_that_meets_it(void **state)
{
	struct memory a, b;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	memory_get(&p, &a, PAGE, 0);
	memory_get(&p, &b, 4 * PAGE, IBV_ACCESS_ON_DEMAND);
	munmap(b.at + PAGE, PAGE);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 8, a.key, (uintptr_t)b.at, b.key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	assert_int_equal(
		0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 8, a.key, (uintptr_t)b.at + PAGE, b.key));
	pair_expect(&p, 0, IBV_WC_REM_ACCESS_ERR);
	memory_put(&a);
	memory_put(&b);
	pair_close(&p);
}

static void an_overrun_completion_queue_says_so(void **state)
{
	const struct pair_options o = { .cqe = 2 };
	struct ibv_wc wc[4];
	void *cookie;
	struct pair p;
	int type = 0, r, got = 0;
	struct nic_event_source *source;

	(void)state;
	pair_open(&p, &o);
	for (int i = 0; i < 3; i++)
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, NULL, 0, 0, 0, 0));
	/* Blocks until the event comes. */
	assert_int_equal(0, nic_event_get(&p.ctx->async, &cookie, &type, &source));
	assert_int_equal(IBV_EVENT_CQ_ERR, type);
	assert_ptr_equal(&p.cq[0], cookie);
	nic_event_ack(&p.ctx->async, source, 1);
	while ((r = nic_cq_poll(p.cq[0], 1, wc)) > 0)
		got += r;
	assert_int_equal(-EOVERFLOW, r);
	assert_int_equal(2, got);
	assert_int_equal(IBV_QPS_ERR, pair_state(p.qp[0]));
	pair_close(&p);
}

static void a_completion_event_wakes_a_sleeping_reader(void **state)
{
	struct memory a;
	struct pair p;
	void *cookie;

	(void)state;
	pair_open(&p, NULL);
	memory_get(&p, &a, PAGE, IBV_ACCESS_ON_DEMAND);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(0, nic_cq_req_notify(p.cq[1], false));
		assert_int_equal(0, pair_recv(&p, 1, a.at, 64, a.key));
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, a.at + 64, 64, a.key, 0, 0));
		assert_int_equal(0, nic_channel_get_event(p.channel, &cookie));
		assert_ptr_equal(&p.cq[1], cookie);
		nic_cq_ack_events(p.cq[1], 1);
		pair_expect(&p, 1, IBV_WC_SUCCESS);
		pair_expect(&p, 0, IBV_WC_SUCCESS);
	}
	memory_put(&a);
	pair_close(&p);
}

static void receiver_not_ready_is_retried_until_it_is(void **state)
{
	struct memory a;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	memory_get(&p, &a, PAGE, 0);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, a.at, 64, a.key, 0, 0));
	while (!atomic_load(&p.ctx->nic->seg->dev.rnr_nak_rcvd)) {
		struct ibv_wc wc;

		assert_int_equal(0, nic_cq_poll(p.cq[0], 1, &wc));
	}
	assert_int_equal(0, pair_recv(&p, 1, a.at + 64, 64, a.key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	pair_expect(&p, 1, IBV_WC_SUCCESS);
	memory_put(&a);
	pair_close(&p);
}

static void receiver_never_ready_ends_after_the_retries(void **state)
{
	const struct pair_options o = { .rnr_retry = 2 };
	struct memory a;
	struct pair p;

	(void)state;
	pair_open(&p, &o);
	memory_get(&p, &a, PAGE, 0);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, a.at, 64, a.key, 0, 0));
	pair_expect(&p, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(3, atomic_load(&p.ctx->nic->seg->dev.rnr_nak_rcvd));
	memory_put(&a);
	pair_close(&p);
}

struct holder {
	struct lock *lock;
	sem_t held, go;
};

static void *hold(void *arg)
{
	struct holder *h = arg;

	lock_take(h->lock);
	sem_post(&h->held);
	sem_wait(&h->go);
	lock_drop(h->lock);
	return NULL;
}

/* Four READs have come when the responder, which has room for so many, takes up the first one. */
static void reads_beyond_what_the_responder_holds_are_refused(void **state)
{
	struct ibv_wc wc[4];

	(void)state;
	for (int room = 1; room <= 4; room++) {
		const struct pair_options o = { .max_rd = 4, .max_dest_rd = room };
		struct holder h;
		struct memory a;
		struct pair p;
		pthread_t thread;

		pair_open(&p, &o);
		memory_get(&p, &a, PAGE, 0);
		h.lock = &p.qp[1]->run_lock;
		sem_init(&h.held, 0, 0);
		sem_init(&h.go, 0, 0);
		assert_int_equal(0, pthread_create(&thread, NULL, hold, &h));
		sem_wait(&h.held);
		for (int i = 0; i < 4; i++)
			assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_READ, a.at, 8, a.key,
						    (uintptr_t)a.at + 64, a.key));
		while (atomic_load(&p.qp[1]->lane[IB_RESPONDER].waiting) < 4)
			assert_int_equal(0, nic_cq_poll(p.cq[0], 1, wc));
		sem_post(&h.go);
		pthread_join(thread, NULL);
		nic_qp_schedule(p.qp[1]);
		pair_wait(&p, 0, 4, wc);
		for (int i = 0; i < 4; i++)
			assert_int_equal(i < room    ? IBV_WC_SUCCESS
					 : i == room ? IBV_WC_REM_INV_REQ_ERR
						     : IBV_WC_WR_FLUSH_ERR,
				wc[i].status);
		assert_int_equal(room < 4 ? IBV_QPS_ERR : IBV_QPS_RTS, pair_state(p.qp[1]));
		sem_destroy(&h.held);
		sem_destroy(&h.go);
		memory_put(&a);
		pair_close(&p);
	}
}

static void reads_of_a_requester_that_may_have_none_fail(void **state)
{
	const struct pair_options o = { .max_rd = -1, .max_dest_rd = 4 };
	struct memory a;
	struct pair p;

	(void)state;
	pair_open(&p, &o);
	memory_get(&p, &a, PAGE, 0);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, a.at, 8, a.key, (uintptr_t)a.at + 64, a.key));
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_READ, a.at, 8, a.key, (uintptr_t)a.at + 64, a.key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	pair_expect(&p, 0, IBV_WC_LOC_QP_OP_ERR);
	memory_put(&a);
	pair_close(&p);
}

static void a_peer_that_is_not_there_ends_in_retries_exceeded(void **state)
{
	const struct pair_options o = { .timeout = 8, .retry_cnt = 2 };
	struct nic_qp_init init = { 0 };
	struct ibv_wc wc;
	struct nic_qp *qp;
	struct pair p;
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE }, *bad;

	(void)state;
	pair_open(&p, NULL);
	init.send_cq = init.recv_cq = p.cq[0];
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1
	};
	init.sq_sig_all = true;
	assert_int_equal(0, nic_qp_create(p.pd, &init, &qp));
	/* A slot that nobody has, and a queue pair that does not exist in a slot that somebody has. */
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

		pair_connect(qp, i ? nic_qp_num(qp) + 1000 : 0xffe123, &o);
		assert_int_equal(0, nic_qp_post_send(qp, &wr, &bad));
		pair_wait(&p, 0, 1, &wc);
		assert_int_equal(IBV_WC_RETRY_EXC_ERR, wc.status);
		assert_int_equal(0, nic_qp_modify(qp, &reset, IBV_QP_STATE));
	}
	assert_int_equal(0, nic_qp_destroy(qp));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_size_arrives_in_pinned_memory),
		cmocka_unit_test(every_size_arrives_in_on_demand_memory),
		cmocka_unit_test(pinned_and_on_demand_memory_mix),
		cmocka_unit_test(atomics_return_the_value_before),
		cmocka_unit_test(a_cold_page_is_one_fault_and_a_warm_one_none),
		cmocka_unit_test(zero_length_messages_need_no_key),
		cmocka_unit_test(a_full_send_queue_refuses_and_names_the_request),
		cmocka_unit_test(an_error_flushes_the_rest_in_order),
		cmocka_unit_test(a_wrong_local_key_is_a_local_protection_error),
		cmocka_unit_test(a_key_is_dead_after_deregistration),
		cmocka_unit_test(a_hole_under_an_on_demand_region_fails_only_the_request_that_meets_it),
		cmocka_unit_test(an_overrun_completion_queue_says_so),
		cmocka_unit_test(a_completion_event_wakes_a_sleeping_reader),
		cmocka_unit_test(receiver_not_ready_is_retried_until_it_is),
		cmocka_unit_test(receiver_never_ready_ends_after_the_retries),
		cmocka_unit_test(reads_beyond_what_the_responder_holds_are_refused),
		cmocka_unit_test(reads_of_a_requester_that_may_have_none_fail),
		cmocka_unit_test(a_peer_that_is_not_there_ends_in_retries_exceeded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

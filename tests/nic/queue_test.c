/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Queue pairs' states and attributes, completion queues and events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nic/nic.h"
#include "pair.h"

/* ThreadSanitizer cannot follow threads that a forked child starts. */
#ifdef __SANITIZE_THREAD__
#define CHILD_MAY_START_THREADS false
#else
#define CHILD_MAY_START_THREADS true
#endif

static struct nic_qp *lone_qp(struct pair *p)
{
	struct nic_qp_init init = { .send_cq = p->cq[0], .recv_cq = p->cq[1] };
	struct nic_qp *qp;

	init.cap = (struct ibv_qp_cap){
		.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 2
	};
	assert_int_equal(0, nic_qp_create(p->pd, &init, &qp));
	return qp;
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK                                                                                             \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                      \
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                                                             \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |               \
		IBV_QP_MAX_QP_RD_ATOMIC)

static const struct ibv_qp_attr init_ok = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
static const struct ibv_qp_attr rtr_ok = { .qp_state = IBV_QPS_RTR,
	.path_mtu = IBV_MTU_4096,
	.dest_qp_num = 0xffe555,
	.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = { .raw = { [15] = 1 } } } } };
static const struct ibv_qp_attr rts_ok = { .qp_state = IBV_QPS_RTS };

static void every_step_needs_its_attributes(void **state)
{
	struct nic_qp *qp;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	qp = lone_qp(&p);
	assert_int_equal(-EINVAL, nic_qp_modify(qp, &init_ok, INIT_MASK & ~IBV_QP_PORT));
	assert_int_equal(-EINVAL, nic_qp_modify(qp, &init_ok, INIT_MASK | IBV_QP_SQ_PSN));
	assert_int_equal(-EINVAL, nic_qp_modify(qp, &rts_ok, RTS_MASK));
	assert_int_equal(IBV_QPS_RESET, pair_state(qp));
	assert_int_equal(0, nic_qp_modify(qp, &init_ok, INIT_MASK));
	assert_int_equal(-EINVAL, nic_qp_modify(qp, &rtr_ok, RTR_MASK & ~IBV_QP_DEST_QPN));
	assert_int_equal(0, nic_qp_modify(qp, &rtr_ok, RTR_MASK));
	assert_int_equal(-EINVAL, nic_qp_modify(qp, &rts_ok, RTS_MASK & ~IBV_QP_SQ_PSN));
	assert_int_equal(0, nic_qp_modify(qp, &rts_ok, RTS_MASK));
	assert_int_equal(IBV_QPS_RTS, pair_state(qp));
	assert_int_equal(0, nic_qp_destroy(qp));
	pair_close(&p);
}

static void values_out_of_range_change_nothing(void **state)
{
	const struct {
		struct ibv_qp_attr attr;
		int mask;
	} row[] = {
		{ { .qp_state = IBV_QPS_RTS, .timeout = 32 }, RTS_MASK },
		{ { .qp_state = IBV_QPS_RTS, .retry_cnt = 8 }, RTS_MASK },
		{ { .qp_state = IBV_QPS_RTS, .rnr_retry = 8 }, RTS_MASK },
		{ { .qp_state = IBV_QPS_RTS, .max_rd_atomic = NIC_MAX_RD_ATOM + 1 }, RTS_MASK },
		{ { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_INIT }, RTS_MASK | IBV_QP_CUR_STATE },
		{ { .qp_state = IBV_QPS_RTS, .min_rnr_timer = 32 }, RTS_MASK | IBV_QP_MIN_RNR_TIMER },
		{ { .qp_state = IBV_QPS_RTS, .qp_access_flags = 1 << 20 }, RTS_MASK | IBV_QP_ACCESS_FLAGS },
	};
	struct nic_qp *qp;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	qp = lone_qp(&p);
	assert_int_equal(
		-EINVAL, nic_qp_modify(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 2 },
				 INIT_MASK));
	assert_int_equal(0, nic_qp_modify(qp, &init_ok, INIT_MASK));
	assert_int_equal(0, nic_qp_modify(qp, &rtr_ok, RTR_MASK));
	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		assert_int_equal(-EINVAL, nic_qp_modify(qp, &row[i].attr, row[i].mask));
		assert_int_equal(IBV_QPS_RTR, pair_state(qp));
	}
	assert_int_equal(0, nic_qp_destroy(qp));
	pair_close(&p);
}

/* As the kernel does for RoCE: the path needs a GRH, a source GID that the table has, and a port. */
static void a_path_that_an_Ethernet_port_cannot_have_is_refused(void **state)
{
	struct ibv_qp_attr attr[4] = { rtr_ok, rtr_ok, rtr_ok, rtr_ok };
	struct nic_qp *qp;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	qp = lone_qp(&p);
	attr[0].ah_attr.is_global = 0;
	attr[1].ah_attr.grh.sgid_index = NIC_GID_TABLE_LEN - 1;
	attr[2].ah_attr.port_num = 0;
	attr[3].ah_attr.port_num = 2;
	assert_int_equal(0, nic_qp_modify(qp, &init_ok, INIT_MASK));
	for (int i = 0; i < 4; i++) {
		assert_int_equal(-EINVAL, nic_qp_modify(qp, &attr[i], RTR_MASK));
		assert_int_equal(IBV_QPS_INIT, pair_state(qp));
	}
	assert_int_equal(0, nic_qp_modify(qp, &rtr_ok, RTR_MASK));
	assert_int_equal(0, nic_qp_destroy(qp));
	pair_close(&p);
}

static void query_tells_what_was_set(void **state)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	nic_qp_query(p.qp[0], &attr, &cap);
	assert_int_equal(IBV_QPS_RTS, attr.qp_state);
	assert_int_equal(nic_qp_num(p.qp[1]), attr.dest_qp_num);
	assert_int_equal(IBV_MTU_1024, attr.path_mtu);
	assert_int_equal(0xfffff0, attr.sq_psn);
	assert_int_equal(4, attr.max_rd_atomic);
	assert_int_equal(64, cap.max_send_wr);
	assert_int_equal(64, cap.max_inline_data);
	pair_close(&p);
}

static void posting_needs_a_state_that_takes_it(void **state)
{
	struct ibv_send_wr swr = { .opcode = IBV_WR_SEND }, *sbad = NULL;
	struct ibv_recv_wr rwr = { 0 }, *rbad = NULL;
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc;
	struct nic_qp *qp;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	qp = lone_qp(&p);
	assert_int_equal(-EINVAL, nic_qp_post_recv(qp, &rwr, &rbad));
	assert_ptr_equal(&rwr, rbad);
	assert_int_equal(0, nic_qp_modify(qp, &init_ok, INIT_MASK));
	assert_int_equal(0, nic_qp_post_recv(qp, &rwr, &rbad));
	assert_int_equal(-EINVAL, nic_qp_post_send(qp, &swr, &sbad));
	assert_ptr_equal(&swr, sbad);
	assert_int_equal(0, nic_qp_modify(qp, &err, IBV_QP_STATE));
	pair_wait(&p, 1, 1, &wc);
	assert_int_equal(IBV_WC_WR_FLUSH_ERR, wc.status);
	/* In ERR both are taken and flushed. */
	assert_int_equal(0, nic_qp_post_send(qp, &swr, &sbad));
	pair_wait(&p, 0, 1, &wc);
	assert_int_equal(IBV_WC_WR_FLUSH_ERR, wc.status);
	assert_int_equal(0, nic_qp_post_recv(qp, &rwr, &rbad));
	pair_wait(&p, 1, 1, &wc);
	assert_int_equal(IBV_WC_WR_FLUSH_ERR, wc.status);
	assert_int_equal(0, nic_qp_destroy(qp));
	pair_close(&p);
}

static void a_request_that_is_not_offered_is_refused_where_it_stands(void **state)
{
	struct ibv_sge sge[3] = { { 0 } };
	struct ibv_send_wr wr[3], *bad = NULL;
	struct ibv_wc wc;
	struct pair p;
	char big[128];

	(void)state;
	pair_open(&p, NULL);
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < 3; i++) {
		wr[i].opcode = IBV_WR_RDMA_WRITE;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].opcode = IBV_WR_LOCAL_INV;
	assert_int_equal(-EINVAL, nic_qp_post_send(p.qp[0], wr, &bad));
	assert_ptr_equal(&wr[1], bad);
	pair_wait(&p, 0, 1, &wc);
	assert_int_equal(IBV_WC_SUCCESS, wc.status);
	/* More inline data, more elements than the queue was made for; data in a request that reads. */
	sge[0] = (struct ibv_sge){ (uintptr_t)big, 65, 0 };
	wr[0] = (struct ibv_send_wr){
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE, .sg_list = sge, .num_sge = 1
	};
	assert_int_equal(-EINVAL, nic_qp_post_send(p.qp[0], wr, &bad));
	wr[0] = (struct ibv_send_wr){ .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_INLINE };
	assert_int_equal(-EINVAL, nic_qp_post_send(p.qp[0], wr, &bad));
	wr[0] = (struct ibv_send_wr){ .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 5 };
	assert_int_equal(-EINVAL, nic_qp_post_send(p.qp[0], wr, &bad));
	pair_close(&p);
}

static void a_resized_queue_keeps_what_it_holds(void **state)
{
	struct ibv_wc wc[8];
	struct pair p;
	int actual;

	(void)state;
	pair_open(&p, NULL);
	for (int i = 0; i < 5; i++)
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, NULL, 0, 0, 0, 0));
	while (atomic_load(&p.cq[0]->tail) != 5)
		nic_cq_poll(p.cq[1], 1, wc);
	assert_int_equal(-EINVAL, nic_cq_resize(p.cq[0], 4, &actual));
	assert_int_equal(-EINVAL, nic_cq_resize(p.cq[0], 0, &actual));
	assert_int_equal(-EINVAL, nic_cq_resize(p.cq[0], NIC_MAX_CQE + 1, &actual));
	assert_int_equal(0, nic_cq_resize(p.cq[0], 5, &actual));
	assert_true(actual >= 5);
	assert_int_equal(0, nic_cq_resize(p.cq[0], 1000, &actual));
	pair_wait(&p, 0, 5, wc);
	pair_close(&p);
}

static void solicited_only_wakes_for_solicited_ones_and_errors(void **state)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct pair p;
	void *cookie;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, fcntl(p.channel->queue.fd, F_SETFL, O_NONBLOCK));
	assert_int_equal(0, nic_cq_req_notify(p.cq[1], true));
	for (int solicited = 0; solicited < 2; solicited++) {
		assert_int_equal(0, pair_recv(&p, 1, NULL, 0, 0));
		wr.send_flags = IBV_SEND_SIGNALED | (solicited ? IBV_SEND_SOLICITED : 0);
		assert_int_equal(0, nic_qp_post_send(p.qp[0], &wr, &bad));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		pair_expect(&p, 1, IBV_WC_SUCCESS);
		assert_int_equal(solicited ? 0 : -EAGAIN, nic_channel_get_event(p.channel, &cookie));
	}
	nic_cq_ack_events(p.cq[1], 1);
	/* A flush is an error: it wakes. */
	assert_int_equal(0, nic_cq_req_notify(p.cq[1], true));
	assert_int_equal(0, pair_recv(&p, 1, NULL, 0, 0));
	assert_int_equal(
		0, nic_qp_modify(p.qp[1], &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
	assert_int_equal(0, nic_channel_get_event(p.channel, &cookie));
	nic_cq_ack_events(p.cq[1], 1);
	pair_close(&p);
}

static void objects_in_use_are_busy(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(-EBUSY, nic_cq_destroy(p.cq[0]));
	assert_int_equal(-EBUSY, nic_channel_destroy(p.channel));
	assert_int_equal(-EBUSY, nic_pd_destroy(p.pd));
	pair_close(&p);
}

static void numbers_of_queue_pairs_are_not_reused_soon(void **state)
{
	static struct nic_qp *all[NIC_MAX_QP];
	uint32_t first, rows, n;
	struct nic_qp *qp;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	qp = lone_qp(&p);
	first = nic_qp_num(qp);
	assert_int_equal(0, nic_qp_destroy(qp));
	for (unsigned i = 0; i < NIC_QPS_REST - 1; i++) {
		qp = lone_qp(&p);
		assert_int_not_equal(first, nic_qp_num(qp));
		assert_int_equal(0, nic_qp_destroy(qp));
	}
	qp = lone_qp(&p);
	assert_int_equal(first, nic_qp_num(qp));
	assert_int_equal(0, nic_qp_destroy(qp));
	/* However many are made one after the other, no more rows are opened up. */
	rows = p.ctx->nic->qp_rows;
	for (unsigned i = 0; i < 2 * NIC_QPS_REST; i++)
		assert_int_equal(0, nic_qp_destroy(lone_qp(&p)));
	assert_int_equal(rows, p.ctx->nic->qp_rows);
	/* Those that rest are there for whoever needs them all. */
	for (n = 0; n < NIC_MAX_QP - 2; n++)
		all[n] = lone_qp(&p);
	while (n)
		assert_int_equal(0, nic_qp_destroy(all[--n]));
	pair_close(&p);
}

static void a_forked_child_finds_its_inheritance_dead_and_can_open_anew(void **state)
{
	struct nic_context *ctx;
	struct ibv_wc wc;
	struct pair p;
	int status;
	pid_t pid;

	(void)state;
	pair_open(&p, NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (nic_context_check(p.ctx) != -EIO || nic_cq_poll(p.cq[0], 1, &wc) != -EIO ||
			nic_cq_req_notify(p.cq[0], false) != -EIO)
			_exit(1);
		if (CHILD_MAY_START_THREADS) {
			if (nic_context_open(&ctx))
				_exit(2);
			nic_context_close(ctx);
		}
		nic_context_close(p.ctx);
		_exit(0);
	}
	assert_int_equal(pid, waitpid(pid, &status, 0));
	assert_int_equal(0, status);
	/* The parent's goes on. */
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, NULL, 0, 0, 0, 0));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_step_needs_its_attributes),
		cmocka_unit_test(values_out_of_range_change_nothing),
		cmocka_unit_test(a_path_that_an_Ethernet_port_cannot_have_is_refused),
		cmocka_unit_test(query_tells_what_was_set),
		cmocka_unit_test(posting_needs_a_state_that_takes_it),
		cmocka_unit_test(a_request_that_is_not_offered_is_refused_where_it_stands),
		cmocka_unit_test(a_resized_queue_keeps_what_it_holds),
		cmocka_unit_test(solicited_only_wakes_for_solicited_ones_and_errors),
		cmocka_unit_test(objects_in_use_are_busy),
		cmocka_unit_test(numbers_of_queue_pairs_are_not_reused_soon),
		cmocka_unit_test(a_forked_child_finds_its_inheritance_dead_and_can_open_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define WAIT_NS (10 * NSEC_PER_SEC)

static int or_default(int value, int fallback)
{
	return value == 0 ? fallback : value < 0 ? 0 : value;
}

static const union ibv_gid loopback = { .raw = { [15] = 1 } };

void pair_connect(struct nic_qp *qp, uint32_t dest, const struct pair_options *o)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = PAIR_ACCESS_ALL
	};

	assert_int_equal(0,
		nic_qp_modify(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest,
		.rq_psn = 0xfffff0,
		.max_dest_rd_atomic = (uint8_t)or_default(o->max_dest_rd ? o->max_dest_rd : o->max_rd, 4),
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1, .grh = { .dgid = o->dgid ? *o->dgid : loopback } } };
	assert_int_equal(
		0, nic_qp_modify(qp, &a,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
		.sq_psn = 0xfffff0,
		.timeout = (uint8_t)or_default(o->timeout, 14),
		.retry_cnt = (uint8_t)or_default(o->retry_cnt, 7),
		.rnr_retry = (uint8_t)or_default(o->rnr_retry, 7),
		.max_rd_atomic = (uint8_t)or_default(o->max_rd, 4) };
	assert_int_equal(0, nic_qp_modify(qp, &a,
				    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
}

void pair_open(struct pair *p, const struct pair_options *options)
{
	static const struct pair_options defaults;
	const struct pair_options *o = options ? options : &defaults;
	char name[32];
	int actual;

	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	setenv("UNPIN_DEVICE", name, 1);
	memset(p, 0, sizeof(*p));
	assert_int_equal(0, nic_context_open(&p->ctx));
	assert_int_equal(0, nic_pd_create(p->ctx, &p->pd));
	assert_int_equal(0, nic_channel_create(p->ctx, &p->channel));
	for (int i = 0; i < 2; i++) {
		struct nic_qp_init init = { 0 };

		assert_int_equal(0, nic_cq_create(p->ctx, or_default(o->cqe, 256), p->channel, &p->cq[i],
					    &p->cq[i], &actual));
		init.send_cq = init.recv_cq = p->cq[i];
		init.cap = (struct ibv_qp_cap){ .max_send_wr = (uint32_t)or_default(o->max_wr, 64),
			.max_recv_wr = (uint32_t)or_default(o->max_wr, 64),
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64 };
		init.sq_sig_all = true;
		init.cookie = &p->qp[i];
		assert_int_equal(0, nic_qp_create(p->pd, &init, &p->qp[i]));
	}
	for (int i = 0; i < 2; i++)
		pair_connect(p->qp[i], nic_qp_num(p->qp[!i]), o);
}

void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(0, nic_qp_destroy(p->qp[i]));
	for (int i = 0; i < 2; i++)
		assert_int_equal(0, nic_cq_destroy(p->cq[i]));
	assert_int_equal(0, nic_channel_destroy(p->channel));
	assert_int_equal(0, nic_pd_destroy(p->pd));
	assert_int_equal(0, atomic_load(&p->ctx->refs) - 1);
	nic_context_close(p->ctx);
}

enum ibv_qp_state pair_state(struct nic_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;

	assert_int_equal(0, nic_qp_query(qp, &attr, &cap));
	return attr.qp_state;
}

void pair_wait(struct pair *p, int side, int n, struct ibv_wc *wc)
{
	uint64_t end = clock_ns() + WAIT_NS;
	int got = 0, r;

	while (got < n) {
		r = nic_cq_poll(p->cq[side], n - got, wc + got);
		assert_true(r >= 0);
		got += r;
		if (!r && clock_ns() > end)
			fail_msg("%d of %d completions came", got, n);
	}
}

void pair_expect(struct pair *p, int side, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	pair_wait(p, side, 1, &wc);
	if (wc.status != status)
		fail_msg("status %d, not %d", (int)wc.status, (int)status);
}

int pair_send(struct pair *p, int side, enum ibv_wr_opcode op, const void *addr, uint32_t len, uint32_t lkey,
	uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge = { (uintptr_t)addr, len, lkey };
	struct ibv_send_wr wr = { .opcode = op,
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
		.send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = raddr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 77;
	}
	return nic_qp_post_send(p->qp[side], &wr, &bad);
}

int pair_recv(struct pair *p, int side, void *addr, uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)addr, len, lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = len ? 1 : 0 }, *bad;

	return nic_qp_post_recv(p->qp[side], &wr, &bad);
}

struct nic_mr *pair_reg(struct pair *p, void *addr, size_t len, int more)
{
	struct nic_mr *mr = NULL;

	assert_int_equal(
		0, nic_mr_create(p->pd, (uintptr_t)addr, len, (uintptr_t)addr, PAIR_ACCESS_ALL | more, &mr));
	return mr;
}

uint32_t pair_key(const struct nic_mr *mr)
{
	struct nic_mr_info info;

	nic_mr_info(mr, &info);
	return info.key;
}

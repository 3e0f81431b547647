/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define WAIT_SECONDS 20

static const char *device_name(void)
{
	const char *name = getenv("UNPIN_DEVICE");

	return name ? name : "unpin0";
}

struct ibv_context *client_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	assert_non_null(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device_name()))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	return ctx;
}

static void make_qp(struct client *c, bool extended)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.cap = { .max_send_wr = CLIENT_DEPTH,
			.max_recv_wr = CLIENT_DEPTH,
			.max_send_sge = CLIENT_SGE,
			.max_recv_sge = CLIENT_SGE,
			.max_inline_data = CLIENT_INLINE },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | (extended ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.pd = c->pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};

	c->qp = ibv_create_qp_ex(c->ctx, &init);
	assert_non_null(c->qp);
	c->ex = extended ? ibv_qp_to_qp_ex(c->qp) : NULL;
	assert_int_equal(extended, c->ex != NULL);
}

void client_make(struct client *c, bool extended, size_t size, int access)
{
	memset(c, 0, sizeof(*c));
	c->ctx = client_open();
	c->pd = ibv_alloc_pd(c->ctx);
	assert_non_null(c->pd);
	c->channel = ibv_create_comp_channel(c->ctx);
	assert_non_null(c->channel);
	c->cq = ibv_create_cq(c->ctx, CLIENT_DEPTH * 2, c, c->channel, 0);
	assert_non_null(c->cq);
	make_qp(c, extended);
	if (!access)
		return;
	c->size = size;
	c->buf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(c->buf != MAP_FAILED);
	c->mr = ibv_reg_mr(c->pd, c->buf, size, access);
	assert_non_null(c->mr);
}

void client_unmake(struct client *c)
{
	if (c->qp)
		assert_int_equal(ibv_destroy_qp(c->qp), 0);
	assert_int_equal(ibv_destroy_cq(c->cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(c->channel), 0);
	if (c->mr)
		assert_int_equal(ibv_dereg_mr(c->mr), 0);
	if (c->buf)
		munmap(c->buf, c->size);
	assert_int_equal(ibv_dealloc_pd(c->pd), 0);
	assert_int_equal(ibv_close_device(c->ctx), 0);
}

int client_to_init(struct client *c)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

	return ibv_modify_qp(
		c->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void to_rts(struct client *c, const struct client *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } },
	};

	assert_int_equal(ibv_query_gid(peer->ctx, 1, 0, &attr.ah_attr.grh.dgid), 0);
	assert_int_equal(ibv_modify_qp(c->qp, &attr,
				 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.sq_psn = c->qp->qp_num;
	attr.max_rd_atomic = 4;
	assert_int_equal(ibv_modify_qp(c->qp, &attr,
				 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
		0);
	assert_int_equal(c->qp->state, IBV_QPS_RTS);
}

void client_connect(struct client *a, struct client *b)
{
	assert_int_equal(client_to_init(a), 0);
	if (b != a)
		assert_int_equal(client_to_init(b), 0);
	to_rts(a, b);
	if (b != a)
		to_rts(b, a);
}

struct ibv_wc client_wait(struct client *c)
{
	struct ibv_wc wc = { 0 };
	time_t end = time(NULL) + WAIT_SECONDS;
	int n;

	do {
		n = ibv_poll_cq(c->cq, 1, &wc);
		assert_true(n >= 0);
	} while (!n && time(NULL) < end);
	assert_int_equal(n, 1);
	return wc;
}

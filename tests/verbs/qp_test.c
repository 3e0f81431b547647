/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Queue pairs: what create, modify and query accept, refuse and show (ibv_create_qp(3), ibv_modify_qp(3)). */
#include "client.h"

#include <errno.h>
#include <string.h>

#include "nic/caps.h"

static struct client c;

static int setup(void **state)
{
	client_make(&c, false, 0, 0);
	return 0;
}

static int teardown(void **state)
{
	client_unmake(&c);
	return 0;
}

static struct ibv_qp_init_attr_ex good(void)
{
	return (struct ibv_qp_init_attr_ex){
		.qp_context = &c,
		.send_cq = c.cq,
		.recv_cq = c.cq,
		.cap = { .max_send_wr = 5,
			.max_recv_wr = 6,
			.max_send_sge = 2,
			.max_recv_sge = 3,
			.max_inline_data = 33 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = c.pd,
	};
}

/* Both ways to create must refuse alike what both can say. */
static void refused(struct ibv_qp_init_attr_ex init, int err)
{
	struct ibv_qp_init_attr old;

	memcpy(&old, &init, sizeof(old));
	errno = 0;
	assert_null(ibv_create_qp(c.pd, &old));
	assert_int_equal(errno, err);
	errno = 0;
	assert_null(verbs_get_ctx(c.ctx)->create_qp_ex(c.ctx, &init));
	assert_int_equal(errno, err);
}

static void a_queue_pair_shows_how_it_was_made(void **state)
{
	struct ibv_qp_init_attr_ex init = good();
	struct ibv_qp *qp = ibv_create_qp_ex(c.ctx, &init);
	struct ibv_qp_init_attr back;
	struct ibv_qp_attr attr;

	assert_non_null(qp);
	assert_ptr_equal(qp->context, c.ctx);
	assert_ptr_equal(qp->qp_context, &c);
	assert_ptr_equal(qp->pd, c.pd);
	assert_ptr_equal(qp->send_cq, c.cq);
	assert_ptr_equal(qp->recv_cq, c.cq);
	assert_null(qp->srq);
	assert_int_equal(qp->qp_type, IBV_QPT_RC);
	assert_int_equal(qp->state, IBV_QPS_RESET);
	assert_true(qp->qp_num > 1 && qp->qp_num < 1 << 24);
	assert_int_not_equal(qp->qp_num, c.qp->qp_num);
	assert_true(init.cap.max_send_wr >= 5 && init.cap.max_recv_wr >= 6);
	assert_true(init.cap.max_send_sge >= 2 && init.cap.max_recv_sge >= 3);
	assert_true(init.cap.max_inline_data >= 33);

	memset(&attr, 0xa5, sizeof(attr));
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &back), 0);
	assert_int_equal(attr.qp_state, IBV_QPS_RESET);
	assert_memory_equal(&attr.cap, &init.cap, sizeof(attr.cap));
	assert_memory_equal(&back.cap, &init.cap, sizeof(back.cap));
	assert_ptr_equal(back.qp_context, &c);
	assert_ptr_equal(back.send_cq, c.cq);
	assert_int_equal(back.qp_type, IBV_QPT_RC);
	assert_int_equal(back.sq_sig_all, 0);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* As providers do: up to what the elements of the queue have room for, and never nothing. */
static void inline_data_is_rounded_up_and_said_so(void **state)
{
	static const uint32_t row[][2] = { { 0, 64 }, { 1, 64 }, { 64, 64 }, { 65, 128 }, { 500, 512 },
		{ 512, 512 } };
	char data[513] = { 1 };

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct ibv_qp_init_attr_ex init = good();
		struct ibv_qp_init_attr back;
		struct ibv_sge sge = { (uintptr_t)data, row[i][1], 0 };
		struct ibv_send_wr wr = { .sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_INLINE },
				   *bad;
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
		struct ibv_qp *qp;

		init.cap.max_inline_data = row[i][0];
		qp = ibv_create_qp_ex(c.ctx, &init);
		assert_non_null(qp);
		assert_int_equal(init.cap.max_inline_data, row[i][1]);
		assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
		assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &back), 0);
		assert_int_equal(attr.cap.max_inline_data, row[i][1]);
		assert_int_equal(back.cap.max_inline_data, row[i][1]);
		/* And it is true. */
		assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
		sge.length++;
		assert_int_equal(ibv_post_send(qp, &wr, &bad), EINVAL);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
}

static void signalling_all_is_remembered(void **state)
{
	struct ibv_qp_init_attr_ex init = good();
	struct ibv_qp_init_attr back;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;

	init.sq_sig_all = 7;
	qp = ibv_create_qp_ex(c.ctx, &init);
	assert_int_equal(ibv_query_qp(qp, &attr, 0, &back), 0);
	assert_int_equal(back.sq_sig_all, 1);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void other_types_are_not_offered(void **state)
{
	const int types[] = { IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
		IBV_QPT_DRIVER };
	struct ibv_qp_init_attr_ex init = good();

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		init.qp_type = types[i];
		refused(init, EOPNOTSUPP);
	}
	init.qp_type = 0;
	refused(init, EINVAL);
	init.qp_type = 77;
	refused(init, EINVAL);
}

static void shared_receive_queues_are_not_offered(void **state)
{
	struct ibv_qp_init_attr_ex init = good();

	init.srq = (struct ibv_srq *)&c;
	refused(init, EOPNOTSUPP);
}

static void both_queues_are_needed(void **state)
{
	struct ibv_context *ctx = client_open();
	struct ibv_cq *foreign = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex init = good();

	init.send_cq = NULL;
	refused(init, EINVAL);
	init = good();
	init.recv_cq = NULL;
	refused(init, EINVAL);
	init = good();
	init.recv_cq = foreign;
	refused(init, EINVAL);
	assert_int_equal(ibv_destroy_cq(foreign), 0);
	assert_int_equal(ibv_close_device(ctx), 0);
}

static void capacities_beyond_the_device_are_refused(void **state)
{
	struct ibv_qp_init_attr_ex init;

#define TOO_MUCH(field, most)                                                                                \
	init = good();                                                                                       \
	init.cap.field = (most) + 1;                                                                         \
	refused(init, EINVAL)
	TOO_MUCH(max_send_wr, NIC_MAX_QP_WR);
	TOO_MUCH(max_recv_wr, NIC_MAX_QP_WR);
	TOO_MUCH(max_send_sge, NIC_MAX_SGE);
	TOO_MUCH(max_recv_sge, NIC_MAX_SGE);
	TOO_MUCH(max_inline_data, NIC_MAX_INLINE);
#undef TOO_MUCH
}

static void ex_refused(struct ibv_qp_init_attr_ex *init, int err)
{
	errno = 0;
	assert_null(verbs_get_ctx(c.ctx)->create_qp_ex(c.ctx, init));
	assert_int_equal(errno, err);
}

static void extended_attributes_are_checked(void **state)
{
	struct ibv_qp_init_attr_ex init = good();

	init.comp_mask = 0;
	ex_refused(&init, EINVAL);
	init = good();
	init.pd = NULL;
	ex_refused(&init, EINVAL);
	init = good();
	init.comp_mask |= 1u << 20;
	ex_refused(&init, EINVAL);
	init = good();
	init.comp_mask |= IBV_QP_INIT_ATTR_RX_HASH;
	ex_refused(&init, EOPNOTSUPP);
	init = good();
	init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	init.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
	ex_refused(&init, EOPNOTSUPP);
	init = good();
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_BIND_MW;
	ex_refused(&init, EOPNOTSUPP);
	init.send_ops_flags = IBV_QP_EX_WITH_TSO;
	ex_refused(&init, EOPNOTSUPP);
}

static void only_one_made_for_it_has_the_new_post_calls(void **state)
{
	struct ibv_qp_init_attr_ex init = good();
	struct ibv_qp *qp;

	assert_null(ibv_qp_to_qp_ex(c.qp));
	init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND;
	qp = ibv_create_qp_ex(c.ctx, &init);
	assert_non_null(qp);
	assert_ptr_equal(ibv_qp_to_qp_ex(qp), qp);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void what_it_uses_stays(void **state)
{
	assert_int_equal(ibv_destroy_cq(c.cq), EBUSY);
	assert_int_equal(ibv_dealloc_pd(c.pd), EBUSY);
}

/* --- modify --------------------------------------------------------------------------------------- */

static void modify_refused(struct ibv_qp_attr attr, int mask)
{
	enum ibv_qp_state before = c.qp->state;

	assert_int_equal(ibv_modify_qp(c.qp, &attr, mask), EINVAL);
	assert_int_equal(c.qp->state, before);
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)

static void steps_need_their_attributes_and_no_others(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	modify_refused(attr, IBV_QP_STATE);
	modify_refused(attr, INIT_MASK & ~IBV_QP_PORT);
	modify_refused(attr, INIT_MASK | IBV_QP_PATH_MTU);
	modify_refused(attr, INIT_MASK | IBV_QP_QKEY);
	modify_refused(attr, INIT_MASK | 1 << 30);
	attr.qp_state = IBV_QPS_RTR;
	modify_refused(attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RTS;
	modify_refused(attr, IBV_QP_STATE);
	attr.qp_state = 55;
	modify_refused(attr, IBV_QP_STATE);
}

static void values_out_of_range_are_refused(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 2 };

	modify_refused(attr, INIT_MASK);
	attr.port_num = 0;
	modify_refused(attr, INIT_MASK);
	attr.port_num = 1;
	attr.pkey_index = 1;
	modify_refused(attr, INIT_MASK);
	attr.pkey_index = 0;
	attr.qp_access_flags = 1u << 12;
	modify_refused(attr, INIT_MASK);
	attr.qp_access_flags = 0;
	attr.cur_qp_state = IBV_QPS_RTS; /* it is in RESET */
	modify_refused(attr, INIT_MASK | IBV_QP_CUR_STATE);
}

/* Of another queue pair: this one stays in RESET for the tests below. */
static void flags_of_regions_are_let_pass(void **state)
{
	struct ibv_qp_init_attr_ex init = good();
	struct ibv_qp *qp = ibv_create_qp_ex(c.ctx, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND |
				   IBV_ACCESS_RELAXED_ORDERING };
	struct ibv_qp_init_attr back;

	assert_int_equal(ibv_modify_qp(qp, &attr, INIT_MASK), 0);
	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &back), 0);
	assert_true(attr.qp_access_flags & IBV_ACCESS_REMOTE_READ);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void pacing_is_not_offered(void **state)
{
	struct ibv_qp_attr attr = { .rate_limit = 100 };

	assert_int_equal(ibv_modify_qp(c.qp, &attr, IBV_QP_RATE_LIMIT), EOPNOTSUPP);
}

static void posting_needs_a_state(void **state)
{
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr recv = { .wr_id = 1 }, *bad_recv = NULL;

	assert_int_equal(c.qp->state, IBV_QPS_RESET);
	assert_int_equal(ibv_post_recv(c.qp, &recv, &bad_recv), EINVAL);
	assert_ptr_equal(bad_recv, &recv);
	assert_int_equal(ibv_post_send(c.qp, &send, &bad_send), EINVAL);
	assert_ptr_equal(bad_send, &send);
}

/* The last test: it moves the queue pair on. */
static void in_error_requests_are_flushed_in_order(void **state)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR }, now;
	struct ibv_send_wr send = { .wr_id = 10, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED },
			   *bad_send;
	struct ibv_recv_wr recv = { .wr_id = 20 }, *bad_recv;
	struct ibv_qp_init_attr init;
	uint64_t send_id = 10, recv_id = 20;

	assert_int_equal(client_to_init(&c), 0);
	assert_int_equal(c.qp->state, IBV_QPS_INIT);
	assert_int_equal(ibv_modify_qp(c.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(c.qp->state, IBV_QPS_ERR);
	assert_int_equal(ibv_query_qp(c.qp, &now, IBV_QP_STATE, &init), 0);
	assert_int_equal(now.qp_state, IBV_QPS_ERR);
	for (int i = 0; i < 3; i++, send.wr_id++, recv.wr_id++) {
		assert_int_equal(ibv_post_send(c.qp, &send, &bad_send), 0);
		assert_int_equal(ibv_post_recv(c.qp, &recv, &bad_recv), 0);
	}
	for (int i = 0; i < 6; i++) {
		struct ibv_wc wc = client_wait(&c);

		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.qp_num, c.qp->qp_num);
		if (wc.wr_id < 20)
			assert_int_equal(wc.wr_id, send_id++);
		else
			assert_int_equal(wc.wr_id, recv_id++);
	}
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(c.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(c.qp->state, IBV_QPS_RESET);
}

static void order_within_a_message_is_not_promised(void **state)
{
	assert_int_equal(ibv_query_qp_data_in_order(c.qp, IBV_WR_RDMA_WRITE, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_queue_pair_shows_how_it_was_made),
		cmocka_unit_test(inline_data_is_rounded_up_and_said_so),
		cmocka_unit_test(signalling_all_is_remembered),
		cmocka_unit_test(other_types_are_not_offered),
		cmocka_unit_test(shared_receive_queues_are_not_offered),
		cmocka_unit_test(both_queues_are_needed),
		cmocka_unit_test(capacities_beyond_the_device_are_refused),
		cmocka_unit_test(extended_attributes_are_checked),
		cmocka_unit_test(only_one_made_for_it_has_the_new_post_calls),
		cmocka_unit_test(what_it_uses_stays),
		cmocka_unit_test(steps_need_their_attributes_and_no_others),
		cmocka_unit_test(values_out_of_range_are_refused),
		cmocka_unit_test(flags_of_regions_are_let_pass),
		cmocka_unit_test(pacing_is_not_offered),
		cmocka_unit_test(posting_needs_a_state),
		cmocka_unit_test(order_within_a_message_is_not_promised),
		cmocka_unit_test(in_error_requests_are_flushed_in_order),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ibv_wr_* calls (ibv_wr_post(3)): mistakes are told by complete, which then posts nothing. What they
 * transfer is in loopback_test.c.
 */
#include "client.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct client c; /* connected to itself */

static int setup(void **state)
{
	client_make(&c, true, 4096,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	client_connect(&c, &c);
	return 0;
}

static int teardown(void **state)
{
	client_unmake(&c);
	return 0;
}

static uint64_t remote(void)
{
	return (uintptr_t)c.buf;
}

/* The queue still works: one empty WRITE goes through, and nothing before it had been posted. */
static void assert_nothing_was_posted(void)
{
	struct ibv_wc wc;

	ibv_wr_start(c.ex);
	c.ex->wr_id = 4711;
	c.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(c.ex, c.mr->rkey, remote());
	assert_int_equal(ibv_wr_complete(c.ex), 0);
	wc = client_wait(&c);
	assert_int_equal(wc.wr_id, 4711);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_poll_cq(c.cq, 1, &wc), 0);
}

/* A good request, so that a batch has something that a mistake elsewhere must keep back. */
static void good(void)
{
	c.ex->wr_id = 1;
	c.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(c.ex, c.mr->rkey, remote());
	ibv_wr_set_sge(c.ex, c.mr->lkey, remote(), 8);
}

static void complete_tells(int err)
{
	good();
	assert_int_equal(ibv_wr_complete(c.ex), err);
	assert_nothing_was_posted();
}

static void start(void)
{
	ibv_wr_start(c.ex);
	good();
}

static void an_empty_batch_is_one(void **state)
{
	ibv_wr_start(c.ex);
	assert_int_equal(ibv_wr_complete(c.ex), 0);
	ibv_wr_start(c.ex);
	ibv_wr_abort(c.ex);
	assert_nothing_was_posted();
}

static void abort_forgets(void **state)
{
	start();
	good();
	ibv_wr_abort(c.ex);
	assert_nothing_was_posted();
}

static void data_needs_an_operation(void **state)
{
	ibv_wr_start(c.ex);
	ibv_wr_set_sge(c.ex, c.mr->lkey, remote(), 8);
	complete_tells(EINVAL);
}

static void unknown_flags_are_refused(void **state)
{
	start();
	c.ex->wr_flags = IBV_SEND_IP_CSUM;
	ibv_wr_send(c.ex);
	complete_tells(EINVAL);
}

static void too_many_pieces_are_refused(void **state)
{
	struct ibv_sge sge[CLIENT_SGE + 1];

	for (int i = 0; i <= CLIENT_SGE; i++)
		sge[i] = (struct ibv_sge){ remote(), 1, c.mr->lkey };
	start();
	ibv_wr_rdma_write(c.ex, c.mr->rkey, remote());
	ibv_wr_set_sge_list(c.ex, CLIENT_SGE + 1, sge);
	complete_tells(EINVAL);
}

static void too_much_inline_data_is_refused(void **state)
{
	uint8_t data[CLIENT_INLINE + 1] = { 0 };
	struct ibv_data_buf list[2] = { { data, CLIENT_INLINE }, { data, 1 } };

	start();
	ibv_wr_rdma_write(c.ex, c.mr->rkey, remote());
	ibv_wr_set_inline_data(c.ex, data, sizeof(data));
	complete_tells(EINVAL);
	start();
	ibv_wr_rdma_write(c.ex, c.mr->rkey, remote());
	ibv_wr_set_inline_data_list(c.ex, 2, list);
	complete_tells(EINVAL);
	list[1].length = SIZE_MAX;
	start();
	ibv_wr_rdma_write(c.ex, c.mr->rkey, remote());
	ibv_wr_set_inline_data_list(c.ex, 2, list);
	complete_tells(EINVAL);
}

static void a_read_takes_no_inline_data(void **state)
{
	start();
	ibv_wr_rdma_read(c.ex, c.mr->rkey, remote());
	ibv_wr_set_inline_data(c.ex, "x", 1);
	complete_tells(EINVAL);
}

static void messages_end_at_two_gigabytes(void **state)
{
	struct ibv_sge sge[2] = { { remote(), 1u << 31, c.mr->lkey }, { remote(), 1, c.mr->lkey } };

	start();
	ibv_wr_rdma_write(c.ex, c.mr->rkey, remote());
	ibv_wr_set_sge_list(c.ex, 2, sge);
	complete_tells(EINVAL);
}

static void an_atomic_needs_eight_bytes(void **state)
{
	start();
	ibv_wr_atomic_fetch_add(c.ex, c.mr->rkey, remote(), 1);
	complete_tells(EINVAL); /* no data at all */
	start();
	ibv_wr_atomic_cmp_swp(c.ex, c.mr->rkey, remote(), 1, 2);
	ibv_wr_set_sge(c.ex, c.mr->lkey, remote(), 4);
	complete_tells(EINVAL);
	start();
	ibv_wr_atomic_fetch_add(c.ex, c.mr->rkey, remote(), 1);
	ibv_wr_set_inline_data(c.ex, "12345678", 8);
	complete_tells(EINVAL);
}

static void the_last_request_is_checked_too(void **state)
{
	start();
	ibv_wr_atomic_fetch_add(c.ex, c.mr->rkey, remote(), 1);
	assert_int_equal(ibv_wr_complete(c.ex), EINVAL);
	assert_nothing_was_posted();
}

static void a_full_queue_is_told_and_nothing_is_posted(void **state)
{
	ibv_wr_start(c.ex);
	for (int i = 0; i <= CLIENT_DEPTH * 4; i++)
		good();
	assert_int_equal(ibv_wr_complete(c.ex), ENOMEM);
	assert_nothing_was_posted();
}

static void the_first_mistake_counts(void **state)
{
	start();
	ibv_wr_send_inv(c.ex, 1);
	ibv_wr_rdma_read(c.ex, c.mr->rkey, remote());
	ibv_wr_set_inline_data(c.ex, "x", 1);
	complete_tells(EOPNOTSUPP);
}

static void what_is_not_offered_says_so(void **state)
{
	struct ibv_mw_bind_info info = { 0 };
	struct ibv_mw mw = { .context = c.ctx };

#define UNSUPPORTED(call)                                                                                    \
	start();                                                                                             \
	call;                                                                                                \
	complete_tells(EOPNOTSUPP)
	UNSUPPORTED(ibv_wr_bind_mw(c.ex, &mw, 0, &info));
	UNSUPPORTED(ibv_wr_local_inv(c.ex, 0));
	UNSUPPORTED(ibv_wr_send_inv(c.ex, 0));
	UNSUPPORTED(ibv_wr_send_tso(c.ex, NULL, 0, 0));
	UNSUPPORTED(ibv_wr_atomic_write(c.ex, 0, 0, "12345678"));
	UNSUPPORTED(ibv_wr_set_ud_addr(c.ex, NULL, 0, 0));
	UNSUPPORTED(ibv_wr_set_xrc_srqn(c.ex, 0));
#undef UNSUPPORTED
}

/* rdma-core 65 has wr_flush behind wr_atomic_write: programs built with it call the pointer that is there. */
static void calls_newer_than_the_headers_say_so(void **state)
{
	typedef void flush(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
	size_t last = offsetof(struct ibv_qp_ex, wr_atomic_write) + sizeof(void *);

	for (size_t at = last; at < last + 4 * sizeof(void *); at += sizeof(void *)) {
		flush *fn;

		memcpy(&fn, (char *)c.ex + at, sizeof(fn));
		start();
		fn(c.ex, c.mr->rkey, remote(), 8, 0, 0);
		complete_tells(EOPNOTSUPP);
	}
}

static void operations_not_asked_for_are_refused(void **state)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = c.cq,
		.recv_cq = c.cq,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = c.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct client d = c;

	d.qp = ibv_create_qp_ex(c.ctx, &init);
	assert_non_null(d.qp);
	d.ex = ibv_qp_to_qp_ex(d.qp);
	client_connect(&d, &d);
	ibv_wr_start(d.ex);
	d.ex->wr_flags = 0;
	ibv_wr_rdma_read(d.ex, c.mr->rkey, remote());
	assert_int_equal(ibv_wr_complete(d.ex), EINVAL);
	ibv_wr_start(d.ex);
	ibv_wr_rdma_write(d.ex, c.mr->rkey, remote());
	assert_int_equal(ibv_wr_complete(d.ex), 0);
	assert_int_equal(ibv_destroy_qp(d.qp), 0);
}

static void *modify_again_and_again(void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	atomic_bool *stop = arg;

	while (!atomic_load(stop))
		if (ibv_modify_qp(c.qp, &attr, IBV_QP_STATE))
			return arg;
	return NULL;
}

/* It may do so while it has begun a batch, which keeps a modify of another thread waiting. */
static void who_posts_may_query(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	atomic_bool stop = false;
	pthread_t thread;
	void *failed;

	assert_int_equal(pthread_create(&thread, NULL, modify_again_and_again, &stop), 0);
	for (int i = 0; i < 20000; i++) {
		ibv_wr_start(c.ex);
		assert_int_equal(ibv_query_qp(c.qp, &attr, IBV_QP_STATE, &init), 0);
		assert_int_equal(attr.qp_state, IBV_QPS_RTS);
		ibv_wr_abort(c.ex);
	}
	atomic_store(&stop, true);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_nothing_was_posted();
}

static void two_batches_may_be_begun_at_once(void **state)
{
	struct client other;

	client_make(&other, true, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	client_connect(&other, &other);
	ibv_wr_start(c.ex);
	ibv_wr_start(other.ex);
	ibv_wr_abort(c.ex);
	ibv_wr_abort(other.ex);
	client_unmake(&other);
	assert_nothing_was_posted();
}

static void it_needs_a_state_for_sending(void **state)
{
	struct client fresh;

	client_make(&fresh, true, 0, 0);
	assert_int_equal(client_to_init(&fresh), 0);
	ibv_wr_start(fresh.ex);
	fresh.ex->wr_flags = 0;
	ibv_wr_send(fresh.ex);
	assert_int_equal(ibv_wr_complete(fresh.ex), EINVAL);
	client_unmake(&fresh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_batch_is_one),
		cmocka_unit_test(abort_forgets),
		cmocka_unit_test(data_needs_an_operation),
		cmocka_unit_test(unknown_flags_are_refused),
		cmocka_unit_test(too_many_pieces_are_refused),
		cmocka_unit_test(too_much_inline_data_is_refused),
		cmocka_unit_test(a_read_takes_no_inline_data),
		cmocka_unit_test(messages_end_at_two_gigabytes),
		cmocka_unit_test(an_atomic_needs_eight_bytes),
		cmocka_unit_test(the_last_request_is_checked_too),
		cmocka_unit_test(a_full_queue_is_told_and_nothing_is_posted),
		cmocka_unit_test(the_first_mistake_counts),
		cmocka_unit_test(what_is_not_offered_says_so),
		cmocka_unit_test(calls_newer_than_the_headers_say_so),
		cmocka_unit_test(operations_not_asked_for_are_refused),
		cmocka_unit_test(who_posts_may_query),
		cmocka_unit_test(two_batches_may_be_begun_at_once),
		cmocka_unit_test(it_needs_a_state_for_sending),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

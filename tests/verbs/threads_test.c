/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Every verb may be called by any thread: objects made and unmade by several at once, on contexts of their
 * own and shared.
 */
#include "client.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#define THREADS 4
#define ROUNDS	60

static struct ibv_context *shared;
static _Atomic int failures;

/* cmocka's assertions are for its own thread. */
#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			print_error("%s:%d: %s\n", __FILE__, __LINE__, #what);                               \
			atomic_fetch_add(&failures, 1);                                                      \
			return;                                                                              \
		}                                                                                            \
	} while (0)

static void objects(struct ibv_context *ctx, uint8_t *mem)
{
	struct ibv_qp_init_attr init = { .cap = { 2, 2, 1, 1, 8 }, .qp_type = IBV_QPT_RC };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_wc wc;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	CHECK(pd && channel);
	mr = ibv_reg_mr(pd, mem, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	init.send_cq = init.recv_cq = ibv_create_cq(ctx, 8, NULL, channel, 0);
	CHECK(mr && init.send_cq);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	CHECK(ibv_poll_cq(init.send_cq, 1, &wc) == 0);
	CHECK(!ibv_req_notify_cq(init.send_cq, 0));
	CHECK(!ibv_resize_cq(init.send_cq, 16));
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(init.send_cq));
	CHECK(!ibv_destroy_comp_channel(channel));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(pd));
}

/* The memory of a context that was closed over its objects stays: they name it. */
static struct ibv_context *left[THREADS * ROUNDS];
static _Atomic unsigned nleft;

/* Closed over its objects, while other threads make and unmake those of other contexts. */
static void objects_left_behind(struct ibv_context *ctx, uint8_t *mem)
{
	struct ibv_qp_init_attr init = { .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, 4096, IBV_ACCESS_ON_DEMAND);
	struct ibv_qp *qp;

	init.send_cq = init.recv_cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	qp = ibv_create_qp(pd, &init);
	CHECK(mr && init.send_cq && qp);
	left[atomic_fetch_add(&nleft, 1)] = ctx;
	CHECK(!ibv_close_device(ctx));
	CHECK(!ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(init.send_cq));
	CHECK(!ibv_dereg_mr(mr));
	CHECK(!ibv_dealloc_pd(pd));
}

static void queries(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	union ibv_gid gid;

	CHECK(!ibv_query_device_ex(ctx, NULL, &attr));
	CHECK(!ibv_query_port(ctx, 1, &port));
	CHECK(!ibv_query_gid(ctx, 1, 0, &gid));
}

static void lists(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	CHECK(list && n > 0);
	ibv_free_device_list(list);
}

static void *work(void *arg)
{
	uint8_t *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < ROUNDS && !atomic_load(&failures); i++) {
		struct ibv_context *own = i % 8 ? NULL : ibv_open_device(shared->device);

		lists();
		queries(shared);
		objects(shared, mem);
		if (own) {
			objects(own, mem);
			objects_left_behind(own, mem);
		}
	}
	munmap(mem, 4096);
	return NULL;
}

static void objects_come_and_go_in_many_threads(void **state)
{
	pthread_t thread[THREADS];

	shared = client_open();
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, work, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_int_equal(atomic_load(&failures), 0);
	assert_int_equal(ibv_close_device(shared), 0);
}

/* Who tries to destroy a channel until its queue has let go of it succeeds when nobody uses it any more. */
static void *destroys(void *channel)
{
	int err;

	while ((err = ibv_destroy_comp_channel(channel)) == EBUSY)
		sched_yield();
	return err ? channel : NULL;
}

static void a_channel_goes_with_its_last_queue(void **state)
{
	struct ibv_context *ctx = client_open();
	void *failed;

	for (int i = 0; i < 20 * ROUNDS; i++) {
		struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
		struct ibv_cq *cq;
		pthread_t thread;

		assert_non_null(channel);
		cq = ibv_create_cq(ctx, 1, NULL, channel, 0);
		assert_non_null(cq);
		assert_int_equal(pthread_create(&thread, NULL, destroys, channel), 0);
		for (int k = 0; k < i % 7; k++)
			sched_yield();
		assert_int_equal(ibv_destroy_cq(cq), 0);
		assert_int_equal(pthread_join(thread, &failed), 0);
		assert_null(failed);
	}
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* Posters of one queue pair share its queue: every request is posted whole and completes once. */
#define POSTED 200

static struct client c;

static void *post(void *arg)
{
	struct ibv_sge sge = { (uintptr_t)c.buf, 64, c.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED },
			   *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)c.buf + 2048;
	wr.wr.rdma.rkey = c.mr->rkey;
	for (uint64_t i = 0; i < POSTED;) {
		wr.wr_id = (uintptr_t)arg << 32 | i;
		if (!ibv_post_send(c.qp, &wr, &bad))
			i++;
	}
	return NULL;
}

static void posters_share_a_queue(void **state)
{
	static uint64_t next[THREADS];
	pthread_t thread[THREADS];

	client_make(&c, false, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	client_connect(&c, &c);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, post, (void *)i), 0);
	for (int i = 0; i < THREADS * POSTED; i++) {
		struct ibv_wc wc = client_wait(&c);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_true(wc.wr_id >> 32 < THREADS);
		assert_int_equal(wc.wr_id & 0xffffffff, next[wc.wr_id >> 32]++);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	client_unmake(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_come_and_go_in_many_threads),
		cmocka_unit_test(a_channel_goes_with_its_last_queue),
		cmocka_unit_test(posters_share_a_queue),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

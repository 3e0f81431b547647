/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>

#include "nic/nic.h"
#include "pair.h"

#define PAGE  4096u
#define PAGES 64u
#define IOVA  0x700000000000ull /* regions are reached by addresses of their own */

static struct fixture {
	struct pair p;
	uint8_t *mem;
	struct nic_mr *mr, *other;
	uint32_t key;
} f;

static struct ibv_sge piece(unsigned page, uint32_t len)
{
	return (struct ibv_sge){ IOVA + page * PAGE, len, f.key };
}

/* Requests are posted but not begun: the queue pair is in SQD. */
static int open_fixture(void **state)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD };

	(void)state;
	pair_open(&f.p, NULL);
	f.mem = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(0, nic_mr_create(f.p.pd, (uintptr_t)f.mem, PAGES * PAGE, IOVA,
				    PAIR_ACCESS_ALL | IBV_ACCESS_ON_DEMAND, &f.mr));
	f.other = pair_reg(&f.p, f.mem, PAGES * PAGE, IBV_ACCESS_ON_DEMAND);
	f.key = pair_key(f.mr);
	assert_int_equal(0, nic_qp_modify(f.p.qp[0], &a, IBV_QP_STATE));
	return 0;
}

static int close_fixture(void **state)
{
	(void)state;
	nic_mr_destroy(f.mr);
	nic_mr_destroy(f.other);
	pair_close(&f.p);
	munmap(f.mem, PAGES * PAGE);
	return 0;
}

static void post_send(enum ibv_wr_opcode op, struct ibv_sge *sge, int num)
{
	struct ibv_send_wr wr = { .opcode = op, .sg_list = sge, .num_sge = num }, *bad;

	assert_int_equal(0, nic_qp_post_send(f.p.qp[0], &wr, &bad));
}

static void post_recv(struct ibv_sge *sge, int num)
{
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = num }, *bad;

	assert_int_equal(0, nic_qp_post_recv(f.p.qp[0], &wr, &bad));
}

/* As if the lane waited with this step. */
static struct ib_step *wait_with(enum ib_lane l, enum ib_op op, enum ib_mem_kind kind, uint32_t length)
{
	struct ib_step *step = &f.p.qp[0]->ib.step[l];

	nic_scan_prepare(f.p.qp[0], l);
	step->op = op;
	step->mem.kind = kind;
	step->mem.length = length;
	return step;
}

static unsigned scan(
	enum ib_lane l, const struct nic_mr *mr, unsigned nth, struct odp_extent *out, unsigned most)
{
	return nic_scan(&f.p.qp[0]->lane[l].waiter, &mr->region, nth, out, most);
}

static void assert_extent(
	const struct odp_extent *e, unsigned page, uint32_t offset, uint64_t len, bool write)
{
	assert_int_equal(e->addr, (uintptr_t)f.mem + page * PAGE + offset);
	assert_int_equal(e->len, len);
	assert_int_equal(e->write, write);
}

static void every_lane_names_its_queue_pair(void **state)
{
	(void)state;
	for (int l = 0; l < IB_LANES; l++) {
		assert_ptr_equal(f.p.qp[1]->lane[l].waiter.flow, f.p.qp[1]);
		assert_ptr_equal(f.p.qp[1]->lane[l].waiter.scan, nic_scan);
	}
}

static void a_request_that_waits_comes_first_then_what_was_posted_after_it(void **state)
{
	struct ibv_sge first[] = { piece(0, PAGE), piece(3, 100) };
	struct ibv_sge second[] = { piece(10, 50), { (uintptr_t)f.mem, 8, pair_key(f.other) },
		piece(11, 60) };
	struct ibv_sge third[] = { piece(20, 8) }, fourth[] = { piece(21, 8) };
	struct odp_extent e[8];
	struct ib_step *step;

	(void)state;
	post_send(IBV_WR_SEND, first, 2);
	post_send(IBV_WR_RDMA_WRITE, second, 3);
	post_send(IBV_WR_RDMA_READ, third, 1);
	post_send(IBV_WR_ATOMIC_FETCH_AND_ADD, fourth, 1);
	step = wait_with(IB_REQUESTER, IB_TX, IB_MEM_LOCAL, 1000);
	step->mem.local.sge = ib_sq_at(&f.p.qp[0]->sq, 0)->sge;
	step->mem.local.num = 2;
	step->mem.local.offset = 4000;
	assert_int_equal(6, scan(IB_REQUESTER, f.mr, 0, e, 8));
	/* All that is left of the message, not only of the packet. */
	assert_extent(&e[0], 0, 4000, 96, false);
	assert_extent(&e[1], 3, 0, 100, false);
	assert_extent(&e[2], 10, 0, 50, false);
	assert_extent(&e[3], 11, 0, 60, false);
	assert_extent(&e[4], 20, 0, 8, true);
	assert_extent(&e[5], 21, 0, 8, true);
	/* The other region's pieces are its own. */
	assert_int_equal(1, scan(IB_REQUESTER, f.other, 0, e, 8));
	assert_int_equal(e[0].addr, (uintptr_t)f.mem);
}

static void a_scan_goes_on_where_it_was(void **state)
{
	struct odp_extent e[4];
	struct ib_step *step;

	(void)state;
	for (unsigned i = 0; i < 10; i++)
		post_send(IBV_WR_SEND, (struct ibv_sge[]){ piece(i, 64) }, 1);
	step = wait_with(IB_REQUESTER, IB_TX, IB_MEM_LOCAL, 64);
	step->mem.local.sge = ib_sq_at(&f.p.qp[0]->sq, 0)->sge;
	step->mem.local.num = 1;
	step->mem.local.offset = 0;
	assert_int_equal(4, scan(IB_REQUESTER, f.mr, 0, e, 4));
	assert_extent(&e[3], 3, 0, 64, false);
	assert_int_equal(4, scan(IB_REQUESTER, f.mr, 4, e, 4));
	assert_extent(&e[0], 4, 0, 64, false);
	assert_int_equal(2, scan(IB_REQUESTER, f.mr, 8, e, 4));
	assert_extent(&e[1], 9, 0, 64, false);
	assert_int_equal(0, scan(IB_REQUESTER, f.mr, 10, e, 4));
	assert_int_equal(0, scan(IB_REQUESTER, f.mr, 0, e, 0));
}

static void a_scatter_of_the_completer_is_a_write(void **state)
{
	struct ibv_sge sge[] = { piece(5, 128) };
	struct odp_extent e[4];
	struct ib_step *step;

	(void)state;
	post_send(IBV_WR_RDMA_READ, sge, 1);
	post_send(IBV_WR_SEND, (struct ibv_sge[]){ piece(6, 1) }, 1);
	step = wait_with(IB_COMPLETER, IB_SCATTER, IB_MEM_LOCAL, 28);
	step->mem.local.sge = ib_sq_at(&f.p.qp[0]->sq, 0)->sge;
	step->mem.local.num = 1;
	step->mem.local.offset = 100;
	assert_int_equal(2, scan(IB_COMPLETER, f.mr, 0, e, 4));
	assert_extent(&e[0], 5, 100, 28, true);
	assert_extent(&e[1], 6, 0, 1, false);
}

static void a_receive_that_waits_is_followed_by_those_posted(void **state)
{
	struct ibv_sge mine[] = { piece(30, PAGE), piece(31, PAGE) };
	struct odp_extent e[8];
	struct ib_step *step;
	struct nic_qp *qp = f.p.qp[0];

	(void)state;
	post_recv(mine, 2);
	post_recv((struct ibv_sge[]){ piece(40, 10), piece(41, 20) }, 2);
	qp->rq.next = 1; /* the responder has taken the first one */
	step = wait_with(IB_RESPONDER, IB_SCATTER, IB_MEM_LOCAL, 10);
	step->mem.local.sge = mine;
	step->mem.local.num = 2;
	step->mem.local.offset = PAGE + 4;
	assert_int_equal(3, scan(IB_RESPONDER, f.mr, 0, e, 8));
	assert_extent(&e[0], 31, 4, PAGE - 4, true);
	assert_extent(&e[1], 40, 0, 10, true);
	assert_extent(&e[2], 41, 0, 20, true);
	qp->rq.next = 0;
}

static void what_is_left_of_a_peers_request_is_one_extent(void **state)
{
	struct ib_responder *resp = &f.p.qp[0]->ib.resp;
	struct odp_extent e[4];
	struct ib_step *step;

	(void)state;
	step = wait_with(IB_RESPONDER, IB_SCATTER, IB_MEM_REMOTE, PAGE);
	step->mem.remote.va = IOVA + 4 * PAGE;
	step->mem.remote.rkey = f.key;
	resp->va = IOVA + 2 * PAGE;
	resp->dma_len = 10 * PAGE;
	assert_int_equal(1, scan(IB_RESPONDER, f.mr, 0, e, 4));
	assert_extent(&e[0], 4, 0, 8 * PAGE, true);

	step = wait_with(IB_RESPONDER, IB_TX, IB_MEM_REMOTE, PAGE);
	resp->read_left = 3 * PAGE;
	assert_int_equal(1, scan(IB_RESPONDER, f.mr, 0, e, 4));
	assert_extent(&e[0], 4, 0, 3 * PAGE, false);

	step = wait_with(IB_RESPONDER, IB_ATOMIC, IB_MEM_REMOTE, 8);
	assert_int_equal(1, scan(IB_RESPONDER, f.mr, 0, e, 4));
	assert_extent(&e[0], 4, 0, 8, true);

	/* Somebody else's key, or beyond the end: none of this region's business. */
	step->mem.remote.rkey = f.key ^ 1;
	assert_int_equal(0, scan(IB_RESPONDER, f.mr, 0, e, 4));
	step->mem.remote.rkey = f.key;
	step->mem.remote.va = IOVA + PAGES * PAGE - 4;
	assert_int_equal(0, scan(IB_RESPONDER, f.mr, 0, e, 4));
	step->mem.remote.va = UINT64_MAX - 3;
	assert_int_equal(0, scan(IB_RESPONDER, f.mr, 0, e, 4));
}

static void a_region_that_ends_has_nothing_outstanding(void **state)
{
	struct odp_extent e[4];
	struct ib_step *step = wait_with(IB_RESPONDER, IB_ATOMIC, IB_MEM_REMOTE, 8);

	(void)state;
	step->mem.remote.va = IOVA;
	step->mem.remote.rkey = f.key;
	assert_int_equal(1, scan(IB_RESPONDER, f.mr, 0, e, 4));
	rundown_refuse(&f.mr->users);
	assert_int_equal(0, scan(IB_RESPONDER, f.mr, 0, e, 4));
	rundown_open(&f.mr->users);
}

int main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
	const struct CMUnitTest tests[] = {
		CASE(every_lane_names_its_queue_pair),
		CASE(a_request_that_waits_comes_first_then_what_was_posted_after_it),
		CASE(a_scan_goes_on_where_it_was),
		CASE(a_scatter_of_the_completer_is_a_write),
		CASE(a_receive_that_waits_is_followed_by_those_posted),
		CASE(what_is_left_of_a_peers_request_is_one_extent),
		CASE(a_region_that_ends_has_nothing_outstanding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

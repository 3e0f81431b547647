/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two queue pairs of one process, end to end over the public API, by both ways of posting, pinned and on
 * demand.
 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#define SIZE (1 << 20)
#define ALL                                                                                                  \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define IMM	   0xcafe1234u
#define WORD(c, i) (((uint64_t *)(c)->buf)[i])

struct pair {
	struct client a, b; /* requests go from a to b */
	bool extended;
};

static void make(struct pair *p, bool extended, int access)
{
	p->extended = extended;
	client_make(&p->a, extended, SIZE, access);
	client_make(&p->b, extended, SIZE, access);
	client_connect(&p->a, &p->b);
}

static void unmake(struct pair *p)
{
	client_unmake(&p->a);
	client_unmake(&p->b);
}

static void fill(struct client *c, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		seed += 0x9e3779b9u;
		c->buf[i] = (uint8_t)(seed ^ seed >> 16);
	}
}

/* One request, signalled, by either way of posting. */
struct request {
	enum ibv_wr_opcode opcode;
	uint32_t length;
	unsigned flags;
	uint64_t compare_add, swap;
};

static void post_new(struct pair *p, const struct request *r)
{
	struct ibv_qp_ex *ex = p->a.ex;
	uint32_t rkey = p->b.mr->rkey;
	uint64_t there = (uintptr_t)p->b.buf;

	ibv_wr_start(ex);
	ex->wr_id = r->opcode;
	ex->wr_flags = IBV_SEND_SIGNALED | r->flags;
	switch (r->opcode) {
	case IBV_WR_SEND:
		ibv_wr_send(ex);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(ex, htonl(IMM));
		break;
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(ex, rkey, there);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(ex, rkey, there, htonl(IMM));
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(ex, rkey, there);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(ex, rkey, there, r->compare_add, r->swap);
		break;
	default:
		ibv_wr_atomic_fetch_add(ex, rkey, there, r->compare_add);
	}
	if (r->flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(ex, p->a.buf, r->length);
	else
		ibv_wr_set_sge(ex, p->a.mr->lkey, (uintptr_t)p->a.buf, r->length);
	assert_int_equal(ibv_wr_complete(ex), 0);
}

static void post_old(struct pair *p, const struct request *r)
{
	struct ibv_sge sge = { (uintptr_t)p->a.buf, r->length, p->a.mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = r->opcode,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = r->opcode,
		.send_flags = IBV_SEND_SIGNALED | r->flags,
		.imm_data = htonl(IMM),
	}, *bad = NULL;

	if (r->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)p->b.buf;
		wr.wr.atomic.rkey = p->b.mr->rkey;
		wr.wr.atomic.compare_add = r->compare_add;
		wr.wr.atomic.swap = r->swap;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)p->b.buf;
		wr.wr.rdma.rkey = p->b.mr->rkey;
	}
	assert_int_equal(ibv_post_send(p->a.qp, &wr, &bad), 0);
}

static void request(struct pair *p, struct request r, enum ibv_wc_opcode as)
{
	struct ibv_wc wc;

	if (p->extended)
		post_new(p, &r);
	else
		post_old(p, &r);
	wc = client_wait(&p->a);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, as);
	assert_int_equal(wc.wr_id, r.opcode);
	assert_int_equal(wc.qp_num, p->a.qp->qp_num);
}

static void post_recv(struct pair *p, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)p->b.buf, length, p->b.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad = NULL;

	assert_int_equal(ibv_post_recv(p->b.qp, &wr, &bad), 0);
}

static void expect_recv(struct pair *p, uint64_t wr_id, enum ibv_wc_opcode as, uint32_t length, bool imm)
{
	struct ibv_wc wc = client_wait(&p->b);

	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, as);
	assert_int_equal(wc.wr_id, wr_id);
	assert_int_equal(wc.byte_len, length);
	assert_int_equal(wc.qp_num, p->b.qp->qp_num);
	assert_int_equal(!!(wc.wc_flags & IBV_WC_WITH_IMM), imm);
	if (imm)
		assert_int_equal(ntohl(wc.imm_data), IMM);
}

static const uint32_t sizes[] = { 1, 8, 63, 4096, 4097, 70000, SIZE };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void sends(struct pair *p)
{
	for (size_t i = 0; i < SIZES; i++) {
		post_recv(p, 100 + i, SIZE);
		fill(&p->a, sizes[i], (unsigned)i);
		request(p, (struct request){ IBV_WR_SEND, sizes[i], 0, 0, 0 }, IBV_WC_SEND);
		expect_recv(p, 100 + i, IBV_WC_RECV, sizes[i], false);
		assert_memory_equal(p->a.buf, p->b.buf, sizes[i]);
	}
	post_recv(p, 7, SIZE);
	request(p, (struct request){ IBV_WR_SEND_WITH_IMM, 0, 0, 0, 0 }, IBV_WC_SEND);
	expect_recv(p, 7, IBV_WC_RECV, 0, true);
	post_recv(p, 8, SIZE);
	fill(&p->a, CLIENT_INLINE, 99);
	request(p, (struct request){ IBV_WR_SEND, CLIENT_INLINE, IBV_SEND_INLINE, 0, 0 }, IBV_WC_SEND);
	expect_recv(p, 8, IBV_WC_RECV, CLIENT_INLINE, false);
	assert_memory_equal(p->a.buf, p->b.buf, CLIENT_INLINE);
}

static void one_sided(struct pair *p)
{
	for (size_t i = 0; i < SIZES; i++) {
		fill(&p->a, sizes[i], 1000 + (unsigned)i);
		request(p, (struct request){ IBV_WR_RDMA_WRITE, sizes[i], 0, 0, 0 }, IBV_WC_RDMA_WRITE);
		assert_memory_equal(p->a.buf, p->b.buf, sizes[i]);
		fill(&p->b, sizes[i], 2000 + (unsigned)i);
		request(p, (struct request){ IBV_WR_RDMA_READ, sizes[i], 0, 0, 0 }, IBV_WC_RDMA_READ);
		assert_memory_equal(p->a.buf, p->b.buf, sizes[i]);
	}
	post_recv(p, 9, 0);
	fill(&p->a, 5000, 3000);
	request(p, (struct request){ IBV_WR_RDMA_WRITE_WITH_IMM, 5000, 0, 0, 0 }, IBV_WC_RDMA_WRITE);
	expect_recv(p, 9, IBV_WC_RECV_RDMA_WITH_IMM, 5000, true);
	assert_memory_equal(p->a.buf, p->b.buf, 5000);
	fill(&p->a, 16, 4000);
	request(p, (struct request){ IBV_WR_RDMA_WRITE, 16, IBV_SEND_INLINE, 0, 0 }, IBV_WC_RDMA_WRITE);
	assert_memory_equal(p->a.buf, p->b.buf, 16);
}

static void atomics(struct pair *p)
{
	WORD(&p->b, 0) = 40;
	request(p, (struct request){ IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0, 2, 0 }, IBV_WC_FETCH_ADD);
	assert_int_equal(WORD(&p->a, 0), 40);
	assert_int_equal(WORD(&p->b, 0), 42);
	request(p, (struct request){ IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0, 42, 7 }, IBV_WC_COMP_SWAP);
	assert_int_equal(WORD(&p->a, 0), 42);
	assert_int_equal(WORD(&p->b, 0), 7);
	request(p, (struct request){ IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0, 42, 9 }, IBV_WC_COMP_SWAP);
	assert_int_equal(WORD(&p->a, 0), 7);
	assert_int_equal(WORD(&p->b, 0), 7);
}

static void everything(bool extended, int access)
{
	struct pair p;

	make(&p, extended, access);
	sends(&p);
	one_sided(&p);
	atomics(&p);
	unmake(&p);
}

static void the_old_calls_move_data_pinned(void **state)
{
	everything(false, ALL);
}

static void the_new_calls_move_data_pinned(void **state)
{
	everything(true, ALL);
}

static void the_old_calls_move_data_on_demand(void **state)
{
	everything(false, ALL | IBV_ACCESS_ON_DEMAND);
}

static void the_new_calls_move_data_on_demand(void **state)
{
	everything(true, ALL | IBV_ACCESS_ON_DEMAND);
}

static void pieces_are_gathered_and_scattered(void **state)
{
	struct pair p;
	struct ibv_sge from[3], to[2];
	struct ibv_recv_wr recv = { .wr_id = 1, .sg_list = to, .num_sge = 2 }, *bad = NULL;

	make(&p, true, ALL);
	fill(&p.a, 300, 5);
	for (int i = 0; i < 3; i++)
		from[i] = (struct ibv_sge){ (uintptr_t)p.a.buf + (unsigned)i * 100, 100, p.a.mr->lkey };
	to[0] = (struct ibv_sge){ (uintptr_t)p.b.buf, 170, p.b.mr->lkey };
	to[1] = (struct ibv_sge){ (uintptr_t)p.b.buf + 170, 130, p.b.mr->lkey };
	assert_int_equal(ibv_post_recv(p.b.qp, &recv, &bad), 0);
	ibv_wr_start(p.a.ex);
	p.a.ex->wr_id = 2;
	p.a.ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(p.a.ex);
	ibv_wr_set_sge_list(p.a.ex, 3, from);
	assert_int_equal(ibv_wr_complete(p.a.ex), 0);
	assert_int_equal(client_wait(&p.a).status, IBV_WC_SUCCESS);
	expect_recv(&p, 1, IBV_WC_RECV, 300, false);
	assert_memory_equal(p.a.buf, p.b.buf, 300);
	unmake(&p);
}

static void a_batch_completes_in_order(void **state)
{
	struct pair p;

	make(&p, true, ALL);
	ibv_wr_start(p.a.ex);
	p.a.ex->wr_flags = IBV_SEND_SIGNALED;
	for (uint64_t i = 0; i < CLIENT_DEPTH; i++) {
		p.a.ex->wr_id = i;
		ibv_wr_rdma_write(p.a.ex, p.b.mr->rkey, (uintptr_t)p.b.buf + i * 8);
		ibv_wr_set_inline_data(p.a.ex, &i, sizeof(i));
	}
	assert_int_equal(ibv_wr_complete(p.a.ex), 0);
	for (uint64_t i = 0; i < CLIENT_DEPTH; i++) {
		struct ibv_wc wc = client_wait(&p.a);

		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(WORD(&p.b, i), i);
	}
	unmake(&p);
}

/* --- completion events ---------------------------------------------------------------------------- */

static void wait_event(struct client *c)
{
	struct ibv_cq *cq = NULL;
	void *cookie = NULL;

	assert_int_equal(ibv_get_cq_event(c->channel, &cq, &cookie), 0);
	assert_ptr_equal(cq, c->cq);
	assert_ptr_equal(cookie, c);
	ibv_ack_cq_events(cq, 1);
	assert_true(cq->comp_events_completed > 0);
}

static bool event_pending(struct client *c)
{
	struct pollfd pfd = { .fd = c->channel->fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

static void an_armed_queue_tells_once(void **state)
{
	struct pair p;

	make(&p, false, ALL);
	assert_int_equal(ibv_req_notify_cq(p.b.cq, 0), 0);
	post_recv(&p, 1, SIZE);
	post_recv(&p, 2, SIZE);
	request(&p, (struct request){ IBV_WR_SEND, 8, 0, 0, 0 }, IBV_WC_SEND);
	wait_event(&p.b);
	expect_recv(&p, 1, IBV_WC_RECV, 8, false);
	request(&p, (struct request){ IBV_WR_SEND, 8, 0, 0, 0 }, IBV_WC_SEND);
	expect_recv(&p, 2, IBV_WC_RECV, 8, false);
	assert_false(event_pending(&p.b));
	unmake(&p);
}

static void solicited_only_waits_for_a_solicited_one(void **state)
{
	struct pair p;

	make(&p, false, ALL);
	assert_int_equal(ibv_req_notify_cq(p.b.cq, 1), 0);
	post_recv(&p, 1, SIZE);
	post_recv(&p, 2, SIZE);
	request(&p, (struct request){ IBV_WR_SEND, 8, 0, 0, 0 }, IBV_WC_SEND);
	expect_recv(&p, 1, IBV_WC_RECV, 8, false);
	assert_false(event_pending(&p.b));
	request(&p, (struct request){ IBV_WR_SEND, 8, IBV_SEND_SOLICITED, 0, 0 }, IBV_WC_SEND);
	wait_event(&p.b);
	expect_recv(&p, 2, IBV_WC_RECV, 8, false);
	unmake(&p);
}

/* --- asynchronous events -------------------------------------------------------------------------- */

static void a_violation_is_told_to_its_queue_pair(void **state)
{
	struct ibv_async_event event;
	struct ibv_send_wr *bad = NULL, wr = {
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, .num_sge = 1
	};
	struct ibv_sge sge;
	struct pair p;
	struct ibv_wc wc;

	make(&p, false, ALL);
	sge = (struct ibv_sge){ (uintptr_t)p.a.buf, 8, p.a.mr->lkey };
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf + SIZE; /* just outside */
	wr.wr.rdma.rkey = p.b.mr->rkey;
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	wc = client_wait(&p.a);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_get_async_event(p.b.ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, p.b.qp);
	ibv_ack_async_event(&event);
	assert_int_equal(p.b.qp->events_completed, 1);
	unmake(&p); /* would wait for ever without the acknowledgement */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_old_calls_move_data_pinned),
		cmocka_unit_test(the_new_calls_move_data_pinned),
		cmocka_unit_test(the_old_calls_move_data_on_demand),
		cmocka_unit_test(the_new_calls_move_data_on_demand),
		cmocka_unit_test(pieces_are_gathered_and_scattered),
		cmocka_unit_test(a_batch_completes_in_order),
		cmocka_unit_test(an_armed_queue_tells_once),
		cmocka_unit_test(solicited_only_waits_for_a_solicited_one),
		cmocka_unit_test(a_violation_is_told_to_its_queue_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Queues at their limits, errors and their order, events: what programs rely on. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

static void a_full_send_queue_is_ENOMEM_and_names_the_request(void)
{
	struct options opt = { .send_wr = 16, .recv_wr = 64 };
	struct ibv_send_wr wr[200], *bad = NULL;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;
	int room, done = 0;

	pair_open(&p, &opt);
	check_int(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), 0);
	room = (int)init.cap.max_send_wr;
	check(room >= 16 && room < 190);
	memset(wr, 0, sizeof(wr));
	for (int i = 0; i < room + 5; i++)
		wr[i] = (struct ibv_send_wr){ .wr_id = (uint64_t)i,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
			.next = i < room + 4 ? &wr[i + 1] : NULL };
	/* Nothing is received, so nothing is completed. */
	check_int(ibv_post_send(p.a.qp, &wr[0], &bad), ENOMEM);
	check(bad == &wr[room]);
	check_int(ibv_post_send(p.a.qp, &wr[room + 4], &bad), ENOMEM);
	check(bad == &wr[room + 4]);
	for (int i = 0; i < room; i++) {
		post_recv(&p.b, NULL, NULL, 0);
		check_int(wait_for(&p.a, IBV_WC_SUCCESS).wr_id, done++);
		/* A polled completion makes room for one. */
		if (i == 0) {
			check_int(ibv_post_send(p.a.qp, &wr[room + 4], &bad), 0);
			check_int(ibv_post_send(p.a.qp, &wr[room + 4], &bad), ENOMEM);
		}
	}
	pair_close(&p);
}

static void unsignaled_requests_are_freed_by_the_next_signaled_one(void)
{
	struct options opt = { .send_wr = 16 };
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, &opt);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 15; i++)
			check_int(
				try_post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 8, memory, there->rkey, 0), 0);
		check_int(try_post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 9, memory, there->rkey,
				  IBV_SEND_SIGNALED),
			0);
		check_int(wait_for(&p.a, IBV_WC_SUCCESS).wr_id, 9);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void with_sq_sig_all_every_request_completes(void)
{
	struct options opt = { .sig_all = true };
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, &opt);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	for (unsigned i = 1; i <= 20; i++)
		check_int(try_post(&p.a, IBV_WR_RDMA_WRITE, here, mine, i, memory, there->rkey, 0), 0);
	for (unsigned i = 1; i <= 20; i++)
		check_int(wait_for(&p.a, IBV_WC_SUCCESS).wr_id, i);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void a_full_receive_queue_is_ENOMEM_and_names_the_request(void)
{
	struct options opt = { .recv_wr = 16 };
	struct ibv_recv_wr wr[200], *bad = NULL;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;
	int room;

	pair_open(&p, &opt);
	check_int(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), 0);
	room = (int)init.cap.max_recv_wr;
	check(room >= 16 && room < 190);
	for (int i = 0; i < room + 3; i++)
		wr[i] = (struct ibv_recv_wr){ .wr_id = (uint64_t)i,
			.next = i < room + 2 ? &wr[i + 1] : NULL };
	check_int(ibv_post_recv(p.a.qp, &wr[0], &bad), ENOMEM);
	check(bad == &wr[room]);
	for (int i = 0; i < room; i++) {
		post(&p.b, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		check_int(wait_for(&p.a, IBV_WC_SUCCESS).wr_id, i);
		wait_for(&p.b, IBV_WC_SUCCESS);
	}
	pair_close(&p);
}

static void what_cannot_be_posted_is_refused(void)
{
	char *mine = fresh(PAGE);
	struct ibv_mr *here;
	struct ibv_sge many[64];
	struct ibv_send_wr wr = { .sg_list = many, .num_sge = 64, .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_recv_wr rwr = { .sg_list = many, .num_sge = 64 }, *badr = NULL;
	struct end e;

	end_open(&e, NULL);
	here = reg(&e, mine, PAGE, LOCAL);
	for (int i = 0; i < 64; i++)
		many[i] = (struct ibv_sge){ (uintptr_t)mine, 1, here->lkey };
	/* INIT: receives may be posted, sends may not. */
	post_recv(&e, here, mine, 1);
	wr.num_sge = 1;
	check_int(ibv_post_send(e.qp, &wr, &bad), EINVAL);
	check(bad == &wr);
	check_int(ibv_post_recv(e.qp, &rwr, &badr), EINVAL);
	check(badr == &rwr);
	end_reset(&e);
	dereg(here);
	end_close(&e);
	{
		struct pair p;

		pair_open(&p, NULL);
		here = reg(&p.a, mine, PAGE, LOCAL);
		wr.num_sge = 64;
		check_int(ibv_post_send(p.a.qp, &wr, &bad), EINVAL);
		check(bad == &wr);
		/* More inline bytes than asked for (and got). */
		check_int(try_post(&p.a, IBV_WR_SEND, here, mine, PAGE, NULL, 0, IBV_SEND_INLINE), EINVAL);
		dereg(here);
		pair_close(&p);
	}
}

static void after_an_error_all_is_flushed_in_order(void)
{
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	for (unsigned i = 1; i <= 5; i++)
		post_recv(&p.a, here, mine, i);
	for (unsigned i = 1; i <= 3; i++)
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, i, memory, there->rkey);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 4, memory, there->rkey + 0x100);
	for (unsigned i = 5; i <= 10; i++)
		check_int(try_post(&p.a, IBV_WR_RDMA_WRITE, here, mine, i, memory, there->rkey,
				  i % 2 ? IBV_SEND_SIGNALED : 0),
			0);
	for (unsigned i = 1; i <= 3; i++)
		check_int(wait_for(&p.a, IBV_WC_SUCCESS).wr_id, i);
	check_int(wait_for(&p.a, IBV_WC_REM_ACCESS_ERR).wr_id, 4);
	/* Errors complete whether signaled or not. Sends and receives keep their own order. */
	for (unsigned send = 5, recv = 1, n = 0; n < 11; n++) {
		wc = wait_for(&p.a, IBV_WC_WR_FLUSH_ERR);
		check_int(wc.qp_num, p.a.qp->qp_num);
		if (wc.wr_id == send)
			send++;
		else
			check_int(wc.wr_id, recv++);
		check(recv <= 6 && send <= 11);
	}
	check_int(state_of(p.a.qp), IBV_QPS_ERR);
	/* Posting goes on being possible and is flushed. */
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	wait_for(&p.a, IBV_WC_WR_FLUSH_ERR);
	post_recv(&p.a, NULL, NULL, 0);
	wait_for(&p.a, IBV_WC_WR_FLUSH_ERR);
	check(!poll_for(&p.a, &wc, 20));
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void moving_to_error_flushes_too(void)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct pair p;

	pair_open(&p, NULL);
	for (int i = 0; i < 4; i++)
		post_recv(&p.a, NULL, NULL, 0);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0); /* nobody receives it */
	nap(10);
	check_int(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
	for (int i = 0; i < 5; i++)
		wait_for(&p.a, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}

static void an_overrun_queue_raises_an_event_and_its_queue_pair_fails(void)
{
	struct options opt = { .cqe = 8, .send_wr = 4096 };
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_async_event event;
	struct ibv_mr *here, *there;
	struct pollfd pfd;
	struct pair p;
	bool of_cq = false;

	pair_open(&p, &opt);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	for (int i = 0; i < p.a.cq->cqe + 16; i++)
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 8, memory, there->rkey);
	pfd = (struct pollfd){ .fd = p.a.ctx->async_fd, .events = POLLIN };
	while (!of_cq) {
		check_int(poll(&pfd, 1, WAIT_SECONDS * 1000), 1);
		check_int(ibv_get_async_event(p.a.ctx, &event), 0);
		if (event.event_type == IBV_EVENT_CQ_ERR) {
			check(event.element.cq == p.a.cq);
			of_cq = true;
		}
		ibv_ack_async_event(&event);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

/* Also when nothing but flushed requests do not fit, and whoever sleeps on the channel would not learn it. */
static void an_overrun_by_flushed_requests_raises_it_too(void)
{
	struct options opt = { .cqe = 4, .recv_wr = 16, .events = true };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_async_event event;
	struct end e;

	end_open(&e, &opt);
	for (int i = 0; i < 16; i++)
		post_recv(&e, NULL, NULL, 0);
	check_int(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE), 0);
	check_int(ibv_get_async_event(e.ctx, &event), 0);
	check_int(event.event_type, IBV_EVENT_CQ_ERR);
	check(event.element.cq == e.cq);
	ibv_ack_async_event(&event);
	end_close(&e);
}

static void a_queue_pair_tells_the_numbers_of_its_next_packets(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair p;

	pair_open(&p, NULL);
	for (int i = 0; i < 5; i++) {
		post_recv(&p.b, NULL, NULL, 0);
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		wait_for(&p.a, IBV_WC_SUCCESS);
		wait_for(&p.b, IBV_WC_SUCCESS);
	}
	check_int(ibv_query_qp(p.a.qp, &attr, IBV_QP_SQ_PSN, &init), 0);
	check_int(attr.sq_psn, (p.a.psn + 5) & 0xffffff);
	check_int(ibv_query_qp(p.b.qp, &attr, IBV_QP_RQ_PSN, &init), 0);
	check_int(attr.rq_psn, (p.a.psn + 5) & 0xffffff);
	pair_close(&p);
}

/* Eight bytes come back, and nothing is done over there when they do not fit here. */
static void an_atomic_into_less_than_eight_bytes_does_nothing(void)
{
	static const struct {
		uint32_t length;
		int num_sge;
		enum ibv_wc_status status;
	} lists[] = { { 4, 1, IBV_WC_LOC_LEN_ERR }, { 8, 0, IBV_WC_LOC_LEN_ERR }, { 8, 1, IBV_WC_SUCCESS },
		{ 16, 1, IBV_WC_SUCCESS } };
	uint64_t *word = fresh(PAGE), *old = fresh(PAGE);

	for (size_t i = 0; i < COUNT(lists); i++) {
		struct ibv_sge sge = { (uintptr_t)old, lists[i].length, 0 };
		struct ibv_send_wr wr = { .sg_list = &sge,
			.num_sge = lists[i].num_sge,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IBV_SEND_SIGNALED },
				   *bad;
		bool done = lists[i].status == IBV_WC_SUCCESS;
		struct ibv_mr *here, *there;
		struct pair p;

		pair_open(&p, NULL);
		here = reg(&p.a, old, PAGE, LOCAL);
		there = reg(&p.b, word, PAGE, REMOTE);
		*word = 40;
		old[0] = old[1] = 7;
		sge.lkey = here->lkey;
		wr.wr.atomic.remote_addr = (uintptr_t)word;
		wr.wr.atomic.rkey = there->rkey;
		wr.wr.atomic.compare_add = 2;
		check_int(ibv_post_send(p.a.qp, &wr, &bad), 0);
		wait_for(&p.a, lists[i].status);
		check_int(*word, done ? 42 : 40);
		check_int(old[0], done ? 40 : 7);
		check_int(old[1], 7);
		dereg(here);
		dereg(there);
		pair_close(&p);
	}
}

static void a_channel_can_be_non_blocking(void)
{
	struct options opt = { .events = true };
	struct pollfd pfd;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct pair p;
	void *context;
	int flags;

	pair_open(&p, &opt);
	flags = fcntl(p.b.channel->fd, F_GETFL);
	check_sys(fcntl(p.b.channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
	check_int(ibv_get_cq_event(p.b.channel, &cq, &context), -1);
	check_int(errno, EAGAIN);
	pfd = (struct pollfd){ .fd = p.b.channel->fd, .events = POLLIN };
	check_int(poll(&pfd, 1, 0), 0);
	for (int i = 0; i < 20; i++) {
		check_int(ibv_req_notify_cq(p.b.cq, 0), 0);
		post_recv(&p.b, NULL, NULL, 0);
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		check_int(poll(&pfd, 1, WAIT_SECONDS * 1000), 1);
		check_int(ibv_get_cq_event(p.b.channel, &cq, &context), 0);
		check(cq == p.b.cq);
		ibv_ack_cq_events(cq, 1);
		check_int(ibv_poll_cq(p.b.cq, 1, &wc), 1);
		check_int(wc.status, IBV_WC_SUCCESS);
		wait_for(&p.a, IBV_WC_SUCCESS);
		/* One event for one arming. */
		check_int(ibv_get_cq_event(p.b.channel, &cq, &context), -1);
		check_int(errno, EAGAIN);
	}
	pair_close(&p);
}

static void only_solicited_completions_wake_who_asked_for_them(void)
{
	struct options opt = { .events = true };
	struct pollfd pfd;
	struct ibv_cq *cq;
	struct pair p;
	void *context;

	pair_open(&p, &opt);
	pfd = (struct pollfd){ .fd = p.b.channel->fd, .events = POLLIN };
	check_int(ibv_req_notify_cq(p.b.cq, 1), 0);
	for (int i = 0; i < 2; i++)
		post_recv(&p.b, NULL, NULL, 0);
	check_int(try_post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0, IBV_SEND_SIGNALED), 0);
	wait_for(&p.b, IBV_WC_SUCCESS);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_int(poll(&pfd, 1, 50), 0);
	check_int(try_post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED),
		0);
	check_int(poll(&pfd, 1, WAIT_SECONDS * 1000), 1);
	check_int(ibv_get_cq_event(p.b.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	wait_for(&p.b, IBV_WC_SUCCESS);
	pair_close(&p);
}

static atomic_bool destroyed;

static void *destroy(void *cq)
{
	check_int(ibv_destroy_cq(cq), 0);
	destroyed = true;
	return NULL;
}

static void destroying_a_queue_waits_for_its_events_to_be_acknowledged(void)
{
	struct options opt = { .events = true };
	struct ibv_cq *cq;
	pthread_t thread;
	struct pair p;
	void *context;

	pair_open(&p, &opt);
	check_int(ibv_req_notify_cq(p.b.cq, 0), 0);
	post_recv(&p.b, NULL, NULL, 0);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	check_int(ibv_get_cq_event(p.b.channel, &cq, &context), 0);
	check_int(ibv_destroy_qp(p.b.qp), 0);
	check_int(pthread_create(&thread, NULL, destroy, cq), 0);
	nap(100);
	check(!destroyed);
	ibv_ack_cq_events(cq, 1);
	check_int(pthread_join(thread, NULL), 0);
	check(destroyed);
	check_int(ibv_destroy_comp_channel(p.b.channel), 0);
	check_int(ibv_dealloc_pd(p.b.pd), 0);
	check_int(ibv_close_device(p.b.ctx), 0);
	end_close(&p.a);
}

static void what_is_in_use_cannot_be_destroyed(void)
{
	struct options opt = { .events = true };
	char *memory = fresh(PAGE);
	struct ibv_mr *mr;
	struct end e;

	end_open(&e, &opt);
	mr = reg(&e, memory, PAGE, LOCAL);
	check_int(ibv_destroy_cq(e.cq), EBUSY);
	check_int(ibv_dealloc_pd(e.pd), EBUSY);
	check_int(ibv_destroy_comp_channel(e.channel), EBUSY);
	dereg(mr);
	end_close(&e);
}

static void a_queue_keeps_its_completions_when_resized(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int i = 0; i < 30; i++)
		post_recv(&p.b, NULL, NULL, 0);
	for (int i = 0; i < 30; i++)
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	for (int i = 0; i < 30; i++)
		wait_for(&p.a, IBV_WC_SUCCESS);
	wait_for(&p.b, IBV_WC_SUCCESS);
	nap(50);
	check_int(ibv_resize_cq(p.b.cq, 64), 0);
	check(p.b.cq->cqe >= 64);
	for (int i = 0; i < 9; i++)
		wait_for(&p.b, IBV_WC_SUCCESS);
	check_int(ibv_resize_cq(p.b.cq, 4000), 0);
	check(p.b.cq->cqe >= 4000);
	for (int i = 0; i < 20; i++)
		wait_for(&p.b, IBV_WC_SUCCESS);
	pair_close(&p);
}

static void a_queue_pair_that_destroys_itself_takes_its_completions_along(void)
{
	struct pair p;
	struct ibv_wc wc;

	pair_open(&p, NULL);
	for (int i = 0; i < 10; i++)
		post_recv(&p.a, NULL, NULL, 0);
	check_int(ibv_destroy_qp(p.a.qp), 0);
	check_int(ibv_poll_cq(p.a.cq, 1, &wc), 0);
	end_make_qp(&p.a);
	pair_close(&p);
}

/* Interpreters do that when they end: objects go in any order, and some after their context. */
static void objects_may_be_destroyed_after_their_context_is_closed(void)
{
	struct options opt = { .events = true };
	char *memory = fresh(PAGE);

	for (int i = 0; i < 20; i++) {
		struct ibv_mr *pinned, *on_demand;
		struct end e;

		end_open(&e, &opt);
		pinned = reg(&e, memory, PAGE, LOCAL);
		on_demand = reg(&e, memory, PAGE, LOCAL | ODP);
		/* What it says is its own affair; the program goes on. */
		ibv_close_device(e.ctx);
		if (i % 2) {
			ibv_dereg_mr(pinned);
			ibv_dereg_mr(on_demand);
			ibv_destroy_qp(e.qp);
		}
		ibv_destroy_cq(e.cq);
		ibv_destroy_comp_channel(e.channel);
		ibv_dealloc_pd(e.pd);
	}
	/* And a new device is none the worse for it. */
	{
		struct pair p;

		pair_open(&p, NULL);
		post_recv(&p.b, NULL, NULL, 0);
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		wait_for(&p.a, IBV_WC_SUCCESS);
		pair_close(&p);
	}
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_full_send_queue_is_ENOMEM_and_names_the_request),
		CASE(unsignaled_requests_are_freed_by_the_next_signaled_one),
		CASE(with_sq_sig_all_every_request_completes),
		CASE(a_full_receive_queue_is_ENOMEM_and_names_the_request),
		CASE(what_cannot_be_posted_is_refused),
		CASE(after_an_error_all_is_flushed_in_order),
		CASE(moving_to_error_flushes_too),
		CASE(an_overrun_queue_raises_an_event_and_its_queue_pair_fails),
		CASE(an_overrun_by_flushed_requests_raises_it_too),
		CASE(a_queue_pair_tells_the_numbers_of_its_next_packets),
		CASE(an_atomic_into_less_than_eight_bytes_does_nothing),
		CASE(a_channel_can_be_non_blocking),
		CASE(only_solicited_completions_wake_who_asked_for_them),
		CASE(destroying_a_queue_waits_for_its_events_to_be_acknowledged),
		CASE(what_is_in_use_cannot_be_destroyed),
		CASE(a_queue_keeps_its_completions_when_resized),
		CASE(a_queue_pair_that_destroys_itself_takes_its_completions_along),
		CASE(objects_may_be_destroyed_after_their_context_is_closed),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

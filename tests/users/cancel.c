/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Threads that are cancelled. Programs end the thread that waits for events with pthread_cancel(3) (rping and
 * its kin), so ibv_get_cq_event() and ibv_get_async_event() are cancellation points, as they are in
 * libibverbs. No other verb is one: a thread that went away inside would keep the device's locks.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (16 * PAGE)

static _Atomic pid_t waiter;

static void *waits_for_a_completion(void *arg)
{
	struct end *e = arg;
	struct ibv_cq *cq;
	void *context;

	atomic_store(&waiter, (pid_t)syscall(SYS_gettid));
	ibv_get_cq_event(e->channel, &cq, &context);
	check(!"returned");
	return NULL;
}

static void *waits_for_news(void *arg)
{
	struct ibv_async_event event;
	struct end *e = arg;

	atomic_store(&waiter, (pid_t)syscall(SYS_gettid));
	ibv_get_async_event(e->ctx, &event);
	check(!"returned");
	return NULL;
}

static bool sleeps(pid_t tid)
{
	char path[64], line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(path, "re");
	check_sys(f && fgets(line, sizeof(line), f));
	fclose(f);
	return strrchr(line, ')')[2] == 'S';
}

static void cancelled_while_waiting(void *(*wait)(void *))
{
	pthread_t thread;
	struct pair p;
	void *result;
	struct ibv_mr *mr;
	char *memory = fresh(PAGE);

	pair_open(&p, &(struct options){ .events = true });
	atomic_store(&waiter, 0);
	check_int(pthread_create(&thread, NULL, wait, &p.a), 0);
	while (!atomic_load(&waiter) || !sleeps(atomic_load(&waiter)))
		nap(1);
	check_int(pthread_cancel(thread), 0);
	check_int(pthread_join(thread, &result), 0);
	check(result == PTHREAD_CANCELED);
	/* It took nothing away with it: no lock, no event. */
	mr = reg(&p.a, memory, PAGE, LOCAL | ODP);
	check_int(ibv_req_notify_cq(p.a.cq, 0), 0);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	post_recv(&p.b, NULL, NULL, 0);
	wait_for(&p.b, IBV_WC_SUCCESS);
	{
		struct ibv_cq *cq;
		void *context;

		check_int(ibv_get_cq_event(p.a.channel, &cq, &context), 0);
		check(cq == p.a.cq);
		ibv_ack_cq_events(cq, 1);
	}
	wait_for(&p.a, IBV_WC_SUCCESS);
	dereg(mr);
	pair_close(&p);
}

static void a_thread_that_waits_for_a_completion_can_be_cancelled(void)
{
	cancelled_while_waiting(waits_for_a_completion);
}

static void a_thread_that_waits_for_news_can_be_cancelled(void)
{
	cancelled_while_waiting(waits_for_news);
}

/* A whole life of verbs, for a thread that is to be cancelled at the next opportunity. Nothing here but the
 * verbs could be one. */
static void live(void)
{
	char *mine = fresh(LENGTH), *memory = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, &(struct options){ .events = true });
	for (int pinned = 0; pinned < 2; pinned++) {
		here = reg(&p.a, mine, LENGTH, LOCAL | (pinned ? 0 : ODP));
		there = reg(&p.b, memory, LENGTH, REMOTE | (pinned ? 0 : ODP));
		if (!pinned) {
			struct ibv_sge sge = { (uintptr_t)memory, LENGTH, there->lkey };

			check_int(ibv_advise_mr(p.b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
					  IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1),
				0);
		}
		check_int(ibv_req_notify_cq(p.a.cq, 0), 0);
		fill(mine, LENGTH, 5);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		post(&p.a, IBV_WR_RDMA_READ, here, mine, LENGTH, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(mine, LENGTH, 5);
		/* A request that fails, and what follows from it. */
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory + PAGE, there->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		check_int(state_of(p.a.qp), IBV_QPS_ERR);
		pair_reconnect(&p);
		dereg(here);
		dereg(there);
	}
	pair_close(&p);
	drop(mine, LENGTH);
	drop(memory, LENGTH);
}

static _Atomic bool survived;

static void *lives_although_cancelled(void *arg)
{
	(void)arg;
	check_int(pthread_cancel(pthread_self()), 0);
	live();
	atomic_store(&survived, true);
	pthread_testcancel();
	check(!"not cancelled");
	return NULL;
}

static void no_other_verb_is_a_cancellation_point(void)
{
	pthread_t thread;
	void *result;

	check_int(pthread_create(&thread, NULL, lives_although_cancelled, NULL), 0);
	check_int(pthread_join(thread, &result), 0);
	check(result == PTHREAD_CANCELED);
	check(atomic_load(&survived));
	live();
}

/* The same between processes: connecting, being called by a process, its end. */
static void serves(int sock, void *arg)
{
	char *memory = fresh(LENGTH);
	struct window window;
	struct ibv_mr *mr;
	struct end e;
	char word;

	(void)arg;
	end_open(&e, NULL);
	mr = reg(&e, memory, LENGTH, REMOTE | ODP);
	exchange(&e, sock);
	window = window_of(mr);
	tell(sock, &window, sizeof(window));
	hear(sock, &word, 1);
	_exit(0); /* as one that dies */
}

struct talk {
	struct end e;
	struct window window;
	struct ibv_mr *mr;
	char *mine;
	pid_t pid;
};

static void *talks_although_cancelled(void *arg)
{
	struct talk *t = arg;

	check_int(pthread_cancel(pthread_self()), 0);
	post(&t->e, IBV_WR_RDMA_WRITE, t->mr, t->mine, LENGTH, (void *)(uintptr_t)t->window.addr,
		t->window.rkey);
	wait_for(&t->e, IBV_WC_SUCCESS);
	atomic_store(&survived, true);
	pthread_testcancel();
	return NULL;
}

static void *finds_out_although_cancelled(void *arg)
{
	struct talk *t = arg;

	check_int(pthread_cancel(pthread_self()), 0);
	post(&t->e, IBV_WR_RDMA_WRITE, t->mr, t->mine, LENGTH, (void *)(uintptr_t)t->window.addr,
		t->window.rkey);
	wait_for(&t->e, IBV_WC_RETRY_EXC_ERR);
	dereg(t->mr);
	end_close(&t->e);
	atomic_store(&survived, true);
	pthread_testcancel();
	return NULL;
}

static void in_a_thread(void *(*function)(void *), struct talk *t)
{
	pthread_t thread;
	void *result;

	atomic_store(&survived, false);
	check_int(pthread_create(&thread, NULL, function, t), 0);
	check_int(pthread_join(thread, &result), 0);
	check(atomic_load(&survived));
}

static void nor_is_what_they_do_to_reach_another_process(void)
{
	struct peer peer = peer_start(serves, NULL);
	struct talk t = { .mine = fresh(LENGTH) };

	end_open(&t.e, NULL);
	t.mr = reg(&t.e, t.mine, LENGTH, LOCAL | ODP);
	exchange(&t.e, peer.sock);
	hear(peer.sock, &t.window, sizeof(t.window));
	in_a_thread(talks_although_cancelled, &t);
	tell(peer.sock, "q", 1);
	peer_done(&peer);
	in_a_thread(finds_out_although_cancelled, &t);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_thread_that_waits_for_a_completion_can_be_cancelled),
		CASE(a_thread_that_waits_for_news_can_be_cancelled),
		CASE(no_other_verb_is_a_cancellation_point),
		CASE(nor_is_what_they_do_to_reach_another_process),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

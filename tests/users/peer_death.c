/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The other process dies, stops, or leaves. A killed peer's partners get their requests back in error,
 * promptly, also when a forked child of it lives on and keeps its descriptors; a stopped peer is waited for;
 * what was received and completed before an exit counts as sent.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (1024 * 1024ul)

/* Offers a region, then does as arg says. */
enum behaviour { SIT, SIT_WITH_CHILD };

static void serve(int sock, void *arg)
{
	enum behaviour *how = arg;
	struct window w;
	struct ibv_mr *mr;
	struct end e;

	end_open(&e, NULL);
	mr = reg(&e, fresh(LENGTH), LENGTH, REMOTE | ODP);
	w = window_of(mr);
	exchange(&e, sock);
	tell(sock, &w, sizeof(w));
	if (*how == SIT_WITH_CHILD) {
		pid_t child = fork();

		check_sys(child >= 0);
		if (!child) {
			nap(4000);
			_exit(0);
		}
		tell(sock, &child, sizeof(child));
	}
	for (;;)
		pause();
}

/* All that is outstanding, and one request posted later, complete in error; returns the seconds that took. */
static double fail_all(
	struct end *e, int outstanding, struct ibv_mr *here, void *mine, const struct window *w)
{
	double begin = now();
	int errors = 0, good = 0;

	for (int i = 0; i < outstanding; i++) {
		struct ibv_wc wc = wait_any(e);

		if (wc.status == IBV_WC_SUCCESS) {
			check_int(errors, 0);
			good++;
			continue;
		}
		check_int(wc.status, errors ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
		errors++;
	}
	check(errors > 0);
	check_int(state_of(e->qp), IBV_QPS_ERR);
	post(e, IBV_WR_RDMA_WRITE, here, mine, 8, (void *)(uintptr_t)w->addr, w->rkey);
	wait_for(e, IBV_WC_WR_FLUSH_ERR);
	return now() - begin;
}

static void kill_in_the_middle(enum behaviour how)
{
	struct peer peer = peer_start(serve, &how);
	char *mine = fresh(LENGTH);
	struct ibv_mr *here;
	struct window w;
	struct end e;
	pid_t child = 0;
	int outstanding = 0, status;
	double end = now() + 0.3;

	end_open(&e, NULL);
	here = reg(&e, mine, LENGTH, LOCAL);
	exchange(&e, peer.sock);
	hear(peer.sock, &w, sizeof(w));
	if (how == SIT_WITH_CHILD)
		hear(peer.sock, &child, sizeof(child));
	/* Keep 16 megabytes in flight for a while, then kill. */
	while (now() < end) {
		struct ibv_wc wc;

		while (outstanding < 16) {
			post(&e, outstanding % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, here, mine, LENGTH,
				(void *)(uintptr_t)w.addr, w.rkey);
			outstanding++;
		}
		while (ibv_poll_cq(e.cq, 1, &wc) > 0) {
			check_int(wc.status, IBV_WC_SUCCESS);
			outstanding--;
		}
	}
	while (outstanding < 16) {
		post(&e, IBV_WR_RDMA_WRITE, here, mine, LENGTH, (void *)(uintptr_t)w.addr, w.rkey);
		outstanding++;
	}
	check_sys(kill(peer.pid, SIGKILL) == 0);
	/* All of them may have been through already, if this thread had to wait for a processor: one that was
	 * not. */
	post(&e, IBV_WR_RDMA_WRITE, here, mine, LENGTH, (void *)(uintptr_t)w.addr, w.rkey);
	outstanding++;
	/* Promptly: far below any timeout that a lossy wire would need. */
	check(fail_all(&e, outstanding, here, mine, &w) < 3);
	status = peer_wait(&peer);
	check(WIFSIGNALED(status));
	if (child)
		check_sys(kill(child, SIGKILL) == 0);
	/* And this side is as good as new. */
	dereg(here);
	end_close(&e);
	{
		struct pair p;

		pair_open(&p, NULL);
		post_recv(&p.b, NULL, NULL, 0);
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		wait_for(&p.a, IBV_WC_SUCCESS);
		pair_close(&p);
	}
}

static void killing_the_peer_fails_its_partners_requests_promptly(void)
{
	kill_in_the_middle(SIT);
}

static void a_forked_child_of_the_killed_peer_does_not_keep_it_alive(void)
{
	kill_in_the_middle(SIT_WITH_CHILD);
}

static void a_killed_peer_is_noticed_by_who_sleeps_on_events(void)
{
	enum behaviour how = SIT;
	struct peer peer = peer_start(serve, &how);
	struct options opt = { .events = true };
	char *mine = fresh(LENGTH);
	struct ibv_mr *here;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	struct window w;
	struct end e;
	void *context;

	end_open(&e, &opt);
	here = reg(&e, mine, LENGTH, LOCAL);
	exchange(&e, peer.sock);
	hear(peer.sock, &w, sizeof(w));
	check_int(ibv_req_notify_cq(e.cq, 0), 0);
	check_sys(kill(peer.pid, SIGSTOP) == 0);
	for (int i = 0; i < 4; i++)
		post(&e, IBV_WR_RDMA_READ, here, mine, LENGTH, (void *)(uintptr_t)w.addr, w.rkey);
	check_sys(kill(peer.pid, SIGKILL) == 0);
	check_int(ibv_get_cq_event(e.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	do
		wc = wait_any(&e);
	while (wc.status == IBV_WC_SUCCESS);
	check_int(wc.status, IBV_WC_RETRY_EXC_ERR);
	peer_wait(&peer);
	dereg(here);
	end_close(&e);
}

static void a_stopped_peer_is_waited_for(void)
{
	enum behaviour how = SIT;
	struct peer peer = peer_start(serve, &how);
	/* A lossy wire would give up after 7 times 67 ms. */
	struct options opt = { .timeout = 14 };
	char *mine = fresh(LENGTH);
	struct ibv_mr *here;
	struct ibv_wc wc;
	struct window w;
	struct end e;

	end_open(&e, &opt);
	here = reg(&e, mine, LENGTH, LOCAL);
	exchange(&e, peer.sock);
	hear(peer.sock, &w, sizeof(w));
	check_sys(kill(peer.pid, SIGSTOP) == 0);
	nap(50);
	for (int i = 0; i < 8; i++)
		post(&e, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, here, mine, LENGTH,
			(void *)(uintptr_t)w.addr, w.rkey);
	check(!poll_for(&e, &wc, 1500));
	check_int(state_of(e.qp), IBV_QPS_RTS);
	check_sys(kill(peer.pid, SIGCONT) == 0);
	for (int i = 0; i < 8; i++)
		wait_for(&e, IBV_WC_SUCCESS);
	check_sys(kill(peer.pid, SIGKILL) == 0);
	peer_wait(&peer);
	dereg(here);
	end_close(&e);
}

/* Where packets may be lost, nobody can tell a stopped peer from them. */
static void on_an_impaired_fabric_a_stopped_peer_is_given_up(void)
{
	enum behaviour how = SIT;
	struct options opt = { .retry_set = true, .retry_cnt = 1, .rnr_retry = 7, .timeout = 8 };
	struct peer peer;
	struct end e;

	check_sys(setenv("UNPIN_LOSS", "0.0001%", 1) == 0);
	peer = peer_start(serve, &how);
	end_open(&e, &opt);
	exchange(&e, peer.sock);
	check_sys(kill(peer.pid, SIGSTOP) == 0);
	post(&e, IBV_WR_RDMA_WRITE, NULL, NULL, 0, NULL, 0);
	/* It may have been through before the peer stopped; this one cannot. */
	check_int(waitpid(peer.pid, NULL, WUNTRACED), peer.pid);
	post(&e, IBV_WR_RDMA_WRITE, NULL, NULL, 0, NULL, 0);
	for (;;) {
		struct ibv_wc wc = wait_any(&e);

		if (wc.status == IBV_WC_SUCCESS)
			continue;
		check_int(wc.status, IBV_WC_RETRY_EXC_ERR);
		break;
	}
	check_sys(kill(peer.pid, SIGKILL) == 0);
	peer_wait(&peer);
	end_close(&e);
}

/* Tells its address, hears ours, connects, and sits. */
static void meet_and_sit(int sock, void *arg)
{
	struct address mine, theirs;
	struct end e;

	(void)arg;
	end_open(&e, NULL);
	mine = end_address(&e);
	tell(sock, &mine, sizeof(mine));
	hear(sock, &theirs, sizeof(theirs));
	end_connect(&e, &theirs);
	post(&e, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	for (;;)
		pause();
}

static void it_may_die_at_any_moment_of_the_first_contact(void)
{
	for (int round = 0; round < 40; round++) {
		struct peer peer = peer_start(meet_and_sit, NULL);
		struct address mine, theirs;
		struct end e;
		double begin;

		end_open(&e, NULL);
		mine = end_address(&e);
		hear(peer.sock, &theirs, sizeof(theirs));
		if (round % 4 == 0)
			check_sys(kill(peer.pid, SIGKILL) == 0);
		else
			tell(peer.sock, &mine, sizeof(mine));
		if (round % 4 == 1)
			check_sys(kill(peer.pid, SIGKILL) == 0);
		end_connect(&e, &theirs);
		if (round % 4 == 2)
			check_sys(kill(peer.pid, SIGKILL) == 0);
		/* Nobody receives it, and RNR retries have no end: only the death can end it. */
		post(&e, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		if (round % 4 == 3) {
			usleep((useconds_t)round * 50);
			check_sys(kill(peer.pid, SIGKILL) == 0);
		}
		if (round % 3 == 0)
			peer_wait(&peer);
		begin = now();
		wait_for(&e, IBV_WC_RETRY_EXC_ERR);
		check(now() - begin < 5);
		if (round % 3)
			peer_wait(&peer);
		end_close(&e);
	}
}

static void a_request_posted_after_the_death_fails_too(void)
{
	struct peer peer = peer_start(meet_and_sit, NULL);
	struct address mine, theirs;
	struct end e;

	end_open(&e, NULL);
	mine = end_address(&e);
	hear(peer.sock, &theirs, sizeof(theirs));
	tell(peer.sock, &mine, sizeof(mine));
	end_connect(&e, &theirs);
	nap(50);
	check_sys(kill(peer.pid, SIGKILL) == 0);
	peer_wait(&peer);
	/* The device has learned it by now, and has nothing else to do when the request comes. */
	nap(100);
	post(&e, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	wait_for(&e, IBV_WC_RETRY_EXC_ERR);
	check_int(state_of(e.qp), IBV_QPS_ERR);
	end_close(&e);
}

#define MESSAGES 64

/* Receives all messages and is gone the moment it has seen the last completion. */
static void receive_and_exit(int sock, void *arg)
{
	struct options opt = { .recv_wr = MESSAGES };
	struct ibv_mr *mr;
	char *memory = fresh(MESSAGES * PAGE);
	struct end e;

	end_open(&e, &opt);
	mr = reg(&e, memory, MESSAGES * PAGE, LOCAL | (*(int *)arg ? ODP : 0));
	for (size_t i = 0; i < MESSAGES; i++)
		post_recv(&e, mr, memory + i * PAGE, PAGE);
	exchange(&e, sock);
	for (size_t i = 0; i < MESSAGES; i++)
		wait_for(&e, IBV_WC_SUCCESS);
	_exit(0);
}

static void the_last_receiver_may_exit_at_once(void)
{
	for (int round = 0; round < 20; round++) {
		int odp = round % 2;
		struct peer peer = peer_start(receive_and_exit, &odp);
		struct options opt = { .send_wr = MESSAGES };
		char *mine = fresh(PAGE);
		struct ibv_mr *here;
		struct end e;

		end_open(&e, &opt);
		here = reg(&e, mine, PAGE, LOCAL);
		exchange(&e, peer.sock);
		for (int i = 0; i < MESSAGES; i++)
			post(&e, IBV_WR_SEND, here, mine, i % 3 ? PAGE : 1, NULL, 0);
		/* Let it be gone before the first look, now and then. */
		if (round % 4 == 0)
			peer_done(&peer);
		for (int i = 0; i < MESSAGES; i++)
			wait_for(&e, IBV_WC_SUCCESS);
		if (round % 4)
			peer_done(&peer);
		dereg(here);
		end_close(&e);
		drop(mine, PAGE);
	}
}

static void leave_properly(int sock, void *arg)
{
	struct end e;

	(void)arg;
	end_open(&e, NULL);
	exchange(&e, sock);
	end_close(&e);
	meet(sock);
	meet(sock);
}

static void a_peer_that_destroyed_its_queue_pair_is_an_error_too(void)
{
	struct peer peer = peer_start(leave_properly, NULL);
	struct options opt = { .retry_set = true, .retry_cnt = 1, .rnr_retry = 7, .timeout = 10 };
	struct end e;

	end_open(&e, &opt);
	exchange(&e, peer.sock);
	meet(peer.sock);
	post(&e, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	wait_for(&e, IBV_WC_RETRY_EXC_ERR);
	meet(peer.sock);
	peer_done(&peer);
	end_close(&e);
}

/* Connected to one queue pair of the other process, then to another one. */
static void move_on(int sock, void *arg)
{
	struct address next, own;
	struct end e;

	(void)arg;
	end_open(&e, NULL);
	exchange(&e, sock);
	hear(sock, &next, sizeof(next));
	end_reset(&e);
	end_connect(&e, &next);
	post_recv(&e, NULL, NULL, 0);
	own = end_address(&e);
	tell(sock, &own, sizeof(own));
	wait_for(&e, IBV_WC_SUCCESS);
	meet(sock);
	end_close(&e);
}

static void a_peer_that_is_connected_elsewhere_is_an_error_too(void)
{
	struct peer peer = peer_start(move_on, NULL);
	struct options opt = { .retry_set = true, .retry_cnt = 1, .rnr_retry = 7, .timeout = 10 };
	struct address own, its;
	struct end old, next;

	end_open(&old, &opt);
	end_open(&next, NULL);
	exchange(&old, peer.sock);
	/* One request that the peer has put off, since it has no receive; the other comes when it has moved
	 * on. */
	post(&old, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	wait_counter(getpid(), "rnr_nak_rcvd", 1);
	own = end_address(&next);
	tell(peer.sock, &own, sizeof(own));
	hear(peer.sock, &its, sizeof(its));
	post(&old, IBV_WR_RDMA_WRITE, NULL, NULL, 0, NULL, 0);
	wait_for(&old, IBV_WC_RETRY_EXC_ERR);
	wait_for(&old, IBV_WC_WR_FLUSH_ERR);
	end_connect(&next, &its);
	post(&next, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	wait_for(&next, IBV_WC_SUCCESS);
	meet(peer.sock);
	peer_done(&peer);
	end_close(&old);
	end_close(&next);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(killing_the_peer_fails_its_partners_requests_promptly),
		CASE(a_forked_child_of_the_killed_peer_does_not_keep_it_alive),
		CASE(a_killed_peer_is_noticed_by_who_sleeps_on_events),
		CASE(it_may_die_at_any_moment_of_the_first_contact),
		CASE(a_request_posted_after_the_death_fails_too),
		CASE(a_stopped_peer_is_waited_for),
		CASE(on_an_impaired_fabric_a_stopped_peer_is_given_up),
		CASE(the_last_receiver_may_exit_at_once),
		CASE(a_peer_that_destroyed_its_queue_pair_is_an_error_too),
		CASE(a_peer_that_is_connected_elsewhere_is_an_error_too),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

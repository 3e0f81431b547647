/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Programs poll on memory: the last word of a message must not be seen before the others. A thread reads the
 * target while writes with a counter in every word arrive: when it sees a count in the last word, it must
 * find at least that count in all words. Across two processes, for every size class and for each way in which
 * the device copies.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"

#define LARGEST (1024 * 1024ul)
#define MS	120

static const size_t sizes[] = { 8, 16, 32, 64, 256, 1024, 1032, 2048, 4096, 4104, 8192, 65536, LARGEST };

enum way { PINNED, ON_DEMAND, UNALIGNED, SEND_PINNED, SEND_ON_DEMAND, BLOCKED_SIGNALS };

struct plan {
	enum way way;
};

/* Writes count into every word of the message, again and again. */
static void writer(int sock, void *arg)
{
	struct plan *plan = arg;
	_Atomic uint64_t *mine = fresh(LARGEST + PAGE);
	struct ibv_mr *here;
	struct window w;
	struct end e;
	uint64_t count = 1;
	size_t size;

	end_open(&e, NULL);
	here = reg(&e, (void *)mine, LARGEST + PAGE, LOCAL);
	exchange(&e, sock);
	hear(sock, &w, sizeof(w));
	for (;;) {
		double end;

		hear(sock, &size, sizeof(size));
		if (!size)
			break;
		end = now() + MS / 1e3;
		do {
			for (size_t i = 0; i < size / 8; i++)
				atomic_store_explicit(&mine[i], count, memory_order_relaxed);
			post(&e,
				plan->way == SEND_PINNED || plan->way == SEND_ON_DEMAND ? IBV_WR_SEND
											: IBV_WR_RDMA_WRITE,
				here, (void *)mine, size, (void *)(uintptr_t)w.addr, w.rkey);
			wait_for(&e, IBV_WC_SUCCESS);
			count++;
		} while (now() < end);
		tell(sock, &count, sizeof(count));
	}
	dereg(here);
	end_close(&e);
}

/* One reading: the last word first, then the others from the end; all must be at least as new. */
static bool look(const _Atomic uint64_t *words, size_t n, uint64_t *newest)
{
	uint64_t last = atomic_load_explicit(&words[n - 1], memory_order_acquire);

	for (size_t i = n - 1; i-- > 0;)
		if (atomic_load_explicit(&words[i], memory_order_relaxed) < last) {
			fprintf(stderr, "word %zu of %zu is older than the last one, %llu\n", i, n,
				(unsigned long long)last);
			return false;
		}
	*newest = last;
	return true;
}

struct reader {
	const _Atomic uint64_t *words;
	atomic_size_t n;
	atomic_bool stop, broken, resting;
	atomic_ulong seen;
	pthread_t thread;
};

static void *reading(void *arg)
{
	struct reader *r = arg;
	uint64_t newest = 0, before = 0;

	while (!r->stop) {
		size_t n = r->n;

		if (!n) {
			r->resting = true;
			sched_yield();
			continue;
		}
		r->resting = false;
		if (!look(r->words, n, &newest))
			r->broken = true;
		if (newest != before)
			r->seen++;
		before = newest;
	}
	return NULL;
}

/* True when the writer has said that it is through with a size. */
static bool through(int sock)
{
	uint64_t count;
	ssize_t n = recv(sock, &count, sizeof(count), MSG_DONTWAIT);

	check_sys(n == (ssize_t)sizeof(count) || (n < 0 && errno == EAGAIN));
	return n > 0;
}

static void in_order(enum way way)
{
	struct plan plan = { way };
	struct peer peer = peer_start(writer, &plan);
	bool on_demand = way != PINNED && way != SEND_PINNED,
	     send = way == SEND_PINNED || way == SEND_ON_DEMAND;
	char *area = fresh(LARGEST + 2 * PAGE), *memory = area + (way == UNALIGNED ? 4096 - 24 : 0);
	struct reader r = { .words = (void *)memory };
	const size_t nothing = 0;
	struct ibv_mr *there;
	struct window w;
	struct end e;
	sigset_t all;

	if (way == BLOCKED_SIGNALS) {
		sigfillset(&all);
		check_int(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
	}
	end_open(&e, NULL);
	there = reg(&e, area, LARGEST + 2 * PAGE, REMOTE | (on_demand ? ODP : 0));
	exchange(&e, peer.sock);
	w = window_of(there);
	w.addr = (uintptr_t)memory;
	tell(peer.sock, &w, sizeof(w));
	for (int k = 0; send && k < 64; k++)
		post_recv(&e, there, memory, LARGEST);
	check_int(pthread_create(&r.thread, NULL, reading, &r), 0);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		/* By turns this thread drives the device, and the device's own thread has to. */
		bool polls = send || way == BLOCKED_SIGNALS || i % 2;
		struct ibv_wc wc;

		while (!r.resting)
			sched_yield();
		memset(memory, 0, LARGEST);
		r.resting = false;
		r.n = sizes[i] / 8;
		tell(peer.sock, &sizes[i], sizeof(sizes[i]));
		while (!through(peer.sock)) {
			int n = polls ? ibv_poll_cq(e.cq, 1, &wc) : 0;

			if (n > 0) {
				check_int(wc.status, IBV_WC_SUCCESS);
				post_recv(&e, there, memory, LARGEST);
			}
			if (!polls)
				nap(5);
		}
		r.n = 0;
		check(!r.broken);
	}
	r.stop = true;
	check_int(pthread_join(r.thread, NULL), 0);
	check(r.seen > 100);
	tell(peer.sock, &nothing, sizeof(nothing));
	peer_done(&peer);
	dereg(there);
	end_close(&e);
}

static void writes_to_pinned_memory_arrive_in_order(void)
{
	in_order(PINNED);
}

static void writes_to_on_demand_memory_arrive_in_order(void)
{
	in_order(ON_DEMAND);
}

static void writes_that_begin_in_the_middle_of_a_page_arrive_in_order(void)
{
	in_order(UNALIGNED);
}

static void sends_to_pinned_memory_arrive_in_order(void)
{
	in_order(SEND_PINNED);
}

static void sends_to_on_demand_memory_arrive_in_order(void)
{
	in_order(SEND_ON_DEMAND);
}

static void writes_driven_by_a_thread_that_blocks_signals_arrive_in_order(void)
{
	in_order(BLOCKED_SIGNALS);
}

/* A WRITE of data and behind it a WRITE of a flag: who sees the flag sees the data. */
static void a_flag_written_behind_the_data_is_seen_behind_it(void)
{
	char *mine = fresh(LARGEST + PAGE), *memory = fresh(LARGEST + PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, LARGEST + PAGE, LOCAL);
	there = reg(&p.b, memory, LARGEST + PAGE, REMOTE | ODP);
	for (unsigned i = 1; i <= 300; i++) {
		size_t size = i % 10 ? 64u << (i % 8) : LARGEST;
		_Atomic uint64_t *flag = (void *)(memory + LARGEST);
		double end = now() + WAIT_SECONDS;

		fill(mine, size, i);
		*(uint64_t *)(mine + LARGEST) = i;
		check_int(try_post(&p.a, IBV_WR_RDMA_WRITE, here, mine, size, memory, there->rkey, 0), 0);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine + LARGEST, 8, memory + LARGEST, there->rkey);
		while (atomic_load(flag) != i)
			check(now() < end);
		check_filled(memory, size, i);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(writes_to_pinned_memory_arrive_in_order),
		CASE(writes_to_on_demand_memory_arrive_in_order),
		CASE(writes_that_begin_in_the_middle_of_a_page_arrive_in_order),
		CASE(sends_to_pinned_memory_arrive_in_order),
		CASE(sends_to_on_demand_memory_arrive_in_order),
		CASE(writes_driven_by_a_thread_that_blocks_signals_arrive_in_order),
		CASE(a_flag_written_behind_the_data_is_seen_behind_it),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

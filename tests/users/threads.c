/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Every verb may be called by any thread at any time. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "pair.h"

#define THREADS 6
#define LENGTH	(16 * PAGE)

struct worker {
	struct pair pair;
	unsigned number;
	pthread_t thread;
};

static void *transfers(void *arg)
{
	struct worker *w = arg;
	char *mine = fresh(LENGTH), *memory = fresh(LENGTH);
	struct ibv_mr *here, *there;

	pair_open(&w->pair, NULL);
	for (unsigned i = 0; i < 60; i++) {
		here = reg(&w->pair.a, mine, LENGTH, LOCAL | (i % 2 ? ODP : 0));
		there = reg(&w->pair.b, memory, LENGTH, REMOTE | (i % 3 ? ODP : 0));
		fill(mine, LENGTH, w->number * 100 + i);
		if (i % 5 == 0)
			post_recv(&w->pair.b, there, memory, LENGTH);
		post(&w->pair.a, i % 5 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, here, mine, LENGTH, memory,
			there->rkey);
		wait_for(&w->pair.a, IBV_WC_SUCCESS);
		if (i % 5 == 0)
			wait_for(&w->pair.b, IBV_WC_SUCCESS);
		check_filled(memory, LENGTH, w->number * 100 + i);
		dereg(here);
		dereg(there);
		if (i % 7 == 0)
			pair_reconnect(&w->pair);
	}
	pair_close(&w->pair);
	return NULL;
}

static void threads_with_devices_of_their_own_do_not_disturb_each_other(void)
{
	struct worker w[THREADS];

	for (unsigned i = 0; i < THREADS; i++) {
		w[i].number = i;
		check_int(pthread_create(&w[i].thread, NULL, transfers, &w[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		check_int(pthread_join(w[i].thread, NULL), 0);
}

struct shared {
	struct pair p;
	struct ibv_mr *here, *there;
	char *mine, *memory;
	atomic_int outstanding;
	atomic_ulong posted, completed;
	atomic_bool stop;
};

static void *posts(void *arg)
{
	struct shared *s = arg;

	for (int i = 0; i < 3000; i++) {
		int err;

		while (atomic_fetch_add(&s->outstanding, 1) >= 100) {
			atomic_fetch_sub(&s->outstanding, 1);
			nap(0);
		}
		err = try_post(&s->p.a, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, s->here, s->mine,
			64 + (size_t)i % 5000, s->memory, s->there->rkey, IBV_SEND_SIGNALED);
		check_int(err, 0);
		s->posted++;
	}
	return NULL;
}

static void *polls(void *arg)
{
	struct shared *s = arg;
	struct ibv_wc wc[7];

	while (!s->stop || s->completed < s->posted) {
		int n = ibv_poll_cq(s->p.a.cq, 7, wc);

		check(n >= 0);
		for (int i = 0; i < n; i++)
			check_int(wc[i].status, IBV_WC_SUCCESS);
		s->completed += (unsigned long)n;
		s->outstanding -= n;
		if (!n)
			nap(0);
	}
	return NULL;
}

static void one_queue_pair_may_be_posted_to_and_polled_by_many_threads(void)
{
	static struct shared s;
	pthread_t poster[3], poller[2];

	pair_open(&s.p, NULL);
	s.mine = fresh(LENGTH);
	s.memory = fresh(LENGTH);
	s.here = reg(&s.p.a, s.mine, LENGTH, LOCAL);
	s.there = reg(&s.p.b, s.memory, LENGTH, REMOTE | ODP);
	for (int i = 0; i < 2; i++)
		check_int(pthread_create(&poller[i], NULL, polls, &s), 0);
	for (int i = 0; i < 3; i++)
		check_int(pthread_create(&poster[i], NULL, posts, &s), 0);
	for (int i = 0; i < 3; i++)
		check_int(pthread_join(poster[i], NULL), 0);
	s.stop = true;
	for (int i = 0; i < 2; i++)
		check_int(pthread_join(poller[i], NULL), 0);
	check_int(s.completed, 9000);
	dereg(s.here);
	dereg(s.there);
	pair_close(&s.p);
}

static void *adds(void *arg)
{
	struct shared *s = arg;
	/* The far end lies in the domain of the shared region. */
	struct end mine, theirs = s->p.b;
	char *result = fresh(PAGE);
	struct address a, b;
	struct ibv_mr *here;

	end_open(&mine, NULL);
	end_make_qp(&theirs);
	a = end_address(&mine);
	b = end_address(&theirs);
	end_connect(&mine, &b);
	end_connect(&theirs, &a);
	here = reg(&mine, result, PAGE, LOCAL);
	for (int i = 0; i < 500; i++) {
		struct ibv_sge sge = { (uintptr_t)result, 8, here->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IBV_SEND_SIGNALED },
				   *bad;

		wr.wr.atomic.remote_addr = (uintptr_t)s->memory;
		wr.wr.atomic.rkey = s->there->rkey;
		wr.wr.atomic.compare_add = 1;
		check_int(ibv_post_send(mine.qp, &wr, &bad), 0);
		wait_for(&mine, IBV_WC_SUCCESS);
	}
	check_int(ibv_destroy_qp(theirs.qp), 0);
	dereg(here);
	end_close(&mine);
	return NULL;
}

static void *drops(void *arg)
{
	struct shared *s = arg;

	/* The page beside the counter comes and goes. */
	while (!s->stop)
		madvise(s->memory + PAGE, PAGE, MADV_DONTNEED);
	return NULL;
}

static void atomic_additions_of_many_queue_pairs_lose_nothing(void)
{
	static struct shared s;
	pthread_t thread[4], dropper;

	pair_open(&s.p, NULL);
	s.memory = fresh(LENGTH);
	s.there = reg(&s.p.b, s.memory, LENGTH, REMOTE | ODP);
	check_int(pthread_create(&dropper, NULL, drops, &s), 0);
	for (int i = 0; i < 4; i++)
		check_int(pthread_create(&thread[i], NULL, adds, &s), 0);
	/* The program's own processors add too: the device's atomics are theirs. */
	for (int i = 0; i < 5000; i++)
		__atomic_fetch_add((uint64_t *)s.memory, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 4; i++)
		check_int(pthread_join(thread[i], NULL), 0);
	s.stop = true;
	check_int(pthread_join(dropper, NULL), 0);
	check_int(*(uint64_t *)s.memory, 5000 + 4 * 500);
	dereg(s.there);
	pair_close(&s.p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(threads_with_devices_of_their_own_do_not_disturb_each_other),
		CASE(one_queue_pair_may_be_posted_to_and_polled_by_many_threads),
		CASE(atomic_additions_of_many_queue_pairs_lose_nothing),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Random verbs: objects of every kind made, used rightly and wrongly, and unmade under traffic, by one thread
 * and by several, on a fabric that is whole and on one that loses, reorders and delays. The same seed makes
 * the same calls as long as one thread makes them; how long a run is, is counted in steps.
 *
 *   verbs_fuzz_test                        the seeds that the suite runs; FUZZ_SEEDS in the environment: so
 * many verbs_fuzz_test SEED STEPS THREADS [impaired]
 *
 * What must hold is in fuzz_book.h; beside that, nothing is written where no key allows it, every call
 * returns, all that is left at the end can be flushed, and everything can be unmade.
 */
#include "client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "fuzz.h"

#define WAIT_SECONDS 60 /* only ever reached by a failure */
#define PATTERN	     0x5a

static void *steps(void *arg)
{
	struct fuzz_hand *h = arg;

	for (unsigned i = 0; i < book_run.steps; i++)
		fuzz_step(h);
	return NULL;
}

static uint8_t *memory(size_t n)
{
	uint8_t *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED, "mmap");
	return p;
}

static void open_world(struct fuzz *f)
{
	memset(f, 0, sizeof(*f));
	f->ctx = client_open();
	must(ibv_query_gid(f->ctx, 1, 0, &f->gid) == 0, "ibv_query_gid");
	for (int i = 0; i < 2; i++)
		f->pd[i] = ibv_alloc_pd(f->ctx);
	f->channel = ibv_create_comp_channel(f->ctx);
	must(f->pd[0] && f->pd[1] && f->channel, "domains and a channel");
	for (unsigned i = 0; i < FUZZ_CQS; i++) {
		pthread_rwlock_init(&f->cq[i].lock, NULL);
		fuzz_make_cq(f, i);
	}
	for (int i = 0; i < FUZZ_QPS; i++)
		pthread_rwlock_init(&f->qp[i].lock, NULL);
	for (int i = 0; i < FUZZ_MRS; i++)
		pthread_rwlock_init(&f->mr[i].lock, NULL);
	for (int i = 0; i < FUZZ_BUFS; i++)
		f->buf[i] = memory(FUZZ_BUF);
	f->guard = memory(3 * FUZZ_GUARD);
	memset(f->guard, PATTERN, 3 * FUZZ_GUARD);
}

static void check_guard(const struct fuzz *f)
{
	for (size_t i = 0; i < 3 * FUZZ_GUARD; i++)
		must(f->guard[i] == PATTERN, "byte %zu of the guard was written", i);
}

/* All queue pairs go to ERR, and what must complete does. */
static void flush(struct fuzz_hand *h)
{
	time_t end = time(NULL) + WAIT_SECONDS;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct fuzz *f = h->f;
	bool waits = true;

	for (int i = 0; i < FUZZ_QPS; i++)
		if (f->qp[i].qp)
			ibv_modify_qp(f->qp[i].qp, &a, IBV_QP_STATE); /* refused in RESET: nothing is out */
	while (waits) {
		waits = false;
		for (unsigned i = 0; i < FUZZ_CQS; i++)
			fuzz_poll(h, i);
		for (int i = 0; i < FUZZ_QPS; i++)
			waits |= f->qp[i].qp && !f->qp[i].life->may_lose && life_waits(f->qp[i].life);
		must(!waits || time(NULL) < end, "requests of queue pairs in ERR do not complete");
	}
}

static void close_world(struct fuzz *f)
{
	for (unsigned i = 0; i < FUZZ_QPS; i++) {
		fuzz_unmake_qp(f, i);
		pthread_rwlock_destroy(&f->qp[i].lock);
	}
	for (int i = 0; i < FUZZ_MRS; i++) {
		if (f->mr[i].mr)
			fuzz_unmake_mr(f, &f->mr[i]);
		pthread_rwlock_destroy(&f->mr[i].lock);
	}
	fuzz_take_events(f);
	for (int i = 0; i < FUZZ_CQS; i++) {
		must(ibv_destroy_cq(f->cq[i].cq) == 0, "ibv_destroy_cq");
		pthread_rwlock_destroy(&f->cq[i].lock);
	}
	must(ibv_destroy_comp_channel(f->channel) == 0, "ibv_destroy_comp_channel");
	for (int i = 0; i < 2; i++)
		must(ibv_dealloc_pd(f->pd[i]) == 0, "ibv_dealloc_pd");
	must(ibv_close_device(f->ctx) == 0, "ibv_close_device");
	for (int i = 0; i < FUZZ_BUFS; i++)
		munmap(f->buf[i], FUZZ_BUF);
	munmap(f->guard, 3 * FUZZ_GUARD);
}

static void run(uint64_t seed, unsigned count, unsigned threads, bool impaired)
{
	static struct fuzz f;
	struct fuzz_hand hand[8];
	pthread_t thread[8];
	uint64_t good, bad;

	book_run = (struct book_run){ seed, count, threads, impaired ? "impaired" : "whole" };
	setenv("UNPIN_LOSS", impaired ? "3%" : "0", 1);
	setenv("UNPIN_REORDER", impaired ? "10%" : "0", 1);
	setenv("UNPIN_DELAY", impaired ? "50us" : "0", 1);
	setenv("UNPIN_SEED", "1", 1);
	print_message(
		"seed %" PRIu64 ", %u steps, %u threads, %s fabric\n", seed, count, threads, book_run.fabric);
	open_world(&f);
	for (unsigned i = 0; i < threads; i++)
		hand[i] = (struct fuzz_hand){ &f, seed * 1000003 + i };
	for (unsigned i = 1; i < threads; i++)
		must(pthread_create(&thread[i], NULL, steps, &hand[i]) == 0, "pthread_create");
	steps(&hand[0]);
	for (unsigned i = 1; i < threads; i++)
		pthread_join(thread[i], NULL);
	flush(&hand[0]);
	check_guard(&f);
	close_world(&f);
	book_close(&good, &bad);
	print_message("%" PRIu64 " requests succeeded, %" PRIu64 " failed\n", good, bad);
	must(good > 0 || count < 1000, "nothing succeeds");
}

static unsigned seeds = 3;

static void all_seeds(unsigned threads, bool impaired)
{
	for (unsigned i = 1; i <= seeds; i++)
		run(i, 12000 / threads, threads, impaired);
}

static void one_thread_on_a_whole_fabric(void **state)
{
	(void)state;
	all_seeds(1, false);
}

static void one_thread_on_an_impaired_fabric(void **state)
{
	(void)state;
	all_seeds(1, true);
}

static void threads_on_a_whole_fabric(void **state)
{
	(void)state;
	all_seeds(3, false);
}

static void threads_on_an_impaired_fabric(void **state)
{
	(void)state;
	all_seeds(3, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread_on_a_whole_fabric),
		cmocka_unit_test(one_thread_on_an_impaired_fabric),
		cmocka_unit_test(threads_on_a_whole_fabric),
		cmocka_unit_test(threads_on_an_impaired_fabric),
	};
	const char *env = getenv("FUZZ_SEEDS");

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 3) {
		unsigned threads = (unsigned)strtoul(argv[3], NULL, 0);

		run(strtoull(argv[1], NULL, 0), (unsigned)strtoul(argv[2], NULL, 0),
			threads < 1 || threads > 8 ? 1 : threads, argc > 4);
		return 0;
	}
	if (env && *env)
		seeds = (unsigned)strtoul(env, NULL, 0);
	return cmocka_run_group_tests_name("verbs/fuzz", tests, NULL, NULL);
}

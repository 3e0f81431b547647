/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Prefetch, with a populate() that does what a test wants before, after or instead of its work (linked with
 * --wrap=populate), and threads that cannot be made (--wrap=pthread_create).
 */
#include "../small_pages.h"
#include "fixture.h"

#include <semaphore.h>

int __real_populate(void *addr, size_t len, bool write);
int __wrap_populate(void *addr, size_t len, bool write);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

static struct {
	_Atomic unsigned calls;
	_Atomic unsigned lose; /* this many calls are followed by an invalidation */
	_Atomic bool hold;     /* the next call stops: it posts in, and goes on by go */
	sem_t in, go;
} script;

static bool no_threads;

int __wrap_populate(void *addr, size_t len, bool write)
{
	int err;

	atomic_fetch_add(&script.calls, 1);
	if (atomic_exchange(&script.hold, false)) {
		sem_post(&script.in);
		sem_wait(&script.go);
	}
	err = __real_populate(addr, len, write);
	if (atomic_load(&script.lose)) {
		atomic_fetch_sub(&script.lose, 1);
		odp_space_invalidate(fx.space, (uintptr_t)addr, len, ODP_NOTIFIER);
	}
	return err;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

#define PAGES 2048u
/* The sanitizer of threads has no terabyte to give. */
#ifdef __SANITIZE_THREAD__
#define VAST (64ul << 30)
#else
#define VAST (1ul << 40)
#endif

static char *p, *whole;
static struct odp_region r;
static unsigned threads = 4;

static int setup(void **state)
{
	(void)state;
	atomic_store(&script.calls, 0);
	atomic_store(&script.lose, 0);
	atomic_store(&script.hold, false);
	sem_init(&script.in, 0, 0);
	sem_init(&script.go, 0, 0);
	no_threads = false;
	if (fixture_open(threads))
		return -1;
	interpose_observe(fixture_observer);
	whole = mmap(
		NULL, PAGES * PAGE + LEAF_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (whole == MAP_FAILED)
		return -1;
	p = (char *)(((uintptr_t)whole + LEAF_BYTES - 1) & ~(LEAF_BYTES - 1));
	region_open(&r, p, PAGES * PAGE, true);
	return 0;
}

static int one_thread(void **state)
{
	int err;

	threads = 1;
	err = setup(state);
	threads = 4;
	return err;
}

static int teardown(void **state)
{
	if (!atomic_load(&r.closing))
		odp_region_fini(&r);
	munmap(whole, PAGES * PAGE + LEAF_BYTES);
	return fixture_teardown(state);
}

#define NOW	  (ODP_PREFETCH_WAIT)
#define NOW_WRITE (ODP_PREFETCH_WAIT | ODP_PREFETCH_WRITE)

static int prefetch(unsigned page, unsigned pages, unsigned flags)
{
	return odp_prefetch(&r, (uintptr_t)p + page * PAGE, pages * PAGE, flags);
}

static unsigned count(unsigned from, unsigned to, enum page_state state)
{
	unsigned n = 0;

	for (unsigned i = from; i < to; i++)
		n += state_at(p + i * PAGE) == state;
	return n;
}

/* Until all that was queued is over. */
static void settle(void)
{
	for (;;) {
		bool over;

		fault_lock(&fx.space->faults);
		over = !fx.space->prefetches.len;
		fault_unlock(&fx.space->faults);
		if (over)
			return;
		sched_yield();
	}
}

/* ---- in the calling thread ---- */

static void what_is_prefetched_costs_no_fault(void **state)
{
	char *buf = calloc(600, PAGE);

	(void)state;
	assert_int_equal(prefetch(3, 600, NOW_WRITE), 0);
	assert_int_equal(count(0, PAGES, PAGE_VALID_RW), 600);
	assert_int_equal(copy_in(&r, p + 3 * PAGE, buf, 600 * PAGE), 0);
	assert_counter(r.odp, page_faults, 0);
	assert_counter(r.odp, page_faults_handled, 0);
	assert_counter(r.odp, faults_minor, 0);
	assert_counter(r.odp, faults_major, 0);
	assert_counter(r.odp, page_readahead, 0);
	assert_counter(r.odp, page_prefetch, 600);
	assert_counter(&fx.totals, page_prefetch, 600);
	assert_int_equal(fx.space->drivers, 0);
	free(buf);
}

static void bytes_count_as_the_pages_they_touch(void **state)
{
	(void)state;
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p + 4095, 2, NOW), 0);
	assert_int_equal(count(0, PAGES, PAGE_VALID_RO), 2);
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p + 5 * PAGE, 0, NOW), 0);
	assert_int_equal(state_at(p + 5 * PAGE), PAGE_INVALID);
}

static void for_reading_pages_become_read_only_and_for_writing_read_write(void **state)
{
	(void)state;
	assert_int_equal(prefetch(0, 8, NOW), 0);
	assert_int_equal(count(0, 8, PAGE_VALID_RO), 8);
	assert_int_equal(prefetch(0, 4, NOW_WRITE), 0);
	assert_int_equal(count(0, 4, PAGE_VALID_RW), 4);
	assert_int_equal(count(4, 8, PAGE_VALID_RO), 4);
	assert_counter(r.odp, page_prefetch, 12);
}

static void what_is_valid_is_not_populated_again(void **state)
{
	(void)state;
	assert_int_equal(prefetch(0, 100, NOW_WRITE), 0);
	atomic_store(&script.calls, 0);
	assert_int_equal(prefetch(0, 100, NOW_WRITE), 0);
	assert_int_equal(prefetch(0, 100, NOW), 0);
	assert_int_equal(script.calls, 0);
	assert_counter(r.odp, page_prefetch, 100);
}

static void a_hole_ends_it_and_what_comes_before_is_valid(void **state)
{
	(void)state;
	assert_int_equal(munmap(p + 700 * PAGE, PAGE), 0);
	assert_int_equal(prefetch(0, PAGES, NOW_WRITE), -EFAULT);
	assert_int_equal(count(0, 700, PAGE_VALID_RW), 700);
	assert_int_equal(count(700, PAGES, PAGE_INVALID), PAGES - 700);
	assert_int_equal(prefetch(701, 5, NOW_WRITE), 0);
}

static void what_the_mapping_forbids_ends_it(void **state)
{
	(void)state;
	assert_int_equal(mprotect(p + 300 * PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(prefetch(0, 600, NOW_WRITE), -EACCES);
	assert_int_equal(count(0, 300, PAGE_VALID_RW), 300);
	assert_int_equal(count(300, 600, PAGE_INVALID), 300);
	assert_int_equal(prefetch(300, 300, NOW), 0);
	assert_int_equal(mprotect(p + 301 * PAGE, PAGE, PROT_NONE), 0);
	assert_int_equal(prefetch(301, 1, NOW), -EACCES);
}

static void a_region_that_may_not_be_written_is_not_prefetched_for_writing(void **state)
{
	struct odp_region reading;

	(void)state;
	region_open(&reading, p, PAGES * PAGE, false);
	assert_int_equal(odp_prefetch(&reading, (uintptr_t)p, PAGE, NOW_WRITE), -EACCES);
	assert_int_equal(odp_prefetch(&reading, (uintptr_t)p, PAGE, NOW), 0);
	odp_region_fini(&reading);
}

/* An obstacle that only populate finds, with everything before and nothing behind. */
static void the_end_of_a_file_is_found_to_the_page(void **state)
{
	int fd = memfd_create("unpin-test", MFD_CLOEXEC);
	struct odp_region of_file;
	char *at;

	(void)state;
	assert_int_equal(ftruncate(fd, 77 * PAGE), 0);
	at = mmap(NULL, 256 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	region_open(&of_file, at, 256 * PAGE, true);
	assert_int_equal(odp_prefetch(&of_file, (uintptr_t)at, 256 * PAGE, NOW_WRITE), -EFAULT);
	for (unsigned i = 0; i < 256; i++)
		assert_int_equal(state_at(at + i * PAGE), i < 77 ? PAGE_VALID_RW : PAGE_INVALID);
	assert_counter(of_file.odp, page_prefetch, 77);
	/* Approached by batches that grow, not page by page. */
	assert_true(script.calls < 40);
	odp_region_fini(&of_file);
	munmap(at, 256 * PAGE);
	close(fd);
}

static void a_closing_region_ends_it(void **state)
{
	(void)state;
	odp_region_fini(&r);
	assert_int_equal(prefetch(0, 4, NOW), -ECANCELED);
	assert_int_equal(prefetch(0, 4, 0), -ECANCELED);
}

static void rounds_lost_to_invalidations_are_repeated(void **state)
{
	(void)state;
	atomic_store(&script.lose, 10);
	assert_int_equal(prefetch(0, 1, NOW_WRITE), 0);
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	assert_true(value(&r.odp->faults_retried) >= 5);
}

static void changes_without_end_are_an_error_in_the_end(void **state)
{
	(void)state;
	atomic_store(&script.lose, UINT32_MAX);
	assert_int_equal(prefetch(0, 8, NOW_WRITE), -EAGAIN);
	assert_true(script.calls < 200);
	atomic_store(&script.lose, 0);
	assert_counter(r.odp, page_prefetch, 0);
}

/* ---- only what is in memory ---- */

#define ONLY_NOW (ODP_PREFETCH_WAIT | ODP_PREFETCH_NO_FAULT)

static void without_faults_only_what_is_in_memory_becomes_valid(void **state)
{
	(void)state;
	for (unsigned i = 0; i < PAGES; i++)
		if (i % 7 == 3 || i > 2000)
			p[i * PAGE] = 1;
	assert_int_equal(prefetch(0, PAGES, ONLY_NOW | ODP_PREFETCH_WRITE), 0);
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(
			state_at(p + i * PAGE), i % 7 == 3 || i > 2000 ? PAGE_VALID_RW : PAGE_INVALID);
	assert_int_equal(script.calls, 0);
	assert_true(value(&r.odp->page_prefetch) > 0);
	assert_int_equal(value(&r.odp->page_prefetch), count(0, PAGES, PAGE_VALID_RW));
}

static void without_faults_pages_are_read_only_unless_asked_for_writing(void **state)
{
	(void)state;
	memset(p, 1, 4 * PAGE);
	assert_int_equal(prefetch(0, 4, ONLY_NOW), 0);
	assert_int_equal(count(0, 4, PAGE_VALID_RO), 4);
	assert_int_equal(prefetch(0, 2, ONLY_NOW | ODP_PREFETCH_WRITE), 0);
	assert_int_equal(count(0, 2, PAGE_VALID_RW), 2);
}

static void without_faults_a_terabyte_that_nobody_touched_takes_no_table(void **state)
{
	size_t len = VAST;
	char *huge = fresh(len, PROT_READ | PROT_WRITE);
	struct odp_region big;
	/* Somewhere in it, far from its ends. */
	char *touched = huge + len / 2 + 5 * PAGE;

	(void)state;
	region_open(&big, huge, len, true);
	*touched = 1;
	/* A part of it, since somebody waits: 16 GiB. */
	assert_int_equal(odp_prefetch(&big, (uintptr_t)touched - (8ul << 30), 16ul << 30, ONLY_NOW), 0);
	assert_int_equal(state_at(touched), PAGE_VALID_RO);
	assert_counter(big.odp, page_prefetch, 1);
	assert_int_equal(value(&fx.leaves), 1);
	odp_region_fini(&big);
	munmap(huge, len);
}

/* ---- queued ---- */

static void a_queued_prefetch_is_carried_out_by_a_driver(void **state)
{
	(void)state;
	assert_int_equal(prefetch(5, 1500, ODP_PREFETCH_WRITE), 0);
	settle();
	assert_int_equal(count(0, PAGES, PAGE_VALID_RW), 1500);
	assert_counter(r.odp, page_prefetch, 1500);
	assert_counter(r.odp, page_prefetch_dropped, 0);
	assert_int_not_equal(fx.space->drivers, 0);
}

static void what_a_queued_prefetch_cannot_have_is_counted(void **state)
{
	(void)state;
	assert_int_equal(munmap(p + 700 * PAGE, PAGE), 0);
	assert_int_equal(prefetch(0, PAGES, ODP_PREFETCH_WRITE), 0);
	settle();
	assert_true(value(&r.odp->page_prefetch) >= 512);
	assert_int_equal(value(&r.odp->page_prefetch) + value(&r.odp->page_prefetch_dropped), PAGES);
	assert_counter(&fx.totals, page_prefetch_dropped, value(&r.odp->page_prefetch_dropped));
}

static void a_queued_prefetch_that_populates_nothing_does_not_either(void **state)
{
	(void)state;
	memset(p + 9 * PAGE, 1, 20 * PAGE);
	assert_int_equal(prefetch(0, PAGES, ODP_PREFETCH_NO_FAULT), 0);
	settle();
	assert_int_equal(count(0, PAGES, PAGE_VALID_RO), 20);
	assert_int_equal(script.calls, 0);
}

/* The driver is in the middle of a chunk, in populate. */
static void hold(unsigned flags)
{
	atomic_store(&script.hold, true);
	assert_int_equal(prefetch(0, PAGES, flags), 0);
	sem_wait(&script.in);
}

static void the_end_of_the_region_cancels_it_at_once(void **state)
{
	(void)state;
	hold(0);
	/* Two more that have not begun. */
	assert_int_equal(prefetch(0, 100, 0), 0);
	assert_int_equal(prefetch(100, 100, 0), 0);
	odp_region_fini(&r);
	/* Nothing was waited for: populate is still held. */
	assert_int_equal(value(&r.odp->page_prefetch_dropped), PAGES - 512 + 200);
	assert_int_equal(fx.space->prefetches.len, 1);
	sem_post(&script.go);
	settle();
	/* Its end has dropped the pages under way; a second chunk has not begun. */
	assert_true(atomic_load(&script.calls) <= 1 + ODP_FORCED);
	assert_int_equal(
		value(&fx.totals.page_prefetch) + value(&fx.totals.page_prefetch_dropped), PAGES + 200);
}

static void an_access_joins_a_prefetch_under_way_and_does_not_fault(void **state)
{
	struct witness it;

	(void)state;
	hold(ODP_PREFETCH_WRITE);
	witness_init(&it);
	assert_int_equal(
		odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + 30 * PAGE, "x", 1, &it.w), -EINPROGRESS);
	assert_counter(r.odp, faults_coalesced, 1);
	assert_counter(r.odp, page_faults, 0);
	sem_post(&script.go);
	assert_int_equal(witness_wait(&it), 0);
	assert_int_equal(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + 30 * PAGE, "x", 1, &it.w), 0);
	assert_counter(r.odp, page_faults, 0);
	settle();
}

static void what_an_invalidation_drops_during_a_prefetch_is_prefetched_again(void **state)
{
	(void)state;
	hold(ODP_PREFETCH_WRITE);
	assert_int_equal(madvise(p + 200 * PAGE, PAGE, MADV_DONTNEED), 0);
	sem_post(&script.go);
	settle();
	/* By an event of its own. */
	assert_int_equal(count(0, PAGES, PAGE_VALID_RW), PAGES);
	assert_int_equal(atomic_load(&script.calls), PAGES / 512 + 1);
	assert_counter(r.odp, page_prefetch, PAGES);
}

static void *wait_for_it(void *arg)
{
	int *err = arg;

	*err = prefetch(100, 10, NOW_WRITE);
	return NULL;
}

static void until_somebody_waits(void)
{
	bool waits = false;

	while (!waits) {
		sched_yield();
		fault_lock(&fx.space->faults);
		waits = !list_empty(&r.waiters);
		fault_unlock(&fx.space->faults);
	}
}

static void who_waits_waits_for_a_page_that_somebody_else_is_at(void **state)
{
	pthread_t thread;
	int err = 1;

	(void)state;
	hold(ODP_PREFETCH_WRITE);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &err), 0);
	until_somebody_waits();
	sem_post(&script.go);
	pthread_join(thread, NULL);
	assert_int_equal(err, 0);
	settle();
}

static void the_end_of_the_region_wakes_who_waits(void **state)
{
	pthread_t thread;
	int err = 1;

	(void)state;
	hold(ODP_PREFETCH_WRITE);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &err), 0);
	until_somebody_waits();
	odp_region_fini(&r);
	pthread_join(thread, NULL);
	assert_int_equal(err, -ECANCELED);
	sem_post(&script.go);
	settle();
}

/* With the one thread there is. */
static void a_fault_goes_before_the_next_chunk(void **state)
{
	int fd = disk_file(PAGE);
	struct odp_region of_file;
	struct witness it;
	char *at;

	(void)state;
	assert_true(fd >= 0);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	region_open(&of_file, at, PAGE, true);
	hold(ODP_PREFETCH_WRITE);
	witness_init(&it);
	assert_int_equal(odp_copy_in(&of_file, SAFECOPY_FIXUP, (uintptr_t)at, "x", 1, &it.w), -EINPROGRESS);
	/* The second populate is the fault's: it stops as well, and no second chunk has begun. */
	atomic_store(&script.hold, true);
	sem_post(&script.go);
	sem_wait(&script.in);
	assert_int_equal(value(&r.odp->page_prefetch), 512);
	assert_int_equal(atomic_load(&script.calls), 2);
	sem_post(&script.go);
	assert_int_equal(witness_wait(&it), 0);
	settle();
	assert_counter(r.odp, page_prefetch, PAGES);
	odp_region_fini(&of_file);
	munmap(at, PAGE);
	close(fd);
}

/* The others are for faults. */
static void of_four_threads_one_prefetches(void **state)
{
	(void)state;
	hold(0);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(prefetch(0, PAGES, 0), 0);
	for (unsigned i = 0; i < 100; i++)
		sched_yield();
	assert_int_equal(atomic_load(&script.calls), 1);
	assert_int_equal(fx.space->prefetches.busy, 1);
	/* And a fault finds one. */
	sem_post(&script.go);
	settle();
}

static void requests_take_turns(void **state)
{
	struct odp_region other;

	(void)state;
	region_open(&other, p, 512 * PAGE, true);
	hold(ODP_PREFETCH_WRITE);
	/* Of the same pages, which the first request has not come to. */
	assert_int_equal(odp_prefetch(&other, (uintptr_t)p, 512 * PAGE, 0), 0);
	sem_post(&script.go);
	settle();
	/* It was dealt with as the second, and found all valid: nothing was left for it. */
	assert_counter(other.odp, page_prefetch, 0);
	assert_counter(r.odp, page_prefetch, PAGES);
	odp_region_fini(&other);
}

static void too_many_requests_are_refused(void **state)
{
	(void)state;
	hold(0);
	for (unsigned i = 1; i < ODP_PREFETCHES; i++)
		assert_int_equal(prefetch(0, 1, 0), 0);
	assert_int_equal(prefetch(0, 1, 0), -ENOMEM);
	sem_post(&script.go);
	settle();
	assert_int_equal(prefetch(0, 1, 0), 0);
	settle();
}

static void a_request_for_a_terabyte_costs_as_much_as_one_for_a_page(void **state)
{
	size_t len = VAST;
	char *huge = fresh(len, PROT_READ | PROT_WRITE);
	struct odp_region big;

	(void)state;
	region_open(&big, huge, len, true);
	atomic_store(&script.hold, true);
	assert_int_equal(odp_prefetch(&big, (uintptr_t)huge, len, 0), 0);
	sem_wait(&script.in);
	odp_region_fini(&big);
	assert_true(value(&big.odp->page_prefetch_dropped) >= (len >> 12) - 512);
	assert_true(value(&fx.leaves) <= 1);
	sem_post(&script.go);
	settle();
	munmap(huge, len);
}

static void without_threads_it_is_dropped(void **state)
{
	(void)state;
	no_threads = true;
	assert_int_equal(prefetch(0, 100, 0), 0);
	assert_counter(r.odp, page_prefetch_dropped, 100);
	assert_int_equal(fx.space->prefetches.len, 0);
	no_threads = false;
	assert_int_equal(prefetch(0, 100, 0), 0);
	settle();
	assert_counter(r.odp, page_prefetch, 100);
}

/* ---- everything at once ---- */

static atomic_bool stop;

static void *meddle(void *arg)
{
	unsigned seed = 1;

	(void)arg;
	while (!atomic_load(&stop)) {
		unsigned page = (unsigned)rand_r(&seed) % (PAGES - 64);

		madvise(p + page * PAGE, (1 + seed % 64) * PAGE, MADV_DONTNEED);
	}
	return NULL;
}

static void *come_and_go(void *arg)
{
	unsigned seed = 2;

	(void)arg;
	while (!atomic_load(&stop)) {
		struct odp_region mine;

		region_open(&mine, p, PAGES * PAGE, true);
		for (unsigned i = 0; i < 4; i++) {
			unsigned page = (unsigned)rand_r(&seed) % PAGES;

			odp_prefetch(&mine, (uintptr_t)p + page * PAGE, (PAGES - page) * PAGE,
				(unsigned)rand_r(&seed) % 4);
		}
		odp_region_fini(&mine);
	}
	return NULL;
}

static void prefetches_invalidations_accesses_and_ends_of_regions_at_once(void **state)
{
	pthread_t thread[2];
	uint64_t end = clock_ns() + NSEC_PER_SEC;
	unsigned seed = 3;

	(void)state;
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread[0], NULL, meddle, NULL), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, come_and_go, NULL), 0);
	while (clock_ns() < end) {
		unsigned page = (unsigned)rand_r(&seed) % PAGES, n = 1 + page % 200;
		char byte;
		int err;

		n = page + n < PAGES ? n : PAGES - page;
		err = prefetch(page, n, NOW | (page & ODP_PREFETCH_WRITE));
		assert_true(!err || err == -EAGAIN);
		assert_int_equal(prefetch(page, n, (page & 3)), 0);
		assert_int_equal(copy_out(&r, p + page * PAGE, &byte, 1), 0);
		settle();
	}
	atomic_store(&stop, true);
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	settle();
	assert_int_equal(count(0, PAGES, PAGE_FAULTING), 0);
	assert_true(list_empty(&r.faults) && list_empty(&r.waiters) && list_empty(&r.prefetches));
	assert_int_equal(fx.space->faults.pool.used, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(what_is_prefetched_costs_no_fault),
		TEST(bytes_count_as_the_pages_they_touch),
		TEST(for_reading_pages_become_read_only_and_for_writing_read_write),
		TEST(what_is_valid_is_not_populated_again),
		TEST(a_hole_ends_it_and_what_comes_before_is_valid),
		TEST(what_the_mapping_forbids_ends_it),
		TEST(a_region_that_may_not_be_written_is_not_prefetched_for_writing),
		TEST(the_end_of_a_file_is_found_to_the_page),
		TEST(a_closing_region_ends_it),
		TEST(rounds_lost_to_invalidations_are_repeated),
		TEST(changes_without_end_are_an_error_in_the_end),
		TEST(without_faults_only_what_is_in_memory_becomes_valid),
		TEST(without_faults_pages_are_read_only_unless_asked_for_writing),
		TEST(without_faults_a_terabyte_that_nobody_touched_takes_no_table),
		TEST(a_queued_prefetch_is_carried_out_by_a_driver),
		TEST(what_a_queued_prefetch_cannot_have_is_counted),
		TEST(a_queued_prefetch_that_populates_nothing_does_not_either),
		TEST(the_end_of_the_region_cancels_it_at_once),
		TEST(an_access_joins_a_prefetch_under_way_and_does_not_fault),
		TEST(what_an_invalidation_drops_during_a_prefetch_is_prefetched_again),
		TEST(who_waits_waits_for_a_page_that_somebody_else_is_at),
		TEST(the_end_of_the_region_wakes_who_waits),
		cmocka_unit_test_setup_teardown(a_fault_goes_before_the_next_chunk, one_thread, teardown),
		TEST(of_four_threads_one_prefetches),
		TEST(requests_take_turns),
		TEST(too_many_requests_are_refused),
		TEST(a_request_for_a_terabyte_costs_as_much_as_one_for_a_page),
		TEST(without_threads_it_is_dropped),
		TEST(prefetches_invalidations_accesses_and_ends_of_regions_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

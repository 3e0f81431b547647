/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Resolving, with a populate() that does what a test wants before, after or instead of its work (linked with
 * --wrap=populate), a swap that is on when a test says so (--wrap=residency_swap_on), and threads that cannot
 * be made (--wrap=pthread_create).
 */
#include "../small_pages.h"
#include "fixture.h"

#define CALLS 64u

int __real_populate(void *addr, size_t len, bool write);
int __wrap_populate(void *addr, size_t len, bool write);
bool __wrap_residency_swap_on(uint64_t now_ns);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

static struct {
	unsigned calls;
	size_t pages[CALLS]; /* of each call */
	unsigned lose;	     /* this many calls are followed by an invalidation */
	unsigned fail;	     /* this many calls fail */
	int with;	     /* ... with this */
	size_t longest;	     /* longer calls fail with -EFAULT; 0: none */
	bool end_region;     /* the region ends during the call */
	struct odp_region *region;
} script;

static bool swap_is_on, no_threads;

int __wrap_populate(void *addr, size_t len, bool write)
{
	int err = 0;

	if (script.calls < CALLS)
		script.pages[script.calls] = len / PAGE;
	script.calls++;
	if (script.longest && len / PAGE > script.longest)
		return -EFAULT;
	if (script.fail) {
		script.fail--;
		err = script.with;
	} else {
		err = __real_populate(addr, len, write);
	}
	if (script.end_region) {
		script.end_region = false;
		odp_region_fini(script.region);
	}
	if (script.lose) {
		script.lose--;
		odp_space_invalidate(fx.space, (uintptr_t)addr, len, ODP_NOTIFIER);
	}
	return err;
}

bool __wrap_residency_swap_on(uint64_t now_ns)
{
	(void)now_ns;
	return swap_is_on;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

static char *p, *whole;
static struct odp_region r;

#define PAGES 1024ul

static int setup(void **state)
{
	memset(&script, 0, sizeof(script));
	swap_is_on = no_threads = false;
	if (fixture_setup(state))
		return -1;
	/* At a leaf's beginning, so that no batch is cut. */
	whole = mmap(
		NULL, PAGES * PAGE + LEAF_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (whole == MAP_FAILED)
		return -1;
	p = (char *)(((uintptr_t)whole + LEAF_BYTES - 1) & ~(LEAF_BYTES - 1));
	region_open(&r, p, PAGES * PAGE, true);
	return 0;
}

static int teardown(void **state)
{
	if (!atomic_load(&r.closing))
		odp_region_fini(&r);
	munmap(whole, PAGES * PAGE + LEAF_BYTES);
	return fixture_teardown(state);
}

static void a_round_lost_to_an_invalidation_is_repeated(void **state)
{
	script.lose = 1;
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_int_equal(script.calls, 2);
	assert_counter(r.odp, faults_retried, 1);
	assert_counter(r.odp, page_faults_handled, 1);
	assert_int_equal(state_at(p), PAGE_VALID_RW);
}

static void three_lost_rounds_let_the_access_through(void **state)
{
	script.lose = 100;
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_int_equal(p[0], 'x');
	assert_int_equal(script.calls, 1 + ODP_FORCED);
	assert_counter(r.odp, faults_retried, ODP_FORCED);
	assert_counter(r.odp, page_faults_handled, 0);
	assert_counter(r.odp, faults_failed, 0);
	assert_int_equal(state_at(p), PAGE_INVALID);
}

static void an_access_over_several_pages_is_let_through_as_well(void **state)
{
	char buf[5 * PAGE];

	memset(buf, 'z', sizeof(buf));
	script.lose = 1000;
	assert_int_equal(copy_in(&r, p + 100, buf, sizeof(buf)), 0);
	assert_memory_equal(p + 100, buf, sizeof(buf));
	assert_true(script.calls < 40);
}

static void a_populate_that_never_gets_done_is_bounded(void **state)
{
	script.fail = 1000;
	script.with = -EAGAIN;
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_int_equal(p[0], 'x');
	assert_true(script.calls < 20);
	assert_counter(r.odp, faults_failed, 0);
}

static void a_passing_shortage_is_waited_out(void **state)
{
	script.fail = 3;
	script.with = -EAGAIN;
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_int_equal(script.calls, 4);
	assert_int_equal(state_at(p), PAGE_VALID_RW);
}

static void a_failure_is_believed_only_if_nothing_changed_meanwhile(void **state)
{
	script.fail = 1;
	script.with = -EFAULT;
	script.lose = 1;
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_counter(r.odp, faults_retried, 1);
	script.fail = 1;
	assert_int_equal(copy_in(&r, p + PAGE * 9, "x", 1), -EFAULT);
	assert_counter(r.odp, faults_failed, 1);
	assert_int_equal(state_at(p + PAGE * 9), PAGE_INVALID);
}

static void a_batch_that_fails_falls_back_to_the_page_in_question(void **state)
{
	char buf[4 * PAGE] = "";

	script.longest = 1;
	assert_int_equal(copy_in(&r, p, buf, sizeof(buf)), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(state_at(p + i * PAGE), PAGE_VALID_RW);
	assert_counter(r.odp, faults_failed, 0);
	assert_counter(r.odp, page_faults_handled, 4);
}

static void batches_grow_by_four_up_to_sixty_four(void **state)
{
	static const size_t grow[] = { 1, 4, 16, 64, 64, 64, 64, 64, 64, 64, 43 };

	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(copy_in(&r, p + i * PAGE, "x", 1), 0);
	assert_int_equal(script.calls, 11);
	for (unsigned i = 0; i < 11; i++)
		assert_int_equal(script.pages[i], grow[i]);
}

static void what_is_read_ahead_is_counted_beside_what_was_asked_for(void **state)
{
	for (unsigned i = 0; i < 85; i++)
		assert_int_equal(copy_in(&r, p + i * PAGE, "x", 1), 0);
	/* 1 + 4 + 16 + 64. */
	assert_counter(r.odp, page_faults, 4);
	assert_counter(r.odp, page_faults_handled, 4);
	assert_counter(r.odp, page_readahead, 81);
	assert_counter(&fx.totals, page_readahead, 81);
	/* An access of several pages asked for them. */
	assert_int_equal(copy_in(&r, p + 500 * PAGE, p, 3 * PAGE), 0);
	assert_counter(r.odp, page_faults_handled, 7);
	assert_counter(r.odp, page_readahead, 81);
}

static void what_is_dropped_before_it_was_valid_was_not_read_ahead(void **state)
{
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	/* Of the batch of four, the first is resolved again. */
	script.lose = 1;
	assert_int_equal(copy_in(&r, p + PAGE, "x", 1), 0);
	assert_counter(r.odp, page_readahead, 0);
	assert_int_equal(state_at(p + 2 * PAGE), PAGE_INVALID);
	assert_int_equal(copy_in(&r, p + 2 * PAGE, "x", 1), 0);
}

static void random_accesses_bring_in_nothing_else(void **state)
{
	size_t len = 1ul << 36;
	char *big = fresh(len, PROT_READ | PROT_WRITE);
	struct odp_region wide;

	madvise(big, len, MADV_NOHUGEPAGE);
	region_open(&wide, big, len, true);
	srand(7);
	for (unsigned i = 0; i < 3000; i++)
		assert_int_equal(copy_in(&wide, big + ((size_t)rand() << 12) % len, "x", 1), 0);
	/* That one of them goes on behind another happens once in a few runs. */
	assert_true(value(&wide.odp->page_readahead) <= 6);
	assert_true(script.calls >= 2990);
	odp_region_fini(&wide);
	munmap(big, len);
}

static void streams_side_by_side_grow_each_for_itself(void **state)
{
	for (unsigned i = 0; i < 85; i++)
		for (unsigned stream = 0; stream < 5; stream++)
			assert_int_equal(copy_in(&r, p + (i + stream * 100) * PAGE, "x", 1), 0);
	assert_int_equal(script.calls, 4 * 5);
}

static void a_long_access_is_populated_in_batches_within_a_budget(void **state)
{
	char *buf = calloc(512, PAGE);

	/* 256 pages on the spot, the rest by a driver thread. */
	assert_int_equal(copy_in(&r, p, buf, 512 * PAGE), 0);
	for (unsigned i = 0; i < script.calls && i < CALLS; i++)
		assert_true(script.pages[i] <= 512);
	assert_int_equal(state_at(p + 511 * PAGE), PAGE_VALID_RW);
	assert_int_equal(value(&r.odp->page_faults), 512);
	assert_int_equal(value(&r.odp->page_faults_handled), 512);
	assert_counter(r.odp, faults_major, 0);
	free(buf);
}

static void a_region_that_ends_during_a_populate_ends_the_access(void **state)
{
	script.end_region = true;
	script.region = &r;
	assert_int_equal(copy_in(&r, p, "x", 1), -ECANCELED);
}

static void without_threads_whoever_meets_a_fault_resolves_it(void **state)
{
	char name[] = "/var/tmp/unpin-odp-XXXXXX"; /* on a disk: a write to it may sleep */
	int fd = mkstemp(name);
	struct odp_region of_file;
	char *at;

	assert_true(fd >= 0);
	unlink(name);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	region_open(&of_file, at, PAGE, true);
	no_threads = true;
	assert_int_equal(copy_in(&of_file, at, "x", 1), 0);
	assert_int_equal(at[0], 'x');
	assert_counter(of_file.odp, faults_major, 1);
	/* The next one tries again. */
	no_threads = false;
	madvise(at, PAGE, MADV_DONTNEED);
	assert_int_equal(copy_in(&of_file, at, "y", 1), 0);
	assert_int_equal(__builtin_popcountll(fx.space->drivers), 1);
	odp_region_fini(&of_file);
	munmap(at, PAGE);
	close(fd);
}

/* ---- with swap on ---- */

static void untouched_memory_is_resolved_on_the_spot_even_with_swap(void **state)
{
	swap_is_on = true;
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_counter(r.odp, faults_minor, 1);
	assert_counter(r.odp, faults_major, 0);
}

static void with_swap_old_entries_over_anonymous_memory_are_verified(void **state)
{
	struct leaf *leaf;
	char got;

	swap_is_on = true;
	for (unsigned i = 0; i < 8; i += 2)
		assert_int_equal(copy_in(&r, p + i * PAGE, "x", 1), 0);
	leaf = pagetable_leaf(&fx.space->table, (uintptr_t)p);
	raw_madvise(p, PAGE, MADV_DONTNEED);
	atomic_store(&leaf->tick[0], (uint16_t)(odp_tick() - 5));
	/* Looked at, not copied: nothing is stale, and the neighbours are fresh again. */
	assert_int_equal(copy_out(&r, p + 2 * PAGE, &got, 1), 0);
	assert_int_equal(got, 'x');
	assert_int_equal(state_at(p), PAGE_INVALID);
	assert_int_equal(state_at(p + 4 * PAGE), PAGE_VALID_RW);
	assert_counter(r.odp, page_invalidations_handled, 1);
	assert_counter(r.odp, faults_stale, 0);
	assert_false(leaf_aged(leaf, 0, odp_tick()));
}

static void swap_that_comes_on_later_counts_for_entries_made_before(void **state)
{
	struct leaf *leaf;

	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	swap_is_on = true;
	odp_space_sweep(fx.space, clock_ns());
	leaf = pagetable_leaf(&fx.space->table, (uintptr_t)p);
	raw_madvise(p, PAGE, MADV_DONTNEED);
	atomic_store(&leaf->tick[0], (uint16_t)(odp_tick() - 5));
	assert_int_equal(copy_in(&r, p, "y", 1), 0);
	assert_counter(r.odp, page_invalidations_handled, 1);
	assert_counter(r.odp, page_faults, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_round_lost_to_an_invalidation_is_repeated),
		TEST(three_lost_rounds_let_the_access_through),
		TEST(an_access_over_several_pages_is_let_through_as_well),
		TEST(a_populate_that_never_gets_done_is_bounded),
		TEST(a_passing_shortage_is_waited_out),
		TEST(a_failure_is_believed_only_if_nothing_changed_meanwhile),
		TEST(a_batch_that_fails_falls_back_to_the_page_in_question),
		TEST(batches_grow_by_four_up_to_sixty_four),
		TEST(what_is_read_ahead_is_counted_beside_what_was_asked_for),
		TEST(what_is_dropped_before_it_was_valid_was_not_read_ahead),
		TEST(random_accesses_bring_in_nothing_else),
		TEST(streams_side_by_side_grow_each_for_itself),
		TEST(a_long_access_is_populated_in_batches_within_a_budget),
		TEST(a_region_that_ends_during_a_populate_ends_the_access),
		TEST(without_threads_whoever_meets_a_fault_resolves_it),
		TEST(untouched_memory_is_resolved_on_the_spot_even_with_swap),
		TEST(with_swap_old_entries_over_anonymous_memory_are_verified),
		TEST(swap_that_comes_on_later_counts_for_entries_made_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults that go to driver threads. There is one thread, and a waiter whose ready() holds it up: so
 * everything behind it stays in the line for as long as a test wants, whatever the machine does.
 */
#include "fixture.h"

#include <dirent.h>
#include <semaphore.h>
#include <signal.h>

#include "mm/residency.h"

#define FILE_PAGES 64u

/* A file's pages, shared: a write may sleep, so it is a driver's. */
static char *mapped;
static struct odp_region region;

struct plug {
	struct odp_waiter w;
	sem_t in, go;
};

static struct plug plug;

static void plug_ready(struct odp_waiter *w, int result)
{
	(void)w;
	(void)result;
	sem_post(&plug.in);
	sem_wait(&plug.go);
}

static int start(struct odp_region *r, unsigned page, struct witness *it)
{
	witness_init(it);
	return odp_copy_in(r, SAFECOPY_FIXUP, (uintptr_t)mapped + page * PAGE, "w", 1, &it->w);
}

/* The only driver thread is held, in the last page of the file. */
static void hold_the_driver(void)
{
	memset(&plug.w, 0, sizeof(plug.w));
	plug.w.ready = plug_ready;
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + (FILE_PAGES - 1) * PAGE,
				 "p", 1, &plug.w),
		-EINPROGRESS);
	sem_wait(&plug.in);
}

static void let_the_driver_go(void)
{
	sem_post(&plug.go);
}

static int setup(void **state)
{
	int fd = disk_file(FILE_PAGES * PAGE);

	if (fd < 0 || fixture_open(1))
		return -1;
	interpose_observe(fixture_observer);
	sem_init(&plug.in, 0, 0);
	sem_init(&plug.go, 0, 0);
	mapped = mmap(NULL, FILE_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	region_open(&region, mapped, FILE_PAGES * PAGE, true);
	return mapped == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	if (!atomic_load(&region.closing))
		odp_region_fini(&region);
	munmap(mapped, FILE_PAGES * PAGE);
	return fixture_teardown(state);
}

static void many_waiters_for_a_page_are_one_fault_and_resume_in_order(void **state)
{
	struct witness it[64];
	_Atomic unsigned turn = 0;

	hold_the_driver();
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(start(&region, 3, &it[i]), -EINPROGRESS);
		it[i].turn = &turn;
	}
	assert_counter(region.odp, faults_coalesced, 63);
	assert_counter(region.odp, page_faults, 2);
	assert_int_equal(state_at(mapped + 3 * PAGE), PAGE_FAULTING);
	let_the_driver_go();
	for (unsigned i = 0; i < 64; i++) {
		assert_int_equal(witness_wait(&it[i]), 0);
		assert_int_equal(it[i].order, i);
	}
	assert_int_equal(state_at(mapped + 3 * PAGE), PAGE_VALID_RW);
	assert_counter(region.odp, faults_major, 2);
	assert_counter(region.odp, page_faults_handled, 2);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(
			odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &it[i].w),
			0);
	assert_counter(region.odp, page_faults, 2);
	/* Every step of a fault that waited is timed: the plug's has not been retried. */
	assert_int_equal(value(&fx.steps[1][UNPIN_STEP_QUEUE].count), 2);
	assert_int_equal(value(&fx.steps[1][UNPIN_STEP_RESOLVE].count), 2);
	assert_int_equal(value(&fx.steps[1][UNPIN_STEP_RESUME].count), 64);
	assert_int_equal(value(&fx.steps[1][UNPIN_STEP_TOTAL].count), 64);
}

static void regions_over_the_same_page_share_a_fault(void **state)
{
	struct odp_region other;
	struct witness a, b;

	region_open(&other, mapped, FILE_PAGES * PAGE, true);
	hold_the_driver();
	assert_int_equal(start(&region, 3, &a), -EINPROGRESS);
	assert_int_equal(start(&other, 3, &b), -EINPROGRESS);
	assert_counter(other.odp, faults_coalesced, 1);
	assert_counter(other.odp, page_faults, 0);
	let_the_driver_go();
	assert_int_equal(witness_wait(&a) | witness_wait(&b), 0);
	assert_int_equal(copy_in(&other, mapped + 3 * PAGE, "z", 1), 0);
	assert_counter(other.odp, page_faults, 0);
	odp_region_fini(&other);
}

static void a_cancelled_waiter_is_never_told(void **state)
{
	struct witness a, b;

	hold_the_driver();
	assert_int_equal(start(&region, 3, &a), -EINPROGRESS);
	assert_int_equal(start(&region, 3, &b), -EINPROGRESS);
	assert_true(odp_cancel(&a.w));
	assert_false(odp_cancel(&a.w));
	let_the_driver_go();
	assert_int_equal(witness_wait(&b), 0);
	assert_int_equal(a.told, 0);
	assert_false(odp_cancel(&b.w));
	/* Both are as good as new. */
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &a.w), 0);
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &b.w), 0);
}

static void a_fault_that_nobody_waits_for_any_more_is_finished_all_the_same(void **state)
{
	struct witness a, b;

	hold_the_driver();
	assert_int_equal(start(&region, 3, &a), -EINPROGRESS);
	assert_true(odp_cancel(&a.w));
	assert_int_equal(start(&region, 9, &b), -EINPROGRESS);
	let_the_driver_go();
	witness_wait(&b);
	assert_int_equal(state_at(mapped + 3 * PAGE), PAGE_VALID_RW);
}

static void deregistration_tells_who_is_parked_at_once_and_orphans_the_fault(void **state)
{
	struct odp_region other;
	struct witness a, b, c;

	region_open(&other, mapped, FILE_PAGES * PAGE, true);
	hold_the_driver();
	assert_int_equal(start(&other, 3, &a), -EINPROGRESS);
	assert_int_equal(start(&region, 3, &b), -EINPROGRESS);
	odp_region_fini(&other);
	/* No waiting: the driver is still held. */
	assert_int_equal(a.told, 1);
	assert_int_equal(a.result, -ECANCELED);
	assert_int_equal(b.told, 0);
	assert_int_equal(start(&other, 4, &c), -ECANCELED);
	let_the_driver_go();
	assert_int_equal(witness_wait(&b), 0);
	assert_int_equal(a.told, 1);
	assert_counter(other.odp, page_faults_handled, 0);
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &b.w), 0);
}

static void an_invalidation_during_the_fault_makes_it_resolve_again(void **state)
{
	struct witness a;

	hold_the_driver();
	assert_int_equal(start(&region, 3, &a), -EINPROGRESS);
	madvise(mapped + 3 * PAGE, PAGE, MADV_DONTNEED);
	let_the_driver_go();
	assert_int_equal(witness_wait(&a), 0);
	assert_counter(region.odp, faults_retried, 1);
	assert_int_equal(state_at(mapped + 3 * PAGE), PAGE_VALID_RW);
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &a.w), 0);
}

static void an_error_reaches_who_raised_it_and_who_joined_when_he_looks_for_himself(void **state)
{
	struct witness a, b, c;
	char byte;

	hold_the_driver();
	assert_int_equal(start(&region, 3, &a), -EINPROGRESS);
	assert_int_equal(start(&region, 3, &b), -EINPROGRESS);
	witness_init(&c);
	assert_int_equal(odp_copy_out(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, &byte, 1, &c.w),
		-EINPROGRESS);
	assert_int_equal(mprotect(mapped + 3 * PAGE, PAGE, PROT_READ), 0);
	let_the_driver_go();
	assert_int_equal(witness_wait(&a), -EACCES);
	assert_int_equal(witness_wait(&b), 0);
	/* It may be read. */
	assert_int_equal(witness_wait(&c), 0);
	assert_counter(region.odp, faults_failed, 1);
	assert_int_equal(
		odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &a.w), -EACCES);
	assert_int_equal(
		odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &b.w), -EACCES);
	assert_int_equal(odp_cancel(&b.w), 0);
	mprotect(mapped, FILE_PAGES * PAGE, PROT_READ | PROT_WRITE);
	/* Once told, and once given up, the waiters begin anew. */
	assert_int_equal(copy_in(&region, mapped + 3 * PAGE, "y", 1), 0);
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &a.w), 0);
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + 3 * PAGE, "y", 1, &b.w), 0);
}

static void a_leaf_with_a_fault_in_progress_is_not_freed(void **state)
{
	struct witness a;

	hold_the_driver();
	assert_int_equal(start(&region, 3, &a), -EINPROGRESS);
	odp_space_invalidate(fx.space, 0, UINTPTR_MAX, ODP_NOTIFIER);
	for (unsigned i = 0; i < 4; i++)
		odp_space_sweep(fx.space, clock_ns());
	assert_int_equal(value(&fx.leaves), 1);
	let_the_driver_go();
	assert_int_equal(witness_wait(&a), 0);
}

static void a_page_that_was_reclaimed_is_found_before_the_copy_sleeps_on_it(void **state)
{
	char *p = mapped + 8 * PAGE;
	struct leaf *leaf;
	struct witness it;
	unsigned char resident = 1;
	char byte;

	assert_int_equal(copy_in(&region, p, "r", 1), 0);
	msync(mapped, FILE_PAGES * PAGE, MS_SYNC);
	raw_madvise(p, PAGE, MADV_PAGEOUT);
	raw_madvise(p, PAGE, MADV_PAGEOUT); /* what was active is inactive now */
	if (residency_query(p, 1, &resident) < 0 || resident) {
		print_message("the kernel does not page out this file\n");
		skip();
	}
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	/* Verified a moment ago: trusted. Longer ago: asked. */
	leaf = pagetable_leaf(&fx.space->table, (uintptr_t)p);
	for (unsigned g = 0; g < LEAF_GROUPS; g++)
		atomic_store(&leaf->tick[g], (uint16_t)(odp_tick() - 10));
	hold_the_driver();
	witness_init(&it);
	assert_int_equal(odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)p, "s", 1, &it.w), -EINPROGRESS);
	assert_counter(region.odp, page_invalidations_handled, 1);
	assert_counter(region.odp, faults_stale, 0);
	let_the_driver_go();
	assert_int_equal(witness_wait(&it), 0);
	assert_int_equal(copy_out(&region, p, &byte, 1), 0);
	assert_int_equal(byte, 'r');
}

static void verified_entries_are_not_asked_about_again(void **state)
{
	struct leaf *leaf;
	uint16_t tick;

	assert_int_equal(copy_in(&region, mapped, "r", 1), 0);
	leaf = pagetable_leaf(&fx.space->table, (uintptr_t)mapped);
	atomic_store(&leaf->tick[leaf_page((uintptr_t)mapped) / GROUP_PAGES], (uint16_t)(odp_tick() - 10));
	tick = odp_tick();
	assert_int_equal(copy_in(&region, mapped, "r", 1), 0);
	assert_true(
		(uint16_t)(atomic_load(&leaf->tick[leaf_page((uintptr_t)mapped) / GROUP_PAGES]) - tick) < 10);
	assert_counter(region.odp, page_faults, 1);
	assert_counter(region.odp, page_invalidations, 0);
}

/* ---- the threads ---- */

static void signal_mask_of(const char *task, char *name, size_t size, unsigned long *blocked)
{
	char path[300], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	f = fopen(path, "r");
	name[0] = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "Name:\t", 6))
			snprintf(name, size, "%.15s", line + 6);
		if (!strncmp(line, "SigBlk:\t", 8))
			*blocked = strtoul(line + 8, NULL, 16);
	}
	if (f)
		fclose(f);
}

/* How many driver threads there are; none of them lets a signal of the application's in. */
static unsigned count_driver_threads(void)
{
	unsigned long blocked = 0;
	unsigned found = 0;
	char name[64];
	struct dirent *e;
	DIR *d = opendir("/proc/self/task");

	while ((e = readdir(d))) {
		signal_mask_of(e->d_name, name, sizeof(name), &blocked);
		if (strncmp(name, "unpin-odp", 9))
			continue;
		found++;
		assert_int_equal(blocked & 1ul << (SIGSEGV - 1), 0);
		assert_int_equal(blocked & 1ul << (SIGBUS - 1), 0);
		for (int sig = 1; sig < 32; sig++)
			if (sig != SIGSEGV && sig != SIGBUS && sig != SIGKILL && sig != SIGSTOP)
				assert_int_not_equal(blocked & 1ul << (sig - 1), 0);
	}
	closedir(d);
	return found;
}

static void driver_threads_are_named_and_run_no_handler_of_the_application(void **state)
{
	assert_int_equal(copy_in(&region, mapped, "x", 1), 0);
	/* Those of the cases before, which have ended, may stand in /proc for a moment longer. */
	for (int i = 0; i < 1000 && count_driver_threads() > 1; i++)
		usleep(10000);
	assert_int_equal(count_driver_threads(), 1);
}

static void no_thread_starts_before_it_is_needed(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_int_equal(fx.space->drivers, 0);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(many_waiters_for_a_page_are_one_fault_and_resume_in_order),
		TEST(regions_over_the_same_page_share_a_fault),
		TEST(a_cancelled_waiter_is_never_told),
		TEST(a_fault_that_nobody_waits_for_any_more_is_finished_all_the_same),
		TEST(deregistration_tells_who_is_parked_at_once_and_orphans_the_fault),
		TEST(an_invalidation_during_the_fault_makes_it_resolve_again),
		TEST(an_error_reaches_who_raised_it_and_who_joined_when_he_looks_for_himself),
		TEST(a_leaf_with_a_fault_in_progress_is_not_freed),
		TEST(a_page_that_was_reclaimed_is_found_before_the_copy_sleeps_on_it),
		TEST(verified_entries_are_not_asked_about_again),
		TEST(driver_threads_are_named_and_run_no_handler_of_the_application),
		TEST(no_thread_starts_before_it_is_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

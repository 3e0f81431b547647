/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The data path, one thread at a time: what is raised, mapped, refused and counted. */
#include "../small_pages.h"
#include "fixture.h"

#include <sys/wait.h>

#include "mm/facility.h"
#include "mm/residency.h"

static void a_write_to_a_cold_page_faults_once_and_arrives(void **state)
{
	char *p = fresh(16 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;

	region_open(&r, p, 16 * PAGE, true);
	assert_int_equal(copy_in(&r, p + 100, "hello", 6), 0);
	assert_string_equal(p + 100, "hello");
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	assert_int_equal(copy_in(&r, p + 200, "again", 6), 0);
	assert_counter(r.odp, page_faults, 1);
	assert_counter(r.odp, page_faults_handled, 1);
	assert_counter(r.odp, faults_minor, 1);
	assert_counter(r.odp, faults_major, 0);
	assert_counter(r.odp, bytes_in, 12);
	assert_counter(&fx.totals, page_faults, 1);
	odp_region_fini(&r);
	assert_counter(&fx.totals, bytes_in, 12);
	munmap(p, 16 * PAGE);
}

static void a_read_maps_read_only_and_a_write_upgrades(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE), got[8] = "x";
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(copy_out(&r, p, got, 8), 0);
	assert_int_equal(got[0], 0);
	assert_int_equal(state_at(p), PAGE_VALID_RO);
	assert_int_equal(copy_in(&r, p, "y", 1), 0);
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	assert_int_equal(p[0], 'y');
	assert_counter(r.odp, page_faults, 2);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void read_only_memory_is_readable_through_a_writable_region(void **state)
{
	char *p = fresh(PAGE, PROT_READ), got[4];
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(copy_out(&r, p, got, 4), 0);
	assert_int_equal(copy_in(&r, p, "no", 2), -EACCES);
	assert_int_equal(mprotect(p, PAGE, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(copy_in(&r, p, "yes", 4), 0);
	assert_string_equal(p, "yes");
	assert_counter(r.odp, faults_failed, 1);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void a_hole_and_forbidden_memory_are_errors_and_no_signals(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE), got[2 * PAGE];
	struct odp_region r;

	assert_int_equal(munmap(p + PAGE, PAGE), 0);
	assert_int_equal(mprotect(p + 3 * PAGE, PAGE, PROT_NONE), 0);
	region_open(&r, p, 4 * PAGE, true);
	assert_int_equal(copy_out(&r, p + PAGE, got, 8), -EFAULT);
	assert_int_equal(copy_in(&r, p + PAGE - 4, got, 8), -EFAULT);
	assert_int_equal(copy_out(&r, p + 3 * PAGE, got, 8), -EACCES);
	assert_int_equal(copy_in(&r, p + 3 * PAGE - 4, got, 8), -EACCES);
	/* What is in order beside them works. */
	assert_int_equal(copy_in(&r, p + 2 * PAGE, got, PAGE), 0);
	odp_region_fini(&r);
	munmap(p, PAGE);
	munmap(p + 2 * PAGE, 2 * PAGE);
}

static int file_of(size_t bytes)
{
	char name[] = "/tmp/unpin-odp-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	unlink(name);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

static void past_the_end_of_a_file_is_an_error(void **state)
{
	int fd = file_of(PAGE);
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), got[8];
	struct odp_region r;

	region_open(&r, p, 2 * PAGE, true);
	assert_int_equal(copy_in(&r, p, "file", 5), 0);
	assert_int_equal(copy_out(&r, p + PAGE, got, 8), -EFAULT);
	/* Valid, and then cut off: the copy meets the end itself. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(copy_out(&r, p, got, 8), -EFAULT);
	assert_counter(r.odp, faults_stale, 1);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	assert_int_equal(copy_out(&r, p, got, 8), 0);
	assert_int_equal(got[0], 0);
	odp_region_fini(&r);
	munmap(p, 2 * PAGE);
	close(fd);
}

static void guard_pages_are_errors(void **state)
{
	char *p = fresh(2 * PAGE, PROT_READ | PROT_WRITE), got[8];
	struct odp_region r;

	if (raw_madvise(p + PAGE, PAGE, 102 /* MADV_GUARD_INSTALL, 6.13 */)) {
		print_message("no guard pages on this kernel\n");
		munmap(p, 2 * PAGE);
		skip();
	}
	region_open(&r, p, 2 * PAGE, true);
	assert_int_equal(copy_out(&r, p + PAGE, got, 8), -EFAULT);
	assert_int_equal(copy_in(&r, p, got, 8), 0);
	odp_region_fini(&r);
	munmap(p, 2 * PAGE);
}

static void write_only_memory_can_be_written(void **state)
{
	char *p = fresh(PAGE, PROT_WRITE), got[8];
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(copy_out(&r, p, got, 8), -EACCES);
	assert_int_equal(copy_in(&r, p, "w", 1), 0);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void munmap_makes_pages_invalid_and_new_memory_is_seen(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE), got[4];
	struct odp_region r;

	region_open(&r, p, 4 * PAGE, true);
	/* Not in sequence, which would bring in the rest too. */
	for (int i = 0; i < 4; i += 2)
		assert_int_equal(copy_in(&r, p + i * (long)PAGE, "old", 4), 0);
	assert_int_equal(munmap(p, 4 * PAGE), 0);
	assert_int_equal(state_at(p), PAGE_INVALID);
	assert_counter(r.odp, page_invalidations_handled, 2);
	assert_counter(r.odp, page_invalidations, 4);
	assert_int_equal(copy_out(&r, p, got, 4), -EFAULT);
	assert_ptr_equal(
		mmap(p, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
	memcpy(p, "new", 4);
	assert_int_equal(copy_out(&r, p, got, 4), 0);
	assert_string_equal(got, "new");
	assert_counter(r.odp, faults_stale, 0);
	odp_region_fini(&r);
	munmap(p, 4 * PAGE);
}

static void a_move_is_followed(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE), *q = fresh(2 * PAGE, PROT_NONE), got[4];
	struct odp_region r;

	region_open(&r, p, 4 * PAGE, true);
	assert_int_equal(copy_in(&r, p, "one", 4), 0);
	assert_ptr_equal(mremap(p, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q), q);
	assert_int_equal(state_at(p), PAGE_INVALID);
	assert_int_equal(copy_out(&r, p, got, 4), -EFAULT);
	assert_ptr_equal(mremap(q, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, p), p);
	assert_int_equal(copy_out(&r, p, got, 4), 0);
	assert_string_equal(got, "one");
	odp_region_fini(&r);
	munmap(p, 4 * PAGE);
}

static void what_the_notifier_misses_is_found_by_the_access(void **state)
{
	char *p = fresh(2 * PAGE, PROT_READ | PROT_WRITE), got[4];
	struct odp_region r;

	region_open(&r, p, 2 * PAGE, true);
	assert_int_equal(copy_in(&r, p, "one", 4), 0);
	assert_int_equal(copy_in(&r, p + PAGE, "two", 4), 0);
	raw_munmap(p, PAGE);
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	assert_int_equal(copy_out(&r, p, got, 4), -EFAULT);
	assert_counter(r.odp, faults_stale, 1);
	assert_int_equal(state_at(p), PAGE_INVALID);
	/* Gone, but there: zeros, no fault to be counted. */
	raw_madvise(p + PAGE, PAGE, MADV_DONTNEED);
	assert_int_equal(copy_out(&r, p + PAGE, got, 4), 0);
	assert_int_equal(got[0], 0);
	assert_counter(r.odp, faults_stale, 1);
	odp_region_fini(&r);
	munmap(p, 2 * PAGE);
}

static void the_sweep_finds_what_nobody_reported_and_frees_leaves(void **state)
{
	char *p = fresh(8 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;

	region_open(&r, p, 8 * PAGE, true);
	for (int i = 0; i < 8; i++)
		assert_int_equal(copy_in(&r, p + i * (long)PAGE, "x", 1), 0);
	while (odp_space_sweep(fx.space, clock_ns()))
		;
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	raw_munmap(p, 4 * PAGE);
	odp_space_sweep(fx.space, clock_ns());
	assert_int_equal(state_at(p), PAGE_INVALID);
	assert_int_equal(state_at(p + 4 * PAGE), PAGE_VALID_RW);
	assert_counter(r.odp, page_invalidations_handled, 4);
	raw_munmap(p + 4 * PAGE, 4 * PAGE);
	while (odp_space_sweep(fx.space, clock_ns()))
		;
	assert_int_equal(value(&fx.leaves), 0);
	assert_int_equal(value(&fx.table_bytes), 0);
	odp_region_fini(&r);
}

static void sequential_access_is_populated_in_growing_batches(void **state)
{
	size_t pages = 2048;
	char *p = fresh(pages * PAGE, PROT_READ | PROT_WRITE), buf[PAGE];
	struct odp_region r;

	memset(buf, 7, sizeof(buf));
	region_open(&r, p, pages * PAGE, true);
	for (size_t i = 0; i < pages; i++)
		assert_int_equal(copy_in(&r, p + i * PAGE, buf, PAGE), 0);
	/* 1, 4, 16, and then 64 at a time, cut at leaves. */
	assert_in_range(value(&r.odp->faults_minor), 32, 48);
	assert_int_equal(value(&r.odp->faults_minor), value(&r.odp->page_faults));
	odp_region_fini(&r);
	munmap(p, pages * PAGE);
}

static void random_access_does_not_read_ahead(void **state)
{
	char *p = fresh(512 * PAGE, PROT_READ | PROT_WRITE);
	unsigned char resident[512];
	struct odp_region r;

	region_open(&r, p, 512 * PAGE, true);
	for (size_t i = 0; i < 512; i += 8)
		assert_int_equal(copy_in(&r, p + (i * 37 % 512) * PAGE, "x", 1), 0);
	assert_int_equal(residency_query(p, 512, resident), 64);
	odp_region_fini(&r);
	munmap(p, 512 * PAGE);
}

static void read_ahead_stays_inside_the_region(void **state)
{
	char *p = fresh(64 * PAGE, PROT_READ | PROT_WRITE);
	unsigned char resident[64];
	struct odp_region r;

	region_open(&r, p, 5 * PAGE + 1, true);
	for (size_t i = 0; i < 6; i++)
		assert_int_equal(copy_in(&r, p + i * PAGE, "x", 1), 0);
	assert_int_equal(residency_query(p, 64, resident), 6);
	odp_region_fini(&r);
	munmap(p, 64 * PAGE);
}

static void reading_untouched_memory_allocates_nothing(void **state)
{
	char *p = fresh(1024 * PAGE, PROT_READ | PROT_WRITE), buf[PAGE];
	struct odp_region r;
	long before, after;
	char line[128];
	FILE *f = fopen("/proc/self/statm", "r");

	region_open(&r, p, 1024 * PAGE, true);
	assert_non_null(fgets(line, sizeof(line), f));
	before = strtol(strchr(line, ' '), NULL, 10);
	for (size_t i = 0; i < 1024; i++)
		assert_int_equal(copy_out(&r, p + i * PAGE, buf, PAGE), 0);
	rewind(f);
	assert_non_null(fgets(line, sizeof(line), f));
	after = strtol(strchr(line, ' '), NULL, 10);
	fclose(f);
	/* The zero page is not counted; the table and the buffers of this test are. */
	assert_true(after - before < 256);
	odp_region_fini(&r);
	munmap(p, 1024 * PAGE);
}

static void atomics_work_on_cold_pages(void **state)
{
	uint64_t *p = fresh(2 * PAGE, PROT_READ | PROT_WRITE), orig = 9;
	struct odp_region r;
	struct witness it;

	witness_init(&it);
	region_open(&r, p, 2 * PAGE, true);
	assert_int_equal(odp_fetch_add(&r, SAFECOPY_FIXUP, (uintptr_t)p, 5, &orig, &it.w), 0);
	assert_int_equal(orig, 0);
	assert_int_equal(odp_cmp_swap(&r, SAFECOPY_FIXUP, (uintptr_t)p, 5, 77, &orig, &it.w), 0);
	assert_int_equal(orig, 5);
	assert_int_equal(*p, 77);
	assert_int_equal(odp_fetch_add(&r, SAFECOPY_PROCESS_VM, (uintptr_t)p, 5, &orig, &it.w), -EAGAIN);
	mprotect(p, PAGE, PROT_READ);
	assert_int_equal(odp_fetch_add(&r, SAFECOPY_FIXUP, (uintptr_t)p, 5, &orig, &it.w), -EACCES);
	odp_region_fini(&r);
	munmap(p, 2 * PAGE);
}

/* Where populating means touching, a thread that may not fault hands the fault over, and waits. */
static int by_system_call(struct odp_region *r, char *at, char *buf, bool in)
{
	struct witness it;
	int err;

	witness_init(&it);
	do {
		err = in ? odp_copy_in(r, SAFECOPY_PROCESS_VM, (uintptr_t)at, buf, 8, &it.w)
			 : odp_copy_out(r, SAFECOPY_PROCESS_VM, (uintptr_t)at, buf, 8, &it.w);
	} while (err == -EINPROGRESS && (witness_wait(&it), true));
	return err;
}

static void the_path_by_system_call_does_the_same(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE), got[8];
	struct odp_region r;
	struct witness it;

	if (!mm_have(MM_PROCESS_VM)) {
		print_message("process_vm is switched off or refused\n");
		skip();
	}
	witness_init(&it);
	region_open(&r, p, 4 * PAGE, true);
	assert_int_equal(by_system_call(&r, p + PAGE - 4, (char[]){ "straddle" }, true), 0);
	assert_int_equal(by_system_call(&r, p + PAGE - 4, got, false), 0);
	assert_memory_equal(got, "straddle", 8);
	raw_munmap(p, PAGE);
	assert_int_equal(by_system_call(&r, p + PAGE - 4, got, false), -EFAULT);
	assert_int_equal(odp_copy_out(&r, SAFECOPY_NONE, (uintptr_t)p + PAGE, got, 8, &it.w), -EAGAIN);
	assert_int_equal(odp_copy_out(&r, SAFECOPY_FIXUP, 0, got, 0, &it.w), 0);
	odp_region_fini(&r);
	munmap(p + PAGE, 3 * PAGE);
}

static void a_region_that_is_not_writable_refuses_writes(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE), got[4];
	struct odp_region r, other;

	region_open(&r, p, PAGE, false);
	region_open(&other, p, PAGE, true);
	assert_int_equal(copy_in(&r, p, "no", 3), -EACCES);
	assert_int_equal(copy_in(&other, p, "yes", 4), 0);
	assert_int_equal(copy_in(&r, p, "no", 3), -EACCES);
	assert_int_equal(copy_out(&r, p, got, 4), 0);
	assert_string_equal(got, "yes");
	odp_region_fini(&r);
	odp_region_fini(&other);
	munmap(p, PAGE);
}

static void an_ended_region_refuses(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE), got[8];
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	odp_region_fini(&r);
	assert_int_equal(state_at(p), PAGE_INVALID);
	assert_int_equal(copy_out(&r, p, got, 8), -ECANCELED);
	assert_int_equal(copy_in(&r, p, got, 8), -ECANCELED);
	munmap(p, PAGE);
}

static void a_terabyte_costs_only_what_is_touched(void **state)
{
	size_t len = 1ul << 40;
	char *p = fresh_terabyte(), got[8];
	struct odp_region r;

	if (!p)
		skip();
	region_open(&r, p, len, true);
	for (size_t i = 0; i < 1024; i++)
		assert_int_equal(copy_in(&r, p + (i << 30), "x", 1), 0);
	assert_int_equal(copy_out(&r, p + len - 8, got, 8), 0);
	assert_in_range(value(&fx.leaves), 1024, 1025);
	assert_true(value(&fx.table_bytes) <= 1026 * (sizeof(struct leaf) + sizeof(struct node)));
	munmap(p, len);
	assert_counter(r.odp, page_invalidations_handled, 1025);
	odp_region_fini(&r);
	while (odp_space_sweep(fx.space, clock_ns()))
		;
	assert_int_equal(value(&fx.leaves), 0);
}

static void a_dense_gigabyte_costs_less_than_two_bytes_a_page(void **state)
{
	size_t len = 1ul << 30;
	char *p = fresh(len, PROT_READ | PROT_WRITE), *buf = malloc(LEAF_BYTES);
	struct odp_region r;

	/* Read, so that it costs no memory. */
	region_open(&r, p, len, true);
	for (size_t at = 0; at < len; at += LEAF_BYTES)
		assert_int_equal(copy_out(&r, p + at, buf, LEAF_BYTES), 0);
	assert_true(value(&fx.leaves) <= len / LEAF_BYTES + 1);
	assert_true(value(&fx.table_bytes) <= 2 * (len / PAGE));
	assert_int_equal(state_at(p + len - 1), PAGE_VALID_RO);
	odp_region_fini(&r);
	munmap(p, len);
	free(buf);
}

static void giving_up_memory_leaves_its_mapping_known(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE);
	uint32_t before;
	struct odp_region r;
	struct vma vma;

	region_open(&r, p, 4 * PAGE, true);
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	before = atomic_load(&fx.space->changes);
	assert_int_equal(madvise(p, PAGE, MADV_DONTNEED), 0);
	assert_int_equal(state_at(p), PAGE_INVALID);
	assert_int_equal(atomic_load(&fx.space->changes), before);
	fault_lock(&fx.space->faults);
	assert_true(vmacache_get(&fx.space->vmas, (uintptr_t)p, before, &vma));
	fault_unlock(&fx.space->faults);
	assert_int_equal(mprotect(p, PAGE, PROT_READ), 0);
	assert_int_not_equal(atomic_load(&fx.space->changes), before);
	odp_region_fini(&r);
	munmap(p, 4 * PAGE);
}

/* ---- accesses that do not wait ---- */

static int write_alone(struct odp_region *r, void *to, const char *text)
{
	return odp_copy_in(r, SAFECOPY_FIXUP, (uintptr_t)to, text, strlen(text) + 1, NULL);
}

/* Comes again until it is told something, as a peer does after a receiver-not-ready answer. */
static int write_again(struct odp_region *r, void *to, const char *text)
{
	int err;

	while ((err = write_alone(r, to, text)) == -EINPROGRESS)
		usleep(100);
	return err;
}

static void an_access_that_does_not_wait_is_never_resolved_on_the_spot(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE), got[8];
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(write_alone(&r, p, "alone"), -EINPROGRESS);
	assert_int_equal(write_again(&r, p, "alone"), 0);
	assert_string_equal(p, "alone");
	assert_int_equal(odp_copy_out(&r, SAFECOPY_FIXUP, (uintptr_t)p, got, 6, NULL), 0);
	assert_counter(r.odp, page_faults, 1);
	/* The page is there a moment before it is counted. */
	for (int i = 0; i < 1000 && !atomic_load(&r.odp->page_faults_handled); i++)
		usleep(10000);
	assert_counter(r.odp, page_faults_handled, 1);
	odp_region_fini(&r);
	assert_int_equal(write_alone(&r, p, "gone"), -ECANCELED);
	munmap(p, PAGE);
}

static void what_the_mapping_tells_is_returned_at_once(void **state)
{
	char *p = fresh(2 * PAGE, PROT_READ);
	struct odp_region r;

	munmap(p + PAGE, PAGE);
	region_open(&r, p, 2 * PAGE, true);
	assert_int_equal(write_alone(&r, p, "x"), -EACCES);
	assert_int_equal(write_alone(&r, p + PAGE, "x"), -EFAULT);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void what_only_populate_finds_is_told_to_the_next_one_once(void **state)
{
	int fd = file_of(PAGE);
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct odp_region r;

	region_open(&r, p, 2 * PAGE, true);
	assert_int_equal(write_alone(&r, p + PAGE, "x"), -EINPROGRESS);
	assert_int_equal(write_again(&r, p + PAGE, "x"), -EFAULT);
	/* The file has grown meanwhile. */
	assert_int_equal(ftruncate(fd, 2 * PAGE), 0);
	assert_int_equal(write_again(&r, p + PAGE, "grown"), 0);
	assert_string_equal(p + PAGE, "grown");
	odp_region_fini(&r);
	munmap(p, 2 * PAGE);
	close(fd);
}

static _Atomic bool stop_dropping;

static void *drop_for_ever(void *arg)
{
	while (!atomic_load(&stop_dropping))
		madvise(arg, PAGE, MADV_DONTNEED);
	return NULL;
}

static void an_endless_dontneed_loop_does_not_hold_it_up(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	pthread_t thread;

	region_open(&r, p, PAGE, true);
	atomic_store(&stop_dropping, false);
	assert_int_equal(pthread_create(&thread, NULL, drop_for_ever, p), 0);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(write_again(&r, p, "x"), 0);
	atomic_store(&stop_dropping, true);
	pthread_join(thread, NULL);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void with_slow_hardware_nothing_is_resolved_on_the_spot(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct witness it;
	struct odp_region r;

	witness_init(&it);
	fx.space->cfg.fault_latency_ns = 1000;
	region_open(&r, p, PAGE, true);
	assert_int_equal(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p, "x", 1, &it.w), -EINPROGRESS);
	assert_int_equal(witness_wait(&it), 0);
	assert_int_equal(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p, "x", 1, &it.w), 0);
	assert_counter(r.odp, faults_major, 0);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void writes_to_shared_memory_are_resolved_on_the_spot(void **state)
{
	int fd = memfd_create("unpin-test", MFD_CLOEXEC);
	char *p, *q = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct odp_region r, s;

	if (residency_swap_on(clock_ns())) {
		print_message("swap is on: absent pages of shared memory may be swapped out\n");
		skip();
	}
	assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	region_open(&r, p, 4 * PAGE, true);
	region_open(&s, q, 4 * PAGE, true);
	assert_int_equal(write_again(&r, p + 2 * PAGE, "there"), 0);
	assert_int_equal(copy_in(&r, p, "absent", 7), 0);
	assert_int_equal(copy_in(&s, q, "absent", 7), 0);
	assert_counter(&fx.totals, faults_major, 0);
	odp_region_fini(&r);
	odp_region_fini(&s);
	munmap(p, 4 * PAGE);
	munmap(q, 4 * PAGE);
	close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_write_to_a_cold_page_faults_once_and_arrives),
		TEST(a_read_maps_read_only_and_a_write_upgrades),
		TEST(read_only_memory_is_readable_through_a_writable_region),
		TEST(a_hole_and_forbidden_memory_are_errors_and_no_signals),
		TEST(past_the_end_of_a_file_is_an_error),
		TEST(guard_pages_are_errors),
		TEST(write_only_memory_can_be_written),
		TEST(munmap_makes_pages_invalid_and_new_memory_is_seen),
		TEST(a_move_is_followed),
		TEST(what_the_notifier_misses_is_found_by_the_access),
		TEST(the_sweep_finds_what_nobody_reported_and_frees_leaves),
		TEST(sequential_access_is_populated_in_growing_batches),
		TEST(random_access_does_not_read_ahead),
		TEST(read_ahead_stays_inside_the_region),
		TEST(reading_untouched_memory_allocates_nothing),
		TEST(atomics_work_on_cold_pages),
		TEST(the_path_by_system_call_does_the_same),
		TEST(a_region_that_is_not_writable_refuses_writes),
		TEST(an_ended_region_refuses),
		TEST(a_terabyte_costs_only_what_is_touched),
		TEST(a_dense_gigabyte_costs_less_than_two_bytes_a_page),
		TEST(giving_up_memory_leaves_its_mapping_known),
		TEST(an_access_that_does_not_wait_is_never_resolved_on_the_spot),
		TEST(what_the_mapping_tells_is_returned_at_once),
		TEST(what_only_populate_finds_is_told_to_the_next_one_once),
		TEST(an_endless_dontneed_loop_does_not_hold_it_up),
		TEST(with_slow_hardware_nothing_is_resolved_on_the_spot),
		TEST(writes_to_shared_memory_are_resolved_on_the_spot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Regions over the whole address space, and regions over the same pages. */
#include "../small_pages.h"
#include "fixture.h"

static void everywhere(struct odp_region *r)
{
	region_open(r, NULL, SIZE_MAX, true);
}

static void memory_mapped_after_registration_is_reachable(void **state)
{
	struct odp_region r;
	char got[8] = "", *p;

	everywhere(&r);
	p = fresh(4 * PAGE, PROT_READ | PROT_WRITE);
	assert_int_equal(copy_in(&r, p + 10, "hello", 6), 0);
	assert_int_equal(copy_out(&r, p + 10, got, 6), 0);
	assert_string_equal(got, "hello");
	/* The stack and .rodata too, as far as their protection goes. */
	assert_int_equal(copy_in(&r, got, "stack", 6), 0);
	assert_string_equal(got, "stack");
	assert_int_equal(copy_out(&r, "rodata", got, 7), 0);
	assert_string_equal(got, "rodata");
	assert_int_equal(mprotect(p, PAGE, PROT_READ), 0);
	assert_int_equal(copy_in(&r, p, "no", 2), -EACCES);
	munmap(p, 4 * PAGE);
	assert_int_equal(copy_out(&r, p, got, 4), -EFAULT);
	odp_region_fini(&r);
}

static void assert_refused(struct odp_region *r, uintptr_t va)
{
	char buf[8] = "", *at = (char *)va;
	int in = copy_in(r, at, buf, sizeof(buf)), out = copy_out(r, at, buf, sizeof(buf));

	assert_true(in == -EFAULT || in == -EACCES);
	assert_true(out == -EFAULT || out == -EACCES);
}

static void memory_of_the_kernel_and_holes_are_errors(void **state)
{
	static const uintptr_t addr[] = {
		0,
		PAGE - 8,
		1ul << 47,
		(1ul << 47) - 4,
		1ul << 48,
		(1ul << 48) - 4,
		(1ul << 56) - PAGE,
		0x8000000000000000ul,
		0xffff800000000000ul,
		0xffffffff81000000ul,
		0xffffffffff600000ul,
		UINTPTR_MAX - 8,
	};
	struct odp_region r;

	everywhere(&r);
	for (size_t i = 0; i < sizeof(addr) / sizeof(addr[0]); i++)
		assert_refused(&r, addr[i]);
	assert_int_equal(value(&fx.leaves), 0);
	odp_region_fini(&r);
}

static void memory_that_the_kernel_made_is_an_error(void **state)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t at[16];
	unsigned found = 0;
	struct odp_region r;
	char line[256];

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (found < 16 &&
			(strstr(line, "[vdso]") || strstr(line, "[vvar") || strstr(line, "[vsyscall]")))
			at[found++] = strtoul(line, NULL, 16);
	fclose(maps);
	assert_true(found > 0);
	everywhere(&r);
	while (found)
		assert_refused(&r, at[--found]);
	assert_int_equal(value(&fx.leaves), 0);
	odp_region_fini(&r);
}

static void the_end_of_an_implicit_region_leaves_what_others_have(void **state)
{
	char *p = fresh(64 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region all, some;

	everywhere(&all);
	region_open(&some, p, 16 * PAGE, true);
	assert_int_equal(copy_in(&some, p, "x", 1), 0);
	assert_int_equal(copy_in(&all, p + 32 * PAGE, "y", 1), 0);
	odp_region_fini(&all);
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	assert_int_equal(state_at(p + 32 * PAGE), PAGE_INVALID);
	assert_int_equal(copy_in(&some, p, "z", 1), 0);
	assert_counter(some.odp, page_faults, 1);
	odp_region_fini(&some);
	munmap(p, 64 * PAGE);
}

static void the_end_of_an_explicit_region_leaves_what_an_implicit_one_has(void **state)
{
	char *p = fresh(64 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region all, some;

	everywhere(&all);
	region_open(&some, p, 64 * PAGE, true);
	assert_int_equal(copy_in(&all, p, "x", 1), 0);
	assert_int_equal(copy_in(&some, p + 32 * PAGE, "y", 1), 0);
	/* A page that both have used stays with whoever faulted last. */
	assert_int_equal(copy_in(&some, p, "z", 1), 0);
	odp_region_fini(&some);
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	assert_int_equal(state_at(p + 32 * PAGE), PAGE_INVALID);
	odp_region_fini(&all);
	munmap(p, 64 * PAGE);
}

static void overlapping_regions_share_entries_and_end_apart(void **state)
{
	char *p = fresh(64 * PAGE, PROT_READ | PROT_WRITE), got[4];
	struct odp_region one, two;

	region_open(&one, p, 40 * PAGE, true);
	region_open(&two, p + 16 * PAGE, 48 * PAGE, true);
	assert_int_equal(copy_in(&one, p + 20 * PAGE, "abc", 4), 0);
	assert_int_equal(copy_out(&two, p + 20 * PAGE, got, 4), 0);
	assert_string_equal(got, "abc");
	assert_counter(two.odp, page_faults, 0);
	assert_int_equal(copy_in(&two, p + 56 * PAGE, "def", 4), 0);
	odp_region_fini(&one);
	assert_int_equal(state_at(p + 56 * PAGE), PAGE_VALID_RW);
	assert_int_equal(copy_out(&two, p + 20 * PAGE, got, 4), 0);
	assert_string_equal(got, "abc");
	odp_region_fini(&two);
	munmap(p, 64 * PAGE);
}

static void sweep_all(void)
{
	while (odp_space_sweep(fx.space, clock_ns()))
		;
}

static void the_last_end_leaves_no_table(void **state)
{
	char *p = fresh(600 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region one, two;

	everywhere(&one);
	everywhere(&two);
	for (unsigned i = 0; i < 600; i += 9)
		assert_int_equal(copy_in(i % 2 ? &one : &two, p + i * PAGE, "x", 1), 0);
	odp_region_fini(&one);
	odp_region_fini(&two);
	sweep_all();
	assert_int_equal(value(&fx.leaves), 0);
	munmap(p, 600 * PAGE);
}

/* What an event leaves that outlived its region. */
static void orphan(const void *addr)
{
	struct leaf *leaf = pagetable_leaf(&fx.space->table, (uintptr_t)addr);

	atomic_store(&leaf->owner[leaf_page((uintptr_t)addr) / GROUP_PAGES], 0);
}

static void entries_of_no_region_are_dropped_by_the_sweep(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE), *q = fresh(2048 * PAGE, PROT_READ | PROT_WRITE);
	char *far = q + 1024 * PAGE;
	struct odp_region gone, other;

	region_open(&other, p, PAGE, true);
	region_open(&gone, far, PAGE, true);
	assert_int_equal(copy_in(&gone, far, "x", 1), 0);
	orphan(far);
	odp_region_fini(&gone);
	assert_int_equal(state_at(far), PAGE_VALID_RW);
	sweep_all();
	assert_int_equal(state_at(far), PAGE_INVALID);
	assert_int_equal(value(&fx.leaves), 0);
	odp_region_fini(&other);
	munmap(p, PAGE);
	munmap(q, 2048 * PAGE);
}

static void entries_of_no_region_go_to_one_that_covers_them(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region all, gone, other;

	region_open(&other, fx.space, PAGE, true);
	everywhere(&all);
	region_open(&gone, p, PAGE, true);
	assert_int_equal(copy_in(&gone, p, "x", 1), 0);
	orphan(p);
	odp_region_fini(&gone);
	sweep_all();
	assert_int_equal(state_at(p), PAGE_VALID_RW);
	odp_region_fini(&all);
	assert_int_equal(state_at(p), PAGE_INVALID);
	odp_region_fini(&other);
	munmap(p, PAGE);
}

static void many_streams_at_once_read_ahead(void **state)
{
	const unsigned streams = 32, pages = 85;
	struct odp_region all;
	char *p = fresh(streams * 512 * PAGE, PROT_READ | PROT_WRITE);

	everywhere(&all);
	for (unsigned i = 0; i < pages; i++)
		for (unsigned st = 0; st < streams; st++)
			assert_int_equal(copy_in(&all, p + (st * 509ul + i) * PAGE, "x", 1), 0);
	/* 1, 4, 16, 64: four events each, and one more where a leaf ends. */
	assert_in_range(value(&all.odp->faults_minor), 4 * streams, 6 * streams);
	odp_region_fini(&all);
	munmap(p, streams * 512 * PAGE);
}

static void invalidations_are_credited_to_an_implicit_region(void **state)
{
	char *p = fresh(16 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region all;

	everywhere(&all);
	assert_int_equal(copy_in(&all, p, "x", 1), 0);
	assert_int_equal(copy_in(&all, p + 8 * PAGE, "x", 1), 0);
	assert_int_equal(madvise(p, 16 * PAGE, MADV_DONTNEED), 0);
	assert_counter(all.odp, page_invalidations, 16);
	assert_counter(all.odp, page_invalidations_handled, 2);
	odp_region_fini(&all);
	munmap(p, 16 * PAGE);
}

static void an_untouched_terabyte_costs_a_few_looks(void **state)
{
#ifdef UNPIN_DEBUG_CHECKS
	const size_t len = 1ul << 40;
	char *p = fresh_terabyte(), *near = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region all, big;
	uint64_t before;

	if (!p)
		skip();
	everywhere(&all);
	region_open(&big, p, len, true);
	/* Something is in the table, close by. */
	assert_int_equal(copy_in(&all, near, "x", 1), 0);
	before = atomic_load(&pagetable_looks);
	odp_space_invalidate(fx.space, (uintptr_t)p, len, ODP_NOTIFIER);
	assert_in_range(atomic_load(&pagetable_looks) - before, 1, 40);
	/* One page of it is there: one leaf more. */
	assert_int_equal(copy_in(&big, p + len / 2, "x", 1), 0);
	before = atomic_load(&pagetable_looks);
	odp_space_invalidate(fx.space, (uintptr_t)p, len, ODP_NOTIFIER);
	assert_in_range(atomic_load(&pagetable_looks) - before, 1, 64);
	assert_counter(big.odp, page_invalidations_handled, 1);
	/* All there is, for the end of an implicit region: a look per 512 GiB and what exists. */
	before = atomic_load(&pagetable_looks);
	odp_region_fini(&all);
	assert_in_range(atomic_load(&pagetable_looks) - before, 1, TABLE_SPANS + 64);
	odp_region_fini(&big);
	munmap(p, len);
	munmap(near, PAGE);
#else
	print_message("looks are counted in builds with debug checks only\n");
	skip();
#endif
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(memory_mapped_after_registration_is_reachable),
		TEST(memory_of_the_kernel_and_holes_are_errors),
		TEST(memory_that_the_kernel_made_is_an_error),
		TEST(the_end_of_an_implicit_region_leaves_what_others_have),
		TEST(the_end_of_an_explicit_region_leaves_what_an_implicit_one_has),
		TEST(overlapping_regions_share_entries_and_end_apart),
		TEST(the_last_end_leaves_no_table),
		TEST(entries_of_no_region_are_dropped_by_the_sweep),
		TEST(entries_of_no_region_go_to_one_that_covers_them),
		TEST(many_streams_at_once_read_ahead),
		TEST(invalidations_are_credited_to_an_implicit_region),
		TEST(an_untouched_terabyte_costs_a_few_looks),
	};

	return cmocka_run_group_tests_name("odp/implicit", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Everything once per way to ask: PAGEMAP_SCAN, /proc/self/pagemap, mincore. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "mm/facility.h"
#include "mm/residency.h"
#include "tests/mm/child.h"

#define PAGE 4096ul

static void each_way(int (*fn)(void))
{
	static const char *const ways[] = { "", "pagemap_scan", "pagemap_scan,pagemap",
		"pagemap_scan,pagemap,procmap_query" };

	for (unsigned i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		setenv("UNPIN_DISABLE", ways[i], 1);
		if (!exited(in_child(fn), 0))
			fail_msg("UNPIN_DISABLE=%s", ways[i]);
	}
	unsetenv("UNPIN_DISABLE");
}

static unsigned char *map(size_t pages)
{
	unsigned char present;

	/* What the library keeps mapped is made first, so that it does not fall into a hole. */
	residency_query((void *)((uintptr_t)&present & ~(PAGE - 1)), 1, &present);
	return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int pattern(void)
{
	static unsigned char got[4096];
	const size_t pages = 1500;
	unsigned char *p = map(pages);
	int present = 0;

	madvise(p, pages * PAGE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < pages; i++)
		if (i * 7 % 5 < 2)
			p[i * PAGE] = 1;
	munmap(p + 100 * PAGE, 50 * PAGE);
	munmap(p + 1499 * PAGE, PAGE);
	errno = 9;
	memset(got, 0xcc, sizeof(got));
	CHECK(residency_query(p, pages, got) > 0);
	for (size_t i = 0; i < pages; i++) {
		bool expect = i * 7 % 5 < 2 && (i < 100 || i >= 150) && i < 1499;

		CHECK(got[i] == expect);
		present += expect;
	}
	CHECK(got[pages] == 0xcc);
	CHECK(residency_query(p, pages, got) == present);
	CHECK(residency_query(p, 0, got) == 0);
	CHECK(errno == 9);
	return 0;
}

static void each_page_is_told_present_or_not_across_holes(void **state)
{
	each_way(pattern);
}

static int refusals(void)
{
	unsigned char *p = map(1), got[1] = { 7 };

	CHECK(residency_query(p + 1, 1, got) == -EINVAL);
	CHECK(residency_query(p, 4097, got) == -EINVAL);
	CHECK(residency_query((void *)(UINTPTR_MAX - PAGE + 1), 2, got) == -EINVAL);
	CHECK(residency_swapped(p + 1, 1, got) == -EINVAL);
	CHECK(got[0] == 7);
	return 0;
}

static void what_makes_no_sense_is_refused_and_writes_nothing(void **state)
{
	each_way(refusals);
}

static int of_files(void)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	unsigned char *p, got[4];

	CHECK(!ftruncate(fd, 4 * PAGE));
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	p[2 * PAGE] = 1;
	CHECK(residency_query(p, 4, got) == 1);
	CHECK(!got[0] && !got[1] && got[2] && !got[3]);
	return 0;
}

static void pages_of_files_count(void **state)
{
	each_way(of_files);
}

static int after_fork(void)
{
	unsigned char *p = map(2), got[2];
	int status;
	pid_t pid;

	p[0] = 1;
	CHECK(residency_query(p, 2, got) == 1 && got[0]);
	pid = fork();
	if (!pid) {
		p[PAGE] = 1;
		_exit(residency_query(p, 2, got) == 2 ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	CHECK(exited(status, 0));
	CHECK(residency_query(p, 2, got) == 1 && got[0]);
	return 0;
}

static void a_child_asks_about_itself(void **state)
{
	each_way(after_fork);
}

static int descriptors_closed(void)
{
	unsigned char *p = map(2), got[2];

	p[0] = 1;
	CHECK(residency_query(p, 2, got) == 1);
	for (int fd = 3; fd < 70000; fd++)
		close(fd);
	CHECK(residency_query(p, 2, got) >= 0 || errno);
	CHECK(residency_query(p, 2, got) == 1 && got[0] && !got[1]);
	return 0;
}

static void a_program_that_closes_all_descriptors_does_no_harm(void **state)
{
	each_way(descriptors_closed);
}

static int swapped(void)
{
	unsigned char *p = map(64), got[64];
	int n;

	memset(p, 1, 64 * PAGE);
	memset(got, 7, sizeof(got));
	n = residency_swapped(p, 64, got);
	if (!mm_have(MM_PAGEMAP_SCAN) && !mm_have(MM_PAGEMAP)) {
		CHECK(n == -EOPNOTSUPP && got[0] == 7);
		return 0;
	}
	CHECK(n >= 0);
	for (int i = 0; i < 64; i++)
		CHECK(got[i] <= 1);
	if (!residency_swap_on(clock_ns())) {
		CHECK(n == 0);
		return 0;
	}
	madvise(p, 64 * PAGE, 21 /* MADV_PAGEOUT */);
	n = residency_swapped(p, 64, got);
	/* What is neither present nor swapped out would be lost. */
	unsigned char here[64];
	CHECK(residency_query(p, 64, here) >= 0);
	for (int i = 0; i < 64; i++)
		CHECK(here[i] || got[i] || residency_query(p + i * PAGE, 1, &here[i]) == 1);
	return 0;
}

static void what_is_swapped_out_is_told_where_the_kernel_tells(void **state)
{
	each_way(swapped);
}

static int guard(void)
{
	unsigned char *p = map(3), got[3];

	memset(p, 1, 3 * PAGE);
	if (madvise(p + PAGE, PAGE, 102 /* MADV_GUARD_INSTALL */))
		return 0;
	CHECK(residency_query(p, 3, got) == 2 && !got[1]);
	return 0;
}

static void a_guard_page_is_not_present(void **state)
{
	each_way(guard);
}

#define HUGE (2ul << 20)

/* A huge page, whether or not khugepaged would make one. NULL: cannot be had. */
static unsigned char *map_huge(void)
{
	uintptr_t at = (uintptr_t)mmap(
		NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned char *p = (unsigned char *)((at + HUGE - 1) & ~(HUGE - 1));

	madvise(p, HUGE, MADV_HUGEPAGE);
	memset(p, 1, HUGE);
	return madvise(p, HUGE, 25 /* MADV_COLLAPSE, 6.1 */) ? NULL : p;
}

static int part_of_huge(void)
{
	unsigned char *small = map(2), *p;

	small[0] = 1;
	errno = 7;
	if (!mm_have(MM_PAGEMAP_SCAN)) {
		CHECK(residency_huge(small) == -EOPNOTSUPP && errno == 7);
		return 0;
	}
	CHECK(residency_huge(small + 9) == 0 && residency_huge(small + PAGE) == 0);
	munmap(small + PAGE, PAGE);
	CHECK(residency_huge(small + PAGE) == 0 && errno == 7);
	p = map_huge();
	if (!p) {
		puts("huge pages left out: none to be had");
		return 0;
	}
	CHECK(residency_huge(p) == 1 && residency_huge(p + HUGE - 1) == 1);
	/* Split. */
	CHECK(!madvise(p + PAGE, PAGE, MADV_DONTNEED));
	CHECK(residency_huge(p) == 0 && residency_huge(p + PAGE) == 0);
	return 0;
}

static void a_page_that_is_part_of_a_huge_one_is_told(void **state)
{
	each_way(part_of_huge);
}

static void swap_is_looked_up_at_most_once_per_second(void **state)
{
	FILE *f = fopen("/proc/swaps", "re");
	char line[256];
	int lines = 0;
	uint64_t now = 5 * NSEC_PER_SEC;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		lines++;
	fclose(f);
	assert_int_equal(residency_swap_on(now), lines > 1);
	assert_int_equal(residency_swap_on(now + NSEC_PER_SEC / 2), lines > 1);
	assert_int_equal(residency_swap_on(now + 3 * NSEC_PER_SEC), lines > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_page_is_told_present_or_not_across_holes),
		cmocka_unit_test(what_makes_no_sense_is_refused_and_writes_nothing),
		cmocka_unit_test(pages_of_files_count),
		cmocka_unit_test(a_child_asks_about_itself),
		cmocka_unit_test(a_program_that_closes_all_descriptors_does_no_harm),
		cmocka_unit_test(what_is_swapped_out_is_told_where_the_kernel_tells),
		cmocka_unit_test(a_guard_page_is_not_present),
		cmocka_unit_test(a_page_that_is_part_of_a_huge_one_is_told),
		cmocka_unit_test(swap_is_looked_up_at_most_once_per_second),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

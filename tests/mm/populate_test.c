/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Everything twice: with MADV_POPULATE, and by touching. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "mm/populate.h"
#include "mm/residency.h"
#include "mm/safecopy.h"
#include "mm/sigchain.h"
#include "tests/mm/child.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define PAGE 4096ul

/* How many of the pages are in memory. */
static int resident(const void *addr, size_t pages)
{
	unsigned char answer[16];

	return pages <= sizeof(answer) ? residency_query(addr, pages, answer) : -EINVAL;
}

static unsigned char *map(size_t pages, int prot)
{
	/* What the library keeps mapped is made first, so that it does not fall into a hole. */
	resident((void *)((uintptr_t)&pages & ~(PAGE - 1)), 1);
	return mmap(NULL, pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Runs a case in a child with the facility, and in one without. */
static void both_ways(int (*fn)(void))
{
	unsetenv("UNPIN_DISABLE");
	assert_true(exited(in_child(fn), 0));
	setenv("UNPIN_DISABLE", "populate", 1);
	assert_true(exited(in_child(fn), 0));
	unsetenv("UNPIN_DISABLE");
}

/* False: this machine can do neither. */
static bool prepare(void)
{
	return !sigchain_install() && (mm_have(MM_POPULATE) || safecopy_path() == SAFECOPY_FIXUP);
}

static int makes_present(void)
{
	unsigned char *p = map(9, PROT_READ | PROT_WRITE);

	if (!prepare())
		return 0;
	errno = 3;
	CHECK(populate(p, 0, true) == 0);
	CHECK(resident(p, 1) == 0);
	CHECK(populate(p, 4 * PAGE, true) == 0);
	CHECK(resident(p, 4) == 4 && resident(p + 4 * PAGE, 1) == 0);
	CHECK(populate(p + 4 * PAGE, 4 * PAGE, false) == 0);
	CHECK(resident(p, 8) == 8 && resident(p + 8 * PAGE, 1) == 0);
	CHECK(errno == 3);
	for (size_t i = 0; i < 8 * PAGE; i++)
		CHECK(!p[i]);
	return 0;
}

static void populated_pages_are_present_and_unchanged(void **state)
{
	both_ways(makes_present);
}

static int tells_reasons(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	unsigned char *p = map(6, PROT_READ | PROT_WRITE), *file;

	if (!prepare())
		return 0;
	munmap(p + 5 * PAGE, PAGE);
	mprotect(p + PAGE, PAGE, PROT_READ);
	mprotect(p + 3 * PAGE, PAGE, PROT_NONE);
	CHECK(populate(p, 2 * PAGE, true) == -EACCES);
	CHECK(populate(p, 2 * PAGE, false) == 0);
	CHECK(populate(p + 2 * PAGE, 2 * PAGE, true) == -EACCES);
	CHECK(populate(p + 2 * PAGE, 2 * PAGE, false) == -EACCES);
	CHECK(populate(p + 4 * PAGE, 2 * PAGE, true) == -ENOMEM);
	CHECK(populate(p + 5 * PAGE, PAGE, false) == -ENOMEM);
	CHECK(!ftruncate(fd, PAGE));
	file = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(populate(file, PAGE, true) == 0);
	CHECK(populate(file, 2 * PAGE, true) == -EFAULT);
	CHECK(populate(file + PAGE, PAGE, false) == -EFAULT);
	if (!madvise(p, PAGE, MADV_GUARD_INSTALL))
		CHECK(populate(p, PAGE, true) == -EFAULT);
	return 0;
}

static void the_error_tells_hole_from_rights_from_end_of_file(void **state)
{
	both_ways(tells_reasons);
}

static int breaks_cow(void)
{
	int fd = memfd_create("copied", MFD_CLOEXEC);
	unsigned char *p, *shared;

	if (!prepare())
		return 0;
	CHECK(!ftruncate(fd, PAGE));
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	shared[0] = 1;
	CHECK(populate(p, PAGE, false) == 0);
	/* Not yet our own: still sees the file. */
	shared[0] = 2;
	CHECK(p[0] == 2);
	CHECK(populate(p, PAGE, true) == 0);
	shared[0] = 3;
	CHECK(p[0] == 2);
	return 0;
}

static void for_writing_copy_on_write_is_broken_and_for_reading_not(void **state)
{
	both_ways(breaks_cow);
}

static int blocked(void)
{
	unsigned char *p = map(2, PROT_READ | PROT_WRITE);
	sigset_t set;

	if (!prepare())
		return 0;
	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (mm_have(MM_POPULATE)) {
		CHECK(populate(p, 2 * PAGE, true) == 0);
		return 0;
	}
	CHECK(populate(p, 2 * PAGE, true) == -EAGAIN);
	CHECK(resident(p, 1) == 0);
	CHECK(populate(p, 2 * PAGE, false) == (mm_have(MM_PROCESS_VM) ? 0 : -EAGAIN));
	return 0;
}

static void a_thread_that_must_not_fault_is_sent_away_rather_than_killed(void **state)
{
	both_ways(blocked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(populated_pages_are_present_and_unchanged),
		cmocka_unit_test(the_error_tells_hole_from_rights_from_end_of_file),
		cmocka_unit_test(for_writing_copy_on_write_is_broken_and_for_reading_not),
		cmocka_unit_test(a_thread_that_must_not_fault_is_sent_away_rather_than_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

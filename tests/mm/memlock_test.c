/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/memlock.h"
#include "tests/mm/child.h"
#include "tests/mm/status.h"

#define PAGE 4096ul

static char *map(size_t pages)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* The sanitizers make libc's mlock() do nothing. */
static void lock_as_application(char *p, size_t pages)
{
	assert_int_equal(syscall(SYS_mlock, p, pages * PAGE), 0);
}

/* One digit per page: 1 locked. */
static void assert_locked(const char *p, const char *pattern)
{
	for (size_t i = 0; pattern[i]; i++)
		if (page_locked(p + i * PAGE) != (pattern[i] == '1'))
			fail_msg("page %zu of %s", i, pattern);
}

static int add(char *p, size_t page, size_t pages)
{
	return memlock_add((uintptr_t)p + page * PAGE, pages * PAGE);
}

static void take(char *p, size_t page, size_t pages)
{
	memlock_remove((uintptr_t)p + page * PAGE, pages * PAGE);
}

static void a_page_stays_locked_until_its_last_holder_lets_go(void **state)
{
	char *p = map(8);
	long before = status_kib("VmLck");

	assert_int_equal(add(p, 0, 4), 0);
	assert_int_equal(add(p, 2, 4), 0);
	assert_int_equal(add(p, 1, 2), 0);
	assert_locked(p, "11111100");
	take(p, 0, 4);
	assert_locked(p, "01111100");
	take(p, 2, 4);
	assert_locked(p, "01100000");
	take(p, 1, 2);
	assert_locked(p, "00000000");
	assert_int_equal(status_kib("VmLck"), before);
	munmap(p, 8 * PAGE);
}

static void what_the_application_locked_before_stays_locked(void **state)
{
	char *p = map(8);

	lock_as_application(p + 2 * PAGE, 2);
	assert_int_equal(add(p, 0, 8), 0);
	assert_int_equal(add(p, 3, 2), 0);
	assert_locked(p, "11111111");
	take(p, 3, 2);
	take(p, 0, 8);
	assert_locked(p, "00110000");
	munmap(p, 8 * PAGE);
}

static void a_part_may_be_let_go(void **state)
{
	char *p = map(6);

	assert_int_equal(add(p, 0, 6), 0);
	take(p, 2, 2);
	assert_locked(p, "110011");
	take(p, 0, 2);
	take(p, 4, 2);
	assert_locked(p, "000000");
	munmap(p, 6 * PAGE);
}

static void pages_that_are_gone_are_not_unlocked_in_the_place_of_others(void **state)
{
	char *p = map(4);

	assert_int_equal(add(p, 0, 4), 0);
	mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	lock_as_application(p + PAGE, 1);
	assert_int_equal(memlock_forget((uintptr_t)p + PAGE, PAGE), 0);
	/* A new holder finds the application's lock there. */
	assert_int_equal(add(p, 1, 1), 0);
	take(p, 1, 1);
	take(p, 0, 1);
	take(p, 2, 2);
	assert_locked(p, "0100");
	munmap(p, 4 * PAGE);
}

static void over_a_hole_nothing_is_locked(void **state)
{
	char *p = map(4);

	munmap(p + 2 * PAGE, PAGE);
	errno = 6;
	assert_int_equal(add(p, 0, 1), 0);
	assert_int_equal(add(p, 0, 4), -EFAULT);
	assert_int_equal(errno, 6);
	assert_locked(p, "10");
	assert_locked(p + 3 * PAGE, "0");
	take(p, 0, 1);
	assert_locked(p, "00");
	munmap(p, 4 * PAGE);
}

static void locked_pages_are_present(void **state)
{
	char *p = map(4);
	unsigned char vec[4];

	assert_int_equal(add(p, 0, 4), 0);
	mincore(p, 4 * PAGE, vec);
	for (int i = 0; i < 4; i++)
		assert_true(vec[i] & 1);
	take(p, 0, 4);
	munmap(p, 4 * PAGE);
}

/* As an ordinary user with room for 8 pages. */
static int limited(void)
{
	const struct rlimit eight = { 8 * PAGE, 8 * PAGE };
	char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (setrlimit(RLIMIT_MEMLOCK, &eight) || (!getuid() && setresuid(65534, 65534, 65534)))
		return 77;
	if (add(p, 0, 16) != -ENOMEM || page_locked(p))
		return 1;
	if (add(p, 0, 6) || add(p, 2, 6) || add(p, 8, 1) != -ENOMEM || page_locked(p + 8 * PAGE))
		return 2;
	take(p, 0, 6);
	if (add(p, 8, 2))
		return 3;
	take(p, 2, 6);
	take(p, 8, 2);
	return status_kib("VmLck") == 0 ? 0 : 4;
}

static void the_limit_is_honoured_and_given_back(void **state)
{
	int status = in_child(limited);

	if (exited(status, 77)) {
		print_message("cannot lower the limit here\n");
		skip();
	}
	assert_true(exited(status, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_stays_locked_until_its_last_holder_lets_go),
		cmocka_unit_test(what_the_application_locked_before_stays_locked),
		cmocka_unit_test(a_part_may_be_let_go),
		cmocka_unit_test(pages_that_are_gone_are_not_unlocked_in_the_place_of_others),
		cmocka_unit_test(over_a_hole_nothing_is_locked),
		cmocka_unit_test(locked_pages_are_present),
		cmocka_unit_test(the_limit_is_honoured_and_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

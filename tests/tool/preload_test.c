/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/preload.h"

static const struct preload ours = { .library = "/lib/libunpin.so", .answers = "/usr/libexec/unpin" };
static char list[256];

static const char *made(const char *before, unsigned runtimes)
{
	struct elfinfo elf = { .runtime = { "libasan.so.8", "libubsan.so.1" }, .runtimes = runtimes };

	assert_int_equal(preload_list(&ours, &elf, before, list, sizeof(list)), 0);
	return list;
}

static void the_library_comes_before_what_was_there(void **state)
{
	assert_string_equal(made(NULL, 0), "/lib/libunpin.so");
	assert_string_equal(made("", 0), "/lib/libunpin.so");
	assert_string_equal(made("/a.so", 0), "/lib/libunpin.so:/a.so");
	assert_string_equal(made("/a.so /b.so::/c.so", 0), "/lib/libunpin.so:/a.so:/b.so:/c.so");
}

/* The program may be an interpreter whose plug-in is what is built with the sanitizer. */
static void a_sanitizer_runtime_that_was_there_stays_first(void **state)
{
	assert_string_equal(made("/usr/lib/gcc/libasan.so", 0), "/usr/lib/gcc/libasan.so:/lib/libunpin.so");
	assert_string_equal(made("/a.so libtsan.so.2:/b.so", 0), "libtsan.so.2:/lib/libunpin.so:/a.so:/b.so");
	assert_string_equal(
		made("/x/libclang_rt.asan-x86_64.so", 0), "/x/libclang_rt.asan-x86_64.so:/lib/libunpin.so");
	assert_string_equal(made("/libasan.so/a.so", 0), "/lib/libunpin.so:/libasan.so/a.so");
}

static void a_sanitizer_runtime_comes_before_the_library(void **state)
{
	assert_string_equal(made("/a.so", 1), "libasan.so.8:/lib/libunpin.so:/a.so");
}

static void nothing_is_listed_twice(void **state)
{
	assert_string_equal(
		made("/a.so:/lib/libunpin.so:/a.so:libasan.so.8", 1), "libasan.so.8:/lib/libunpin.so:/a.so");
	assert_string_equal(made("/lib/libunpin.so.old", 0), "/lib/libunpin.so:/lib/libunpin.so.old");
}

static void a_list_that_does_not_fit_is_an_error(void **state)
{
	struct elfinfo elf = { .runtimes = 0 };

	assert_int_equal(preload_list(&ours, &elf, "/a.so", list, 20), -E2BIG);
	assert_int_equal(preload_list(&ours, &elf, NULL, list, 10), -E2BIG);
}

static void path_gets_the_answers_once_and_keeps_its_empty_elements(void **state)
{
	setenv("PATH", "/usr/bin::/bin", 1);
	assert_int_equal(preload_path(&ours), 0);
	assert_string_equal(getenv("PATH"), "/usr/libexec/unpin:/usr/bin::/bin");
	assert_int_equal(preload_path(&ours), 0);
	assert_string_equal(getenv("PATH"), "/usr/libexec/unpin:/usr/bin::/bin");
	unsetenv("PATH");
	assert_int_equal(preload_path(&ours), 0);
	assert_string_equal(getenv("PATH"), "/usr/libexec/unpin:/usr/bin:/bin");
}

static void a_library_that_is_named_must_exist_and_be_one(void **state)
{
	struct preload p;

	setenv("UNPIN_LIBRARY", "/no/such/libunpin.so", 1);
	assert_int_equal(preload_find(&p), -ENOENT);
	setenv("UNPIN_LIBRARY", "/proc/self/exe", 1);
	assert_int_equal(preload_find(&p), -EINVAL);
	unsetenv("UNPIN_LIBRARY");
}

static void the_status_of_a_program_that_did_not_start_is_that_of_env(void **state)
{
	assert_int_equal(preload_status(-ENOENT), 127);
	assert_int_equal(preload_status(-EACCES), 126);
	assert_int_equal(preload_status(-EPERM), 126);
}

static void a_program_without_the_library_knows_it(void **state)
{
	assert_false(preload_active());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_library_comes_before_what_was_there),
		cmocka_unit_test(a_sanitizer_runtime_that_was_there_stays_first),
		cmocka_unit_test(a_sanitizer_runtime_comes_before_the_library),
		cmocka_unit_test(nothing_is_listed_twice),
		cmocka_unit_test(a_list_that_does_not_fit_is_an_error),
		cmocka_unit_test(path_gets_the_answers_once_and_keeps_its_empty_elements),
		cmocka_unit_test(a_library_that_is_named_must_exist_and_be_one),
		cmocka_unit_test(the_status_of_a_program_that_did_not_start_is_that_of_env),
		cmocka_unit_test(a_program_without_the_library_knows_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tool/bench.h"

#define MIB ((uint64_t)1 << 20)

static void what_a_slow_device_would_take_too_long_for_is_halved(void **state)
{
	/* 20 MB/s for half a second. */
	assert_int_equal(bench_fit(20e6, 256 * MIB, MIB, 0.5), 8 * MIB);
	assert_int_equal(bench_fit(5e9, 256 * MIB, MIB, 0.5), 256 * MIB);
	/* Never below the least, and nothing where the speed is not known. */
	assert_int_equal(bench_fit(1, 256 * MIB, 16 * MIB, 0.5), 16 * MIB);
	assert_int_equal(bench_fit(1, 20, 16, 0.5), 20);
	assert_int_equal(bench_fit(0, 256 * MIB, MIB, 0.5), 256 * MIB);
}

static void wrong_bytes_fail_a_part_unless_the_report_says_so_on_top(void **state)
{
	struct bench b;

	memset(&b, 0, sizeof(b));
	assert_int_equal(bench_wrong(&b, "page %d is wrong", 3), -EBADMSG);
	assert_string_equal(b.why, "page 3 is wrong");
	strcpy(b.wrong, "this device delivers wrong bytes");
	assert_int_equal(bench_wrong(&b, "page %d is wrong", 4), 0);
	assert_string_equal(b.why, "page 3 is wrong");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_slow_device_would_take_too_long_for_is_halved),
		cmocka_unit_test(wrong_bytes_fail_a_part_unless_the_report_says_so_on_top),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

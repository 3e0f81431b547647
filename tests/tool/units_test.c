/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/units.h"

static char b[UNITS_MAX];

static void bytes_have_binary_units(void **state)
{
	assert_string_equal(units_bytes(b, 0), "0 B");
	assert_string_equal(units_bytes(b, 1023), "1023 B");
	assert_string_equal(units_bytes(b, 65536), "64 KiB");
	assert_string_equal(units_bytes(b, 1536), "1.50 KiB");
	assert_string_equal(units_bytes(b, 64ull << 30), "64 GiB");
	assert_string_equal(units_bytes(b, UINT64_MAX), "16 EiB");
}

static void times_have_three_digits(void **state)
{
	assert_string_equal(units_time(b, 0), "0 ns");
	assert_string_equal(units_time(b, 999), "999 ns");
	assert_string_equal(units_time(b, 1234), "1.23 us");
	assert_string_equal(units_time(b, 45600000), "45.6 ms");
	assert_string_equal(units_time(b, 123000000000), "123 s");
}

static void small_and_large_values_keep_their_digits(void **state)
{
	assert_string_equal(units_digits(b, 0), "0");
	assert_string_equal(units_digits(b, 0.01234), "0.0123");
	assert_string_equal(units_digits(b, 0.5), "0.500");
	assert_string_equal(units_digits(b, 1.234), "1.23");
	assert_string_equal(units_digits(b, 12.34), "12.3");
	assert_string_equal(units_digits(b, 12345.6), "12346");
	assert_string_equal(units_digits(b, -1.5), "-1.50");
}

static void computed_quantities_are_cut_off_and_never_out_of_range(void **state)
{
	assert_int_equal(units_whole(0), 0);
	assert_int_equal(units_whole(2.9), 2);
	assert_int_equal(units_whole(-1), 0);
	assert_int_equal(units_whole(NAN), 0);
	assert_int_equal(units_whole(INFINITY), UINT64_MAX);
	assert_int_equal(units_whole(-INFINITY), 0);
	assert_int_equal(units_whole(0x1p64), UINT64_MAX);
	assert_int_equal(units_whole(0x1p63), 1ull << 63);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_have_binary_units),
		cmocka_unit_test(times_have_three_digits),
		cmocka_unit_test(computed_quantities_are_cut_off_and_never_out_of_range),
		cmocka_unit_test(small_and_large_values_keep_their_digits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

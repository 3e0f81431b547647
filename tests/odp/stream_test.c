/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "odp/stream.h"

#define PAGE 4096ul

static struct streams s;
static const char region[2];

static int clear(void **state)
{
	(void)state;
	memset(&s, 0, sizeof(s));
	return 0;
}

static void a_stream_goes_on_where_it_stopped_and_once(void **state)
{
	stream_put(&s, region, 7 * PAGE, 16);
	assert_int_equal(stream_take(&s, region, 8 * PAGE), 0);
	assert_int_equal(stream_take(&s, region, 7 * PAGE), 16);
	assert_int_equal(stream_take(&s, region, 7 * PAGE), 0);
}

static void regions_do_not_take_over_each_others_streams(void **state)
{
	stream_put(&s, &region[0], 7 * PAGE, 4);
	assert_int_equal(stream_take(&s, &region[1], 7 * PAGE), 0);
	assert_int_equal(stream_take(&s, &region[0], 7 * PAGE), 4);
}

static void page_zero_is_no_stream_of_nobody(void **state)
{
	assert_int_equal(stream_take(&s, NULL, 0), 0);
}

static void a_stream_stands_random_faults(void **state)
{
	uint64_t x = 12345;
	unsigned survived = 0;

	for (unsigned round = 0; round < 100; round++) {
		stream_put(&s, region, (round * 1000ul + 1) * PAGE, 64);
		for (unsigned i = 0; i < 64; i++) {
			x = x * 6364136223846793005ull + 1442695040888963407ull;
			stream_put(&s, region, (x >> 20 << 12) | 1ul << 60, 1);
		}
		survived += stream_take(&s, region, (round * 1000ul + 1) * PAGE) == 64;
	}
	/* Pushed out when four of the 64 fall into its set of 64: two in a hundred. */
	assert_in_range(survived, 90, 100);
}

#define TEST(name) cmocka_unit_test_setup(name, clear)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_stream_goes_on_where_it_stopped_and_once),
		TEST(regions_do_not_take_over_each_others_streams),
		TEST(page_zero_is_no_stream_of_nobody),
		TEST(a_stream_stands_random_faults),
	};

	return cmocka_run_group_tests_name("odp/stream", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/trace_event.h"

#define WINDOW (1ull << 37) /* of a short one's time, to each side */

static struct trace_event read_short(uint64_t ticks, uint64_t near, uint64_t a, uint64_t b)
{
	struct trace_unit u = trace_event_short(TRACE_COMPLETION, ticks, a, b);
	struct trace_event e;
	uint64_t at = near;

	assert_int_equal(trace_event_read(&u, 1, &at, &e), 1);
	assert_int_equal(at, e.begin);
	assert_int_equal(e.site, TRACE_COMPLETION);
	assert_true(e.in_ticks);
	assert_int_equal(e.length_ns, 0);
	assert_int_equal(e.a, a);
	assert_int_equal(e.b, b);
	return e;
}

static void a_short_one_has_all_but_the_last_bits_of_its_time(void **state)
{
	static const uint64_t nears[] = { 0, 1, 15, 16, 12345678901234567ull, 1ull << 38, (1ull << 38) - 1,
		UINT64_MAX - TRACE_EVENT_FAR };
	static const uint64_t aparts[] = { 0, 1, 17, 1000000007, TRACE_EVENT_FAR - 1 };

	for (size_t i = 0; i < sizeof(nears) / sizeof(nears[0]); i++)
		for (size_t k = 0; k < sizeof(aparts) / sizeof(aparts[0]); k++) {
			uint64_t t = nears[i] + aparts[k];

			assert_int_equal(read_short(t, nears[i], 17, UINT64_MAX).begin, t & ~15ull);
		}
}

static void a_short_one_may_lie_a_little_before(void **state)
{
	assert_int_equal(
		read_short((1ull << 38) - 160, (1ull << 38) + 5, 0xffffff, 0).begin, (1ull << 38) - 160);
	assert_int_equal(read_short(1ull << 40, (1ull << 40) + WINDOW - 16, 1, 1).begin, 1ull << 40);
}

static void what_does_not_fit_is_long(void **state)
{
	assert_true(trace_event_fits(TRACE_EVENT_FAR - 1, 0xffffff));
	assert_false(trace_event_fits(TRACE_EVENT_FAR, 0));
	assert_false(trace_event_fits(0, 0x1000000));
	/* What is recorded as short can be read. */
	assert_true(TRACE_EVENT_FAR < WINDOW);
}

static void a_long_one_has_everything(void **state)
{
	struct trace_unit u[2] = { trace_event_long(TRACE_FAULT, 1234, 5678), { { UINT64_MAX, 9 } } };
	struct trace_event e;
	uint64_t near = 42;

	assert_int_equal(trace_event_read(u, 2, &near, &e), 2);
	assert_int_equal(e.site, TRACE_FAULT);
	assert_false(e.in_ticks);
	assert_int_equal(e.begin, 1234);
	assert_int_equal(e.length_ns, 5678);
	assert_int_equal(e.a, UINT64_MAX);
	assert_int_equal(e.b, 9);
	assert_int_equal(near, 42);
	u[0] = trace_event_long(TRACE_STORM, 0, UINT64_MAX);
	assert_int_equal(trace_event_read(u, 2, &near, &e), 2);
	assert_int_equal(e.site, TRACE_STORM);
	assert_int_equal(e.length_ns, UINT64_MAX >> 8);
}

static void a_long_moment_tells_the_time_to_those_behind_it(void **state)
{
	struct trace_unit u[2] = { trace_event_long_moment(TRACE_POST_SEND, 7ull << 50), { { 1, 2 } } };
	struct trace_event e;
	uint64_t near = 0;

	assert_int_equal(trace_event_read(u, 2, &near, &e), 2);
	assert_true(e.in_ticks);
	assert_int_equal(near, 7ull << 50);
	assert_int_equal(read_short((7ull << 50) + 64, near, 1, 1).begin, (7ull << 50) + 64);
}

static void what_is_no_event_is_refused(void **state)
{
	struct trace_unit u[2] = { trace_event_long(TRACE_FAULT, 1, 2), { { 0, 0 } } };
	struct trace_event e;
	uint64_t near = 0;

	assert_int_equal(trace_event_read(u, 0, &near, &e), 0);
	assert_int_equal(trace_event_read(u, 1, &near, &e), 0);
	for (uint64_t site = TRACE_SITE_COUNT; site < 1 << TRACE_EVENT_SITE_BITS; site++)
		for (uint64_t is_short = 0; is_short < 2; is_short++) {
			u[0].word[0] = site << 1 | is_short;
			assert_int_equal(trace_event_read(u, 2, &near, &e), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_short_one_has_all_but_the_last_bits_of_its_time),
		cmocka_unit_test(a_short_one_may_lie_a_little_before),
		cmocka_unit_test(what_does_not_fit_is_long),
		cmocka_unit_test(a_long_one_has_everything),
		cmocka_unit_test(a_long_moment_tells_the_time_to_those_behind_it),
		cmocka_unit_test(what_is_no_event_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "odp/owner.h"

static void a_number_leads_to_bounds_and_counters(void **state)
{
	struct unpin_odp_counters counters;
	struct owners o;
	uint16_t n;

	(void)state;
	assert_int_equal(owners_init(&o), 0);
	n = owner_take(&o, 4096, 8192, &counters);
	assert_int_not_equal(n, 0);
	assert_int_equal(owner_of(&o, n)->first, 4096);
	assert_int_equal(owner_of(&o, n)->end, 8192);
	assert_ptr_equal(owner_of(&o, n)->counters, &counters);
	owner_give(&o, n);
	assert_null(owner_of(&o, n)->counters);
	owners_destroy(&o);
}

static void numbers_run_out_into_nobody_and_come_back_oldest_first(void **state)
{
	struct unpin_odp_counters counters;
	struct owners o;
	uint16_t a, b;

	(void)state;
	assert_int_equal(owners_init(&o), 0);
	a = owner_take(&o, 0, 1, &counters);
	b = owner_take(&o, 0, 1, &counters);
	for (unsigned i = 2; i < OWNERS - 1; i++)
		assert_int_not_equal(owner_take(&o, 0, 1, &counters), 0);
	assert_int_equal(owner_take(&o, 0, 1, &counters), 0);
	owner_give(&o, 0);
	owner_give(&o, b);
	owner_give(&o, a);
	assert_int_equal(owner_take(&o, 0, 1, &counters), b);
	assert_int_equal(owner_take(&o, 0, 1, &counters), a);
	assert_int_equal(owner_take(&o, 0, 1, &counters), 0);
	owners_destroy(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_leads_to_bounds_and_counters),
		cmocka_unit_test(numbers_run_out_into_nobody_and_come_back_oldest_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

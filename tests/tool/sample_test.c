/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/sample.h"

static void median_and_quartiles_are_exact(void **state)
{
	struct sample s = { 0 };
	struct spread r;

	for (int i = 9; i >= 1; i--)
		sample_add(&s, i);
	r = sample_spread(&s);
	assert_true(r.median == 5 && r.q1 == 3 && r.q3 == 7);
	assert_int_equal(r.count, 9);
	sample_add(&s, 100);
	assert_true(sample_spread(&s).median == 5.5);
	assert_true(sample_quantile(&s, 0) == 1);
	assert_true(sample_quantile(&s, 1) == 100);
	sample_clear(&s);
	assert_int_equal(s.count, 0);
	sample_free(&s);
}

static void few_values_are_no_problem(void **state)
{
	struct sample s = { 0 };

	assert_true(sample_spread(&s).median == 0);
	assert_true(sample_quantile(&s, 0.5) == 0);
	sample_add(&s, 3);
	assert_true(sample_spread(&s).median == 3 && sample_spread(&s).q1 == 3 && sample_spread(&s).q3 == 3);
	sample_free(&s);
}

static void many_values_are_kept(void **state)
{
	struct sample s = { 0 };

	for (int i = 0; i < 10001; i++)
		sample_add(&s, (i * 7919) % 10001);
	assert_true(sample_spread(&s).median == 5000);
	sample_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(median_and_quartiles_are_exact),
		cmocka_unit_test(few_values_are_no_problem),
		cmocka_unit_test(many_values_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

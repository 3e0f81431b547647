/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/suggest.h"

static const char *best(const char *typed)
{
	static const char *const words[] = { "run", "bench", "stat", "registration" };
	struct suggest s;

	suggest_begin(&s, typed);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		suggest_offer(&s, words[i]);
	return s.best ? s.best : "";
}

static void distance_counts_single_slips(void **state)
{
	assert_int_equal(suggest_distance("stat", "stat"), 0);
	assert_int_equal(suggest_distance("stat", "sta"), 1);
	assert_int_equal(suggest_distance("stat", "stats"), 1);
	assert_int_equal(suggest_distance("stat", "sxat"), 1);
	assert_int_equal(suggest_distance("stat", "satt"), 1);
	assert_int_equal(suggest_distance("stat", "tast"), 2);
	assert_int_equal(suggest_distance("stat", "tsat"), 1);
	assert_int_equal(suggest_distance("", "abc"), 3);
	assert_true(suggest_distance("a", "a-word-longer-than-thirty-two-characters") == SIZE_MAX);
}

static void a_near_word_is_found_and_a_far_one_is_not(void **state)
{
	assert_string_equal(best("rnu"), "run");
	assert_string_equal(best("bnech"), "bench");
	assert_string_equal(best("reg"), "registration");
	assert_string_equal(best("regestratoin"), "registration");
	assert_string_equal(best("xyz"), "");
	assert_string_equal(best("top"), "");
	assert_string_equal(best(""), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(distance_counts_single_slips),
		cmocka_unit_test(a_near_word_is_found_and_a_far_one_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

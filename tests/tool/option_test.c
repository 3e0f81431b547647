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

#include "tool/option.h"

static bool verbose, quiet;
static const char *name, *size;
static const struct option_row rows[] = {
	{ 'v', "verbose", NULL, "says more", &verbose, NULL },
	{ 'q', "quiet", NULL, "says less", &quiet, NULL },
	{ 'n', "name", "NAME", "a name", NULL, &name },
	{ 0, "size", "BYTES", "a size", NULL, &size },
	{ 0, "secret", NULL, NULL, &quiet, NULL },
	{ 0 },
};

static int parse(int argc, const char **argv)
{
	verbose = quiet = false;
	name = size = NULL;
	return options_parse("try", rows, argc, (char **)argv);
}
#define PARSE(...)                                                                                           \
	parse(sizeof((const char *[]){ "try", __VA_ARGS__ }) / sizeof(char *),                               \
		(const char *[]){ "try", __VA_ARGS__, NULL })

static void every_spelling_of_a_value_is_understood(void **state)
{
	assert_int_equal(PARSE("--name", "a"), 3);
	assert_string_equal(name, "a");
	assert_int_equal(PARSE("--name=b=c"), 2);
	assert_string_equal(name, "b=c");
	assert_int_equal(PARSE("-n", "d"), 3);
	assert_string_equal(name, "d");
	assert_int_equal(PARSE("-ne"), 2);
	assert_string_equal(name, "e");
	assert_int_equal(PARSE("--name="), 2);
	assert_string_equal(name, "");
}

static void flags_may_be_clustered_before_a_value(void **state)
{
	assert_int_equal(PARSE("-vqn", "x", "rest"), 3);
	assert_true(verbose && quiet);
	assert_string_equal(name, "x");
}

static void parsing_stops_at_the_first_word_and_at_two_dashes(void **state)
{
	assert_int_equal(PARSE("-v", "program", "-q"), 2);
	assert_true(verbose && !quiet);
	assert_int_equal(PARSE("-v", "--", "-q"), 3);
	assert_false(quiet);
	assert_int_equal(PARSE("-"), 1);
	assert_int_equal(PARSE("--"), 2);
}

static void wrong_options_are_refused(void **state)
{
	assert_int_equal(PARSE("--nam"), -EINVAL);
	assert_int_equal(PARSE("-x"), -EINVAL);
	assert_int_equal(PARSE("--verbose=1"), -EINVAL);
	assert_int_equal(PARSE("--name"), -EINVAL);
	assert_int_equal(PARSE("-n"), -EINVAL);
	assert_int_equal(PARSE("--a-name-that-is-longer-than-any-word-that-could-be-suggested-for"), -EINVAL);
}

static void help_shows_every_option_but_internal_ones(void **state)
{
	char text[1024] = "";
	FILE *f = fmemopen(text, sizeof(text), "w");

	options_help(f, rows);
	fclose(f);
	assert_non_null(strstr(text, "-v, --verbose"));
	assert_non_null(strstr(text, "--size BYTES"));
	assert_null(strstr(text, "secret"));
}

static void numbers_are_whole_and_in_range(void **state)
{
	uint64_t v = 7;

	assert_int_equal(option_number("12", 1, 12, &v), 0);
	assert_int_equal(v, 12);
	assert_int_equal(option_number("13", 1, 12, &v), -ERANGE);
	assert_int_equal(option_number("0", 1, 12, &v), -ERANGE);
	assert_int_equal(option_number("99999999999999999999", 0, UINT64_MAX, &v), -ERANGE);
	assert_int_equal(option_number("", 0, 9, &v), -EINVAL);
	assert_int_equal(option_number("-1", 0, 9, &v), -EINVAL);
	assert_int_equal(option_number(" 1", 0, 9, &v), -EINVAL);
	assert_int_equal(option_number("1x", 0, 9, &v), -EINVAL);
	assert_int_equal(v, 12);
}

static void sizes_have_binary_units(void **state)
{
	uint64_t v = 0;

	assert_int_equal(option_bytes("4096", &v), 0);
	assert_int_equal(v, 4096);
	assert_int_equal(option_bytes("16M", &v), 0);
	assert_int_equal(v, 16 << 20);
	assert_int_equal(option_bytes("64KiB", &v), 0);
	assert_int_equal(v, 64 << 10);
	assert_int_equal(option_bytes("1gb", &v), 0);
	assert_int_equal(v, 1 << 30);
	assert_int_equal(option_bytes("2T", &v), 0);
	assert_true(v == 2ull << 40);
	assert_int_equal(option_bytes("17000000T", &v), -ERANGE);
	assert_int_equal(option_bytes("1Q", &v), -EINVAL);
	assert_int_equal(option_bytes("1Mx", &v), -EINVAL);
	assert_int_equal(option_bytes("M", &v), -EINVAL);
	assert_int_equal(option_bytes("", &v), -EINVAL);
}

static void seconds_are_positive_fractions(void **state)
{
	double v = 0;

	assert_int_equal(option_seconds("0.5", &v), 0);
	assert_true(v == 0.5);
	assert_int_equal(option_seconds("0", &v), -ERANGE);
	assert_int_equal(option_seconds("1e9", &v), -ERANGE);
	assert_int_equal(option_seconds("nan", &v), -EINVAL);
	assert_int_equal(option_seconds("-1", &v), -EINVAL);
	assert_int_equal(option_seconds("1s", &v), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_spelling_of_a_value_is_understood),
		cmocka_unit_test(flags_may_be_clustered_before_a_value),
		cmocka_unit_test(parsing_stops_at_the_first_word_and_at_two_dashes),
		cmocka_unit_test(wrong_options_are_refused),
		cmocka_unit_test(help_shows_every_option_but_internal_ones),
		cmocka_unit_test(numbers_are_whole_and_in_range),
		cmocka_unit_test(sizes_have_binary_units),
		cmocka_unit_test(seconds_are_positive_fractions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

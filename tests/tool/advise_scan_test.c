/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/advise.h"

static char got[4096]; /* all objects, each with a ';' behind it */
static int answer;

static int take(void *arg, char *text, size_t length)
{
	(void)arg;
	assert_int_equal(strlen(text), length);
	if (strlen(got) + length + 2 < sizeof(got)) {
		strcat(got, text);
		strcat(got, ";");
	}
	return answer;
}

static int scan_bytes(const char *data, size_t n, enum advise_scan_end *end, uint64_t *passed)
{
	FILE *f = tmpfile();
	int err;

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	rewind(f);
	got[0] = 0;
	err = advise_scan(f, take, NULL, end, passed);
	fclose(f);
	return err;
}

static enum advise_scan_end scan(const char *data)
{
	enum advise_scan_end end;
	uint64_t passed;

	answer = 0;
	assert_int_equal(scan_bytes(data, strlen(data), &end, &passed), 0);
	assert_int_equal(passed, 0);
	return end;
}

static void objects_come_one_at_a_time_however_they_are_laid_out(void **state)
{
	static const char *const same[] = { "[{\"a\":1},{\"b\":{\"c\":[2,{}]}}]",
		" \n[\n{\"a\":1} ,\n\n {\"b\":{\"c\":[2,{}]}}]\n\n",
		"{\"x\":[1,2],\"traceEvents\":[{\"a\":1},{\"b\":{\"c\":[2,{}]}}],\"y\":\"}\"}" };

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(scan(same[i]), ADVISE_SCAN_WHOLE);
		assert_string_equal(got, "{\"a\":1};{\"b\":{\"c\":[2,{}]}};");
	}
	assert_int_equal(scan("[]"), ADVISE_SCAN_WHOLE);
	assert_string_equal(got, "");
}

static void what_stands_in_strings_is_no_structure(void **state)
{
	assert_int_equal(scan("[{\"a\":\"}]{[\\\"}\\\\\"},\"{\",{\"b\":2}]"), ADVISE_SCAN_WHOLE);
	assert_string_equal(got, "{\"a\":\"}]{[\\\"}\\\\\"};{\"b\":2};");
}

static void a_file_that_is_cut_off_is_good_up_to_there(void **state)
{
	static const char whole[] = "[{\"a\":1},{\"b\":{}}]";
	char part[sizeof(whole)];

	for (size_t n = 1; n < strlen(whole); n++) {
		memcpy(part, whole, n);
		part[n] = 0;
		assert_int_equal(scan(part), ADVISE_SCAN_CUT);
		assert_string_equal(got, n < 8 ? "" : n < 17 ? "{\"a\":1};" : "{\"a\":1};{\"b\":{}};");
	}
}

static void other_files_are_told(void **state)
{
	static const char *const others[] = { "", " \n", "x", "1", "\"[\"", "null", "<html>" };

	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_int_equal(scan(others[i]), ADVISE_SCAN_NO_JSON);
}

static void an_object_that_is_too_long_is_passed_over(void **state)
{
	const size_t n = 3 * ADVISE_SCAN_MOST;
	char *data = malloc(n + 100);
	enum advise_scan_end end;
	uint64_t passed;

	assert_non_null(data);
	strcpy(data, "[{\"a\":1},{\"long\":\"");
	memset(data + strlen(data), 'x', n);
	strcpy(data + 18 + n, "\"},{\"b\":2}]");
	answer = 0;
	assert_int_equal(scan_bytes(data, strlen(data), &end, &passed), 0);
	assert_int_equal(passed, 1);
	assert_int_equal(end, ADVISE_SCAN_WHOLE);
	assert_string_equal(got, "{\"a\":1};{\"b\":2};");
	free(data);
}

static void whoever_takes_them_may_stop(void **state)
{
	enum advise_scan_end end;
	uint64_t passed;

	answer = -ENOSPC;
	assert_int_equal(scan_bytes("[{},{}]", 7, &end, &passed), -ENOSPC);
	assert_string_equal(got, "{};");
}

/* Brackets in any order, zero bytes, depths without end. */
static void noise_ends(void **state)
{
	static const char alphabet[] = "[]{}\"\\,:1 \n";
	static char data[20000];
	enum advise_scan_end end;
	uint64_t passed;

	answer = 0;
	srandom(1);
	for (unsigned round = 0; round < 2000; round++) {
		size_t n = (size_t)random() % sizeof(data);

		/* The last of the alphabet is a 0. */
		for (size_t i = 0; i < n; i++)
			data[i] = alphabet[(size_t)random() % sizeof(alphabet)];
		for (size_t i = 0; i < n && round % 2; i++)
			data[i] = data[i] ? data[i] : ' ';
		if (round % 2)
			assert_int_equal(scan_bytes(data, n, &end, &passed), 0);
	}
	memset(data, '[', sizeof(data));
	assert_int_equal(scan_bytes(data, sizeof(data), &end, &passed), 0);
	assert_int_equal(end, ADVISE_SCAN_CUT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_come_one_at_a_time_however_they_are_laid_out),
		cmocka_unit_test(what_stands_in_strings_is_no_structure),
		cmocka_unit_test(a_file_that_is_cut_off_is_good_up_to_there),
		cmocka_unit_test(other_files_are_told),
		cmocka_unit_test(an_object_that_is_too_long_is_passed_over),
		cmocka_unit_test(whoever_takes_them_may_stop),
		cmocka_unit_test(noise_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/compare.h"

static char a[] = "/tmp/unpin-compare-a-XXXXXX", b[] = "/tmp/unpin-compare-b-XXXXXX";
static char *text;

static void put(const char *file, const char *content)
{
	FILE *f = fopen(file, "w");

	assert_non_null(f);
	fputs(content, f);
	fclose(f);
}

static int compare(const char *first, const char *second)
{
	size_t size;
	FILE *out;
	int err;

	free(text);
	text = NULL;
	put(a, first);
	put(b, second);
	out = open_memstream(&text, &size);
	err = compare_print(a, b, out);
	fclose(out);
	return err;
}

#define RUN(device, parts) "{\"device\":\"" device "\",\"format\":1,\"quick\":true,\"parts\":{" parts "}}"

static void the_same_rows_stand_beside_each_other_in_whatever_order(void **state)
{
	int err = compare(
		RUN("one", "\"sizes\":{\"title\":\"Sizes\",\"rows\":[{\"size_bytes\":4096,\"pinned_us\":2.0},"
			   "{\"size_bytes\":8192,\"pinned_us\":4.0,\"rounds_count\":3}]}"),
		RUN("two", "\"sizes\":{\"title\":\"Sizes\",\"rows\":[{\"size_bytes\":8192,\"pinned_us\":6.0,"
			   "\"rounds_count\":9},"
			   "{\"size_bytes\":4096,\"pinned_us\":1.0}]}"));

	assert_int_equal(err, 0);
	assert_non_null(strstr(text, "device"));
	assert_non_null(strstr(text, "Sizes"));
	assert_non_null(strstr(text, "8 KiB  pinned_us  4.00 us  6.00 us    1.5"));
	assert_non_null(strstr(text, "4 KiB  pinned_us  2.00 us  1.00 us    0.5"));
	assert_null(strstr(text, "rounds_count"));
	/* Facts that are the same are not repeated. */
	assert_null(strstr(text, "quick"));
	assert_null(strstr(text, "Only in"));
}

static void what_only_one_has_is_listed(void **state)
{
	int err = compare(
		RUN("one", "\"x\":{\"title\":\"X\",\"rows\":[{\"way\":\"cold\",\"a_us\":1,\"gone_us\":2}]},"
			   "\"y\":{\"rows\":[]}"),
		RUN("two", "\"x\":{\"title\":\"X\",\"rows\":[{\"way\":\"cold\",\"a_us\":1},{\"way\":\"warm\","
			   "\"a_us\":1}]},"
			   "\"z\":{\"rows\":[]}"));

	assert_int_equal(err, 0);
	assert_non_null(strstr(text, "cold: gone_us   A"));
	assert_non_null(strstr(text, "warm            B"));
	assert_non_null(strstr(text, "y     the whole part  A"));
	assert_non_null(strstr(text, "z     the whole part  B"));
}

static void what_is_no_report_is_refused(void **state)
{
	static const struct {
		const char *text;
		int err;
	} wrong[] = {
		{ "", -EINVAL },
		{ "{", -EINVAL },
		{ "[]", -EINVAL },
		{ "3", -EINVAL },
		{ "{}", -EINVAL },
		{ "{\"format\":1,\"device\":\"x\"}", -EINVAL },
		{ "{\"format\":\"1\",\"device\":\"x\",\"parts\":{}}", -EINVAL },
		{ "{\"format\":2,\"device\":\"x\",\"parts\":{}}", -EPROTO },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(compare(wrong[i].text, RUN("x", "")), wrong[i].err);
		assert_int_equal(compare(RUN("x", ""), wrong[i].text), wrong[i].err);
		assert_string_equal(text, "");
	}
	assert_int_equal(compare_print("/no/such/file", b, stdout), -ENOENT);
}

static void strange_values_are_passed_over(void **state)
{
	assert_int_equal(compare(RUN("x", "\"p\":{\"rows\":[3,null,{\"way\":null,\"a_us\":null},{\"b_us\":0}]"
					  "},\"q\":7"),
				 RUN("x", "\"p\":{\"rows\":[{\"b_us\":5},{\"b_us\":\"many\"}]},\"q\":null")),
		0);
	assert_int_equal(compare(RUN("x", "\"p\":{\"rows\":{}}"), RUN("x", "\"p\":{\"rows\":[[]]}")), 0);
}

static int make(void **state)
{
	int one = mkstemp(a), two = mkstemp(b);

	close(one);
	close(two);
	return one < 0 || two < 0;
}

static int unmake(void **state)
{
	free(text);
	unlink(a);
	unlink(b);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_rows_stand_beside_each_other_in_whatever_order),
		cmocka_unit_test(what_only_one_has_is_listed),
		cmocka_unit_test(what_is_no_report_is_refused),
		cmocka_unit_test(strange_values_are_passed_over),
	};

	return cmocka_run_group_tests(tests, make, unmake);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/table.h"

static void columns_are_as_wide_as_they_must_be(void **state)
{
	static const char *const headings[] = { "<name", "n", "<what" };
	char text[256] = "";
	FILE *f = fmemopen(text, sizeof(text), "w");
	struct table t;

	table_init(&t, headings, 3);
	table_add(&t, "%s", "a");
	table_add(&t, "%d", 1000);
	table_add(&t, "%s", "x");
	table_add(&t, "%s", "long±er");
	table_add(&t, "%d", 2);
	table_add(&t, "%s", "y");
	table_add(&t, "%s", "a row that is not full");
	table_print(&t, f, 2);
	fclose(f);
	table_free(&t);
	assert_string_equal(text, "  name        n  what\n"
				  "  a        1000  x\n"
				  "  long±er     2  y\n");
}

static void a_table_without_rows_prints_its_headings(void **state)
{
	static const char *const headings[] = { "<name", "n" };
	char text[64] = "";
	FILE *f = fmemopen(text, sizeof(text), "w");
	struct table t;

	table_init(&t, headings, 2);
	table_print(&t, f, 0);
	fclose(f);
	table_free(&t);
	assert_string_equal(text, "name  n\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_are_as_wide_as_they_must_be),
		cmocka_unit_test(a_table_without_rows_prints_its_headings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

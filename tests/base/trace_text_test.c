/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/trace_text.h"

/* Ends where the memory ends, so that a sanitizer sees who reads on. */
static bool is_object(const char *text)
{
	size_t n = strlen(text);
	char *exact = malloc(n + !n);
	bool yes;

	memcpy(exact, text, n);
	yes = trace_text_is_object(exact, n);
	free(exact);
	return yes;
}

static void objects_are_taken(void **state)
{
	static const char *const right[] = {
		"{}",
		" { } ",
		"{\"a\":1}",
		"{\"a\":-0.5e+10,\"b\":[1,2,[]],\"c\":{\"d\":null},\"e\":true,\"f\":false}",
		"{\"\\u00e9\\n\\\"\\\\\\/\" : \"\xc3\xa9\x7f\" , \"z\" : 0 }",
	};

	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		if (!is_object(right[i]))
			fail_msg("refused: %s", right[i]);
}

static void whatever_else_is_refused(void **state)
{
	static const char *const wrong[] = {
		"",
		" ",
		"{",
		"}",
		"[]",
		"1",
		"\"a\"",
		"null",
		"{}{}",
		"{},",
		"{}}",
		"{\"a\"}",
		"{\"a\":}",
		"{\"a\":1,}",
		"{,}",
		"{\"a\":1 \"b\":2}",
		"{a:1}",
		"{\"a\":01}",
		"{\"a\":+1}",
		"{\"a\":1.}",
		"{\"a\":.5}",
		"{\"a\":1e}",
		"{\"a\":-}",
		"{\"a\":tru}",
		"{\"a\":nulll}",
		"{\"a\":[1,]}",
		"{\"a\":[1}",
		"{\"a\":\"\n\"}",
		"{\"a\":\"\\x\"}",
		"{\"a\":\"\\u12g4\"}",
		"{\"a\":\"\\u12",
		"{\"a\":\"\\",
		"{\"a\":\"b",
		"{\n}",
		"{\"a\":NaN}",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		if (is_object(wrong[i]))
			fail_msg("taken: %s", wrong[i]);
	assert_false(trace_text_is_object("{\"a\":\"\0\"}", 9));
}

/* As deep as is allowed, and one more; no stack is eaten by more. */
static void depth_is_bounded(void **state)
{
	static char text[8192];

	for (unsigned depth = 62; depth < 4000; depth += depth < 65 ? 1 : 1000) {
		strcpy(text, "{\"a\":");
		memset(text + 5, '[', depth);
		memset(text + 5 + depth, ']', depth);
		strcpy(text + 5 + 2 * depth, "}");
		assert_int_equal(is_object(text), depth <= 63);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_are_taken),
		cmocka_unit_test(whatever_else_is_refused),
		cmocka_unit_test(depth_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

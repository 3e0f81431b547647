/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/trace.h"
#include "timeline.h"

static void each_shape_is_in_the_file_as_the_format_wants_it(void **state)
{
	json_object *f, *o;

	assert_int_equal(trace_open(timeline_path), 0);
	assert_true(trace_enabled());
	trace_record(TRACE_RESOLVE, 1234567, 1234999, 0xabcd000, 3);
	trace_record(TRACE_FAULT, 5000000, 7000001, 0x1000, 1);
	trace_record(TRACE_COMPLETION, 9000042, 9000042, 17, UINT64_MAX);
	trace_record(TRACE_STORM, 1000, 2000, 1, 0);
	trace_close();
	assert_false(trace_enabled());
	f = timeline_read(timeline_path);
	o = timeline_find(f, "resolve", 0);
	assert_string_equal(timeline_text(o, "ph"), "X");
	assert_string_equal(timeline_text(o, "cat"), "odp");
	assert_string_equal(timeline_text(o, "ts"), "1234.567");
	assert_string_equal(timeline_text(o, "dur"), "0.432");
	assert_int_equal(timeline_number(o, "pid"), getpid());
	assert_int_equal(timeline_number(o, "tid"), gettid());
	assert_string_equal(json_object_get_string(timeline_argument(o, "addr")), "0xabcd000");
	assert_int_equal(json_object_get_int64(timeline_argument(o, "pages")), 3);
	o = timeline_find(f, "fault", 0);
	assert_string_equal(timeline_text(o, "ph"), "b");
	assert_string_equal(timeline_text(o, "ts"), "5000.000");
	assert_string_equal(timeline_text(timeline_find(f, "fault", 1), "ph"), "e");
	assert_string_equal(timeline_text(timeline_find(f, "fault", 1), "ts"), "7000.001");
	assert_int_equal(timeline_number(o, "id"), timeline_number(timeline_find(f, "fault", 1), "id"));
	o = timeline_find(f, "completion", 0);
	assert_string_equal(timeline_text(o, "ph"), "i");
	assert_string_equal(json_object_get_string(timeline_argument(o, "wr_id")), "0xffffffffffffffff");
	assert_string_equal(json_object_get_string(timeline_argument(timeline_find(f, "storm", 0), "cause")),
		"major faults");
	assert_int_equal(timeline_count(f, "process_name"), 1);
	assert_int_equal(timeline_count(f, "thread_name"), 1);
	assert_int_equal(timeline_dropped(f), 0);
	json_object_put(f);
}

static void texts_stand_in_the_file_as_they_came(void **state)
{
	char text[TRACE_TEXT_MAX], ts[TRACE_US_BYTES];
	json_object *f;
	int n;

	trace_text("{}", 2); /* off */
	assert_int_equal(trace_open(timeline_path), 0);
	for (unsigned i = 0; i < 100; i++) {
		n = snprintf(text, sizeof(text),
			"{\"name\":\"text\",\"ph\":\"i\",\"ts\":%s,\"args\":{\"i\":%u}}",
			trace_us(ts, 1000 * i + 7), i);
		trace_text(text, (size_t)n);
	}
	/* The longest, and one that is longer. */
	memset(text, ' ', sizeof(text));
	memcpy(text, "{\"name\":\"long\"", 14);
	text[sizeof(text) - 1] = '}';
	trace_text(text, sizeof(text));
	trace_text(text, sizeof(text) + 1);
	trace_close();
	f = timeline_read(timeline_path);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(json_object_get_int(timeline_argument(timeline_find(f, "text", i), "i")), i);
		snprintf(text, sizeof(text), "%u.007", i);
		assert_string_equal(timeline_text(timeline_find(f, "text", i), "ts"), text);
	}
	assert_int_equal(timeline_count(f, "long"), 1);
	assert_int_equal(timeline_dropped(f), 1);
	json_object_put(f);
}

static void texts_that_find_no_room_are_counted(void **state)
{
	const int64_t all = 4 * TRACE_TEXT_QUEUE / 64;
	char text[64] = "{\"name\":\"text\"";
	json_object *f;

	memset(text + 14, ' ', sizeof(text) - 14);
	text[sizeof(text) - 1] = '}';
	assert_int_equal(trace_open(timeline_path), 0);
	for (int64_t i = 0; i < all; i++)
		trace_text(text, sizeof(text));
	trace_close();
	f = timeline_read(timeline_path);
	assert_true(timeline_dropped(f) > 0);
	assert_int_equal((int64_t)timeline_count(f, "text") + timeline_dropped(f), all);
	json_object_put(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, timeline_make, timeline_unmake)
		CASE(each_shape_is_in_the_file_as_the_format_wants_it),
		CASE(texts_stand_in_the_file_as_they_came),
		CASE(texts_that_find_no_room_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

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
#include <json-c/json.h>
#include <cmocka.h>

#include "tool/report.h"

enum { NAME, TIME, SIZE, HIDDEN };

static const struct report_column columns[] = {
	[NAME] = { "name", NULL, "<name" },
	[TIME] = { "time", "us", "time us" },
	[SIZE] = { "size", "bytes", "size" },
	[HIDDEN] = { "hidden", "count", NULL },
};

static struct report r;

static int make(void **state)
{
	struct report_part *p;

	report_fact_text(&r, "device", "unpin0");
	report_fact_number(&r, "memory_bytes", 1 << 20);
	report_fact_number(&r, "limit_bytes", UINT64_MAX);
	report_fact_flag(&r, "interrupted", false);
	report_fact_flag(&r, "interrupted", true);
	p = report_part(&r, "things", "Things", "What things cost.", columns, 4);
	report_row(p);
	report_words(p, NAME, "first");
	report_spread(p, TIME, (struct spread){ .median = 2, .q1 = 1, .q3 = 3, .count = 5 });
	report_bytes(p, SIZE, 4096);
	report_number(p, HIDDEN, 42);
	report_row(p);
	report_words(p, NAME, "second");
	report_words(p, TIME, "not here");
	report_note(p, "A note about %d things.", 2);
	report_at_most(p, "fast", "things are fast", 2, 3, "us");
	report_at_most(p, "just", "things are just fast enough", 3, 3, "us");
	report_at_least(p, "many", "things are many", 2, 10, "things");
	report_part(&r, "empty", "Empty", "Nothing was measured.", columns, 4);
	return 0;
}

static int unmake(void **state)
{
	report_free(&r);
	return 0;
}

static json_object *written(void)
{
	char path[] = "/tmp/unpin-report-XXXXXX";
	json_object *o;

	close(mkstemp(path));
	assert_int_equal(report_json(&r, path), 0);
	o = json_object_from_file(path);
	unlink(path);
	assert_non_null(o);
	return o;
}

/* The value at a path of keys and indices, for example "parts.things.rows.0.name". */
static const char *at(json_object *o, const char *path)
{
	char copy[128], *key, *rest = copy;

	snprintf(copy, sizeof(copy), "%s", path);
	while (o && (key = strsep(&rest, "."))) {
		if (json_object_is_type(o, json_type_array))
			o = json_object_array_get_idx(o, (size_t)atoi(key));
		else if (!json_object_object_get_ex(o, key, &o))
			o = NULL;
	}
	return o ? json_object_get_string(o) : "";
}

static void json_has_the_units_in_its_keys(void **state)
{
	json_object *o = written();

	assert_string_equal(at(o, "device"), "unpin0");
	assert_string_equal(at(o, "memory_bytes"), "1048576");
	assert_string_equal(at(o, "interrupted"), "true");
	assert_string_equal(at(o, "parts.things.title"), "Things");
	assert_string_equal(at(o, "parts.things.rows.0.name"), "first");
	assert_string_equal(at(o, "parts.things.rows.0.time_us"), "2");
	assert_string_equal(at(o, "parts.things.rows.0.time_q1_us"), "1");
	assert_string_equal(at(o, "parts.things.rows.0.time_q3_us"), "3");
	assert_string_equal(at(o, "parts.things.rows.0.size_bytes"), "4096");
	assert_string_equal(at(o, "parts.things.rows.0.hidden_count"), "42");
	assert_string_equal(at(o, "parts.things.rows.1.time"), "not here");
	assert_string_equal(at(o, "parts.things.rows.1.time_us"), "");
	assert_string_equal(at(o, "parts.things.notes.0"), "A note about 2 things.");
	json_object_put(o);
}

static void targets_say_whether_they_are_met(void **state)
{
	json_object *o = written();

	assert_string_equal(at(o, "parts.things.targets.0.met"), "true");
	assert_string_equal(at(o, "parts.things.targets.0.at_most"), "3");
	assert_string_equal(at(o, "parts.things.targets.1.met"), "true");
	assert_string_equal(at(o, "parts.things.targets.2.met"), "false");
	assert_string_equal(at(o, "parts.things.targets.2.at_least"), "10");
	json_object_put(o);
}

static void the_text_shows_the_same(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	report_print(&r, f);
	fclose(f);
	assert_non_null(strstr(text, "device unpin0, memory 1 MiB, limit none\n"));
	assert_non_null(strstr(text, "  name              time us   size\n"
				     "  first   2.00 [1.00..3.00]  4 KiB\n"
				     "  second           not here"));
	assert_null(strstr(text, "42"));
	assert_non_null(strstr(text, "met     things are fast: 2.00 us (target: at most 3.00 us)"));
	assert_non_null(strstr(text, "MISSED  things are many: 2.00 things (target: at least 10.0 things)"));
	assert_non_null(strstr(text, "Interrupted"));
	free(text);
}

static void a_file_that_cannot_be_written_is_an_error(void **state)
{
	assert_int_equal(report_json(&r, "/no/such/directory/file"), -ENOENT);
	assert_int_equal(report_json(&r, "/dev/full"), -ENOSPC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(json_has_the_units_in_its_keys),
		cmocka_unit_test(targets_say_whether_they_are_met),
		cmocka_unit_test(the_text_shows_the_same),
		cmocka_unit_test(a_file_that_cannot_be_written_is_an_error),
	};

	return cmocka_run_group_tests(tests, make, unmake);
}

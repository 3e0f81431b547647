/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/trace.h"
#include "base/trace_spool.h"

char timeline_folder[64], timeline_path[128], timeline_spool[136], timeline_copy[136];

int timeline_make(void **state)
{
	strcpy(timeline_folder, "/tmp/unpin-trace.XXXXXX");
	if (!mkdtemp(timeline_folder))
		return -1;
	snprintf(timeline_path, sizeof(timeline_path), "%s/t.json", timeline_folder);
	snprintf(timeline_spool, sizeof(timeline_spool), "%s" TRACE_SPOOL_SUFFIX, timeline_path);
	snprintf(timeline_copy, sizeof(timeline_copy), "%s.copy", timeline_path);
	return 0;
}

int timeline_unmake(void **state)
{
	char command[128];

	trace_close();
	snprintf(command, sizeof(command), "rm -rf %s", timeline_folder);
	return system(command);
}

json_object *timeline_read(const char *name)
{
	json_object *o = json_object_from_file(name);

	assert_non_null(o);
	assert_true(json_object_is_type(o, json_type_array));
	return o;
}

const char *timeline_text(json_object *o, const char *key)
{
	json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "";
}

double timeline_number(json_object *o, const char *key)
{
	json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_double(v) : -1;
}

json_object *timeline_argument(json_object *o, const char *key)
{
	json_object *args = NULL, *v = NULL;

	assert_true(json_object_object_get_ex(o, "args", &args));
	assert_true(json_object_object_get_ex(args, key, &v));
	return v;
}

json_object *timeline_find(json_object *file, const char *name, size_t nth)
{
	for (size_t i = 0; i < json_object_array_length(file); i++) {
		json_object *o = json_object_array_get_idx(file, i);

		if (strcmp(timeline_text(o, "name"), name) == 0 && nth-- == 0)
			return o;
	}
	return NULL;
}

size_t timeline_count(json_object *file, const char *name)
{
	size_t n = 0;

	for (size_t i = 0; i < json_object_array_length(file); i++)
		n += strcmp(timeline_text(json_object_array_get_idx(file, i), "name"), name) == 0;
	return n;
}

int64_t timeline_dropped(json_object *file)
{
	size_t n = timeline_count(file, "dropped_events");

	assert_true(n > 0);
	return json_object_get_int64(
		timeline_argument(timeline_find(file, "dropped_events", n - 1), "dropped"));
}

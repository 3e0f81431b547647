/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/compare.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tool/alloc.h"
#include "tool/table.h"
#include "tool/units.h"

#define FORMAT	 1
#define FILE_MAX (64 << 20) /* a report has some hundred kilobytes */

/* --- reading -----------------------------------------------------------------------------------------------
 */

static char *read_file(const char *path, int *err)
{
	FILE *f = fopen(path, "re");
	size_t used = 0, room = 1 << 16;
	char *text;

	if (!f) {
		*err = -errno;
		return NULL;
	}
	text = alloc_array(1, room);
	errno = 0;
	while (used < FILE_MAX) {
		size_t n = fread(text + used, 1, room - used - 1, f);

		used += n;
		if (!n)
			break;
		if (used + 1 == room) {
			room *= 2;
			text = alloc_grow(text, room, 1);
		}
	}
	*err = ferror(f) ? (errno ? -errno : -EIO) : used >= FILE_MAX ? -EFBIG : 0;
	fclose(f);
	text[used] = 0;
	if (*err) {
		free(text);
		return NULL;
	}
	return text;
}

static json_object *member(json_object *o, const char *key, json_type type)
{
	json_object *v;

	return json_object_object_get_ex(o, key, &v) && json_object_is_type(v, type) ? v : NULL;
}

static int check_format(const char *path, json_object *o)
{
	json_object *format =
		o && json_object_is_type(o, json_type_object) ? member(o, "format", json_type_int) : NULL;

	if (!format || !member(o, "device", json_type_string)) {
		log_error("bench: %s is not a report of 'unpin bench --json'", path);
		return -EINVAL;
	}
	if (json_object_get_int(format) != FORMAT) {
		log_error("bench: %s has format %d, this unpin understands format %d: compare with the unpin "
			  "that "
			  "wrote it, or measure again",
			path, json_object_get_int(format), FORMAT);
		return -EPROTO;
	}
	if (!member(o, "parts", json_type_object)) {
		log_error("bench: %s has no parts: it is not a report of 'unpin bench --json'", path);
		return -EINVAL;
	}
	return 0;
}

static int load(const char *path, json_object **out)
{
	enum json_tokener_error why;
	char *text;
	int err = 0;

	*out = NULL;
	text = read_file(path, &err);
	if (!text) {
		log_error("bench: cannot read %s: %s", path, strerror(-err));
		return err;
	}
	*out = json_tokener_parse_verbose(text, &why);
	free(text);
	if (!*out) {
		log_error("bench: %s is not JSON: %s", path, json_tokener_error_desc(why));
		return -EINVAL;
	}
	return check_format(path, *out);
}

/* --- which figure is which ---------------------------------------------------------------------------------
 */

/* Numbers that say what a row is about, and not what was measured. */
static const char *const subjects[] = { "size_bytes", "outstanding_count", "number_count", "uses_count",
	"message_bytes", "of_limit_percent", "connections_count", "working_set_bytes" };

/* And such as say how it was measured. */
static const char *const manners[] = { "rounds_count", "samples_count", "repetitions_count",
	"round_trips_count", "round_bytes", "transfer_bytes", "pages_count", "duration_s", "length_bytes",
	"requests_count", "hot_bytes" };

static bool is_in(const char *key, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i], key) == 0)
			return true;
	return false;
}

#define IS_IN(key, list) is_in(key, list, sizeof(list) / sizeof((list)[0]))

static bool is_number(json_object *v)
{
	return json_object_is_type(v, json_type_double) || json_object_is_type(v, json_type_int);
}

static bool is_figure(const char *key, json_object *v)
{
	return is_number(v) && !IS_IN(key, subjects) && !IS_IN(key, manners) && !strstr(key, "_q1") &&
	       !strstr(key, "_q3") && !strstr(key, "_before_") && !strstr(key, "_registered_") &&
	       !strstr(key, "_after_");
}

static bool ends_with(const char *text, const char *end)
{
	size_t a = strlen(text), b = strlen(end);

	return a >= b && strcmp(text + a - b, end) == 0;
}

static char *show(const char *key, double v)
{
	char buf[UNITS_MAX];

	if (v >= 0 && ends_with(key, "_us"))
		return alloc_text("%s", units_time(buf, (uint64_t)(v * 1000 + 0.5)));
	if (v >= 0 && ends_with(key, "_bytes"))
		return alloc_text("%s", units_bytes(buf, (uint64_t)v));
	return alloc_text("%s", units_digits(buf, v));
}

/* What a row is about: its words and subjects. */
static char *row_name(json_object *row)
{
	char *name = alloc_text("%s", "");

	json_object_object_foreach(row, key, v)
	{
		bool words = json_object_is_type(v, json_type_string) && strcmp(key, "note") != 0;
		char *more = NULL, *value;

		if (words) {
			more = alloc_text("%s%s%s", name, *name ? ", " : "", json_object_get_string(v));
		} else if (v && IS_IN(key, subjects)) {
			value = show(key, json_object_get_double(v));
			/* "64 outstanding", but "16 MiB". */
			more = ends_with(key, "_count")
				       ? alloc_text("%s%s%s %.*s", name, *name ? ", " : "", value,
						 (int)(strlen(key) - strlen("_count")), key)
				       : alloc_text("%s%s%s", name, *name ? ", " : "", value);
			free(value);
		}
		if (more) {
			free(name);
			name = more;
		}
	}
	return name;
}

static json_object *find_row(json_object *rows, const char *name)
{
	for (size_t i = 0; rows && i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i);
		char *other;
		bool same;

		if (!json_object_is_type(row, json_type_object))
			continue;
		other = row_name(row);
		same = strcmp(other, name) == 0;
		free(other);
		if (same)
			return row;
	}
	return NULL;
}

/* --- printing ----------------------------------------------------------------------------------------------
 */

struct comparison {
	FILE *out;
	json_object *run[2];
	const char *path[2];
	struct table lonely; /* what only one has */
};

/* Where and what, and which of the two has it. */
static void add_lonely(struct comparison *c, int which, const char *part, const char *what)
{
	table_add(&c->lonely, "%s", part);
	table_add(&c->lonely, "%s", what);
	table_add(&c->lonely, "%s", which == 0 ? "A" : "B");
}

static void compare_row(
	struct comparison *c, struct table *t, const char *part, json_object *a, json_object *b)
{
	char *name = row_name(a);
	bool first = true;

	json_object_object_foreach(a, key, v)
	{
		char *one, *two;
		json_object *w;
		double x, y;

		if (!v || !is_figure(key, v))
			continue;
		if (!json_object_object_get_ex(b, key, &w) || !w || !is_number(w)) {
			char *what = alloc_text("%s: %s", name, key);

			add_lonely(c, 0, part, what);
			free(what);
			continue;
		}
		x = json_object_get_double(v);
		y = json_object_get_double(w);
		one = show(key, x);
		two = show(key, y);
		table_add(t, "%s", first ? name : "");
		table_add(t, "%s", key);
		table_add(t, "%s", one);
		table_add(t, "%s", two);
		if (x != 0 && isfinite(y / x))
			table_add(t, "%.3g", y / x);
		else
			table_add(t, "%s", x == y ? "1" : "-");
		free(one);
		free(two);
		first = false;
	}
	free(name);
}

static void note_lonely_rows(
	struct comparison *c, int which, const char *part, json_object *rows, json_object *others)
{
	for (size_t i = 0; rows && i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i);
		char *name;

		if (!json_object_is_type(row, json_type_object))
			continue;
		name = row_name(row);
		if (!find_row(others, name))
			add_lonely(c, which, part, name);
		free(name);
	}
}

static void compare_part(struct comparison *c, const char *key, json_object *a, json_object *b)
{
	static const char *const headings[] = { "<", "<figure", "A", "B", "B / A" };
	json_object *rows = member(a, "rows", json_type_array), *others = member(b, "rows", json_type_array);
	json_object *title = member(a, "title", json_type_string);
	struct table t;

	table_init(&t, headings, sizeof(headings) / sizeof(headings[0]));
	for (size_t i = 0; rows && i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i), *other;
		char *name;

		if (!json_object_is_type(row, json_type_object))
			continue;
		name = row_name(row);
		other = find_row(others, name);
		free(name);
		if (other)
			compare_row(c, &t, key, row, other);
	}
	if (t.cells) {
		fprintf(c->out, "\n%s\n", title ? json_object_get_string(title) : key);
		table_print(&t, c->out, 2);
	}
	table_free(&t);
	note_lonely_rows(c, 0, key, rows, others);
	note_lonely_rows(c, 1, key, others, rows);
}

static const char *fact_text(json_object *run, const char *key)
{
	json_object *v;

	if (!json_object_object_get_ex(run, key, &v))
		return "-";
	return v ? json_object_get_string(v) : "none";
}

/* The facts that differ; the device in any case. */
static void compare_facts(struct comparison *c)
{
	static const char *const headings[] = { "<", "<A", "<B" };
	struct table t;

	table_init(&t, headings, 3);
	json_object_object_foreach(c->run[0], key, v)
	{
		const char *a = fact_text(c->run[0], key), *b = fact_text(c->run[1], key);

		if (json_object_is_type(v, json_type_object) ||
			(strcmp(a, b) == 0 && strcmp(key, "device") != 0))
			continue;
		table_add(&t, "%s", key);
		table_add(&t, "%s", a);
		table_add(&t, "%s", b);
	}
	table_print(&t, c->out, 2);
	table_free(&t);
}

static void compare_parts(struct comparison *c)
{
	json_object *a = member(c->run[0], "parts", json_type_object),
		    *b = member(c->run[1], "parts", json_type_object);

	json_object_object_foreach(a, key, part)
	{
		json_object *other = member(b, key, json_type_object);

		if (other && json_object_is_type(part, json_type_object))
			compare_part(c, key, part, other);
		else
			add_lonely(c, 0, key, "the whole part");
	}
	json_object_object_foreach(b, name, unused)
	{
		(void)unused;
		if (!member(a, name, json_type_object))
			add_lonely(c, 1, name, "the whole part");
	}
}

int compare_print(const char *first, const char *second, FILE *out)
{
	static const char *const headings[] = { "<part", "<what", "<only in" };
	struct comparison c = { .out = out, .path = { first, second } };
	int err = load(first, &c.run[0]);

	if (!err)
		err = load(second, &c.run[1]);
	if (!err) {
		table_init(&c.lonely, headings, 3);
		fprintf(out, "A: %s\nB: %s\n\n", first, second);
		compare_facts(&c);
		compare_parts(&c);
		if (c.lonely.cells) {
			fputs("\nOnly in one of them\n", out);
			table_print(&c.lonely, out, 2);
		}
		table_free(&c.lonely);
	}
	json_object_put(c.run[0]);
	json_object_put(c.run[1]);
	return err;
}

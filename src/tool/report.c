/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/report.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/alloc.h"
#include "tool/table.h"
#include "tool/units.h"

enum cell_kind { CELL_EMPTY, CELL_WORDS, CELL_NUMBER, CELL_SPREAD, CELL_BYTES };

struct report_cell {
	enum cell_kind kind;
	char *words;
	struct spread value; /* a number is the median */
};

struct report_target {
	char *key, *what;
	const char *unit;
	double value, limit;
	bool at_most;
};

enum fact_kind { FACT_TEXT, FACT_NUMBER, FACT_FLAG };

struct report_fact {
	enum fact_kind kind;
	char *key, *text;
	uint64_t number;
};

static char *copy(const char *text)
{
	return alloc_text("%s", text);
}

/* --- building ----------------------------------------------------------------------------------------------
 */

static struct report_fact *add_fact(struct report *r, enum fact_kind kind, const char *key)
{
	struct report_fact *f;

	for (size_t i = 0; i < r->facts; i++) {
		f = &r->fact[i];
		if (strcmp(f->key, key) == 0) {
			free(f->text);
			f->text = NULL;
			f->kind = kind;
			return f;
		}
	}
	r->fact = alloc_grow(r->fact, r->facts + 1, sizeof(*r->fact));
	f = &r->fact[r->facts++];
	*f = (struct report_fact){ .kind = kind, .key = copy(key) };
	return f;
}

void report_fact_text(struct report *r, const char *key, const char *value)
{
	add_fact(r, FACT_TEXT, key)->text = copy(value);
}

void report_fact_number(struct report *r, const char *key, uint64_t value)
{
	add_fact(r, FACT_NUMBER, key)->number = value;
}

void report_fact_flag(struct report *r, const char *key, bool value)
{
	add_fact(r, FACT_FLAG, key)->number = value;
}

struct report_part *report_part(struct report *r, const char *key, const char *title, const char *meaning,
	const struct report_column *columns, size_t column_count)
{
	struct report_part *p;

	r->part = alloc_grow(r->part, r->parts + 1, sizeof(*r->part));
	p = &r->part[r->parts++];
	*p = (struct report_part){ .key = key,
		.title = title,
		.meaning = meaning,
		.columns = columns,
		.column_count = column_count };
	return p;
}

void report_row(struct report_part *p)
{
	size_t cells = p->rows * p->column_count;

	p->cell = alloc_grow(p->cell, cells + p->column_count, sizeof(*p->cell));
	memset(p->cell + cells, 0, p->column_count * sizeof(*p->cell));
	p->rows++;
}

static struct report_cell *newest(struct report_part *p, size_t column, enum cell_kind kind)
{
	struct report_cell *c = &p->cell[(p->rows - 1) * p->column_count + column];

	free(c->words);
	*c = (struct report_cell){ .kind = kind };
	return c;
}

void report_words(struct report_part *p, size_t column, const char *text)
{
	newest(p, column, CELL_WORDS)->words = copy(text);
}

void report_number(struct report_part *p, size_t column, double value)
{
	newest(p, column, CELL_NUMBER)->value.median = value;
}

void report_spread(struct report_part *p, size_t column, struct spread value)
{
	newest(p, column, CELL_SPREAD)->value = value;
}

void report_bytes(struct report_part *p, size_t column, uint64_t value)
{
	newest(p, column, CELL_BYTES)->value.median = (double)value;
}

void report_note(struct report_part *p, const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	p->note = alloc_grow(p->note, p->notes + 1, sizeof(*p->note));
	p->note[p->notes++] = text;
}

static void add_target(struct report_part *p, const char *key, const char *what, double value, double limit,
	const char *unit, bool at_most)
{
	p->target = alloc_grow(p->target, p->targets + 1, sizeof(*p->target));
	p->target[p->targets++] = (struct report_target){ .key = copy(key),
		.what = copy(what),
		.unit = unit,
		.value = value,
		.limit = limit,
		.at_most = at_most };
}

void report_at_most(struct report_part *p, const char *key, const char *what, double value, double limit,
	const char *unit)
{
	add_target(p, key, what, value, limit, unit, true);
}

void report_at_least(struct report_part *p, const char *key, const char *what, double value, double limit,
	const char *unit)
{
	add_target(p, key, what, value, limit, unit, false);
}

static bool is_met(const struct report_target *t)
{
	return t->at_most ? t->value <= t->limit : t->value >= t->limit;
}

/* --- text --------------------------------------------------------------------------------------------------
 */

/* Broken at blanks so that no line is longer than 100 characters. */
static void print_sentence(FILE *out, const char *text)
{
	int used = 0;

	while (*text) {
		int len = (int)strcspn(text, " ");

		if (used && used + 1 + len > 98) {
			fputc('\n', out);
			used = 0;
		}
		fprintf(out, "%s%.*s", used ? " " : "  ", len, text);
		used += len + (used ? 1 : 0);
		text += len;
		text += strspn(text, " ");
	}
	fputc('\n', out);
}

static void add_text_cell(struct table *t, const struct report_cell *c)
{
	char m[UNITS_MAX], a[UNITS_MAX], b[UNITS_MAX];

	switch (c->kind) {
	case CELL_EMPTY:
		table_add(t, "%s", "");
		break;
	case CELL_WORDS:
		table_add(t, "%s", c->words);
		break;
	case CELL_NUMBER:
		table_add(t, "%s", units_digits(m, c->value.median));
		break;
	case CELL_BYTES:
		table_add(t, "%s", units_bytes(m, (uint64_t)c->value.median));
		break;
	case CELL_SPREAD:
		table_add(t, "%s [%s..%s]", units_digits(m, c->value.median), units_digits(a, c->value.q1),
			units_digits(b, c->value.q3));
		break;
	}
}

/* A column is shown when it has a heading and something under it. */
static bool is_shown(const struct report_part *p, size_t column)
{
	for (size_t r = 0; r < p->rows; r++)
		if (p->columns[column].heading && p->cell[r * p->column_count + column].kind != CELL_EMPTY)
			return true;
	return false;
}

static void print_table(FILE *out, const struct report_part *p)
{
	const char **headings = alloc_array(p->column_count, sizeof(*headings));
	size_t shown = 0;
	struct table t;

	for (size_t c = 0; c < p->column_count; c++)
		if (is_shown(p, c))
			headings[shown++] = p->columns[c].heading;
	table_init(&t, headings, shown);
	for (size_t i = 0; i < p->rows * p->column_count; i++)
		if (is_shown(p, i % p->column_count))
			add_text_cell(&t, &p->cell[i]);
	table_print(&t, out, 2);
	table_free(&t);
	free(headings);
}

static void print_target(FILE *out, const struct report_target *t)
{
	char value[UNITS_MAX], limit[UNITS_MAX];

	fprintf(out, "  %s  %s: %s %s (target: %s %s %s)\n", is_met(t) ? "met   " : "MISSED", t->what,
		units_digits(value, t->value), t->unit, t->at_most ? "at most" : "at least",
		units_digits(limit, t->limit), t->unit);
}

static void print_part(FILE *out, const struct report_part *p)
{
	fprintf(out, "\n%s\n", p->title);
	print_sentence(out, p->meaning);
	fputc('\n', out);
	if (p->rows)
		print_table(out, p);
	for (size_t i = 0; i < p->notes; i++)
		print_sentence(out, p->note[i]);
	for (size_t i = 0; i < p->targets; i++)
		print_target(out, &p->target[i]);
}

static const struct report_fact *fact(const struct report *r, const char *key)
{
	for (size_t i = 0; i < r->facts; i++)
		if (strcmp(r->fact[i].key, key) == 0)
			return &r->fact[i];
	return NULL;
}

/* "memory_bytes" is "memory": the value says its unit. */
static void print_fact(FILE *out, const struct report_fact *f)
{
	size_t len = strlen(f->key);
	bool bytes = len > 6 && strcmp(f->key + len - 6, "_bytes") == 0;
	char b[UNITS_MAX];

	for (size_t i = 0; i < len - (bytes ? 6 : 0); i++)
		fputc(f->key[i] == '_' ? ' ' : f->key[i], out);
	fputc(' ', out);
	if (f->kind == FACT_TEXT)
		fputs(f->text, out);
	else if (bytes)
		fputs(f->number == UINT64_MAX ? "none" : units_bytes(b, f->number), out);
	else
		fprintf(out, "%llu", (unsigned long long)f->number);
}

void report_print(const struct report *r, FILE *out)
{
	const struct report_fact *f;
	const char *sep = "";

	for (size_t i = 0; i < r->facts; i++) {
		if (r->fact[i].kind == FACT_FLAG)
			continue;
		fputs(sep, out);
		print_fact(out, &r->fact[i]);
		sep = ", ";
	}
	fputc('\n', out);
	f = fact(r, "busy");
	if (f && f->number)
		fputs("The machine was busy when this began: expect figures that are too slow, and wide "
		      "spreads.\n",
			out);
	for (size_t i = 0; i < r->parts; i++)
		print_part(out, &r->part[i]);
	f = fact(r, "interrupted");
	if (f && f->number)
		fputs("\nInterrupted: what is above had been measured until then.\n", out);
}

/* --- JSON --------------------------------------------------------------------------------------------------
 */

static json_object *json_double(double v)
{
	char text[64];

	/* Enough digits to compute with, few enough to read. */
	snprintf(text, sizeof(text), "%.6g", v);
	return json_object_new_double_s(v, text);
}

static void add_key(json_object *o, const char *stem, const char *part, const char *unit, json_object *value)
{
	char key[96];

	snprintf(key, sizeof(key), "%s%s%s%s", stem, part, unit ? "_" : "", unit ? unit : "");
	json_object_object_add(o, key, value);
}

static void add_json_cell(json_object *row, const struct report_column *column, const struct report_cell *c)
{
	switch (c->kind) {
	case CELL_EMPTY:
		break;
	case CELL_WORDS:
		/* Words in a column of numbers say why there is none: under the stem alone. */
		add_key(row, column->stem, "", NULL, json_object_new_string(c->words));
		break;
	case CELL_BYTES:
		add_key(row, column->stem, "", column->unit, json_object_new_int64((int64_t)c->value.median));
		break;
	case CELL_SPREAD:
		add_key(row, column->stem, "_q1", column->unit, json_double(c->value.q1));
		add_key(row, column->stem, "_q3", column->unit, json_double(c->value.q3));
		/* fall through */
	case CELL_NUMBER:
		add_key(row, column->stem, "", column->unit, json_double(c->value.median));
		break;
	}
}

static json_object *json_target(const struct report_target *t)
{
	json_object *o = json_object_new_object();

	json_object_object_add(o, "key", json_object_new_string(t->key));
	json_object_object_add(o, "what", json_object_new_string(t->what));
	json_object_object_add(o, "value", json_double(t->value));
	json_object_object_add(o, t->at_most ? "at_most" : "at_least", json_double(t->limit));
	json_object_object_add(o, "unit", json_object_new_string(t->unit));
	json_object_object_add(o, "met", json_object_new_boolean(is_met(t)));
	return o;
}

static json_object *json_part(const struct report_part *p)
{
	json_object *o = json_object_new_object(), *rows = json_object_new_array(),
		    *notes = json_object_new_array(), *targets = json_object_new_array();

	json_object_object_add(o, "title", json_object_new_string(p->title));
	json_object_object_add(o, "meaning", json_object_new_string(p->meaning));
	for (size_t r = 0; r < p->rows; r++) {
		json_object *row = json_object_new_object();

		for (size_t c = 0; c < p->column_count; c++)
			add_json_cell(row, &p->columns[c], &p->cell[r * p->column_count + c]);
		json_object_array_add(rows, row);
	}
	for (size_t i = 0; i < p->notes; i++)
		json_object_array_add(notes, json_object_new_string(p->note[i]));
	for (size_t i = 0; i < p->targets; i++)
		json_object_array_add(targets, json_target(&p->target[i]));
	json_object_object_add(o, "rows", rows);
	json_object_object_add(o, "notes", notes);
	json_object_object_add(o, "targets", targets);
	return o;
}

static json_object *json_fact(const struct report_fact *f)
{
	switch (f->kind) {
	case FACT_TEXT:
		return json_object_new_string(f->text);
	case FACT_FLAG:
		return json_object_new_boolean(f->number != 0);
	default:
		return f->number == UINT64_MAX ? NULL : json_object_new_uint64(f->number);
	}
}

int report_json(const struct report *r, const char *path)
{
	json_object *o = json_object_new_object(), *parts = json_object_new_object();
	FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	int err = out ? 0 : -errno;

	for (size_t i = 0; i < r->facts; i++)
		json_object_object_add(o, r->fact[i].key, json_fact(&r->fact[i]));
	for (size_t i = 0; i < r->parts; i++)
		json_object_object_add(parts, r->part[i].key, json_part(&r->part[i]));
	json_object_object_add(o, "parts", parts);
	if (out && (fprintf(out, "%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY)) < 0 ||
			   fflush(out)))
		err = -errno;
	if (out && out != stdout && fclose(out) && !err)
		err = -errno;
	json_object_put(o);
	return err;
}

static void part_free(struct report_part *p)
{
	for (size_t i = 0; i < p->rows * p->column_count; i++)
		free(p->cell[i].words);
	for (size_t i = 0; i < p->notes; i++)
		free(p->note[i]);
	for (size_t i = 0; i < p->targets; i++) {
		free(p->target[i].key);
		free(p->target[i].what);
	}
	free(p->cell);
	free(p->note);
	free(p->target);
}

void report_free(struct report *r)
{
	for (size_t i = 0; i < r->parts; i++)
		part_free(&r->part[i]);
	for (size_t i = 0; i < r->facts; i++) {
		free(r->fact[i].key);
		free(r->fact[i].text);
	}
	free(r->part);
	free(r->fact);
	memset(r, 0, sizeof(*r));
}

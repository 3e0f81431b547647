/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/report.h"

#include <errno.h>
#include <json-c/json.h>
#include <math.h>
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

static char *copy(const char *text)
{
	return alloc_text("%s", text);
}

/* --- building ----------------------------------------------------------------------------------------------
 */

static struct report_fact *add_fact(struct report *r, enum report_fact_kind kind, const char *key)
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
	add_fact(r, REPORT_TEXT, key)->text = copy(value);
}

void report_fact_number(struct report *r, const char *key, uint64_t value)
{
	add_fact(r, REPORT_NUMBER, key)->number = value;
}

void report_fact_flag(struct report *r, const char *key, bool value)
{
	add_fact(r, REPORT_FLAG, key)->number = value;
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

bool report_is_met(const struct report_target *t)
{
	return t->at_most ? t->value <= t->limit : t->value >= t->limit;
}

struct plot *report_plot(struct report_part *p, const char *suffix, enum plot_kind kind, struct plot_axis x,
	struct plot_axis y)
{
	char *key = alloc_text("%s%s%s", p->key, *suffix ? "_" : "", suffix);

	p->plot = alloc_grow(p->plot, p->plots + 1, sizeof(struct plot *));
	p->plot[p->plots] = plot_new(key, kind, x, y);
	free(key);
	return p->plot[p->plots++];
}

double report_value(const struct report_part *p, size_t row, size_t column)
{
	const struct report_cell *c = &p->cell[row * p->column_count + column];

	return c->kind == CELL_EMPTY || c->kind == CELL_WORDS ? NAN : c->value.median;
}

const char *report_text(const struct report_part *p, size_t row, size_t column)
{
	const struct report_cell *c = &p->cell[row * p->column_count + column];

	return c->kind == CELL_WORDS ? c->words : "";
}

/* The heading without the unit at its end, which the axis says. */
static char *series_name(const struct report_column *c)
{
	static const char *const units[] = { " us", " GB/s", ", pages/s" };
	const char *heading = c->heading ? c->heading : c->stem;
	size_t len = strlen(heading);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (len > strlen(units[i]) && strcmp(heading + len - strlen(units[i]), units[i]) == 0)
			return alloc_text("%.*s", (int)(len - strlen(units[i])), heading);
	return copy(heading);
}

struct plot *report_bars(struct report_part *p, struct plot_axis x, size_t first, size_t second,
	const size_t *values, size_t value_count)
{
	struct plot *plot = report_plot(p, "plot", PLOT_BARS, x, (struct plot_axis){ 0 });

	for (size_t r = 0; r < p->rows; r++) {
		const char *more = second == SIZE_MAX ? "" : report_text(p, r, second);
		char *name = alloc_text("%s%s%s", report_text(p, r, first), *more ? ": " : "", more);

		for (size_t v = 0; v < value_count; v++) {
			char *series = series_name(&p->columns[values[v]]);

			if (!isnan(report_value(p, r, values[v])))
				plot_bar(
					plot, plot_series(plot, series), name, report_value(p, r, values[v]));
			free(series);
		}
		free(name);
	}
	if (plot_drawn(plot))
		return plot;
	plot_free(plot);
	p->plots--;
	return NULL;
}

struct report_part *report_find(const struct report *r, const char *key)
{
	for (size_t i = 0; i < r->parts; i++)
		if (strcmp(r->part[i].key, key) == 0)
			return &r->part[i];
	return NULL;
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

/* Numbers of things are whole, those of other quantities have about three digits. */
static void add_text_number(struct table *t, const struct report_column *column, double value)
{
	char text[UNITS_MAX];

	if (column->unit && strcmp(column->unit, "count") == 0 && value == floor(value))
		table_add(t, "%.0f", value);
	else
		table_add(t, "%s", units_digits(text, value));
}

static void add_text_cell(struct table *t, const struct report_column *column, const struct report_cell *c)
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
		add_text_number(t, column, c->value.median);
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

bool report_grid(const struct report_part *p, struct table *t)
{
	const char **headings;
	size_t shown = 0;

	if (!p->rows)
		return false;
	headings = alloc_array(p->column_count, sizeof(*headings));
	for (size_t c = 0; c < p->column_count; c++)
		if (is_shown(p, c))
			headings[shown++] = p->columns[c].heading;
	table_init(t, headings, shown);
	for (size_t i = 0; i < p->rows * p->column_count; i++)
		if (is_shown(p, i % p->column_count))
			add_text_cell(t, &p->columns[i % p->column_count], &p->cell[i]);
	return true;
}

void report_grid_free(struct table *t)
{
	const char *const *headings = t->headings;

	table_free(t);
	free((void *)headings);
}

static void print_target(FILE *out, const struct report_target *t)
{
	char value[UNITS_MAX], limit[UNITS_MAX];

	fprintf(out, "  %s  %s: %s %s (target: %s %s %s)\n", report_is_met(t) ? "met   " : "MISSED", t->what,
		units_digits(value, t->value), t->unit, t->at_most ? "at most" : "at least",
		units_digits(limit, t->limit), t->unit);
}

static void print_part(FILE *out, const struct report_part *p)
{
	struct table t;

	fprintf(out, "\n%s\n", p->title);
	print_sentence(out, p->meaning);
	fputc('\n', out);
	if (report_grid(p, &t)) {
		table_print(&t, out, 2);
		report_grid_free(&t);
	}
	for (size_t i = 0; i < p->notes; i++)
		print_sentence(out, p->note[i]);
	for (size_t i = 0; i < p->targets; i++)
		print_target(out, &p->target[i]);
}

const struct report_fact *report_find_fact(const struct report *r, const char *key)
{
	for (size_t i = 0; i < r->facts; i++)
		if (strcmp(r->fact[i].key, key) == 0)
			return &r->fact[i];
	return NULL;
}

/* "memory_bytes" is "memory": the value says its unit. */
void report_fact_words(const struct report_fact *f, char name[64], char value[128])
{
	size_t len = strlen(f->key);
	bool bytes = len > 6 && strcmp(f->key + len - 6, "_bytes") == 0;
	char b[UNITS_MAX];

	snprintf(name, 64, "%.*s", (int)(len - (bytes ? 6 : 0)), f->key);
	for (char *p = name; *p; p++)
		*p = *p == '_' ? ' ' : *p;
	if (f->kind == REPORT_TEXT)
		snprintf(value, 128, "%s", f->text);
	else if (f->kind == REPORT_FLAG)
		snprintf(value, 128, "%s", f->number ? "yes" : "no");
	else if (bytes)
		snprintf(value, 128, "%s", f->number == UINT64_MAX ? "none" : units_bytes(b, f->number));
	else
		snprintf(value, 128, "%llu", (unsigned long long)f->number);
}

void report_print(const struct report *r, FILE *out)
{
	const struct report_fact *f;
	char name[64], value[128];
	const char *sep = "";

	for (size_t i = 0; i < r->facts; i++) {
		if (r->fact[i].kind == REPORT_FLAG || strcmp(r->fact[i].key, "wrong_data") == 0)
			continue;
		report_fact_words(&r->fact[i], name, value);
		fprintf(out, "%s%s %s", sep, name, value);
		sep = ", ";
	}
	fputc('\n', out);
	f = report_find_fact(r, "wrong_data");
	if (f)
		fprintf(out,
			"What is on demand below tells how long requests take, not that they work: %s.\n",
			f->text);
	f = report_find_fact(r, "busy");
	if (f && f->number)
		fputs("The machine was busy when this began: expect figures that are too slow, and wide "
		      "spreads.\n",
			out);
	for (size_t i = 0; i < r->parts; i++)
		print_part(out, &r->part[i]);
	f = report_find_fact(r, "interrupted");
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
	json_object_object_add(o, "met", json_object_new_boolean(report_is_met(t)));
	return o;
}

static json_object *json_series(const struct plot *p, const struct plot_series *s)
{
	json_object *o = json_object_new_object(), *points = json_object_new_array();

	for (size_t i = 0; i < s->points; i++) {
		json_object *point = json_object_new_array();

		if (p->kind == PLOT_BARS)
			json_object_array_add(
				point, json_object_new_string(p->category[(size_t)s->point[i].y]));
		json_object_array_add(point, json_double(s->point[i].x));
		if (p->kind != PLOT_BARS)
			json_object_array_add(point, json_double(s->point[i].y));
		json_object_array_add(points, point);
	}
	json_object_object_add(o, "name", json_object_new_string(s->name));
	json_object_object_add(o, "points", points);
	return o;
}

static json_object *json_plots(const struct report_part *p)
{
	json_object *plots = json_object_new_array();

	for (size_t i = 0; i < p->plots; i++) {
		const struct plot *plot = p->plot[i];
		json_object *o = json_object_new_object(), *series = json_object_new_array();

		json_object_object_add(o, "key", json_object_new_string(plot->key));
		json_object_object_add(o, "title", json_object_new_string(plot->title));
		json_object_object_add(o, "x", json_object_new_string(plot->x.label));
		if (plot->y.label)
			json_object_object_add(o, "y", json_object_new_string(plot->y.label));
		for (size_t j = 0; j < plot->count; j++)
			json_object_array_add(series, json_series(plot, &plot->series[j]));
		json_object_object_add(o, "series", series);
		json_object_array_add(plots, o);
	}
	return plots;
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
	if (p->plots)
		json_object_object_add(o, "plots", json_plots(p));
	return o;
}

static json_object *json_fact(const struct report_fact *f)
{
	switch (f->kind) {
	case REPORT_TEXT:
		return json_object_new_string(f->text);
	case REPORT_FLAG:
		return json_object_new_boolean(f->number != 0);
	default:
		return f->number == UINT64_MAX ? NULL : json_object_new_uint64(f->number);
	}
}

void report_json_to(const struct report *r, FILE *out)
{
	json_object *o = json_object_new_object(), *parts = json_object_new_object();

	for (size_t i = 0; i < r->facts; i++)
		json_object_object_add(o, r->fact[i].key, json_fact(&r->fact[i]));
	for (size_t i = 0; i < r->parts; i++)
		json_object_object_add(parts, r->part[i].key, json_part(&r->part[i]));
	json_object_object_add(o, "parts", parts);
	fprintf(out, "%s\n", json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	json_object_put(o);
}

int report_json(const struct report *r, const char *path)
{
	FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
	int err = 0;

	if (!out)
		return -errno;
	errno = 0;
	report_json_to(r, out);
	if (fflush(out) || ferror(out))
		err = errno ? -errno : -EIO;
	if (out != stdout && fclose(out) && !err)
		err = -errno;
	return err;
}

/* --- CSV ---------------------------------------------------------------------------------------------------
 */

static bool has_values(const struct report_part *p, size_t column, bool spread)
{
	for (size_t r = 0; r < p->rows; r++) {
		enum cell_kind kind = p->cell[r * p->column_count + column].kind;

		if (spread ? kind == CELL_SPREAD : kind != CELL_EMPTY)
			return true;
	}
	return false;
}

static void csv_heading(FILE *out, const struct report_column *c, const char *middle, const char **sep)
{
	fprintf(out, "%s%s%s%s%s", *sep, c->stem, middle, c->unit ? "_" : "", c->unit ? c->unit : "");
	*sep = ",";
}

static void csv_cell(FILE *out, const struct report_cell *c, bool spread, const char **sep)
{
	fputs(*sep, out);
	*sep = ",";
	if (c->kind == CELL_WORDS)
		plot_quote(out, c->words);
	else if (c->kind != CELL_EMPTY)
		fprintf(out, c->kind == CELL_BYTES ? "%.0f" : "%.6g", c->value.median);
	if (!spread)
		return;
	if (c->kind == CELL_SPREAD)
		fprintf(out, ",%.6g,%.6g", c->value.q1, c->value.q3);
	else
		fputs(",,", out);
}

void report_csv(const struct report_part *p, FILE *out)
{
	const char *sep = "";

	for (size_t c = 0; c < p->column_count; c++) {
		if (!has_values(p, c, false))
			continue;
		csv_heading(out, &p->columns[c], "", &sep);
		if (has_values(p, c, true)) {
			csv_heading(out, &p->columns[c], "_q1", &sep);
			csv_heading(out, &p->columns[c], "_q3", &sep);
		}
	}
	fputc('\n', out);
	for (size_t r = 0; r < p->rows; r++) {
		sep = "";
		for (size_t c = 0; c < p->column_count; c++)
			if (has_values(p, c, false))
				csv_cell(
					out, &p->cell[r * p->column_count + c], has_values(p, c, true), &sep);
		fputc('\n', out);
	}
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
	for (size_t i = 0; i < p->plots; i++)
		plot_free(p->plot[i]);
	free(p->plot);
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

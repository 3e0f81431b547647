/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the bench found: parts, each with a sentence that says what it means, one table, notes, and the
 * targets it was measured against. The same structure is printed as text and written as JSON (the keys are
 * documented in unpin-bench(1)). Texts that are passed in are copied, those in tables of columns must outlive
 * the report. Not thread safe.
 */
#ifndef UNPIN_TOOL_REPORT_H
#define UNPIN_TOOL_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tool/plot.h"
#include "tool/sample.h"
#include "tool/table.h"

/* A column. Its JSON key is stem_unit (stem alone without a unit); a value with spread adds stem_q1_unit and
 * stem_q3_unit. */
struct report_column {
	const char *stem;
	const char *unit;    /* suffix of the key: "us", "bytes", "ratio", ...; NULL: words */
	const char *heading; /* in the text table, '<' first for words; NULL: in JSON only */
};

struct report_part {
	const char *key, *title, *meaning;
	const struct report_column *columns;
	size_t column_count;
	struct report_cell *cell; /* rows of column_count */
	size_t rows;
	struct report_target *target;
	size_t targets;
	char **note;
	size_t notes;
	struct plot **plot; /* the part's own */
	size_t plots;
};

struct report_target {
	char *key, *what;
	const char *unit;
	double value, limit;
	bool at_most;
};

enum report_fact_kind { REPORT_TEXT, REPORT_NUMBER, REPORT_FLAG };

struct report_fact {
	enum report_fact_kind kind;
	char *key, *text;
	uint64_t number;
};

struct report {
	struct report_part *part;
	size_t parts;
	struct report_fact *fact;
	size_t facts;
};

/* A fact about the run: device, kernel, ... Keys are unique. */
void report_fact_text(struct report *r, const char *key, const char *value);
void report_fact_number(struct report *r, const char *key, uint64_t value);
void report_fact_flag(struct report *r, const char *key, bool value);

/* Adds a part and returns it; valid until the next part is added. */
struct report_part *report_part(struct report *r, const char *key, const char *title, const char *meaning,
	const struct report_column *columns, size_t column_count);

/* A new row of empty cells; the setters below fill in the newest row. column is an index. */
void report_row(struct report_part *p);
void report_words(struct report_part *p, size_t column, const char *text);
void report_number(struct report_part *p, size_t column, double value);
void report_spread(struct report_part *p, size_t column, struct spread value);
/* A number of bytes: shown with a unit in the text table. */
void report_bytes(struct report_part *p, size_t column, uint64_t value);

/* One sentence below the table. */
void report_note(struct report_part *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What was aimed at, e.g. key "odp_register_max", what "on-demand registration p50, every size", limit 10,
 * unit "us": met when value is not above the limit (or not below it). */
void report_at_most(struct report_part *p, const char *key, const char *what, double value, double limit,
	const char *unit);
void report_at_least(struct report_part *p, const char *key, const char *what, double value, double limit,
	const char *unit);

bool report_is_met(const struct report_target *t);

/* A plot that goes with the part, which owns it; its key is that of the part with _suffix ("" for none). */
struct plot *report_plot(struct report_part *p, const char *suffix, enum plot_kind kind, struct plot_axis x,
	struct plot_axis y);
/* Bars from the part's own table: a category for each row, named by its words in one or two columns (second
 * is SIZE_MAX for one), and a series for each of the columns of numbers, named by its heading. NULL when no
 * row has such a number. */
struct plot *report_bars(struct report_part *p, struct plot_axis x, size_t first, size_t second,
	const size_t *values, size_t value_count);

/* A value of the newest report: the number at a row and a column, NAN when there is none. */
double report_value(const struct report_part *p, size_t row, size_t column);
/* The words there, "" when there are none. */
const char *report_text(const struct report_part *p, size_t row, size_t column);
/* NULL: there is no such part, or fact. */
struct report_part *report_find(const struct report *r, const char *key);
const struct report_fact *report_find_fact(const struct report *r, const char *key);
/* The fact as a person reads it: name and value. */
void report_fact_words(const struct report_fact *f, char name[64], char value[128]);

/* The part's table as it is printed; the caller frees it with report_grid_free. False: there is none. */
bool report_grid(const struct report_part *p, struct table *t);
void report_grid_free(struct table *t);
/* Every column that has a value, with the keys of the JSON as headings. */
void report_csv(const struct report_part *p, FILE *out);

/* Text: facts on top, then the parts. */
void report_print(const struct report *r, FILE *out);
/* 0 or negative errno. path "-" is standard output. */
int report_json(const struct report *r, const char *path);
/* The same into an open file, whose error indicator tells of failures. */
void report_json_to(const struct report *r, FILE *out);
void report_free(struct report *r);

#endif

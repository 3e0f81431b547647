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

#include "tool/sample.h"

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

/* Text: facts on top, then the parts. */
void report_print(const struct report *r, FILE *out);
/* 0 or negative errno. path "-" is standard output. */
int report_json(const struct report *r, const char *path);
void report_free(struct report *r);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A table of texts whose columns are as wide as they must be. Not thread safe. */
#ifndef UNPIN_TOOL_TABLE_H
#define UNPIN_TOOL_TABLE_H

#include <stddef.h>
#include <stdio.h>

struct table {
	size_t columns, cells;
	const char *const *headings;
	char **cell; /* row after row */
};

/* headings must outlive the table; one that begins with '<' heads a column of words (left aligned, the '<' is
 * not shown), the others stand over numbers (right aligned). */
void table_init(struct table *t, const char *const *headings, size_t columns);
/* Fills the next cell: left to right, then the next row. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A heading line and the rows, each led by indent blanks. A row that is not full yet is not printed. */
void table_print(const struct table *t, FILE *out, int indent);
void table_free(struct table *t);

#endif

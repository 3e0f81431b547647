/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/table.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tool/alloc.h"

void table_init(struct table *t, const char *const *headings, size_t columns)
{
	memset(t, 0, sizeof(*t));
	t->headings = headings;
	t->columns = columns;
}

void table_add(struct table *t, const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	t->cell = alloc_grow(t->cell, t->cells + 1, sizeof(*t->cell));
	t->cell[t->cells++] = n < 0 ? alloc_text("?") : text;
}

static bool is_left(const struct table *t, size_t column)
{
	return t->headings[column][0] == '<';
}

static const char *heading(const struct table *t, size_t column)
{
	return t->headings[column] + is_left(t, column);
}

/* Characters, not bytes: UTF-8 continuation bytes take no room of their own. */
static int width_of(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void print_cell(const struct table *t, FILE *out, size_t column, const char *text, int width)
{
	int pad = width - width_of(text);

	if (column)
		fputs("  ", out);
	if (!is_left(t, column))
		fprintf(out, "%*s", pad, "");
	fputs(text, out);
	/* No blanks at the end of a line. */
	if (is_left(t, column) && column + 1 < t->columns)
		fprintf(out, "%*s", pad, "");
}

void table_print(const struct table *t, FILE *out, int indent)
{
	size_t rows = t->cells / t->columns;
	int *width = alloc_array(t->columns, sizeof(*width));

	for (size_t c = 0; c < t->columns; c++) {
		width[c] = width_of(heading(t, c));
		for (size_t r = 0; r < rows; r++) {
			int w = width_of(t->cell[r * t->columns + c]);

			width[c] = w > width[c] ? w : width[c];
		}
	}
	for (size_t line = 0; line <= rows; line++) {
		fprintf(out, "%*s", indent, "");
		for (size_t c = 0; c < t->columns; c++)
			print_cell(t, out, c, line ? t->cell[(line - 1) * t->columns + c] : heading(t, c), width[c]);
		fputc('\n', out);
	}
	free(width);
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->cells; i++)
		free(t->cell[i]);
	free(t->cell);
	memset(t, 0, sizeof(*t));
}

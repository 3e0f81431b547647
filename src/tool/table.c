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

/* One line. Blanks are owed until something is printed, so that none stands at the end of a line. */
static void print_line(const struct table *t, FILE *out, char *const *cell, const int *width, int indent)
{
	int owed = indent;

	for (size_t c = 0; c < t->columns; c++) {
		const char *text = cell ? cell[c] : heading(t, c);
		int pad = width[c] - width_of(text);

		owed += (c ? 2 : 0) + (is_left(t, c) ? 0 : pad);
		if (*text) {
			fprintf(out, "%*s%s", owed, "", text);
			owed = 0;
		}
		owed += is_left(t, c) ? pad : 0;
	}
	fputc('\n', out);
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
	print_line(t, out, NULL, width, indent);
	for (size_t r = 0; r < rows; r++)
		print_line(t, out, t->cell + r * t->columns, width, indent);
	free(width);
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->cells; i++)
		free(t->cell[i]);
	free(t->cell);
	memset(t, 0, sizeof(*t));
}

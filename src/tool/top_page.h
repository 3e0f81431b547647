/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Between top_page.c and top_page_kernel.c: a page that is being filled. Pure functions. */
#ifndef UNPIN_TOOL_TOP_PAGE_H
#define UNPIN_TOOL_TOP_PAGE_H

#include "tool/top.h"
#include "tool/units.h"

struct top_paper {
	const struct top_look *look;
	struct top_line *line;
	size_t lines;
};

/* How many lines are free. */
size_t top_room(const struct top_paper *p);
/* One more line, cut at the width; nothing when the page is full. */
void top_put(struct top_paper *p, enum top_colour colour, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "none", when a list has no rows. */
void top_put_none(struct top_paper *p, const char *none);

/* "123", "45.6", "0", "-": not known. */
const char *top_number(char buf[UNITS_MAX], double v);
const char *top_bytes(char buf[UNITS_MAX], uint64_t v);
/* Bytes as a rate; the other side may claim anything. */
const char *top_flow(char buf[UNITS_MAX], double v);

/* The lists of a screen, in the order of their panels. */
enum { TOP_LISTS = TOP_PANELS - TOP_REGIONS };

struct top_list {
	/* n rows from a row on, under a heading. */
	void (*put)(struct top_paper *p, const struct top_view *v, size_t from, size_t n);
	size_t rows;
};

/* The list of the panel that is looked at, or all: a heading and at least one row of each where there is
 * room, and what one list does not need, others get. */
void top_put_lists(struct top_paper *p, const struct top_view *v, const struct top_list lists[TOP_LISTS]);

/* Of a device of the kernel. */
void top_put_kernel_head(struct top_paper *p, const struct top_view *v);
void top_put_kernel_lists(struct top_paper *p, const struct top_view *v);
extern const char *const top_kernel_help[];

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One plot of measured figures, drawn as SVG without a library or a script. Series are told apart by colour
 * (of a palette that colour-blind people can tell apart), by marker and by dash, and by name in a legend;
 * light and dark follow the viewer's setting. Texts that are passed in are copied unless it says otherwise.
 * Not thread safe.
 */
#ifndef UNPIN_TOOL_PLOT_H
#define UNPIN_TOOL_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PLOT_SERIES_MAX 6 /* as many can be told apart */

enum plot_kind {
	PLOT_LINES,  /* series of (x, y), joined in the order in which they were added, with a marker each */
	PLOT_CURVES, /* the same without markers: many points */
	PLOT_BARS,   /* categories below each other, one bar (a dot, on a logarithmic axis) per series; the
			values lie on the x axis */
};

/* How the numbers of an axis are written. */
enum plot_unit {
	PLOT_NUMBER,
	PLOT_BYTES,
	PLOT_US, /* microseconds, shown as ns, us, ms or s */
};

struct plot_axis {
	const char *label; /* what and in which unit; not copied */
	enum plot_unit unit;
	bool log; /* values of 0 and less are not drawn then */
};

struct plot_point {
	double x, y;
};

struct plot_series {
	char *name;
	struct plot_point *point; /* of bars: x is the value, y the number of the category */
	size_t points;
};

struct plot {
	enum plot_kind kind;
	struct plot_axis x, y; /* y is not used by bars */
	char *key;	       /* name of its files, letters, digits and '_' */
	char *title;	       /* the sentence that it proves */
	struct plot_series series[PLOT_SERIES_MAX];
	size_t count;
	char **category;
	size_t categories;
};

struct plot *plot_new(const char *key, enum plot_kind kind, struct plot_axis x, struct plot_axis y);
void plot_free(struct plot *p); /* NULL is allowed */
void plot_title(struct plot *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The number of the series with that name, made when there is none. No more than PLOT_SERIES_MAX. */
size_t plot_series(struct plot *p, const char *name);
void plot_point(struct plot *p, size_t series, double x, double y);
void plot_bar(struct plot *p, size_t series, const char *category, double value);

/* How many points can be drawn (finite; above 0 on a logarithmic axis). A plot without any is not shown. */
size_t plot_drawn(const struct plot *p);

/* The <svg> element, complete in itself: inside of a page, or as a file. */
void plot_svg(const struct plot *p, FILE *out);
/* One line per point: series, x, y (category, series, value for bars). */
void plot_csv(const struct plot *p, FILE *out);

/* Text with &, <, >, and quotes as entities; in CSV, quoted where it must be. */
void plot_escape(FILE *out, const char *text);
void plot_quote(FILE *out, const char *text);

#endif

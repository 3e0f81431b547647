/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A set of measured values and what is said of it: median and quartiles, exactly (not from a histogram),
 * since comparisons of a few percent are made with them. Not thread safe. */
#ifndef UNPIN_TOOL_SAMPLE_H
#define UNPIN_TOOL_SAMPLE_H

#include <stddef.h>

struct sample {
	double *value;
	size_t count, room;
};

/* Median and quartiles; between two values linearly. All 0 when count is 0. */
struct spread {
	double median, q1, q3;
	size_t count;
};

/* A zeroed struct sample is empty. */
void sample_add(struct sample *s, double value);
/* Sorts the values. */
struct spread sample_spread(struct sample *s);
/* The value below which the fraction q (0..1) lies; sorts the values; 0 when empty. */
double sample_quantile(struct sample *s, double q);
void sample_clear(struct sample *s);
void sample_free(struct sample *s);

#endif

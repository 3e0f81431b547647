/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/sample.h"

#include <stdlib.h>
#include <string.h>

#include "tool/alloc.h"

void sample_add(struct sample *s, double value)
{
	if (s->count == s->room) {
		s->room = s->room ? 2 * s->room : 64;
		s->value = alloc_grow(s->value, s->room, sizeof(*s->value));
	}
	s->value[s->count++] = value;
}

static int by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Of sorted values. */
static double at(const struct sample *s, double q)
{
	double place = q * (double)(s->count - 1);
	size_t below = (size_t)place;
	size_t above = below + 1 < s->count ? below + 1 : below;

	return s->value[below] + (s->value[above] - s->value[below]) * (place - (double)below);
}

double sample_quantile(struct sample *s, double q)
{
	if (!s->count)
		return 0;
	qsort(s->value, s->count, sizeof(*s->value), by_value);
	return at(s, q);
}

struct spread sample_spread(struct sample *s)
{
	struct spread out = { .count = s->count };

	if (!s->count)
		return out;
	out.median = sample_quantile(s, 0.5);
	out.q1 = at(s, 0.25);
	out.q3 = at(s, 0.75);
	return out;
}

void sample_clear(struct sample *s)
{
	s->count = 0;
}

void sample_free(struct sample *s)
{
	free(s->value);
	memset(s, 0, sizeof(*s));
}

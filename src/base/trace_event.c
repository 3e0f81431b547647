/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace_event.h"

#define TICKS_BITS (64 - TRACE_EVENT_TICKS_AT)

static uint64_t bits(uint64_t word, unsigned at, unsigned n)
{
	return word >> at & ((1ull << n) - 1);
}

/* The time with these low bits that is nearest to the one given. */
static uint64_t nearest(uint64_t low, uint64_t near)
{
	uint64_t apart = (low - (near >> TRACE_EVENT_TICKS_SKIP)) << TRACE_EVENT_TICKS_AT;
	/* As a signed number, back to its place. */
	int64_t step = (int64_t)apart >> (TRACE_EVENT_TICKS_AT - TRACE_EVENT_TICKS_SKIP);

	return (near & ~(uint64_t)((1u << TRACE_EVENT_TICKS_SKIP) - 1)) + (uint64_t)step;
}

size_t trace_event_read(const struct trace_unit *u, size_t left, uint64_t *near, struct trace_event *e)
{
	uint64_t first, site;

	if (!left)
		return 0;
	first = u->word[0];
	site = bits(first, 1, TRACE_EVENT_SITE_BITS);
	if (site >= TRACE_SITE_COUNT)
		return 0;
	*e = (struct trace_event){ .site = (enum trace_site)site };
	if (first & TRACE_EVENT_SHORT) {
		e->in_ticks = true;
		e->begin = *near = nearest(bits(first, TRACE_EVENT_TICKS_AT, TICKS_BITS), *near);
		e->a = bits(first, TRACE_EVENT_A_AT, TRACE_EVENT_A_BITS);
		e->b = u->word[1];
		return 1;
	}
	if (left < 2)
		return 0;
	e->in_ticks = first & TRACE_EVENT_IN_TICKS;
	e->begin = u->word[1];
	e->length_ns = first >> TRACE_EVENT_LENGTH_AT;
	e->a = u[1].word[0];
	e->b = u[1].word[1];
	if (e->in_ticks)
		*near = e->begin;
	return 2;
}

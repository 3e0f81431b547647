/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How an event of the timeline is recorded, in rings (trace_ring.h) and spools (trace_spool.h): in units of
 *16 bytes, since what an event costs its thread is the memory it fills.
 *
 *	short, one unit: a moment	bit 0: 1; bits 1 to 5: site; 6 to 29: a; 30 to 63: ticks >> 4
 *					b
 *	long, two units: anything	bit 0: 0; bits 1 to 5: site; 6: begin is in ticks; 8 to 63: length, ns
 *					begin
 *					a
 *					b
 *
 * A short one has the low bits of its time only. It is recorded while less than TRACE_EVENT_FAR ticks have
 *passed since the ring's moment before it, so that a reader who knows the time of that one, or one a little
 *later, knows the rest.
 *
 * Pure: no state, no threads.
 */
#ifndef UNPIN_BASE_TRACE_EVENT_H
#define UNPIN_BASE_TRACE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/trace.h"

struct trace_unit {
	uint64_t word[2];
};

#define TRACE_EVENT_UNITS_MOST 2u

#define TRACE_EVENT_SHORT      1ull
#define TRACE_EVENT_SITE_BITS  5
#define TRACE_EVENT_IN_TICKS   (1ull << 6) /* of a long one */
#define TRACE_EVENT_LENGTH_AT  8
#define TRACE_EVENT_A_AT       6
#define TRACE_EVENT_A_BITS     24
#define TRACE_EVENT_TICKS_AT   30
#define TRACE_EVENT_TICKS_SKIP 4 /* low bits of the time that a short one has not */
#define TRACE_EVENT_FAR	       (1ull << 36)

_Static_assert(TRACE_SITE_COUNT <= 1 << TRACE_EVENT_SITE_BITS, "a site fits its bits");

/* One as it was recorded. */
struct trace_event {
	enum trace_site site;
	bool in_ticks;	    /* begin is in ticks of trace_clock.h, else in ns */
	uint64_t begin;	    /* of a short one: to 16 ticks */
	uint64_t length_ns; /* below 2^56 */
	uint64_t a, b;
};

/* Whether a moment fits a short one; far: ticks since the ring's moment before. */
static inline bool trace_event_fits(uint64_t far, uint64_t a)
{
	return far < TRACE_EVENT_FAR && a < 1ull << TRACE_EVENT_A_BITS;
}

static inline struct trace_unit trace_event_short(
	enum trace_site site, uint64_t ticks, uint64_t a, uint64_t b)
{
	return (struct trace_unit){ {
		TRACE_EVENT_SHORT | (uint64_t)site << 1 | a << TRACE_EVENT_A_AT |
			ticks >> TRACE_EVENT_TICKS_SKIP << TRACE_EVENT_TICKS_AT,
		b,
	} };
}

/* The first of the two units of a long one; the second is { a, b }. */
static inline struct trace_unit trace_event_long(enum trace_site site, uint64_t begin, uint64_t length_ns)
{
	const uint64_t most = UINT64_MAX >> TRACE_EVENT_LENGTH_AT;

	return (struct trace_unit){ {
		(length_ns < most ? length_ns : most) << TRACE_EVENT_LENGTH_AT | (uint64_t)site << 1,
		begin,
	} };
}

static inline struct trace_unit trace_event_long_moment(enum trace_site site, uint64_t ticks)
{
	return (struct trace_unit){ { TRACE_EVENT_IN_TICKS | (uint64_t)site << 1, ticks } };
}

/*
 * Reads the event at u, of which there are left units, and returns how many it has; 0: none, there is another
 * thing or only half of one. *near: the time, in ticks, of the ring's moment before, or one less than
 * TRACE_EVENT_FAR before this one; this one's time is put there.
 */
size_t trace_event_read(const struct trace_unit *u, size_t left, uint64_t *near, struct trace_event *e);

#endif

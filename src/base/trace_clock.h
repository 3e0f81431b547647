/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The clock of the timeline's moments. Reading CLOCK_MONOTONIC would be most of what a moment costs, so it is
 * stamped with the processor's counter where the kernel itself trusts that; whoever writes the events away
 * looks at both clocks now and then, and whoever formats them converts. Where the counter is not trusted,
 * ticks are nanoseconds.
 */
#ifndef UNPIN_BASE_TRACE_CLOCK_H
#define UNPIN_BASE_TRACE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

extern _Atomic bool trace_clock_counter; /* changes only while the timeline is off */

static inline uint64_t trace_clock_ticks(void)
{
#ifdef __x86_64__
	if (atomic_load_explicit(&trace_clock_counter, memory_order_relaxed))
		return __builtin_ia32_rdtsc();
#endif
	return clock_ns();
}

/* The same moment by both clocks. */
struct trace_instant {
	uint64_t ticks, ns;
};

/* Looks at what the kernel keeps time by. While no moment is recorded. */
void trace_clock_choose(void);

/* Now, to a fraction of a microsecond. Any thread. */
struct trace_instant trace_clock_look(void);

/* A straight line through two instants; any numbers are allowed. */
struct trace_scale {
	struct trace_instant at;
	double ns_per_tick;
};

struct trace_scale trace_clock_scale(struct trace_instant from, struct trace_instant to);
uint64_t trace_clock_ns(const struct trace_scale *s, uint64_t ticks);

#endif

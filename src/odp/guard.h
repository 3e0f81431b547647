/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The storm guard: notices when the device makes memory pressure worse, and what may still be brought in.
 *
 * A storm begins when, over a second, major faults or the time in which tasks stalled for memory (PSI,
 * "some", of the process's memory cgroup or else of the machine) pass a threshold of odp_storm_limits. It is
 * over when both are below half of theirs over two seconds, and over the last one (a threshold of 0 does not
 * count). While it lasts, faults bring in what they need and nothing ahead, and queued prefetches are held
 * back; both go on by themselves afterwards. It is told once at its beginning and once at its end: in the
 * log, in struct unpin_storm, and as a span of the trace.
 *
 * What has been measured is at most GUARD_SAMPLE_NS old as long as somebody ticks: driver threads before they
 * take work, and the sweep, which asks to be called as long as a storm lasts, so that it ends without
 * another fault.
 *
 * Threads: guard_tick and guard_judge by one thread at a time (guard_tick sees to it); all else from any,
 * without locks.
 */
#ifndef UNPIN_ODP_GUARD_H
#define UNPIN_ODP_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/segment.h"
#include "odp/space.h"

#define GUARD_SAMPLE_NS 100000000ull  /* as pressure.h has it */
#define GUARD_BEGIN_NS	1000000000ull /* over how long a storm is told by */
#define GUARD_END_NS	2000000000ull /* how long it has to be quiet */
#define GUARD_SAMPLES	32u	      /* enough for two seconds and some */
/* What prefetch and read-ahead leave of the limit for everybody else: bytes. */
#define GUARD_MARGIN (8ll << 20)

/* One look at the two meters, which only grow. */
struct guard_sample {
	uint64_t ns, majors, stall_us;
};

struct guard {
	struct odp_storm_limits limits;
	struct unpin_storm *storm;
	_Atomic uint64_t *majors; /* the meter */
	_Atomic uint64_t next_ns; /* of the next sample */
	_Atomic bool busy;	  /* somebody takes it */
	_Atomic bool unused;	  /* there is no region: what the machine suffers from is not ours to tell */
	_Atomic int64_t headroom; /* bytes, as last asked, less what has been populated since */
	/* Of whoever is busy: */
	struct guard_sample sample[GUARD_SAMPLES]; /* a ring */
	unsigned taken;				   /* samples so far */
};

enum guard_verdict { GUARD_SAME, GUARD_BEGAN, GUARD_ENDED };

/* Takes the first sample. */
void guard_init(struct guard *g, const struct odp_storm_limits *limits, struct unpin_storm *storm,
	_Atomic uint64_t *majors, uint64_t now);

/*
 * Takes a sample if one is due. Reads small files of the kernel's when it does; does not sleep on I/O.
 * Returns true when a storm has ended: somebody has to see to what was held back.
 */
bool guard_tick(struct guard *g, uint64_t now);

/* What the sample, newer than all before, means; fills struct unpin_storm. The pure half of guard_tick(). */
enum guard_verdict guard_judge(struct guard *g, struct guard_sample now);

static inline bool guard_storm(const struct guard *g)
{
	return atomic_load_explicit(&g->storm->cause, memory_order_relaxed) != UNPIN_STORM_NONE;
}

/*
 * Asks for the headroom anew: what has been spent may have been there before. It is older than the spending
 * unless GUARD_SAMPLE_NS have passed.
 */
void guard_ask(struct guard *g);

/* Pages have been populated: they count against the headroom until it is asked for again. */
void guard_spend(struct guard *g, uint64_t bytes);

/* Whether bytes more may be brought in ahead of any access, with the margin left. */
bool guard_allows(const struct guard *g, uint64_t bytes);

/*
 * How many pages (of 4 KiB) a fault may bring in that needs some of them and would like most: what it needs,
 * during a storm or when the margin is reached; never more than there is headroom for; at least one.
 */
unsigned guard_window(const struct guard *g, unsigned needed, unsigned most);

#endif

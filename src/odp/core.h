/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The inside of an address space, shared by the room's files. */
#ifndef UNPIN_ODP_CORE_H
#define UNPIN_ODP_CORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/hist.h"
#include "base/lock.h"
#include "odp/fault.h"
#include "odp/guard.h"
#include "odp/owner.h"
#include "odp/pagetable.h"
#include "odp/prefetch.h"
#include "odp/space.h"
#include "odp/stream.h"
#include "odp/vmacache.h"

#define ODP_DRIVERS_MAX 64u

struct odp_space {
	struct pagetable table;
	_Atomic bool swap_on;	   /* anonymous memory can leave, as of the last fault or sweep */
	_Atomic uint32_t changes;  /* of mappings, as reported */
	_Atomic uint32_t activity; /* anything for the sweep to do again */
	struct odp_cfg cfg;
	struct guard guard;

	struct fault_queue faults; /* its lock guards what follows, and making and freeing leaves */
	struct list regions;
	struct owners owners;
	struct vmacache vmas;
	struct prefetch_queue prefetches;
	struct streams streams;
	bool stopping;
	uint64_t drivers; /* bit per driver[] that is running or being made */
	unsigned drivers_idle;
	pthread_t driver[ODP_DRIVERS_MAX];

	struct lock sweep_lock;	 /* one sweeper at a time */
	uintptr_t sweep_at;	 /* where the next call goes on */
	uint32_t sweep_activity; /* as it was when this round began */
};

static inline uint16_t odp_tick(void)
{
	struct timespec ts;

	/* Some milliseconds behind, and cheap. */
	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint16_t)(((uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec) / PAGETABLE_TICK_NS);
}

static inline void odp_active(struct odp_space *s)
{
	atomic_fetch_add_explicit(&s->activity, 1, memory_order_relaxed);
}

/* When an event that was raised then may be over; 0: at any time. */
static inline uint64_t odp_due(const struct odp_space *s, uint64_t raised_ns)
{
	return s->cfg.fault_latency_ns ? raised_ns + s->cfg.fault_latency_ns : 0;
}

/* Adds n to a counter of the region (c, may be NULL) and of the device. */
#define odp_count(s, c, field, n)                                                                            \
	do {                                                                                                 \
		struct unpin_odp_counters *counters_ = (c);                                                  \
		uint64_t n_ = (n);                                                                           \
		if (counters_)                                                                               \
			counter_add(&counters_->field, n_);                                                  \
		counter_add(&(s)->cfg.totals->field, n_);                                                    \
	} while (0)

/* ---- resolve.c ---- */

struct odp_outcome {
	int err;	 /* 0, -EACCES, -EFAULT: of the first page */
	bool forced;	 /* it could not be kept valid: let the access through */
	unsigned mapped; /* pages that were needed and are valid */
};

/*
 * Resolves an event, populating at most `limit` of its pages, and ends it: its waiters are told. spot: the
 * calling thread is an access and must not dawdle. Otherwise an event that is not due yet (f->due_ns) is
 * resolved and put off; odp_resolve_due() ends it. Without locks.
 */
struct odp_outcome odp_resolve(struct odp_space *s, struct fault *f, unsigned limit, bool spot);
/* Ends an event that was put off and taken back: whatever was dropped meanwhile is resolved again. */
struct odp_outcome odp_resolve_due(struct odp_space *s, struct fault *f);
/*
 * Ends an event whose pages are in memory or not: the leading `resident` ones become valid, nothing is
 * populated.
 */
struct odp_outcome odp_resolve_resident(struct odp_space *s, struct fault *f, unsigned resident);

/* ---- huge.c ---- */

/*
 * The page of the event has been populated: when it is a huge one, all of its leaf's pages that nobody else
 * has become the event's too, and settle with it. Without locks.
 */
void odp_huge_take(struct odp_space *s, struct fault *f);

/* ---- imprecise.c ---- */

/* Resolves what an imprecise event stands for, all but its end. The calling thread may sleep. Without locks.
 */
void odp_imprecise(struct odp_space *s, struct fault *f);

/* ---- raise.c ---- */

/* What became of an event that nobody waited for. Under the fault queue's lock. */
void odp_remember(struct odp_region *r, uintptr_t page, int err, bool forced);

/* ---- verify.c ---- */

/*
 * Asks what is in memory of the groups first..last of the leaf over base, drops the entries of what is not,
 * and renews the groups' ticks. Does not sleep. Without locks.
 */
void odp_verify(struct odp_space *s, struct leaf *leaf, uintptr_t base, unsigned first, unsigned last);

/* ---- sweep.c ---- */

/* Lets the guard look, and what it held back go on when it is over. Without locks. */
void odp_tick_guard(struct odp_space *s, uint64_t now);

/* ---- driver.c ---- */

/*
 * Sees to it that a thread will come for what is in the line and for queued prefetches: makes one if all are
 * busy, or does the work itself (and drops the prefetches) when there is none and none can be made. Without
 * locks.
 */
void odp_drivers_need(struct odp_space *s);
/* Joins all. The line is empty when it returns. */
void odp_drivers_stop(struct odp_space *s);

/* ---- region.c ---- */

/*
 * Gives groups of the leaf over base that hold valid pages and have no owner (any more) to an open region
 * over the leaf, or drops their entries when there is none. Without locks.
 */
void odp_adopt(struct odp_space *s, struct leaf *leaf, uintptr_t base);

/* Brings the totals' byte counters up to date with the region's. Under the fault queue's lock. */
void odp_region_fold(struct odp_region *r);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queued prefetches: requests, each a range with a cursor, that driver threads carry out chunk by chunk when
 * no fault waits for them.
 *
 * A request is on its region's list, and in the queue until its cursor is at its end. While a chunk of it is
 * carried out it is busy and stays, whatever becomes of its region.
 *
 * Threads: under the fault queue's lock, unless it says otherwise.
 */
#ifndef UNPIN_ODP_PREFETCH_H
#define UNPIN_ODP_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "odp/slab.h"

struct odp_region;
struct odp_space;

struct prefetch_queue {
	struct list line;      /* requests, the one whose turn it is first */
	unsigned len;	       /* requests that exist */
	unsigned busy, most;   /* threads that carry out chunks, and how many may */
	uint64_t held_ns;      /* memory was short: nothing is done before it is measured again then; 0 */
	struct slab_pool pool; /* of the requests */
};

/* most: threads that may be at it at once, at least 1. */
void prefetch_queue_init(struct prefetch_queue *q, unsigned most);
void prefetch_queue_destroy(struct prefetch_queue *q);

/*
 * Whether a thread may carry out a chunk now: no fault is in the line or kept until it is due, there is no
 * storm, memory is not short or has not been measured for a while, and not too many threads are at it.
 */
bool prefetch_ready(const struct odp_space *s);
/* When to look again although nobody has said anything; UINT64_MAX: never. */
uint64_t prefetch_held_until(const struct odp_space *s);
/*
 * Carries one out, if the memory limit leaves enough for it; else all are held for a moment, and the request
 * is dropped when that has not helped. It is ready; the lock is dropped meanwhile.
 */
void prefetch_some(struct odp_space *s);
/* Nobody can carry them out: forgets all, counted as dropped. */
void prefetch_drop_all(struct odp_space *s);

/* The region ends: what it has queued is dropped. */
void prefetch_region_end(struct odp_region *r);

#endif

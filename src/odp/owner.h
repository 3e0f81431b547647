/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Numbers for regions, small enough to be kept beside the pages in the device page table, and what an
 * invalidation needs of the region behind a number: its bounds and its counters, read without locks.
 *
 * A number may be given to another region while an invalidation is crediting: it then credits the new one.
 * Counters therefore must stay mapped as long as the table does (odp_region.odp).
 *
 * Threads: owner_take and owner_give are serialised by the caller; owner_count from anywhere.
 */
#ifndef UNPIN_ODP_OWNER_H
#define UNPIN_ODP_OWNER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/segment.h"

#define OWNERS 65536u /* 0: nobody */

struct owner {
	_Atomic uintptr_t first, end; /* whole pages */
	_Atomic(struct unpin_odp_counters *) counters;
};

struct owners {
	struct owner *row;
	uint16_t *free; /* a ring of numbers given back, oldest first, so that they are not reused soon */
	uint32_t free_at, free_len;
	uint32_t high; /* numbers below have been used */
};

/* 0 or -ENOMEM. */
int owners_init(struct owners *o);
void owners_destroy(struct owners *o);
/* A number for a region over [first, end); 0 when all are taken: it is then counted in the totals only. */
uint16_t owner_take(struct owners *o, uintptr_t first, uintptr_t end, struct unpin_odp_counters *counters);
void owner_give(struct owners *o, uint16_t number);

/* Whether the number is a region's: 0 is not. */
static inline bool owner_alive(const struct owners *o, uint16_t number)
{
	return atomic_load_explicit(&o->row[number].counters, memory_order_relaxed);
}

static inline const struct owner *owner_of(const struct owners *o, uint16_t number)
{
	return &o->row[number];
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Sequential accesses: where each would fault next, and how many pages its last batch had.
 *
 * One table for all regions of a space, found by region and page, so that an implicit region, which everybody
 * uses at once, can follow as many as an explicit one. A fault leaves an entry for the page behind what it
 * brought in; the fault that comes for just that page goes on with it. Every fault that is not sequential
 * leaves an entry that nobody takes: it pushes out the oldest of the few that share its place, so a stream
 * stands some hundreds of random faults between two of its own.
 *
 * Threads: serialised by the caller.
 */
#ifndef UNPIN_ODP_STREAM_H
#define UNPIN_ODP_STREAM_H

#include <stdint.h>

#define STREAM_SETS 64u
#define STREAM_WAYS 4u

struct stream {
	const void *region; /* only compared */
	uintptr_t next;	    /* the page where it goes on */
	uint32_t window;    /* pages of the last batch; 0: no entry */
};

struct streams {
	struct stream slot[STREAM_SETS][STREAM_WAYS];
	uint8_t hand[STREAM_SETS]; /* the one to be replaced next */
};

/* Takes out the stream of the region that goes on with this page: its window; 0: there is none. */
uint32_t stream_take(struct streams *s, const void *region, uintptr_t page);
/* Puts one in: it goes on at next. window > 0. */
void stream_put(struct streams *s, const void *region, uintptr_t next, uint32_t window);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Where the threads of the process record events of the timeline: a ring for each, which one other thread
 * (the writer, base/trace.c) empties. trace_record() and trace_moment() of base/trace.h are the recording
 * side.
 *
 * Memory: TRACE_RINGS rings at most, mapped when a thread first needs one, touched as they fill, kept for
 * other threads when it ends.
 *
 * Threads: what follows is for the writer, or for trace_open() while there is none.
 */
#ifndef UNPIN_BASE_TRACE_RING_H
#define UNPIN_BASE_TRACE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/trace.h"
#include "base/trace_event.h"

#define TRACE_RING_NAME 16 /* of a thread, with its 0 */

/* What a ring holds: one or two pieces of it. */
struct trace_batch {
	uint32_t tid;
	bool renamed; /* another thread has the ring since the last batch, or for the first time */
	char name[TRACE_RING_NAME];
	const struct trace_unit *piece[2];
	uint32_t units[2];
	uint32_t end; /* private */
};

/* The ith ring, i below TRACE_RINGS. false: it holds nothing. A ring that is empty and whose thread has ended
 * becomes free. */
bool trace_ring_take(unsigned i, struct trace_batch *b);
/* The batch has been read: its room is the thread's again. */
void trace_ring_release(unsigned i, const struct trace_batch *b);
/* How full, in units, it was when it was taken. */
static inline uint32_t trace_batch_units(const struct trace_batch *b)
{
	return b->units[0] + b->units[1];
}

/* Events that found their ring full, no ring, or interrupted another event; since the process began. */
uint64_t trace_ring_dropped(void);

/* Forgets what the rings hold; threads are introduced anew. */
void trace_ring_restart(void);
/* In a child, which has none of the threads. */
void trace_ring_abandon(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Watching receivers that promised to poll. A commit to a receiver whose door says POLLED wakes nobody; the
 * channel is then watched: our own polls look now and then whether the receiver takes anything. If it has not
 * for a while, its thread is not polling any more (it spins on memory, computes, or has lost its
 * CPU), and its engine is nudged. A nudge says more than a wake-up: an owner that gets many of them stops
 * promising (nic/engine.c).
 *
 * A commit pays two plain stores for it, and one poll in many a look at each channel. The flags are set and
 * cleared without order; one that is lost in between leaves the packet to the receiver's own tick.
 */
#ifndef UNPIN_WIRE_WATCH_H
#define UNPIN_WIRE_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"

struct wire_channel;

struct watch {
	struct lock lock;
	struct list channels;	/* lock: all of the wire */
	_Atomic bool any;	/* some channel may be watched */
	_Atomic uint32_t turns; /* polls since the last look; lost updates do no harm */
};

/* A channel's part. */
struct watched {
	struct list node;	    /* watch lock */
	_Atomic bool on;	    /* there may be packets that wake nobody */
	_Atomic uint64_t committed; /* descriptors sent so far; written under the channel's lock */
	uint64_t consumed;	    /* watch lock: the receiver's index when it was last seen to move */
	uint64_t since;		    /* watch lock: and the time; 0: not looked at yet */
};

void watch_init(struct watch *w);
void watch_fini(struct watch *w);
/* A channel comes, and goes before its memory does. */
void watch_enter(struct watch *w, struct wire_channel *c);
void watch_leave(struct watch *w, struct wire_channel *c);
/* From a poll; no lock is held. */
void watch_poll(struct watch *w);

/* After a commit that woke nobody. */
static inline void watch_set(struct watch *w, struct watched *d)
{
	if (!atomic_load_explicit(&d->on, memory_order_relaxed))
		atomic_store_explicit(&d->on, true, memory_order_relaxed);
	if (!atomic_load_explicit(&w->any, memory_order_relaxed))
		atomic_store_explicit(&w->any, true, memory_order_relaxed);
}

#endif

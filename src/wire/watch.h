/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Watching receivers that promised to poll. A commit to a receiver whose door says POLLED wakes nobody; the
 * channel is then watched: our own polls look now and then whether the receiver has taken the packet. If it
 * has not for a while, its thread is not polling any more (it spins on memory, computes, or has lost
 * its CPU), and its engine is nudged. A nudge says more than a wake-up: an owner that gets many of them stops
 * promising (nic/engine.c).
 *
 * Costs a flag per commit and a load of the receiver's index and of the clock per look.
 */
#ifndef UNPIN_WIRE_WATCH_H
#define UNPIN_WIRE_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct wire;
struct wire_channel;

struct watch {
	pthread_mutex_t lock;
	struct list channels;	/* lock: each holds a reference */
	_Atomic uint32_t n;	/* written under lock */
	_Atomic uint32_t turns; /* polls since the last look; lost updates do no harm */
};

/* A channel's part. */
struct watched {
	struct list node;	    /* watch lock */
	_Atomic bool on;	    /* set by commits, cleared under the watch lock */
	uint64_t pos;		    /* watch lock: the receiver's index has to pass this */
	uint64_t since;		    /* watch lock: of the first look at pos; 0: none yet */
	_Atomic uint64_t committed; /* descriptors sent so far; written under the channel's lock */
};

void watch_init(struct watch *w);
/* Lets go of every channel. */
void watch_fini(struct watch *w);
void watched_init(struct watched *d);
/* After a commit that woke nobody; no lock is held. */
void watch_add(struct watch *w, struct wire_channel *c);
/* From a poll; no lock is held. */
void watch_poll(struct watch *w);

#endif

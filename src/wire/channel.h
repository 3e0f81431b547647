/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The sending side of a channel: its memory, and what flows do with it (wire_flow_*, wire_reserve,
 * wire_commit and wire_cancel of shm.h are in channel.c). How it meets its receiver is peer.c's business.
 */
#ifndef UNPIN_WIRE_CHANNEL_H
#define UNPIN_WIRE_CHANNEL_H

#include <pthread.h>

#include "base/lock.h"
#include "wire/ring.h"
#include "wire/slots.h"
#include "wire/state.h"

enum channel_state {
	CHANNEL_ABSENT,	 /* nobody has the slot's name: packets are lost */
	CHANNEL_CALLING, /* somebody may have, but cannot be reached yet: packets are kept in the ring */
	CHANNEL_HELLO, /* connected, the answer has not come: packets are in the ring, its door is unknown */
	CHANNEL_OPEN,
	CHANNEL_DEAD, /* the receiver is gone; another channel is needed to reach the slot again */
};

struct wire_channel {
	struct wire *w;
	uint32_t slot;	       /* the receiver's */
	_Atomic uint32_t refs; /* the peer table's, the users', and that of who is giving out credit */
	uint32_t users;	       /* wire lock: connects less disconnects */
	uint64_t retry_at;    /* wire lock: when to look for an absent receiver again (CLOCK_MONOTONIC, ns) */
	uint64_t short_since; /* wire lock: we lack what meeting it takes (the same clock); 0: no */
	struct list dropping; /* wire lock */
	int memfd;	      /* wire lock: until hello is sent, */
	bool keep_memfd;      /* or for good where memory is allocated through it (constant) */
	int sock;	      /* written once, before the state is HELLO; open as long as the channel */
	void *memory;	      /* constant, like head */
	struct layout_head *head;
	_Atomic bool broken; /* the receiver wrote what it must not */
	struct list hungry;  /* hungry_lock */
	struct list held;    /* fabric lock */
	struct watched watched;
	/* The receiver's packets may be lost: written once, before those who talk to it are told. */
	_Atomic bool lossy;
	_Atomic bool lossy_news; /* they have not been told yet */

	struct lock lock; /* the rest */
	enum channel_state state;
	struct ring ring;
	uint32_t ring_allocated;
	struct slots slots;
	struct impair *impair; /* the pointer is constant; NULL: not impaired */
	uint64_t grow_at;      /* 0, or memory for slots was refused: not to be asked for again before */
	struct doorbell bell;
	struct list waiting;	   /* flows */
	bool delivering;	   /* a thread is giving out credit */
	pthread_t deliverer;	   /* which */
	struct wire_flow *calling; /* the flow whose credit() runs */
	pthread_cond_t called;	   /* calling has changed */
};

/* One reference, state ABSENT. NULL: errno. */
struct wire_channel *channel_new(struct wire *w, uint32_t slot);
void channel_ref(struct wire_channel *c);
void channel_put(struct wire_channel *c);
/* New state, under the wire's lock. What it was. */
enum channel_state channel_set_state(struct wire_channel *c, enum channel_state state);
/* The answer came: takes over bell, wakes the receiver if it sleeps over packets. */
void channel_opened(struct wire_channel *c, struct doorbell *bell);
/* Tells waiting flows that may try again; takes no locks of the caller's. False: nothing was there to do. */
bool channel_deliver(struct wire_channel *c, bool all);
/* Could channel_deliver() do something? */
bool channel_has_credit(struct wire_channel *c);
/*
 * Sends what the impaired fabric holds back and is due, or forgets it when the receiver is gone. Returns when
 * there is more to do, UINT64_MAX: never. Under the fabric's lock.
 */
uint64_t channel_release(struct wire_channel *c, uint64_t now);
/* Hands drop notices, and the news that the receiver's packets may be lost, to the owner. No locks held. */
void channel_dropped(struct wire_channel *c);

#endif

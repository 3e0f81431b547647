/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The two-state wake-up. A door is a page that its owner writes and its peers read: POLLED or ARMED, with a
 * number that counts armings. A doorbell is a peer's view of it: who has published work asks doorbell_due()
 * and, if told so, sends a wake-up, at most once per arming.
 *
 * Nothing is lost because four accesses are sequentially consistent: the owner stores ARMED and then looks
 * for work, the peer stores work and then reads the state; one of them sees the other.
 *
 * Any thread. A doorbell's page is hostile; a false state costs a wake-up too many, or its owner one too few.
 */
#ifndef UNPIN_WIRE_DOOR_H
#define UNPIN_WIRE_DOOR_H

#include <stdbool.h>
#include <stdatomic.h>
#include <stdint.h>

#include "wire/layout.h"

struct door {
	struct layout_door *page;
	int fd; /* to be passed to peers */
};

struct doorbell {
	struct layout_door *page; /* read-only; NULL: not known yet */
	_Atomic uint64_t rung;	  /* the state that was woken last */
	bool lossy;		  /* its owner's packets may be lost: read once */
};

/* POLLED at first; lossy is for peers to see. 0 or a negative errno. */
int door_open(struct door *d, bool lossy);
/* Leaves fd to its owner. */
void door_close(struct door *d);
void door_arm(struct door *d);
void door_disarm(struct door *d);
bool door_armed(const struct door *d);

/* Maps the page behind a descriptor a stranger sent; keeps fd open. 0; -EPROTO: no door; other negative
 * errno. */
int doorbell_open(struct doorbell *b, int fd);
void doorbell_close(struct doorbell *b);
/* After work was published with a sequentially consistent store: must the owner be woken? */
static inline bool doorbell_due(struct doorbell *b)
{
	uint64_t state;

	if (!b->page)
		return false;
	state = atomic_load(&b->page->state);
	return (state & 1) && atomic_load_explicit(&b->rung, memory_order_relaxed) != state &&
	       atomic_exchange(&b->rung, state) != state;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The wire itself: what channel.c (sending), inbound.c (receiving), peer.c and guest.c (meeting and parting)
 * and shm.c (composition) share.
 *
 * Beside each field stands what protects it; base/lock.h has the order of the locks.
 */
#ifndef UNPIN_WIRE_STATE_H
#define UNPIN_WIRE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/lock.h"
#include "wire/door.h"
#include "wire/fds.h"
#include "wire/impair.h"
#include "wire/layout.h"
#include "wire/shm.h"
#include "wire/watch.h"

struct inbound;

/* What an epoll event is about. */
enum source_kind {
	SOURCE_LISTENER,
	SOURCE_KICK,
	SOURCE_TIMER,
	SOURCE_FABRIC,
	SOURCE_GUEST,
	SOURCE_TX,
	SOURCE_RX,
	SOURCE_PROCESS,
	SOURCES
};

struct source {
	enum source_kind kind;
	void *owner;
};

/* An entry of the receive table: what an idle look needs, and no more. */
struct rx_entry {
	_Atomic uint64_t *next; /* first word of the descriptor that comes next */
	uint32_t empty;		/* its sequence while there is nothing */
	struct inbound *in;
};

struct wire {
	struct wire_ops ops;
	void *ctx;
	struct unpin_device_counters *counters;
	char device[64];
	uid_t euid;
	bool vague_user; /* users that our user namespace does not map have its number */
	uint32_t slot;
	struct fds fds;
	int epoll, kick, timer; /* constant while open */
	struct door door;
	struct source on_listener, on_kick, on_timer, on_fabric;

	struct lock lock;
	int listener;			/* lock: -1 where nobody can be let in */
	int spare;			/* lock: given up to accept one more when descriptors run out */
	struct peer *peers[LAYOUT_QPS]; /* lock: by slot */
	struct list guests;		/* lock: connections that are not peers yet, oldest first */
	uint32_t nguests;		/* lock: of those, without a hello */
	uint32_t nstrangers;		/* lock: of those, of another user as it seems */
	struct list dead_guests;	/* lock: freed when no event can point to them any more */
	struct list ending;		/* lock: peers that have ended and are being drained */
	struct list dropping;		/* lock: channels whose drop notices are to be looked at */
	uint32_t nwaiting;		/* lock: guests with a hello that have to wait */
	bool hurry;			/* lock: something has to be tried again soon */
	bool calling;			/* lock: a channel may be in CHANNEL_CALLING */
	uint32_t complaints;		/* lock: warnings given */
	_Atomic bool broken;		/* a channel was found to break the rules */

	struct lock rx_lock;
	struct rx_entry *rx; /* rx_lock, like the next three */
	uint32_t nrx, rx_room;
	uint32_t rx_turn; /* where the next look begins */

	struct lock hungry_lock;
	struct list hungry;	  /* hungry_lock: channels with flows that wait for credit */
	_Atomic uint32_t nhungry; /* written under hungry_lock */

	struct watch watch;
	struct fabric fabric;
	_Atomic uint32_t nudges; /* received: peers found that we had promised to poll and did not */
};

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Event channels: what a program gets when it opens /dev/infiniband/rdma_cm. A channel is an eventfd that
 * counts the events that wait, so that poll, epoll and O_NONBLOCK are the kernel's own; the events themselves
 * and the ids that belong to the channel are kept here.
 *
 * cm_lock guards all channels and all ids of this room; functions that want it held say so. Descriptors are
 * found without it.
 *
 * Fork: a child inherits descriptors of channels, but what is behind them stays the parent's. Commands on
 * them fail with EIO there, closing them closes the descriptor alone, and new channels begin anew.
 */
#ifndef UNPIN_RDMACM_CHANNEL_H
#define UNPIN_RDMACM_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>
#include <netinet/in.h> /* before the headers of the kernel that define the same */
#include <rdma/rdma_user_cm.h>

#include "base/list.h"
#include "base/lock.h"

struct cm_id;

extern struct lock cm_lock;

struct event_channel {
	int refs;	    /* descriptors of the program, and commands that are running */
	int fd;		    /* our own descriptor of the eventfd */
	struct list ids;    /* cm_id.of_channel */
	struct list events; /* cm_event.node, oldest first */
};

struct ucma_event {
	struct list node;
	struct cm_id *id;      /* whose events_reported counts it */
	struct cm_id *request; /* CONNECT_REQUEST: the new id, which has its number when the event is made */
	struct rdma_ucm_event_resp resp;
};

/* --- descriptors ---------------------------------------------------------------------------------- */

/*
 * A new channel and its descriptor, which the program closes; flags as for open(2), of which O_CLOEXEC and
 * O_NONBLOCK count. Negative errno: -EMFILE, -ENOMEM, ... Takes cm_lock.
 */
int event_channel_open(int flags);
/* Whether this process has, or inherited, any channel at all. One load. */
extern _Atomic int event_channel_count;
static inline bool event_channel_any(void)
{
	return __atomic_load_n((int *)&event_channel_count, __ATOMIC_RELAXED);
}
/* Whether the descriptor is a channel's: of this process (true), or one that a child has inherited
 * (*inherited). */
bool event_channel_is(int fd, bool *inherited);
/* The program has made `copy` of `fd` (dup and its relatives). Takes cm_lock. */
void event_channel_copied(int fd, int copy);
/* The program is about to close it, or has replaced it; the last descriptor takes the channel and its ids
 * along. Harmless for what is no channel. Takes cm_lock. */
void event_channel_closed(int fd);
void event_channel_closed_range(unsigned first, unsigned last);

/* Finds and holds the channel of a descriptor; NULL: none, or inherited. Takes cm_lock. */
struct event_channel *event_channel_get(int fd);
void event_channel_put(struct event_channel *c);
/* The same without holding it; cm_lock is held. */
struct event_channel *event_channel_of(int fd);

/* --- events (cm_lock is held) --------------------------------------------------------------------- */

/* Appends the event, which is the channel's from now on, and wakes who waits. */
void event_channel_post(struct event_channel *c, struct ucma_event *e);
/* All events of an id, without their counts, into a list. */
void event_channel_withdraw(struct event_channel *c, struct cm_id *id, struct list *out);
/* Moves an id's events, in their order, behind those of another channel. */
void event_channel_move(struct event_channel *from, struct event_channel *to, struct cm_id *id);

/* The oldest event, which stays where it is; NULL: none. */
struct ucma_event *event_channel_first(struct event_channel *c);

/*
 * Takes one count: waits for it as read(2) of a descriptor of the kernel does, that is, as a cancellation
 * point; -EINTR after a signal; -EAGAIN when the descriptor is O_NONBLOCK. Without cm_lock; the caller holds
 * the channel. Then there is an event, unless it was withdrawn meanwhile or moved to another channel.
 * event_channel_recount() gives the count back.
 */
int event_channel_wait(struct event_channel *c);
void event_channel_recount(const struct event_channel *c);

#endif

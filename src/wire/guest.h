/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Guests: connections that others have made to us, from their acceptance until each is a peer's sending half
 * (peer.h) or is refused.
 *
 *   silent --hello--> greeted --its slot is proven, there is a place, the answer is out--> a peer's
 *
 * Everything here is under the wire's lock.
 */
#ifndef UNPIN_WIRE_GUEST_H
#define UNPIN_WIRE_GUEST_H

#include "wire/state.h"

/* A connection that has been accepted and is not a peer's yet. */
struct guest {
	struct wire *w;
	int sock, pidfd; /* pidfd: -1 before the hello, and if its process had ended by then */
	pid_t pid;
	uint64_t key;	   /* its process (meet.h); 0: unknown */
	uint64_t deadline; /* for the hello, or the end of one whose name is gone */
	bool greeted;	   /* hello is here: slot, memfd and doorfd are valid */
	bool stranger;	   /* not greeted, and of another user now: its slot is proven before it is heard */
	bool waits;	   /* and counted among those that wait for a verdict */
	uint32_t slot;
	int memfd, doorfd; /* of unknown kind */
	struct list node;
	struct source on_sock;
};

/* Takes what waits at the listening socket. */
void guest_accept(struct wire *w, uint64_t now);
void guest_event(struct guest *g, uint64_t now);
/* Answers whoever has called up to now. */
void guest_hear_all(struct wire *w, uint64_t now);
/* Tries again what could not be done before; once per wire_service(), behind peer_tick() and the events,
 * which may point to guests that have left. */
void guest_tick(struct wire *w, uint64_t now);
/* Hangs up on connections that nobody has accepted: a forked child may hold the listening socket open. */
void guest_stop_listening(struct wire *w);
/* For wire_close, before peer_close_all(). */
void guest_close_all(struct wire *w);

#endif

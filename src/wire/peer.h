/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Peers: the processes behind slots, from the first attempt to meet them until they are gone. A peer has up
 * to two channels: tx (ours to it) and rx (its to us); they begin one by one and end together, with one
 * gone().
 *
 *   unknown --connect or hello--> known (pid, pidfd) --death, end of a socket, broken rules--> ending
 * --drained--> gone
 *
 * Everything here is under the wire's lock unless it says otherwise.
 */
#ifndef UNPIN_WIRE_PEER_H
#define UNPIN_WIRE_PEER_H

#include "wire/state.h"

struct peer {
	struct wire *w;
	uint32_t slot;
	pid_t pid; /* 0: unknown */
	int pidfd; /* -1: unknown, or the process had ended before we could ask for one */
	struct wire_channel *tx;
	struct inbound *rx;
	struct guest *caller;	   /* who is to become rx, while it has not been answered */
	struct wire_channel *heir; /* ending: what connects to whoever has the slot next; state ABSENT */
	bool ending;
	bool drain;	  /* ending: what it has sent is put before it is gone */
	uint64_t grace;	  /* until then the process may still turn out to be dying */
	bool dead;	  /* the process has died */
	bool unmet;	  /* nothing was ever exchanged: no gone() */
	struct list node; /* of the ending */
	struct source on_tx, on_rx, on_process;
};

/* A connection that has been accepted and is not a peer's yet. */
struct guest {
	struct wire *w;
	int sock, pidfd; /* pidfd: -1 before the hello, and if its process had ended by then */
	pid_t pid;
	uint64_t deadline; /* for the hello, or the end of one whose name is gone */
	bool greeted;	   /* hello is here: slot, memfd and doorfd are valid */
	bool waits;	   /* and counted among those that wait for a verdict */
	uint32_t slot;
	int memfd, doorfd; /* of unknown kind */
	struct list node;
	struct source on_sock;
};

struct peer *peer_of(struct wire *w, uint32_t slot);
struct peer *peer_new(struct wire *w, uint32_t slot);
/* Frees a peer that has no sources registered and no channels. */
void peer_free(struct peer *p);
/* Looks for the receiver of p->tx, at most once per millisecond. */
void peer_seek(struct peer *p, uint64_t now);
/* The last user of p->tx has left: a peer that was never reached is forgotten. */
void peer_unused(struct peer *p);
/* Handles all that wire_service() is for but the callbacks. */
void peer_accept(struct wire *w, uint64_t now);
/* Answers whoever has called up to now. */
void peer_hear_callers(struct wire *w, uint64_t now);
void peer_guest_event(struct guest *g, uint64_t now);
void peer_tx_event(struct peer *p);
void peer_rx_event(struct peer *p);
void peer_process_event(struct peer *p);
/* Tries again what could not be done before; ends those that break the rules. */
void peer_tick(struct wire *w, uint64_t now);
/* An ended peer that is drained and cut off from every table, or NULL. */
struct peer *peer_next_gone(struct wire *w, uint64_t now);
/* Hangs up on connections that nobody has accepted: a forked child may hold the listening socket open. */
void peer_stop_listening(struct wire *w);
/* For wire_close: everything is dropped without a callback. */
void peer_close_all(struct wire *w);

#endif

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

#include "base/log.h"
#include "wire/meet.h"
#include "wire/state.h"

struct guest;

struct peer {
	struct wire *w;
	uint32_t slot;
	pid_t pid;    /* 0: unknown, or in a pid namespace that we cannot look into */
	uint64_t key; /* its process (meet.h); 0: unknown */
	int pidfd;    /* -1: unknown, the process had ended before we could ask for one, or there are none */
	struct wire_channel *tx;
	struct inbound *rx;
	struct guest *caller;	   /* who is to become rx, while it has not been answered */
	struct wire_channel *heir; /* ending: what connects to whoever has the slot next; state ABSENT */
	bool ending;
	bool drain;	  /* ending: what it has sent is put before it is gone */
	uint64_t grace;	  /* until then the process may still turn out to be dying */
	bool dead;	  /* the process has died */
	bool never;	  /* the two can never meet */
	bool unmet;	  /* nothing was ever exchanged: no gone() */
	struct list node; /* of the ending */
	struct source on_tx, on_rx, on_process;
};

struct peer *peer_of(struct wire *w, uint32_t slot);
struct peer *peer_new(struct wire *w, uint32_t slot);
/* Frees a peer that has no sources registered and no channels. */
void peer_free(struct peer *p);
/* Looks for the receiver of p->tx, at most once per millisecond. */
void peer_seek(struct peer *p, uint64_t now);
/* The last user of p->tx has left: a peer that was never reached is forgotten. */
void peer_unused(struct peer *p);
/* What wire_service() is for, but for guests (guest.h) and the callbacks. */
void peer_tx_event(struct peer *p);
void peer_rx_event(struct peer *p);
void peer_process_event(struct peer *p);
/* Tries again what could not be done before; ends those that break the rules. */
void peer_tick(struct wire *w, uint64_t now);
/* An ended peer that is drained and cut off from every table, or NULL. */
struct peer *peer_next_gone(struct wire *w, uint64_t now);
/* For wire_close: everything is dropped without a callback. */
void peer_close_all(struct wire *w);

/* --- for guest.c --- */

int peer_watch(struct wire *w, int fd, struct source *s);
void peer_unwatch(struct wire *w, int fd); /* fd may be -1 */
/* The process behind the peer is known from now on: its death is the peer's. Takes over who->pidfd. */
int peer_know(struct peer *p, const struct meet_peer *who);
/*
 * Beside its credentials: a pidfd, in our table, and the key. 0, with a pidfd of -1 where the kernel permits
 * none: then the end of its sockets is its death. -ESRCH as meet_pidfd(); -EXDEV: it is in a pid namespace
 * that we cannot look into, and the kernel does not tell such processes apart; -EACCES: it looks like a
 * process of our user, and is none; others (descriptors).
 */
int peer_identify(struct wire *w, int sock, struct meet_peer *who);
/* It is over, with what it has sent, or without (drain). */
void peer_end(struct peer *p, bool drain);
/* A socket of it has ended: -ESHUTDOWN with goodbye, -ENOTCONN without. */
void peer_end_of_socket(struct peer *p, int why);
/* A descriptor that is kept for when there is no other. */
void peer_take_spare(struct wire *w);

#define MAX_COMPLAINTS 32u
/* A warning for the person; a hostile peer must not fill the log. */
#define complain(w, ...)                                                                                     \
	do {                                                                                                 \
		if ((w)->complaints < MAX_COMPLAINTS) {                                                      \
			(w)->complaints++;                                                                   \
			log_warn(__VA_ARGS__);                                                               \
		}                                                                                            \
	} while (0)

#endif

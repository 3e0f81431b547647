/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The receiving side of a channel: memory that another process made and may write at any time. Whatever is
 * read from it is copied once and checked; what cannot be right marks the channel broken, and its peer is
 * thrown out.
 */
#ifndef UNPIN_WIRE_INBOUND_H
#define UNPIN_WIRE_INBOUND_H

#include "wire/ring.h"
#include "wire/state.h"

struct inbound {
	struct wire *w;
	uint32_t slot;	       /* the sender's, verified */
	_Atomic uint32_t refs; /* the peer's, and one per received packet whose payload is in a slot */
	int sock;	       /* open as long as the inbound */
	struct doorbell bell;  /* the sender's */
	void *memory;	       /* constant, like the next two */
	struct layout_head *head;
	struct layout_desc *desc;
	uint64_t pos;	/* rx_lock: the next descriptor */
	uint64_t limit; /* rx_lock: nothing is taken from here on; bounds what an ended peer can still say */
	_Atomic bool broken;
};

/* Maps and checks what a hello brought; the caller keeps the descriptors memfd and doorfd. 0; -EPROTO: not a
 * channel; other negative errno. One reference. Takes over sock when it succeeds. */
int inbound_new(struct wire *w, uint32_t slot, int memfd, int doorfd, int sock, struct inbound **out);
void inbound_put(struct inbound *in);
/* Begins to take packets from it. 0 or -ENOMEM. Takes rx_lock. */
int inbound_attach(struct inbound *in);
/* Takes no more than is there now, or nothing. Takes rx_lock. */
void inbound_end(struct inbound *in, bool drain);
/* Puts what is left, as far as get() allows. True: nothing is left, and it is out of the table. Takes
 * rx_lock. */
bool inbound_drain(struct inbound *in);
/* Puts what has been sent up to now, as far as get() allows. Takes rx_lock. */
void inbound_catch_up(struct inbound *in);
/* The packets of every channel; rx_lock is held. Returns how many. */
int inbound_poll_all(struct wire *w, int budget);
/* Is there anything to take? rx_lock is held. */
bool inbound_any(struct wire *w);
/* Wakes the sender if it waits for credit. */
void inbound_credit(struct inbound *in);
/* The sender is to know that a packet of its queue pair was dropped. */
void inbound_notify_dropped(struct inbound *in, uint32_t qpn);

#endif

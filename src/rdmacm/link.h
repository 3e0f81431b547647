/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How messages of connection managers travel between processes of one host: one abstract SEQPACKET socket
 * per connection, from a connecting id to the name of a listening one (port.h). The kernel gives the backlog,
 * says who is at the other end (the same effective user only), and tells its death. Nothing here looks into
 * messages.
 *
 * Every function wants cm_lock held, and what is called back (connection.h) has it. Everything that arrives
 * is untrusted.
 */
#ifndef UNPIN_RDMACM_LINK_H
#define UNPIN_RDMACM_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "cm/mad.h"
#include "rdmacm/connection.h"
#include "rdmacm/id.h"
#include "rdmacm/service.h"

struct link {
	struct watch watch; /* its socket; -1 while nobody has answered */
	struct list node;
	struct cm_id *id;	/* NULL: a request that has not come yet */
	struct cm_id *listener; /* likewise: whom it came to */
	uint64_t route;		/* what the communication manager calls it */
	uint64_t began;
	uint64_t at;	  /* when link_tick() is to look at it for the link's own sake; 0: never */
	bool has_pending; /* a message that goes out as soon as somebody has answered */
	uint8_t pending[CM_MAD_BYTES];
};

/* The id, which has its claim, can be connected to. -EADDRINUSE and others. */
int link_listen(struct cm_id *id);
/* No longer; requests that have not been read yet are dropped. */
void link_unlisten(struct cm_id *id);
/*
 * Makes a link for the id and looks for who listens at id->dst: until somebody does, for a short grace, since
 * servers often start beside their clients. Then, if nobody does, connection_refused(), or, when nobody
 * answers at all, connection_unreachable(). They may be called by link_start(). -ENOMEM.
 */
int link_open(struct cm_id *id);
/* The first try; after the connection is ready to be called back. */
void link_start(struct link *l);
/* Sends one message; l may be NULL. What does not go out is lost, as on a network; before anybody has
 * answered the last message waits. */
void link_send(struct link *l, const void *message);
/* Ends the link; what was sent still arrives. */
void link_close(struct link *l);
/* The link of a route; NULL: there is none any more. */
struct link *link_find(uint64_t route);

/* The time has come: looks at every link. */
void link_tick(uint64_t now);
/* In a forked child: forgets them. */
void link_abandon(void);

#endif

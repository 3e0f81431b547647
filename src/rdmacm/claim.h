/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Claims on ports, published (port.h says what a claim is). A port is decided about by one process of a user
 * at a time, which holds the name of the port's lock meanwhile: it lists the claims, asks port_conflict(),
 * and publishes its own. Everything goes with the process.
 *
 * Errors are negative errno values. The caller keeps two calls of one process apart (the room's lock).
 */
#ifndef UNPIN_RDMACM_CLAIM_H
#define UNPIN_RDMACM_CLAIM_H

#include "rdmacm/port.h"

struct claim {
	struct port_claim port;
	int fd; /* the socket that has the name; -1: no claim */
};

/*
 * Publishes the claim. With port 0 an ephemeral port is chosen and written into c->port.addr. 0; -EADDRINUSE,
 * -EADDRNOTAVAIL (also: no ephemeral port is left), -EACCES (a privileged port), or what sockets fail with.
 */
int claim_take(struct claim *c);
/* The id is about to listen: nobody may share its port from now on. As claim_take(). */
int claim_own(struct claim *c);
/* The id's options have changed: the claim says so from now on. Nobody is asked. */
int claim_change(struct claim *c, bool reuse, bool afonly);
void claim_drop(struct claim *c);

#endif

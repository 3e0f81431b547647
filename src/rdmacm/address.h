/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which addresses are this host's, and which of them a packet to a destination would come from.
 *
 * Nothing is kept: the interfaces and routes are those of the moment. Any thread; no cancellation point.
 * Errors are negative errno values.
 */
#ifndef UNPIN_RDMACM_ADDRESS_H
#define UNPIN_RDMACM_ADDRESS_H

#include <stdbool.h>

#include "rdmacm/port.h"

/* Has an interface of this network namespace that is up this address? All of 127.0.0.0/8 is the host's. */
bool address_is_local(const union address *a);
/*
 * The address from which the destination is reached, as its route says; src's port stays as it is. src may be
 * given (its family set, and not a wildcard): then it is only asked whether there is a route from it. 0;
 * -ENETUNREACH, -EHOSTUNREACH and what else connect(2) says.
 */
int address_route(const union address *dst, union address *src);
/* The row of the GID table for an address of this host. -ENODEV: it has none. */
int address_gid_index(const union address *a, unsigned *index);
/* ... and its GID, which for a loopback address without a row is that of a loopback interface. */
int address_gid_local(const union address *a, uint8_t gid[16], unsigned *index);

#endif

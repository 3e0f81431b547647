/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Port numbers: who may bind what, and the names of abstract unix sockets in which that is written.
 *
 * Each bound id publishes a claim: an abstract socket whose name says everything that decides about
 * conflicts. A listening id has a second name, made from device, address and port only, to which connecting
 * processes go. Both begin with the user, so that each user has port spaces of its own, and both live in the
 * network namespace.
 *
 * Pure functions; any thread.
 */
#ifndef UNPIN_RDMACM_PORT_H
#define UNPIN_RDMACM_PORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An address of the families that rdma_cm takes here; the port lies in it (network byte order). */
union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

#define ADDRESS_TEXT 64

/* sizeof(struct sockaddr_in or _in6); 0: another family. */
size_t address_size(const union address *a);
/* Host byte order. */
uint16_t address_port(const union address *a);
void address_set_port(union address *a, uint16_t port);
/* 0.0.0.0 or ::. */
bool address_any(const union address *a);
/* 127.0.0.0/8, ::1, or the former as an IPv4-mapped address. */
bool address_loopback(const union address *a);
/* The host part and, of link-local addresses, the scope. Addresses of two families differ. */
bool address_equal(const union address *a, const union address *b);
/* As a GID: IPv4 becomes ::ffff:a.b.c.d. */
void address_gid(const union address *a, uint8_t gid[16]);
/* For messages to a person. */
void address_text(const union address *a, char text[ADDRESS_TEXT]);

struct port_claim {
	uint32_t ps; /* enum rdma_ucm_port_space */
	union address addr;
	bool reuse;	/* RDMA_OPTION_ID_REUSEADDR, until the id listens */
	bool afonly;	/* of its own family only */
	uint64_t owner; /* tells two claims of equal content apart */
};

#define PORT_NAME_MAX 108 /* as struct sockaddr_un has it, the leading 0 included */

/*
 * May an id with the claim mine have its port beside one with the claim other? 0, -EADDRINUSE (the address is
 * taken), -EADDRNOTAVAIL (one of the two is a wildcard). reuse: whether mine asks for a port that others may
 * have too; an id that begins to listen does not, whatever its option says. Claims of other ports and port
 * spaces never conflict.
 */
int port_conflict(const struct port_claim *mine, const struct port_claim *other, bool reuse);

/*
 * The name of a claim, without the leading 0 byte; its length, or -ENAMETOOLONG. port_claim_parse() is its
 * inverse; false: it is no claim of that user.
 */
int port_claim_name(const struct port_claim *c, uid_t user, char name[PORT_NAME_MAX]);
bool port_claim_parse(const char *name, size_t len, uid_t user, struct port_claim *c);

/* The name under which one process at a time decides about a port. */
int port_lock_name(uint32_t ps, uint16_t port, uid_t user, char name[PORT_NAME_MAX]);

/*
 * Where a listening id is found: specific addresses, all of one family, or all of both.
 * port_listener_name() is for the id that listens. port_target_name() gives the names that are tried for a
 * destination, one after the other: nth from 0; 0 when there is none left.
 */
int port_listener_name(const struct port_claim *c, uid_t user, const char *device, char name[PORT_NAME_MAX]);
int port_target_name(uint32_t ps, const union address *to, uid_t user, const char *device, unsigned nth,
	char name[PORT_NAME_MAX]);

#endif

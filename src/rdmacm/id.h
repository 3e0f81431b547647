/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Ids: what rdma_create_id(3) makes, in the states and with the rules of the kernel's rdma_cm. Commands come
 * from ucma.c, what peers say comes from link.c; both end as events of the id's channel.
 *
 * Every function wants cm_lock held. Errors are negative errno values, those of the kernel.
 */
#ifndef UNPIN_RDMACM_ID_H
#define UNPIN_RDMACM_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

#include "base/list.h"
#include "rdmacm/channel.h"
#include "rdmacm/claim.h"
#include "rdmacm/port.h"
#include "rdmacm/service.h"

/* <rdma/rdma_cma.h>, which is not for this side of the interface, has the same list. */
enum ucma_event_type {
	UCMA_EVENT_ADDR_RESOLVED,
	UCMA_EVENT_ADDR_ERROR,
	UCMA_EVENT_ROUTE_RESOLVED,
	UCMA_EVENT_ROUTE_ERROR,
	UCMA_EVENT_CONNECT_REQUEST,
	UCMA_EVENT_CONNECT_RESPONSE,
	UCMA_EVENT_CONNECT_ERROR,
	UCMA_EVENT_UNREACHABLE,
	UCMA_EVENT_REJECTED,
	UCMA_EVENT_ESTABLISHED,
	UCMA_EVENT_DISCONNECTED,
	UCMA_EVENT_DEVICE_REMOVAL,
	UCMA_EVENT_MULTICAST_JOIN,
	UCMA_EVENT_MULTICAST_ERROR,
	UCMA_EVENT_ADDR_CHANGE,
	UCMA_EVENT_TIMEWAIT_EXIT,
};

enum id_state {
	ID_IDLE,
	ID_BOUND,
	ID_ADDR_RESOLVED,
	ID_ROUTE_RESOLVED,
	ID_CONNECT, /* from CONNECT, or the arrival of a request, until either side disconnects */
	ID_DISCONNECT,
	ID_LISTEN,
};

struct cm_conn;
struct link;

struct cm_id {
	uint32_t number; /* what programs call it */
	uint64_t uid;	 /* what the program calls it; 0: a new connection that is not accepted yet */
	struct event_channel *channel;
	struct list of_channel;
	uint32_t events_reported;

	enum id_state state;
	uint16_t ps;
	union address src, dst; /* family 0: none */
	bool reuse, afonly, afonly_set;
	uint8_t tos;
	bool tos_set;
	uint8_t ack_timeout;
	bool ack_timeout_set;

	bool has_device; /* its address is known, and thereby the device */
	unsigned sgid_index;
	uint8_t sgid[16], dgid[16];
	bool has_route;

	struct claim claim;
	uint32_t backlog;      /* of a listening id: requests that may still wait to be fetched */
	struct watch listener; /* its socket; -1 */
	bool listener_paused;  /* there is no descriptor for the next connection at the moment */
	struct list listening; /* link.c */
	struct link *link;     /* to the peer of its connection, or of its attempt at one */
	struct cm_conn *conn;  /* the communication manager's; NULL also when the attempt is over */
	uint32_t seq;	       /* the first packet sequence number that this side sends */
};

#define ID_MAX_BACKLOG 1024

/* An id without any settings, for a program's CREATE_ID or a request that has come. -ENOMEM. */
int id_make(struct event_channel *c, struct cm_id **out);
/* -ENOMEM, -EINVAL: a port space that is not offered. */
int id_create(struct event_channel *c, uint64_t uid, uint16_t ps, uint8_t qp_type, struct cm_id **out);
/* An id, with all that it has; requests nobody fetched are rejected. Returns events_reported. */
uint32_t id_destroy(struct cm_id *id);
/* -ENOENT: there is none of that number; -EINVAL: it belongs to another channel. */
int id_find(struct event_channel *c, uint32_t number, struct cm_id **out);
void id_migrate(struct cm_id *id, struct event_channel *to);

int id_bind(struct cm_id *id, const union address *a);
int id_resolve_addr(struct cm_id *id, const union address *src, const union address *dst);
int id_resolve_route(struct cm_id *id);
/* The path was given by the program (RDMA_OPTION_IB_PATH). */
int id_set_path(struct cm_id *id);
int id_listen(struct cm_id *id, uint32_t backlog);
int id_set_reuse(struct cm_id *id, bool on);
int id_set_afonly(struct cm_id *id, bool on);
int id_set_ack_timeout(struct cm_id *id, uint8_t value);
/* The path as QUERY_ROUTE has it; 0 paths until the route is resolved. */
uint32_t id_path(const struct cm_id *id, struct ib_user_path_rec *p);

/* An event about the id, not posted yet. NULL: no memory. */
struct ucma_event *id_event(struct cm_id *id, enum ucma_event_type type, int status);
/* Takes an address of this host as the id's own and finds its row of the GID table. -ENODEV. */
int id_take_device(struct cm_id *id);

/* In a forked child: forgets all ids. */
void id_abandon(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One connection's state, and what the files of the room share. cm.h is the room's interface.
 *
 * table.c    finds connections, keeps timers and the queue of actions
 * conn.c     what a connection does by itself: repeat, give up, leave TIMEWAIT; its end
 * send.c     what the user asks for
 * receive.c  what messages do
 *
 * A connection that the user has destroyed may stay for a while (destroyed is set): it answers what the peer
 * repeats, or repeats its own DREQ. It raises no events. Its time is bounded, and so is the number of such
 * connections.
 */
#ifndef UNPIN_CM_CONN_H
#define UNPIN_CM_CONN_H

#include "base/list.h"
#include "cm/cm.h"

enum { CM_UNARMED = -1, CM_MAX_CONNS = 65536, CM_MAX_DESTROYED = 4096, CM_RESERVE = 4 };

struct cm_conn {
	enum cm_state state;
	void *user;
	bool destroyed;
	bool gone;	 /* the peer behind the route is dead: nothing is sent */
	bool gone_due;	 /* and its event has still to be raised */
	bool has_remote; /* remote_id is known */
	bool unsure;	 /* ended after a REP was sent: the peer may believe that it is established */
	cm_route route;
	uint32_t local_id, remote_id;
	uint64_t service_id, remote_guid;
	uint64_t tid;	   /* of the REQ or SIDR_REQ, and of everything that answers it */
	uint64_t dreq_tid; /* of the peer's DREQ */
	enum cm_transport transport;
	uint32_t local_qpn, remote_qpn, sq_psn, rq_psn;
	uint8_t responder_resources, initiator_depth, mtu, retry_count, rnr_retry, ack_timeout;
	uint16_t pkey;
	struct cm_path path; /* local is this end */

	uint64_t timeout; /* ns that one try of a REQ, REP or DREQ waits */
	uint64_t wait;	  /* the same for the message that is being repeated; an MRA makes it longer */
	uint64_t linger;  /* ns in which the peer may repeat what we have answered */
	uint8_t retries, tries_left;
	uint8_t sent[CM_MAD_BYTES];  /* the message that is being repeated */
	uint8_t reply[CM_MAD_BYTES]; /* the last answer, for duplicates */
	bool has_reply;
	enum cm_type sent_type, reply_type;

	int timer; /* place in the heap, or CM_UNARMED */
	uint64_t deadline;
	struct list all, ended; /* cm.conns; cm.ended when destroyed */
	struct list by_local, by_remote, by_qpn, by_service;
};

enum { CM_BUCKETS = 1024 };

struct cm {
	struct cm_config config;
	uint32_t next_id;
	uint64_t next_tid;
	unsigned count, destroyed; /* all; those of them that are destroyed */
	struct list conns, ended;
	struct list local[CM_BUCKETS], remote[CM_BUCKETS], qpn[CM_BUCKETS], service[CM_BUCKETS];
	struct cm_conn **heap; /* room for all connections */
	unsigned armed, heap_room;
	struct list actions, spare;
	unsigned spares;
	struct cm_event nowhere; /* where events of a destroyed connection are written */
	struct cm_counters counters;
};

/* table.c */

/* Makes sure that n actions can be queued. The functions that queue need one each. */
bool cm_reserve(struct cm *cm, unsigned n);
void cm_push_send(struct cm *cm, cm_route route, const uint8_t mad[CM_MAD_BYTES]);
struct cm_event *cm_push_event(struct cm *cm, struct cm_conn *conn, enum cm_event_type type);
void cm_drop_events(struct cm *cm, const struct cm_conn *conn);
/* A request for this listener whose event is still queued, or NULL. */
struct cm_conn *cm_unseen_request(struct cm *cm, const struct cm_conn *listener);

struct cm_conn *cm_new_conn(struct cm *cm);
void cm_release(struct cm *cm, struct cm_conn *conn);

void cm_arm(struct cm *cm, struct cm_conn *conn, uint64_t at);
void cm_disarm(struct cm *cm, struct cm_conn *conn);

struct cm_conn *cm_by_local(struct cm *cm, cm_route from, uint32_t local_id);
struct cm_conn *cm_by_service(struct cm *cm, uint64_t service_id);
/* A SIDR_REQ has no GUID: 0. */
struct cm_conn *cm_by_remote(struct cm *cm, cm_route from, bool sidr, uint64_t guid, uint32_t remote_id);
/* A connection that is not over and has this queue pair of the peer. */
struct cm_conn *cm_by_qpn(struct cm *cm, cm_route from, uint64_t guid, uint32_t qpn);
void cm_link_remote(struct cm *cm, struct cm_conn *conn, bool sidr);
void cm_unlink_remote(struct cm_conn *conn);
void cm_link_service(struct cm *cm, struct cm_conn *conn);

/* conn.c */

/* 4.096 us * 2^t in ns, as the kernel rounds it: to 1 ms at least. */
uint64_t cm_time(uint8_t t);
/* How long a peer repeats that waits so long for each answer; with an upper bound. */
uint64_t cm_linger(uint64_t one_try, unsigned retries);
/* The ACK timeout that fits a packet lifetime and the other end's delay. */
uint8_t cm_ack_timeout(uint8_t ack_delay, uint8_t life_time);

/* Sends a message once. The caller has reserved an action. */
void cm_transmit(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg);
/* The same, and repeats it until cm_stop(). */
void cm_transmit_repeated(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg, uint64_t now);
/* The same as cm_transmit(), and keeps it for cm_answer_again(). */
void cm_transmit_reply(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg);
/* Only keeps it. */
void cm_keep_reply(struct cm_conn *conn, const struct cm_msg *msg);
void cm_answer_again(struct cm *cm, struct cm_conn *conn);
/* The message that is being repeated, once more and out of turn. */
void cm_send_again(struct cm *cm, struct cm_conn *conn);
/* Sends a message that no connection has, back where it came from. */
void cm_transmit_to(struct cm *cm, cm_route route, const struct cm_msg *msg);
void cm_stop(struct cm *cm, struct cm_conn *conn);

/* Ends the repeating; the connection is in the table of remote ids no more. */
void cm_to_idle(struct cm *cm, struct cm_conn *conn);
/* IDLE, but what the peer repeats is answered until linger is over. */
void cm_to_idle_answering(struct cm *cm, struct cm_conn *conn, uint64_t now);
void cm_to_timewait(struct cm *cm, struct cm_conn *conn, uint64_t now);

void cm_fill_dreq(const struct cm_conn *conn, uint64_t tid, struct cm_msg *msg);
uint64_t cm_new_tid(struct cm *cm);

static inline bool cm_is(const struct cm_conn *conn, enum cm_state a, enum cm_state b)
{
	return conn->state == a || conn->state == b;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The InfiniBand communication manager (IBTA volume 1, chapter 12) of one process as a pure state machine: no
 * sockets, clocks or threads. Messages and times are told to it; what is to be sent and what the user must
 * know comes back from cm_next_action().
 *
 * Whoever owns a struct cm calls its functions one at a time (under one lock). Times are nanoseconds of one
 * monotonic clock. After every call the owner takes all actions with cm_next_action(), and then asks
 * cm_next_deadline() when cm_tick() is due; a tick that comes late only delays what it would do.
 *
 * A *route* says how a message gets to a peer and back. It is the owner's value; it is only compared here.
 * Messages that come from one peer must be told with the route that answers to it are sent on: a message for
 * a connection is taken only from the connection's own route, so that no other peer can disturb it. A message
 * to the process itself is a route like any other (the owner gives the bytes back to cm_receive()); a REQ for
 * a service at which nobody listens, sent that way, is answered REJ 8 as a kernel answers it.
 *
 * A *connection* is what the kernel calls an ib_cm_id: made by cm_create() or by a REQ or SIDR_REQ that a
 * listener gets, and valid until cm_destroy(). States and transitions are the kernel's (struct ib_cm), with
 * these differences, each of which makes the two ends agree sooner or keeps an event from coming twice:
 *
 *   - a duplicate REQ in REP_SENT is answered with the REP at once (the kernel waits for its timer);
 *   - a duplicate REQ or SIDR_REQ that was rejected or answered gets the same answer again, also after
 *     cm_destroy() for as long as the peer may repeat it, and raises no second event;
 *   - a REP for a connection that does not exist or waits for none is answered REJ 6 (12.6.7.2);
 *   - retries that run out for a REQ or REP tell the peer REJ 4 (12.6.7.2);
 *   - a DREQ that crosses one of ours is answered DREP at once, and both ends are in TIMEWAIT;
 *   - a connection that is ended after its REP was sent, and before the RTU came, sends a DREQ behind
 *     the REJ, repeated until it is answered: if the REJ is lost, the peer is established;
 *   - a REQ for a transport that does not exist is answered REJ 9;
 *   - a REQ with an MTU that does not exist is answered REJ 26.
 *
 * LAP and APR are dropped, as the kernel drops them on RoCE.
 *
 * Functions that send return 0, -EINVAL (the state does not allow it, or a length is too large), or -ENOMEM;
 * when they fail nothing has changed and nothing is sent. Private data may be NULL with length 0.
 */
#ifndef UNPIN_CM_CM_H
#define UNPIN_CM_CM_H

#include "cm/mad.h"

struct cm;
struct cm_conn;

typedef uint64_t cm_route;

/* rdma_cm's values for what a REQ carries. */
enum { CM_DEFAULT_RESPONSE_TIMEOUT = 20, CM_DEFAULT_RETRIES = 15, CM_DEFAULT_MRA_TIMEOUT = 24 };

struct cm_config {
	uint64_t ca_guid;   /* the device's node GUID, host byte order */
	uint64_t seed;	    /* random: first communication id, transaction ids, order of the tables */
	uint8_t ack_delay;  /* the device's local_ca_ack_delay, 4.096 us * 2^n */
	unsigned max_conns; /* connections that may exist at once; 0: 65536. REQs above it are dropped */
};

enum cm_state {
	CM_IDLE,
	CM_LISTEN,
	CM_REQ_SENT,
	CM_REQ_RCVD,
	CM_MRA_REQ_SENT,
	CM_MRA_REQ_RCVD,
	CM_REP_SENT,
	CM_REP_RCVD,
	CM_MRA_REP_SENT,
	CM_MRA_REP_RCVD,
	CM_ESTABLISHED,
	CM_DREQ_SENT,
	CM_DREQ_RCVD,
	CM_TIMEWAIT,
	CM_SIDR_REQ_SENT,
	CM_SIDR_REQ_RCVD,
	CM_STATES,
};

enum cm_event_type {
	CM_EV_REQ_RECEIVED = 1, /* conn is new; the listener is named */
	CM_EV_REP_RECEIVED,
	CM_EV_RTU_RECEIVED,
	CM_EV_USER_ESTABLISHED, /* cm_establish() was called: data came before the RTU */
	CM_EV_MRA_RECEIVED,
	CM_EV_REJ_RECEIVED,
	CM_EV_DREQ_RECEIVED,
	CM_EV_DREP_RECEIVED,
	CM_EV_REQ_ERROR,  /* no answer to any REQ; the connection is IDLE */
	CM_EV_REP_ERROR,  /* no answer to any REP; the connection is IDLE */
	CM_EV_DREQ_ERROR, /* no answer to any DREQ; the connection is in TIMEWAIT */
	CM_EV_TIMEWAIT_EXIT,
	CM_EV_SIDR_REQ_RECEIVED, /* conn is new; the listener is named */
	CM_EV_SIDR_REP_RECEIVED,
	CM_EV_SIDR_REQ_ERROR,
};

struct cm_event {
	enum cm_event_type type;
	struct cm_conn *conn;
	void *user;		  /* of the connection when the event was raised; NULL with a new one */
	struct cm_conn *listener; /* REQ_RECEIVED, SIDR_REQ_RECEIVED: else NULL */
	void *listener_user;
	bool peer_gone; /* raised by cm_peer_gone(): what msg holds was made here */
	/*
	 * The message of the _RECEIVED events, as it was on the wire: what the peer calls local is remote
	 * here, and its initiator depth is our responder resources. The private data of a REQ and SIDR_REQ
	 * begins with rdma_cm's header.
	 */
	struct cm_msg msg;
};

enum cm_action_type { CM_SEND, CM_EVENT };

struct cm_action {
	enum cm_action_type type;
	union {
		struct {
			cm_route route;
			uint8_t mad[CM_MAD_BYTES];
		} send;
		struct cm_event event;
	};
};

/* What a queue pair of the connection needs (the kernel's ib_cm_init_qp_attr), and what tools show. */
struct cm_info {
	enum cm_state state;
	uint32_t local_id, remote_id; /* remote_id is 0 until it is known */
	uint64_t service_id;
	cm_route route; /* valid unless the state is IDLE or LISTEN */
	enum cm_transport transport;
	uint32_t local_qpn, remote_qpn;
	uint32_t sq_psn, rq_psn;
	uint8_t responder_resources; /* max_dest_rd_atomic */
	uint8_t initiator_depth;     /* max_rd_atomic */
	uint8_t mtu;
	uint8_t retry_count, rnr_retry;
	uint8_t ack_timeout; /* for ibv_qp_attr.timeout */
	uint16_t pkey;
	uint64_t remote_guid;
	struct cm_path path; /* local is this end */
};

/* NULL: no memory. cm_free() sends nothing and frees connections that still exist. */
struct cm *cm_new(const struct cm_config *config);
void cm_free(struct cm *cm);

/* A message has come. Bytes that are not a valid message change nothing. -ENOMEM: it was dropped, as a
 * network may; its sender repeats it. Otherwise 0. */
int cm_receive(struct cm *cm, cm_route from, const void *bytes, size_t length, uint64_t now);

/* Carries out what is due at now. */
void cm_tick(struct cm *cm, uint64_t now);

/* When cm_tick() is due next; UINT64_MAX: never. */
uint64_t cm_next_deadline(const struct cm *cm);

/*
 * Takes the oldest action; false: there is none. Actions of one connection come in order. An event is not
 * given out once its connection has been destroyed; a message still is.
 */
bool cm_next_action(struct cm *cm, struct cm_action *action);

/*
 * The peer behind a route is dead and nothing more comes from it. Each connection over it gets the event that
 * it would have if the peer's kernel had cleaned up: REJ_RECEIVED before the connection is established (28,
 * or 4 when the requester died), DREQ_RECEIVED in ESTABLISHED, DREP_RECEIVED in DREQ_SENT, SIDR_REP_RECEIVED
 * (REJECT) in SIDR_REQ_SENT. These connections send nothing on the route from then on. The owner must not use
 * the same route for another peer while connections over it exist. A cm_tick() at now must follow (some of
 * the events are raised there when memory is short).
 */
void cm_peer_gone(struct cm *cm, cm_route route, uint64_t now);

/* NULL: no memory, or max_conns is reached. The user is what events name. */
struct cm_conn *cm_create(struct cm *cm, void *user);

/*
 * Ends the connection as the kernel's ib_destroy_cm_id() does: REJ 4 in REQ_SENT, REJ 28 in every state
 * between REQ and RTU, DREQ in ESTABLISHED, DREP in DREQ_RCVD, SIDR_REP (REJECT) in SIDR_REQ_RCVD. It does
 * not wait. The DREQ is repeated until it is answered (the kernel sends it once). No event of it comes
 * afterwards, those that are still queued are removed, and the pointer is invalid. A listener takes along
 * requests whose event is still queued (REJ 28).
 */
void cm_destroy(struct cm *cm, struct cm_conn *conn, uint64_t now);

/* Forgets a request that was received (a full backlog): nothing is sent, and the peer's next REQ is a new
 * request. In other states it is cm_destroy(). */
void cm_drop(struct cm *cm, struct cm_conn *conn, uint64_t now);

void cm_set_user(struct cm_conn *conn, void *user);
void *cm_user(const struct cm_conn *conn);
enum cm_state cm_state(const struct cm_conn *conn);
const char *cm_state_name(enum cm_state state);
void cm_query(const struct cm_conn *conn, struct cm_info *info);

/* IDLE to LISTEN. -EADDRINUSE: a connection of this struct cm listens for the service ID. Which IP addresses
 * it is for is the owner's to decide when the request comes. */
int cm_listen(struct cm *cm, struct cm_conn *conn, uint64_t service_id);

/*
 * Sends a REQ. The caller fills req but for local_id, ca_guid and path.ack_timeout; the answer is awaited for
 * req->remote_response_timeout and twice the packet lifetime (both 4.096 us * 2^n; rdma_cm says 20 and 16),
 * and the REQ repeated req->max_cm_retries times.
 */
int cm_send_req(struct cm *cm, struct cm_conn *conn, cm_route route, const struct cm_req *req,
	uint8_t packet_life_time, const void *data, size_t length, uint64_t now);

/* In REQ_RCVD, MRA_REQ_SENT. The caller fills rep but for both ids, ca_guid and target_ack_delay. */
int cm_send_rep(struct cm *cm, struct cm_conn *conn, const struct cm_rep *rep, const void *data,
	size_t length, uint64_t now);

/* In REP_RCVD, MRA_REP_SENT. */
int cm_send_rtu(struct cm *cm, struct cm_conn *conn, const void *data, size_t length, uint64_t now);

/* In every state from REQ_SENT to MRA_REP_RCVD. The state is IDLE afterwards, or TIMEWAIT if a REP was sent.
 */
int cm_send_rej(struct cm *cm, struct cm_conn *conn, uint16_t reason, const void *ari, size_t ari_length,
	const void *data, size_t length, uint64_t now);

/* In REQ_RCVD, REP_RCVD. With delayed the MRA goes out only when the peer repeats its message (rdma_cm does
 * that for each request, with CM_DEFAULT_MRA_TIMEOUT). */
int cm_send_mra(struct cm *cm, struct cm_conn *conn, uint8_t service_timeout, bool delayed, const void *data,
	size_t length, uint64_t now);

/* In ESTABLISHED. */
int cm_send_dreq(struct cm *cm, struct cm_conn *conn, const void *data, size_t length, uint64_t now);

/* In DREQ_RCVD. (rdma_disconnect is cm_send_dreq, and if that fails cm_send_drep.) */
int cm_send_drep(struct cm *cm, struct cm_conn *conn, const void *data, size_t length, uint64_t now);

/* Data came on the queue pair before the RTU: REP_SENT or MRA_REP_RCVD to ESTABLISHED, USER_ESTABLISHED is
 * raised. -EISCONN in ESTABLISHED. */
int cm_establish(struct cm *cm, struct cm_conn *conn);

/* Sends a SIDR_REQ in IDLE. The answer is awaited for timeout ns (rdma_cm: 4096 ms) and the message repeated
 * retries times. */
int cm_send_sidr_req(struct cm *cm, struct cm_conn *conn, cm_route route, uint64_t service_id, uint16_t pkey,
	uint64_t timeout, uint8_t retries, const void *data, size_t length, uint64_t now);

/* In SIDR_REQ_RCVD. The caller fills rep but for request_id and service_id. The state is IDLE afterwards. */
int cm_send_sidr_rep(struct cm *cm, struct cm_conn *conn, const struct cm_sidr_rep *rep, const void *data,
	size_t length, uint64_t now);

/* As the kernel counts messages in /sys/class/infiniband/DEVICE/ports/1/cm_tx_msgs and so on; index type -
 * CM_REQ. */
struct cm_counters {
	uint64_t sent[CM_TYPES], resent[CM_TYPES], received[CM_TYPES], duplicates[CM_TYPES];
	uint64_t malformed; /* not a message, or one that cannot be */
	uint64_t unmatched; /* a message for no connection of its sender */
};
void cm_get_counters(const struct cm *cm, struct cm_counters *counters);

/* Connections that exist, those that only answer duplicates included. For tests and tools. */
unsigned cm_count(const struct cm *cm);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Two connection managers and the wire between them, driven by hand. */
#ifndef UNPIN_TESTS_CM_ENDS_H
#define UNPIN_TESTS_CM_ENDS_H

#include "cm/cm.h"

#define MSEC UINT64_C(1000000)

enum { ENDS_EVENTS = 64, ENDS_SENT = 64 };
enum { SERVICE_PORT = 7174 };

struct end {
	struct cm *cm;
	cm_route to; /* the other end */
	struct cm_event events[ENDS_EVENTS];
	unsigned nevents;
	struct cm_msg sent[ENDS_SENT]; /* not yet delivered */
	uint8_t mads[ENDS_SENT][CM_MAD_BYTES];
	unsigned nsent;
};

struct ends {
	struct end a, b;
	uint64_t now;
};

enum { ROUTE_TO_B = 0xb, ROUTE_TO_A = 0xa };

void ends_make(struct ends *e);
void ends_free(struct ends *e);

/* Takes all actions of an end into its lists. */
void ends_collect(struct end *end);

/* Delivers what an end has sent; to_b: from a. The messages are forgotten. */
void ends_deliver(struct ends *e, bool to_b);
/* Delivers until nobody sends. */
void ends_settle(struct ends *e);
/* Forgets what an end has sent; the number of messages. */
unsigned ends_lose(struct end *end);
/* Gives an end one message, as if from the other. */
void ends_inject(struct ends *e, bool to_b, const struct cm_msg *msg);

/* Time passes for both, deadline by deadline; nothing is delivered. */
void ends_pass(struct ends *e, uint64_t ns);

/* The only event of an end since the last call; its type must be this. */
struct cm_event ends_event(struct end *end, enum cm_event_type type);
void ends_no_event(struct end *end);
/* The only message that an end has sent; it stays to be delivered. */
const struct cm_msg *ends_sent(struct end *end, enum cm_type type);

/* rdma_cm's REQ for the service. */
struct cm_req ends_req(uint32_t qpn);

/* b listens; a connects; both are brought to the state that has a name. */
struct ends_pair {
	struct cm_conn *listener, *a, *b;
};
void ends_listen(struct ends *e, struct ends_pair *p);
void ends_requested(struct ends *e, struct ends_pair *p);   /* REQ_SENT, REQ_RCVD */
void ends_replied(struct ends *e, struct ends_pair *p);	    /* REP_RCVD, REP_SENT */
void ends_established(struct ends *e, struct ends_pair *p); /* ESTABLISHED both */

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The completer (IBTA 9.7.6): takes responses, scatters READ and atomic results, completes WQEs in
 * order, and decides when requests are sent again or have failed.
 *
 * A response moves una, the oldest unacknowledged PSN, and index, the WQE that holds it, at once; the WQEs of
 * [sq->done, index) are acknowledged and their completions follow one step at a time. So an error that comes
 * between does not turn an acknowledged request into a flushed one, and a retransmission knows its WQE
 * without a search.
 *
 * What it does next, in this order: completions that are due; the scatter of the response in hand; in ERR,
 * errors for all that is left in the send queue, of which flushes wait for the responder's cause
 * (responder_owes_cause); in SQD, the event that the queue is drained.
 *
 * Retry counters: retry counts timeouts, sequence NAKs and skipped responses; rnr counts RNR NAKs; both are
 * restored when una moves.
 *
 * All fields are protected by the queue pair's run lock.
 */
#ifndef UNPIN_IB_COMPLETER_H
#define UNPIN_IB_COMPLETER_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "ib/packet.h"

struct ib_completer {
	uint32_t index;
	uint32_t una;
	uint8_t retry, rnr; /* retries left */
	bool retrying; /* sent again since una moved: other signs of that loss but a timeout are ignored */
	bool lost; /* lossless wire: of the packets before lost_psn some were dropped: the ACK timer runs */
	bool peer_dead;
	bool sqd_event; /* IBV_EVENT_SQ_DRAINED is owed */
	bool scatter;	/* the response in pkt waits for its scatter */
	uint32_t lost_psn;
	enum ibv_wc_status status; /* ERR: what the first WQE that is not acknowledged completes with */
	uint64_t timeout_ns;	   /* of the ACK timer, UINT64_MAX: none */
	uint64_t ack_deadline, rnr_deadline; /* UINT64_MAX: not running */
	struct ib_packet pkt;
	uint32_t paylen;
};

struct ib_qp;

void completer_reset(struct ib_qp *qp);
void completer_configure(struct ib_qp *qp);
void completer_start(struct ib_qp *qp);
/* ERR: drops the response in hand; completions that are due still come. */
void completer_stop(struct ib_qp *qp);
/* The oldest request that is not acknowledged fails with status; the queue pair goes to ERR. */
void completer_fail(struct ib_qp *qp, enum ibv_wc_status status, uint64_t now);
/* A response; the lane is idle. */
void completer_rx(struct ib_qp *qp, const struct ib_packet *pkt, uint32_t paylen, uint64_t now);
bool completer_next(struct ib_qp *qp);
void completer_done(struct ib_qp *qp, int err, uint64_t now);
/* Starts the ACK timer when it should run and does not. */
void completer_watch(struct ib_qp *qp, uint64_t now);
/* Its length has changed: it starts anew. */
void completer_time_anew(struct ib_qp *qp, uint64_t now);
/* In ERR: whether the completion of the request that is why has still to be delivered. */
bool completer_owes_cause(const struct ib_qp *qp);
void completer_lost(struct ib_qp *qp, uint64_t now);
void completer_peer_dead(struct ib_qp *qp, uint64_t now);
uint64_t completer_deadline(const struct ib_qp *qp);
void completer_tick(struct ib_qp *qp, uint64_t now);
/* Of ib_broken_rule(): what concerns the send queue. */
const char *completer_broken_rule(const struct ib_qp *qp);

#endif

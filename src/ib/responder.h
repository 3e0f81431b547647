/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The responder (IBTA 9.7.4, 9.7.5): one request packet at a time, through the checks in the specification's
 * order: sequence, opcode, length, key, resources; then execute, acknowledge, complete.
 *
 *   ARRIVED -> SEQUENCE -> OPCODE -> LENGTH -> KEY -> RECEIVE -> DELIVER -> ACK -> COMPLETE -> IDLE
 *                 |                             |-> ATOMIC -> ACK_ATOMIC -> IDLE
 *                 |                             '-> READ (once per response) -> IDLE
 *                 '-> DUPLICATE -> REPLAY_CHECK -> READ | ACK_ATOMIC | ACK
 *   any check -> NAK -> IDLE   (sequence, receiver not ready, replays)
 *                    -> ERR: FLUSH_MESSAGE -> FLUSH_EVENT -> FLUSH -> FLUSH_MESSAGE ... -> IDLE
 *
 * What a request that cannot be served is answered with (IBTA 9.9.3), and what it does here. All but the
 * first two and the last end in ERR, after the NAK was sent:
 *
 *   a gap in the sequence        NAK sequence error, once per gap
 *   no receive posted; memory    RNR NAK; what follows is dropped until the packet comes again, which is
 *   not ready (-EBUSY)           then carried out anew; a receive taken for it is kept
 *   order or length of packets;  NAK invalid request; IBV_EVENT_QP_REQ_ERR; a receive in progress
 *   not enabled by access flags  completes with IBV_WC_REM_INV_REQ_ERR
 *   or max_dest_rd_atomic 0;
 *   a READ or atomic beyond
 *   max_dest_rd_atomic;
 *   misaligned atomic
 *   longer than its receive      NAK invalid request; the receive: IBV_WC_LOC_LEN_ERR; no event
 *   receive's memory refuses     NAK remote operational error; the receive: IBV_WC_LOC_PROT_ERR; no event
 *   key or memory refuses        NAK remote access error; IBV_EVENT_QP_ACCESS_ERR; a receive in progress
 *                                is flushed
 *   the same, of a duplicate     NAK remote access error, nothing here
 *
 * A duplicate never touches the message in progress, the expected PSN or the MSN.
 *
 * Included by qp.h, whose types it uses. All fields are protected by the queue pair's run lock.
 */
#ifndef UNPIN_IB_RESPONDER_H
#define UNPIN_IB_RESPONDER_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "ib/packet.h"

enum responder_state {
	RESPONDER_IDLE,
	RESPONDER_ARRIVED,
	RESPONDER_SEQUENCE,
	RESPONDER_OPCODE,
	RESPONDER_LENGTH,
	RESPONDER_KEY,
	RESPONDER_RECEIVE,
	RESPONDER_DELIVER,
	RESPONDER_ATOMIC,
	RESPONDER_READ,
	RESPONDER_ACK,
	RESPONDER_ACK_ATOMIC,
	RESPONDER_COMPLETE,
	RESPONDER_DUPLICATE,
	RESPONDER_REPLAY_CHECK,
	RESPONDER_NAK,
	RESPONDER_FLUSH_MESSAGE,
	RESPONDER_FLUSH_EVENT,
	RESPONDER_FLUSH,
	RESPONDER_STATES
};

/* What is kept to answer a duplicate READ or atomic. */
struct ib_resource {
	uint32_t first_psn, last_psn;
	bool atomic;
	uint32_t rkey;
	uint32_t length;
	union {
		uint64_t va;   /* READ */
		uint64_t orig; /* atomic */
	};
};

struct ib_responder {
	enum responder_state state;
	uint32_t epsn; /* expected */
	uint32_t msn;
	bool in_order;	  /* false from a sequence or RNR NAK on until the expected packet comes: others are
			     dropped unanswered */
	bool established; /* COMM_EST raised, or not to be raised */
	uint32_t message; /* kind in progress: IB_F_SEND, IB_F_WRITE, 0: between messages */
	bool has_recv;	  /* recv was taken and not completed; between messages: kept for the packet that was
			     answered RNR NAK */
	struct ib_recv recv;
	uint32_t offset; /* bytes of the message received */
	/* The WRITE in progress: */
	uint64_t va;
	uint32_t rkey, dma_len;
	/* The packet in hand: */
	struct ib_packet pkt;
	uint32_t paylen;
	uint32_t flags; /* of its opcode */
	bool replay;	/* a duplicate */
	/* The READ being answered: */
	uint64_t read_va;
	uint32_t read_rkey, read_left, read_psn;
	bool read_begun;
	uint64_t orig; /* the atomic being answered */
	/* The NAK to send, and what it means for us: */
	uint8_t syndrome;
	uint32_t nak_psn;
	bool fatal, has_event;
	enum ibv_event_type event;
	enum ibv_wc_status status; /* of the receive in progress when the queue pair goes to ERR */
	/* READs and atomics at once (ib_waits): those in a row that begins with the packet in hand, the PSN
	 * of the last one, and the first that was one too many. 0: the packet in hand is none. */
	uint32_t together, together_psn, excess_psn;
	bool excess;
	uint32_t resource_head; /* saved so far; entry = this modulo IB_MAX_RD_ATOMIC */
	struct ib_resource resource[IB_MAX_RD_ATOMIC];
};

struct ib_qp;

void responder_reset(struct ib_qp *qp);
/* INIT to RTR: the first PSN is attr.rq_psn. */
void responder_start(struct ib_qp *qp);
/* ERR: drops the request in hand. A completion that is due still comes, then everything is flushed. */
void responder_stop(struct ib_qp *qp);
/* A request; the lane is idle. */
void responder_rx(struct ib_qp *qp, const struct ib_packet *pkt, uint32_t paylen);
/* See ib_waits(). */
bool responder_asks_what_waits(const struct ib_qp *qp);
bool responder_waits(struct ib_qp *qp, uint8_t opcode, uint32_t psn);
bool responder_next(struct ib_qp *qp);
/* In ERR: whether the completion, or the event, that is why has still to be delivered. */
bool responder_owes_cause(const struct ib_qp *qp);
void responder_done(struct ib_qp *qp, int err, uint64_t now);
void responder_recv_posted(struct ib_qp *qp);

#endif

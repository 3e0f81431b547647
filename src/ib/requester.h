/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The requester (IBTA 9.7.3): turns WQEs of the send queue into request packets, one packet per IB_TX
 * step.
 *
 * Where it stands is one pair, (index, psn): the next packet to send is the one of that PSN, and it belongs
 * to the WQE of that index. Sending again is moving the pair back to the oldest unacknowledged packet
 * (requester_rewind); everything else follows from it, since the offset of a packet in its message is (psn -
 * first_psn) segments.
 *
 *   completer's una   <=   psn   <=   sent         una <= asked <= psn
 *     oldest              next to     one past        one past the last packet that asked
 *     unacknowledged      send        the highest     for an acknowledgement since the last rewind
 *                                     ever sent
 *
 * Packets ask for an acknowledgement (BTH AckReq) at the end of a signaled WQE, at the end of the last WQE
 * queued, and at least every quarter of the window. After an RNR NAK, which means that everything behind its
 * packet was dropped and that the next one may well meet the same, the window opens anew: one packet, and
 * twice as many with each acknowledgement. READ and atomic requests are answered in any case. When the
 * requester stops for a reason that an acknowledgement must lift (SQD, a local error behind requests under
 * way, the PSN limit) and the last packets did not ask, it sends the last one once more, asking: a duplicate
 * is acknowledged.
 *
 * All fields are protected by the queue pair's run lock.
 */
#ifndef UNPIN_IB_REQUESTER_H
#define UNPIN_IB_REQUESTER_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define IB_MAX_MSG   (1u << 31) /* bytes of the longest message */
#define IB_MAX_AHEAD (1u << 23) /* PSNs that may be under way: half of the number space */

struct ib_requester {
	uint32_t index; /* WQE of the next packet; == sq->next: not begun yet */
	uint32_t psn;
	uint32_t sent;
	uint32_t asked;
	uint32_t read_extra; /* PSNs of [una, psn) that READ responses take beyond one per request: not in the
				window */
	uint32_t reads;	     /* READs and atomics begun and not answered */
	uint32_t open;	     /* the window now: attr.window, less after an RNR NAK */
	uint8_t shift;	     /* log2 of the segment */
	bool probe;	     /* the next packet asks, whatever it is */
	enum ibv_wc_status status; /* not SUCCESS: WQE index failed locally and completes so when all before
				      it are done */
};

/* What the requester and the completer need to know about each kind of work request, by enum ibv_wr_opcode.
 */
struct ib_wr_info {
	bool valid;
	bool answered; /* READ, atomics: done by a response that carries data, not by an ACK */
	bool write;    /* the first packet carries a RETH with the length of the message */
	bool atomic;
	uint8_t first, middle, last, only; /* enum ib_opcode */
	enum ibv_wc_opcode wc_opcode;
};

#define IB_WR_KINDS 16
extern const struct ib_wr_info ib_wr_table[IB_WR_KINDS];

struct ib_qp;

void requester_reset(struct ib_qp *qp);
/* Takes over the attributes that it keeps in another form. */
void requester_configure(struct ib_qp *qp);
/* RTR to RTS: the first PSN is attr.sq_psn. */
void requester_start(struct ib_qp *qp);
/* ERR: forgets the pending step. */
void requester_stop(struct ib_qp *qp);
/* Sends again from the completer's una on. A pending step is withdrawn. */
void requester_rewind(struct ib_qp *qp);
/* The same after an RNR NAK: carefully. */
void requester_not_ready(struct ib_qp *qp);
/* The completer's una has moved from was. A pending step below it is withdrawn, since its WQE may be gone. */
void requester_acked(struct ib_qp *qp, uint32_t was);
/* Whether an acknowledgement or response has been asked for and not come: only then may its absence mean
 * loss. */
bool requester_expects(const struct ib_qp *qp);
/* Fills qp->step[IB_REQUESTER] and returns true, or false: nothing to send now. */
bool requester_next(struct ib_qp *qp, uint64_t now);
void requester_done(struct ib_qp *qp, int err, uint64_t now);

#endif

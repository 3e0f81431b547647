/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One reliable connected queue pair's transport (IBTA volume 1, chapter 9.7) as pure state machines: no
 * sockets, clocks, threads, user memory or allocation. Time and packets are told to it; what is to be done
 * comes back as steps.
 *
 * A queue pair has three lanes that advance independently, each a state machine in its own file:
 *
 *   IB_REQUESTER (requester.c)  takes WQEs from the send queue, sends request packets
 *   IB_COMPLETER (completer.c)  takes responses, scatters read data, completes WQEs; owns both timers
 *   IB_RESPONDER (responder.c)  takes requests, checks, executes and answers them, completes receives
 *
 * ib_next(lane) returns the step to carry out, or NULL when the lane is idle. The caller carries it out and
 * reports with ib_done(). A step that has not been reported stays pending and ib_next() returns it again: a
 * parked operation is just one whose outcome has not been told yet, and retrying it means carrying out the
 * same step from the beginning. The other lanes go on meanwhile. A step, a packet or a tick in one lane may
 * give work to another: the caller asks the lanes in turn until all of them are idle or parked.
 *
 * A pending step can be withdrawn; the caller then must not carry it out, and need not report it. There are
 * three cases:
 *
 *   - the queue pair is moved to RESET: every step;
 *   - it enters ERR, by ib_qp_error() or from within, which any call here may do (see qp->state): every step
 *     but IB_CQE and IB_EVENT;
 *   - an IB_TX of the requester whose packet has been acknowledged meanwhile (it was a retransmission), or
 *     when an earlier packet has to be sent first; ib_next() then returns another step or NULL.
 *
 * Each step has a serial number: a caller that has parked a step compares (ib_step_is_pending) before it goes
 * on, and cancels its waiter when the step is gone. Calling ib_next() anew for every attempt is always right.
 *
 * A received packet goes to the lane that ib_lane_of() names, and only while that lane is idle; its payload
 * stays with the caller until the lane is idle again (SCATTER steps refer to it by offset).
 *
 * All functions are called under the queue pair's run lock (nic's). The only fields read outside are atomic.
 *
 * Ordering promises: the ACK of a message is sent (its IB_TX step is done) before the IB_CQE step of its
 * receive completion; completions of the send queue are in posting order; after an error all later WQEs of
 * both queues complete with IBV_WC_WR_FLUSH_ERR, in order. A completion, or an event, that says why the queue
 * pair is in ERR comes before every flush of either queue, in whatever order the lanes are asked; so a lane
 * that flushes may be idle until another one has delivered its step.
 */
#ifndef UNPIN_IB_QP_H
#define UNPIN_IB_QP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/segment.h"
#include "ib/packet.h"
#include "ib/sq.h"

enum ib_lane { IB_REQUESTER, IB_COMPLETER, IB_RESPONDER, IB_LANES };

enum ib_op {
	IB_TX = 1,  /* send step->pkt with the payload that step->mem describes */
	IB_SCATTER, /* copy [pkt_offset, +mem.length) of the packet's payload (or src) into step->mem */
	IB_CHECK, /* may step->mem (REMOTE) be accessed with step->access, all of it? Never waits for pages */
	IB_ATOMIC, /* carry out step->atomic at step->mem (REMOTE, 8 bytes); the result goes to step->orig */
	IB_RECV,   /* take the next receive WQE: fill step->recv */
	IB_CQE,	   /* append step->wc to the send or receive completion queue */
	IB_EVENT,  /* raise the asynchronous event step->event for this queue pair */
};

enum ib_mem_kind {
	IB_MEM_NONE,   /* no bytes */
	IB_MEM_BUF,    /* private bytes at buf (inline data) */
	IB_MEM_LOCAL,  /* a scatter/gather list, from a byte offset on; keys are lkeys */
	IB_MEM_REMOTE, /* rkey and address as the peer gave them */
};

struct ib_mem {
	enum ib_mem_kind kind;
	uint32_t length;
	union {
		const void *buf;
		struct {
			const struct ibv_sge *sge;
			uint32_t num;
			uint32_t offset;
		} local;
		struct {
			uint64_t va;
			uint32_t rkey;
		} remote;
	};
};

struct ib_recv {
	uint64_t wr_id;
	const struct ibv_sge *sge; /* valid until the receive completion's IB_CQE step is done */
	uint32_t num_sge;
	uint32_t length; /* sum over sge, saturated at UINT32_MAX */
	uint32_t index;	 /* the caller's, handed back in the completion */
};

struct ib_wc {
	bool recv;	/* receive queue's, else send queue's */
	bool solicited; /* raises an event on a CQ armed for solicited only (also set for any error status) */
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint64_t wr_id;
	uint32_t byte_len;
	uint32_t imm;
	unsigned wc_flags;
	uint32_t index; /* send: the WQE's, freed moves behind it when polled; receive: ib_recv.index */
};

/* Only the fields that op names are set; the others hold anything. */
struct ib_step {
	enum ib_op op;
	uint32_t serial; /* differs from that of the lane's step before */
	struct ib_packet pkt;
	struct ib_mem mem;
	uint32_t pkt_offset;
	const void *src; /* IB_SCATTER: NULL: the packet's payload; else these bytes (an atomic's result) */
	bool may_defer;	 /* ib_done() takes -EBUSY: set or clear in every step */
	int access; /* IB_CHECK, IB_ATOMIC, REMOTE memory: IBV_ACCESS_REMOTE_READ, _WRITE or _ATOMIC; 0 LOCAL
		     * read, IBV_ACCESS_LOCAL_WRITE for a local scatter */
	struct {
		bool cmp_swap; /* else fetch and add */
		uint64_t compare, swap_add;
	} atomic;
	uint64_t orig;
	struct ib_recv recv;
	struct ib_wc wc;
	enum ibv_event_type event;
};

/*
 * Fixed when the queue pair is made. Of the counters this room keeps rnr_nak_sent, rnr_nak_rcvd, retransmits,
 * naks_sent and req_flushed; packets, bytes and drops are the caller's.
 */
struct ib_qp_cfg {
	bool sq_sig_all;
	struct ib_sq *sq;
	struct unpin_device_counters *counters; /* never NULL */
};

/* Attributes; each is used from the state on that the specification gives it to. */
struct ib_qp_attr {
	uint32_t dest_qpn;
	uint32_t segment; /* payload bytes per packet, the same on both ends; any power of two >= 256 */
	uint32_t window;  /* request packets that may be unacknowledged, >= 2 */
	bool lossless;	  /* the ACK timer runs only after ib_lost() */
	uint32_t sq_psn, rq_psn;
	uint8_t max_rd_atomic;	    /* as requester; 0: such requests complete with IBV_WC_LOC_QP_OP_ERR */
	uint8_t max_dest_rd_atomic; /* as responder, at most IB_MAX_RD_ATOMIC; see ib_waits() */
	uint8_t timeout;	    /* 4.096 us * 2^timeout; 0: none */
	uint8_t retry_cnt;	    /* 0..7; 7 is seven here */
	uint8_t rnr_retry;	    /* 0..7; 7: for ever */
	uint8_t min_rnr_timer;	    /* code of IBTA table 45, sent in our RNR NAKs */
	int access;		    /* qp_access_flags */
	uint16_t pkey;
};

#define IB_MAX_RD_ATOMIC 128

struct ib_requester;
struct ib_qp; /* defined below by the room's own structures: requester.h, completer.h, responder.h */

#include "ib/requester.h"
#include "ib/completer.h"
#include "ib/responder.h"

struct ib_qp {
	struct ib_qp_cfg cfg;
	struct ib_qp_attr attr;
	uint64_t retransmits,
		rnr_naks;  /* this queue pair's part of the counters of these names; under the run lock */
	_Atomic int state; /* enum ibv_qp_state; written under the run lock, readable anywhere */
	struct ib_requester req;
	struct ib_completer comp;
	struct ib_responder resp;
	struct ib_step step[IB_LANES]; /* valid while pending[lane] */
	bool pending[IB_LANES];
};

/* Whether the step that had this serial number is still the lane's to be carried out. */
static inline bool ib_step_is_pending(const struct ib_qp *qp, enum ib_lane lane, uint32_t serial)
{
	return qp->pending[lane] && qp->step[lane].serial == serial;
}

static inline bool ib_qp_is(const struct ib_qp *qp, enum ibv_qp_state state)
{
	return atomic_load_explicit(&qp->state, memory_order_relaxed) == (int)state;
}

/* The room's own: makes the lane's next step pending, and returns it to be filled in. */
static inline struct ib_step *ib_step_new(struct ib_qp *qp, enum ib_lane lane, enum ib_op op)
{
	struct ib_step *step = &qp->step[lane];

	step->op = op;
	step->serial++;
	step->may_defer = false;
	qp->pending[lane] = true;
	return step;
}

/* A queue pair in RESET. Cannot fail. */
void ib_qp_init(struct ib_qp *qp, const struct ib_qp_cfg *cfg);

/*
 * Moves to state with the attributes in *attr (already validated against qpstate.h and ranges; whole struct,
 * current values where nothing changes). RESET empties everything, including the send queue's indices (freed
 * = done = next = prod) and pending steps. ERR is ib_qp_error(). SQD: no new WQE is begun; when all begun
 * ones are done an IB_EVENT IBV_EVENT_SQ_DRAINED follows if sqd_event. RTS from SQD goes on.
 */
void ib_qp_modify(struct ib_qp *qp, enum ibv_qp_state state, const struct ib_qp_attr *attr, bool sqd_event,
	uint64_t now);

/*
 * Enters ERR: pending steps are withdrawn as said above, a packet being worked on is dropped; the lanes then
 * deliver completions: those already due, then errors: first the message in progress, then the rest in order.
 * Idempotent. A request may have been dropped unanswered, so on a lossless wire the caller tells the peer
 * whenever it sees that ERR was entered, as for packets that ib_rx() refuses: its ib_lost() makes it find
 * out.
 */
void ib_qp_error(struct ib_qp *qp, uint64_t now);

/* The lane a packet of this opcode belongs to: IB_RESPONDER or IB_COMPLETER. */
enum ib_lane ib_lane_of(uint8_t opcode);
/*
 * Hands one packet to its lane, which must be idle (ib_next returned NULL). paylen is its payload in bytes.
 * The fields of pkt may hold anything. Returns 0; -ENOTCONN when the state drops it (the caller counts it
 * and, for requests on a lossless wire, tells the sender); -EINVAL: an opcode that is not in the table,
 * dropped; -EBUSY: the lane was not idle.
 */
int ib_rx(struct ib_qp *qp, const struct ib_packet *pkt, uint32_t paylen, uint64_t now);

/*
 * The responder takes one request at a time, and how many READs and atomics its peer has outstanding shows
 * only in what waits behind it. So after each ib_rx() of a request after which ib_asks_what_waits() is true,
 * the caller tells of the requests that have come and wait, from the oldest on, until ib_waits() returns
 * false. The first one beyond attr.max_dest_rd_atomic is refused when its turn comes: NAK invalid request. A
 * caller that tells nothing gets none refused.
 */
bool ib_asks_what_waits(const struct ib_qp *qp);
bool ib_waits(struct ib_qp *qp, uint8_t opcode, uint32_t psn);

struct ib_step *ib_next(struct ib_qp *qp, enum ib_lane lane, uint64_t now);
/*
 * The pending step of the lane is over. err by op:
 *   IB_TX       0; -EACCES or -EFAULT: the memory refused (local: IBV_WC_LOC_PROT_ERR; remote read: NAK)
 *   IB_SCATTER  0; -EACCES, -EFAULT likewise
 *   IB_CHECK    0; -EACCES: NAK remote access error
 *   IB_ATOMIC   0; -EACCES, -EFAULT: remote access error; -EINVAL: NAK invalid request
 *               (a misaligned address is refused before there is a step)
 *   IB_RECV     0; -ENOENT: none posted: RNR NAK; in ERR: all receives are flushed, until ib_recv_posted()
 *   IB_CQE, IB_EVENT  0
 *   any step of the responder with may_defer: -EBUSY: its memory is not ready (a page fault), and the caller
 *               does not want to park it. The responder forgets the packet and answers an RNR NAK with
 *               attr.min_rnr_timer; packets behind it are dropped without another answer until it comes
 *               again, which is then carried out from the beginning, as if it had come the first time. What a
 *               part of the step has written already is written again; a receive taken for it is kept. Set
 *               for the payload of SENDs and WRITEs, atomics, and the first response to a READ that is not a
 *               duplicate: later responses and duplicates have no answer that means "later", and are parked
 * A call for a step that was withdrawn changes nothing, nor does -EBUSY for one without may_defer: it stays
 * pending.
 */
void ib_done(struct ib_qp *qp, enum ib_lane lane, int err, uint64_t now);

/* The application posted receives (matters in ERR, where they are flushed). Sends need no call: sq->prod is
 * looked at. */
void ib_recv_posted(struct ib_qp *qp);
/* The wire learned that the peer dropped packets of ours: on a lossless wire the ACK timer starts to run for
 * what is outstanding. */
void ib_lost(struct ib_qp *qp, uint64_t now);
/* The wire turned out to lose packets without a word: attr.lossless is false from now on, until the next
 * ib_qp_modify(). */
void ib_lossy(struct ib_qp *qp, uint64_t now);
/* The peer is gone for good and every packet it sent has been handled: outstanding and later requests
 * complete with IBV_WC_RETRY_EXC_ERR (the first) and IBV_WC_WR_FLUSH_ERR. A queue pair that never sends is
 * not moved to ERR. */
void ib_peer_dead(struct ib_qp *qp, uint64_t now);

/* In SQD: whether all that was begun is complete (ibv_qp_attr's sq_draining is the opposite). */
bool ib_sq_drained(const struct ib_qp *qp);

/* When ib_tick() is due (nanoseconds of the same clock), UINT64_MAX: no timer runs. */
uint64_t ib_deadline(const struct ib_qp *qp);
/* Afterwards ib_deadline() is later than now. */
void ib_tick(struct ib_qp *qp, uint64_t now);

/*
 * What holds after each call here: timers run, and answers are waited for, in RTS and SQD only; in RESET and
 * INIT nothing is to be done; the send queue's indices and the requester's packet numbers are in order.
 * Returns the rule that is broken, in words, or NULL. Debug builds abort when there is one.
 */
const char *ib_broken_rule(const struct ib_qp *qp);

/* Nanoseconds of an RNR timer code (IBTA table 45) and of an ACK timeout code. */
uint64_t ib_rnr_ns(uint8_t code);
uint64_t ib_timeout_ns(uint8_t code);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <string.h>

#include "ib/opcode.h"
#include "ib/qp.h"

/* AETH syndromes (IBTA 9.7.5). No end-to-end credits are given: the count says
 * "unlimited". */
enum {
	SYNDROME_ACK = 0x1f,
	SYNDROME_RNR = 0x20,
	NAK_SEQUENCE = 0x60,
	NAK_INVALID_REQUEST = 0x61,
	NAK_REMOTE_ACCESS = 0x62,
	NAK_REMOTE_OPERATION = 0x63,
};

static bool is_first(const struct ib_responder *resp)
{
	return resp->flags & IB_F_FIRST;
}

static bool is_last(const struct ib_responder *resp)
{
	return resp->flags & IB_F_LAST;
}

void responder_reset(struct ib_qp *qp)
{
	memset(&qp->resp, 0, sizeof(qp->resp));
	qp->resp.status = IBV_WC_WR_FLUSH_ERR;
}

void responder_start(struct ib_qp *qp)
{
	qp->resp.epsn = qp->attr.rq_psn & IB_PSN_MASK;
	qp->resp.in_order = true;
}

void responder_stop(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;
	enum ib_op op = qp->step[IB_RESPONDER].op;

	if (qp->pending[IB_RESPONDER] && (op == IB_CQE || op == IB_EVENT))
		return;
	qp->pending[IB_RESPONDER] = false;
	if (resp->state != RESPONDER_COMPLETE) /* its ACK is out: a success it stays */
		resp->state = RESPONDER_FLUSH_MESSAGE;
}

static bool takes_resource(uint32_t flags)
{
	return flags & (IB_F_READ | IB_F_ATOMIC);
}

void responder_rx(struct ib_qp *qp, const struct ib_packet *pkt, uint32_t paylen)
{
	struct ib_responder *resp = &qp->resp;

	resp->pkt = *pkt;
	resp->pkt.psn &= IB_PSN_MASK;
	resp->paylen = paylen;
	resp->flags = ib_opcode_table[pkt->opcode].flags;
	resp->replay = false;
	resp->state = RESPONDER_ARRIVED;
	resp->together = takes_resource(resp->flags) && resp->pkt.psn == resp->epsn;
	resp->together_psn = resp->pkt.psn;
}

bool responder_asks_what_waits(const struct ib_qp *qp)
{
	return qp->resp.together && !qp->resp.excess;
}

/*
 * The packet in hand is the next one and has not been answered, so neither has any behind it: all that wait
 * there are outstanding at once. What was sent again comes in the same order, and counts once.
 */
bool responder_waits(struct ib_qp *qp, uint8_t opcode, uint32_t psn)
{
	struct ib_responder *resp = &qp->resp;

	psn &= IB_PSN_MASK;
	if (!responder_asks_what_waits(qp))
		return false;
	if (!takes_resource(ib_opcode_table[opcode].flags) || ib_psn_diff(psn, resp->together_psn) <= 0)
		return true;
	resp->together_psn = psn;
	if (++resp->together <= qp->attr.max_dest_rd_atomic)
		return true;
	resp->excess = true;
	resp->excess_psn = psn;
	return false;
}

void responder_recv_posted(struct ib_qp *qp)
{
	if (ib_qp_is(qp, IBV_QPS_ERR) && qp->resp.state == RESPONDER_IDLE)
		qp->resp.state = RESPONDER_FLUSH;
}

/* NAKs. */

/* Answers with a NAK after which the same packet may come again (or, of a replay, nothing changes here). */
static enum responder_state nak(struct ib_qp *qp, uint8_t syndrome, uint32_t psn)
{
	struct ib_responder *resp = &qp->resp;

	resp->syndrome = syndrome;
	resp->nak_psn = psn;
	resp->fatal = false;
	return RESPONDER_NAK;
}

/* A NAK after which the queue pair is in ERR; a receive in progress completes with status. */
static enum responder_state nak_fatal(
	struct ib_qp *qp, uint8_t syndrome, uint32_t psn, enum ibv_wc_status status)
{
	nak(qp, syndrome, psn);
	qp->resp.fatal = true;
	qp->resp.status = status;
	return RESPONDER_NAK;
}

static enum responder_state invalid_request(struct ib_qp *qp)
{
	qp->resp.has_event = true;
	qp->resp.event = IBV_EVENT_QP_REQ_ERR;
	return nak_fatal(qp, NAK_INVALID_REQUEST, qp->resp.pkt.psn, IBV_WC_REM_INV_REQ_ERR);
}

/*
 * Memory refused an access under the peer's key. A duplicate's key may have been withdrawn rightfully since
 * its first execution, and its requester may have long been satisfied: the answer is the same, but it is no
 * reason to stop.
 */
static enum responder_state access_refused(struct ib_qp *qp, uint32_t psn)
{
	if (qp->resp.replay)
		return nak(qp, NAK_REMOTE_ACCESS, psn);
	qp->resp.has_event = true;
	qp->resp.event = IBV_EVENT_QP_ACCESS_ERR;
	return nak_fatal(qp, NAK_REMOTE_ACCESS, psn, IBV_WC_WR_FLUSH_ERR);
}

/*
 * What the request needs is not there yet: no receive, or memory that has to be faulted in. The packet has
 * left no trace but a receive that was taken for it; what follows it is dropped until it comes again.
 */
static enum responder_state not_ready(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	counter_add(&qp->cfg.counters->rnr_nak_sent, 1);
	resp->in_order = false;
	return nak(qp, SYNDROME_RNR | (qp->attr.min_rnr_timer & 31), resp->pkt.psn);
}

/* Steps that several states share. */

static struct ib_step *make_answer(struct ib_qp *qp, uint8_t opcode, uint32_t psn, uint8_t syndrome)
{
	struct ib_step *step = ib_step_new(qp, IB_RESPONDER, IB_TX);

	step->pkt.opcode = opcode;
	step->pkt.solicited = false;
	step->pkt.ack_req = false;
	step->pkt.pkey = qp->attr.pkey;
	step->pkt.dest_qpn = qp->attr.dest_qpn;
	step->pkt.psn = psn;
	step->pkt.syndrome = syndrome;
	step->pkt.msn = qp->resp.msn;
	step->mem.kind = IB_MEM_NONE;
	step->mem.length = 0;
	step->access = 0;
	return step;
}

static void describe_remote(struct ib_step *step, uint64_t va, uint32_t rkey, uint32_t length, int access)
{
	step->mem.kind = IB_MEM_REMOTE;
	step->mem.length = length;
	step->mem.remote.va = va;
	step->mem.remote.rkey = rkey;
	step->access = access;
}

static void make_check(struct ib_qp *qp, int access)
{
	const struct ib_packet *pkt = &qp->resp.pkt;

	describe_remote(ib_step_new(qp, IB_RESPONDER, IB_CHECK), pkt->va, pkt->rkey, pkt->dma_len, access);
}

static struct ib_step *make_recv_completion(struct ib_qp *qp, enum ibv_wc_status status)
{
	struct ib_responder *resp = &qp->resp;
	struct ib_step *step = ib_step_new(qp, IB_RESPONDER, IB_CQE);

	step->wc.recv = true;
	step->wc.solicited = true;
	step->wc.status = status;
	step->wc.opcode = IBV_WC_RECV;
	step->wc.wr_id = resp->recv.wr_id;
	step->wc.byte_len = 0;
	step->wc.imm = 0;
	step->wc.wc_flags = 0;
	step->wc.index = resp->recv.index;
	return step;
}

/* ARRIVED: the first packet in RTR says that the peer is there. */

static enum responder_state run_arrived(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	if (!resp->established) {
		resp->established = true;
		if (ib_qp_is(qp, IBV_QPS_RTR)) {
			ib_step_new(qp, IB_RESPONDER, IB_EVENT)->event = IBV_EVENT_COMM_EST;
			return RESPONDER_ARRIVED;
		}
	}
	return RESPONDER_SEQUENCE;
}

static enum responder_state done_arrived(struct ib_qp *qp, int err)
{
	(void)qp;
	(void)err;
	return RESPONDER_SEQUENCE;
}

/* SEQUENCE: expected, before it a duplicate, beyond it a gap, which is NAKed once. */

static enum responder_state run_sequence(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;
	int32_t diff = ib_psn_diff(resp->pkt.psn, resp->epsn);

	if (diff == 0) {
		resp->in_order = true;
		return RESPONDER_OPCODE;
	}
	if (diff < 0)
		return RESPONDER_DUPLICATE;
	if (!resp->in_order)
		return RESPONDER_IDLE;
	resp->in_order = false;
	return nak(qp, NAK_SEQUENCE, resp->epsn);
}

/* OPCODE: does it continue the message in progress, and does this queue pair do
 * such things? */

static bool in_sequence(const struct ib_responder *resp)
{
	if (is_first(resp))
		return !resp->message;
	return resp->message & resp->flags;
}

static int access_needed(uint32_t flags)
{
	if (flags & IB_F_WRITE)
		return IBV_ACCESS_REMOTE_WRITE;
	if (flags & IB_F_READ)
		return IBV_ACCESS_REMOTE_READ;
	return flags & IB_F_ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : 0;
}

static enum responder_state run_opcode(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	if (!in_sequence(resp) || (access_needed(resp->flags) & ~qp->attr.access))
		return invalid_request(qp);
	if (takes_resource(resp->flags) &&
		(!qp->attr.max_dest_rd_atomic || (resp->excess && resp->pkt.psn == resp->excess_psn)))
		return invalid_request(qp);
	return RESPONDER_LENGTH;
}

/* LENGTH. Of a SEND, whether it fits its receive is known in DELIVER only. */

static bool payload_fits_opcode(const struct ib_qp *qp)
{
	const struct ib_responder *resp = &qp->resp;

	if (!(resp->flags & IB_F_PAYLOAD))
		return resp->paylen == 0;
	if (!is_last(resp))
		return resp->paylen == qp->attr.segment;
	return resp->paylen <= qp->attr.segment && (resp->paylen || is_first(resp));
}

static bool write_adds_up(const struct ib_responder *resp)
{
	uint32_t left = resp->dma_len - resp->offset;

	return is_last(resp) ? resp->paylen == left : resp->paylen < left;
}

static enum responder_state run_length(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	if (!payload_fits_opcode(qp) || (resp->flags & IB_F_RETH && resp->pkt.dma_len > IB_MAX_MSG))
		return invalid_request(qp);
	if (is_first(resp))
		resp->offset = 0;
	if (resp->flags & IB_F_SEND)
		return is_first(resp) ? RESPONDER_RECEIVE : RESPONDER_DELIVER;
	if (resp->flags & IB_F_WRITE) {
		if (is_first(resp)) {
			resp->va = resp->pkt.va;
			resp->rkey = resp->pkt.rkey;
			resp->dma_len = resp->pkt.dma_len;
		}
		if (!write_adds_up(resp))
			return invalid_request(qp);
	}
	return RESPONDER_KEY;
}

/* KEY: once per message, over all of it; nothing to check for no bytes. Atomics: their step
 * checks. */

static bool wraps(uint64_t va, uint32_t length)
{
	return length && va + (length - 1) < va;
}

static enum responder_state after_key(struct ib_qp *qp);

static enum responder_state run_key(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	if (resp->flags & IB_F_ATOMIC)
		return resp->pkt.va & 7 ? invalid_request(qp) : RESPONDER_ATOMIC;
	if (!(resp->flags & IB_F_RETH) || !resp->pkt.dma_len)
		return after_key(qp);
	if (wraps(resp->pkt.va, resp->pkt.dma_len))
		return access_refused(qp, resp->pkt.psn);
	make_check(qp, access_needed(resp->flags));
	return RESPONDER_KEY;
}

static enum responder_state done_key(struct ib_qp *qp, int err)
{
	return err ? access_refused(qp, qp->resp.pkt.psn) : after_key(qp);
}

static struct ib_resource *save_resource(struct ib_responder *resp, uint32_t packets)
{
	struct ib_resource *res = &resp->resource[resp->resource_head++ % IB_MAX_RD_ATOMIC];

	res->first_psn = resp->pkt.psn;
	res->last_psn = ib_psn_add(resp->pkt.psn, packets - 1);
	res->atomic = resp->flags & IB_F_ATOMIC;
	res->rkey = resp->pkt.rkey;
	res->length = resp->pkt.dma_len;
	return res;
}

/* The request in hand is executed as far as the sequence goes: it takes so many PSNs, and ends a message or
 * not. */
static void accepted(struct ib_responder *resp, uint32_t packets)
{
	resp->epsn = ib_psn_add(resp->epsn, packets);
	if (is_last(resp))
		resp->msn = ib_psn_add(resp->msn, 1);
}

/* Takes back what was done for a READ that has not been answered: it will come again. */
static void unaccepted(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	resp->epsn = resp->pkt.psn;
	resp->msn = ib_psn_add(resp->msn, (uint32_t)-1);
	resp->resource_head--;
}

static void begin_read(struct ib_responder *resp)
{
	resp->read_va = resp->pkt.va;
	resp->read_rkey = resp->pkt.rkey;
	resp->read_left = resp->pkt.dma_len;
	resp->read_psn = resp->pkt.psn;
	resp->read_begun = false;
}

static enum responder_state after_key(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;
	uint32_t packets;

	if (!(resp->flags & IB_F_READ))
		return resp->flags & IB_F_IMM ? RESPONDER_RECEIVE : RESPONDER_DELIVER;
	packets = resp->pkt.dma_len ? (resp->pkt.dma_len - 1) / qp->attr.segment + 1 : 1;
	save_resource(resp, packets)->va = resp->pkt.va;
	accepted(resp, packets);
	begin_read(resp);
	return RESPONDER_READ;
}

/* RECEIVE: a SEND's first packet and a WRITE's last one with immediate data take a receive, unless the one
 * that they took before their memory was found not ready has been kept. */

static enum responder_state run_receive(struct ib_qp *qp)
{
	if (qp->resp.has_recv)
		return RESPONDER_DELIVER;
	ib_step_new(qp, IB_RESPONDER, IB_RECV);
	return RESPONDER_RECEIVE;
}

static enum responder_state done_receive(struct ib_qp *qp, int err)
{
	struct ib_responder *resp = &qp->resp;

	if (err)
		return not_ready(qp);
	resp->recv = qp->step[IB_RESPONDER].recv;
	resp->has_recv = true;
	return RESPONDER_DELIVER;
}

/* DELIVER: the payload goes to its place. */

/* Whether the packet ends a message that completes a receive. */
static bool completes(const struct ib_responder *resp)
{
	return is_last(resp) && resp->has_recv && resp->flags & (IB_F_SEND | IB_F_IMM);
}

static enum responder_state delivered(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	resp->offset += resp->paylen;
	resp->message = is_last(resp) ? 0 : resp->flags & (IB_F_SEND | IB_F_WRITE);
	accepted(resp, 1);
	if (resp->pkt.ack_req)
		return RESPONDER_ACK;
	return completes(resp) ? RESPONDER_COMPLETE : RESPONDER_IDLE;
}

static void make_scatter(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;
	struct ib_step *step = ib_step_new(qp, IB_RESPONDER, IB_SCATTER);

	step->may_defer = true;
	step->pkt_offset = 0;
	step->src = NULL;
	if (resp->flags & IB_F_WRITE) {
		describe_remote(
			step, resp->va + resp->offset, resp->rkey, resp->paylen, IBV_ACCESS_REMOTE_WRITE);
		return;
	}
	step->access = IBV_ACCESS_LOCAL_WRITE;
	step->mem.kind = IB_MEM_LOCAL;
	step->mem.length = resp->paylen;
	step->mem.local.sge = resp->recv.sge;
	step->mem.local.num = resp->recv.num_sge;
	step->mem.local.offset = resp->offset;
}

static enum responder_state run_deliver(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	if (resp->flags & IB_F_SEND) {
		if (resp->paylen > IB_MAX_MSG - resp->offset)
			return invalid_request(qp);
		if (resp->paylen > resp->recv.length - resp->offset)
			return nak_fatal(qp, NAK_INVALID_REQUEST, resp->pkt.psn, IBV_WC_LOC_LEN_ERR);
	}
	if (!resp->paylen)
		return delivered(qp);
	make_scatter(qp);
	return RESPONDER_DELIVER;
}

static enum responder_state done_deliver(struct ib_qp *qp, int err)
{
	struct ib_responder *resp = &qp->resp;

	if (!err)
		return delivered(qp);
	if (err == -EBUSY)
		return not_ready(qp);
	if (resp->flags & IB_F_WRITE)
		return access_refused(qp, resp->pkt.psn);
	return nak_fatal(qp, NAK_REMOTE_OPERATION, resp->pkt.psn, IBV_WC_LOC_PROT_ERR);
}

/* ATOMIC */

static enum responder_state run_atomic(struct ib_qp *qp)
{
	const struct ib_packet *pkt = &qp->resp.pkt;
	struct ib_step *step = ib_step_new(qp, IB_RESPONDER, IB_ATOMIC);

	step->may_defer = true;
	step->atomic.cmp_swap = pkt->opcode == IB_CMP_SWAP;
	step->atomic.compare = pkt->compare;
	step->atomic.swap_add = pkt->swap_add;
	describe_remote(step, pkt->va, pkt->rkey, sizeof(uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
	return RESPONDER_ATOMIC;
}

static enum responder_state done_atomic(struct ib_qp *qp, int err)
{
	struct ib_responder *resp = &qp->resp;

	if (err == -EBUSY)
		return not_ready(qp);
	if (err == -EINVAL)
		return invalid_request(qp);
	if (err)
		return access_refused(qp, resp->pkt.psn);
	resp->orig = qp->step[IB_RESPONDER].orig;
	save_resource(resp, 1)->orig = resp->orig;
	accepted(resp, 1);
	return RESPONDER_ACK_ATOMIC;
}

static enum responder_state run_ack_atomic(struct ib_qp *qp)
{
	make_answer(qp, IB_ATOMIC_ACK, qp->resp.pkt.psn, SYNDROME_ACK)->pkt.orig = qp->resp.orig;
	return RESPONDER_ACK_ATOMIC;
}

/* READ: one response per step. */

static uint8_t read_opcode(bool first, bool last)
{
	if (first)
		return last ? IB_READ_RESP_ONLY : IB_READ_RESP_FIRST;
	return last ? IB_READ_RESP_LAST : IB_READ_RESP_MIDDLE;
}

static enum responder_state run_read(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;
	bool last = resp->read_left <= qp->attr.segment;
	uint8_t opcode = read_opcode(!resp->read_begun, last);
	struct ib_step *step = make_answer(qp, opcode, resp->read_psn, SYNDROME_ACK);

	step->may_defer = !resp->read_begun && !resp->replay;
	if (resp->read_left)
		describe_remote(step, resp->read_va, resp->read_rkey,
			last ? resp->read_left : qp->attr.segment, IBV_ACCESS_REMOTE_READ);
	return RESPONDER_READ;
}

static enum responder_state done_read(struct ib_qp *qp, int err)
{
	struct ib_responder *resp = &qp->resp;
	uint32_t length = qp->step[IB_RESPONDER].mem.length;

	if (err == -EBUSY) {
		unaccepted(qp);
		return not_ready(qp);
	}
	if (err)
		return access_refused(qp, resp->read_psn);
	resp->read_begun = true;
	resp->read_psn = ib_psn_add(resp->read_psn, 1);
	resp->read_va += length;
	resp->read_left -= length;
	return resp->read_left ? RESPONDER_READ : RESPONDER_IDLE;
}

/* ACK, COMPLETE */

static enum responder_state run_ack(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	/* Also of a duplicate: everything before the expected packet is acknowledged. */
	make_answer(qp, IB_ACKNOWLEDGE, ib_psn_add(resp->epsn, (uint32_t)-1), SYNDROME_ACK);
	return RESPONDER_ACK;
}

static enum responder_state done_ack(struct ib_qp *qp, int err)
{
	struct ib_responder *resp = &qp->resp;

	(void)err;
	return !resp->replay && completes(resp) ? RESPONDER_COMPLETE : RESPONDER_IDLE;
}

static enum responder_state done_idle(struct ib_qp *qp, int err)
{
	(void)qp;
	(void)err;
	return RESPONDER_IDLE;
}

static enum responder_state run_complete(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;
	struct ib_step *step = make_recv_completion(qp, IBV_WC_SUCCESS);

	step->wc.solicited = resp->pkt.solicited;
	if (resp->flags & IB_F_WRITE)
		step->wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	step->wc.byte_len = resp->offset;
	if (resp->flags & IB_F_IMM) {
		step->wc.wc_flags = IBV_WC_WITH_IMM;
		step->wc.imm = resp->pkt.imm;
	}
	return RESPONDER_COMPLETE;
}

static enum responder_state done_complete(struct ib_qp *qp, int err)
{
	(void)err;
	qp->resp.has_recv = false;
	return RESPONDER_IDLE;
}

/* DUPLICATE: SENDs and WRITEs are acknowledged again, READs executed again, atomics answered
 * from memory. */

static const struct ib_resource *find_resource(const struct ib_qp *qp)
{
	const struct ib_responder *resp = &qp->resp;
	bool atomic = resp->flags & IB_F_ATOMIC;
	uint32_t kept = resp->resource_head;

	if (kept > qp->attr.max_dest_rd_atomic)
		kept = qp->attr.max_dest_rd_atomic;
	for (uint32_t i = 1; i <= kept; i++) {
		const struct ib_resource *res = &resp->resource[(resp->resource_head - i) % IB_MAX_RD_ATOMIC];
		uint32_t packets = ib_psn_ahead(res->last_psn, res->first_psn) + 1;

		if (res->atomic == atomic && ib_psn_ahead(resp->pkt.psn, res->first_psn) < packets)
			return res;
	}
	return NULL;
}

/* A READ may be asked for again from any of its responses on. */
static bool is_part_of(const struct ib_qp *qp, const struct ib_resource *res)
{
	const struct ib_packet *pkt = &qp->resp.pkt;
	uint32_t offset = ib_psn_ahead(pkt->psn, res->first_psn) * qp->attr.segment;

	return pkt->rkey == res->rkey && pkt->va == res->va + offset && offset <= res->length &&
	       pkt->dma_len <= res->length - offset && (pkt->dma_len || !res->length) &&
	       qp->attr.access & IBV_ACCESS_REMOTE_READ;
}

static enum responder_state run_duplicate(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;
	const struct ib_resource *res;

	resp->replay = true;
	if (resp->flags & (IB_F_SEND | IB_F_WRITE))
		return resp->pkt.ack_req || is_last(resp) ? RESPONDER_ACK : RESPONDER_IDLE;
	res = find_resource(qp);
	if (!res)
		return RESPONDER_IDLE;
	if (resp->flags & IB_F_ATOMIC) {
		resp->orig = res->orig;
		return RESPONDER_ACK_ATOMIC;
	}
	if (!is_part_of(qp, res))
		return RESPONDER_IDLE;
	begin_read(resp);
	return resp->read_left ? RESPONDER_REPLAY_CHECK : RESPONDER_READ;
}

static enum responder_state run_replay_check(struct ib_qp *qp)
{
	make_check(qp, IBV_ACCESS_REMOTE_READ);
	return RESPONDER_REPLAY_CHECK;
}

static enum responder_state done_replay_check(struct ib_qp *qp, int err)
{
	return err ? access_refused(qp, qp->resp.pkt.psn) : RESPONDER_READ;
}

/* NAK */

static enum responder_state run_nak(struct ib_qp *qp)
{
	make_answer(qp, IB_ACKNOWLEDGE, qp->resp.nak_psn, qp->resp.syndrome);
	return RESPONDER_NAK;
}

static enum responder_state done_nak(struct ib_qp *qp, int err)
{
	(void)err;
	if (qp->resp.syndrome >= NAK_SEQUENCE)
		counter_add(&qp->cfg.counters->naks_sent, 1);
	if (!qp->resp.fatal)
		return RESPONDER_IDLE;
	ib_qp_error(qp, 0);
	return RESPONDER_FLUSH_MESSAGE;
}

/* ERR: the message in progress, the event, then everything that is posted. */

static enum responder_state run_flush_message(struct ib_qp *qp)
{
	if (!qp->resp.has_recv)
		return RESPONDER_FLUSH_EVENT;
	make_recv_completion(qp, qp->resp.status);
	return RESPONDER_FLUSH_MESSAGE;
}

static enum responder_state done_flush_message(struct ib_qp *qp, int err)
{
	(void)err;
	if (qp->resp.status == IBV_WC_WR_FLUSH_ERR)
		counter_add(&qp->cfg.counters->req_flushed, 1);
	qp->resp.status = IBV_WC_WR_FLUSH_ERR;
	qp->resp.has_recv = false;
	return RESPONDER_FLUSH_EVENT;
}

static enum responder_state run_flush_event(struct ib_qp *qp)
{
	if (!qp->resp.has_event)
		return RESPONDER_FLUSH;
	ib_step_new(qp, IB_RESPONDER, IB_EVENT)->event = qp->resp.event;
	return RESPONDER_FLUSH_EVENT;
}

static enum responder_state done_flush_event(struct ib_qp *qp, int err)
{
	(void)err;
	qp->resp.has_event = false;
	return RESPONDER_FLUSH;
}

static enum responder_state run_flush(struct ib_qp *qp)
{
	ib_step_new(qp, IB_RESPONDER, IB_RECV);
	qp->resp.status = IBV_WC_WR_FLUSH_ERR;
	return RESPONDER_FLUSH;
}

static enum responder_state done_flush(struct ib_qp *qp, int err)
{
	if (err)
		return RESPONDER_IDLE;
	qp->resp.recv = qp->step[IB_RESPONDER].recv;
	qp->resp.has_recv = true;
	return RESPONDER_FLUSH_MESSAGE;
}

/*
 * run: makes the state's step and stays, or returns the next state. done: takes the step's outcome, returns
 * the next state.
 */
static const struct {
	enum responder_state (*run)(struct ib_qp *qp);
	enum responder_state (*done)(struct ib_qp *qp, int err);
} states[RESPONDER_STATES] = {
	[RESPONDER_ARRIVED] = { run_arrived, done_arrived },
	[RESPONDER_SEQUENCE] = { run_sequence, NULL },
	[RESPONDER_OPCODE] = { run_opcode, NULL },
	[RESPONDER_LENGTH] = { run_length, NULL },
	[RESPONDER_KEY] = { run_key, done_key },
	[RESPONDER_RECEIVE] = { run_receive, done_receive },
	[RESPONDER_DELIVER] = { run_deliver, done_deliver },
	[RESPONDER_ATOMIC] = { run_atomic, done_atomic },
	[RESPONDER_READ] = { run_read, done_read },
	[RESPONDER_ACK] = { run_ack, done_ack },
	[RESPONDER_ACK_ATOMIC] = { run_ack_atomic, done_idle },
	[RESPONDER_COMPLETE] = { run_complete, done_complete },
	[RESPONDER_DUPLICATE] = { run_duplicate, NULL },
	[RESPONDER_REPLAY_CHECK] = { run_replay_check, done_replay_check },
	[RESPONDER_NAK] = { run_nak, done_nak },
	[RESPONDER_FLUSH_MESSAGE] = { run_flush_message, done_flush_message },
	[RESPONDER_FLUSH_EVENT] = { run_flush_event, done_flush_event },
	[RESPONDER_FLUSH] = { run_flush, done_flush },
};

static bool is_flush(const struct ib_responder *resp)
{
	if (resp->state == RESPONDER_FLUSH_MESSAGE)
		return resp->has_recv && resp->status == IBV_WC_WR_FLUSH_ERR;
	return resp->state == RESPONDER_FLUSH;
}

bool responder_owes_cause(const struct ib_qp *qp)
{
	const struct ib_responder *resp = &qp->resp;

	return resp->has_event || (resp->has_recv && resp->status != IBV_WC_WR_FLUSH_ERR);
}

bool responder_next(struct ib_qp *qp)
{
	struct ib_responder *resp = &qp->resp;

	while (!qp->pending[IB_RESPONDER]) {
		if (resp->state == RESPONDER_IDLE || (is_flush(resp) && completer_owes_cause(qp)))
			return false;
		resp->state = states[resp->state].run(qp);
	}
	return true;
}

void responder_done(struct ib_qp *qp, int err, uint64_t now)
{
	struct ib_responder *resp = &qp->resp;
	enum responder_state was = resp->state;

	(void)now;
	resp->state = states[was].done(qp, err);
	/* A completion or event that was under way when ERR was entered from elsewhere is over. */
	if (ib_qp_is(qp, IBV_QPS_ERR) && was < RESPONDER_FLUSH_MESSAGE)
		resp->state = RESPONDER_FLUSH_MESSAGE;
}

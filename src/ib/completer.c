/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "ib/completer.h"

#include "ib/opcode.h"
#include "ib/qp.h"

/* AETH syndromes (IBTA 9.7.5): three bits of kind, five of credit count, timer or NAK code. */
enum { SYNDROME_KIND = 0x60, SYNDROME_VALUE = 0x1f, KIND_ACK = 0x00, KIND_RNR = 0x20, KIND_NAK = 0x60 };

enum { NAK_SEQUENCE = 0 };

/* What a NAK code other than the sequence error makes of its request; SUCCESS: not a code that RC knows. */
static const enum ibv_wc_status nak_status[SYNDROME_VALUE + 1] = {
	[1] = IBV_WC_REM_INV_REQ_ERR,
	[2] = IBV_WC_REM_ACCESS_ERR,
	[3] = IBV_WC_REM_OP_ERR,
};

void completer_reset(struct ib_qp *qp)
{
	struct ib_completer *comp = &qp->comp;

	*comp = (struct ib_completer){
		.index = qp->cfg.sq->next,
		.timeout_ns = UINT64_MAX,
		.ack_deadline = UINT64_MAX,
		.rnr_deadline = UINT64_MAX,
	};
}

void completer_configure(struct ib_qp *qp)
{
	struct ib_completer *comp = &qp->comp;

	comp->timeout_ns = ib_timeout_ns(qp->attr.timeout);
	comp->retry = qp->attr.retry_cnt;
	comp->rnr = qp->attr.rnr_retry;
}

void completer_start(struct ib_qp *qp)
{
	qp->comp.una = qp->attr.sq_psn & IB_PSN_MASK;
}

void completer_stop(struct ib_qp *qp)
{
	struct ib_completer *comp = &qp->comp;

	if (qp->pending[IB_COMPLETER] && qp->step[IB_COMPLETER].op == IB_SCATTER)
		qp->pending[IB_COMPLETER] = false;
	comp->scatter = false;
	comp->lost = false;
	comp->ack_deadline = comp->rnr_deadline = UINT64_MAX;
}

void completer_fail(struct ib_qp *qp, enum ibv_wc_status status, uint64_t now)
{
	if (ib_qp_is(qp, IBV_QPS_ERR))
		return;
	qp->comp.status = status;
	ib_qp_error(qp, now);
}

/*
 * The timer: on a lossy wire whenever an answer is due, on a lossless one only after a loss was announced.
 * Only in the states in which there are answers: a timer that is set in another one is never taken back.
 */

static bool has_timers(const struct ib_qp *qp)
{
	return ib_qp_is(qp, IBV_QPS_RTS) || ib_qp_is(qp, IBV_QPS_SQD);
}

static bool timer_wanted(const struct ib_qp *qp)
{
	return has_timers(qp) && (!qp->attr.lossless || qp->comp.lost) && requester_expects(qp) &&
	       qp->comp.timeout_ns != UINT64_MAX;
}

static void restart_timer(struct ib_qp *qp, uint64_t now)
{
	qp->comp.ack_deadline = timer_wanted(qp) ? now + qp->comp.timeout_ns : UINT64_MAX;
}

void completer_watch(struct ib_qp *qp, uint64_t now)
{
	if (qp->comp.ack_deadline == UINT64_MAX)
		restart_timer(qp, now);
}

void completer_time_anew(struct ib_qp *qp, uint64_t now)
{
	restart_timer(qp, now);
}

static void rewind_to_una(struct ib_qp *qp)
{
	requester_rewind(qp);
	qp->comp.ack_deadline = UINT64_MAX;
}

/* Something asked for did not come. */
static void retry(struct ib_qp *qp, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;

	if (comp->retrying)
		return;
	if (!comp->retry) {
		completer_fail(qp, IBV_WC_RETRY_EXC_ERR, now);
		return;
	}
	comp->retry--;
	comp->retrying = true;
	/* All that was lost is sent again: what is lost of that will be announced. */
	comp->lost = false;
	rewind_to_una(qp);
}

/* una has moved on from was. */
static void progress(struct ib_qp *qp, uint32_t was, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;

	comp->retry = qp->attr.retry_cnt;
	comp->rnr = qp->attr.rnr_retry;
	comp->retrying = false;
	comp->rnr_deadline = UINT64_MAX;
	if (comp->lost && ib_psn_ahead(comp->una, was) >= ib_psn_ahead(comp->lost_psn, was))
		comp->lost = false;
	requester_acked(qp, was);
	restart_timer(qp, now);
}

static const struct ib_wr_info *info_at(const struct ib_qp *qp, uint32_t index)
{
	return &ib_wr_table[ib_sq_at(qp->cfg.sq, index)->opcode];
}

/* Whether psn is of a packet that was sent (a READ's: requested) and is not acknowledged. Others are stale,
 * or made up. */
static bool outstanding(const struct ib_qp *qp, uint32_t psn)
{
	return ib_psn_ahead(psn, qp->comp.una) < ib_psn_ahead(qp->req.sent, qp->comp.una);
}

/* The count first packets that are outstanding are acknowledged, as far as an ACK can: not READs and atomics.
 */
static void acknowledge(struct ib_qp *qp, uint32_t count, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;
	uint32_t was = comp->una, left = count;

	while (left && !info_at(qp, comp->index)->answered) {
		uint32_t rest = ib_psn_ahead(ib_sq_at(qp->cfg.sq, comp->index)->last_psn, comp->una) + 1;

		if (rest > left) {
			comp->una = ib_psn_add(comp->una, left);
			break;
		}
		comp->una = ib_psn_add(comp->una, rest);
		comp->index++;
		left -= rest;
	}
	if (comp->una != was)
		progress(qp, was, now);
}

static void rx_ack(struct ib_qp *qp, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;
	uint32_t end = ib_psn_add(comp->pkt.psn, 1);

	acknowledge(qp, ib_psn_ahead(end, comp->una), now);
	if (comp->una != end)
		retry(qp, now); /* past a READ or atomic whose response has not come: an implied NAK
				   (IBTA 9.7.6) */
}

static void rx_rnr(struct ib_qp *qp, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;

	counter_add(&qp->cfg.counters->rnr_nak_rcvd, 1);
	qp->rnr_naks++;
	acknowledge(qp, ib_psn_ahead(comp->pkt.psn, comp->una), now);
	if (comp->una != comp->pkt.psn) {
		retry(qp, now);
		return;
	}
	if (comp->rnr_deadline != UINT64_MAX)
		return; /* a copy of the one that is being waited for */
	if (!comp->rnr) {
		completer_fail(qp, IBV_WC_RNR_RETRY_EXC_ERR, now);
		return;
	}
	if (qp->attr.rnr_retry != 7)
		comp->rnr--;
	comp->lost = false; /* as after a retry */
	requester_not_ready(qp);
	comp->ack_deadline = UINT64_MAX;
	comp->rnr_deadline = now + ib_rnr_ns(comp->pkt.syndrome & SYNDROME_VALUE);
}

/* Whether psn belongs to the oldest WQE that is not acknowledged. */
static bool in_oldest(const struct ib_qp *qp, uint32_t psn)
{
	uint32_t una = qp->comp.una;

	return ib_psn_ahead(psn, una) <= ib_psn_ahead(ib_sq_at(qp->cfg.sq, qp->comp.index)->last_psn, una);
}

static void rx_nak(struct ib_qp *qp, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;
	uint8_t code = comp->pkt.syndrome & SYNDROME_VALUE;
	enum ibv_wc_status status = nak_status[code];

	if (code != NAK_SEQUENCE && status == IBV_WC_SUCCESS)
		return;
	acknowledge(qp, ib_psn_ahead(comp->pkt.psn, comp->una), now);
	if (code == NAK_SEQUENCE || !in_oldest(qp, comp->pkt.psn))
		retry(qp, now);
	else
		completer_fail(qp, status, now);
}

static void rx_acknowledge(struct ib_qp *qp, uint64_t now)
{
	uint8_t kind = qp->comp.pkt.syndrome & SYNDROME_KIND;

	if (kind == KIND_ACK)
		rx_ack(qp, now);
	else if (kind == KIND_RNR)
		rx_rnr(qp, now);
	else if (kind == KIND_NAK)
		rx_nak(qp, now);
}

/* One response of the READ or atomic at una has been taken in. */
static void answered(struct ib_qp *qp, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;
	const struct ib_wqe *wqe = ib_sq_at(qp->cfg.sq, comp->index);
	uint32_t was = comp->una;

	comp->una = ib_psn_add(was, 1);
	if (was == wqe->last_psn) {
		comp->index++;
		qp->req.reads--;
	} else if (qp->req.psn != was) {
		qp->req.read_extra--;
	}
	progress(qp, was, now);
}

/* The bytes that the response at una must have. */
static uint32_t expected_length(const struct ib_qp *qp, const struct ib_wqe *wqe)
{
	uint32_t una = qp->comp.una;

	if (una != wqe->last_psn)
		return qp->attr.segment;
	return wqe->length - (ib_psn_ahead(una, wqe->first_psn) << qp->req.shift);
}

/* Whether a response of these opcode flags can be the one at una. A READ sent again from its middle begins
 * with FIRST. */
static bool fits(const struct ib_qp *qp, const struct ib_wqe *wqe, uint32_t flags)
{
	const struct ib_wr_info *info = &ib_wr_table[wqe->opcode];

	if (!info->answered || info->atomic != !!(flags & IB_F_ATOMIC))
		return false;
	return !!(flags & IB_F_LAST) == (qp->comp.una == wqe->last_psn);
}

static void rx_response(struct ib_qp *qp, uint32_t flags, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;
	const struct ib_wqe *wqe;

	acknowledge(qp, ib_psn_ahead(comp->pkt.psn, comp->una), now);
	if (comp->una != comp->pkt.psn) {
		retry(qp, now); /* a response before this one is missing */
		return;
	}
	wqe = ib_sq_at(qp->cfg.sq, comp->index);
	if (!fits(qp, wqe, flags))
		completer_fail(qp, IBV_WC_BAD_RESP_ERR, now);
	else if (!(flags & IB_F_ATOMIC) && comp->paylen != expected_length(qp, wqe))
		completer_fail(qp, IBV_WC_LOC_LEN_ERR, now);
	else if (flags & IB_F_ATOMIC || comp->paylen)
		comp->scatter = true;
	else
		answered(qp, now);
}

void completer_rx(struct ib_qp *qp, const struct ib_packet *pkt, uint32_t paylen, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;
	uint32_t flags = ib_opcode_table[pkt->opcode].flags;

	comp->pkt = *pkt;
	comp->pkt.psn &= IB_PSN_MASK;
	comp->paylen = paylen;
	if (!outstanding(qp, comp->pkt.psn))
		return;
	if (flags & IB_F_ACK)
		rx_acknowledge(qp, now);
	else
		rx_response(qp, flags, now);
}

/* Steps. */

static void make_completion(struct ib_qp *qp, const struct ib_wqe *wqe, enum ibv_wc_status status)
{
	struct ib_step *step = ib_step_new(qp, IB_COMPLETER, IB_CQE);

	step->wc.recv = false;
	step->wc.solicited = status != IBV_WC_SUCCESS;
	step->wc.status = status;
	step->wc.opcode = wqe->opcode < IB_WR_KINDS ? ib_wr_table[wqe->opcode].wc_opcode : 0;
	step->wc.wr_id = wqe->wr_id;
	step->wc.byte_len = wqe->length;
	step->wc.imm = 0;
	step->wc.wc_flags = 0;
	step->wc.index = qp->cfg.sq->done;
}

/* The completions of acknowledged WQEs; those that nobody wants are passed over. */
static bool next_due(struct ib_qp *qp)
{
	struct ib_sq *sq = qp->cfg.sq;

	for (; sq->done != qp->comp.index; sq->done++) {
		const struct ib_wqe *wqe = ib_sq_at(sq, sq->done);

		if (wqe->signaled || qp->cfg.sq_sig_all) {
			make_completion(qp, wqe, IBV_WC_SUCCESS);
			return true;
		}
	}
	return false;
}

static bool next_scatter(struct ib_qp *qp)
{
	struct ib_completer *comp = &qp->comp;
	const struct ib_wqe *wqe;
	struct ib_step *step;

	if (!comp->scatter)
		return false;
	wqe = ib_sq_at(qp->cfg.sq, comp->index);
	step = ib_step_new(qp, IB_COMPLETER, IB_SCATTER);
	step->access = IBV_ACCESS_LOCAL_WRITE;
	step->pkt_offset = 0;
	step->mem.kind = IB_MEM_LOCAL;
	step->mem.local.sge = wqe->sge;
	step->mem.local.num = wqe->num_sge;
	if (ib_wr_table[wqe->opcode].atomic) {
		step->orig = comp->pkt.orig;
		step->src = &step->orig;
		step->mem.length = sizeof(step->orig);
		step->mem.local.offset = 0;
	} else {
		step->src = NULL;
		step->mem.length = comp->paylen;
		step->mem.local.offset = ib_psn_ahead(comp->una, wqe->first_psn) << qp->req.shift;
	}
	return true;
}

static bool is_cause(enum ibv_wc_status status)
{
	return status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR;
}

bool completer_owes_cause(const struct ib_qp *qp)
{
	return is_cause(qp->comp.status) &&
	       qp->comp.index != atomic_load_explicit(&qp->cfg.sq->prod, memory_order_acquire);
}

static bool next_flush(struct ib_qp *qp)
{
	struct ib_sq *sq = qp->cfg.sq;
	uint32_t index = qp->comp.index;

	if (!ib_qp_is(qp, IBV_QPS_ERR) || index == atomic_load_explicit(&sq->prod, memory_order_acquire))
		return false;
	if (!is_cause(qp->comp.status) && responder_owes_cause(qp))
		return false;
	if (qp->comp.status == IBV_WC_SUCCESS)
		qp->comp.status = IBV_WC_WR_FLUSH_ERR;
	if (index == sq->next)
		sq->next++;
	make_completion(qp, ib_sq_at(sq, index), qp->comp.status);
	return true;
}

bool ib_sq_drained(const struct ib_qp *qp)
{
	return ib_qp_is(qp, IBV_QPS_SQD) && qp->cfg.sq->done == qp->cfg.sq->next;
}

static bool next_drained(struct ib_qp *qp)
{
	if (!qp->comp.sqd_event || !ib_sq_drained(qp))
		return false;
	ib_step_new(qp, IB_COMPLETER, IB_EVENT)->event = IBV_EVENT_SQ_DRAINED;
	return true;
}

bool completer_next(struct ib_qp *qp)
{
	return next_due(qp) || next_scatter(qp) || next_flush(qp) || next_drained(qp);
}

static void completed(struct ib_qp *qp)
{
	struct ib_completer *comp = &qp->comp;
	enum ibv_wc_status status = qp->step[IB_COMPLETER].wc.status;

	qp->cfg.sq->done++;
	if (status == IBV_WC_SUCCESS)
		return;
	comp->index++;
	comp->status = IBV_WC_WR_FLUSH_ERR;
	if (status == IBV_WC_WR_FLUSH_ERR)
		counter_add(&qp->cfg.counters->req_flushed, 1);
}

static void scattered(struct ib_qp *qp, int err, uint64_t now)
{
	qp->comp.scatter = false;
	if (err)
		completer_fail(qp, IBV_WC_LOC_PROT_ERR, now);
	else
		answered(qp, now);
}

void completer_done(struct ib_qp *qp, int err, uint64_t now)
{
	switch (qp->step[IB_COMPLETER].op) {
	case IB_CQE:
		completed(qp);
		break;
	case IB_SCATTER:
		scattered(qp, err, now);
		break;
	default:
		qp->comp.sqd_event = false;
		break;
	}
}

/* Losses and timers. */

void completer_lost(struct ib_qp *qp, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;

	if (comp->una == qp->req.sent || !has_timers(qp))
		return;
	comp->lost = true;
	comp->lost_psn = qp->req.sent;
	completer_watch(qp, now);
}

void completer_peer_dead(struct ib_qp *qp, uint64_t now)
{
	if (ib_qp_is(qp, IBV_QPS_RESET) || ib_qp_is(qp, IBV_QPS_INIT))
		return; /* it has no peer */
	qp->comp.peer_dead = true;
	if (qp->comp.index != qp->cfg.sq->next)
		completer_fail(qp, IBV_WC_RETRY_EXC_ERR, now);
}

/* While a response is being scattered there is progress that una does not show yet. */
static bool timer_held(const struct ib_qp *qp)
{
	return qp->comp.scatter;
}

uint64_t completer_deadline(const struct ib_qp *qp)
{
	uint64_t ack = timer_held(qp) ? UINT64_MAX : qp->comp.ack_deadline;

	return ack < qp->comp.rnr_deadline ? ack : qp->comp.rnr_deadline;
}

void completer_tick(struct ib_qp *qp, uint64_t now)
{
	struct ib_completer *comp = &qp->comp;

	if (comp->rnr_deadline <= now)
		comp->rnr_deadline = UINT64_MAX;
	if (comp->ack_deadline > now || timer_held(qp))
		return;
	comp->retrying = false;
	retry(qp, now);
}

const char *completer_broken_rule(const struct ib_qp *qp)
{
	const struct ib_completer *comp = &qp->comp;
	const struct ib_requester *req = &qp->req;
	const struct ib_sq *sq = qp->cfg.sq;
	uint32_t done = sq->done, prod = atomic_load_explicit(&sq->prod, memory_order_acquire);

	if (!has_timers(qp)) {
		if (comp->ack_deadline != UINT64_MAX || comp->rnr_deadline != UINT64_MAX)
			return "a timer runs in a state that has none";
		if (comp->lost || comp->scatter)
			return "a response is waited for, or taken in, in a state that has none";
		if (qp->pending[IB_REQUESTER])
			return "a request is being sent in a state that sends none";
	}
	if (comp->index - done > sq->next - done || sq->next - done > prod - done)
		return "the indices of the send queue are out of order";
	if (ib_psn_ahead(req->psn, comp->una) > ib_psn_ahead(req->sent, comp->una) ||
		ib_psn_ahead(req->asked, comp->una) > ib_psn_ahead(req->psn, comp->una))
		return "the requester's packet numbers are out of order";
	return NULL;
}

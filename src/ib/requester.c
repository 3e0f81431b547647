/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "ib/requester.h"

#include "ib/opcode.h"
#include "ib/qp.h"

#define SEND_ROW(only_, last_)                                                                               \
	.valid = true, .first = IB_SEND_FIRST, .middle = IB_SEND_MIDDLE, .last = (last_), .only = (only_),   \
	.wc_opcode = IBV_WC_SEND
#define WRITE_ROW(only_, last_)                                                                              \
	.valid = true, .write = true, .first = IB_WRITE_FIRST, .middle = IB_WRITE_MIDDLE, .last = (last_),   \
	.only = (only_), .wc_opcode = IBV_WC_RDMA_WRITE
#define ATOMIC_ROW(only_, wc_)                                                                               \
	.valid = true, .answered = true, .atomic = true, .only = (only_), .wc_opcode = (wc_)

const struct ib_wr_info ib_wr_table[IB_WR_KINDS] = {
	[IBV_WR_SEND] = { SEND_ROW(IB_SEND_ONLY, IB_SEND_LAST) },
	[IBV_WR_SEND_WITH_IMM] = { SEND_ROW(IB_SEND_ONLY_IMM, IB_SEND_LAST_IMM) },
	[IBV_WR_RDMA_WRITE] = { WRITE_ROW(IB_WRITE_ONLY, IB_WRITE_LAST) },
	[IBV_WR_RDMA_WRITE_WITH_IMM] = { WRITE_ROW(IB_WRITE_ONLY_IMM, IB_WRITE_LAST_IMM) },
	[IBV_WR_RDMA_READ] = { .valid = true,
		.answered = true,
		.only = IB_READ_REQUEST,
		.wc_opcode = IBV_WC_RDMA_READ },
	[IBV_WR_ATOMIC_CMP_AND_SWP] = { ATOMIC_ROW(IB_CMP_SWAP, IBV_WC_COMP_SWAP) },
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = { ATOMIC_ROW(IB_FETCH_ADD, IBV_WC_FETCH_ADD) },
};

static const struct ib_wr_info *info_of(const struct ib_wqe *wqe)
{
	static const struct ib_wr_info invalid;

	return wqe->opcode < IB_WR_KINDS ? &ib_wr_table[wqe->opcode] : &invalid;
}

void requester_reset(struct ib_qp *qp)
{
	struct ib_sq *sq = qp->cfg.sq;
	uint32_t prod = atomic_load_explicit(&sq->prod, memory_order_acquire);

	sq->next = sq->done = prod;
	atomic_store_explicit(&sq->freed, prod, memory_order_release);
	qp->req = (struct ib_requester){ .index = prod };
}

void requester_configure(struct ib_qp *qp)
{
	qp->req.shift = qp->attr.segment ? (uint8_t)__builtin_ctz(qp->attr.segment) : 0;
	qp->req.open = qp->attr.window;
}

void requester_start(struct ib_qp *qp)
{
	qp->req.psn = qp->req.sent = qp->req.asked = qp->attr.sq_psn & IB_PSN_MASK;
}

void requester_stop(struct ib_qp *qp)
{
	qp->pending[IB_REQUESTER] = false;
	qp->req.status = IBV_WC_SUCCESS;
}

void requester_rewind(struct ib_qp *qp)
{
	struct ib_requester *req = &qp->req;

	qp->pending[IB_REQUESTER] = false;
	req->index = qp->comp.index;
	req->psn = req->asked = qp->comp.una;
	req->read_extra = 0;
	req->probe = false;
	req->status = IBV_WC_SUCCESS;
}

void requester_not_ready(struct ib_qp *qp)
{
	requester_rewind(qp);
	qp->req.open = 1;
}

void requester_acked(struct ib_qp *qp, uint32_t was)
{
	struct ib_requester *req = &qp->req;
	uint32_t step = ib_psn_ahead(qp->comp.una, was);

	if (req->open < qp->attr.window)
		req->open = req->open < qp->attr.window / 2 ? req->open * 2 : qp->attr.window;

	if (step > ib_psn_ahead(req->psn, was))
		requester_rewind(qp); /* forward, here */
	else if (step > ib_psn_ahead(req->asked, was))
		req->asked = qp->comp.una;
}

bool requester_expects(const struct ib_qp *qp)
{
	return qp->req.asked != qp->comp.una;
}

static uint32_t packets_of(const struct ib_qp *qp, const struct ib_wqe *wqe)
{
	return wqe->length ? ((wqe->length - 1) >> qp->req.shift) + 1 : 1;
}

static enum ibv_wc_status validate(
	const struct ib_qp *qp, const struct ib_wqe *wqe, const struct ib_wr_info *info)
{
	if (!info->valid)
		return IBV_WC_LOC_QP_OP_ERR;
	if (info->answered && (!qp->attr.max_rd_atomic || wqe->is_inline))
		return IBV_WC_LOC_QP_OP_ERR;
	if (wqe->length > IB_MAX_MSG || (info->atomic && wqe->length != 8))
		return IBV_WC_LOC_LEN_ERR;
	return IBV_WC_SUCCESS;
}

/*
 * The last packets did not ask for an acknowledgement, counting on those that were to follow; now none
 * follows until there is an acknowledgement. So the last one is to be sent again, asking. It goes back within
 * [una, psn), so its WQE is still ours: the packet belongs to the WQE of index, or is the last one of the WQE
 * before (a READ always asks).
 */
static bool ask_again(struct ib_qp *qp)
{
	struct ib_requester *req = &qp->req;

	if (req->psn == req->asked)
		return false;
	if (req->index == qp->cfg.sq->next || req->psn == ib_sq_at(qp->cfg.sq, req->index)->first_psn)
		req->index--;
	req->psn = ib_psn_add(req->psn, (uint32_t)-1);
	req->probe = true;
	req->status = IBV_WC_SUCCESS; /* found again when we are back there */
	return true;
}

static uint32_t under_way(const struct ib_qp *qp)
{
	return ib_psn_ahead(qp->req.psn, qp->comp.una);
}

enum verdict { GO, WAIT, AGAIN };

/* A WQE failed locally. Those before it are completed first. */
static enum verdict failed(struct ib_qp *qp, uint64_t now)
{
	struct ib_requester *req = &qp->req;

	if (qp->comp.index == req->index) {
		completer_fail(qp, req->status, now);
		return WAIT;
	}
	return ask_again(qp) ? AGAIN : WAIT;
}

/* The next WQE of the queue, which has not been begun: may it be? */
static enum verdict begin(struct ib_qp *qp, struct ib_wqe *wqe, const struct ib_wr_info *info, uint64_t now)
{
	struct ib_requester *req = &qp->req;
	uint32_t packets;

	if (ib_qp_is(qp, IBV_QPS_SQD))
		return ask_again(qp) ? AGAIN : WAIT;
	if (wqe->fence && req->reads)
		return WAIT;
	req->status = validate(qp, wqe, info);
	if (req->status != IBV_WC_SUCCESS)
		return failed(qp, now);
	if (info->answered && req->reads >= qp->attr.max_rd_atomic)
		return WAIT;
	packets = packets_of(qp, wqe);
	if (under_way(qp) + packets > IB_MAX_AHEAD)
		return ask_again(qp) ? AGAIN : WAIT;
	wqe->first_psn = req->psn;
	wqe->last_psn = ib_psn_add(req->psn, packets - 1);
	req->reads += info->answered;
	qp->cfg.sq->next++;
	return GO;
}

static void describe_payload(struct ib_step *step, struct ib_wqe *wqe, uint32_t offset, uint32_t length)
{
	step->mem.length = length;
	step->access = 0;
	if (!length) {
		step->mem.kind = IB_MEM_NONE;
	} else if (wqe->is_inline) {
		step->mem.kind = IB_MEM_BUF;
		step->mem.buf = (const uint8_t *)ib_wqe_inline(wqe) + offset;
	} else {
		step->mem.kind = IB_MEM_LOCAL;
		step->mem.local.sge = wqe->sge;
		step->mem.local.num = wqe->num_sge;
		step->mem.local.offset = offset;
	}
}

static void make_answered(
	struct ib_step *step, struct ib_wqe *wqe, const struct ib_wr_info *info, uint32_t offset)
{
	struct ib_packet *pkt = &step->pkt;

	pkt->opcode = info->only;
	pkt->solicited = false;
	pkt->ack_req = true;
	pkt->va = wqe->remote_addr + offset;
	pkt->rkey = wqe->rkey;
	pkt->dma_len = wqe->length - offset;
	if (info->only == IB_CMP_SWAP) {
		pkt->compare = wqe->compare_add;
		pkt->swap_add = wqe->swap;
	} else {
		pkt->compare = 0;
		pkt->swap_add = wqe->compare_add;
	}
	step->mem.kind = IB_MEM_NONE;
	step->mem.length = 0;
	step->access = 0;
}

/* Packets of which one must ask. */
static uint32_t ask_every(const struct ib_requester *req)
{
	return req->open < 4 ? 1 : req->open / 4;
}

/* Whether the last packet of the WQE of index asks for an acknowledgement. */
static bool asks_at_end(const struct ib_qp *qp, const struct ib_wqe *wqe)
{
	const struct ib_requester *req = &qp->req;

	return wqe->signaled || qp->cfg.sq_sig_all ||
	       req->index + 1 == atomic_load_explicit(&qp->cfg.sq->prod, memory_order_relaxed);
}

static void make_message(struct ib_qp *qp, struct ib_step *step, struct ib_wqe *wqe,
	const struct ib_wr_info *info, uint32_t offset)
{
	struct ib_requester *req = &qp->req;
	struct ib_packet *pkt = &step->pkt;
	uint32_t length = wqe->length - offset;
	bool last = req->psn == wqe->last_psn;

	if (!last)
		length = qp->attr.segment;
	if (offset == 0)
		pkt->opcode = last ? info->only : info->first;
	else
		pkt->opcode = last ? info->last : info->middle;
	pkt->solicited = last && wqe->solicited;
	pkt->ack_req = (last && asks_at_end(qp, wqe)) || req->probe ||
		       ib_psn_ahead(req->psn, req->asked) + 1 >= ask_every(req);
	pkt->imm = wqe->imm;
	if (info->write) {
		pkt->va = wqe->remote_addr;
		pkt->rkey = wqe->rkey;
		pkt->dma_len = wqe->length;
	}
	describe_payload(step, wqe, offset, length);
}

static void make_packet(struct ib_qp *qp, struct ib_wqe *wqe, const struct ib_wr_info *info)
{
	struct ib_requester *req = &qp->req;
	struct ib_step *step = ib_step_new(qp, IB_REQUESTER, IB_TX);
	uint32_t offset = ib_psn_ahead(req->psn, wqe->first_psn) << req->shift;

	step->pkt.psn = req->psn;
	step->pkt.pkey = qp->attr.pkey;
	step->pkt.dest_qpn = qp->attr.dest_qpn;
	if (info->answered)
		make_answered(step, wqe, info, offset);
	else
		make_message(qp, step, wqe, info, offset);
}

/* One attempt to make a packet of where the requester stands. */
static enum verdict advance(struct ib_qp *qp, uint64_t now)
{
	struct ib_requester *req = &qp->req;
	struct ib_sq *sq = qp->cfg.sq;
	const struct ib_wr_info *info;
	struct ib_wqe *wqe;

	if (req->status != IBV_WC_SUCCESS)
		return failed(qp, now);
	if (req->index == atomic_load_explicit(&sq->prod, memory_order_acquire))
		return ib_qp_is(qp, IBV_QPS_SQD) && ask_again(qp) ? AGAIN : WAIT;
	if (under_way(qp) - req->read_extra >= req->open)
		return WAIT;
	wqe = ib_sq_at(sq, req->index);
	info = info_of(wqe);
	if (req->index == sq->next) {
		enum verdict v = begin(qp, wqe, info, now);

		if (v != GO)
			return v;
	}
	make_packet(qp, wqe, info);
	return GO;
}

static bool may_send(const struct ib_qp *qp)
{
	return (ib_qp_is(qp, IBV_QPS_RTS) || ib_qp_is(qp, IBV_QPS_SQD)) &&
	       qp->comp.rnr_deadline == UINT64_MAX;
}

/* The peer has gone, and there is something to send: so it cannot be. */
static bool must_fail(const struct ib_qp *qp)
{
	const struct ib_sq *sq = qp->cfg.sq;

	return qp->comp.peer_dead && ib_qp_is(qp, IBV_QPS_RTS) &&
	       qp->req.index != atomic_load_explicit(&sq->prod, memory_order_acquire);
}

bool requester_next(struct ib_qp *qp, uint64_t now)
{
	enum verdict v = AGAIN;

	if (!may_send(qp))
		return false;
	if (must_fail(qp)) {
		completer_fail(qp, IBV_WC_RETRY_EXC_ERR, now);
		return false;
	}
	while (v == AGAIN)
		v = advance(qp, now);
	return v == GO;
}

static void sent(struct ib_qp *qp, uint64_t now)
{
	struct ib_requester *req = &qp->req;
	const struct ib_packet *pkt = &qp->step[IB_REQUESTER].pkt;
	const struct ib_wqe *wqe = ib_sq_at(qp->cfg.sq, req->index);
	uint32_t packets = 1;

	if (info_of(wqe)->answered) {
		packets = ib_psn_ahead(wqe->last_psn, req->psn) + 1;
		req->read_extra += packets - 1;
	}
	if (req->psn != req->sent) {
		counter_add(&qp->cfg.counters->retransmits, 1);
		qp->retransmits++;
	}
	req->psn = ib_psn_add(req->psn, packets);
	if (under_way(qp) > ib_psn_ahead(req->sent, qp->comp.una))
		req->sent = req->psn;
	if (req->psn == ib_psn_add(wqe->last_psn, 1))
		req->index++;
	req->probe = false;
	if (pkt->ack_req) {
		req->asked = req->psn;
		completer_watch(qp, now);
	}
}

void requester_done(struct ib_qp *qp, int err, uint64_t now)
{
	if (!err)
		sent(qp, now);
	else
		qp->req.status = IBV_WC_LOC_PROT_ERR;
}

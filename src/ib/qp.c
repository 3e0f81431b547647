/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "ib/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "ib/opcode.h"

const char *ib_broken_rule(const struct ib_qp *qp)
{
	if (ib_qp_is(qp, IBV_QPS_RESET) || ib_qp_is(qp, IBV_QPS_INIT)) {
		if (qp->pending[IB_COMPLETER] || qp->pending[IB_RESPONDER])
			return "there is something to do before the queue pair has a peer";
		if (qp->resp.state != RESPONDER_IDLE)
			return "the responder works before the queue pair has a peer";
		if (qp->comp.peer_dead)
			return "a peer died before the queue pair has one";
	}
	return completer_broken_rule(qp);
}

/* Debug builds: after each call that changes something. */
static void check_rules(const struct ib_qp *qp)
{
#ifdef UNPIN_DEBUG_CHECKS
	const char *broken = ib_broken_rule(qp);

	if (broken) {
		log_error("transport of a queue pair in state %d: %s", atomic_load(&qp->state), broken);
		abort();
	}
#else
	(void)qp;
#endif
}

static void set_state(struct ib_qp *qp, enum ibv_qp_state state)
{
	atomic_store_explicit(&qp->state, (int)state, memory_order_release);
}

static void reset(struct ib_qp *qp)
{
	for (int lane = 0; lane < IB_LANES; lane++)
		qp->pending[lane] = false;
	memset(&qp->attr, 0, sizeof(qp->attr));
	requester_reset(qp);
	completer_reset(qp); /* after the requester: takes the indices it has set */
	responder_reset(qp);
	set_state(qp, IBV_QPS_RESET);
}

void ib_qp_init(struct ib_qp *qp, const struct ib_qp_cfg *cfg)
{
	memset(qp, 0, sizeof(*qp));
	qp->cfg = *cfg;
	reset(qp);
}

static void configure(struct ib_qp *qp, const struct ib_qp_attr *attr)
{
	qp->attr = *attr;
	requester_configure(qp);
	completer_configure(qp);
}

void ib_qp_modify(struct ib_qp *qp, enum ibv_qp_state state, const struct ib_qp_attr *attr, bool sqd_event,
	uint64_t now)
{
	enum ibv_qp_state was = (enum ibv_qp_state)atomic_load_explicit(&qp->state, memory_order_relaxed);
	uint64_t timeout_ns = qp->comp.timeout_ns;

	if (state == IBV_QPS_RESET) {
		reset(qp);
		check_rules(qp);
		return;
	}
	if (state == IBV_QPS_ERR) {
		ib_qp_error(qp, now);
		return;
	}
	configure(qp, attr);
	if (qp->comp.timeout_ns != timeout_ns)
		completer_time_anew(qp, now);
	if (state == IBV_QPS_RTR && was == IBV_QPS_INIT)
		responder_start(qp);
	if (state == IBV_QPS_RTS && was == IBV_QPS_RTR) {
		requester_start(qp);
		completer_start(qp);
	}
	qp->comp.sqd_event =
		state == IBV_QPS_SQD && (sqd_event || (was == IBV_QPS_SQD && qp->comp.sqd_event));
	set_state(qp, state);
	check_rules(qp);
}

void ib_qp_error(struct ib_qp *qp, uint64_t now)
{
	(void)now;
	if (ib_qp_is(qp, IBV_QPS_ERR))
		return;
	set_state(qp, IBV_QPS_ERR);
	requester_stop(qp);
	completer_stop(qp);
	responder_stop(qp);
	check_rules(qp);
}

enum ib_lane ib_lane_of(uint8_t opcode)
{
	return ib_opcode_table[opcode].flags & IB_F_REQUEST ? IB_RESPONDER : IB_COMPLETER;
}

static bool takes_requests(const struct ib_qp *qp)
{
	return ib_qp_is(qp, IBV_QPS_RTS) || ib_qp_is(qp, IBV_QPS_RTR) || ib_qp_is(qp, IBV_QPS_SQD);
}

static bool takes_responses(const struct ib_qp *qp)
{
	return ib_qp_is(qp, IBV_QPS_RTS) || ib_qp_is(qp, IBV_QPS_SQD);
}

int ib_rx(struct ib_qp *qp, const struct ib_packet *pkt, uint32_t paylen, uint64_t now)
{
	uint32_t flags = ib_opcode_table[pkt->opcode].flags;

	if (!(flags & IB_F_VALID))
		return -EINVAL;
	if (flags & IB_F_REQUEST) {
		if (!takes_requests(qp))
			return -ENOTCONN;
		if (qp->resp.state != RESPONDER_IDLE)
			return -EBUSY;
		responder_rx(qp, pkt, paylen);
		check_rules(qp);
		return 0;
	}
	if (!takes_responses(qp))
		return -ENOTCONN;
	if (qp->comp.scatter)
		return -EBUSY;
	completer_rx(qp, pkt, paylen, now);
	check_rules(qp);
	return 0;
}

bool ib_asks_what_waits(const struct ib_qp *qp)
{
	return responder_asks_what_waits(qp);
}

bool ib_waits(struct ib_qp *qp, uint8_t opcode, uint32_t psn)
{
	return responder_waits(qp, opcode, psn);
}

struct ib_step *ib_next(struct ib_qp *qp, enum ib_lane lane, uint64_t now)
{
	bool have = qp->pending[lane];

	if (!have) {
		switch (lane) {
		case IB_REQUESTER:
			have = requester_next(qp, now);
			break;
		case IB_COMPLETER:
			have = completer_next(qp);
			break;
		case IB_RESPONDER:
			have = responder_next(qp);
			break;
		default:
			break;
		}
		check_rules(qp);
	}
	return have ? &qp->step[lane] : NULL;
}

void ib_done(struct ib_qp *qp, enum ib_lane lane, int err, uint64_t now)
{
	if (!qp->pending[lane])
		return; /* withdrawn */
	if (err == -EBUSY && !qp->step[lane].may_defer)
		return; /* to be parked */
	qp->pending[lane] = false;
	switch (lane) {
	case IB_REQUESTER:
		requester_done(qp, err, now);
		break;
	case IB_COMPLETER:
		completer_done(qp, err, now);
		break;
	case IB_RESPONDER:
		responder_done(qp, err, now);
		break;
	default:
		break;
	}
	check_rules(qp);
}

void ib_recv_posted(struct ib_qp *qp)
{
	responder_recv_posted(qp);
	check_rules(qp);
}

void ib_lost(struct ib_qp *qp, uint64_t now)
{
	completer_lost(qp, now);
	check_rules(qp);
}

void ib_lossy(struct ib_qp *qp, uint64_t now)
{
	qp->attr.lossless = false;
	completer_watch(qp, now);
	check_rules(qp);
}

void ib_peer_dead(struct ib_qp *qp, uint64_t now)
{
	completer_peer_dead(qp, now);
	check_rules(qp);
}

uint64_t ib_deadline(const struct ib_qp *qp)
{
	return completer_deadline(qp);
}

void ib_tick(struct ib_qp *qp, uint64_t now)
{
	completer_tick(qp, now);
#ifdef UNPIN_DEBUG_CHECKS
	/* The caller ticks for as long as a timer is due. */
	if (ib_deadline(qp) <= now)
		abort();
#endif
	check_rules(qp);
}

uint64_t ib_rnr_ns(uint8_t code)
{
	/* In units of 10 us; the first one is the longest. */
	static const uint32_t units[32] = { 65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
		49152 };

	return units[code & 31] * 10000ull;
}

uint64_t ib_timeout_ns(uint8_t code)
{
	return code ? 4096ull << (code & 31) : UINT64_MAX;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Queue pairs: making, moving between states, asking, unmaking. */
#include "nic/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ib/qpstate.h"
#include "nic/gid.h"
#include "nic/nic.h"

#define FIRST_ROW 2u /* queue pairs 0 and 1 are special in every subnet */

static const enum ibv_event_type event_types[NIC_QP_EVENTS] = {
	[NIC_QP_EV_COMM_EST] = IBV_EVENT_COMM_EST,
	[NIC_QP_EV_SQ_DRAINED] = IBV_EVENT_SQ_DRAINED,
	[NIC_QP_EV_FATAL] = IBV_EVENT_QP_FATAL,
	[NIC_QP_EV_REQ_ERR] = IBV_EVENT_QP_REQ_ERR,
	[NIC_QP_EV_ACCESS_ERR] = IBV_EVENT_QP_ACCESS_ERR,
};

void nic_qp_raise(struct nic_qp *qp, enum ibv_event_type type)
{
	for (int i = 0; i < NIC_QP_EVENTS; i++)
		if (event_types[i] == type)
			nic_event_post(&qp->ctx->async, &qp->event[i]);
}

/* --- rows
 * ----------------------------------------------------------------------------------------------------------
 */

static struct nic_qp *row_make(struct nic *nic)
{
	struct nic_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->nic = nic;
	qp->num = wire_slot(nic->wire) << WIRE_SLOT_BITS | nic->qp_rows;
	lock_init(&qp->run_lock, LOCK_QP_RUN);
	lock_init(&qp->rx_lock, LOCK_QP_RX);
	lock_init(&qp->sq_lock, LOCK_QP_SQ);
	lock_init(&qp->rq.lock, LOCK_QP_RQ);
	list_init(&qp->runq);
	list_init(&qp->timer);
	list_init(&qp->free);
	qp->deadline = UINT64_MAX;
	for (int l = 0; l < IB_LANES; l++) {
		list_init(&qp->lane[l].rxq);
		list_init(&qp->lane[l].taken);
		qp->lane[l].waiter.owner = qp;
		qp->lane[l].waiter.ready = nic_lane_fault_over;
		qp->lane[l].waiter.scan = nic_scan;
		qp->lane[l].waiter.flow = qp;
		list_init(&qp->lane[l].waiter.node);
	}
	/* Only then may lookups see it. */
	atomic_store(&nic->qp[nic->qp_rows++], qp);
	return qp;
}

/* The one that has been free longest, if enough of them are free; else an untouched one (nic.h). */
static struct nic_qp *row_take(struct nic *nic)
{
	struct nic_qp *qp = NULL;
	struct list *node;

	lock_take(&nic->lock);
	if (nic->qp_rows < NIC_QP_ROWS && nic->qp_resting < NIC_QPS_REST)
		qp = row_make(nic);
	if (!qp && (node = list_pop(&nic->qp_free))) {
		qp = container_of(node, struct nic_qp, free);
		nic->qp_resting--;
	}
	lock_drop(&nic->lock);
	return qp;
}

static void row_give(struct nic_qp *qp)
{
	lock_take(&qp->nic->lock);
	list_add_tail(&qp->nic->qp_free, &qp->free);
	qp->nic->qp_resting++;
	lock_drop(&qp->nic->lock);
}

void nic_qps_init(struct nic *nic)
{
	list_init(&nic->qp_free);
	nic->qp_rows = FIRST_ROW;
}

void nic_qps_fini(struct nic *nic)
{
	for (uint32_t i = FIRST_ROW; i < nic->qp_rows; i++)
		free(atomic_load(&nic->qp[i]));
}

struct nic_qp *nic_qp_lookup(struct nic *nic, uint32_t num)
{
	if (num >> WIRE_SLOT_BITS != wire_slot(nic->wire))
		return NULL;
	return atomic_load_explicit(&nic->qp[num & (NIC_QP_ROWS - 1)], memory_order_acquire);
}

/* --- making and unmaking
 * ------------------------------------------------------------------------------------------- */

static int rq_init(struct nic_rq *rq, uint32_t max_wr, uint32_t max_sge)
{
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	for (rq->size = 1; rq->size < max_wr; rq->size <<= 1)
		;
	rq->stride = (uint32_t)(sizeof(struct nic_rqe) + max_sge * sizeof(struct ibv_sge));
	rq->ring = calloc(rq->size, rq->stride);
	rq->next = 0;
	atomic_store(&rq->prod, 0);
	atomic_store(&rq->freed, 0);
	return rq->ring ? 0 : -ENOMEM;
}

static int check_caps(const struct ibv_qp_cap *cap)
{
	if (cap->max_send_wr > NIC_MAX_QP_WR || cap->max_recv_wr > NIC_MAX_QP_WR ||
		cap->max_send_sge > NIC_MAX_SGE || cap->max_recv_sge > NIC_MAX_SGE ||
		cap->max_inline_data > NIC_MAX_INLINE)
		return -EINVAL;
	return 0;
}

/* What the queue pair has, which may be more than was asked for. */
static void round_up_caps(struct ibv_qp_cap *cap)
{
	uint32_t steps = (cap->max_inline_data + NIC_INLINE_STEP - 1) / NIC_INLINE_STEP;

	cap->max_inline_data = (steps ? steps : 1) * NIC_INLINE_STEP;
}

static void init_events(struct nic_qp *qp, void *cookie)
{
	memset(&qp->event_source, 0, sizeof(qp->event_source));
	qp->event_source.cookie = cookie;
	for (int i = 0; i < NIC_QP_EVENTS; i++) {
		qp->event[i].source = &qp->event_source;
		qp->event[i].type = (int)event_types[i];
		list_init(&qp->event[i].node);
	}
}

static void init_attr(struct nic_qp *qp, const struct ibv_qp_cap *cap)
{
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->attr.path_mtu = IBV_MTU_1024;
	qp->attr.path_mig_state = IBV_MIG_MIGRATED;
	qp->attr.port_num = 1;
	qp->cap = *cap;
}

int nic_qp_create(struct nic_pd *pd, struct nic_qp_init *init, struct nic_qp **out)
{
	struct nic *nic = pd->ctx->nic;
	struct ib_qp_cfg cfg = { .sq_sig_all = init->sq_sig_all, .counters = &nic->seg->dev };
	struct nic_qp *qp;
	int err = nic_context_check(pd->ctx);

	if (!err)
		err = check_caps(&init->cap);
	if (err)
		return err;
	round_up_caps(&init->cap);
	qp = row_take(nic);
	if (!qp)
		return -ENOMEM;
	err = ib_sq_init(&qp->sq, init->cap.max_send_wr, init->cap.max_send_sge, init->cap.max_inline_data);
	if (err)
		goto give;
	err = rq_init(&qp->rq, init->cap.max_recv_wr, init->cap.max_recv_sge);
	if (err)
		goto fini_sq;
	qp->ctx = pd->ctx;
	qp->pd = pd;
	qp->send_cq = init->send_cq;
	qp->recv_cq = init->recv_cq;
	qp->sq_sig_all = init->sq_sig_all;
	qp->sq_building = 0;
	qp->overrun = NULL;
	qp->hand_over = false;
	atomic_store(&qp->peer_lost, false);
	atomic_store(&qp->recv_posted, false);
	atomic_store(&qp->dead_connection, atomic_load(&qp->connection) - 1);
	init_attr(qp, &init->cap);
	init_events(qp, init->cookie);
	cfg.sq = &qp->sq;
	lock_take(&qp->run_lock);
	ib_qp_init(&qp->ib, &cfg);
	qp->parkings = 0;
	nic_segment_qp_new(qp);
	lock_take(&qp->rx_lock);
	qp->live = true;
	lock_drop(&qp->rx_lock);
	lock_drop(&qp->run_lock);
	atomic_fetch_add(&pd->users, 1);
	atomic_fetch_add(&qp->send_cq->users, 1);
	atomic_fetch_add(&qp->recv_cq->users, 1);
	nic_context_ref(pd->ctx);
	atomic_fetch_add_explicit(&nic->seg->qps, 1, memory_order_relaxed);
	*out = qp;
	return 0;
fini_sq:
	ib_sq_fini(&qp->sq);
give:
	row_give(qp);
	return err;
}

/* Whoever found the lock taken meanwhile has left its work to us. */
static void drop_run_lock(struct nic_qp *qp, bool more)
{
	struct nic_burst burst = { 0 };

	lock_drop(&qp->run_lock);
	if (more || atomic_load(&qp->kick))
		nic_qp_run(qp, &burst);
}

/* Under the run lock: nothing of the lanes waits any more, nothing is queued, the wire is left. */
static void disconnect(struct nic_qp *qp)
{
	for (enum ib_lane l = 0; l < IB_LANES; l++)
		nic_qp_withdraw(qp, l);
	nic_qp_drop_packets(qp);
	if (qp->channel) {
		wire_flow_fini(&qp->flow[0]);
		wire_flow_fini(&qp->flow[1]);
		wire_disconnect(qp->channel);
		qp->channel = NULL;
	}
	atomic_store(&qp->peer_slot, 0);
	atomic_fetch_add(&qp->connection, 1);
}

/* Before the indices go back to their beginning: whoever takes a completion gives back the place that it
 * names. Nothing is completed meanwhile, since the run lock is held. */
static void forget_completions(struct nic_qp *qp)
{
	nic_cq_purge(qp->send_cq, qp);
	if (qp->recv_cq != qp->send_cq)
		nic_cq_purge(qp->recv_cq, qp);
}

/* From here on nobody runs it and nothing arrives. */
static void stop_locked(struct nic_qp *qp)
{
	lock_take(&qp->rx_lock);
	qp->live = false;
	lock_drop(&qp->rx_lock);
	disconnect(qp);
	nic_timer_set(qp, UINT64_MAX);
	nic_segment_qp_clear(qp);
	forget_completions(qp);
}

static void release(struct nic_qp *qp)
{
	struct nic_context *ctx = qp->ctx;

	atomic_fetch_sub(&qp->send_cq->users, 1);
	atomic_fetch_sub(&qp->recv_cq->users, 1);
	atomic_fetch_sub(&qp->pd->users, 1);
	atomic_fetch_sub_explicit(&qp->nic->seg->qps, 1, memory_order_relaxed);
	ib_sq_fini(&qp->sq);
	free(qp->rq.ring);
	qp->rq.ring = NULL;
	row_give(qp);
	nic_context_unref(ctx);
}

int nic_qp_destroy(struct nic_qp *qp)
{
	if (nic_context_check(qp->ctx))
		return 0; /* inherited: forgotten, memory is left */
	lock_take(&qp->run_lock);
	stop_locked(qp);
	lock_drop(&qp->run_lock);
	nic_event_retire(&qp->ctx->async, &qp->event_source, qp->event, NIC_QP_EVENTS);
	release(qp);
	return 0;
}

void nic_qp_discard(struct nic_qp *qp, const struct nic_context *ctx)
{
	if (qp->ctx != ctx)
		return;
	lock_take(&qp->run_lock);
	/* It may have become another's since it was found. */
	if (qp->live && qp->ctx == ctx)
		stop_locked(qp);
	drop_run_lock(qp, false);
}

uint32_t nic_qp_num(const struct nic_qp *qp)
{
	return qp->num;
}

/* --- modify
 * -------------------------------------------------------------------------------------------------------- */

/* Ranges, in the order of ibv_modify_qp(3). The masks that matter were checked against the state table
 * before. */
static int check_path(const struct nic *nic, const struct ibv_ah_attr *ah)
{
	struct ibv_gid_entry row;

	/* An Ethernet port's packets have a GRH (IBV_QPF_GRH_REQUIRED). */
	if (ah->port_num != 1 || !ah->is_global)
		return -EINVAL;
	return nic_gid_row(nic->caps.gids, ah->grh.sgid_index, &row) ? -EINVAL : 0;
}

static int check_attr(const struct nic *nic, const struct ibv_qp_attr *a, int mask)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return -EINVAL;
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index != 0)
		return -EINVAL;
	if ((mask & IBV_QP_ACCESS_FLAGS) && (a->qp_access_flags & ~(unsigned)access))
		return -EINVAL;
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return -EINVAL;
	if ((mask & IBV_QP_DEST_QPN) && a->dest_qp_num > IB_QPN_MASK)
		return -EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > NIC_MAX_RD_ATOM)
		return -EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > NIC_MAX_RD_ATOM)
		return -EINVAL;
	if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > 31)
		return -EINVAL;
	if ((mask & IBV_QP_TIMEOUT) && a->timeout > 31)
		return -EINVAL;
	if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7)
		return -EINVAL;
	if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7)
		return -EINVAL;
	if ((mask & IBV_QP_AV) && check_path(nic, &a->ah_attr))
		return -EINVAL;
	if (mask & (IBV_QP_ALT_PATH | IBV_QP_CAP | IBV_QP_QKEY | IBV_QP_RATE_LIMIT))
		return -EINVAL; /* no automatic path migration, no resizing, no datagrams, no pacing */
	if ((mask & IBV_QP_PATH_MIG_STATE) && a->path_mig_state != IBV_MIG_MIGRATED)
		return -EINVAL;
	return 0;
}

static void keep_attr(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
#define KEEP(bit, field)                                                                                     \
	if (mask & (bit))                                                                                    \
	to->field = from->field
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_RQ_PSN, rq_psn);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_SQ_PSN, sq_psn);
	KEEP(IBV_QP_DEST_QPN, dest_qp_num);
	KEEP(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
#undef KEEP
	to->rq_psn &= IB_PSN_MASK;
	to->sq_psn &= IB_PSN_MASK;
}

static void transport_attr(const struct nic_qp *qp, struct ib_qp_attr *t)
{
	const struct ibv_qp_attr *a = &qp->attr;

	*t = (struct ib_qp_attr){
		.dest_qpn = a->dest_qp_num,
		.segment = WIRE_SEGMENT,
		.window = NIC_QP_WINDOW,
		.lossless = !qp->channel || !wire_lossy(qp->channel),
		.sq_psn = a->sq_psn,
		.rq_psn = a->rq_psn,
		.max_rd_atomic = a->max_rd_atomic,
		.max_dest_rd_atomic = a->max_dest_rd_atomic,
		.timeout = a->timeout,
		.retry_cnt = a->retry_cnt,
		.rnr_retry = a->rnr_retry,
		.min_rnr_timer = a->min_rnr_timer,
		.access = (int)a->qp_access_flags,
		.pkey = NIC_PKEY,
	};
}

/* First contact. A number whose slot is nobody's, or a GID that is not of this host, is no error here:
 * packets to it are lost, as they are on a network. */
static int connect_peer(struct nic_qp *qp, const union ibv_gid *dgid, uint32_t dest_qpn)
{
	uint32_t slot = nic_gid_is_here(dgid) ? dest_qpn >> WIRE_SLOT_BITS : 0;

	atomic_store(&qp->peer_slot, slot);
	if (slot == 0)
		return 0;
	qp->channel = wire_connect(qp->nic->wire, slot);
	if (!qp->channel)
		return errno ? -errno : -ENOMEM;
	wire_flow_init(&qp->flow[0], qp->channel, qp);
	wire_flow_init(&qp->flow[1], qp->channel, qp);
	qp->flow[1].response = true;
	return 0;
}

static void reset_queues(struct nic_qp *qp)
{
	lock_take(&qp->rq.lock);
	qp->rq.next = 0;
	atomic_store(&qp->rq.prod, 0);
	atomic_store(&qp->rq.freed, 0);
	lock_drop(&qp->rq.lock);
	atomic_store(&qp->peer_lost, false);
	atomic_store(&qp->recv_posted, false);
}

/* Under the run lock and, unless the queue pair goes to ERR, the posters' lock. */
static int modify_locked(struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state cur = (enum ibv_qp_state)atomic_load(&qp->ib.state);
	enum ibv_qp_state next = mask & IBV_QP_STATE ? attr->qp_state : cur;
	struct ib_qp_attr transport;
	uint64_t now = clock_ns();
	int err;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != cur)
		return -EINVAL;
	if (!ib_qpstate_allowed(IBV_QPT_RC, cur, next, mask))
		return -EINVAL;
	err = check_attr(qp->nic, attr, mask);
	if (err)
		return err;
	if (next == IBV_QPS_RTR && cur == IBV_QPS_INIT) {
		err = connect_peer(qp, &attr->ah_attr.grh.dgid, attr->dest_qp_num);
		if (err)
			return err;
		/* What the peer's last connection had sent is in the ring still, perhaps, and would fit. */
		wire_catch_up(qp->nic->wire, atomic_load(&qp->peer_slot));
		nic_qp_drop_packets(qp);
	}
	if (next == IBV_QPS_RESET) {
		disconnect(qp);
		forget_completions(qp);
		init_attr(qp, &qp->cap);
	}
	keep_attr(&qp->attr, attr, mask);
	transport_attr(qp, &transport);
	if (next == IBV_QPS_ERR) {
		for (enum ib_lane l = 0; l < IB_LANES; l++)
			nic_qp_withdraw(qp, l);
		ib_qp_error(&qp->ib, now);
	} else {
		ib_qp_modify(&qp->ib, next, &transport,
			attr->en_sqd_async_notify && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY), now);
	}
	if (next == IBV_QPS_RESET)
		reset_queues(qp);
	return 0;
}

/*
 * The run lock, and the posters' lock with it. Waits for neither while it has the other: a copy under the run
 * lock may last, and must not hold up posting; and who is between ibv_wr_start() and ibv_wr_complete() may
 * query the queue pair, which takes the run lock.
 */
static void take_run_lock(struct nic_qp *qp, bool posters)
{
	for (;;) {
		lock_take(&qp->run_lock);
		if (!posters || lock_try(&qp->sq_lock))
			return;
		drop_run_lock(qp, false);
		lock_take(&qp->sq_lock);
		lock_drop(&qp->sq_lock);
	}
}

int nic_qp_modify(struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	/* An error stops the queue pair whoever is posting, or has begun to and lingers. */
	bool posters = !(mask & IBV_QP_STATE) || attr->qp_state != IBV_QPS_ERR;
	int err = nic_context_check(qp->ctx);

	if (err)
		return err;
	take_run_lock(qp, posters);
	/* Not live: its context was closed over it. */
	err = qp->live ? modify_locked(qp, attr, mask) : -EIO;
	if (posters)
		lock_drop(&qp->sq_lock);
	drop_run_lock(qp, !err);
	return err;
}

int nic_qp_query(struct nic_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_cap *cap)
{
	int err = nic_context_check(qp->ctx);

	if (err)
		return err;
	lock_take(&qp->run_lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = (enum ibv_qp_state)atomic_load(&qp->ib.state);
	attr->sq_draining = attr->qp_state == IBV_QPS_SQD && qp->sq.next != qp->sq.done;
	/* Those that come next (IBTA 11.2.5.3), not those that were set. */
	if (attr->qp_state == IBV_QPS_RTR || attr->qp_state == IBV_QPS_RTS || attr->qp_state == IBV_QPS_SQD)
		attr->rq_psn = qp->ib.resp.epsn;
	if (attr->qp_state == IBV_QPS_RTS || attr->qp_state == IBV_QPS_SQD)
		attr->sq_psn = qp->ib.req.sent;
	drop_run_lock(qp, false);
	attr->cap = qp->cap;
	*cap = qp->cap;
	return 0;
}

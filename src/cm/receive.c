/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>

#include "cm/conn.h"

enum { MTU_MAX = 5, XRC_EXTENSION = 1 };

/* How long a SIDR_REQ may be repeated; nothing in it says so. rdma_cm: sixteen times 4096 ms. */
#define SIDR_LINGER (UINT64_C(65536) * 1000000)

static void count_duplicate(struct cm *cm, const struct cm_msg *msg)
{
	cm->counters.duplicates[msg->type - CM_REQ]++;
}

/* A REJ for a message that belongs to no connection. */
static void refuse(struct cm *cm, cm_route to, const struct cm_msg *what, uint16_t reason)
{
	struct cm_msg msg = { .type = CM_REJ, .tid = what->tid };

	if (what->type == CM_REQ) {
		msg.rej.remote_id = what->req.local_id;
		msg.rej.answered = CM_ANSWERS_REQ;
	} else {
		msg.rej.local_id = what->rep.remote_id;
		msg.rej.remote_id = what->rep.local_id;
		msg.rej.answered = CM_ANSWERS_REP;
	}
	msg.rej.reason = reason;
	cm_transmit_to(cm, to, &msg);
}

/* The last answer that was sent is of this type. */
static bool answered_with(const struct cm_conn *conn, enum cm_type type)
{
	return conn->has_reply && conn->reply_type == type;
}

/* The connection with these two ids. */
static struct cm_conn *find(struct cm *cm, cm_route from, uint32_t local_id, uint32_t remote_id)
{
	struct cm_conn *conn = cm_by_local(cm, from, local_id);

	return conn && conn->has_remote && conn->remote_id == remote_id ? conn : NULL;
}

static void raise_event(
	struct cm *cm, struct cm_conn *conn, enum cm_event_type type, const struct cm_msg *msg)
{
	cm_push_event(cm, conn, type)->msg = *msg;
}

static void raise_request(struct cm *cm, struct cm_conn *conn, struct cm_conn *listener,
	enum cm_event_type type, const struct cm_msg *msg)
{
	struct cm_event *e = cm_push_event(cm, conn, type);

	e->listener = listener;
	e->listener_user = listener->user;
	e->msg = *msg;
}

/* REQ */

static void duplicate_req(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg)
{
	count_duplicate(cm, msg);
	switch (conn->state) {
	case CM_MRA_REQ_SENT:
		cm_answer_again(cm, conn);
		break;
	case CM_REP_SENT:
		cm_send_again(cm, conn);
		break;
	case CM_IDLE:
	case CM_DREQ_SENT:
	case CM_TIMEWAIT:
		if (answered_with(conn, CM_REJ))
			cm_answer_again(cm, conn);
		else if (conn->state == CM_TIMEWAIT)
			refuse(cm, conn->route, msg, CM_REJ_STALE_CONN);
		break;
	default: /* the user has still to answer, or the peer has our REP */
		break;
	}
}

/* The peer does not know this connection any more. */
static void end_stale(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	cm_send_dreq(cm, conn, NULL, 0, now); /* does nothing unless it is established, as in the kernel */
}

/* True: the REQ has been dealt with. */
static bool known_req(struct cm *cm, cm_route from, const struct cm_msg *msg, uint64_t now)
{
	struct cm_conn *conn = cm_by_remote(cm, from, false, msg->req.ca_guid, msg->req.local_id);

	if (conn && conn->tid == msg->tid) {
		duplicate_req(cm, conn, msg);
		return true;
	}
	/* The peer uses an id again; what is over need not answer for it any more. */
	if (conn && (conn->destroyed || cm_is(conn, CM_IDLE, CM_TIMEWAIT))) {
		cm_unlink_remote(conn);
		conn = NULL;
	}
	if (!conn)
		conn = cm_by_qpn(cm, from, msg->req.ca_guid, msg->req.qpn);
	if (!conn)
		return false;
	refuse(cm, from, msg, CM_REJ_STALE_CONN);
	end_stale(cm, conn, now);
	return true;
}

static void take_path(struct cm_conn *conn, const struct cm_path *theirs)
{
	conn->path = *theirs;
	conn->path.local_lid = theirs->remote_lid;
	conn->path.remote_lid = theirs->local_lid;
	for (unsigned i = 0; i < sizeof(theirs->local_gid); i++) {
		conn->path.local_gid[i] = theirs->remote_gid[i];
		conn->path.remote_gid[i] = theirs->local_gid[i];
	}
	conn->ack_timeout = theirs->ack_timeout ? theirs->ack_timeout : 1;
}

static void take_req(struct cm_conn *conn, cm_route from, const struct cm_msg *msg)
{
	const struct cm_req *req = &msg->req;
	uint64_t one_try = cm_time(req->remote_response_timeout) + 2 * cm_time(req->path.ack_timeout);

	conn->route = from;
	conn->has_remote = true;
	conn->remote_id = req->local_id;
	conn->remote_guid = req->ca_guid;
	conn->remote_qpn = req->qpn;
	conn->service_id = req->service_id;
	conn->tid = msg->tid;
	conn->transport = req->transport;
	conn->sq_psn = req->starting_psn;
	conn->responder_resources = req->initiator_depth;
	conn->initiator_depth = req->responder_resources;
	conn->mtu = req->mtu;
	conn->retry_count = req->retry_count;
	conn->rnr_retry = req->rnr_retry;
	conn->pkey = req->pkey;
	conn->timeout = cm_time(req->local_response_timeout);
	conn->retries = req->max_cm_retries;
	conn->linger = cm_linger(one_try, conn->retries);
	take_path(conn, &req->path);
}

static int on_req(struct cm *cm, cm_route from, const struct cm_msg *msg, uint64_t now)
{
	const struct cm_req *req = &msg->req;
	struct cm_conn *listener, *conn;

	if (known_req(cm, from, msg, now))
		return 0;
	listener = cm_by_service(cm, req->service_id);
	if (!listener) {
		refuse(cm, from, msg, CM_REJ_INVALID_SERVICE_ID);
		return 0;
	}
	if (req->transport == CM_RD ||
		(req->transport == CM_XRC && req->extended_transport != XRC_EXTENSION)) {
		refuse(cm, from, msg, CM_REJ_INVALID_TRANSPORT_TYPE);
		return 0;
	}
	if (!req->mtu || req->mtu > MTU_MAX) {
		refuse(cm, from, msg, CM_REJ_INVALID_MTU);
		return 0;
	}
	conn = cm_new_conn(cm);
	if (!conn)
		return -ENOMEM;
	take_req(conn, from, msg);
	cm_link_remote(cm, conn, false);
	conn->state = CM_REQ_RCVD;
	raise_request(cm, conn, listener, CM_EV_REQ_RECEIVED, msg);
	return 0;
}

/* REP */

/* One that is not the first for a connection that waits for it. */
static void late_rep(struct cm *cm, cm_route from, struct cm_conn *conn, const struct cm_msg *msg)
{
	bool same = conn && conn->has_remote && conn->remote_id == msg->rep.local_id;

	if (same && conn->state != CM_IDLE && conn->state != CM_TIMEWAIT) {
		count_duplicate(cm, msg);
		if ((conn->state == CM_ESTABLISHED && answered_with(conn, CM_RTU)) ||
			conn->state == CM_MRA_REP_SENT)
			cm_answer_again(cm, conn);
		return;
	}
	if (same && answered_with(conn, CM_REJ)) {
		count_duplicate(cm, msg);
		cm_answer_again(cm, conn);
		return;
	}
	cm->counters.unmatched++;
	refuse(cm, from, msg, CM_REJ_INVALID_COMM_ID);
}

static void take_rep(struct cm_conn *conn, const struct cm_rep *rep)
{
	uint8_t life_time = conn->ack_timeout ? conn->ack_timeout - 1 : 0;

	conn->has_remote = true;
	conn->remote_id = rep->local_id;
	conn->remote_guid = rep->ca_guid;
	conn->remote_qpn = conn->transport == CM_XRC ? rep->eecn : rep->qpn;
	conn->initiator_depth = rep->responder_resources;
	conn->responder_resources = rep->initiator_depth;
	conn->sq_psn = rep->starting_psn;
	conn->rnr_retry = rep->rnr_retry;
	conn->ack_timeout = cm_ack_timeout(rep->target_ack_delay, life_time);
}

static void on_rep(struct cm *cm, cm_route from, const struct cm_msg *msg, uint64_t now)
{
	const struct cm_rep *rep = &msg->rep;
	struct cm_conn *conn = cm_by_local(cm, from, rep->remote_id), *stale;

	if (!conn || !cm_is(conn, CM_REQ_SENT, CM_MRA_REQ_RCVD) || conn->tid != msg->tid) {
		late_rep(cm, from, conn, msg);
		return;
	}
	if (cm_by_remote(cm, from, false, rep->ca_guid, rep->local_id)) {
		cm->counters.unmatched++;
		return;
	}
	stale = cm_by_qpn(cm, from, rep->ca_guid, conn->transport == CM_XRC ? rep->eecn : rep->qpn);
	if (stale) {
		refuse(cm, from, msg, CM_REJ_STALE_CONN);
		end_stale(cm, stale, now);
		return;
	}
	cm_stop(cm, conn);
	take_rep(conn, rep);
	cm_link_remote(cm, conn, false);
	conn->state = CM_REP_RCVD;
	raise_event(cm, conn, CM_EV_REP_RECEIVED, msg);
}

static void on_rtu(struct cm *cm, cm_route from, const struct cm_msg *msg)
{
	struct cm_conn *conn = find(cm, from, msg->rtu.remote_id, msg->rtu.local_id);

	if (!conn) {
		cm->counters.unmatched++;
	} else if (cm_is(conn, CM_REP_SENT, CM_MRA_REP_RCVD)) {
		cm_stop(cm, conn);
		conn->state = CM_ESTABLISHED;
		raise_event(cm, conn, CM_EV_RTU_RECEIVED, msg);
	} else {
		count_duplicate(cm, msg);
		/* The peer believes that it is established: it missed the REJ that took our REP back. */
		if (conn->unsure && answered_with(conn, CM_REJ))
			cm_answer_again(cm, conn);
	}
}

static void on_mra(struct cm *cm, cm_route from, const struct cm_msg *msg, uint64_t now)
{
	struct cm_conn *conn = cm_by_local(cm, from, msg->mra.remote_id);
	bool req = msg->mra.answered == CM_ANSWERS_REQ, rep = msg->mra.answered == CM_ANSWERS_REP;

	if (!conn || conn->tid != msg->tid) {
		cm->counters.unmatched++;
		return;
	}
	if (req && conn->state == CM_REQ_SENT) {
		conn->state = CM_MRA_REQ_RCVD;
	} else if (rep && conn->state == CM_REP_SENT && conn->remote_id == msg->mra.local_id) {
		conn->state = CM_MRA_REP_RCVD;
	} else {
		count_duplicate(cm, msg);
		return;
	}
	conn->wait = cm_time(msg->mra.service_timeout) + cm_time(conn->ack_timeout);
	cm_arm(cm, conn, now + conn->wait);
	raise_event(cm, conn, CM_EV_MRA_RECEIVED, msg);
}

/* REJ */

static uint64_t guid_of_ari(const struct cm_rej *rej)
{
	uint64_t guid = 0;

	for (unsigned i = 0; i < sizeof(guid); i++)
		guid = guid << 8 | rej->ari[i];
	return guid;
}

/* A requester that gives up does not know our id; it names itself by its id and its GUID. */
static struct cm_conn *find_rejected(struct cm *cm, cm_route from, const struct cm_msg *msg)
{
	const struct cm_rej *rej = &msg->rej;
	struct cm_conn *conn = NULL;

	if (rej->reason == CM_REJ_TIMEOUT && rej->ari_length >= sizeof(uint64_t))
		conn = cm_by_remote(cm, from, false, guid_of_ari(rej), rej->local_id);
	if (conn)
		return conn;
	conn = cm_by_local(cm, from, rej->remote_id);
	if (!conn)
		return NULL;
	if (conn->has_remote)
		return conn->remote_id == rej->local_id ? conn : NULL;
	return conn->tid == msg->tid ? conn : NULL;
}

static void on_rej(struct cm *cm, cm_route from, const struct cm_msg *msg, uint64_t now)
{
	struct cm_conn *conn = find_rejected(cm, from, msg);

	if (!conn) {
		cm->counters.unmatched++;
		return;
	}
	switch (conn->state) {
	case CM_REQ_SENT:
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_MRA_REQ_RCVD:
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
		conn->has_reply = false;
		if (msg->rej.reason == CM_REJ_STALE_CONN)
			cm_to_timewait(cm, conn, now);
		else if (conn->has_remote)
			cm_to_idle_answering(cm, conn, now);
		else
			cm_to_idle(cm, conn);
		break;
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
	case CM_ESTABLISHED:
	case CM_DREQ_SENT:
		cm_to_timewait(cm, conn, now);
		break;
	default:
		count_duplicate(cm, msg);
		return;
	}
	raise_event(cm, conn, CM_EV_REJ_RECEIVED, msg);
}

/* DREQ, DREP */

static void fill_drep(struct cm_msg *drep, const struct cm_msg *dreq)
{
	*drep = (struct cm_msg){ .type = CM_DREP, .tid = dreq->tid };
	drep->drep.local_id = dreq->dreq.remote_id;
	drep->drep.remote_id = dreq->dreq.local_id;
}

static void duplicate_dreq(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg)
{
	struct cm_msg drep;

	count_duplicate(cm, msg);
	if (answered_with(conn, CM_DREP) && conn->dreq_tid == msg->tid) {
		cm_answer_again(cm, conn);
		return;
	}
	fill_drep(&drep, msg);
	cm_transmit(cm, conn, &drep);
}

static void on_dreq(struct cm *cm, cm_route from, const struct cm_msg *msg, uint64_t now)
{
	struct cm_conn *conn = cm_by_local(cm, from, msg->dreq.remote_id);
	struct cm_msg drep;

	/* It overtook the REP that it takes back: unanswered, it comes again behind it. */
	if (conn && cm_is(conn, CM_REQ_SENT, CM_MRA_REQ_RCVD) && conn->local_qpn == msg->dreq.remote_qpn)
		return;
	conn = find(cm, from, msg->dreq.remote_id, msg->dreq.local_id);
	if (!conn) {
		cm->counters.unmatched++;
		fill_drep(&drep, msg);
		cm_transmit_to(cm, from, &drep);
		return;
	}
	if (conn->local_qpn != msg->dreq.remote_qpn && conn->state != CM_IDLE)
		return;
	switch (conn->state) {
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
	case CM_ESTABLISHED:
		cm_stop(cm, conn);
		conn->state = CM_DREQ_RCVD;
		conn->dreq_tid = msg->tid;
		raise_event(cm, conn, CM_EV_DREQ_RECEIVED, msg);
		break;
	case CM_DREQ_SENT:
		fill_drep(&drep, msg);
		conn->dreq_tid = msg->tid;
		cm_transmit(cm, conn, &drep);
		cm_to_timewait(cm, conn, now);
		raise_event(cm, conn, CM_EV_DREQ_RECEIVED, msg);
		break;
	case CM_TIMEWAIT:
	case CM_IDLE:
		duplicate_dreq(cm, conn, msg);
		break;
	default: /* before the RTU: the peer repeats it; DREQ_RCVD: the user has still to answer */
		count_duplicate(cm, msg);
	}
}

static void on_drep(struct cm *cm, cm_route from, const struct cm_msg *msg, uint64_t now)
{
	struct cm_conn *conn = find(cm, from, msg->drep.remote_id, msg->drep.local_id);

	if (!conn) {
		cm->counters.unmatched++;
	} else if (cm_is(conn, CM_DREQ_SENT, CM_DREQ_RCVD)) {
		cm_to_timewait(cm, conn, now);
		raise_event(cm, conn, CM_EV_DREP_RECEIVED, msg);
	} else {
		count_duplicate(cm, msg);
	}
}

/* SIDR */

static void refuse_sidr(struct cm *cm, cm_route to, const struct cm_msg *what)
{
	struct cm_msg msg = { .type = CM_SIDR_REP, .tid = what->tid };

	msg.sidr_rep.request_id = what->sidr_req.request_id;
	msg.sidr_rep.service_id = what->sidr_req.service_id;
	msg.sidr_rep.status = CM_SIDR_UNSUPPORTED;
	cm_transmit_to(cm, to, &msg);
}

static int on_sidr_req(struct cm *cm, cm_route from, const struct cm_msg *msg)
{
	struct cm_conn *listener, *conn = cm_by_remote(cm, from, true, 0, msg->sidr_req.request_id);

	if (conn && (conn->tid == msg->tid || conn->state == CM_SIDR_REQ_RCVD)) {
		count_duplicate(cm, msg);
		if (conn->state == CM_IDLE && answered_with(conn, CM_SIDR_REP))
			cm_answer_again(cm, conn);
		return 0;
	}
	if (conn)
		cm_unlink_remote(conn);
	listener = cm_by_service(cm, msg->sidr_req.service_id);
	if (!listener) {
		refuse_sidr(cm, from, msg);
		return 0;
	}
	conn = cm_new_conn(cm);
	if (!conn)
		return -ENOMEM;
	conn->route = from;
	conn->remote_id = msg->sidr_req.request_id;
	conn->tid = msg->tid;
	conn->service_id = msg->sidr_req.service_id;
	conn->pkey = msg->sidr_req.pkey;
	conn->linger = SIDR_LINGER;
	conn->state = CM_SIDR_REQ_RCVD;
	cm_link_remote(cm, conn, true);
	raise_request(cm, conn, listener, CM_EV_SIDR_REQ_RECEIVED, msg);
	return 0;
}

static void on_sidr_rep(struct cm *cm, cm_route from, const struct cm_msg *msg)
{
	struct cm_conn *conn = cm_by_local(cm, from, msg->sidr_rep.request_id);

	if (!conn || conn->state != CM_SIDR_REQ_SENT || conn->tid != msg->tid) {
		cm->counters.unmatched++;
		return;
	}
	cm_to_idle(cm, conn);
	raise_event(cm, conn, CM_EV_SIDR_REP_RECEIVED, msg);
}

int cm_receive(struct cm *cm, cm_route from, const void *bytes, size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (cm_decode(bytes, length, &msg)) {
		cm->counters.malformed++;
		return 0;
	}
	if (!cm_reserve(cm, CM_RESERVE))
		return -ENOMEM;
	cm->counters.received[msg.type - CM_REQ]++;
	switch (msg.type) {
	case CM_REQ:
		return on_req(cm, from, &msg, now);
	case CM_MRA:
		on_mra(cm, from, &msg, now);
		return 0;
	case CM_REJ:
		on_rej(cm, from, &msg, now);
		return 0;
	case CM_REP:
		on_rep(cm, from, &msg, now);
		return 0;
	case CM_RTU:
		on_rtu(cm, from, &msg);
		return 0;
	case CM_DREQ:
		on_dreq(cm, from, &msg, now);
		return 0;
	case CM_DREP:
		on_drep(cm, from, &msg, now);
		return 0;
	case CM_SIDR_REQ:
		return on_sidr_req(cm, from, &msg);
	case CM_SIDR_REP:
		on_sidr_rep(cm, from, &msg);
		return 0;
	default: /* LAP, APR */
		return 0;
	}
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <string.h>

#include "cm/conn.h"

/* ns that one try may wait: more than any time of the specification, less than what overflows. */
#define MAX_WAIT    (UINT64_C(1) << 56)
#define QPN_OF(qpn) ((qpn)&0xffffff)

enum { MAX_RETRIES = 15, MAX_TIME = 31 };

static bool fits(enum cm_type type, const void *data, size_t length)
{
	return length <= cm_private_bytes(type) && (data || !length);
}

static void fill(struct cm_msg *msg, enum cm_type type, uint64_t tid, const void *data, size_t length)
{
	memset(msg, 0, sizeof(*msg));
	msg->type = type;
	msg->tid = tid;
	msg->private_length = (uint8_t)length;
	if (length)
		memcpy(msg->private_data, data, length);
}

/* An IDLE connection becomes as it was when it was made, but for its id. */
static void start_over(struct cm *cm, struct cm_conn *conn, cm_route route)
{
	cm_to_idle(cm, conn);
	conn->has_remote = conn->has_reply = conn->unsure = false;
	conn->gone = conn->gone_due = false;
	conn->remote_id = conn->remote_qpn = 0;
	conn->remote_guid = 0;
	conn->route = route;
}

int cm_listen(struct cm *cm, struct cm_conn *conn, uint64_t service_id)
{
	if (conn->state != CM_IDLE)
		return -EINVAL;
	if (cm_by_service(cm, service_id))
		return -EADDRINUSE;
	start_over(cm, conn, 0);
	conn->service_id = service_id;
	conn->state = CM_LISTEN;
	cm_link_service(cm, conn);
	return 0;
}

static void remember_req(struct cm_conn *conn, const struct cm_req *req, uint8_t life_time)
{
	conn->service_id = req->service_id;
	conn->transport = req->transport;
	conn->local_qpn = QPN_OF(req->qpn);
	conn->rq_psn = QPN_OF(req->starting_psn);
	conn->sq_psn = 0;
	conn->responder_resources = req->responder_resources;
	conn->initiator_depth = req->initiator_depth;
	conn->mtu = req->mtu;
	conn->retry_count = req->retry_count;
	conn->rnr_retry = req->rnr_retry;
	conn->pkey = req->pkey;
	conn->path = req->path;
	conn->ack_timeout = life_time + 1 < MAX_TIME ? life_time + 1 : MAX_TIME;
	conn->retries = req->max_cm_retries;
	conn->timeout = 2 * cm_time(life_time) + cm_time(req->remote_response_timeout);
	conn->linger = cm_linger(cm_time(req->local_response_timeout), conn->retries);
}

int cm_send_req(struct cm *cm, struct cm_conn *conn, cm_route route, const struct cm_req *req,
	uint8_t packet_life_time, const void *data, size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (conn->state != CM_IDLE || !fits(CM_REQ, data, length) || packet_life_time > MAX_TIME ||
		req->remote_response_timeout > MAX_TIME || req->local_response_timeout > MAX_TIME ||
		req->max_cm_retries > MAX_RETRIES)
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	start_over(cm, conn, route);
	conn->tid = cm_new_tid(cm);
	remember_req(conn, req, packet_life_time);
	fill(&msg, CM_REQ, conn->tid, data, length);
	msg.req = *req;
	msg.req.local_id = conn->local_id;
	msg.req.ca_guid = cm->config.ca_guid;
	msg.req.path.ack_timeout = cm_ack_timeout(cm->config.ack_delay, packet_life_time);
	conn->state = CM_REQ_SENT;
	cm_transmit_repeated(cm, conn, &msg, now);
	return 0;
}

int cm_send_rep(struct cm *cm, struct cm_conn *conn, const struct cm_rep *rep, const void *data,
	size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (!cm_is(conn, CM_REQ_RCVD, CM_MRA_REQ_SENT) || !fits(CM_REP, data, length))
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	fill(&msg, CM_REP, conn->tid, data, length);
	msg.rep = *rep;
	msg.rep.local_id = conn->local_id;
	msg.rep.remote_id = conn->remote_id;
	msg.rep.ca_guid = cm->config.ca_guid;
	msg.rep.target_ack_delay = cm->config.ack_delay;
	conn->initiator_depth = rep->initiator_depth;
	conn->responder_resources = rep->responder_resources;
	conn->rq_psn = QPN_OF(rep->starting_psn);
	conn->local_qpn = QPN_OF(conn->transport == CM_XRC ? rep->eecn : rep->qpn);
	conn->state = CM_REP_SENT;
	cm_transmit_repeated(cm, conn, &msg, now);
	return 0;
}

int cm_send_rtu(struct cm *cm, struct cm_conn *conn, const void *data, size_t length, uint64_t now)
{
	struct cm_msg msg;

	(void)now; /* nothing is awaited */
	if (!cm_is(conn, CM_REP_RCVD, CM_MRA_REP_SENT) || !fits(CM_RTU, data, length))
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	fill(&msg, CM_RTU, conn->tid, data, length);
	msg.rtu.local_id = conn->local_id;
	msg.rtu.remote_id = conn->remote_id;
	conn->state = CM_ESTABLISHED;
	cm_transmit_reply(cm, conn, &msg);
	return 0;
}

/* Which message a REJ rejects, as the kernel says it: one that was sent before is "other". */
static void fill_rej_ids(const struct cm_conn *conn, struct cm_rej *rej)
{
	rej->local_id = conn->state == CM_REQ_RCVD ? 0 : conn->local_id;
	rej->remote_id = conn->remote_id;
	if (cm_is(conn, CM_REQ_RCVD, CM_MRA_REQ_SENT))
		rej->answered = CM_ANSWERS_REQ;
	else if (cm_is(conn, CM_REP_RCVD, CM_MRA_REP_SENT))
		rej->answered = CM_ANSWERS_REP;
	else
		rej->answered = CM_ANSWERS_OTHER;
}

int cm_send_rej(struct cm *cm, struct cm_conn *conn, uint16_t reason, const void *ari, size_t ari_length,
	const void *data, size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (conn->state < CM_REQ_SENT || conn->state > CM_MRA_REP_RCVD || !fits(CM_REJ, data, length) ||
		ari_length > CM_MAX_ARI || (!ari && ari_length))
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	fill(&msg, CM_REJ, conn->tid, data, length);
	fill_rej_ids(conn, &msg.rej);
	msg.rej.reason = reason;
	msg.rej.ari_length = (uint8_t)ari_length;
	if (ari_length)
		memcpy(msg.rej.ari, ari, ari_length);
	cm_transmit_reply(cm, conn, &msg);
	if (cm_is(conn, CM_REP_SENT, CM_MRA_REP_RCVD)) {
		conn->unsure = true;
		cm_to_timewait(cm, conn, now);
	} else if (conn->has_remote) {
		cm_to_idle_answering(cm, conn, now);
	} else {
		cm_to_idle(cm, conn);
	}
	return 0;
}

int cm_send_mra(struct cm *cm, struct cm_conn *conn, uint8_t service_timeout, bool delayed, const void *data,
	size_t length, uint64_t now)
{
	struct cm_msg msg;

	(void)now; /* the peer waits, not we */
	if (!cm_is(conn, CM_REQ_RCVD, CM_REP_RCVD) || !fits(CM_MRA, data, length) ||
		service_timeout > MAX_TIME)
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	fill(&msg, CM_MRA, conn->tid, data, length);
	msg.mra.local_id = conn->local_id;
	msg.mra.remote_id = conn->remote_id;
	msg.mra.answered = conn->state == CM_REQ_RCVD ? CM_ANSWERS_REQ : CM_ANSWERS_REP;
	msg.mra.service_timeout = service_timeout;
	conn->state = conn->state == CM_REQ_RCVD ? CM_MRA_REQ_SENT : CM_MRA_REP_SENT;
	if (delayed)
		cm_keep_reply(conn, &msg);
	else
		cm_transmit_reply(cm, conn, &msg);
	return 0;
}

int cm_send_dreq(struct cm *cm, struct cm_conn *conn, const void *data, size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (conn->state != CM_ESTABLISHED || !fits(CM_DREQ, data, length))
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	cm_fill_dreq(conn, cm_new_tid(cm), &msg);
	msg.private_length = (uint8_t)length;
	if (length)
		memcpy(msg.private_data, data, length);
	conn->state = CM_DREQ_SENT;
	cm_transmit_repeated(cm, conn, &msg, now);
	return 0;
}

int cm_send_drep(struct cm *cm, struct cm_conn *conn, const void *data, size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (conn->state != CM_DREQ_RCVD || !fits(CM_DREP, data, length))
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	fill(&msg, CM_DREP, conn->dreq_tid, data, length);
	msg.drep.local_id = conn->local_id;
	msg.drep.remote_id = conn->remote_id;
	cm_transmit_reply(cm, conn, &msg);
	cm_to_timewait(cm, conn, now);
	return 0;
}

int cm_establish(struct cm *cm, struct cm_conn *conn)
{
	if (conn->state == CM_ESTABLISHED)
		return -EISCONN;
	if (!cm_is(conn, CM_REP_SENT, CM_MRA_REP_RCVD))
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	cm_stop(cm, conn);
	conn->state = CM_ESTABLISHED;
	cm_push_event(cm, conn, CM_EV_USER_ESTABLISHED);
	return 0;
}

int cm_send_sidr_req(struct cm *cm, struct cm_conn *conn, cm_route route, uint64_t service_id, uint16_t pkey,
	uint64_t timeout, uint8_t retries, const void *data, size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (conn->state != CM_IDLE || !fits(CM_SIDR_REQ, data, length))
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	start_over(cm, conn, route);
	conn->tid = cm_new_tid(cm);
	conn->service_id = service_id;
	conn->pkey = pkey;
	conn->timeout = timeout < MAX_WAIT ? timeout : MAX_WAIT;
	conn->retries = retries;
	fill(&msg, CM_SIDR_REQ, conn->tid, data, length);
	msg.sidr_req.request_id = conn->local_id;
	msg.sidr_req.pkey = pkey;
	msg.sidr_req.service_id = service_id;
	conn->state = CM_SIDR_REQ_SENT;
	cm_transmit_repeated(cm, conn, &msg, now);
	return 0;
}

int cm_send_sidr_rep(struct cm *cm, struct cm_conn *conn, const struct cm_sidr_rep *rep, const void *data,
	size_t length, uint64_t now)
{
	struct cm_msg msg;

	if (conn->state != CM_SIDR_REQ_RCVD || !fits(CM_SIDR_REP, data, length) ||
		rep->info_length > CM_MAX_ARI)
		return -EINVAL;
	if (!cm_reserve(cm, 1))
		return -ENOMEM;
	fill(&msg, CM_SIDR_REP, conn->tid, data, length);
	msg.sidr_rep = *rep;
	msg.sidr_rep.request_id = conn->remote_id;
	msg.sidr_rep.service_id = conn->service_id;
	cm_transmit_reply(cm, conn, &msg);
	cm_to_idle_answering(cm, conn, now);
	return 0;
}

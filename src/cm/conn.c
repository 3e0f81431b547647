/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <string.h>

#include "cm/conn.h"

#define MSEC	   UINT64_C(1000000)
#define MAX_LINGER (120000 * MSEC) /* rdma_cm repeats a REQ for 74 s */

uint64_t cm_time(uint8_t t)
{
	return MSEC << (t > 8 ? t - 8 : 0);
}

/*
 * 2^timeout = 2^delay + 2 * 2^lifetime, in whole powers of two: the larger of the two, and one more when the
 * other is at least half of it.
 */
uint8_t cm_ack_timeout(uint8_t ack_delay, uint8_t life_time)
{
	unsigned path = life_time + 1u, t = path > ack_delay ? path : ack_delay;

	if (path >= ack_delay ? ack_delay + 1u >= path : path + 1u >= ack_delay)
		t++;
	return t < 31 ? (uint8_t)t : 31;
}

void cm_transmit_to(struct cm *cm, cm_route route, const struct cm_msg *msg)
{
	uint8_t mad[CM_MAD_BYTES];

	cm_encode(msg, mad);
	cm->counters.sent[msg->type - CM_REQ]++;
	cm_push_send(cm, route, mad);
}

void cm_transmit(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg)
{
	if (!conn->gone)
		cm_transmit_to(cm, conn->route, msg);
}

void cm_transmit_repeated(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg, uint64_t now)
{
	cm_encode(msg, conn->sent);
	conn->sent_type = msg->type;
	conn->tries_left = conn->retries;
	conn->wait = conn->timeout;
	cm_transmit(cm, conn, msg);
	cm_arm(cm, conn, now + conn->wait);
}

void cm_keep_reply(struct cm_conn *conn, const struct cm_msg *msg)
{
	cm_encode(msg, conn->reply);
	conn->reply_type = msg->type;
	conn->has_reply = true;
}

void cm_transmit_reply(struct cm *cm, struct cm_conn *conn, const struct cm_msg *msg)
{
	cm_keep_reply(conn, msg);
	cm_transmit(cm, conn, msg);
}

static void again(struct cm *cm, struct cm_conn *conn, enum cm_type type, const uint8_t mad[CM_MAD_BYTES])
{
	if (conn->gone)
		return;
	cm->counters.sent[type - CM_REQ]++;
	cm->counters.resent[type - CM_REQ]++;
	cm_push_send(cm, conn->route, mad);
}

void cm_answer_again(struct cm *cm, struct cm_conn *conn)
{
	again(cm, conn, conn->reply_type, conn->reply);
}

void cm_send_again(struct cm *cm, struct cm_conn *conn)
{
	again(cm, conn, conn->sent_type, conn->sent);
}

void cm_stop(struct cm *cm, struct cm_conn *conn)
{
	cm_disarm(cm, conn);
}

uint64_t cm_linger(uint64_t one_try, unsigned retries)
{
	uint64_t all = (retries + 1) * one_try;

	return all < MAX_LINGER ? all : MAX_LINGER;
}

uint64_t cm_new_tid(struct cm *cm)
{
	return cm->next_tid++;
}

void cm_to_idle(struct cm *cm, struct cm_conn *conn)
{
	cm_stop(cm, conn);
	cm_unlink_remote(conn);
	conn->state = CM_IDLE;
}

void cm_to_idle_answering(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	cm_stop(cm, conn);
	conn->state = CM_IDLE;
	cm_arm(cm, conn, now + conn->linger);
}

void cm_to_timewait(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	uint64_t time = cm_time(conn->ack_timeout);

	/* A peer that never had our REP may still repeat its REQ. */
	if (conn->destroyed && conn->unsure && conn->linger > time)
		time = conn->linger;
	conn->state = CM_TIMEWAIT;
	cm_arm(cm, conn, now + time);
}

void cm_fill_dreq(const struct cm_conn *conn, uint64_t tid, struct cm_msg *msg)
{
	*msg = (struct cm_msg){ .type = CM_DREQ, .tid = tid };
	msg->dreq.local_id = conn->local_id;
	msg->dreq.remote_id = conn->remote_id;
	msg->dreq.remote_qpn = conn->remote_qpn;
}

/* Retries ran out: the peer is told, should it hear us, that we have stopped (12.6.7.2, reason 4). */
static void tell_timeout(struct cm *cm, struct cm_conn *conn, enum cm_answered answered)
{
	struct cm_msg msg = { .type = CM_REJ, .tid = conn->tid };

	msg.rej.local_id = conn->local_id;
	msg.rej.remote_id = conn->has_remote ? conn->remote_id : 0;
	msg.rej.answered = answered;
	msg.rej.reason = CM_REJ_TIMEOUT;
	msg.rej.ari_length = sizeof(uint64_t);
	for (unsigned i = 0; i < sizeof(uint64_t); i++)
		msg.rej.ari[i] = (uint8_t)(cm->config.ca_guid >> (56 - 8 * i));
	cm_transmit_reply(cm, conn, &msg);
}

static void give_up(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	switch (conn->state) {
	case CM_REQ_SENT:
	case CM_MRA_REQ_RCVD:
		tell_timeout(cm, conn, CM_ANSWERS_OTHER);
		cm_to_idle(cm, conn);
		cm_push_event(cm, conn, CM_EV_REQ_ERROR);
		break;
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
		tell_timeout(cm, conn, CM_ANSWERS_OTHER);
		conn->unsure = true;
		cm_to_idle_answering(cm, conn, now);
		cm_push_event(cm, conn, CM_EV_REP_ERROR);
		break;
	case CM_SIDR_REQ_SENT:
		cm_to_idle(cm, conn);
		cm_push_event(cm, conn, CM_EV_SIDR_REQ_ERROR);
		break;
	default:
		cm_to_timewait(cm, conn, now);
		cm_push_event(cm, conn, CM_EV_DREQ_ERROR);
	}
}

static void repeat_or_give_up(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	if (!conn->tries_left) {
		give_up(cm, conn, now);
		return;
	}
	conn->tries_left--;
	cm_send_again(cm, conn);
	cm_arm(cm, conn, now + conn->wait);
}

static struct cm_event *push_gone(
	struct cm *cm, struct cm_conn *conn, enum cm_event_type type, enum cm_type message)
{
	struct cm_event *e = cm_push_event(cm, conn, type);

	e->peer_gone = true;
	e->msg.type = message;
	e->msg.private_length = (uint8_t)cm_private_bytes(message);
	return e;
}

static void push_gone_rej(struct cm *cm, struct cm_conn *conn, enum cm_answered answered, uint16_t reason)
{
	struct cm_event *e = push_gone(cm, conn, CM_EV_REJ_RECEIVED, CM_REJ);

	e->msg.rej.local_id = conn->remote_id;
	e->msg.rej.remote_id = conn->local_id;
	e->msg.rej.answered = answered;
	e->msg.rej.reason = reason;
}

/* What the peer's kernel would have sent when the process died; cm.h says it state by state. */
static void peer_is_gone(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	conn->gone_due = false;
	switch (conn->state) {
	case CM_REQ_SENT:
	case CM_MRA_REQ_RCVD:
		cm_to_idle(cm, conn);
		push_gone_rej(cm, conn, CM_ANSWERS_REQ, CM_REJ_CONSUMER_DEFINED);
		break;
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
		cm_to_idle(cm, conn);
		push_gone_rej(cm, conn, CM_ANSWERS_OTHER, CM_REJ_TIMEOUT);
		break;
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
		cm_to_idle(cm, conn);
		push_gone_rej(cm, conn, CM_ANSWERS_REP, CM_REJ_CONSUMER_DEFINED);
		break;
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
		cm_to_timewait(cm, conn, now);
		push_gone_rej(cm, conn, CM_ANSWERS_OTHER, CM_REJ_CONSUMER_DEFINED);
		break;
	case CM_ESTABLISHED:
		conn->state = CM_DREQ_RCVD;
		push_gone(cm, conn, CM_EV_DREQ_RECEIVED, CM_DREQ)->msg.dreq =
			(struct cm_dreq){ conn->remote_id, conn->local_id, conn->local_qpn };
		break;
	case CM_DREQ_SENT:
		cm_to_timewait(cm, conn, now);
		push_gone(cm, conn, CM_EV_DREP_RECEIVED, CM_DREP)->msg.drep =
			(struct cm_ids){ conn->remote_id, conn->local_id };
		break;
	case CM_SIDR_REQ_SENT:
		cm_to_idle(cm, conn);
		push_gone(cm, conn, CM_EV_SIDR_REP_RECEIVED, CM_SIDR_REP)->msg.sidr_rep =
			(struct cm_sidr_rep){ .request_id = conn->local_id,
				.status = CM_SIDR_REJECT,
				.service_id = conn->service_id };
		break;
	default: /* TIMEWAIT goes on; the others wait for the user, whose message then is not sent */
		if (conn->state == CM_TIMEWAIT)
			cm_to_timewait(cm, conn, now);
	}
}

static void leave_timewait(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	if (conn->unsure && !conn->destroyed)
		cm_to_idle_answering(cm, conn, now);
	else
		cm_to_idle(cm, conn);
	cm_push_event(cm, conn, CM_EV_TIMEWAIT_EXIT);
}

static void due(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	cm_disarm(cm, conn);
	if (conn->gone_due)
		peer_is_gone(cm, conn, now);
	else if (conn->state == CM_TIMEWAIT)
		leave_timewait(cm, conn, now);
	else if (conn->state == CM_IDLE)
		cm_to_idle(cm, conn); /* nobody repeats its REQ any more */
	else
		repeat_or_give_up(cm, conn, now);
	if (conn->destroyed && conn->state == CM_IDLE && conn->timer == CM_UNARMED)
		cm_release(cm, conn);
}

void cm_tick(struct cm *cm, uint64_t now)
{
	while (cm->armed && cm->heap[0]->deadline <= now) {
		if (!cm_reserve(cm, CM_RESERVE)) {
			cm_arm(cm, cm->heap[0], now + MSEC);
			return;
		}
		due(cm, cm->heap[0], now);
	}
}

void cm_peer_gone(struct cm *cm, cm_route route, uint64_t now)
{
	list_for_each_safe (l, &cm->conns) {
		struct cm_conn *conn = container_of(l, struct cm_conn, all);

		if (conn->route != route || conn->gone || cm_is(conn, CM_IDLE, CM_LISTEN)) {
			if (conn->route == route && conn->state == CM_IDLE && conn->destroyed)
				cm_release(cm, conn);
			continue;
		}
		if (conn->destroyed) {
			cm_release(cm, conn);
			continue;
		}
		conn->gone = true;
		if (conn->state == CM_TIMEWAIT)
			continue;
		conn->gone_due = true;
		cm_arm(cm, conn, now);
		if (cm_reserve(cm, CM_RESERVE))
			due(cm, conn, now);
	}
}

/* The REJ of cm_destroy(); its reason and what it carries are the kernel's. */
static void reject(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	uint8_t guid[sizeof(uint64_t)];

	if (!cm_is(conn, CM_REQ_SENT, CM_MRA_REQ_RCVD)) {
		cm_send_rej(cm, conn, CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0, now);
		return;
	}
	for (unsigned i = 0; i < sizeof(guid); i++)
		guid[i] = (uint8_t)(cm->config.ca_guid >> (56 - 8 * i));
	cm_send_rej(cm, conn, CM_REJ_TIMEOUT, guid, sizeof(guid), NULL, 0, now);
}

static void say_goodbye(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	struct cm_sidr_rep refused = { .status = CM_SIDR_REJECT };

	switch (conn->state) {
	case CM_REQ_SENT:
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
	case CM_MRA_REQ_RCVD:
	case CM_REP_SENT:
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
	case CM_MRA_REP_RCVD:
		reject(cm, conn, now);
		break;
	case CM_ESTABLISHED:
		cm_send_dreq(cm, conn, NULL, 0, now);
		break;
	case CM_DREQ_RCVD:
		cm_send_drep(cm, conn, NULL, 0, now);
		break;
	case CM_SIDR_REQ_RCVD:
		cm_send_sidr_rep(cm, conn, &refused, NULL, 0, now);
		break;
	default:
		break;
	}
}

/*
 * Nobody knows whether the REJ arrived of one that ends after its REP: if it did not, the peer is
 * established. A DREQ, repeated until it is answered, settles that.
 */
static void settle(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	struct cm_msg msg;

	cm_fill_dreq(conn, cm_new_tid(cm), &msg);
	conn->state = CM_DREQ_SENT;
	cm_transmit_repeated(cm, conn, &msg, now);
}

static bool still_needed(const struct cm_conn *conn)
{
	return conn->timer != CM_UNARMED && !conn->gone &&
	       (cm_is(conn, CM_TIMEWAIT, CM_DREQ_SENT) || conn->state == CM_IDLE);
}

void cm_destroy(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	struct cm_conn *unseen;

	while (conn->state == CM_LISTEN && (unseen = cm_unseen_request(cm, conn)))
		cm_destroy(cm, unseen, now);
	cm_drop_events(cm, conn);
	say_goodbye(cm, conn, now);
	if (conn->state == CM_SIDR_REQ_SENT)
		cm_to_idle(cm, conn);
	if (conn->unsure && cm_is(conn, CM_TIMEWAIT, CM_IDLE) && !conn->gone && conn->timer != CM_UNARMED &&
		cm_reserve(cm, 1))
		settle(cm, conn, now);
	if (!still_needed(conn)) {
		cm_release(cm, conn);
		return;
	}
	cm_drop_events(cm, conn);
	conn->destroyed = true;
	conn->user = NULL;
	list_add_tail(&cm->ended, &conn->ended);
	if (++cm->destroyed > CM_MAX_DESTROYED)
		cm_release(cm, list_first(&cm->ended, struct cm_conn, ended));
}

void cm_drop(struct cm *cm, struct cm_conn *conn, uint64_t now)
{
	if (cm_is(conn, CM_REQ_RCVD, CM_MRA_REQ_SENT) || conn->state == CM_SIDR_REQ_RCVD)
		cm_release(cm, conn);
	else
		cm_destroy(cm, conn, now);
}

void cm_set_user(struct cm_conn *conn, void *user)
{
	conn->user = user;
}

void *cm_user(const struct cm_conn *conn)
{
	return conn->user;
}

enum cm_state cm_state(const struct cm_conn *conn)
{
	return conn->state;
}

const char *cm_state_name(enum cm_state state)
{
	static const char *const names[CM_STATES] = {
		[CM_IDLE] = "IDLE",
		[CM_LISTEN] = "LISTEN",
		[CM_REQ_SENT] = "REQ_SENT",
		[CM_REQ_RCVD] = "REQ_RCVD",
		[CM_MRA_REQ_SENT] = "MRA_REQ_SENT",
		[CM_MRA_REQ_RCVD] = "MRA_REQ_RCVD",
		[CM_REP_SENT] = "REP_SENT",
		[CM_REP_RCVD] = "REP_RCVD",
		[CM_MRA_REP_SENT] = "MRA_REP_SENT",
		[CM_MRA_REP_RCVD] = "MRA_REP_RCVD",
		[CM_ESTABLISHED] = "ESTABLISHED",
		[CM_DREQ_SENT] = "DREQ_SENT",
		[CM_DREQ_RCVD] = "DREQ_RCVD",
		[CM_TIMEWAIT] = "TIMEWAIT",
		[CM_SIDR_REQ_SENT] = "SIDR_REQ_SENT",
		[CM_SIDR_REQ_RCVD] = "SIDR_REQ_RCVD",
	};

	return state < CM_STATES ? names[state] : "?";
}

void cm_query(const struct cm_conn *conn, struct cm_info *info)
{
	*info = (struct cm_info){
		.state = conn->state,
		.local_id = conn->local_id,
		.remote_id = conn->has_remote ? conn->remote_id : 0,
		.service_id = conn->service_id,
		.route = conn->route,
		.transport = conn->transport,
		.local_qpn = conn->local_qpn,
		.remote_qpn = conn->remote_qpn,
		.sq_psn = conn->sq_psn,
		.rq_psn = conn->rq_psn,
		.responder_resources = conn->responder_resources,
		.initiator_depth = conn->initiator_depth,
		.mtu = conn->mtu,
		.retry_count = conn->retry_count,
		.rnr_retry = conn->rnr_retry,
		.ack_timeout = conn->ack_timeout,
		.pkey = conn->pkey,
		.remote_guid = conn->remote_guid,
		.path = conn->path,
	};
}

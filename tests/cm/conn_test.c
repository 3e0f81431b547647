/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What two connections say to each other, message by message: the usual ways, losses, duplicates, strangers.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ends.h"

static struct ends e;
static struct ends_pair p;

static int setup(void **state)
{
	(void)state;
	memset(&p, 0, sizeof(p));
	ends_make(&e);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ends_free(&e);
	return 0;
}

static void carries(const struct cm_event *event, const char *text)
{
	assert_int_equal(event->msg.private_length, cm_private_bytes(event->msg.type));
	assert_string_equal((const char *)event->msg.private_data, text);
}

static struct cm_info info_of(const struct cm_conn *conn)
{
	struct cm_info info;

	cm_query(conn, &info);
	return info;
}

/* All is destroyed, all that may linger has gone: nothing is left. */
static void nothing_remains(void)
{
	ends_settle(&e);
	e.a.nevents = e.b.nevents = 0;
	ends_pass(&e, 200000 * MSEC);
	ends_settle(&e);
	ends_no_event(&e.a);
	ends_no_event(&e.b);
	assert_int_equal(cm_count(e.a.cm), 0);
	assert_int_equal(cm_count(e.b.cm), 0);
	assert_true(cm_next_deadline(e.a.cm) == UINT64_MAX);
	assert_true(cm_next_deadline(e.b.cm) == UINT64_MAX);
}

static void destroy_all(void)
{
	cm_destroy(e.a.cm, p.a, e.now);
	cm_destroy(e.b.cm, p.b, e.now);
	cm_destroy(e.b.cm, p.listener, e.now);
	nothing_remains();
}

static void whole_life(void **state)
{
	struct cm_rep rep = { .qpn = 0x22,
		.starting_psn = 0x4321,
		.responder_resources = 2,
		.initiator_depth = 1,
		.rnr_retry = 6 };
	struct cm_req req = ends_req(0x11);
	struct cm_event event;
	struct cm_info info;

	(void)state;
	ends_listen(&e, &p);
	p.a = cm_create(e.a.cm, &p.a);
	req.vendor_id = 0x15b3;
	req.ece_options = 3;
	assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, "hello", 5, e.now), 0);
	assert_int_equal(ends_sent(&e.a, CM_REQ)->req.path.ack_timeout, 17);
	ends_deliver(&e, true);
	event = ends_event(&e.b, CM_EV_REQ_RECEIVED);
	carries(&event, "hello");
	assert_ptr_equal(event.listener_user, &p);
	assert_null(event.user);
	assert_int_equal(event.msg.req.vendor_id, 0x15b3);
	assert_int_equal(event.msg.req.ece_options, 3);
	p.b = event.conn;
	cm_set_user(p.b, &p.b);

	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, "welcome", 7, e.now), 0);
	assert_true(ends_sent(&e.b, CM_REP)->tid == ends_sent(&e.b, CM_REP)->tid);
	ends_deliver(&e, false);
	event = ends_event(&e.a, CM_EV_REP_RECEIVED);
	carries(&event, "welcome");
	assert_ptr_equal(event.user, &p.a);
	assert_int_equal(event.msg.rep.target_ack_delay, 10);

	info = info_of(p.a);
	assert_int_equal(info.remote_qpn, 0x22);
	assert_int_equal(info.local_qpn, 0x11);
	assert_int_equal(info.sq_psn, 0x4321);
	assert_int_equal(info.rq_psn, 0x1234);
	assert_int_equal(info.initiator_depth, 2);
	assert_int_equal(info.responder_resources, 1);
	assert_int_equal(info.rnr_retry, 6);
	assert_int_equal(info.ack_timeout, 17);
	info = info_of(p.b);
	assert_int_equal(info.remote_qpn, 0x11);
	assert_int_equal(info.local_qpn, 0x22);
	assert_int_equal(info.sq_psn, 0x1234);
	assert_int_equal(info.rq_psn, 0x4321);
	assert_int_equal(info.initiator_depth, 1);
	assert_int_equal(info.responder_resources, 2);
	assert_int_equal(info.path.local_gid[0], 2);
	assert_int_equal(info.path.remote_gid[0], 1);
	assert_int_equal(info.remote_id, info_of(p.a).local_id);

	assert_int_equal(cm_send_rtu(e.a.cm, p.a, "ready", 5, e.now), 0);
	ends_deliver(&e, true);
	event = ends_event(&e.b, CM_EV_RTU_RECEIVED);
	carries(&event, "ready");
	ends_pass(&e, 600000 * MSEC); /* an established connection has no timer */
	ends_no_event(&e.a);
	ends_no_event(&e.b);

	assert_int_equal(cm_send_dreq(e.b.cm, p.b, "bye", 3, e.now), 0);
	ends_deliver(&e, false);
	event = ends_event(&e.a, CM_EV_DREQ_RECEIVED);
	carries(&event, "bye");
	assert_int_equal(cm_send_drep(e.a.cm, p.a, "so long", 7, e.now), 0);
	ends_deliver(&e, true);
	event = ends_event(&e.b, CM_EV_DREP_RECEIVED);
	carries(&event, "so long");
	assert_int_equal(cm_state(p.a), CM_TIMEWAIT);
	assert_int_equal(cm_state(p.b), CM_TIMEWAIT);
	ends_pass(&e, 511 * MSEC);
	ends_no_event(&e.a);
	ends_pass(&e, 1 * MSEC); /* 4.096 us * 2^17, as the kernel rounds it */
	ends_event(&e.a, CM_EV_TIMEWAIT_EXIT);
	ends_event(&e.b, CM_EV_TIMEWAIT_EXIT);
	assert_int_equal(cm_state(p.a), CM_IDLE);
	destroy_all();
}

/* An id serves again after TIMEWAIT. */
static void used_again(void **state)
{
	struct cm_req req = ends_req(0x11);

	(void)state;
	ends_established(&e, &p);
	cm_destroy(e.b.cm, p.b, e.now);
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_DREQ_RECEIVED);
	assert_int_equal(cm_send_drep(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_settle(&e);
	assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), -EINVAL);
	ends_pass(&e, 512 * MSEC);
	ends_event(&e.a, CM_EV_TIMEWAIT_EXIT);
	assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	p.b = ends_event(&e.b, CM_EV_REQ_RECEIVED).conn;
	destroy_all();
}

static void nobody_listens(void **state)
{
	struct cm_req req = ends_req(0x11);
	struct cm_event event;

	(void)state;
	p.a = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	ends_settle(&e);
	event = ends_event(&e.a, CM_EV_REJ_RECEIVED);
	assert_int_equal(event.msg.rej.reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(event.msg.rej.answered, CM_ANSWERS_REQ);
	assert_int_equal(cm_state(p.a), CM_IDLE);
	assert_int_equal(cm_count(e.b.cm), 0);
	cm_destroy(e.a.cm, p.a, e.now);
	nothing_remains();
}

static void impossible_requests(void **state)
{
	static const struct {
		enum cm_transport transport;
		uint8_t extended, mtu;
		uint16_t reason;
	} t[] = { { CM_RD, 0, 3, CM_REJ_INVALID_TRANSPORT_TYPE },
		{ CM_XRC, 2, 3, CM_REJ_INVALID_TRANSPORT_TYPE }, { CM_RC, 0, 0, CM_REJ_INVALID_MTU },
		{ CM_RC, 0, 6, CM_REJ_INVALID_MTU } };

	(void)state;
	ends_listen(&e, &p);
	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct cm_req req = ends_req(0x11 + i);

		req.transport = t[i].transport;
		req.extended_transport = t[i].extended;
		req.mtu = t[i].mtu;
		p.a = cm_create(e.a.cm, NULL);
		assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
		ends_settle(&e);
		assert_int_equal(ends_event(&e.a, CM_EV_REJ_RECEIVED).msg.rej.reason, t[i].reason);
		ends_no_event(&e.b);
		cm_destroy(e.a.cm, p.a, e.now);
	}
	cm_destroy(e.b.cm, p.listener, e.now);
	nothing_remains();
}

/* The answer to a request is the same however often it comes, also after the connection was destroyed. */
static void rejected(void **state)
{
	struct cm_msg req;
	struct cm_event event;

	(void)state;
	ends_requested(&e, &p);
	ends_pass(&e, 4608 * MSEC);
	req = *ends_sent(&e.a, CM_REQ);
	ends_lose(&e.a);
	assert_int_equal(cm_send_rej(e.b.cm, p.b, CM_REJ_CONSUMER_DEFINED, "\x01\x02", 2, "no", 2, e.now), 0);
	assert_int_equal(ends_sent(&e.b, CM_REJ)->rej.local_id, 0); /* the peer knows no id of ours */
	assert_int_equal(ends_lose(&e.b), 1);
	assert_int_equal(cm_state(p.b), CM_IDLE);
	for (unsigned i = 0; i < 3; i++) {
		ends_inject(&e, true, &req);
		ends_no_event(&e.b);
		assert_int_equal(ends_sent(&e.b, CM_REJ)->rej.reason, CM_REJ_CONSUMER_DEFINED);
		ends_lose(&e.b);
		if (i == 1)
			cm_destroy(e.b.cm, p.b, e.now);
	}
	ends_inject(&e, true, &req);
	ends_deliver(&e, false);
	event = ends_event(&e.a, CM_EV_REJ_RECEIVED);
	carries(&event, "no");
	assert_int_equal(event.msg.rej.ari_length, 2);
	assert_memory_equal(event.msg.rej.ari, "\x01\x02", 2);
	assert_int_equal(cm_state(p.a), CM_IDLE);
	cm_destroy(e.a.cm, p.a, e.now);
	cm_destroy(e.b.cm, p.listener, e.now);
	nothing_remains();
}

/* Fifteen retries after 4608 ms each (twice the lifetime and the response timeout), then the event. */
static void no_answer(void **state)
{
	struct cm_req req = ends_req(0x11);
	struct cm_counters c;

	(void)state;
	p.a = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	for (unsigned i = 0; i < 16; i++) {
		ends_sent(&e.a, CM_REQ);
		ends_lose(&e.a);
		ends_pass(&e, 4607 * MSEC);
		assert_int_equal(ends_lose(&e.a), 0);
		ends_no_event(&e.a);
		ends_pass(&e, 1 * MSEC);
	}
	assert_int_equal(ends_sent(&e.a, CM_REJ)->rej.reason, CM_REJ_TIMEOUT);
	assert_int_equal(ends_sent(&e.a, CM_REJ)->rej.ari[0], 0xa0);
	ends_event(&e.a, CM_EV_REQ_ERROR);
	assert_int_equal(cm_state(p.a), CM_IDLE);
	cm_get_counters(e.a.cm, &c);
	assert_int_equal(c.sent[0], 16);
	assert_int_equal(c.resent[0], 15);
	cm_destroy(e.a.cm, p.a, e.now);
	nothing_remains();
}

static void lost_rep_and_rtu(void **state)
{
	struct cm_rep rep = { .qpn = 0x22 };

	(void)state;
	ends_requested(&e, &p);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, NULL, 0, e.now), 0);
	assert_int_equal(ends_lose(&e.b), 1);
	ends_pass(&e, 4096 * MSEC); /* the REP's own timer */
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_REP_RECEIVED);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, "x", 1, e.now), 0);
	assert_int_equal(ends_lose(&e.a), 1);
	ends_pass(&e, 4096 * MSEC);
	ends_deliver(&e, false);
	ends_no_event(&e.a);
	assert_string_equal((const char *)ends_sent(&e.a, CM_RTU)->private_data, "x");
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_RTU_RECEIVED);
	destroy_all();
}

/* A repeated REQ brings the REP at once. */
static void duplicate_req(void **state)
{
	struct cm_rep rep = { .qpn = 0x22 };
	struct cm_msg req;

	(void)state;
	ends_requested(&e, &p);
	ends_pass(&e, 4608 * MSEC);
	req = *ends_sent(&e.a, CM_REQ);
	ends_deliver(&e, true);
	ends_no_event(&e.b);
	assert_int_equal(ends_lose(&e.b), 0); /* the user has not answered */
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, NULL, 0, e.now), 0);
	ends_lose(&e.b);
	ends_inject(&e, true, &req);
	ends_no_event(&e.b);
	ends_sent(&e.b, CM_REP);
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_REP_RECEIVED);
	destroy_all();
}

static void mra(void **state)
{
	struct cm_rep rep = { .qpn = 0x22 };
	struct cm_event event;

	(void)state;
	ends_requested(&e, &p);
	assert_int_equal(cm_send_mra(e.b.cm, p.b, CM_DEFAULT_MRA_TIMEOUT, true, "wait", 4, e.now), 0);
	assert_int_equal(ends_lose(&e.b), 0);
	assert_int_equal(cm_state(p.b), CM_MRA_REQ_SENT);
	ends_pass(&e, 4608 * MSEC);
	ends_deliver(&e, true);
	ends_sent(&e.b, CM_MRA);
	ends_deliver(&e, false);
	event = ends_event(&e.a, CM_EV_MRA_RECEIVED);
	carries(&event, "wait");
	assert_int_equal(event.msg.mra.service_timeout, 24);
	assert_int_equal(cm_state(p.a), CM_MRA_REQ_RCVD);
	ends_pass(&e, (65536 + 512 - 1) * MSEC); /* the service timeout and one path */
	assert_int_equal(ends_lose(&e.a), 0);
	ends_pass(&e, 1 * MSEC);
	ends_sent(&e.a, CM_REQ);
	ends_lose(&e.a);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, NULL, 0, e.now), 0);
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_REP_RECEIVED);
	assert_int_equal(cm_send_mra(e.a.cm, p.a, 20, false, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_MRA_RECEIVED);
	assert_int_equal(cm_state(p.a), CM_MRA_REP_SENT);
	assert_int_equal(cm_state(p.b), CM_MRA_REP_RCVD);
	ends_pass(
		&e, (4096 + 512) * MSEC * 2); /* a repeated REP is answered with the MRA, not with an event */
	ends_settle(&e);
	ends_no_event(&e.a);
	ends_no_event(&e.b);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_RTU_RECEIVED);
	destroy_all();
}

static void data_before_rtu(void **state)
{
	(void)state;
	ends_replied(&e, &p);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, NULL, 0, e.now), 0);
	assert_int_equal(cm_establish(e.b.cm, p.b), 0);
	ends_event(&e.b, CM_EV_USER_ESTABLISHED);
	assert_int_equal(cm_establish(e.b.cm, p.b), -EISCONN);
	ends_settle(&e);
	ends_no_event(&e.b);
	assert_int_equal(cm_establish(e.a.cm, p.a), -EISCONN);
	destroy_all();
}

/* The RTU is lost and the peer ends at once. */
static void dreq_instead_of_rtu(void **state)
{
	(void)state;
	ends_replied(&e, &p);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_lose(&e.a);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_DREQ_RECEIVED);
	assert_int_equal(cm_send_drep(e.b.cm, p.b, NULL, 0, e.now), 0);
	ends_settle(&e);
	ends_event(&e.a, CM_EV_DREP_RECEIVED);
	destroy_all();
}

static void crossing_dreqs(void **state)
{
	(void)state;
	ends_established(&e, &p);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, NULL, 0, e.now), 0);
	assert_int_equal(cm_send_dreq(e.b.cm, p.b, NULL, 0, e.now), 0);
	ends_lose(&e.b);
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_DREQ_RECEIVED);
	ends_sent(&e.b, CM_DREP);
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_DREP_RECEIVED);
	assert_int_equal(cm_state(p.a), CM_TIMEWAIT);
	assert_int_equal(cm_state(p.b), CM_TIMEWAIT);
	destroy_all();
}

static void lost_drep(void **state)
{
	(void)state;
	ends_established(&e, &p);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_DREQ_RECEIVED);
	assert_int_equal(cm_send_drep(e.b.cm, p.b, "z", 1, e.now), 0);
	ends_lose(&e.b);
	ends_pass(&e, 4608 * MSEC); /* b has left TIMEWAIT meanwhile */
	ends_event(&e.b, CM_EV_TIMEWAIT_EXIT);
	ends_settle(&e);
	ends_event(&e.a, CM_EV_DREP_RECEIVED);
	ends_no_event(&e.b);
	destroy_all();
}

static void no_drep(void **state)
{
	(void)state;
	ends_established(&e, &p);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_pass(&e, 16 * 4608 * MSEC);
	assert_int_equal(ends_lose(&e.a), 16);
	ends_event(&e.a, CM_EV_DREQ_ERROR);
	assert_int_equal(cm_state(p.a), CM_TIMEWAIT);
	ends_pass(&e, 512 * MSEC);
	ends_event(&e.a, CM_EV_TIMEWAIT_EXIT);
	destroy_all();
}

/* After the REP the user thinks better of it; neither the REJ nor the RTU arrives. */
static void taken_back(void **state)
{
	(void)state;
	ends_replied(&e, &p);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_lose(&e.a);
	cm_destroy(e.b.cm, p.b, e.now);
	assert_int_equal(ends_lose(&e.b), 2); /* REJ, and the first DREQ */
	ends_pass(&e, 4096 * MSEC);
	ends_sent(&e.b, CM_DREQ);
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_DREQ_RECEIVED);
	assert_int_equal(cm_send_drep(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_settle(&e);
	cm_destroy(e.a.cm, p.a, e.now);
	cm_destroy(e.b.cm, p.listener, e.now);
	nothing_remains();
}

static void established_for_nothing(void **state)
{
	(void)state;
	ends_replied(&e, &p);
	assert_int_equal(cm_send_rej(e.b.cm, p.b, CM_REJ_CONSUMER_DEFINED, NULL, 0, NULL, 0, e.now), 0);
	ends_lose(&e.b);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_settle(&e);
	assert_int_equal(ends_event(&e.a, CM_EV_REJ_RECEIVED).msg.rej.reason, CM_REJ_CONSUMER_DEFINED);
	assert_int_equal(cm_state(p.a), CM_TIMEWAIT);
	ends_no_event(&e.b);
	destroy_all();
}

static void rep_for_nobody(void **state)
{
	struct cm_rep rep = { .qpn = 0x22 };

	(void)state;
	ends_requested(&e, &p);
	cm_destroy(e.a.cm, p.a, e.now);
	assert_int_equal(ends_lose(&e.a), 1);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, NULL, 0, e.now), 0);
	ends_settle(&e);
	assert_int_equal(ends_event(&e.b, CM_EV_REJ_RECEIVED).msg.rej.reason, CM_REJ_INVALID_COMM_ID);
	assert_int_equal(cm_state(p.b), CM_IDLE);
	cm_destroy(e.b.cm, p.b, e.now);
	cm_destroy(e.b.cm, p.listener, e.now);
	nothing_remains();
}

/* A peer that asks with a queue pair which has a connection has forgotten that one. */
static void stale(void **state)
{
	struct cm_req req = ends_req(0x11);
	struct cm_conn *again;

	(void)state;
	ends_established(&e, &p);
	again = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_req(e.a.cm, again, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	ends_collect(&e.b);
	assert_int_equal(e.b.nsent, 2);
	assert_int_equal(e.b.sent[0].rej.reason, CM_REJ_STALE_CONN);
	assert_int_equal(e.b.sent[1].type, CM_DREQ);
	assert_int_equal(cm_state(p.b), CM_DREQ_SENT);
	ends_deliver(&e, false);
	assert_int_equal(e.a.nevents, 2);
	assert_int_equal(e.a.events[0].type, CM_EV_REJ_RECEIVED);
	assert_int_equal(e.a.events[1].type, CM_EV_DREQ_RECEIVED);
	assert_int_equal(cm_state(again), CM_TIMEWAIT);
	e.a.nevents = 0;
	cm_destroy(e.a.cm, again, e.now);
	destroy_all();
}

/* Messages of a connection from another route than its own do nothing to it. */
static void strangers(void **state)
{
	struct cm_info a, b;
	struct cm_msg msg[5] = { { .type = CM_DREQ }, { .type = CM_DREP }, { .type = CM_REJ },
		{ .type = CM_RTU }, { .type = CM_REJ } };
	uint8_t mad[CM_MAD_BYTES];

	(void)state;
	ends_established(&e, &p);
	a = info_of(p.a);
	b = info_of(p.b);
	msg[0].dreq = (struct cm_dreq){ a.local_id, b.local_id, b.local_qpn };
	msg[1].drep = msg[3].rtu = (struct cm_ids){ a.local_id, b.local_id };
	msg[2].rej = (struct cm_rej){ a.local_id, b.local_id, CM_ANSWERS_OTHER, 28, 0, { 0 } };
	msg[4].rej = (struct cm_rej){ a.local_id, 0, CM_ANSWERS_OTHER, CM_REJ_TIMEOUT, 8,
		{ 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7 } };
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(cm_encode(&msg[i], mad), 0);
		assert_int_equal(cm_receive(e.b.cm, 0xbad, mad, sizeof(mad), e.now), 0);
	}
	assert_int_equal(cm_state(p.b), CM_ESTABLISHED);
	e.b.to = 0xbad; /* a DREQ for nobody is answered to where it came from */
	ends_sent(&e.b, CM_DREP);
	ends_lose(&e.b);
	ends_no_event(&e.b);
	e.b.to = ROUTE_TO_A;
	ends_inject(&e, true, &msg[4]); /* the same from its own route */
	ends_event(&e.b, CM_EV_REJ_RECEIVED);
	destroy_all();
}

/* A REP from the end that asked is nonsense, and is not answered. */
static void rep_from_requester(void **state)
{
	struct cm_msg rep = { .type = CM_REP };

	(void)state;
	ends_established(&e, &p);
	rep.rep.local_id = info_of(p.a).local_id;
	rep.rep.remote_id = info_of(p.b).local_id;
	ends_inject(&e, true, &rep);
	ends_no_event(&e.b);
	assert_int_equal(ends_lose(&e.b), 0);
	assert_int_equal(cm_state(p.b), CM_ESTABLISHED);
	destroy_all();
}

/* What comes late, for what the same id was used for before. */
static void late_messages(void **state)
{
	struct cm_req again = ends_req(0x12);
	struct cm_rep rep = { .qpn = 0x22 };
	struct cm_msg req, late;

	(void)state;
	ends_requested(&e, &p);
	ends_pass(&e, 4608 * MSEC);
	req = *ends_sent(&e.a, CM_REQ);
	ends_lose(&e.a);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, NULL, 0, e.now), 0);
	late = *ends_sent(&e.b, CM_REP);
	ends_lose(&e.b);
	assert_int_equal(cm_send_rej(e.a.cm, p.a, 28, NULL, 0, NULL, 0, e.now), 0);
	ends_lose(&e.a);
	assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &again, 16, NULL, 0, e.now), 0);
	ends_lose(&e.a);
	ends_inject(&e, false, &late);
	ends_no_event(&e.a);
	assert_int_equal(cm_state(p.a), CM_REQ_SENT);
	assert_int_equal(ends_sent(&e.a, CM_REJ)->rej.reason, CM_REJ_INVALID_COMM_ID);
	ends_deliver(&e, true);
	assert_int_equal(ends_event(&e.b, CM_EV_REJ_RECEIVED).msg.rej.reason, CM_REJ_INVALID_COMM_ID);
	ends_inject(&e, true, &req); /* a duplicate of what is over */
	ends_no_event(&e.b);
	/* The second request has the id of the first, and a transaction of its own. */
	ends_pass(&e, 4608 * MSEC);
	ends_deliver(&e, true);
	cm_destroy(e.b.cm, ends_event(&e.b, CM_EV_REQ_RECEIVED).conn, e.now);
	destroy_all();
}

static void req_in_timewait(void **state)
{
	struct cm_msg req;

	(void)state;
	ends_requested(&e, &p);
	ends_pass(&e, 4608 * MSEC);
	req = *ends_sent(&e.a, CM_REQ);
	ends_lose(&e.a);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &(struct cm_rep){ .qpn = 0x22 }, NULL, 0, e.now), 0);
	ends_settle(&e);
	ends_event(&e.a, CM_EV_REP_RECEIVED);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, NULL, 0, e.now), 0);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_settle(&e);
	e.b.nevents = 0;
	assert_int_equal(cm_send_drep(e.b.cm, p.b, NULL, 0, e.now), 0);
	ends_settle(&e);
	ends_event(&e.a, CM_EV_DREP_RECEIVED);
	ends_inject(&e, true, &req);
	ends_no_event(&e.b);
	assert_int_equal(ends_sent(&e.b, CM_REJ)->rej.reason, CM_REJ_STALE_CONN);
	destroy_all();
}

/* The DREQ that takes a REP back overtakes it. */
static void dreq_before_rep(void **state)
{
	struct cm_msg dreq;

	(void)state;
	ends_requested(&e, &p);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &(struct cm_rep){ .qpn = 0x22 }, NULL, 0, e.now), 0);
	cm_destroy(e.b.cm, p.b, e.now);
	ends_collect(&e.b);
	assert_int_equal(e.b.nsent, 3);
	dreq = e.b.sent[2];
	assert_int_equal(dreq.type, CM_DREQ);
	dreq.dreq.remote_qpn = 0x11;
	ends_inject(&e, false, &dreq);
	assert_int_equal(ends_lose(&e.a), 0); /* it is not answered yet */
	ends_no_event(&e.a);
	ends_settle(&e);
	assert_int_equal(e.a.nevents, 2);
	assert_int_equal(e.a.events[0].type, CM_EV_REP_RECEIVED);
	assert_int_equal(e.a.events[1].type, CM_EV_REJ_RECEIVED);
	cm_destroy(e.a.cm, p.a, e.now);
	cm_destroy(e.b.cm, p.listener, e.now);
	nothing_remains();
}

/* A peer whose REP names a queue pair that has a connection has forgotten that one. */
static void stale_rep(void **state)
{
	struct cm_req req = ends_req(0x12);
	struct cm_conn *again = NULL, *other;
	struct cm_msg rep = { .type = CM_REP };

	(void)state;
	ends_established(&e, &p);
	again = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_req(e.a.cm, again, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	other = ends_event(&e.b, CM_EV_REQ_RECEIVED).conn;
	assert_int_equal(cm_send_rep(e.b.cm, other, &(struct cm_rep){ .qpn = 0x22 }, NULL, 0, e.now), 0);
	rep = *ends_sent(&e.b, CM_REP);
	ends_lose(&e.b);
	ends_inject(&e, false, &rep);
	ends_no_event(&e.a);
	ends_collect(&e.a);
	assert_int_equal(e.a.nsent, 2);
	assert_int_equal(e.a.sent[0].rej.reason, CM_REJ_STALE_CONN);
	assert_int_equal(e.a.sent[1].type, CM_DREQ);
	assert_int_equal(cm_state(p.a), CM_DREQ_SENT);
	cm_destroy(e.a.cm, again, e.now);
	cm_destroy(e.b.cm, other, e.now);
	destroy_all();
}

/* Many timers, made and removed in any order: the earliest is always known. */
static void timers(void **state)
{
	enum { N = 300 };
	struct cm_conn *conns[N] = { NULL };
	uint64_t at[N], first;

	(void)state;
	srand(7);
	for (unsigned i = 0; i < 20000; i++) {
		unsigned k = (unsigned)rand() % N;

		/* From time to time the earliest goes again and again, so that those below come up. */
		for (unsigned j = 0; i / 500 % 2 && j < N; j++)
			if (conns[j] && at[j] == cm_next_deadline(e.a.cm))
				k = j;
		if (conns[k]) {
			cm_destroy(e.a.cm, conns[k], e.now);
			conns[k] = NULL;
		} else {
			conns[k] = cm_create(e.a.cm, NULL);
			at[k] = 1 + (uint64_t)rand() % 100000;
			assert_int_equal(
				cm_send_sidr_req(e.a.cm, conns[k], ROUTE_TO_B, 1, 0, at[k], 0, NULL, 0, 0),
				0);
		}
		ends_lose(&e.a);
		first = UINT64_MAX;
		for (unsigned j = 0; j < N; j++)
			if (conns[j] && at[j] < first)
				first = at[j];
		assert_true(cm_next_deadline(e.a.cm) == first);
	}
}

static void listeners(void **state)
{
	struct cm_conn *second = cm_create(e.b.cm, NULL);
	struct cm_req req = ends_req(0x11);
	uint64_t id = cm_service_id(CM_PS_TCP, SERVICE_PORT);

	(void)state;
	ends_listen(&e, &p);
	assert_int_equal(cm_listen(e.b.cm, second, id), -EADDRINUSE);
	assert_int_equal(cm_listen(e.b.cm, p.listener, id + 1), -EINVAL);
	assert_int_equal(cm_listen(e.b.cm, second, id + 1), 0);
	cm_destroy(e.b.cm, second, e.now);
	/* A listener that goes takes the requests along that its user has not seen. */
	p.a = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	ends_collect(&e.a);
	assert_int_equal(cm_receive(e.b.cm, ROUTE_TO_A, e.a.mads[0], CM_MAD_BYTES, e.now), 0);
	ends_lose(&e.a);
	cm_destroy(e.b.cm, p.listener, e.now);
	ends_settle(&e);
	ends_no_event(&e.b);
	assert_int_equal(ends_event(&e.a, CM_EV_REJ_RECEIVED).msg.rej.reason, CM_REJ_CONSUMER_DEFINED);
	cm_destroy(e.a.cm, p.a, e.now);
	nothing_remains();
}

static void backlog_full(void **state)
{
	(void)state;
	ends_requested(&e, &p);
	cm_drop(e.b.cm, p.b, e.now);
	assert_int_equal(ends_lose(&e.b), 0);
	ends_pass(&e, 4608 * MSEC);
	ends_deliver(&e, true);
	p.b = ends_event(&e.b, CM_EV_REQ_RECEIVED).conn;
	destroy_all();
}

/* Two connections of one process, over a route to itself. */
static void loopback(void **state)
{
	struct cm_rep rep = { .qpn = 0x22 };
	struct cm_req req = ends_req(0x11);

	(void)state;
	e.b.to = ROUTE_TO_B;
	ends_listen(&e, &p);
	p.a = cm_create(e.b.cm, NULL);
	assert_int_equal(cm_send_req(e.b.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	for (unsigned step = 0; step < 3; step++) {
		ends_collect(&e.b);
		assert_int_equal(e.b.nsent, 1);
		e.b.nsent = 0;
		assert_int_equal(cm_receive(e.b.cm, ROUTE_TO_B, e.b.mads[0], CM_MAD_BYTES, e.now), 0);
		if (step == 0) {
			p.b = ends_event(&e.b, CM_EV_REQ_RECEIVED).conn;
			assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, NULL, 0, e.now), 0);
		} else if (step == 1) {
			assert_ptr_equal(ends_event(&e.b, CM_EV_REP_RECEIVED).conn, p.a);
			assert_int_equal(cm_send_rtu(e.b.cm, p.a, NULL, 0, e.now), 0);
		} else {
			assert_ptr_equal(ends_event(&e.b, CM_EV_RTU_RECEIVED).conn, p.b);
		}
	}
	cm_destroy(e.b.cm, p.a, e.now);
	cm_destroy(e.b.cm, p.b, e.now);
	cm_destroy(e.b.cm, p.listener, e.now);
	ends_lose(&e.b);
	ends_pass(&e, 100000 * MSEC);
	assert_int_equal(cm_count(e.b.cm), 0);
	ends_lose(&e.b);
}

static void bounded(void **state)
{
	struct cm_config config = { .seed = UINT32_MAX - 1, .max_conns = 3 };
	struct cm *cm = cm_new(&config);
	struct cm_conn *c[3];
	struct cm_info info;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		c[i] = cm_create(cm, NULL);
		assert_non_null(c[i]);
		cm_query(c[i], &info);
		assert_int_not_equal(info.local_id, 0); /* 0 is no id, also when they wrap */
	}
	assert_null(cm_create(cm, NULL));
	cm_destroy(cm, c[1], 0);
	assert_non_null(cm_create(cm, NULL));
	cm_free(cm);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(whole_life),
		TEST(used_again),
		TEST(nobody_listens),
		TEST(impossible_requests),
		TEST(rejected),
		TEST(no_answer),
		TEST(lost_rep_and_rtu),
		TEST(duplicate_req),
		TEST(mra),
		TEST(data_before_rtu),
		TEST(dreq_instead_of_rtu),
		TEST(crossing_dreqs),
		TEST(lost_drep),
		TEST(no_drep),
		TEST(taken_back),
		TEST(established_for_nothing),
		TEST(rep_for_nobody),
		TEST(stale),
		TEST(strangers),
		TEST(rep_from_requester),
		TEST(late_messages),
		TEST(req_in_timewait),
		TEST(dreq_before_rep),
		TEST(stale_rep),
		TEST(timers),
		TEST(listeners),
		TEST(backlog_full),
		TEST(loopback),
		TEST(bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

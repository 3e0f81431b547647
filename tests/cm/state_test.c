/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * For every state: which calls it allows, what the end of the connection sends and the peer is told, and what
 * the death of the peer raises. Then service ID resolution.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "ends.h"

static struct ends e;
static struct ends_pair p;

static const uint64_t sidr_service = 0x1111b39;

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

static void idle(void)
{
	p.a = cm_create(e.a.cm, NULL);
}

static void listening(void)
{
	p.a = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_listen(e.a.cm, p.a, 1), 0);
}

static void requested(void)
{
	ends_requested(&e, &p);
}

static void request_delayed(void)
{
	ends_requested(&e, &p);
	assert_int_equal(cm_send_mra(e.b.cm, p.b, 20, false, NULL, 0, e.now), 0);
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_MRA_RECEIVED);
}

static void replied(void)
{
	ends_replied(&e, &p);
}

static void reply_delayed(void)
{
	ends_replied(&e, &p);
	assert_int_equal(cm_send_mra(e.a.cm, p.a, 20, false, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_MRA_RECEIVED);
}

static void established(void)
{
	ends_established(&e, &p);
}

static void ending(void)
{
	ends_established(&e, &p);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, NULL, 0, e.now), 0);
	ends_deliver(&e, true);
	ends_event(&e.b, CM_EV_DREQ_RECEIVED);
}

static void ended(void)
{
	ending();
	assert_int_equal(cm_send_drep(e.b.cm, p.b, NULL, 0, e.now), 0);
	ends_deliver(&e, false);
	ends_event(&e.a, CM_EV_DREP_RECEIVED);
}

static void resolving(void)
{
	p.listener = cm_create(e.b.cm, NULL);
	assert_int_equal(cm_listen(e.b.cm, p.listener, sidr_service), 0);
	p.a = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_sidr_req(e.a.cm, p.a, ROUTE_TO_B, sidr_service, 0xffff, 4096 * MSEC, 15,
				 "who", 3, e.now),
		0);
	ends_deliver(&e, true);
	p.b = ends_event(&e.b, CM_EV_SIDR_REQ_RECEIVED).conn;
}

/* What cm_destroy() sends in a state, and the event that it makes at the other end. 0: none. */
static const struct {
	enum cm_state state;
	void (*reach)(void);
	bool of_b;
	enum cm_type sends;
	uint16_t reason;
	enum cm_event_type other, gone; /* gone: the event when the other end's process dies */
	uint16_t gone_reason;
	enum cm_state after_gone;
} states[] = {
	{ CM_IDLE, idle, false, 0, 0, 0, 0, 0, CM_IDLE },
	{ CM_LISTEN, listening, false, 0, 0, 0, 0, 0, CM_LISTEN },
	{ CM_REQ_SENT, requested, false, CM_REJ, 4, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 28, CM_IDLE },
	{ CM_REQ_RCVD, requested, true, CM_REJ, 28, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 4, CM_IDLE },
	{ CM_MRA_REQ_RCVD, request_delayed, false, CM_REJ, 4, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 28,
		CM_IDLE },
	{ CM_MRA_REQ_SENT, request_delayed, true, CM_REJ, 28, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 4,
		CM_IDLE },
	{ CM_REP_RCVD, replied, false, CM_REJ, 28, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 28, CM_TIMEWAIT },
	{ CM_REP_SENT, replied, true, CM_REJ, 28, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 28, CM_IDLE },
	{ CM_MRA_REP_SENT, reply_delayed, false, CM_REJ, 28, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 28,
		CM_TIMEWAIT },
	{ CM_MRA_REP_RCVD, reply_delayed, true, CM_REJ, 28, CM_EV_REJ_RECEIVED, CM_EV_REJ_RECEIVED, 28,
		CM_IDLE },
	{ CM_ESTABLISHED, established, false, CM_DREQ, 0, CM_EV_DREQ_RECEIVED, CM_EV_DREQ_RECEIVED, 0,
		CM_DREQ_RCVD },
	{ CM_ESTABLISHED, established, true, CM_DREQ, 0, CM_EV_DREQ_RECEIVED, CM_EV_DREQ_RECEIVED, 0,
		CM_DREQ_RCVD },
	{ CM_DREQ_SENT, ending, false, 0, 0, 0, CM_EV_DREP_RECEIVED, 0, CM_TIMEWAIT },
	{ CM_DREQ_RCVD, ending, true, CM_DREP, 0, CM_EV_DREP_RECEIVED, 0, 0, CM_DREQ_RCVD },
	{ CM_TIMEWAIT, ended, false, 0, 0, 0, 0, 0, CM_TIMEWAIT },
	{ CM_SIDR_REQ_SENT, resolving, false, 0, 0, 0, CM_EV_SIDR_REP_RECEIVED, 0, CM_IDLE },
	{ CM_SIDR_REQ_RCVD, resolving, true, CM_SIDR_REP, 0, CM_EV_SIDR_REP_RECEIVED, 0, 0,
		CM_SIDR_REQ_RCVD },
};

enum { NSTATES = sizeof(states) / sizeof(states[0]) };

static struct cm_conn *subject(unsigned i)
{
	return states[i].of_b ? p.b : p.a;
}

/* Each state in a world of its own. */
static void each_state(void (*check)(unsigned i))
{
	for (unsigned i = 0; i < NSTATES; i++) {
		teardown(NULL);
		setup(NULL);
		states[i].reach();
		print_message("%s%s\n", cm_state_name(states[i].state), states[i].of_b ? ", b" : "");
		assert_int_equal(cm_state(subject(i)), states[i].state);
		check(i);
	}
}

static void check_destroy(unsigned i)
{
	bool of_b = states[i].of_b;
	struct end *own = of_b ? &e.b : &e.a, *other = of_b ? &e.a : &e.b;
	struct cm_event event;

	ends_lose(own);
	cm_destroy(own->cm, subject(i), e.now);
	ends_collect(own);
	if (states[i].sends) {
		assert_in_range(own->nsent, 1, 2); /* a DREQ may follow a REJ that takes a REP back */
		assert_int_equal(own->sent[0].type, states[i].sends);
	} else {
		assert_int_equal(own->nsent, 0);
	}
	ends_deliver(&e, !of_b);
	if (states[i].other) {
		event = ends_event(other, states[i].other);
		if (event.type == CM_EV_REJ_RECEIVED)
			assert_int_equal(event.msg.rej.reason, states[i].reason);
		if (event.type == CM_EV_SIDR_REP_RECEIVED)
			assert_int_equal(event.msg.sidr_rep.status, CM_SIDR_REJECT);
	}
	ends_no_event(own);
	ends_no_event(other);
	/* The other end is destroyed as well; then nothing is left. */
	if ((of_b ? p.a : p.b))
		cm_destroy(other->cm, of_b ? p.a : p.b, e.now);
	if (p.listener)
		cm_destroy(e.b.cm, p.listener, e.now);
	ends_settle(&e);
	ends_pass(&e, 200000 * MSEC);
	ends_settle(&e);
	ends_no_event(&e.a);
	ends_no_event(&e.b);
	assert_int_equal(cm_count(e.a.cm), 0);
	assert_int_equal(cm_count(e.b.cm), 0);
}

static void destroying(void **state)
{
	(void)state;
	each_state(check_destroy);
}

static void check_gone(unsigned i)
{
	bool of_b = states[i].of_b;
	struct end *own = of_b ? &e.b : &e.a;
	struct cm_conn *conn = subject(i);
	struct cm_event event;

	ends_lose(own);
	cm_peer_gone(own->cm, own->to, e.now);
	cm_tick(own->cm, e.now);
	if (states[i].gone) {
		event = ends_event(own, states[i].gone);
		assert_true(event.peer_gone);
		assert_ptr_equal(event.conn, conn);
		assert_int_equal(event.msg.private_length, cm_private_bytes(event.msg.type));
		if (event.type == CM_EV_REJ_RECEIVED)
			assert_int_equal(event.msg.rej.reason, states[i].gone_reason);
		if (event.type == CM_EV_SIDR_REP_RECEIVED)
			assert_int_equal(event.msg.sidr_rep.status, CM_SIDR_REJECT);
	}
	ends_no_event(own);
	assert_int_equal(cm_state(conn), states[i].after_gone);
	cm_peer_gone(own->cm, own->to, e.now); /* once is enough */
	ends_no_event(own);
	if (cm_state(conn) == CM_TIMEWAIT) {
		ends_pass(&e, 512 * MSEC);
		ends_event(own, CM_EV_TIMEWAIT_EXIT);
	}
	cm_destroy(own->cm, conn, e.now);
	assert_int_equal(ends_lose(own), 0);
	if (of_b)
		cm_destroy(own->cm, p.listener, e.now);
	assert_int_equal(cm_count(own->cm), 0);
}

static void peer_gone(void **state)
{
	(void)state;
	each_state(check_gone);
}

/* A user that answers a request whose peer is dead has an answer as well. */
static void answers_to_the_dead(void **state)
{
	struct cm_rep rep = { .qpn = 0x22 };

	(void)state;
	ends_requested(&e, &p);
	cm_peer_gone(e.b.cm, ROUTE_TO_A, e.now);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, NULL, 0, e.now), -EINVAL);
	ends_event(&e.b, CM_EV_REJ_RECEIVED);
	cm_destroy(e.b.cm, p.b, e.now);
	assert_int_equal(ends_lose(&e.b), 0);
	/* An id whose peer died may connect elsewhere. */
	ends_free(&e);
	setup(NULL);
	ends_requested(&e, &p);
	cm_peer_gone(e.a.cm, ROUTE_TO_B, e.now);
	ends_event(&e.a, CM_EV_REJ_RECEIVED);
	{
		struct cm_req req = ends_req(0x11);

		req.service_id++;
		assert_int_equal(cm_send_req(e.a.cm, p.a, ROUTE_TO_B, &req, 16, NULL, 0, e.now), 0);
	}
	ends_settle(&e);
	assert_int_equal(ends_event(&e.a, CM_EV_REJ_RECEIVED).msg.rej.reason, CM_REJ_STALE_CONN);
}

/* The calls that a state allows; all others are refused and change nothing. */
enum {
	LISTEN = 1,
	REQ = 2,
	REP = 4,
	RTU = 8,
	REJ = 16,
	MRA = 32,
	DREQ = 64,
	DREP = 128,
	SIDR_REQ = 256,
	SIDR_REP = 512,
	ESTABLISH = 1024
};

static const unsigned allowed[CM_STATES] = {
	[CM_IDLE] = LISTEN | REQ | SIDR_REQ,
	[CM_REQ_SENT] = REJ,
	[CM_REQ_RCVD] = REP | REJ | MRA,
	[CM_MRA_REQ_SENT] = REP | REJ,
	[CM_MRA_REQ_RCVD] = REJ,
	[CM_REP_SENT] = REJ | ESTABLISH,
	[CM_REP_RCVD] = RTU | REJ | MRA,
	[CM_MRA_REP_SENT] = RTU | REJ,
	[CM_MRA_REP_RCVD] = REJ | ESTABLISH,
	[CM_ESTABLISHED] = DREQ,
	[CM_DREQ_RCVD] = DREP,
	[CM_SIDR_REQ_RCVD] = SIDR_REP,
};

static int call(struct cm *cm, struct cm_conn *conn, cm_route to, unsigned what)
{
	struct cm_req req = ends_req(0x33);
	struct cm_rep rep = { .qpn = 0x44 };
	struct cm_sidr_rep answer = { .qpn = 0x44 };

	switch (what) {
	case LISTEN:
		return cm_listen(cm, conn, 0x99);
	case REQ:
		return cm_send_req(cm, conn, to, &req, 16, NULL, 0, e.now);
	case REP:
		return cm_send_rep(cm, conn, &rep, NULL, 0, e.now);
	case RTU:
		return cm_send_rtu(cm, conn, NULL, 0, e.now);
	case REJ:
		return cm_send_rej(cm, conn, 28, NULL, 0, NULL, 0, e.now);
	case MRA:
		return cm_send_mra(cm, conn, 20, false, NULL, 0, e.now);
	case DREQ:
		return cm_send_dreq(cm, conn, NULL, 0, e.now);
	case DREP:
		return cm_send_drep(cm, conn, NULL, 0, e.now);
	case SIDR_REQ:
		return cm_send_sidr_req(cm, conn, to, 1, 0xffff, MSEC, 1, NULL, 0, e.now);
	case SIDR_REP:
		return cm_send_sidr_rep(cm, conn, &answer, NULL, 0, e.now);
	default:
		return cm_establish(cm, conn);
	}
}

static void check_calls(unsigned i)
{
	struct end *own = states[i].of_b ? &e.b : &e.a;
	int refused;

	for (unsigned what = LISTEN; what <= ESTABLISH; what *= 2) {
		teardown(NULL);
		setup(NULL);
		states[i].reach();
		ends_lose(own);
		refused = what == ESTABLISH && states[i].state == CM_ESTABLISHED ? -EISCONN : -EINVAL;
		if (allowed[states[i].state] & what) {
			assert_int_equal(call(own->cm, subject(i), own->to, what), 0);
			assert_int_not_equal(cm_state(subject(i)), states[i].state);
			continue;
		}
		assert_int_equal(call(own->cm, subject(i), own->to, what), refused);
		assert_int_equal(cm_state(subject(i)), states[i].state);
		assert_int_equal(ends_lose(own), 0);
		ends_no_event(own);
	}
}

static void calls(void **state)
{
	(void)state;
	each_state(check_calls);
}

static void lengths(void **state)
{
	static const uint8_t much[CM_MAX_PRIVATE + 1];
	struct cm_req req = ends_req(0x11);
	struct cm_rep rep = { .qpn = 0x22 };

	(void)state;
	p.a = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_req(e.a.cm, p.a, 1, &req, 16, much, 93, e.now), -EINVAL);
	assert_int_equal(cm_send_req(e.a.cm, p.a, 1, &req, 16, NULL, 1, e.now), -EINVAL);
	assert_int_equal(cm_send_req(e.a.cm, p.a, 1, &req, 32, NULL, 0, e.now), -EINVAL);
	req.max_cm_retries = 16;
	assert_int_equal(cm_send_req(e.a.cm, p.a, 1, &req, 16, NULL, 0, e.now), -EINVAL);
	assert_int_equal(cm_send_sidr_req(e.a.cm, p.a, 1, 1, 0xffff, MSEC, 1, much, 217, e.now), -EINVAL);
	ends_requested(&e, &p);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, much, 197, e.now), -EINVAL);
	assert_int_equal(cm_send_rej(e.b.cm, p.b, 28, much, 73, NULL, 0, e.now), -EINVAL);
	assert_int_equal(cm_send_rej(e.b.cm, p.b, 28, NULL, 0, much, 149, e.now), -EINVAL);
	assert_int_equal(cm_send_mra(e.b.cm, p.b, 20, false, much, 223, e.now), -EINVAL);
	assert_int_equal(cm_send_mra(e.b.cm, p.b, 32, false, NULL, 0, e.now), -EINVAL);
	assert_int_equal(cm_send_rep(e.b.cm, p.b, &rep, much, 196, e.now), 0);
	ends_deliver(&e, false);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, much, 225, e.now), -EINVAL);
	assert_int_equal(cm_send_rtu(e.a.cm, p.a, much, 224, e.now), 0);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, much, 221, e.now), -EINVAL);
	assert_int_equal(cm_send_dreq(e.a.cm, p.a, much, 220, e.now), 0);
	ends_deliver(&e, true);
	assert_int_equal(cm_send_drep(e.b.cm, p.b, much, 225, e.now), -EINVAL);
	assert_int_equal(cm_send_drep(e.b.cm, p.b, much, 224, e.now), 0);
}

static void sidr(void **state)
{
	struct cm_sidr_rep rep = { .status = CM_SIDR_SUCCESS, .qpn = 0x77, .qkey = 0x01234567 };
	struct cm_msg req;
	struct cm_event event;

	(void)state;
	resolving();
	ends_pass(&e, 4096 * MSEC);
	req = *ends_sent(&e.a, CM_SIDR_REQ);
	ends_deliver(&e, true);
	ends_no_event(&e.b); /* a duplicate while the user thinks */
	assert_int_equal(cm_send_sidr_rep(e.b.cm, p.b, &rep, "me", 2, e.now), 0);
	ends_lose(&e.b);
	cm_destroy(e.b.cm, p.b, e.now);
	ends_inject(&e, true, &req);
	ends_no_event(&e.b); /* answered again, with the same */
	ends_deliver(&e, false);
	event = ends_event(&e.a, CM_EV_SIDR_REP_RECEIVED);
	assert_int_equal(event.msg.sidr_rep.qpn, 0x77);
	assert_int_equal(event.msg.sidr_rep.qkey, 0x01234567);
	assert_true(event.msg.sidr_rep.service_id == sidr_service);
	assert_string_equal((char *)event.msg.private_data, "me");
	assert_int_equal(cm_state(p.a), CM_IDLE);
	ends_pass(&e, 70000 * MSEC);
	assert_int_equal(cm_count(e.b.cm), 1);
	ends_no_event(&e.a);
}

static void sidr_for_nobody(void **state)
{
	(void)state;
	p.a = cm_create(e.a.cm, NULL);
	assert_int_equal(cm_send_sidr_req(e.a.cm, p.a, ROUTE_TO_B, 5, 0xffff, MSEC, 1, NULL, 0, e.now), 0);
	ends_settle(&e);
	assert_int_equal(ends_event(&e.a, CM_EV_SIDR_REP_RECEIVED).msg.sidr_rep.status, CM_SIDR_UNSUPPORTED);
	assert_int_equal(cm_send_sidr_req(e.a.cm, p.a, ROUTE_TO_B, 5, 0xffff, MSEC, 1, NULL, 0, e.now), 0);
	ends_pass(&e, 2 * MSEC);
	assert_int_equal(ends_lose(&e.a), 2);
	ends_event(&e.a, CM_EV_SIDR_REQ_ERROR);
	assert_int_equal(cm_state(p.a), CM_IDLE);
	cm_destroy(e.a.cm, p.a, e.now);
	assert_int_equal(cm_count(e.a.cm), 0);
}

static void state_names(void **state)
{
	(void)state;
	for (unsigned i = 0; i < CM_STATES; i++)
		assert_non_null(cm_state_name(i));
	assert_string_equal(cm_state_name(CM_STATES), "?");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(destroying),
		TEST(peer_gone),
		TEST(answers_to_the_dead),
		TEST(calls),
		TEST(lengths),
		TEST(sidr),
		TEST(sidr_for_nobody),
		TEST(state_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

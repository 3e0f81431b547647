/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "ends.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

void ends_make(struct ends *e)
{
	struct cm_config a = { .ca_guid = UINT64_C(0xa0a1a2a3a4a5a6a7), .seed = 1, .ack_delay = 10 };
	struct cm_config b = { .ca_guid = UINT64_C(0xb0b1b2b3b4b5b6b7), .seed = 1000, .ack_delay = 10 };

	memset(e, 0, sizeof(*e));
	e->now = 1000 * MSEC;
	e->a.cm = cm_new(&a);
	e->b.cm = cm_new(&b);
	assert_non_null(e->a.cm);
	assert_non_null(e->b.cm);
	e->a.to = ROUTE_TO_B;
	e->b.to = ROUTE_TO_A;
}

void ends_free(struct ends *e)
{
	cm_free(e->a.cm);
	cm_free(e->b.cm);
}

void ends_collect(struct end *end)
{
	struct cm_action action;

	while (cm_next_action(end->cm, &action)) {
		if (action.type == CM_EVENT) {
			assert_true(end->nevents < ENDS_EVENTS);
			end->events[end->nevents++] = action.event;
			continue;
		}
		assert_true(end->nsent < ENDS_SENT);
		assert_int_equal(action.send.route, end->to);
		assert_int_equal(cm_decode(action.send.mad, CM_MAD_BYTES, &end->sent[end->nsent]), 0);
		memcpy(end->mads[end->nsent++], action.send.mad, CM_MAD_BYTES);
	}
}

void ends_deliver(struct ends *e, bool to_b)
{
	struct end *from = to_b ? &e->a : &e->b, *to = to_b ? &e->b : &e->a;

	ends_collect(from);
	for (unsigned i = 0; i < from->nsent; i++)
		assert_int_equal(cm_receive(to->cm, to->to, from->mads[i], CM_MAD_BYTES, e->now), 0);
	from->nsent = 0;
	ends_collect(to);
}

void ends_settle(struct ends *e)
{
	ends_collect(&e->a);
	ends_collect(&e->b);
	while (e->a.nsent || e->b.nsent) {
		ends_deliver(e, true);
		ends_deliver(e, false);
	}
}

unsigned ends_lose(struct end *end)
{
	unsigned n;

	ends_collect(end);
	n = end->nsent;
	end->nsent = 0;
	return n;
}

void ends_inject(struct ends *e, bool to_b, const struct cm_msg *msg)
{
	struct end *to = to_b ? &e->b : &e->a;
	uint8_t mad[CM_MAD_BYTES];

	assert_int_equal(cm_encode(msg, mad), 0);
	assert_int_equal(cm_receive(to->cm, to->to, mad, CM_MAD_BYTES, e->now), 0);
	ends_collect(to);
}

void ends_pass(struct ends *e, uint64_t ns)
{
	uint64_t until = e->now + ns, at;

	for (;;) {
		at = cm_next_deadline(e->a.cm);
		if (cm_next_deadline(e->b.cm) < at)
			at = cm_next_deadline(e->b.cm);
		e->now = at < until ? at : until;
		cm_tick(e->a.cm, e->now);
		cm_tick(e->b.cm, e->now);
		ends_collect(&e->a);
		ends_collect(&e->b);
		if (at > until)
			return;
	}
}

struct cm_event ends_event(struct end *end, enum cm_event_type type)
{
	ends_collect(end);
	assert_int_equal(end->nevents, 1);
	assert_int_equal(end->events[0].type, type);
	end->nevents = 0;
	return end->events[0];
}

void ends_no_event(struct end *end)
{
	ends_collect(end);
	assert_int_equal(end->nevents, 0);
}

const struct cm_msg *ends_sent(struct end *end, enum cm_type type)
{
	ends_collect(end);
	assert_int_equal(end->nsent, 1);
	assert_string_equal(cm_type_name(end->sent[0].type), cm_type_name(type));
	return &end->sent[0];
}

struct cm_req ends_req(uint32_t qpn)
{
	return (struct cm_req){ .service_id = cm_service_id(CM_PS_TCP, SERVICE_PORT),
		.qpn = qpn,
		.responder_resources = 3,
		.initiator_depth = 5,
		.remote_response_timeout = CM_DEFAULT_RESPONSE_TIMEOUT,
		.starting_psn = 0x1234,
		.local_response_timeout = CM_DEFAULT_RESPONSE_TIMEOUT,
		.retry_count = 7,
		.pkey = 0xffff,
		.mtu = 3,
		.rnr_retry = 7,
		.max_cm_retries = CM_DEFAULT_RETRIES,
		.path = { .local_gid = { 1 }, .remote_gid = { 2 } } };
}

void ends_listen(struct ends *e, struct ends_pair *p)
{
	p->listener = cm_create(e->b.cm, p);
	assert_int_equal(cm_listen(e->b.cm, p->listener, cm_service_id(CM_PS_TCP, SERVICE_PORT)), 0);
}

void ends_requested(struct ends *e, struct ends_pair *p)
{
	struct cm_req req = ends_req(0x11);
	struct cm_event event;

	ends_listen(e, p);
	p->a = cm_create(e->a.cm, p);
	assert_int_equal(cm_send_req(e->a.cm, p->a, ROUTE_TO_B, &req, 16, "hello", 5, e->now), 0);
	ends_deliver(e, true);
	event = ends_event(&e->b, CM_EV_REQ_RECEIVED);
	assert_ptr_equal(event.listener, p->listener);
	p->b = event.conn;
	cm_set_user(p->b, p);
	assert_int_equal(cm_state(p->a), CM_REQ_SENT);
	assert_int_equal(cm_state(p->b), CM_REQ_RCVD);
}

void ends_replied(struct ends *e, struct ends_pair *p)
{
	struct cm_rep rep = { .qpn = 0x22,
		.starting_psn = 0x4321,
		.responder_resources = 2,
		.initiator_depth = 1,
		.rnr_retry = 6 };

	ends_requested(e, p);
	assert_int_equal(cm_send_rep(e->b.cm, p->b, &rep, "welcome", 7, e->now), 0);
	ends_deliver(e, false);
	ends_event(&e->a, CM_EV_REP_RECEIVED);
	assert_int_equal(cm_state(p->a), CM_REP_RCVD);
	assert_int_equal(cm_state(p->b), CM_REP_SENT);
}

void ends_established(struct ends *e, struct ends_pair *p)
{
	ends_replied(e, p);
	assert_int_equal(cm_send_rtu(e->a.cm, p->a, "ready", 5, e->now), 0);
	ends_deliver(e, true);
	ends_event(&e->b, CM_EV_RTU_RECEIVED);
	assert_int_equal(cm_state(p->a), CM_ESTABLISHED);
	assert_int_equal(cm_state(p->b), CM_ESTABLISHED);
}

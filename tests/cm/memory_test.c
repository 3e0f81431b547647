/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * No memory: each allocation of a connection's life fails once, in turn. What fails says so and changes
 * nothing, a message is as good as lost, and what a timer or a peer's death owes the user comes when there is
 * memory.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ends.h"

/* The number of the allocation that fails; it counts down. */
static unsigned long fails_at;
static bool failed;

static bool fails(void)
{
	if (!fails_at || --fails_at)
		return false;
	failed = true;
	return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return fails() ? NULL : __real_realloc(p, size);
}

struct world {
	struct cm *cm[2];
	struct cm_conn *conn[2], *listener;
	uint64_t now;
	unsigned seen[2];
};

/* Messages go to and fro, and time passes, until an end has had the event. */
static void until(struct world *w, unsigned end, enum cm_event_type type)
{
	struct cm_action action;

	for (unsigned tries = 0; !(w->seen[end] & 1u << type); tries++) {
		assert_true(tries < 100);
		for (unsigned i = 0; i < 2; i++) {
			while (cm_next_action(w->cm[i], &action)) {
				if (action.type == CM_SEND) {
					cm_receive(w->cm[!i], i, action.send.mad, CM_MAD_BYTES, w->now);
					continue;
				}
				assert_false(w->seen[i] & 1u << action.event.type);
				w->seen[i] |= 1u << action.event.type;
				if (action.event.type == CM_EV_REQ_RECEIVED)
					w->conn[1] = action.event.conn;
			}
		}
		w->now += 500 * MSEC;
		cm_tick(w->cm[0], w->now);
		cm_tick(w->cm[1], w->now);
	}
}

/* A call that has no memory leaves the state as it is; the second try succeeds. */
#define twice(call, conn)                                                                                    \
	do {                                                                                                 \
		enum cm_state was = cm_state(conn);                                                          \
		int err = call;                                                                              \
                                                                                                             \
		if (err) {                                                                                   \
			assert_int_equal(err, -ENOMEM);                                                      \
			assert_int_equal(cm_state(conn), was);                                               \
			assert_int_equal(call, 0);                                                           \
		}                                                                                            \
	} while (0)

static struct cm_conn *create(struct cm *cm)
{
	struct cm_conn *conn = cm_create(cm, NULL);

	return conn ? conn : cm_create(cm, NULL);
}

static void life(bool death)
{
	struct cm_config config[2] = { { .ca_guid = 1, .seed = 1 }, { .ca_guid = 2, .seed = 2 } };
	struct cm_rep rep = { .qpn = 2 };
	struct cm_req req = ends_req(1);
	struct world w = { .now = MSEC };

	for (unsigned i = 0; i < 2; i++) {
		w.cm[i] = cm_new(&config[i]);
		if (!w.cm[i])
			w.cm[i] = cm_new(&config[i]);
	}
	/* Both use the route of the peer's number; a message from end i comes by route i. */
	w.listener = create(w.cm[1]);
	assert_int_equal(cm_listen(w.cm[1], w.listener, req.service_id), 0);
	w.conn[0] = create(w.cm[0]);
	twice(cm_send_req(w.cm[0], w.conn[0], 1, &req, 16, NULL, 0, w.now), w.conn[0]);
	until(&w, 1, CM_EV_REQ_RECEIVED);
	twice(cm_send_rep(w.cm[1], w.conn[1], &rep, NULL, 0, w.now), w.conn[1]);
	until(&w, 0, CM_EV_REP_RECEIVED);
	twice(cm_send_rtu(w.cm[0], w.conn[0], NULL, 0, w.now), w.conn[0]);
	until(&w, 1, CM_EV_RTU_RECEIVED);
	if (death) {
		cm_peer_gone(w.cm[0], 1, w.now);
		cm_tick(w.cm[0], w.now);
		until(&w, 0, CM_EV_DREQ_RECEIVED);
	} else {
		twice(cm_send_dreq(w.cm[1], w.conn[1], NULL, 0, w.now), w.conn[1]);
		until(&w, 0, CM_EV_DREQ_RECEIVED);
		twice(cm_send_drep(w.cm[0], w.conn[0], NULL, 0, w.now), w.conn[0]);
		until(&w, 1, CM_EV_DREP_RECEIVED);
		until(&w, 0, CM_EV_TIMEWAIT_EXIT);
		until(&w, 1, CM_EV_TIMEWAIT_EXIT);
	}
	cm_destroy(w.cm[0], w.conn[0], w.now);
	cm_destroy(w.cm[1], w.conn[1], w.now);
	cm_free(w.cm[0]);
	cm_free(w.cm[1]);
}

static void each_allocation(bool death)
{
	unsigned long n = 0;

	do {
		failed = false;
		fails_at = ++n;
		life(death);
	} while (failed);
	fails_at = 0;
	assert_true(n > 10);
}

static void disconnected(void **state)
{
	(void)state;
	each_allocation(false);
}

static void peer_dies(void **state)
{
	(void)state;
	each_allocation(true);
}

/* Nothing at all is left when the peer dies; the event comes with a later tick. */
static void owed(void **state)
{
	struct ends e;
	struct ends_pair p;
	struct cm_action action;

	(void)state;
	ends_make(&e);
	ends_requested(&e, &p);
	/* Spare actions are used up by what is not taken. */
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(cm_send_req(e.a.cm, cm_create(e.a.cm, NULL), ROUTE_TO_A,
					 &(struct cm_req){ .mtu = 1, .service_id = i }, 16, NULL, 0, e.now),
			0);
	fails_at = 1;
	cm_peer_gone(e.a.cm, ROUTE_TO_B, e.now);
	assert_int_equal(fails_at, 0);
	while (cm_next_action(e.a.cm, &action))
		assert_int_equal(action.type, CM_SEND);
	assert_true(cm_next_deadline(e.a.cm) <= e.now);
	cm_tick(e.a.cm, e.now);
	ends_event(&e.a, CM_EV_REJ_RECEIVED);
	ends_free(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(disconnected),
		cmocka_unit_test(peer_dies),
		cmocka_unit_test(owed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

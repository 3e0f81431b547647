/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two processes that connect to each other over a wire that loses, repeats, delays and reorders messages, all
 * drawn from one seed; in some runs one of them dies.
 *
 *   sim_test             runs the seeds 1 .. SIM_SEEDS (environment; default 1500)
 *   sim_test SEED        runs one and tells what happens
 *
 * Each end starts attempts and answers those of the other as drawn: accepts, rejects, delays, cancels,
 * destroys, at any time. What must hold:
 *
 *   - a connection raises each event once at most, and one event at most that ends it;
 *   - an attempt raises one request at most (one more for each that was dropped as by a full backlog);
 *   - once all has settled both ends of an attempt are established, or neither is, and no connection hangs
 *     between; when a process died no connection to it is left;
 *   - then all is disconnected, and nothing remains: no connection, no timer.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cm/cm.h"

#define MSEC UINT64_C(1000000)
#define SEC  (1000 * MSEC)

enum { ATTEMPTS = 12, USERS = 64, FLYING = 4096, SERVICE = 1, NO_SERVICE = 2, FIRST_QPN = 100 };

static const uint64_t settled = 400 * SEC, over = 1600 * SEC;

/* The user's side of a connection. */
struct user {
	struct cm_conn *conn; /* NULL: destroyed, or not made */
	struct side *side;
	unsigned attempt;
	uint64_t act_at;
	unsigned seen; /* events, one bit each */
	bool ended;
};

struct side {
	struct cm *cm;
	struct cm_conn *listener;
	cm_route to;
	struct user users[USERS];
	unsigned nusers;
	uint64_t peer_gone_at;
};

struct attempt {
	struct user *asking, *asked; /* asked: the last, if there were several */
	unsigned requests, drops;
	bool rtu_sent;
};

struct frame {
	uint64_t at;
	struct side *to;
	uint8_t mad[CM_MAD_BYTES];
};

static struct sim {
	uint64_t rng, now, dies_at;
	struct side side[2];
	struct attempt attempts[ATTEMPTS];
	unsigned started;
	uint64_t next_attempt;
	struct frame flying[FLYING];
	unsigned nflying, loss, dup;
	uint64_t delay;
	bool verbose, disconnect;
} s;

static uint64_t current; /* seed */
static unsigned totals[CM_EV_SIDR_REQ_ERROR + 1], both_established, deaths;

static uint64_t rnd(uint64_t below)
{
	s.rng = s.rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (s.rng >> 33) % below;
}

static bool chance(unsigned percent)
{
	return rnd(100) < percent;
}

static void tell(const char *what, const struct user *u, unsigned detail)
{
	if (s.verbose)
		printf("%9.3f  end %d attempt %u: %s %u, %s\n", (double)s.now / SEC, (int)(u->side - s.side),
			u->attempt, what, detail, u->conn ? cm_state_name(cm_state(u->conn)) : "destroyed");
}

static struct user *new_user(struct side *side, struct cm_conn *conn, unsigned attempt)
{
	struct user *u = &side->users[side->nusers++];

	assert_true(side->nusers <= USERS);
	*u = (struct user){ .conn = conn, .side = side, .attempt = attempt, .act_at = UINT64_MAX };
	cm_set_user(conn, u);
	return u;
}

static void destroy(struct user *u)
{
	struct cm_conn *conn = u->conn;

	u->conn = NULL;
	u->act_at = UINT64_MAX;
	u->ended = true;
	cm_destroy(u->side->cm, conn, s.now);
	tell("destroy", u, 0);
}

static void act_later(struct user *u, uint64_t within)
{
	u->act_at = s.now + rnd(within);
}

/* The wire */

static void fly(struct side *to, const uint8_t *mad)
{
	struct frame *f;

	if (!to->cm || chance(s.loss))
		return;
	assert_true(s.nflying < FLYING);
	f = &s.flying[s.nflying++];
	f->at = s.now + rnd(s.delay);
	f->to = to;
	memcpy(f->mad, mad, CM_MAD_BYTES);
	if (chance(s.dup))
		fly(to, mad);
}

static void start(struct side *side)
{
	struct cm_req req = { .service_id = chance(90) ? SERVICE : NO_SERVICE,
		.qpn = FIRST_QPN + s.started,
		.remote_response_timeout = 18,
		.local_response_timeout = 18,
		.mtu = 3,
		.max_cm_retries = 15 };
	struct user *u = new_user(side, cm_create(side->cm, NULL), s.started);

	assert_non_null(u->conn);
	s.attempts[s.started++].asking = u;
	assert_int_equal(cm_send_req(side->cm, u->conn, side->to, &req, 16, NULL, 0, s.now), 0);
	if (chance(10))
		act_later(u, 5 * SEC); /* is cancelled */
	tell("start", u, 0);
}

/* What the user does, by the state that it finds. */

static void answer_request(struct user *u)
{
	struct cm_rep rep = { .qpn = 1000 + (uint32_t)(u - u->side->users) };
	struct cm *cm = u->side->cm;
	unsigned what = (unsigned)rnd(100);

	if (what < 8 && cm_state(u->conn) == CM_REQ_RCVD) {
		assert_int_equal(cm_send_mra(cm, u->conn, 17, chance(50), NULL, 0, s.now), 0);
		act_later(u, 10 * SEC);
	} else if (what < 14) {
		s.attempts[u->attempt].drops++;
		u->ended = true;
		u->act_at = UINT64_MAX;
		cm_drop(cm, u->conn, s.now);
		u->conn = NULL;
	} else if (what < 20) {
		destroy(u);
	} else if (what < 30) {
		assert_int_equal(cm_send_rej(cm, u->conn, 28, NULL, 0, NULL, 0, s.now), 0);
		u->ended = true;
		act_later(u, SEC);
	} else {
		assert_int_equal(cm_send_rep(cm, u->conn, &rep, NULL, 0, s.now), 0);
		u->act_at = UINT64_MAX;
		if (chance(20))
			act_later(u, 3 * SEC); /* an RTU that is not awaited, or taken back */
	}
}

static void answer_reply(struct user *u)
{
	struct cm *cm = u->side->cm;
	unsigned what = (unsigned)rnd(100);

	if (what < 8 && cm_state(u->conn) == CM_REP_RCVD) {
		assert_int_equal(cm_send_mra(cm, u->conn, 17, false, NULL, 0, s.now), 0);
		act_later(u, 10 * SEC);
	} else if (what < 12) {
		destroy(u);
	} else if (what < 18) {
		assert_int_equal(cm_send_rej(cm, u->conn, 28, NULL, 0, NULL, 0, s.now), 0);
		u->ended = true;
		act_later(u, SEC);
	} else {
		assert_int_equal(cm_send_rtu(cm, u->conn, NULL, 0, s.now), 0);
		s.attempts[u->attempt].rtu_sent = true;
		u->act_at = UINT64_MAX;
		if (chance(30))
			act_later(u, 20 * SEC); /* ends early */
	}
}

static void act(struct user *u)
{
	struct cm *cm = u->side->cm;

	u->act_at = UINT64_MAX;
	tell("act", u, 0);
	if (u->ended && cm_state(u->conn) != CM_DREQ_RCVD) {
		destroy(u);
		return;
	}
	switch (cm_state(u->conn)) {
	case CM_REQ_RCVD:
	case CM_MRA_REQ_SENT:
		answer_request(u);
		break;
	case CM_REP_RCVD:
	case CM_MRA_REP_SENT:
		answer_reply(u);
		break;
	case CM_REP_SENT:
	case CM_MRA_REP_RCVD:
		if (s.attempts[u->attempt].rtu_sent && chance(50)) {
			assert_int_equal(cm_establish(cm, u->conn), 0);
		} else if (chance(50)) {
			assert_int_equal(cm_send_rej(cm, u->conn, 28, NULL, 0, NULL, 0, s.now), 0);
			u->ended = true;
			act_later(u, SEC);
		} else {
			destroy(u);
		}
		break;
	case CM_ESTABLISHED:
		if (chance(70))
			assert_int_equal(cm_send_dreq(cm, u->conn, NULL, 0, s.now), 0);
		else
			destroy(u);
		break;
	case CM_DREQ_RCVD:
		if (chance(70)) {
			assert_int_equal(cm_send_drep(cm, u->conn, NULL, 0, s.now), 0);
			act_later(u, 2 * SEC);
		} else {
			destroy(u);
		}
		break;
	default:
		destroy(u);
	}
}

/* Events */

static bool ends_it(enum cm_event_type type)
{
	return type == CM_EV_REJ_RECEIVED || type == CM_EV_DREQ_RECEIVED || type == CM_EV_DREP_RECEIVED ||
	       type == CM_EV_REQ_ERROR || type == CM_EV_REP_ERROR || type == CM_EV_DREQ_ERROR;
}

static unsigned endings(unsigned seen)
{
	unsigned n = 0;

	for (unsigned i = 1; i <= CM_EV_SIDR_REQ_ERROR; i++)
		n += ends_it(i) && seen & 1u << i;
	return n;
}

static void on_event(struct side *side, const struct cm_event *event)
{
	struct user *u = event->user;

	totals[event->type]++;
	if (event->type == CM_EV_REQ_RECEIVED) {
		unsigned attempt = event->msg.req.qpn - FIRST_QPN;

		assert_null(u);
		assert_true(attempt < s.started);
		assert_ptr_equal(event->listener, side->listener);
		u = new_user(side, event->conn, attempt);
		s.attempts[attempt].asked = u;
		s.attempts[attempt].requests++;
		tell("request", u, s.attempts[attempt].requests);
		assert_true(s.attempts[attempt].requests <= 1 + s.attempts[attempt].drops);
	}
	assert_non_null(u);
	assert_ptr_equal(u->conn, event->conn);
	tell("event", u, event->type);
	assert_false(u->seen & 1u << event->type);
	u->seen |= 1u << event->type;
	assert_true(endings(u->seen) <= 1);
	if (event->type == CM_EV_USER_ESTABLISHED)
		assert_false(u->seen & 1u << CM_EV_RTU_RECEIVED);
	if (ends_it(event->type)) {
		u->ended = true;
		act_later(u, 3 * SEC);
	} else if (event->type == CM_EV_REQ_RECEIVED || event->type == CM_EV_REP_RECEIVED) {
		act_later(u, 500 * MSEC);
	} else if (s.disconnect && event->type != CM_EV_MRA_RECEIVED) {
		act_later(u, SEC);
	}
}

static void collect(void)
{
	struct cm_action action;

	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &s.side[i];

		while (side->cm && cm_next_action(side->cm, &action)) {
			if (action.type == CM_EVENT) {
				on_event(side, &action.event);
				continue;
			}
			assert_int_equal(action.send.route, side->to);
			fly(&s.side[!i], action.send.mad);
		}
	}
}

/* Time */

static void die(void)
{
	struct side *dead = &s.side[0], *other = &s.side[1];

	s.dies_at = UINT64_MAX;
	deaths++;
	cm_free(dead->cm);
	dead->cm = NULL;
	dead->nusers = 0;
	other->peer_gone_at = s.now + rnd(SEC);
	if (s.verbose)
		printf("%9.3f  end 0 dies\n", (double)s.now / SEC);
}

static void learn_of_death(struct side *side)
{
	side->peer_gone_at = UINT64_MAX;
	for (unsigned i = s.nflying; i--;)
		if (s.flying[i].to == side)
			s.flying[i] = s.flying[--s.nflying];
	cm_peer_gone(side->cm, side->to, s.now);
	cm_tick(side->cm, s.now);
	s.next_attempt = UINT64_MAX;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t next_time(void)
{
	uint64_t at = earlier(s.dies_at, s.next_attempt);

	for (unsigned i = 0; i < s.nflying; i++)
		at = earlier(at, s.flying[i].at);
	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &s.side[i];

		if (!side->cm)
			continue;
		at = earlier(at, earlier(side->peer_gone_at, cm_next_deadline(side->cm)));
		for (unsigned j = 0; j < side->nusers; j++)
			at = earlier(at, side->users[j].act_at);
	}
	return at;
}

static void arrive(void)
{
	for (unsigned i = 0; i < s.nflying; i++) {
		struct frame f = s.flying[i];

		if (f.at > s.now)
			continue;
		s.flying[i--] = s.flying[--s.nflying];
		if (f.to->cm)
			assert_int_equal(cm_receive(f.to->cm, f.to->to, f.mad, CM_MAD_BYTES, s.now), 0);
		collect();
	}
}

static void one_moment(void)
{
	if (s.dies_at <= s.now)
		die();
	if (s.next_attempt <= s.now) {
		struct side *side = &s.side[s.side[0].cm ? rnd(2) : 1];

		start(side);
		s.next_attempt = s.started < ATTEMPTS ? s.now + rnd(5 * SEC) : UINT64_MAX;
	}
	arrive();
	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &s.side[i];

		if (!side->cm)
			continue;
		if (side->peer_gone_at <= s.now)
			learn_of_death(side);
		cm_tick(side->cm, s.now);
		collect();
		for (unsigned j = 0; j < side->nusers; j++)
			if (side->users[j].act_at <= s.now)
				act(&side->users[j]);
		collect();
	}
}

static void run_until(uint64_t end)
{
	for (uint64_t at; (at = next_time()) <= end;) {
		s.now = at;
		one_moment();
	}
	s.now = end;
}

/* What must hold */

static bool is_established(const struct user *u)
{
	return u && u->conn && cm_state(u->conn) == CM_ESTABLISHED;
}

static void check_agreement(void)
{
	bool death = !s.side[0].cm;

	for (unsigned i = 0; i < s.started && !death; i++) {
		assert_int_equal(is_established(s.attempts[i].asking), is_established(s.attempts[i].asked));
		both_established += is_established(s.attempts[i].asking);
	}
	for (unsigned i = death; i < 2; i++)
		for (unsigned j = 0; j < s.side[i].nusers; j++) {
			struct user *u = &s.side[i].users[j];

			assert_true(!u->conn || (!death && is_established(u)));
		}
}

static void disconnect_all(void)
{
	s.disconnect = true;
	for (unsigned i = 0; i < 2; i++)
		for (unsigned j = 0; s.side[i].cm && j < s.side[i].nusers; j++)
			if (s.side[i].users[j].conn && (i || chance(50)))
				act_later(&s.side[i].users[j], SEC);
}

static void make(uint64_t seed)
{
	bool verbose = s.verbose;

	memset(&s, 0, sizeof(s));
	s.verbose = verbose;
	s.rng = seed * UINT64_C(0x9e3779b97f4a7c15);
	for (unsigned i = 0; i < 2; i++) {
		struct cm_config config = { .ca_guid = 0xa0 + i, .seed = rnd(UINT32_MAX), .ack_delay = 10 };

		s.side[i].cm = cm_new(&config);
		s.side[i].to = 10 + i;
		s.side[i].peer_gone_at = UINT64_MAX;
		s.side[i].listener = cm_create(s.side[i].cm, NULL);
		assert_int_equal(cm_listen(s.side[i].cm, s.side[i].listener, SERVICE), 0);
	}
	s.loss = chance(20) ? 0 : (unsigned)rnd(25);
	s.dup = (unsigned)rnd(20);
	s.delay = chance(20) ? 1 : 1 + rnd(120 * MSEC);
	s.dies_at = chance(25) ? rnd(60 * SEC) : UINT64_MAX;
}

static void run(uint64_t seed)
{
	make(seed);
	run_until(settled);
	check_agreement();
	disconnect_all();
	run_until(over);
	for (unsigned i = 0; i < 2; i++) {
		struct side *side = &s.side[i];

		if (!side->cm)
			continue;
		for (unsigned j = 0; j < side->nusers; j++)
			assert_null(side->users[j].conn);
		assert_true(cm_next_deadline(side->cm) == UINT64_MAX);
		assert_int_equal(cm_count(side->cm), 1);
		cm_destroy(side->cm, side->listener, s.now);
		assert_int_equal(cm_count(side->cm), 0);
		cm_free(side->cm);
	}
	assert_int_equal(s.nflying, 0);
}

static void seeds(void **state)
{
	const char *env = getenv("SIM_SEEDS");
	uint64_t n = env ? strtoull(env, NULL, 0) : 1500;

	(void)state;
	for (current = 1; current <= n; current++)
		run(current);
	/* The seeds reach what they are for. */
	assert_true(both_established > n / 2);
	assert_true(deaths > n / 10);
	for (unsigned i = CM_EV_REQ_RECEIVED; i <= CM_EV_TIMEWAIT_EXIT; i++)
		if (i != CM_EV_REQ_ERROR && i != CM_EV_REP_ERROR && i != CM_EV_DREQ_ERROR)
			assert_true(totals[i] > n / 100);
}

static uint64_t one_seed;

static void one(void **state)
{
	(void)state;
	s.verbose = true;
	run(one_seed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = { cmocka_unit_test(seeds) };
	const struct CMUnitTest single[] = { cmocka_unit_test(one) };

	if (argc > 1) {
		one_seed = strtoull(argv[1], NULL, 0);
		return cmocka_run_group_tests(single, NULL, NULL);
	}
	argc = cmocka_run_group_tests(all, NULL, NULL);
	if (argc)
		fprintf(stderr, "seed %" PRIu64 "\n", current);
	return argc;
}

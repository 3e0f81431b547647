/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Meetings that do not go as they should: what one side lacks at the wrong moment, refusals, ends in between.
 * The linker sends the calls that fail through this file.
 */
#include "party.h"

#include <poll.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "wire/channel.h"
#include "wire/inbound.h"
#include "wire/layout.h"
#include "wire/meet.h"
#include "wire/peer.h"

int __real_meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n);
int __wrap_meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n);
int __real_meet_connect(const struct meet_name *n);
int __wrap_meet_connect(const struct meet_name *n);
int __real_meet_accept(int listener);
int __wrap_meet_accept(int listener);

/* The error of the next calls, and how many there will be. */
static struct trouble {
	int err, calls;
} answering, hailing, connecting, accepting;

static bool in_trouble(struct trouble *t)
{
	return t->calls && t->calls--;
}

int __wrap_meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n)
{
	if (m->magic == LAYOUT_ANSWER_MAGIC && in_trouble(&answering))
		return answering.err;
	if (m->magic == LAYOUT_HELLO_MAGIC && in_trouble(&hailing))
		return hailing.err;
	return __real_meet_send(sock, m, fd, n);
}

int __wrap_meet_connect(const struct meet_name *n)
{
	return in_trouble(&connecting) ? connecting.err : __real_meet_connect(n);
}

int __wrap_meet_accept(int listener)
{
	return in_trouble(&accepting) ? accepting.err : __real_meet_accept(listener);
}

static struct party a, b;
static struct wire_flow ab;
static uint32_t to_b;

static int parties(void **state)
{
	party_open(&a, 256);
	party_open(&b, 256);
	to_b = wire_slot(b.w);
	answering.calls = hailing.calls = connecting.calls = accepting.calls = 0;
	return 0;
}

static int no_parties(void **state)
{
	party_end_flow(&ab);
	party_close(&a);
	party_close(&b);
	return 0;
}

static bool rings(struct party *p)
{
	struct pollfd fd = { wire_fd(p->w), POLLIN, 0 };

	return poll(&fd, 1, 0) == 1;
}

/* As an engine does that sleeps: serves the wire only when its descriptor says so. */
#define until_woken(p, condition)                                                                            \
	do {                                                                                                 \
		uint64_t until_ = clock_ns() + PARTY_WAIT;                                                   \
                                                                                                             \
		while (!(condition)) {                                                                       \
			if (rings(p))                                                                        \
				wire_service((p)->w, clock_ns());                                            \
			wire_poll((p)->w, 64);                                                               \
			assert_true(clock_ns() < until_);                                                    \
		}                                                                                            \
	} while (0)

static void all_is_well(void)
{
	party_until(&a, &b, ab.channel->state == CHANNEL_OPEN);
	party_release_all(&b);
	b.ngot = 0;
	assert_false(wire_arm(b.w));
	while (rings(&b))
		wire_service(b.w, clock_ns());
	assert_int_equal(party_send(&ab, to_b, 1, 100, 9), 0);
	/* B is known to sleep, and woken. */
	assert_true(rings(&b));
	wire_disarm(b.w);
	party_until(&a, &b, b.ngot == 1);
	assert_int_equal(a.ngone + b.ngone, 0);
}

static void an_answer_that_cannot_be_sent_is_sent_later(void **state)
{
	answering = (struct trouble){ -ETOOMANYREFS, 3 };
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	party_until(&a, &b, b.ngot == 1);
	assert_int_equal(answering.calls, 0);
	all_is_well();
}

/* A queue pair that is connected anew must not get what was sent to it before, by whoever has yet to be met.
 */
static void catching_up_hears_who_has_just_called(void **state)
{
	party_flow(&ab, &a, to_b);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(party_send(&ab, to_b, 1, 100, i), 0);
	wire_catch_up(b.w, wire_slot(a.w));
	assert_int_equal(b.ngot, 5);
	all_is_well();
}

/* Catching up takes the engine's events, and leaves it what follows. */
static void who_cannot_be_answered_while_catching_up_is_answered_later(void **state)
{
	answering = (struct trouble){ -ETOOMANYREFS, 3 };
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	wire_catch_up(b.w, wire_slot(a.w));
	until_woken(&b, b.ngot == 1);
	all_is_well();
}

static void an_end_that_is_found_while_catching_up_is_told(void **state)
{
	struct wire_flow ba;
	struct peer *p;

	party_flow(&ab, &a, to_b);
	party_flow(&ba, &b, wire_slot(a.w));
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	assert_int_equal(party_send(&ba, wire_slot(a.w), 1, 100, 1), 0);
	party_until(&a, &b, b.ngot == 1 && a.ngot == 1);
	while (rings(&a) || rings(&b)) {
		party_pump(&a);
		party_pump(&b);
	}
	/* A hangs up and calls again. */
	p = peer_of(a.w, to_b);
	atomic_store(&p->rx->broken, true);
	atomic_store(&a.w->broken, true);
	party_until(&a, &a, a.ngone == 1);
	party_end_flow(&ab);
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 2), 0);
	/* B's engine has not looked; B connects to somebody else. */
	wire_catch_up(b.w, 1 + to_b % 4000);
	until_woken(&b, b.ngone == 1 && b.ngot == 2);
	party_end_flow(&ba);
	a.ngone = b.ngone = 0;
	all_is_well();
}

static void catching_up_hears_who_waits_for_an_answer(void **state)
{
	answering = (struct trouble){ -ETOOMANYREFS, 1000 };
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	wire_service(b.w, clock_ns());
	assert_true(answering.calls < 1000);
	answering.calls = 0;
	wire_catch_up(b.w, wire_slot(a.w));
	assert_int_equal(b.ngot, 1);
	all_is_well();
}

/* Meanwhile the only one who knew the peer has forgotten it. */
static void who_is_answered_late_is_watched_all_the_same(void **state)
{
	struct wire_flow ba;

	answering = (struct trouble){ -ETOOMANYREFS, 1000 };
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	wire_service(b.w, clock_ns());
	assert_true(answering.calls < 1000);
	answering.calls = 0;
	connecting = (struct trouble){ -EAGAIN, 1 };
	party_flow(&ba, &b, wire_slot(a.w));
	party_end_flow(&ba);
	connecting.calls = 0;
	party_until(&a, &b, b.ngot == 1);
	assert_true(peer_of(b.w, wire_slot(a.w))->pidfd >= 0);
	all_is_well();
}

/* More than may claim slots without proof. */
#define CROWD 80

static void a_crowd_is_answered_when_it_can_be(void **state)
{
	static struct party c[CROWD];
	static struct wire_flow f[CROWD];
	struct rlimit old, many;
	unsigned peers = 0;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	many = old;
	many.rlim_cur = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &many), 0);
	party_flow(&ab, &a, to_b);
	answering = (struct trouble){ -ETOOMANYREFS, 1000000 };
	for (int i = 0; i < CROWD; i++) {
		party_open(&c[i], 8);
		party_flow(&f[i], &c[i], to_b);
		assert_int_equal(party_send(&f[i], to_b, 1, 100, 1), 0);
	}
	/* All have asked, half of them give up before they are answered. */
	for (int i = 0; i < 20; i++)
		wire_service(b.w, clock_ns());
	for (int i = 0; i < CROWD; i += 2) {
		party_end_flow(&f[i]);
		party_close(&c[i]);
	}
	answering.calls = 0;
	for (uint64_t end = clock_ns() + PARTY_WAIT; b.ngot < CROWD; party_pump(&b)) {
		assert_true(clock_ns() < end);
		for (int i = 1; i < CROWD; i += 2)
			party_pump(&c[i]);
	}
	for (int i = 1; i < CROWD; i += 2) {
		assert_int_equal(c[i].ngone, 0);
		party_end_flow(&f[i]);
		party_close(&c[i]);
	}
	party_until(&b, &b, b.ngone == CROWD);
	for (uint32_t i = 1; i < LAYOUT_QPS; i++)
		peers += b.w->peers[i] != NULL;
	assert_true(peers <= 1); /* a */
	b.ngone = 0;
	all_is_well();
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static void who_dies_before_the_answer_is_heard_out(void **state)
{
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	answering = (struct trouble){ -ETOOMANYREFS, 1000 };
	for (int i = 0; i < 3; i++)
		party_pump(&b);
	assert_int_equal(b.ngot, 0);
	party_end_flow(&ab);
	party_close(&a);
	party_until(&b, &b, b.ngot == 1 && b.ngone == 1);
	party_open(&a, 256);
	party_flow(&ab, &a, to_b);
}

static void what_cannot_be_sent_for_want_of_anything_is_sent_later(struct trouble *t, int err)
{
	*t = (struct trouble){ err, 3 };
	party_flow(&ab, &a, to_b);
	/* The wire keeps it: who waits for it may have no timer. */
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	party_until(&a, &b, b.ngot == 1);
	assert_int_equal(t->calls, 0);
	all_is_well();
}

static void without_descriptors_packets_wait(void **state)
{
	what_cannot_be_sent_for_want_of_anything_is_sent_later(&connecting, -EMFILE);
}

static void with_too_many_descriptors_under_way_packets_wait(void **state)
{
	what_cannot_be_sent_for_want_of_anything_is_sent_later(&hailing, -ETOOMANYREFS);
}

static void nobody_is_waited_for_where_nobody_is(void **state)
{
	connecting = (struct trouble){ -ECONNREFUSED, 1 };
	party_flow(&ab, &a, to_b);
	connecting = (struct trouble){ -ECONNREFUSED, 1 };
	ab.channel->retry_at = 0;
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), -EPIPE);
	party_pump(&a);
	assert_int_equal(a.ngone, 0);
}

static void packets_for_somebody_who_has_gone_are_told(void **state)
{
	connecting = (struct trouble){ -EAGAIN, 1000000 };
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	party_pump(&a);
	assert_int_equal(a.ngone, 0);
	connecting.calls = 0;
	party_close(&b);
	party_until(&a, &a, a.ngone == 1);
	assert_int_equal(a.gone_slot, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 2), -EPIPE);
	party_open(&b, 256);
}

static void who_is_turned_away_is_not_taken_for_dying(void **state)
{
	uint64_t end = clock_ns() + PARTY_WAIT;
	struct peer *p;

	accepting = (struct trouble){ -EMFILE, 1 };
	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	wire_service(b.w, clock_ns());
	assert_int_equal(accepting.calls, 0);
	/* Once it has heard, it has no reason to wait for anything. */
	do {
		assert_true(clock_ns() < end);
		wire_service(a.w, clock_ns());
		p = peer_of(a.w, to_b);
	} while (p && !p->ending);
	assert_null(p);
	assert_int_equal(a.ngone, 1);
	assert_int_equal(a.ndead, 0);
	party_end_flow(&ab);
	party_flow(&ab, &a, to_b);
	a.ngone = 0;
	all_is_well();
}

/* Not all that the last connection brought has been taken when the next one is made. */
static void who_connects_during_an_end_reaches_whoever_comes_next(void **state)
{
	struct wire_flow ba, again;
	struct peer *p;

	party_flow(&ab, &a, to_b);
	party_flow(&ba, &b, wire_slot(a.w));
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	assert_int_equal(party_send(&ba, wire_slot(a.w), 1, 100, 1), 0);
	party_until(&a, &b, b.ngot == 1 && a.ngot == 1);
	a.starve = true;
	assert_int_equal(party_send(&ba, wire_slot(a.w), 1, 100, 2), 0);
	/* B finds fault with A and hangs up. */
	p = peer_of(b.w, wire_slot(a.w));
	atomic_store(&p->rx->broken, true);
	atomic_store(&b.w->broken, true);
	party_until(&b, &b, b.ngone == 1);
	party_end_flow(&ba);
	party_until(&a, &a, peer_of(a.w, to_b)->ending);
	assert_int_equal(a.ngone, 0);
	party_flow(&again, &a, to_b);
	assert_ptr_not_equal(again.channel, ab.channel);
	party_end_flow(&ab);
	ab = again;
	list_init(&ab.waiting);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 3), -EPIPE);
	a.starve = false;
	party_until(&a, &a, a.ngone == 1);
	assert_int_equal(a.got_at_gone, 2);
	b.ngone = a.ngone = 0;
	all_is_well();
}

static void who_connects_during_an_end_may_leave_again(void **state)
{
	struct wire_flow ba, again;

	party_flow(&ab, &a, to_b);
	party_flow(&ba, &b, wire_slot(a.w));
	assert_int_equal(party_send(&ba, wire_slot(a.w), 1, 100, 1), 0);
	party_until(&a, &b, a.ngot == 1);
	a.starve = true;
	assert_int_equal(party_send(&ba, wire_slot(a.w), 1, 100, 2), 0);
	party_end_flow(&ba);
	party_close(&b);
	party_until(&a, &a, peer_of(a.w, to_b)->ending);
	party_flow(&again, &a, to_b);
	party_end_flow(&again);
	assert_null(peer_of(a.w, to_b)->heir);
	a.starve = false;
	party_until(&a, &a, a.ngone == 1);
	assert_null(peer_of(a.w, to_b));
	party_open(&b, 256);
}

/* Everything up to the limit is taken, but for what the wire keeps for itself. */
static void an_answer_is_heard_without_a_free_descriptor(void **state)
{
	static int taken[2 * FD_HIGH];
	struct rlimit old, few;
	unsigned n = 0;

	party_flow(&ab, &a, to_b);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 1), 0);
	party_until(&b, &b, b.ngot == 1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	few.rlim_cur = FD_HIGH + 64;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	while (n < 2 * FD_HIGH && (taken[n] = dup(0)) >= 0)
		n++;
	assert_true(n < 2 * FD_HIGH);
	while (rings(&a))
		wire_service(a.w, clock_ns());
	assert_int_equal(ab.channel->state, CHANNEL_OPEN);
	assert_true(a.w->spare >= 0);
	while (n)
		close(taken[--n]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	all_is_well();
}

int main(void)
{
#define met(test) cmocka_unit_test_setup_teardown(test, parties, no_parties)
	const struct CMUnitTest tests[] = {
		met(an_answer_that_cannot_be_sent_is_sent_later),
		met(catching_up_hears_who_has_just_called),
		met(who_cannot_be_answered_while_catching_up_is_answered_later),
		met(an_end_that_is_found_while_catching_up_is_told),
		met(catching_up_hears_who_waits_for_an_answer),
		met(who_is_answered_late_is_watched_all_the_same),
		met(a_crowd_is_answered_when_it_can_be),
		met(who_dies_before_the_answer_is_heard_out),
		met(without_descriptors_packets_wait),
		met(with_too_many_descriptors_under_way_packets_wait),
		met(nobody_is_waited_for_where_nobody_is),
		met(packets_for_somebody_who_has_gone_are_told),
		met(who_is_turned_away_is_not_taken_for_dying),
		met(who_connects_during_an_end_reaches_whoever_comes_next),
		met(who_connects_during_an_end_may_leave_again),
		met(an_answer_is_heard_without_a_free_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The impaired fabric: its dice, alone and on a wire. Counts and orders decide; time is told or waited for.
 */
#include "party.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "wire/impair.h"

#define PPM(percent) ((percent)*10000u)
#define PACKETS	     20000u
#define BUFFERS	     1024u

/* --- the dice --- */

struct alone {
	struct impair *m;
	struct unpin_device_counters counters;
	uint32_t next;	       /* tag of the next packet */
	uint32_t out[PACKETS]; /* tags in the order in which they went into the ring */
	uint32_t nout;
};

static struct alone *alone_new(uint32_t loss, uint32_t reorder, uint64_t delay, uint64_t seed, uint32_t nth)
{
	struct wire_impairment cfg = { loss, reorder, delay, seed };
	struct alone *a = calloc(1, sizeof(*a));

	assert_non_null(a);
	a->m = impair_new(&cfg, nth, &a->counters);
	assert_non_null(a->m);
	return a;
}

static void alone_free(struct alone *a)
{
	impair_free(a->m);
	free(a);
}

static void take_out(struct alone *a, uint64_t now)
{
	struct impair_packet *p;

	while ((p = impair_next(a->m, now))) {
		memcpy(&a->out[a->nout++], p->hdr, 4);
		assert_memory_equal(p->inline_data, p->hdr, 4);
		impair_recycle(a->m, p);
	}
}

static enum impair_fate commit(struct alone *a, uint64_t now)
{
	struct ring_packet p = { .hdrlen = 4, .paylen = 4, .slot = LAYOUT_NO_SLOT };
	uint32_t tag = a->next++;
	enum impair_fate fate = impair_commit(a->m, &p, &tag, &tag, now);

	if (fate == IMPAIR_PASS)
		a->out[a->nout++] = tag;
	take_out(a, now);
	return fate;
}

static void the_same_seed_loses_the_same_packets(void **state)
{
	struct alone *a = alone_new(PPM(5), 0, 0, 1, 0), *b = alone_new(PPM(5), 0, 0, 1, 0);
	struct alone *other = alone_new(PPM(5), 0, 0, 2, 0), *second = alone_new(PPM(5), 0, 0, 1, 1);
	unsigned differ = 0, differ_second = 0;

	(void)state;
	for (unsigned i = 0; i < PACKETS; i++) {
		enum impair_fate fate = commit(a, 0);

		assert_int_equal(commit(b, 0), fate);
		differ += commit(other, 0) != fate;
		differ_second += commit(second, 0) != fate;
	}
	assert_int_equal(atomic_load(&a->counters.tx_lost), 1030);
	assert_int_equal(a->nout, PACKETS - 1030);
	assert_true(differ > 1000 && differ_second > 1000);
	alone_free(a);
	alone_free(b);
	alone_free(other);
	alone_free(second);
}

/* How many packets that were committed later stand in front of each. */
static void check_order(const struct alone *a, unsigned *overtaken)
{
	*overtaken = 0;
	for (uint32_t i = 0; i < a->nout; i++) {
		uint32_t before = 0;

		for (uint32_t j = i > 200 ? i - 200 : 0; j < i; j++)
			before += a->out[j] > a->out[i];
		assert_true(before <= IMPAIR_OVERTAKERS);
		*overtaken += before > 0;
	}
}

static void a_share_of_packets_is_overtaken_by_a_few(void **state)
{
	struct alone *a = alone_new(0, PPM(5), 0, 7, 0);
	unsigned overtaken;

	(void)state;
	for (unsigned i = 0; i < PACKETS; i++)
		assert_int_not_equal(commit(a, 0), IMPAIR_LOST);
	take_out(a, IMPAIR_PATIENCE_NS);
	assert_int_equal(a->nout, PACKETS);
	assert_int_equal(impair_due(a->m), UINT64_MAX);
	check_order(a, &overtaken);
	assert_int_equal(overtaken, atomic_load(&a->counters.tx_reordered));
	assert_int_equal(overtaken, 1018);
	alone_free(a);
}

static void what_nobody_overtakes_goes_on_by_itself(void **state)
{
	struct alone *a = alone_new(0, PPM(100), 0, 7, 0);

	(void)state;
	assert_int_equal(commit(a, 5), IMPAIR_HELD_BACK);
	assert_int_equal(impair_due(a->m), 5 + IMPAIR_PATIENCE_NS);
	take_out(a, 4 + IMPAIR_PATIENCE_NS);
	assert_int_equal(a->nout, 0);
	take_out(a, 5 + IMPAIR_PATIENCE_NS);
	assert_int_equal(a->nout, 1);
	assert_int_equal(atomic_load(&a->counters.tx_reordered), 0);
	alone_free(a);
}

static void a_delay_holds_every_packet_that_long_and_keeps_order(void **state)
{
	struct alone *a = alone_new(0, 0, 1000, 1, 0);

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(commit(a, 10 * i), IMPAIR_HELD_BACK);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(a->nout, i);
		assert_int_equal(impair_due(a->m), 1000 + 10 * i);
		take_out(a, 1000 + 10 * i - 1);
		assert_int_equal(a->nout, i);
		take_out(a, 1000 + 10 * i);
		assert_int_equal(a->out[i], i);
	}
	assert_int_equal(atomic_load(&a->counters.tx_delayed), 100);
	assert_int_equal(impair_due(a->m), UINT64_MAX);
	alone_free(a);
}

static void delayed_packets_are_reordered_behind_the_delay(void **state)
{
	struct alone *a = alone_new(0, PPM(20), 1000, 3, 0);
	unsigned overtaken;

	(void)state;
	for (unsigned i = 0; i < PACKETS; i++)
		commit(a, 10 * i);
	take_out(a, 10 * PACKETS + 1000);
	take_out(a, 10 * PACKETS + 1000 + IMPAIR_PATIENCE_NS);
	assert_int_equal(a->nout, PACKETS);
	check_order(a, &overtaken);
	assert_int_equal(overtaken, atomic_load(&a->counters.tx_reordered));
	assert_true(overtaken > PACKETS / 6 && overtaken < PACKETS / 4);
	alone_free(a);
}

static void no_more_is_held_than_half_a_ring(void **state)
{
	struct alone *a = alone_new(0, 0, 1000, 1, 0);

	(void)state;
	for (unsigned i = 0; i < IMPAIR_HELD; i++)
		assert_int_equal(commit(a, 0), IMPAIR_HELD_BACK);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(commit(a, 0), IMPAIR_LOST);
	assert_int_equal(atomic_load(&a->counters.tx_lost), 10);
	take_out(a, 1000);
	assert_int_equal(a->nout, IMPAIR_HELD);
	assert_int_equal(commit(a, 1000), IMPAIR_HELD_BACK);
	alone_free(a);
}

/* --- on a wire --- */

struct two {
	struct party a, b;
	struct wire_flow f;
};

static void open_two(struct two *t, struct wire_impairment ours, struct wire_impairment theirs)
{
	assert_int_equal(party_try_open_impaired(&t->a, BUFFERS, &ours), 0);
	assert_int_equal(party_try_open_impaired(&t->b, BUFFERS, &theirs), 0);
	party_flow(&t->f, &t->a, wire_slot(t->b.w));
}

static void close_two(struct two *t)
{
	party_end_flow(&t->f);
	party_release_all(&t->b);
	party_close(&t->a);
	party_until(&t->b, &t->b, t->b.ngone == 1);
	party_close(&t->b);
}

/* Sends until there is no credit, and takes what arrives meanwhile. */
static void send_one(struct two *t, uint32_t tag, uint32_t paylen)
{
	while (party_send(&t->f, wire_slot(t->b.w), 2, paylen, tag)) {
		party_pump(&t->a);
		party_pump(&t->b);
		if (t->b.release)
			continue;
		for (struct wire_rx *rx = party_next(&t->b); rx; rx = party_next(&t->b)) {
			memcpy(&tag, rx->hdr, 4);
			assert_true(party_intact(rx, paylen, tag));
			party_release(&t->b, rx);
		}
	}
}

/* How many slots the flow can have. */
static unsigned slots_to_be_had(struct wire_flow *f)
{
	struct wire_tx tx[WIRE_SLOTS];
	unsigned n = 0;

	while (!wire_reserve(f, 4096, &tx[n]))
		n++;
	for (unsigned i = 0; i < n; i++)
		wire_cancel(f, &tx[i]);
	return n;
}

static void lost_packets_give_their_slots_back(void **state)
{
	struct wire_impairment half = { PPM(50), 0, 0, 1 };
	struct two t;
	unsigned slots;

	(void)state;
	open_two(&t, half, (struct wire_impairment){ 0 });
	t.b.release = true;
	party_until(&t.a, &t.b, (slots = slots_to_be_had(&t.f)) > 0);
	for (uint32_t i = 0; i < 3000; i++)
		send_one(&t, i, i % 2 ? 4096 : 16);
	party_until(&t.a, &t.b, t.b.ngot + atomic_load(&t.a.counters.tx_lost) == 3000);
	assert_int_equal(atomic_load(&t.a.counters.tx_lost), 1510);
	assert_int_equal(slots_to_be_had(&t.f), slots);
	assert_int_equal(atomic_load(&t.a.counters.tx_reordered), 0);
	close_two(&t);
}

/* Whoever had no credit because of packets that were then lost is told. */
static void a_loss_is_credit(void **state)
{
	struct wire_impairment all = { PPM(100), 0, 0, 1 };
	struct two t;
	struct wire_flow other;
	struct wire_tx tx[WIRE_SLOTS];
	unsigned n = 0;

	(void)state;
	open_two(&t, all, (struct wire_impairment){ 0 });
	party_flow(&other, &t.a, wire_slot(t.b.w));
	party_until(&t.a, &t.b, !party_send(&other, wire_slot(t.b.w), 3, 8, 1));
	while (!wire_reserve(&t.f, 4096, &tx[n]))
		n++;
	assert_true(n > 0 && n < WIRE_SLOTS);
	assert_int_equal(t.a.ncredit, 0);
	for (unsigned i = 0; i < n; i++)
		wire_commit(&t.f, &tx[i], party_qpn(&t.a, 2), party_qpn(&t.b, 2), "x", 1);
	party_until(&t.a, &t.b, t.a.ncredit == 1);
	assert_ptr_equal(t.a.credited, &t.f);
	assert_int_equal(t.b.ngot, 0);
	party_end_flow(&other);
	close_two(&t);
}

static void packets_arrive_intact_in_another_order(void **state)
{
	struct wire_impairment some = { 0, PPM(10), 0, 1 };
	uint32_t last = 0, backwards = 0, seen = 0;
	struct two t;

	(void)state;
	open_two(&t, some, (struct wire_impairment){ 0 });
	for (uint32_t i = 0; i < 200; i++) {
		while (party_send(&t.f, wire_slot(t.b.w), 2, i % 2 ? 500 : 20, i))
			party_pump(&t.a);
		if (i % 50 == 49) {
			/* All of them, also those that nobody overtakes. */
			party_until(&t.a, &t.b, t.b.ngot == i + 1);
			for (struct wire_rx *rx = party_next(&t.b); rx; rx = party_next(&t.b)) {
				uint32_t tag;

				memcpy(&tag, rx->hdr, 4);
				assert_true(party_intact(rx, tag % 2 ? 500 : 20, tag));
				backwards += tag < last;
				last = tag;
				seen++;
				party_release(&t.b, rx);
			}
		}
	}
	assert_int_equal(seen, 200);
	assert_true(backwards > 5);
	assert_true(atomic_load(&t.a.counters.tx_reordered) >= backwards);
	assert_int_equal(atomic_load(&t.a.counters.tx_lost), 0);
	close_two(&t);
}

/* Nobody polls the sender: its descriptor says when it is time. */
static void a_delayed_packet_wakes_its_sleeping_sender(void **state)
{
	struct wire_impairment late = { 0, 0, 20 * NSEC_PER_MSEC, 1 };
	struct pollfd fd;
	struct two t;
	uint64_t sent;

	(void)state;
	open_two(&t, late, (struct wire_impairment){ 0 });
	party_until(&t.a, &t.b, !party_send(&t.f, wire_slot(t.b.w), 2, 1000, 1));
	party_until(&t.a, &t.b, t.b.ngot == 1);
	party_release_all(&t.b);
	for (unsigned i = 0; i < 10; i++)
		wire_service(t.a.w, clock_ns());
	fd = (struct pollfd){ .fd = wire_fd(t.a.w), .events = POLLIN };
	assert_int_equal(poll(&fd, 1, 0), 0);
	sent = clock_ns();
	assert_int_equal(party_send(&t.f, wire_slot(t.b.w), 2, 1000, 2), 0);
	wire_poll(t.b.w, 64);
	assert_true(t.b.ngot == 1 || clock_ns() - sent >= late.delay_ns);
	while (t.b.ngot == 1) {
		assert_int_equal(poll(&fd, 1, 10000), 1);
		wire_service(t.a.w, clock_ns());
		wire_poll(t.b.w, 64);
	}
	assert_true(clock_ns() - sent >= late.delay_ns);
	assert_int_equal(atomic_load(&t.a.counters.tx_delayed), 2);
	close_two(&t);
}

/* Packets that a flow has in the line take slots of its own account. */
static void a_flow_whose_packets_are_late_leaves_slots_to_others(void **state)
{
	struct wire_impairment late = { 0, 0, 3600 * NSEC_PER_SEC, 1 };
	struct wire_flow other;
	struct two t;
	unsigned n = 0;

	(void)state;
	open_two(&t, late, (struct wire_impairment){ 0 });
	party_flow(&other, &t.a, wire_slot(t.b.w));
	party_until(&t.a, &t.b, !party_send(&t.f, wire_slot(t.b.w), 2, 4096, n));
	while (!party_send(&t.f, wire_slot(t.b.w), 2, 4096, n))
		n++;
	assert_true(n < WIRE_SLOTS / 2 + 8);
	assert_int_equal(party_send(&other, wire_slot(t.b.w), 3, 4096, 1), 0);
	assert_int_equal(party_send(&other, wire_slot(t.b.w), 3, 4096, 1), 0);
	assert_int_equal(t.b.ngot, 0);
	party_end_flow(&other);
	party_end_flow(&t.f);
	/* What is under way when its sender closes arrives. */
	n = (unsigned)atomic_load(&t.a.counters.tx_delayed);
	party_close(&t.a);
	party_until(&t.b, &t.b, t.b.ngone == 1);
	assert_int_equal(t.b.got_at_gone, n);
	party_close(&t.b);
}

static void both_sides_know_that_one_of_them_impairs(void **state)
{
	struct wire_impairment late = { 0, 0, 1000, 1 };
	struct wire_flow back;
	struct two t;

	(void)state;
	open_two(&t, late, (struct wire_impairment){ 0 });
	party_flow(&back, &t.b, wire_slot(t.a.w));
	assert_true(wire_lossy(t.f.channel));
	party_until(&t.a, &t.b, wire_lossy(back.channel));
	party_until(&t.a, &t.b, t.b.ndropped == 1);
	assert_int_equal(t.b.dropped_slot, wire_slot(t.a.w));
	assert_int_equal(t.b.dropped_qpn, 0);
	for (unsigned i = 0; i < 20; i++) {
		party_pump(&t.a);
		party_pump(&t.b);
	}
	assert_int_equal(t.b.ndropped, 1);
	assert_int_equal(t.a.ndropped, 0);
	party_end_flow(&back);
	close_two(&t);
}

static void nobody_is_told_of_a_fabric_that_is_whole(void **state)
{
	struct wire_impairment none = { 0, 0, 0, 99 };
	struct two t;

	(void)state;
	open_two(&t, none, none);
	party_until(&t.a, &t.b, !party_send(&t.f, wire_slot(t.b.w), 2, 8, 1));
	party_until(&t.a, &t.b, t.b.ngot == 1);
	assert_false(wire_lossy(t.f.channel));
	assert_int_equal(t.a.ndropped + t.b.ndropped, 0);
	close_two(&t);
}

static void impairments_out_of_range_are_refused(void **state)
{
	static const struct wire_impairment bad[] = { { 1000001, 0, 0, 1 }, { 0, 1000001, 0, 1 },
		{ 0, 0, 86400 * NSEC_PER_SEC + 1, 1 } };
	struct party p;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(party_try_open_impaired(&p, 1, &bad[i]), -EINVAL);
		free(p.pool);
		pthread_mutex_destroy(&p.lock);
	}
}

/* The receiver dies while packets for it are in the line: they are forgotten, and their slots are free. */
static void packets_for_the_dead_are_forgotten(void **state)
{
	struct wire_impairment late = { 0, 0, 30 * NSEC_PER_MSEC, 1 };
	struct party a;
	struct wire_flow f;
	uint32_t slot;
	int fd[2];
	pid_t pid;

	(void)state;
	party_device(); /* named after us, in the child too */
	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		struct party b;

		party_open(&b, BUFFERS);
		slot = wire_slot(b.w);
		if (write(fd[1], &slot, sizeof(slot)) != sizeof(slot))
			abort();
		for (;;)
			party_pump(&b);
	}
	assert_int_equal(read(fd[0], &slot, sizeof(slot)), sizeof(slot));
	assert_int_equal(party_try_open_impaired(&a, 8, &late), 0);
	party_flow(&f, &a, slot);
	party_until(&a, &a, !party_send(&f, slot, 2, 4096, 1));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (uint32_t i = 0; i < 10; i++)
		party_send(&f, slot, 2, 4096, i);
	party_until(&a, &a, a.ngone == 1);
	party_until(&a, &a, f.held == 0 || a.ndead == 1);
	assert_int_equal(party_send(&f, slot, 2, 4096, 1), -EPIPE);
	party_end_flow(&f);
	close(fd[0]);
	close(fd[1]);
	party_close(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_seed_loses_the_same_packets),
		cmocka_unit_test(a_share_of_packets_is_overtaken_by_a_few),
		cmocka_unit_test(what_nobody_overtakes_goes_on_by_itself),
		cmocka_unit_test(a_delay_holds_every_packet_that_long_and_keeps_order),
		cmocka_unit_test(delayed_packets_are_reordered_behind_the_delay),
		cmocka_unit_test(no_more_is_held_than_half_a_ring),
		cmocka_unit_test(lost_packets_give_their_slots_back),
		cmocka_unit_test(a_loss_is_credit),
		cmocka_unit_test(packets_arrive_intact_in_another_order),
		cmocka_unit_test(a_delayed_packet_wakes_its_sleeping_sender),
		cmocka_unit_test(a_flow_whose_packets_are_late_leaves_slots_to_others),
		cmocka_unit_test(both_sides_know_that_one_of_them_impairs),
		cmocka_unit_test(nobody_is_told_of_a_fabric_that_is_whole),
		cmocka_unit_test(impairments_out_of_range_are_refused),
		cmocka_unit_test(packets_for_the_dead_are_forgotten),
	};

	return cmocka_run_group_tests_name("wire/impair", tests, NULL, NULL);
}

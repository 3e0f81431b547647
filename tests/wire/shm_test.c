/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The wire between parties of one process: order, bytes, back-pressure, quotas, meeting and parting. */
#include "party.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "wire/layout.h"
#include "wire/meet.h"
#include "wire/names.h"

static struct party a, b;
static struct wire_flow ab;
static uint32_t to_b;

static int two_parties(void **state)
{
	party_open(&a, 1024);
	party_open(&b, 1024);
	to_b = wire_slot(b.w);
	party_flow(&ab, &a, to_b);
	return 0;
}

static int no_parties(void **state)
{
	party_end_flow(&ab);
	party_close(&a);
	party_close(&b);
	return 0;
}

static void expect(uint32_t paylen, uint32_t tag)
{
	struct wire_rx *rx = party_next(&b);

	assert_non_null(rx);
	assert_true(party_intact(rx, paylen, tag));
	assert_int_equal(rx->src_slot, wire_slot(a.w));
	assert_int_equal(rx->src_qpn, party_qpn(&a, 1));
	assert_int_equal(rx->dest_qpn, party_qpn(&b, 1));
	party_release(&b, rx);
}

static const uint32_t sizes[] = { 0, 1, 8, 20, 36, 37, 63, 64, 65, 100, 1024, 4096, 4097, 16383, 16384 };
#define NSIZES (sizeof(sizes) / sizeof(*sizes))

static void packets_arrive_in_order_with_their_bytes(void **state)
{
	uint32_t sent = 0, seen = 0;

	while (seen < 3000) {
		while (sent < 3000 && !party_send(&ab, to_b, 1, sizes[sent % NSIZES], sent))
			sent++;
		party_pump(&b);
		for (; seen < b.ngot; seen++)
			expect(sizes[seen % NSIZES], seen);
		party_pump(&a);
	}
	assert_null(party_next(&b));
}

static void a_packet_longer_than_a_segment_is_refused(void **state)
{
	struct wire_tx tx;

	assert_int_equal(wire_reserve(&ab, WIRE_SEGMENT + 1, &tx), -EMSGSIZE);
}

static void what_is_sent_before_the_answer_arrives_is_not_lost(void **state)
{
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(party_send(&ab, to_b, 1, sizes[i % NSIZES], i), 0);
	/* B alone: its answer has not been read. */
	party_until(&b, &b, b.ngot == 20);
	for (uint32_t i = 0; i < 20; i++)
		expect(sizes[i % NSIZES], i);
}

/*
 * The linker sends calls of meet_send() here (meson.build). Before an answer goes out, another thread of the
 * party that answers may take what lies in the ring, and has reason to wake the sender, who expects an answer
 * and nothing else.
 */
int __real_meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n);
int __wrap_meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n);

static struct party *polls_before_answers;
static unsigned long answers;

int __wrap_meet_send(int sock, const struct layout_message *m, const int *fd, unsigned n)
{
	if (polls_before_answers && m->magic == LAYOUT_ANSWER_MAGIC) {
		wire_poll(polls_before_answers->w, WIRE_RING);
		answers++;
	}
	return __real_meet_send(sock, m, fd, n);
}

static void no_wake_up_comes_before_the_answer(void **state)
{
	uint32_t sent = 0;

	while (!party_send(&ab, to_b, 1, 8, sent))
		sent++;
	assert_int_equal(sent, WIRE_RING);
	assert_false(wire_arm(a.w)); /* A sleeps until there is credit */
	polls_before_answers = &b;
	answers = 0;
	party_until(&b, &b, b.ngot == WIRE_RING);
	polls_before_answers = NULL;
	assert_int_equal(answers, 1);
	wire_disarm(a.w);
	party_until(&a, &a, a.ncredit == 1);
	assert_int_equal(a.ngone + b.ngone, 0);
	party_release_all(&b);
	assert_int_equal(party_send(&ab, to_b, 1, 8, sent), 0);
	party_until(&a, &b, b.ngot == WIRE_RING + 1);
}

static void a_wire_talks_to_itself(void **state)
{
	struct wire_flow self;

	party_flow(&self, &a, wire_slot(a.w));
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(party_send(&self, wire_slot(a.w), 3, sizes[i % NSIZES], i), 0);
	party_until(&a, &a, a.ngot == 30);
	for (uint32_t i = 0; i < 30; i++) {
		struct wire_rx *rx = party_next(&a);

		assert_true(party_intact(rx, sizes[i % NSIZES], i));
		assert_int_equal(rx->src_slot, wire_slot(a.w));
		party_release(&a, rx);
	}
	party_end_flow(&self);
}

static void both_directions_work_at_once(void **state)
{
	struct wire_flow ba;

	party_flow(&ba, &b, wire_slot(a.w));
	assert_int_equal(party_send(&ba, wire_slot(a.w), 1, 100, 1), 0);
	assert_int_equal(party_send(&ab, to_b, 1, 100, 2), 0);
	party_until(&a, &b, a.ngot == 1 && b.ngot == 1);
	party_end_flow(&ba);
}

static void slots_out_of_range_are_refused(void **state)
{
	assert_null(wire_connect(a.w, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(wire_connect(a.w, 1u << WIRE_SLOT_BITS));
	assert_int_equal(errno, EINVAL);
}

static void a_full_ring_holds_back_until_it_is_taken_from(void **state)
{
	uint32_t sent = 0;

	while (!party_send(&ab, to_b, 1, 8, sent))
		sent++;
	assert_int_equal(sent, WIRE_RING);
	assert_int_equal(party_send(&ab, to_b, 1, 8, sent), -EAGAIN);
	assert_int_equal(a.counters.tx_no_credit, 2);
	party_pump(&a);
	assert_int_equal(a.ncredit, 0);
	party_until(&b, &b, b.ngot == WIRE_RING);
	party_until(&a, &a, a.ncredit == 1);
	assert_ptr_equal(a.credited, &ab);
	assert_int_equal(party_send(&ab, to_b, 1, 8, sent), 0);
	/* No more is promised to a flow that does not wait. */
	party_pump(&a);
	assert_int_equal(a.ncredit, 1);
}

static void a_flow_without_slots_waits_for_a_release(void **state)
{
	uint32_t sent = 0;

	while (!party_send(&ab, to_b, 1, 4096, sent))
		sent++;
	assert_in_range(sent, 2, WIRE_SLOTS);
	assert_int_equal(ab.held, sent);
	party_until(&b, &b, b.ngot == sent);
	party_pump(&a);
	assert_int_equal(a.ncredit, 0);
	/* It can say little things meanwhile, */
	assert_int_equal(party_send(&ab, to_b, 1, 64, 0), 0);
	assert_int_equal(party_send(&ab, to_b, 1, 4096, sent), -EAGAIN);
	/* and one release, of any of them, is enough. */
	party_release(&b, party_next(&b));
	party_until(&a, &a, a.ncredit == 1);
	assert_int_equal(party_send(&ab, to_b, 1, 4096, sent), 0);
}

static void a_packet_may_be_cancelled(void **state)
{
	struct wire_flow other;
	struct wire_tx tx[2];
	uint32_t sent = 0;

	assert_int_equal(wire_reserve(&ab, 4096, &tx[0]), 0);
	assert_int_equal(wire_reserve(&ab, 8, &tx[1]), 0);
	while (!party_send(&ab, to_b, 1, 8, sent))
		sent++;
	assert_int_equal(sent, WIRE_RING - 2);
	party_flow(&other, &a, to_b);
	assert_int_equal(party_send(&other, to_b, 1, 8, 0), -EAGAIN);
	wire_cancel(&ab, &tx[1]);
	wire_cancel(&ab, &tx[0]);
	assert_int_equal(ab.held, 0);
	/* Nobody else will announce that credit. */
	assert_true(wire_arm(a.w));
	party_pump(&a);
	assert_int_equal(a.ncredit, 2);
	assert_int_equal(party_send(&other, to_b, 1, 8, sent), 0);
	party_until(&b, &b, b.ngot == sent + 1);
	for (uint32_t i = 0; i <= sent; i++)
		expect(8, i);
	party_end_flow(&other);
}

/* 32 flows whose packets are parked at the receiver for good, and one that runs. */
static void parked_flows_do_not_stop_another(void **state)
{
	static struct wire_flow stuck[32];
	struct list parked = LIST_INIT(parked);
	struct wire_rx *rx;
	uint32_t sent = 0, seen = 0;

	for (uint32_t i = 0; i < 32; i++) {
		party_flow(&stuck[i], &a, to_b);
		while (!party_send(&stuck[i], to_b, 100 + i, WIRE_SEGMENT, i))
			;
		assert_true(stuck[i].held >= 2);
	}
	/* The receive buffers are more than what can be parked. */
	while (seen < 5000) {
		while (sent < 5000 && !party_send(&ab, to_b, 1, WIRE_SEGMENT, sent))
			sent++;
		party_pump(&b);
		assert_true(sent > seen); /* progress in every round, without waiting for anything */
		while ((rx = party_next(&b))) {
			if ((rx->dest_qpn & 0xfff) != 1) {
				list_add_tail(&parked, &rx->node);
				continue;
			}
			assert_true(party_intact(rx, WIRE_SEGMENT, seen++));
			party_release(&b, rx);
		}
	}
	for (uint32_t i = 0; i < 32; i++)
		party_end_flow(&stuck[i]);
	list_splice_tail(&b.got, &parked);
}

static void a_flow_may_end_with_packets_unreleased(void **state)
{
	struct wire_flow other;
	uint32_t sent = 0;

	party_flow(&other, &a, to_b);
	while (!party_send(&other, to_b, 2, 4096, sent))
		sent++;
	party_end_flow(&other);
	memset(&other, 0xff, sizeof(other)); /* nobody may look at it again */
	party_until(&b, &b, b.ngot == sent);
	party_release_all(&b);
	b.release = true;
	for (uint32_t i = 0; i < 1000; i++)
		party_until(&a, &b, !party_send(&ab, to_b, 1, 4096, i));
}

static void without_buffers_packets_stay_in_the_ring(void **state)
{
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(party_send(&ab, to_b, 1, 100, i), 0);
	b.starve = true;
	party_pump(&b);
	party_pump(&b);
	assert_int_equal(b.ngot, 0);
	assert_true(wire_arm(b.w)); /* there is work, buffers or not */
	b.starve = false;
	party_until(&b, &b, b.ngot == 10);
	for (uint32_t i = 0; i < 10; i++)
		expect(100, i);
}

static void catching_up_takes_what_was_sent_and_no_more(void **state)
{
	uint32_t sent = 0;

	party_send(&ab, to_b, 1, 8, sent++);
	party_until(&a, &b, b.ngot == 1);
	while (sent < 100)
		party_send(&ab, to_b, 1, 8, sent++);
	wire_catch_up(b.w, wire_slot(a.w));
	assert_int_equal(b.ngot, 100);
	wire_catch_up(b.w, wire_slot(a.w));
	assert_int_equal(b.ngot, 100);
	/* Later ones come as ever. */
	party_send(&ab, to_b, 1, 8, sent++);
	party_until(&a, &b, b.ngot == 101);
	for (uint32_t i = 0; i < sent; i++)
		expect(8, i);
	/* Of one who is not there, or of a slot that nobody can have, there is nothing. */
	wire_catch_up(b.w, to_b);
	wire_catch_up(b.w, 0);
	wire_catch_up(b.w, UINT32_MAX);
}

static void a_drop_is_told_to_the_sender_once(void **state)
{
	party_send(&ab, to_b, 1, 8, 0);
	party_until(&a, &b, b.ngot == 1);
	for (int i = 0; i < 1000; i++)
		wire_notify_dropped(b.w, wire_slot(a.w), party_qpn(&a, 0xabc));
	party_until(&a, &b, a.ndropped);
	party_pump(&a);
	assert_int_equal(a.ndropped, 1);
	assert_int_equal(a.dropped_slot, to_b);
	assert_int_equal(a.dropped_qpn, party_qpn(&a, 0xabc));
	wire_notify_dropped(b.w, wire_slot(a.w), party_qpn(&a, 0));
	party_until(&a, &b, a.ndropped == 2);
	assert_int_equal(a.dropped_qpn, party_qpn(&a, 0));
	wire_notify_dropped(b.w, wire_slot(a.w), 0);
	party_until(&a, &b, a.ndropped == 3);
	assert_int_equal(a.dropped_qpn, 0);
	/* Nobody to tell. */
	wire_notify_dropped(b.w, wire_slot(b.w), 5);
	wire_notify_dropped(b.w, 4000, 5);
	wire_notify_dropped(b.w, UINT32_MAX, 5);
}

static void drops_of_many_queue_pairs_are_all_told(void **state)
{
	party_send(&ab, to_b, 1, 8, 0);
	party_until(&a, &b, b.ngot == 1);
	for (uint32_t i = 0; i < 4096; i++)
		wire_notify_dropped(b.w, wire_slot(a.w), party_qpn(&a, i));
	party_until(&a, &b, a.ndropped == 4096);
	assert_int_equal(a.ngone, 0); /* and that was no flood */
}

static void closing_is_not_dying(void **state)
{
	struct party c;
	struct wire_flow ca;

	party_open(&c, 16);
	party_flow(&ca, &c, wire_slot(a.w));
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(party_send(&ca, wire_slot(a.w), 1, i * 100, i), 0);
	party_end_flow(&ca);
	/* A has not even heard of it. */
	party_close(&c);
	a.starve = true;
	party_pump(&a);
	party_pump(&a);
	assert_int_equal(a.ngone, 0);
	a.starve = false;
	party_until(&a, &a, a.ngone == 1);
	assert_int_equal(a.got_at_gone, 10);
	assert_int_equal(a.ndead, 0);
}

static void sending_to_one_who_has_closed_loses_packets(void **state)
{
	struct party c;
	struct wire_flow ac;
	uint32_t slot;

	party_open(&c, 1024);
	slot = wire_slot(c.w);
	party_flow(&ac, &a, slot);
	/* One flow waits: it must learn that there is nothing to wait for. */
	while (!party_send(&ac, slot, 1, 8, 0))
		;
	party_until(&a, &c, c.ngot == WIRE_RING);
	while (!party_send(&ac, slot, 1, 8, 0))
		;
	a.ncredit = 0;
	party_close(&c);
	party_until(&a, &a, a.ngone == 1);
	assert_int_equal(a.gone_slot, slot);
	assert_int_equal(a.ncredit, 1);
	assert_int_equal(party_send(&ac, slot, 1, 8, 0), -EPIPE);
	/* A new channel to the same slot finds nobody, and does not fail. */
	party_end_flow(&ac);
	party_flow(&ac, &a, slot);
	assert_int_equal(party_send(&ac, slot, 1, 8, 0), -EPIPE);
	party_end_flow(&ac);
}

static void reopening_gives_another_slot(void **state)
{
	struct party c;
	uint32_t slot[16];

	for (int i = 0; i < 16; i++) {
		party_open(&c, 1);
		slot[i] = wire_slot(c.w);
		party_close(&c);
		assert_in_range(slot[i], 1, 4095);
	}
	for (int i = 1; i < 16; i++)
		if (slot[i] != slot[0])
			return;
	fail_msg("slot %u sixteen times", slot[0]);
}

/* All names but one are held by somebody else. */
static void slots_run_out_and_a_late_comer_is_found(void **state)
{
	static int held[4096];
	struct meet_name name;
	struct party c;
	struct wire_flow ac;
	uint32_t last = 0;

	for (uint32_t s = 1; s < 4096; s++) {
		assert_int_equal(
			(s < LAYOUT_APART ? meet_name : names_make)(&name, geteuid(), party_device(), s), 0);
		held[s] = meet_listen(&name);
		if (held[s] >= 0 && s < LAYOUT_APART)
			last = s;
	}
	assert_true(last);
	assert_int_equal(party_try_open(&c, 16), -EADDRINUSE);
	free(c.pool);
	close(held[last]);
	held[last] = -1;
	party_flow(&ac, &a, last);
	assert_int_equal(party_send(&ac, last, 1, 8, 0), -EPIPE);
	assert_int_equal(party_try_open(&c, 16), 0);
	assert_int_equal(wire_slot(c.w), last);
	party_until(&a, &c, !party_send(&ac, last, 1, 8, 77));
	party_until(&c, &c, c.ngot == 1);
	assert_int_equal(a.ngone, 0);
	party_end_flow(&ac);
	party_close(&c);
	for (uint32_t s = 1; s < 4096; s++)
		if (held[s] >= 0)
			close(held[s]);
}

static void one_that_calls_us_is_looked_for_at_once(void **state)
{
	struct wire_flow ba;

	party_flow(&ba, &b, wire_slot(a.w));
	assert_int_equal(party_send(&ba, wire_slot(a.w), 1, 8, 0), 0);
	party_until(&a, &b, a.ngot == 1);
	assert_int_equal(party_send(&ab, to_b, 1, 8, 0), 0);
	party_until(&a, &b, b.ngot == 1);
	party_end_flow(&ba);
}

static void names_are_checked(void **state)
{
	struct wire_cfg cfg = { .device = "", .ops = &party_ops, .ctx = &a };
	struct wire *w;

	assert_int_equal(wire_open(&cfg, &w), -EINVAL);
	cfg.device = "a/b";
	assert_int_equal(wire_open(&cfg, &w), -EINVAL);
	cfg.device = "a-name-of-more-than-sixty-three-bytes-is-longer-than-any-device-name-may-be";
	assert_int_equal(wire_open(&cfg, &w), -ENAMETOOLONG);
}

/* One hub, a thousand others, both directions. */
static void a_thousand_channels(void **state)
{
	enum { N = 1000 };
	struct party *p = calloc(N, sizeof(*p));
	struct wire_flow *in = calloc(N, sizeof(*in)), *out = calloc(N, sizeof(*out));
	struct rlimit limit, old;
	uint32_t hub = wire_slot(a.w);

	getrlimit(RLIMIT_NOFILE, &old);
	limit = old;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < 16 * N) {
		print_message("skipped: RLIMIT_NOFILE is %lu\n", (unsigned long)limit.rlim_cur);
		skip();
	}
	a.release = true;
	for (uint32_t i = 0; i < N; i++) {
		party_open(&p[i], 4);
		party_flow(&in[i], &p[i], hub);
		party_flow(&out[i], &a, wire_slot(p[i].w));
		assert_int_equal(party_send(&in[i], hub, 1, 100, i), 0);
		assert_int_equal(party_send(&out[i], wire_slot(p[i].w), 1, 100, i), 0);
	}
	party_until(&a, &a, a.ngot == N);
	for (uint32_t i = 0; i < N; i++)
		party_until(&p[i], &p[i], p[i].ngot == 1);
	for (uint32_t i = 0; i < N; i++) {
		party_end_flow(&in[i]);
		party_end_flow(&out[i]);
		party_close(&p[i]);
	}
	party_until(&a, &a, a.ngone == N);
	assert_int_equal(a.ndead, 0);
	setrlimit(RLIMIT_NOFILE, &old);
	free(p);
	free(in);
	free(out);
}

static void descriptors_are_high_and_closed_on_exec(void **state)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	char link[64], target[256];
	int mine = 0;

	party_send(&ab, to_b, 1, 8, 0);
	party_until(&a, &b, b.ngot == 1);
	while ((e = readdir(d))) {
		ssize_t n;
		int fd = atoi(e->d_name);

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, target, sizeof(target) - 1);
		if (n <= 0 || fd <= 2 || fd == dirfd(d))
			continue;
		target[n] = 0;
		if (!strstr(target, "socket:") && !strstr(target, "unpin") && !strstr(target, "[event"))
			continue;
		mine++;
		if (fcntl(fd, F_GETFD) != FD_CLOEXEC)
			fail_msg("%s is not close-on-exec", target);
		if (fd < FD_HIGH)
			fail_msg("%s has number %d", target, fd);
	}
	closedir(d);
	assert_true(mine >= 10);
}

static void nothing_is_left_open(void **state)
{
	unsigned before = open_descriptors();

	for (int i = 0; i < 5; i++) {
		two_parties(state);
		party_send(&ab, to_b, 1, 4096, 0);
		party_until(&a, &b, b.ngot == 1);
		if (i % 2)
			party_until(&a, &b, clock_ns()); /* one more round: the answer is read */
		no_parties(state);
	}
	assert_int_equal(open_descriptors(), before);
}

/* The limit of a forked child only; here the memory of channels must be refused without a signal. */
static void a_file_size_limit_is_an_error_and_no_signal(void **state)
{
	struct rlimit old, limit;

	getrlimit(RLIMIT_FSIZE, &old);
	limit = old;
	limit.rlim_cur = 65536;
	setrlimit(RLIMIT_FSIZE, &limit);
	assert_null(wire_connect(a.w, wire_slot(a.w)));
	assert_int_equal(errno, EFBIG);
	setrlimit(RLIMIT_FSIZE, &old);
}

static void no_descriptors_is_an_error_and_is_recovered_from(void **state)
{
	struct rlimit old, limit;
	struct wire_flow f;
	int fill[64], n = 0;

	getrlimit(RLIMIT_NOFILE, &old);
	limit = old;
	limit.rlim_cur = 600;
	setrlimit(RLIMIT_NOFILE, &limit);
	while ((fill[n % 64] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && ++n < 64)
		fcntl(fill[n - 1], F_DUPFD_CLOEXEC, 0);
	for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
		;
	assert_null(wire_connect(a.w, wire_slot(a.w)));
	assert_int_equal(errno, EMFILE);
	setrlimit(RLIMIT_NOFILE, &old);
	/* Everything from /dev/null but the wires' own spares goes again. */
	for (int fd = 3; fd < 600; fd++) {
		char link[64], target[64] = "";

		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		if (readlink(link, target, sizeof(target) - 1) > 0 && !strcmp(target, "/dev/null") &&
			fd < FD_HIGH)
			close(fd);
	}
	party_flow(&f, &a, wire_slot(a.w));
	assert_int_equal(party_send(&f, wire_slot(a.w), 1, 8, 1), 0);
	party_until(&a, &a, a.ngot == 1);
	party_end_flow(&f);
}

/* Four threads send on flows of their own, through one channel. */
struct talker {
	pthread_t thread;
	uint32_t index;
};

#define TALK 4000u

static void *talk(void *arg)
{
	struct talker *t = arg;
	struct wire_flow f;

	party_flow(&f, &a, to_b);
	for (uint32_t i = 0; i < TALK; i++) {
		uint64_t end = clock_ns() + PARTY_WAIT;

		while (party_send(&f, to_b, t->index, sizes[i % NSIZES], i)) {
			wire_poll(a.w, 64);
			if (clock_ns() > end)
				abort();
		}
	}
	party_end_flow(&f);
	return NULL;
}

static void threads_share_a_channel_and_each_keeps_its_order(void **state)
{
	struct talker t[4];
	uint32_t next[4] = { 0 };
	unsigned long total = 0;
	uint64_t end = clock_ns() + 3 * PARTY_WAIT;

	for (uint32_t i = 0; i < 4; i++) {
		t[i].index = i;
		assert_int_equal(pthread_create(&t[i].thread, NULL, talk, &t[i]), 0);
	}
	while (total < 4 * TALK) {
		struct wire_rx *rx;

		party_pump(&b);
		wire_service(a.w, clock_ns());
		assert_true(clock_ns() < end);
		while ((rx = party_next(&b))) {
			uint32_t from = rx->src_qpn & 0xfff, n;

			assert_in_range(from, 0, 3);
			n = next[from]++;
			assert_true(party_intact(rx, sizes[n % NSIZES], n));
			party_release(&b, rx);
			total++;
		}
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i].thread, NULL);
}

#define with_two(f) cmocka_unit_test_setup_teardown(f, two_parties, no_parties)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_two(packets_arrive_in_order_with_their_bytes),
		with_two(a_packet_longer_than_a_segment_is_refused),
		with_two(what_is_sent_before_the_answer_arrives_is_not_lost),
		with_two(no_wake_up_comes_before_the_answer),
		with_two(a_wire_talks_to_itself),
		with_two(both_directions_work_at_once),
		with_two(slots_out_of_range_are_refused),
		with_two(a_full_ring_holds_back_until_it_is_taken_from),
		with_two(a_flow_without_slots_waits_for_a_release),
		with_two(a_packet_may_be_cancelled),
		with_two(parked_flows_do_not_stop_another),
		with_two(a_flow_may_end_with_packets_unreleased),
		with_two(without_buffers_packets_stay_in_the_ring),
		with_two(catching_up_takes_what_was_sent_and_no_more),
		with_two(a_drop_is_told_to_the_sender_once),
		with_two(drops_of_many_queue_pairs_are_all_told),
		with_two(closing_is_not_dying),
		with_two(sending_to_one_who_has_closed_loses_packets),
		with_two(reopening_gives_another_slot),
		with_two(slots_run_out_and_a_late_comer_is_found),
		with_two(one_that_calls_us_is_looked_for_at_once),
		with_two(names_are_checked),
		with_two(a_thousand_channels),
		with_two(descriptors_are_high_and_closed_on_exec),
		with_two(a_file_size_limit_is_an_error_and_no_signal),
		with_two(no_descriptors_is_an_error_and_is_recovered_from),
		with_two(threads_share_a_channel_and_each_keeps_its_order),
		cmocka_unit_test(nothing_is_left_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * No wake-up is lost. A receiver sleeps whenever wire_arm() lets it; senders commit at random moments, most
 * of them when it is just about to fall asleep. A lost wake-up shows as a sleep that only the watchdog ends
 * while a packet lies in a ring.
 */
#include "party.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define SENDERS	 3
#define MESSAGES 20000u
#define WATCHDOG 5000 /* ms: thousands of times what a wake-up takes */

static struct party receiver;
static _Atomic unsigned long *taken; /* by the receiver, where every process sees it */

/* One sleep as an engine takes it. True: the watchdog woke us, nobody else. */
static bool sleep_once(struct party *p)
{
	struct pollfd fd = { .fd = wire_fd(p->w), .events = POLLIN };
	bool lost;

	if (wire_arm(p->w))
		return false;
	lost = poll(&fd, 1, WATCHDOG) == 0;
	wire_disarm(p->w);
	return lost;
}

/* Small pauses around the time that the receiver needs to fall asleep. */
static void pause_a_little(unsigned *seed)
{
	uint64_t end = clock_ns() + (uint64_t)(rand_r(seed) % 60) * NSEC_PER_USEC;

	if (rand_r(seed) % 8 == 0)
		usleep(100);
	while (clock_ns() < end)
		;
}

static void send_messages(struct party *p, struct wire_flow *f, uint32_t slot, unsigned seed)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		int err;

		/* Sleeps for credit as the receiver sleeps for packets. */
		while ((err = party_send(f, slot, 1, i % 16 ? 8 : 4096, i)) == -EAGAIN) {
			unsigned long before = p->ncredit;

			party_pump(p);
			if (p->ncredit == before && sleep_once(p))
				abort();
		}
		if (err)
			abort();
		if (i % 4 == 0)
			pause_a_little(&seed);
	}
}

static unsigned long receive_all(unsigned long total)
{
	unsigned long slept = 0;

	while (receiver.ngot < total) {
		unsigned long before = receiver.ngot;

		party_pump(&receiver);
		if (receiver.ngot != before)
			continue;
		slept++;
		if (sleep_once(&receiver)) {
			before = receiver.ngot;
			party_pump(&receiver);
			if (receiver.ngot != before)
				fail_msg("a wake-up was lost after %lu packets", before);
			fail_msg("senders are stuck after %lu packets", before);
		}
	}
	return slept;
}

/*
 * One packet at a time, each sent when the receiver has taken the one before and is on its way to sleep.
 * Nothing else will wake it: every lost wake-up stops the test.
 */
static void send_in_step(struct party *p, struct wire_flow *f, uint32_t slot)
{
	unsigned seed = 1;

	for (uint32_t i = 0; i < MESSAGES; i++) {
		uint64_t end;

		while (party_send(f, slot, 1, 8, i))
			party_pump(p);
		while (atomic_load(taken) <= i)
			;
		if (!i)
			wire_service(p->w, clock_ns()); /* reads the answer, which came before that */
		end = clock_ns() + (uint64_t)(rand_r(&seed) % 2500);
		while (clock_ns() < end)
			;
	}
}

static unsigned long receive_in_step(void)
{
	unsigned long slept = 0;

	party_until(&receiver, &receiver, receiver.ngot == 1);
	while (receiver.ngot < MESSAGES) {
		party_pump(&receiver);
		if (atomic_exchange(taken, receiver.ngot) != receiver.ngot)
			continue;
		slept++;
		if (sleep_once(&receiver))
			fail_msg("the wake-up for packet %lu was lost", receiver.ngot);
	}
	return slept;
}

static void *step_thread(void *arg)
{
	struct party p;
	struct wire_flow f;

	party_open(&p, 16);
	party_flow(&f, &p, wire_slot(receiver.w));
	send_in_step(&p, &f, wire_slot(receiver.w));
	party_end_flow(&f);
	party_close(&p);
	return NULL;
}

static void none_is_lost_in_step_with_a_thread(void **state)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, step_thread, NULL), 0);
	print_message("slept %lu times\n", receive_in_step());
	pthread_join(t, NULL);
}

static void none_is_lost_in_step_with_a_process(void **state)
{
	uint32_t slot = wire_slot(receiver.w);
	struct party p;
	struct wire_flow f;
	int status;

	if (!fork()) {
		wire_abandon(receiver.w);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		party_open(&p, 16);
		party_flow(&f, &p, slot);
		send_in_step(&p, &f, slot);
		_exit(0);
	}
	print_message("slept %lu times\n", receive_in_step());
	assert_true(wait(&status) > 0);
	assert_int_equal(status, 0);
}

static int open_receiver(void **state)
{
	taken = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	party_open(&receiver, 2048);
	receiver.release = true;
	return 0;
}

static int close_receiver(void **state)
{
	party_close(&receiver);
	munmap((void *)taken, 4096);
	return 0;
}

static void *sender_thread(void *arg)
{
	struct party p;
	struct wire_flow f;

	party_open(&p, 16);
	party_flow(&f, &p, wire_slot(receiver.w));
	send_messages(&p, &f, wire_slot(receiver.w), (unsigned)(uintptr_t)arg);
	party_end_flow(&f);
	party_close(&p);
	return NULL;
}

static void none_is_lost_between_threads(void **state)
{
	pthread_t t[SENDERS];
	unsigned long slept;

	for (uintptr_t i = 0; i < SENDERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, sender_thread, (void *)(i + 1)), 0);
	slept = receive_all(SENDERS * MESSAGES);
	for (int i = 0; i < SENDERS; i++)
		pthread_join(t[i], NULL);
	print_message("slept %lu times\n", slept);
	assert_true(slept > 10); /* or nothing was tried */
	party_until(&receiver, &receiver, receiver.ngone == SENDERS);
}

static void none_is_lost_between_processes(void **state)
{
	uint32_t slot = wire_slot(receiver.w);
	unsigned long slept;
	int status;

	for (unsigned i = 0; i < SENDERS; i++) {
		if (fork())
			continue;
		wire_abandon(receiver.w);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		static struct party p;
		static struct wire_flow f;

		party_open(&p, 16);
		party_flow(&f, &p, slot);
		send_messages(&p, &f, slot, i + 100);
		_exit(0);
	}
	slept = receive_all(SENDERS * MESSAGES);
	for (int i = 0; i < SENDERS; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	print_message("slept %lu times\n", slept);
	assert_true(slept > 10); /* or nothing was tried */
	party_until(&receiver, &receiver, receiver.ngone == SENDERS);
	assert_int_equal(receiver.ndead, SENDERS);
}

/* Deterministic: every interleaving of the two accesses of each side. */
static void work_before_or_after_arming_is_seen(void **state)
{
	struct wire_flow self;
	struct pollfd fd = { .fd = wire_fd(receiver.w), .events = POLLIN };

	party_flow(&self, &receiver, wire_slot(receiver.w));
	party_send(&self, wire_slot(receiver.w), 1, 8, 0);
	party_until(&receiver, &receiver, receiver.ngot == 1);
	party_until(&receiver, &receiver, !poll(&fd, 1, 0));
	/* Before: arming says so and does not arm. */
	party_send(&self, wire_slot(receiver.w), 1, 8, 1);
	assert_true(wire_arm(receiver.w));
	assert_false(wire_armed(receiver.w));
	assert_int_equal(poll(&fd, 1, 0), 0);
	party_pump(&receiver);
	/* After: it wakes, once for one arming. */
	assert_false(wire_arm(receiver.w));
	assert_true(wire_armed(receiver.w));
	for (uint32_t i = 2; i < 10; i++)
		party_send(&self, wire_slot(receiver.w), 1, 8, i);
	assert_int_equal(receiver.counters.wakes_sent, 1);
	assert_int_equal(poll(&fd, 1, 1000), 1);
	wire_disarm(receiver.w);
	party_pump(&receiver);
	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_int_equal(receiver.ngot, 10);
	/* Polled: it does not. */
	party_send(&self, wire_slot(receiver.w), 1, 8, 10);
	assert_int_equal(receiver.counters.wakes_sent, 1);
	party_pump(&receiver);
	/* The next arming wakes again. */
	assert_false(wire_arm(receiver.w));
	party_send(&self, wire_slot(receiver.w), 1, 8, 11);
	assert_int_equal(receiver.counters.wakes_sent, 2);
	party_pump(&receiver);
	party_end_flow(&self);
}

static void a_kick_makes_the_descriptor_readable(void **state)
{
	struct pollfd fd = { .fd = wire_fd(receiver.w), .events = POLLIN };

	assert_int_equal(poll(&fd, 1, 0), 0);
	wire_kick(receiver.w);
	assert_int_equal(poll(&fd, 1, 0), 1);
	party_pump(&receiver);
	assert_int_equal(poll(&fd, 1, 0), 0);
}

static void the_first_packet_finds_a_sleeping_receiver(void **state)
{
	struct party p;
	struct wire_flow f;
	struct pollfd fd = { .fd = wire_fd(receiver.w), .events = POLLIN };

	party_open(&p, 16);
	assert_false(wire_arm(receiver.w));
	party_flow(&f, &p, wire_slot(receiver.w));
	assert_int_equal(poll(&fd, 1, 0), 1);
	/* The engine answers and sleeps again before the packet is there; the sender has not seen the answer.
	 */
	party_pump(&receiver);
	party_pump(&receiver);
	assert_false(wire_arm(receiver.w));
	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_int_equal(party_send(&f, wire_slot(receiver.w), 1, 8, 0), 0);
	wire_service(p.w, clock_ns());
	assert_int_equal(poll(&fd, 1, 0), 1);
	wire_disarm(receiver.w);
	party_pump(&receiver);
	assert_int_equal(receiver.ngot, 1);
	party_end_flow(&f);
	party_close(&p);
}

#define with_receiver(f) cmocka_unit_test_setup_teardown(f, open_receiver, close_receiver)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_receiver(work_before_or_after_arming_is_seen),
		with_receiver(a_kick_makes_the_descriptor_readable),
		with_receiver(the_first_packet_finds_a_sleeping_receiver),
		with_receiver(none_is_lost_in_step_with_a_thread),
		with_receiver(none_is_lost_in_step_with_a_process),
		with_receiver(none_is_lost_between_threads),
		with_receiver(none_is_lost_between_processes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Peers that break the rules harm themselves: the victim hangs up, tells its owner if it had met them, goes
 * on talking with an honest peer, and has as many descriptors as before.
 */
#include "hostile.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>

static struct party victim, honest;
static struct wire_flow talk, back;
static struct hostile h;
static uint32_t talked;
static unsigned descriptors;

static void exchange(void)
{
	unsigned long got = victim.ngot, returned = honest.ngot;

	for (int i = 0; i < 20; i++, talked++) {
		party_until(&victim, &honest,
			!party_send(&talk, wire_slot(victim.w), 1, i % 2 ? 8 : 5000, talked));
		party_until(&victim, &honest, !party_send(&back, wire_slot(honest.w), 1, 100, talked));
	}
	party_until(&victim, &honest, victim.ngot == got + 20 && honest.ngot == returned + 20);
}

static int meet(void **state)
{
	party_open(&victim, 1024);
	party_open(&honest, 1024);
	victim.release = honest.release = true;
	party_flow(&talk, &honest, wire_slot(victim.w));
	party_flow(&back, &victim, wire_slot(honest.w));
	exchange();
	/* Both answers have been read and whoever only looked has gone. */
	for (int i = 0; i < 5; i++) {
		party_pump(&victim);
		party_pump(&honest);
	}
	descriptors = open_descriptors();
	hostile_open(&h, &victim);
	return 0;
}

static int part(void **state)
{
	party_end_flow(&talk);
	party_end_flow(&back);
	party_close(&victim);
	party_close(&honest);
	return 0;
}

/* The victim has hung up on h, and nobody else noticed. */
static void harmed_only_itself(unsigned long gone)
{
	char any[64];

	party_until(&victim, &honest, meet_ended(h.sock));
	while (recv(h.sock, any, sizeof(any), MSG_DONTWAIT) > 0)
		;
	party_until(&victim, &honest, victim.ngone == gone);
	exchange();
	assert_int_equal(victim.ngone, gone);
	assert_int_equal(victim.ndead, 0);
	assert_int_equal(honest.ngone, 0);
	hostile_close(&h);
	/* Descriptors of unknown kind are closed by another thread. */
	party_until(&victim, &honest, open_descriptors() == descriptors);
}

static void send_with(const struct layout_message *m, int a, int b)
{
	int fd[2] = { a, b };

	assert_int_equal(meet_send(h.sock, m, fd, 2), 0);
}

static void an_honest_hello_by_hand_is_answered(void **state)
{
	hostile_hello(&h);
	party_until(&victim, &honest, hostile_answered(&h));
	assert_int_equal(victim.ngone, 0);
	meet_leave(h.sock);
	harmed_only_itself(1);
}

static void a_hello_that_is_none(void **state)
{
	assert_int_equal(send(h.sock, "hello?", 6, MSG_NOSIGNAL), 6);
	harmed_only_itself(0);
}

static void a_giant_hello(void **state)
{
	static char giant[100000];

	assert_int_equal(send(h.sock, giant, sizeof(giant), MSG_NOSIGNAL), sizeof(giant));
	harmed_only_itself(0);
}

static void an_empty_hello(void **state)
{
	assert_int_equal(send(h.sock, "", 0, MSG_NOSIGNAL), 0);
	harmed_only_itself(0);
}

static void a_hello_without_descriptors(void **state)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, h.slot };

	assert_int_equal(meet_send(h.sock, &m, NULL, 0), 0);
	harmed_only_itself(0);
}

static void a_hello_with_one_descriptor(void **state)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, h.slot };

	assert_int_equal(meet_send(h.sock, &m, &h.memfd, 1), 0);
	harmed_only_itself(0);
}

static void a_hello_with_fifty_descriptors(void **state)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, h.slot };
	union {
		char space[CMSG_SPACE(50 * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec io = { &m, sizeof(m) };
	struct msghdr msg = { .msg_iov = &io,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(50 * sizeof(int));
	for (int i = 0; i < 50; i++)
		memcpy(CMSG_DATA(c) + i * sizeof(int), &h.memfd, sizeof(int));
	assert_int_equal(sendmsg(h.sock, &msg, MSG_NOSIGNAL), sizeof(m));
	harmed_only_itself(0);
}

static void a_hello_of_another_version(void **state)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION + 1, h.slot };

	send_with(&m, h.memfd, h.door.fd);
	harmed_only_itself(0);
}

static void slot_0_and_slots_beyond_the_last(void **state)
{
	static const uint32_t slot[] = { 0, 4096, UINT32_MAX };

	for (int i = 0; i < 3; i++) {
		struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, slot[i] };

		if (i)
			hostile_open(&h, &victim);
		send_with(&m, h.memfd, h.door.fd);
		harmed_only_itself(0);
	}
}

static void a_slot_that_nobody_has(void **state)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, h.slot };

	close(h.listener);
	h.listener = -1;
	send_with(&m, h.memfd, h.door.fd);
	harmed_only_itself(0);
}

/* Another process's: its listener is in a child. */
static void the_slot_of_another_process(void **state)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, h.slot };
	struct meet_name name;
	int ready[2];
	char byte = 0;
	pid_t pid;

	close(h.listener);
	h.listener = -1;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		meet_name(&name, geteuid(), party_device(), h.slot);
		byte = meet_listen(&name) >= 0;
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(byte, 1);
	close(ready[0]);
	close(ready[1]);
	send_with(&m, h.memfd, h.door.fd);
	harmed_only_itself(0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* The honest peer's slot is in this very process, so the claim itself is right; but it has a channel already.
 */
static void a_second_channel_for_a_slot(void **state)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, wire_slot(honest.w) };

	send_with(&m, h.memfd, h.door.fd);
	harmed_only_itself(0);
}

static int memfd(unsigned flags, off_t size, int seals)
{
	int fd = memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void offer(int bad, bool as_door)
{
	struct layout_message m = { LAYOUT_HELLO_MAGIC, LAYOUT_VERSION, h.slot };

	assert_true(bad >= 0);
	send_with(&m, as_door ? h.memfd : bad, as_door ? bad : h.door.fd);
	close(bad);
	harmed_only_itself(0);
	hostile_open(&h, &victim);
}

static void memory_of_the_wrong_kind(void **state)
{
	int pair[2], huge;

	for (int door = 0; door < 2; door++) {
		off_t size = door ? LAYOUT_DOOR_BYTES : LAYOUT_BYTES;

		offer(open("/dev/null", O_RDWR), door);
		offer(open("/proc/self/maps", O_RDONLY), door);
		offer(eventfd(0, 0), door);
		assert_int_equal(pipe(pair), 0);
		close(pair[1]);
		offer(pair[0], door);
		offer(dup(h.sock), door);
		offer(memfd(0, size, 0), door);
		offer(memfd(0, size, F_SEAL_GROW), door);
		offer(memfd(0, size, F_SEAL_SHRINK), door);
		offer(memfd(0, size - 1, F_SEAL_SHRINK | F_SEAL_GROW), door);
		offer(memfd(0, size + 4096, F_SEAL_SHRINK | F_SEAL_GROW), door);
		offer(memfd(0, 0, F_SEAL_SHRINK | F_SEAL_GROW), door);
		/* Right in all but what is written in it. */
		offer(memfd(0, size, F_SEAL_SHRINK | F_SEAL_GROW), door);
		huge = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
		if (huge >= 0) {
			assert_int_equal(ftruncate(huge, 4 << 20), 0);
			fcntl(huge, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
			offer(huge, door);
		}
	}
	/* A channel that the receiver could only read. */
	offer(memfd(0, LAYOUT_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), false);
	hostile_close(&h);
}

static void a_channel_of_another_shape(void **state)
{
	_Atomic uint32_t *field[] = { &h.head->version, &h.head->ring, &h.head->slots, &h.head->segment };

	for (unsigned i = 0; i < 4; i++) {
		if (i)
			hostile_open(&h, &victim);
		field[0] = &h.head->version;
		field[1] = &h.head->ring;
		field[2] = &h.head->slots;
		field[3] = &h.head->segment;
		atomic_fetch_add(field[i], 1);
		hostile_hello(&h);
		harmed_only_itself(0);
	}
}

static void met(void)
{
	hostile_hello(&h);
	party_until(&victim, &honest, hostile_answered(&h));
}

static void a_descriptor_that_breaks_the_rules(void **state)
{
	static const uint64_t good1 = 12ull << 32 | (uint64_t)LAYOUT_NO_SLOT << 40 | 8ull << 48;
	unsigned long before;

	for (int i = 0; i < 6; i++) {
		uint64_t from = (uint64_t)(h.slot << 12) << 32, to = wire_slot(victim.w) << 12;
		const struct {
			uint64_t word0, word1;
		} bad[] = {
			{ 7 | from, to | good1 },				      /* sequence */
			{ 1 | from, to | (good1 & ~(0xffull << 32)) },		      /* no header */
			{ 1 | from, to | good1 | 0xffffull << 48 },		      /* length */
			{ 1 | from, to | (good1 & ~(0xffull << 40)) | 200ull << 40 }, /* slot */
			{ 1, to | good1 },					      /* source */
			{ 1 | from, good1 },					      /* destination */
		};

		met();
		before = victim.ngot;
		atomic_store(&h.desc[0].word[1], bad[i].word1);
		atomic_store(&h.desc[0].word[0], bad[i].word0);
		party_until(&victim, &honest, victim.ngone == (unsigned long)i + 1);
		assert_int_equal(victim.ngot, before);
		assert_int_equal(victim.gone_slot, h.slot);
		harmed_only_itself((unsigned long)i + 1);
		hostile_open(&h, &victim);
	}
	hostile_close(&h);
}

static void good_packets_before_a_bad_one_are_taken(void **state)
{
	unsigned long before;

	met();
	before = victim.ngot;
	for (int i = 0; i < 3; i++) {
		atomic_store(&h.desc[i].word[1],
			wire_slot(victim.w) << 12 | 12ull << 32 | (uint64_t)LAYOUT_NO_SLOT << 40);
		atomic_store(&h.desc[i].word[0], (i < 2 ? 1u : 9u) | (uint64_t)(h.slot << 12) << 32);
	}
	party_until(&victim, &honest, victim.ngone == 1);
	assert_int_equal(victim.got_at_gone, before + 2);
	harmed_only_itself(1);
}

/* It closes its socket and never stops writing. */
static void an_endless_farewell(void **state)
{
	unsigned long before;

	met();
	before = victim.ngot;
	for (uint32_t i = 0; i < WIRE_RING; i++) {
		atomic_store(&h.desc[i].word[1],
			wire_slot(victim.w) << 12 | 12ull << 32 | (uint64_t)LAYOUT_NO_SLOT << 40);
		atomic_store(&h.desc[i].word[0], 1 | (uint64_t)(h.slot << 12) << 32);
	}
	victim.starve = true;
	meet_leave(h.sock);
	shutdown(h.sock, SHUT_RDWR);
	party_pump(&victim);
	party_pump(&victim);
	victim.starve = false;
	/* Writing goes on wherever the victim has read. */
	for (uint64_t pos = WIRE_RING; !victim.ngone && pos < 100 * WIRE_RING; pos++) {
		wire_poll(victim.w, 1);
		atomic_store(&h.desc[pos % WIRE_RING].word[0],
			(uint32_t)(pos / WIRE_RING + 1) | (uint64_t)(h.slot << 12) << 32);
		wire_service(victim.w, clock_ns());
	}
	assert_int_equal(victim.ngone, 1);
	assert_in_range(victim.ngot - before, 1, WIRE_RING);
	harmed_only_itself(1);
}

static void a_flood_of_wake_ups(void **state)
{
	met();
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 200; i++)
			meet_ring(h.sock);
		exchange();
	}
	/* A peer that was stopped for long may find hundreds from an honest one, so it is no crime. */
	assert_int_equal(victim.ngone, 0);
	meet_leave(h.sock);
	harmed_only_itself(1);
}

static void truncating_is_refused_by_the_kernel(void **state)
{
	met();
	assert_int_equal(ftruncate(h.memfd, 4096), -1);
	assert_int_equal(errno, EPERM);
	/* A hole is only zeroes. */
	assert_int_equal(fallocate(h.memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LAYOUT_BYTES), 0);
	for (int i = 0; i < 10; i++)
		party_pump(&victim);
	meet_leave(h.sock);
	harmed_only_itself(1);
}

static void connections_that_say_nothing_are_closed(void **state)
{
	enum { N = 200 };
	struct meet_name name;
	int silent[N], ended = 0;

	meet_name(&name, geteuid(), party_device(), wire_slot(victim.w));
	for (int i = 0; i < N; i++) {
		silent[i] = meet_connect(&name);
		assert_true(silent[i] >= 0);
	}
	party_pump(&victim);
	for (int i = 0; i < N; i++)
		ended += meet_ended(silent[i]);
	assert_in_range(ended, N - 64, N - 1);
	exchange();
	/* The clock is ours to give. */
	wire_service(victim.w, clock_ns() + 2 * NSEC_PER_SEC);
	for (int i = 0; i < N; i++) {
		assert_true(meet_ended(silent[i]));
		close(silent[i]);
	}
	harmed_only_itself(0);
}

/* The receiving side of our own channel may be hostile too. */
static void answer_by_hand(struct wire_flow *f, int *sock)
{
	struct layout_message m = { LAYOUT_ANSWER_MAGIC, LAYOUT_VERSION, h.slot };
	struct layout_message hello;
	int fd[2];
	void *map;

	party_flow(f, &victim, h.slot);
	*sock = meet_accept(h.listener);
	assert_true(*sock >= 0);
	assert_int_equal(meet_receive(*sock, LAYOUT_HELLO_MAGIC, &hello, fd, 2), 0);
	assert_int_equal(sealed_map(fd[0], LAYOUT_BYTES, true, &map), 0);
	close(fd[0]);
	close(fd[1]);
	close(h.sock);
	h.sock = *sock;
	assert_int_equal(meet_send(*sock, &m, &h.door.fd, 1), 0);
	sealed_unmap(h.memory, LAYOUT_BYTES);
	h.memory = map;
	h.head = map;
	party_pump(&victim);
}

static void an_impossible_consumer_index(void **state)
{
	struct wire_flow f;
	int sock;

	answer_by_hand(&f, &sock);
	while (!party_send(&f, h.slot, 1, 8, 0))
		;
	assert_int_equal(party_send(&f, h.slot, 1, 8, 0), -EAGAIN);
	atomic_store(&h.head->consumed, 100000);
	assert_int_equal(party_send(&f, h.slot, 1, 8, 0), -EPIPE);
	party_until(&victim, &honest, victim.ngone == 1);
	party_end_flow(&f);
	harmed_only_itself(1);
}

static void releases_of_what_was_never_sent(void **state)
{
	struct wire_flow f;
	uint32_t sent = 0;
	int sock;

	answer_by_hand(&f, &sock);
	for (int round = 0; round < 50; round++) {
		atomic_store(&h.head->released[0], UINT64_MAX);
		atomic_store(&h.head->released[1], UINT64_MAX);
		atomic_store(&h.head->consumed, sent);
		while (sent < 200u * (unsigned)(round + 1) && !party_send(&f, h.slot, 1, 4096, sent))
			sent++;
		assert_true(f.held <= WIRE_SLOTS);
	}
	party_end_flow(&f);
	meet_leave(h.sock);
	harmed_only_itself(1);
}

static void an_answer_that_is_none(void **state)
{
	struct wire_flow f;
	struct layout_message m = { LAYOUT_ANSWER_MAGIC, LAYOUT_VERSION, h.slot };
	int sock, bad;

	party_flow(&f, &victim, h.slot);
	sock = meet_accept(h.listener);
	assert_true(sock >= 0);
	bad = open("/dev/null", O_RDWR);
	assert_int_equal(meet_send(sock, &m, &bad, 1), 0);
	close(bad);
	party_until(&victim, &honest, victim.ngone == 1);
	assert_int_equal(party_send(&f, h.slot, 1, 8, 0), -EPIPE);
	party_end_flow(&f);
	close(h.sock);
	h.sock = sock;
	harmed_only_itself(1);
}

static void drop_notices_of_everything(void **state)
{
	struct wire_flow f;
	int sock;

	answer_by_hand(&f, &sock);
	for (int i = 0; i < 64; i++)
		atomic_store(&h.head->drop[i], UINT64_MAX);
	atomic_store(&h.head->drop_words, UINT64_MAX);
	atomic_store(&h.head->drop_any, UINT32_MAX);
	meet_ring(sock);
	party_until(&victim, &honest, victim.ndropped == 4097);
	assert_int_equal(victim.dropped_slot, h.slot);
	party_end_flow(&f);
	meet_leave(h.sock);
	harmed_only_itself(1);
}

#define with_hostile(f) cmocka_unit_test_setup_teardown(f, meet, part)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_hostile(an_honest_hello_by_hand_is_answered),
		with_hostile(a_hello_that_is_none),
		with_hostile(a_giant_hello),
		with_hostile(an_empty_hello),
		with_hostile(a_hello_without_descriptors),
		with_hostile(a_hello_with_one_descriptor),
		with_hostile(a_hello_with_fifty_descriptors),
		with_hostile(a_hello_of_another_version),
		with_hostile(slot_0_and_slots_beyond_the_last),
		with_hostile(a_slot_that_nobody_has),
		with_hostile(the_slot_of_another_process),
		with_hostile(a_second_channel_for_a_slot),
		with_hostile(memory_of_the_wrong_kind),
		with_hostile(a_channel_of_another_shape),
		with_hostile(a_descriptor_that_breaks_the_rules),
		with_hostile(good_packets_before_a_bad_one_are_taken),
		with_hostile(an_endless_farewell),
		with_hostile(a_flood_of_wake_ups),
		with_hostile(truncating_is_refused_by_the_kernel),
		with_hostile(connections_that_say_nothing_are_closed),
		with_hostile(an_impossible_consumer_index),
		with_hostile(releases_of_what_was_never_sent),
		with_hostile(an_answer_that_is_none),
		with_hostile(drop_notices_of_everything),
	};

	setenv("UNPIN_LOG", "error", 0); /* the warnings are expected */
	return cmocka_run_group_tests(tests, NULL, NULL);
}

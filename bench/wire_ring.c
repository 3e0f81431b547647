/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The shared-memory wire against the least that two processes need: a bare ring with one copy in and one copy
 * out. Both in one run, interleaved, medians:
 *
 *   wire_ring [ROUNDS]
 *
 * Round trip of 8 bytes, both sides spinning; bandwidth of 64 KiB messages. The bare ring has slots of the
 * wire's segment size and as much memory as the wire's channel. Exit status 0.
 */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "wire/shm.h"

#define PING_PONGS 200000u
#define MESSAGE	   65536u
#define MESSAGES   8000u
#define PIECES	   (MESSAGE / WIRE_SEGMENT)
#define MAX_ROUNDS 101

/* --- a bare ring, one direction --- */

struct bare {
	_Alignas(128) _Atomic uint64_t sent;
	_Alignas(128) _Atomic uint64_t taken;
	_Alignas(128) struct {
		_Atomic uint64_t seq;
		uint64_t word;
	} ball;
	_Alignas(4096) uint8_t slot[WIRE_SLOTS][WIRE_SEGMENT];
};

struct shared {
	struct bare bare[2]; /* to the child, to the parent */
	_Atomic uint32_t slot[2];
};

static struct shared *shared;
static int me; /* 0 parent, 1 child */
static uint8_t source[MESSAGE], sink[MESSAGE];

static void bare_ping(uint64_t i)
{
	struct bare *to = &shared->bare[!me], *from = &shared->bare[me];

	if (me)
		while (atomic_load_explicit(&from->ball.seq, memory_order_acquire) != i)
			;
	to->ball.word = i;
	atomic_store_explicit(&to->ball.seq, i, memory_order_release);
	if (!me)
		while (atomic_load_explicit(&from->ball.seq, memory_order_acquire) != i)
			;
}

static double bare_round_trip(uint64_t *first)
{
	uint64_t t = clock_ns();

	for (uint32_t i = 0; i < PING_PONGS; i++)
		bare_ping(++*first);
	return (double)(clock_ns() - t) / PING_PONGS;
}

static void bare_send(struct bare *b, const uint8_t *from)
{
	uint64_t n = atomic_load_explicit(&b->sent, memory_order_relaxed);

	while (n - atomic_load_explicit(&b->taken, memory_order_acquire) == WIRE_SLOTS)
		;
	memcpy(b->slot[n % WIRE_SLOTS], from, WIRE_SEGMENT);
	atomic_store_explicit(&b->sent, n + 1, memory_order_release);
}

static void bare_receive(struct bare *b, uint8_t *to)
{
	uint64_t n = atomic_load_explicit(&b->taken, memory_order_relaxed);

	while (atomic_load_explicit(&b->sent, memory_order_acquire) == n)
		;
	memcpy(to, b->slot[n % WIRE_SLOTS], WIRE_SEGMENT);
	atomic_store_explicit(&b->taken, n + 1, memory_order_release);
}

/* GB/s from parent to child; the child's last word ends it. */
static double bare_bandwidth(uint64_t *first)
{
	struct bare *b = &shared->bare[1];
	uint64_t t = clock_ns();

	for (uint32_t i = 0; i < MESSAGES * PIECES; i++) {
		if (me)
			bare_receive(b, sink + i % PIECES * WIRE_SEGMENT);
		else
			bare_send(b, source + i % PIECES * WIRE_SEGMENT);
	}
	bare_ping(++*first);
	return (double)MESSAGES * MESSAGE / (double)(clock_ns() - t);
}

/* --- the wire --- */

static struct wire *wire;
static struct wire_flow flow;
static struct wire_rx buffer[64];
static struct list unused = LIST_INIT(unused);
static uint64_t received;
static bool left; /* the other one has gone */

static struct wire_rx *get(void *ctx)
{
	struct list *node = list_pop(&unused);

	return node ? container_of(node, struct wire_rx, node) : NULL;
}

/* The one scatter: here, since nothing else happens on this thread. */
static void put(void *ctx, struct wire_rx *rx)
{
	if (rx->hdrlen) {
		memcpy(sink + received % PIECES * WIRE_SEGMENT, rx->payload, rx->paylen);
		received++;
		wire_release(wire, rx);
	}
	list_add_head(&unused, &rx->node);
}

static void dropped(void *ctx, uint32_t peer_slot, uint32_t qpn)
{
}

static void credit(void *ctx, struct wire_flow *f)
{
}

static void gone(void *ctx, uint32_t peer_slot, bool dead)
{
	left = true;
}

static void wire_begin(void)
{
	static const struct wire_ops ops = { get, put, dropped, credit, gone };
	struct wire_cfg cfg = { .device = "bench0", .ops = &ops };
	struct wire_channel *c;

	for (unsigned i = 0; i < sizeof(buffer) / sizeof(*buffer); i++)
		list_add_tail(&unused, &buffer[i].node);
	if (wire_open(&cfg, &wire))
		_exit(1);
	atomic_store(&shared->slot[me], wire_slot(wire));
	while (!atomic_load(&shared->slot[!me]))
		sched_yield();
	c = wire_connect(wire, shared->slot[!me]);
	if (!c)
		_exit(1);
	wire_flow_init(&flow, c, NULL);
}

static void wire_send(const void *from, uint32_t n)
{
	uint8_t hdr[12] = { 0 };
	struct wire_tx tx;

	for (uint32_t spins = 1; wire_reserve(&flow, n, &tx); spins++) {
		wire_poll(wire, 64);
		if (spins % 1024 == 0)
			wire_service(wire, clock_ns());
	}
	memcpy(tx.payload, from, n);
	wire_commit(&flow, &tx, wire_slot(wire) << WIRE_SLOT_BITS, shared->slot[!me] << WIRE_SLOT_BITS, hdr,
		sizeof(hdr));
}

static void wire_receive(uint64_t until)
{
	for (uint32_t spins = 1; received < until; spins++) {
		wire_poll(wire, 64);
		if (left) {
			fprintf(stderr, "wire_ring: the other process has died\n");
			_exit(1);
		}
		if (spins % 4096 == 0)
			wire_service(wire, clock_ns());
	}
}

static double wire_round_trip(void)
{
	uint64_t t = clock_ns(), before = received;

	for (uint32_t i = 1; i <= PING_PONGS; i++) {
		if (me)
			wire_receive(before + i);
		wire_send(source, 8);
		if (!me)
			wire_receive(before + i);
	}
	return (double)(clock_ns() - t) / PING_PONGS;
}

static double wire_bandwidth(void)
{
	uint64_t t = clock_ns(), before = received;

	for (uint32_t i = 0; i < MESSAGES * PIECES && !me; i++)
		wire_send(source + i % PIECES * WIRE_SEGMENT, WIRE_SEGMENT);
	if (me) {
		wire_receive(before + MESSAGES * PIECES);
		wire_send(source, 8);
	} else {
		wire_receive(before + 1);
	}
	return (double)MESSAGES * MESSAGE / (double)(clock_ns() - t);
}

/* --- the comparison --- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return v[n / 2];
}

static void report(const char *what, const char *unit, double *bare, double *ours, int n)
{
	double b = median(bare, n), o = median(ours, n);

	printf("%-24s bare %9.2f  wire %9.2f %-5s (%.2f to %.2f)  ratio %.2f\n", what, b, o, unit, ours[0],
		ours[n - 1], o / b);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 5;
	static double v[4][MAX_ROUNDS];
	uint64_t ball = 0;
	pid_t child;

	if (rounds < 1 || rounds > MAX_ROUNDS) {
		fprintf(stderr, "usage: %s [ROUNDS], 1 to %d\n", argv[0], MAX_ROUNDS);
		return 2;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	memset(source, 1, sizeof(source));
	child = fork();
	if (child < 0)
		return 1;
	me = !child;
	if (me)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	wire_begin();
	for (int i = -1; i < rounds; i++) { /* the first one warms up */
		int k = i < 0 ? 0 : i;

		v[0][k] = bare_round_trip(&ball);
		v[1][k] = wire_round_trip();
		v[2][k] = bare_bandwidth(&ball);
		v[3][k] = wire_bandwidth();
	}
	if (me)
		_exit(0);
	waitpid(child, NULL, 0);
	report("8 B round trip", "ns", v[0], v[1], rounds);
	report("64 KiB bandwidth", "GB/s", v[2], v[3], rounds);
	return 0;
}

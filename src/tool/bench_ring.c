/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/bench_ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/machine.h"
#include "wire/shm.h"

enum job { JOB_NONE, JOB_COPY, JOB_FUTEX, JOB_STOP };

/*
 * head is the producer's (the thread that calls), tail the consumer's (the second thread), each on a cache
 * line of its own. The job fields are written by the caller before it publishes job (release) and read by the
 * second thread after it has seen it (acquire).
 */
struct ring {
	_Alignas(64) _Atomic uint64_t head; /* segments written */
	_Alignas(64) _Atomic uint64_t tail; /* segments read */
	_Alignas(64) _Atomic uint32_t job;  /* futex word of the second thread while it has nothing to do */
	_Alignas(64) _Atomic uint32_t ball; /* futex word of the round trips */
	void *target;
	size_t span, message;
	uint64_t total;
	uint32_t iterations;
	_Atomic uint64_t finished_ns;
	pthread_t thread;
	_Alignas(64) unsigned char slot[WIRE_SLOTS][WIRE_SEGMENT];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* How the bytes are cut: messages of the given size (the last one shorter), each in segments. */
struct cut {
	size_t span, message;
	uint64_t total, done;
};

/* The next segment: its place in a buffer of span bytes; 0 when all are done. */
static size_t next_segment(struct cut *c, size_t *place)
{
	uint64_t in_message = c->done % c->message, left = c->total - c->done;
	uint64_t n = c->message - in_message;

	if (n > WIRE_SEGMENT)
		n = WIRE_SEGMENT;
	if (n > left)
		n = left;
	*place = c->done % c->span;
	if (n > c->span - *place)
		n = c->span - *place;
	c->done += n;
	return n;
}

static void consume(struct ring *r)
{
	struct cut c = { .span = r->span, .message = r->message, .total = r->total };
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	size_t place, n;

	while ((n = next_segment(&c, &place))) {
		while (atomic_load_explicit(&r->head, memory_order_acquire) == tail)
			machine_relax();
		memcpy((char *)r->target + place, r->slot[tail % WIRE_SLOTS], n);
		atomic_store_explicit(&r->tail, ++tail, memory_order_release);
	}
	atomic_store_explicit(&r->finished_ns, clock_ns(), memory_order_release);
}

static void produce(struct ring *r, const void *source)
{
	struct cut c = { .span = r->span, .message = r->message, .total = r->total };
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	size_t place, n;

	while ((n = next_segment(&c, &place))) {
		while (head - atomic_load_explicit(&r->tail, memory_order_acquire) == WIRE_SLOTS)
			machine_relax();
		memcpy(r->slot[head % WIRE_SLOTS], (const char *)source + place, n);
		atomic_store_explicit(&r->head, ++head, memory_order_release);
	}
}

/* Waits until the ball is at this side, and throws it to the other. */
static void catch_ball(struct ring *r, uint32_t mine)
{
	uint32_t seen;

	while ((seen = atomic_load_explicit(&r->ball, memory_order_acquire)) != mine)
		futex_wait(&r->ball, seen);
}

static void throw_ball(struct ring *r, uint32_t to)
{
	atomic_store_explicit(&r->ball, to, memory_order_release);
	futex_wake(&r->ball);
}

static void return_balls(struct ring *r)
{
	for (uint32_t i = 0; i < r->iterations; i++) {
		catch_ball(r, 1);
		throw_ball(r, 0);
	}
	atomic_store_explicit(&r->finished_ns, clock_ns(), memory_order_release);
}

static void *second_thread(void *arg)
{
	struct ring *r = arg;

	machine_pin_thread(1);
	for (;;) {
		uint32_t job = atomic_load_explicit(&r->job, memory_order_acquire);

		switch (job) {
		case JOB_NONE:
			futex_wait(&r->job, JOB_NONE);
			continue;
		case JOB_COPY:
			consume(r);
			break;
		case JOB_FUTEX:
			return_balls(r);
			break;
		default:
			return NULL;
		}
		/* The next job comes only after this one's end has been seen. */
		atomic_store_explicit(&r->job, JOB_NONE, memory_order_release);
	}
}

static void give(struct ring *r, enum job job)
{
	/* The thread may still be on its way from the end of the last job to JOB_NONE. */
	while (atomic_load_explicit(&r->job, memory_order_acquire) != JOB_NONE)
		machine_relax();
	atomic_store_explicit(&r->finished_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&r->job, job, memory_order_release);
	futex_wake(&r->job);
}

static uint64_t await_finish(struct ring *r)
{
	uint64_t at;

	while (!(at = atomic_load_explicit(&r->finished_ns, memory_order_acquire)))
		machine_relax();
	return at;
}

struct ring *ring_start(void)
{
	struct ring *r = aligned_alloc(64, (sizeof(*r) + 63) & ~(size_t)63);
	int err;

	if (!r)
		return NULL;
	memset(r, 0, sizeof(*r));
	err = pthread_create(&r->thread, NULL, second_thread, r);
	if (!err)
		return r;
	free(r);
	errno = err;
	return NULL;
}

void ring_stop(struct ring *r)
{
	if (!r)
		return;
	give(r, JOB_STOP);
	pthread_join(r->thread, NULL);
	free(r);
}

uint64_t ring_copy(
	struct ring *r, const void *source, void *target, size_t span, size_t message, uint64_t total)
{
	uint64_t start;

	r->target = target;
	r->span = span;
	r->message = message;
	r->total = total;
	give(r, JOB_COPY);
	start = clock_ns();
	produce(r, source);
	return await_finish(r) - start;
}

void ring_futex(struct ring *r, uint32_t iterations, uint64_t *round_ns)
{
	uint64_t before, now;

	r->iterations = iterations;
	atomic_store(&r->ball, 0);
	give(r, JOB_FUTEX);
	before = clock_ns();
	for (uint32_t i = 0; i < iterations; i++) {
		throw_ball(r, 1);
		catch_ball(r, 0);
		now = clock_ns();
		round_ns[i] = now - before;
		before = now;
	}
	await_finish(r);
}

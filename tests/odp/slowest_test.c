/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "odp/slowest.h"

#define SECOND 1000000000ull

static struct unpin_slow slow;

static int clear(void **state)
{
	(void)state;
	memset(&slow, 0, sizeof(slow));
	return 0;
}

static void note(uint64_t addr, uint64_t ns, uint64_t ended)
{
	struct unpin_slow_fault f = { .addr = addr, .waited_ns = ns / 4, .resolved_ns = ns - ns / 4 };

	f.ended_ns = ended;
	slowest_note(&slow, &f);
}

static unsigned places_of(uint64_t addr)
{
	unsigned n = 0;

	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++)
		n += slow.fault[i].ended_ns && slow.fault[i].addr == addr;
	return n;
}

static void the_slowest_of_many_are_kept(void **state)
{
	for (uint64_t i = 1; i <= 1000; i++)
		note(i, (i * 7919 % 1000 + 1) * 10, SECOND + i);
	for (uint64_t i = 1; i <= 1000; i++)
		assert_int_equal(places_of(i), i * 7919 % 1000 + 1 > 1000 - UNPIN_SLOW_FAULTS);
}

static void a_faster_one_changes_nothing(void **state)
{
	struct unpin_slow before;

	for (uint64_t i = 0; i < UNPIN_SLOW_FAULTS; i++)
		note(i, 1000 + i, SECOND);
	memcpy(&before, &slow, sizeof(slow));
	note(99, 1000, SECOND + 1);
	assert_memory_equal(&before, &slow, sizeof(slow));
	note(99, 1001, SECOND + 1);
	assert_int_equal(places_of(99), 1);
	assert_int_equal(places_of(0), 0);
}

static void what_is_old_gives_way_to_a_faster_one(void **state)
{
	for (uint64_t i = 0; i < UNPIN_SLOW_FAULTS; i++)
		note(i, 1000000, SECOND + i);
	note(99, 5, SECOND + UNPIN_SLOW_NS - 1);
	assert_int_equal(places_of(99), 0);
	note(99, 5, SECOND + UNPIN_SLOW_NS);
	assert_int_equal(places_of(99), 1);
	assert_int_equal(places_of(0), 0);
	assert_int_equal(places_of(1), 1);
}

static void a_place_that_is_being_written_is_left_alone(void **state)
{
	for (uint64_t i = 0; i < UNPIN_SLOW_FAULTS; i++)
		note(i, 1000 + i, SECOND);
	slow.fault[0].sequence++;
	note(99, 5000, SECOND);
	assert_int_equal(places_of(99), 0);
	slow.fault[0].sequence++;
	note(99, 5000, SECOND);
	assert_int_equal(places_of(99), 1);
}

#define ROUNDS 20000u

static void *writer(void *arg)
{
	uint64_t mine = (uint64_t)(uintptr_t)arg;

	for (uint64_t i = 1; i <= ROUNDS; i++) {
		uint64_t ns = (i * 31 + mine) % 4096 * 4;
		/* Whoever reads can tell a torn one: the address says how long it took. */
		struct unpin_slow_fault f = { .addr = ns, .waited_ns = ns / 4, .resolved_ns = ns - ns / 4 };

		f.ended_ns = SECOND + i * UNPIN_SLOW_NS / 100;
		slowest_note(&slow, &f);
	}
	return NULL;
}

static void a_reader_never_sees_half_of_one(void **state)
{
	pthread_t thread[2];
	unsigned whole = 0;

	for (uintptr_t i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, writer, (void *)(i + 1)), 0);
	for (unsigned n = 0; n < 20000; n++) {
		struct unpin_slow_fault *f = &slow.fault[n % UNPIN_SLOW_FAULTS];
		uint32_t before = atomic_load(&f->sequence);
		uint64_t addr = atomic_load_explicit(&f->addr, memory_order_relaxed);
		uint64_t ns = atomic_load_explicit(&f->waited_ns, memory_order_relaxed) +
			      atomic_load_explicit(&f->resolved_ns, memory_order_relaxed);

		atomic_thread_fence(memory_order_acquire);
		if ((before & 1) || before != atomic_load(&f->sequence))
			continue;
		whole++;
		assert_int_equal(addr, ns);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++) {
		assert_int_equal(slow.fault[i].sequence & 1, 0);
		assert_int_equal(slow.fault[i].addr, slow.fault[i].waited_ns + slow.fault[i].resolved_ns);
	}
	assert_true(whole > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_slowest_of_many_are_kept, clear),
		cmocka_unit_test_setup(a_faster_one_changes_nothing, clear),
		cmocka_unit_test_setup(what_is_old_gives_way_to_a_faster_one, clear),
		cmocka_unit_test_setup(a_place_that_is_being_written_is_left_alone, clear),
		cmocka_unit_test_setup(a_reader_never_sees_half_of_one, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

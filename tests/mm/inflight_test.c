/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/inflight.h"
#include "tests/mm/child.h"

static int setup(void **state)
{
	return inflight_begin();
}

static char object, other;

static void nobody_inside_is_not_waited_for(void **state)
{
	inflight_drain(&object);
	inflight_leave(inflight_enter(&object));
	inflight_drain(&object);
}

static void a_thread_does_not_wait_for_itself(void **state)
{
	struct inflight_slot *slot = inflight_enter(&object);

	inflight_drain(&object);
	inflight_leave(slot);
}

static atomic_int inside, leave, drained;

static void *stay_inside(void *what)
{
	struct inflight_slot *slot = inflight_enter(what);

	atomic_fetch_add(&inside, 1);
	while (!atomic_load(&leave))
		sched_yield();
	atomic_fetch_sub(&inside, 1);
	inflight_leave(slot);
	return NULL;
}

static void *drain_object(void *arg)
{
	inflight_drain(&object);
	/* Nobody may be left inside. */
	atomic_store(&drained, 1 + atomic_load(&inside));
	return NULL;
}

static void draining_waits_until_all_have_left(void **state)
{
	pthread_t thread[3], drainer;

	atomic_store(&inside, 0);
	atomic_store(&leave, 0);
	atomic_store(&drained, 0);
	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, stay_inside, &object);
	while (atomic_load(&inside) < 3)
		sched_yield();
	pthread_create(&drainer, NULL, drain_object, NULL);
	for (int i = 0; i < 100; i++)
		sched_yield();
	assert_int_equal(atomic_load(&drained), 0);
	atomic_store(&leave, 1);
	pthread_join(drainer, NULL);
	assert_int_equal(atomic_load(&drained), 1);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
}

static void who_is_in_another_object_is_not_waited_for(void **state)
{
	pthread_t thread;

	atomic_store(&inside, 0);
	atomic_store(&leave, 0);
	pthread_create(&thread, NULL, stay_inside, &other);
	while (!atomic_load(&inside))
		sched_yield();
	inflight_drain(&object);
	assert_int_equal(atomic_load(&inside), 1);
	atomic_store(&leave, 1);
	pthread_join(thread, NULL);
}

/* More threads than one block has slots. */
static void there_are_slots_for_any_number_of_threads(void **state)
{
	static pthread_t thread[150];

	atomic_store(&inside, 0);
	atomic_store(&leave, 0);
	atomic_store(&drained, 0);
	for (int i = 0; i < 150; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, stay_inside, i % 2 ? &object : &other), 0);
	while (atomic_load(&inside) < 150)
		sched_yield();
	atomic_store(&leave, 1);
	inflight_drain(&object);
	inflight_drain(&other);
	assert_int_equal(atomic_load(&inside), 0);
	for (int i = 0; i < 150; i++)
		pthread_join(thread[i], NULL);
}

/* ---- The protocol: nobody acts behind a closed door ---- */

static atomic_bool closed, stop;
static atomic_uint left, right; /* equal, but for who closed the door */
static atomic_uint late, acts;

static unsigned look(atomic_uint *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static void linger(unsigned turns)
{
	for (volatile unsigned i = 0; i < turns; i++)
		;
}

static void *pass(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		struct inflight_slot *slot = inflight_enter(&object);

		if (!atomic_load_explicit(&closed, memory_order_relaxed)) {
			unsigned seen = look(&left);

			for (int i = 0; i < 4; i++) {
				linger(30);
				if (look(&left) != seen || look(&right) != seen)
					atomic_fetch_add(&late, 1);
			}
			atomic_fetch_add_explicit(&acts, 1, memory_order_relaxed);
		}
		inflight_leave(slot);
	}
	return NULL;
}

static void nobody_acts_behind_a_closed_door(void **state)
{
	pthread_t thread;

	atomic_store(&stop, false);
	atomic_store(&acts, 0);
	atomic_store(&late, 0);
	pthread_create(&thread, NULL, pass, NULL);
	while (!atomic_load(&acts))
		sched_yield();
	for (unsigned round = 0; round < 60000; round++) {
		atomic_store_explicit(&closed, true, memory_order_release);
		inflight_drain(&object);
		atomic_store_explicit(&left, round, memory_order_relaxed);
		linger(20);
		atomic_store_explicit(&right, round, memory_order_relaxed);
		atomic_store_explicit(&closed, false, memory_order_release);
		linger(round % 64);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&late), 0);
}

static int forget_in_child(void)
{
	inflight_begin();
	/* The parent's other thread was inside. */
	inflight_drain(&object);
	inflight_leave(inflight_enter(&object));
	return 0;
}

static void a_child_does_not_wait_for_threads_it_does_not_have(void **state)
{
	pthread_t thread;
	int status;

	atomic_store(&inside, 0);
	atomic_store(&leave, 0);
	pthread_create(&thread, NULL, stay_inside, &object);
	while (!atomic_load(&inside))
		sched_yield();
	status = in_child(forget_in_child);
	atomic_store(&leave, 1);
	pthread_join(thread, NULL);
	assert_true(exited(status, 0));
}

static void the_protocol_holds_with_full_fences_too(void **state)
{
	bool before = inflight_fence;

	inflight_fence = true;
	nobody_acts_behind_a_closed_door(state);
	inflight_fence = before;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_inside_is_not_waited_for),
		cmocka_unit_test(a_thread_does_not_wait_for_itself),
		cmocka_unit_test(draining_waits_until_all_have_left),
		cmocka_unit_test(who_is_in_another_object_is_not_waited_for),
		cmocka_unit_test(there_are_slots_for_any_number_of_threads),
		cmocka_unit_test(nobody_acts_behind_a_closed_door),
		cmocka_unit_test(the_protocol_holds_with_full_fences_too),
		cmocka_unit_test(a_child_does_not_wait_for_threads_it_does_not_have),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The rings and the threads that record, by way of what comes of it in the file. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/trace.h"
#include "timeline.h"

/* The writer may empty the ring meanwhile: what counts is that nothing is lost without being told. */
static void what_a_full_ring_drops_is_counted_in_the_file(void **state)
{
	const int64_t all = 8 * TRACE_RING_UNITS;
	json_object *f;

	assert_int_equal(trace_open(timeline_path), 0);
	for (int64_t i = 0; i < all; i++)
		trace_record(TRACE_POST_SEND, 1, 1, 1, (uint64_t)i);
	trace_close();
	f = timeline_read(timeline_path);
	assert_true(timeline_dropped(f) > 0);
	assert_int_equal((int64_t)timeline_count(f, "post_send") + timeline_dropped(f), all);
	json_object_put(f);
}

#define THREADS	   (TRACE_RINGS / 2)
#define PER_THREAD 500u

static void *record(void *arg)
{
	pthread_setname_np(pthread_self(), arg ? arg : "many");
	for (unsigned i = 0; i < PER_THREAD; i++)
		trace_point(TRACE_COMPLETION, (uint64_t)gettid(), i);
	return NULL;
}

static void in_threads(unsigned n)
{
	pthread_t t[THREADS];

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pthread_create(&t[i], NULL, record, NULL), 0);
	for (unsigned i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

/* By thread, the events stand in the order in which they happened, whole. */
static void check_order(json_object *f, unsigned threads)
{
	struct {
		int64_t tid, next;
		double ts;
	} seen[TRACE_RINGS * 8] = { 0 };
	unsigned used = 0, ended = 0;

	for (size_t i = 0; i < json_object_array_length(f); i++) {
		json_object *o = json_object_array_get_idx(f, i);
		int64_t tid = (int64_t)timeline_number(o, "tid");
		unsigned k = used;

		if (strcmp(timeline_text(o, "name"), "completion") != 0)
			continue;
		assert_int_equal(json_object_get_int64(timeline_argument(o, "qp")), tid);
		/* The last one of that number: numbers come again. */
		while (k > 0 && seen[k - 1].tid != tid)
			k--;
		if (!k || seen[k - 1].next == PER_THREAD) {
			assert_true(used < TRACE_RINGS * 8);
			seen[used++].tid = tid;
			k = used;
		}
		assert_int_equal(json_object_get_int64(timeline_argument(o, "wr_id")), seen[k - 1].next);
		assert_true(timeline_number(o, "ts") >= seen[k - 1].ts);
		seen[k - 1].ts = timeline_number(o, "ts");
		ended += ++seen[k - 1].next == PER_THREAD;
	}
	assert_int_equal(used, threads);
	assert_int_equal(ended, threads);
}

static void many_threads_have_their_events_in_order(void **state)
{
	json_object *f;

	assert_int_equal(trace_open(timeline_path), 0);
	in_threads(THREADS);
	trace_close();
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_dropped(f), 0);
	check_order(f, THREADS);
	json_object_put(f);
}

/* Twice as many threads as there are rings, in turns: the writer needs a moment to see that they ended. */
static void rings_of_ended_threads_serve_others(void **state)
{
	json_object *f;

	assert_int_equal(trace_open(timeline_path), 0);
	for (int turn = 0; turn < 4; turn++) {
		in_threads(THREADS);
		usleep(100000);
	}
	trace_close();
	f = timeline_read(timeline_path);
	assert_int_equal(
		(int64_t)timeline_count(f, "completion") + timeline_dropped(f), 4 * THREADS * PER_THREAD);
	assert_true(timeline_count(f, "completion") > TRACE_RINGS * PER_THREAD);
	json_object_put(f);
}

/* A short event has no room for them. */
static void large_arguments_and_the_time_are_kept(void **state)
{
	uint64_t before, after;
	json_object *f, *o;

	assert_int_equal(trace_open(timeline_path), 0);
	before = clock_ns();
	trace_point(TRACE_COMPLETION, 0xffffff, 1);
	trace_point(TRACE_COMPLETION, 0x1000001, 2);
	trace_point(TRACE_COMPLETION, UINT64_MAX, UINT64_MAX);
	after = clock_ns();
	trace_close();
	f = timeline_read(timeline_path);
	assert_int_equal(
		json_object_get_int64(timeline_argument(timeline_find(f, "completion", 0), "qp")), 0xffffff);
	assert_int_equal(
		json_object_get_int64(timeline_argument(timeline_find(f, "completion", 1), "qp")), 0x1000001);
	assert_string_equal(
		json_object_get_string(timeline_argument(timeline_find(f, "completion", 2), "qp")),
		"0xffffffffffffffff");
	/* To a hundred microseconds: two clocks are compared. */
	for (size_t i = 0; i < 3; i++) {
		o = timeline_find(f, "completion", i);
		assert_true(timeline_number(o, "ts") * 1000 + 1e5 > (double)before);
		assert_true(timeline_number(o, "ts") * 1000 - 1e5 < (double)after);
	}
	json_object_put(f);
}

static pthread_barrier_t all_there;

static void *record_together(void *arg)
{
	trace_point(TRACE_COMPLETION, 1, 1);
	pthread_barrier_wait(&all_there);
	return arg;
}

static void threads_without_a_ring_are_counted(void **state)
{
	pthread_t t[TRACE_RINGS + 5];
	json_object *f;

	assert_int_equal(pthread_barrier_init(&all_there, NULL, TRACE_RINGS + 5), 0);
	assert_int_equal(trace_open(timeline_path), 0);
	trace_point(TRACE_COMPLETION, 1, 1);
	for (unsigned i = 0; i < TRACE_RINGS + 5; i++)
		assert_int_equal(pthread_create(&t[i], NULL, record_together, NULL), 0);
	for (unsigned i = 0; i < TRACE_RINGS + 5; i++)
		pthread_join(t[i], NULL);
	trace_close();
	pthread_barrier_destroy(&all_there);
	f = timeline_read(timeline_path);
	assert_true(timeline_dropped(f) >= 6);
	assert_int_equal((int64_t)timeline_count(f, "completion") + timeline_dropped(f), TRACE_RINGS + 6);
	json_object_put(f);
}

static void names_of_threads_cannot_break_the_file(void **state)
{
	static char name[] = "a\"b\\c\n\xff";
	pthread_t t;
	json_object *f;
	bool found = false;

	assert_int_equal(trace_open(timeline_path), 0);
	assert_int_equal(pthread_create(&t, NULL, record, name), 0);
	pthread_join(t, NULL);
	trace_close();
	f = timeline_read(timeline_path);
	for (size_t i = 0; i < timeline_count(f, "thread_name"); i++)
		found = found || strcmp(json_object_get_string(timeline_argument(
						timeline_find(f, "thread_name", i), "name")),
					 "a\"b\\c??") == 0;
	assert_true(found);
	json_object_put(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, timeline_make, timeline_unmake)
		CASE(what_a_full_ring_drops_is_counted_in_the_file),
		CASE(many_threads_have_their_events_in_order),
		CASE(rings_of_ended_threads_serve_others),
		CASE(large_arguments_and_the_time_are_kept),
		CASE(threads_without_a_ring_are_counted),
		CASE(names_of_threads_cannot_break_the_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

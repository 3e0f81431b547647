/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The fault queue by itself: events found, joined, left, finished; no memory is touched. */
#include "fixture.h"

static struct fault_queue q;
static struct odp_region region[2];

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		memset(&region[i], 0, sizeof(region[i]));
		if (!i && fault_queue_init(&q))
			return -1;
		fault_region_begin(&q, &region[i]);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fault_queue_destroy(&q);
	return 0;
}

#define AT(page) (0x7f0000000000ul + (page)*PAGE)

static void waits(struct witness *it, struct fault *f, struct odp_region *r, uintptr_t addr)
{
	witness_init(it);
	it->w.addr = addr;
	fault_join(f, r, &it->w, false);
}

static void finish(struct fault *f, int err, bool forced)
{
	struct list told = LIST_INIT(told);

	fault_finish(&q, f, err, forced, 1, &told);
	fault_tell(&told);
	assert_true(list_empty(&told));
}

static void an_event_is_found_by_its_pages_and_only_by_them(void **state)
{
	struct fault *f = fault_new(&q, &region[0], AT(10), 4), *g = fault_new(&q, &region[0], AT(20), 1);

	(void)state;
	assert_null(fault_find(&q, AT(9)));
	assert_ptr_equal(fault_find(&q, AT(10)), f);
	assert_ptr_equal(fault_find(&q, AT(13) + 4095), f);
	assert_null(fault_find(&q, AT(14)));
	assert_ptr_equal(fault_find(&q, AT(20)), g);
	assert_true(fault_in_leaf(&q, AT(511)));
	assert_false(fault_in_leaf(&q, AT(512)));
	finish(f, 0, false);
	assert_null(fault_find(&q, AT(10)));
	assert_true(fault_in_leaf(&q, AT(0)));
	finish(g, 0, false);
	assert_false(fault_in_leaf(&q, AT(0)));
}

static void the_line_is_first_in_first_out(void **state)
{
	struct fault *f[3];

	(void)state;
	assert_null(fault_dequeue(&q));
	for (unsigned i = 0; i < 3; i++) {
		f[i] = fault_new(&q, &region[0], AT(i), 1);
		fault_enqueue(&q, f[i]);
	}
	assert_int_equal(q.line.len, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_ptr_equal(fault_dequeue(&q), f[i]);
	assert_int_equal(q.line.len, 0);
	for (unsigned i = 0; i < 3; i++)
		finish(f[i], 0, false);
}

static void waiters_are_told_in_order_the_raiser_first(void **state)
{
	struct fault *f = fault_new(&q, &region[0], AT(0), 4);
	_Atomic unsigned turn = 0;
	struct witness it[5];

	(void)state;
	for (unsigned i = 1; i < 5; i++)
		waits(&it[i], f, &region[i % 2], AT(i % 4));
	witness_init(&it[0]);
	fault_join(f, &region[0], &it[0].w, true);
	for (unsigned i = 0; i < 5; i++)
		it[i].turn = &turn;
	finish(f, 0, false);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(it[i].told, 1);
		assert_int_equal(it[i].result, 0);
		assert_int_equal(it[i].order, i);
		assert_null(it[i].w.fault);
	}
	assert_true(list_empty(&region[0].waiters) && list_empty(&region[1].waiters));
}

/* A joiner may have come when the obstacle was found already, and gone again. */
static void an_error_is_for_who_raised_it_and_the_others_look_for_themselves(void **state)
{
	struct fault *f = fault_new(&q, &region[0], AT(0), 4);
	struct witness raiser, joined, neighbour;

	(void)state;
	f->write = true;
	witness_init(&raiser);
	raiser.w.addr = AT(0);
	fault_join(f, &region[0], &raiser.w, true);
	waits(&joined, f, &region[0], AT(0));
	waits(&neighbour, f, &region[0], AT(1));
	finish(f, -EACCES, false);
	assert_int_equal(raiser.result, -EACCES);
	assert_int_equal(joined.result, 0);
	assert_int_equal(neighbour.result, 0);
	assert_int_equal(joined.told + neighbour.told, 2);
}

static void who_lost_too_often_is_let_through(void **state)
{
	struct fault *f = fault_new(&q, &region[0], AT(0), 2);
	struct witness it[2];

	(void)state;
	waits(&it[0], f, &region[0], AT(0));
	waits(&it[1], f, &region[0], AT(1));
	finish(f, 0, true);
	assert_int_equal(it[0].w.forced, ODP_FORCED);
	assert_int_equal(it[1].w.forced, 0);
}

static void who_leaves_is_not_told(void **state)
{
	struct fault *f = fault_new(&q, &region[0], AT(0), 1);
	struct witness it[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		waits(&it[i], f, &region[0], AT(0));
	fault_leave(&it[1].w);
	finish(f, 0, false);
	assert_int_equal(it[0].told, 1);
	assert_int_equal(it[1].told, 0);
	assert_int_equal(it[2].told, 1);
}

static void the_end_of_a_region_tells_its_waiters_and_orphans_its_events(void **state)
{
	struct fault *f = fault_new(&q, &region[0], AT(0), 1), *g = fault_new(&q, &region[1], AT(1), 1);
	struct list told = LIST_INIT(told);
	struct witness mine, other, mine_elsewhere;

	(void)state;
	waits(&mine, f, &region[0], AT(0));
	waits(&other, f, &region[1], AT(0));
	waits(&mine_elsewhere, g, &region[0], AT(1));
	fault_region_end(&region[0], &told);
	fault_tell(&told);
	assert_int_equal(mine.result, -ECANCELED);
	assert_int_equal(mine_elsewhere.result, -ECANCELED);
	assert_int_equal(mine.told + mine_elsewhere.told, 2);
	assert_int_equal(other.told, 0);
	assert_null(f->region);
	assert_ptr_equal(g->region, &region[1]);
	finish(f, 0, false);
	finish(g, 0, false);
	assert_int_equal(other.told, 1);
	assert_int_equal(mine.told, 1);
}

static void events_are_reused_without_growing(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10000; i++)
		finish(fault_new(&q, &region[0], AT(i), 1), 0, false);
	assert_int_equal(q.pool.used, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(an_event_is_found_by_its_pages_and_only_by_them),
		TEST(the_line_is_first_in_first_out),
		TEST(waiters_are_told_in_order_the_raiser_first),
		TEST(an_error_is_for_who_raised_it_and_the_others_look_for_themselves),
		TEST(who_lost_too_often_is_let_through),
		TEST(who_leaves_is_not_told),
		TEST(the_end_of_a_region_tells_its_waiters_and_orphans_its_events),
		TEST(events_are_reused_without_growing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

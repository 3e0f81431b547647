/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The storm guard, by a clock, a counter of majors, a stall time and a headroom that the tests make up
 * (linked with --wrap=pressure_stall_us, --wrap=pressure_headroom and --wrap=log_write). How driver threads
 * wait is counted (--wrap=pthread_cond_wait, --wrap=pthread_cond_timedwait).
 */
#include "../small_pages.h"
#include "base/log.h"
#include "fixture.h"

uint64_t __wrap_pressure_stall_us(void);
int64_t __wrap_pressure_headroom(void);
void __wrap_log_write(enum log_level level, const char *fmt, ...);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);

static uint64_t stall_us;
static int64_t headroom;
static _Atomic unsigned asked;
static unsigned warned, informed;

uint64_t __wrap_pressure_stall_us(void)
{
	asked++;
	return stall_us;
}

int64_t __wrap_pressure_headroom(void)
{
	return headroom;
}

void __wrap_log_write(enum log_level level, const char *fmt, ...)
{
	(void)fmt;
	warned += level == LOG_WARN;
	informed += level == LOG_INFO;
}

/* Waits of driver threads for work that have begun, and those of them until a time that had passed. */
static _Atomic unsigned waits, vain_waits;

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	waits += cond == &fx.space->faults.work;
	return __real_pthread_cond_wait(cond, mutex);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until)
{
	uint64_t ns = (uint64_t)until->tv_sec * NSEC_PER_SEC + (uint64_t)until->tv_nsec;

	if (cond == &fx.space->faults.work) {
		vain_waits += ns <= clock_ns();
		waits++;
	}
	return __real_pthread_cond_timedwait(cond, mutex, until);
}

static struct guard g;
static struct unpin_storm storm;
static _Atomic uint64_t majors;
static uint64_t now;

static const struct odp_storm_limits limits = { .majors_per_s = 1000, .stall_ppm = 200000 };

#define TICK GUARD_SAMPLE_NS

static void begin(const struct odp_storm_limits *l)
{
	memset(&storm, 0, sizeof(storm));
	atomic_store(&majors, 0);
	stall_us = 0;
	headroom = INT64_MAX;
	asked = warned = informed = 0;
	now = 5 * NSEC_PER_SEC;
	guard_init(&g, l, &storm, &majors, now);
}

static int setup(void **state)
{
	(void)state;
	begin(&limits);
	return 0;
}

/* Ticks for that long, with so many majors and so much stall per tick. How many storms ended. */
static unsigned run(unsigned ticks, unsigned per_tick, uint64_t stall_per_tick)
{
	unsigned ended = 0;

	while (ticks--) {
		now += TICK;
		atomic_fetch_add(&majors, per_tick);
		stall_us += stall_per_tick;
		ended += guard_tick(&g, now);
	}
	return ended;
}

static void below_the_thresholds_nothing_happens(void **state)
{
	(void)state;
	run(100, 100, 20000);
	assert_false(guard_storm(&g));
	assert_int_equal(value(&storm.count), 0);
	assert_int_equal(value(&storm.majors_per_s), 1000);
	assert_int_equal(value(&storm.stall_ppm), 200000);
	assert_int_equal(warned, 0);
}

static void many_majors_over_a_second_are_a_storm_and_a_burst_is_not(void **state)
{
	(void)state;
	run(20, 0, 0);
	run(1, 900, 0);
	run(20, 0, 0);
	assert_false(guard_storm(&g));
	run(5, 150, 0);
	assert_false(guard_storm(&g));
	run(6, 150, 0);
	assert_true(guard_storm(&g));
	assert_int_equal(atomic_load(&storm.cause), UNPIN_STORM_MAJORS);
	assert_int_equal(atomic_load(&storm.last_cause), UNPIN_STORM_MAJORS);
	assert_int_equal(value(&storm.count), 1);
	assert_true(value(&storm.began_ns) <= now && value(&storm.began_ns) > now - NSEC_PER_SEC);
	assert_int_equal(warned, 1);
}

static void waiting_for_memory_is_a_storm_too(void **state)
{
	(void)state;
	run(12, 0, 30000);
	assert_int_equal(atomic_load(&storm.cause), UNPIN_STORM_STALL);
	assert_int_equal(value(&storm.stall_ppm), 300000);
	assert_int_equal(warned, 1);
}

static void without_a_region_it_is_not_our_storm(void **state)
{
	(void)state;
	atomic_store(&g.unused, true);
	run(30, 0, 50000);
	assert_false(guard_storm(&g));
	assert_int_equal(warned, 0);
	atomic_store(&g.unused, false);
	run(1, 0, 50000);
	assert_true(guard_storm(&g));
}

static void a_storm_is_told_once_and_its_end_once(void **state)
{
	(void)state;
	run(100, 500, 50000);
	assert_int_equal(value(&storm.count), 1);
	assert_int_equal(warned, 1);
	assert_int_equal(informed, 0);
	assert_int_equal(run(100, 0, 0), 1);
	assert_false(guard_storm(&g));
	assert_int_equal(informed, 1);
	assert_true(value(&storm.ended_ns) > value(&storm.began_ns));
	assert_int_equal(atomic_load(&storm.last_cause), UNPIN_STORM_MAJORS);
	/* And the next is another one. */
	run(20, 500, 0);
	assert_int_equal(value(&storm.count), 2);
	assert_int_equal(warned, 2);
}

static void it_ends_when_two_seconds_were_below_half_and_no_sooner(void **state)
{
	(void)state;
	run(30, 200, 0);
	assert_true(guard_storm(&g));
	/* Between the half and the whole it goes on. */
	assert_int_equal(run(50, 60, 0), 0);
	assert_true(guard_storm(&g));
	/* 500 a second, over two: half of the window is the old rate. */
	assert_int_equal(run(10, 40, 0), 0);
	assert_int_equal(run(1, 39, 0), 1);
	/* However quiet it is at once, two seconds have to pass. */
	run(6, 200, 0);
	assert_true(guard_storm(&g));
	assert_int_equal(run(12, 0, 0), 0);
	assert_true(guard_storm(&g));
}

static void one_meter_that_is_quiet_does_not_end_it(void **state)
{
	(void)state;
	run(30, 200, 0);
	assert_int_equal(run(50, 0, 15000), 0);
	assert_true(guard_storm(&g));
	assert_int_equal(run(30, 0, 9000), 1);
}

static void a_threshold_of_zero_is_never_passed(void **state)
{
	struct odp_storm_limits only = { .stall_ppm = 200000 };

	(void)state;
	begin(&only);
	run(50, 100000, 0);
	assert_false(guard_storm(&g));
	run(20, 100000, 30000);
	assert_true(guard_storm(&g));
	/* Nor does it keep a storm from ending. */
	assert_int_equal(run(40, 100000, 0), 1);
	begin(&(struct odp_storm_limits){ 0, 0 });
	run(50, 100000, 100000);
	assert_false(guard_storm(&g));
}

static void it_looks_at_most_every_hundred_milliseconds(void **state)
{
	unsigned before = asked;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		guard_tick(&g, now += TICK / 100);
	assert_in_range(asked - before, 9, 10);
}

static void ticks_that_are_rare_do_as_well(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		now += 700000000;
		atomic_fetch_add(&majors, 2000);
		guard_tick(&g, now);
	}
	assert_true(guard_storm(&g));
	/* A process that rested for a minute: the storm is over at the first look that spans two seconds. */
	now += 60 * NSEC_PER_SEC;
	assert_true(guard_tick(&g, now));
}

static void a_stall_time_that_is_unknown_or_jumps_back_is_none(void **state)
{
	(void)state;
	stall_us = UINT64_MAX;
	run(30, 0, 0);
	assert_false(guard_storm(&g));
	stall_us = 7;
	run(30, 0, 0);
	assert_false(guard_storm(&g));
	stall_us = 1000000000;
	run(1, 0, 0);
	stall_us = 3;
	run(30, 0, 0);
	stall_us = UINT64_MAX;
	run(30, 0, 0);
	assert_int_equal(atomic_load(&storm.cause), UNPIN_STORM_NONE);
}

/* ---- what may be brought in ---- */

#define MARGIN_PAGES ((unsigned)(GUARD_MARGIN / 4096))

static void set_headroom(int64_t bytes)
{
	headroom = bytes;
	guard_ask(&g);
}

static void without_a_limit_everything_may_be_brought_in(void **state)
{
	(void)state;
	guard_spend(&g, 1ull << 50);
	assert_true(guard_allows(&g, 1ull << 40));
	assert_int_equal(guard_window(&g, 1, 512), 512);
}

static void what_was_spent_counts_until_it_is_asked_again(void **state)
{
	(void)state;
	set_headroom(GUARD_MARGIN + 3 * 4096);
	assert_true(guard_allows(&g, 3 * 4096));
	assert_false(guard_allows(&g, 4 * 4096));
	guard_spend(&g, 4096);
	assert_false(guard_allows(&g, 3 * 4096));
	guard_spend(&g, 1ull << 30);
	assert_false(guard_allows(&g, 0));
	guard_ask(&g);
	assert_true(guard_allows(&g, 3 * 4096));
}

static void near_the_limit_a_fault_brings_in_what_it_needs(void **state)
{
	(void)state;
	set_headroom(GUARD_MARGIN);
	assert_int_equal(guard_window(&g, 3, 64), 64);
	set_headroom(GUARD_MARGIN - 4096);
	assert_int_equal(guard_window(&g, 3, 64), 3);
	assert_int_equal(guard_window(&g, 100, 64), 64);
	/* Never more than there is room for, and never nothing. */
	set_headroom(2 * 4096);
	assert_int_equal(guard_window(&g, 3, 64), 2);
	set_headroom(0);
	assert_int_equal(guard_window(&g, 3, 64), 1);
	guard_spend(&g, 1 << 20);
	assert_int_equal(guard_window(&g, 3, 64), 1);
	assert_true(MARGIN_PAGES > 512);
}

static void in_a_storm_a_fault_brings_in_what_it_needs(void **state)
{
	(void)state;
	run(20, 500, 0);
	assert_int_equal(guard_window(&g, 1, 512), 1);
	assert_int_equal(guard_window(&g, 9, 512), 9);
	run(40, 0, 0);
	assert_int_equal(guard_window(&g, 1, 512), 512);
}

/* ---- in a space ---- */

static char *p;
static struct odp_region r;

#define PAGES 512u

static int space_setup(void **state)
{
	begin(&limits);
	fixture_limits = limits;
	if (fixture_setup(state))
		return -1;
	p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	region_open(&r, p, PAGES * PAGE, true);
	return p == MAP_FAILED ? -1 : 0;
}

static int space_teardown(void **state)
{
	odp_region_fini(&r);
	munmap(p, PAGES * PAGE);
	return fixture_teardown(state);
}

/* The fixture's thresholds are 1000 majors a second. */
static uint64_t storm_begins(void)
{
	uint64_t at = clock_ns();

	for (unsigned i = 0; i < 15; i++) {
		counter_add(&fx.totals.faults_major, 1000);
		odp_space_sweep(fx.space, at += TICK);
	}
	assert_true(guard_storm(&fx.space->guard));
	return at;
}

static void nothing_is_read_ahead_during_a_storm(void **state)
{
	(void)state;
	storm_begins();
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(copy_in(&r, p + i * PAGE, "x", 1), 0);
	assert_counter(r.odp, page_readahead, 0);
	assert_counter(r.odp, faults_minor, 64);
}

static void the_sweep_asks_for_more_until_the_storm_is_over(void **state)
{
	uint64_t at = storm_begins();
	unsigned ticks = 0;

	(void)state;
	while (odp_space_sweep(fx.space, at += TICK))
		assert_true(++ticks < 100);
	assert_false(guard_storm(&fx.space->guard));
	assert_int_equal(value(&fx.storm.count), 1);
	assert_true(ticks >= 19);
}

static void a_prefetch_is_held_back_during_a_storm_and_goes_on_afterwards(void **state)
{
	uint64_t at = storm_begins();

	(void)state;
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p, PAGES * PAGE, ODP_PREFETCH_WRITE), 0);
	/* A driver that is awake, and has nothing else to do, leaves it. */
	usleep(20000);
	assert_counter(r.odp, page_prefetch, 0);
	/* The one who waits is served. */
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p, PAGE, ODP_PREFETCH_WRITE | ODP_PREFETCH_WAIT), 0);
	assert_counter(r.odp, page_prefetch, 1);
	while (odp_space_sweep(fx.space, at += TICK))
		;
	while (value(&r.odp->page_prefetch) < PAGES)
		sched_yield();
	assert_counter(r.odp, page_prefetch_dropped, 0);
	assert_int_equal(state_at(p + (PAGES - 1) * PAGE), PAGE_VALID_RW);
}

static void prefetches_over(void)
{
	bool over = false;

	while (!over) {
		sched_yield();
		fault_lock(&fx.space->faults);
		over = !fx.space->prefetches.len;
		fault_unlock(&fx.space->faults);
	}
}

/* A driver thread that had nothing to do is woken, has nothing to do, and waits again. */
static void wake_a_driver(void)
{
	unsigned before;

	fault_lock(&fx.space->faults);
	before = waits;
	pthread_cond_signal(&fx.space->faults.work);
	fault_unlock(&fx.space->faults);
	while (waits == before)
		sched_yield();
}

/* Memory was short, and before it was measured again there was a storm, which lasts longer than that. */
static void a_hold_that_has_passed_keeps_nobody_awake_during_a_storm(void **state)
{
	uint64_t at;

	(void)state;
	/* There is one driver. */
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p, PAGE, ODP_PREFETCH_WRITE), 0);
	prefetches_over();
	at = storm_begins();
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p, PAGES * PAGE, ODP_PREFETCH_WRITE), 0);
	fault_lock(&fx.space->faults);
	fx.space->prefetches.held_ns = clock_ns();
	vain_waits = 0;
	fault_unlock(&fx.space->faults);
	for (unsigned i = 0; i < 10; i++)
		wake_a_driver();
	assert_int_equal(vain_waits, 0);
	assert_counter(r.odp, page_prefetch, 1);
	/* Afterwards the hold is over as well. */
	while (odp_space_sweep(fx.space, at += TICK))
		;
	while (value(&r.odp->page_prefetch) < PAGES)
		sched_yield();
	assert_counter(r.odp, page_prefetch_dropped, 0);
}

static void a_prefetch_is_dropped_when_the_limit_does_not_leave_enough(void **state)
{
	(void)state;
	headroom = GUARD_MARGIN + 10 * 4096;
	guard_ask(&fx.space->guard);
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p, PAGES * PAGE, ODP_PREFETCH_WRITE), 0);
	while (!value(&r.odp->page_prefetch_dropped))
		sched_yield();
	prefetches_over();
	/* What its first, smaller chunk brought in fitted. */
	assert_true(value(&r.odp->page_prefetch) <= 10);
	assert_int_equal(value(&r.odp->page_prefetch) + value(&r.odp->page_prefetch_dropped), PAGES);
}

static void driver_threads_look_as_well(void **state)
{
	unsigned before = atomic_load(&asked);

	(void)state;
	usleep(GUARD_SAMPLE_NS / 1000 + 1000);
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p, PAGE, 0), 0);
	while (atomic_load(&asked) == before)
		sched_yield();
	prefetches_over();
}

/* The headroom was spent on pages that were there before, which costs nothing: it is only asked again. */
static void a_prefetch_waits_for_another_look_before_it_is_dropped(void **state)
{
	(void)state;
	headroom = 1ll << 40;
	guard_ask(&fx.space->guard);
	guard_spend(&fx.space->guard, 1ull << 40);
	assert_int_equal(odp_prefetch(&r, (uintptr_t)p, PAGES * PAGE, ODP_PREFETCH_WRITE), 0);
	while (value(&r.odp->page_prefetch) < PAGES)
		sched_yield();
	assert_counter(r.odp, page_prefetch_dropped, 0);
}

static void a_batch_never_exceeds_what_the_limit_leaves(void **state)
{
	char *buf = calloc(PAGES, PAGE);

	(void)state;
	headroom = 8 * 4096;
	guard_ask(&fx.space->guard);
	assert_int_equal(copy_in(&r, p, buf, PAGES * PAGE), 0);
	/* One batch of at most eight, then a page each. */
	assert_true(value(&r.odp->faults_minor) > PAGES - 16);
	assert_counter(r.odp, page_readahead, 0);
	free(buf);
}

int main(void)
{
#define TEST(name)  cmocka_unit_test_setup(name, setup)
#define SPACE(name) cmocka_unit_test_setup_teardown(name, space_setup, space_teardown)
	const struct CMUnitTest tests[] = {
		TEST(below_the_thresholds_nothing_happens),
		TEST(many_majors_over_a_second_are_a_storm_and_a_burst_is_not),
		TEST(waiting_for_memory_is_a_storm_too),
		TEST(without_a_region_it_is_not_our_storm),
		TEST(a_storm_is_told_once_and_its_end_once),
		TEST(it_ends_when_two_seconds_were_below_half_and_no_sooner),
		TEST(one_meter_that_is_quiet_does_not_end_it),
		TEST(a_threshold_of_zero_is_never_passed),
		TEST(it_looks_at_most_every_hundred_milliseconds),
		TEST(ticks_that_are_rare_do_as_well),
		TEST(a_stall_time_that_is_unknown_or_jumps_back_is_none),
		TEST(without_a_limit_everything_may_be_brought_in),
		TEST(what_was_spent_counts_until_it_is_asked_again),
		TEST(near_the_limit_a_fault_brings_in_what_it_needs),
		TEST(in_a_storm_a_fault_brings_in_what_it_needs),
		SPACE(nothing_is_read_ahead_during_a_storm),
		SPACE(the_sweep_asks_for_more_until_the_storm_is_over),
		SPACE(a_prefetch_is_held_back_during_a_storm_and_goes_on_afterwards),
		SPACE(a_hold_that_has_passed_keeps_nobody_awake_during_a_storm),
		SPACE(a_prefetch_is_dropped_when_the_limit_does_not_leave_enough),
		SPACE(driver_threads_look_as_well),
		SPACE(a_prefetch_waits_for_another_look_before_it_is_dropped),
		SPACE(a_batch_never_exceeds_what_the_limit_leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

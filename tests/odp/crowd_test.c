/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Many faults at once: flows take turns, a region has a bounded number of events under way, and nobody is
 * forgotten. There is one driver thread, and a waiter whose ready() holds it up for as long as a test wants.
 */
#include "fixture.h"

#include <inttypes.h>
#include <semaphore.h>

#define PAGES 2048u

static char *mapped;
static struct odp_region region, other;
static char flow[2];

struct plug {
	struct odp_waiter w;
	sem_t in, go;
};

static struct plug plug;
static _Atomic unsigned turn;

static void plug_ready(struct odp_waiter *w, int result)
{
	(void)w;
	(void)result;
	sem_post(&plug.in);
	sem_wait(&plug.go);
}

static int start_in(struct odp_region *r, unsigned page, struct witness *it, const void *of)
{
	witness_init(it);
	it->w.flow = of;
	it->turn = &turn;
	return odp_copy_in(r, SAFECOPY_FIXUP, (uintptr_t)mapped + page * PAGE, "w", 1, &it->w);
}

static int start(unsigned page, struct witness *it, const void *of)
{
	return start_in(&region, page, it, of);
}

static int again(unsigned page, struct witness *it)
{
	return odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + page * PAGE, "w", 1, &it->w);
}

static unsigned events(void)
{
	unsigned n;

	fault_lock(&fx.space->faults);
	n = region.events;
	fault_unlock(&fx.space->faults);
	return n;
}

/* The only driver thread is held, by a page of the other region. */
static void hold_the_driver(void)
{
	memset(&plug.w, 0, sizeof(plug.w));
	plug.w.ready = plug_ready;
	assert_int_equal(
		odp_copy_in(&other, SAFECOPY_FIXUP, (uintptr_t)mapped + (PAGES - 1) * PAGE, "p", 1, &plug.w),
		-EINPROGRESS);
	sem_wait(&plug.in);
}

static void let_the_driver_go(void)
{
	sem_post(&plug.go);
}

static int setup_with(unsigned threads)
{
	int fd = disk_file(PAGES * PAGE);

	if (fd < 0 || fixture_open(threads))
		return -1;
	interpose_observe(fixture_observer);
	atomic_store(&turn, 0);
	sem_init(&plug.in, 0, 0);
	sem_init(&plug.go, 0, 0);
	/* A file's pages, shared: a write may sleep, so it is a driver's. */
	mapped = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	region_open(&region, mapped, PAGES * PAGE, true);
	region_open(&other, mapped, PAGES * PAGE, true);
	return mapped == MAP_FAILED ? -1 : 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_with(1);
}

static int setup_many(void **state)
{
	(void)state;
	return setup_with(4);
}

static int teardown(void **state)
{
	if (!atomic_load(&region.closing))
		odp_region_fini(&region);
	odp_region_fini(&other);
	munmap(mapped, PAGES * PAGE);
	return fixture_teardown(state);
}

/* Every second page, so that no two are a sequence. */
#define AT(i) (2 * (i) % (PAGES - 1))

/* Tries again whoever is told, until all are through. */
static void finish_all(struct witness *it, unsigned n)
{
	unsigned left = n;
	bool *through = calloc(n, sizeof(*through));

	while (left) {
		for (unsigned i = 0; i < n; i++) {
			int err;

			if (through[i] || !atomic_exchange(&it[i].told, 0))
				continue;
			err = again(AT(i), &it[i]);
			assert_true(!err || err == -EINPROGRESS);
			through[i] = !err;
			left -= !err;
		}
		assert_true(events() <= ODP_REGION_EVENTS);
		sched_yield();
	}
	free(through);
}

static struct witness many[1000];

static void a_flow_of_many_delays_anothers_single_fault_by_a_turn(void **state)
{
	struct witness single;

	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(start(AT(i), &many[i], &flow[0]), -EINPROGRESS);
	/* In another region, where there is room, on a page of its own. */
	assert_int_equal(start_in(&other, 1, &single, &flow[1]), -EINPROGRESS);
	let_the_driver_go();
	witness_wait(&single);
	/* Behind it: at most one of the others, and who was told of room by its end. */
	assert_true(single.order <= 2);
	finish_all(many, 1000);
}

static void a_region_has_a_bounded_number_of_events(void **state)
{
	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(start(AT(i), &many[i], &flow[0]), -EINPROGRESS);
	assert_int_equal(events(), ODP_REGION_EVENTS);
	assert_int_equal(region.crowd.len, 1000 - ODP_REGION_EVENTS);
	assert_counter(region.odp, faults_crowded, 1000 - ODP_REGION_EVENTS);
	assert_counter(region.odp, page_faults, ODP_REGION_EVENTS);
	/* Other regions have their own. */
	assert_int_equal(other.events, 0);
	let_the_driver_go();
	finish_all(many, 1000);
	assert_counter(region.odp, page_faults, 1000);
	assert_counter(region.odp, page_faults_handled, 1000);
	assert_int_equal(region.crowd.len, 0);
	assert_int_equal(events(), 0);
}

static void the_crowd_is_fair_between_flows_as_well(void **state)
{
	struct witness single;
	unsigned before = 0;
	uint64_t crowded;

	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(start(AT(i), &many[i], &flow[0]), -EINPROGRESS);
	assert_int_equal(start(1, &single, &flow[1]), -EINPROGRESS);
	let_the_driver_go();
	witness_wait(&single);
	for (unsigned i = ODP_REGION_EVENTS; i < 1000; i++)
		before += atomic_load(&many[i].told) && many[i].order < single.order;
	assert_true(before <= 1);
	/* It has its place: although others wait, it is not sent back. */
	crowded = value(&region.odp->faults_crowded);
	assert_int_equal(again(1, &single), -EINPROGRESS);
	assert_counter(region.odp, faults_crowded, crowded);
	assert_int_equal(witness_wait(&single), 0);
	finish_all(many, 1000);
}

static void who_comes_while_others_wait_for_room_waits_behind_them(void **state)
{
	struct witness late;

	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 300; i++)
		assert_int_equal(start(AT(i), &many[i], &flow[0]), -EINPROGRESS);
	/* One leaves, and there is room. */
	let_the_driver_go();
	witness_wait(&many[ODP_REGION_EVENTS]);
	atomic_store(&many[ODP_REGION_EVENTS].told, 1);
	fault_lock(&fx.space->faults);
	if (region.crowd.len)
		assert_false(fault_room(&region, false));
	fault_unlock(&fx.space->faults);
	assert_int_equal(start(1, &late, &flow[0]), -EINPROGRESS);
	finish_all(many, 300);
	while (witness_wait(&late), again(1, &late) == -EINPROGRESS)
		;
}

static void an_access_that_joins_needs_no_room(void **state)
{
	struct witness joined;

	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 400; i++)
		start(AT(i), &many[i], &flow[0]);
	assert_int_equal(start(AT(0), &joined, &flow[1]), -EINPROGRESS);
	assert_counter(region.odp, faults_coalesced, 1);
	assert_false(joined.w.crowded);
	let_the_driver_go();
	witness_wait(&joined);
	finish_all(many, 400);
}

static void who_waits_for_room_can_be_cancelled(void **state)
{
	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 400; i++)
		start(AT(i), &many[i], &flow[i % 2]);
	for (unsigned i = ODP_REGION_EVENTS; i < 400; i += 3)
		assert_true(odp_cancel(&many[i].w));
	let_the_driver_go();
	for (unsigned i = 0; i < ODP_REGION_EVENTS; i++)
		witness_wait(&many[i]);
	/* All the others are told, though not one of those who were told before has come back. */
	for (unsigned i = ODP_REGION_EVENTS; i < 400; i++)
		if ((i - ODP_REGION_EVENTS) % 3)
			witness_wait(&many[i]);
		else
			assert_int_equal(many[i].told, 0);
	assert_int_equal(region.crowd.len, 0);
	/* A cancelled one is as good as new. */
	assert_true(start(1, &many[ODP_REGION_EVENTS], NULL) == -EINPROGRESS);
	witness_wait(&many[ODP_REGION_EVENTS]);
}

static void the_end_of_the_region_tells_the_crowd(void **state)
{
	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 400; i++)
		start(AT(i), &many[i], &flow[i % 2]);
	odp_region_fini(&region);
	for (unsigned i = 0; i < 400; i++) {
		assert_int_equal(many[i].told, 1);
		assert_int_equal(many[i].result, -ECANCELED);
	}
	let_the_driver_go();
}

static void who_does_not_wait_is_turned_away(void **state)
{
	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < ODP_REGION_EVENTS; i++)
		start(AT(i), &many[i], &flow[0]);
	assert_int_equal(
		odp_copy_in(&region, SAFECOPY_FIXUP, (uintptr_t)mapped + PAGE, "x", 1, NULL), -EINPROGRESS);
	assert_int_equal(state_at(mapped + PAGE), PAGE_INVALID);
	assert_int_equal(events(), ODP_REGION_EVENTS);
	assert_counter(region.odp, faults_crowded, 1);
	let_the_driver_go();
	for (unsigned i = 0; i < ODP_REGION_EVENTS; i++)
		witness_wait(&many[i]);
}

static void who_prefetches_waits_for_room_too(void **state)
{
	(void)state;
	hold_the_driver();
	for (unsigned i = 0; i < 400; i++)
		start(AT(i), &many[i], &flow[0]);
	let_the_driver_go();
	assert_int_equal(odp_prefetch(&region, (uintptr_t)mapped, PAGES * PAGE,
				 ODP_PREFETCH_WAIT | ODP_PREFETCH_WRITE),
		0);
	for (unsigned i = 0; i < PAGES; i++)
		assert_int_equal(state_at(mapped + i * PAGE), PAGE_VALID_RW);
	finish_all(many, 400);
}

/* ---- everything at once ---- */

#define THREADS 3u
#define EACH	300u
#ifdef __SANITIZE_THREAD__
#define ROUNDS 6u
#else
#define ROUNDS 20u
#endif

static atomic_bool stop;
static _Atomic unsigned most_events;

/* Each of its waiters is a flow, and accesses pages of its own choice until it has had enough. */
static void *party(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg + 1;
	struct witness *it = calloc(EACH, sizeof(*it));
	unsigned *page = calloc(EACH, sizeof(*page)), *done = calloc(EACH, sizeof(*done)), left = EACH;

	for (unsigned i = 0; i < EACH; i++) {
		witness_init(&it[i]);
		it[i].w.flow = &it[i % 7];
		atomic_store(&it[i].told, 1);
		page[i] = (unsigned)rand_r(&seed) % PAGES;
	}
	while (left) {
		for (unsigned i = 0; i < EACH; i++) {
			int err;

			if (done[i] == ROUNDS)
				continue;
			if (!atomic_exchange(&it[i].told, 0)) {
				if (rand_r(&seed) % 512 || !odp_cancel(&it[i].w))
					continue;
				page[i] = (unsigned)rand_r(&seed) % PAGES;
			}
			do {
				err = again(page[i], &it[i]);
				if (!err) {
					page[i] = (unsigned)rand_r(&seed) % PAGES;
					left -= ++done[i] == ROUNDS;
				}
			} while (!err && done[i] < ROUNDS);
			if (err && err != -EINPROGRESS)
				abort();
		}
		if (events() > atomic_load(&most_events))
			atomic_store(&most_events, events());
		sched_yield();
	}
	free(it);
	free(page);
	free(done);
	return NULL;
}

static void *empty_it(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		madvise(mapped, PAGES * PAGE, MADV_DONTNEED);
		usleep(500);
	}
	return NULL;
}

static void nobody_is_forgotten(void **state)
{
	pthread_t thread[THREADS + 1];

	(void)state;
	atomic_store(&stop, false);
	atomic_store(&most_events, 0);
	assert_int_equal(pthread_create(&thread[THREADS], NULL, empty_it, NULL), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, party, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	atomic_store(&stop, true);
	pthread_join(thread[THREADS], NULL);
	assert_true(atomic_load(&most_events) <= ODP_REGION_EVENTS);
	assert_true(value(&region.odp->faults_crowded) > 0);
	assert_int_equal(region.crowd.len, 0);
	print_message("%" PRIu64 " events, %" PRIu64 " waits for room, %u at once\n",
		value(&region.odp->faults_major), value(&region.odp->faults_crowded), most_events);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_flow_of_many_delays_anothers_single_fault_by_a_turn),
		TEST(a_region_has_a_bounded_number_of_events),
		TEST(the_crowd_is_fair_between_flows_as_well),
		TEST(who_comes_while_others_wait_for_room_waits_behind_them),
		TEST(an_access_that_joins_needs_no_room),
		TEST(who_waits_for_room_can_be_cancelled),
		TEST(the_end_of_the_region_tells_the_crowd),
		TEST(who_does_not_wait_is_turned_away),
		TEST(who_prefetches_waits_for_room_too),
		cmocka_unit_test_setup_teardown(nobody_is_forgotten, setup_many, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Faults as slow as hardware's: each takes at least its latency, and no thread sleeps for it (linked with
 * --wrap=populate, which counts, and stops where a test wants).
 */
#include "fixture.h"

#include <semaphore.h>

int __real_populate(void *addr, size_t len, bool write);
int __wrap_populate(void *addr, size_t len, bool write);

static struct {
	_Atomic unsigned calls;
	_Atomic uintptr_t hold; /* the call for this page stops: it posts in, and goes on by go */
	sem_t in, go;
} script;

int __wrap_populate(void *addr, size_t len, bool write)
{
	uintptr_t page = (uintptr_t)addr;

	atomic_fetch_add(&script.calls, 1);
	if (atomic_compare_exchange_strong(&script.hold, &page, 0)) {
		sem_post(&script.in);
		sem_wait(&script.go);
	}
	return __real_populate(addr, len, write);
}

#define PAGES 1024u
#define MS    1000000ull

static char *p;
static struct odp_region r;

static void begin(uint64_t latency_ns, unsigned threads)
{
	atomic_store(&script.calls, 0);
	atomic_store(&script.hold, 0);
	sem_init(&script.in, 0, 0);
	sem_init(&script.go, 0, 0);
	fixture_latency = latency_ns;
	assert_int_equal(fixture_open(threads), 0);
	interpose_observe(fixture_observer);
	p = fresh(PAGES * PAGE, PROT_READ | PROT_WRITE);
	madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE);
	region_open(&r, p, PAGES * PAGE, true);
}

static void end(void)
{
	if (!atomic_load(&r.closing))
		odp_region_fini(&r);
	munmap(p, PAGES * PAGE);
	fixture_teardown(NULL);
	fixture_latency = 0;
}

/* A witness that knows when it was told, and how much had been populated by then. */
struct timed {
	struct odp_waiter w;
	uint64_t raised_ns, told_ns;
	unsigned calls;
	int result;
	_Atomic bool told;
};

static void timed_ready(struct odp_waiter *w, int result)
{
	struct timed *it = container_of(w, struct timed, w);

	it->told_ns = clock_ns();
	it->calls = atomic_load(&script.calls);
	it->result = result;
	atomic_store(&it->told, true);
}

static int start(struct timed *it, unsigned page)
{
	memset(it, 0, sizeof(*it));
	it->w.ready = timed_ready;
	it->raised_ns = clock_ns();
	return odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + page * PAGE, "x", 1, &it->w);
}

static void wait_for(struct timed *it)
{
	while (!atomic_load(&it->told))
		usleep(100);
}

static void a_fault_takes_its_latency_and_is_not_resolved_on_the_spot(void **state)
{
	struct timed it;

	(void)state;
	begin(20 * MS, 4);
	assert_int_equal(start(&it, 7), -EINPROGRESS);
	wait_for(&it);
	assert_int_equal(it.result, 0);
	assert_true(it.told_ns - it.raised_ns >= 20 * MS);
	assert_int_equal(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + 7 * PAGE, "x", 1, &it.w), 0);
	assert_counter(r.odp, page_faults, 1);
	assert_counter(r.odp, faults_minor, 1);
	assert_true(hist_quantile(&fx.steps[0][UNPIN_STEP_TOTAL], 1) >= 20 * MS);
	end();
}

static void one_thread_resolves_the_others_meanwhile(void **state)
{
	static struct timed it[200];

	(void)state;
	begin(1000 * MS, 1);
	for (unsigned i = 0; i < 200; i++)
		assert_int_equal(start(&it[i], 5 * i), -EINPROGRESS);
	for (unsigned i = 0; i < 200; i++) {
		wait_for(&it[i]);
		assert_true(it[i].told_ns - it[i].raised_ns >= 1000 * MS);
		/* When the first was told, all had been populated. */
		assert_int_equal(it[i].calls, 200);
	}
	assert_int_equal(__builtin_popcountll(fx.space->drivers), 1);
	end();
}

/* The page stays faulting until it is due: who comes later waits for the rest of the first one's time. */
static void a_second_access_costs_no_second_fault(void **state)
{
	struct timed a, b;

	(void)state;
	begin(500 * MS, 4);
	assert_int_equal(start(&a, 3), -EINPROGRESS);
	while (!atomic_load(&script.calls))
		usleep(100);
	usleep(10000);
	assert_int_equal(state_at(p + 3 * PAGE), PAGE_FAULTING);
	assert_int_equal(start(&b, 3), -EINPROGRESS);
	wait_for(&b);
	wait_for(&a);
	assert_counter(r.odp, faults_coalesced, 1);
	assert_counter(r.odp, page_faults, 1);
	assert_int_equal(value(&fx.steps[0][UNPIN_STEP_RESOLVE].count), 1);
	/* Both were told by one finish: not a latency apart. */
	assert_true(b.told_ns - a.told_ns < 400 * MS);
	assert_int_equal(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + 3 * PAGE, "x", 1, &b.w), 0);
	assert_counter(r.odp, page_faults, 1);
	end();
}

static void an_invalidation_before_it_is_due_makes_it_resolve_again(void **state)
{
	struct timed it;

	(void)state;
	begin(500 * MS, 4);
	assert_int_equal(start(&it, 3), -EINPROGRESS);
	while (!atomic_load(&script.calls))
		usleep(100);
	madvise(p + 3 * PAGE, PAGE, MADV_DONTNEED);
	wait_for(&it);
	assert_counter(r.odp, faults_retried, 1);
	assert_int_equal(script.calls, 2);
	assert_int_equal(state_at(p + 3 * PAGE), PAGE_VALID_RW);
	end();
}

static void a_populate_that_takes_long_does_not_hold_up_what_is_due(void **state)
{
	struct timed slow, fast;

	(void)state;
	begin(100 * MS, 2);
	assert_int_equal(start(&fast, 3), -EINPROGRESS);
	while (!atomic_load(&script.calls))
		usleep(100);
	/* Whoever takes this one is gone for long. */
	atomic_store(&script.hold, (uintptr_t)p + 50 * PAGE);
	assert_int_equal(start(&slow, 50), -EINPROGRESS);
	sem_wait(&script.in);
	wait_for(&fast);
	assert_false(atomic_load(&slow.told));
	sem_post(&script.go);
	wait_for(&slow);
	end();
}

static void the_end_of_the_region_tells_who_waits_at_once(void **state)
{
	struct timed it;

	(void)state;
	begin(3600000 * MS, 4);
	assert_int_equal(start(&it, 3), -EINPROGRESS);
	odp_region_fini(&r);
	assert_true(atomic_load(&it.told));
	assert_int_equal(it.result, -ECANCELED);
	/* And the space closes long before the hour is over. */
	end();
}

static void a_latency_of_more_than_an_hour_is_refused(void **state)
{
	(void)state;
	fixture_latency = 3600001 * MS;
	assert_int_equal(fixture_open(4), -EINVAL);
	fixture_latency = 0;
}

static void a_prefetch_is_not_a_fault(void **state)
{
	(void)state;
	begin(3600000 * MS, 4);
	assert_int_equal(
		odp_prefetch(&r, (uintptr_t)p, 100 * PAGE, ODP_PREFETCH_WAIT | ODP_PREFETCH_WRITE), 0);
	assert_int_equal(state_at(p + 99 * PAGE), PAGE_VALID_RW);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fault_takes_its_latency_and_is_not_resolved_on_the_spot),
		cmocka_unit_test(one_thread_resolves_the_others_meanwhile),
		cmocka_unit_test(a_second_access_costs_no_second_fault),
		cmocka_unit_test(an_invalidation_before_it_is_due_makes_it_resolve_again),
		cmocka_unit_test(a_populate_that_takes_long_does_not_hold_up_what_is_due),
		cmocka_unit_test(the_end_of_the_region_tells_who_waits_at_once),
		cmocka_unit_test(a_latency_of_more_than_an_hour_is_refused),
		cmocka_unit_test(a_prefetch_is_not_a_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Imprecise events, with a queue pair that is a table of extents. */
#include "../small_pages.h"
#include "fixture.h"

#include "odp/raise.h"

#define MOST 64u

/* A waiter with work outstanding. */
struct scanned {
	struct witness it;
	struct odp_extent extent[MOST];
	unsigned n;
	_Atomic unsigned scans;
	_Atomic bool hold, holding; /* the scan waits while hold */
};

static unsigned scan(
	struct odp_waiter *w, const struct odp_region *r, unsigned nth, struct odp_extent *out, unsigned most)
{
	struct scanned *sc = container_of(w, struct scanned, it.w);
	unsigned n = 0;

	assert_ptr_equal(r->space, fx.space);
	atomic_fetch_add(&sc->scans, 1);
	atomic_store(&sc->holding, true);
	while (atomic_load(&sc->hold))
		sched_yield();
	for (; n < most && nth + n < sc->n; n++)
		out[n] = sc->extent[nth + n];
	return n;
}

static void scanned_init(struct scanned *sc)
{
	memset(sc, 0, sizeof(*sc));
	witness_init(&sc->it);
	sc->it.w.scan = scan;
}

static void outstanding(struct scanned *sc, const void *addr, size_t len, bool write)
{
	sc->extent[sc->n++] = (struct odp_extent){ (uintptr_t)addr, len, write };
}

static int write_to(struct odp_region *r, char *to, const char *text, struct scanned *sc)
{
	return odp_copy_in(r, SAFECOPY_FIXUP, (uintptr_t)to, text, strlen(text) + 1, &sc->it.w);
}

/* The same until it is done. */
static int write_through(struct odp_region *r, char *to, const char *text, struct scanned *sc)
{
	int err;

	while ((err = write_to(r, to, text, sc)) == -EINPROGRESS)
		witness_wait(&sc->it);
	return err;
}

static int setup(void **state)
{
	int err = fixture_setup(state);

	if (!err)
		fx.space->cfg.mode = ODP_IMPRECISE;
	return err;
}

static void an_event_brings_in_all_that_is_outstanding(void **state)
{
	char *p = fresh(64 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	struct scanned sc;

	region_open(&r, p, 64 * PAGE, true);
	scanned_init(&sc);
	outstanding(&sc, p, 6, true);
	for (unsigned i = 1; i < 40; i++)
		outstanding(&sc, p + i * PAGE + 5, 10, i % 2);
	assert_int_equal(write_to(&r, p, "hello", &sc), -EINPROGRESS);
	assert_int_equal(witness_wait(&sc.it), 0);
	assert_int_equal(atomic_load(&sc.scans), 3);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(state_at(p + i * PAGE), !i || i % 2 ? PAGE_VALID_RW : PAGE_VALID_RO);
	assert_int_equal(write_to(&r, p, "hello", &sc), 0);
	assert_string_equal(p, "hello");
	assert_counter(r.odp, faults_imprecise, 1);
	assert_counter(r.odp, page_faults, 40);
	assert_counter(r.odp, page_faults_handled, 40);
	odp_region_fini(&r);
	munmap(p, 64 * PAGE);
}

static void the_raise_makes_no_page_faulting(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	struct scanned sc;

	region_open(&r, p, PAGE, true);
	scanned_init(&sc);
	atomic_store(&sc.hold, true);
	assert_int_equal(write_to(&r, p, "x", &sc), -EINPROGRESS);
	assert_int_equal(state_at(p), PAGE_INVALID);
	assert_int_equal(value(&fx.leaves), 0);
	atomic_store(&sc.hold, false);
	assert_int_equal(witness_wait(&sc.it), 0);
	/* Nothing was outstanding: the second time it is precise. */
	assert_int_equal(write_through(&r, p, "x", &sc), 0);
	assert_counter(r.odp, faults_imprecise, 1);
	assert_counter(r.odp, page_faults, 1);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void holes_and_forbidden_memory_yield_their_error(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	struct scanned sc;

	munmap(p + PAGE, PAGE);
	assert_int_equal(mprotect(p + 2 * PAGE, PAGE, PROT_READ), 0);
	region_open(&r, p, 4 * PAGE, true);
	scanned_init(&sc);
	outstanding(&sc, p, 4 * PAGE, true);
	assert_int_equal(write_through(&r, p + PAGE, "x", &sc), -EFAULT);
	assert_int_equal(write_through(&r, p + 2 * PAGE, "x", &sc), -EACCES);
	assert_int_equal(write_through(&r, p + 2 * PAGE - 1, "x", &sc), -EFAULT);
	assert_int_equal(write_through(&r, p, "x", &sc), 0);
	odp_region_fini(&r);
	munmap(p, PAGE);
	munmap(p + 2 * PAGE, 2 * PAGE);
}

static void extents_beyond_the_region_are_cut(void **state)
{
	char *p = fresh(16 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	struct scanned sc;

	region_open(&r, p + 4 * PAGE, 4 * PAGE, true);
	scanned_init(&sc);
	outstanding(&sc, p, 16 * PAGE, true);
	outstanding(&sc, p + 12 * PAGE, PAGE, true);
	outstanding(&sc, (void *)(UINTPTR_MAX - 100), 4096, true);
	outstanding(&sc, p + 5 * PAGE, SIZE_MAX, true);
	outstanding(&sc, p + 5 * PAGE, 0, true);
	assert_int_equal(write_through(&r, p + 4 * PAGE, "x", &sc), 0);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(state_at(p + i * PAGE), i >= 4 && i < 8 ? PAGE_VALID_RW : PAGE_INVALID);
	odp_region_fini(&r);
	munmap(p, 16 * PAGE);
}

static void an_event_looks_at_so_many_pages_and_no_more(void **state)
{
	const size_t pages = 5000;
	char *p = fresh(pages * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	struct scanned sc;

	region_open(&r, p, pages * PAGE, true);
	scanned_init(&sc);
	outstanding(&sc, p, pages * PAGE, true);
	assert_int_equal(write_through(&r, p, "x", &sc), 0);
	assert_int_equal(state_at(p + 4095 * PAGE), PAGE_VALID_RW);
	assert_int_equal(state_at(p + 4096 * PAGE), PAGE_INVALID);
	assert_counter(r.odp, page_faults, 4096);
	odp_region_fini(&r);
	munmap(p, pages * PAGE);
}

static void *cancel(void *arg)
{
	struct scanned *sc = arg;

	return (void *)(uintptr_t)odp_cancel(&sc->it.w);
}

static void wait_for_scan(struct scanned *sc)
{
	while (!atomic_load(&sc->holding))
		sched_yield();
}

static void cancelling_waits_for_the_scan(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	struct scanned *sc = malloc(sizeof(*sc));
	pthread_t thread;
	void *cancelled;

	region_open(&r, p, PAGE, true);
	scanned_init(sc);
	outstanding(sc, p, PAGE, true);
	atomic_store(&sc->hold, true);
	assert_int_equal(write_to(&r, p, "x", sc), -EINPROGRESS);
	wait_for_scan(sc);
	assert_int_equal(pthread_create(&thread, NULL, cancel, sc), 0);
	usleep(2000);
	atomic_store(&sc->hold, false);
	pthread_join(thread, &cancelled);
	if (cancelled)
		assert_int_equal(atomic_load(&sc->it.told), 0);
	else
		witness_wait(&sc->it);
	/* From here on nobody touches it. */
	memset(sc, 0xee, sizeof(*sc));
	free(sc);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void *end_region(void *arg)
{
	odp_region_fini(arg);
	return NULL;
}

static void the_end_of_the_region_waits_for_the_scan_and_fails_the_waiter(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region *r = malloc(sizeof(*r));
	struct scanned sc;
	pthread_t thread;
	int result;

	region_open(r, p, PAGE, true);
	scanned_init(&sc);
	outstanding(&sc, p, PAGE, true);
	atomic_store(&sc.hold, true);
	assert_int_equal(write_to(r, p, "x", &sc), -EINPROGRESS);
	wait_for_scan(&sc);
	assert_int_equal(pthread_create(&thread, NULL, end_region, r), 0);
	while (!atomic_load(&r->closing))
		sched_yield();
	assert_int_equal(atomic_load(&sc.it.told), 0);
	atomic_store(&sc.hold, false);
	pthread_join(thread, NULL);
	result = witness_wait(&sc.it);
	/* Told in the moment before the region's end took hold, or by it. */
	assert_true(result == -ECANCELED || !result);
	assert_int_equal(write_to(r, p, "x", &sc), -ECANCELED);
	free(r);
	munmap(p, PAGE);
}

static void a_waiter_without_a_scan_is_precise(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	assert_counter(r.odp, faults_imprecise, 0);
	assert_counter(r.odp, page_faults, 1);
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static void slow_hardware_is_slow_once_for_all_of_it(void **state)
{
	char *p = fresh(64 * PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;
	struct scanned sc;
	uint64_t before;

	fx.space->cfg.fault_latency_ns = 20000000;
	region_open(&r, p, 64 * PAGE, true);
	scanned_init(&sc);
	for (unsigned i = 0; i < 40; i++)
		outstanding(&sc, p + i * PAGE, 10, true);
	before = clock_ns();
	assert_int_equal(write_to(&r, p, "slow", &sc), -EINPROGRESS);
	assert_int_equal(witness_wait(&sc.it), 0);
	assert_true(clock_ns() - before >= 20000000);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(write_to(&r, p + i * PAGE, "slow", &sc), 0);
	assert_counter(r.odp, faults_imprecise, 1);
	assert_counter(r.odp, page_faults, 40);
	odp_region_fini(&r);
	munmap(p, 64 * PAGE);
}

static _Atomic bool stop;

static void *drop_for_ever(void *arg)
{
	while (!atomic_load(&stop))
		madvise(arg, 4 * PAGE, MADV_DONTNEED);
	return NULL;
}

static void an_endless_dontneed_loop_does_not_stop_it(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE), buf[3 * PAGE];
	struct odp_region r;
	struct scanned sc;
	pthread_t thread;
	int err;

	memset(buf, 7, sizeof(buf));
	region_open(&r, p, 4 * PAGE, true);
	scanned_init(&sc);
	outstanding(&sc, p, 4 * PAGE, true);
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, drop_for_ever, p), 0);
	for (unsigned i = 0; i < 50; i++) {
		while ((err = odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + 100, buf, sizeof(buf),
				&sc.it.w)) == -EINPROGRESS)
			witness_wait(&sc.it);
		assert_int_equal(err, 0);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	odp_region_fini(&r);
	munmap(p, 4 * PAGE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_event_brings_in_all_that_is_outstanding),
		TEST(the_raise_makes_no_page_faulting),
		TEST(holes_and_forbidden_memory_yield_their_error),
		TEST(extents_beyond_the_region_are_cut),
		TEST(an_event_looks_at_so_many_pages_and_no_more),
		TEST(cancelling_waits_for_the_scan),
		TEST(the_end_of_the_region_waits_for_the_scan_and_fails_the_waiter),
		TEST(slow_hardware_is_slow_once_for_all_of_it),
		TEST(a_waiter_without_a_scan_is_precise),
		TEST(an_endless_dontneed_loop_does_not_stop_it),
	};

	return cmocka_run_group_tests_name("odp/imprecise", tests, NULL, NULL);
}

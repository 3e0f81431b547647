/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/usage.h"

#define PAGE 4096ull
#define MIB  (1ull << 20)

static struct unpin_usage u;

static void begin(uint64_t addr, uint64_t length)
{
	usage_begin(&u, addr, length);
}

static void what_was_begun_is_empty(void **state)
{
	begin(0x7f0000000000, 100 * MIB);
	usage_note(&u, 0x7f0000000000 + 5 * MIB, 3 * PAGE);
	begin(0x7f0000000000, 100 * MIB);
	assert_int_equal(u.accesses, 0);
	assert_int_equal(u.sequential, 0);
	assert_int_equal(usage_slices(&u), 0);
	assert_int_equal(usage_pages(&u), 0);
}

/* Whatever the length, the first and the last byte have a slice, and at least half of the slices are used. */
static void slices_cover_the_range(void **state)
{
	static const uint64_t lengths[] = { 1, 5, PAGE - 1, PAGE, PAGE + 1, 63 * PAGE, 64 * PAGE,
		64 * PAGE + 1, 65 * PAGE, 128 * PAGE, 1000 * PAGE + 17, 64 * MIB, 64 * MIB + 1, 1ull << 40,
		1ull << 47 };

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint64_t addr = 0x10000 + 8 * i, length = lengths[i], last;

		begin(addr, length);
		last = (addr + length - 1 - u.base) >> u.shift;
		assert_true(last < USAGE_SLICES);
		assert_true(u.shift == USAGE_PAGE_SHIFT || last >= USAGE_SLICES / 2);
		usage_note(&u, addr, 1);
		usage_note(&u, addr + length - 1, 1);
		assert_int_equal(u.accesses, 2);
		assert_int_equal(u.slice[0] + (last ? u.slice[last] : 0), 2);
	}
}

static void an_access_over_several_slices_counts_in_each(void **state)
{
	begin(0, 64 * PAGE);
	usage_note(&u, 3 * PAGE - 1, PAGE + 2);
	assert_int_equal(u.slice[1], 0);
	assert_int_equal(u.slice[2], 1);
	assert_int_equal(u.slice[3], 1);
	assert_int_equal(u.slice[4], 1);
	assert_int_equal(u.slice[5], 0);
	assert_int_equal(usage_slices(&u), 3);
	assert_int_equal(usage_pages(&u), 3);
}

static void a_slice_that_is_full_stays_full(void **state)
{
	begin(0, PAGE);
	u.slice[0] = UINT32_MAX - 1;
	usage_note(&u, 0, 8);
	usage_note(&u, 0, 8);
	assert_int_equal(u.slice[0], UINT32_MAX);
	assert_int_equal(u.accesses, 2);
}

static void accesses_in_sequence_are_told_from_others(void **state)
{
	begin(0, 1ull << 40);
	/* Three streams at once. */
	for (unsigned i = 0; i < 1000; i++)
		for (uint64_t s = 1; s <= 3; s++)
			usage_note(&u, s << 32 | i * 16 * PAGE, 16 * PAGE);
	assert_int_equal(u.accesses, 3000);
	/* Where two streams want the same place one loses it for once. */
	assert_in_range(u.sequential, 2400, 2997);
	begin(0, 1ull << 40);
	srandom(1);
	for (unsigned i = 0; i < 3000; i++)
		usage_note(&u, (uint64_t)random() << 8, 64);
	assert_int_equal(u.sequential, 0);
	begin(0, 64 * PAGE);
	for (unsigned i = 0; i < 3000; i++)
		usage_note(&u, 64, 64);
	assert_int_equal(u.sequential, 0);
}

static uint64_t scattered(uint64_t i)
{
	/* Different for different i: an odd factor. */
	return i * 0x9e3779b97f4a7c15ull % (1ull << 35) | 1ull << 36;
}

static void check_estimate(uint64_t pages, bool scatter, uint64_t from)
{
	uint64_t got;

	begin(0, UINT64_MAX);
	for (uint64_t i = 0; i < pages; i++)
		usage_note(&u, (scatter ? scattered(from + i) : from + i) * PAGE, 8);
	got = usage_pages(&u);
	if (got * 4 < pages * 3 || got * 4 > pages * 5)
		fail_msg("%lu pages (%s, from %lu) were taken for %lu", (unsigned long)pages,
			scatter ? "scattered" : "in a row", (unsigned long)from, (unsigned long)got);
}

static void pages_are_estimated_within_a_quarter(void **state)
{
	for (uint64_t n = 1; n <= 1000000; n = n * 3 / 2 + 1)
		for (uint64_t from = 0; from < 5; from++) {
			check_estimate(n, false, from << 40 >> 12 | 0x700000000ull);
			check_estimate(n, true, from * 1000003);
		}
}

static void the_same_pages_again_change_nothing(void **state)
{
	uint64_t once;

	begin(0, UINT64_MAX);
	for (unsigned round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 5000; i++)
			usage_note(&u, i * PAGE, 8);
		once = round ? once : usage_pages(&u);
		assert_int_equal(usage_pages(&u), once);
	}
}

static void an_estimate_stays_within_what_the_slices_allow(void **state)
{
	begin(0, 6400 * PAGE);
	/* One whole slice of 128 pages; and one page each of all others. */
	for (uint64_t i = 0; i < 128; i++)
		usage_note(&u, i * PAGE, 8);
	assert_in_range(usage_pages(&u), 1, 128);
	begin(0, 6400 * PAGE);
	for (uint64_t i = 0; i < 50; i++)
		usage_note(&u, i * 128 * PAGE, 8);
	assert_in_range(usage_pages(&u), 50, 75);
}

static void lives_of_a_range_add_up(void **state)
{
	struct unpin_usage sum;

	memset(&sum, 0, sizeof(sum));
	usage_begin(&sum, 0, 6400 * PAGE);
	for (unsigned life = 0; life < 3; life++) {
		begin(0, 6400 * PAGE);
		/* Half of the pages are those of the life before. */
		for (uint64_t i = 0; i < 1000; i++)
			usage_note(&u, (500 * life + i) * PAGE, PAGE);
		usage_merge(&sum, &u);
	}
	assert_int_equal(sum.accesses, 3000);
	assert_int_equal(sum.sequential, 3 * 999);
	assert_int_equal(sum.slice[0], 128);
	assert_in_range(usage_pages(&sum), 1700, 2300);
	sum.slice[0] = UINT32_MAX - 1;
	begin(0, 6400 * PAGE);
	usage_note(&u, 0, 8);
	usage_note(&u, 0, 8);
	usage_merge(&sum, &u);
	assert_int_equal(sum.slice[0], UINT32_MAX);
}

#define THREADS 4
#define EACH	20000u

static void *note_much(void *arg)
{
	uint64_t mine = (uint64_t)(uintptr_t)arg;

	for (uint64_t i = 0; i < EACH; i++)
		usage_note(&u, (mine * EACH + i) * PAGE, 8);
	return NULL;
}

/* Some counts get lost, the picture stays. */
static void several_threads_may_note_at_once(void **state)
{
	pthread_t thread[THREADS];
	uint64_t pages;

	begin(0, (uint64_t)THREADS * EACH * PAGE);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, note_much, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	assert_in_range(u.accesses, 1, THREADS * EACH);
	pages = usage_pages(&u);
	assert_in_range(pages, THREADS * EACH * 3 / 4, THREADS * EACH * 5 / 4);
	assert_in_range(usage_slices(&u), USAGE_SLICES / 2, USAGE_SLICES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_begun_is_empty),
		cmocka_unit_test(slices_cover_the_range),
		cmocka_unit_test(an_access_over_several_slices_counts_in_each),
		cmocka_unit_test(a_slice_that_is_full_stays_full),
		cmocka_unit_test(accesses_in_sequence_are_told_from_others),
		cmocka_unit_test(pages_are_estimated_within_a_quarter),
		cmocka_unit_test(the_same_pages_again_change_nothing),
		cmocka_unit_test(an_estimate_stays_within_what_the_slices_allow),
		cmocka_unit_test(lives_of_a_range_add_up),
		cmocka_unit_test(several_threads_may_note_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

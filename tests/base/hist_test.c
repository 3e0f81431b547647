/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hist.h"

static struct hist h;

static int reset(void **state)
{
	memset(&h, 0, sizeof(h));
	return 0;
}

static void an_empty_histogram_answers_zero(void **state)
{
	assert_int_equal(hist_quantile(&h, 0.5), 0);
	assert_int_equal(hist_quantile(&h, 1.0), 0);
}

static void buckets_are_contiguous_and_cover_every_value(void **state)
{
	uint64_t lower = 0;

	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		assert_int_equal(hist_index(lower), i);
		assert_int_equal(hist_index(hist_upper(i)), i);
		if (i + 1 < HIST_BUCKETS)
			lower = hist_upper(i) + 1;
	}
	assert_int_equal(hist_upper(HIST_BUCKETS - 1), UINT64_MAX);
	assert_int_equal(hist_index(UINT64_MAX), HIST_BUCKETS - 1);
}

static void a_bucket_is_never_wider_than_a_sixteenth_of_its_values(void **state)
{
	for (unsigned i = 1; i < HIST_BUCKETS; i++) {
		uint64_t lower = hist_upper(i - 1) + 1, width = hist_upper(i) - lower;

		assert_in_range(width, 0, lower / 16);
	}
}

static void small_values_are_exact(void **state)
{
	for (uint64_t v = 0; v < 32; v++)
		assert_int_equal(hist_upper(hist_index(v)), v);
}

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void quantiles_are_at_most_a_sixteenth_above_the_truth(void **state)
{
	static uint64_t value[10000];
	static const double q[] = { 0.001, 0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0 };
	uint64_t x = 88172645463325252ull;
	size_t n = sizeof(value) / sizeof(value[0]);

	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		value[i] = x >> (x % 60);
		hist_add(&h, value[i]);
	}
	qsort(value, n, sizeof(value[0]), ascending);
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++) {
		size_t rank = (size_t)(q[i] * (double)n + 0.999999);
		uint64_t truth = value[rank ? rank - 1 : 0], got = hist_quantile(&h, q[i]);

		assert_true(got >= truth);
		assert_true(got - truth <= truth / 16);
	}
}

static void no_quantile_exceeds_the_largest_value(void **state)
{
	hist_add(&h, 1000000);
	assert_int_equal(hist_quantile(&h, 0.5), 1000000);
	assert_int_equal(hist_quantile(&h, 1.0), 1000000);
	hist_add(&h, 3);
	assert_int_equal(hist_quantile(&h, 0.5), 3);
	assert_int_equal(hist_quantile(&h, 0), 3);
}

#define THREADS 4
#define ADDS	20000

static void *add_many(void *arg)
{
	for (uint64_t i = 0; i < ADDS; i++)
		hist_add(&h, i * (uintptr_t)arg);
	return NULL;
}

static void no_value_is_lost_when_threads_add_at_once(void **state)
{
	pthread_t thread[THREADS];
	uint64_t in_buckets = 0, sum = 0;

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, add_many, (void *)(i + 1)), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		in_buckets += h.bucket[i];
	for (uint64_t i = 1; i <= THREADS; i++)
		sum += i * ((uint64_t)ADDS * (ADDS - 1) / 2);
	assert_int_equal(h.count, THREADS * ADDS);
	assert_int_equal(in_buckets, THREADS * ADDS);
	assert_int_equal(h.sum, sum);
	assert_int_equal(h.max, THREADS * (ADDS - 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(an_empty_histogram_answers_zero, reset),
		cmocka_unit_test_setup(buckets_are_contiguous_and_cover_every_value, reset),
		cmocka_unit_test_setup(a_bucket_is_never_wider_than_a_sixteenth_of_its_values, reset),
		cmocka_unit_test_setup(small_values_are_exact, reset),
		cmocka_unit_test_setup(quantiles_are_at_most_a_sixteenth_above_the_truth, reset),
		cmocka_unit_test_setup(no_quantile_exceeds_the_largest_value, reset),
		cmocka_unit_test_setup(no_value_is_lost_when_threads_add_at_once, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

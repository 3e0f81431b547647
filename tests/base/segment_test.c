/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The layout of the exported segment is an interface between processes that may be of different builds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/segment.h"

struct counter {
	const char *name, *what;
	size_t offset;
};

static const struct counter odp[] = {
#define X(field, name, what) { name, what, offsetof(struct unpin_odp_counters, field) },
	UNPIN_ODP_COUNTERS(X)
#undef X
};

static const struct counter dev[] = {
#define X(field, name, what) { name, what, offsetof(struct unpin_device_counters, field) },
	UNPIN_DEVICE_COUNTERS(X)
#undef X
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static void check_list(const struct counter *c, size_t n, size_t size)
{
	assert_int_equal(size, n * sizeof(uint64_t));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(c[i].offset, i * sizeof(uint64_t));
		assert_true(*c[i].what);
		assert_int_equal(strspn(c[i].name, "abcdefghijklmnopqrstuvwxyz_"), strlen(c[i].name));
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(c[i].name, c[j].name);
	}
}

static void counters_are_plain_words_without_gaps_and_with_names_of_their_own(void **state)
{
	check_list(odp, COUNT(odp), sizeof(struct unpin_odp_counters));
	check_list(dev, COUNT(dev), sizeof(struct unpin_device_counters));
}

static void counters_that_the_kernel_has_keep_its_names(void **state)
{
	static const char *const kernel[] = { "page_faults", "page_faults_handled", "page_invalidations",
		"page_invalidations_handled", "page_prefetch" };

	for (size_t i = 0; i < COUNT(kernel); i++) {
		bool found = false;

		for (size_t j = 0; j < COUNT(odp); j++)
			found |= !strcmp(odp[j].name, kernel[i]);
		assert_true(found);
	}
}

static void what_a_reader_checks_first_lies_where_it_always_lay(void **state)
{
	assert_int_equal(offsetof(struct unpin_segment, magic), 0);
	assert_int_equal(offsetof(struct unpin_segment, version), 8);
	assert_int_equal(offsetof(struct unpin_segment, header_bytes), 12);
	assert_int_equal(offsetof(struct unpin_segment, total_bytes), 16);
	assert_int_equal(offsetof(struct unpin_segment, region_bytes), 24);
	assert_int_equal(offsetof(struct unpin_segment, region_rows), 28);
}

static void rows_follow_the_header_and_words_are_aligned(void **state)
{
	assert_int_equal(offsetof(struct unpin_segment, region) +
				 UNPIN_SEGMENT_REGIONS * sizeof(struct unpin_segment_region),
		offsetof(struct unpin_segment, qp));
	assert_int_equal(
		offsetof(struct unpin_segment, qp) + UNPIN_SEGMENT_QPS * sizeof(struct unpin_segment_qp),
		offsetof(struct unpin_segment, usage));
	assert_int_equal(
		offsetof(struct unpin_segment, usage) + UNPIN_SEGMENT_REGIONS * sizeof(struct unpin_usage),
		offsetof(struct unpin_segment, past));
	assert_int_equal(
		offsetof(struct unpin_segment, past) + UNPIN_PAST_REGIONS * sizeof(struct unpin_past_region),
		sizeof(struct unpin_segment));
	/* A run of a queue pair writes its row each time: in one line, and nobody else's. */
	assert_int_equal(sizeof(struct unpin_segment_qp), 64);
	assert_int_equal(offsetof(struct unpin_segment, qp) % 64, 0);
	/* Every access writes its region's usage: the parts begin with a line each. */
	assert_int_equal(sizeof(struct unpin_usage) % 64, 0);
	assert_int_equal(offsetof(struct unpin_segment, usage) % 64, 0);
	assert_int_equal(offsetof(struct unpin_usage, end), 64);
	assert_int_equal(offsetof(struct unpin_usage, slice) % 64, 0);
	assert_int_equal(offsetof(struct unpin_usage, page) % 64, 0);
	assert_int_equal(UNPIN_PAST_REGIONS % UNPIN_PAST_WAYS, 0);
	assert_int_equal(sizeof(struct unpin_segment_region) % 8, 0);
	assert_int_equal(offsetof(struct unpin_segment_region, odp) % 8, 0);
	assert_int_equal(offsetof(struct unpin_segment, region) % 8, 0);
}

static void atomics_in_shared_memory_need_no_lock(void **state)
{
	_Atomic uint64_t word;
	_Atomic uint32_t half;

	assert_true(atomic_is_lock_free(&word));
	assert_true(atomic_is_lock_free(&half));
	assert_int_equal(sizeof(word), 8);
	assert_int_equal(sizeof(half), 4);
}

static void a_counter_grows_by_what_is_added(void **state)
{
	_Atomic uint64_t c = 0;

	counter_add(&c, 1);
	counter_add(&c, 41);
	assert_int_equal(c, 42);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counters_are_plain_words_without_gaps_and_with_names_of_their_own),
		cmocka_unit_test(counters_that_the_kernel_has_keep_its_names),
		cmocka_unit_test(what_a_reader_checks_first_lies_where_it_always_lay),
		cmocka_unit_test(rows_follow_the_header_and_words_are_aligned),
		cmocka_unit_test(atomics_in_shared_memory_need_no_lock),
		cmocka_unit_test(a_counter_grows_by_what_is_added),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

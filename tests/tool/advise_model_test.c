/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/advise.h"

#define PAGE 4096ull
#define KIB  1024ull
#define MIB  (1024 * KIB)
#define SEC  1000000000ull
#define BASE 0x10000000ull

/* Round numbers: a page costs 1 us to pin and to bring in, 3 us by a fault. */
static const struct advise_costs costs = {
	.pin_page = 1000, .populate_page = 1000, .fault_page = 3000, .register_call = 1000
};

/* A region of so many bytes that has been there for a minute. */
static struct advise_region make(uint32_t kind, uint64_t length)
{
	struct advise_region r = { .kind = kind,
		.addr = BASE,
		.length = length,
		.live = true,
		.places = 1,
		.times = 1,
		.register_ns = 1000,
		.lived_ns = 60 * SEC,
		.fault_ns_known = true,
		.base = BASE };

	r.slice_bytes = PAGE;
	while (r.slice_bytes * USAGE_SLICES < length)
		r.slice_bytes *= 2;
	if (kind == UNPIN_REGION_PINNED)
		r.register_ns = length / PAGE * 1000 + 1000;
	return r;
}

/* Accesses of so many bytes to a range of it, over all of which they are spread. */
static void use(struct advise_region *r, uint64_t offset, uint64_t length, uint64_t accesses, uint64_t bytes)
{
	uint64_t first = offset / r->slice_bytes, last = (offset + length - 1) / r->slice_bytes;

	r->accesses += accesses;
	r->odp[ADVISE_bytes_in] += accesses * bytes;
	for (uint64_t s = first; s <= last; s++)
		r->slice[s] += (uint32_t)(accesses / (last - first + 1));
}

/* Each page of them was brought in so often. */
static void fault(struct advise_region *r, uint64_t times, bool from_disk)
{
	uint64_t n = r->pages * times;

	r->odp[ADVISE_page_faults] += n;
	r->odp[ADVISE_page_faults_handled] += n;
	r->odp[from_disk ? ADVISE_faults_major : ADVISE_faults_minor] += n;
	r->odp[ADVISE_page_invalidations_handled] += n - (times ? r->pages : 0);
	r->fault_ns += n * 2000;
}

static struct advise_verdict judge(const struct advise_region *r)
{
	struct advise_verdict v;

	advise_judge(&v, r, &costs);
	return v;
}

#define expect(v, want_should, want_why, want_same)                                                          \
	do {                                                                                                 \
		assert_string_equal(advise_should_keys[(v).should], advise_should_keys[want_should]);        \
		assert_string_equal(advise_why_keys[(v).why], advise_why_keys[want_why]);                    \
		assert_int_equal((v).same, want_same);                                                       \
	} while (0)

/* --- what is used how
 * ---------------------------------------------------------------------------------------- */

static struct advise_region hot(uint32_t kind)
{
	struct advise_region r = make(kind, 4 * MIB);

	r.pages = 1000;
	use(&r, 0, 4 * MIB, 100000, 64 * KIB);
	return r;
}

static struct advise_region sparse(uint32_t kind)
{
	struct advise_region r = make(kind, 64 * MIB);

	r.pages = 820;
	use(&r, 0, 64 * MIB, 900, 64);
	return r;
}

static struct advise_region stream(uint32_t kind)
{
	struct advise_region r = make(kind, 64 * MIB);

	r.pages = 16000;
	use(&r, 0, 64 * MIB, 1024, 64 * KIB);
	r.sequential = 1023;
	return r;
}

static struct advise_region tenth(uint32_t kind)
{
	struct advise_region r = make(kind, 64 * MIB);

	r.pages = 8000;
	use(&r, 0, 64 * MIB, 5000, 64);
	use(&r, 32 * MIB, 6 * MIB, 95000, 64);
	return r;
}

static void memory_that_is_used_all_the_time_is_to_be_pinned(void **state)
{
	struct advise_region r = hot(UNPIN_REGION_ODP);
	struct advise_verdict v;

	fault(&r, 1, false);
	v = judge(&r);
	expect(v, ADVISE_PINNED, ADVISE_HOT, false);
	assert_float_equal(v.locked_bytes, -4.0 * MIB, 0.1);
	assert_float_equal(v.register_ns, 1000 - (1000 + 1024 * 1000), 0.1);
	assert_float_equal(v.fault_ns, 1000 * 2000, 0.1);
	r = hot(UNPIN_REGION_PINNED);
	v = judge(&r);
	expect(v, ADVISE_PINNED, ADVISE_HOT, true);
	assert_float_equal(v.score, 0, 0);
}

static void a_small_buffer_need_not_be_used_in_full(void **state)
{
	struct advise_region r = make(UNPIN_REGION_PINNED, 64 * KIB);
	struct advise_verdict v;

	r.pages = 1;
	use(&r, 0, PAGE, 1000, 64);
	v = judge(&r);
	expect(v, ADVISE_PINNED, ADVISE_HOT, true);
}

static void memory_of_which_little_is_used_is_to_be_on_demand(void **state)
{
	struct advise_region r = sparse(UNPIN_REGION_PINNED);
	struct advise_verdict v = judge(&r);

	expect(v, ADVISE_ON_DEMAND, ADVISE_SPARSE, false);
	assert_float_equal(v.touched, 820.0 / 16384, 0.0001);
	assert_float_equal(v.locked_bytes, 64.0 * MIB, 0.1);
	assert_float_equal(v.register_ns, 16384 * 1000, 0.1);
	assert_float_equal(v.fault_ns, -820 * 3000, 0.1);
	assert_true(v.score > 0);
	r = sparse(UNPIN_REGION_ODP);
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_SPARSE, true);
}

static void a_stream_is_to_be_prefetched(void **state)
{
	struct advise_region r = stream(UNPIN_REGION_ODP);
	struct advise_verdict v;

	fault(&r, 1, false);
	v = judge(&r);
	expect(v, ADVISE_PREFETCH, ADVISE_STREAM, false);
	assert_int_equal(v.pattern, ADVISE_IN_SEQUENCE);
	assert_float_equal(v.fault_ns, 16000 * 2000, 0.1);
	assert_float_equal(v.locked_bytes, 0, 0);
	/* It is already. */
	memset(r.odp, 0, sizeof(r.odp));
	r.odp[ADVISE_bytes_in] = 64 * MIB;
	r.odp[ADVISE_page_prefetch] = 16000;
	v = judge(&r);
	expect(v, ADVISE_PREFETCH, ADVISE_STREAM, true);
	r = stream(UNPIN_REGION_PINNED);
	v = judge(&r);
	expect(v, ADVISE_PREFETCH, ADVISE_STREAM, false);
	assert_float_equal(v.locked_bytes, 64.0 * MIB, 0.1);
	assert_float_equal(v.fault_ns, 0, 0);
}

static void the_hot_part_of_a_large_region_is_to_be_locked(void **state)
{
	struct advise_region r = tenth(UNPIN_REGION_PINNED);
	struct advise_verdict v = judge(&r);

	expect(v, ADVISE_LOCK_HOT, ADVISE_HOT_PART, false);
	assert_int_equal(v.hots, 1);
	assert_int_equal(v.hot[0].offset, 32 * MIB);
	assert_in_range(v.hot[0].length, 5 * MIB, 6 * MIB);
	assert_float_equal(v.locked_bytes, 64.0 * MIB - (double)v.hot_bytes, 0.1);
	r = tenth(UNPIN_REGION_ODP);
	fault(&r, 1, false);
	v = judge(&r);
	expect(v, ADVISE_LOCK_HOT, ADVISE_HOT_PART, false);
	assert_float_equal(v.locked_bytes, -(double)v.hot_bytes, 0.1);
	/* The first touches are not saved. */
	assert_float_equal(v.fault_ns, 0, 0.1);
}

static void hot_parts_that_lie_scattered_are_none(void **state)
{
	struct advise_region r = make(UNPIN_REGION_PINNED, 64 * MIB);
	struct advise_verdict v;

	r.pages = 4000;
	for (unsigned i = 0; i < USAGE_SLICES; i += 8)
		use(&r, i * MIB, MIB, 10000, 64);
	v = judge(&r);
	assert_int_equal(v.hots, 0);
	expect(v, ADVISE_ON_DEMAND, ADVISE_SPARSE, false);
	/* Few of them can be named. */
	r = make(UNPIN_REGION_PINNED, 64 * MIB);
	r.pages = 1024;
	for (unsigned i = 0; i < 4; i++)
		use(&r, i * 16 * MIB, MIB, 10000, 64);
	v = judge(&r);
	expect(v, ADVISE_LOCK_HOT, ADVISE_HOT_PART, false);
	assert_int_equal(v.hots, 4);
	assert_int_equal(v.hot[3].offset, 48 * MIB);
	assert_int_equal(v.hot_bytes, 4 * MIB);
}

/* Slices begin with whole pages, the region need not. */
static void a_hot_part_lies_inside_of_its_region(void **state)
{
	struct advise_region r = tenth(UNPIN_REGION_PINNED);
	struct advise_verdict v;

	r.addr += 100;
	r.length = 64 * MIB - 200;
	memset(r.slice, 0, sizeof(r.slice));
	r.slice[0] = 50000;
	r.slice[63] = 50000;
	v = judge(&r);
	assert_int_equal(v.hots, 2);
	assert_int_equal(v.hot[0].offset, 0);
	assert_int_equal(v.hot[0].length, MIB - 100);
	assert_int_equal(v.hot[1].offset + v.hot[1].length, r.length);
}

static void memory_that_is_given_back_is_never_to_be_pinned(void **state)
{
	struct advise_region r = hot(UNPIN_REGION_ODP);
	struct advise_verdict v;

	fault(&r, 50, false);
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_GIVEN_BACK, true);
	r.sequential = r.accesses - 10;
	v = judge(&r);
	expect(v, ADVISE_PREFETCH, ADVISE_GIVEN_BACK, false);
	assert_float_equal(v.fault_ns, 50000 * 2000, 0.1);
}

static void memory_that_the_kernel_takes_is_to_be_locked_as_far_as_it_is_hot(void **state)
{
	struct advise_region r = hot(UNPIN_REGION_ODP);
	struct advise_verdict v;

	fault(&r, 50, true);
	v = judge(&r);
	expect(v, ADVISE_PINNED, ADVISE_RECLAIMED, false);
	r = tenth(UNPIN_REGION_ODP);
	fault(&r, 10, true);
	v = judge(&r);
	expect(v, ADVISE_LOCK_HOT, ADVISE_RECLAIMED, false);
	/* All but the first time. */
	assert_float_equal(v.fault_ns, 0.9 * 80000 * 2000, 1);
	r = sparse(UNPIN_REGION_ODP);
	fault(&r, 10, true);
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_RECLAIMED, true);
	r = stream(UNPIN_REGION_ODP);
	fault(&r, 10, true);
	v = judge(&r);
	expect(v, ADVISE_PREFETCH, ADVISE_RECLAIMED, false);
}

static void memory_that_is_registered_again_and_again_is_to_be_kept(void **state)
{
	struct advise_region r = make(UNPIN_REGION_PINNED, 64 * KIB);
	struct advise_verdict v;

	r.pages = 16;
	r.times = 1000;
	r.register_ns = 20000000;
	r.lived_ns = 1000 * 50000;
	use(&r, 0, 64 * KIB, 4000, 16 * KIB);
	v = judge(&r);
	expect(v, ADVISE_ONCE, ADVISE_AGAIN_AND_AGAIN, false);
	assert_int_equal(v.as, ADVISE_PINNED);
	assert_float_equal(v.register_ns, 20000000 - 20000, 0.1);
	/* At many addresses. */
	r.places = 8;
	v = judge(&r);
	expect(v, ADVISE_IMPLICIT, ADVISE_AGAIN_AND_AGAIN, false);
	/* A few times, or for long each time: that is as it is. */
	r.places = 1;
	r.times = 15;
	v = judge(&r);
	expect(v, ADVISE_PINNED, ADVISE_HOT, true);
	r.times = 1000;
	r.lived_ns = 1000 * 60 * SEC;
	v = judge(&r);
	expect(v, ADVISE_PINNED, ADVISE_HOT, true);
	/* Unused each time: it stays what it is, but once. */
	r.lived_ns = 1000;
	r.accesses = 0;
	v = judge(&r);
	expect(v, ADVISE_ONCE, ADVISE_AGAIN_AND_AGAIN, false);
	assert_int_equal(v.as, ADVISE_PINNED);
}

static void what_is_not_used_needs_no_pages(void **state)
{
	struct advise_region r = make(UNPIN_REGION_PINNED, 16 * MIB);
	struct advise_verdict v = judge(&r);

	expect(v, ADVISE_ON_DEMAND, ADVISE_UNUSED, false);
	assert_float_equal(v.locked_bytes, 16.0 * MIB, 0.1);
	assert_float_equal(v.fault_ns, 0, 0);
	/* Nobody knows yet. */
	r.lived_ns = SEC;
	v = judge(&r);
	expect(v, ADVISE_UNSURE, ADVISE_TOO_YOUNG, false);
	assert_float_equal(v.score, 0, 0);
	/* It will not be. */
	r.live = false;
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_UNUSED, false);
	assert_float_equal(v.locked_bytes, 0, 0);
	r = make(UNPIN_REGION_ODP, 16 * MIB);
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_UNUSED, true);
}

static void little_traffic_says_nothing(void **state)
{
	struct advise_region r = make(UNPIN_REGION_PINNED, 16 * MIB);
	char words[ADVISE_WORDS];
	struct advise_verdict v;

	r.pages = 12;
	use(&r, 0, MIB, 63, 64);
	v = judge(&r);
	expect(v, ADVISE_UNSURE, ADVISE_TOO_LITTLE, false);
	assert_string_equal(advise_because(words, &v), "too little traffic seen: 63 accesses");
	use(&r, 0, MIB, 1, 64);
	v = judge(&r);
	assert_int_not_equal(v.should, ADVISE_UNSURE);
}

static void a_few_uses_do_not_pay_for_pinning_and_some_make_no_difference(void **state)
{
	struct advise_region r = make(UNPIN_REGION_PINNED, 16 * MIB);
	struct advise_verdict v;

	r.pages = 4000;
	use(&r, 0, 16 * MIB, 8000, 4096);
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_FEW_USES, false);
	use(&r, 0, 16 * MIB, 24000, 4096);
	v = judge(&r);
	expect(v, ADVISE_PINNED, ADVISE_EITHER, true);
	r.kind = UNPIN_REGION_ODP;
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_EITHER, true);
}

static void an_implicit_region_stays_one(void **state)
{
	struct advise_region r = hot(UNPIN_REGION_IMPLICIT);
	struct advise_verdict v;

	r.addr = 0;
	r.length = UINT64_MAX;
	r.slice_bytes = 0;
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_EITHER, true);
	assert_true(v.touched < 0);
	r.accesses = 0;
	v = judge(&r);
	expect(v, ADVISE_ON_DEMAND, ADVISE_UNUSED, true);
	r = stream(UNPIN_REGION_IMPLICIT);
	r.addr = 0;
	r.length = UINT64_MAX;
	r.slice_bytes = 0;
	v = judge(&r);
	expect(v, ADVISE_PREFETCH, ADVISE_STREAM, false);
}

static void what_is_not_known_is_not_made_up(void **state)
{
	const struct advise_costs none = { 0 };
	struct advise_region r = hot(UNPIN_REGION_ODP);
	char words[ADVISE_WORDS];
	struct advise_verdict v;

	fault(&r, 1, false);
	r.fault_ns_known = false;
	advise_judge(&v, &r, &none);
	expect(v, ADVISE_PINNED, ADVISE_HOT, false);
	assert_true(isnan(v.register_ns) && isnan(v.fault_ns));
	assert_false(isnan(v.score));
	advise_gain(words, &v);
	assert_non_null(strstr(words, "registration: not known"));
	assert_non_null(strstr(words, "page faults: not known"));
}

/* Whatever the numbers, there is a verdict, and texts that end. */
static void numbers_that_cannot_be_crash_nothing(void **state)
{
	static const uint64_t some[] = { 0, 1, 2, 63, 64, 4095, 4096, 1ull << 32, 1ull << 47, INT64_MAX,
		UINT64_MAX };
	const size_t n = sizeof(some) / sizeof(some[0]);

	srandom(1);
	for (unsigned round = 0; round < 200000; round++) {
		struct advise_region r;
		struct advise_verdict v;
		char words[ADVISE_WORDS], lines[ADVISE_LINES][ADVISE_WORDS];
		uint64_t *at = (uint64_t *)(void *)&r;

		for (size_t i = 0; i < sizeof(r) / sizeof(*at); i++)
			at[i] = some[(size_t)random() % n];
		r.kind = UNPIN_REGION_PINNED + (uint32_t)random() % 3;
		r.live = random() & 1;
		r.fault_ns_known = random() & 1;
		r.look_seconds = random() & 1;
		r.places = r.places ? r.places : 1;
		r.times = r.times ? r.times : 1;
		advise_judge(&v, &r, &costs);
		assert_true(v.should < ADVISE_SHOULDS && v.why < ADVISE_WHYS && v.hots <= ADVISE_HOT_RANGES);
		assert_true(strlen(advise_seen(words, &v)) < ADVISE_WORDS);
		assert_true(strlen(advise_because(words, &v)) < ADVISE_WORDS);
		assert_true(strlen(advise_gain(words, &v)) < ADVISE_WORDS);
		assert_true(strlen(advise_what(words, &r)) < ADVISE_WORDS);
		for (int l = 0; l < ADVISE_LIBRARIES; l++)
			assert_true(advise_lines(lines, &v, (enum advise_library)l) <= ADVISE_LINES);
	}
}

/* --- taking together
 * ----------------------------------------------------------------------------------------- */

static struct advise_region *put(struct advise_facts *f, uint64_t addr, uint64_t length, bool live)
{
	struct advise_region *r = advise_add(f);

	*r = make(UNPIN_REGION_PINNED, length);
	r->addr = r->base = addr;
	r->live = live;
	r->pages = 3;
	r->accesses = 100;
	r->slice[1] = 50;
	return r;
}

static void a_range_that_is_registered_anew_is_one_thing(void **state)
{
	struct advise_facts f = { 0 };

	put(&f, BASE, MIB, false)->times = 9;
	put(&f, BASE, MIB, true);
	put(&f, BASE + MIB, MIB, true);
	put(&f, BASE, 2 * MIB, true);
	/* Twice at once: two things. */
	put(&f, BASE + MIB, MIB, true);
	advise_fold(&f);
	assert_int_equal(f.regions, 4);
	for (size_t i = 0; i < f.regions; i++) {
		const struct advise_region *r = &f.region[i];
		bool folded = r->addr == BASE && r->length == MIB;

		assert_int_equal(r->times, folded ? 10 : 1);
		assert_int_equal(r->accesses, folded ? 200 : 100);
		assert_int_equal(r->slice[1], folded ? 100 : 50);
		/* The same pages, probably. */
		assert_int_equal(r->pages, 3);
		assert_int_equal(r->places, 1);
	}
	advise_facts_free(&f);
}

static void buffers_of_one_size_at_many_addresses_are_one_thing(void **state)
{
	struct advise_facts f = { 0 };

	for (unsigned i = 0; i < 20; i++)
		put(&f, BASE + i * MIB, MIB, false);
	for (unsigned i = 0; i < 7; i++)
		put(&f, BASE + i * MIB, 3 * MIB, false);
	put(&f, BASE + 100 * MIB, MIB, true);
	advise_fold(&f);
	assert_int_equal(f.regions, 1 + 7 + 1);
	for (size_t i = 0; i < f.regions; i++) {
		const struct advise_region *r = &f.region[i];

		assert_int_equal(r->places, r->length == MIB && !r->live ? 20 : 1);
		assert_int_equal(r->times, r->places);
		assert_int_equal(r->pages, 3 * r->places);
	}
	advise_facts_free(&f);
}

static void a_place_that_is_registered_at_this_moment_is_one_of_the_many(void **state)
{
	struct advise_facts f = { 0 };

	for (unsigned i = 0; i < 20; i++)
		put(&f, BASE + i * MIB, MIB, false);
	/* Seen between its registration and its end, for the fifth time. */
	for (unsigned i = 0; i < 4; i++)
		put(&f, BASE, MIB, false);
	put(&f, BASE, MIB, true);
	/* And one that has been registered once, and stays. */
	put(&f, BASE + 100 * MIB, MIB, true);
	advise_fold(&f);
	assert_int_equal(f.regions, 2);
	assert_int_equal(f.region[0].places, 20);
	assert_int_equal(f.region[0].times, 20 + 4 + 1);
	assert_false(f.region[0].live);
	assert_true(f.region[1].live);
	advise_facts_free(&f);
}

static void what_gains_most_comes_first_and_what_is_not_known_last(void **state)
{
	struct advise_facts f = { 0 };
	struct advise_verdict *v;

	*advise_add(&f) = make(UNPIN_REGION_ODP, 8 * MIB);
	f.region[0].accesses = 5;
	*advise_add(&f) = hot(UNPIN_REGION_PINNED);
	*advise_add(&f) = make(UNPIN_REGION_PINNED, MIB);
	*advise_add(&f) = sparse(UNPIN_REGION_PINNED);
	*advise_add(&f) = make(UNPIN_REGION_PINNED, 2 * MIB);
	v = advise_judge_all(&f, &costs);
	assert_int_equal(v[0].why, ADVISE_SPARSE);
	assert_int_equal(v[1].region->length, 2 * MIB);
	assert_int_equal(v[2].region->length, MIB);
	assert_true(v[3].same);
	assert_int_equal(v[4].should, ADVISE_UNSURE);
	free(v);
	advise_facts_free(&f);
}

/* --- lines
 * --------------------------------------------------------------------------------------------------- */

static bool any_line(const struct advise_verdict *v, enum advise_library library, const char *word)
{
	char lines[ADVISE_LINES][ADVISE_WORDS];
	unsigned n = advise_lines(lines, v, library);

	for (unsigned i = 0; i < n; i++)
		if (strstr(lines[i], word))
			return true;
	return false;
}

static void every_change_has_a_line_in_every_library_and_no_change_has_none(void **state)
{
	struct advise_region r[] = { hot(UNPIN_REGION_ODP), sparse(UNPIN_REGION_PINNED),
		stream(UNPIN_REGION_ODP), stream(UNPIN_REGION_PINNED), tenth(UNPIN_REGION_PINNED),
		tenth(UNPIN_REGION_ODP), hot(UNPIN_REGION_PINNED), sparse(UNPIN_REGION_ODP) };
	char lines[ADVISE_LINES][ADVISE_WORDS];

	for (size_t i = 0; i < sizeof(r) / sizeof(r[0]); i++)
		for (int l = 0; l < ADVISE_LIBRARIES; l++) {
			struct advise_verdict v = judge(&r[i]);

			assert_int_equal(advise_lines(lines, &v, (enum advise_library)l) > 0, i < 6);
		}
}

static void lines_keep_the_rights_that_a_region_has(void **state)
{
	struct advise_region r = sparse(UNPIN_REGION_PINNED);
	struct advise_verdict v;

	r.access = 1 | 4; /* local write, remote read */
	v = judge(&r);
	assert_true(any_line(&v, ADVISE_VERBS,
		"ibv_reg_mr(pd, buffer, 67108864, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE | "
		"IBV_ACCESS_REMOTE_READ);"));
	r = hot(UNPIN_REGION_ODP);
	v = judge(&r);
	assert_true(any_line(&v, ADVISE_VERBS, "ibv_reg_mr(pd, buffer, 4194304, 0);"));
	r = stream(UNPIN_REGION_ODP);
	v = judge(&r);
	assert_true(any_line(&v, ADVISE_VERBS, "IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE"));
	assert_false(any_line(&v, ADVISE_VERBS, "ibv_reg_mr"));
	r.odp[ADVISE_bytes_out] = r.odp[ADVISE_bytes_in];
	r.odp[ADVISE_bytes_in] = 0;
	v = judge(&r);
	assert_true(any_line(&v, ADVISE_VERBS, "IBV_ADVISE_MR_ADVICE_PREFETCH,"));
	assert_true(any_line(&v, ADVISE_LIBFABRIC, "MADV_POPULATE_READ"));
}

/* --- costs
 * --------------------------------------------------------------------------------------------------- */

static void costs_are_measured_or_said_not_to_be_known(void **state)
{
	struct advise_costs c;

	advise_measure(&c);
	assert_true(c.populate_page > 0 && c.fault_page > 0 && c.register_call > 0 && c.register_assumed);
	assert_true(c.pin_page >= 0 && c.took > 0);
	assert_string_equal(c.from, "measured now");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_is_used_all_the_time_is_to_be_pinned),
		cmocka_unit_test(a_small_buffer_need_not_be_used_in_full),
		cmocka_unit_test(memory_of_which_little_is_used_is_to_be_on_demand),
		cmocka_unit_test(a_stream_is_to_be_prefetched),
		cmocka_unit_test(the_hot_part_of_a_large_region_is_to_be_locked),
		cmocka_unit_test(hot_parts_that_lie_scattered_are_none),
		cmocka_unit_test(a_hot_part_lies_inside_of_its_region),
		cmocka_unit_test(memory_that_is_given_back_is_never_to_be_pinned),
		cmocka_unit_test(memory_that_the_kernel_takes_is_to_be_locked_as_far_as_it_is_hot),
		cmocka_unit_test(memory_that_is_registered_again_and_again_is_to_be_kept),
		cmocka_unit_test(what_is_not_used_needs_no_pages),
		cmocka_unit_test(little_traffic_says_nothing),
		cmocka_unit_test(a_few_uses_do_not_pay_for_pinning_and_some_make_no_difference),
		cmocka_unit_test(an_implicit_region_stays_one),
		cmocka_unit_test(what_is_not_known_is_not_made_up),
		cmocka_unit_test(numbers_that_cannot_be_crash_nothing),
		cmocka_unit_test(a_range_that_is_registered_anew_is_one_thing),
		cmocka_unit_test(buffers_of_one_size_at_many_addresses_are_one_thing),
		cmocka_unit_test(a_place_that_is_registered_at_this_moment_is_one_of_the_many),
		cmocka_unit_test(what_gains_most_comes_first_and_what_is_not_known_last),
		cmocka_unit_test(every_change_has_a_line_in_every_library_and_no_change_has_none),
		cmocka_unit_test(lines_keep_the_rights_that_a_region_has),
		cmocka_unit_test(costs_are_measured_or_said_not_to_be_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

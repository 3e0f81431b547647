/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What two made-up looks at a process come to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <infiniband/verbs.h>

#include "tool/top.h"

#define SECOND 1000000000ull

static struct top_frame before, now;
static struct top_region old_region[4], new_region[4];
static struct top_qp old_qp[4], new_qp[4];
static struct top_memory memory;
static struct top_view view;

static struct top_region region(uint32_t row, uint32_t kind, uint64_t addr, uint64_t length)
{
	return (struct top_region){
		.row = row, .kind = kind, .addr = addr, .length = length, .lkey = row << 8
	};
}

/* Two seconds apart, three regions and two queue pairs. */
static int setup(void **state)
{
	(void)state;
	memset(&before, 0, sizeof(before));
	memset(old_qp, 0, sizeof(old_qp));
	before.at_ns = 10 * SECOND;
	old_region[0] = region(1, UNPIN_REGION_ODP, 0x10000, 0x8000);
	old_region[1] = region(2, UNPIN_REGION_ODP, 0x30000, 0x4000);
	old_region[2] = region(5, UNPIN_REGION_PINNED, 0x20000, 0x1000);
	old_qp[0] = (struct top_qp){ .number = 0x1002, .state = IBV_QPS_RTS };
	old_qp[1] = (struct top_qp){ .number = 0x1003, .state = IBV_QPS_RTS };
	before.region = old_region;
	before.regions = 3;
	before.qp = old_qp;
	before.qps = 2;
	before.system.psi_some_us = before.system.swap_in = before.system.majflt = 100;
	before.system.group_limit = TOP_UNKNOWN;
	now = before;
	memcpy(new_region, old_region, sizeof(old_region));
	memcpy(new_qp, old_qp, sizeof(old_qp));
	now.at_ns = 12 * SECOND;
	now.region = new_region;
	now.qp = new_qp;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	top_view_free(&view);
	top_memory_free(&memory);
	return 0;
}

static void make(void)
{
	top_view_free(&view);
	top_view_make(&view, &before, &now, &memory);
}

static const struct top_region_view *at(uint64_t addr)
{
	for (size_t i = 0; i < view.regions; i++)
		if (view.region[i].region->addr == addr)
			return &view.region[i];
	return NULL;
}

static void rates_are_per_second(void **state)
{
	now.odp[TOP_ODP_page_faults] = 50;
	now.dev[TOP_DEV_rx_bytes] = 4000;
	new_region[0].odp[TOP_ODP_faults_major] = 10;
	new_region[1].odp[TOP_ODP_page_prefetch] = 3;
	now.system.majflt = 104;
	now.system.swap_in = 300;
	make();
	assert_true(view.seconds == 2);
	assert_true(view.odp[TOP_ODP_page_faults] == 25);
	assert_true(view.dev[TOP_DEV_rx_bytes] == 2000);
	assert_true(at(0x10000)->majors == 5);
	assert_true(at(0x30000)->prefetched == 1.5);
	assert_true(view.majflt == 2);
	assert_true(view.swap_in == 100);
}

static void stalls_are_a_share_of_the_time(void **state)
{
	now.system.psi_some_us = 100 + 500000;
	make();
	assert_true(view.psi_some == 25);
	assert_true(view.psi_full == 0);
	/* The clock of another group is another clock. */
	now.system.psi_of_group = true;
	make();
	assert_true(view.psi_some < 0);
}

static void what_is_not_known_stays_so(void **state)
{
	now.system.majflt = TOP_UNKNOWN;
	before.system.swap_in = TOP_UNKNOWN;
	now.system.psi_some_us = TOP_UNKNOWN;
	make();
	assert_true(view.majflt < 0 && view.swap_in < 0 && view.psi_some < 0);
	assert_true(top_resident(&new_region[0].residency) < 0);
}

static void a_counter_that_went_backwards_began_anew(void **state)
{
	before.odp[TOP_ODP_page_faults] = 1000;
	now.odp[TOP_ODP_page_faults] = 8;
	make();
	assert_true(view.odp[TOP_ODP_page_faults] == 4);
}

static void a_row_that_was_given_away_is_another_region(void **state)
{
	old_region[0].odp[TOP_ODP_page_faults] = 100;
	new_region[0] = region(1, UNPIN_REGION_ODP, 0x50000, 0x8000);
	new_region[0].lkey++;
	new_region[0].odp[TOP_ODP_page_faults] = 6;
	make();
	assert_true(at(0x50000)->fresh);
	assert_true(at(0x50000)->faults == 3);
	assert_false(at(0x30000)->fresh);
}

static void a_region_is_hot_then_warm_then_cold(void **state)
{
	make();
	assert_int_equal(at(0x10000)->heat, TOP_NEVER);
	new_region[0].odp[TOP_ODP_bytes_in] = 1;
	make();
	assert_int_equal(at(0x10000)->heat, TOP_HOT);
	assert_int_equal(at(0x30000)->heat, TOP_NEVER);
	memcpy(old_region, new_region, sizeof(old_region));
	now.at_ns += TOP_WARM_NS - 1;
	make();
	assert_int_equal(at(0x10000)->heat, TOP_WARM);
	now.at_ns++;
	make();
	assert_int_equal(at(0x10000)->heat, TOP_COLD);
}

static void used_before_the_first_look_is_cold_not_never(void **state)
{
	old_region[0].odp[TOP_ODP_bytes_out] = new_region[0].odp[TOP_ODP_bytes_out] = 9;
	make();
	assert_int_equal(at(0x10000)->heat, TOP_COLD);
}

static void the_larger_part_of_the_time_has_its_name(void **state)
{
	assert_string_equal(top_verdict(&(struct top_time){ 0 }), "no faults");
	assert_string_equal(top_verdict(&(struct top_time){ .reads = 5, .work = 4 }), "disk or swap");
	assert_string_equal(top_verdict(&(struct top_time){ .reads = 4, .work = 5 }), "kernel and driver");
	assert_string_equal(top_verdict(&(struct top_time){ .waited = 9, .reads = 4 }), "waiting in line");
	assert_string_equal(top_verdict(&(struct top_time){ .waited = 9, .resume = 10 }), "waking");
	before.time = (struct top_time){ .reads = 100 };
	now.time = (struct top_time){ .reads = 130, .work = 20 };
	make();
	assert_int_equal(view.time.reads, 30);
	assert_int_equal(view.time.work, 20);
}

static void queue_pairs_that_wait_come_first(void **state)
{
	new_qp[0].outstanding = 7;
	new_qp[0].retransmits = 4;
	new_qp[1].parked = 2;
	new_qp[1].parked_since_ns = now.at_ns - 500;
	new_qp[1].parkings = 6;
	make();
	top_sort(&view, TOP_BY_FAULTS, false);
	assert_int_equal(view.qp[0].qp->number, 0x1003);
	assert_int_equal(view.qp[0].waits_ns, 500);
	assert_true(view.qp[0].parkings == 3);
	assert_int_equal(view.qp[1].qp->outstanding, 7);
	assert_int_equal(view.qp[1].waits_ns, 0);
	assert_true(view.qp[1].retries == 2);
}

static void a_queue_pair_is_found_though_others_have_gone(void **state)
{
	old_qp[1].parkings = 10;
	new_qp[0] = old_qp[1];
	new_qp[0].parkings = 14;
	now.qps = 1;
	make();
	assert_true(view.qp[0].parkings == 2);
}

static void a_slow_fault_belongs_to_the_smallest_region_around_it(void **state)
{
	char why[TOP_WORDS];

	new_region[2] = region(5, UNPIN_REGION_ODP, 0x12345, 0x800);
	now.slow[0] = (struct top_slow){
		.addr = 0x12000, .waited_ns = 1, .resolved_ns = 5, .ended_ns = 11 * SECOND
	};
	now.slow[1] = (struct top_slow){ .addr = 0x13000, .waited_ns = 9, .resolved_ns = 5, .reads = 1 };
	now.slow[2] = (struct top_slow){
		.addr = 0x99000, .resolved_ns = 90, .reads = 2, .flags = UNPIN_SLOW_WRITE
	};
	now.slows = 3;
	make();
	top_sort(&view, TOP_BY_FAULTS, false);
	assert_int_equal(view.slow[0].slow->addr, 0x99000);
	assert_null(view.slow[0].region);
	assert_string_equal(top_why(why, view.slow[0].slow), "disk or swap; write");
	assert_int_equal(view.slow[1].region->addr, 0x10000);
	assert_non_null(strstr(top_why(why, view.slow[1].slow), "in line, then disk or swap; read"));
	assert_int_equal(view.slow[2].region->addr, 0x12345);
	assert_int_equal(view.slow[2].took_ns, 6);
	assert_int_equal(view.slow[2].ago_ns, SECOND);
	assert_non_null(strstr(top_why(why, view.slow[2].slow), "kernel and driver"));
}

static void every_word_of_why_fits(void **state)
{
	struct top_slow s = { .flags = UINT32_MAX, .waited_ns = 2, .resolved_ns = 1, .reads = 1 };
	char why[TOP_WORDS];

	assert_true(strlen(top_why(why, &s)) < TOP_WORDS);
	assert_non_null(strstr(why, "huge page"));
}

static void each_column_sorts_and_turns_round(void **state)
{
	new_region[0].odp[TOP_ODP_page_faults] = 5;
	new_region[1].odp[TOP_ODP_faults_major] = 5;
	new_region[2].odp[TOP_ODP_bytes_out] = 5;
	new_region[2].residency = (struct top_residency){ .known = true, .asked = 4, .present = 1 };
	make();
	for (enum top_key k = 0; k < TOP_KEYS; k++) {
		uint64_t first;

		assert_int_equal(top_key_named(top_key_names[k]), k);
		top_sort(&view, k, false);
		first = view.region[0].region->addr;
		assert_int_equal(first, k == TOP_BY_MAJORS			    ? 0x30000
					: k == TOP_BY_BYTES || k == TOP_BY_RESIDENT ? 0x20000
										    : 0x10000);
		top_sort(&view, k, true);
		if (k == TOP_BY_ADDRESS)
			assert_int_equal(view.region[0].region->addr, 0x30000);
	}
	top_sort(&view, TOP_BY_LENGTH, true);
	assert_int_equal(view.region[0].region->addr, 0x20000);
	assert_int_equal(top_key_named("nothing"), TOP_KEYS);
}

static void a_filter_leaves_what_has_the_text(void **state)
{
	new_qp[1].state = IBV_QPS_ERR;
	make();
	top_filter(&view, "");
	assert_int_equal(view.regions, 3);
	top_filter(&view, "ODP");
	assert_int_equal(view.regions, 2);
	assert_int_equal(view.qps, 0);
	make();
	top_filter(&view, "0x2000");
	assert_int_equal(view.regions, 1);
	assert_int_equal(view.region[0].region->kind, UNPIN_REGION_PINNED);
	make();
	top_filter(&view, "err");
	assert_int_equal(view.qps, 1);
	assert_int_equal(view.qp[0].qp->number, 0x1003);
	assert_int_equal(view.regions, 0);
}

static void a_strip_shows_what_is_where(void **state)
{
	struct top_residency r = { .known = true, .share = { 100, 67, 66, 33, 1, 0, 0 } };
	char strip[TOP_STRIP + 1];

	r.out[6] = true;
	r.out[0] = true;
	assert_string_equal(top_strip(strip, &r), "#+:.. s         ");
	r.known = false;
	assert_string_equal(top_strip(strip, &r), "?");
}

/* --- a device of the kernel ------------------------------------------------------------------------------
 */

static void make_kernels(void)
{
	before.kernel = now.kernel = true;
	for (int i = 0; i < 3; i++)
		for (int c = 0; c < TOP_ODP_COUNTERS; c++)
			old_region[i].odp[c] = new_region[i].odp[c] = TOP_UNKNOWN;
	for (int i = 0; i < 2; i++)
		old_qp[i].retransmits = new_qp[i].retransmits = old_qp[i].rnr_naks = new_qp[i].rnr_naks =
			TOP_UNKNOWN;
}

static void what_a_driver_does_not_count_is_no_zero(void **state)
{
	make_kernels();
	for (int i = 0; i < TOP_ODP_COUNTERS; i++)
		before.odp[i] = now.odp[i] = TOP_UNKNOWN;
	old_region[1].odp[TOP_ODP_page_faults] = 10;
	new_region[1].odp[TOP_ODP_page_faults] = 16;
	now.odp[TOP_ODP_page_faults] = 16;
	make();
	assert_true(view.odp[TOP_ODP_page_faults] < 0);
	assert_true(at(0x10000)->faults < 0 && at(0x10000)->bytes_in < 0);
	assert_int_equal(at(0x10000)->heat, TOP_HEAT_UNKNOWN);
	assert_true(at(0x30000)->faults == 3 && at(0x30000)->majors < 0);
	assert_int_equal(at(0x30000)->heat, TOP_HOT);
	top_sort(&view, TOP_BY_FAULTS, false);
	assert_int_equal(view.region[0].region->addr, 0x30000);
	assert_true(view.qp[0].retries < 0);
}

/* Numbers of regions of the kernel grow for ever. */
static void heat_is_remembered_however_large_the_number(void **state)
{
	make_kernels();
	old_region[2].row = new_region[2].row = UINT32_MAX;
	old_region[2].odp[TOP_ODP_page_faults] = 1;
	new_region[2].odp[TOP_ODP_page_faults] = 2;
	make();
	assert_int_equal(at(0x20000)->heat, TOP_HOT);
	assert_int_equal(memory.rows, 3);
	/* Another goes, and one comes in between. */
	memcpy(old_region, new_region, sizeof(old_region));
	new_region[0] = new_region[1];
	new_region[1] = region(3, UNPIN_REGION_ODP, 0x70000, 4096);
	make();
	assert_int_equal(at(0x20000)->heat, TOP_WARM);
	assert_int_equal(at(0x70000)->heat, TOP_NEVER);
}

static void queue_pairs_of_the_kernel_come_by_retries(void **state)
{
	make_kernels();
	old_qp[1].retransmits = old_qp[1].rnr_naks = 0;
	new_qp[1].retransmits = 3;
	new_qp[1].rnr_naks = 1;
	make();
	top_sort(&view, TOP_BY_FAULTS, false);
	assert_int_equal(view.qp[0].qp->number, 0x1003);
	assert_true(view.qp[0].retries == 2);
	assert_true(view.qp[1].retries < 0);
}

static void a_filter_knows_whose_it_is(void **state)
{
	make_kernels();
	new_region[1].owner = (struct top_owner){ .pid = 4242, .command = "a store" };
	new_region[2].owner = (struct top_owner){ .command = "[ib_core]" };
	new_region[0].keys_told = true;
	new_region[0].rkey = 0xabcd;
	strcpy(new_region[2].details, "odp=explicit");
	new_qp[1].owner = new_region[1].owner;
	make();
	top_filter(&view, "4242 A ST");
	assert_int_equal(view.regions, 1);
	assert_int_equal(view.qps, 1);
	assert_int_equal(view.region[0].region->addr, 0x30000);
	make();
	top_filter(&view, "0xabcd");
	assert_int_equal(view.regions, 1);
	make();
	top_filter(&view, "=explicit");
	assert_int_equal(view.regions, 1);
	assert_string_equal(view.region[0].region->owner.command, "[ib_core]");
}

static void counters_that_move_come_first(void **state)
{
	struct top_counter old[] = { { "a", 5 }, { "b", 0 }, { "c", 9 }, { "d", 7 } };
	struct top_counter new[] = { { "a", 5 }, { "b", 0 }, { "c", 13 }, { "d", 2 }, { "e", 1 } };

	before.counter = old;
	before.counters = 4;
	now.counter = new;
	now.counters = 5;
	make();
	top_sort(&view, TOP_BY_FAULTS, false);
	assert_int_equal(view.counters, 5);
	assert_string_equal(view.counter[0].counter->name, "c");
	assert_true(view.counter[0].rate == 2);
	/* One that went backwards or is new has none; those that are 0 come last. */
	assert_string_equal(view.counter[1].counter->name, "a");
	assert_string_equal(view.counter[2].counter->name, "d");
	assert_true(view.counter[2].rate == 0 && view.counter[3].rate == 0);
	assert_string_equal(view.counter[4].counter->name, "b");
	top_filter(&view, "E");
	assert_int_equal(view.counters, 1);
	before.counters = now.counters = 0;
}

static void names_that_do_not_exist_are_no_crash(void **state)
{
	assert_string_equal(top_kind_name(UINT32_MAX), "?");
	assert_string_equal(top_qp_state_name(UINT32_MAX), "?");
	assert_string_equal(top_qp_state_name(IBV_QPS_SQE), "SQE");
	assert_string_equal(top_qp_type_name(UINT32_MAX), "-");
	assert_string_equal(top_qp_type_name(2), "RC");
	assert_string_equal(top_qp_type_name(255), "driver");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		CASE(rates_are_per_second),
		CASE(stalls_are_a_share_of_the_time),
		CASE(what_is_not_known_stays_so),
		CASE(a_counter_that_went_backwards_began_anew),
		CASE(a_row_that_was_given_away_is_another_region),
		CASE(a_region_is_hot_then_warm_then_cold),
		CASE(used_before_the_first_look_is_cold_not_never),
		CASE(the_larger_part_of_the_time_has_its_name),
		CASE(queue_pairs_that_wait_come_first),
		CASE(a_queue_pair_is_found_though_others_have_gone),
		CASE(a_slow_fault_belongs_to_the_smallest_region_around_it),
		CASE(every_word_of_why_fits),
		CASE(each_column_sorts_and_turns_round),
		CASE(a_filter_leaves_what_has_the_text),
		CASE(a_strip_shows_what_is_where),
		CASE(what_a_driver_does_not_count_is_no_zero),
		CASE(heat_is_remembered_however_large_the_number),
		CASE(queue_pairs_of_the_kernel_come_by_retries),
		CASE(a_filter_knows_whose_it_is),
		CASE(counters_that_move_come_first),
		CASE(names_that_do_not_exist_are_no_crash),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "odp/pagetable.h"

static struct pagetable pt;
static _Atomic uint64_t bytes, leaves;

static int setup(void **state)
{
	(void)state;
	return pagetable_init(&pt, &bytes, &leaves);
}

static int teardown(void **state)
{
	(void)state;
	pagetable_destroy(&pt);
	return 0;
}

/* Addresses that share nothing, a node, and the ends of the table. */
static const uintptr_t places[] = {
	0,
	LEAF_BYTES,
	1ul << NODE_SHIFT,
	(1ul << NODE_SHIFT) - LEAF_BYTES,
	1ul << SPAN_SHIFT,
	0x7f0000000000,
	TABLE_LIMIT - LEAF_BYTES,
};
#define PLACES (sizeof(places) / sizeof(places[0]))

static void an_empty_table_has_no_leaves(void **state)
{
	uintptr_t at = 0;

	(void)state;
	for (size_t i = 0; i < PLACES; i++)
		assert_null(pagetable_leaf(&pt, places[i]));
	assert_null(pagetable_next(&pt, &at, TABLE_LIMIT));
	assert_null(pagetable_leaf(&pt, TABLE_LIMIT));
	assert_null(pagetable_make(&pt, TABLE_LIMIT));
	assert_null(pagetable_leaf(&pt, UINTPTR_MAX));
	assert_int_equal(leaves, 0);
	assert_int_equal(bytes, 0);
}

static void a_leaf_is_found_from_any_address_in_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < PLACES; i++) {
		struct leaf *leaf = pagetable_make(&pt, places[i] + 12345);

		assert_non_null(leaf);
		assert_int_equal(leaves, i + 1);
		assert_ptr_equal(pagetable_make(&pt, places[i]), leaf);
		assert_ptr_equal(pagetable_leaf(&pt, places[i]), leaf);
		assert_ptr_equal(pagetable_leaf(&pt, places[i] + LEAF_BYTES - 1), leaf);
		assert_int_equal(leaf->number, (places[i] >> LEAF_SHIFT) + 1);
	}
	assert_int_equal(leaves, PLACES);
}

static void walking_meets_every_leaf_once_in_order(void **state)
{
	uintptr_t at = 0, last = 0;
	unsigned seen = 0;
	struct leaf *leaf;

	(void)state;
	for (size_t i = 0; i < PLACES; i++)
		pagetable_make(&pt, places[i]);
	while ((leaf = pagetable_next(&pt, &at, UINTPTR_MAX))) {
		assert_int_equal(leaf->number, (at >> LEAF_SHIFT) + 1);
		assert_true(!seen || at > last);
		last = at;
		seen++;
		at = (at | (LEAF_BYTES - 1)) + 1;
	}
	assert_int_equal(seen, PLACES);
}

static void walking_keeps_to_its_range(void **state)
{
	uintptr_t at = LEAF_BYTES + 4096;

	(void)state;
	pagetable_make(&pt, 0);
	pagetable_make(&pt, LEAF_BYTES);
	pagetable_make(&pt, 5 * LEAF_BYTES);
	/* Starts inside a leaf: that is where it says it is. */
	assert_ptr_equal(pagetable_next(&pt, &at, 2 * LEAF_BYTES), pagetable_leaf(&pt, LEAF_BYTES));
	assert_int_equal(at, LEAF_BYTES + 4096);
	at = 2 * LEAF_BYTES;
	assert_null(pagetable_next(&pt, &at, 5 * LEAF_BYTES));
	assert_non_null(pagetable_next(&pt, &at, 5 * LEAF_BYTES + 1));
	assert_int_equal(at, 5 * LEAF_BYTES);
}

static void only_empty_leaves_are_freed_and_their_nodes_with_them(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, places[5]);

	(void)state;
	assert_int_equal(leaf_raise(leaf, 3, 3, true), 1);
	assert_false(pagetable_free_if_empty(&pt, places[5]));
	assert_int_equal(leaf_give_up(leaf, 0, LEAF_PAGES - 1), 1);
	assert_true(pagetable_free_if_empty(&pt, places[5]));
	assert_false(pagetable_free_if_empty(&pt, places[5]));
	assert_null(pagetable_leaf(&pt, places[5]));
	assert_int_equal(leaves, 0);
	assert_int_equal(bytes, 0);
	/* An old pointer still reads as a leaf with nothing in it. */
	assert_int_equal(leaf_state(leaf, 3), PAGE_INVALID);
	assert_int_equal(leaf->number, 0);
}

static void raising_stops_at_what_is_not_to_be_raised(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned handled;

	(void)state;
	assert_int_equal(leaf_raise(leaf, 20, 20, false), 1);
	/* 10..19, then somebody else's page. */
	assert_int_equal(leaf_raise(leaf, 10, 40, true), 10);
	assert_int_equal(leaf_state(leaf, 19), PAGE_FAULTING);
	assert_int_equal(leaf_state(leaf, 21), PAGE_INVALID);
	assert_true(leaf_settle(leaf, 20, 20, 1, false, false, 7, 9, 1, &handled));
	assert_int_equal(handled, 1);
	/* Read-only is in order for a reader, not for a writer. */
	assert_int_equal(leaf_raise(leaf, 20, 25, false), 0);
	assert_int_equal(leaf_raise(leaf, 20, 25, true), 6);
}

static void raising_downwards_stops_likewise(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned leading;

	assert_int_equal(leaf_raise_below(leaf, 0, true), 0);
	assert_int_equal(leaf_raise(leaf, 200, 200, true), 1);
	assert_int_equal(leaf_raise_below(leaf, 512, true), 311);
	assert_int_equal(leaf_raise_below(leaf, 200, true), 200);
	assert_int_equal(leaf_state(leaf, 0), PAGE_FAULTING);
	assert_int_equal(leaf_state(leaf, 511), PAGE_FAULTING);
	leaf_settle(leaf, 195, 200, 6, false, false, 1, 1, 6, &leading);
	leaf_give_up(leaf, 0, 511);
	/* Valid for reading: in the way of a read, not of a write. */
	assert_int_equal(leaf_raise_below(leaf, 220, false), 19);
	leaf_give_up(leaf, 0, 511);
	assert_int_equal(leaf_raise_below(leaf, 220, true), 220);
}

static void a_leaf_is_raisable_when_nothing_in_it_is_in_the_way(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned leading;

	assert_true(leaf_raisable(leaf, true));
	assert_true(leaf_raisable(leaf, false));
	leaf_raise(leaf, 300, 300, false);
	assert_false(leaf_raisable(leaf, true));
	leaf_settle(leaf, 300, 300, 1, false, false, 1, 1, 1, &leading);
	assert_true(leaf_raisable(leaf, true));
	assert_false(leaf_raisable(leaf, false));
}

static void what_comes_with_a_page_settles_without_it(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);

	leaf_raise(leaf, 0, 511, true);
	leaf_drop(leaf, 2, page_mask(3, 3));
	leaf_settle_rest(leaf, 5, 40, true, false, 7, 9);
	assert_int_equal(leaf_state(leaf, 4), PAGE_FAULTING);
	assert_int_equal(leaf_state(leaf, 5), PAGE_VALID_RW);
	assert_int_equal(leaf_state(leaf, 19), PAGE_INVALID);
	assert_int_equal(leaf_state(leaf, 40), PAGE_VALID_RW);
	assert_int_equal(leaf_state(leaf, 41), PAGE_FAULTING);
	assert_int_equal(leaf->owner[5], 9);
	leaf_give_up(leaf, 0, 511);
}

static void a_leaf_remembers_for_a_second_that_it_is_small(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);

	assert_false(leaf_small(leaf, 0));
	leaf_note_small(leaf, 65530);
	assert_true(leaf_small(leaf, 65530));
	assert_true(leaf_small(leaf, 5));
	assert_false(leaf_small(leaf, (uint16_t)(65530 + LEAF_SMALL_TICKS)));
}

static void settling_maps_what_is_clean_and_lets_go_of_the_rest(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned handled;

	(void)state;
	assert_int_equal(leaf_raise(leaf, 4, 35, true), 32);
	leaf_drop(leaf, 1, page_mask(0, 1)); /* pages 8 and 9 become dirty */
	/* 20 pages populated, 6 of 32 needed. */
	assert_true(leaf_settle(leaf, 4, 35, 20, true, true, 7, 9, 6, &handled));
	assert_int_equal(handled, 4);
	for (unsigned i = 4; i < 36; i++)
		assert_int_equal(
			leaf_state(leaf, i), i == 8 || i == 9 || i >= 24 ? PAGE_INVALID : PAGE_VALID_RW);
	assert_int_equal(leaf->owner[1], 9);
	assert_int_equal(leaf->owner[3], 0);
	assert_int_equal(leaf->tick[1], 7);
}

static void a_dirty_first_page_stays_faulting(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned handled;

	(void)state;
	assert_int_equal(leaf_raise(leaf, 6, 9, true), 4);
	leaf_drop(leaf, 0, page_mask(6, 6));
	assert_false(leaf_settle(leaf, 6, 9, 4, true, false, 7, 9, 4, &handled));
	assert_int_equal(handled, 3);
	assert_int_equal(leaf_state(leaf, 6), PAGE_FAULTING);
	assert_int_equal(leaf_state(leaf, 7), PAGE_VALID_RW);
	assert_int_equal(leaf_again(leaf, 6, 6), 1);
	assert_int_equal(leaf_again(leaf, 6, 6), 0);
	assert_true(leaf_settle(leaf, 6, 6, 1, true, false, 7, 9, 1, &handled));
	/* A populate that failed leaves it faulting and clean. */
	assert_int_equal(leaf_raise(leaf, 100, 100, true), 1);
	assert_false(leaf_settle(leaf, 100, 100, 0, true, false, 7, 9, 1, &handled));
	assert_int_equal(handled, 0);
	assert_int_equal(leaf_again(leaf, 100, 100), 0);
	assert_int_equal(leaf_give_up(leaf, 100, 100), 1);
}

static void a_group_is_fresh_only_when_all_its_valid_pages_are(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned handled;

	(void)state;
	leaf_raise(leaf, 0, 1, true);
	leaf_settle(leaf, 0, 1, 2, true, true, 100, 1, 2, &handled);
	assert_false(leaf_aged(leaf, 0, 101));
	assert_true(leaf_aged(leaf, 0, 102));
	/* A neighbour that is mapped later does not make the first ones fresh. */
	leaf_raise(leaf, 2, 2, true);
	leaf_settle(leaf, 2, 2, 1, true, true, 110, 1, 1, &handled);
	assert_int_equal(leaf->tick[0], 100);
	/* Ticks wrap. */
	leaf->tick[0] = 0xffff;
	assert_false(leaf_aged(leaf, 0, 0));
	assert_true(leaf_aged(leaf, 0, 1));
}

static void dropping_tells_what_was_valid(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned handled;

	(void)state;
	leaf_raise(leaf, 8, 11, true);
	leaf_settle(leaf, 8, 11, 3, true, false, 1, 1, 4, &handled);
	leaf_raise(leaf, 15, 15, true);
	assert_true(leaf_drop(leaf, 1, ~0ull) == 0x010101ull);
	assert_true(leaf_drop(leaf, 1, ~0ull) == 0);
	assert_int_equal(leaf_state(leaf, 15), PAGE_FAULTING);
	assert_int_equal(leaf_again(leaf, 15, 15), 1);
}

static void fork_takes_write_from_every_page(void **state)
{
	struct leaf *leaf = pagetable_make(&pt, 0);
	unsigned handled;

	(void)state;
	leaf_raise(leaf, 0, 9, true);
	leaf_settle(leaf, 0, 9, 10, true, false, 1, 1, 10, &handled);
	leaf_raise(leaf, 10, 10, true);
	assert_int_equal(leaf_fork(leaf, 0, LEAF_PAGES - 1), 10);
	assert_int_equal(leaf_state(leaf, 9), PAGE_VALID_RO);
	assert_int_equal(leaf_again(leaf, 10, 10), 1);
}

static void a_dense_gigabyte_is_under_two_bytes_a_page(void **state)
{
	(void)state;
	for (uintptr_t at = 1ul << 40; at < (1ul << 40) + (1ul << 30); at += LEAF_BYTES)
		assert_non_null(pagetable_make(&pt, at));
	assert_int_equal(leaves, 512);
	assert_true(bytes <= 2 * ((1ul << 30) >> ODP_PAGE_SHIFT));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(an_empty_table_has_no_leaves),
		TEST(a_leaf_is_found_from_any_address_in_it),
		TEST(walking_meets_every_leaf_once_in_order),
		TEST(walking_keeps_to_its_range),
		TEST(only_empty_leaves_are_freed_and_their_nodes_with_them),
		TEST(raising_stops_at_what_is_not_to_be_raised),
		TEST(raising_downwards_stops_likewise),
		TEST(a_leaf_is_raisable_when_nothing_in_it_is_in_the_way),
		TEST(what_comes_with_a_page_settles_without_it),
		TEST(a_leaf_remembers_for_a_second_that_it_is_small),
		TEST(settling_maps_what_is_clean_and_lets_go_of_the_rest),
		TEST(a_dirty_first_page_stays_faulting),
		TEST(a_group_is_fresh_only_when_all_its_valid_pages_are),
		TEST(dropping_tells_what_was_valid),
		TEST(fork_takes_write_from_every_page),
		TEST(a_dense_gigabyte_is_under_two_bytes_a_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

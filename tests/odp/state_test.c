/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The page states: what the functions on words do, byte by byte, and that they never leave the table of legal
 * moves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "odp/state.h"

/* Every byte that occurs. */
static const uint8_t bytes[] = {
	PAGE_INVALID,
	PAGE_FAULTING,
	PAGE_FAULTING | PAGE_DIRTY,
	PAGE_VALID_RO,
	PAGE_VALID_RW,
	PAGE_VALID_RO | PAGE_FILE,
	PAGE_VALID_RW | PAGE_FILE,
};
#define BYTES (sizeof(bytes) / sizeof(bytes[0]))

static uint8_t byte_of(uint64_t word, unsigned i)
{
	return (uint8_t)(word >> (8 * i));
}

/* What a function makes of a byte at place i, with all others of another kind; they must stay. */
static uint8_t through(uint64_t (*f)(uint64_t, uint64_t), uint8_t from, uint8_t others, unsigned i)
{
	uint64_t mask = page_mask(i, i),
		 word = (PAGE_EACH((uint64_t)others) & ~mask) | (uint64_t)from << (8 * i);
	uint64_t to = f(word, mask);

	assert_true((to & ~mask) == (word & ~mask));
	return byte_of(to, i);
}

static uint64_t raise_read(uint64_t w, uint64_t m)
{
	return page_word_raise(w, m, false);
}

static uint64_t raise_write(uint64_t w, uint64_t m)
{
	return page_word_raise(w, m, true);
}

static uint64_t map_read(uint64_t w, uint64_t m)
{
	return page_word_map(w, m, false, false);
}

static uint64_t map_write_file(uint64_t w, uint64_t m)
{
	return page_word_map(w, m, true, true);
}

static const struct {
	enum page_actor actor;
	uint64_t (*f)(uint64_t, uint64_t);
	uint8_t to[BYTES]; /* of bytes[] in turn */
} rows[] = {
	{ PAGE_RAISE, raise_read, { 1, 1, 5, 2, 3, 10, 11 } },
	{ PAGE_RAISE, raise_write, { 1, 1, 5, 1, 3, 1, 11 } },
	{ PAGE_MAP, map_read, { 0, 2, 5, 2, 3, 10, 11 } },
	{ PAGE_MAP, map_write_file, { 0, 11, 5, 2, 3, 10, 11 } },
	{ PAGE_AGAIN, page_word_again, { 0, 1, 1, 2, 3, 10, 11 } },
	{ PAGE_GIVE_UP, page_word_give_up, { 0, 0, 0, 2, 3, 10, 11 } },
	{ PAGE_DROP, page_word_drop, { 0, 5, 5, 0, 0, 0, 0 } },
	{ PAGE_FORK, page_word_fork, { 0, 5, 5, 2, 2, 10, 10 } },
};

static void each_change_does_what_its_row_says_to_its_byte_alone(void **state)
{
	(void)state;
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		for (size_t b = 0; b < BYTES; b++)
			for (size_t other = 0; other < BYTES; other++)
				for (unsigned i = 0; i < 8; i++)
					assert_int_equal(
						through(rows[r].f, bytes[b], bytes[other], i), rows[r].to[b]);
}

static void every_change_is_legal(void **state)
{
	(void)state;
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		for (size_t b = 0; b < BYTES; b++)
			assert_true(page_move_legal(rows[r].actor, bytes[b], rows[r].to[b]));
}

static void what_the_table_does_not_list_is_illegal(void **state)
{
	(void)state;
	/* Nobody makes a page valid but the owner of a clean fault. */
	for (unsigned actor = 0; actor < PAGE_ACTORS; actor++) {
		assert_false(page_move_legal(actor, PAGE_INVALID, PAGE_VALID_RW));
		assert_false(page_move_legal(actor, PAGE_INVALID, PAGE_VALID_RO));
		assert_false(page_move_legal(actor, PAGE_FAULTING | PAGE_DIRTY, PAGE_VALID_RW));
		assert_false(page_move_legal(actor, PAGE_VALID_RO, PAGE_VALID_RW));
	}
	/* Nobody but the owner ends a fault. */
	assert_false(page_move_legal(PAGE_DROP, PAGE_FAULTING, PAGE_INVALID));
	assert_false(page_move_legal(PAGE_FORK, PAGE_FAULTING, PAGE_INVALID));
	assert_false(page_move_legal(PAGE_RAISE, PAGE_VALID_RW, PAGE_FAULTING));
	/* Bytes that mean nothing. */
	assert_false(page_move_legal(PAGE_DROP, PAGE_FILE, PAGE_FILE));
	assert_false(page_move_legal(PAGE_DROP, PAGE_VALID_RO | PAGE_DIRTY, PAGE_INVALID));
	assert_false(page_move_legal(PAGE_DROP, 0x80, PAGE_INVALID));
}

static void masks_and_counts_agree_with_the_bytes(void **state)
{
	uint64_t word = 0;

	(void)state;
	assert_true(page_mask(0, 7) == ~0ull);
	assert_true(page_mask(2, 3) == 0xffff0000ull);
	assert_true(page_mask(7, 7) == 0xffull << 56);
	for (unsigned i = 0; i < BYTES; i++)
		word |= (uint64_t)bytes[i] << (8 * i);
	/* bytes[]: invalid, faulting, dirty, ro, rw, ro, rw, and an eighth that is invalid */
	assert_true(page_valid(word, ~0ull) == 0x0001010101000000ull);
	assert_true(page_valid_rw(word, ~0ull) == 0x0001000100000000ull);
	assert_true(page_faulting(word, ~0ull) == 0x0000000000010100ull);
	assert_true(page_faulting_clean(word, ~0ull) == 0x0000000000000100ull);
	assert_true(page_raisable(word, ~0ull, false) == 0x0100000000000001ull);
	assert_true(page_raisable(word, ~0ull, true) == 0x0100010001000001ull);
	assert_true(page_valid(word, page_mask(4, 4)) == 0x0000000100000000ull);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_change_does_what_its_row_says_to_its_byte_alone),
		cmocka_unit_test(every_change_is_legal),
		cmocka_unit_test(what_the_table_does_not_list_is_illegal),
		cmocka_unit_test(masks_and_counts_agree_with_the_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

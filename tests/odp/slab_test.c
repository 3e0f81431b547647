/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "odp/slab.h"

#define MANY 500u

static void pieces_do_not_overlap_and_are_aligned(void **state)
{
	struct slab_pool pool;
	char *piece[MANY];

	(void)state;
	slab_init(&pool, 832, false);
	for (unsigned i = 0; i < MANY; i++) {
		piece[i] = slab_take(&pool);
		assert_non_null(piece[i]);
		assert_int_equal((uintptr_t)piece[i] % 64, 0);
		memset(piece[i], (int)i, 832);
	}
	assert_int_equal(pool.used, MANY);
	for (unsigned i = 0; i < MANY; i++)
		for (unsigned b = 0; b < 832; b++)
			assert_int_equal((unsigned char)piece[i][b], (unsigned char)i);
	slab_destroy(&pool);
}

static void a_piece_given_back_is_taken_again(void **state)
{
	struct slab_pool pool;
	void *a, *b;

	(void)state;
	slab_init(&pool, 4160, false);
	a = slab_take(&pool);
	b = slab_take(&pool);
	slab_give(&pool, a);
	assert_ptr_equal(slab_take(&pool), a);
	slab_give(&pool, b);
	slab_give(&pool, a);
	assert_int_equal(pool.used, 0);
	slab_destroy(&pool);
}

static void freed_memory_stays_readable_and_writable(void **state)
{
	struct slab_pool pool;
	char *piece[MANY];

	(void)state;
	slab_init(&pool, 832, false);
	for (unsigned i = 0; i < MANY; i++)
		piece[i] = memset(slab_take(&pool), 0xff, 832);
	for (unsigned i = 0; i < MANY; i++)
		slab_give(&pool, piece[i]);
	for (unsigned i = 0; i < MANY; i++) {
		/* Its last content, or zeros. */
		assert_true(piece[i][831] == 0 || piece[i][831] == (char)0xff);
		piece[i][831] = 0;
	}
	/* All but the first page of each slab has gone back. */
	assert_int_equal(piece[MANY / 2][100], 0);
	slab_destroy(&pool);
}

static void kept_memory_is_not_given_back(void **state)
{
	struct slab_pool pool;
	char *piece[MANY];

	(void)state;
	slab_init(&pool, 256, true);
	for (unsigned i = 0; i < MANY; i++)
		piece[i] = memset(slab_take(&pool), 7, 256);
	for (unsigned i = 0; i < MANY; i++)
		slab_give(&pool, piece[i]);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(piece[i][255], 7);
	slab_destroy(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_do_not_overlap_and_are_aligned),
		cmocka_unit_test(a_piece_given_back_is_taken_again),
		cmocka_unit_test(freed_memory_stays_readable_and_writable),
		cmocka_unit_test(kept_memory_is_not_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

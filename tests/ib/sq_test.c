/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "ib/sq.h"

static void the_ring_has_room_for_every_wqe_in_full(void **state)
{
	static const uint32_t wrs[] = { 1, 2, 3, 5, 64, 1000 }, sges[] = { 0, 1, 4, 32 },
			      inlines[] = { 0, 1, 64, 1000 };
	struct ib_sq sq;

	(void)state;
	for (size_t w = 0; w < 6; w++)
		for (size_t s = 0; s < 4; s++)
			for (size_t n = 0; n < 4; n++) {
				assert_int_equal(ib_sq_init(&sq, wrs[w], sges[s], inlines[n]), 0);
				assert_true(sq.size >= wrs[w] && !(sq.size & (sq.size - 1)));
				assert_int_equal(sq.stride % 64, 0);
				for (uint32_t i = 0; i < sq.size; i++) {
					struct ib_wqe *wqe = ib_sq_at(&sq, i);

					memset(wqe->sge, 0xff, sges[s] * sizeof(struct ibv_sge));
					memset(ib_wqe_inline(wqe), 0xff, inlines[n]);
					assert_int_equal(wqe->wr_id, 0); /* untouched by the one before */
				}
				ib_sq_fini(&sq);
			}
}

static void indices_count_for_ever(void **state)
{
	struct ib_sq sq;

	(void)state;
	assert_int_equal(ib_sq_init(&sq, 6, 1, 0), 0);
	assert_int_equal(sq.size, 8);
	assert_ptr_equal(ib_sq_at(&sq, 3), ib_sq_at(&sq, 11));
	assert_ptr_equal(ib_sq_at(&sq, UINT32_MAX), ib_sq_at(&sq, 7));
	assert_ptr_not_equal(ib_sq_at(&sq, 0), ib_sq_at(&sq, 7));
	assert_int_equal(sq.max_wr, 6);
	ib_sq_fini(&sq);
}

static void zero_of_everything_is_a_queue(void **state)
{
	struct ib_sq sq;

	(void)state;
	assert_int_equal(ib_sq_init(&sq, 0, 0, 0), 0);
	assert_int_equal(sq.max_wr, 0);
	assert_non_null(ib_sq_at(&sq, 0));
	ib_sq_fini(&sq);
	assert_null(sq.ring);
}

static void sizes_beyond_memory_are_refused(void **state)
{
	struct ib_sq sq;

	(void)state;
	assert_int_equal(ib_sq_init(&sq, UINT32_MAX, 1, 0), -ENOMEM);
	ib_sq_fini(&sq);
	assert_int_equal(ib_sq_init(&sq, 1, UINT32_MAX, 0), -ENOMEM);
	ib_sq_fini(&sq);
	assert_int_equal(ib_sq_init(&sq, 1, 0, UINT32_MAX), -ENOMEM);
	ib_sq_fini(&sq);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_ring_has_room_for_every_wqe_in_full),
		cmocka_unit_test(indices_count_for_ever),
		cmocka_unit_test(zero_of_everything_is_a_queue),
		cmocka_unit_test(sizes_beyond_memory_are_refused),
	};

	return cmocka_run_group_tests_name("ib/sq", tests, NULL, NULL);
}

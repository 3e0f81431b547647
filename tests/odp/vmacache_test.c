/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "odp/vmacache.h"

static struct vma mapping(uintptr_t start, uintptr_t end)
{
	return (struct vma){ .start = start, .end = end, .read = true };
}

static void put(struct vmacache *c, uintptr_t start, uintptr_t end, uint32_t changes)
{
	struct vma v = mapping(start, end);

	vmacache_put(c, &v, changes);
}

static void an_answer_holds_for_the_whole_mapping_and_no_more(void **state)
{
	struct vmacache c = { 0 };
	struct vma v;

	(void)state;
	assert_false(vmacache_get(&c, 0, 0, &v));
	put(&c, 100, 200, 0);
	assert_true(vmacache_get(&c, 100, 0, &v));
	assert_true(vmacache_get(&c, 199, 0, &v));
	assert_int_equal(v.end, 200);
	assert_false(vmacache_get(&c, 200, 0, &v));
	assert_false(vmacache_get(&c, 99, 0, &v));
}

static void any_change_makes_all_unknown(void **state)
{
	struct vmacache c = { 0 };
	struct vma v;

	(void)state;
	put(&c, 100, 200, 0);
	put(&c, 300, 400, 0);
	assert_false(vmacache_get(&c, 150, 1, &v));
	assert_false(vmacache_get(&c, 350, 1, &v));
}

static void an_answer_older_than_the_others_is_not_taken(void **state)
{
	struct vmacache c = { 0 };
	struct vma v;

	(void)state;
	put(&c, 100, 200, 5);
	put(&c, 300, 400, 4);
	assert_false(vmacache_get(&c, 350, 5, &v));
	assert_true(vmacache_get(&c, 150, 5, &v));
	/* The count wraps. */
	c = (struct vmacache){ .changes = UINT32_MAX };
	put(&c, 100, 200, 1);
	assert_true(vmacache_get(&c, 150, 1, &v));
}

static void a_mapping_is_held_once_and_the_oldest_goes_first(void **state)
{
	struct vmacache c = { 0 };
	struct vma v;

	(void)state;
	put(&c, 100, 200, 0);
	put(&c, 100, 150, 0);
	assert_true(vmacache_get(&c, 100, 0, &v));
	assert_int_equal(v.end, 150);
	for (uintptr_t i = 1; i <= VMACACHE_ENTRIES; i++)
		put(&c, i * 1000, i * 1000 + 1, 0);
	assert_false(vmacache_get(&c, 100, 0, &v));
	for (uintptr_t i = 1; i <= VMACACHE_ENTRIES; i++)
		assert_true(vmacache_get(&c, i * 1000, 0, &v));
	vmacache_drop(&c, 1000);
	assert_false(vmacache_get(&c, 1000, 0, &v));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_holds_for_the_whole_mapping_and_no_more),
		cmocka_unit_test(any_change_makes_all_unknown),
		cmocka_unit_test(an_answer_older_than_the_others_is_not_taken),
		cmocka_unit_test(a_mapping_is_held_once_and_the_oldest_goes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

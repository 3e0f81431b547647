/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/list.h"

struct item {
	int value;
	struct list node;
};

static void expect(struct list *head, const int *values, int n)
{
	int i = 0;

	list_for_each (pos, head) {
		assert_in_range(i, 0, n - 1);
		assert_int_equal(container_of(pos, struct item, node)->value, values[i]);
		assert_ptr_equal(pos->next->prev, pos);
		i++;
	}
	assert_int_equal(i, n);
}

static void a_new_list_is_empty_and_its_nodes_are_not_linked(void **state)
{
	struct list head = LIST_INIT(head);
	struct item a = { .value = 1 };

	list_init(&a.node);
	assert_true(list_empty(&head));
	assert_false(list_linked(&a.node));
	assert_null(list_pop(&head));
}

static void nodes_come_in_the_order_they_were_added(void **state)
{
	struct list head = LIST_INIT(head);
	struct item item[3] = { { .value = 1 }, { .value = 2 }, { .value = 3 } };

	list_add_tail(&head, &item[1].node);
	list_add_tail(&head, &item[2].node);
	list_add_head(&head, &item[0].node);
	expect(&head, (int[]){ 1, 2, 3 }, 3);
	assert_ptr_equal(list_first(&head, struct item, node), &item[0]);
	assert_true(list_linked(&item[1].node));
}

static void a_deleted_node_can_be_deleted_again_and_added_again(void **state)
{
	struct list head = LIST_INIT(head);
	struct item item[3] = { { .value = 1 }, { .value = 2 }, { .value = 3 } };

	for (int i = 0; i < 3; i++)
		list_add_tail(&head, &item[i].node);
	list_del(&item[1].node);
	expect(&head, (int[]){ 1, 3 }, 2);
	list_del(&item[1].node);
	expect(&head, (int[]){ 1, 3 }, 2);
	assert_false(list_linked(&item[1].node));
	list_add_tail(&head, &item[1].node);
	expect(&head, (int[]){ 1, 3, 2 }, 3);
}

static void the_safe_walk_allows_the_body_to_unlink(void **state)
{
	struct list head = LIST_INIT(head);
	struct item item[4] = { { .value = 1 }, { .value = 2 }, { .value = 3 }, { .value = 4 } };

	for (int i = 0; i < 4; i++)
		list_add_tail(&head, &item[i].node);
	list_for_each_safe (pos, &head) {
		struct item *it = container_of(pos, struct item, node);

		if (it->value % 2) {
			list_del(pos);
			pos->next = pos->prev = NULL; /* as if freed */
		}
	}
	expect(&head, (int[]){ 2, 4 }, 2);
}

static void pop_takes_the_first_until_none_is_left(void **state)
{
	struct list head = LIST_INIT(head);
	struct item item[2] = { { .value = 1 }, { .value = 2 } };

	list_add_tail(&head, &item[0].node);
	list_add_tail(&head, &item[1].node);
	assert_ptr_equal(list_pop(&head), &item[0].node);
	assert_ptr_equal(list_pop(&head), &item[1].node);
	assert_null(list_pop(&head));
	assert_true(list_empty(&head));
}

static void splice_appends_all_and_leaves_the_source_empty(void **state)
{
	struct list a = LIST_INIT(a), b = LIST_INIT(b);
	struct item item[4] = { { .value = 1 }, { .value = 2 }, { .value = 3 }, { .value = 4 } };

	for (int i = 0; i < 4; i++)
		list_add_tail(i < 2 ? &a : &b, &item[i].node);
	list_splice_tail(&a, &b);
	expect(&a, (int[]){ 1, 2, 3, 4 }, 4);
	assert_true(list_empty(&b));
	list_splice_tail(&a, &b);
	expect(&a, (int[]){ 1, 2, 3, 4 }, 4);
	list_splice_tail(&b, &a);
	expect(&b, (int[]){ 1, 2, 3, 4 }, 4);
	assert_true(list_empty(&a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_list_is_empty_and_its_nodes_are_not_linked),
		cmocka_unit_test(nodes_come_in_the_order_they_were_added),
		cmocka_unit_test(a_deleted_node_can_be_deleted_again_and_added_again),
		cmocka_unit_test(the_safe_walk_allows_the_body_to_unlink),
		cmocka_unit_test(pop_takes_the_first_until_none_is_left),
		cmocka_unit_test(splice_appends_all_and_leaves_the_source_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

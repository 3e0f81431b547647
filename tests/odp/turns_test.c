/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Queues in which flows take turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "odp/turns.h"

#define MOST 2000u

struct entry {
	struct turn turn;
	unsigned n;
};

static struct turn_table table;
static struct turns q, other;
static struct entry entry[MOST];

/* Names of flows: any addresses. */
static const char flow[64];

static int setup(void **state)
{
	(void)state;
	memset(entry, 0xa5, sizeof(entry));
	for (unsigned i = 0; i < MOST; i++)
		entry[i].n = i;
	turn_table_init(&table);
	turns_init(&q, &table);
	turns_init(&other, &table);
	return 0;
}

static unsigned take(void)
{
	struct turn *t = turns_take(&q);

	return t ? container_of(t, struct entry, turn)->n : MOST;
}

static void one_flow_leaves_in_the_order_of_its_coming(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++)
		turns_add(&q, &entry[i].turn, NULL);
	assert_int_equal(q.len, 10);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(take(), i);
	assert_int_equal(take(), MOST);
	assert_int_equal(q.len, 0);
}

static void a_flow_of_a_thousand_delays_anothers_single_one_by_a_turn(void **state)
{
	unsigned before = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		turns_add(&q, &entry[i].turn, &flow[0]);
	turns_add(&q, &entry[1000].turn, &flow[1]);
	while (take() != 1000)
		before++;
	assert_true(before <= 1);
	for (unsigned i = before; i < 1000; i++)
		assert_int_equal(take(), i);
}

static void flows_take_turns_whatever_they_bring(void **state)
{
	static const unsigned order[] = { 0, 3, 5, 1, 4, 2 };

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		turns_add(&q, &entry[i].turn, &flow[0]);
	for (unsigned i = 3; i < 5; i++)
		turns_add(&q, &entry[i].turn, NULL);
	turns_add(&q, &entry[5].turn, &flow[1]);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(take(), order[i]);
}

/* It does not go before those who have waited since. */
static void a_flow_that_comes_back_goes_to_the_end(void **state)
{
	(void)state;
	turns_add(&q, &entry[0].turn, &flow[0]);
	turns_add(&q, &entry[1].turn, &flow[1]);
	turns_add(&q, &entry[2].turn, &flow[2]);
	assert_int_equal(take(), 0);
	turns_add(&q, &entry[3].turn, &flow[0]);
	assert_int_equal(take(), 1);
	assert_int_equal(take(), 2);
	assert_int_equal(take(), 3);
}

static void who_is_taken_out_costs_his_flow_no_turn(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++)
		turns_add(&q, &entry[i].turn, &flow[0]);
	turns_add(&q, &entry[4].turn, &flow[1]);
	turns_remove(&entry[0].turn);
	turns_remove(&entry[2].turn);
	assert_null(entry[0].turn.in);
	assert_int_equal(q.len, 3);
	assert_int_equal(take(), 1);
	turns_remove(&entry[4].turn);
	assert_int_equal(take(), 3);
	assert_int_equal(take(), MOST);
}

static void queues_that_share_a_table_do_not_mix(void **state)
{
	(void)state;
	turns_add(&other, &entry[0].turn, &flow[0]);
	turns_add(&q, &entry[1].turn, &flow[0]);
	turns_add(&other, &entry[2].turn, &flow[0]);
	assert_int_equal(q.len, 1);
	assert_int_equal(take(), 1);
	assert_int_equal(take(), MOST);
	assert_ptr_equal(turns_take(&other), &entry[0].turn);
	assert_ptr_equal(turns_take(&other), &entry[2].turn);
}

/* Against the plainest queue there could be: which flow each entry has, and which was served how long ago. */
static void whatever_comes_and_goes_nobody_is_lost_and_turns_are_fair(void **state)
{
	unsigned in[64] = { 0 }, waited[64] = { 0 }, total = 0, next = 0;
	static unsigned of[MOST];

	(void)state;
	srand(4711);
	for (unsigned step = 0; step < 200000; step++) {
		unsigned i = next, f = (unsigned)rand() % 64;

		next = (next + 1) % MOST;
		if (total < MOST / 2 && rand() % 2) {
			if (total && of[i])
				continue;
			of[i] = f + 1;
			if (!in[f])
				waited[f] = 0;
			in[f]++;
			total++;
			turns_add(&q, &entry[i].turn, &flow[f]);
		} else if (of[i] && rand() % 2) {
			in[of[i] - 1]--;
			of[i] = 0;
			total--;
			turns_remove(&entry[i].turn);
		} else if (total) {
			unsigned n = take();

			assert_true(n < MOST && of[n]);
			f = of[n] - 1;
			of[n] = 0;
			in[f]--;
			total--;
			waited[f] = 0;
			for (unsigned g = 0; g < 64; g++)
				if (in[g] && g != f)
					assert_true(++waited[g] <= 64);
		}
		assert_int_equal(q.len, total);
	}
	while (take() != MOST)
		total--;
	assert_int_equal(total, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_flow_leaves_in_the_order_of_its_coming, setup),
		cmocka_unit_test_setup(a_flow_of_a_thousand_delays_anothers_single_one_by_a_turn, setup),
		cmocka_unit_test_setup(flows_take_turns_whatever_they_bring, setup),
		cmocka_unit_test_setup(a_flow_that_comes_back_goes_to_the_end, setup),
		cmocka_unit_test_setup(who_is_taken_out_costs_his_flow_no_turn, setup),
		cmocka_unit_test_setup(queues_that_share_a_table_do_not_mix, setup),
		cmocka_unit_test_setup(whatever_comes_and_goes_nobody_is_lost_and_turns_are_fair, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

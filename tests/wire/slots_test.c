/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "wire/slots.h"

#define FLOWS 64u

static struct slots slots;
static struct wire_flow flow[FLOWS];
static _Atomic uint64_t released[WIRE_SLOTS / 64];

static int fresh(void **state)
{
	slots_init(&slots);
	slots_allocated(&slots, WIRE_SLOTS);
	memset(flow, 0, sizeof(flow));
	memset(released, 0, sizeof(released));
	return 0;
}

static uint32_t take(uint32_t i)
{
	uint32_t slot = slots_take(&slots, &flow[i]);

	slots_sent(&slots, slot);
	return slot;
}

static void fill(uint32_t i)
{
	while (slots_allowed(&slots, flow[i].held, true))
		take(i);
}

static void release(uint32_t slot)
{
	atomic_fetch_or(&released[slot / 64], 1ull << slot % 64);
}

static void a_flow_alone_gets_a_good_share(void **state)
{
	fill(0);
	assert_in_range(flow[0].held, 20, WIRE_SLOTS / 2);
}

static void after_32_stuck_flows_the_next_still_gets_two(void **state)
{
	for (uint32_t i = 0; i < 32; i++) {
		fill(i);
		assert_true(flow[i].held >= SLOTS_LEAST);
	}
	fill(32);
	assert_int_equal(flow[32].held, SLOTS_LEAST);
}

/* However takes and releases are mixed. */
static void two_slots_are_always_left_for_each_of_33_flows(void **state)
{
	uint32_t held[WIRE_SLOTS], n = 0;

	srand(7);
	for (int step = 0; step < 200000; step++) {
		uint32_t f = (uint32_t)rand() % SLOTS_FLOWS;

		if (rand() % 3 && slots_allowed(&slots, flow[f].held, true)) {
			held[n++] = take(f);
		} else if (n) {
			uint32_t k = (uint32_t)rand() % n;

			release(held[k]);
			held[k] = held[--n];
			assert_int_equal(slots_collect(&slots, released), 1);
		}
		for (f = 0; f < SLOTS_FLOWS; f++)
			if (flow[f].held < SLOTS_LEAST)
				assert_true(slots_allowed(&slots, flow[f].held, true));
		assert_int_equal(slots.used, n);
	}
}

static void the_slot_released_last_is_used_first(void **state)
{
	uint32_t a = take(0), b = take(0);

	release(a);
	slots_collect(&slots, released);
	release(b);
	slots_collect(&slots, released);
	assert_int_equal(take(1), b);
	assert_int_equal(take(1), a);
}

static void a_release_of_what_is_not_in_flight_does_nothing(void **state)
{
	uint32_t sent = take(0), reserved = slots_take(&slots, &flow[0]);

	for (uint32_t i = 0; i < WIRE_SLOTS / 64; i++)
		atomic_store(&released[i], UINT64_MAX);
	assert_int_equal(slots_collect(&slots, released), 1);
	assert_int_equal(slots.used, 1);
	assert_int_equal(flow[0].held, 1);
	release(sent);
	assert_int_equal(slots_collect(&slots, released), 0);
	slots_give(&slots, reserved);
	assert_int_equal(slots.used, 0);
	assert_int_equal(slots.nfree, WIRE_SLOTS);
	assert_int_equal(slots.least, 0);
}

static void slots_of_an_ended_flow_come_back(void **state)
{
	uint32_t a = take(0), b = take(0), c = take(0);

	slots_forget(&slots, &flow[0]);
	assert_int_equal(flow[0].held, 0);
	/* The same memory may be another flow at once. */
	take(0);
	release(a);
	release(b);
	release(c);
	assert_int_equal(slots_collect(&slots, released), 3);
	assert_int_equal(flow[0].held, 1);
	assert_int_equal(slots.used, 1);
	assert_int_equal(slots.least, 1);
}

static void many_flows_with_one_slot_each_have_an_account_each(void **state)
{
	struct wire_flow *many = calloc(WIRE_SLOTS, sizeof(*many));

	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < WIRE_SLOTS; i++) {
			assert_true(slots_allowed(&slots, 0, true));
			slots_sent(&slots, slots_take(&slots, &many[i]));
		}
		assert_false(slots_allowed(&slots, 0, true));
		for (uint32_t i = 0; i < WIRE_SLOTS; i++)
			release(i);
		assert_int_equal(slots_collect(&slots, released), WIRE_SLOTS);
		assert_int_equal(slots.nfree_account, WIRE_SLOTS);
	}
	free(many);
}

static void responses_find_a_slot_when_requests_have_taken_all_they_may(void **state)
{
	struct wire_flow *many = calloc(WIRE_SLOTS, sizeof(*many));
	uint32_t n = 0;

	(void)state;
	assert_non_null(many);
	while (n < WIRE_SLOTS && slots_allowed(&slots, 0, false))
		slots_sent(&slots, slots_take(&slots, &many[n++]));
	assert_int_equal(WIRE_SLOTS - SLOTS_RESPONSES, n);
	assert_true(slots_allowed(&slots, 0, true));
	free(many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_flow_alone_gets_a_good_share, fresh),
		cmocka_unit_test_setup(after_32_stuck_flows_the_next_still_gets_two, fresh),
		cmocka_unit_test_setup(two_slots_are_always_left_for_each_of_33_flows, fresh),
		cmocka_unit_test_setup(the_slot_released_last_is_used_first, fresh),
		cmocka_unit_test_setup(a_release_of_what_is_not_in_flight_does_nothing, fresh),
		cmocka_unit_test_setup(slots_of_an_ended_flow_come_back, fresh),
		cmocka_unit_test_setup(many_flows_with_one_slot_each_have_an_account_each, fresh),
		cmocka_unit_test_setup(responses_find_a_slot_when_requests_have_taken_all_they_may, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

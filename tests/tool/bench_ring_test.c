/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/bench_ring.h"
#include "tool/machine.h"

static void the_ring_brings_every_byte(void **state)
{
	size_t span = 5 << 20;
	uint64_t *source = malloc(span), *target = malloc(span);
	struct ring *r = ring_start();

	assert_non_null(r);
	for (uint64_t seed = 1; seed <= 3; seed++) {
		machine_fill(source, span, seed);
		memset(target, 0, span);
		assert_true(ring_copy(r, source, target, span, 100000, span) > 0);
		assert_int_equal(machine_compare(target, span, seed), span);
	}
	/* A total that is no multiple of anything goes round and round. */
	machine_fill(source, 65536, 9);
	ring_copy(r, source, target, 65536, 65536, (3 << 20) + 12345);
	assert_int_equal(machine_compare(target, 65536, 9), 65536);
	ring_stop(r);
	free(source);
	free(target);
}

static void every_futex_round_trip_is_timed(void **state)
{
	uint64_t ns[200] = { 0 };
	struct ring *r = ring_start();

	assert_non_null(r);
	ring_futex(r, 200, ns);
	ring_futex(r, 200, ns);
	for (int i = 0; i < 200; i++)
		assert_true(ns[i] > 0);
	ring_stop(r);
}

static void a_ring_that_did_nothing_ends(void **state)
{
	ring_stop(ring_start());
	ring_stop(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_ring_brings_every_byte),
		cmocka_unit_test(every_futex_round_trip_is_timed),
		cmocka_unit_test(a_ring_that_did_nothing_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

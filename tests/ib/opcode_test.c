/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "ib/opcode.h"
#include "ib/packet.h"

static bool valid(unsigned op)
{
	return ib_opcode_table[op].flags & IB_F_VALID;
}

static void rc_has_21_opcodes_without_a_gap(void **state)
{
	(void)state;
	for (unsigned op = 0; op < 256; op++) {
		assert_int_equal(valid(op), op <= IB_FETCH_ADD);
		assert_int_equal(!!ib_opcode_table[op].name, valid(op));
	}
}

static void the_numbers_are_those_of_the_specification(void **state)
{
	(void)state;
	assert_int_equal(IB_SEND_ONLY_IMM, 0x05);
	assert_int_equal(IB_WRITE_FIRST, 0x06);
	assert_int_equal(IB_WRITE_ONLY_IMM, 0x0b);
	assert_int_equal(IB_READ_REQUEST, 0x0c);
	assert_int_equal(IB_READ_RESP_ONLY, 0x10);
	assert_int_equal(IB_ACKNOWLEDGE, 0x11);
	assert_int_equal(IB_ATOMIC_ACK, 0x12);
	assert_int_equal(IB_CMP_SWAP, 0x13);
	assert_int_equal(IB_FETCH_ADD, 0x14);
}

static void header_lengths_are_the_sum_of_the_headers(void **state)
{
	(void)state;
	for (unsigned op = 0; op < 256; op++) {
		uint32_t f = ib_opcode_table[op].flags;
		unsigned len = 12;

		if (!valid(op))
			continue;
		len += f & IB_F_RETH ? 16 : 0;
		len += f & IB_F_ATOMICETH ? 28 : 0;
		len += f & IB_F_AETH ? 4 : 0;
		len += f & IB_F_ATOMICACK ? 8 : 0;
		len += f & IB_F_IMM ? 4 : 0;
		assert_int_equal(ib_opcode_table[op].hdr_len, len);
		assert_true(len <= IB_HDR_MAX);
	}
}

static void every_opcode_is_of_one_kind_and_one_place(void **state)
{
	(void)state;
	for (unsigned op = 0; op < 256; op++) {
		uint32_t f = ib_opcode_table[op].flags;
		uint32_t kind = f & (IB_F_SEND | IB_F_WRITE | IB_F_READ | IB_F_ATOMIC | IB_F_ACK);

		if (!valid(op))
			continue;
		assert_int_equal(__builtin_popcount(kind), 1);
		if (f & IB_F_MIDDLE)
			assert_int_equal(f & (IB_F_FIRST | IB_F_LAST), 0);
		else
			assert_int_not_equal(f & (IB_F_FIRST | IB_F_LAST), 0);
		if (f & IB_F_IMM)
			assert_true(f & IB_F_LAST && f & (IB_F_SEND | IB_F_WRITE));
		if (f & IB_F_AETH)
			assert_false(f & IB_F_REQUEST);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rc_has_21_opcodes_without_a_gap),
		cmocka_unit_test(the_numbers_are_those_of_the_specification),
		cmocka_unit_test(header_lengths_are_the_sum_of_the_headers),
		cmocka_unit_test(every_opcode_is_of_one_kind_and_one_place),
	};

	return cmocka_run_group_tests_name("ib/opcode", tests, NULL, NULL);
}

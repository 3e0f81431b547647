/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "ib/opcode.h"
#include "ib/packet.h"

static void encodes_to(const struct ib_packet *p, uint32_t paylen, const uint8_t *bytes, size_t n)
{
	uint8_t buf[IB_HDR_MAX];
	struct ib_packet back;

	memset(buf, 0xcc, sizeof(buf));
	assert_int_equal(ib_packet_encode(p, paylen, buf), n);
	assert_memory_equal(buf, bytes, n);
	assert_int_equal(buf[n], 0xcc);
	assert_int_equal(ib_packet_decode(&back, buf, n), 0);
	assert_memory_equal(&back, p, sizeof(back));
	assert_int_equal(ib_packet_pad(buf), -paylen & 3);
	assert_int_equal(ib_packet_decode(&back, buf, n - 1), -EINVAL);
}

#define ENCODES(p, paylen, ...)                                                                              \
	do {                                                                                                 \
		static const uint8_t bytes[] = { __VA_ARGS__ };                                              \
		encodes_to(p, paylen, bytes, sizeof(bytes));                                                 \
	} while (0)

/* memset and assign, so that padding compares equal. */
static struct ib_packet *blank(struct ib_packet *p, uint8_t opcode)
{
	memset(p, 0, sizeof(*p));
	p->opcode = opcode;
	p->pkey = 0xffff;
	p->dest_qpn = 0x123456;
	p->psn = 0xabcdef;
	return p;
}

static void a_send_only_is_a_bare_bth(void **state)
{
	struct ib_packet p;

	(void)state;
	blank(&p, IB_SEND_ONLY);
	p.solicited = true;
	p.ack_req = true;
	ENCODES(&p, 5, 0x04, 0xf0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef);
}

static void a_send_middle_asks_for_nothing(void **state)
{
	struct ib_packet p;

	(void)state;
	ENCODES(blank(&p, IB_SEND_MIDDLE), 1024, 0x01, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0xab,
		0xcd, 0xef);
}

static void immediate_data_keeps_the_bytes_of_the_application(void **state)
{
	struct ib_packet p;

	(void)state;
	blank(&p, IB_SEND_LAST_IMM);
	memcpy(&p.imm, "\x01\x02\x03\x04", 4);
	ENCODES(&p, 2, 0x03, 0x60, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0xab, 0xcd, 0xef, 0x01, 0x02,
		0x03, 0x04);
}

static void a_write_only_with_immediate_has_reth_then_immdt(void **state)
{
	struct ib_packet p;

	(void)state;
	blank(&p, IB_WRITE_ONLY_IMM);
	p.va = 0x1122334455667788ull;
	p.rkey = 0x99aabbcc;
	p.dma_len = 3;
	memcpy(&p.imm, "\xde\xad\xbe\xef", 4);
	ENCODES(&p, 3, 0x0b, 0x50, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0xab, 0xcd, 0xef, 0x11, 0x22,
		0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0x00, 0x00, 0x00, 0x03, 0xde,
		0xad, 0xbe, 0xef);
}

static void a_read_request_is_28_bytes(void **state)
{
	struct ib_packet p;

	(void)state;
	blank(&p, IB_READ_REQUEST);
	p.ack_req = true;
	p.va = 0x7f0000001000ull;
	p.rkey = 0x00000102;
	p.dma_len = 0x80000000;
	ENCODES(&p, 0, 0x0c, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef, 0x00, 0x00,
		0x7f, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x01, 0x02, 0x80, 0x00, 0x00, 0x00);
}

static void an_atomic_has_swap_before_compare(void **state)
{
	struct ib_packet p;

	(void)state;
	blank(&p, IB_CMP_SWAP);
	p.va = 8;
	p.rkey = 7;
	p.swap_add = 0x0102030405060708ull;
	p.compare = 0x1112131415161718ull;
	ENCODES(&p, 0, 0x13, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0xab, 0xcd, 0xef, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x07, 0x01, 0x02, 0x03, 0x04, 0x05,
		0x06, 0x07, 0x08, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18);
}

static void an_acknowledge_has_syndrome_and_msn(void **state)
{
	struct ib_packet p;

	(void)state;
	blank(&p, IB_ACKNOWLEDGE);
	p.syndrome = 0x62;
	p.msn = 0x00fffe;
	ENCODES(&p, 0, 0x11, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0xab, 0xcd, 0xef, 0x62, 0x00,
		0xff, 0xfe);
}

static void an_atomic_acknowledge_carries_the_original(void **state)
{
	struct ib_packet p;

	(void)state;
	blank(&p, IB_ATOMIC_ACK);
	p.syndrome = 0x1f;
	p.msn = 1;
	p.orig = 0xf1f2f3f4f5f6f7f8ull;
	ENCODES(&p, 0, 0x12, 0x40, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0xab, 0xcd, 0xef, 0x1f, 0x00,
		0x00, 0x01, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8);
}

static void fields_wider_than_24_bits_do_not_spill(void **state)
{
	struct ib_packet p, back;
	uint8_t buf[IB_HDR_MAX];

	(void)state;
	blank(&p, IB_ACKNOWLEDGE);
	p.psn = 0xff000001;
	p.dest_qpn = 0xff000002;
	p.msn = 0xff000003;
	ib_packet_encode(&p, 0, buf);
	assert_int_equal(ib_packet_decode(&back, buf, sizeof(buf)), 0);
	assert_false(back.ack_req);
	assert_int_equal(back.psn, 1);
	assert_int_equal(back.dest_qpn, 2);
	assert_int_equal(back.msn, 3);
	assert_int_equal(back.syndrome, 0);
}

static void malformed_headers_are_refused(void **state)
{
	struct ib_packet p;
	uint8_t buf[IB_HDR_MAX] = { IB_SEND_ONLY };

	(void)state;
	assert_int_equal(ib_packet_decode(&p, buf, 12), 0);
	assert_int_equal(ib_packet_decode(&p, buf, 11), -EINVAL);
	assert_int_equal(ib_packet_decode(&p, buf, 0), -EINVAL);
	buf[1] = 1; /* version */
	assert_int_equal(ib_packet_decode(&p, buf, sizeof(buf)), -EINVAL);
	buf[1] = 0;
	for (unsigned op = 0; op < 256; op++) {
		buf[0] = (uint8_t)op;
		assert_int_equal(ib_packet_decode(&p, buf, sizeof(buf)),
			ib_opcode_table[op].flags & IB_F_VALID ? 0 : -EINVAL);
	}
}

static void psn_arithmetic_wraps(void **state)
{
	(void)state;
	assert_int_equal(ib_psn_diff(0, 0xffffff), 1);
	assert_int_equal(ib_psn_diff(0xffffff, 0), -1);
	assert_int_equal(ib_psn_diff(0x7fffff, 0), 0x7fffff);
	assert_int_equal(ib_psn_diff(0x800000, 0), -0x800000);
	assert_int_equal(ib_psn_add(0xffffff, 1), 0);
	assert_int_equal(ib_psn_add(0, (uint32_t)-1), 0xffffff);
	assert_int_equal(ib_psn_ahead(5, 0xfffffe), 7);
	assert_int_equal(ib_psn_ahead(0x800000, 0), 0x800000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_send_only_is_a_bare_bth),
		cmocka_unit_test(a_send_middle_asks_for_nothing),
		cmocka_unit_test(immediate_data_keeps_the_bytes_of_the_application),
		cmocka_unit_test(a_write_only_with_immediate_has_reth_then_immdt),
		cmocka_unit_test(a_read_request_is_28_bytes),
		cmocka_unit_test(an_atomic_has_swap_before_compare),
		cmocka_unit_test(an_acknowledge_has_syndrome_and_msn),
		cmocka_unit_test(an_atomic_acknowledge_carries_the_original),
		cmocka_unit_test(fields_wider_than_24_bits_do_not_spill),
		cmocka_unit_test(malformed_headers_are_refused),
		cmocka_unit_test(psn_arithmetic_wraps),
	};

	return cmocka_run_group_tests_name("ib/packet", tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <cmocka.h>

#include "wire/ring.h"

#define FROM 5u
#define TO   9u

static struct layout_desc desc[WIRE_RING];
static struct ring ring;
static struct ring_packet sample;
static const uint8_t hdr[WIRE_HDR] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
	20 };
static const uint8_t payload[WIRE_INLINE] = { 0xaa, 0xbb, 0xcc, [WIRE_INLINE - 1] = 0xdd };

static int fresh(void **state)
{
	memset(desc, 0, sizeof(desc));
	ring_init(&ring, desc);
	sample = (struct ring_packet){ .src_qpn = FROM << 12 | 1,
		.dest_qpn = TO << 12 | 2,
		.hdrlen = 12,
		.paylen = 8,
		.slot = LAYOUT_NO_SLOT };
	return 0;
}

static void put(void)
{
	ring.reserved++;
	ring_put(&ring, &sample, hdr, payload);
}

static void a_packet_comes_out_as_it_went_in(void **state)
{
	static const struct {
		uint32_t hdrlen, paylen, slot;
	} shape[] = { { 1, 0, LAYOUT_NO_SLOT }, { 12, 8, LAYOUT_NO_SLOT },
		{ WIRE_HDR, WIRE_INLINE, LAYOUT_NO_SLOT }, { 13, 63, LAYOUT_NO_SLOT },
		{ 28, WIRE_SEGMENT, 0 }, { WIRE_HDR, 0, WIRE_SLOTS - 1 } };
	struct ring_packet out;

	for (unsigned i = 0; i < sizeof(shape) / sizeof(*shape); i++) {
		sample.hdrlen = shape[i].hdrlen;
		sample.paylen = shape[i].paylen;
		sample.slot = shape[i].slot;
		assert_int_equal(ring_peek(desc, i), RING_EMPTY);
		put();
		assert_int_equal(ring_peek(desc, i), RING_FULL);
		assert_int_equal(ring_get(desc, i, FROM, TO, &out), 0);
		assert_int_equal(out.src_qpn, sample.src_qpn);
		assert_int_equal(out.dest_qpn, sample.dest_qpn);
		assert_int_equal(out.hdrlen, sample.hdrlen);
		assert_int_equal(out.paylen, sample.paylen);
		assert_int_equal(out.slot, sample.slot);
		assert_memory_equal(out.bytes, hdr, sample.hdrlen);
		if (sample.slot == LAYOUT_NO_SLOT)
			assert_memory_equal(out.bytes + sample.hdrlen, payload, sample.paylen);
	}
}

static void an_8_byte_send_touches_one_cache_line(void **state)
{
	put();
	for (unsigned i = 8; i < LAYOUT_DESC_WORDS; i++)
		assert_int_equal(desc[0].word[i], 0);
}

static void every_round_begins_empty(void **state)
{
	struct ring_packet out;

	for (uint64_t pos = 0; pos < 3 * WIRE_RING; pos++) {
		assert_int_equal(ring_peek(desc, pos), RING_EMPTY);
		put();
		assert_int_equal(ring_get(desc, pos, FROM, TO, &out), 0);
		assert_int_equal(ring_refresh(&ring, pos + 1), 0);
	}
}

static void the_sequence_wraps(void **state)
{
	uint64_t pos = ((1ull << 32) - 1) * WIRE_RING; /* the round whose sequence is 0 */

	ring.pos = ring.consumed = pos;
	atomic_store(&desc[0].word[0], ring_sequence(pos) - 1);
	assert_int_equal(ring_sequence(pos), 0);
	assert_int_equal(ring_peek(desc, pos), RING_EMPTY);
	put();
	assert_int_equal(ring_peek(desc, pos), RING_FULL);
	assert_int_equal(ring_peek(desc, pos + WIRE_RING), RING_EMPTY);
}

static void room_counts_promises_and_what_is_not_consumed(void **state)
{
	assert_int_equal(ring_room(&ring), WIRE_RING);
	ring.reserved = 2;
	assert_int_equal(ring_room(&ring), WIRE_RING - 2);
	ring_put(&ring, &sample, hdr, payload);
	assert_int_equal(ring_room(&ring), WIRE_RING - 2);
	assert_int_equal(ring_refresh(&ring, 1), 0);
	assert_int_equal(ring_room(&ring), WIRE_RING - 1);
}

static void an_index_that_goes_back_or_ahead_is_refused(void **state)
{
	put();
	put();
	assert_int_equal(ring_refresh(&ring, 3), -EPROTO);
	assert_int_equal(ring_refresh(&ring, UINT64_MAX), -EPROTO);
	assert_int_equal(ring_refresh(&ring, 2), 0);
	assert_int_equal(ring_refresh(&ring, 1), -EPROTO);
}

static void a_sequence_of_another_round_is_broken(void **state)
{
	put();
	for (uint32_t seq = 2; seq < 5; seq++) {
		atomic_store(&desc[1].word[0], seq);
		assert_int_equal(ring_peek(desc, 1), RING_BROKEN);
	}
	atomic_store(&desc[1].word[0], UINT32_MAX);
	assert_int_equal(ring_peek(desc, 1), RING_BROKEN);
}

static void impossible_descriptors_are_refused(void **state)
{
	const uint64_t good0 = 1 | (uint64_t)(FROM << 12 | 1) << 32;
	const uint64_t good1 = (TO << 12 | 2) | 12ull << 32 | (uint64_t)LAYOUT_NO_SLOT << 40 | 8ull << 48;
	static const struct {
		uint64_t word0, word1;
		const char *what;
	} bad[] = {
		{ 1 | (uint64_t)(6u << 12) << 32, 0, "source in another slot" },
		{ 1 | (uint64_t)(0x1000000u | FROM << 12) << 32, 0, "source of more than 24 bits" },
		{ 0, 10u << 12 | 12ull << 32 | 0xffull << 40, "destination in another slot" },
		{ 0, 0x1000000u | TO << 12 | 12ull << 32 | 0xffull << 40,
			"destination of more than 24 bits" },
		{ 0, TO << 12 | 0xffull << 40, "no header" },
		{ 0, TO << 12 | 49ull << 32 | 0xffull << 40, "header too long" },
		{ 0, TO << 12 | 0xffull << 32 | 0xffull << 40, "header much too long" },
		{ 0, TO << 12 | 12ull << 32 | 0xffull << 40 | 65ull << 48, "inline payload too long" },
		{ 0, TO << 12 | 12ull << 32 | 0xffull << 40 | 0xffffull << 48,
			"inline payload much too long" },
		{ 0, TO << 12 | 12ull << 32 | 3ull << 40 | 16385ull << 48, "payload longer than a slot" },
		{ 0, TO << 12 | 12ull << 32 | (uint64_t)WIRE_SLOTS << 40, "no such slot" },
		{ 0, TO << 12 | 12ull << 32 | 254ull << 40, "no such slot, again" },
	};
	struct ring_packet out;

	atomic_store(&desc[0].word[0], good0);
	atomic_store(&desc[0].word[1], good1);
	assert_int_equal(ring_get(desc, 0, FROM, TO, &out), 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		atomic_store(&desc[0].word[0], bad[i].word0 ? bad[i].word0 : good0);
		atomic_store(&desc[0].word[1], bad[i].word1 ? bad[i].word1 : good1);
		if (ring_get(desc, 0, FROM, TO, &out) != -EPROTO)
			fail_msg("accepted: %s", bad[i].what);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_packet_comes_out_as_it_went_in, fresh),
		cmocka_unit_test_setup(an_8_byte_send_touches_one_cache_line, fresh),
		cmocka_unit_test_setup(every_round_begins_empty, fresh),
		cmocka_unit_test_setup(the_sequence_wraps, fresh),
		cmocka_unit_test_setup(room_counts_promises_and_what_is_not_consumed, fresh),
		cmocka_unit_test_setup(an_index_that_goes_back_or_ahead_is_refused, fresh),
		cmocka_unit_test_setup(a_sequence_of_another_round_is_broken, fresh),
		cmocka_unit_test_setup(impossible_descriptors_are_refused, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The wire form of each message. The golden bytes are written by hand from the tables of the specification
 * (12.6.5 and on); each line is one or more rows of four bytes, and each field has a value of its own. The
 * encoder must produce them and the decoder must read them back.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cm/mad.h"

#define TID	   UINT64_C(0x1122334455667788)
#define HEADER(id) "01070203 00000000 1122334455667788 " id "0000 "

/* What is not written is zero. */
static void bytes_of(const char *hex, uint8_t mad[CM_MAD_BYTES])
{
	unsigned n = 0, byte;

	memset(mad, 0, CM_MAD_BYTES);
	for (; *hex; hex += *hex == ' ' ? 1 : 2) {
		if (*hex == ' ')
			continue;
		assert_int_equal(sscanf(hex, "%2x", &byte), 1);
		assert_true(n < CM_MAD_BYTES);
		mad[n++] = (uint8_t)byte;
	}
}

/* Fills the private data so that its first and last byte show, and compares both ways. */
static void golden(const char *hex, struct cm_msg *msg, unsigned private_at)
{
	uint8_t want[CM_MAD_BYTES], mad[CM_MAD_BYTES];
	struct cm_msg got;

	bytes_of(hex, want);
	msg->tid = TID;
	msg->private_length = (uint8_t)cm_private_bytes(msg->type);
	assert_int_equal(24 + private_at + msg->private_length, CM_MAD_BYTES);
	for (unsigned i = 0; i < msg->private_length; i++)
		want[24 + private_at + i] = msg->private_data[i] = (uint8_t)(i + 1);
	assert_int_equal(cm_encode(msg, mad), 0);
	assert_memory_equal(mad, want, CM_MAD_BYTES);
	assert_int_equal(cm_decode(want, sizeof(want), &got), 0);
	assert_int_equal(cm_encode(&got, mad), 0);
	assert_memory_equal(mad, want, CM_MAD_BYTES);
	assert_memory_equal(got.private_data, msg->private_data, msg->private_length);
}

static void put_gid(uint8_t gid[16], uint8_t first)
{
	for (unsigned i = 0; i < 16; i++)
		gid[i] = (uint8_t)(first + i);
}

static void req(void **state)
{
	struct cm_msg m = { .type = CM_REQ };

	(void)state;
	m.req = (struct cm_req){ .local_id = 0xa1a2a3a4,
		.vendor_id = 0xb1b2b3,
		.ece_options = 0xaabbccdd,
		.service_id = cm_service_id(CM_PS_TCP, 0x1b39),
		.ca_guid = UINT64_C(0x0102030405060708),
		.qkey = 0x11121314,
		.qpn = 0x212223,
		.responder_resources = 0x10,
		.local_eecn = 0x313233,
		.initiator_depth = 0x0f,
		.remote_eecn = 0x414243,
		.remote_response_timeout = 20,
		.transport = CM_UC,
		.flow_control = true,
		.starting_psn = 0x515253,
		.local_response_timeout = 18,
		.retry_count = 7,
		.pkey = 0xfffe,
		.mtu = 5,
		.rdc_exists = true,
		.rnr_retry = 6,
		.max_cm_retries = 15,
		.srq = true,
		.extended_transport = 1,
		.path = { .local_lid = 0x6162,
			.remote_lid = 0x6364,
			.flow_label = 0xabcde,
			.rate = 0x2b,
			.traffic_class = 0x71,
			.hop_limit = 0x40,
			.sl = 9,
			.subnet_local = true,
			.ack_timeout = 17 },
		.alternate = { .local_lid = 0x8182,
			.remote_lid = 0x8384,
			.flow_label = 0x12345,
			.rate = 0x15,
			.traffic_class = 0x72,
			.hop_limit = 0x41,
			.sl = 3,
			.ack_timeout = 9 },
		.sap_supported = true };
	put_gid(m.req.path.local_gid, 0x10);
	put_gid(m.req.path.remote_gid, 0x20);
	put_gid(m.req.alternate.local_gid, 0x30);
	put_gid(m.req.alternate.remote_gid, 0x40);
	golden(HEADER("0010") "aabbccdd "
			      "a1a2a3a4 00b1b2b3 0000000001061b39 0102030405060708 00000000 11121314 "
			      "21222310 3132330f "
			      "414243a3 "   /* 10100 01 1 */
			      "51525397 "   /* 10010 111 */
			      "fffe 5e f9 " /* 0101 1 110, 1111 1 001 */
			      "61626364 "
			      "101112131415161718191a1b1c1d1e1f 202122232425262728292a2b2c2d2e2f "
			      "abcde02b 7140 98 88 " /* 1001 1 000, 10001 000 */
			      "81828384 "
			      "303132333435363738393a3b3c3d3e3f 404142434445464748494a4b4c4d4e4f "
			      "12345015 7241 30 4c ", /* 0011 0 000, 01001 1 00 */
		&m, 140);
	assert_int_equal(m.private_length, 92);
}

static void mra(void **state)
{
	struct cm_msg m = { .type = CM_MRA, .mra = { 0xa1a2a3a4, 0xb1b2b3b4, CM_ANSWERS_REP, 24 } };

	(void)state;
	golden(HEADER("0011") "00000000 a1a2a3a4 b1b2b3b4 40 c0", &m, 10); /* 01 000000, 11000 000 */
	assert_int_equal(m.private_length, 222);
}

static void rej(void **state)
{
	struct cm_msg m = { .type = CM_REJ,
		.rej = { 0xa1a2a3a4, 0xb1b2b3b4, CM_ANSWERS_OTHER, CM_REJ_CONSUMER_DEFINED, 72, { 0 } } };

	(void)state;
	m.rej.ari[0] = 0xe1;
	m.rej.ari[71] = 0xe2;
	golden(HEADER("0012") "00000000 a1a2a3a4 b1b2b3b4 80 90 001c " /* 10 000000, 1001000 0, 28 */
			      "e1000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 "
			      "0000000000000000 0000000000000000 0000000000000000 0000000000000000 000000e2",
		&m, 84);
	assert_int_equal(m.private_length, 148);
}

static void rep(void **state)
{
	struct cm_msg m = { .type = CM_REP };

	(void)state;
	m.rep = (struct cm_rep){ .local_id = 0xa1a2a3a4,
		.remote_id = 0xb1b2b3b4,
		.vendor_id = 0xc1c2c3,
		.ece_options = 0xaabbccdd,
		.qkey = 0x11121314,
		.qpn = 0x212223,
		.eecn = 0x313233,
		.starting_psn = 0x414243,
		.responder_resources = 0x51,
		.initiator_depth = 0x52,
		.target_ack_delay = 15,
		.failover = 2,
		.flow_control = true,
		.rnr_retry = 5,
		.srq = true,
		.ca_guid = UINT64_C(0x0102030405060708) };
	golden(HEADER("0013") "aabbccdd a1a2a3a4 b1b2b3b4 11121314 212223c1 313233c2 414243c3 "
			      "5152 7d b0 " /* 01111 10 1, 101 1 0000 */
			      "0102030405060708",
		&m, 36);
	assert_int_equal(m.private_length, 196);
}

static void short_ones(void **state)
{
	struct cm_msg rtu = { .type = CM_RTU, .rtu = { 0xa1a2a3a4, 0xb1b2b3b4 } };
	struct cm_msg dreq = { .type = CM_DREQ, .dreq = { 0xa1a2a3a4, 0xb1b2b3b4, 0xc1c2c3 } };
	struct cm_msg drep = { .type = CM_DREP, .drep = { 0xa1a2a3a4, 0xb1b2b3b4 } };

	(void)state;
	golden(HEADER("0014") "00000000 a1a2a3a4 b1b2b3b4", &rtu, 8);
	golden(HEADER("0015") "00000000 a1a2a3a4 b1b2b3b4 c1c2c300", &dreq, 12);
	golden(HEADER("0016") "00000000 a1a2a3a4 b1b2b3b4", &drep, 8);
	assert_int_equal(rtu.private_length, 224);
	assert_int_equal(dreq.private_length, 220);
	assert_int_equal(drep.private_length, 224);
}

static void sidr(void **state)
{
	struct cm_msg q = { .type = CM_SIDR_REQ,
		.sidr_req = { 0xa1a2a3a4, 0xfffe, cm_service_id(CM_PS_UDP, 0x1b39) } };
	struct cm_msg a = { .type = CM_SIDR_REP };

	(void)state;
	golden(HEADER("0017") "00000000 a1a2a3a4 fffe0000 0000000001111b39", &q, 16);
	assert_int_equal(q.private_length, 216);
	a.sidr_rep = (struct cm_sidr_rep){ .request_id = 0xa1a2a3a4,
		.status = CM_SIDR_NO_QP,
		.info_length = 72,
		.vendor_id = 0xd1d2d3,
		.ece_options = 0xaabbccdd,
		.qpn = 0x212223,
		.service_id = UINT64_C(0x0000000001111b39),
		.qkey = 0x01234567 };
	a.sidr_rep.info[0] = 0xe1;
	golden(HEADER("0018") "aabbccdd a1a2a3a4 03 48 d1d2 212223d3 0000000001111b39 01234567 e1", &a, 96);
	assert_int_equal(a.private_length, 136);
}

/* The kernel's cma_hdr: version, IP version in the high half of a byte, port, two addresses. */
static void ip_header(void **state)
{
	static const uint8_t v4[CM_IP_HEADER] = { 0, 0x40, 0xd4, 0x31, [16] = 10, 0, 0, 1, [32] = 10, 0, 0,
		2 };
	struct cm_ip_header h, got;
	uint8_t out[CM_IP_HEADER];

	(void)state;
	memset(&h, 0, sizeof(h)); /* padding is compared as well */
	memset(&got, 0, sizeof(got));
	h.ip_version = 4;
	h.port = 54321;
	memcpy(h.src + 12, "\x0a\0\0\x01", 4);
	memcpy(h.dst + 12, "\x0a\0\0\x02", 4);
	cm_put_ip_header(&h, out);
	assert_memory_equal(out, v4, CM_IP_HEADER);
	assert_int_equal(cm_get_ip_header(out, &got), 0);
	assert_memory_equal(&got, &h, sizeof(h));
	out[5] = 0xff; /* what stands before an IPv4 address is not looked at */
	assert_int_equal(cm_get_ip_header(out, &got), 0);
	assert_memory_equal(&got, &h, sizeof(h));
	out[1] = 0x60;
	assert_int_equal(cm_get_ip_header(out, &got), 0);
	assert_int_equal(got.src[1], 0xff);
	out[1] = 0x50;
	assert_int_equal(cm_get_ip_header(out, &got), -EPROTO);
	out[1] = 0x40;
	out[0] = 1;
	assert_int_equal(cm_get_ip_header(out, &got), -EPROTO);
	assert_int_equal(CM_REQ_USER_PRIVATE, 56);
	assert_int_equal(CM_SIDR_REQ_USER_PRIVATE, 180);
}

static void not_messages(void **state)
{
	static const struct {
		unsigned at;
		uint8_t value;
	} wrong[] = { { 0, 2 }, { 1, 4 }, { 2, 1 }, { 3, 0x81 }, { 16, 1 }, { 17, 0x0f }, { 17, 0x1b } };
	struct cm_msg m = { .type = CM_RTU }, got;
	uint8_t mad[CM_MAD_BYTES + 1] = { 0 };

	(void)state;
	assert_int_equal(cm_encode(&m, mad), 0);
	assert_int_equal(cm_decode(mad, CM_MAD_BYTES, &got), 0);
	for (size_t n = 0; n <= sizeof(mad); n++)
		if (n != CM_MAD_BYTES)
			assert_int_equal(cm_decode(mad, n, &got), -EINVAL);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		uint8_t was = mad[wrong[i].at];

		mad[wrong[i].at] = wrong[i].value;
		assert_int_equal(cm_decode(mad, CM_MAD_BYTES, &got), -EINVAL);
		mad[wrong[i].at] = was;
	}
}

static void impossible_lengths(void **state)
{
	struct cm_msg m = { .type = CM_REJ }, got;
	uint8_t mad[CM_MAD_BYTES];

	(void)state;
	assert_int_equal(cm_encode(&m, mad), 0);
	mad[24 + 9] = 73 << 1;
	assert_int_equal(cm_decode(mad, sizeof(mad), &got), -EPROTO);
	mad[24 + 9] = 72 << 1;
	mad[24 + 8] = 0xc0;
	assert_int_equal(cm_decode(mad, sizeof(mad), &got), -EPROTO);
	m.rej.ari_length = 73;
	assert_int_equal(cm_encode(&m, mad), -EINVAL);
	m = (struct cm_msg){ .type = CM_SIDR_REP };
	assert_int_equal(cm_encode(&m, mad), 0);
	mad[24 + 5] = 73;
	assert_int_equal(cm_decode(mad, sizeof(mad), &got), -EPROTO);
	m = (struct cm_msg){ .type = CM_REQ, .private_length = 93 };
	assert_int_equal(cm_encode(&m, mad), -EINVAL);
	m = (struct cm_msg){ .type = CM_LAP };
	assert_int_equal(cm_encode(&m, mad), -EINVAL);
}

/* Whatever the bits are, what is decoded survives: encoded again and decoded, it is the same. Seen from the
 * other side, no bit that a field has is lost. */
static void any_bits(void **state)
{
	(void)state;
	srand(1);
	for (unsigned i = 0; i < 20000; i++) {
		uint8_t mad[CM_MAD_BYTES], again[CM_MAD_BYTES];
		struct cm_msg a, b;

		for (unsigned j = 0; j < sizeof(mad); j++)
			mad[j] = (uint8_t)(rand() >> 7);
		memcpy(mad, "\x01\x07\x02\x03", 4);
		mad[16] = 0;
		mad[17] = (uint8_t)(CM_REQ + i % 9);
		if (cm_decode(mad, sizeof(mad), &a))
			continue;
		assert_int_equal(cm_encode(&a, again), 0);
		assert_int_equal(cm_decode(again, sizeof(again), &b), 0);
		assert_memory_equal(&a, &b, sizeof(a));
	}
}

static void names(void **state)
{
	(void)state;
	assert_string_equal(cm_type_name(CM_SIDR_REP), "SIDR_REP");
	assert_string_equal(cm_type_name(0), "?");
	assert_int_equal(cm_private_bytes(CM_APR), 0);
	assert_int_equal(cm_private_bytes(CM_APR + 1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(req),
		cmocka_unit_test(mra),
		cmocka_unit_test(rej),
		cmocka_unit_test(rep),
		cmocka_unit_test(short_ones),
		cmocka_unit_test(sidr),
		cmocka_unit_test(ip_header),
		cmocka_unit_test(not_messages),
		cmocka_unit_test(impossible_lengths),
		cmocka_unit_test(any_bits),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

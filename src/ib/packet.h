/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A packet's headers, decoded: BTH and extension headers (IBTA volume 1, chapter 9.2 and 9.3).
 * ib_packet_encode and ib_packet_decode are the only places that know the byte layout; opcode.h's table tells
 * which headers an opcode has. Payload, pad and ICRC are the wire's business: paylen is the payload without
 * pad.
 */
#ifndef UNPIN_IB_PACKET_H
#define UNPIN_IB_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IB_HDR_MAX  64 /* bytes that the largest set of headers takes, rounded up */
#define IB_PSN_MASK 0xffffffu
#define IB_QPN_MASK 0xffffffu

struct ib_packet {
	/* BTH */
	uint8_t opcode; /* enum ib_opcode */
	bool solicited, ack_req;
	uint16_t pkey;
	uint32_t dest_qpn; /* 24 bits */
	uint32_t psn;	   /* 24 bits */
	/* RETH */
	uint64_t va;
	uint32_t rkey;
	uint32_t dma_len;
	/* AtomicETH; va and rkey above are shared with RETH */
	uint64_t swap_add, compare;
	/* AETH */
	uint8_t syndrome;
	uint32_t msn; /* 24 bits */
	/* AtomicAckETH */
	uint64_t orig;
	/* ImmDt, as the application gave it (network byte order, never swapped) */
	uint32_t imm;
};

/* Difference a - b of two PSNs as a signed 24-bit number (IBTA 9.7.2). */
static inline int32_t ib_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

/*
 * How far a is ahead of base, 0..2^24-1. Distances from the oldest unacknowledged PSN are measured so,
 * because a READ of 2^31 bytes in segments of 256 takes 2^23 PSNs: one more than a signed difference can
 * hold.
 */
static inline uint32_t ib_psn_ahead(uint32_t a, uint32_t base)
{
	return (a - base) & IB_PSN_MASK;
}

static inline uint32_t ib_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & IB_PSN_MASK;
}

/* Writes the headers of p into buf (IB_HDR_MAX bytes); returns their length. p->opcode must be in the table;
 * paylen gives the pad count. */
size_t ib_packet_encode(const struct ib_packet *p, uint32_t paylen, uint8_t *buf);
/* 0, or -EINVAL: unknown opcode, header version, or too short. Fields that the opcode does not have are
 * zeroed. */
int ib_packet_decode(struct ib_packet *p, const uint8_t *buf, size_t len);
/* Bytes of pad (0..3) behind the payload, of headers that were decoded without error. */
static inline unsigned ib_packet_pad(const uint8_t *buf)
{
	return buf[1] >> 4 & 3;
}

#endif

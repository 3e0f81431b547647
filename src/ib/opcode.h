/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The RC opcodes of BTH and everything that differs between them, as one table (IBTA 9.2.1, table 35). */
#ifndef UNPIN_IB_OPCODE_H
#define UNPIN_IB_OPCODE_H

#include <stdbool.h>
#include <stdint.h>

enum ib_opcode {
	IB_SEND_FIRST = 0x00,
	IB_SEND_MIDDLE,
	IB_SEND_LAST,
	IB_SEND_LAST_IMM,
	IB_SEND_ONLY,
	IB_SEND_ONLY_IMM,
	IB_WRITE_FIRST,
	IB_WRITE_MIDDLE,
	IB_WRITE_LAST,
	IB_WRITE_LAST_IMM,
	IB_WRITE_ONLY,
	IB_WRITE_ONLY_IMM,
	IB_READ_REQUEST,
	IB_READ_RESP_FIRST,
	IB_READ_RESP_MIDDLE,
	IB_READ_RESP_LAST,
	IB_READ_RESP_ONLY,
	IB_ACKNOWLEDGE,
	IB_ATOMIC_ACK,
	IB_CMP_SWAP,
	IB_FETCH_ADD,
	IB_OPCODES = 0x20
};

enum {
	IB_F_VALID = 1 << 0,
	IB_F_REQUEST = 1 << 1, /* goes to the responder; else a response, to the completer */
	IB_F_FIRST = 1 << 2,
	IB_F_MIDDLE = 1 << 3,
	IB_F_LAST = 1 << 4, /* FIRST | LAST both set: ONLY */
	IB_F_SEND = 1 << 5,
	IB_F_WRITE = 1 << 6,
	IB_F_READ = 1 << 7,
	IB_F_ATOMIC = 1 << 8,
	IB_F_ACK = 1 << 9,
	IB_F_RETH = 1 << 10,
	IB_F_ATOMICETH = 1 << 11,
	IB_F_AETH = 1 << 12,
	IB_F_ATOMICACK = 1 << 13,
	IB_F_IMM = 1 << 14,
	IB_F_PAYLOAD = 1 << 15,
};

struct ib_opcode_info {
	const char *name;
	uint32_t flags;
	uint8_t hdr_len; /* BTH and extension headers, bytes */
};

extern const struct ib_opcode_info ib_opcode_table[256]; /* rows that are not RC or not assigned: flags 0 */

#endif

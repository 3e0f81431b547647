/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "ib/packet.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "ib/opcode.h"

/*
 * BTH, 12 bytes (IBTA 9.2): opcode; solicited, migration request, pad count (2 bits), version (4 bits);
 * P_Key; reserved (8), destination QP (24); acknowledge request (1), reserved (7), PSN (24).
 */
enum {
	BTH_LEN = 12,
	BTH_SOLICITED = 0x80,
	BTH_MIGREQ = 0x40, /* always set: the path is in the state "migrated" until somebody loads an
			      alternate one */
	BTH_PAD_SHIFT = 4,
	BTH_VERSION = 0x0f,
};
#define BTH_ACK_REQ 0x80000000u

static uint8_t *put16(uint8_t *at, uint16_t v)
{
	v = htobe16(v);
	memcpy(at, &v, sizeof(v));
	return at + sizeof(v);
}

static uint8_t *put32(uint8_t *at, uint32_t v)
{
	v = htobe32(v);
	memcpy(at, &v, sizeof(v));
	return at + sizeof(v);
}

static uint8_t *put64(uint8_t *at, uint64_t v)
{
	v = htobe64(v);
	memcpy(at, &v, sizeof(v));
	return at + sizeof(v);
}

static const uint8_t *get16(const uint8_t *at, uint16_t *v)
{
	memcpy(v, at, sizeof(*v));
	*v = be16toh(*v);
	return at + sizeof(*v);
}

static const uint8_t *get32(const uint8_t *at, uint32_t *v)
{
	memcpy(v, at, sizeof(*v));
	*v = be32toh(*v);
	return at + sizeof(*v);
}

static const uint8_t *get64(const uint8_t *at, uint64_t *v)
{
	memcpy(v, at, sizeof(*v));
	*v = be64toh(*v);
	return at + sizeof(*v);
}

static uint8_t *put_bth(const struct ib_packet *p, uint32_t paylen, uint8_t *at)
{
	unsigned pad = -paylen & 3;

	*at++ = p->opcode;
	*at++ = (uint8_t)((p->solicited ? BTH_SOLICITED : 0) | BTH_MIGREQ | pad << BTH_PAD_SHIFT);
	at = put16(at, p->pkey);
	at = put32(at, p->dest_qpn & IB_QPN_MASK);
	return put32(at, (p->ack_req ? BTH_ACK_REQ : 0) | (p->psn & IB_PSN_MASK));
}

size_t ib_packet_encode(const struct ib_packet *p, uint32_t paylen, uint8_t *buf)
{
	uint32_t flags = ib_opcode_table[p->opcode].flags;
	uint8_t *at = put_bth(p, paylen, buf);

	if (flags & (IB_F_RETH | IB_F_ATOMICETH)) {
		at = put64(at, p->va);
		at = put32(at, p->rkey);
	}
	if (flags & IB_F_RETH)
		at = put32(at, p->dma_len);
	if (flags & IB_F_ATOMICETH) {
		at = put64(at, p->swap_add);
		at = put64(at, p->compare);
	}
	if (flags & IB_F_AETH)
		at = put32(at, (uint32_t)p->syndrome << 24 | (p->msn & IB_PSN_MASK));
	if (flags & IB_F_ATOMICACK)
		at = put64(at, p->orig);
	if (flags & IB_F_IMM) {
		memcpy(at, &p->imm, sizeof(p->imm));
		at += sizeof(p->imm);
	}
	return (size_t)(at - buf);
}

static const uint8_t *get_bth(struct ib_packet *p, const uint8_t *at)
{
	uint32_t word;

	p->opcode = at[0];
	p->solicited = at[1] & BTH_SOLICITED;
	at = get16(at + 2, &p->pkey);
	at = get32(at, &word);
	p->dest_qpn = word & IB_QPN_MASK;
	at = get32(at, &word);
	p->ack_req = word & BTH_ACK_REQ;
	p->psn = word & IB_PSN_MASK;
	return at;
}

int ib_packet_decode(struct ib_packet *p, const uint8_t *buf, size_t len)
{
	const struct ib_opcode_info *info;
	const uint8_t *at = buf;
	uint32_t word;

	memset(p, 0, sizeof(*p));
	if (len < BTH_LEN || (buf[1] & BTH_VERSION))
		return -EINVAL;
	info = &ib_opcode_table[buf[0]];
	if (!(info->flags & IB_F_VALID) || len < info->hdr_len)
		return -EINVAL;
	at = get_bth(p, at);
	if (info->flags & (IB_F_RETH | IB_F_ATOMICETH)) {
		at = get64(at, &p->va);
		at = get32(at, &p->rkey);
	}
	if (info->flags & IB_F_RETH)
		at = get32(at, &p->dma_len);
	if (info->flags & IB_F_ATOMICETH) {
		at = get64(at, &p->swap_add);
		at = get64(at, &p->compare);
	}
	if (info->flags & IB_F_AETH) {
		at = get32(at, &word);
		p->syndrome = word >> 24;
		p->msn = word & IB_PSN_MASK;
	}
	if (info->flags & IB_F_ATOMICACK)
		at = get64(at, &p->orig);
	if (info->flags & IB_F_IMM)
		memcpy(&p->imm, at, sizeof(p->imm));
	return 0;
}

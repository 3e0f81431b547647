/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/ring.h"

#include <errno.h>
#include <string.h>

#define QPN_MASK 0xffffffu

void ring_init(struct ring *r, struct layout_desc *desc)
{
	r->desc = desc;
	r->pos = r->consumed = 0;
	r->reserved = 0;
}

int ring_refresh(struct ring *r, uint64_t consumed)
{
	if (consumed < r->consumed || consumed > r->pos)
		return -EPROTO;
	r->consumed = consumed;
	return 0;
}

void ring_put(struct ring *r, const struct ring_packet *p, const void *hdr, const void *payload)
{
	struct layout_desc *d = &r->desc[r->pos % WIRE_RING];
	uint64_t word[LAYOUT_DESC_WORDS];
	uint8_t *bytes = (uint8_t *)&word[2];
	uint32_t inlined = p->slot == LAYOUT_NO_SLOT ? p->paylen : 0;
	uint32_t n = 2 + (p->hdrlen + inlined + 7) / 8;

	word[n - 1] = 0; /* the last one may be filled in part only */
	word[0] = ring_sequence(r->pos) | (uint64_t)p->src_qpn << 32;
	word[1] =
		p->dest_qpn | (uint64_t)p->hdrlen << 32 | (uint64_t)p->slot << 40 | (uint64_t)p->paylen << 48;
	memcpy(bytes, hdr, p->hdrlen);
	if (inlined)
		memcpy(bytes + p->hdrlen, payload, inlined);
	for (uint32_t i = 1; i < n; i++)
		atomic_store_explicit(&d->word[i], word[i], memory_order_relaxed);
	/* Publishes the rest; sequentially consistent because the door is read next. */
	atomic_store(&d->word[0], word[0]);
	r->pos++;
	r->reserved--;
}

static int unpack(struct ring_packet *p, uint64_t word0, uint64_t word1)
{
	uint32_t room = WIRE_SEGMENT;

	p->src_qpn = (uint32_t)(word0 >> 32);
	p->dest_qpn = (uint32_t)word1;
	p->hdrlen = word1 >> 32 & 0xff;
	p->slot = word1 >> 40 & 0xff;
	p->paylen = (uint32_t)(word1 >> 48);
	if (p->slot == LAYOUT_NO_SLOT)
		room = WIRE_INLINE;
	else if (p->slot >= WIRE_SLOTS)
		return -EPROTO;
	return p->hdrlen && p->hdrlen <= WIRE_HDR && p->paylen <= room ? 0 : -EPROTO;
}

int ring_get(
	struct layout_desc *desc, uint64_t pos, uint32_t from_slot, uint32_t to_slot, struct ring_packet *p)
{
	struct layout_desc *d = &desc[pos % WIRE_RING];
	uint64_t word0 = atomic_load_explicit(&d->word[0], memory_order_acquire);
	uint64_t word1 = atomic_load_explicit(&d->word[1], memory_order_relaxed);
	uint64_t word;
	uint32_t n;

	if (unpack(p, word0, word1))
		return -EPROTO;
	if (p->src_qpn > QPN_MASK || p->dest_qpn > QPN_MASK || wire_qpn_slot(p->src_qpn) != from_slot ||
		wire_qpn_slot(p->dest_qpn) != to_slot)
		return -EPROTO;
	n = p->hdrlen + (p->slot == LAYOUT_NO_SLOT ? p->paylen : 0);
	for (uint32_t i = 0; i < (n + 7) / 8; i++) {
		word = atomic_load_explicit(&d->word[2 + i], memory_order_relaxed);
		memcpy(p->bytes + (size_t)i * 8, &word, 8);
	}
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The ring of descriptors, seen from either end; the format is in layout.h. Pure: works on memory it is
 * given. The producing end is under the channel's tx lock, the consuming end under the wire's rx lock. Each
 * side's counters are private: the ring holds no index but `consumed`, and what the other side writes is
 * checked before it is believed.
 */
#ifndef UNPIN_WIRE_RING_H
#define UNPIN_WIRE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/layout.h"

/* One packet, as its descriptor tells. */
struct ring_packet {
	uint32_t src_qpn, dest_qpn;
	uint32_t hdrlen, paylen,
		slot; /* slot: LAYOUT_NO_SLOT when the payload is in bytes[] behind the header */
	/* Header, then inline payload. Longer than it can be, so that both can be copied out with fixed
	 * sizes. */
	_Alignas(8) uint8_t bytes[WIRE_HDR + WIRE_INLINE + WIRE_INLINE];
};

/* The producing end. */
struct ring {
	struct layout_desc *desc;
	uint64_t pos;	   /* next to be written */
	uint64_t consumed; /* last value believed: pos - WIRE_RING <= consumed <= pos */
	uint32_t reserved; /* promised, not written yet */
};

void ring_init(struct ring *r, struct layout_desc *desc);
/* Descriptors that can still be promised. */
static inline uint32_t ring_room(const struct ring *r)
{
	return WIRE_RING - (uint32_t)(r->pos - r->consumed) - r->reserved;
}

/* Believes the receiver's index. 0, or -EPROTO: it went back or ahead of what was written. */
int ring_refresh(struct ring *r, uint64_t consumed);
/* Writes the packet that had been promised. header and, when slot is LAYOUT_NO_SLOT, paylen bytes of payload
 * are copied in. */
void ring_put(struct ring *r, const struct ring_packet *p, const void *hdr, const void *payload);

enum ring_state { RING_EMPTY, RING_FULL, RING_BROKEN };

static inline uint32_t ring_sequence(uint64_t pos)
{
	return (uint32_t)(pos / WIRE_RING) + 1;
}

/* What lies at position pos: a packet, nothing yet, or something that the sender cannot have written by the
 * rules. Sequentially consistent, as the arming receiver needs it. */
static inline enum ring_state ring_peek(struct layout_desc *desc, uint64_t pos)
{
	uint32_t seq = (uint32_t)atomic_load(&desc[pos % WIRE_RING].word[0]);

	if (seq == ring_sequence(pos))
		return RING_FULL;
	return seq == ring_sequence(pos) - 1 ? RING_EMPTY : RING_BROKEN;
}

/* Copies out, once, the descriptor that ring_peek() found at pos. 0, or -EPROTO: lengths, slot or queue pair
 * numbers are impossible, or do not belong to these two slots. */
int ring_get(
	struct layout_desc *desc, uint64_t pos, uint32_t from_slot, uint32_t to_slot, struct ring_packet *p);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What two processes share: the memory of a channel, the door page, and the messages of a meeting. Nothing
 * about them is written anywhere else. Both ends are on one host, so numbers are native. Every access is an
 * atomic one: the other side may write anything at any time.
 *
 * Who writes what in a channel: the sender the ring, the slots and `want`; the receiver everything that
 * follows `want` in the head. Lines that different sides write are 128 bytes apart (processors fetch lines in
 * pairs).
 */
#ifndef UNPIN_WIRE_LAYOUT_H
#define UNPIN_WIRE_LAYOUT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "wire/shm.h"

#define LAYOUT_VERSION 2u
#define LAYOUT_NO_SLOT 0xffu /* the payload is in the descriptor */
#define LAYOUT_QPS     (1u << WIRE_SLOT_BITS)
#define LAYOUT_APART   3840u /* slots from here on have names that end in random digits (names.h) */

/*
 * A descriptor: two cache lines, of which a small packet touches one.
 *   word 0   bits 0-31 sequence, 32-55 source queue pair
 *   word 1   bits 0-23 destination queue pair, 32-39 header bytes, 40-47 slot, 48-63 payload bytes
 *   word 2.. header bytes, then at once the payload if it has no slot
 * Position p of the endless stream lies in descriptor p % WIRE_RING with sequence p / WIRE_RING + 1 (modulo
 * 2^32), stored last. So a descriptor is empty when it holds the sequence of the round before (zero in the
 * first).
 */
#define LAYOUT_DESC_WORDS 16u

struct layout_desc {
	alignas(128) _Atomic uint64_t word[LAYOUT_DESC_WORDS];
};

struct layout_head {
	_Atomic uint64_t magic; /* LAYOUT_CHANNEL_MAGIC */
	_Atomic uint32_t version, ring, slots, segment;
	/* Not 0 while a flow of the sender waits for credit. */
	alignas(128) _Atomic uint32_t want;
	/* Position up to which the receiver has copied descriptors out. */
	alignas(128) _Atomic uint64_t consumed;
	/* Slots given back, one bit each: set by the receiver, taken by the sender. */
	alignas(128) _Atomic uint64_t released[WIRE_SLOTS / 64];
	/* Queue pairs of the sender whose packets were dropped (bit = lower half of the number); drop_words
	 * has a bit per word of drop[] that is not empty and is set after it; drop_any: all of them. */
	alignas(128) _Atomic uint64_t drop_words;
	_Atomic uint32_t drop_any;
	alignas(128) _Atomic uint64_t drop[LAYOUT_QPS / 64];
};

#define LAYOUT_HEAD_BYTES  4096u
#define LAYOUT_RING_OFFSET LAYOUT_HEAD_BYTES
#define LAYOUT_RING_BYTES  (WIRE_RING * (unsigned)sizeof(struct layout_desc))
#define LAYOUT_SLOT_OFFSET (LAYOUT_RING_OFFSET + LAYOUT_RING_BYTES)
#define LAYOUT_BYTES	   (LAYOUT_SLOT_OFFSET + WIRE_SLOTS * WIRE_SEGMENT)
/* What a channel costs before it carries traffic: the head and the ring's first page. */
#define LAYOUT_FIRST_RING  32u
#define LAYOUT_FIRST_BYTES (LAYOUT_RING_OFFSET + LAYOUT_FIRST_RING * (unsigned)sizeof(struct layout_desc))

_Static_assert(sizeof(struct layout_desc) == 128, "a descriptor is two cache lines");
_Static_assert(sizeof(struct layout_head) <= LAYOUT_HEAD_BYTES, "the head fits its page");
_Static_assert(16 + WIRE_HDR + WIRE_INLINE <= sizeof(struct layout_desc), "header and inline payload fit");
_Static_assert(
	WIRE_SLOTS <= LAYOUT_NO_SLOT && WIRE_SLOTS % 64 == 0, "slot numbers fit a byte, bitmaps whole words");
_Static_assert(WIRE_SEGMENT <= UINT16_MAX, "payload length fits its field");
_Static_assert(
	(WIRE_RING & (WIRE_RING - 1)) == 0 && LAYOUT_FIRST_RING < WIRE_RING, "ring size is a power of two");

#define LAYOUT_CHANNEL_MAGIC 0x314c4843574e5055ull /* "UPNWCHL1" */
#define LAYOUT_DOOR_MAGIC    0x31524f44574e5055ull /* "UPNWDOR1" */
#define LAYOUT_HELLO_MAGIC   0x314f4c48574e5055ull /* "UPNWHLO1" */
#define LAYOUT_ANSWER_MAGIC  0x31534e41574e5055ull /* "UPNWANS1" */

/* Written by its owner alone, mapped read-only by peers. lossy: the fabric between what it sends and its
 * peers is impaired (constant). state: bit 0 armed, the rest counts armings. */
struct layout_door {
	_Atomic uint64_t magic;
	_Atomic uint32_t version, lossy;
	alignas(128) _Atomic uint64_t state;
};

#define LAYOUT_DOOR_BYTES 4096u

/* The first message of either side: hello carries two descriptors (channel memory, the sender's door), the
 * answer one (the receiver's door). Nothing goes before them. Every other message is one byte: a wake-up, a
 * nudge (wire/watch.h), or the last one of a side that ends the connection and lives on (a process that dies
 * says nothing): goodbye, or, before any answer, that the two can never meet. */
#define LAYOUT_GOODBYE 0
#define LAYOUT_WAKE    1
#define LAYOUT_NUDGE   2
#define LAYOUT_NEVER   3

struct layout_message {
	uint64_t magic;
	uint32_t version;
	uint32_t slot; /* of who writes the message */
};

static inline struct layout_desc *layout_ring(void *memory)
{
	return (struct layout_desc *)((char *)memory + LAYOUT_RING_OFFSET);
}

static inline void *layout_slot(void *memory, uint32_t slot)
{
	return (char *)memory + LAYOUT_SLOT_OFFSET + (size_t)slot * WIRE_SEGMENT;
}

#endif

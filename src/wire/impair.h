/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * An impaired fabric, on the sending side of a channel: packets are lost, delayed, or overtaken by later
 * ones, by dice that a seed determines. A channel without impairment has none of this (impair == NULL).
 *
 * What happens to a packet that is committed, in this order: it may be lost; it spends delay_ns in the line;
 * it may be set aside there until between one and IMPAIR_OVERTAKERS packets that were committed later have
 * gone into the ring, or IMPAIR_PATIENCE_NS have passed. Packets that are held keep what they had reserved: a
 * place in the ring, and their slot, which counts against their flow, so that held packets do not take the
 * slots of other flows (slots.h). No more than IMPAIR_HELD of a channel are held, half of a ring; what would
 * be one more is lost, like in a switch whose buffer is full.
 *
 * Each channel throws the dice twice for each packet, in the order of commits, whatever comes of it. The
 * sequence depends on the seed and on how many channels this process had made before: so a run that commits
 * the same packets meets the same fate. Both processes of a connection may use the same seed.
 *
 * Two parts. struct impair is a channel's and pure: under the channel's lock, no clock. struct fabric is the
 * wire's: it knows when the next held packet is due, and has a timer for those who sleep.
 */
#ifndef UNPIN_WIRE_IMPAIR_H
#define UNPIN_WIRE_IMPAIR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "wire/ring.h"
#include "wire/shm.h"

#define IMPAIR_HELD	   (WIRE_RING / 2)
#define IMPAIR_OVERTAKERS  8u
#define IMPAIR_PATIENCE_NS 1000000ull

/* A packet that is held back. */
struct impair_packet {
	struct list node;
	uint64_t number; /* of the commit */
	uint64_t due;	 /* leaves the line, or is not set aside any longer */
	uint32_t behind; /* packets that may still overtake it */
	bool overtaken;
	struct ring_packet packet;
	uint8_t hdr[WIRE_HDR];
	uint8_t inline_data[WIRE_INLINE];
};

struct impair {
	struct wire_impairment cfg;
	struct unpin_device_counters *counters;
	uint64_t dice, committed;
	struct list line;  /* by due */
	struct list aside; /* by due */
	struct list free;
	struct impair_packet held[IMPAIR_HELD];
};

enum impair_fate { IMPAIR_PASS, IMPAIR_LOST, IMPAIR_HELD_BACK };

/* NULL: no memory. nth: the channel's number in its process. */
struct impair *impair_new(
	const struct wire_impairment *cfg, uint32_t nth, struct unpin_device_counters *counters);
void impair_free(struct impair *m);
/* What becomes of a packet that is committed now. HELD_BACK: it was copied, but for the payload in its slot.
 * Counts. */
enum impair_fate impair_commit(
	struct impair *m, const struct ring_packet *p, const void *hdr, const void *payload, uint64_t now);
/* The next held packet that is to go into the ring now, or NULL; impair_recycle() when it is there. */
struct impair_packet *impair_next(struct impair *m, uint64_t now);
void impair_recycle(struct impair *m, struct impair_packet *p);
/* When impair_next() has something to look at, UINT64_MAX: nothing is held. */
uint64_t impair_due(const struct impair *m);

/* The wire's part. */
struct fabric {
	bool impaired; /* constant, like cfg */
	struct wire_impairment cfg;
	struct lock lock;
	struct list channels; /* lock: all of an impaired wire */
	uint32_t nth;	      /* lock: channels made so far */
	_Atomic uint64_t due; /* UINT64_MAX: nothing is held; written under lock */
	int timer;	      /* a timerfd at due, -1: not impaired */
};

struct wire;
struct wire_channel;

/* The timer comes later. 0; -EINVAL: shares beyond one, or a delay beyond a day. */
int fabric_init(struct fabric *f, const struct wire_impairment *cfg);
void fabric_fini(struct fabric *f);
/* A channel comes (0 or -ENOMEM), and goes before its memory does. */
int fabric_enter(struct wire *w, struct wire_channel *c);
void fabric_leave(struct wire *w, struct wire_channel *c);
/* A channel holds a packet until then. The caller holds no lock from CHANNEL on. */
void fabric_schedule(struct fabric *f, uint64_t due);
/* Sends what is due on all channels; all: everything that is held. Likewise. */
void fabric_deliver(struct fabric *f, uint64_t now, bool all);

static inline bool fabric_holds(struct fabric *f)
{
	return atomic_load_explicit(&f->due, memory_order_relaxed) != UINT64_MAX;
}

#endif

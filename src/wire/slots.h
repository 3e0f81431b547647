/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The payload slots of a channel, seen by its sender: which are free, who holds the others, and how many a
 * flow may hold. Pure; under the channel's tx lock.
 *
 * A slot is free, reserved (being filled), or in flight (committed; only then a release by the receiver
 * counts, so that a hostile one gains nothing). Free slots are used last in, first out: the one that was just
 * released is the one still in a cache.
 *
 * Quota. Every flow may hold two slots as long as one is free. More than two it may hold only while what it
 * holds is less than the free slots that are not set aside, and set aside are enough for SLOTS_FLOWS flows to
 * hold two each. So up to SLOTS_FLOWS - 1 flows whose packets are never released leave two slots to the next
 * one; a flow alone gets half of the rest. The account of a flow that has ended stays until its slots have
 * come back.
 *
 * The last SLOTS_RESPONSES free slots are for responses alone: requests wait at a receiver until it has
 * answered those before, and it could not answer if requests held every slot of both directions.
 */
#ifndef UNPIN_WIRE_SLOTS_H
#define UNPIN_WIRE_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/layout.h"

#define SLOTS_FLOWS	33u
#define SLOTS_LEAST	2u
#define SLOTS_RESPONSES 8u

struct slots_account {
	struct wire_flow *flow; /* NULL: it has ended */
	uint32_t held;
};

struct slots {
	uint8_t free[WIRE_SLOTS]; /* a stack of allocated free ones */
	uint32_t nfree;
	uint32_t allocated; /* slots with memory behind them: [0, allocated) */
	uint32_t used;	    /* reserved or in flight */
	uint32_t least;	    /* sum over accounts of min(held, SLOTS_LEAST) */
	uint64_t inflight[WIRE_SLOTS / 64];
	uint8_t owner[WIRE_SLOTS]; /* account of a used slot */
	struct slots_account account[WIRE_SLOTS];
	uint8_t free_account[WIRE_SLOTS];
	uint32_t nfree_account;
};

void slots_init(struct slots *s);
/* n more slots have memory: they are free. */
void slots_allocated(struct slots *s, uint32_t n);
/* May a flow (of responses or not) that holds this many take one more, if memory for it is found? */
bool slots_allowed(const struct slots *s, uint32_t held, bool response);
/* Reserves a free slot (nfree > 0, slots_allowed) for the flow. */
uint32_t slots_take(struct slots *s, struct wire_flow *f);
/* The reserved slot is in flight. */
void slots_sent(struct slots *s, uint32_t slot);
/* A reserved slot is free again. */
void slots_give(struct slots *s, uint32_t slot);
/* Takes back what the receiver has released; returns how many. */
uint32_t slots_collect(struct slots *s, _Atomic uint64_t *released);
/* The flow ends. */
void slots_forget(struct slots *s, struct wire_flow *f);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which thread is inside which object right now, so that somebody who has shut an object's door can wait for
 * those who came in before: rarely, and at almost no cost to those who pass.
 *
 * The protocol, with a flag of the object as its door (Dekker's):
 *
 *	passing thread                              closing thread
 *	P1  slot.turn++, slot.object = object       C1  flag = closed
 *	P2  (order P1 before P3)                    C2  (order C1 before C3)
 *	P3  read flag: open: act; closed: leave     C3  for each slot with slot.object == object:
 *	P4  slot.object = NULL (release)                wait until slot.object or slot.turn changes
 *
 * Either P3 sees the flag or C3 sees the slot. The order in P2 and C2 would take a full fence in both;
 * membarrier(2) in C2 has the kernel run the fence in every running thread of the process, so that P2 is only
 * a compiler's fence. A slot seen in C3 that has moved on (the turn) belongs to a later pass, which has seen
 * the flag. Where membarrier is refused, P2 is a full fence.
 *
 * A slot is written by its own thread only; slots are given to threads at their first pass and back when they
 * end. A thread never waits for itself: a signal handler that closes what it interrupted does not deadlock.
 */
#ifndef UNPIN_MM_INFLIGHT_H
#define UNPIN_MM_INFLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inflight_slot {
	_Alignas(64) _Atomic(const void *) object;
	_Atomic uint64_t turn;
	atomic_bool used;
};

/* 0 or a negative errno. Before the first pass; again in a forked child, by its only thread. */
int inflight_begin(void);

/* P1 and P2. Returns what inflight_leave() wants. Not nested. */
static inline struct inflight_slot *inflight_enter(const void *object);
/* P4 */
static inline void inflight_leave(struct inflight_slot *slot);
/* C2 and C3; the caller has done C1. Async-signal-safe; no lock, no allocation; may yield the processor. */
void inflight_drain(const void *object);

/* Behind the inline functions. */
extern _Thread_local struct inflight_slot *inflight_mine
	__attribute__((tls_model("initial-exec"), visibility("hidden")));
extern bool inflight_fence __attribute__((visibility("hidden")));
struct inflight_slot *inflight_claim(void);
void inflight_give_back(struct inflight_slot *slot);

static inline struct inflight_slot *inflight_enter(const void *object)
{
	struct inflight_slot *slot = inflight_mine;

	if (__builtin_expect(!slot, 0))
		slot = inflight_claim();
	atomic_store_explicit(&slot->turn, atomic_load_explicit(&slot->turn, memory_order_relaxed) + 1,
		memory_order_relaxed);
	atomic_store_explicit(&slot->object, object, memory_order_release);
	if (__builtin_expect(inflight_fence, 0))
		__sync_synchronize(); /* unlike atomic_thread_fence, without a warning of ThreadSanitizer */
	else
		atomic_signal_fence(memory_order_seq_cst);
	return slot;
}

static inline void inflight_leave(struct inflight_slot *slot)
{
	atomic_store_explicit(&slot->object, NULL, memory_order_release);
	if (__builtin_expect(slot != inflight_mine, 0))
		inflight_give_back(slot);
}

#endif

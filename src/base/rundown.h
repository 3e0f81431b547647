/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Rundown: many short users of an object, one closer that refuses new ones and waits for those inside.
 * Entering and leaving is one atomic each. The memory must stay readable after closing (type-stable), since a
 * late rundown_enter() looks at it. Several closers may wait at once. Nothing allocates; safe inside malloc.
 */
#ifndef UNPIN_BASE_RUNDOWN_H
#define UNPIN_BASE_RUNDOWN_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RUNDOWN_CLOSED 0x80000000u

struct rundown {
	_Atomic uint32_t users; /* the top bit: closed */
};

/* Opens it (at first, or again after rundown_close() has returned). */
static inline void rundown_open(struct rundown *r)
{
	atomic_store_explicit(&r->users, 0, memory_order_release);
}

static inline void rundown_leave(struct rundown *r)
{
	if (atomic_fetch_sub_explicit(&r->users, 1, memory_order_release) == (RUNDOWN_CLOSED | 1))
		syscall(SYS_futex, &r->users, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* false: closed. */
static inline bool rundown_enter(struct rundown *r)
{
	uint32_t v = atomic_load_explicit(&r->users, memory_order_relaxed);

	do {
		if (v & RUNDOWN_CLOSED)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&r->users, &v, v + 1, memory_order_acquire, memory_order_relaxed));
	return true;
}

/* Refuses new users from now on. */
static inline void rundown_refuse(struct rundown *r)
{
	atomic_fetch_or_explicit(&r->users, RUNDOWN_CLOSED, memory_order_acq_rel);
}

/* Refuses new users and returns when the last one has left. */
static inline void rundown_close(struct rundown *r)
{
	uint32_t v;

	rundown_refuse(r);
	while ((v = atomic_load_explicit(&r->users, memory_order_acquire)) != RUNDOWN_CLOSED)
		syscall(SYS_futex, &r->users, FUTEX_WAIT_PRIVATE, v, NULL, NULL, 0);
}

#endif

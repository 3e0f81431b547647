/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Verbs are no cancellation points (pthreads(7)), but for the two that wait for events: a thread that is
 * cancelled inside would keep our locks. What may be called often goes without libc's cancellation points, by
 * system call; a stretch that needs them holds a cancellation off.
 */
#ifndef UNPIN_BASE_CANCEL_H
#define UNPIN_BASE_CANCEL_H

#include <pthread.h>

/* What cancel_restore() wants. Nests. */
static inline int cancel_hold(void)
{
	int was;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	return was;
}

static inline void cancel_restore(int was)
{
	pthread_setcancelstate(was, &was);
}

#endif

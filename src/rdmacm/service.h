/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The thread "unpin-cm": one per process, from the first id that needs it on. It sleeps until a socket of
 * this room can be read or a time has come, takes cm_lock, and calls who waits for that.
 *
 * Every function wants cm_lock held, and what is called back has it.
 */
#ifndef UNPIN_RDMACM_SERVICE_H
#define UNPIN_RDMACM_SERVICE_H

#include <stdint.h>

struct watch {
	int fd;
	void (*readable)(struct watch *w);
};

/* Starts the thread if there is none. 0, -EMFILE, -ENOMEM, -EAGAIN. */
int service_start(void);
/* Calls w->readable while w->fd (from own_fd()) can be read or its other end is gone. 0, or a negative
 * errno. */
int service_watch(struct watch *w);
/* Ends that; before the descriptor is closed. Harmless when it is not watched. */
void service_unwatch(struct watch *w);
/* link_tick() is called at this time (clock_ns()) at the latest. */
void service_deadline(uint64_t at);

/* In a forked child, where the thread is not. */
void service_abandon(void);

#endif

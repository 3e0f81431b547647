/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Makes io_urings on behalf of an application's thread. The kernel notes with every ring which thread made
 * it, and interrupts that thread when the ring ends: epoll_wait(2) and the like return EINTR in a program
 * that handles no signal. So each ring is made, and ended where it proves to be of no use, by a thread that
 * lives only for this: when a ring ends, the thread that made it has ended before.
 *
 * Where no thread can be made (EAGAIN at a limit, a seccomp filter) the caller's thread makes the ring.
 *
 * Threads: any; no lock may be held. Not a cancellation point. No signal is delivered to the thread.
 */
#ifndef UNPIN_MM_RINGMAKE_H
#define UNPIN_MM_RINGMAKE_H

#include <liburing.h>

/* A ring whose memory fork does not pass on, on a high descriptor, close-on-exec, with a table of slots empty
 * buffers. 0 or -errno. */
int ring_make(unsigned slots, struct io_uring *out);

/* Whether rings with slots that can be filled later are to be had (Linux 5.13). 0 or -errno. */
int ring_probe(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Functions of libc that take a descriptor, for descriptors of /dev/infiniband/rdma_cm: write, fstat, dup,
 * dup2, dup3, fcntl, and their other names (descriptor.c).
 *
 * A program without such a descriptor pays a load and a branch. They are async-signal-safe for every other
 * descriptor, and cancellation points where libc's are.
 */
#ifndef UNPIN_POSIX_DESCRIPTOR_H
#define UNPIN_POSIX_DESCRIPTOR_H

/*
 * The program has opened /dev/infiniband/rdma_cm: r is what the kernel gave, a descriptor or -1 with errno.
 * Returns what the program gets, likewise. The kernel's own device stays in use where there are RDMA devices
 * for it to manage; else it is served here.
 */
int descriptor_rdma_cm(int r, int flags);

/* The program is about to close these descriptors, of which some may be channels. */
void descriptor_closing(unsigned first, unsigned last);

#endif

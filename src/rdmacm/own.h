/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The descriptors that this room owns: close-on-exec, moved out of the low numbers, and remembered, so that a
 * forked child closes its copies of them: otherwise names and connections of the parent would live on in it.
 *
 * Any thread; the table has no lock, since a child walks through it.
 */
#ifndef UNPIN_RDMACM_OWN_H
#define UNPIN_RDMACM_OWN_H

/*
 * Takes over the descriptor that a system call returned; returns its number from now on. Negative: the call
 * had failed, and the answer is -errno; or there is no room, the descriptor is closed, and it is -EMFILE.
 */
int own_fd(int fd);
/* Closes it and sets it to -1; harmless when it is negative. */
void own_close(int *fd);
/* In a forked child, before anything else of this room: closes them all. No lock, no allocation. */
void own_abandon(void);

#endif

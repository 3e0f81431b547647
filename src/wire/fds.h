/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The descriptors a wire owns: close-on-exec, moved out of the low numbers that programs expect for
 * themselves, and remembered, so that a forked child can drop them without a lock.
 *
 * Any thread. An entry is written after its descriptor exists and cleared before it is closed: a child that
 * was forked in between leaks one, but never closes a descriptor that is not ours.
 */
#ifndef UNPIN_WIRE_FDS_H
#define UNPIN_WIRE_FDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FDS_MAX 16384u

struct fds {
	_Atomic int *entry;    /* descriptor + 1, 0 free */
	_Atomic uint32_t high; /* entries ever used */
};

/* 0 or -ENOMEM. */
int fds_init(struct fds *t);
/* Frees the table; its descriptors must have been closed. */
void fds_fini(struct fds *t);
/* Takes over fd (>= 0): returns its number from now on, or a negative errno and fd is closed (-EMFILE: table
 * full). */
int fds_add(struct fds *t, int fd);
/* Closes a descriptor and sets it to -1; harmless when it is negative. */
void fds_close(struct fds *t, int *fd);
/* Closes all, without locks, for a forked child. */
void fds_abandon(struct fds *t);

/*
 * Closes a descriptor that a stranger sent and that may be of any kind (a FUSE file, a lingering socket):
 * such a close can block, so it happens in a thread of its own. At most FDS_DISCARDS wait at a time;
 * fds_discard_ready() says whether there is room for two more, and who receives descriptors asks before.
 */
#define FDS_DISCARDS 16
void fds_discard(int fd);
bool fds_discard_ready(void);

#endif

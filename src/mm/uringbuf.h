/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pinning by io_uring: a range registered as a fixed buffer has its pages pinned for long (FOLL_LONGTERM), as
 * a NIC's driver pins them, and can be read and written through the pinned pages whatever has become of the
 * mapping.
 *
 * Rings have a table of buffer slots, sparse at first; when all are taken another ring is made. Rings are
 * close-on-exec, on high descriptors, their memory is not inherited by fork.
 *
 * The kernel charges a ring's own two pages to the same limit (6.14 and later).
 *
 * Threads: any. One lock guards the slots, one per ring its queues; neither is held while memory is allocated
 * or pages are pinned.
 */
#ifndef UNPIN_MM_URINGBUF_H
#define UNPIN_MM_URINGBUF_H

#include <stddef.h>
#include <stdint.h>

#define URINGBUF_MAX (1ul << 30) /* bytes per buffer */

struct uringbuf {
	int ring;
	unsigned slot;
};

/*
 * Pins [addr, addr + len), whole pages, at most URINGBUF_MAX, for reading and writing. 0, -ENOMEM
 * (RLIMIT_MEMLOCK, counted per user, or no memory), -EMFILE or another errno that may pass (facility.h), each
 * after 60 ms of trying when it may be over by then (the charge of a process that has just ended; not
 * again within a second of having tried in vain), -ENOSPC
 * (no more rings), or the kernel's reason why this memory cannot be pinned (-EFAULT, -EOPNOTSUPP, ...) or
 * there are no rings (-EPERM, -ENOSYS, ...).
 */
int uringbuf_pin(uintptr_t addr, size_t len, struct uringbuf *out);
void uringbuf_unpin(const struct uringbuf *buf);

/* Copies n bytes through the pinned pages: va as it was when pinned. 0 or -EFAULT. In no particular order. */
int uringbuf_write(const struct uringbuf *buf, uintptr_t va, const void *from, size_t n);
int uringbuf_read(const struct uringbuf *buf, uintptr_t va, void *to, size_t n);
/*
 * One read-modify-write of the 8 bytes at va, atomic against others made here: change computes the new value
 * from the old. 0, *orig filled, or -EFAULT.
 */
int uringbuf_modify(const struct uringbuf *buf, uintptr_t va,
	uint64_t (*change)(uint64_t old, const void *arg), const void *arg, uint64_t *orig);

/* In a forked child: closes the inherited rings, so that the parent's pins do not outlive it here, and
 * forgets them. Only system calls. */
void uringbuf_drop_inherited(void);

#endif

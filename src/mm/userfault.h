/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory whose page faults the application resolves itself (userfaultfd(2)): whoever touches it waits for a
 * thread of the application, perhaps for the very thread that touches. So a fault on it is never resolved on
 * the spot.
 *
 * Learned from ioctl(UFFDIO_REGISTER and _UNREGISTER), which stands in front of libc's. A registration by a
 * raw system call is missed, and then an access of the device by an application's thread may wait in that
 * thread. What counts as registered and is not any more (the descriptor was closed) takes the longer way, no
 * more; it is kept until it is unregistered or unmapped by munmap. A registration that cannot be noted for
 * want of memory fails with ENOMEM, as the kernel's may.
 *
 * Any number of ranges; those that overlap or touch are kept as one. Any thread, signal handlers, inside
 * malloc: no locks, no allocation; errno is kept.
 */
#ifndef UNPIN_MM_USERFAULT_H
#define UNPIN_MM_USERFAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether some of [addr, addr + len) is, or may be, watched by the application. */
bool userfault_watched(uintptr_t addr, size_t len);

/* From the first byte that was forgotten to the last. */
struct userfault_span {
	uintptr_t start, end;
};

/* What is registered in these pages is about to be over. True: there was some. */
bool userfault_forget(uintptr_t addr, size_t len, struct userfault_span *was);
/* It was not over after all. What was not registered in between counts as registered from now on. */
void userfault_restore(const struct userfault_span *was);

#endif

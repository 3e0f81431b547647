/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory whose page faults the application resolves itself (userfaultfd(2)): whoever touches it waits for a
 * thread of the application, perhaps for the very thread that touches. So a fault on it is never resolved on
 * the spot.
 *
 * Learned from ioctl(UFFDIO_REGISTER and _UNREGISTER), which stands in front of libc's. A registration by a
 * raw system call is missed, and then an access of the device by an application's thread may wait in that
 * thread. What counts as registered and is not any more (the descriptor was closed) takes the longer way, no
 * more.
 */
#ifndef UNPIN_MM_USERFAULT_H
#define UNPIN_MM_USERFAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether some of [addr, addr + len) is, or may be, watched by the application. Lock-free, any thread. */
bool userfault_watched(uintptr_t addr, size_t len);

/* Registrations inside [start, end) are over: it was unmapped. As above. */
void userfault_forget(uintptr_t start, uintptr_t end);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mlock, counted per page: the kernel's lock is one bit per mapping, so that of two who locked a page the
 * first to unlock it would unlock it for both. Here a page stays locked until the last holder lets go, and
 * for good if the application had locked it before the first came (which msync(MS_INVALIDATE) tells: it is
 * EBUSY over locked memory and does nothing else).
 *
 * What the application does to the locks itself meanwhile (munlock, munlockall) is not seen.
 *
 * Threads: the caller serialises all calls. Ranges are whole pages.
 */
#ifndef UNPIN_MM_MEMLOCK_H
#define UNPIN_MM_MEMLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Locks, and makes present. 0; -ENOMEM over RLIMIT_MEMLOCK or no memory; -EFAULT hole, or past the end of a
 * file. Nothing is locked on error. */
int memlock_add(uintptr_t addr, size_t len);
/* Lets go of a range that was added, or a part of one. */
void memlock_remove(uintptr_t addr, size_t len);
/* The same, but the pages are gone from this address, and what is there now is none of our business. -ENOMEM:
 * could not be noted, nothing changed. */
int memlock_forget(uintptr_t addr, size_t len);

/* In a forked child, where no lock is inherited. */
void memlock_reset(void);

#endif

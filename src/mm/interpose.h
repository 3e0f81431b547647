/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The notifier that is on by default: munmap, mremap, mmap and mmap64 with MAP_FIXED (not
 * MAP_FIXED_NOREPLACE), madvise, posix_madvise, process_madvise (whichever process it is about), mprotect,
 * pkey_mprotect, brk, sbrk, shmat with SHM_REMAP, shmdt, as exported symbols in front of libc's. Each calls
 * the next function of its name (mm/behind.h), whose errno it keeps, and, when there is somebody to tell and
 * the call can take pages or rights away, reports the exact page range: *before* the call for pinned memory
 * (pin_diverge or pin_discard, so that no copy reaches a new mapping; changed rights do not concern it) and
 * *after* it for on-demand memory (the observer), so that an entry made between is dropped too. A call that
 * failed is still reported to the observer (an invalidation too many is harmless), but not a range that the
 * kernel cannot accept (not page aligned, empty, wrapping).
 *
 * A new mapping (mmap without MAP_FIXED, shmat, mremap) that comes to lie where a pin is shows that what was
 * pinned has been unmapped unseen: the pin diverges there before the caller knows the address, and private
 * memory that the device may have written to meanwhile is mapped anew.
 *
 * With no observer set and no pin (a program that never opened a device), each is two loads and the call of
 * the next. The functions stay async-signal-safe, are no new cancellation points, and may be called from
 * inside malloc: observers must not allocate. What is missed (raw system calls, libc's internal calls,
 * remap_file_pages, calls by a library that has patched the code of our functions, the other names of a
 * shared file that is cut or punched) is found at access time by the copy that faults, or by the sweep.
 */
#ifndef UNPIN_MM_INTERPOSE_H
#define UNPIN_MM_INTERPOSE_H

#include <stddef.h>
#include <stdint.h>

enum mm_change {
	MM_UNMAP,   /* munmap, shmdt, brk or mremap shrinking, MAP_FIXED or SHM_REMAP over it, the source of a
		       move */
	MM_DISCARD, /* MADV_DONTNEED, FREE, REMOVE, DONTNEED_LOCKED, PAGEOUT, COLD is none, GUARD_INSTALL,
		       COLLAPSE is none */
	MM_PROTECT, /* mprotect: rights may have shrunk (or grown: entries over-restrict, never over-permit)
		     */
};

typedef void mm_observer(enum mm_change what, uintptr_t addr, size_t len);

/* Sets (or with NULL clears) the one observer. A call already under way in another thread may still tell the
 * old one. */
void interpose_observe(mm_observer *observer);

/* System calls that bypass our own interposition: for code of ours that must not notify itself. MAP_FAILED or
 * -1 with errno, as libc's. */
void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd, long off);
int raw_munmap(void *addr, size_t len);
int raw_madvise(void *addr, size_t len, int advice);

#endif

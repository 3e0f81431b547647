/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pinned ranges: memory that cannot leave, as a NIC without on-demand paging needs it.
 *
 * A pin is made by registering the range as io_uring buffers (long-term page pins, charged to VmPin and
 * RLIMIT_MEMLOCK; chunks of at most 1 GiB), or by mlock where io_uring is refused, cannot pin (read-only memory,
 * shared mappings of disk files) or is switched off. mlock is counted per page inside the process, so that overlapping
 * pins do not unlock each other, and pages that the application had locked itself (the range's Locked state in
 * /proc/self/smaps before) stay locked after the last pin.
 *
 * Divergence: after munmap, mremap, MAP_FIXED, MADV_DONTNEED, MADV_REMOVE or the like over pinned memory, hardware keeps
 * reaching the old pages. pin_diverge() (from the notifier, before the call takes effect) marks the pages; from then on
 * copies of those pages go through the pinned pages by io_uring (READ_FIXED / WRITE_FIXED through a memfd), or
 * fail with -EFAULT when the pin is by mlock. pin_diverge() returns only when no direct copy on these pages is running,
 * so a copy never touches the new mapping. MADV_DONTNEED on mlocked memory is EINVAL in the kernel and diverges nothing
 * (it is called after the fact with the outcome for that one: see interpose.h).
 *
 * Fork: the ring is close-on-exec, its memory MADV_DONTFORK; in a child (base generation changed) pins are gone and
 * pin_destroy only frees memory.
 *
 * Threads: all functions may be called from any thread; one internal mutex (rank below odp's and nic's) guards
 * creation and the slot table; copies do not take it. pin_diverge() may be called from inside malloc or free: it
 * neither allocates nor takes a lock that is held across an allocation.
 */
#ifndef UNPIN_MM_PIN_H
#define UNPIN_MM_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/safecopy.h"

struct pin;

/*
 * Pins [addr, addr + len), any alignment, len > 0. write: the device will write (the memory must be writable, and
 * copy-on-write is broken now). 0 or -ENOMEM (memory lock limit, or no memory), -EFAULT (hole; or not readable; or
 * write and not writable), -EINVAL (the range wraps).
 */
int pin_create(uintptr_t addr, size_t len, bool write, struct pin **out);
/* No copy may be running on it or begin afterwards (the caller's rundown). Gives back every charge. */
void pin_destroy(struct pin *pin);

/* Copies n bytes at va inside the pin. 0, -EFAULT (diverged under mlock, or the memory went away), -EAGAIN (path is
 * SAFECOPY_NONE). buf is private memory. Ordered as safecopy.h says on the direct path. */
int pin_copy_in(struct pin *pin, enum safecopy_path path, uintptr_t va, const void *buf, size_t n);
int pin_copy_out(struct pin *pin, enum safecopy_path path, uintptr_t va, void *buf, size_t n);
/* Atomics; on a diverged page they are read-modify-write through the pinned page under an internal lock. */
int pin_cmp_swap(struct pin *pin, enum safecopy_path path, uintptr_t va, uint64_t compare, uint64_t swap, uint64_t *orig);
int pin_fetch_add(struct pin *pin, enum safecopy_path path, uintptr_t va, uint64_t add, uint64_t *orig);

/* Marks the pages of [addr, addr + len) in every pin as diverged and waits for direct copies on them. Cheap when no
 * pin overlaps (one atomic load when there are no pins at all). */
void pin_diverge(uintptr_t addr, size_t len);

/* Bytes pinned now by all pins, pages counted once per pin. */
uint64_t pin_total(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pinned ranges: memory that cannot leave, as a NIC without on-demand paging needs it.
 *
 * A pin is made by registering the range as io_uring buffers (long-term page pins, charged to VmPin and
 * RLIMIT_MEMLOCK; chunks of at most 1 GiB; uringbuf.h), or by mlock where io_uring is refused, cannot pin
 * (read-only memory, shared mappings of disk files) or is switched off, or where other processes of the user
 * have used up the limit while this one is within it (the kernel's RDMA drivers count for each process), but
 * not where a ring could not be had just then for want of memory or descriptors: that is -ENOMEM, after some
 * 60 ms. Memory whose pages the kernel gives to no driver is refused (memfd_secret: -EFAULT). mlock is
 * counted per page inside the process (memlock.h), so that overlapping pins do not unlock each other, and
 * pages that the application had locked itself stay locked after the last pin.
 *
 * What differs from a NIC's driver: io_uring's pins are charged per user, not per process, and a huge page
 * counts whole as soon as 4 KiB of it are pinned. On kernels before 6.4 the charge of a destroyed pin comes
 * back up to a second late (pin_create() waits for it before it answers -ENOMEM).
 *
 * Divergence: after munmap, mremap, MAP_FIXED, MADV_DONTNEED, MADV_REMOVE or the like over pinned memory,
 * hardware keeps reaching the old pages. pin_diverge() (from the notifier, before the call takes effect)
 * marks the pages; from then on copies of those pages go through the pinned pages by io_uring (READ_FIXED /
 * WRITE_FIXED through a pipe), or fail with -EFAULT when the pin is by mlock. pin_diverge() returns only when
 * no direct copy on its pin is running, so a copy never touches the new mapping (except a copy of the very
 * thread that diverges, interrupted by its own signal handler). A page that a direct copy cannot reach
 * (mprotect, or an unmapping that the notifier missed) diverges then and there: its pin is as good as ever.
 * Marking a page that did not really change is harmless with io_uring, since both ways lead to the same page.
 *
 * Fork: the ring is close-on-exec, its memory MADV_DONTFORK; in a child (generation.h) pins are gone: nothing
 * may be copied through them, and pin_destroy only frees memory. An atfork handler closes the inherited
 * rings, so that they do not keep the parent's pages pinned; a child made by a raw clone() does it at its
 * first call of pin_create or pin_destroy.
 *
 * Threads: all functions may be called from any thread; one internal mutex (rank below odp's and nic's)
 * guards creation and destruction; copies do not take it. pin_diverge() and pin_discard() may be called from
 * inside malloc or free and from signal handlers: they neither allocate nor take a lock. Errno is kept by
 * all.
 */
#ifndef UNPIN_MM_PIN_H
#define UNPIN_MM_PIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mm/safecopy.h"

struct pin;

/*
 * Pins [addr, addr + len), any alignment, len > 0. write: the device will write (the memory must be writable,
 * and copy-on-write is broken now). 0 or -ENOMEM (memory lock limit, no memory, no descriptor), -EFAULT
 * (hole; or not readable; or write and not writable; memory without pages for a driver), -EINVAL (the range
 * wraps).
 */
int pin_create(uintptr_t addr, size_t len, bool write, struct pin **out);
/* No copy may be running on it or begin afterwards (the caller's rundown). Gives back every charge. NULL is
 * nothing. */
void pin_destroy(struct pin *pin);

/* Copies n bytes at va inside the pin. 0, -EFAULT (outside of the pin; diverged under mlock), -EAGAIN (path
 * is SAFECOPY_NONE, and not all of it is diverged). buf is private memory. copy_in writes to the pinned
 * memory, copy_out reads it. Ordered as safecopy.h says on the direct path, in no order on the other. On an
 * error a part may have been copied. */
int pin_copy_in(struct pin *pin, enum safecopy_path path, uintptr_t va, const void *buf, size_t n);
int pin_copy_out(struct pin *pin, enum safecopy_path path, uintptr_t va, void *buf, size_t n);
/* Atomics, as in safecopy.h (-EINVAL not aligned, -EAGAIN path is not FIXUP); on a diverged page they are
 * read-modify-write through the pinned page, atomic against each other. */
int pin_cmp_swap(struct pin *pin, enum safecopy_path path, uintptr_t va, uint64_t compare, uint64_t swap,
	uint64_t *orig);
int pin_fetch_add(struct pin *pin, enum safecopy_path path, uintptr_t va, uint64_t add, uint64_t *orig);

/* Marks the pages of [addr, addr + len) in every pin as diverged and waits for direct copies on them. Cheap
 * when no pin overlaps (one atomic load when there are no pins at all). */
void pin_diverge(uintptr_t addr, size_t len);
/* The same before an madvise() that the kernel refuses on locked memory (DONTNEED, FREE, REMOVE,
 * GUARD_INSTALL): pages pinned by mlock are not touched by it and do not diverge. */
void pin_discard(uintptr_t addr, size_t len);
/* Whether a pin has a page of [addr, addr + len), diverged or not. As cheap, callable from the same places.
 */
bool pin_overlaps(uintptr_t addr, size_t len);
/* Whether there are pins at all: one atomic load. May be true in a forked child of a process with pins. */
bool pin_any(void);

/* Bytes pinned now by all pins, and by those being made; whole pages, counted once per pin. */
uint64_t pin_total(void);

#endif

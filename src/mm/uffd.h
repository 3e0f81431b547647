/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Changes of the address space as the kernel tells them: a userfaultfd without page faults. Registered
 * memory reports munmap, mremap, MAP_FIXED, brk, and MADV_DONTNEED, _FREE and _REMOVE, with the exact range,
 * whoever makes the call: raw system calls and libc's own too, which interposition (interpose.h) cannot see.
 * mprotect, MADV_PAGEOUT, truncation and hole punching, guard pages and reclaim are not reported.
 *
 * Nobody is privileged: UFFD_USER_MODE_ONLY, registered for write protection that is never used (asynchronous
 * where the kernel has it, 6.7; before that only anonymous memory can be registered).
 *
 * What it costs, and what it changes for the application:
 *  - Each such call waits until the reader (uffdreader.h) has read the event: 8 to 9 us on the same
 *    processor, and across processors the time of a wake-up, twice (50 to 75 us on a virtual machine whose
 *    processors sleep).
 *  - A range belongs to one userfaultfd. Where the application has its own, ours is refused (EBUSY) and the
 *    range is seen by interposition and the sweep only: counted, logged once. Where ours came first,
 *    the application's UFFDIO_REGISTER fails with EBUSY.
 *  - The kernel maps pages of files one by one there (no fault-around) and khugepaged makes no huge page of a
 *    range with holes.
 *  - If the control group is frozen (docker pause) in the middle of such a call, the freezer waits as well,
 * and the reader's process counts against RLIMIT_NPROC and the group's limit of processes.
 *  - Debuggers, Ctrl-Z and kill -STOP work as without it (tests/mm/stop_test.c), because the reader is
 *    a process beside the program's: it appears in ps as "unpin-uffd" with the program's command line, and
 *    killing it is harmless: another one is started, three times at most; then the notifier gives up, and the
 *    kernel releases all memory that was registered. See uffdreader.h about wait() and exec.
 *
 * Order: a discarding call is reported before the pages go, an unmapping one afterwards, and both return
 * when the event has been read, which may be before the observer was told. So an entry may be stale for that
 * long, as after any change that nobody reports. The observer is told in a thread of its own that holds no
 * lock; it may take locks, but must not wait for anybody who changes mappings.
 *
 * Threads: uffd_open(), uffd_close() and uffd_abandon() one at a time; uffd_cover() and uffd_counts() from
 * any thread at any time. There is one per process. Errno is kept.
 */
#ifndef UNPIN_MM_UFFD_H
#define UNPIN_MM_UFFD_H

#include <stdbool.h>
#include <stdint.h>

#include "mm/interpose.h"
#include "mm/vma.h"

/*
 * Begins. Each event is told to the observer as MM_UNMAP (unmapped; moved: both the source and the target) or
 * MM_DISCARD, or, when more came than there was room for, all of the address space as one MM_UNMAP. 0 or a
 * negative errno: -EOPNOTSUPP (no userfaultfd with these events, or facility "uffd" is off), -EBUSY (open
 * already), -EAGAIN, -ENOMEM, -EPERM, ... (no thread or process can be made).
 */
int uffd_open(mm_observer *observer);
/* Ends. Waits for those inside uffd_cover(). The observer is not called any more. */
void uffd_close(void);
/* In a forked child: its parent's is none of its business. Only system calls. */
void uffd_abandon(void);

/*
 * Registers the mapping. Cheap when it is registered already and no event came meanwhile; else a system call
 * of about a microsecond. That the kernel refused a mapping is remembered likewise, so that one which
 * replaces it at the very same addresses may stay uncovered until the next event. 0; -EBUSY (another
 * userfaultfd has it); -ENODEV (not open, or given up); -EINVAL, -EPERM (the kernel cannot watch this kind of
 * memory: special mappings, shared mappings of files opened read-only, before 6.7 all files); other negative
 * errnos. Takes the kernel's lock of the address space: hold no lock that matters.
 */
int uffd_cover(const struct vma *vma);

/* Whether it is open and has not given up. */
bool uffd_active(void);

struct uffd_counts {
	uint64_t events;		 /* read */
	uint64_t overflows;		 /* times that everything was declared invalid */
	uint64_t covered, busy, refused; /* calls of uffd_cover() that asked the kernel, by its answer */
	uint64_t readers;		 /* started so far */
};
void uffd_counts(struct uffd_counts *out);

/* For facility.c: whether the kernel lets us have one with these events. 0 or a negative errno. */
int uffd_probe(void);

#endif

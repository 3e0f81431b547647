/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How the device learns that memory was unmapped or discarded: the one of three ways that the user has
 * chosen.
 *
 *	interpose    interpose.h: libc's functions, before the caller goes on
 *	userfaultfd  uffd.h: the kernel's word as well, raw system calls included
 *	none         nobody tells: copies that fault and the sweep find out. Rights that shrink unseen are
 *	             found by the processor alone, to which memory that may be written may be read
 *
 * With userfaultfd interposition stays on. It alone tells of mprotect, MADV_PAGEOUT, guard pages and memory
 *that cannot be registered, and it tells of MADV_DONTNEED when the pages have gone, where the kernel's event
 *comes before. So most changes are told twice; the second time there is nothing left to invalidate, and the
 *entry of a page that was mapped anew in between costs one more fault.
 *
 * Pinned memory (pin.h) is told by interposition in every case, also with none.
 *
 * Threads: start, stop and abandon one at a time (nic/device.c); cover and name from any thread.
 */
#ifndef UNPIN_MM_NOTIFIER_H
#define UNPIN_MM_NOTIFIER_H

#include "base/setting.h"
#include "mm/interpose.h"
#include "mm/vma.h"

/*
 * Starts telling the observer; it is called in the thread that makes the change, with whatever locks that
 * holds, or in one of ours. Returns what is really in use: interposition where a userfaultfd cannot be had,
 * which is logged with its reason.
 */
enum setting_notifier notifier_start(enum setting_notifier wanted, mm_observer *observer);
/* A call already under way in another thread of the application may still tell the observer. */
void notifier_stop(void);
/* In a forked child, instead of notifier_stop(). Only system calls. */
void notifier_abandon(void);

/* What is in use now, by its name in UNPIN_NOTIFIER; "none" when stopped. */
const char *notifier_name(void);
/* The device is about to access this mapping for the first time, as far as it remembers. Errno is kept; see
 * uffd_cover() for its cost; nothing with the other two. */
void notifier_cover(const struct vma *vma);

#endif

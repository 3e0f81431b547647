/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the host kernel offers and the user has not switched off. UNPIN_DISABLE is a comma-separated list of
 * these names; an unknown name is reported once and ignored:
 *
 *	populate       MADV_POPULATE_READ and _WRITE
 *	pagemap_scan   the PAGEMAP_SCAN ioctl
 *	pagemap        reading /proc/self/pagemap
 *	procmap_query  the PROCMAP_QUERY ioctl
 *	io_uring       pins by io_uring buffers
 *	process_vm     process_vm_readv and _writev on ourselves
 *	sched_slice    a scheduling slice of our own choice
 *	psi            times of stall for want of memory
 *	uffd           a userfaultfd that reports changes of mappings
 *
 * Each facility is probed once, at first use, by trying it. An errno that may pass (no memory, no descriptor)
 * is an answer for this once, and the next who asks probes again. Any thread; no locks; safe in a forked
 * child; errno is kept.
 */
#ifndef UNPIN_MM_FACILITY_H
#define UNPIN_MM_FACILITY_H

#include <stdbool.h>

enum mm_facility {
	MM_POPULATE,	  /* Linux 5.14; else pages are touched through the survivable copy */
	MM_PAGEMAP_SCAN,  /* 6.7; else /proc/self/pagemap */
	MM_PAGEMAP,	  /* else mincore, and nobody knows what is swapped out */
	MM_PROCMAP_QUERY, /* 6.11; else /proc/self/maps is read */
	MM_IO_URING,	  /* 5.13; else mlock */
	MM_PROCESS_VM,	  /* else threads with SIGSEGV blocked hand over */
	MM_SCHED_SLICE,	  /* 6.12: sched_setattr's sched_runtime */
	MM_PSI,		  /* else nobody knows how long tasks stood still for want of memory */
	MM_UFFD,	  /* 5.11, if permitted; else the notifier "userfaultfd" cannot be had */
	MM_FACILITIES
};

bool mm_have(enum mm_facility f);
/* The same with a reason, for who must not do without it only because it could not be had just now: 0, the
 * probe's negative errno, -EOPNOTSUPP when disabled. */
int mm_ask(enum mm_facility f);
/*
 * Whether a negative errno may pass: -ENOMEM, -EMFILE, -ENFILE, -EAGAIN, -EINTR. Among them is the -ENOMEM of
 * a limit on locked memory that leaves no room for a ring, which is charged to it up to 5.11 and from 6.14
 * on: that is no lack of io_uring, and mlock would be charged to the same limit.
 */
bool mm_passing(int err);
/* Its name in UNPIN_DISABLE. */
const char *mm_facility_name(enum mm_facility f);
/* NULL when available, else a short reason ("disabled by UNPIN_DISABLE", "refused by the kernel: Operation
 * not permitted", "not to be had for the moment: ..."). The text is constant. */
const char *mm_facility_why_not(enum mm_facility f);

#endif

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
 * Each facility is probed once, at first use, by trying it. Any thread; no locks; safe in a forked child;
 * errno is kept.
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
/* Its name in UNPIN_DISABLE. */
const char *mm_facility_name(enum mm_facility f);
/* NULL when available, else a short reason ("disabled by UNPIN_DISABLE", "refused by the kernel: Operation
 * not permitted"). The text is constant. */
const char *mm_facility_why_not(enum mm_facility f);

#endif

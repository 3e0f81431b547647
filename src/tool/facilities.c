/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/facilities.h"

const struct facility facilities[] = {
	{ "populate", "MADV_POPULATE_READ and _WRITE" },
	{ "pagemap_scan", "the PAGEMAP_SCAN ioctl" },
	{ "pagemap", "/proc/self/pagemap" },
	{ "procmap_query", "the PROCMAP_QUERY ioctl" },
	{ "io_uring", "pins by io_uring buffers" },
	{ "process_vm", "process_vm_readv and _writev" },
	{ "sched_slice", "short scheduling slices" },
	{ "psi", "pressure stall information" },
	{ "uffd", "a userfaultfd that reports changes of mappings" },
};
const size_t facilities_count = sizeof(facilities) / sizeof(facilities[0]);

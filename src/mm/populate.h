/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Making pages present ahead of access. */
#ifndef UNPIN_MM_POPULATE_H
#define UNPIN_MM_POPULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Makes [addr, addr + len) present, for writing (breaks copy-on-write) or reading. addr and len are page
 * aligned. May sleep (swap, file, memory cgroup). 0; -ENOMEM hole in the range; -EACCES the mapping does not
 * allow it; -EFAULT past the end of a file, guard page, hardware poison; -EAGAIN a passing shortage or a race
 * with another thread's change (try again). Pages before the failing one may have been made present. Uses
 * MADV_POPULATE_*, or touching where that is missing and near the memory limit (pressure.h), where a populate
 * would get the process killed instead of waiting for reclaim (errors are then told apart with vma.h; a
 * thread that blocks SIGSEGV or SIGBUS cannot touch for writing and always gets -EAGAIN: hand over to another
 * thread). len == 0 is success. Errno is kept. Any thread.
 */
int populate(void *addr, size_t len, bool write);

#endif

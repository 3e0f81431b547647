/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory that is passed to another process: a memfd that can neither grow nor shrink, so that no peer can
 * pull pages from under a mapping. Mappings are not inherited by children (MADV_DONTFORK) and do not notify
 * the device of themselves. Any thread; no state.
 */
#ifndef UNPIN_WIRE_SEALED_H
#define UNPIN_WIRE_SEALED_H

#include <stdbool.h>
#include <stddef.h>

/* Makes bytes of zeroed shared memory, mapped read-write at *map, with nothing allocated yet. Others who get
 * the returned close-on-exec descriptor can map it read-write, or only read it (readonly). Negative errno:
 * -EFBIG when RLIMIT_FSIZE is smaller (found out without provoking SIGXFSZ), -ENOMEM, -EMFILE... */
int sealed_make(const char *name, size_t bytes, bool readonly, void **map);
/* Checks a descriptor that a stranger sent (shared memory that is not hugetlbfs, seals, exact size) before it
 * maps it, and maps it. Keeps fd open. -EPROTO: not such memory; other negative errno: mmap's. */
int sealed_map(int fd, size_t bytes, bool writable, void **map);
/* Allocates [offset, offset + bytes) of memory made by sealed_make(), whole pages. 0; 1: done
 * through fd, which has to be kept for the next time (a kernel without MADV_POPULATE_WRITE); -ENOMEM. */
int sealed_populate(void *map, size_t offset, size_t bytes, int fd);
void sealed_unmap(void *map, size_t bytes);

#endif

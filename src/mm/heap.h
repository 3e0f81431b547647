/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * free, realloc and malloc_trim in front of libc's. glibc's allocator gives memory back to the kernel by
 *calls of its own (munmap, mremap, brk) that pass by interpose.h. A pin over such memory has to diverge:
 *
 *	free, of a block that is a mapping of its own (128 KiB to 32 MiB and more)	before it is unmapped
 *	realloc of such a block, when a pin has a page of it	by another block, a copy and free, so that
 *								nothing is moved beneath the pin
 *	free, realloc, malloc_trim that shrink the heap (brk)	right after it: the heap would have to grow
 *								again in another thread meanwhile
 *
 * Not seen: the heaps that glibc makes for further threads (64 MiB each) when they shrink.
 *
 * Everything else goes to the next function of the name, whose memory may be another allocator's: only
 * glibc's blocks are looked into. Without pins, and in programs that never open a device, each is one load
 * and a call. Any thread; errno as the next function leaves it.
 */
#ifndef UNPIN_MM_HEAP_H
#define UNPIN_MM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The mapping of a block that is one by itself. False: it is not, or another allocator's. */
bool heap_mapping_of(const void *block, uintptr_t *start, size_t *len);

#endif

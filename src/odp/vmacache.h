/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The last few mappings that faults asked the kernel for. Any change of mappings that the notifier reports
 * makes all of them unknown; a change that it misses leaves an old answer here, which is found out by the
 * populate that fails (the fault then asks the kernel again), so nothing but the choice of who resolves a
 * fault depends on it.
 *
 * Threads: serialised by the caller.
 */
#ifndef UNPIN_ODP_VMACACHE_H
#define UNPIN_ODP_VMACACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "mm/vma.h"

#define VMACACHE_ENTRIES 4u

struct vmacache {
	struct vma vma[VMACACHE_ENTRIES]; /* empty: start == end */
	uint32_t changes;		  /* the count of changes that all entries belong to */
	uint32_t hand;
};

/* The mapping that holds addr, as of this count of changes; false: ask. */
bool vmacache_get(struct vmacache *c, uintptr_t addr, uint32_t changes, struct vma *out);
/* Remembers a mapping; changes as counted before the kernel was asked. */
void vmacache_put(struct vmacache *c, const struct vma *vma, uint32_t changes);
/* Forgets what is known of addr. */
void vmacache_drop(struct vmacache *c, uintptr_t addr);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/vmacache.h"

#include <string.h>

static void follow(struct vmacache *c, uint32_t changes)
{
	if (c->changes == changes)
		return;
	memset(c->vma, 0, sizeof(c->vma));
	c->changes = changes;
}

bool vmacache_get(struct vmacache *c, uintptr_t addr, uint32_t changes, struct vma *out)
{
	follow(c, changes);
	for (unsigned i = 0; i < VMACACHE_ENTRIES; i++) {
		if (addr < c->vma[i].start || addr >= c->vma[i].end)
			continue;
		*out = c->vma[i];
		return true;
	}
	return false;
}

void vmacache_put(struct vmacache *c, const struct vma *vma, uint32_t changes)
{
	/* Older than what others have put meanwhile: of no use. */
	if ((int32_t)(changes - c->changes) < 0)
		return;
	follow(c, changes);
	vmacache_drop(c, vma->start);
	c->vma[c->hand++ % VMACACHE_ENTRIES] = *vma;
}

void vmacache_drop(struct vmacache *c, uintptr_t addr)
{
	for (unsigned i = 0; i < VMACACHE_ENTRIES; i++)
		if (addr >= c->vma[i].start && addr < c->vma[i].end)
			c->vma[i] = (struct vma){ 0 };
}

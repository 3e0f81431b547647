/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Regions: windows on the space. */
#include <string.h>

#include "odp/core.h"

static uintptr_t first_page(const struct odp_region *r)
{
	return r->addr >> ODP_PAGE_SHIFT << ODP_PAGE_SHIFT;
}

/* Does not wrap: the last page of the address space is never an application's. */
static uintptr_t end_page(const struct odp_region *r)
{
	uintptr_t end = r->addr + r->len;

	if (end < r->addr || end > TABLE_LIMIT)
		return TABLE_LIMIT;
	return (end + ODP_PAGE - 1) >> ODP_PAGE_SHIFT << ODP_PAGE_SHIFT;
}

void odp_region_init(struct odp_region *r)
{
	struct odp_space *s = r->space;

	list_init(&r->node);
	list_init(&r->prefetches);
	memset(r->verdict, 0, sizeof(r->verdict));
	r->folded_in = atomic_load_explicit(&r->odp->bytes_in, memory_order_relaxed);
	r->folded_out = atomic_load_explicit(&r->odp->bytes_out, memory_order_relaxed);
	fault_lock(&s->faults);
	fault_region_begin(&s->faults, r);
	r->owner = owner_take(&s->owners, first_page(r), end_page(r), r->odp);
	list_add_tail(&s->regions, &r->node);
	atomic_store_explicit(&s->guard.unused, false, memory_order_relaxed);
	fault_unlock(&s->faults);
	atomic_store(&r->closing, false);
}

void odp_region_fold(struct odp_region *r)
{
	struct unpin_odp_counters *totals = r->space->cfg.totals;
	uint64_t in = atomic_load_explicit(&r->odp->bytes_in, memory_order_relaxed);
	uint64_t out = atomic_load_explicit(&r->odp->bytes_out, memory_order_relaxed);

	if (in != r->folded_in)
		counter_add(&totals->bytes_in, in - r->folded_in);
	if (out != r->folded_out)
		counter_add(&totals->bytes_out, out - r->folded_out);
	r->folded_in = in;
	r->folded_out = out;
}

/*
 * Drops the entries that the region is credited with: those in the groups that it faulted in last. What
 * other regions over the same pages own stays.
 */
static void drop_owned(struct odp_space *s, uintptr_t first, uintptr_t end, uint16_t number)
{
	uintptr_t at = first;
	struct leaf *leaf;

	while ((leaf = pagetable_next(&s->table, &at, end))) {
		for (unsigned g = 0; g < LEAF_GROUPS; g++)
			if (atomic_load_explicit(&leaf->owner[g], memory_order_relaxed) == number)
				leaf_drop(leaf, g, ~0ull);
		at = (at | (LEAF_BYTES - 1)) + 1;
	}
	odp_active(s);
}

void odp_region_fini(struct odp_region *r)
{
	struct odp_space *s = r->space;
	struct list told = LIST_INIT(told);
	bool last;

	fault_lock(&s->faults);
	atomic_store(&r->closing, true);
	list_del(&r->node);
	prefetch_region_end(r);
	fault_region_scanned(&s->faults, r);
	last = list_empty(&s->regions);
	atomic_store_explicit(&s->guard.unused, last, memory_order_relaxed);
	fault_region_end(r, &told);
	owner_give(&s->owners, r->owner);
	odp_region_fold(r);
	fault_unlock(&s->faults);
	fault_tell(&told);
	if (last)
		odp_space_invalidate(s, 0, TABLE_LIMIT, ODP_DEREG);
	else if (r->owner)
		drop_owned(s, first_page(r), end_page(r), r->owner);
}

/* An open region over any of [first, end), preferably a bounded one; NULL: none. Under the lock. */
static struct odp_region *region_over(struct odp_space *s, uintptr_t first, uintptr_t end)
{
	struct odp_region *found = NULL;

	list_for_each (pos, &s->regions) {
		struct odp_region *r = container_of(pos, struct odp_region, node);

		if (first_page(r) < end && end_page(r) > first && (!found || r->len < found->len))
			found = r;
	}
	return found;
}

static bool orphaned(const struct odp_space *s, const struct leaf *leaf, unsigned group)
{
	return page_valid(atomic_load_explicit(&leaf->word[group], memory_order_relaxed), ~0ull) &&
	       !owner_alive(&s->owners, atomic_load_explicit(&leaf->owner[group], memory_order_relaxed));
}

void odp_adopt(struct odp_space *s, struct leaf *leaf, uintptr_t base)
{
	struct odp_region *r;
	unsigned g = 0;

	while (g < LEAF_GROUPS && !orphaned(s, leaf, g))
		g++;
	if (g == LEAF_GROUPS)
		return;
	fault_lock(&s->faults);
	r = region_over(s, base, base + LEAF_BYTES);
	for (; g < LEAF_GROUPS; g++) {
		if (!orphaned(s, leaf, g))
			continue;
		if (r && r->owner)
			atomic_store_explicit(&leaf->owner[g], r->owner, memory_order_relaxed);
		else if (!r)
			leaf_drop(leaf, g, ~0ull);
	}
	fault_unlock(&s->faults);
}

bool odp_cancel(struct odp_waiter *w)
{
	bool waiting;

	/* Never waited since it was zeroed. */
	if (!w->space)
		return true;
	fault_lock(&w->space->faults);
	while (w->scanning)
		lock_wait(&w->space->faults.scanned, &w->space->faults.lock);
	waiting = w->fault;
	if (waiting)
		fault_leave(w);
	fault_forget(w);
	fault_unlock(&w->space->faults);
	return waiting;
}

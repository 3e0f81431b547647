/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Intake of invalidations. Nothing here takes a lock, allocates or waits: it runs inside the application's
 * munmap, perhaps inside malloc, perhaps while other threads are stopped by a garbage collector with whatever
 * locks they hold.
 */
#include "base/trace.h"
#include "odp/core.h"

/* Counts gathered for one region while a leaf is walked. */
struct credit {
	struct odp_space *s;
	const struct owner *owner;
	uint64_t asked, handled;
};

static void credit_flush(struct credit *c)
{
	struct unpin_odp_counters *counters;

	if (!c->asked && !c->handled)
		return;
	counters = c->owner ? atomic_load_explicit(&c->owner->counters, memory_order_acquire) : NULL;
	odp_count(c->s, counters, page_invalidations, c->asked);
	odp_count(c->s, counters, page_invalidations_handled, c->handled);
	c->asked = c->handled = 0;
}

/* How many of the masked pages of the group from addr on lie in the owner's region. */
static unsigned pages_inside(const struct owner *o, uintptr_t addr, uint64_t mask)
{
	uintptr_t from = addr + (unsigned)__builtin_ctzll(mask) / 8 * ODP_PAGE;
	uintptr_t to = addr + (8 - (unsigned)__builtin_clzll(mask) / 8) * ODP_PAGE;
	uintptr_t first = atomic_load_explicit(&o->first, memory_order_relaxed);
	uintptr_t end = atomic_load_explicit(&o->end, memory_order_relaxed);

	from = from > first ? from : first;
	to = to < end ? to : end;
	return to > from ? (unsigned)((to - from) >> ODP_PAGE_SHIFT) : 0;
}

/* The owner of the first group in the leaf that has one. */
static uint16_t any_owner(const struct leaf *leaf)
{
	for (unsigned g = 0; g < LEAF_GROUPS; g++) {
		uint16_t number = atomic_load_explicit(&leaf->owner[g], memory_order_relaxed);

		if (number)
			return number;
	}
	return 0;
}

/* A group that nobody has faulted in is taken for the neighbour's whose region it lies in. */
static void drop_group(struct credit *c, struct leaf *leaf, uintptr_t base, unsigned group, uint64_t mask)
{
	uint16_t number = atomic_load_explicit(&leaf->owner[group], memory_order_relaxed);
	uint64_t dropped = leaf_drop(leaf, group, mask);
	unsigned handled = (unsigned)__builtin_popcountll(dropped);

	if (number && owner_of(&c->s->owners, number) != c->owner) {
		credit_flush(c);
		c->owner = owner_of(&c->s->owners, number);
	}
	c->asked += c->owner ? pages_inside(c->owner, base + group * GROUP_PAGES * ODP_PAGE, mask) : handled;
	c->handled += handled;
}

static void drop_range(struct odp_space *s, struct leaf *leaf, uintptr_t from, uintptr_t to, bool counted)
{
	unsigned first = leaf_page(from), last = leaf_page(to - 1);
	uintptr_t base = from >> LEAF_SHIFT << LEAF_SHIFT;
	uint16_t number = counted ? any_owner(leaf) : 0;
	struct credit c = { s, number ? owner_of(&s->owners, number) : NULL, 0, 0 };

	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		if (counted)
			drop_group(&c, leaf, base, g, leaf_mask(g, first, last));
		else
			leaf_drop(leaf, g, leaf_mask(g, first, last));
	}
	credit_flush(&c);
	odp_active(s);
}

void odp_space_invalidate(struct odp_space *s, uintptr_t addr, size_t len, enum odp_cause cause)
{
	uintptr_t end = addr + len, at = addr;
	uint64_t began = trace_begin();
	struct leaf *leaf;

	if (!len || addr >= TABLE_LIMIT)
		return;
	if (end < addr || end > TABLE_LIMIT)
		end = TABLE_LIMIT;
	if (cause == ODP_NOTIFIER)
		atomic_fetch_add_explicit(&s->changes, 1, memory_order_relaxed);
	while ((leaf = pagetable_next(&s->table, &at, end))) {
		uintptr_t stop = (at | (LEAF_BYTES - 1)) + 1;

		stop = stop < end ? stop : end;
		drop_range(s, leaf, at, stop, cause != ODP_DEREG && cause != ODP_FORK);
		at = stop;
	}
	if (began)
		trace_record(TRACE_INVALIDATE, began, clock_ns(), addr, end - addr);
}

void odp_space_forked(struct odp_space *s)
{
	uintptr_t at = 0;
	struct leaf *leaf;

	while ((leaf = pagetable_next(&s->table, &at, TABLE_LIMIT))) {
		leaf_fork(leaf, 0, LEAF_PAGES - 1);
		at = (at | (LEAF_BYTES - 1)) + 1;
	}
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The sweep: what neither the notifier nor an access has found. Leaf by leaf it asks the kernel what is in
 * memory, drops entries over what is not, renews the ticks of the rest, and frees leaves that are empty.
 */
#include "mm/residency.h"
#include "odp/core.h"

/*
 * What a call may spend: looking at a leaf is cheap, asking the kernel about 512 pages takes some ten
 * microseconds.
 */
#define BUDGET	   1024u
#define COST_LOOK  1u
#define COST_QUERY 64u

static bool has_valid(const struct leaf *leaf)
{
	for (unsigned g = 0; g < LEAF_GROUPS; g++)
		if (page_valid(atomic_load_explicit(&leaf->word[g], memory_order_relaxed), ~0ull))
			return true;
	return false;
}

static unsigned sweep_leaf(struct odp_space *s, struct leaf *leaf, uintptr_t base)
{
	unsigned cost = COST_LOOK;

	if (has_valid(leaf)) {
		odp_adopt(s, leaf, base);
		odp_verify(s, leaf, base, 0, LEAF_GROUPS - 1);
		cost = COST_QUERY;
	}
	if (!has_valid(leaf)) {
		fault_lock(&s->faults);
		/* An event points to its leaf even when all its pages have been taken away from it. */
		if (!fault_in_leaf(&s->faults, base))
			pagetable_free_if_empty(&s->table, base);
		fault_unlock(&s->faults);
	}
	return cost;
}

static void fold_regions(struct odp_space *s)
{
	fault_lock(&s->faults);
	list_for_each (pos, &s->regions)
		odp_region_fold(container_of(pos, struct odp_region, node));
	fault_unlock(&s->faults);
}

/* One stretch. Returns whether a round has come to its end. */
static bool sweep_some(struct odp_space *s)
{
	uintptr_t at = s->sweep_at;
	unsigned spent = 0;
	struct leaf *leaf;

	while (spent < BUDGET) {
		leaf = pagetable_next(&s->table, &at, TABLE_LIMIT);
		if (!leaf) {
			s->sweep_at = 0;
			return true;
		}
		at = at >> LEAF_SHIFT << LEAF_SHIFT;
		spent += sweep_leaf(s, leaf, at);
		at += LEAF_BYTES;
	}
	s->sweep_at = at;
	return false;
}

void odp_tick_guard(struct odp_space *s, uint64_t now)
{
	if (!guard_tick(&s->guard, now))
		return;
	fault_lock(&s->faults);
	pthread_cond_broadcast(&s->faults.work);
	fault_unlock(&s->faults);
	odp_drivers_need(s);
}

bool odp_space_sweep(struct odp_space *s, uint64_t now)
{
	uint32_t activity;
	bool more = true;

	odp_tick_guard(s, now);
	if (!lock_try(&s->sweep_lock))
		return true;
	atomic_store_explicit(&s->swap_on, residency_swap_on(now), memory_order_relaxed);
	fold_regions(s);
	if (!s->sweep_at)
		s->sweep_activity = atomic_load_explicit(&s->activity, memory_order_relaxed);
	if (sweep_some(s)) {
		activity = atomic_load_explicit(&s->activity, memory_order_relaxed);
		more = activity != s->sweep_activity;
	}
	lock_drop(&s->sweep_lock);
	/* A storm ends by somebody looking, when no fault comes any more too. */
	return more || guard_storm(&s->guard);
}

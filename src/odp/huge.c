/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Transparent huge pages: the first fault in a leaf may bring in all of it at once. The kernel is asked after
 * populate, once per leaf and second; what has come with the page becomes valid with it, so that 2 MiB cost
 * one event. Nothing depends on it later: a huge page that is split is 512 pages that are valid, one that is
 * put together under us was.
 *
 * An invalidation is not missed: the other pages are made faulting before the kernel is asked (again), so it
 * marks them dirty from then on; one that came earlier is in the answer, or has marked the page itself.
 */
#include "mm/residency.h"
#include "odp/core.h"

static bool is_huge(const struct fault *f)
{
	return residency_huge((const void *)f->addr) == 1;
}

/* The event's own page has not been dropped. */
static bool still_clean(const struct fault *f)
{
	unsigned i = leaf_page(f->addr);
	uint64_t mask = page_mask(i % GROUP_PAGES, i % GROUP_PAGES);

	return page_faulting_clean(atomic_load(&f->leaf->word[i / GROUP_PAGES]), mask);
}

static void take_rest(struct odp_space *s, struct fault *f)
{
	unsigned first = leaf_page(f->addr), behind = first + f->pages;

	fault_lock(&s->faults);
	f->before = leaf_raise_below(f->leaf, first, f->write);
	if (behind < LEAF_PAGES)
		f->pages += leaf_raise(f->leaf, behind, LEAF_PAGES - 1, f->write);
	fault_unlock(&s->faults);
}

static void give_back(struct odp_space *s, struct fault *f, unsigned own)
{
	unsigned first = leaf_page(f->addr);

	fault_lock(&s->faults);
	if (f->before)
		leaf_give_up(f->leaf, first - f->before, first - 1);
	if (f->pages > own)
		leaf_give_up(f->leaf, first + own, first + f->pages - 1);
	f->before = 0;
	f->pages = own;
	fault_unlock(&s->faults);
}

void odp_huge_take(struct odp_space *s, struct fault *f)
{
	unsigned own = f->pages;

	f->huge = false;
	if (leaf_small(f->leaf, odp_tick()))
		return;
	if (!is_huge(f)) {
		leaf_note_small(f->leaf, odp_tick());
		return;
	}
	take_rest(s, f);
	f->huge = is_huge(f) && still_clean(f);
	if (!f->huge)
		give_back(s, f, own);
}

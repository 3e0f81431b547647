/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Imprecise events, as older hardware raises them: they name a region and a queue pair, and the driver looks
 * through what that has outstanding for pages that are not valid.
 *
 * The scan runs without locks, a slice at a time, and its waiter stays where it is meanwhile: odp_cancel()
 * and odp_region_fini() wait for the slice. Every missing stretch it names becomes an ordinary event that
 * nobody waits for, resolved by the scanning thread. Whatever comes of them, the waiter is told to retry: the
 * access that finds the very same page missing raises it precisely, and so gets the error of a hole or makes
 * its way.
 */
#include <errno.h>

#include "odp/raise.h"

#define SLICE	   16u	 /* extents asked for at once */
#define MOST_PAGES 4096u /* looked at for one event */

/* ---- raise ---- */

/* Under the lock. */
static int raise_under_lock(struct access *a, uintptr_t page)
{
	struct odp_space *s = a->s;
	struct fault *f;

	if (atomic_load_explicit(&a->r->closing, memory_order_relaxed))
		return -ECANCELED;
	if (!fault_room(a->r, a->w->admitted))
		return odp_wait_for_room(a, page, a);
	f = fault_new(&s->faults, a->r, 0, 0);
	if (!f)
		return ODP_AGAIN;
	a->high = page + 1;
	f->imprecise = true;
	f->flow = a->w->flow;
	f->raised_ns = clock_ns();
	f->due_ns = odp_due(s, f->raised_ns);
	odp_count(s, a->r->odp, faults_imprecise, 1);
	odp_park(a, f, page, true);
	fault_enqueue(&s->faults, f);
	return -EINPROGRESS;
}

int odp_raise_imprecise(struct access *a, uintptr_t page)
{
	struct odp_space *s = a->s;
	int err;

	fault_lock(&s->faults);
	err = raise_under_lock(a, page);
	fault_unlock(&s->faults);
	if (err == -EINPROGRESS)
		odp_drivers_need(s);
	return err;
}

/* ---- scan ---- */

/* One event's progress. */
struct scan {
	struct odp_space *s;
	struct fault *f;
	struct odp_region *region; /* only while the waiter is pinned, or under the lock while f->region */
	unsigned nth;		   /* extents seen */
	unsigned pages;		   /* left to look at */
};

/* The waiter, pinned; NULL: it has gone, and with it the reason. */
static struct odp_waiter *pin(struct scan *sc)
{
	struct odp_waiter *w = NULL;

	fault_lock(&sc->s->faults);
	if (!list_empty(&sc->f->waiters)) {
		w = list_first(&sc->f->waiters, struct odp_waiter, node);
		w->scanning = true;
		sc->region = w->region;
	}
	fault_unlock(&sc->s->faults);
	return w;
}

static void unpin(struct scan *sc, struct odp_waiter *w)
{
	fault_lock(&sc->s->faults);
	w->scanning = false;
	pthread_cond_broadcast(&sc->s->faults.scanned);
	fault_unlock(&sc->s->faults);
}

/* Whether it makes a difference to go on: somebody waits, and the region is open. */
static bool wanted(const struct scan *sc)
{
	return sc->f->region && !list_empty(&sc->f->waiters);
}

/* The first page of [*at, end), inside one leaf, that has to be raised. Under the lock. */
static bool next_missing(struct leaf *leaf, uintptr_t *at, uintptr_t end, bool write)
{
	for (; *at < end; *at += ODP_PAGE) {
		unsigned i = leaf_page(*at), byte = i % GROUP_PAGES;
		uint64_t word = atomic_load_explicit(&leaf->word[i / GROUP_PAGES], memory_order_relaxed);

		if (page_raisable(word, page_mask(byte, byte), write))
			return true;
	}
	return false;
}

/*
 * An event for the first missing pages of [*at, end), all in one leaf and one mapping; *at moves behind what
 * has been dealt with. NULL: there are none, or no memory.
 */
static struct fault *raise_next(
	struct scan *sc, uintptr_t *at, uintptr_t end, bool write, const struct vma *vma)
{
	struct fault *f = NULL;
	struct leaf *leaf;

	fault_lock(&sc->s->faults);
	leaf = wanted(sc) ? pagetable_make(&sc->s->table, *at) : NULL;
	if (leaf && next_missing(leaf, at, end, write)) {
		unsigned n = (unsigned)((end - *at) >> ODP_PAGE_SHIFT);

		f = odp_event(sc->f->region, leaf, *at, vma, n, n, write);
	}
	if (f)
		*at += (uintptr_t)f->pages * ODP_PAGE;
	else
		*at = end;
	fault_unlock(&sc->s->faults);
	if (f)
		f->major = vma->file && !vma->shmem;
	return f;
}

/* Pages of one leaf. Returns where it stopped: end, or an obstacle that the access finds for itself. */
static void fill_stretch(struct scan *sc, uintptr_t at, uintptr_t end, bool write)
{
	struct fault *f;
	struct vma vma;

	while (at < end) {
		uintptr_t stop;

		if (odp_mapping(sc->s, at, write, &vma))
			return;
		stop = vma.end < end ? vma.end : end;
		while (at < stop && (f = raise_next(sc, &at, stop, write, &vma)))
			odp_resolve(sc->s, f, f->pages, false);
	}
}

/* An extent, cut to the region and to the pages that are left. */
static void fill_extent(struct scan *sc, const struct odp_extent *e, uintptr_t first, uintptr_t end)
{
	uintptr_t at = e->addr > first ? e->addr : first, stop = e->addr + e->len;

	if (stop < e->addr || stop > end)
		stop = end;
	at &= ~(uintptr_t)(ODP_PAGE - 1);
	stop = (stop + ODP_PAGE - 1) & ~(uintptr_t)(ODP_PAGE - 1);
	while (at < stop && sc->pages) {
		uintptr_t leaf_end = (at | (LEAF_BYTES - 1)) + 1, to = stop < leaf_end ? stop : leaf_end;

		if ((to - at) >> ODP_PAGE_SHIFT > sc->pages)
			to = at + (uintptr_t)sc->pages * ODP_PAGE;
		fill_stretch(sc, at, to, e->write);
		sc->pages -= (unsigned)((to - at) >> ODP_PAGE_SHIFT);
		at = to;
	}
}

/* A slice. false: it was the last. */
static bool scan_slice(struct scan *sc)
{
	struct odp_extent extent[SLICE];
	struct odp_waiter *w = pin(sc);
	uintptr_t first, end;
	bool writable;
	unsigned n;

	if (!w)
		return false;
	first = sc->region->addr;
	end = odp_region_end(sc->region);
	writable = sc->region->writable;
	n = w->scan(w, sc->region, sc->nth, extent, SLICE);
	unpin(sc, w);
	for (unsigned i = 0; i < n && sc->pages; i++)
		if (extent[i].len && (writable || !extent[i].write))
			fill_extent(sc, &extent[i], first, end);
	sc->nth += n;
	return n == SLICE && sc->pages;
}

void odp_imprecise(struct odp_space *s, struct fault *f)
{
	struct scan sc = { .s = s, .f = f, .pages = MOST_PAGES };

	while (scan_slice(&sc))
		;
}

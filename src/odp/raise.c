/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Cheap events are resolved on the spot; the others are queued for the driver threads.
 */
#include "odp/raise.h"

#include <errno.h>
#include <sys/mman.h>

#include "mm/facility.h"
#include "mm/notifier.h"
#include "mm/page.h"
#include "mm/residency.h"
#include "mm/userfault.h"

static bool page_missing(const struct leaf *leaf, uintptr_t page, bool write)
{
	unsigned i = leaf_page(page);
	uint64_t word = atomic_load(&leaf->word[i / GROUP_PAGES]);

	return ~word & page_wanted(write) & page_mask(i % GROUP_PAGES, i % GROUP_PAGES);
}

static bool huge_pages(const struct vma *vma)
{
	return vma->page_size > page_size();
}

static int ask_mapping(struct odp_space *s, uintptr_t page, struct vma *vma)
{
	uint32_t changes = atomic_load_explicit(&s->changes, memory_order_relaxed);
	int err = vma_find(page, false, vma);

	if (err == -ENOENT || (err && page >= TABLE_LIMIT))
		return -EFAULT;
	if (err) {
		/*
		 * The kernel does not tell: a page that may do anything and may sleep. Populate will find
		 * out.
		 */
		*vma = (struct vma){ .start = page,
			.end = page + page_size(),
			.read = true,
			.write = true,
			.file = true,
			.page_size = page_size() };
		return 0;
	}
	if (!vma->special)
		notifier_cover(vma);
	fault_lock(&s->faults);
	vmacache_put(&s->vmas, vma, changes);
	fault_unlock(&s->faults);
	return 0;
}

/* What the mapping has to say to an access. */
static int verdict_of(const struct vma *vma, bool write)
{
	if (vma->special)
		return -EFAULT;
	return (write ? vma->write : vma->read) ? 0 : -EACCES;
}

int odp_mapping(struct odp_space *s, uintptr_t page, bool write, struct vma *vma)
{
	bool known;
	int err;

	fault_lock(&s->faults);
	known = vmacache_get(&s->vmas, page, atomic_load_explicit(&s->changes, memory_order_relaxed), vma);
	fault_unlock(&s->faults);
	/* What would refuse the access is asked again: the notifier may have missed that it changed. */
	if (known && !verdict_of(vma, write))
		return 0;
	err = ask_mapping(s, page, vma);
	return err ? err : verdict_of(vma, write);
}

/*
 * Another round for the same stretch is a lost one, unless it was an imprecise event that did not help; one
 * further on is progress.
 */
static void count_round(struct access *a, uintptr_t page)
{
	if (page >= a->high)
		a->high = page + 1;
	else if (!a->imprecise)
		a->lost++;
	a->imprecise = false;
}

/*
 * How many pages a fault brings in: what it needs, and four times as many as the last time when it goes on
 * where that stopped.
 */
static unsigned widen(unsigned window, unsigned needed, unsigned most)
{
	window *= 4;
	if (window < needed)
		window = needed;
	return window < most ? window : most;
}

static unsigned pages_to(uintptr_t page, uintptr_t end)
{
	uintptr_t pages = (end - page + ODP_PAGE - 1) >> ODP_PAGE_SHIFT;

	return pages < LEAF_PAGES ? (unsigned)pages : LEAF_PAGES;
}

static uintptr_t least(uintptr_t a, uintptr_t b)
{
	return a < b ? a : b;
}

struct fault *odp_event_over(struct odp_region *r, struct leaf *leaf, uintptr_t page, const struct vma *vma,
	unsigned pages, bool write)
{
	unsigned first = leaf_page(page);
	struct fault *f = fault_new(&r->space->faults, r, page, 1);

	if (!f)
		return NULL;
	f->hugetlb = huge_pages(vma);
	f->huge = !f->hugetlb && leaf_raisable(leaf, write);
	if (f->hugetlb) {
		f->pages = leaf_raise(leaf, first, LEAF_PAGES - 1, write);
		f->before = leaf_raise_below(leaf, first, write);
	} else {
		f->pages = leaf_raise(leaf, first, first + pages - 1, write);
	}
	f->write = write;
	/* What lives in memory only leaves it by swap. */
	f->file = vma->file && !vma->shmem;
	f->owner = r->owner;
	f->leaf = leaf;
	f->raised_ns = clock_ns();
	return f;
}

struct fault *odp_event(struct odp_region *r, struct leaf *leaf, uintptr_t page, const struct vma *vma,
	unsigned needed, unsigned most, bool write)
{
	struct odp_space *s = r->space;
	uintptr_t leaf_end = (page | (LEAF_BYTES - 1)) + 1;
	uintptr_t stop = least(least(odp_region_end(r), vma->end), leaf_end);
	unsigned pages =
		widen(stream_take(&s->streams, r, page), needed, guard_window(&s->guard, needed, most));
	struct fault *f;

	if (pages > pages_to(page, stop))
		pages = pages_to(page, stop);
	f = odp_event_over(r, leaf, page, vma, pages, write);
	if (!f)
		return NULL;
	if (!f->hugetlb)
		stream_put(&s->streams, r, page + (uintptr_t)f->pages * ODP_PAGE, f->pages);
	f->needed = needed < f->pages ? needed : f->pages;
	odp_count(s, r->odp, page_faults, f->needed);
	return f;
}

/* The event of an access, for the page where it stopped and what goes with it. Under the lock. */
static struct fault *make_event(struct access *a, struct leaf *leaf, uintptr_t page, const struct vma *vma)
{
	unsigned needed = pages_to(page, least(a->va + a->n, (page | (LEAF_BYTES - 1)) + 1));
	bool disk = vma->file && !vma->shmem;
	struct fault *f =
		odp_event(a->r, leaf, page, vma, needed, disk ? ODP_DRIVER_BATCH : ODP_SPOT_BATCH, a->write);

	if (f) {
		f->flow = a->w ? a->w->flow : NULL;
		f->due_ns = odp_due(a->s, f->raised_ns);
	}
	return f;
}

int odp_park(struct access *a, struct fault *f, uintptr_t page, bool raiser)
{
	struct odp_waiter *w = a->w;

	w->addr = page;
	w->high = a->high;
	w->forced = a->lost;
	w->imprecise = f->imprecise;
	w->raised_ns = raiser ? f->raised_ns : clock_ns();
	w->resolved_ns = 0;
	w->result = 0;
	fault_join(f, a->r, w, raiser);
	return -EINPROGRESS;
}

int odp_wait_for_room(struct access *a, uintptr_t page, const struct access *before)
{
	struct odp_waiter *w = a->w;

	odp_count(a->s, a->r->odp, faults_crowded, 1);
	if (!w)
		return -EINPROGRESS;
	w->addr = page;
	w->high = before->high;
	w->forced = before->lost;
	w->imprecise = before->imprecise;
	w->raised_ns = clock_ns();
	w->resolved_ns = 0;
	w->result = 0;
	fault_crowd(a->r, w);
	return -EINPROGRESS;
}

/* How many of the n pages from addr on, counted from the first, are in the page cache. */
static unsigned pages_cached(uintptr_t addr, unsigned n)
{
	unsigned char vec[ODP_SPOT_BATCH];
	unsigned i = 0;

	if (mincore((void *)addr, (size_t)n * ODP_PAGE, vec))
		return 0;
	while (i < n && vec[i] & 1)
		i++;
	return i;
}

/* The same for pages that were not swapped out. */
static unsigned pages_not_swapped(uintptr_t addr, unsigned n)
{
	unsigned char swapped[ODP_SPOT_BATCH];
	unsigned i = 0;

	if (residency_swapped((void *)addr, n, swapped) < 0)
		return 0;
	while (i < n && !swapped[i])
		i++;
	return i;
}

/* How many of an event's pages, counted from the first, can be populated without waiting for a device. */
static unsigned cheap_pages(const struct odp_space *s, const struct fault *f, const struct vma *vma)
{
	unsigned n = f->pages < ODP_SPOT_BATCH ? f->pages : ODP_SPOT_BATCH;
	bool swap = atomic_load_explicit(&s->swap_on, memory_order_relaxed);

	/* The application resolves it, perhaps this very thread. */
	if (userfault_watched(f->addr, (size_t)n * ODP_PAGE))
		return 0;
	/* Comes from the pool and never leaves. */
	if (huge_pages(vma))
		return f->pages;
	if (!vma->file)
		return swap ? pages_not_swapped(f->addr, n) : n;
	if (vma->shmem)
		return swap ? pages_cached(f->addr, n) : n;
	/* Telling a file system that a page of a file gets dirty may wait for its journal. */
	if (f->write && vma->shared)
		return 0;
	return page_size() == ODP_PAGE ? pages_cached(f->addr, n) : 0;
}

static void look_for_swap(struct odp_space *s)
{
	bool on = residency_swap_on(clock_coarse_ns());

	if (on != atomic_load_explicit(&s->swap_on, memory_order_relaxed))
		atomic_store_explicit(&s->swap_on, on, memory_order_relaxed);
}

/* Hands an event to the driver threads; the access waits for it, if it does. */
static int hand_over(struct access *a, struct fault *f, uintptr_t page, bool major)
{
	int err = -ECANCELED;

	fault_lock(&a->s->faults);
	f->major = major;
	f->alone = !a->w;
	/*
	 * A region that ended meanwhile has let go of the event: it is resolved for whoever else waits for
	 * it.
	 */
	if (!atomic_load_explicit(&a->r->closing, memory_order_relaxed))
		err = a->w ? odp_park(a, f, page, true) : -EINPROGRESS;
	fault_enqueue(&a->s->faults, f);
	fault_unlock(&a->s->faults);
	odp_drivers_need(a->s);
	return err;
}

/* Whether the accessing thread may resolve a fault that it raised. */
static bool on_the_spot(const struct access *a, const struct vma *vma)
{
	const struct odp_cfg *cfg = &a->s->cfg;

	if (!a->w || cfg->fault_latency_ns || cfg->mode != ODP_PRECISE)
		return false;
	/* A gigabyte of zeros takes too long. */
	if (vma->page_size > LEAF_BYTES)
		return false;
	/* A thread that may not fault cannot populate where that means touching. */
	return a->path == SAFECOPY_FIXUP || mm_have(MM_POPULATE);
}

/* An event of our own: resolved here when that is cheap, or by a driver thread. */
static int see_to(struct access *a, struct fault *f, uintptr_t page, const struct vma *vma)
{
	unsigned cheap = cheap_pages(a->s, f, vma), cost = huge_pages(vma) ? ODP_SPOT_BATCH : cheap;
	struct odp_outcome out;

	if (!on_the_spot(a, vma) || cheap < f->needed || cost > a->budget)
		return hand_over(a, f, page, cheap < f->needed);
	a->budget -= cost;
	out = odp_resolve(a->s, f, cheap, true);
	if (out.forced)
		a->lost = ODP_FORCED;
	return out.err ? out.err : ODP_AGAIN;
}

static int refuse(const struct access *a, int err)
{
	odp_count(a->s, a->r->odp, page_faults, 1);
	odp_count(a->s, a->r->odp, faults_failed, 1);
	return err;
}

/* ---- accesses that do not wait ---- */

static struct odp_verdict *verdict_at(struct odp_region *r, uintptr_t page)
{
	return &r->verdict[(page >> ODP_PAGE_SHIFT) % ODP_VERDICTS];
}

/*
 * What earlier accesses that did not wait for this page came to: an error that only populate found is told
 * once; an access that has lost too often is let through. Under the lock.
 */
static int recall(struct access *a, uintptr_t page)
{
	struct odp_verdict *v = verdict_at(a->r, page);
	uint64_t now = clock_ns();
	int err;

	if (v->page != page || v->until_ns < now)
		*v = (struct odp_verdict){ .page = page };
	v->until_ns = now + ODP_VERDICT_NS;
	err = v->err;
	if (!err && v->rounds++ < ODP_FORCED)
		return 0;
	*v = (struct odp_verdict){ 0 };
	if (err)
		return err;
	a->lost = ODP_FORCED;
	return ODP_AGAIN;
}

void odp_remember(struct odp_region *r, uintptr_t page, int err, bool forced)
{
	struct odp_verdict *v = verdict_at(r, page);

	if (!err && !forced)
		return;
	*v = (struct odp_verdict){
		.page = page,
		.until_ns = clock_ns() + ODP_VERDICT_NS,
		.err = err,
		.rounds = ODP_FORCED,
	};
}

/* ---- raise ---- */

/* The event that has the page already; the access waits for it. Under the lock. */
static int join(struct access *a, struct fault *f, uintptr_t page)
{
	if (!a->w)
		return -EINPROGRESS;
	odp_count(a->s, a->r->odp, faults_coalesced, 1);
	return odp_park(a, f, page, false);
}

/* 0: *f is an event of our own. Under the lock. Else as odp_raise(). */
static int raise_or_join(struct access *a, uintptr_t page, const struct access *before, const struct vma *vma,
	struct fault **f)
{
	struct leaf *leaf;
	int err;

	if (atomic_load_explicit(&a->r->closing, memory_order_relaxed))
		return -ECANCELED;
	leaf = pagetable_make(&a->s->table, page);
	*f = leaf && leaf_state(leaf, leaf_page(page)) == PAGE_FAULTING ? fault_find(&a->s->faults, page)
									: NULL;
	if (*f)
		return join(a, *f, page);
	if (leaf && !page_missing(leaf, page, a->write))
		return ODP_AGAIN;
	if (leaf && !fault_room(a->r, a->w && a->w->admitted))
		return odp_wait_for_room(a, page, before);
	err = a->w ? 0 : recall(a, page);
	if (err)
		return err;
	*f = leaf ? make_event(a, leaf, page, vma) : NULL;
	if (*f)
		return 0;
	/* No memory to remember it by: the CPU's own fault does it. */
	a->lost = ODP_FORCED;
	return ODP_AGAIN;
}

/* A page is not valid for the access. */
int odp_raise(struct access *a, uintptr_t page)
{
	struct fault_queue *q = &a->s->faults;
	const struct access before = *a;
	struct fault *f;
	struct vma vma;
	int err;

	look_for_swap(a->s);
	if (a->s->cfg.mode == ODP_IMPRECISE && a->w && a->w->scan && page >= a->high) {
		err = odp_raise_imprecise(a, page);
		if (err != ODP_AGAIN)
			return err;
	}
	err = odp_mapping(a->s, page, a->write, &vma);
	if (err)
		return refuse(a, err);
	count_round(a, page);
	if (a->lost >= ODP_FORCED)
		return ODP_AGAIN;
	fault_lock(q);
	err = raise_or_join(a, page, &before, &vma, &f);
	fault_unlock(q);
	return err ? err : see_to(a, f, page, &vma);
}

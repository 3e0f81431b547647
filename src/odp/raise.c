/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The step raise: a page that is not valid becomes a fault event, or its access joins one under way. Cheap
 * events are resolved on the spot; the others are queued for the driver threads.
 */
#include "odp/raise.h"

#include <errno.h>
#include <sys/mman.h>

#include "mm/facility.h"
#include "mm/page.h"
#include "mm/residency.h"

static bool page_missing(const struct leaf *leaf, uintptr_t page, bool write)
{
	unsigned i = leaf_page(page);
	uint64_t word = atomic_load(&leaf->word[i / GROUP_PAGES]);

	return ~word & page_wanted(write) & page_mask(i % GROUP_PAGES, i % GROUP_PAGES);
}

static bool allowed(const struct access *a, const struct vma *vma)
{
	return a->write ? vma->write : vma->read;
}

static int ask_mapping(struct access *a, uintptr_t page, struct vma *vma)
{
	struct odp_space *s = a->s;
	uint32_t changes = atomic_load_explicit(&s->changes, memory_order_relaxed);
	int err = vma_find(page, false, vma);

	if (err == -ENOENT)
		return -EFAULT;
	if (err) {
		/*
		 * The kernel does not tell: a page that may do anything and may sleep. Populate will find
		 * out.
		 */
		*vma = (struct vma){
			.start = page, .end = page + page_size(), .read = true, .write = true, .file = true,
			.page_size = page_size()
		};
		return 0;
	}
	fault_lock(&s->faults);
	vmacache_put(&s->vmas, vma, changes);
	fault_unlock(&s->faults);
	return allowed(a, vma) ? 0 : -EACCES;
}

/* What the page belongs to, and whether it may be accessed. */
static int mapping_of(struct access *a, uintptr_t page, struct vma *vma)
{
	struct odp_space *s = a->s;
	bool known;

	fault_lock(&s->faults);
	known = vmacache_get(&s->vmas, page, atomic_load_explicit(&s->changes, memory_order_relaxed), vma);
	fault_unlock(&s->faults);
	/* What would refuse the access is asked again: the notifier may have missed that it changed. */
	return known && allowed(a, vma) ? 0 : ask_mapping(a, page, vma);
}

/* Another round for the same stretch is a lost one; one further on is progress. */
static void count_round(struct access *a, uintptr_t page)
{
	if (page < a->high)
		a->lost++;
	else
		a->high = page + 1;
}

/* The sequential access that goes on with this page, or a new one in place of the oldest. Under the lock. */
static struct odp_stream *stream_of(struct odp_region *r, uintptr_t page)
{
	struct odp_stream *st;

	for (unsigned i = 0; i < ODP_STREAMS; i++)
		if (r->stream[i].window && r->stream[i].next == page)
			return &r->stream[i];
	st = &r->stream[r->stream_hand++ % ODP_STREAMS];
	st->window = 0;
	return st;
}

/*
 * How many pages a fault brings in: what the access needs, and four times as many each time that it goes on
 * where it stopped.
 */
static unsigned widen(struct odp_stream *st, unsigned needed, unsigned most)
{
	st->window = st->window ? st->window * 4 : 1;
	if (st->window < needed)
		st->window = needed;
	if (st->window > most)
		st->window = most;
	return st->window;
}

static uintptr_t region_end(const struct odp_region *r)
{
	uintptr_t end = r->addr + r->len;

	return end < r->addr || end > TABLE_LIMIT ? TABLE_LIMIT
						  : (end + ODP_PAGE - 1) & ~(uintptr_t)(ODP_PAGE - 1);
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

/*
 * A new event for the page and what goes with it, its pages made faulting. Under the lock. NULL: no memory
 * for it.
 */
static struct fault *make_event(
	struct access *a, struct leaf *leaf, uintptr_t page, const struct vma *vma, unsigned most)
{
	uintptr_t stop = least(least(region_end(a->r), vma->end), (page | (LEAF_BYTES - 1)) + 1);
	unsigned needed = pages_to(page, least(a->va + a->n, stop)), first = leaf_page(page), pages;
	struct fault *f = fault_new(&a->s->faults, a->r, page, 1);
	struct odp_stream *st;

	if (!f)
		return NULL;
	st = stream_of(a->r, page);
	pages = widen(st, needed, most);
	if (pages > pages_to(page, stop))
		pages = pages_to(page, stop);
	f->pages = leaf_raise(leaf, first, first + pages - 1, a->write);
	st->next = page + (uintptr_t)f->pages * ODP_PAGE;
	f->needed = needed < f->pages ? needed : f->pages;
	f->write = a->write;
	f->file = vma->file;
	f->owner = a->r->owner;
	f->leaf = leaf;
	f->raised_ns = clock_ns();
	odp_count(a->s, a->r->odp, page_faults, f->needed);
	return f;
}

/* The access waits for f. Under the lock; from its release on the waiter may be told at any moment. */
static int park(struct access *a, struct fault *f, uintptr_t page, bool raiser)
{
	struct odp_waiter *w = a->w;

	w->addr = page;
	w->high = a->high;
	w->forced = a->lost;
	w->raised_ns = raiser ? f->raised_ns : clock_ns();
	w->resolved_ns = 0;
	w->result = 0;
	fault_join(f, a->r, w, raiser);
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

	if (!vma->file)
		return atomic_load_explicit(&s->swap_on, memory_order_relaxed) ? pages_not_swapped(f->addr, n)
									       : n;
	/* Telling a file system that a page of a file gets dirty may wait for its journal. */
	if (f->write && vma->shared)
		return 0;
	return page_size() == ODP_PAGE ? pages_cached(f->addr, n) : 0;
}

static void look_for_swap(struct odp_space *s)
{
	bool on = residency_swap_on(clock_ns());

	if (on != atomic_load_explicit(&s->swap_on, memory_order_relaxed))
		atomic_store_explicit(&s->swap_on, on, memory_order_relaxed);
}

/* Hands an event to the driver threads; the access waits for it. */
static int hand_over(struct access *a, struct fault *f, uintptr_t page, bool major)
{
	int err = -ECANCELED;

	fault_lock(&a->s->faults);
	f->major = major;
	/*
	 * A region that ended meanwhile has let go of the event: it is resolved for whoever else waits for
	 * it.
	 */
	if (!atomic_load_explicit(&a->r->closing, memory_order_relaxed))
		err = park(a, f, page, true);
	fault_enqueue(&a->s->faults, f);
	fault_unlock(&a->s->faults);
	odp_drivers_need(a->s);
	return err;
}

/* An event of our own: resolved here when that is cheap, or by a driver thread. */
static int see_to(struct access *a, struct fault *f, uintptr_t page, const struct vma *vma)
{
	/* A thread that may not fault cannot populate where that means touching. */
	bool able = a->path == SAFECOPY_FIXUP || mm_have(MM_POPULATE);
	unsigned cheap = cheap_pages(a->s, f, vma);
	struct odp_outcome out;

	if (!able || cheap < f->needed || cheap > a->budget)
		return hand_over(a, f, page, cheap < f->needed);
	a->budget -= cheap;
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

/* A page is not valid for the access. */
int odp_raise(struct access *a, uintptr_t page)
{
	struct fault_queue *q = &a->s->faults;
	struct leaf *leaf;
	struct fault *f;
	struct vma vma;
	int err;

	look_for_swap(a->s);
	err = mapping_of(a, page, &vma);
	if (err)
		return refuse(a, err);
	count_round(a, page);
	if (a->lost >= ODP_FORCED)
		return ODP_AGAIN;

	fault_lock(q);
	if (atomic_load_explicit(&a->r->closing, memory_order_relaxed)) {
		fault_unlock(q);
		return -ECANCELED;
	}
	leaf = pagetable_make(&a->s->table, page);
	f = leaf && leaf_state(leaf, leaf_page(page)) == PAGE_FAULTING ? fault_find(q, page) : NULL;
	if (f) {
		odp_count(a->s, a->r->odp, faults_coalesced, 1);
		err = park(a, f, page, false);
		fault_unlock(q);
		return err;
	}
	if (leaf && !page_missing(leaf, page, a->write)) {
		fault_unlock(q);
		return ODP_AGAIN;
	}
	f = leaf ? make_event(a, leaf, page, &vma, vma.file ? ODP_DRIVER_BATCH : ODP_SPOT_BATCH) : NULL;
	fault_unlock(q);
	if (f)
		return see_to(a, f, page, &vma);
	/* No memory to remember it by: the CPU's own fault does it. */
	a->lost = ODP_FORCED;
	return ODP_AGAIN;
}

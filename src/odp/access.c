/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The data path: look the pages up, copy, and when something is in the way raise a fault or repair the entry.
 *
 * The warm path is the first lines of each public function: a look (one load of the page's word behind three
 * pointers), the copy, one count. Everything else begins with the slow path, access_slow(), which turns
 * around until the access is done, has failed or waits.
 */
#include <errno.h>
#include <sys/mman.h>

#include "mm/facility.h"
#include "mm/page.h"
#include "mm/populate.h"
#include "mm/residency.h"
#include "odp/core.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Pages that one access may have populated by its own thread, and in one batch; batches of driver threads. */
#define SPOT_BUDGET  256u
#define SPOT_BATCH   64u
#define DRIVER_BATCH 512u
/* How often a copy that faults over what seems to be in order is repeated. */
#define REPEATS 64u
/* Go round again. Not an errno. */
#define AGAIN 1

struct access {
	struct odp_region *r;
	struct odp_space *s;
	struct odp_waiter *w;
	enum safecopy_path path;
	uintptr_t va;
	size_t n;
	bool write;
	/* Does it; returns n, or less with *fault. */
	size_t (*run)(struct access *a, struct safecopy_fault *fault);
	void *to;
	const void *from;
	uint64_t operand[2], *orig;

	unsigned budget; /* pages left to populate on the spot */
	unsigned repeats;
	uint32_t lost;	/* rounds lost against invalidations; ODP_FORCED: let through */
	uintptr_t high; /* the furthest page raised so far, plus 1; 0: none */
};

/* ---- look ---- */

enum look { LOOK_VALID, LOOK_AGED, LOOK_MISSING };

static inline uint64_t wanted_bits(bool write)
{
	return write ? PAGE_EACH(PAGE_WRITE) : PAGE_EACH(PAGE_PRESENT);
}

/* Whether pages of a group that are valid may have left memory since they were verified. */
static inline bool needs_verifying(
	const struct odp_space *s, const struct leaf *leaf, unsigned group, uint64_t word, uint64_t mask)
{
	if (likely(!(word & PAGE_EACH(PAGE_FILE) & mask) &&
		    !atomic_load_explicit(&s->swap_on, memory_order_relaxed)))
		return false;
	return leaf_aged(leaf, group, odp_tick());
}

/* The pages first..last of a leaf. *page: the first that is missing. */
static inline enum look look_leaf(const struct odp_space *s, const struct leaf *leaf, unsigned first,
	unsigned last, uint64_t wanted, unsigned *page)
{
	enum look seen = LOOK_VALID;

	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		uint64_t word = atomic_load_explicit(&leaf->word[g], memory_order_acquire);
		uint64_t mask = leaf_mask(g, first, last), missing = ~word & wanted & mask;

		if (unlikely(missing)) {
			*page = g * GROUP_PAGES + (unsigned)__builtin_ctzll(missing) / 8;
			return LOOK_MISSING;
		}
		if (unlikely(needs_verifying(s, leaf, g, word, mask)))
			seen = LOOK_AGED;
	}
	return seen;
}

/* All pages of an access; n > 0. *where: the first page that is missing. */
static inline enum look look(const struct odp_space *s, uintptr_t va, size_t n, bool write, uintptr_t *where)
{
	enum look seen = LOOK_VALID, here;
	uintptr_t end = va + n, at = va, stop;

	do {
		const struct leaf *leaf = pagetable_leaf(&s->table, at);
		unsigned page = leaf_page(at);

		stop = (at | (LEAF_BYTES - 1)) + 1;
		stop = stop < end ? stop : end;
		here = leaf ? look_leaf(s, leaf, page, leaf_page(stop - 1), wanted_bits(write), &page)
			    : LOOK_MISSING;
		if (unlikely(here == LOOK_MISSING)) {
			*where = (at >> LEAF_SHIFT << LEAF_SHIFT) + (uintptr_t)page * ODP_PAGE;
			return LOOK_MISSING;
		}
		if (unlikely(here == LOOK_AGED))
			seen = LOOK_AGED;
		at = stop;
	} while (unlikely(at < end));
	return seen;
}

static bool page_missing(const struct leaf *leaf, uintptr_t page, bool write)
{
	unsigned i = leaf_page(page);
	uint64_t word = atomic_load(&leaf->word[i / GROUP_PAGES]);

	return ~word & wanted_bits(write) & page_mask(i % GROUP_PAGES, i % GROUP_PAGES);
}

/* ---- verify ---- */

/*
 * Groups asked about at once where the one before has just been verified, which is how an access in sequence
 * shows.
 */
#define VERIFY_AHEAD 8u

static void verify_in_leaf(struct odp_space *s, struct leaf *leaf, uintptr_t at, uintptr_t stop)
{
	unsigned first = leaf_page(at) / GROUP_PAGES, last = leaf_page(stop - 1) / GROUP_PAGES;

	if (first && !leaf_aged(leaf, first - 1, odp_tick()) && last - first < VERIFY_AHEAD)
		last = first + VERIFY_AHEAD < LEAF_GROUPS ? first + VERIFY_AHEAD : LEAF_GROUPS - 1;
	odp_verify(s, leaf, at >> LEAF_SHIFT << LEAF_SHIFT, first, last);
}

static void verify(const struct access *a)
{
	uintptr_t at = a->va, end = a->va + a->n, stop;

	for (; at < end; at = stop) {
		struct leaf *leaf = pagetable_leaf(&a->s->table, at);

		stop = (at | (LEAF_BYTES - 1)) + 1;
		stop = stop < end ? stop : end;
		if (leaf)
			verify_in_leaf(a->s, leaf, at, stop);
	}
}

/* ---- raise ---- */

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
			.start = page, .end = page + page_size(), .read = true, .write = true, .file = true
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
	unsigned char vec[SPOT_BATCH];
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
	unsigned char swapped[SPOT_BATCH];
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
	unsigned n = f->pages < SPOT_BATCH ? f->pages : SPOT_BATCH;

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
	return out.err ? out.err : AGAIN;
}

static int refuse(const struct access *a, int err)
{
	odp_count(a->s, a->r->odp, page_faults, 1);
	odp_count(a->s, a->r->odp, faults_failed, 1);
	return err;
}

/* A page is not valid for the access. */
static int raise_fault(struct access *a, uintptr_t page)
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
		return AGAIN;

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
		return AGAIN;
	}
	f = leaf ? make_event(a, leaf, page, &vma, vma.file ? DRIVER_BATCH : SPOT_BATCH) : NULL;
	fault_unlock(q);
	if (f)
		return see_to(a, f, page, &vma);
	/* No memory to remember it by: the CPU's own fault does it. */
	a->lost = ODP_FORCED;
	return AGAIN;
}

/* ---- the way round ---- */

/* The copy stopped although the table said that it may go on, or was let through and found an obstacle. */
static int stale(struct access *a, const struct safecopy_fault *fault)
{
	uintptr_t page = fault->addr & ~(uintptr_t)(ODP_PAGE - 1);
	int err;

	if (++a->repeats > REPEATS)
		return -EFAULT;
	if (a->lost < ODP_FORCED) {
		odp_count(a->s, a->r->odp, faults_stale, 1);
		odp_space_invalidate(a->s, page, ODP_PAGE, ODP_STALE);
		return AGAIN;
	}
	err = populate((void *)page_down(page), page_size(), a->write);
	if (!err || err == -EAGAIN)
		return AGAIN;
	odp_count(a->s, a->r->odp, faults_failed, 1);
	return err == -ENOMEM ? -EFAULT : err;
}

static int go_round(struct access *a)
{
	struct safecopy_fault fault;
	uintptr_t page;

	if (atomic_load_explicit(&a->r->closing, memory_order_acquire))
		return -ECANCELED;
	if (a->write && !a->r->writable)
		return -EACCES;
	if (a->lost < ODP_FORCED) {
		switch (look(a->s, a->va, a->n, a->write, &page)) {
		case LOOK_MISSING:
			return raise_fault(a, page);
		case LOOK_AGED:
			verify(a);
			return AGAIN;
		case LOOK_VALID:
			break;
		}
	}
	return a->run(a, &fault) == a->n ? 0 : stale(a, &fault);
}

/* The step retry of an access that has waited. */
static void record_retry(struct access *a)
{
	struct hist *step = a->s->cfg.step_ns[a->w->major];
	uint64_t now;

	if (!a->w->resolved_ns)
		return;
	now = clock_ns();
	hist_add(&step[UNPIN_STEP_RESUME], now - a->w->resolved_ns);
	hist_add(&step[UNPIN_STEP_TOTAL], now - a->w->raised_ns);
}

/*
 * What the fault that it has waited for has come to, if that was the end. A region that ended may be open
 * again.
 */
static int told_result(struct odp_waiter *w)
{
	int result = w->raised_ns && w->result != -ECANCELED ? w->result : 0;

	if (w->raised_ns && w->result)
		fault_forget(w);
	return result;
}

static int access_slow(struct access *a)
{
	struct odp_waiter *w = a->w;
	int err = told_result(w);

	if (err)
		return err;
	a->s = a->r->space;
	a->budget = SPOT_BUDGET;
	a->lost = w->forced;
	a->high = w->high;
	record_retry(a);
	w->raised_ns = w->resolved_ns = 0;
	do
		err = go_round(a);
	while (err == AGAIN);
	if (err != -EINPROGRESS) {
		/*
		 * It does not wait (otherwise it could be told, and used again, by now): the next access
		 * begins anew.
		 */
		fault_forget(w);
	}
	return err;
}

static size_t run_in(struct access *a, struct safecopy_fault *fault)
{
	return safecopy_to_user(a->path, (void *)a->va, a->from, a->n, fault);
}

static size_t run_out(struct access *a, struct safecopy_fault *fault)
{
	return safecopy_from_user(a->path, a->to, (const void *)a->va, a->n, fault);
}

static size_t run_cmp_swap(struct access *a, struct safecopy_fault *fault)
{
	return safecopy_cmp_swap(a->path, (uint64_t *)a->va, a->operand[0], a->operand[1], a->orig, fault)
		       ? 0
		       : a->n;
}

static size_t run_fetch_add(struct access *a, struct safecopy_fault *fault)
{
	return safecopy_fetch_add(a->path, (uint64_t *)a->va, a->operand[0], a->orig, fault) ? 0 : a->n;
}

/* An access inside one group of pages that never leave memory, as most are. */
static inline bool plainly_valid(const struct odp_space *s, uintptr_t va, size_t n, bool write)
{
	const unsigned shift = ODP_PAGE_SHIFT + 3;
	const struct leaf *leaf = pagetable_leaf(&s->table, va);
	uint64_t word, mask;

	if (unlikely(!leaf || va >> shift != (va + n - 1) >> shift))
		return false;
	mask = page_mask(leaf_page(va) % GROUP_PAGES, leaf_page(va + n - 1) % GROUP_PAGES);
	word = atomic_load_explicit(&leaf->word[leaf_page(va) / GROUP_PAGES], memory_order_acquire);
	return !((~word & wanted_bits(write)) & mask) && !(word & PAGE_EACH(PAGE_FILE) & mask) &&
	       !atomic_load_explicit(&s->swap_on, memory_order_relaxed);
}

/* Whether an access may go at once: it is not a retry, the region is open, the pages are valid. */
static inline bool warm(
	const struct odp_region *r, uintptr_t va, size_t n, bool write, const struct odp_waiter *w)
{
	uintptr_t page;

	if (unlikely(w->raised_ns || (write && !r->writable) ||
		     atomic_load_explicit(&r->closing, memory_order_acquire)))
		return false;
	return likely(plainly_valid(r->space, va, n, write)) ||
	       look(r->space, va, n, write, &page) == LOOK_VALID;
}

int odp_copy_in(struct odp_region *r, enum safecopy_path path, uintptr_t va, const void *buf, size_t n,
	struct odp_waiter *w)
{
	struct access a;
	int err = 0;

	if (unlikely(path == SAFECOPY_NONE))
		return -EAGAIN;
	if (unlikely(!n))
		return 0;
	/* A copy that faults is begun again by the slow path, which will meet the same fault. */
	if (!warm(r, va, n, true, w) || unlikely(safecopy_to_user(path, (void *)va, buf, n, NULL) != n)) {
		a = (struct access){ .r = r,
			.w = w,
			.path = path,
			.va = va,
			.n = n,
			.write = true,
			.run = run_in,
			.from = buf };
		err = access_slow(&a);
	}
	if (likely(!err))
		counter_add(&r->odp->bytes_in, n);
	return err;
}

int odp_copy_out(struct odp_region *r, enum safecopy_path path, uintptr_t va, void *buf, size_t n,
	struct odp_waiter *w)
{
	struct access a;
	int err = 0;

	if (unlikely(path == SAFECOPY_NONE))
		return -EAGAIN;
	if (unlikely(!n))
		return 0;
	if (!warm(r, va, n, false, w) ||
		unlikely(safecopy_from_user(path, buf, (const void *)va, n, NULL) != n)) {
		a = (struct access){
			.r = r, .w = w, .path = path, .va = va, .n = n, .run = run_out, .to = buf
		};
		err = access_slow(&a);
	}
	if (likely(!err))
		counter_add(&r->odp->bytes_out, n);
	return err;
}

static int atomic_access(struct access *a)
{
	int err;

	/* There is no atomic by system call. */
	if (a->path != SAFECOPY_FIXUP)
		return -EAGAIN;
	a->n = 8;
	a->write = true;
	err = access_slow(a);
	if (!err) {
		counter_add(&a->r->odp->bytes_in, 8);
		counter_add(&a->r->odp->bytes_out, 8);
	}
	return err;
}

int odp_cmp_swap(struct odp_region *r, enum safecopy_path path, uintptr_t va, uint64_t compare, uint64_t swap,
	uint64_t *orig, struct odp_waiter *w)
{
	struct access a = { .r = r,
		.w = w,
		.path = path,
		.va = va,
		.run = run_cmp_swap,
		.operand = { compare, swap },
		.orig = orig };

	return atomic_access(&a);
}

int odp_fetch_add(struct odp_region *r, enum safecopy_path path, uintptr_t va, uint64_t add, uint64_t *orig,
	struct odp_waiter *w)
{
	struct access a = {
		.r = r, .w = w, .path = path, .va = va, .run = run_fetch_add, .operand = { add }, .orig = orig
	};

	return atomic_access(&a);
}

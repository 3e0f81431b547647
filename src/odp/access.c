/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The data path: look the pages up, copy, and when something is in the way raise a fault or repair the entry.
 *
 * The warm path is the first lines of each public function: a look (one load of the page's word behind three
 * pointers), the copy, one count. Everything else begins with the slow path, access_slow(), which turns
 * around until the access is done, has failed or waits.
 */
#include <errno.h>

#include "mm/page.h"
#include "mm/populate.h"
#include "odp/raise.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* How often a copy that faults over what seems to be in order is repeated. */
#define REPEATS 64u

/* ---- look ---- */

enum look { LOOK_VALID, LOOK_AGED, LOOK_MISSING };

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
		here = leaf ? look_leaf(s, leaf, page, leaf_page(stop - 1), page_wanted(write), &page)
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
		return ODP_AGAIN;
	}
	err = populate((void *)page_down(page), page_size(), a->write);
	if (!err || err == -EAGAIN)
		return ODP_AGAIN;
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
			return odp_raise(a, page);
		case LOOK_AGED:
			verify(a);
			return ODP_AGAIN;
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

/* Goes on where the waiter's last access stopped. */
static void take_up(struct access *a)
{
	struct odp_waiter *w = a->w;

	a->lost = w->forced;
	a->high = w->high;
	a->imprecise = w->imprecise;
	record_retry(a);
	w->raised_ns = w->resolved_ns = 0;
}

static int access_slow(struct access *a)
{
	struct odp_waiter *w = a->w;
	int err = w ? told_result(w) : 0;

	if (err)
		return err;
	a->s = a->r->space;
	a->budget = ODP_SPOT_BUDGET;
	if (w)
		take_up(a);
	do
		err = go_round(a);
	while (err == ODP_AGAIN);
	if (w && err != -EINPROGRESS) {
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
	return !((~word & page_wanted(write)) & mask) && !(word & PAGE_EACH(PAGE_FILE) & mask) &&
	       !atomic_load_explicit(&s->swap_on, memory_order_relaxed);
}

/* Whether an access may go at once: it is not a retry, the region is open, the pages are valid. */
static inline bool warm(
	const struct odp_region *r, uintptr_t va, size_t n, bool write, const struct odp_waiter *w)
{
	uintptr_t page;

	if (unlikely((w && w->raised_ns) || (write && !r->writable) ||
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

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The step raise. A page that is not valid for an access becomes a fault event, or its access joins one under
 * way.
 */
#ifndef UNPIN_ODP_RAISE_H
#define UNPIN_ODP_RAISE_H

#include "odp/core.h"

/* Pages that one access may have populated by its own thread, and in one batch; batches of driver threads. */
#define ODP_SPOT_BUDGET	 256u
#define ODP_SPOT_BATCH	 64u
#define ODP_DRIVER_BATCH 512u
/* Go round again. Not an errno. */
#define ODP_AGAIN 1

struct access {
	struct odp_region *r;
	struct odp_space *s;
	struct odp_waiter *w; /* NULL: it does not wait */
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
	bool imprecise; /* its last event was */
};

/*
 * The page is not valid for the access. ODP_AGAIN: something has changed, look again. -EINPROGRESS: a->w is
 * queued, or the fault is and there is none. -EACCES, -EFAULT: it cannot be (counted). -ECANCELED: the region
 * is closing. Without locks.
 */
int odp_raise(struct access *a, uintptr_t page);

/* ---- the parts, for whoever makes pages valid without an access ---- */

/*
 * What the page belongs to. 0; -EFAULT: a hole, or memory of the kernel or of a kind that it makes
 * ([vdso] ...); -EACCES: the mapping forbids it. Without locks.
 */
int odp_mapping(struct odp_space *s, uintptr_t page, bool write, struct vma *vma);

/*
 * A new event of region r for the page, which is not valid for it nor faulting, with up to `most` pages of
 * the leaf, the region and the mapping that follow it, as long as they are not valid either; on hugetlb
 * memory all of the leaf. needed: how many of them are asked for; they are counted. NULL: no memory for it.
 * Under the fault queue's lock. The caller enqueues or resolves it.
 */
struct fault *odp_event(struct odp_region *r, struct leaf *leaf, uintptr_t page, const struct vma *vma,
	unsigned needed, unsigned most, bool write);

/*
 * The same for just these pages, or as many of them as can be had, without the stream and the counters: the
 * caller fills f->needed.
 */
struct fault *odp_event_over(struct odp_region *r, struct leaf *leaf, uintptr_t page, const struct vma *vma,
	unsigned pages, bool write);

/*
 * The region has as many events under way as it may: a->w waits for room, and then comes for this page as if
 * it had not been here, as it was before (counted). Under the lock, as odp_park(). -EINPROGRESS.
 */
int odp_wait_for_room(struct access *a, uintptr_t page, const struct access *before);

/* An event of a waiter with scan(), which names no page. ODP_AGAIN: no memory for one. Else as odp_raise().
 */
int odp_raise_imprecise(struct access *a, uintptr_t page);

/* Keeps w for f. Under the lock; from its release on the waiter may be told at any moment. -EINPROGRESS. */
int odp_park(struct access *a, struct fault *f, uintptr_t page, bool raiser);

/* The end of the region, or of the table: whole pages. */
static inline uintptr_t odp_region_end(const struct odp_region *r)
{
	uintptr_t end = r->addr + r->len;

	return end < r->addr || end > TABLE_LIMIT ? TABLE_LIMIT
						  : (end + ODP_PAGE - 1) & ~(uintptr_t)(ODP_PAGE - 1);
}

#endif

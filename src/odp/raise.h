/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* An access on its slow path, and the step raise: shared by access.c and raise.c. */
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

/*
 * The page is not valid for the access. ODP_AGAIN: something has changed, look again. -EINPROGRESS: a->w is
 * queued. -EACCES, -EFAULT: it cannot be (counted). -ECANCELED: the region is closing. Without locks.
 */
int odp_raise(struct access *a, uintptr_t page);

#endif

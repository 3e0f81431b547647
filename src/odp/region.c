/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Regions: windows on the space. */
#include "odp/core.h"

static uintptr_t first_page(const struct odp_region *r)
{
	return r->addr >> ODP_PAGE_SHIFT << ODP_PAGE_SHIFT;
}

/* Does not wrap: the last page of the address space is never an application's. */
static uintptr_t end_page(const struct odp_region *r)
{
	uintptr_t end = r->addr + r->len;

	if (end < r->addr || end > TABLE_LIMIT)
		return TABLE_LIMIT;
	return (end + ODP_PAGE - 1) >> ODP_PAGE_SHIFT << ODP_PAGE_SHIFT;
}

void odp_region_init(struct odp_region *r)
{
	struct odp_space *s = r->space;

	list_init(&r->node);
	list_init(&r->waiters);
	list_init(&r->faults);
	for (unsigned i = 0; i < ODP_STREAMS; i++)
		r->stream[i] = (struct odp_stream){ 0, 0 };
	r->stream_hand = 0;
	r->folded_in = atomic_load_explicit(&r->odp->bytes_in, memory_order_relaxed);
	r->folded_out = atomic_load_explicit(&r->odp->bytes_out, memory_order_relaxed);
	fault_lock(&s->faults);
	r->owner = owner_take(&s->owners, first_page(r), end_page(r), r->odp);
	list_add_tail(&s->regions, &r->node);
	fault_unlock(&s->faults);
	atomic_store(&r->closing, false);
}

void odp_region_fold(struct odp_region *r)
{
	struct unpin_odp_counters *totals = r->space->cfg.totals;
	uint64_t in = atomic_load_explicit(&r->odp->bytes_in, memory_order_relaxed);
	uint64_t out = atomic_load_explicit(&r->odp->bytes_out, memory_order_relaxed);

	if (in != r->folded_in)
		counter_add(&totals->bytes_in, in - r->folded_in);
	if (out != r->folded_out)
		counter_add(&totals->bytes_out, out - r->folded_out);
	r->folded_in = in;
	r->folded_out = out;
}

void odp_region_fini(struct odp_region *r)
{
	struct odp_space *s = r->space;
	struct list told = LIST_INIT(told);

	fault_lock(&s->faults);
	atomic_store(&r->closing, true);
	list_del(&r->node);
	fault_region_end(r, &told);
	owner_give(&s->owners, r->owner);
	odp_region_fold(r);
	fault_unlock(&s->faults);
	fault_tell(&told);
	odp_space_invalidate(s, first_page(r), end_page(r) - first_page(r), ODP_DEREG);
}

bool odp_cancel(struct odp_waiter *w)
{
	bool waiting;

	/* Never waited since it was zeroed. */
	if (!w->space)
		return true;
	fault_lock(&w->space->faults);
	waiting = w->fault;
	if (waiting)
		fault_leave(w);
	fault_forget(w);
	fault_unlock(&w->space->faults);
	return waiting;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Facts, and what of them is one thing to the application. */
#include <stdlib.h>
#include <string.h>

#include "tool/advise.h"
#include "tool/alloc.h"

struct advise_region *advise_add(struct advise_facts *f)
{
	if (f->regions == f->room) {
		f->room = f->room ? 2 * f->room : 16;
		f->region = alloc_grow(f->region, f->room, sizeof(*f->region));
	}
	memset(&f->region[f->regions], 0, sizeof(*f->region));
	return &f->region[f->regions++];
}

void advise_facts_free(struct advise_facts *f)
{
	free(f->region);
	memset(f, 0, sizeof(*f));
}

/* --- taking together
 * ----------------------------------------------------------------------------------------- */

static uint64_t add_bounded(uint64_t a, uint64_t b)
{
	return a + b < a ? UINT64_MAX : a + b;
}

uint64_t advise_pages_of(const struct advise_region *r)
{
	uint64_t first = r->addr / ADVISE_PAGE, last = (r->addr + (r->length - 1)) / ADVISE_PAGE;

	if (!r->length || r->kind == UNPIN_REGION_IMPLICIT || r->addr + (r->length - 1) < r->addr)
		return 0;
	return last - first + 1;
}

/* The other's numbers go to r. same: it is the same memory. */
static void fold_into(struct advise_region *r, const struct advise_region *other, bool same)
{
	const uint64_t most = same ? advise_pages_of(r) : UINT64_MAX;

	r->live |= same && other->live;
	r->times = add_bounded(r->times, other->times);
	r->register_ns = add_bounded(r->register_ns, other->register_ns);
	r->lived_ns = add_bounded(r->lived_ns, other->lived_ns);
	for (int i = 0; i < ADVISE_COUNTERS; i++)
		r->odp[i] = add_bounded(r->odp[i], other->odp[i]);
	r->accesses = add_bounded(r->accesses, other->accesses);
	r->sequential = add_bounded(r->sequential, other->sequential);
	if (same) {
		r->pages = r->pages > other->pages ? r->pages : other->pages;
		r->pages = most && r->pages > most ? most : r->pages;
	} else {
		r->places += other->places;
		r->pages = add_bounded(r->pages, other->pages);
	}
	r->fault_ns_known = r->fault_ns_known && other->fault_ns_known;
	r->fault_ns = add_bounded(r->fault_ns, other->fault_ns);
	if (r->slice_bytes != other->slice_bytes || (same && r->base != other->base)) {
		r->slice_bytes = 0;
		return;
	}
	for (unsigned i = 0; i < USAGE_SLICES; i++)
		r->slice[i] = r->slice[i] + other->slice[i] < r->slice[i] ? UINT32_MAX
									  : r->slice[i] + other->slice[i];
}

static int compare64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* Those that may be one thing side by side; of one range, the live one first. */
static int by_sort(const void *a, const void *b)
{
	const struct advise_region *x = a, *y = b;
	int order = compare64(x->kind, y->kind);

	order = order ? order : compare64(x->access, y->access);
	order = order ? order : compare64(x->length, y->length);
	order = order ? order : compare64(x->addr, y->addr);
	return order ? order : compare64(y->live, x->live);
}

static bool same_sort(const struct advise_region *a, const struct advise_region *b)
{
	return a->kind == b->kind && a->access == b->access && a->length == b->length;
}

/* A range that is registered twice at once is two regions. */
static void fold_ranges(struct advise_facts *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->regions; i++) {
		struct advise_region *last = n ? &f->region[n - 1] : NULL, *r = &f->region[i];

		if (last && same_sort(last, r) && last->addr == r->addr && !r->live)
			fold_into(last, r, true);
		else
			f->region[n++] = *r;
	}
	f->regions = n;
}

/* Registered no more, or registered at this moment only: it has come and gone often before. */
static bool comes_and_goes(const struct advise_region *r)
{
	return !r->live || r->times >= ADVISE_OFTEN;
}

/* Ranges of one sort that come and go, when they are many. */
static void fold_places(struct advise_facts *f)
{
	size_t n = 0, i = 0;

	while (i < f->regions) {
		size_t end = i, gone = 0, into = SIZE_MAX;

		for (; end < f->regions && same_sort(&f->region[i], &f->region[end]); end++)
			gone += comes_and_goes(&f->region[end]);
		for (; i < end; i++) {
			struct advise_region *r = &f->region[i];

			if (gone < ADVISE_PLACES || !comes_and_goes(r)) {
				f->region[n++] = *r;
			} else if (into == SIZE_MAX) {
				into = n;
				f->region[n] = *r;
				f->region[n++].live = false;
			} else {
				fold_into(&f->region[into], r, false);
			}
		}
	}
	f->regions = n;
}

void advise_fold(struct advise_facts *f)
{
	if (!f->regions)
		return;
	qsort(f->region, f->regions, sizeof(*f->region), by_sort);
	fold_ranges(f);
	fold_places(f);
}

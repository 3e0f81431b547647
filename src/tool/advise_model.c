/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* From facts to verdicts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tool/advise.h"
#include "tool/alloc.h"

/* Fewer accesses say nothing about how memory is used. */
#define ENOUGH 64u
/* Memory that was not used for so long is taken for unused. */
#define UNUSED_NS 2000000000ull
/* Registrations of one range that are more than a program's starting up and reconnecting... */
#define AGAIN 16u
/* ...if each stands for less than this. */
#define AGAIN_NS 1000000000ull
/* Each page faulted so often: it does not stay. */
#define REFAULTS 3.0
/* Of the fault events of such memory: that needed a driver thread, since the page had to be read back. */
#define RECLAIMED_SHARE 0.25
/* Accesses per page: from here on it pays to keep a page, below there it is used once or twice. */
#define HOT_USES 16.0
#define FEW_USES 4.0
/* A hot part is at most so much of a region of at least so much, and has this share of the accesses. */
#define HOT_PART     0.3
#define HOT_LEAST    (1ull << 20)
#define HOT_ACCESSES 0.9
#define TOUCHED_MOST 0.5 /* less of it touched: sparse... */
#define SPARSE_LEAST                                                                                         \
	(1ull << 20)		    /* ...if it is not so small that nothing is gained by not pinning it all \
				     */
#define SEQUENCE_LEAST (256u << 10) /* bytes in a row that make a sequence */
#define STREAM_PAGES   256u

const char *const advise_counter_names[ADVISE_COUNTERS] = {
#define X(field, name, what) [ADVISE_##field] = name,
	UNPIN_ODP_COUNTERS(X)
#undef X
};

/* --- what it is
 * ---------------------------------------------------------------------------------------------- */

static double bytes_of(const struct advise_region *r)
{
	return (double)r->odp[ADVISE_bytes_in] + (double)r->odp[ADVISE_bytes_out];
}

/* Pages that accesses went to, one after the other. */
static double visits_of(const struct advise_region *r)
{
	double by_bytes = bytes_of(r) / ADVISE_PAGE, by_accesses = (double)r->accesses;

	return by_bytes > by_accesses ? by_bytes : by_accesses;
}

/* Pages made valid, by whatever. */
static double brought_in(const struct advise_region *r)
{
	return (double)r->odp[ADVISE_page_faults_handled] + (double)r->odp[ADVISE_page_readahead] +
	       (double)r->odp[ADVISE_page_prefetch];
}

static void describe(struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	uint64_t pages = advise_pages_of(r);
	double broken = (double)r->accesses - (double)r->sequential;

	v->touched = pages ? (double)r->pages / ((double)pages * r->places) : -1;
	v->touched = v->touched > 1 ? 1 : v->touched;
	v->reuse = r->pages ? visits_of(r) / (double)r->pages : 0;
	v->run = r->accesses ? bytes_of(r) / (broken > 1 ? broken : 1) : 0;
	v->refaults = r->pages ? brought_in(r) / (double)r->pages : 0;
	if (r->accesses < ENOUGH)
		v->pattern = ADVISE_NO_PATTERN;
	else if (v->run >= SEQUENCE_LEAST || (r->sequential * 2 > r->accesses && r->pages &&
						     v->run * 2 >= (double)r->pages * ADVISE_PAGE))
		v->pattern = ADVISE_IN_SEQUENCE;
	else if (v->reuse >= HOT_USES)
		v->pattern = ADVISE_REPEATED;
	else
		v->pattern = ADVISE_AT_RANDOM;
}

static int compare64(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* --- the hot part
 * -------------------------------------------------------------------------------------------- */

struct slice {
	unsigned index;
	uint32_t accesses;
};

static int by_accesses(const void *a, const void *b)
{
	const struct slice *x = a, *y = b;

	return compare64(y->accesses, x->accesses);
}

/* The busiest slices up to HOT_ACCESSES of all, marked; returns their share of the accesses. */
static double mark_hot(const struct advise_region *r, bool hot[USAGE_SLICES], unsigned *count)
{
	struct slice s[USAGE_SLICES];
	double all = 0, sum = 0;

	for (unsigned i = 0; i < USAGE_SLICES; i++) {
		s[i] = (struct slice){ i, r->slice[i] };
		all += r->slice[i];
	}
	qsort(s, USAGE_SLICES, sizeof(s[0]), by_accesses);
	for (*count = 0; *count < USAGE_SLICES && sum < HOT_ACCESSES * all; ++*count) {
		hot[s[*count].index] = true;
		sum += s[*count].accesses;
	}
	return all > 0 ? sum / all : 0;
}

/* Neighbours as one range, bounded by the region. false: they are too many. */
static bool list_hot(struct advise_verdict *v, const bool hot[USAGE_SLICES])
{
	const struct advise_region *r = v->region;
	uint64_t skew = r->addr - r->base;

	for (unsigned i = 0; i < USAGE_SLICES; i++) {
		uint64_t from = i * r->slice_bytes, to = from + r->slice_bytes;
		struct advise_range *last = v->hots ? &v->hot[v->hots - 1] : NULL;

		if (!hot[i])
			continue;
		from = from > skew ? from - skew : 0;
		to = to - skew < r->length ? to - skew : r->length;
		if (from >= to)
			continue;
		if (last && last->offset + last->length == from) {
			last->length += to - from;
		} else {
			if (v->hots == ADVISE_HOT_RANGES)
				return false;
			v->hot[v->hots++] = (struct advise_range){ from, to - from };
		}
		v->hot_bytes += to - from;
	}
	return v->hots > 0;
}

static void find_hot(struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	bool hot[USAGE_SLICES] = { false };
	unsigned count;

	if (!r->slice_bytes || r->length < HOT_LEAST || r->places > 1 || r->addr < r->base ||
		r->addr - r->base >= ADVISE_PAGE || r->slice_bytes > r->length)
		return;
	v->hot_share = mark_hot(r, hot, &count);
	/* Each of its pages, whether all of them were used or not. */
	if (!list_hot(v, hot) || (double)v->hot_bytes > HOT_PART * (double)r->length ||
		v->hot_share * visits_of(r) < HOT_USES * (double)v->hot_bytes / ADVISE_PAGE) {
		v->hots = 0;
		v->hot_bytes = 0;
	}
}

/* --- what it should be
 * --------------------------------------------------------------------------------------- */

static void say(struct advise_verdict *v, enum advise_should should, enum advise_why why)
{
	v->should = v->as = should;
	v->why = why;
}

static bool is_pinned(const struct advise_verdict *v)
{
	return v->region->kind == UNPIN_REGION_PINNED;
}

/* Pages come and go. */
static bool never_stays(const struct advise_verdict *v)
{
	const uint64_t *odp = v->region->odp;

	return v->refaults >= REFAULTS && odp[ADVISE_page_invalidations_handled] > v->region->pages;
}

/* They had to be read back: the kernel had taken them. What an application drops comes back as zeroes. */
static bool was_reclaimed(const struct advise_region *r)
{
	double minor = (double)r->odp[ADVISE_faults_minor], major = (double)r->odp[ADVISE_faults_major];

	return major > 0 && major >= RECLAIMED_SHARE * (minor + major);
}

static bool is_hot(const struct advise_verdict *v)
{
	return v->reuse >= HOT_USES && (v->touched >= TOUCHED_MOST || v->region->length < SPARSE_LEAST);
}

static void judge_unsettled(struct advise_verdict *v)
{
	if (!was_reclaimed(v->region))
		say(v, v->pattern == ADVISE_IN_SEQUENCE ? ADVISE_PREFETCH : ADVISE_ON_DEMAND,
			ADVISE_GIVEN_BACK);
	else if (v->hots)
		say(v, ADVISE_LOCK_HOT, ADVISE_RECLAIMED);
	else if (is_hot(v))
		say(v, ADVISE_PINNED, ADVISE_RECLAIMED);
	else
		say(v, v->pattern == ADVISE_IN_SEQUENCE ? ADVISE_PREFETCH : ADVISE_ON_DEMAND,
			ADVISE_RECLAIMED);
}

static void judge_use(struct advise_verdict *v)
{
	const struct advise_region *r = v->region;

	if (!r->accesses)
		say(v, r->lived_ns / r->times < UNUSED_NS && r->live ? ADVISE_UNSURE : ADVISE_ON_DEMAND,
			r->lived_ns / r->times < UNUSED_NS && r->live ? ADVISE_TOO_YOUNG : ADVISE_UNUSED);
	else if (r->accesses < ENOUGH || !r->pages)
		say(v, ADVISE_UNSURE, ADVISE_TOO_LITTLE);
	else if (never_stays(v))
		judge_unsettled(v);
	else if (v->hots)
		say(v, ADVISE_LOCK_HOT, ADVISE_HOT_PART);
	else if (is_hot(v))
		say(v, ADVISE_PINNED, ADVISE_HOT);
	else if (v->pattern == ADVISE_IN_SEQUENCE && v->reuse < FEW_USES &&
		 r->pages / r->places >= STREAM_PAGES)
		say(v, ADVISE_PREFETCH, ADVISE_STREAM);
	else if (v->touched >= 0 && v->touched < TOUCHED_MOST)
		say(v, ADVISE_ON_DEMAND, ADVISE_SPARSE);
	else if (v->reuse < FEW_USES)
		say(v, ADVISE_ON_DEMAND, ADVISE_FEW_USES);
	else
		say(v, is_pinned(v) ? ADVISE_PINNED : ADVISE_ON_DEMAND, ADVISE_EITHER);
}

/* An implicit region is on demand by nature, and all of it is never anything else. */
static void judge_implicit(struct advise_verdict *v)
{
	judge_use(v);
	if (v->should == ADVISE_PINNED || v->should == ADVISE_LOCK_HOT)
		v->should = v->as = ADVISE_ON_DEMAND;
	if (v->why == ADVISE_SPARSE || v->why == ADVISE_FEW_USES || v->why == ADVISE_HOT)
		v->why = ADVISE_EITHER;
}

static bool again_and_again(const struct advise_region *r)
{
	return r->times >= AGAIN && r->lived_ns / r->times < AGAIN_NS;
}

static bool is_same(const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;

	switch (v->should) {
	case ADVISE_PINNED:
		return is_pinned(v);
	case ADVISE_ON_DEMAND:
		return !is_pinned(v);
	case ADVISE_PREFETCH:
		return !is_pinned(v) && r->odp[ADVISE_page_prefetch] &&
		       (double)r->odp[ADVISE_page_prefetch] * 2 >= brought_in(r);
	default:
		return false;
	}
}

/* --- what is gained
 * ------------------------------------------------------------------------------------------ */

static double pages_or_0(const struct advise_region *r)
{
	return (double)advise_pages_of(r);
}

static double known(double cost)
{
	return cost > 0 ? cost : NAN;
}

/* What one registration takes, as seen or as it would be. */
static double registering(const struct advise_region *r, const struct advise_costs *c, bool pinned)
{
	if (pinned == (r->kind == UNPIN_REGION_PINNED))
		return (double)r->register_ns / (double)r->times;
	return pinned ? known(c->register_call) + known(c->pin_page) * pages_or_0(r)
		      : known(c->register_call);
}

static double faults_seen(const struct advise_region *r)
{
	if (!r->odp[ADVISE_page_faults])
		return 0;
	return r->fault_ns_known ? (double)r->fault_ns : NAN;
}

static void gain_once(struct advise_verdict *v)
{
	const struct advise_region *r = v->region;

	v->register_ns = (double)r->register_ns * (double)(r->times - 1) / (double)r->times;
	/* All but the first touch of each page; a pinned region had none. */
	v->fault_ns = v->refaults > 1 ? faults_seen(r) * (1 - 1 / v->refaults) : 0;
}

static void gain_from_pinned(struct advise_verdict *v, const struct advise_costs *c)
{
	const struct advise_region *r = v->region;
	double hot = (double)v->hot_bytes / ADVISE_PAGE, cold = (double)r->pages - hot;

	v->locked_bytes = r->live ? pages_or_0(r) * ADVISE_PAGE : 0;
	v->register_ns = (double)r->register_ns - (double)r->times * registering(r, c, false);
	if (v->should == ADVISE_LOCK_HOT) {
		v->locked_bytes -= r->live ? (double)v->hot_bytes : 0;
		v->register_ns -= hot * known(c->pin_page);
		v->fault_ns = cold > 0 ? -cold * known(c->fault_page) : 0;
	} else {
		/* In sequence, pages are brought in many at a time. */
		v->fault_ns = r->pages ? -(double)r->pages * known(v->pattern == ADVISE_IN_SEQUENCE
									     ? c->populate_page
									     : c->fault_page)
				       : 0;
		if (v->should == ADVISE_PREFETCH)
			v->fault_ns = 0;
	}
}

static void gain_from_on_demand(struct advise_verdict *v, const struct advise_costs *c)
{
	const struct advise_region *r = v->region;

	switch (v->should) {
	case ADVISE_PINNED:
		v->register_ns = (double)r->register_ns - (double)r->times * registering(r, c, true);
		v->locked_bytes = r->live ? -pages_or_0(r) * ADVISE_PAGE : 0;
		v->fault_ns = faults_seen(r);
		break;
	case ADVISE_PREFETCH:
		v->fault_ns = faults_seen(r);
		break;
	case ADVISE_LOCK_HOT:
		v->locked_bytes = r->live ? -(double)v->hot_bytes : 0;
		v->fault_ns = v->refaults > 1 ? faults_seen(r) * (1 - 1 / v->refaults) : 0;
		break;
	default:
		break;
	}
}

static void judge_gain(struct advise_verdict *v, const struct advise_costs *c)
{
	double page = c->populate_page > 0 ? c->populate_page : 1000, sum = 0;

	if (v->same || v->should == ADVISE_UNSURE)
		return;
	if (v->should == ADVISE_ONCE || v->should == ADVISE_IMPLICIT)
		gain_once(v);
	else if (is_pinned(v))
		gain_from_pinned(v, c);
	else
		gain_from_on_demand(v, c);
	sum += isnan(v->register_ns) ? 0 : v->register_ns;
	sum += isnan(v->fault_ns) ? 0 : v->fault_ns;
	/* Locked memory that is asked for is the price, not the point. */
	sum += v->locked_bytes > 0 ? v->locked_bytes / ADVISE_PAGE * page : 0;
	v->score = sum;
}

void advise_judge(struct advise_verdict *v, const struct advise_region *r, const struct advise_costs *c)
{
	memset(v, 0, sizeof(*v));
	v->region = r;
	describe(v);
	find_hot(v);
	if (r->kind == UNPIN_REGION_IMPLICIT)
		judge_implicit(v);
	else
		judge_use(v);
	if (again_and_again(r)) {
		/* Memory that is kept is used as often as all its lives together. */
		v->should = r->places >= ADVISE_PLACES ? ADVISE_IMPLICIT : ADVISE_ONCE;
		v->as = v->as == ADVISE_UNSURE ? (is_pinned(v) ? ADVISE_PINNED : ADVISE_ON_DEMAND) : v->as;
		v->why = ADVISE_AGAIN_AND_AGAIN;
	}
	v->same = is_same(v);
	judge_gain(v, c);
}

/* 0: to be changed, 1: as it should be, 2: not known. */
static int rank(const struct advise_verdict *v)
{
	return v->should == ADVISE_UNSURE ? 2 : v->same;
}

static int by_gain(const void *a, const void *b)
{
	const struct advise_verdict *x = a, *y = b;

	if (rank(x) != rank(y))
		return rank(x) < rank(y) ? -1 : 1;
	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	if (x->region->length != y->region->length)
		return compare64(y->region->length, x->region->length);
	return compare64(x->region->addr, y->region->addr);
}

struct advise_verdict *advise_judge_all(const struct advise_facts *f, const struct advise_costs *c)
{
	struct advise_verdict *v = alloc_array(f->regions + 1, sizeof(*v));

	for (size_t i = 0; i < f->regions; i++)
		advise_judge(&v[i], &f->region[i], c);
	qsort(v, f->regions, sizeof(*v), by_gain);
	return v;
}

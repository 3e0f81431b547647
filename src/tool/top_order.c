/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* In which order a view's lists are, and what of them is shown. Pure functions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/top.h"

const char *const top_key_names[TOP_KEYS] = {
	[TOP_BY_FAULTS] = "faults",
	[TOP_BY_MAJORS] = "major",
	[TOP_BY_INVALIDATIONS] = "invalidations",
	[TOP_BY_PREFETCH] = "prefetch",
	[TOP_BY_AHEAD] = "readahead",
	[TOP_BY_BYTES] = "bytes",
	[TOP_BY_RESIDENT] = "resident",
	[TOP_BY_LENGTH] = "length",
	[TOP_BY_ADDRESS] = "address",
};

enum top_key top_key_named(const char *name)
{
	enum top_key k = 0;

	while (k < TOP_KEYS && strcmp(name, top_key_names[k]) != 0)
		k++;
	return k;
}

/* --- order -----------------------------------------------------------------------------------------------
 */

struct order {
	enum top_key key;
	bool backwards;
};

static double weight(const struct top_region_view *v, enum top_key key)
{
	switch (key) {
	case TOP_BY_FAULTS:
		return v->faults;
	case TOP_BY_MAJORS:
		return v->majors;
	case TOP_BY_INVALIDATIONS:
		return v->invalidations;
	case TOP_BY_PREFETCH:
		return v->prefetched;
	case TOP_BY_AHEAD:
		return v->ahead;
	case TOP_BY_BYTES:
		return v->bytes_in + v->bytes_out;
	case TOP_BY_RESIDENT:
		return top_resident(&v->region->residency);
	case TOP_BY_LENGTH:
		return (double)v->region->length;
	default:
		return 0;
	}
}

static int by_key(const void *a, const void *b, void *arg)
{
	const struct top_region_view *x = a, *y = b;
	const struct order *o = arg;
	double p = weight(x, o->key), q = weight(y, o->key);
	uint64_t s = x->region->addr, t = y->region->addr;
	int sign = o->backwards ? -1 : 1;

	if (p != q)
		return p > q ? -sign : sign;
	if (s != t)
		return (s < t ? -1 : 1) * (o->key == TOP_BY_ADDRESS ? sign : 1);
	return x->region->row < y->region->row ? -1 : x->region->row > y->region->row;
}

static int by_need(const void *a, const void *b, void *kernel)
{
	const struct top_qp_view *x = a, *y = b;

	if (x->waits_ns != y->waits_ns)
		return x->waits_ns > y->waits_ns ? -1 : 1;
	if (x->qp->outstanding != y->qp->outstanding)
		return x->qp->outstanding > y->qp->outstanding ? -1 : 1;
	/* All that the kernel tells. */
	if (*(const bool *)kernel && x->retries != y->retries)
		return x->retries > y->retries ? -1 : 1;
	return x->qp->number < y->qp->number ? -1 : x->qp->number > y->qp->number;
}

static int by_time(const void *a, const void *b)
{
	const struct top_slow_view *x = a, *y = b;

	return x->took_ns > y->took_ns ? -1 : x->took_ns < y->took_ns;
}

static int by_rate(const void *a, const void *b)
{
	const struct top_counter_view *x = a, *y = b;

	if (x->rate != y->rate)
		return x->rate > y->rate ? -1 : 1;
	if (!x->counter->value != !y->counter->value)
		return x->counter->value ? -1 : 1;
	return strcmp(x->counter->name, y->counter->name);
}

void top_sort(struct top_view *v, enum top_key key, bool backwards)
{
	struct order o = { key, backwards };
	bool kernel = v->frame->kernel;

	qsort_r(v->region, v->regions, sizeof(*v->region), by_key, &o);
	qsort_r(v->qp, v->qps, sizeof(*v->qp), by_need, &kernel);
	qsort(v->slow, v->slows, sizeof(*v->slow), by_time);
	if (v->counters)
		qsort(v->counter, v->counters, sizeof(*v->counter), by_rate);
}

/* --- choice ----------------------------------------------------------------------------------------------
 */

/* What only a device of the kernel has, led by a blank; "" for others. */
static void owner_text(char *text, size_t size, const struct top_owner *o)
{
	text[0] = 0;
	if (o->pid)
		snprintf(text, size, " %" PRIu32 " %s", o->pid, o->command);
	else if (*o->command)
		snprintf(text, size, " %s", o->command);
}

static bool region_fits(const struct top_region_view *v, const char *text)
{
	const struct top_region *r = v->region;
	char line[384], owner[TOP_COMMAND + 16], addr[32] = "", key[40] = "";

	owner_text(owner, sizeof(owner), &r->owner);
	if (r->addr != TOP_UNKNOWN)
		snprintf(addr, sizeof(addr), "0x%" PRIx64, r->addr);
	if (r->keys_told)
		snprintf(key, sizeof(key), "0x%" PRIx32 " 0x%" PRIx32, r->lkey, r->rkey);
	snprintf(line, sizeof(line), "%s %s %s%s %s %s", top_kind_name(r->kind), addr,
		top_heat_names[v->heat], owner, key, r->details);
	return strcasestr(line, text);
}

static bool qp_fits(const struct top_qp_view *v, const char *text)
{
	char line[96 + TOP_COMMAND], owner[TOP_COMMAND + 16];

	owner_text(owner, sizeof(owner), &v->qp->owner);
	snprintf(line, sizeof(line), "0x%" PRIx32 " %s %s%s", v->qp->number, top_qp_state_name(v->qp->state),
		v->waits_ns ? "waits" : "", owner);
	return strcasestr(line, text);
}

static bool counter_fits(const struct top_counter_view *v, const char *text)
{
	return strcasestr(v->counter->name, text);
}

static bool slow_fits(const struct top_slow_view *v, const char *text)
{
	char line[128 + TOP_WORDS], why[TOP_WORDS];

	snprintf(line, sizeof(line), "0x%" PRIx64 " 0x%" PRIx64 " %s %s", v->slow->addr,
		v->region ? v->region->addr : 0, v->region ? top_kind_name(v->region->kind) : "gone",
		top_why(why, v->slow));
	return strcasestr(line, text);
}

#define KEEP(list, count, fits)                                                                              \
	do {                                                                                                 \
		size_t kept = 0;                                                                             \
		for (size_t i = 0; i < v->count; i++)                                                        \
			if (fits(&v->list[i], text))                                                         \
				v->list[kept++] = v->list[i];                                                \
		v->count = kept;                                                                             \
	} while (0)

void top_filter(struct top_view *v, const char *text)
{
	if (!*text)
		return;
	KEEP(region, regions, region_fits);
	KEEP(qp, qps, qp_fits);
	KEEP(slow, slows, slow_fits);
	KEEP(counter, counters, counter_fits);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What follows from two looks at a process. Pure functions. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "tool/alloc.h"
#include "tool/top.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *const top_heat_names[] = { "never", "cold", "warm", "hot", "-" };
/* --- words -----------------------------------------------------------------------------------------------
 */

const char *top_kind_name(uint32_t kind)
{
	static const char *const names[] = { "none", "pinned", "odp", "implicit" };

	return kind < COUNT(names) ? names[kind] : "?";
}

const char *top_qp_state_name(uint32_t state)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "RESET",
		[IBV_QPS_INIT] = "INIT",
		[IBV_QPS_RTR] = "RTR",
		[IBV_QPS_RTS] = "RTS",
		[IBV_QPS_SQD] = "SQD",
		[IBV_QPS_SQE] = "SQE",
		[IBV_QPS_ERR] = "ERR",
	};

	return state < COUNT(names) ? names[state] : "?";
}

const char *top_qp_type_name(uint32_t type)
{
	/* enum ib_qp_type of the kernel. */
	static const char *const names[] = { "SMI", "GSI", "RC", "UC", "UD", "RAWIP6", "RAWETH", "?", "RAW",
		"XRCI", "XRCT" };

	return type < COUNT(names) ? names[type] : type == 255 ? "driver" : "-";
}

char *top_why(char buf[TOP_WORDS], const struct top_slow *s)
{
	static const struct {
		uint32_t flag;
		const char *word;
	} words[] = {
		{ UNPIN_SLOW_FILE, "file" },
		{ UNPIN_SLOW_HUGE, "huge page" },
		{ UNPIN_SLOW_RETRIED, "invalidated meanwhile" },
		{ UNPIN_SLOW_FAILED, "failed" },
		{ UNPIN_SLOW_HELD_BACK, "held back for the latency asked for" },
	};
	bool line = s->waited_ns > s->resolved_ns;
	const char *cause = line && s->reads ? "in line, then disk or swap"
			    : line	     ? "in line"
			    : s->reads	     ? "disk or swap"
					     : "kernel and driver";
	size_t used = (size_t)snprintf(
		buf, TOP_WORDS, "%s; %s", cause, s->flags & UNPIN_SLOW_WRITE ? "write" : "read");

	for (size_t i = 0; i < COUNT(words) && used < TOP_WORDS; i++)
		if (s->flags & words[i].flag)
			used += (size_t)snprintf(buf + used, TOP_WORDS - used, ", %s", words[i].word);
	return buf;
}

double top_resident(const struct top_residency *r)
{
	return r->known ? (double)r->present * 100 / (double)r->asked : -1;
}

char *top_strip(char buf[TOP_STRIP + 1], const struct top_residency *r)
{
	if (!r->known)
		return strcpy(buf, "?");
	for (unsigned i = 0; i < TOP_STRIP; i++)
		buf[i] = r->share[i] >= 100 ? '#'
			 : r->share[i] > 66 ? '+'
			 : r->share[i] > 33 ? ':'
			 : r->share[i]	    ? '.'
			 : r->out[i]	    ? 's'
					    : ' ';
	buf[TOP_STRIP] = 0;
	return buf;
}

const char *top_verdict(const struct top_time *t)
{
	const struct {
		uint64_t ns;
		const char *word;
	} part[] = {
		{ t->reads, "disk or swap" },
		{ t->waited, "waiting in line" },
		{ t->work, "kernel and driver" },
		{ t->resume, "waking" },
	};
	size_t most = 0;

	for (size_t i = 1; i < COUNT(part); i++)
		if (part[i].ns > part[most].ns)
			most = i;
	return part[most].ns ? part[most].word : "no faults";
}

/* --- rates -----------------------------------------------------------------------------------------------
 */

/* < 0: not known. */
static double rate(uint64_t before, uint64_t now, double seconds)
{
	if (before == TOP_UNKNOWN || now == TOP_UNKNOWN)
		return -1;
	/* What went backwards began anew. */
	return (double)(now >= before ? now - before : now) / seconds;
}

/* Of what cannot begin anew. */
static double known_rate(uint64_t before, uint64_t now, double seconds)
{
	return now < before ? -1 : rate(before, now, seconds);
}

static uint64_t grown(uint64_t before, uint64_t now)
{
	return now >= before ? now - before : 0;
}

/* The row of the same region in the frame before: rows are in order, and a key names one use of a row. */
static const struct top_region *same_region(const struct top_frame *f, const struct top_region *r)
{
	size_t low = 0, high = f->regions;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (f->region[mid].row < r->row)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < f->regions && f->region[low].row == r->row && f->region[low].lkey == r->lkey &&
		f->region[low].addr == r->addr)
		return &f->region[low];
	return NULL;
}

/* Regions of both are in order: what is remembered of those that are still there goes over, the rest is new.
 */
static void go_over(struct top_memory *m, const struct top_frame *now)
{
	struct top_memory next = { alloc_array(now->regions + 1, sizeof(*next.row)), now->regions };
	size_t old = 0;

	for (size_t i = 0; i < now->regions; i++) {
		const struct top_region *r = &now->region[i];

		while (old < m->rows && m->row[old].row < r->row)
			old++;
		if (old < m->rows && m->row[old].row == r->row && m->row[old].lkey == r->lkey)
			next.row[i] = m->row[old];
		else
			next.row[i] = (struct top_remembered){ .row = r->row, .lkey = r->lkey };
	}
	free(m->row);
	*m = next;
}

/* Bytes tell of explicit and implicit regions and, being counted per copy, of pinned ones where the device
 * counts them; faults and prefetch count as use too. */
static enum top_heat heat_of(struct top_remembered *row, const struct top_region_view *v, uint64_t now)
{
	const uint64_t *c = v->region->odp;
	bool active = v->bytes_in > 0 || v->bytes_out > 0 || v->faults > 0 || v->prefetched > 0;

	if (c[TOP_ODP_page_faults] == TOP_UNKNOWN)
		return TOP_HEAT_UNKNOWN;
	if (active) {
		row->ever = true;
		row->hot_ns = now;
		return TOP_HOT;
	}
	for (int i = 0; i < TOP_ODP_COUNTERS; i++)
		if ((i == TOP_ODP_bytes_in || i == TOP_ODP_bytes_out || i == TOP_ODP_page_faults) && c[i] &&
			c[i] != TOP_UNKNOWN)
			row->ever = true;
	if (!row->ever)
		return TOP_NEVER;
	return row->hot_ns && now - row->hot_ns < TOP_WARM_NS ? TOP_WARM : TOP_COLD;
}

static void view_region(
	struct top_region_view *v, const struct top_frame *before, const struct top_region *r, double seconds)
{
	static const struct top_region none;
	const struct top_region *was = same_region(before, r);

	v->region = r;
	v->fresh = !was;
	/* The counters of a fresh region began at 0 since. */
	was = was ? was : &none;
#define RATE(counter) rate(was->odp[TOP_ODP_##counter], r->odp[TOP_ODP_##counter], seconds)
	v->faults = RATE(page_faults);
	v->majors = RATE(faults_major);
	v->invalidations = RATE(page_invalidations_handled);
	v->prefetched = RATE(page_prefetch);
	v->ahead = RATE(page_readahead);
	v->bytes_in = RATE(bytes_in);
	v->bytes_out = RATE(bytes_out);
#undef RATE
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a == TOP_UNKNOWN || b == TOP_UNKNOWN ? TOP_UNKNOWN : a + b;
}

static const struct top_qp *same_qp(const struct top_frame *f, uint32_t number)
{
	for (size_t i = 0; i < f->qps; i++)
		if (f->qp[i].number == number)
			return &f->qp[i];
	return NULL;
}

static void view_qp(struct top_qp_view *v, const struct top_frame *before, const struct top_frame *now,
	size_t i, double s)
{
	static const struct top_qp none;
	const struct top_qp *q = &now->qp[i], *was;

	/* Rows are in order: it is where it was, but when others have gone. */
	was = i < before->qps && before->qp[i].number == q->number ? &before->qp[i]
								   : same_qp(before, q->number);
	was = was ? was : &none;
	v->qp = q;
	if (q->parked && q->parked_since_ns)
		v->waits_ns = now->at_ns > q->parked_since_ns ? now->at_ns - q->parked_since_ns : 1;
	v->parkings = rate(was->parkings, q->parkings, s);
	v->retries = rate(sum(was->retransmits, was->rnr_naks), sum(q->retransmits, q->rnr_naks), s);
}

static const struct top_region *region_of(const struct top_frame *f, uint64_t addr)
{
	const struct top_region *found = NULL;

	for (size_t i = 0; i < f->regions; i++) {
		const struct top_region *r = &f->region[i];

		/* A fault is named by its page's address: the region may begin inside the page. */
		if ((addr >= (r->addr & ~4095ull)) &&
			addr - (r->addr & ~4095ull) < r->length + (r->addr & 4095) &&
			(!found || r->length < found->length))
			found = r;
		else if (r->kind == UNPIN_REGION_IMPLICIT && !found)
			found = r;
	}
	return found;
}

static void view_system(struct top_view *v, const struct top_system *a, const struct top_system *b)
{
	v->minflt = known_rate(a->minflt, b->minflt, v->seconds);
	v->majflt = known_rate(a->majflt, b->majflt, v->seconds);
	v->swap_in = known_rate(a->swap_in, b->swap_in, v->seconds);
	v->swap_out = known_rate(a->swap_out, b->swap_out, v->seconds);
	v->psi_some = known_rate(a->psi_some_us, b->psi_some_us, v->seconds * 1e4);
	v->psi_full = known_rate(a->psi_full_us, b->psi_full_us, v->seconds * 1e4);
	/* Another group's clock. */
	if (a->psi_of_group != b->psi_of_group)
		v->psi_some = v->psi_full = -1;
}

static int by_name(const void *a, const void *b)
{
	const struct top_counter *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void view_counter(struct top_counter_view *v, const struct top_frame *before,
	const struct top_counter *c, double seconds)
{
	const struct top_counter *was =
		before->counters ? bsearch(c, before->counter, before->counters, sizeof(*was), by_name)
				 : NULL;

	v->counter = c;
	/* Hardware that was reset, or a counter that is as narrow as old ones are: not a rate. */
	v->rate = was && c->value >= was->value ? rate(was->value, c->value, seconds) : 0;
}

void top_view_make(struct top_view *v, const struct top_frame *before, const struct top_frame *now,
	struct top_memory *memory)
{
	memset(v, 0, sizeof(*v));
	v->frame = now;
	v->seconds = now->at_ns > before->at_ns ? (double)(now->at_ns - before->at_ns) / 1e9 : 1;
	for (int i = 0; i < TOP_ODP_COUNTERS; i++)
		v->odp[i] = rate(before->odp[i], now->odp[i], v->seconds);
	for (int i = 0; i < TOP_DEV_COUNTERS; i++)
		v->dev[i] = rate(before->dev[i], now->dev[i], v->seconds);
	v->read_events = rate(before->read_events, now->read_events, v->seconds);
	v->time = (struct top_time){
		.waited = grown(before->time.waited, now->time.waited),
		.reads = grown(before->time.reads, now->time.reads),
		.work = grown(before->time.work, now->time.work),
		.resume = grown(before->time.resume, now->time.resume),
	};
	view_system(v, &before->system, &now->system);
	go_over(memory, now);
	v->region = alloc_array(now->regions + 1, sizeof(*v->region));
	for (v->regions = 0; v->regions < now->regions; v->regions++) {
		struct top_region_view *r = &v->region[v->regions];

		view_region(r, before, &now->region[v->regions], v->seconds);
		r->heat = heat_of(&memory->row[v->regions], r, now->at_ns);
	}
	v->qp = alloc_array(now->qps + 1, sizeof(*v->qp));
	for (v->qps = 0; v->qps < now->qps; v->qps++)
		view_qp(&v->qp[v->qps], before, now, v->qps, v->seconds);
	for (v->slows = 0; v->slows < now->slows; v->slows++) {
		const struct top_slow *s = &now->slow[v->slows];

		v->slow[v->slows] = (struct top_slow_view){
			.slow = s,
			.region = region_of(now, s->addr),
			.took_ns = s->waited_ns + s->resolved_ns,
			.ago_ns = grown(s->ended_ns, now->at_ns),
		};
	}
	v->counter = alloc_array(now->counters + 1, sizeof(*v->counter));
	for (; v->counters < now->counters; v->counters++)
		view_counter(&v->counter[v->counters], before, &now->counter[v->counters], v->seconds);
}

void top_view_free(struct top_view *v)
{
	free(v->region);
	free(v->qp);
	free(v->counter);
	memset(v, 0, sizeof(*v));
}

void top_memory_free(struct top_memory *m)
{
	free(m->row);
	memset(m, 0, sizeof(*m));
}

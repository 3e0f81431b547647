/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A running process: facts from the segment that it exports. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tool/advise.h"
#include "tool/alloc.h"
#include "tool/attach.h"
#include "tool/units.h"

static uint64_t get64(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static uint32_t get32(const _Atomic uint32_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

/* What a region's counters were at the first look. */
struct earlier {
	uint64_t registered_ns, accesses, faults, invalidations;
	uint32_t key;
};

/* Of faults that were resolved at once, and of those that a driver thread had to: 0: there were none. */
struct fault_costs {
	double mean_ns[2];
};

static void take_odp(uint64_t out[ADVISE_COUNTERS], const struct unpin_odp_counters *c)
{
#define X(field, name, what) out[ADVISE_##field] = get64(&c->field);
	UNPIN_ODP_COUNTERS(X)
#undef X
}

static void take_usage(struct advise_region *r, const struct unpin_usage *u)
{
	uint32_t shift = get32(&u->shift);

	r->accesses = get64(&u->accesses);
	r->sequential = get64(&u->sequential);
	r->pages = usage_pages(u);
	r->slice_bytes = shift ? 1ull << (shift & 63) : 0;
	r->base = get64(&u->base);
	for (unsigned i = 0; i < USAGE_SLICES; i++)
		r->slice[i] = get32(&u->slice[i]);
}

static void take_fault_time(struct advise_region *r, const struct fault_costs *cost)
{
	double minor = (double)r->odp[ADVISE_faults_minor], major = (double)r->odp[ADVISE_faults_major];

	r->fault_ns_known = (minor == 0 || cost->mean_ns[0] > 0) && (major == 0 || cost->mean_ns[1] > 0);
	r->fault_ns = units_whole(minor * cost->mean_ns[0] + major * cost->mean_ns[1]);
}

static struct fault_costs fault_costs_of(const struct unpin_segment *s)
{
	struct fault_costs c = { { 0 } };

	for (int speed = 0; speed < 2; speed++) {
		double events = (double)get64(&s->step_ns[speed][UNPIN_STEP_RESOLVE].count), sum = 0;

		for (int step = UNPIN_STEP_QUEUE; step <= UNPIN_STEP_RESUME; step++)
			sum += (double)get64(&s->step_ns[speed][step].sum);
		c.mean_ns[speed] = events > 0 ? sum / events : 0;
	}
	return c;
}

static struct earlier *note_earlier(const struct unpin_segment *s, uint32_t rows)
{
	struct earlier *e = alloc_array(rows + 1, sizeof(*e));

	for (uint32_t i = 0; i < rows; i++) {
		const struct unpin_segment_region *row = &s->region[i];

		if (get32(&row->kind) == UNPIN_REGION_NONE)
			continue;
		e[i].key = get32(&row->lkey);
		e[i].registered_ns = get64(&row->registered_ns);
		e[i].accesses = get64(&s->usage[i].accesses);
		e[i].faults = get64(&row->odp.page_faults);
		e[i].invalidations = get64(&row->odp.page_invalidations_handled);
	}
	return e;
}

static void take_look(struct advise_region *r, const struct earlier *e, double seconds)
{
	r->look_seconds = seconds;
	r->look_accesses = r->accesses - e->accesses;
	r->look_faults = r->odp[ADVISE_page_faults] - e->faults;
	r->look_invalidations = r->odp[ADVISE_page_invalidations_handled] - e->invalidations;
}

static void take_region(struct advise_facts *f, const struct unpin_segment *s, uint32_t i, uint64_t now,
	const struct fault_costs *cost, const struct earlier *before)
{
	const struct unpin_segment_region *row = &s->region[i];
	struct advise_region *r = advise_add(f);
	uint64_t registered = get64(&row->registered_ns);

	r->kind = get32(&row->kind);
	r->access = get32(&row->access);
	r->addr = get64(&row->addr);
	r->length = get64(&row->length);
	r->live = true;
	r->places = 1;
	r->times = 1;
	r->register_ns = get64(&row->register_ns);
	r->lived_ns = now > registered ? now - registered : 0;
	take_odp(r->odp, &row->odp);
	take_usage(r, &s->usage[i]);
	take_fault_time(r, cost);
	if (before && before->key == get32(&row->lkey) && before->registered_ns == registered)
		take_look(r, before, f->look_seconds);
}

static void take_past(
	struct advise_facts *f, const struct unpin_past_region *p, const struct fault_costs *cost)
{
	struct advise_region *r;

	if (get32(&p->kind) == UNPIN_REGION_NONE || !get64(&p->times))
		return;
	r = advise_add(f);
	r->kind = get32(&p->kind);
	r->access = get32(&p->access);
	r->addr = get64(&p->addr);
	r->length = get64(&p->length);
	r->places = 1;
	r->times = get64(&p->times);
	r->register_ns = get64(&p->register_ns);
	r->lived_ns = get64(&p->lived_ns);
	take_odp(r->odp, &p->odp);
	take_usage(r, &p->usage);
	take_fault_time(r, cost);
}

static void take_all(struct advise_facts *f, const struct attach *a, uint64_t now,
	const struct earlier *before, uint32_t rows_before)
{
	const struct unpin_segment *s = a->copy;
	struct fault_costs cost = fault_costs_of(s);
	uint64_t start = s->start_ns;

	f->pid = a->pid;
	memcpy(f->command, a->command, sizeof(f->command));
	memcpy(f->device, s->device, sizeof(f->device));
	f->seconds = now > start ? (double)(now - start) / 1e9 : 0;
	f->registrations = get64(&s->registrations.begun);
	f->register_ns = get64(&s->registrations.register_ns);
	f->forgotten = get64(&s->registrations.forgotten);
	for (uint32_t i = 0; i < get32(&s->regions_high); i++)
		if (get32(&s->region[i].kind) != UNPIN_REGION_NONE)
			take_region(f, s, i, now, &cost, i < rows_before ? &before[i] : NULL);
	for (unsigned i = 0; i < UNPIN_PAST_REGIONS; i++)
		take_past(f, &s->past[i], &cost);
}

static bool is_alive(pid_t pid)
{
	return kill(pid, 0) == 0 || errno == EPERM;
}

/* Returns whether it still runs. */
static bool wait_for(pid_t pid, uint64_t until)
{
	bool alive;

	while ((alive = is_alive(pid)) && clock_ns() < until) {
		uint64_t now = clock_ns(), left = until > now ? (until - now) / NSEC_PER_MSEC + 1 : 0;

		poll(NULL, 0, left < 100 ? (int)left : 100);
	}
	return alive;
}

static int read_all(struct attach *a)
{
	int err = attach_read(a);

	return err ? err : attach_read_usage(a);
}

int advise_live(struct advise_facts *f, pid_t pid, double seconds)
{
	struct earlier *before;
	uint64_t began, now;
	struct attach a;
	uint32_t rows;
	int err;

	memset(f, 0, sizeof(*f));
	err = attach_open(&a, pid);
	if (err)
		return err;
	began = clock_ns();
	err = attach_read_usage(&a);
	if (err) {
		attach_close(&a);
		return err;
	}
	rows = get32(&a.copy->regions_high);
	before = note_earlier(a.copy, rows);
	f->running = wait_for(pid, began + (uint64_t)(seconds * 1e9));
	now = clock_ns();
	f->look_seconds = (double)(now - began) / 1e9;
	/* A segment that is held outlives its process: what that did last is in it. Only its number is gone,
	 * so that it cannot be asked any more. */
	if (!f->running)
		a.pid = 0;
	err = read_all(&a);
	a.pid = pid;
	if (!err)
		take_all(f, &a, now, before, rows);
	free(before);
	attach_close(&a);
	return err;
}

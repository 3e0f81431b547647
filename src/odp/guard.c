/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/guard.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "mm/pressure.h"
#include "odp/pagetable.h"

/* What was measured over a stretch of time. */
struct rate {
	uint64_t majors_per_s, stall_ppm;
};

static void put(struct guard *g, struct guard_sample s)
{
	g->sample[g->taken++ % GUARD_SAMPLES] = s;
}

/* The newest sample that is at least so much older than ns; NULL: there is none. */
static const struct guard_sample *back(const struct guard *g, uint64_t ns, uint64_t age)
{
	unsigned n = g->taken < GUARD_SAMPLES ? g->taken : GUARD_SAMPLES;

	for (unsigned i = 1; i <= n; i++) {
		const struct guard_sample *s = &g->sample[(g->taken - i) % GUARD_SAMPLES];

		if (ns - s->ns >= age)
			return s;
	}
	return NULL;
}

/* A process that was moved to another control group, or whose kernel does not tell, has not stalled. */
static uint64_t stalled(const struct guard_sample *from, const struct guard_sample *to)
{
	return to->stall_us == UINT64_MAX || to->stall_us < from->stall_us ? 0
									   : to->stall_us - from->stall_us;
}

static struct rate rate_between(const struct guard_sample *from, const struct guard_sample *to)
{
	uint64_t us = (to->ns - from->ns) / 1000;

	return (struct rate){
		(to->majors - from->majors) * 1000000 / us,
		stalled(from, to) * 1000000 / us,
	};
}

static uint32_t cause_of(const struct odp_storm_limits *l, struct rate r)
{
	if (l->majors_per_s && r.majors_per_s > l->majors_per_s)
		return UNPIN_STORM_MAJORS;
	if (l->stall_ppm && r.stall_ppm > l->stall_ppm)
		return UNPIN_STORM_STALL;
	return UNPIN_STORM_NONE;
}

static bool quiet(const struct odp_storm_limits *l, struct rate r)
{
	return (!l->majors_per_s || r.majors_per_s < (l->majors_per_s + 1) / 2) &&
	       (!l->stall_ppm || r.stall_ppm < (l->stall_ppm + 1) / 2);
}

static enum guard_verdict begin(struct guard *g, uint32_t cause, uint64_t ns)
{
	struct unpin_storm *s = g->storm;

	atomic_store_explicit(&s->began_ns, ns, memory_order_relaxed);
	atomic_store_explicit(&s->last_cause, cause, memory_order_relaxed);
	counter_add(&s->count, 1);
	atomic_store_explicit(&s->cause, cause, memory_order_release);
	return GUARD_BEGAN;
}

static enum guard_verdict end(struct guard *g, uint64_t ns)
{
	atomic_store_explicit(&g->storm->ended_ns, ns, memory_order_relaxed);
	atomic_store_explicit(&g->storm->cause, UNPIN_STORM_NONE, memory_order_release);
	return GUARD_ENDED;
}

enum guard_verdict guard_judge(struct guard *g, struct guard_sample now)
{
	const struct guard_sample *from = back(g, now.ns, GUARD_BEGIN_NS);
	uint64_t began = atomic_load_explicit(&g->storm->began_ns, memory_order_relaxed);
	enum guard_verdict verdict = GUARD_SAME;
	struct rate rate;
	uint32_t cause;

	if (from) {
		rate = rate_between(from, &now);
		atomic_store_explicit(&g->storm->majors_per_s, rate.majors_per_s, memory_order_relaxed);
		atomic_store_explicit(&g->storm->stall_ppm, rate.stall_ppm, memory_order_relaxed);
		cause = cause_of(&g->limits, rate);
		if (!guard_storm(g)) {
			if (cause != UNPIN_STORM_NONE &&
				!atomic_load_explicit(&g->unused, memory_order_relaxed))
				verdict = begin(g, cause, now.ns);
		} else if (now.ns - began >= GUARD_END_NS) {
			from = back(g, now.ns, GUARD_END_NS);
			if (from && quiet(&g->limits, rate) && quiet(&g->limits, rate_between(from, &now)))
				verdict = end(g, now.ns);
		}
	}
	put(g, now);
	return verdict;
}

/* ---- telling ---- */

static void tell_beginning(const struct guard *g)
{
	uint64_t majors = atomic_load_explicit(&g->storm->majors_per_s, memory_order_relaxed);
	uint64_t stall = atomic_load_explicit(&g->storm->stall_ppm, memory_order_relaxed);

	if (atomic_load_explicit(&g->storm->cause, memory_order_relaxed) == UNPIN_STORM_MAJORS)
		log_warn("memory is short: on-demand regions took %" PRIu64
			 " page faults that may wait for a disk or swap in a second (threshold %" PRIu32
			 "); nothing is read ahead and prefetches are held back until it is half of that",
			majors, g->limits.majors_per_s);
	else
		log_warn(
			"memory is short: tasks waited for memory during %" PRIu64
			" %% of the last second (threshold %" PRIu32
			" %%); on-demand regions read nothing ahead and prefetches are held back until it is "
			"half of that",
			stall / 10000, g->limits.stall_ppm / 10000);
}

static void tell_end(const struct guard *g)
{
	uint64_t began = atomic_load_explicit(&g->storm->began_ns, memory_order_relaxed);
	uint64_t ended = atomic_load_explicit(&g->storm->ended_ns, memory_order_relaxed);

	log_info("memory is no longer short, after %" PRIu64
		 " ms: on-demand regions read ahead and prefetch again",
		(ended - began) / 1000000);
	if (trace_enabled())
		trace_record(TRACE_STORM, began, ended,
			atomic_load_explicit(&g->storm->last_cause, memory_order_relaxed), 0);
}

/* ---- measuring ---- */

static struct guard_sample look(const struct guard *g, uint64_t now)
{
	return (struct guard_sample){
		now,
		atomic_load_explicit(g->majors, memory_order_relaxed),
		pressure_stall_us(),
	};
}

void guard_init(struct guard *g, const struct odp_storm_limits *limits, struct unpin_storm *storm,
	_Atomic uint64_t *majors, uint64_t now)
{
	*g = (struct guard){ .limits = *limits, .storm = storm, .majors = majors };
	atomic_store(&g->headroom, pressure_headroom());
	atomic_store(&g->next_ns, now + GUARD_SAMPLE_NS);
	put(g, look(g, now));
}

bool guard_tick(struct guard *g, uint64_t now)
{
	enum guard_verdict verdict = GUARD_SAME;

	if (now < atomic_load_explicit(&g->next_ns, memory_order_relaxed) ||
		atomic_exchange_explicit(&g->busy, true, memory_order_acquire))
		return false;
	/* Somebody may have taken it between the two looks. */
	if (now >= atomic_load_explicit(&g->next_ns, memory_order_relaxed)) {
		guard_ask(g);
		verdict = guard_judge(g, look(g, now));
		atomic_store_explicit(&g->next_ns, now + GUARD_SAMPLE_NS, memory_order_relaxed);
	}
	if (verdict == GUARD_BEGAN)
		tell_beginning(g);
	else if (verdict == GUARD_ENDED)
		tell_end(g);
	atomic_store_explicit(&g->busy, false, memory_order_release);
	return verdict == GUARD_ENDED;
}

/* ---- what may be brought in ---- */

void guard_ask(struct guard *g)
{
	atomic_store_explicit(&g->headroom, pressure_headroom(), memory_order_relaxed);
}

void guard_spend(struct guard *g, uint64_t bytes)
{
	/* Where there is no limit, the counter is not shared by all threads for nothing. */
	if (atomic_load_explicit(&g->headroom, memory_order_relaxed) != INT64_MAX)
		atomic_fetch_sub_explicit(&g->headroom, (int64_t)bytes, memory_order_relaxed);
}

bool guard_allows(const struct guard *g, uint64_t bytes)
{
	int64_t left = atomic_load_explicit(&g->headroom, memory_order_relaxed);

	return left >= GUARD_MARGIN && (uint64_t)(left - GUARD_MARGIN) >= bytes;
}

unsigned guard_window(const struct guard *g, unsigned needed, unsigned most)
{
	int64_t left = atomic_load_explicit(&g->headroom, memory_order_relaxed) >> ODP_PAGE_SHIFT;

	if (guard_storm(g) || left < GUARD_MARGIN >> ODP_PAGE_SHIFT)
		most = needed < most ? needed : most;
	if (left < (int64_t)most)
		most = left > 1 ? (unsigned)left : 1;
	return most;
}

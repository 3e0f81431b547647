/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/slowest.h"

#include <stdbool.h>

static uint64_t load(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static uint64_t took(const struct unpin_slow_fault *f)
{
	return load(&f->waited_ns) + load(&f->resolved_ns);
}

static bool stale(const struct unpin_slow_fault *f, uint64_t now)
{
	return load(&f->ended_ns) + UNPIN_SLOW_NS <= now;
}

/* A place that is free or has had its time, else the fastest one. */
static struct unpin_slow_fault *worst(struct unpin_slow *s, uint64_t now)
{
	struct unpin_slow_fault *found = &s->fault[0];

	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++) {
		struct unpin_slow_fault *f = &s->fault[i];

		if (!load(&f->ended_ns) || stale(f, now))
			return f;
		if (took(f) < took(found))
			found = f;
	}
	return found;
}

/* What may be passed over from now on, without looking at each place. */
static void note_floor(struct unpin_slow *s)
{
	uint64_t floor = UINT64_MAX, until = UINT64_MAX;

	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++) {
		uint64_t ended = load(&s->fault[i].ended_ns), ns = took(&s->fault[i]);

		if (!ended)
			return;
		floor = ns < floor ? ns : floor;
		until = ended + UNPIN_SLOW_NS < until ? ended + UNPIN_SLOW_NS : until;
	}
	atomic_store_explicit(&s->floor_ns, floor, memory_order_relaxed);
	atomic_store_explicit(&s->stale_ns, until, memory_order_relaxed);
}

static void fill(struct unpin_slow_fault *to, const struct unpin_slow_fault *from)
{
#define PUT(field) atomic_store_explicit(&to->field, load(&from->field), memory_order_relaxed)
	PUT(ended_ns);
	PUT(addr);
	PUT(pages);
	PUT(waited_ns);
	PUT(resolved_ns);
	PUT(reads);
#undef PUT
	atomic_store_explicit(
		&to->flags, atomic_load_explicit(&from->flags, memory_order_relaxed), memory_order_relaxed);
}

void slowest_note(struct unpin_slow *s, const struct unpin_slow_fault *f)
{
	uint64_t now = load(&f->ended_ns);
	struct unpin_slow_fault *place;
	uint32_t seq;

	if (took(f) <= load(&s->floor_ns) && now < load(&s->stale_ns))
		return;
	place = worst(s, now);
	seq = atomic_load_explicit(&place->sequence, memory_order_relaxed);
	if ((seq & 1) || !atomic_compare_exchange_strong(&place->sequence, &seq, seq + 1))
		return;
	atomic_thread_fence(memory_order_release);
	/* Somebody may have been here since it was chosen. */
	if (!load(&place->ended_ns) || stale(place, now) || took(place) < took(f))
		fill(place, f);
	atomic_store_explicit(&place->sequence, seq + 2, memory_order_release);
	note_floor(s);
}

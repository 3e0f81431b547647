/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The protocol of access, fault and invalidation with everybody in it, in every order of its steps: two pages
 * of one group, two accesses (one over both pages, which resolves its faults on the spot; one over the second
 * page, which hands them to a driver thread), an application that gives the pages up again and again or
 * unmaps and maps them, a fork, and the sweep. tests/odp/interleave_test.c walks through one page and its
 * changes alone.
 *
 * The changes of the device's entries are the real functions on a real leaf; the steps around them are those
 * of access.c, raise.c and resolve.c, named beside them. The CPU's page table is part of the model: pages are
 * absent or present, shared with a child or not, inside a mapping or not, and whether the frame is still the
 * one that the device's entry was made of.
 *
 * Safety: a copy goes through the CPU's table, so it reaches the right frame even when the entry is stale (if
 * it followed frames that the device had kept, the walk finds wrong bytes). When all is over no entry is
 * stale that was reported, and the sweep finds the rest. Nobody who waits is forgotten. Progress: against an
 * application that never stops giving pages up every access ends, whatever the order: nobody else's steps are
 * part of a cycle.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../explore.h"
#include "odp/pagetable.h"
#include "odp/space.h"

/* What is done wrong, and must be found. */
enum mistake {
	NONE,
	REPORT_FIRST,  /* invalidations are reported before they take effect */
	IGNORE_DIRT,   /* what was dropped while it was resolved is mapped */
	KEEP_FRAMES,   /* the device follows its own entries to memory */
	NEVER_FORCED,  /* an access that loses is not let through */
	FORGET_LATE,   /* who joins after the map is not told */
	KEEP_FAULTING, /* a page that could not be mapped is not given up */
};

static enum mistake mistake;

#define PAGES	 2u
#define ACCESSES 2u
#define EVENTS	 3u
#define NOBODY	 0xffu

enum { CPU_PRESENT = 1, CPU_SHARED = 2, CPU_HOLE = 4 };

/* Where an access stands. */
enum { A_LOOK, A_RAISE, A_WAIT, A_RESOLVE, A_COPY, A_STALE, A_DONE, A_FAILED };
/* Where an event stands; its pages are filled one by one. */
enum { E_NONE, E_QUEUED, E_FILL, E_SETTLE, E_AGAIN, E_FINISH };
/* The application: takes one page after the other, and reports both. */
enum { I_TAKE, I_REPORT = I_TAKE + PAGES, I_DONE };
enum { S_ASK, S_DROP, S_DONE };

struct access_state {
	uint8_t pc, page, lost, high, told, repeats;
};

struct event_state {
	uint8_t pc, page, first, pages, populated, retried, write, by, waiters, mapped, failed;
};

struct world {
	uint64_t word;
	struct access_state a[ACCESSES];
	struct event_state e[EVENTS];
	uint8_t cpu[PAGES];
	uint8_t filled[PAGES]; /* the frame that the event's populate left is still there */
	uint8_t kept[PAGES];   /* the frame that the entry was made of is still there */
	uint8_t giver, given, forker, sweeper, sweeps, asked, prefetched;
	uint8_t wrong;
};

_Static_assert(sizeof(struct world) <= EXPLORE_STATE, "a world is a state");

static const struct {
	uint8_t first, last;
} range[ACCESSES] = { { 0, 1 }, { 1, 1 } };

/* Of this walk. */
static bool writes[ACCESSES], absent[ACCESSES], unmaps, reports, forks, prefetches;
static uint8_t times; /* that pages are given up; 0: for ever */

static struct leaf leaf;

static bool go(uint8_t *pc, unsigned to)
{
	*pc = (uint8_t)to;
	return true;
}

/* --- the CPU --- */

/* What lay there is no longer what is reached. */
static void new_frame(struct world *w, unsigned page)
{
	w->filled[page] = w->kept[page] = 0;
}

/* A load or store of the CPU's, with its own fault. false: there is no mapping. */
static bool touch(struct world *w, unsigned page, bool write)
{
	if (w->cpu[page] & CPU_HOLE)
		return false;
	if (!(w->cpu[page] & CPU_PRESENT) || (write && w->cpu[page] & CPU_SHARED)) {
		new_frame(w, page);
		w->cpu[page] = CPU_PRESENT;
	}
	return true;
}

static void take_away(struct world *w, unsigned page)
{
	new_frame(w, page);
	w->cpu[page] = unmaps && !(w->given & 1) ? CPU_HOLE : 0;
}

/* --- events (resolve.c) --- */

static bool forced(const struct event_state *e)
{
	return !e->mapped && !e->failed;
}

/* fault_finish() and fault_tell(), under the lock. */
static void finish(struct world *w, unsigned i, uint8_t waiters)
{
	struct event_state *e = &w->e[i];

	if (!e->mapped && mistake != KEEP_FAULTING)
		leaf_give_up(&leaf, e->first, e->first);
	for (unsigned k = 0; k < ACCESSES; k++) {
		struct access_state *a = &w->a[k];

		if (!(waiters & 1u << k))
			continue;
		a->told = 1;
		if (a->page == e->first && forced(e) && mistake != NEVER_FORCED)
			a->lost = ODP_FORCED;
	}
	if (e->by < ACCESSES && forced(e) && mistake != NEVER_FORCED)
		w->a[e->by].lost = ODP_FORCED;
	if (e->by < ACCESSES)
		w->a[e->by].pc = A_LOOK;
	memset(e, 0, sizeof(*e));
}

static void settle(struct world *w, struct event_state *e)
{
	unsigned pages = e->retried ? 1 : e->pages, leading;
	uint64_t before;

	if (mistake == IGNORE_DIRT)
		leaf_again(&leaf, e->first, e->first + pages - 1);
	before = atomic_load(&leaf.word[0]);
	e->mapped = leaf_settle(
		&leaf, e->first, e->first + pages - 1, e->populated, e->write, false, 0, 1, pages, &leading);
	for (unsigned p = e->first; p < e->first + pages; p++)
		if (page_faulting(before, page_mask(p, p)) && leaf_state(&leaf, p) >= PAGE_VALID_RO)
			w->kept[p] = w->filled[p];
}

static bool step_event(struct world *w, unsigned i)
{
	struct event_state *e = &w->e[i];
	uint8_t waiters;

	switch (e->pc) {
	case E_FILL: /* populate, page by page */
		if (!touch(w, e->page, e->write)) {
			/* The first page alone decides. */
			e->failed = e->page == e->first;
			return go(&e->pc, E_SETTLE);
		}
		w->filled[e->page] = 1;
		e->populated++;
		if (++e->page < e->first + (e->retried ? 1 : e->pages))
			return true;
		return go(&e->pc, E_SETTLE);
	case E_SETTLE:
		settle(w, e);
		if (mistake == FORGET_LATE)
			e->failed |= (uint8_t)(e->waiters << 4); /* who is told */
		return go(&e->pc, e->mapped || e->retried == ODP_FORCED ? E_FINISH : E_AGAIN);
	case E_AGAIN:
		if (!leaf_again(&leaf, e->first, e->first))
			return go(&e->pc, E_FINISH);
		e->retried++;
		e->page = e->first;
		e->populated = 0;
		e->failed &= 0xf0;
		return go(&e->pc, E_FILL);
	case E_FINISH:
		waiters = mistake == FORGET_LATE ? e->failed >> 4 : e->waiters;
		e->failed &= 0xf;
		finish(w, i, waiters);
		return true;
	default:
		return false;
	}
}

/* --- accesses (access.c, raise.c) --- */

static bool fail_access(struct world *w, struct access_state *a)
{
	w->wrong |= !unmaps;
	return go(&a->pc, A_FAILED);
}

static uint64_t missing(unsigned first, unsigned last, bool write)
{
	return ~atomic_load(&leaf.word[0]) & page_wanted(write) & page_mask(first, last);
}

static bool step_look(struct world *w, unsigned i)
{
	struct access_state *a = &w->a[i];
	uint64_t miss = missing(range[i].first, range[i].last, writes[i]);

	a->page = range[i].first;
	if (a->lost >= ODP_FORCED || !miss)
		return go(&a->pc, A_COPY);
	a->page = (uint8_t)(__builtin_ctzll(miss) / 8);
	return go(&a->pc, A_RAISE);
}

/* fault_find(): the oldest that covers the page. */
static struct event_state *find_event(struct world *w, unsigned page)
{
	for (unsigned k = 0; k < EVENTS; k++) {
		struct event_state *e = &w->e[k];

		if (e->pc && page >= e->first && page < e->first + e->pages)
			return e;
	}
	return NULL;
}

static bool park(struct access_state *a, struct event_state *e, unsigned i)
{
	e->waiters |= 1u << i;
	a->told = 0;
	return go(&a->pc, A_WAIT);
}

/* Under the lock. Events that have been settled may still be there. */
static struct event_state *raise_event(
	struct world *w, unsigned first, unsigned last, bool write, unsigned by)
{
	unsigned i = 0;
	struct event_state *e;

	while (i < EVENTS && w->e[i].pc)
		i++;
	assert_true(i < EVENTS); /* each access has one at most, and the prefetch */
	e = &w->e[i];
	*e = (struct event_state){ .pc = by == NOBODY ? E_QUEUED : E_FILL,
		.page = (uint8_t)first,
		.first = (uint8_t)first,
		.write = write,
		.by = (uint8_t)by };
	e->pages = (uint8_t)leaf_raise(&leaf, first, last, write);
	assert_true(e->pages > 0);
	return e;
}

static bool step_raise(struct world *w, unsigned i)
{
	struct access_state *a = &w->a[i];
	struct event_state *e;

	if (w->cpu[a->page] & CPU_HOLE)
		return fail_access(w, a);
	if (a->page >= a->high)
		a->high = a->page + 1;
	else if (mistake != NEVER_FORCED)
		a->lost++;
	if (a->lost >= ODP_FORCED)
		return go(&a->pc, A_LOOK);
	if (leaf_state(&leaf, a->page) == PAGE_FAULTING) {
		e = find_event(w, a->page);
		if (e)
			return park(a, e, i);
		w->wrong = 1; /* faulting, and nobody's */
		return true;
	}
	if (!missing(a->page, a->page, writes[i]))
		return go(&a->pc, A_LOOK);
	/* The first access resolves its own, the other one waits for a driver. */
	e = raise_event(w, a->page, range[i].last, writes[i], i ? NOBODY : i);
	return i ? park(a, e, i) : go(&a->pc, A_RESOLVE);
}

static bool step_copy(struct world *w, unsigned i)
{
	struct access_state *a = &w->a[i];
	bool shared = writes[i] && w->cpu[a->page] & CPU_SHARED;

	/* Had the device gone by its own entry, it would be in another frame, or in the child's. */
	if (mistake == KEEP_FRAMES && a->lost < ODP_FORCED && (!w->kept[a->page] || shared))
		w->wrong = 1;
	if (!touch(w, a->page, writes[i]))
		return go(&a->pc, A_STALE);
	if (a->page++ < range[i].last)
		return true;
	a->page = 0;
	return go(&a->pc, A_DONE);
}

static bool step_stale(struct world *w, unsigned i)
{
	struct access_state *a = &w->a[i];

	if (a->lost >= ODP_FORCED)
		return touch(w, a->page, writes[i]) ? go(&a->pc, A_LOOK) : fail_access(w, a);
	/* As often as pages come and go, and once more. */
	if (++a->repeats > 3)
		return fail_access(w, a);
	leaf_drop(&leaf, 0, page_mask(a->page, a->page));
	return go(&a->pc, A_LOOK);
}

static bool step_access(struct world *w, unsigned i)
{
	struct access_state *a = &w->a[i];

	switch (a->pc) {
	case A_LOOK:
		return step_look(w, i);
	case A_RAISE:
		return step_raise(w, i);
	case A_WAIT:
		if (!a->told)
			return false;
		a->told = 0;
		return go(&a->pc, A_LOOK);
	case A_RESOLVE:
		for (unsigned k = 0; k < EVENTS; k++)
			if (w->e[k].pc && w->e[k].by == i)
				return step_event(w, k);
		return false;
	case A_COPY:
		return step_copy(w, i);
	case A_STALE:
		return step_stale(w, i);
	default:
		return false;
	}
}

/* --- the others --- */

static bool step_driver(struct world *w)
{
	for (unsigned k = 0; k < EVENTS; k++)
		if (w->e[k].pc > E_QUEUED && w->e[k].by == NOBODY)
			return step_event(w, k);
	for (unsigned k = 0; k < EVENTS; k++)
		if (w->e[k].pc == E_QUEUED)
			return go(&w->e[k].pc, E_FILL);
	return false;
}

/* prefetch.c: an event that nobody waits for, at first. */
static bool step_prefetch(struct world *w)
{
	unsigned first = 0;

	if (!prefetches || w->prefetched)
		return false;
	w->prefetched = 1;
	while (first < PAGES && !page_raisable(atomic_load(&leaf.word[0]), page_mask(first, first), true))
		first++;
	if (first < PAGES)
		raise_event(w, first, PAGES - 1, true, NOBODY);
	return true;
}

/* MADV_DONTNEED, or munmap and then mmap, of both pages. */
static bool step_giver(struct world *w)
{
	unsigned pc = w->giver;

	if (pc == I_DONE)
		return false;
	if (mistake == REPORT_FIRST)
		pc = pc == I_TAKE ? I_REPORT : pc - 1;
	if (pc < I_REPORT)
		take_away(w, pc);
	else if (reports)
		leaf_drop(&leaf, 0, page_mask(0, PAGES - 1));
	if (w->giver++ < I_REPORT)
		return true;
	w->given++;
	if (!times)
		w->given = 0;
	return go(&w->giver, times && w->given == times ? I_DONE : I_TAKE);
}

static bool step_fork(struct world *w)
{
	bool report = (w->forker == 1) != (mistake == REPORT_FIRST);

	if (!forks || w->forker == 2)
		return false;
	for (unsigned p = 0; p < PAGES && !report; p++)
		if (w->cpu[p] & CPU_PRESENT)
			w->cpu[p] |= CPU_SHARED;
	if (report)
		leaf_fork(&leaf, 0, PAGES - 1);
	w->forker++;
	return true;
}

static bool others_done(const struct world *w)
{
	for (unsigned i = 0; i < ACCESSES; i++)
		if (!absent[i] && w->a[i].pc != A_DONE && w->a[i].pc != A_FAILED)
			return false;
	for (unsigned k = 0; k < EVENTS; k++)
		if (w->e[k].pc)
			return false;
	return (!times || w->giver == I_DONE) && (!forks || w->forker == 2) && (!prefetches || w->prefetched);
}

/* odp_verify(): once at any time, and once when all is over. */
static bool step_sweep(struct world *w)
{
	if (w->sweeper == S_ASK) {
		if (w->sweeps == 2 || (w->sweeps == 1 && !others_done(w)))
			return false;
		for (unsigned p = 0; p < PAGES; p++)
			if (!(w->cpu[p] & CPU_PRESENT))
				w->asked |= 1u << p;
		return go(&w->sweeper, S_DROP);
	}
	for (unsigned p = 0; p < PAGES; p++)
		if (w->asked & 1u << p)
			leaf_drop(&leaf, 0, page_mask(p, p));
	w->asked = 0;
	w->sweeps++;
	return go(&w->sweeper, S_ASK);
}

enum { DO_DRIVER = ACCESSES, DO_GIVE, DO_FORK, DO_SWEEP, DO_PREFETCH, CHOICES };

static bool step(void *state, unsigned choice)
{
	struct world *w = state;
	bool can;

	atomic_store(&leaf.word[0], w->word);
	switch (choice) {
	case DO_DRIVER:
		can = step_driver(w);
		break;
	case DO_GIVE:
		can = step_giver(w);
		break;
	case DO_FORK:
		can = step_fork(w);
		break;
	case DO_SWEEP:
		can = step_sweep(w);
		break;
	case DO_PREFETCH:
		can = step_prefetch(w);
		break;
	default:
		can = !absent[choice] && step_access(w, choice);
		break;
	}
	w->word = atomic_load(&leaf.word[0]);
	return can;
}

/* What nobody will look at any more makes no difference; the oldest event stands first. */
static void canonical(void *state)
{
	struct world *w = state;

	for (unsigned i = 0, to = 0; i < EVENTS; i++) {
		struct event_state e = w->e[i];

		memset(&w->e[i], 0, sizeof(e));
		if (e.pc)
			w->e[to++] = e;
	}
	for (unsigned i = 0; i < ACCESSES; i++) {
		struct access_state *a = &w->a[i];

		if (a->pc == A_DONE || a->pc == A_FAILED)
			memset(a, 0, sizeof(*a)), a->pc = A_DONE;
		if (a->pc == A_LOOK)
			a->page = 0;
		if (a->lost >= ODP_FORCED)
			a->high = 0;
	}
	for (unsigned p = 0; p < PAGES; p++) {
		if (page_state_of(w->word, p) != PAGE_FAULTING || w->word >> 8 * p & PAGE_DIRTY ||
			mistake != KEEP_FRAMES)
			w->filled[p] = 0;
		if (page_state_of(w->word, p) < PAGE_VALID_RO || mistake != KEEP_FRAMES)
			w->kept[p] = 0;
	}
}

static bool entry_is_stale(const struct world *w, unsigned page)
{
	enum page_state state = page_state_of(w->word, page);

	return (state >= PAGE_VALID_RO && !(w->cpu[page] & CPU_PRESENT)) ||
	       (state == PAGE_VALID_RW && w->cpu[page] & CPU_SHARED);
}

/* When nobody is left: nothing faults, and what was reported is not there. */
static bool wrong(const void *state)
{
	const struct world *w = state;

	if (w->wrong)
		return true;
	if (!others_done(w) || !times)
		return false;
	for (unsigned p = 0; p < PAGES; p++)
		if (page_state_of(w->word, p) == PAGE_FAULTING ||
			(entry_is_stale(w, p) && (reports || w->sweeps == 2)))
			return true;
	return false;
}

static bool done(const void *state)
{
	const struct world *w = state;

	return others_done(w) && w->sweeps == 2;
}

/* The application may go on for ever; nobody else may. */
static bool for_ever(unsigned choice)
{
	return choice == DO_GIVE;
}

static const char *name(unsigned choice)
{
	static const char *const names[CHOICES] = { "access to both pages", "access to the second page",
		"driver", "application gives up", "fork", "sweep", "prefetch" };

	return names[choice];
}

static const struct explore_model model = { .size = sizeof(struct world),
	.choices = CHOICES,
	.step = step,
	.done = done,
	.wrong = wrong,
	.canonical = canonical,
	.for_ever = for_ever,
	.name = name };

/* --- the walks --- */

#define MOST 6000000u

struct scene {
	bool write[ACCESSES];
	bool absent[ACCESSES];
	uint8_t times;
	bool unmaps, raw, forks, prefetches;
	bool sweeps; /* at any time, else at the end only */
	bool valid;  /* both pages are, at first */
};

static struct explore_result walk(const struct scene *s, enum mistake m)
{
	struct explore_result r;
	struct world w;

	memset(&w, 0, sizeof(w));
	memcpy(writes, s->write, sizeof(writes));
	memcpy(absent, s->absent, sizeof(absent));
	times = s->times;
	unmaps = s->unmaps;
	reports = !s->raw;
	forks = s->forks;
	prefetches = s->prefetches;
	mistake = m;
	w.sweeps = !s->sweeps;
	if (s->valid) {
		w.word = 0x0303; /* both PAGE_VALID_RW */
		memset(w.cpu, CPU_PRESENT, PAGES);
		memset(w.kept, 1, PAGES);
	}
	explore(&model, &w, MOST, &r);
	assert_false(r.cut);
	return r;
}

static void holds(const struct scene *s)
{
	struct explore_result r = walk(s, NONE);

	print_message("%zu states, %zu steps, %zu ends\n", r.states, r.steps, r.done);
	if (r.stuck || r.endless || r.wrong || r.rounds || !r.done)
		explore_print(&model, &r);
	assert_int_equal(r.stuck, 0);
	assert_int_equal(r.wrong, 0);
	assert_int_equal(r.endless, 0);
	assert_int_equal(r.rounds, 0);
	assert_true(r.done > 0);
}

static void no_order_leaves_a_stale_entry_or_somebody_waiting(void **state)
{
	static const struct scene scenes[] = {
		{ .write = { true, true }, .times = 2, .forks = true },
		{ .write = { true, false }, .times = 1, .forks = true },
		{ .write = { false, true }, .times = 1, .forks = true, .valid = true, .sweeps = true },
		{ .write = { false, false }, .times = 2, .valid = true },
		{ .write = { true, false },
			.absent = { false, true },
			.times = 2,
			.prefetches = true,
			.forks = true },
		{ .write = { false, true }, .times = 1, .prefetches = true },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		holds(&scenes[i]);
}

static void pages_that_are_unmapped_and_mapped_again_end_every_access(void **state)
{
	static const struct scene scenes[] = {
		{ .write = { true, true }, .times = 2, .unmaps = true },
		{ .write = { true, false }, .times = 1, .unmaps = true, .valid = true, .forks = true },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		holds(&scenes[i]);
}

static void what_nobody_reports_is_found_by_the_copy_or_the_sweep(void **state)
{
	static const struct scene scenes[] = {
		{ .write = { true, true },
			.times = 1,
			.unmaps = true,
			.raw = true,
			.valid = true,
			.sweeps = true },
		{ .write = { true, false }, .times = 2, .raw = true, .sweeps = true },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		holds(&scenes[i]);
}

static void against_an_endless_dontneed_loop_every_access_ends(void **state)
{
	static const struct scene scenes[] = {
		{ .write = { true, true } },
		{ .write = { true, true }, .absent = { true, false }, .forks = true },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
		holds(&scenes[i]);
}

static void every_mistake_is_found(void **state)
{
	static const struct scene once = { .write = { true, true },
		.absent = { false, true },
		.times = 1,
		.forks = true,
		.prefetches = true };
	static const struct scene alone = { .write = { true, true }, .absent = { false, true } };
	static const struct scene always = { .write = { true, true } };
	struct explore_result r;

	(void)state;
	assert_true(walk(&once, REPORT_FIRST).wrong > 0);
	assert_true(walk(&once, IGNORE_DIRT).wrong > 0);
	assert_true(walk(&once, KEEP_FRAMES).wrong > 0);
	assert_true(walk(&always, KEEP_FAULTING).wrong > 0);
	r = walk(&always, FORGET_LATE);
	assert_true(r.endless > 0);
	r = walk(&alone, NEVER_FORCED);
	assert_true(r.rounds > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_order_leaves_a_stale_entry_or_somebody_waiting),
		cmocka_unit_test(pages_that_are_unmapped_and_mapped_again_end_every_access),
		cmocka_unit_test(what_nobody_reports_is_found_by_the_copy_or_the_sweep),
		cmocka_unit_test(against_an_endless_dontneed_loop_every_access_ends),
		cmocka_unit_test(every_mistake_is_found),
	};

	return cmocka_run_group_tests_name("odp/protocol_model", tests, NULL, NULL);
}

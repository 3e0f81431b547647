/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The protocol of fault, invalidation and access for one page, in every order of its steps.
 *
 * The real functions on a real leaf, one atomic step at a time, by two faulters, two invalidators and a fork,
 * over a world of one page that is present or not and shared with a child or not. All interleavings are
 * walked (states that have been seen are not walked again).
 *
 * Safety: when everybody has finished, a valid page is present, a read-write one is not shared, and nothing
 * is left faulting. Progress: every faulter finishes within its rounds. And the walk is able to fail: with
 * invalidators that report before they take the page away, or a map that ignores what was dropped meanwhile,
 * it finds the stale entry.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "odp/pagetable.h"
#include "odp/space.h"

/*
 * Where a faulter is. Waiting: another one owns the fault; it begins again when that is over, as a resumed
 * waiter does.
 */
enum { F_START, F_POPULATE, F_SETTLE, F_AGAIN, F_GIVE_UP, F_DONE };
enum { I_TAKE, I_REPORT, I_DONE };

#define FAULTERS     2u
#define INVALIDATORS 3u /* the last one is fork */

struct world {
	uint64_t word;
	uint8_t faulter[FAULTERS], rounds[FAULTERS], starts[FAULTERS];
	uint8_t invalidator[INVALIDATORS];
	uint8_t present, shared;
};

static struct leaf leaf;
static bool report_first, ignore_dirt;
static unsigned stale, left_faulting, ends;

#define SEEN (1u << 22)
static uint64_t *seen;

static uint64_t hash_of(const struct world *w)
{
	const uint8_t *b = (const uint8_t *)w;
	uint64_t h = 1469598103934665603ull;

	for (size_t i = 0; i < sizeof(*w); i++)
		h = (h ^ b[i]) * 1099511628211ull;
	return h ? h : 1;
}

/*
 * True the first time. Two states with one 64-bit hash would be one: with some ten thousand states that does
 * not happen.
 */
static bool first_visit(const struct world *w)
{
	uint64_t h = hash_of(w);
	size_t i = h % SEEN;

	for (; seen[i]; i = (i + 1) % SEEN)
		if (seen[i] == h)
			return false;
	seen[i] = h;
	return true;
}

static enum page_state state_in(const struct world *w)
{
	return page_state_of(w->word, 0);
}

/* One step of a faulter on the loaded leaf. false: it cannot step now. */
static bool step_faulter(struct world *w, unsigned i)
{
	unsigned handled;

	switch (w->faulter[i]) {
	case F_START: /* under the fault queue's lock */
		if (state_in(w) == PAGE_FAULTING)
			return false;
		if (state_in(w) == PAGE_VALID_RW || w->starts[i] == 2) {
			w->faulter[i] = F_DONE;
			return true;
		}
		w->starts[i]++;
		w->rounds[i] = 0;
		assert_int_equal(leaf_raise(&leaf, 0, 0, true), 1);
		w->faulter[i] = F_POPULATE;
		return true;
	case F_POPULATE: /* breaks copy-on-write */
		w->present = 1;
		w->shared = 0;
		w->faulter[i] = F_SETTLE;
		return true;
	case F_SETTLE:
		if (ignore_dirt)
			leaf_again(&leaf, 0, 0);
		if (leaf_settle(&leaf, 0, 0, 1, true, false, 0, 1, 1, &handled))
			w->faulter[i] = F_START; /* the access looks again */
		else
			w->faulter[i] = ++w->rounds[i] < ODP_FORCED ? F_AGAIN : F_GIVE_UP;
		return true;
	case F_AGAIN:
		assert_int_equal(leaf_again(&leaf, 0, 0), 1);
		w->faulter[i] = F_POPULATE;
		return true;
	case F_GIVE_UP: /* let through: the CPU's own fault */
		assert_int_equal(leaf_give_up(&leaf, 0, 0), 1);
		w->present = 1;
		w->shared = 0;
		w->faulter[i] = F_DONE;
		return true;
	}
	return false;
}

static void take(struct world *w, unsigned i)
{
	if (i == INVALIDATORS - 1)
		w->shared = 1;
	else
		w->present = 0;
}

static void report(unsigned i)
{
	if (i == INVALIDATORS - 1)
		leaf_fork(&leaf, 0, 0);
	else
		leaf_drop(&leaf, 0, page_mask(0, 0));
}

static bool step_invalidator(struct world *w, unsigned i)
{
	if (w->invalidator[i] == I_DONE)
		return false;
	if ((w->invalidator[i] == I_TAKE) != report_first)
		take(w, i);
	else
		report(i);
	w->invalidator[i]++;
	return true;
}

static void check_end(const struct world *w)
{
	ends++;
	if (state_in(w) == PAGE_FAULTING)
		left_faulting++;
	if ((state_in(w) == PAGE_VALID_RW || state_in(w) == PAGE_VALID_RO) && !w->present)
		stale++;
	else if (state_in(w) == PAGE_VALID_RW && w->shared)
		stale++;
}

static void walk(const struct world *w)
{
	bool stepped = false;

	if (!first_visit(w))
		return;
	for (unsigned i = 0; i < FAULTERS + INVALIDATORS; i++) {
		struct world next = *w;

		atomic_store(&leaf.word[0], w->word);
		if (!(i < FAULTERS ? step_faulter(&next, i) : step_invalidator(&next, i - FAULTERS)))
			continue;
		next.word = atomic_load(&leaf.word[0]);
		stepped = true;
		walk(&next);
	}
	if (stepped)
		return;
	/* Nobody can step: all must have finished. */
	for (unsigned i = 0; i < FAULTERS; i++)
		assert_int_equal(w->faulter[i], F_DONE);
	check_end(w);
}

static void walk_all(bool wrong_order, bool no_dirt)
{
	struct world w;

	memset(&w, 0, sizeof(w));
	memset(seen, 0, SEEN * sizeof(*seen));
	report_first = wrong_order;
	ignore_dirt = no_dirt;
	stale = left_faulting = ends = 0;
	walk(&w);
	assert_true(ends > 0);
	assert_int_equal(left_faulting, 0);
}

static void no_order_of_steps_leaves_a_stale_entry_or_a_lost_fault(void **state)
{
	(void)state;
	walk_all(false, false);
	assert_int_equal(stale, 0);
}

static void reporting_before_the_change_would_be_found(void **state)
{
	(void)state;
	walk_all(true, false);
	assert_true(stale > 0);
}

static void mapping_what_was_dropped_meanwhile_would_be_found(void **state)
{
	(void)state;
	walk_all(false, true);
	assert_true(stale > 0);
}

static int setup(void **state)
{
	(void)state;
	seen = calloc(SEEN, sizeof(*seen));
	return seen ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	free(seen);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_order_of_steps_leaves_a_stale_entry_or_a_lost_fault),
		cmocka_unit_test(reporting_before_the_change_would_be_found),
		cmocka_unit_test(mapping_what_was_dropped_meanwhile_would_be_found),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

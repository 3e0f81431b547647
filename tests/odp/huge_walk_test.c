/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A page that becomes valid because it came with another one in a huge page (odp/huge.c), in every order of
 * the steps of the event, two invalidations, a fork, and an application that touches what is gone.
 *
 * Page 0 is the one that was raised, page 1 the one that comes with it. Safety: when everybody has finished,
 * a valid page is present, a read-write one is not shared, and nothing is left faulting. And the walk is able
 * to fail: without the second question, or without the look at page 0, it finds the stale entry.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "odp/pagetable.h"

enum { E_POPULATE, E_ASK, E_RAISE, E_ASK_AGAIN, E_LOOK, E_SETTLE_REST, E_GIVE_BACK, E_SETTLE, E_DONE };
enum { DROP_ALL, DROP_OTHER, FORK, TOUCH, OTHERS };

struct world {
	uint64_t word;
	uint8_t event;
	uint8_t other[OTHERS]; /* steps done; TOUCH has one, the others take and report */
	uint8_t present[2];
	uint8_t huge, shared;
};

static struct leaf leaf;
static bool ask_once, do_not_look;
static unsigned stale, left_faulting, both, ends;

static void step_event(struct world *w)
{
	unsigned mapped;

	switch (w->event) {
	case E_POPULATE:
		if (!w->present[0] && !w->present[1])
			w->huge = w->present[1] = 1;
		w->present[0] = 1;
		w->shared = 0;
		w->event = E_ASK;
		break;
	case E_ASK:
		w->event = w->huge ? E_RAISE : E_SETTLE;
		break;
	case E_RAISE:
		w->event = leaf_raise(&leaf, 1, 1, true) ? E_ASK_AGAIN : E_SETTLE;
		if (w->event == E_ASK_AGAIN && ask_once)
			w->event = E_LOOK;
		break;
	case E_ASK_AGAIN:
		w->event = w->huge ? E_LOOK : E_GIVE_BACK;
		break;
	case E_LOOK:
		w->event = do_not_look || page_faulting_clean(atomic_load(&leaf.word[0]), page_mask(0, 0))
				   ? E_SETTLE_REST
				   : E_GIVE_BACK;
		break;
	case E_SETTLE_REST:
		leaf_settle_rest(&leaf, 1, 1, true, false, 1, 1);
		w->event = E_SETTLE;
		break;
	case E_GIVE_BACK:
		leaf_give_up(&leaf, 1, 1);
		w->event = E_SETTLE;
		break;
	default:
		/* What is resolved again is another walk's. */
		if (!leaf_settle(&leaf, 0, 0, 1, true, false, 1, 1, 1, &mapped))
			leaf_give_up(&leaf, 0, 0);
		w->event = E_DONE;
	}
}

static void take(struct world *w, unsigned other)
{
	if (other == FORK) {
		w->shared = 1;
		return;
	}
	w->present[1] = w->huge = 0;
	if (other == DROP_ALL)
		w->present[0] = 0;
}

static void report(unsigned other)
{
	if (other == FORK)
		leaf_fork(&leaf, 0, 7);
	else
		leaf_drop(&leaf, 0, other == DROP_ALL ? page_mask(0, 7) : page_mask(1, 1));
}

static bool step_other(struct world *w, unsigned other)
{
	if (w->other[other] == (other == TOUCH ? 1 : 2))
		return false;
	if (other == TOUCH) {
		/* What is all gone comes back huge, and a part of it small. */
		w->huge |= !w->present[0] && !w->present[1];
		w->present[0] = w->present[1] = 1;
	} else if (!w->other[other])
		take(w, other);
	else
		report(other);
	w->other[other]++;
	return true;
}

static void check_end(const struct world *w)
{
	ends++;
	both += page_valid(w->word, page_mask(0, 1)) == 0x0101;
	for (unsigned i = 0; i < 2; i++) {
		enum page_state state = page_state_of(w->word, i);

		left_faulting += state == PAGE_FAULTING;
		stale += state >= PAGE_VALID_RO && !w->present[i];
		stale += state == PAGE_VALID_RW && w->shared;
	}
}

/* Few enough steps to walk every order of them. */
static void walk(const struct world *w)
{
	bool stepped = false;

	for (unsigned i = 0; i <= OTHERS; i++) {
		struct world next = *w;

		atomic_store(&leaf.word[0], w->word);
		if (i == OTHERS ? w->event == E_DONE : !step_other(&next, i))
			continue;
		if (i == OTHERS)
			step_event(&next);
		next.word = atomic_load(&leaf.word[0]);
		stepped = true;
		walk(&next);
	}
	if (!stepped)
		check_end(w);
}

/* Nothing is there, or what others have touched; page 0 is faulting. Who is not in the set stays away. */
static void walk_with(unsigned set, bool there)
{
	struct world w = { .word = PAGE_FAULTING, .event = E_POPULATE };

	w.present[0] = w.present[1] = w.huge = there;
	for (unsigned i = 0; i < OTHERS; i++)
		if (!(set >> i & 1))
			w.other[i] = i == TOUCH ? 1 : 2;
	walk(&w);
}

static void walk_all(bool once, bool blind)
{
	ask_once = once;
	do_not_look = blind;
	stale = left_faulting = both = ends = 0;
	for (unsigned set = 0; set < 1u << OTHERS; set++) {
		walk_with(set, false);
		walk_with(set, true);
	}
	assert_true(ends > 1000);
	assert_int_equal(left_faulting, 0);
}

static void no_order_of_steps_leaves_a_stale_entry(void **state)
{
	(void)state;
	walk_all(false, false);
	assert_int_equal(stale, 0);
	/* It is not only by giving up that it is right. */
	assert_true(both > 0);
}

static void asking_before_the_raise_only_would_be_found(void **state)
{
	(void)state;
	walk_all(true, false);
	assert_true(stale > 0);
}

static void not_looking_whether_the_page_was_dropped_would_be_found(void **state)
{
	(void)state;
	walk_all(false, true);
	assert_true(stale > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_order_of_steps_leaves_a_stale_entry),
		cmocka_unit_test(asking_before_the_raise_only_would_be_found),
		cmocka_unit_test(not_looking_whether_the_page_was_dropped_would_be_found),
	};

	return cmocka_run_group_tests_name("odp/huge_walk", tests, NULL, NULL);
}

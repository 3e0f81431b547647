/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The steps resolve, map and resume of a fault event. */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "mm/page.h"
#include "mm/populate.h"
#include "odp/core.h"

/* How often a populate that asks to be repeated is, before the access is let through. */
#define POPULATE_TRIES 8

static void pause_before_retry(unsigned tries, bool spot)
{
	struct timespec ts = { 0, 20000l << tries };

	if (spot)
		sched_yield();
	else
		nanosleep(&ts, NULL);
}

/* The first n pages of the event. 0, -EACCES, -EFAULT, or -EAGAIN when it will not succeed for now. */
static int fill(const struct fault *f, unsigned n, bool spot)
{
	/* Whole pages of the machine, which may be larger than the table's. */
	uintptr_t from = page_down(f->addr), to = page_up(f->addr + ((uintptr_t)n << ODP_PAGE_SHIFT));
	int err;

	for (unsigned tries = 0;; tries++) {
		err = populate((void *)from, to - from, f->write);
		if (err != -EAGAIN || tries == POPULATE_TRIES)
			break;
		pause_before_retry(tries, spot);
	}
	return err == -ENOMEM ? -EFAULT : err;
}

/* What the event owns below its page settles with it. */
static void settle_below(const struct fault *f, int err)
{
	unsigned first = leaf_page(f->addr);

	if (!f->before)
		return;
	if (err)
		leaf_give_up(f->leaf, first - f->before, first - 1);
	else
		leaf_settle_rest(
			f->leaf, first - f->before, first - 1, f->write, f->file, odp_tick(), f->owner);
}

/*
 * Populates and maps. The event owns all its pages until the first leaf_settle(), and after that the first
 * one as long as it has not been mapped. *mapped: it has been; *handled: how many needed pages were. Returns
 * the error of the last populate.
 */
static int fill_and_map(
	struct odp_space *s, struct fault *f, unsigned limit, bool spot, bool *mapped, unsigned *handled)
{
	unsigned first = leaf_page(f->addr), n = limit < f->pages ? limit : f->pages, one;
	int err = fill(f, n, spot);

	/*
	 * Populate does not say which page was the obstacle: the first one alone decides, the others find out
	 * for themselves.
	 */
	if (err && n > 1) {
		n = 1;
		err = fill(f, 1, spot);
	}
	if (!err && f->huge) {
		odp_huge_take(s, f);
		if (f->huge)
			n = f->pages;
	}
	settle_below(f, err);
	*mapped = leaf_settle(f->leaf, first, first + f->pages - 1, err ? 0 : n, f->write, f->file,
		odp_tick(), f->owner, f->needed, handled);
	/* Clean and not mapped: it is the populate that failed. */
	while (!*mapped && f->retried < ODP_FORCED && leaf_again(f->leaf, first, first)) {
		f->retried++;
		err = fill(f, 1, spot);
		*mapped = leaf_settle(
			f->leaf, first, first, err ? 0 : 1, f->write, f->file, odp_tick(), f->owner, 1, &one);
		*handled += one;
	}
	return err;
}

static void record(struct odp_space *s, const struct fault *f, bool spot, uint64_t now)
{
	struct hist *step = s->cfg.step_ns[f->major];

	hist_add(&step[UNPIN_STEP_RESOLVE], now - f->started_ns);
	if (spot) {
		hist_add(&step[UNPIN_STEP_TOTAL], now - f->raised_ns);
		return;
	}
	hist_add(&step[UNPIN_STEP_QUEUE], f->started_ns - f->raised_ns);
}

/* Under the fault queue's lock: the region may end at any other time. */
static void settle_counts(struct odp_space *s, const struct fault *f, unsigned handled, int err)
{
	struct unpin_odp_counters *c = f->region ? f->region->odp : NULL;

	odp_count(s, c, page_faults_handled, handled);
	if (f->major)
		odp_count(s, c, faults_major, 1);
	else
		odp_count(s, c, faults_minor, 1);
	if (f->retried)
		odp_count(s, c, faults_retried, f->retried);
	if (err)
		odp_count(s, c, faults_failed, 1);
}

struct odp_outcome odp_resolve(struct odp_space *s, struct fault *f, unsigned limit, bool spot)
{
	struct odp_outcome out = { 0, false };
	struct list told = LIST_INIT(told);
	unsigned handled;
	bool mapped;
	uint64_t now;

	if (f->imprecise) {
		odp_imprecise(s, f);
		return out;
	}
	f->started_ns = spot ? f->raised_ns : clock_ns();
	out.err = fill_and_map(s, f, limit, spot, &mapped, &handled);
	now = clock_ns();
	record(s, f, spot, now);

	fault_lock(&s->faults);
	if (!mapped)
		leaf_give_up(f->leaf, leaf_page(f->addr), leaf_page(f->addr));
	out.forced = !mapped && (!out.err || out.err == -EAGAIN);
	if (mapped || out.forced)
		out.err = 0;
	settle_counts(s, f, handled, out.err);
	if (f->alone && f->region)
		odp_remember(f->region, f->addr, out.err, out.forced);
	fault_finish(&s->faults, f, out.err, out.forced, now, &told);
	fault_unlock(&s->faults);

	odp_active(s);
	fault_tell(&told);
	return out;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The steps resolve, map and resume of a fault event. */
#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/trace.h"
#include "mm/page.h"
#include "mm/populate.h"
#include "odp/core.h"
#include "odp/slowest.h"

/* How often a populate that asks to be repeated is, before the access is let through. */
#define POPULATE_TRIES 8

static void pause_before_retry(unsigned tries, bool spot)
{
	struct timespec ts = { 0, 20000l << tries };

	if (spot)
		sched_yield();
	else
		syscall(SYS_nanosleep, &ts, NULL); /* libc's is a cancellation point */
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
 * The first round: populates. Populate does not say which page was the obstacle: the first one alone decides,
 * the others find out for themselves.
 */
static void fill_first(struct odp_space *s, struct fault *f, unsigned limit, bool spot)
{
	f->populated = limit < f->pages ? limit : f->pages;
	guard_spend(&s->guard, (uint64_t)f->populated * ODP_PAGE);
	f->error = fill(f, f->populated, spot);
	if (f->error && f->populated > 1) {
		f->populated = 1;
		f->error = fill(f, 1, spot);
	}
	if (f->error)
		f->populated = 0;
}

/* What has become valid of an event. */
struct mapped {
	bool first;
	unsigned needed, ahead; /* pages */
};

/* Part of an event's pages that begin with the nth. Returns whether the first of them was mapped. */
static bool settle(const struct fault *f, unsigned nth, unsigned pages, unsigned *mapped)
{
	unsigned first = leaf_page(f->addr) + nth, populated = f->populated > nth ? f->populated - nth : 0;

	return leaf_settle(f->leaf, first, first + pages - 1, populated < pages ? populated : pages, f->write,
		f->file, odp_tick(), f->owner, pages, mapped);
}

/* Those ahead of the access are nobody's but the event's until they are settled, in one step. */
static void settle_ahead(const struct fault *f, struct mapped *m)
{
	unsigned first = leaf_page(f->addr) + f->needed;

	if (f->needed < f->pages && !settle(f, f->needed, f->pages - f->needed, &m->ahead))
		leaf_give_up(f->leaf, first, first);
}

/*
 * Maps. The event owns all its pages until they are settled, and after that the first one as long as it has
 * not been mapped: then it is resolved again. Returns the error of the last populate.
 */
static int map(struct odp_space *s, struct fault *f, bool spot, struct mapped *m)
{
	unsigned first = leaf_page(f->addr), one;
	int err = f->error;

	if (!err && f->huge) {
		odp_huge_take(s, f);
		if (f->huge)
			f->populated = f->pages;
	}
	settle_below(f, err);
	settle_ahead(f, m);
	m->first = settle(f, 0, f->needed, &m->needed);
	/* Clean and not mapped: it is the populate that failed. */
	while (!m->first && !f->no_fault && f->retried < ODP_FORCED && leaf_again(f->leaf, first, first)) {
		f->retried++;
		err = fill(f, 1, spot);
		f->populated = !err;
		m->first = settle(f, 0, 1, &one);
		m->needed += one;
	}
	return err;
}

/* What this thread did; an event that is put off is ended by another one, later. */
static void trace_resolved(const struct fault *f, uint64_t now)
{
	if (trace_enabled())
		trace_record(TRACE_RESOLVE, f->started_ns, now, f->addr, f->pages);
}

static uint32_t slow_flags(const struct fault *f, int err)
{
	return (f->write ? UNPIN_SLOW_WRITE : 0u) | (f->major ? UNPIN_SLOW_MAJOR : 0u) |
	       (f->file ? UNPIN_SLOW_FILE : 0u) | (f->huge || f->hugetlb ? UNPIN_SLOW_HUGE : 0u) |
	       (f->retried ? UNPIN_SLOW_RETRIED : 0u) | (err ? UNPIN_SLOW_FAILED : 0u) |
	       (f->put_off ? UNPIN_SLOW_HELD_BACK : 0u);
}

static void record_slow(struct unpin_slow *slow, const struct fault *f, int err, uint64_t now)
{
	const struct unpin_slow_fault note = {
		.flags = slow_flags(f, err),
		.ended_ns = now,
		.addr = f->addr,
		.pages = f->pages,
		.waited_ns = f->started_ns - f->raised_ns,
		.resolved_ns = now - f->started_ns,
		.reads = f->reads,
	};

	if (f->reads) {
		counter_add(&slow->read_events, 1);
		counter_add(&slow->read_ns, now - f->started_ns);
	}
	slowest_note(slow, &note);
}

static void record(struct odp_space *s, const struct fault *f, bool spot, int err, uint64_t now)
{
	struct hist *step = s->cfg.step_ns[f->major];

	if (!f->put_off)
		trace_resolved(f, now);
	if (f->prefetch)
		return;
	if (trace_enabled())
		trace_record(TRACE_FAULT, f->raised_ns, now, f->addr, f->pages);
	if (s->cfg.slow)
		record_slow(s->cfg.slow, f, err, now);
	hist_add(&step[UNPIN_STEP_RESOLVE], now - f->started_ns);
	if (spot) {
		hist_add(&step[UNPIN_STEP_TOTAL], now - f->raised_ns);
		return;
	}
	hist_add(&step[UNPIN_STEP_QUEUE], f->started_ns - f->raised_ns);
}

/* Under the fault queue's lock: the region may end at any other time. */
static void settle_counts(struct odp_space *s, const struct fault *f, const struct mapped *m, int err)
{
	struct unpin_odp_counters *c = f->region ? f->region->odp : NULL;

	if (f->retried)
		odp_count(s, c, faults_retried, f->retried);
	if (f->prefetch) {
		odp_count(s, c, page_prefetch, m->needed + m->ahead);
		return;
	}
	odp_count(s, c, page_faults_handled, m->needed);
	/* What a huge page brings with it is not read ahead: it costs nothing. */
	if (m->ahead && !f->huge && !f->hugetlb)
		odp_count(s, c, page_readahead, m->ahead);
	if (f->major)
		odp_count(s, c, faults_major, 1);
	else
		odp_count(s, c, faults_minor, 1);
	if (err)
		odp_count(s, c, faults_failed, 1);
}

/* The steps map and resume. */
static struct odp_outcome finish(struct odp_space *s, struct fault *f, bool spot)
{
	struct odp_outcome out = { 0, false, 0 };
	struct list told = LIST_INIT(told);
	struct mapped m = { false, 0, 0 };
	uint64_t now;

	out.err = map(s, f, spot, &m);
	now = clock_ns();
	record(s, f, spot, out.err, now);

	fault_lock(&s->faults);
	if (!m.first)
		leaf_give_up(f->leaf, leaf_page(f->addr), leaf_page(f->addr));
	out.forced = !m.first && (!out.err || out.err == -EAGAIN);
	if (m.first || out.forced)
		out.err = 0;
	out.mapped = m.needed;
	settle_counts(s, f, &m, out.err);
	if (f->alone && f->region)
		odp_remember(f->region, f->addr, out.err, out.forced);
	fault_finish(&s->faults, f, out.err, out.forced, now, &told);
	fault_unlock(&s->faults);

	odp_active(s);
	fault_tell(&told);
	return out;
}

/* What it named has been resolved; whatever came of that, its waiter tries again. */
static struct odp_outcome finish_imprecise(struct odp_space *s, struct fault *f)
{
	struct list told = LIST_INIT(told);

	fault_lock(&s->faults);
	fault_finish(&s->faults, f, 0, false, clock_ns(), &told);
	fault_unlock(&s->faults);
	fault_tell(&told);
	return (struct odp_outcome){ 0, false, 0 };
}

/* Whether the event was too fast, and has been kept for later. */
static bool put_off(struct odp_space *s, struct fault *f)
{
	uint64_t now = f->due_ns ? clock_ns() : 0;

	if (now >= f->due_ns)
		return false;
	trace_resolved(f, now);
	f->put_off = true;
	fault_lock(&s->faults);
	fault_put_off(&s->faults, f);
	fault_unlock(&s->faults);
	return true;
}

/* The kernel's own count of page faults of this thread that had to read. */
static uint64_t reads_so_far(void)
{
	struct rusage used;

	return getrusage(RUSAGE_THREAD, &used) ? 0 : (uint64_t)used.ru_majflt;
}

struct odp_outcome odp_resolve(struct odp_space *s, struct fault *f, unsigned limit, bool spot)
{
	/* What is resolved on the spot does not read, and has no time to ask. */
	uint64_t reads = spot ? 0 : reads_so_far();

	f->started_ns = spot ? f->raised_ns : clock_ns();
	if (f->imprecise)
		odp_imprecise(s, f);
	else
		fill_first(s, f, limit, spot);
	if (!spot)
		f->reads = reads_so_far() - reads;
	if (!spot && put_off(s, f))
		return (struct odp_outcome){ 0, false, 0 };
	return f->imprecise ? finish_imprecise(s, f) : finish(s, f, spot);
}

struct odp_outcome odp_resolve_due(struct odp_space *s, struct fault *f)
{
	return f->imprecise ? finish_imprecise(s, f) : finish(s, f, false);
}

struct odp_outcome odp_resolve_resident(struct odp_space *s, struct fault *f, unsigned resident)
{
	f->started_ns = clock_ns();
	f->populated = resident;
	f->error = resident ? 0 : -ENODATA;
	f->no_fault = true;
	return finish(s, f, false);
}

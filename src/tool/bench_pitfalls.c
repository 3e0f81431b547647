/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What was found to make page faults slow on hardware: a second request some milliseconds after one that
 * faults, and many queue pairs that fault on one page. Each is measured twice on the same pages: when they
 * are cold, and when they are there; what is above is the faults'.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/attach.h"
#include "tool/bench.h"
#include "tool/machine.h"

#define PAGE	      4096u
#define QPS_MOST      512u
#define LOOPS_QUICK   20u
#define LOOPS_FULL    100u
#define TIMES_ALLOWED 3

enum column { CASE, REPLY, COLD, WARM, EXTRA, OVER_ONE, OVER_EXPECTED, RNR, SAMPLES, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[CASE] = { "case", NULL, "<case" },
	[REPLY] = { "fault_reply", NULL, "<reply" },
	[COLD] = { "cold", "us", "cold us" },
	[WARM] = { "warm", "us", "warm us" },
	[EXTRA] = { "extra", "us", "cold - warm us" },
	[OVER_ONE] = { "over_one_fault", "ratio", "in faults" },
	[OVER_EXPECTED] = { "over_expected", "ratio", "of expected" },
	[RNR] = { "rnr_per_fault", "count", "RNR per fault" },
	[SAMPLES] = { "samples", "count", NULL },
};

/* requests: 0 is one over both pages. delay_ns: between the first request and the second; its time is taken
 * off. */
static const struct pitfall {
	const char *name;
	unsigned requests, qps;
	uint64_t delay_ns;
} cases[] = {
	{ "one request", 1, 1, 0 },
	{ "a second one at once", 2, 1, 0 },
	{ "a second one after 1 ms", 2, 1, NSEC_PER_MSEC },
	{ "a second one after 10 ms", 2, 1, 10 * NSEC_PER_MSEC },
	{ "both ends of one WRITE of 8 KiB", 0, 1, 0 },
	{ "8 queue pairs, one page", 1, 8, 0 },
	{ "64 queue pairs, one page", 1, 64, 0 },
	{ "512 queue pairs, one page", 1, QPS_MOST, 0 },
};

#define CASES (sizeof(cases) / sizeof(cases[0]))

struct pitfalls {
	struct bench *b;
	struct endpoint_region source,
		target; /* in this process: the queue pairs are connected to themselves */
	struct ibv_qp *qp[QPS_MOST];
	unsigned qps, loops;
	bool own; /* the device is unpin's: it counts, and can be told how to reply */
	struct sample cold[CASES], warm[CASES], extra[CASES];
	double worst; /* cold time, of the warm time and one fault; 0: none was measured */
	uint64_t rnr[CASES], faults[CASES]; /* answers receiver-not-ready, pages that were not there */
};

static int post(struct pitfalls *f, unsigned qp, size_t offset, uint32_t length)
{
	struct endpoint *e = &f->b->e;
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = f->source.addr,
		.lkey = f->source.mr->lkey,
		.length = length,
		.remote = (uintptr_t)f->target.addr + offset,
		.rkey = f->target.mr->rkey };
	struct ibv_qp *connected = e->qp;
	int err;

	e->qp = f->qp[qp];
	err = endpoint_post(e, &op);
	e->qp = connected;
	return err;
}

/* Polls meanwhile, as a program does that waits for completions. */
static int wait_for(struct endpoint *e, struct endpoint_done *done, uint64_t ns)
{
	uint64_t until = clock_ns() + ns;
	int n = 0;

	while (n >= 0 && clock_ns() < until)
		n = endpoint_poll(e, done, 16);
	return n < 0 ? n : 0;
}

static int play(struct pitfalls *f, const struct pitfall *c, uint64_t *ns)
{
	struct endpoint *e = &f->b->e;
	struct endpoint_done done = { 0 };
	uint64_t start = clock_ns();
	unsigned posted = 0;
	int err = 0;

	if (!c->requests) {
		err = post(f, 0, 0, 2 * PAGE);
		posted = 1;
	}
	for (unsigned q = 0; !err && c->requests && q < c->qps; q++) {
		err = post(f, q, 0, 8);
		posted++;
	}
	if (!err && c->requests == 2) {
		err = wait_for(e, &done, c->delay_ns);
		if (!err)
			err = post(f, 0, PAGE, 8);
		posted++;
	}
	if (!err)
		err = endpoint_wait(e, &done, posted, 0);
	*ns = clock_ns() - start - c->delay_ns;
	return bench_fail_endpoint(f->b, err);
}

struct counts {
	uint64_t rnr, faults;
};

static struct counts look(struct pitfalls *f)
{
	struct counts c = { 0 };
	struct attach a;

	if (!f->own || attach_open(&a, getpid()))
		return c;
	c.rnr = atomic_load(&a.copy->dev.rnr_nak_sent);
	c.faults = atomic_load(&a.copy->odp.page_faults);
	attach_close(&a);
	return c;
}

static int play_case(struct pitfalls *f, size_t i)
{
	struct counts before, after;
	uint64_t cold, warm;
	/* Once for nothing: the queue pairs shall be in the processor's caches both times. */
	int err = play(f, &cases[i], &warm);

	if (err)
		return err;
	if (madvise(f->target.addr, f->target.length, MADV_DONTNEED))
		return bench_fail(f->b, -errno, "MADV_DONTNEED: %s", strerror(errno));
	before = look(f);
	err = play(f, &cases[i], &cold);
	after = look(f);
	if (!err && machine_compare(f->target.addr, 8, 61) < 8)
		err = bench_wrong(f->b, "wrong data after a page fault");
	if (!err)
		err = play(f, &cases[i], &warm);
	if (err)
		return err;
	sample_add(&f->cold[i], BENCH_US(cold));
	sample_add(&f->warm[i], BENCH_US(warm));
	sample_add(&f->extra[i], BENCH_US(cold) - BENCH_US(warm));
	f->rnr[i] += after.rnr - before.rnr;
	f->faults[i] += after.faults - before.faults;
	return 0;
}

/* --- rows --------------------------------------------------------------------------------------------------
 */

/* Returns the cold time, of the warm time and one fault. */
static double report_case(struct report_part *p, struct pitfalls *f, size_t i, const char *reply)
{
	double one = sample_spread(&f->extra[0]).median, expected = sample_spread(&f->warm[i]).median + one;

	report_row(p);
	report_words(p, CASE, cases[i].name);
	report_words(p, REPLY, reply);
	report_spread(p, COLD, sample_spread(&f->cold[i]));
	report_spread(p, WARM, sample_spread(&f->warm[i]));
	report_spread(p, EXTRA, sample_spread(&f->extra[i]));
	report_number(p, SAMPLES, (double)f->extra[i].count);
	if (f->faults[i])
		report_number(p, RNR, (double)f->rnr[i] / (double)f->faults[i]);
	if (one <= 0)
		return 0;
	report_number(p, OVER_ONE, sample_spread(&f->extra[i]).median / one);
	report_number(p, OVER_EXPECTED, sample_spread(&f->cold[i]).median / expected);
	return sample_spread(&f->cold[i]).median / expected;
}

static void report_reply(struct report_part *p, struct pitfalls *f, const char *reply, bool targets)
{
	double worst = 0;

	for (size_t i = 0; i < CASES; i++) {
		double over = f->extra[i].count ? report_case(p, f, i, reply) : 0;

		worst = over > worst ? over : worst;
	}
	f->worst = worst;
	if (targets && worst > 0)
		report_at_most(p, "pitfalls_over_expected",
			"the worst of them, of the warm time and one fault", worst, TIMES_ALLOWED, "times");
}

static int make(struct pitfalls *f)
{
	struct endpoint *e = &f->b->e;
	int err = endpoint_region_make(e, &f->source, 2 * PAGE, ENDPOINT_ON_DEMAND);

	if (!err)
		err = endpoint_region_make(e, &f->target, 2 * PAGE, ENDPOINT_ON_DEMAND);
	if (err)
		return err;
	machine_fill(f->source.addr, 2 * PAGE, 61);
	for (f->qps = 0; !err && f->qps < QPS_MOST; f->qps++)
		err = endpoint_loop(e, &f->qp[f->qps]);
	return err;
}

static void unmake(struct pitfalls *f)
{
	for (unsigned i = 0; i < f->qps; i++)
		if (f->qp[i])
			ibv_destroy_qp(f->qp[i]);
	endpoint_region_release(&f->source);
	endpoint_region_release(&f->target);
	for (size_t i = 0; i < CASES; i++) {
		sample_free(&f->cold[i]);
		sample_free(&f->warm[i]);
		sample_free(&f->extra[i]);
	}
}

/* How the device was told to reply, or whether it cannot be told. */
static bool is_own(const char *reply)
{
	struct attach a;
	bool own;

	if (attach_open(&a, getpid()))
		return false;
	own = strcmp(a.copy->fault_reply, reply) == 0;
	attach_close(&a);
	return own;
}

static int connect_replying(struct pitfalls *f, const char *reply)
{
	struct bench *b = f->b;
	int err;

	/* The completion queue has room for one of each queue pair. */
	b->choice.depth = 2 * QPS_MOST;
	err = bench_connect_set(b, "UNPIN_FAULT_REPLY", reply);
	b->choice.depth = 0;
	f->own = !err && is_own(reply);
	return err;
}

static int play_reply(struct pitfalls *f, struct report_part *p, const char *reply, bool targets)
{
	int err = bench_fail_endpoint(f->b, make(f));

	for (unsigned i = 0; !err && i < f->loops; i++) {
		bench_progress(f->b, "pitfalls: %s, %u of %u", reply, i + 1, f->loops);
		for (size_t c = 0; !err && c < CASES; c++)
			err = bench_stopped() ? -EINTR : play_case(f, c);
	}
	report_reply(p, f, reply, targets);
	unmake(f);
	return err;
}

int bench_pitfalls(struct bench *b)
{
	static const char *const replies[] = { "park", "rnr" };
	static const size_t times[] = { COLD, WARM };
	static struct pitfalls f;
	struct plot *plot;
	struct report_part *p = report_part(&b->report, "pitfalls", "Pitfalls of hardware",
		"Cases in which page faults on hardware take many times as long as one: each on cold pages "
		"and "
		"again on the same pages when they are there; what the faults add, in single faults; and the "
		"whole, "
		"of what is expected: the warm time and one fault. Once with requests that wait at the "
		"responder, "
		"and once with receiver-not-ready answers, as hardware gives them. Queue pairs that are "
		"connected to "
		"themselves; a delay between requests is taken off. Medians [quartiles].",
		columns, COLUMNS);
	double worst = 0; /* with the manner of replying that is the default */
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(replies) / sizeof(replies[0]); i++) {
		memset(&f, 0, sizeof(f));
		f.b = b;
		f.loops = b->quick ? LOOPS_QUICK : LOOPS_FULL;
		err = connect_replying(&f, replies[i]);
		/* Another device has a manner of its own, once. */
		if (!err && (f.own || i == 0))
			err = play_reply(&f, p, f.own ? replies[i] : "its own", i == 0);
		bench_disconnect(b);
		worst = i ? worst : f.worst;
	}
	plot = report_bars(p,
		(struct plot_axis){ "time on cold pages, and on the same when warm", PLOT_US, true }, CASE,
		REPLY, times, sizeof(times) / sizeof(times[0]));
	if (plot && worst > 0)
		plot_title(plot,
			"Of the cases known to make page faults slow on hardware, the worst takes %.1f times "
			"as long here as a warm request and one fault.",
			worst);
	else if (plot)
		plot_title(plot, "The cases known to make page faults slow on hardware, cold and warm.");
	return err;
}

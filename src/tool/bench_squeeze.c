/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What becomes of requests while memory is short: the working set grows past a limit, and a limit falls on a
 * working set. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/squeeze.h"
#include "tool/units.h"

#define PAGE	  4096u
#define MIB	  ((uint64_t)1 << 20)
#define LIMIT	  (96 * MIB)  /* of the sweep, the program's own memory included */
#define LARGEST	  (256 * MIB) /* of the buffer; a power of two */
#define SWAP	  (512 * MIB)
#define LOOSE	  (2 * LARGEST)
#define HELD	  (64 * MIB) /* working set while the limit falls and rises; a power of two */
#define SQUEEZED  (48 * MIB) /* and the limit it falls to */
#define SETTLE_NS (300 * NSEC_PER_MSEC)
#define POINT_NS  (700 * NSEC_PER_MSEC)
#define PHASE_NS  (3 * NSEC_PER_SEC)
#define BUCKET_NS (100 * NSEC_PER_MSEC)

enum column { WHAT, WORKING_SET, OF_LIMIT, RATE, MAJOR, P50, P99, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[WHAT] = { "what", NULL, "<what" },
	[WORKING_SET] = { "working_set", "bytes", "working set" },
	[OF_LIMIT] = { "of_limit", "percent", "of the limit %" },
	[RATE] = { "rate", "requests_per_s", "requests/s" },
	[MAJOR] = { "major", "faults_per_s", "major faults/s" },
	[P50] = { "p50", "us", "p50 us" },
	[P99] = { "p99", "us", "p99 us" },
};

struct pressed {
	struct bench *b;
	struct squeeze s;
	struct ibv_qp *loop;
	struct endpoint_region source, target;
	struct report_part *part;
	uint64_t walk;			/* a generator's state: where the next request goes */
	double calm_rate, pressed_rate; /* of the sweep: below the limit, and the last */
};

static uint64_t majors(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)u.ru_majflt;
}

static size_t next_page(struct pressed *q, uint64_t working_set)
{
	q->walk = q->walk * 6364136223846793005ull + 1442695040888963407ull;
	return (size_t)((q->walk >> 33) % (working_set / PAGE)) * PAGE;
}

/* One request to a random page of the working set; its time in microseconds, or a negative errno. */
static double request(struct pressed *q, uint64_t working_set)
{
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = q->source.addr,
		.lkey = q->source.mr->lkey,
		.length = 8,
		.remote = (uintptr_t)q->target.addr + next_page(q, working_set),
		.rkey = q->target.mr->rkey };
	uint64_t start = clock_ns();
	int err = endpoint_do(&q->b->e, &op);

	if (err)
		return bench_fail_endpoint(q->b, err);
	return bench_stopped() ? -EINTR : BENCH_US(clock_ns() - start);
}

static int run_for(struct pressed *q, uint64_t working_set, uint64_t ns, struct sample *time)
{
	uint64_t start = clock_ns();

	/* One at least, however long this thread was kept from its processor. */
	do {
		double us = request(q, working_set);

		if (us < 0)
			return (int)us;
		sample_add(time, us);
	} while (clock_ns() - start < ns);
	return 0;
}

static double report_point(struct pressed *q, const char *what, uint64_t working_set, uint64_t limit,
	double seconds, double major, struct sample *time)
{
	double rate = (double)time->count / seconds;

	report_row(q->part);
	report_words(q->part, WHAT, what);
	report_bytes(q->part, WORKING_SET, working_set);
	report_number(q->part, OF_LIMIT, 100 * (double)working_set / (double)limit);
	report_number(q->part, RATE, rate);
	report_number(q->part, MAJOR, major / seconds);
	report_number(q->part, P50, sample_quantile(time, 0.5));
	report_number(q->part, P99, sample_quantile(time, 0.99));
	return rate;
}

/* --- the working set passes the limit ----------------------------------------------------------------------
 */

static int sweep_point(struct pressed *q, struct plot *throughput, struct plot *faults, uint64_t working_set)
{
	struct sample time = { 0 };
	uint64_t before, start;
	double seconds, rate, percent = 100 * (double)working_set / (double)LIMIT;
	int err;

	/* All of it was used once, as far as that goes, before what is measured. */
	machine_touch(q->target.addr, working_set);
	err = run_for(q, working_set, SETTLE_NS, &time);
	sample_clear(&time);
	before = majors();
	start = clock_ns();
	if (!err)
		err = run_for(q, working_set, POINT_NS, &time);
	seconds = (double)(clock_ns() - start) / (double)NSEC_PER_SEC;
	if (time.count) {
		rate = report_point(
			q, "sweep", working_set, LIMIT, seconds, (double)(majors() - before), &time);
		plot_point(throughput, plot_series(throughput, "requests"), percent, rate);
		plot_point(faults, plot_series(faults, "major faults"), percent,
			(double)(majors() - before) / seconds);
		if (percent <= 70 && rate > q->calm_rate)
			q->calm_rate = rate;
		q->pressed_rate = rate;
	}
	sample_free(&time);
	return err;
}

static int sweep(struct pressed *q)
{
	static const unsigned percent[] = { 25, 50, 70, 85, 95, 105, 120, 150, 200 };
	struct plot *throughput = report_plot(q->part, "throughput", PLOT_LINES,
		(struct plot_axis){ "working set, % of the memory limit", PLOT_NUMBER, false },
		(struct plot_axis){ "requests per second", PLOT_NUMBER, true });
	struct plot *faults = report_plot(q->part, "faults", PLOT_LINES,
		(struct plot_axis){ "working set, % of the memory limit", PLOT_NUMBER, false },
		(struct plot_axis){ "major faults per second", PLOT_NUMBER, false });
	char limit[UNITS_MAX];
	int err = squeeze_limit(&q->s, LIMIT);

	units_bytes(limit, LIMIT);
	if (err)
		return bench_fail(q->b, err, "cannot set a memory limit: %s", strerror(-err));
	for (size_t i = 0; !err && i < sizeof(percent) / sizeof(percent[0]); i++) {
		bench_progress(q->b, "squeeze: a working set of %u %% of the limit", percent[i]);
		err = sweep_point(q, throughput, faults, LIMIT * percent[i] / 100 / PAGE * PAGE);
	}
	if (q->calm_rate > 0)
		plot_title(throughput,
			"Below the limit of %s %.0f requests a second are served; at twice the limit, %.1f "
			"%% of that.",
			limit, q->calm_rate, 100 * q->pressed_rate / q->calm_rate);
	else
		plot_title(throughput, "Requests per second against the working set.");
	plot_title(faults, "Major faults begin where the working set and the program pass the limit of %s.",
		limit);
	return err;
}

/* --- the limit falls and rises -----------------------------------------------------------------------------
 */

struct buckets {
	struct plot *plot;
	uint64_t start;
	double worst;
	double fell, rose; /* seconds after the start */
};

static int play_phase(struct pressed *q, struct buckets *u, const char *name, uint64_t limit)
{
	struct sample bucket = { 0 }, all = { 0 };
	uint64_t before = majors(), start = clock_ns();
	double seconds, began = (double)(start - u->start) / (double)NSEC_PER_SEC;
	int err = squeeze_limit(&q->s, limit);

	/* A limit that the kernel cannot reach is a limit all the same in version 2; in version 1 it stays.
	 */
	if (err && err != -EBUSY)
		return bench_fail(q->b, err, "cannot set a memory limit: %s", strerror(-err));
	/* Lowering the limit may have taken all of the time, where swap is slow: that is when requests tell
	 * most.
	 */
	do {
		double at;

		bench_progress(q->b, "squeeze: %s", name);
		sample_clear(&bucket);
		err = run_for(q, HELD, BUCKET_NS, &bucket);
		at = (double)(clock_ns() - u->start) / (double)NSEC_PER_SEC;
		for (size_t i = 0; i < bucket.count; i++)
			sample_add(&all, bucket.value[i]);
		if (!bucket.count)
			continue;
		plot_point(u->plot, plot_series(u->plot, "p50"), at, sample_quantile(&bucket, 0.5));
		plot_point(u->plot, plot_series(u->plot, "p99"), at, sample_quantile(&bucket, 0.99));
		plot_point(u->plot, plot_series(u->plot, "slowest"), at, sample_quantile(&bucket, 1));
	} while (!err && clock_ns() - start < PHASE_NS);
	seconds = (double)(clock_ns() - start) / (double)NSEC_PER_SEC;
	if (all.count) {
		report_point(q, name, HELD, limit, seconds, (double)(majors() - before), &all);
		if (limit == SQUEEZED) {
			u->worst = sample_quantile(&all, 0.99);
			u->fell = began;
			u->rose = began + seconds;
		}
	}
	sample_free(&bucket);
	sample_free(&all);
	return err;
}

static int fall_and_rise(struct pressed *q)
{
	struct buckets u = { .plot = report_plot(q->part, "time", PLOT_CURVES,
				     (struct plot_axis){ "time, s", PLOT_NUMBER, false },
				     (struct plot_axis){ "time of one request", PLOT_US, true }) };
	char limit[UNITS_MAX], held[UNITS_MAX], worst[UNITS_MAX];
	int err = squeeze_limit(&q->s, LOOSE);

	plot_title(u.plot, "The time of requests while memory is squeezed.");
	if (err)
		return bench_fail(q->b, err, "cannot set a memory limit: %s", strerror(-err));
	machine_touch(q->target.addr, HELD);
	u.start = clock_ns();
	err = play_phase(q, &u, "before the squeeze", LOOSE);
	if (!err)
		err = play_phase(q, &u, "squeezed", SQUEEZED);
	if (!err)
		err = play_phase(q, &u, "after the squeeze", LOOSE);
	if (u.worst > 0)
		plot_title(u.plot,
			"From %.1f s to %.1f s, %s of %s in use may stay in memory: one request in a hundred "
			"takes more "
			"than %s.",
			u.fell, u.rose, units_bytes(limit, SQUEEZED), units_bytes(held, HELD),
			bench_time(worst, u.worst));
	return err;
}

/* --- the part ----------------------------------------------------------------------------------------------
 */

static int play(struct pressed *q)
{
	struct bench *b = q->b;
	struct ibv_qp *usual = b->e.qp;
	int err = endpoint_loop(&b->e, &q->loop);

	if (!err)
		err = endpoint_region_make(&b->e, &q->source, PAGE, ENDPOINT_ON_DEMAND);
	if (!err)
		err = endpoint_region_make(&b->e, &q->target, LARGEST, ENDPOINT_ON_DEMAND);
	if (err)
		return bench_fail_endpoint(b, err);
	machine_touch(q->source.addr, PAGE);
	b->e.qp = q->loop;
	err = sweep(q);
	if (!err)
		err = fall_and_rise(q);
	b->e.qp = usual;
	return err;
}

int bench_squeeze(struct bench *b)
{
	struct pressed q = { .b = b };
	int err;

	q.part = report_part(&b->report, "squeeze", "Under memory pressure",
		"Writes of 8 bytes to random pages of a buffer, one after the other, in a memory cgroup with "
		"a limit, with "
		"swap. The sweep: the working set grows past the limit, which the program itself shares. The "
		"squeeze: the "
		"limit falls below the working set for some seconds, and rises again.",
		columns, COLUMNS);
	err = squeeze_begin(&q.s, LOOSE, SWAP);
	if (err) {
		report_note(q.part, "Not measured: %s.", q.s.why);
		return 0;
	}
	err = squeeze_enter(&q.s);
	if (err)
		bench_fail(b, err, "%s", q.s.why);
	else
		err = bench_alone(b);
	if (!err && !b->e.odp)
		report_note(q.part, "Not measured: %s has no on-demand paging.", b->choice.device);
	else if (!err)
		err = play(&q);
	/* Swapped-out pages come back, or go, before the limit does. */
	if (q.loop)
		ibv_destroy_qp(q.loop);
	endpoint_region_release(&q.source);
	endpoint_region_release(&q.target);
	bench_disconnect(b);
	squeeze_end(&q.s);
	return err;
}

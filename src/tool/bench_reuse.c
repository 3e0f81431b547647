/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How often a buffer must be used until pinning it pays. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define KIB	   ((uint64_t)1 << 10)
#define MIB	   ((uint64_t)1 << 20)
#define USES_MOST  256u
#define MESSAGE	   ((uint32_t)(256 << 10))
#define DEPTH	   8u
#define BYTES_MOST (1024 * MIB)

enum way { PINNED, ON_DEMAND, PREFETCHED, WAYS };

static const char *const names[WAYS] = { "pinned", "on demand", "on demand + prefetch" };

enum column { SIZE, USES, FIRST_WAY, OVER_PINNED = FIRST_WAY + WAYS, ROUNDS, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[SIZE] = { "size", "bytes", "size" },
	[USES] = { "uses", "count", "uses" },
	[FIRST_WAY + PINNED] = { "pinned", "us", "pinned us" },
	[FIRST_WAY + ON_DEMAND] = { "on_demand", "us", "on demand us" },
	[FIRST_WAY + PREFETCHED] = { "on_demand_prefetch", "us", "on demand + prefetch us" },
	[OVER_PINNED] = { "on_demand_over_pinned", "ratio", "on demand / pinned" },
	[ROUNDS] = { "rounds", "count", NULL },
};

struct reuse {
	struct bench *b;
	struct ibv_qp *loop;
	struct endpoint_region source;
	struct report_part *part;
	uint64_t bytes_most; /* of one life: longer ones are not played */
	bool no_pinned, no_prefetch;
};

/* The life of a buffer: registered, written into so many times by the device, deregistered. Fresh memory. */
static int live(struct reuse *u, enum way way, uint64_t size, unsigned uses, double *us)
{
	struct endpoint *e = &u->b->e;
	struct ibv_qp *usual = e->qp;
	struct endpoint_region r = { 0 };
	void *addr = machine_map(size);
	uint64_t start = clock_ns();
	int64_t ns = 0;
	int err;

	if (!addr)
		return bench_fail(u->b, -ENOMEM, "cannot map memory: %s", strerror(errno));
	err = endpoint_region_register(
		e, &r, addr, size, way == PINNED ? ENDPOINT_PINNED : ENDPOINT_ON_DEMAND);
	if (!err && way == PREFETCHED)
		err = endpoint_prefetch(e, &r, 0, size, true, true);
	bench_fail_endpoint(u->b, err);
	if (!err) {
		e->qp = u->loop;
		ns = bench_stream(u->b, IBV_WR_RDMA_WRITE, &u->source, (uintptr_t)addr, r.mr->rkey, size,
			MESSAGE, DEPTH, size * uses);
		e->qp = usual;
		err = ns < 0 ? (int)ns : 0;
	}
	endpoint_region_deregister(&r);
	*us = BENCH_US(clock_ns() - start);
	if (!err && machine_compare(addr, size, 5) < size)
		err = bench_wrong(u->b, "wrong data in a buffer that was used %u times", uses);
	machine_unmap(addr, size);
	return err;
}

static bool is_unwanted(const struct reuse *u, enum way way)
{
	return (way == PINNED && u->no_pinned) || (way == PREFETCHED && u->no_prefetch);
}

static int play(struct reuse *u, uint64_t size, unsigned uses, struct sample time[WAYS])
{
	for (unsigned round = 0; round < u->b->pairs; round++) {
		for (int i = 0; i < WAYS; i++) {
			enum way way = (enum way)((i + (int)round) % WAYS);
			double us = 0;
			int err;

			if (bench_stopped())
				return -EINTR;
			if (is_unwanted(u, way))
				continue;
			err = live(u, way, size, uses, &us);
			if (err && way == ON_DEMAND)
				return err;
			if (err == -EINTR || err == -EBADMSG)
				return err;
			if (err) {
				report_note(u->part, "%s: %s.", names[way], u->b->why);
				u->no_pinned = u->no_pinned || way == PINNED;
				u->no_prefetch = u->no_prefetch || way == PREFETCHED;
			} else {
				sample_add(&time[way], us);
			}
		}
	}
	return 0;
}

/* Differences up to this are not taken for any. */
#define NO_DIFFERENCE 1.05

double bench_break_even(const struct plot *plot)
{
	const struct plot_series *pinned = &plot->series[PINNED], *on_demand = &plot->series[ON_DEMAND];
	size_t n = pinned->points < on_demand->points ? pinned->points : on_demand->points, from = 0;
	bool saved = false;

	if (plot->count < 2 || !n)
		return NAN;
	for (size_t i = 0; i < n; i++) {
		if (on_demand->point[i].y * NO_DIFFERENCE < pinned->point[i].y) {
			saved = true;
			from = i + 1;
		}
	}
	for (size_t i = from; i < n; i++)
		if (pinned->point[i].y * NO_DIFFERENCE < on_demand->point[i].y)
			/* Somewhere between these two, which lie on a logarithmic axis. */
			return i ? sqrt(pinned->point[i - 1].x * pinned->point[i].x) : 0;
	return saved ? INFINITY : -1;
}

static void conclude(struct plot *plot, uint64_t size)
{
	double at = bench_break_even(plot);
	char text[UNITS_MAX];

	units_bytes(text, size);
	if (isnan(at))
		plot_title(plot, "What the life of a buffer of %s costs, by its uses.", text);
	else if (at < 0)
		plot_title(plot,
			"A buffer of %s: pinned and on demand cost the same, however often it is used.",
			text);
	else if (at == 0)
		plot_title(plot, "A buffer of %s: pinning pays from the first use on.", text);
	else if (isinf(at))
		plot_title(plot,
			"A buffer of %s: pinning does not pay within %.0f uses, the most that were tried.",
			text, plot->series[PINNED].point[plot->series[PINNED].points - 1].x);
	else
		plot_title(plot, "A buffer of %s: pinning pays from about %.0f uses on.", text, at);
}

static int play_size(struct reuse *u, uint64_t size)
{
	struct plot *plot;
	char suffix[32], text[UNITS_MAX];
	int err = 0;

	snprintf(suffix, sizeof(suffix), "%llu", (unsigned long long)(size / KIB));
	plot = report_plot(u->part, suffix, PLOT_LINES,
		(struct plot_axis){ "times that the buffer is written in its life", PLOT_NUMBER, true },
		(struct plot_axis){ "time of its whole life", PLOT_US, true });
	for (int way = 0; way < WAYS; way++)
		plot_series(plot, names[way]);
	for (unsigned uses = 1; !err && uses <= USES_MOST && size * uses <= u->bytes_most; uses *= 4) {
		struct sample time[WAYS] = { 0 };

		bench_progress(u->b, "reuse: %s, %u uses", units_bytes(text, size), uses);
		err = play(u, size, uses, time);
		if (time[ON_DEMAND].count) {
			report_row(u->part);
			report_bytes(u->part, SIZE, size);
			report_number(u->part, USES, uses);
			report_number(u->part, ROUNDS, (double)time[ON_DEMAND].count);
		}
		for (int way = 0; way < WAYS; way++) {
			if (time[way].count && time[ON_DEMAND].count) {
				report_spread(u->part, FIRST_WAY + (size_t)way, sample_spread(&time[way]));
				plot_point(plot, (size_t)way, uses, sample_spread(&time[way]).median);
			}
		}
		if (time[ON_DEMAND].count && time[PINNED].count)
			report_number(u->part, OVER_PINNED,
				sample_spread(&time[ON_DEMAND]).median / sample_spread(&time[PINNED]).median);
		for (int way = 0; way < WAYS; way++)
			sample_free(&time[way]);
	}
	conclude(plot, size);
	return err;
}

int bench_reuse(struct bench *b)
{
	static const uint64_t sizes[] = { 64 * KIB, MIB, 16 * MIB };
	struct reuse u = { .b = b };
	int err = bench_alone(b);

	if (err)
		return err;
	if (!b->e.odp)
		return bench_no_odp(b);
	u.bytes_most = bench_fit(b->bytes_per_s, BYTES_MOST, sizes[sizeof(sizes) / sizeof(sizes[0]) - 1], 2);
	u.part = report_part(&b->report, "reuse", "How often a buffer must be used until pinning pays",
		"The whole life of a buffer of fresh memory: it is registered, the device writes all of it "
		"so many times, "
		"and it is deregistered. Pinning is paid once, at the start; faults are paid at the first "
		"use of each "
		"page. Medians of interleaved rounds [quartiles].",
		columns, COLUMNS);
	err = endpoint_loop(&b->e, &u.loop);
	if (!err)
		err = endpoint_region_make(
			&b->e, &u.source, sizes[sizeof(sizes) / sizeof(sizes[0]) - 1], ENDPOINT_ON_DEMAND);
	bench_fail_endpoint(b, err);
	if (!err)
		machine_fill(u.source.addr, u.source.length, 5);
	for (size_t i = 0; !err && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		err = play_size(&u, sizes[i]);
	if (u.loop)
		ibv_destroy_qp(u.loop);
	endpoint_region_release(&u.source);
	return err;
}

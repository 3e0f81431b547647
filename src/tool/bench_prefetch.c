/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What prefetch saves: a stream into memory that is cold, being prefetched, prefetched, and pinned. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define MIB	((uint64_t)1 << 20)
#define LENGTH	(64 * MIB)
#define MESSAGE ((uint32_t)(256 << 10))
#define DEPTH	8u

enum way { COLD, OVERLAPPED, WITH_PREFETCH, PREFETCHED, WARM, PINNED, WAYS };

static const char *const names[WAYS] = {
	[COLD] = "cold",
	[OVERLAPPED] = "prefetch begun, not waited for",
	[WITH_PREFETCH] = "prefetch waited for, its time included",
	[PREFETCHED] = "prefetched before",
	[WARM] = "warm",
	[PINNED] = "pinned, registered before",
};

enum column { WAY, RATE, OVER_COLD, TIME, TRANSFER, COUNT, NOTE, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[WAY] = { "way", NULL, "<stream into memory that is" },
	[RATE] = { "rate", "gb_per_s", "GB/s" },
	[OVER_COLD] = { "over_cold", "ratio", "of cold" },
	[TIME] = { "time", "us", NULL },
	[TRANSFER] = { "transfer", "bytes", NULL },
	[COUNT] = { "rounds", "count", NULL },
	[NOTE] = { "note", NULL, "<" },
};

struct prefetch {
	struct bench *b;
	uint64_t length;
	struct ibv_qp *loop;
	struct endpoint_region source, target[ENDPOINT_KINDS];
	char why_not[WAYS][256];
	struct sample rate[WAYS], over[WAYS], time[WAYS];
};

static int64_t stream(struct prefetch *f, const struct endpoint_region *target)
{
	struct ibv_qp *usual = f->b->e.qp;
	int64_t ns;

	f->b->e.qp = f->loop;
	ns = bench_stream(f->b, IBV_WR_RDMA_WRITE, &f->source, (uintptr_t)target->addr, target->mr->rkey,
		f->length, MESSAGE, DEPTH, f->length);
	f->b->e.qp = usual;
	return ns;
}

/* Nanoseconds, or negative errno. */
static int64_t once(struct prefetch *f, enum way way)
{
	struct endpoint_region *cold = &f->target[ENDPOINT_ON_DEMAND];
	int64_t before, ns;
	int err = 0;

	if (way == PINNED)
		return stream(f, &f->target[ENDPOINT_PINNED]);
	if (way != WARM && madvise(cold->addr, f->length, MADV_DONTNEED))
		return bench_fail(f->b, -errno, "MADV_DONTNEED: %s", strerror(errno));
	before = (int64_t)clock_ns();
	if (way == OVERLAPPED || way == WITH_PREFETCH || way == PREFETCHED)
		err = endpoint_prefetch(&f->b->e, cold, 0, f->length, true, way != OVERLAPPED);
	before = (int64_t)clock_ns() - before;
	if (err)
		return bench_fail_endpoint(f->b, err);
	ns = stream(f, cold);
	return ns < 0 || way == PREFETCHED ? ns : ns + before;
}

static int play_round(struct prefetch *f)
{
	double cold = 0;

	for (int way = 0; way < WAYS; way++) {
		int64_t ns;
		double rate;

		if (f->why_not[way][0])
			continue;
		ns = once(f, (enum way)way);
		if (ns == -EINTR || (ns < 0 && way == COLD))
			return (int)ns;
		if (ns < 0) {
			snprintf(f->why_not[way], sizeof(f->why_not[way]), "%.250s", f->b->why);
			continue;
		}
		rate = bench_rate(f->length, (uint64_t)ns);
		cold = way == COLD ? rate : cold;
		sample_add(&f->rate[way], rate);
		sample_add(&f->time[way], BENCH_US(ns));
		if (cold > 0)
			sample_add(&f->over[way], rate / cold);
	}
	return 0;
}

static int make(struct prefetch *f)
{
	struct endpoint *e = &f->b->e;
	int err = endpoint_loop(e, &f->loop);

	if (!err)
		err = endpoint_region_make(e, &f->source, f->length, ENDPOINT_ON_DEMAND);
	if (!err)
		err = endpoint_region_make(e, &f->target[ENDPOINT_ON_DEMAND], f->length, ENDPOINT_ON_DEMAND);
	if (err)
		return bench_fail_endpoint(f->b, err);
	machine_fill(f->source.addr, f->length, 17);
	/* A limit on locked memory is no reason not to measure the rest. */
	if (endpoint_region_make(e, &f->target[ENDPOINT_PINNED], f->length, ENDPOINT_PINNED))
		snprintf(f->why_not[PINNED], sizeof(f->why_not[PINNED]), "%.250s", e->why);
	return 0;
}

static void unmake(struct prefetch *f)
{
	if (f->loop)
		ibv_destroy_qp(f->loop);
	endpoint_region_release(&f->source);
	for (int k = 0; k < ENDPOINT_KINDS; k++)
		endpoint_region_release(&f->target[k]);
	for (int way = 0; way < WAYS; way++) {
		sample_free(&f->rate[way]);
		sample_free(&f->over[way]);
		sample_free(&f->time[way]);
	}
}

static void report_all(struct prefetch *f, struct report_part *p)
{
	static const size_t values[] = { RATE };
	struct plot *plot;

	for (int way = 0; way < WAYS; way++) {
		report_row(p);
		report_words(p, WAY, names[way]);
		report_bytes(p, TRANSFER, f->length);
		if (f->why_not[way][0])
			report_words(p, NOTE, f->why_not[way]);
		if (!f->rate[way].count)
			continue;
		report_spread(p, RATE, sample_spread(&f->rate[way]));
		report_spread(p, TIME, sample_spread(&f->time[way]));
		report_number(p, COUNT, (double)f->rate[way].count);
		if (f->over[way].count)
			report_spread(p, OVER_COLD, sample_spread(&f->over[way]));
	}
	plot = report_bars(p, (struct plot_axis){ "throughput of the stream, GB/s", PLOT_NUMBER, false }, WAY,
		SIZE_MAX, values, 1);
	if (plot && f->over[PREFETCHED].count)
		plot_title(plot,
			"A stream into prefetched memory is %.1f times as fast as into cold memory; with the "
			"prefetch's "
			"own time, %.1f times.",
			sample_spread(&f->over[PREFETCHED]).median,
			sample_spread(&f->over[WITH_PREFETCH]).median);
	else if (plot)
		plot_title(plot, "Throughput of a stream by the state of its target.");
}

int bench_prefetch(struct bench *b)
{
	struct prefetch f = { .b = b, .length = LENGTH };
	struct report_part *p;
	int err = bench_alone(b);

	if (err)
		return err;
	if (!b->e.odp)
		return bench_no_odp(b);
	f.length = bench_fit(b->bytes_per_s, LENGTH, DEPTH * MESSAGE, b->quick ? 0.5 : 2);
	while (f.length > MESSAGE && 5 * f.length > machine_available())
		f.length /= 2;
	err = make(&f);
	for (unsigned i = 0; !err && i < b->pairs; i++) {
		bench_progress(b, "prefetch: round %u of %u", i + 1, b->pairs);
		err = bench_stopped() ? -EINTR : play_round(&f);
	}
	if (!err && machine_compare(f.target[ENDPOINT_ON_DEMAND].addr, f.length, 17) < f.length)
		err = bench_wrong(b, "wrong data came through a stream into prefetched memory");
	p = report_part(&b->report, "prefetch", "What prefetch saves",
		"One stream in WRITEs of 256 KiB, 8 at a time, through a queue pair that is connected to "
		"itself, into "
		"memory that has no pages (cold), that ibv_advise_mr(3) brings in at the same time or "
		"before, that was "
		"used just before (warm), and that is pinned. Medians of interleaved rounds [quartiles].",
		columns, COLUMNS);
	report_all(&f, p);
	unmake(&f);
	return err;
}

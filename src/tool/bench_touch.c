/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the first access to a page costs: by the device, by the processor, and by the kernel's populate call.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE	4096u
#define PAGES	65536u /* of the memory that is touched at random: 256 MiB, of which few pages ever exist */
#define STRIDE	40503u /* odd: i * STRIDE % PAGES takes every page once */
#define CHECKED 64u    /* pages whose bytes are compared afterwards */

enum column { OPERATION, COLD_P50, COLD_P99, WARM_P50, WARM_P99, EXTRA, OVER_POPULATE, SAMPLES, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[OPERATION] = { "operation", NULL, "<operation" },
	[COLD_P50] = { "cold_p50", "us", "cold p50 us" },
	[COLD_P99] = { "cold_p99", "us", "p99 us" },
	[WARM_P50] = { "warm_p50", "us", "warm p50 us" },
	[WARM_P99] = { "warm_p99", "us", "p99 us" },
	[EXTRA] = { "cold_minus_warm", "us", "cold - warm us" },
	[OVER_POPULATE] = { "over_populate", "ratio", "of one populate" },
	[SAMPLES] = { "samples", "count", NULL },
};

enum operation { DEVICE_WRITE, DEVICE_READ, CPU_WRITE, POPULATE, OPERATIONS };

static const char *const names[OPERATIONS] = {
	[DEVICE_WRITE] = "RDMA WRITE of 4 KiB",
	[DEVICE_READ] = "RDMA READ of 4 KiB",
	[CPU_WRITE] = "processor writes a word",
	[POPULATE] = "MADV_POPULATE_WRITE",
};

struct touch {
	struct bench *b;
	struct endpoint_region local; /* two pages: out, in */
	uint64_t remote;
	uint32_t rkey;
	char *own; /* as large as the remote memory: for the processor and for populate */
	bool populate_works;
	struct hist cold[OPERATIONS], warm[OPERATIONS];
	struct sample extra[OPERATIONS]; /* cold - warm of one page, us */
	struct sample populate;		 /* the whole call, us */
};

/* Page number i of an operation, at random and never twice. */
static uint64_t place(enum operation op, uint32_t i)
{
	return (uint64_t)((i * OPERATIONS + op) * STRIDE % PAGES) * PAGE;
}

static uint64_t timed(struct touch *t, enum operation what, uint64_t offset, int *err)
{
	struct endpoint_op op = {
		.opcode = what == DEVICE_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
		.local = (char *)t->local.addr + (what == DEVICE_WRITE ? 0 : PAGE),
		.lkey = t->local.mr->lkey,
		.length = PAGE,
		.remote = t->remote + offset,
		.rkey = t->rkey,
	};
	uint64_t start = clock_ns();

	switch (what) {
	case CPU_WRITE:
		*(volatile uint64_t *)(t->own + offset) = offset;
		break;
	case POPULATE:
		if (madvise(t->own + offset, PAGE, MADV_POPULATE_WRITE))
			t->populate_works = false;
		break;
	default:
		*err = endpoint_do(&t->b->e, &op);
	}
	return clock_ns() - start;
}

/* The device's first READ of anonymous memory finds zeroes, and so does the second. */
static int check_read(struct touch *t)
{
	const uint64_t *in = (const uint64_t *)((char *)t->local.addr + PAGE);

	for (unsigned i = 0; i < PAGE / 8; i++)
		if (in[i])
			return bench_wrong(
				t->b, "an RDMA READ of untouched memory brought bytes that are not zero");
	return 0;
}

static int touch_page(struct touch *t, uint32_t i)
{
	int err = 0;

	machine_fill(t->local.addr, PAGE, i);
	memset((char *)t->local.addr + PAGE, 0xff, PAGE);
	for (int op = 0; !err && op < OPERATIONS; op++) {
		uint64_t cold, warm;

		cold = timed(t, (enum operation)op, place((enum operation)op, i), &err);
		if (err)
			return bench_fail_endpoint(t->b, err);
		warm = timed(t, (enum operation)op, place((enum operation)op, i), &err);
		if (err)
			return bench_fail_endpoint(t->b, err);
		hist_add(&t->cold[op], cold);
		hist_add(&t->warm[op], warm);
		sample_add(&t->extra[op], BENCH_US(cold) - BENCH_US(warm));
		if (op == POPULATE)
			sample_add(&t->populate, BENCH_US(cold));
	}
	return check_read(t);
}

static int check_writes(struct touch *t, uint32_t samples)
{
	int err = 0;

	for (uint32_t i = 0; !err && i < samples; i += samples / CHECKED + 1)
		err = bench_peer_compare(t->b, 0, place(DEVICE_WRITE, i), PAGE, i);
	return err;
}

static void report_operation(struct report_part *p, struct touch *t, enum operation op, double populate)
{
	report_row(p);
	report_words(p, OPERATION, names[op]);
	if (op == POPULATE && !t->populate_works) {
		report_words(p, COLD_P50, "not in this kernel");
		return;
	}
	report_number(p, COLD_P50, BENCH_US(hist_quantile(&t->cold[op], 0.5)));
	report_number(p, COLD_P99, BENCH_US(hist_quantile(&t->cold[op], 0.99)));
	report_number(p, WARM_P50, BENCH_US(hist_quantile(&t->warm[op], 0.5)));
	report_number(p, WARM_P99, BENCH_US(hist_quantile(&t->warm[op], 0.99)));
	report_spread(p, EXTRA, sample_spread(&t->extra[op]));
	report_number(p, SAMPLES, (double)t->extra[op].count);
	if (populate > 0)
		report_number(p, OVER_POPULATE, sample_spread(&t->extra[op]).median / populate);
}

static void report_all(struct touch *t)
{
	struct report_part *p = report_part(&t->b->report, "first_touch", "First touch of a page",
		"What it costs when the device is the first to use a page (cold), and when it is not (warm), "
		"beside the same by the processor and by the kernel's own call for it. Pages are taken at "
		"random; each figure of a row is from the same pages.",
		columns, COLUMNS);
	double populate = t->populate_works ? sample_spread(&t->populate).median : 0;

	for (int op = 0; op < OPERATIONS; op++)
		report_operation(p, t, (enum operation)op, populate);
	if (populate > 0)
		report_at_most(p, "cold_write_over_populate",
			"cold minus warm WRITE of 4 KiB, in populates of one page",
			sample_spread(&t->extra[DEVICE_WRITE]).median / populate, 2, "times");
}

static int play(struct touch *t)
{
	uint32_t samples = t->b->quick ? 1000 : 8000;
	int err = bench_peer_poll_begin(t->b);
	uint32_t i;

	for (i = 0; !err && i < samples; i++) {
		if (i % 100 == 0)
			bench_progress(t->b, "first touch: %u of %u pages", i, samples);
		err = bench_stopped() ? -EINTR : touch_page(t, i);
	}
	if (t->extra[DEVICE_WRITE].count)
		report_all(t);
	if (!err)
		err = bench_peer_poll_end(t->b);
	return err ? err : check_writes(t, samples);
}

int bench_touch(struct bench *b)
{
	static struct touch t; /* its histograms are large */
	int err = bench_connect(b);

	if (err)
		return err;
	if (!b->e.odp)
		return bench_fail(b, -EOPNOTSUPP,
			"%s has no on-demand paging for reliable connections: there is no first touch to "
			"measure",
			b->choice.device);
	memset(&t, 0, sizeof(t));
	t.b = b;
	t.populate_works = true;
	err = endpoint_region_make(&b->e, &t.local, 2 * PAGE, ENDPOINT_ON_DEMAND);
	if (err)
		return bench_fail_endpoint(b, err);
	t.own = machine_map((size_t)PAGES * PAGE);
	if (!t.own)
		err = bench_fail(b, -errno, "cannot map memory: %s", strerror(errno));
	if (!err)
		err = bench_peer_make(
			b, 0, (uint64_t)PAGES * PAGE, ENDPOINT_ON_DEMAND, false, &t.remote, &t.rkey);
	if (!err)
		err = play(&t);
	machine_unmap(t.own, (size_t)PAGES * PAGE);
	endpoint_region_release(&t.local);
	for (int op = 0; op < OPERATIONS; op++)
		sample_free(&t.extra[op]);
	sample_free(&t.populate);
	return err;
}

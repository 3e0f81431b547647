/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How many page faults a second: the device's, with many requests outstanding, and a processor's, over the
 * same pages in the same order. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"

#define PAGE	    4096u
#define DEPTH	    64u
#define WORD	    8u
#define PAGES_QUICK 8192u
#define PAGES_FULL  65536u
#define CHECKED	    64u
#define SEED	    21

enum column { PAGES, DEVICE, PROCESSOR, OVER_PROCESSOR, OUTSTANDING, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[PAGES] = { "pages", "count", "pages" },
	[DEVICE] = { "device", "pages_per_s", "device, pages/s" },
	[PROCESSOR] = { "processor", "pages_per_s", "processor, pages/s" },
	[OVER_PROCESSOR] = { "over_processor", "ratio", "device / processor" },
	[OUTSTANDING] = { "outstanding", "count", NULL },
};

struct faults {
	struct bench *b;
	size_t pages;
	struct endpoint_region local;
	uint64_t remote;
	uint32_t rkey;
	struct sample device, processor, ratio; /* pages per second; of pairs */
};

static int write_all(struct faults *f, uint64_t *ns)
{
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = f->local.addr,
		.lkey = f->local.mr->lkey,
		.length = WORD,
		.rkey = f->rkey };
	struct endpoint_done done = { 0 };
	uint64_t start = clock_ns();
	int err = 0;

	for (unsigned i = 0; !err && i < f->pages; i++) {
		op.remote = f->remote + machine_scatter(i, f->pages);
		err = endpoint_post(&f->b->e, &op);
		if (!err && i + 1 >= DEPTH)
			err = endpoint_wait(&f->b->e, &done, i + 2 - DEPTH, 0);
	}
	if (!err)
		err = endpoint_wait(&f->b->e, &done, (unsigned)f->pages, 0);
	*ns = clock_ns() - start;
	return bench_fail_endpoint(f->b, err);
}

static int by_device(struct faults *f, uint64_t *ns)
{
	int err = bench_peer_simple(f->b, PEER_FRESH, 0);

	if (!err)
		err = bench_peer_poll_begin(f->b);
	if (!err)
		err = write_all(f, ns);
	return err ? err : bench_peer_poll_end(f->b);
}

static int by_processor(struct faults *f, uint64_t *ns)
{
	int err = bench_peer_simple(f->b, PEER_FRESH, 0);

	if (!err)
		err = bench_peer_simple(f->b, PEER_SCATTER, 0);
	*ns = f->b->peer.answer.value;
	return err;
}

static int play_round(struct faults *f, unsigned round)
{
	uint64_t device = 0, processor = 0;
	int err = 0;

	if (round % 2)
		err = by_processor(f, &processor);
	if (!err)
		err = by_device(f, &device);
	/* The word of the last pass by the device, before the other pass takes the pages away. */
	for (unsigned i = 0; !err && i < CHECKED; i++)
		err = bench_peer_compare(
			f->b, 0, machine_scatter(i * (f->pages / CHECKED), f->pages), WORD, SEED);
	if (!err && round % 2 == 0)
		err = by_processor(f, &processor);
	if (err || !device || !processor)
		return err;
	sample_add(&f->device, (double)f->pages * 1e9 / (double)device);
	sample_add(&f->processor, (double)f->pages * 1e9 / (double)processor);
	sample_add(&f->ratio, (double)processor / (double)device);
	return 0;
}

static void report_all(struct faults *f)
{
	struct report_part *p = report_part(&f->b->report, "faults", "Page faults at random",
		"How many pages a second the device brings in when 64 requests of 8 bytes are outstanding, "
		"all to "
		"different pages that were never touched, beside a processor that stores into the same pages "
		"in "
		"the same order. Medians of interleaved rounds [quartiles].",
		columns, COLUMNS);

	report_row(p);
	report_number(p, PAGES, (double)f->pages);
	report_spread(p, DEVICE, sample_spread(&f->device));
	report_spread(p, PROCESSOR, sample_spread(&f->processor));
	report_spread(p, OVER_PROCESSOR, sample_spread(&f->ratio));
	report_number(p, OUTSTANDING, DEPTH);
	report_at_least(p, "faults_over_processor", "faults of random pages, of a processor's touch loop",
		100 * sample_spread(&f->ratio).median, 70, "%");
}

static int play(struct faults *f)
{
	int err = 0;

	for (unsigned i = 0; !err && i < f->b->pairs; i++) {
		bench_progress(f->b, "faults: round %u of %u", i + 1, f->b->pairs);
		err = bench_stopped() ? -EINTR : play_round(f, i);
	}
	if (f->ratio.count)
		report_all(f);
	return err;
}

int bench_faults(struct bench *b)
{
	struct faults f = { .b = b, .pages = b->quick ? PAGES_QUICK : PAGES_FULL };
	int err = bench_connect(b);

	if (err)
		return err;
	err = endpoint_region_make(&b->e, &f.local, PAGE, ENDPOINT_ON_DEMAND);
	if (err)
		return bench_fail_endpoint(b, err);
	machine_fill(f.local.addr, PAGE, SEED);
	err = bench_peer_make(b, 0, (uint64_t)f.pages * PAGE, ENDPOINT_ON_DEMAND, false, &f.remote, &f.rkey);
	if (!err)
		err = play(&f);
	endpoint_region_release(&f.local);
	sample_free(&f.device);
	sample_free(&f.processor);
	sample_free(&f.ratio);
	return err;
}

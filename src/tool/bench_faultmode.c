/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Fault events that name the address, and fault events that name only region and queue pair, so that the
 * driver looks through the work requests that are outstanding: by how many there are. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/attach.h"
#include "tool/bench.h"
#include "tool/machine.h"

#define PAGE	    4096u
#define MOST	    4096u /* outstanding */
#define PAGES_ONE   512u  /* with one outstanding request */
#define PAGES_QUICK 4096u
#define PAGES_FULL  16384u
#define SEED	    51

enum column { OUTSTANDING, PRECISE_US, IMPRECISE_US, RATIO, PAGES, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[OUTSTANDING] = { "outstanding", "count", "outstanding requests" },
	[PRECISE_US] = { "precise", "us", "precise, us per page" },
	[IMPRECISE_US] = { "imprecise", "us", "imprecise, us per page" },
	[RATIO] = { "imprecise_over_precise", "ratio", "imprecise / precise" },
	[PAGES] = { "pages", "count", NULL },
};

enum mode { PRECISE, IMPRECISE, MODES };

static const char *const modes[MODES] = { [PRECISE] = "precise", [IMPRECISE] = "imprecise" };
static const unsigned depths[] = { 1, 64, MOST };

#define DEPTHS (sizeof(depths) / sizeof(depths[0]))

struct faultmode {
	struct bench *b;
	size_t pages;
	struct sample us[DEPTHS][MODES], ratio[DEPTHS];
};

static size_t pages_of(const struct faultmode *m, unsigned depth)
{
	return depth == 1 ? PAGES_ONE : m->pages;
}

/* Words of pages that were given back go to one page of the other process: each request faults here. */
static int write_all(struct faultmode *m, const struct endpoint_region *local, uint64_t remote, uint32_t rkey,
	unsigned depth, double *us)
{
	struct endpoint *e = &m->b->e;
	size_t pages = pages_of(m, depth);
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.lkey = local->mr->lkey,
		.length = 8,
		.remote = remote,
		.rkey = rkey };
	struct endpoint_done done = { 0 };
	uint64_t start;
	int err = 0;

	if (madvise(local->addr, local->length, MADV_DONTNEED))
		return bench_fail(m->b, -errno, "MADV_DONTNEED: %s", strerror(errno));
	start = clock_ns();
	for (unsigned i = 0; !err && i < pages; i++) {
		op.local = (char *)local->addr + machine_scatter(i, pages);
		err = endpoint_post(e, &op);
		if (!err && i + 1 >= depth)
			err = endpoint_wait(e, &done, i + 2 - depth, 0);
	}
	if (!err)
		err = endpoint_wait(e, &done, (unsigned)pages, 0);
	*us = BENCH_US(clock_ns() - start) / (double)pages;
	return bench_fail_endpoint(m->b, err);
}

static int play_depths(struct faultmode *m, const struct endpoint_region *local, double us[DEPTHS])
{
	uint64_t remote;
	uint32_t rkey;
	int err = bench_peer_make(m->b, 0, PAGE, ENDPOINT_ON_DEMAND, true, &remote, &rkey);

	for (size_t d = 0; !err && d < DEPTHS; d++) {
		err = bench_stopped() ? -EINTR : bench_peer_poll_begin(m->b);
		if (!err)
			err = write_all(m, local, remote, rkey, depths[d], &us[d]);
		if (!err)
			err = bench_peer_poll_end(m->b);
	}
	return err;
}

/* -EOPNOTSUPP: this device has no such modes. */
static int has_mode(struct bench *b, const char *want)
{
	struct attach a;
	int err = attach_open(&a, b->peer.pid);

	if (err)
		return -EOPNOTSUPP;
	err = strcmp(a.copy->fault_mode, want) == 0 ? 0 : -EOPNOTSUPP;
	attach_close(&a);
	return err;
}

static int play_mode(struct faultmode *m, enum mode mode, double us[DEPTHS])
{
	struct bench *b = m->b;
	struct endpoint_region local = { 0 };
	int err;

	b->choice.depth = MOST;
	err = bench_connect_set(b, "UNPIN_FAULT_MODE", modes[mode]);
	b->choice.depth = 0;
	if (!err)
		err = has_mode(b, modes[mode]);
	if (!err)
		err = bench_fail_endpoint(
			b, endpoint_region_make(&b->e, &local, m->pages * PAGE, ENDPOINT_ON_DEMAND));
	if (!err)
		err = play_depths(m, &local, us);
	endpoint_region_release(&local);
	bench_disconnect(b);
	return err;
}

static int play_round(struct faultmode *m, unsigned round)
{
	double us[MODES][DEPTHS] = { 0 };

	for (int i = 0; i < MODES; i++) {
		int mode = (i + (int)round) % MODES, err = play_mode(m, (enum mode)mode, us[mode]);

		if (err)
			return err;
	}
	for (size_t d = 0; d < DEPTHS; d++) {
		sample_add(&m->us[d][PRECISE], us[PRECISE][d]);
		sample_add(&m->us[d][IMPRECISE], us[IMPRECISE][d]);
		sample_add(&m->ratio[d], us[IMPRECISE][d] / us[PRECISE][d]);
	}
	return 0;
}

static void report_depth(struct report_part *p, struct faultmode *m, size_t d)
{
	report_row(p);
	report_number(p, OUTSTANDING, depths[d]);
	report_spread(p, PRECISE_US, sample_spread(&m->us[d][PRECISE]));
	report_spread(p, IMPRECISE_US, sample_spread(&m->us[d][IMPRECISE]));
	report_spread(p, RATIO, sample_spread(&m->ratio[d]));
	report_number(p, PAGES, (double)pages_of(m, depths[d]));
}

int bench_faultmode(struct bench *b)
{
	struct faultmode m = { .b = b, .pages = b->quick ? PAGES_QUICK : PAGES_FULL };
	struct report_part *p = report_part(&b->report, "fault_modes", "Precise and imprecise fault events",
		"What a page fault takes when its event names the address, and when it names only region and "
		"queue "
		"pair and the driver looks through the requests that are outstanding. RDMA WRITEs of 8 "
		"bytes, each from "
		"another page that was given back. Medians of interleaved runs of two processes each "
		"[quartiles].",
		columns, COLUMNS);
	int err = 0;

	for (unsigned i = 0; !err && i < b->pairs; i++) {
		bench_progress(b, "fault modes: round %u of %u", i + 1, b->pairs);
		err = bench_stopped() ? -EINTR : play_round(&m, i);
	}
	if (err == -EOPNOTSUPP) {
		report_note(p, "Only unpin's own device has both.");
		err = 0;
	}
	for (size_t d = 0; d < DEPTHS; d++) {
		if (m.ratio[d].count)
			report_depth(p, &m, d);
		sample_free(&m.us[d][PRECISE]);
		sample_free(&m.us[d][IMPRECISE]);
		sample_free(&m.ratio[d]);
	}
	return err;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How large the device's page table grows, dense and sparse, and that it shrinks again. Only unpin's device
 * tells. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tool/attach.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define MIB	       ((uint64_t)1 << 20)
#define GIB	       ((uint64_t)1 << 30)
#define PAGE	       4096u
#define LEAF	       (2 * MIB) /* memory that one leaf covers */
#define SPARSE	       (4 * GIB)
#define SHRINK_WAIT_NS (10 * NSEC_PER_SEC)

enum column { MEMORY, TOUCHED, TABLE, PER_PAGE, LEAVES, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[MEMORY] = { "memory", NULL, "<memory" },
	[TOUCHED] = { "pages", "count", "pages" },
	[TABLE] = { "table", "bytes", "table" },
	[PER_PAGE] = { "table_per_page", "bytes", "bytes per page" },
	[LEAVES] = { "leaves", "count", "leaves" },
};

struct usage {
	uint64_t bytes, leaves;
};

/* Of the second process, without asking it. */
static int look(struct bench *b, struct usage *u)
{
	struct attach a;
	int err = attach_open(&a, b->peer.pid);

	if (err)
		return bench_fail(b, err, "second process: %s", attach_error(err));
	u->bytes = atomic_load(&a.copy->odp_table_bytes);
	u->leaves = atomic_load(&a.copy->odp_leaves);
	attach_close(&a);
	return 0;
}

/* How a region is touched: writes of so many bytes, so far apart. */
struct pattern {
	uint64_t length, step;
	uint32_t bytes;
};

static int touch(struct bench *b, const struct endpoint_region *local, uint64_t remote, uint32_t rkey,
	const struct pattern *t)
{
	struct endpoint_done done = { 0 };
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = local->addr,
		.lkey = local->mr->lkey,
		.length = t->bytes,
		.rkey = rkey };
	unsigned posted = 0;
	int err = 0;

	for (uint64_t at = 0; !err && at < t->length; at += t->step) {
		op.remote = remote + at;
		err = endpoint_post(&b->e, &op);
		if (!err && ++posted >= 32)
			err = endpoint_wait(&b->e, &done, posted - 31, 0);
	}
	if (!err)
		err = endpoint_wait(&b->e, &done, posted, 0);
	return bench_fail_endpoint(b, err);
}

static void report_table(
	struct report_part *p, const char *name, uint64_t pages, struct usage before, struct usage after)
{
	uint64_t bytes = after.bytes > before.bytes ? after.bytes - before.bytes : 0;

	report_row(p);
	report_words(p, MEMORY, name);
	report_number(p, TOUCHED, (double)pages);
	report_bytes(p, TABLE, bytes);
	if (pages)
		report_number(p, PER_PAGE, (double)bytes / (double)pages);
	report_number(p, LEAVES, (double)(after.leaves > before.leaves ? after.leaves - before.leaves : 0));
}

/* A new region of the second process, touched by the device. */
static int measure(struct bench *b, const struct endpoint_region *local, const struct pattern *t,
	struct usage *before, struct usage *after)
{
	uint64_t remote = 0;
	uint32_t rkey = 0;
	int err = look(b, before);

	if (!err)
		err = bench_peer_make(b, 0, t->length, ENDPOINT_ON_DEMAND, false, &remote, &rkey);
	if (!err)
		err = touch(b, local, remote, rkey, t);
	return err ? err : look(b, after);
}

/* The memory is given back; the table follows by and by. */
static int await_shrinking(struct bench *b, struct usage before, struct usage *after)
{
	uint64_t deadline = clock_ns() + SHRINK_WAIT_NS;
	int err = bench_peer_simple(b, PEER_FRESH, 0);

	while (!err) {
		err = look(b, after);
		if (err || after->leaves <= before.leaves || clock_ns() > deadline || bench_stopped())
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000 * 1000 }, NULL);
	}
	return err;
}

static int play(struct bench *b, struct report_part *p, const struct endpoint_region *local)
{
	struct usage before, after, shrunk = { 0 };
	uint64_t dense = machine_available() > 2 * GIB ? GIB : 256 * MIB;
	const struct pattern every = { dense, MIB, MIB }, few = { SPARSE, LEAF, 8 };
	char name[64], size[UNITS_MAX];
	int err = measure(b, local, &every, &before, &after);

	if (err)
		return err;
	snprintf(name, sizeof(name), "%s, every page", units_bytes(size, dense));
	report_table(p, name, dense / PAGE, before, after);
	report_at_most(p, "table_bytes_per_page", "page table, dense",
		(double)(after.bytes - before.bytes) / (double)(dense / PAGE), 2, "bytes per page");
	err = await_shrinking(b, before, &shrunk);
	if (err)
		return err;
	report_table(p, "the same, given back", 0, before, shrunk);
	report_at_most(p, "leaves_left", "leaves left after the memory was given back",
		(double)(shrunk.leaves > before.leaves ? shrunk.leaves - before.leaves : 0), 0, "leaves");
	err = bench_peer_simple(b, PEER_RELEASE, 0);
	if (!err)
		err = measure(b, local, &few, &before, &after);
	if (err)
		return err;
	report_table(p, "one page in every 2 MiB", SPARSE / LEAF, before, after);
	report_at_most(p, "leaves_per_page_sparse", "leaves per page, sparse",
		(double)(after.leaves - before.leaves) / (double)(SPARSE / LEAF), 1, "leaves per page");
	return 0;
}

int bench_pagetable(struct bench *b)
{
	struct endpoint_region local;
	struct report_part *p;
	struct usage u;
	int err = bench_connect(b);

	if (err)
		return err;
	p = report_part(&b->report, "page_table", "Page table",
		"How much memory the device keeps per page of on-demand memory that it has used, and that it "
		"gives it back.",
		columns, COLUMNS);
	if (!b->e.odp || look(b, &u)) {
		report_note(p, "Only unpin's own device shows its page table.");
		return 0;
	}
	bench_progress(b, "page table");
	err = endpoint_region_make(&b->e, &local, LEAF, ENDPOINT_ON_DEMAND);
	if (err)
		return bench_fail_endpoint(b, err);
	machine_fill(local.addr, LEAF, 3);
	err = play(b, p, &local);
	endpoint_region_release(&local);
	return err;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What it costs a program to give memory back while the device knows it, by notifier. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/attach.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define PAGE	    4096u
#define TIB	    ((size_t)1 << 40)
#define LOOPS_QUICK 200u
#define LOOPS_FULL  1000u

enum column { NOTIFIER, OPERATION, WITH, WITHOUT, DIFFERENCE, RATIO, SAMPLES, NOTE, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[NOTIFIER] = { "notifier", NULL, "<notifier" },
	[OPERATION] = { "operation", NULL, "<operation" },
	[WITH] = { "with", "us", "with the device us" },
	[WITHOUT] = { "without", "us", "without us" },
	[DIFFERENCE] = { "difference", "us", "difference us" },
	[RATIO] = { "with_over_without", "ratio", "with / without" },
	[SAMPLES] = { "samples", "count", NULL },
	[NOTE] = { "note", NULL, "<" },
};

enum operation { REFAULT, UNMAP, DISCARD, OPERATIONS };

static const char *const names[OPERATIONS] = {
	[REFAULT] = "DONTNEED of a page, and its use",
	[UNMAP] = "munmap of 1 TiB, untouched",
	[DISCARD] = "DONTNEED of 1 TiB, untouched",
};

/* The first is the default, whose figures the targets are for. */
static const char *const notifiers[] = { "interpose", "userfaultfd", "none" };

struct invalidate {
	struct bench *b;
	struct report_part *part;
	struct endpoint_region page; /* of the device's loop */
	char *own;		     /* a page of the processor's */
	uint64_t remote;
	uint32_t rkey;
	unsigned loops;
	struct sample with, without, difference;
};

static void clear(struct invalidate *v)
{
	sample_clear(&v->with);
	sample_clear(&v->without);
	sample_clear(&v->difference);
}

static void add(struct invalidate *v, double with, double without)
{
	sample_add(&v->with, with);
	sample_add(&v->without, without);
	sample_add(&v->difference, with - without);
}

/* --- one page: the device reads a word into it; what such a READ takes when the page is there is taken off.
 */

static int read_word(struct invalidate *v, bool discard, uint64_t *ns)
{
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_READ,
		.local = v->page.addr,
		.lkey = v->page.mr->lkey,
		.length = 8,
		.remote = v->remote,
		.rkey = v->rkey };
	uint64_t start = clock_ns();
	int err;

	if (discard && madvise(v->page.addr, PAGE, MADV_DONTNEED))
		return bench_fail(v->b, -errno, "MADV_DONTNEED: %s", strerror(errno));
	err = endpoint_do(&v->b->e, &op);
	*ns = clock_ns() - start;
	return bench_fail_endpoint(v->b, err);
}

static uint64_t store_word(struct invalidate *v)
{
	uint64_t start = clock_ns();

	madvise(v->own, PAGE, MADV_DONTNEED);
	*(volatile uint64_t *)v->own = start;
	return clock_ns() - start;
}

static int refault(struct invalidate *v)
{
	uint64_t cold, warm;
	int err = 0;

	for (unsigned i = 0; !err && i < v->loops; i++) {
		if (bench_stopped())
			return -EINTR;
		err = read_word(v, true, &cold);
		if (!err && machine_compare(v->page.addr, 8, 31) < 8)
			err = bench_wrong(v->b, "an RDMA READ into a page given back brought wrong data");
		if (!err)
			err = read_word(v, false, &warm);
		if (!err)
			add(v, BENCH_US(cold) - BENCH_US(warm), BENCH_US(store_word(v)));
	}
	return err;
}

/* --- a terabyte of address space ---------------------------------------------------------------------------
 */

static char *reserve(void)
{
	char *p = mmap(NULL, TIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static uint64_t give_back(enum operation op, char *p)
{
	uint64_t start = clock_ns(), ns;

	if (op == DISCARD)
		madvise(p, TIB, MADV_DONTNEED);
	else
		munmap(p, TIB);
	ns = clock_ns() - start;
	if (op == DISCARD)
		munmap(p, TIB);
	return ns;
}

/*
 * The one under a region and the other, now the one first, now the other. In the next two rounds each has the
 * other's place: a terabyte that shares the kernel's page tables with what is mapped beside it takes a
 * microsecond or two more.
 */
static int give_back_both(struct invalidate *v, enum operation op, unsigned i)
{
	struct endpoint_region r = { 0 };
	char *a = reserve(), *b = reserve();
	char *with = i % 4 < 2 ? a : b, *without = i % 4 < 2 ? b : a;
	uint64_t known = 0, plain = 0;
	int err;

	if (!a || !b)
		return bench_fail(v->b, -ENOMEM, "cannot reserve 1 TiB of addresses: %s", strerror(errno));
	err = endpoint_region_register(&v->b->e, &r, with, TIB, ENDPOINT_ON_DEMAND);
	if (err)
		return bench_fail_endpoint(v->b, err);
	if (i % 2)
		plain = give_back(op, without);
	known = give_back(op, with);
	if (i % 2 == 0)
		plain = give_back(op, without);
	endpoint_region_deregister(&r);
	add(v, BENCH_US(known), BENCH_US(plain));
	return 0;
}

static int terabyte(struct invalidate *v, enum operation op)
{
	int err = 0;

	for (unsigned i = 0; !err && i < v->loops; i++)
		err = bench_stopped() ? -EINTR : give_back_both(v, op, i);
	return err;
}

/* --- rows --------------------------------------------------------------------------------------------------
 */

static void report_operation(struct invalidate *v, const char *notifier, enum operation op, bool targets)
{
	double with, without, difference;

	if (!v->with.count)
		return;
	with = sample_spread(&v->with).median;
	without = sample_spread(&v->without).median;
	difference = sample_spread(&v->difference).median;
	report_row(v->part);
	report_words(v->part, NOTIFIER, notifier);
	report_words(v->part, OPERATION, names[op]);
	report_spread(v->part, WITH, sample_spread(&v->with));
	report_spread(v->part, WITHOUT, sample_spread(&v->without));
	report_spread(v->part, DIFFERENCE, sample_spread(&v->difference));
	report_number(v->part, RATIO, without > 0 ? with / without : 0);
	report_number(v->part, SAMPLES, (double)v->with.count);
	if (targets && op == REFAULT && without > 0)
		report_at_most(v->part, "refault_over_processor",
			"invalidate and refault of one page, of the processor's", with / without, 2, "times");
	if (targets && op == UNMAP)
		report_at_most(v->part, "unmap_tib_extra",
			"munmap of an untouched 1 TiB region, beyond one without", difference, 1, "us");
}

static int measure(struct invalidate *v, const char *notifier, bool targets)
{
	struct bench *b = v->b;
	int err = endpoint_region_make(&b->e, &v->page, PAGE, ENDPOINT_ON_DEMAND);

	if (err)
		return bench_fail_endpoint(b, err);
	err = bench_peer_make(b, 0, PAGE, ENDPOINT_ON_DEMAND, true, &v->remote, &v->rkey);
	if (!err)
		err = bench_peer_fill(b, 0, 0, PAGE, 31);
	for (int op = 0; !err && op < OPERATIONS; op++) {
		bench_progress(b, "invalidation: %s, %s", notifier, names[op]);
		clear(v);
		if (op == REFAULT) {
			err = bench_peer_poll_begin(b);
			if (!err)
				err = refault(v);
			if (!err)
				err = bench_peer_poll_end(b);
		} else {
			err = terabyte(v, (enum operation)op);
		}
		report_operation(v, notifier, (enum operation)op, targets);
	}
	endpoint_region_release(&v->page);
	return err;
}

/* The figure of the default notifier; 0: none. */
static double found(const struct invalidate *v, enum operation op, enum column c)
{
	for (size_t r = 0; r < v->part->rows; r++)
		if (strcmp(report_text(v->part, r, NOTIFIER), notifiers[0]) == 0 &&
			strcmp(report_text(v->part, r, OPERATION), names[op]) == 0)
			return report_value(v->part, r, c);
	return 0;
}

static void conclude(const struct invalidate *v, struct plot *plot)
{
	double page = found(v, REFAULT, RATIO), extra = found(v, UNMAP, DIFFERENCE);
	char text[UNITS_MAX];

	if (page <= 0)
		plot_title(plot, "What giving memory back costs, with the device and without.");
	else if (extra > 0)
		plot_title(plot,
			"Giving back a page in use, and its next use, take %.1f times what they take without "
			"the device; unmapping 1 TiB that nobody touched takes %s more.",
			page, bench_time(text, extra));
	else
		plot_title(plot,
			"Giving back a page in use, and its next use, take %.1f times what they take without "
			"the device; unmapping 1 TiB that nobody touched takes no longer.",
			page);
}

/* 0, or the reason in b->why why this notifier is not there. */
static int has_notifier(struct bench *b, const char *want)
{
	struct attach a;
	int err = attach_open(&a, b->peer.pid);

	if (err)
		return bench_fail(b, err, "only unpin's own device has notifiers to choose from");
	if (strcmp(a.copy->notifier, want) != 0)
		err = bench_fail(b, -EOPNOTSUPP, "the device uses %s instead", a.copy->notifier);
	attach_close(&a);
	return err;
}

static int with_notifier(struct invalidate *v, const char *notifier, bool targets)
{
	int err = bench_connect_set(v->b, "UNPIN_NOTIFIER", notifier);

	if (!err)
		err = has_notifier(v->b, notifier);
	if (err && err != -EINTR) {
		report_row(v->part);
		report_words(v->part, NOTIFIER, notifier);
		report_words(v->part, NOTE, v->b->why);
		err = 0;
	} else if (!err) {
		err = measure(v, notifier, targets);
	}
	bench_disconnect(v->b);
	return err;
}

int bench_invalidate(struct bench *b)
{
	static const size_t times[] = { WITH, WITHOUT };
	struct plot *plot;
	struct invalidate v = { .b = b, .loops = b->quick ? LOOPS_QUICK : LOOPS_FULL };
	int err = 0;

	v.own = machine_map(PAGE);
	if (!v.own)
		return bench_fail(b, -errno, "cannot map memory: %s", strerror(errno));
	v.part = report_part(&b->report, "invalidation", "Giving memory back",
		"What it costs a program to give memory back that the device knows. One page: the device "
		"uses it "
		"again at once (less the time of a request to a page that is there), beside a processor that "
		"stores "
		"into it. 1 TiB: a region that nobody has touched, beside the same addresses without a "
		"region. "
		"Medians of interleaved pairs [quartiles].",
		columns, COLUMNS);
	for (size_t i = 0; !err && i < sizeof(notifiers) / sizeof(notifiers[0]); i++)
		err = with_notifier(&v, notifiers[i], i == 0);
	plot = report_bars(v.part, (struct plot_axis){ "time of the call", PLOT_US, true }, NOTIFIER,
		OPERATION, times, sizeof(times) / sizeof(times[0]));
	if (plot)
		conclude(&v, plot);
	machine_unmap(v.own, PAGE);
	sample_free(&v.with);
	sample_free(&v.without);
	sample_free(&v.difference);
	return err;
}

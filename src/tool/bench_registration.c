/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What it costs to give memory to the device and to take it back, pinned and on demand. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define MIB		 ((uint64_t)1 << 20)
#define GIB		 ((uint64_t)1 << 30)
#define RESERVED_ONLY	 (64 * GIB) /* this much is registered without being there */
#define QUICK_PINNED_MAX GIB
#define ODP_PER_ROUND	 100

enum column {
	SIZE,
	MEMORY,
	REGION,
	REG_P50,
	REG_P99,
	DEREG_P50,
	DEREG_P99,
	RATIO,
	RSS_DELTA,
	PIN_DELTA,
	LOCK_DELTA,
	COUNT,
	RSS_BEFORE,
	PIN_BEFORE,
	LOCK_BEFORE,
	RSS_DURING,
	PIN_DURING,
	LOCK_DURING,
	RSS_AFTER,
	PIN_AFTER,
	LOCK_AFTER,
	NOTE,
	COLUMNS
};

static const struct report_column columns[COLUMNS] = {
	[SIZE] = { "size", "bytes", "size" },
	[MEMORY] = { "memory", NULL, "<memory" },
	[REGION] = { "region", NULL, "<region" },
	[REG_P50] = { "register_p50", "us", "register p50 us" },
	[REG_P99] = { "register_p99", "us", "p99 us" },
	[DEREG_P50] = { "deregister_p50", "us", "deregister p50 us" },
	[DEREG_P99] = { "deregister_p99", "us", "p99 us" },
	[RATIO] = { "pinned_over_on_demand", "ratio", "pinned / on demand" },
	[RSS_DELTA] = { "vm_rss_delta", "bytes", "VmRSS +" },
	[PIN_DELTA] = { "vm_pin_delta", "bytes", "VmPin +" },
	[LOCK_DELTA] = { "vm_lck_delta", "bytes", "VmLck +" },
	[COUNT] = { "repetitions", "count", NULL },
	[RSS_BEFORE] = { "vm_rss_before", "bytes", NULL },
	[PIN_BEFORE] = { "vm_pin_before", "bytes", NULL },
	[LOCK_BEFORE] = { "vm_lck_before", "bytes", NULL },
	[RSS_DURING] = { "vm_rss_registered", "bytes", NULL },
	[PIN_DURING] = { "vm_pin_registered", "bytes", NULL },
	[LOCK_DURING] = { "vm_lck_registered", "bytes", NULL },
	[RSS_AFTER] = { "vm_rss_after", "bytes", NULL },
	[PIN_AFTER] = { "vm_pin_after", "bytes", NULL },
	[LOCK_AFTER] = { "vm_lck_after", "bytes", NULL },
	[NOTE] = { "note", NULL, "<" },
};

/* One size of memory, touched or not, and what was measured over it. */
struct series {
	uint64_t size;
	bool touched;
	bool wanted[ENDPOINT_KINDS];
	char why_not[ENDPOINT_KINDS][64];
	char failed[256]; /* the whole sentence, when pinning failed */
	struct {
		struct hist reg, dereg;
		struct machine_memory before, during, after;
		uint64_t median; /* of the newest round, ns */
	} kind[ENDPOINT_KINDS];
	struct sample ratio;
};

/* The targets look at several series. */
struct summary {
	double odp_smallest, odp_reserved, odp_max; /* us */
	double ratio[2];			    /* at 1 GiB, untouched and touched */
	char pinning_failed[256];		    /* the first reason, "" when there was none */
};

static void *fresh(const struct series *s)
{
	void *addr = machine_map(s->size);

	if (addr && s->touched)
		machine_touch(addr, s->size);
	return addr;
}

/* Registers and deregisters once; fills in what the newest round has. */
static int once(
	struct bench *b, struct series *s, enum endpoint_kind kind, void *addr, bool look, uint64_t *reg_ns)
{
	struct endpoint_region r;
	uint64_t t0, t1;
	int err;

	if (look)
		s->kind[kind].before = machine_memory();
	t0 = clock_ns();
	err = endpoint_region_register(&b->e, &r, addr, s->size, kind);
	t1 = clock_ns();
	if (err)
		return bench_fail_endpoint(b, err);
	*reg_ns = t1 - t0;
	hist_add(&s->kind[kind].reg, t1 - t0);
	if (look)
		s->kind[kind].during = machine_memory();
	t0 = clock_ns();
	endpoint_region_deregister(&r);
	hist_add(&s->kind[kind].dereg, clock_ns() - t0);
	if (look)
		s->kind[kind].after = machine_memory();
	return 0;
}

static int round_of(struct bench *b, struct series *s, enum endpoint_kind kind, void *addr, bool look)
{
	unsigned n = kind == ENDPOINT_PINNED ? 1 : ODP_PER_ROUND;
	struct sample times = { 0 };
	int err = 0;

	for (unsigned i = 0; !err && i < n; i++) {
		uint64_t ns = 0;

		err = once(b, s, kind, addr, look && i == 0, &ns);
		sample_add(&times, (double)ns);
	}
	s->kind[kind].median = (uint64_t)sample_spread(&times).median;
	sample_free(&times);
	return err;
}

/* The device reads the end of the region and writes its start: what was registered works. The second
 * process's memory is on demand wherever there is that, also when the region is pinned. */
static int probe(struct bench *b, struct series *s, enum endpoint_kind kind, void *addr, uint64_t remote,
	uint32_t rkey)
{
	size_t page = (size_t)getpagesize();
	char *end = (char *)addr + s->size - page;
	struct endpoint_region r;
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = end,
		.length = (uint32_t)page,
		.remote = remote,
		.rkey = rkey };
	int err = endpoint_region_register(&b->e, &r, addr, s->size, kind);

	if (err)
		return bench_fail_endpoint(b, err);
	machine_fill(end, page, s->size);
	op.lkey = r.mr->lkey;
	err = endpoint_do(&b->e, &op);
	op.opcode = IBV_WR_RDMA_READ;
	op.local = addr;
	if (!err)
		err = endpoint_do(&b->e, &op);
	endpoint_region_deregister(&r);
	if (err)
		return bench_fail_endpoint(b, err);
	if (machine_compare(addr, page, s->size) < page)
		return bench_wrong(b, "wrong data came back through a region that had just been registered");
	return 0;
}

/*
 * One round: on demand and pinned over memory in the same state. Untouched memory must be mapped anew after a
 * pin, which leaves it resident; unmapping is not counted.
 */
static int play_round(struct bench *b, struct series *s, void **addr, unsigned round)
{
	for (int k = ENDPOINT_KINDS - 1; k >= 0; k--) {
		int err;

		if (!s->wanted[k])
			continue;
		if (!*addr)
			*addr = fresh(s);
		if (!*addr)
			return bench_fail(b, -ENOMEM, "cannot map memory: %s", strerror(errno));
		err = round_of(b, s, (enum endpoint_kind)k, *addr, round == 0);
		if (k == ENDPOINT_PINNED && (err == -ENOMEM || err == -EAGAIN || err == -EPERM)) {
			s->wanted[k] = false;
			snprintf(
				s->why_not[k], sizeof(s->why_not[k]), "%s, see below", strerrorname_np(-err));
			snprintf(s->failed, sizeof(s->failed), "%s", b->e.why);
			err = 0;
		}
		if (err)
			return err;
		if (!s->touched && k == ENDPOINT_PINNED) {
			machine_unmap(*addr, s->size);
			*addr = NULL;
		}
	}
	if (s->wanted[ENDPOINT_PINNED] && s->wanted[ENDPOINT_ON_DEMAND] && s->kind[ENDPOINT_ON_DEMAND].median)
		sample_add(&s->ratio,
			(double)s->kind[ENDPOINT_PINNED].median / (double)s->kind[ENDPOINT_ON_DEMAND].median);
	return 0;
}

static int play_series(struct bench *b, struct series *s, uint64_t remote, uint32_t rkey)
{
	char size[UNITS_MAX];
	void *addr = NULL;
	int err = 0;

	for (unsigned i = 0; !err && i < b->pairs; i++) {
		if (bench_stopped())
			err = -EINTR;
		bench_progress(b, "registration: %s, %s, round %u of %u", units_bytes(size, s->size),
			s->touched ? "touched" : "untouched", i + 1, b->pairs);
		if (!err)
			err = play_round(b, s, &addr, i);
	}
	for (int k = 0; !err && k < ENDPOINT_KINDS; k++) {
		if (!s->wanted[k])
			continue;
		if (!addr)
			addr = fresh(s);
		err = addr ? probe(b, s, (enum endpoint_kind)k, addr, remote, rkey) : -ENOMEM;
	}
	machine_unmap(addr, s->size);
	return err;
}

static void report_memory(struct report_part *p, enum column first, struct machine_memory m)
{
	report_bytes(p, first, m.resident);
	report_bytes(p, first + 1, m.pinned);
	report_bytes(p, first + 2, m.locked);
}

static uint64_t grown(uint64_t before, uint64_t after)
{
	return after > before ? after - before : 0;
}

static void report_kind(struct report_part *p, struct series *s, enum endpoint_kind kind)
{
	const struct hist *reg = &s->kind[kind].reg, *dereg = &s->kind[kind].dereg;
	const struct machine_memory *before = &s->kind[kind].before, *during = &s->kind[kind].during;

	report_row(p);
	report_bytes(p, SIZE, s->size);
	report_words(p, MEMORY, s->touched ? "touched" : "untouched");
	report_words(p, REGION, endpoint_kind_names[kind]);
	if (s->why_not[kind][0])
		report_words(p, NOTE, s->why_not[kind]);
	if (!hist_quantile(reg, 1))
		return;
	report_number(p, REG_P50, BENCH_US(hist_quantile(reg, 0.5)));
	report_number(p, REG_P99, BENCH_US(hist_quantile(reg, 0.99)));
	report_number(p, DEREG_P50, BENCH_US(hist_quantile(dereg, 0.5)));
	report_number(p, DEREG_P99, BENCH_US(hist_quantile(dereg, 0.99)));
	report_number(p, COUNT, (double)atomic_load(&reg->count));
	if (kind == ENDPOINT_PINNED && s->ratio.count)
		report_spread(p, RATIO, sample_spread(&s->ratio));
	report_memory(p, RSS_BEFORE, *before);
	report_memory(p, RSS_DURING, *during);
	report_memory(p, RSS_AFTER, s->kind[kind].after);
	report_bytes(p, RSS_DELTA, grown(before->resident, during->resident));
	report_bytes(p, PIN_DELTA, grown(before->pinned, during->pinned));
	report_bytes(p, LOCK_DELTA, grown(before->locked, during->locked));
}

static void summarise(struct summary *sum, struct series *s)
{
	double odp = BENCH_US(hist_quantile(&s->kind[ENDPOINT_ON_DEMAND].reg, 0.5));

	if (!sum->odp_smallest)
		sum->odp_smallest = odp;
	if (odp > sum->odp_max)
		sum->odp_max = odp;
	if (!sum->pinning_failed[0])
		memcpy(sum->pinning_failed, s->failed, sizeof(s->failed));
	if (s->size == RESERVED_ONLY)
		sum->odp_reserved = odp;
	if (s->size == GIB && s->ratio.count)
		sum->ratio[s->touched] = sample_spread(&s->ratio).median;
}

static void report_targets(struct report_part *p, const struct summary *sum)
{
	if (sum->odp_max)
		report_at_most(p, "odp_register_p50_max", "on-demand registration p50, slowest size",
			sum->odp_max, 10, "us");
	if (sum->odp_reserved && sum->odp_smallest)
		report_at_most(p, "odp_register_64g_over_16m",
			"on-demand registration, 64 GiB over the smallest size",
			sum->odp_reserved / sum->odp_smallest, 2, "times");
	if (sum->ratio[0])
		report_at_least(p, "pinned_over_odp_1g_untouched",
			"pinned over on demand at 1 GiB, untouched", sum->ratio[0], 10000, "times");
	if (sum->ratio[1])
		report_at_least(p, "pinned_over_odp_1g_touched", "pinned over on demand at 1 GiB, touched",
			sum->ratio[1], 10000, "times");
}

/* Which kinds can be measured at this size, and why not. */
static void plan(struct bench *b, struct series *s)
{
	uint64_t needed = s->size + s->size / 16 + 256 * MIB;
	char have[UNITS_MAX], size[UNITS_MAX];

	s->wanted[ENDPOINT_PINNED] = s->wanted[ENDPOINT_ON_DEMAND] = true;
	if (!b->e.odp) {
		s->wanted[ENDPOINT_ON_DEMAND] = false;
		snprintf(s->why_not[ENDPOINT_ON_DEMAND], sizeof(s->why_not[0]), "not offered by this device");
	}
	if (s->size > b->e.max_mr_size) {
		s->wanted[ENDPOINT_PINNED] = s->wanted[ENDPOINT_ON_DEMAND] = false;
		for (int k = 0; k < ENDPOINT_KINDS; k++)
			snprintf(s->why_not[k], sizeof(s->why_not[k]), "more than this device takes (%s)",
				units_bytes(size, b->e.max_mr_size));
	} else if (s->size == RESERVED_ONLY && !b->sizes) {
		s->wanted[ENDPOINT_PINNED] = false;
	} else if (machine_available() < needed) {
		s->wanted[ENDPOINT_PINNED] = false;
		snprintf(s->why_not[ENDPOINT_PINNED], sizeof(s->why_not[0]),
			"skipped: %s of memory are available", units_bytes(have, machine_available()));
		s->wanted[ENDPOINT_ON_DEMAND] = s->wanted[ENDPOINT_ON_DEMAND] && !s->touched;
	} else if (b->quick && !b->sizes && s->size > QUICK_PINNED_MAX) {
		s->wanted[ENDPOINT_PINNED] = false;
		snprintf(s->why_not[ENDPOINT_PINNED], sizeof(s->why_not[0]), "skipped by --quick");
	}
}

static int measure(struct bench *b, struct report_part *p, uint64_t size, bool touched, struct summary *sum,
	uint64_t remote, uint32_t rkey)
{
	static struct series s; /* its histograms are large */
	int err = 0;

	memset(&s, 0, sizeof(s));
	s.size = size;
	s.touched = touched;
	plan(b, &s);
	if (s.wanted[ENDPOINT_PINNED] || s.wanted[ENDPOINT_ON_DEMAND])
		err = play_series(b, &s, remote, rkey);
	for (int k = ENDPOINT_KINDS - 1; k >= 0; k--)
		if (s.why_not[k][0] || atomic_load(&s.kind[k].reg.count))
			report_kind(p, &s, (enum endpoint_kind)k);
	summarise(sum, &s);
	sample_free(&s.ratio);
	return err;
}

int bench_registration(struct bench *b)
{
	static const uint64_t usual[] = { 16 * MIB, 256 * MIB, GIB, 4 * GIB, RESERVED_ONLY };
	const uint64_t *size = b->sizes ? b->size : usual;
	unsigned sizes = b->sizes ? b->sizes : sizeof(usual) / sizeof(usual[0]);
	struct summary sum = { 0 };
	struct report_part *p;
	uint64_t remote = 0;
	uint32_t rkey = 0;
	int err = bench_connect(b);

	if (err)
		return err;
	p = report_part(&b->report, "registration", "Registration",
		"What it costs to give memory to the device and to take it back. Pinning touches every page, "
		"so that it grows with the size and takes the memory; on demand records the range, whatever "
		"its size, and takes nothing (VmRSS, VmPin and VmLck as they grow while the region is "
		"registered).",
		columns, COLUMNS);
	err = bench_peer_make(
		b, 0, 4096, b->e.odp ? ENDPOINT_ON_DEMAND : ENDPOINT_PINNED, true, &remote, &rkey);
	for (unsigned i = 0; !err && i < sizes; i++) {
		err = measure(b, p, size[i], false, &sum, remote, rkey);
		/* What is only reserved cannot be touched; what quick leaves out would take its time
		 * touching. */
		if (!err && (b->sizes || size[i] < RESERVED_ONLY) &&
			(b->sizes || !b->quick || size[i] <= QUICK_PINNED_MAX))
			err = measure(b, p, size[i], true, &sum, remote, rkey);
	}
	if (sum.pinning_failed[0])
		report_note(p, "%s", sum.pinning_failed);
	report_targets(p, &sum);
	return err;
}

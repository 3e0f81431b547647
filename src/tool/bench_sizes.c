/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Registration time against size, for each way of having memory that a device may use. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define KIB	   ((uint64_t)1 << 10)
#define MIB	   ((uint64_t)1 << 20)
#define GIB	   ((uint64_t)1 << 30)
#define HUGE_PAGE  (2 * MIB)
#define SIZE_FIRST (64 * KIB)
#define SIZE_STEP  4

enum way { PINNED, PINNED_THP, PINNED_HUGETLB, PREFETCHED, ON_DEMAND, WAYS };

enum column { SIZE, FIRST_WAY, ROUNDS = FIRST_WAY + WAYS, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[SIZE] = { "size", "bytes", "size" },
	[FIRST_WAY + PINNED] = { "pinned", "us", "pinned us" },
	[FIRST_WAY + PINNED_THP] = { "pinned_thp", "us", "pinned, transparent huge pages us" },
	[FIRST_WAY + PINNED_HUGETLB] = { "pinned_hugetlb", "us", "pinned, hugetlb us" },
	[FIRST_WAY + PREFETCHED] = { "on_demand_prefetch", "us", "on demand + prefetch us" },
	[FIRST_WAY + ON_DEMAND] = { "on_demand", "us", "on demand us" },
	[ROUNDS] = { "rounds", "count", NULL },
};

static const char *const names[WAYS] = {
	[PINNED] = "pinned",
	[PINNED_THP] = "pinned, transparent huge pages",
	[PINNED_HUGETLB] = "pinned, hugetlb",
	[PREFETCHED] = "on demand + prefetch",
	[ON_DEMAND] = "on demand",
};

struct sizes {
	struct bench *b;
	char why_not[WAYS][256]; /* the way ended at some size */
	double largest_pinned, largest_on_demand;
	uint64_t largest;
};

/* Fresh memory, untouched, for a way. NULL with errno. */
static void *memory_for(enum way way, uint64_t size)
{
	void *addr;

	if (way == PINNED_HUGETLB) {
		addr = mmap(
			NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
		return addr == MAP_FAILED ? NULL : addr;
	}
	addr = machine_map(size);
	if (addr && way == PINNED_THP && madvise(addr, size, MADV_HUGEPAGE)) {
		machine_unmap(addr, size);
		return NULL;
	}
	return addr;
}

static bool is_huge(enum way way)
{
	return way == PINNED_THP || way == PINNED_HUGETLB;
}

static int register_once(struct sizes *s, enum way way, uint64_t size, double *us)
{
	struct endpoint *e = &s->b->e;
	struct endpoint_region r = { 0 };
	enum endpoint_kind kind = way >= PREFETCHED ? ENDPOINT_ON_DEMAND : ENDPOINT_PINNED;
	void *addr = memory_for(way, size);
	uint64_t start;
	int err;

	if (!addr)
		return way == PINNED_HUGETLB
			       ? bench_fail(s->b, -EOPNOTSUPP,
					 "the pool of huge pages has no %llu MiB (see "
					 "/proc/sys/vm/nr_hugepages)",
					 (unsigned long long)(size / MIB))
			       : bench_fail(s->b, -ENOMEM, "cannot map memory: %s", strerror(errno));
	start = clock_ns();
	err = endpoint_region_register(e, &r, addr, size, kind);
	if (!err && way == PREFETCHED)
		err = endpoint_prefetch(e, &r, 0, size, true, true);
	*us = BENCH_US(clock_ns() - start);
	endpoint_region_deregister(&r);
	machine_unmap(addr, size);
	return bench_fail_endpoint(s->b, err);
}

/* Ways that fail end there, with the reason; an interrupt ends all. */
static int play_size(struct sizes *s, uint64_t size, struct sample time[WAYS])
{
	char text[UNITS_MAX];

	for (unsigned round = 0; round < s->b->pairs; round++) {
		bench_progress(s->b, "registration against size: %s, round %u of %u", units_bytes(text, size),
			round + 1, s->b->pairs);
		for (int i = 0; i < WAYS; i++) {
			int way = (i + (int)round) % WAYS, err;
			double us = 0;

			if (bench_stopped())
				return -EINTR;
			if (s->why_not[way][0] || (is_huge((enum way)way) && size < HUGE_PAGE))
				continue;
			err = register_once(s, (enum way)way, size, &us);
			if (err == -EINTR)
				return err;
			if (err)
				snprintf(s->why_not[way], sizeof(s->why_not[way]), "%.250s", s->b->why);
			else
				sample_add(&time[way], us);
		}
	}
	return 0;
}

static void report_size(
	struct sizes *s, struct report_part *p, struct plot *plot, uint64_t size, struct sample time[WAYS])
{
	bool any = false;

	for (int way = 0; way < WAYS; way++)
		any = any || time[way].count;
	if (!any)
		return;
	report_row(p);
	report_bytes(p, SIZE, size);
	for (int way = 0; way < WAYS; way++) {
		if (!time[way].count)
			continue;
		report_spread(p, FIRST_WAY + (size_t)way, sample_spread(&time[way]));
		plot_point(
			plot, plot_series(plot, names[way]), (double)size, sample_spread(&time[way]).median);
		report_number(p, ROUNDS, (double)time[way].count);
	}
	if (time[PINNED].count && time[ON_DEMAND].count) {
		s->largest = size;
		s->largest_pinned = sample_spread(&time[PINNED]).median;
		s->largest_on_demand = sample_spread(&time[ON_DEMAND]).median;
	}
}

static uint64_t last_size(const struct bench *b)
{
	uint64_t last = b->quick ? 64 * MIB : GIB;

	while (last > SIZE_FIRST &&
		(last + last / 8 + 256 * MIB > machine_available() || last > b->e.max_mr_size))
		last /= SIZE_STEP;
	return last;
}

static void conclude(struct sizes *s, struct report_part *p, struct plot *plot)
{
	char size[UNITS_MAX], pinned[UNITS_MAX], on_demand[UNITS_MAX];

	if (s->largest)
		plot_title(plot, "Registering %s pinned takes %s, on demand %s: pinning grows with the size.",
			units_bytes(size, s->largest),
			units_time(pinned, (uint64_t)(s->largest_pinned * 1000)),
			units_time(on_demand, (uint64_t)(s->largest_on_demand * 1000)));
	else
		plot_title(plot, "Registration time against size.");
	for (int way = 0; way < WAYS; way++)
		if (s->why_not[way][0])
			report_note(p, "%s: %s.", names[way], s->why_not[way]);
}

int bench_sizes(struct bench *b)
{
	struct sizes s = { .b = b };
	struct report_part *p;
	struct plot *plot;
	uint64_t last;
	int err = bench_alone(b);

	if (err)
		return err;
	p = report_part(&b->report, "sizes", "Registration time against size",
		"Memory that nobody has touched, by the way in which the device gets it: pinned in pages of "
		"4 KiB, in "
		"transparent huge pages and in huge pages of the hugetlb pool; on demand, with a prefetch of "
		"all of it "
		"that is waited for; on demand alone. Medians of interleaved rounds [quartiles].",
		columns, COLUMNS);
	plot = report_plot(p, "plot", PLOT_LINES,
		(struct plot_axis){ "size of the region", PLOT_BYTES, true },
		(struct plot_axis){ "time to register", PLOT_US, true });
	for (int way = 0; way < WAYS; way++)
		plot_series(plot, names[way]);
	if (!b->e.odp)
		for (int way = PREFETCHED; way < WAYS; way++)
			snprintf(s.why_not[way], sizeof(s.why_not[way]), "not offered by this device");
	last = last_size(b);
	for (uint64_t size = SIZE_FIRST; !err && size <= last; size *= SIZE_STEP) {
		struct sample time[WAYS] = { 0 };

		err = play_size(&s, size, time);
		report_size(&s, p, plot, size, time);
		for (int way = 0; way < WAYS; way++)
			sample_free(&time[way]);
	}
	conclude(&s, p, plot);
	return err;
}

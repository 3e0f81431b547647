/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Large transfers into memory that is cold, warm or pinned, beside what the machine itself can do with the
 * same bytes. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/bench_ring.h"
#include "tool/machine.h"
#include "tool/units.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MIB	((uint64_t)1 << 20)
#define LENGTH	(256 * MIB)
#define MESSAGE ((uint32_t)MIB)
#define DEPTH	16u

enum way { COLD, WARM, PINNED, POPULATE_COPY, RING, WAYS };

static const char *const names[WAYS] = {
	[COLD] = "WRITE into cold on-demand memory",
	[WARM] = "WRITE into warm on-demand memory",
	[PINNED] = "WRITE into pinned memory",
	[POPULATE_COPY] = "populate + memcpy in one process",
	[RING] = "bare two-copy ring, warm memory",
};

enum column { WAY, RATE, OVER_PINNED, OVER_COPY, OVER_RING, TRANSFER, COUNT, NOTE, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[WAY] = { "way", NULL, "<way" },
	[RATE] = { "rate", "gb_per_s", "GB/s" },
	[OVER_PINNED] = { "over_pinned", "ratio", "of pinned" },
	[OVER_COPY] = { "over_populate_memcpy", "ratio", "of populate + memcpy" },
	[OVER_RING] = { "over_ring", "ratio", "of ring" },
	[TRANSFER] = { "transfer", "bytes", NULL },
	[COUNT] = { "rounds", "count", NULL },
	[NOTE] = { "note", NULL, "<" },
};

/* Regions of the second process. */
enum { FOR_ON_DEMAND, FOR_PINNED };

struct streaming {
	struct bench *b;
	uint64_t length;
	struct endpoint_region source[ENDPOINT_KINDS]; /* the same memory, registered both ways */
	uint64_t remote[ENDPOINT_KINDS];
	uint32_t rkey[ENDPOINT_KINDS];
	char *target; /* of the memcpy and of the ring */
	struct ring *ring;
	bool works[WAYS];
	char why_not[256]; /* no pinned memory */
	struct sample rate[WAYS];
	struct sample over[WAYS][3]; /* pinned, populate + memcpy, ring: of the same round */
};

static int64_t populate_copy(struct streaming *s)
{
	uint64_t start;

	if (madvise(s->target, s->length, MADV_DONTNEED))
		return -errno;
	start = clock_ns();
	/* A kernel that has no such call faults the pages in by the copy. */
	madvise(s->target, s->length, MADV_POPULATE_WRITE);
	memcpy(s->target, s->source[0].addr, s->length);
	return (int64_t)(clock_ns() - start);
}

static int64_t write_way(struct streaming *s, enum way way)
{
	enum endpoint_kind kind = way == PINNED ? ENDPOINT_PINNED : ENDPOINT_ON_DEMAND;
	int64_t ns;
	int err = way == COLD ? bench_peer_simple(s->b, PEER_FRESH, FOR_ON_DEMAND) : 0;

	if (!err)
		err = bench_peer_poll_begin(s->b);
	if (err)
		return err;
	ns = bench_stream(s->b, IBV_WR_RDMA_WRITE, &s->source[kind], s->remote[kind], s->rkey[kind],
		s->length, MESSAGE, DEPTH, s->length);
	if (ns >= 0)
		err = bench_peer_poll_end(s->b);
	return err ? err : ns;
}

static int64_t once(struct streaming *s, enum way way)
{
	switch (way) {
	case POPULATE_COPY:
		return populate_copy(s);
	case RING:
		return (int64_t)ring_copy(
			s->ring, s->source[0].addr, s->target, s->length, MESSAGE, s->length);
	default:
		return write_way(s, way);
	}
}

/* Cold before warm: the one fills the memory of the other. Otherwise every second round goes the other way
 * round. */
static const enum way orders[2][WAYS] = {
	{ COLD, WARM, PINNED, POPULATE_COPY, RING },
	{ POPULATE_COPY, RING, PINNED, COLD, WARM },
};

static int play_round(struct streaming *s, unsigned round)
{
	static const enum way bases[3] = { PINNED, POPULATE_COPY, RING };
	double rate[WAYS] = { 0 };

	for (int i = 0; i < WAYS; i++) {
		enum way way = orders[round % 2][i];
		int64_t ns;

		if (!s->works[way])
			continue;
		ns = once(s, way);
		if (ns < 0)
			return (int)ns;
		rate[way] = bench_rate(s->length, (uint64_t)ns);
		sample_add(&s->rate[way], rate[way]);
	}
	for (int way = 0; way < WAYS; way++)
		for (int i = 0; i < 3; i++)
			if (rate[way] > 0 && rate[bases[i]] > 0)
				sample_add(&s->over[way][i], rate[way] / rate[bases[i]]);
	return 0;
}

/* What lies in the second process's memory, cold and pinned, and what the ring brought, is what was sent. */
static int check(struct streaming *s)
{
	int err = 0;

	if (s->works[COLD])
		err = bench_peer_compare(s->b, FOR_ON_DEMAND, 0, s->length, 1);
	if (!err && s->works[PINNED])
		err = bench_peer_compare(s->b, FOR_PINNED, 0, s->length, 1);
	if (!err && machine_compare(s->target, s->length, 1) < s->length)
		err = bench_fail(s->b, -EBADMSG, "wrong data came through the bare ring");
	return err;
}

static int make_source(struct streaming *s)
{
	struct bench *b = s->b;
	void *addr = machine_map(s->length);
	int err = 0;

	s->target = machine_map(s->length);
	s->source[0].addr = addr;
	if (!addr || !s->target)
		return bench_fail(b, -ENOMEM, "cannot map memory: %s", strerror(errno));
	machine_fill(addr, s->length, 1);
	machine_touch(s->target, s->length);
	if (b->e.odp)
		err = bench_fail_endpoint(b, endpoint_region_register(&b->e, &s->source[ENDPOINT_ON_DEMAND],
						     addr, s->length, ENDPOINT_ON_DEMAND));
	return err;
}

/* The pinned half may be missing: a limit on locked memory is no reason not to measure the rest. */
static int make_pinned(struct streaming *s)
{
	struct bench *b = s->b;
	void *addr = s->source[0].addr;
	int err = endpoint_region_register(
		&b->e, &s->source[ENDPOINT_PINNED], addr, s->length, ENDPOINT_PINNED);

	s->source[0].addr = addr;
	if (err) {
		snprintf(s->why_not, sizeof(s->why_not), "%s", b->e.why);
		return 0;
	}
	err = bench_peer_make(b, FOR_PINNED, s->length, ENDPOINT_PINNED, true, &s->remote[ENDPOINT_PINNED],
		&s->rkey[ENDPOINT_PINNED]);
	if (err == -ENOMEM) {
		snprintf(s->why_not, sizeof(s->why_not), "%s", b->peer.answer.why);
		return 0;
	}
	s->works[PINNED] = !err;
	return err;
}

static int make(struct streaming *s)
{
	struct bench *b = s->b;
	int err = make_source(s);

	s->works[POPULATE_COPY] = true;
	if (!err)
		err = make_pinned(s);
	if (!err && b->e.odp)
		err = bench_peer_make(b, FOR_ON_DEMAND, s->length, ENDPOINT_ON_DEMAND, false,
			&s->remote[ENDPOINT_ON_DEMAND], &s->rkey[ENDPOINT_ON_DEMAND]);
	if (err)
		return err;
	s->works[COLD] = s->works[WARM] = b->e.odp;
	s->ring = ring_start();
	s->works[RING] = s->ring != NULL;
	return 0;
}

static void unmake(struct streaming *s)
{
	void *addr = s->source[0].addr;

	ring_stop(s->ring);
	for (int k = 0; k < ENDPOINT_KINDS; k++)
		endpoint_region_deregister(&s->source[k]);
	machine_unmap(addr, s->length);
	machine_unmap(s->target, s->length);
	for (int way = 0; way < WAYS; way++) {
		sample_free(&s->rate[way]);
		for (int i = 0; i < 3; i++)
			sample_free(&s->over[way][i]);
	}
}

static void report_way(struct report_part *p, struct streaming *s, enum way way)
{
	static const enum column column[3] = { OVER_PINNED, OVER_COPY, OVER_RING };

	report_row(p);
	report_words(p, WAY, names[way]);
	report_bytes(p, TRANSFER, s->length);
	if (way == PINNED && s->why_not[0])
		report_words(p, NOTE, "pinned: see below");
	if ((way == COLD || way == WARM) && !s->b->e.odp)
		report_words(p, NOTE, "not offered by this device");
	if (!s->rate[way].count)
		return;
	report_spread(p, RATE, sample_spread(&s->rate[way]));
	report_number(p, COUNT, (double)s->rate[way].count);
	for (int i = 0; i < 3; i++)
		if (s->over[way][i].count)
			report_spread(p, column[i], sample_spread(&s->over[way][i]));
}

static void report_all(struct streaming *s)
{
	static const size_t rates[] = { RATE };
	struct plot *plot;
	struct report_part *p = report_part(&s->b->report, "streaming", "Streaming",
		"One long transfer in messages of 1 MiB, from a second process's point of view: into memory "
		"without a page yet (cold; each page is a fault), into memory that is there (warm), and into "
		"pinned memory; beside the same bytes with the kernel's populate call and memcpy, and "
		"through a ring that only copies. Medians of interleaved rounds [quartiles].",
		columns, COLUMNS);

	for (int way = 0; way < WAYS; way++)
		report_way(p, s, (enum way)way);
	if (s->why_not[0])
		report_note(p, "Pinned: %s.", s->why_not);
	plot = report_bars(
		p, (struct plot_axis){ "throughput, GB/s", PLOT_NUMBER, false }, WAY, SIZE_MAX, rates, 1);
	if (plot && s->over[WARM][0].count && s->over[COLD][0].count)
		plot_title(plot,
			"A stream into warm on-demand memory has %.0f %% of the throughput of one into "
			"pinned memory, into cold memory %.0f %%.",
			100 * sample_spread(&s->over[WARM][0]).median,
			100 * sample_spread(&s->over[COLD][0]).median);
	else if (plot)
		plot_title(plot, "Throughput of one long transfer.");
	if (s->over[COLD][1].count)
		report_at_least(p, "cold_over_populate_memcpy", "cold streaming, of populate + memcpy",
			100 * sample_spread(&s->over[COLD][1]).median, 85, "%");
	if (s->over[WARM][0].count)
		report_at_least(p, "warm_over_pinned_streaming", "warm on-demand streaming, of pinned",
			100 * sample_spread(&s->over[WARM][0]).median, 99, "%");
}

/* Four buffers of this size are there at once, in both processes together, and a little more. */
static uint64_t choose_length(const struct bench *b)
{
	uint64_t length = bench_fit(b->bytes_per_s, LENGTH, DEPTH * MESSAGE, b->quick ? 0.5 : 4);

	while (length > MIB && 5 * length > machine_available())
		length /= 2;
	return length;
}

static int play(struct streaming *s)
{
	int err = 0;

	for (unsigned i = 0; !err && i < s->b->pairs; i++) {
		bench_progress(s->b, "streaming: round %u of %u", i + 1, s->b->pairs);
		err = bench_stopped() ? -EINTR : play_round(s, i);
	}
	if (s->rate[POPULATE_COPY].count || s->rate[COLD].count)
		report_all(s);
	return err ? err : check(s);
}

int bench_streaming(struct bench *b)
{
	static struct streaming s;
	int err = bench_connect(b);

	if (err)
		return err;
	memset(&s, 0, sizeof(s));
	s.b = b;
	s.length = choose_length(b);
	err = make(&s);
	if (!err)
		err = play(&s);
	unmake(&s);
	return err;
}

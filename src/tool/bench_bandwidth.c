/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Many messages of 64 KiB between the same two buffers, pinned and on demand, beside a bare ring with the
 * same bytes. */
#include <errno.h>
#include <string.h>

#include "tool/bench.h"
#include "tool/bench_ring.h"
#include "tool/machine.h"

#define MESSAGE 65536u
#define DEPTH	32u
#define WARM_UP (16ull << 20)
/* Rounds are short and many: what disturbs the machine for a moment then spoils few of them. */
#define ROUNDS_PER_PAIR 4u
#define ROUND_QUICK	(64ull << 20)
#define ROUND_FULL	(256ull << 20)

enum operation { WRITE, READ, OPERATIONS };

static const struct {
	const char *name;
	enum ibv_wr_opcode opcode;
} operations[OPERATIONS] = {
	[WRITE] = { "WRITE 64 KiB", IBV_WR_RDMA_WRITE },
	[READ] = { "READ 64 KiB", IBV_WR_RDMA_READ },
};

enum column {
	OPERATION,
	ODP_RATE,
	PINNED_RATE,
	OVER_PINNED,
	RING_RATE,
	OVER_RING,
	MESSAGE_SIZE,
	ROUND_BYTES,
	NOTE,
	COLUMNS
};

static const struct report_column columns[COLUMNS] = {
	[OPERATION] = { "operation", NULL, "<operation" },
	[ODP_RATE] = { "on_demand", "gb_per_s", "on demand GB/s" },
	[PINNED_RATE] = { "pinned", "gb_per_s", "pinned GB/s" },
	[OVER_PINNED] = { "on_demand_over_pinned", "ratio", "on demand / pinned" },
	[RING_RATE] = { "ring", "gb_per_s", "bare ring GB/s" },
	[OVER_RING] = { "over_ring", "ratio", "of ring" },
	[MESSAGE_SIZE] = { "message", "bytes", NULL },
	[ROUND_BYTES] = { "round", "bytes", NULL },
	[NOTE] = { "note", NULL, "<" },
};

struct bandwidth {
	struct bench *b;
	uint64_t length; /* of one round */
	struct endpoint_region local[ENDPOINT_KINDS];
	uint64_t remote[ENDPOINT_KINDS];
	uint32_t rkey[ENDPOINT_KINDS];
	bool works[ENDPOINT_KINDS];
	char why_not[256];
	struct ring *ring;
	char *ring_source, *ring_target;
	struct sample ring_rate, rate[OPERATIONS][ENDPOINT_KINDS], over_pinned[OPERATIONS],
		over_ring[OPERATIONS];
};

/* On-demand memory decides what is compared with the ring; pinned where there is none. */
static enum endpoint_kind main_kind(const struct bandwidth *w)
{
	return w->works[ENDPOINT_ON_DEMAND] ? ENDPOINT_ON_DEMAND : ENDPOINT_PINNED;
}

static int one(struct bandwidth *w, int operation, int kind, double *rate)
{
	struct bench *b = w->b;
	int64_t ns;
	int err = bench_peer_poll_begin(b);

	if (err)
		return err;
	/* What a stream settles into is measured, not how it starts: the second process begins to poll with
	 * it. */
	ns = bench_stream(b, operations[operation].opcode, &w->local[kind], w->remote[kind], w->rkey[kind],
		MESSAGE, MESSAGE, DEPTH, w->length < WARM_UP ? w->length : WARM_UP);
	if (ns < 0)
		return (int)ns;
	ns = bench_stream(b, operations[operation].opcode, &w->local[kind], w->remote[kind], w->rkey[kind],
		MESSAGE, MESSAGE, DEPTH, w->length);
	if (ns < 0)
		return (int)ns;
	*rate = bench_rate(w->length, (uint64_t)ns);
	sample_add(&w->rate[operation][kind], *rate);
	return bench_peer_poll_end(b);
}

static int play_round(struct bandwidth *w, unsigned round)
{
	double ring = 0;

	if (w->ring) {
		ring = bench_rate(w->length,
			ring_copy(w->ring, w->ring_source, w->ring_target, MESSAGE, MESSAGE, w->length));
		sample_add(&w->ring_rate, ring);
	}
	for (int op = 0; op < OPERATIONS; op++) {
		double rate[ENDPOINT_KINDS] = { 0 };

		for (int i = 0; i < ENDPOINT_KINDS; i++) {
			int kind = (i + (int)round) % ENDPOINT_KINDS, err;

			if (!w->works[kind])
				continue;
			err = one(w, op, kind, &rate[kind]);
			if (err)
				return err;
		}
		if (rate[ENDPOINT_PINNED] > 0 && rate[ENDPOINT_ON_DEMAND] > 0)
			sample_add(&w->over_pinned[op], rate[ENDPOINT_ON_DEMAND] / rate[ENDPOINT_PINNED]);
		if (ring > 0)
			sample_add(&w->over_ring[op], rate[main_kind(w)] / ring);
	}
	return 0;
}

/* A WRITE of one pattern and a READ of another arrive byte for byte. */
static int check(struct bandwidth *w, int kind)
{
	struct bench *b = w->b;
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = w->local[kind].addr,
		.lkey = w->local[kind].mr->lkey,
		.length = MESSAGE,
		.remote = w->remote[kind],
		.rkey = w->rkey[kind] };
	int err;

	machine_fill(w->local[kind].addr, MESSAGE, 11);
	err = bench_fail_endpoint(b, endpoint_do(&b->e, &op));
	if (!err)
		err = bench_peer_compare(b, (unsigned)kind, 0, MESSAGE, 11);
	if (!err)
		err = bench_peer_fill(b, (unsigned)kind, 0, MESSAGE, 12);
	op.opcode = IBV_WR_RDMA_READ;
	if (!err)
		err = bench_fail_endpoint(b, endpoint_do(&b->e, &op));
	if (!err && machine_compare(w->local[kind].addr, MESSAGE, 12) < MESSAGE)
		err = kind == ENDPOINT_PINNED ? bench_fail(b, -EBADMSG, "an RDMA READ brought wrong data")
					      : bench_wrong(b, "an RDMA READ brought wrong data");
	return err;
}

static int make(struct bandwidth *w)
{
	struct bench *b = w->b;

	for (int k = 0; k < ENDPOINT_KINDS; k++) {
		int err;

		if (k == ENDPOINT_ON_DEMAND && !b->e.odp)
			continue;
		err = endpoint_region_make(&b->e, &w->local[k], MESSAGE, (enum endpoint_kind)k);
		if (err == -ENOMEM && k == ENDPOINT_PINNED && b->e.odp) {
			snprintf(w->why_not, sizeof(w->why_not), "%s", b->e.why);
			continue;
		}
		if (err)
			return bench_fail_endpoint(b, err);
		machine_touch(w->local[k].addr, MESSAGE);
		err = bench_peer_make(
			b, (unsigned)k, MESSAGE, (enum endpoint_kind)k, true, &w->remote[k], &w->rkey[k]);
		if (err)
			return err;
		w->works[k] = true;
	}
	w->ring = ring_start();
	w->ring_source = machine_map(MESSAGE);
	w->ring_target = machine_map(MESSAGE);
	if (!w->ring_source || !w->ring_target)
		return bench_fail(b, -ENOMEM, "cannot map memory: %s", strerror(errno));
	machine_touch(w->ring_source, MESSAGE);
	machine_touch(w->ring_target, MESSAGE);
	return 0;
}

static void unmake(struct bandwidth *w)
{
	ring_stop(w->ring);
	machine_unmap(w->ring_source, MESSAGE);
	machine_unmap(w->ring_target, MESSAGE);
	for (int k = 0; k < ENDPOINT_KINDS; k++)
		endpoint_region_release(&w->local[k]);
	for (int op = 0; op < OPERATIONS; op++) {
		for (int k = 0; k < ENDPOINT_KINDS; k++)
			sample_free(&w->rate[op][k]);
		sample_free(&w->over_pinned[op]);
		sample_free(&w->over_ring[op]);
	}
	sample_free(&w->ring_rate);
}

static void report_operation(struct report_part *p, struct bandwidth *w, int op)
{
	report_row(p);
	report_words(p, OPERATION, operations[op].name);
	if (w->rate[op][ENDPOINT_ON_DEMAND].count)
		report_spread(p, ODP_RATE, sample_spread(&w->rate[op][ENDPOINT_ON_DEMAND]));
	if (w->rate[op][ENDPOINT_PINNED].count)
		report_spread(p, PINNED_RATE, sample_spread(&w->rate[op][ENDPOINT_PINNED]));
	if (w->over_pinned[op].count)
		report_spread(p, OVER_PINNED, sample_spread(&w->over_pinned[op]));
	if (w->ring_rate.count)
		report_spread(p, RING_RATE, sample_spread(&w->ring_rate));
	if (w->over_ring[op].count)
		report_spread(p, OVER_RING, sample_spread(&w->over_ring[op]));
	report_bytes(p, MESSAGE_SIZE, MESSAGE);
	report_bytes(p, ROUND_BYTES, w->length);
	if (w->why_not[0])
		report_words(p, NOTE, "pinned: see below");
}

static void report_all(struct bandwidth *w)
{
	static const size_t rates[] = { ODP_RATE, PINNED_RATE, RING_RATE };
	struct plot *plot;
	struct report_part *p = report_part(&w->b->report, "bandwidth", "Bandwidth",
		"How fast messages of 64 KiB follow each other between the same two buffers, which stay in "
		"the processor's cache, beside a bare ring of the same size through which the same bytes are "
		"copied twice. Medians of interleaved rounds [quartiles].",
		columns, COLUMNS);

	for (int op = 0; op < OPERATIONS; op++)
		report_operation(p, w, op);
	plot = report_bars(p, (struct plot_axis){ "throughput, GB/s", PLOT_NUMBER, false }, OPERATION,
		SIZE_MAX, rates, 3);
	if (plot && w->over_pinned[WRITE].count)
		plot_title(plot,
			"Writes of 64 KiB into on-demand memory that is there have %.0f %% of the throughput "
			"of pinned "
			"memory.",
			100 * sample_spread(&w->over_pinned[WRITE]).median);
	else if (plot)
		plot_title(plot, "Throughput of messages of 64 KiB.");
	if (w->why_not[0])
		report_note(p, "Pinned: %s.", w->why_not);
	if (w->over_ring[WRITE].count)
		report_at_least(p, "write_64k_over_ring", "WRITE 64 KiB, of the bare ring",
			100 * sample_spread(&w->over_ring[WRITE]).median, 70, "%");
	if (w->over_pinned[WRITE].count)
		report_at_least(p, "on_demand_over_pinned_write", "on demand, of pinned, WRITE 64 KiB",
			100 * sample_spread(&w->over_pinned[WRITE]).median, 99, "%");
}

static int play(struct bandwidth *w)
{
	unsigned rounds = w->b->pairs * ROUNDS_PER_PAIR;
	int err = 0;

	for (unsigned i = 0; !err && i < rounds; i++) {
		bench_progress(w->b, "bandwidth: round %u of %u", i + 1, rounds);
		err = bench_stopped() ? -EINTR : play_round(w, i);
	}
	if (w->rate[WRITE][0].count || w->rate[WRITE][1].count)
		report_all(w);
	for (int k = 0; !err && k < ENDPOINT_KINDS; k++)
		if (w->works[k])
			err = check(w, k);
	return err;
}

int bench_bandwidth(struct bench *b)
{
	static struct bandwidth w;
	int err = bench_connect(b);

	if (err)
		return err;
	memset(&w, 0, sizeof(w));
	w.b = b;
	w.length = bench_fit(
		b->bytes_per_s, b->quick ? ROUND_QUICK : ROUND_FULL, DEPTH * MESSAGE, b->quick ? 0.25 : 1);
	err = make(&w);
	if (!err)
		err = play(&w);
	unmake(&w);
	return err;
}

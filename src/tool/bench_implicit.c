/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Implicit on-demand regions beside explicit ones, on pages that are there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tool/alloc.h"
#include "tool/bench.h"
#include "tool/machine.h"

#define MESSAGE	    65536u
#define DEPTH	    32u
#define TRIPS_QUICK 2000u
#define TRIPS_FULL  10000u
#define BYTES_QUICK (32ull << 20)
#define BYTES_FULL  (128ull << 20)
#define WARM_UP	    (8ull << 20)
/* Rounds are short and many: what disturbs the machine for a moment then spoils few of them. */
#define ROUNDS_PER_PAIR 3u

enum column { OPERATION, EXPLICIT_US, IMPLICIT_US, EXPLICIT_RATE, IMPLICIT_RATE, RATIO, ROUNDS, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[OPERATION] = { "operation", NULL, "<operation" },
	[EXPLICIT_US] = { "explicit", "us", "explicit us" },
	[IMPLICIT_US] = { "implicit", "us", "implicit us" },
	[EXPLICIT_RATE] = { "explicit", "gb_per_s", "explicit GB/s" },
	[IMPLICIT_RATE] = { "implicit", "gb_per_s", "implicit GB/s" },
	[RATIO] = { "implicit_over_explicit_time", "ratio", "implicit / explicit, time" },
	[ROUNDS] = { "rounds", "count", NULL },
};

enum kind { EXPLICIT, IMPLICIT, KINDS };

static const enum endpoint_kind kinds[KINDS] = {
	[EXPLICIT] = ENDPOINT_ON_DEMAND,
	[IMPLICIT] = ENDPOINT_IMPLICIT,
};

struct implicit {
	struct bench *b;
	uint32_t trips;
	uint64_t bytes;
	struct endpoint_region local[KINDS];
	uint64_t remote[KINDS];
	uint32_t rkey[KINDS];
	uint64_t *round_ns;
	struct sample latency[KINDS], rate[KINDS], latency_ratio, time_ratio;
};

/* Half of the median round trip in microseconds. */
static int play_latency(struct implicit *m, int kind, double *us)
{
	struct bench *b = m->b;
	struct pingpong p = { .style = PINGPONG_SEND,
		.first = true,
		.iterations = m->trips,
		.memory = &m->local[kind],
		.remote = m->remote[kind],
		.rkey = m->rkey[kind] };
	struct peer_request q = { .verb = PEER_PLAY,
		.region = (uint32_t)kind,
		.style = PINGPONG_SEND,
		.length = m->trips,
		.remote = (uintptr_t)m->local[kind].addr,
		.rkey = m->local[kind].mr->rkey };
	struct sample s = { 0 };
	int err = bench_fail_endpoint(b, pingpong_prepare(&b->e, &p));

	if (!err)
		err = bench_fail_peer(b, peer_call(&b->peer, &q));
	if (!err)
		err = bench_fail_endpoint(b, pingpong_play(&b->e, &p, m->round_ns));
	if (!err)
		err = bench_fail_peer(b, peer_finish(&b->peer));
	for (uint32_t i = 0; !err && i < m->trips; i++)
		sample_add(&s, BENCH_US(m->round_ns[i]) / 2);
	*us = sample_spread(&s).median;
	sample_free(&s);
	return err;
}

static int play_rate(struct implicit *m, int kind, double *rate)
{
	struct bench *b = m->b;
	int64_t ns;
	int err = bench_peer_poll_begin(b);

	if (err)
		return err;
	ns = bench_stream(b, IBV_WR_RDMA_WRITE, &m->local[kind], m->remote[kind], m->rkey[kind], MESSAGE,
		MESSAGE, DEPTH, WARM_UP);
	if (ns >= 0)
		ns = bench_stream(b, IBV_WR_RDMA_WRITE, &m->local[kind], m->remote[kind], m->rkey[kind],
			MESSAGE, MESSAGE, DEPTH, m->bytes);
	if (ns < 0)
		return (int)ns;
	*rate = bench_rate(m->bytes, (uint64_t)ns);
	return bench_peer_poll_end(b);
}

static int play_round(struct implicit *m, unsigned round)
{
	double us[KINDS] = { 0 }, rate[KINDS] = { 0 };

	for (int i = 0; i < KINDS; i++) {
		int kind = (i + (int)round) % KINDS, err = play_latency(m, kind, &us[kind]);

		if (err)
			return err;
		sample_add(&m->latency[kind], us[kind]);
	}
	for (int i = 0; i < KINDS; i++) {
		int kind = (i + (int)round) % KINDS, err = play_rate(m, kind, &rate[kind]);

		if (err)
			return err;
		sample_add(&m->rate[kind], rate[kind]);
	}
	if (us[EXPLICIT] > 0)
		sample_add(&m->latency_ratio, us[IMPLICIT] / us[EXPLICIT]);
	if (rate[IMPLICIT] > 0)
		sample_add(&m->time_ratio, rate[EXPLICIT] / rate[IMPLICIT]);
	return 0;
}

static void report_all(struct implicit *m)
{
	struct report_part *p = report_part(&m->b->report, "implicit", "Implicit regions",
		"The same pages through one region that is the whole address space, and through one of their "
		"own, on "
		"both ends. The pages are there. Medians of interleaved rounds [quartiles].",
		columns, COLUMNS);

	report_row(p);
	report_words(p, OPERATION, "SEND 8 B, half of a round trip");
	report_spread(p, EXPLICIT_US, sample_spread(&m->latency[EXPLICIT]));
	report_spread(p, IMPLICIT_US, sample_spread(&m->latency[IMPLICIT]));
	report_spread(p, RATIO, sample_spread(&m->latency_ratio));
	report_number(p, ROUNDS, (double)m->latency_ratio.count);
	report_at_most(p, "implicit_latency", "implicit over explicit, SEND 8 B",
		100 * sample_spread(&m->latency_ratio).median, 105, "%");
	if (!m->time_ratio.count)
		return;
	report_row(p);
	report_words(p, OPERATION, "WRITE 64 KiB");
	report_spread(p, EXPLICIT_RATE, sample_spread(&m->rate[EXPLICIT]));
	report_spread(p, IMPLICIT_RATE, sample_spread(&m->rate[IMPLICIT]));
	report_spread(p, RATIO, sample_spread(&m->time_ratio));
	report_number(p, ROUNDS, (double)m->time_ratio.count);
	report_at_most(p, "implicit_bandwidth", "time of implicit over explicit, WRITE 64 KiB",
		100 * sample_spread(&m->time_ratio).median, 105, "%");
}

static int check(struct implicit *m, int kind)
{
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = m->local[kind].addr,
		.lkey = m->local[kind].mr->lkey,
		.length = MESSAGE,
		.remote = m->remote[kind],
		.rkey = m->rkey[kind] };
	int err;

	machine_fill(m->local[kind].addr, MESSAGE, (uint64_t)kind + 41);
	err = bench_fail_endpoint(m->b, endpoint_do(&m->b->e, &op));
	return err ? err : bench_peer_compare(m->b, (unsigned)kind, 0, MESSAGE, (uint64_t)kind + 41);
}

static int make(struct implicit *m)
{
	struct bench *b = m->b;
	int err = 0;

	for (int k = 0; !err && k < KINDS; k++) {
		err = endpoint_region_make(&b->e, &m->local[k], MESSAGE, kinds[k]);
		if (err)
			return bench_fail_endpoint(b, err);
		machine_touch(m->local[k].addr, MESSAGE);
		err = bench_peer_make(b, (unsigned)k, MESSAGE, kinds[k], true, &m->remote[k], &m->rkey[k]);
	}
	return err;
}

static int play(struct implicit *m)
{
	unsigned rounds = m->b->pairs * ROUNDS_PER_PAIR;
	int err = 0;

	for (unsigned i = 0; !err && i < rounds; i++) {
		bench_progress(m->b, "implicit: round %u of %u", i + 1, rounds);
		err = bench_stopped() ? -EINTR : play_round(m, i);
	}
	if (m->latency_ratio.count)
		report_all(m);
	for (int k = 0; !err && k < KINDS; k++)
		err = check(m, k);
	return err;
}

int bench_implicit(struct bench *b)
{
	struct implicit m = { .b = b,
		.trips = b->quick ? TRIPS_QUICK : TRIPS_FULL,
		.bytes = b->quick ? BYTES_QUICK : BYTES_FULL };
	int err = bench_connect(b);

	if (err)
		return err;
	if (!b->e.odp_implicit) {
		report_note(report_part(&b->report, "implicit", "Implicit regions",
				    "Regions that are the whole address space.", columns, COLUMNS),
			"%s has no implicit on-demand regions.", b->choice.device);
		return 0;
	}
	m.round_ns = alloc_array(m.trips, sizeof(*m.round_ns));
	err = make(&m);
	if (!err)
		err = play(&m);
	for (int k = 0; k < KINDS; k++) {
		endpoint_region_release(&m.local[k]);
		sample_free(&m.latency[k]);
		sample_free(&m.rate[k]);
	}
	sample_free(&m.latency_ratio);
	sample_free(&m.time_ratio);
	free(m.round_ns);
	return err;
}

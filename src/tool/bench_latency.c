/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Messages of 8 bytes back and forth, in three styles, pinned and on demand, beside the machine's own futex
 * round trip. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tool/alloc.h"
#include "tool/bench.h"
#include "tool/bench_ring.h"
#include "tool/pingpong.h"

enum column {
	STYLE,
	ODP_P50,
	ODP_P99,
	PINNED_P50,
	PINNED_P99,
	OVER_PINNED,
	FUTEX_P50,
	FUTEX_P99,
	ROUND_TRIPS,
	NOTE,
	COLUMNS
};

static const struct report_column columns[COLUMNS] = {
	[STYLE] = { "style", NULL, "<style" },
	[ODP_P50] = { "on_demand_p50", "us", "on demand p50 us" },
	[ODP_P99] = { "on_demand_p99", "us", "p99 us" },
	[PINNED_P50] = { "pinned_p50", "us", "pinned p50 us" },
	[PINNED_P99] = { "pinned_p99", "us", "p99 us" },
	[OVER_PINNED] = { "on_demand_over_pinned", "ratio", "on demand / pinned" },
	[FUTEX_P50] = { "futex_wakeup_p50", "us", "futex wake-up p50 us" },
	[FUTEX_P99] = { "futex_wakeup_p99", "us", "p99 us" },
	[ROUND_TRIPS] = { "round_trips", "count", NULL },
	[NOTE] = { "note", NULL, "<" },
};

static const struct {
	const char *name;
	uint32_t quick, full; /* round trips in one round */
} styles[PINGPONG_STYLES] = {
	[PINGPONG_SEND] = { "SEND 8 B, both poll completions", 3000, 10000 },
	[PINGPONG_WRITE] = { "WRITE 8 B, both spin on memory", 500, 3000 },
	[PINGPONG_EVENT] = { "SEND 8 B, both sleep for events", 300, 1000 },
};

/* A game that takes longer than this is shorter the next time: on a busy machine, or one whose processors
 * sleep deeply, a round trip can take a thousand times as long as on an idle one. */
#define GAME_QUICK_NS  (150 * NSEC_PER_MSEC)
#define GAME_FULL_NS   (2 * NSEC_PER_SEC)
#define ITERATIONS_MIN 50u

struct latency {
	struct bench *b;
	uint32_t iterations[PINGPONG_STYLES]; /* of the next round */
	struct endpoint_region local[ENDPOINT_KINDS];
	uint64_t remote[ENDPOINT_KINDS];
	uint32_t rkey[ENDPOINT_KINDS];
	bool works[ENDPOINT_KINDS];
	char why_not[256];
	struct hist half_ns[PINGPONG_STYLES][ENDPOINT_KINDS];	/* half of a round trip */
	struct sample typical[PINGPONG_STYLES][ENDPOINT_KINDS]; /* median of each round, us */
	struct sample ratio[PINGPONG_STYLES];
	struct hist futex_half_ns;
	struct sample futex; /* median of each round, us */
	uint64_t *round_ns;
};

static uint32_t iterations_wanted(const struct bench *b, int style)
{
	return b->quick ? styles[style].quick : styles[style].full;
}

/* Fits the next round into its time; all of one round have the same number. */
static void adapt(struct latency *l, int style, uint64_t game_ns)
{
	uint64_t limit = l->b->quick ? GAME_QUICK_NS : GAME_FULL_NS;
	uint64_t fitting;

	if (game_ns <= limit)
		return;
	fitting = l->iterations[style] * limit / game_ns;
	l->iterations[style] = fitting > ITERATIONS_MIN ? (uint32_t)fitting : ITERATIONS_MIN;
}

/* Adds half of each round trip; returns the median in microseconds. */
static double take(struct hist *h, const uint64_t *round_ns, uint32_t n)
{
	struct sample s = { 0 };
	double median;

	for (uint32_t i = 0; i < n; i++) {
		hist_add(h, round_ns[i] / 2);
		sample_add(&s, BENCH_US(round_ns[i]) / 2);
	}
	median = sample_spread(&s).median;
	sample_free(&s);
	return median;
}

static int play_kind(struct latency *l, enum pingpong_style style, enum endpoint_kind kind, double *median)
{
	struct bench *b = l->b;
	uint32_t n = l->iterations[style];
	struct pingpong p = { .style = style,
		.first = true,
		.iterations = n,
		.memory = &l->local[kind],
		.remote = l->remote[kind],
		.rkey = l->rkey[kind] };
	struct peer_request q = { .verb = PEER_PLAY,
		.region = kind,
		.style = style,
		.length = n,
		.remote = (uintptr_t)l->local[kind].addr,
		.rkey = l->local[kind].mr->rkey };
	int err = bench_fail_endpoint(b, pingpong_prepare(&b->e, &p));

	if (!err)
		err = bench_fail_peer(b, peer_call(&b->peer, &q));
	if (!err)
		err = bench_fail_endpoint(b, pingpong_play(&b->e, &p, l->round_ns));
	if (!err)
		err = bench_fail_peer(b, peer_finish(&b->peer));
	if (!err)
		*median = take(&l->half_ns[style][kind], l->round_ns, n);
	return err;
}

static int play_style(struct latency *l, enum pingpong_style style, unsigned round)
{
	double median[ENDPOINT_KINDS] = { 0 };
	uint64_t longest = 0;

	for (int i = 0; i < ENDPOINT_KINDS; i++) {
		uint64_t start = clock_ns(), game_ns;
		/* Now the one first, now the other. */
		int kind = (i + (int)round) % ENDPOINT_KINDS, err;

		if (!l->works[kind])
			continue;
		err = play_kind(l, style, (enum endpoint_kind)kind, &median[kind]);
		if (err)
			return err;
		sample_add(&l->typical[style][kind], median[kind]);
		game_ns = clock_ns() - start;
		longest = game_ns > longest ? game_ns : longest;
	}
	adapt(l, style, longest);
	if (median[ENDPOINT_PINNED] > 0 && median[ENDPOINT_ON_DEMAND] > 0)
		sample_add(&l->ratio[style], median[ENDPOINT_ON_DEMAND] / median[ENDPOINT_PINNED]);
	return 0;
}

static void play_futex(struct latency *l, struct ring *ring)
{
	uint32_t n = l->iterations[PINGPONG_EVENT];

	ring_futex(ring, n, l->round_ns);
	sample_add(&l->futex, take(&l->futex_half_ns, l->round_ns, n));
}

static int play(struct latency *l, struct ring *ring)
{
	int err = 0;

	for (unsigned round = 0; !err && round < l->b->pairs; round++) {
		for (int style = 0; !err && style < PINGPONG_STYLES; style++) {
			bench_progress(l->b, "latency: %s, round %u of %u", styles[style].name, round + 1,
				l->b->pairs);
			err = bench_stopped() ? -EINTR : play_style(l, (enum pingpong_style)style, round);
		}
		if (!err && ring)
			play_futex(l, ring);
	}
	return err;
}

static void report_kind(struct report_part *p, const struct hist *h, enum column p50, enum column p99)
{
	if (!atomic_load(&h->count))
		return;
	report_number(p, p50, BENCH_US(hist_quantile(h, 0.5)));
	report_number(p, p99, BENCH_US(hist_quantile(h, 0.99)));
}

static void report_style(struct report_part *p, struct latency *l, int style)
{
	report_row(p);
	report_words(p, STYLE, styles[style].name);
	report_kind(p, &l->half_ns[style][ENDPOINT_ON_DEMAND], ODP_P50, ODP_P99);
	report_kind(p, &l->half_ns[style][ENDPOINT_PINNED], PINNED_P50, PINNED_P99);
	if (l->ratio[style].count)
		report_spread(p, OVER_PINNED, sample_spread(&l->ratio[style]));
	if (style == PINGPONG_EVENT)
		report_kind(p, &l->futex_half_ns, FUTEX_P50, FUTEX_P99);
	report_number(p, ROUND_TRIPS,
		(double)atomic_load(&l->half_ns[style][l->works[ENDPOINT_ON_DEMAND] ? ENDPOINT_ON_DEMAND
										    : ENDPOINT_PINNED]
					     .count));
	if (l->why_not[0])
		report_words(p, NOTE, "pinned: see below");
	else if (l->b->wrong[0])
		report_words(p, NOTE, "on demand: see below");
}

/* The slower of pinned and on demand, in microseconds. */
static double slower(struct latency *l, int style)
{
	double a = sample_spread(&l->typical[style][ENDPOINT_PINNED]).median;
	double b = sample_spread(&l->typical[style][ENDPOINT_ON_DEMAND]).median;

	return a > b ? a : b;
}

static void report_targets(struct report_part *p, struct latency *l)
{
	double futex = sample_spread(&l->futex).median;

	if (l->typical[PINGPONG_SEND][0].count || l->typical[PINGPONG_SEND][1].count)
		report_at_most(p, "send_8b", "SEND 8 B, both polling, typical (the slower of the two)",
			slower(l, PINGPONG_SEND), 1.5, "us");
	if (l->typical[PINGPONG_WRITE][0].count || l->typical[PINGPONG_WRITE][1].count)
		report_at_most(p, "write_8b", "WRITE 8 B, spinning on memory, typical",
			slower(l, PINGPONG_WRITE), 20, "us");
	/* futex is half of a round trip: one wake-up. */
	if (futex > 0 && slower(l, PINGPONG_EVENT) > 0)
		report_at_most(p, "events_beyond_futex",
			"SEND 8 B with events, typical, beyond a futex round trip",
			(slower(l, PINGPONG_EVENT) - 2 * futex) / futex, 2, "wake-ups");
	if (l->ratio[PINGPONG_SEND].count)
		report_at_most(p, "on_demand_over_pinned_send", "on demand over pinned, SEND 8 B",
			100 * sample_spread(&l->ratio[PINGPONG_SEND]).median, 101, "%");
}

static void report_all(struct latency *l)
{
	static const size_t times[] = { ODP_P50, PINNED_P50, FUTEX_P50 };
	struct plot *plot;
	struct report_part *p = report_part(&l->b->report, "latency", "Latency",
		"Half of a round trip between two processes: what a small message takes when programs poll "
		"the completion queue, when they spin on memory, and when they sleep; on-demand memory is "
		"warm. A futex wake-up of one thread by another is what the machine itself takes to wake a "
		"sleeper. Ratios are medians of interleaved pairs [quartiles].",
		columns, COLUMNS);

	for (int style = 0; style < PINGPONG_STYLES; style++)
		report_style(p, l, style);
	plot = report_bars(
		p, (struct plot_axis){ "half of a round trip", PLOT_US, true }, STYLE, SIZE_MAX, times, 3);
	if (plot && l->ratio[PINGPONG_SEND].count)
		plot_title(plot,
			"A small message between polling programs takes %.2f times as long through warm "
			"on-demand memory as through pinned memory.",
			sample_spread(&l->ratio[PINGPONG_SEND]).median);
	else if (plot)
		plot_title(plot, "The time of a small message.");
	if (l->why_not[0])
		report_note(p, "Pinned: %s.", l->why_not);
	if (l->b->wrong[0])
		report_note(p, "On demand: not played, for who waits for a number would not get it: %s.",
			l->b->wrong);
	report_targets(p, l);
}

static int make(struct latency *l)
{
	struct bench *b = l->b;

	for (int k = 0; k < ENDPOINT_KINDS; k++) {
		int err;

		if (k == ENDPOINT_ON_DEMAND && (!b->e.odp || b->wrong[0]))
			continue;
		err = endpoint_region_make(&b->e, &l->local[k], PINGPONG_BYTES, (enum endpoint_kind)k);
		if (err == -ENOMEM && k == ENDPOINT_PINNED && b->e.odp && !b->wrong[0]) {
			snprintf(l->why_not, sizeof(l->why_not), "%s", b->e.why);
			continue;
		}
		if (err)
			return bench_fail_endpoint(b, err);
		memset(l->local[k].addr, 0, PINGPONG_BYTES);
		err = bench_peer_make(b, (unsigned)k, PINGPONG_BYTES, (enum endpoint_kind)k, true,
			&l->remote[k], &l->rkey[k]);
		if (err)
			return err;
		l->works[k] = true;
	}
	return 0;
}

static void unmake(struct latency *l)
{
	for (int k = 0; k < ENDPOINT_KINDS; k++)
		endpoint_region_release(&l->local[k]);
	for (int style = 0; style < PINGPONG_STYLES; style++) {
		for (int k = 0; k < ENDPOINT_KINDS; k++)
			sample_free(&l->typical[style][k]);
		sample_free(&l->ratio[style]);
	}
	sample_free(&l->futex);
	free(l->round_ns);
}

int bench_latency(struct bench *b)
{
	static struct latency l; /* its histograms are large */
	struct ring *ring;
	int err = bench_connect(b);

	if (err)
		return err;
	memset(&l, 0, sizeof(l));
	l.b = b;
	for (int style = 0; style < PINGPONG_STYLES; style++)
		l.iterations[style] = iterations_wanted(b, style);
	l.round_ns = alloc_array(l.iterations[PINGPONG_SEND], sizeof(*l.round_ns));
	ring = ring_start();
	err = make(&l);
	if (!err)
		err = play(&l, ring);
	if (l.typical[PINGPONG_SEND][0].count || l.typical[PINGPONG_SEND][1].count)
		report_all(&l);
	ring_stop(ring);
	unmake(&l);
	return err;
}

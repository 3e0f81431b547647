/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What an open device that does nothing takes of a processor. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "tool/bench.h"

enum column { PROCESS, CPU, SHARE, SECONDS, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[PROCESS] = { "process", NULL, "<process" },
	[CPU] = { "cpu", "ms", "processor time ms" },
	[SHARE] = { "share", "percent", "of one processor %" },
	[SECONDS] = { "duration", "s", "in s" },
};

static uint64_t own_usage(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static int peer_usage(struct bench *b, uint64_t *ns)
{
	int err = bench_peer_simple(b, PEER_USAGE, 0);

	*ns = b->peer.answer.value;
	return err;
}

/* Sleeps; true when it was not interrupted. */
static bool pause_for(struct bench *b, unsigned seconds)
{
	for (unsigned i = 0; i < seconds && !bench_stopped(); i++) {
		bench_progress(b, "idle: %u of %u s", i, seconds);
		nanosleep(&(struct timespec){ .tv_sec = 1 }, NULL);
	}
	return !bench_stopped();
}

static double report_process(struct report_part *p, const char *name, uint64_t used, uint64_t wall)
{
	double percent = 100 * (double)used / (double)wall;

	report_row(p);
	report_words(p, PROCESS, name);
	report_number(p, CPU, BENCH_MS(used));
	report_number(p, SHARE, percent);
	report_number(p, SECONDS, (double)wall / (double)NSEC_PER_SEC);
	return percent;
}

int bench_idle(struct bench *b)
{
	struct report_part *p;
	uint64_t own, peer, peer_after = 0, start, wall;
	double share[2];
	int err = bench_connect(b);

	if (err)
		return err;
	/* The traffic of connecting has died down before the watch begins; the last look at the other process
	 * is that too. */
	if (!pause_for(b, 1))
		return -EINTR;
	err = peer_usage(b, &peer);
	if (err)
		return err;
	own = own_usage();
	start = clock_ns();
	if (!pause_for(b, b->quick ? 3 : 10))
		return -EINTR;
	own = own_usage() - own;
	wall = clock_ns() - start;
	err = peer_usage(b, &peer_after);
	if (err)
		return err;
	p = report_part(&b->report, "idle", "Idle",
		"Processor time of two processes that have the device open and a connected queue pair, and "
		"wait.",
		columns, COLUMNS);
	share[0] = report_process(p, "this process", own, wall);
	share[1] = report_process(p, "second process", peer_after - peer, wall);
	report_at_most(p, "idle_cpu", "processor time of an idle device (the larger of the two)",
		share[share[1] > share[0]], 0.5, "%");
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Page faults a second against queue pairs, and against threads with queue pairs of their own. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define PAGE	     4096u
#define PAGES_QUICK  4096u
#define PAGES_FULL   32768u
#define QPS_MOST     64u
#define THREADS_MOST 8u
#define DEPTH	     4u /* requests that each queue pair has outstanding */

enum column { WHAT, NUMBER, FAULTS, PER_ONE, PAGES, ROUNDS, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[WHAT] = { "of", NULL, "<of" },
	[NUMBER] = { "number", "count", "number" },
	[FAULTS] = { "rate", "pages_per_s", "page faults/s" },
	[PER_ONE] = { "over_one", "ratio", "of one" },
	[PAGES] = { "pages", "count", NULL },
	[ROUNDS] = { "rounds", "count", NULL },
};

struct scaling {
	struct bench *b;
	size_t pages;
	struct endpoint_region source, target;
	struct report_part *part;
	struct plot *plot;
};

/* A thread's share: its own completion queue and queue pairs, every nth page of the walk. */
struct worker {
	struct scaling *s;
	struct endpoint e; /* a copy, whose queues are the thread's own */
	struct ibv_qp *qp[QPS_MOST];
	unsigned qps, number, workers;
	unsigned outstanding[QPS_MOST], total, turn; /* requests; the queue pair that had the last one */
	uint64_t deadline;
	pthread_t thread;
	int err;
};

static void close_worker(struct worker *w)
{
	for (unsigned i = 0; i < w->qps; i++)
		if (w->qp[i])
			ibv_destroy_qp(w->qp[i]);
	if (w->e.cq)
		ibv_destroy_cq(w->e.cq);
	memset(w, 0, sizeof(*w));
}

static int open_worker(struct worker *w, struct scaling *s, unsigned qps)
{
	int err = 0;

	memset(w, 0, sizeof(*w));
	w->s = s;
	w->e = s->b->e;
	w->e.unacked = 0;
	w->e.lifeline = -1;
	w->e.cq = ibv_create_cq(w->e.context, (int)(qps * 2 * DEPTH + 16), NULL, NULL, 0);
	if (!w->e.cq)
		return bench_fail(s->b, -errno, "cannot make a completion queue: %s", strerror(errno));
	for (w->qps = 0; !err && w->qps < qps; w->qps++)
		err = endpoint_loop(&w->e, &w->qp[w->qps]);
	if (err)
		bench_fail(s->b, err, "%s", w->e.why);
	return err;
}

/* Takes what completed off the queue pairs that it belongs to. 0 or negative errno with a sentence. */
static int take(struct worker *w)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(w->e.cq, 16, wc);

	for (int i = 0; i < n; i++) {
		unsigned qp = 0;

		if (wc[i].status != IBV_WC_SUCCESS) {
			snprintf(w->e.why, sizeof(w->e.why), "a request failed: %s",
				ibv_wc_status_str(wc[i].status));
			return -EIO;
		}
		while (qp + 1 < w->qps && w->qp[qp]->qp_num != wc[i].qp_num)
			qp++;
		w->outstanding[qp]--;
		w->total--;
	}
	if (n > 0)
		return 0;
	if (n < 0) {
		snprintf(w->e.why, sizeof(w->e.why), "cannot poll the completion queue");
		return -EIO;
	}
	machine_relax();
	return endpoint_patience(&w->e, &w->deadline, "completion");
}

/* The next queue pair in turn that has room. */
static int next_qp(struct worker *w)
{
	int err = 0;

	w->deadline = 0;
	while (!err && w->total == w->qps * DEPTH)
		err = take(w);
	do
		w->turn = (w->turn + 1) % w->qps;
	while (!err && w->outstanding[w->turn] == DEPTH);
	return err;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct scaling *s = w->s;
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = s->source.addr,
		.lkey = s->source.mr->lkey,
		.length = 8,
		.rkey = s->target.mr->rkey };

	for (size_t i = w->number; !w->err && i < s->pages; i += w->workers) {
		w->err = next_qp(w);
		w->e.qp = w->qp[w->turn];
		op.remote = (uintptr_t)s->target.addr + machine_scatter(i, s->pages);
		if (!w->err)
			w->err = endpoint_post(&w->e, &op);
		if (!w->err) {
			w->outstanding[w->turn]++;
			w->total++;
		}
	}
	w->deadline = 0;
	while (!w->err && w->total)
		w->err = take(w);
	return NULL;
}

/* Pages per second, or a negative errno. */
static double play_once(struct scaling *s, struct worker *w, unsigned workers)
{
	uint64_t start;
	unsigned started;
	int err = 0;

	if (madvise(s->target.addr, s->target.length, MADV_DONTNEED))
		return bench_fail(s->b, -errno, "MADV_DONTNEED: %s", strerror(errno));
	start = clock_ns();
	for (started = 0; !err && started < workers; started++) {
		w[started].number = started;
		w[started].workers = workers;
		w[started].err = 0;
		if (started + 1 < workers)
			err = -pthread_create(&w[started].thread, NULL, work, &w[started]);
		else
			work(&w[started]);
	}
	if (err)
		bench_fail(s->b, err, "cannot start a thread: %s", strerror(-err));
	for (unsigned i = 0; i + 1 < workers && i < started - (err != 0); i++)
		pthread_join(w[i].thread, NULL);
	for (unsigned i = 0; !err && i < workers; i++)
		if (w[i].err)
			err = bench_fail(s->b, w[i].err, "%s", w[i].e.why);
	return err ? err : (double)s->pages * 1e9 / (double)(clock_ns() - start);
}

static int check(struct scaling *s)
{
	for (size_t i = 0; i < s->pages; i++)
		if (machine_compare((char *)s->target.addr + i * PAGE, 8, 77) < 8)
			return bench_wrong(s->b, "wrong data in page %zu after a page fault", i);
	return 0;
}

static int play(struct scaling *s, const char *what, unsigned workers, unsigned qps, double *one)
{
	static struct worker w[THREADS_MOST];
	struct sample rate = { 0 };
	unsigned number = workers > qps ? workers : qps;
	int err = 0;

	for (unsigned i = 0; !err && i < workers; i++)
		err = open_worker(&w[i], s, qps);
	for (unsigned i = 0; !err && i < s->b->pairs; i++) {
		double pages;

		bench_progress(
			s->b, "fault throughput: %u %s, round %u of %u", number, what, i + 1, s->b->pairs);
		pages = bench_stopped() ? -EINTR : play_once(s, w, workers);
		if (pages < 0)
			err = (int)pages;
		else
			sample_add(&rate, pages);
	}
	if (!err)
		err = check(s);
	for (unsigned i = 0; i < workers; i++)
		close_worker(&w[i]);
	if (rate.count) {
		struct spread spread = sample_spread(&rate);

		*one = *one > 0 ? *one : spread.median;
		report_row(s->part);
		report_words(s->part, WHAT, what);
		report_number(s->part, NUMBER, number);
		report_spread(s->part, FAULTS, spread);
		report_number(s->part, PER_ONE, spread.median / *one);
		report_number(s->part, PAGES, (double)s->pages);
		report_number(s->part, ROUNDS, (double)rate.count);
		plot_point(s->plot, plot_series(s->plot, what), number, spread.median);
	}
	sample_free(&rate);
	return err;
}

static void conclude(struct scaling *s)
{
	double one = 0, best = 0;
	const char *of = "";
	unsigned number = 0;

	for (size_t i = 0; i < s->plot->count; i++) {
		for (size_t j = 0; j < s->plot->series[i].points; j++) {
			const struct plot_point *a = &s->plot->series[i].point[j];

			if (i == 0 && j == 0)
				one = a->y;
			if (a->y <= best || (i > 0 && a->x == 1))
				continue;
			best = a->y;
			of = s->plot->series[i].name;
			number = (unsigned)a->x;
		}
	}
	if (one > 0 && number == 1)
		plot_title(s->plot,
			"One queue pair has %.0f faults a second resolved; more of them, or more threads, do "
			"not bring more.",
			one);
	else if (one > 0)
		plot_title(s->plot,
			"One queue pair has %.0f faults a second resolved; the most, %.0f, come with %u %s.",
			one, best, number, of);
	else
		plot_title(s->plot, "Page faults a second.");
}

int bench_scaling(struct bench *b)
{
	struct scaling s = { .b = b };
	double one_qp = 0, one_thread = 0;
	int err = bench_alone(b);

	if (err)
		return err;
	if (!b->e.odp)
		return bench_no_odp(b);
	s.pages = bench_fit(
		b->faults_per_s, b->quick ? PAGES_QUICK : PAGES_FULL, 8 * QPS_MOST, b->quick ? 0.5 : 4);
	s.part = report_part(&b->report, "scaling", "Fault throughput",
		"Pages that nobody has touched, written at random 8 bytes each: by one thread through so "
		"many queue pairs, "
		"with 4 requests outstanding in each; and by so many threads with a queue pair and a "
		"completion queue "
		"each. The queue pairs are connected to themselves. Medians [quartiles].",
		columns, COLUMNS);
	s.plot = report_plot(s.part, "plot", PLOT_LINES,
		(struct plot_axis){ "queue pairs, or threads", PLOT_NUMBER, true },
		(struct plot_axis){ "page faults per second", PLOT_NUMBER, false });
	/* Threads share nothing but the device and the processors. */
	machine_unpin_thread();
	err = endpoint_region_make(&b->e, &s.source, PAGE, ENDPOINT_ON_DEMAND);
	if (!err)
		err = endpoint_region_make(&b->e, &s.target, s.pages * PAGE, ENDPOINT_ON_DEMAND);
	bench_fail_endpoint(b, err);
	if (!err)
		machine_fill(s.source.addr, PAGE, 77);
	for (unsigned n = 1; !err && n <= QPS_MOST; n *= b->quick ? 4 : 2)
		err = play(&s, "queue pairs", 1, n, &one_qp);
	for (unsigned n = 1; !err && n <= THREADS_MOST; n *= 2)
		err = play(&s, "threads", n, 1, &one_thread);
	conclude(&s);
	endpoint_region_release(&s.source);
	endpoint_region_release(&s.target);
	return err;
}

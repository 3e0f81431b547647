/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* How much memory a connection's sparse buffer holds over time, pinned and on demand. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "tool/bench.h"
#include "tool/machine.h"
#include "tool/units.h"

#define PAGE	    4096u
#define MIB	    ((uint64_t)1 << 20)
#define LENGTH	    (512 * MIB) /* of each connection; a power of two */
#define CONNECTIONS 2u
#define HOT_PERCENT 5u
#define RUN_QUICK   (1 * NSEC_PER_SEC)
#define RUN_FULL    (4 * NSEC_PER_SEC)
#define LOOKS	    40u
#define BURST	    16u /* writes between two looks at the clock */

enum column { REGION, CONNECTION, LENGTH_EACH, HOT, RSS, PIN, REQUESTS, COLUMNS };

static const struct report_column columns[COLUMNS] = {
	[REGION] = { "region", NULL, "<region" },
	[CONNECTION] = { "connections", "count", "connections" },
	[LENGTH_EACH] = { "length", "bytes", "buffer of each" },
	[HOT] = { "hot", "bytes", "used of all" },
	[RSS] = { "vm_rss_delta", "bytes", "VmRSS +" },
	[PIN] = { "vm_pin_delta", "bytes", "VmPin +" },
	[REQUESTS] = { "requests", "count", "requests" },
};

struct held {
	struct bench *b;
	uint64_t length;
	unsigned connections;
	uint64_t run_ns;
	struct endpoint_region source;
	uint64_t rss[ENDPOINT_KINDS]; /* at the end, more than before */
};

struct connection {
	struct ibv_qp *qp;
	struct endpoint_region buffer;
};

static uint64_t more(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* The next page of the hot ones, which lie scattered over the whole buffer. */
static int write_hot(struct held *h, const struct connection *c, uint64_t i)
{
	size_t pages = h->length / PAGE, hot = pages * HOT_PERCENT / 100;
	struct endpoint_op op = { .opcode = IBV_WR_RDMA_WRITE,
		.local = h->source.addr,
		.lkey = h->source.mr->lkey,
		.length = 8,
		.remote = (uintptr_t)c->buffer.addr + machine_scatter(i * 7919 % hot, pages),
		.rkey = c->buffer.mr->rkey };
	struct ibv_qp *usual = h->b->e.qp;
	int err;

	h->b->e.qp = c->qp;
	err = endpoint_do(&h->b->e, &op);
	h->b->e.qp = usual;
	return bench_fail_endpoint(h->b, err);
}

struct watch {
	struct plot *plot;
	size_t resident, pinned; /* series */
	struct machine_memory before;
	uint64_t start, looked;
};

static struct machine_memory look(struct watch *w, uint64_t now)
{
	struct machine_memory m = machine_memory();
	double s = (double)(now - w->start) / (double)NSEC_PER_SEC;

	m.resident = more(m.resident, w->before.resident);
	/* A device that locks does the same as one that pins. */
	m.pinned = more(m.pinned, w->before.pinned) + more(m.locked, w->before.locked);
	plot_point(w->plot, w->resident, s, (double)m.resident);
	plot_point(w->plot, w->pinned, s, (double)m.pinned);
	w->looked = now;
	return m;
}

static int open_connections(struct held *h, struct connection *c, enum endpoint_kind kind, struct watch *w)
{
	int err = 0;

	for (unsigned i = 0; !err && i < h->connections; i++) {
		err = endpoint_loop(&h->b->e, &c[i].qp);
		if (!err)
			err = endpoint_region_make(&h->b->e, &c[i].buffer, h->length, kind);
		if (!err)
			look(w, clock_ns());
	}
	return bench_fail_endpoint(h->b, err);
}

static void close_connections(struct connection *c)
{
	for (unsigned i = 0; i < CONNECTIONS; i++) {
		if (c[i].qp)
			ibv_destroy_qp(c[i].qp);
		endpoint_region_release(&c[i].buffer);
	}
}

static int play(struct held *h, struct report_part *p, struct plot *plot, enum endpoint_kind kind)
{
	struct connection c[CONNECTIONS] = { 0 };
	struct watch w = { .plot = plot, .before = machine_memory(), .start = clock_ns() };
	struct machine_memory m;
	uint64_t done = 0, opened;
	int err;

	w.resident = plot_series(plot, kind == ENDPOINT_PINNED ? "pinned: VmRSS" : "on demand: VmRSS");
	w.pinned = plot_series(plot, kind == ENDPOINT_PINNED ? "pinned: VmPin" : "on demand: VmPin");
	look(&w, w.start);
	err = open_connections(h, c, kind, &w);
	/* However long that took: a limit of time is for what is done with them. */
	opened = clock_ns();
	while (!err && clock_ns() - opened < h->run_ns) {
		for (unsigned i = 0; !err && i < BURST; i++, done++)
			err = write_hot(h, &c[done % h->connections], done / h->connections);
		if (bench_stopped())
			err = -EINTR;
		if (clock_ns() - w.looked > h->run_ns / LOOKS)
			look(&w, clock_ns());
		bench_progress(h->b, "memory held: %s, %llu requests", endpoint_kind_names[kind],
			(unsigned long long)done);
	}
	m = look(&w, clock_ns());
	if (done) {
		report_row(p);
		report_words(p, REGION, endpoint_kind_names[kind]);
		report_number(p, CONNECTION, h->connections);
		report_bytes(p, LENGTH_EACH, h->length);
		report_bytes(p, HOT, h->connections * (h->length / PAGE * HOT_PERCENT / 100) * PAGE);
		report_bytes(p, RSS, m.resident);
		report_bytes(p, PIN, m.pinned);
		report_number(p, REQUESTS, (double)done);
		h->rss[kind] = m.resident;
	}
	close_connections(c);
	return err;
}

static void conclude(struct held *h, struct plot *plot)
{
	char pinned[UNITS_MAX], on_demand[UNITS_MAX], length[UNITS_MAX];

	if (h->rss[ENDPOINT_PINNED] && h->rss[ENDPOINT_ON_DEMAND])
		plot_title(plot,
			"%u connections with %s each, of which %u %% are used, hold %s pinned and %s on "
			"demand.",
			h->connections, units_bytes(length, h->length), HOT_PERCENT,
			units_bytes(pinned, h->rss[ENDPOINT_PINNED] / MIB * MIB),
			units_bytes(on_demand, h->rss[ENDPOINT_ON_DEMAND] / MIB * MIB));
	else
		plot_title(plot, "Memory that a sparse buffer holds.");
}

int bench_held(struct bench *b)
{
	struct held h = { .b = b,
		.length = LENGTH,
		.connections = CONNECTIONS,
		.run_ns = b->quick ? RUN_QUICK : RUN_FULL };
	struct report_part *p;
	struct plot *plot;
	int err = bench_alone(b);

	if (err)
		return err;
	while (h.length > MIB && 3 * h.connections * h.length / 2 > machine_available())
		h.length /= 2;
	p = report_part(&b->report, "held", "Memory that a sparse buffer holds",
		"Each connection has a buffer of its own, of which one page in twenty is used, at random. "
		"Pinned, all of it "
		"is there from the start; on demand, what was used.",
		columns, COLUMNS);
	plot = report_plot(p, "plot", PLOT_LINES, (struct plot_axis){ "time, s", PLOT_NUMBER, false },
		(struct plot_axis){ "memory, more than before", PLOT_BYTES, false });
	err = bench_fail_endpoint(b, endpoint_region_make(&b->e, &h.source, PAGE,
					     b->e.odp ? ENDPOINT_ON_DEMAND : ENDPOINT_PINNED));
	if (!err) {
		err = play(&h, p, plot, ENDPOINT_PINNED);
		if (err == -ENOMEM || err == -EAGAIN || err == -EPERM) {
			report_note(p, "Pinned: %s.", b->why);
			err = 0;
		}
	}
	if (!err && b->e.odp)
		err = play(&h, p, plot, ENDPOINT_ON_DEMAND);
	else if (!err)
		report_note(p, "On demand: not offered by this device.");
	conclude(&h, plot);
	endpoint_region_release(&h.source);
	return err;
}

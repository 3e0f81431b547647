/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin stat`: counters of running processes, read from the segments that they export. unpin-stat(1) is the
 * manual. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#include "base/clock.h"
#include "base/log.h"
#include "tool/attach.h"
#include "tool/command.h"
#include "tool/option.h"
#include "tool/output.h"
#include "tool/table.h"
#include "tool/units.h"

struct counter {
	const char *name, *what;
	size_t offset; /* in the structure of its kind */
};

static const struct counter odp_counters[] = {
#define X(field, name, what) { name, what, offsetof(struct unpin_odp_counters, field) },
	UNPIN_ODP_COUNTERS(X)
#undef X
};
static const struct counter device_counters[] = {
#define X(field, name, what) { name, what, offsetof(struct unpin_device_counters, field) },
	UNPIN_DEVICE_COUNTERS(X)
#undef X
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const step_names[UNPIN_STEPS] = {
	[UNPIN_STEP_QUEUE] = "queue",
	[UNPIN_STEP_RESOLVE] = "resolve",
	[UNPIN_STEP_RESUME] = "resume",
	[UNPIN_STEP_TOTAL] = "total",
};
static const char *const speed_names[2] = { "minor", "major" };
static const char *const kind_names[] = { "none", "pinned", "odp", "implicit" };
static const char *const storm_names[] = {
	[UNPIN_STORM_NONE] = "none",
	[UNPIN_STORM_MAJORS] = "major faults",
	[UNPIN_STORM_STALL] = "memory stall",
};

static uint64_t value(const void *counters, const struct counter *c)
{
	return atomic_load_explicit(
		(const _Atomic uint64_t *)((const char *)counters + c->offset), memory_order_relaxed);
}

static uint64_t load64(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static uint32_t load32(const _Atomic uint32_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

/* "lw rr rw ra" for IBV_ACCESS_*; '-' when there is none. */
static char *access_text(char buf[UNITS_MAX], uint32_t access)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {
		{ IBV_ACCESS_LOCAL_WRITE, "lw" },
		{ IBV_ACCESS_REMOTE_WRITE, "rw" },
		{ IBV_ACCESS_REMOTE_READ, "rr" },
		{ IBV_ACCESS_REMOTE_ATOMIC, "ra" },
		{ IBV_ACCESS_MW_BIND, "mw" },
	};
	size_t used = 0;

	buf[0] = 0;
	for (size_t i = 0; i < COUNT(names); i++)
		if (access & names[i].bit)
			used += (size_t)snprintf(
				buf + used, UNITS_MAX - used, "%s%s", used ? "," : "", names[i].name);
	return used ? buf : strcpy(buf, "-");
}

/* --- one process, for people -------------------------------------------------------------------------------
 */

/* previous is an older copy for rates, or NULL. */
static void print_counters(const char *title, const struct counter *rows, size_t n, const void *now,
	const void *previous, double seconds)
{
	static const char *const headings[] = { "<", "total", "per second", "<" };
	struct table t;

	printf("\n%s\n", title);
	table_init(&t, headings, 4);
	for (size_t i = 0; i < n; i++) {
		uint64_t v = value(now, &rows[i]);
		char digits[UNITS_MAX];

		table_add(&t, "%s", rows[i].name);
		table_add(&t, "%" PRIu64, v);
		if (previous)
			table_add(&t, "%s",
				units_digits(digits, (double)(v - value(previous, &rows[i])) / seconds));
		else
			table_add(&t, "%s", "");
		table_add(&t, "%s", rows[i].what);
	}
	table_print(&t, stdout, 2);
	table_free(&t);
}

/* Count, p50, p99, max; empty cells where there was none. */
static void add_step(struct table *t, const struct hist *h)
{
	uint64_t n = load64(&h->count);
	const uint64_t times[] = { hist_quantile(h, 0.5), hist_quantile(h, 0.99), load64(&h->max) };
	char b[UNITS_MAX];

	table_add(t, "%" PRIu64, n);
	for (size_t i = 0; i < COUNT(times); i++)
		table_add(t, "%s", n ? units_time(b, times[i]) : "");
}

static void print_steps(const struct unpin_segment *s)
{
	static const char *const headings[] = { "<step", "minor", "p50", "p99", "max", "major", "p50", "p99",
		"max" };
	uint64_t all = 0;
	struct table t;

	printf("\nTime of page faults, by step\n");
	table_init(&t, headings, COUNT(headings));
	for (int step = 0; step < UNPIN_STEPS; step++) {
		table_add(&t, "%s", step_names[step]);
		for (int speed = 0; speed < 2; speed++) {
			add_step(&t, &s->step_ns[speed][step]);
			all += load64(&s->step_ns[speed][step].count);
		}
	}
	if (all)
		table_print(&t, stdout, 2);
	else
		printf("  no faults yet\n");
	table_free(&t);
}

static uint64_t since(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

static void print_storm(const struct unpin_storm *storm, uint64_t now)
{
	uint64_t count = load64(&storm->count), began = load64(&storm->began_ns),
		 ended = load64(&storm->ended_ns);
	uint32_t cause = load32(&storm->cause);
	char a[UNITS_MAX], b[UNITS_MAX];

	if (cause)
		printf("  storm: on, of %s, for %s, number %" PRIu64, storm_names[cause],
			units_time(a, since(now, began)), count);
	else if (count)
		printf("  storm: off; %" PRIu64 " so far, the last of %s ended %s ago after %s", count,
			storm_names[load32(&storm->last_cause)], units_time(a, since(now, ended)),
			units_time(b, since(ended, began)));
	else
		printf("  storm: off; none so far");
	printf("; %" PRIu64 " major faults per second, %s %% of the time stalled\n",
		load64(&storm->majors_per_s), units_digits(a, (double)load64(&storm->stall_ppm) / 1e4));
}

static void print_regions(const struct attach *a)
{
	static const char *const headings[] = { "<kind", "<address", "length", "<access", "lkey", "rkey",
		"faults", "major", "stale", "failed", "invalidated", "in", "out" };
	char b[UNITS_MAX];
	struct table t;

	printf("\nMemory regions\n");
	table_init(&t, headings, COUNT(headings));
	for (uint32_t i = 0; i < load32(&a->copy->regions_high); i++) {
		const struct unpin_segment_region *r = &a->copy->region[i];

		if (load32(&r->kind) == UNPIN_REGION_NONE)
			continue;
		table_add(&t, "%s", kind_names[load32(&r->kind)]);
		table_add(&t, "%#" PRIx64, load64(&r->addr));
		table_add(&t, "%s", units_bytes(b, load64(&r->length)));
		table_add(&t, "%s", access_text(b, load32(&r->access)));
		table_add(&t, "%#x", load32(&r->lkey));
		table_add(&t, "%#x", load32(&r->rkey));
		table_add(&t, "%" PRIu64, load64(&r->odp.page_faults));
		table_add(&t, "%" PRIu64, load64(&r->odp.faults_major));
		table_add(&t, "%" PRIu64, load64(&r->odp.faults_stale));
		table_add(&t, "%" PRIu64, load64(&r->odp.faults_failed));
		table_add(&t, "%" PRIu64, load64(&r->odp.page_invalidations_handled));
		table_add(&t, "%s", units_bytes(b, load64(&r->odp.bytes_in)));
		table_add(&t, "%s", units_bytes(b, load64(&r->odp.bytes_out)));
	}
	if (t.cells)
		table_print(&t, stdout, 2);
	else
		printf("  none\n");
	if (a->unreadable)
		printf("  (%u more changed while they were read)\n", a->unreadable);
	table_free(&t);
}

static void print_process(const struct attach *a, const struct unpin_segment *previous, double seconds)
{
	const struct unpin_segment *s = a->copy;
	uint64_t now = clock_ns();
	char pinned[UNITS_MAX], table[UNITS_MAX], age[UNITS_MAX];

	printf("Process %d (%s), device %s, open for %s\n", (int)a->pid, a->command, s->device,
		units_time(age, since(now, s->start_ns)));
	printf("  profile %s, notifier %s, fault mode %s, fault reply %s\n", s->profile, s->notifier,
		s->fault_mode, s->fault_reply);
	printf("  alive: %u protection domains, %u completion queues, %u queue pairs, %u memory regions\n",
		load32(&s->pds), load32(&s->cqs), load32(&s->qps), load32(&s->mrs));
	printf("  pinned memory: %s; device page table: %s in %" PRIu64 " leaves\n",
		units_bytes(pinned, load64(&s->pinned_bytes)),
		units_bytes(table, load64(&s->odp_table_bytes)), load64(&s->odp_leaves));
	print_storm(&s->storm, now);
	print_counters("On-demand paging", odp_counters, COUNT(odp_counters), &s->odp,
		previous ? &previous->odp : NULL, seconds);
	print_counters("Device", device_counters, COUNT(device_counters), &s->dev,
		previous ? &previous->dev : NULL, seconds);
	print_steps(s);
	print_regions(a);
}

/* --- the same as JSON --------------------------------------------------------------------------------------
 */

static json_object *json_number(uint64_t v)
{
	return json_object_new_uint64(v);
}

static json_object *json_counters(const struct counter *rows, size_t n, const void *counters)
{
	json_object *o = json_object_new_object();

	for (size_t i = 0; i < n; i++)
		json_object_object_add(o, rows[i].name, json_number(value(counters, &rows[i])));
	return o;
}

static json_object *json_steps(const struct unpin_segment *s, int speed)
{
	json_object *o = json_object_new_object();

	for (int step = 0; step < UNPIN_STEPS; step++) {
		const struct hist *h = &s->step_ns[speed][step];
		json_object *row = json_object_new_object();

		json_object_object_add(row, "count", json_number(load64(&h->count)));
		json_object_object_add(row, "p50_ns", json_number(hist_quantile(h, 0.5)));
		json_object_object_add(row, "p99_ns", json_number(hist_quantile(h, 0.99)));
		json_object_object_add(row, "max_ns", json_number(load64(&h->max)));
		json_object_object_add(o, step_names[step], row);
	}
	return o;
}

static json_object *json_storm(const struct unpin_storm *storm)
{
	json_object *o = json_object_new_object();
	uint64_t now = clock_ns(), began = load64(&storm->began_ns), ended = load64(&storm->ended_ns);
	uint32_t cause = load32(&storm->cause);
	bool any = load64(&storm->count) > 0;

	json_object_object_add(o, "on", json_object_new_boolean(cause != UNPIN_STORM_NONE));
	json_object_object_add(o, "cause", json_object_new_string(storm_names[cause]));
	json_object_object_add(o, "count", json_number(load64(&storm->count)));
	json_object_object_add(
		o, "last_cause", json_object_new_string(storm_names[load32(&storm->last_cause)]));
	json_object_object_add(o, "began_ago_ns", any ? json_number(since(now, began)) : NULL);
	json_object_object_add(o, "ended_ago_ns", any && !cause ? json_number(since(now, ended)) : NULL);
	json_object_object_add(o, "majors_per_s", json_number(load64(&storm->majors_per_s)));
	json_object_object_add(
		o, "stall_percent", json_object_new_double((double)load64(&storm->stall_ppm) / 1e4));
	return o;
}

static json_object *json_region(const struct unpin_segment_region *r)
{
	json_object *o = json_object_new_object();

	json_object_object_add(o, "kind", json_object_new_string(kind_names[load32(&r->kind)]));
	json_object_object_add(o, "address", json_number(load64(&r->addr)));
	json_object_object_add(o, "length_bytes", json_number(load64(&r->length)));
	json_object_object_add(o, "iova", json_number(load64(&r->iova)));
	json_object_object_add(o, "lkey", json_number(load32(&r->lkey)));
	json_object_object_add(o, "rkey", json_number(load32(&r->rkey)));
	json_object_object_add(o, "access", json_number(load32(&r->access)));
	json_object_object_add(o, "counters", json_counters(odp_counters, COUNT(odp_counters), &r->odp));
	return o;
}

static json_object *json_process(const struct attach *a, bool regions)
{
	const struct unpin_segment *s = a->copy;
	json_object *o = json_object_new_object(), *faults = json_object_new_object(),
		    *list = json_object_new_array();

	json_object_object_add(o, "pid", json_object_new_int(a->pid));
	json_object_object_add(o, "command", json_object_new_string(a->command));
	json_object_object_add(o, "device", json_object_new_string(s->device));
	json_object_object_add(o, "profile", json_object_new_string(s->profile));
	json_object_object_add(o, "notifier", json_object_new_string(s->notifier));
	json_object_object_add(o, "fault_mode", json_object_new_string(s->fault_mode));
	json_object_object_add(o, "fault_reply", json_object_new_string(s->fault_reply));
	json_object_object_add(o, "open_ns", json_number(since(clock_ns(), s->start_ns)));
	json_object_object_add(o, "protection_domains", json_number(load32(&s->pds)));
	json_object_object_add(o, "completion_queues", json_number(load32(&s->cqs)));
	json_object_object_add(o, "queue_pairs", json_number(load32(&s->qps)));
	json_object_object_add(o, "memory_regions", json_number(load32(&s->mrs)));
	json_object_object_add(o, "pinned_bytes", json_number(load64(&s->pinned_bytes)));
	json_object_object_add(o, "page_table_bytes", json_number(load64(&s->odp_table_bytes)));
	json_object_object_add(o, "page_table_leaves", json_number(load64(&s->odp_leaves)));
	json_object_object_add(o, "odp", json_counters(odp_counters, COUNT(odp_counters), &s->odp));
	json_object_object_add(
		o, "counters", json_counters(device_counters, COUNT(device_counters), &s->dev));
	for (int speed = 0; speed < 2; speed++)
		json_object_object_add(faults, speed_names[speed], json_steps(s, speed));
	json_object_object_add(o, "fault_steps", faults);
	json_object_object_add(o, "storm", json_storm(&s->storm));
	for (uint32_t i = 0; regions && i < load32(&s->regions_high); i++)
		if (load32(&s->region[i].kind) != UNPIN_REGION_NONE)
			json_object_array_add(list, json_region(&s->region[i]));
	json_object_object_add(o, "regions", list);
	return o;
}

static void print_json(json_object *o)
{
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
	json_object_put(o);
}

/* --- all processes -----------------------------------------------------------------------------------------
 */

struct totals {
	unsigned processes;
	uint64_t qps, mrs, pinned, faults, invalidations, in, out;
};

static void add_row(struct table *t, const struct attach *a, struct totals *sum)
{
	const struct unpin_segment *s = a->copy;
	char b[UNITS_MAX];

	table_add(t, "%d", (int)a->pid);
	table_add(t, "%s", a->command);
	table_add(t, "%s", s->device);
	table_add(t, "%u", load32(&s->qps));
	table_add(t, "%u", load32(&s->mrs));
	table_add(t, "%s", units_bytes(b, load64(&s->pinned_bytes)));
	table_add(t, "%" PRIu64, load64(&s->odp.page_faults));
	table_add(t, "%" PRIu64, load64(&s->odp.page_invalidations_handled));
	table_add(t, "%s", units_bytes(b, load64(&s->dev.rx_bytes)));
	table_add(t, "%s", units_bytes(b, load64(&s->dev.tx_bytes)));
	sum->processes++;
	sum->qps += load32(&s->qps);
	sum->mrs += load32(&s->mrs);
	sum->pinned += load64(&s->pinned_bytes);
	sum->faults += load64(&s->odp.page_faults);
	sum->invalidations += load64(&s->odp.page_invalidations_handled);
	sum->in += load64(&s->dev.rx_bytes);
	sum->out += load64(&s->dev.tx_bytes);
}

static void add_totals(struct table *t, const struct totals *sum)
{
	char b[UNITS_MAX];

	table_add(t, "%s", "");
	table_add(t, "%u processes", sum->processes);
	table_add(t, "%s", "");
	table_add(t, "%" PRIu64, sum->qps);
	table_add(t, "%" PRIu64, sum->mrs);
	table_add(t, "%s", units_bytes(b, sum->pinned));
	table_add(t, "%" PRIu64, sum->faults);
	table_add(t, "%" PRIu64, sum->invalidations);
	table_add(t, "%s", units_bytes(b, sum->in));
	table_add(t, "%s", units_bytes(b, sum->out));
}

/* Processes of other users, and those that end meanwhile, are passed over: this is a list of what can be
 * seen. A damaged segment is worth a word. */
static int stat_all(bool json)
{
	static const char *const headings[] = { "pid", "<command", "<device", "qps", "mrs", "pinned",
		"faults", "invalidated", "in", "out" };
	json_object *list = json ? json_object_new_array() : NULL;
	struct totals sum = { 0 };
	struct table t;
	pid_t *pids;
	size_t n = attach_processes(&pids);

	table_init(&t, headings, COUNT(headings));
	for (size_t i = 0; i < n; i++) {
		struct attach a;
		int err = attach_open(&a, pids[i]);

		if (err == -EPROTO || err == -EPROTONOSUPPORT || err == -ESTALE)
			log_warn("stat: process %d: %s", (int)pids[i], attach_error(err));
		if (err)
			continue;
		if (json)
			json_object_array_add(list, json_process(&a, false));
		else
			add_row(&t, &a, &sum);
		attach_close(&a);
	}
	free(pids);
	if (json) {
		print_json(list);
	} else if (!sum.processes) {
		puts("No process that you can inspect has an unpin device open. Start one: unpin run -- "
		     "PROGRAM");
	} else {
		add_totals(&t, &sum);
		table_print(&t, stdout, 0);
	}
	table_free(&t);
	return 0;
}

static int stat_one(pid_t pid, bool json, struct unpin_segment *previous, bool *have_previous, double seconds)
{
	struct attach a;
	int err = attach_open(&a, pid);

	if (err) {
		log_error("stat: process %d: %s", (int)pid, attach_error(err));
		return 1;
	}
	if (json)
		print_json(json_process(&a, true));
	else
		print_process(&a, *have_previous ? previous : NULL, seconds);
	if (previous) {
		memcpy(previous, a.copy, offsetof(struct unpin_segment, region));
		*have_previous = true;
	}
	attach_close(&a);
	return 0;
}

static int repeat(pid_t pid, bool json, double every)
{
	struct timespec pause = { (time_t)every, (long)((every - (double)(time_t)every) * 1e9) };
	struct unpin_segment *previous = every > 0 && pid ? calloc(1, sizeof(*previous)) : NULL;
	bool have_previous = false;
	uint64_t last = clock_ns();
	int status;

	for (;;) {
		uint64_t now = clock_ns();
		double seconds = (double)(now - last) / (double)NSEC_PER_SEC;

		last = now;
		status = pid ? stat_one(pid, json, previous, &have_previous, seconds > 0 ? seconds : 1)
			     : stat_all(json);
		if (output_flush())
			status = 1;
		if (status || every <= 0)
			break;
		nanosleep(&pause, NULL);
		if (!json)
			putchar('\n');
	}
	free(previous);
	return status;
}

static void help(const struct option_row *rows)
{
	puts("Usage: unpin stat [OPTION]... [PID]\n"
	     "\n"
	     "Without PID: the processes that have an unpin device open, with their totals.\n"
	     "With PID: all counters, the time of page faults by step, and every memory region.\n"
	     "The process is not stopped and not slowed down.\n");
	options_help(stdout, rows);
}

int cmd_stat(int argc, char **argv)
{
	bool json = false, wants_help = false;
	const char *every_text = NULL, *pid_text = NULL;
	const struct option_row rows[] = {
		{ 'j', "json", NULL, "as JSON, one line per output (keys: unpin-stat(1))", &json, NULL },
		{ 'w', "watch", "SECONDS", "again and again, with rates", NULL, &every_text },
		{ 'h', "help", NULL, "this text", &wants_help, NULL },
		{ 0 },
	};
	double every = 0;
	uint64_t pid = 0;

	/* Options may stand on both sides of PID. */
	for (;;) {
		int first = options_parse("stat", rows, argc, argv);

		if (first < 0)
			return EXIT_USAGE;
		if (first >= argc)
			break;
		if (pid_text) {
			log_error("stat: one process at a time, not '%s' and '%s'", pid_text, argv[first]);
			return EXIT_USAGE;
		}
		pid_text = argv[first];
		argc -= first;
		argv += first;
	}
	if (wants_help) {
		help(rows);
		return 0;
	}
	if (pid_text && option_number(pid_text, 1, INT32_MAX, &pid)) {
		log_error("stat: '%s' is not the number of a process", pid_text);
		return EXIT_USAGE;
	}
	if (every_text && option_seconds(every_text, &every)) {
		log_error("stat: --watch '%s' is not a number of seconds (up to a day)", every_text);
		return EXIT_USAGE;
	}
	return repeat((pid_t)pid, json, every);
}

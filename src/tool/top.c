/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin top`: which process, how often, and which way out. unpin-top(1) is the manual. */
#include "tool/top.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tool/alloc.h"
#include "tool/attach.h"
#include "tool/command.h"
#include "tool/option.h"
#include "tool/suggest.h"

#define RESIDENCY_REGIONS 128u /* that are looked at, each time */

struct top_watch {
	pid_t pid;
	int pidfd; /* -1: the kernel has none */
	const char *root;
	struct top_kernel *kernel; /* NULL: an unpin device is watched */
	struct top_frame frame[2];
	unsigned now;	 /* the newer of both */
	unsigned frames; /* so far, at most 2 */
	uint64_t every_ns, due_ns;
	struct top_view view;
	struct top_memory memory;
	enum top_key key;
	bool backwards;
	char filter[64];
};

/* --- watching --------------------------------------------------------------------------------------------
 */

/* Reads residency of what comes first, and sorts again when the order follows from it. */
static void add_residency(struct top_watch *w)
{
	struct top_view *v = &w->view;
	size_t most = v->regions < RESIDENCY_REGIONS ? v->regions : RESIDENCY_REGIONS;
	size_t *order = alloc_array(most + 1, sizeof(*order));

	for (size_t i = 0; i < most; i++)
		order[i] = (size_t)(v->region[i].region - w->frame[w->now].region);
	top_residency_read(&w->frame[w->now], order, most, w->root);
	free(order);
	if (w->key == TOP_BY_RESIDENT)
		top_sort(v, w->key, w->backwards);
}

static void remake(struct top_watch *w)
{
	top_view_free(&w->view);
	top_view_make(&w->view, &w->frame[!w->now], &w->frame[w->now], &w->memory);
	top_filter(&w->view, w->filter);
	top_sort(&w->view, w->key, w->backwards);
}

const struct top_view *top_arrange(struct top_watch *w, enum top_key key, bool backwards, const char *filter)
{
	w->key = key;
	w->backwards = backwards;
	snprintf(w->filter, sizeof(w->filter), "%s", filter);
	if (w->frames < 2)
		return NULL;
	remake(w);
	return &w->view;
}

void top_set_every(struct top_watch *w, double seconds)
{
	w->every_ns = (uint64_t)(seconds * 1e9);
	if (w->due_ns)
		w->due_ns = clock_ns() + w->every_ns;
}

/* One more look. 1: there are two of the same device now. */
static int look(struct top_watch *w)
{
	struct top_frame f;
	int err = w->kernel ? top_kernel_read(w->kernel, &f) : top_frame_read(&f, w->pid, w->root);

	if (err)
		return err;
	top_view_free(&w->view);
	if (w->frames && w->frame[w->now].start_ns != f.start_ns)
		w->frames = 0; /* it has opened the device anew */
	w->now = !w->now;
	top_frame_free(&w->frame[w->now]);
	w->frame[w->now] = f;
	if (++w->frames < 2)
		return 0;
	w->frames = 2;
	remake(w);
	/* Where its regions are is not told by the kernel. */
	if (!w->kernel)
		add_residency(w);
	return 1;
}

/* Waits until then, or until the process ends: true. */
static bool ends_before(const struct top_watch *w, uint64_t until)
{
	struct pollfd p = { .fd = w->pidfd, .events = POLLIN };
	uint64_t now = clock_ns();
	int n, ms = until > now ? (int)((until - now + 999999) / 1000000) : 0;

	do
		n = poll(&p, 1, ms);
	while (n < 0 && errno == EINTR && clock_ns() < until);
	return n > 0;
}

int top_next(struct top_watch *w, int timeout_ms, const struct top_view **v)
{
	uint64_t until = clock_ns() + (uint64_t)timeout_ms * NSEC_PER_MSEC;
	bool due = w->due_ns <= until;
	int got;

	if (ends_before(w, due ? w->due_ns : until))
		return -ESRCH;
	if (!due || clock_ns() < w->due_ns)
		return 0;
	w->due_ns = clock_ns() + w->every_ns;
	got = look(w);
	*v = &w->view;
	return got;
}

const char *top_trouble(const struct top_watch *w, int err)
{
	if (err == -ESRCH)
		return "The process has ended: these were its last figures. q quits.";
	if (err == -ENODEV)
		return w->kernel ? "The device has gone." : "The process has no device open now.";
	return w->kernel ? strerror(-err) : attach_error(err);
}

/* pid 0: a device of the kernel, without a process. */
static int watch_open(struct top_watch *w, pid_t pid, const char *root)
{
	int err;

	w->pid = pid;
	w->root = root;
	/* A record's processes are not here. */
	if (pid && !(w->kernel && *root))
		w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	err = look(w);
	w->due_ns = clock_ns() + w->every_ns;
	return err;
}

static void watch_close(struct top_watch *w)
{
	top_view_free(&w->view);
	top_memory_free(&w->memory);
	top_frame_free(&w->frame[0]);
	top_frame_free(&w->frame[1]);
	if (w->pidfd >= 0)
		close(w->pidfd);
	if (w->kernel)
		top_kernel_close(w->kernel);
}

/* --- which process ---------------------------------------------------------------------------------------
 */

/* Takes over the newest of the processes that have the device open when there is only one; else names them.
 */
static int only_process(const char *device, pid_t *out)
{
	pid_t *pids;
	size_t n = attach_processes(&pids), found = 0;
	char list[512] = "";
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		struct attach a;

		if (attach_open(&a, pids[i]))
			continue;
		if (!device || strcmp(device, a.copy->device) == 0) {
			*out = pids[i];
			found++;
			if (used < sizeof(list))
				used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d (%s)",
					found > 1 ? ", " : "", (int)pids[i], a.command);
		}
		attach_close(&a);
	}
	free(pids);
	if (found == 1)
		return 0;
	if (found)
		log_error("top: which of %zu processes? %s%s", found, list,
			used >= sizeof(list) ? "... ('unpin stat' lists them)" : "");
	else if (device)
		log_error("top: there is no kernel device '%s', and no process that you can inspect has an "
			  "unpin device of this name open",
			device);
	else
		log_error("top: no process that you can inspect has an unpin device open; start one: unpin "
			  "run -- PROGRAM");
	return -ESRCH;
}

/* --- the command -----------------------------------------------------------------------------------------
 */

struct options {
	bool json, batch, help;
	const char *every, *device, *count, *sort, *filter, *root, *record, *pid;
	double seconds;
	uint64_t times, number;
};

static int parse_key(const char *name, enum top_key *key)
{
	struct suggest s;

	*key = name ? top_key_named(name) : TOP_BY_FAULTS;
	if (*key < TOP_KEYS)
		return 0;
	suggest_begin(&s, name);
	for (int i = 0; i < TOP_KEYS; i++)
		suggest_offer(&s, top_key_names[i]);
	if (s.best)
		log_error("top: --sort knows no '%s'; did you mean '%s'?", name, s.best);
	else
		log_error("top: --sort knows no '%s'; 'unpin top --help' lists the columns", name);
	return -EINVAL;
}

static int parse_values(struct options *o)
{
	o->seconds = 1;
	if (o->every && (option_seconds(o->every, &o->seconds) || o->seconds < 0.05)) {
		log_error("top: --every '%s' is not a number of seconds (0.05 to a day)", o->every);
		return -EINVAL;
	}
	if (o->count && option_number(o->count, 1, UINT32_MAX, &o->times)) {
		log_error("top: --count '%s' is not a number of times", o->count);
		return -EINVAL;
	}
	if (o->pid && option_number(o->pid, 1, INT32_MAX, &o->number)) {
		log_error("top: '%s' is not the number of a process", o->pid);
		return -EINVAL;
	}
	return 0;
}

static void help(const struct option_row *rows)
{
	puts("Usage: unpin top [OPTION]... [PID]\n"
	     "\n"
	     "Watches the page faults, memory regions and queue pairs of a running process that has an\n"
	     "unpin device open, and says whether faults wait for a disk, in line, or for the driver. The\n"
	     "process is not stopped. Without PID: the only one there is. 'h' shows the keys.\n"
	     "\n"
	     "With -d and a device of the kernel: what its driver tells of regions, their page faults and\n"
	     "queue pairs, of all processes or the one with PID, and the counters of its ports.\n");
	options_help(stdout, rows);
}

static int show(struct top_watch *w, const struct options *o)
{
	struct top_look look = { .key = w->key, .every = o->seconds };

	snprintf(look.filter, sizeof(look.filter), "%s", w->filter);
	return o->json || o->batch ? top_batch(w, o->json, o->times) : top_screen(w, &look);
}

static struct top_watch watch_of(const struct options *o, enum top_key key)
{
	struct top_watch w = { .every_ns = (uint64_t)(o->seconds * 1e9), .key = key, .pidfd = -1 };

	snprintf(w.filter, sizeof(w.filter), "%s", o->filter ? o->filter : "");
	return w;
}

static int watch(const struct options *o, enum top_key key)
{
	struct top_watch w = watch_of(o, key);
	pid_t pid = (pid_t)o->number;
	int err;

	if (!pid && only_process(o->device, &pid))
		return 1;
	err = watch_open(&w, pid, o->root);
	if (err) {
		log_error("top: process %d: %s", (int)pid, attach_error(err));
		watch_close(&w);
		return 1;
	}
	if (o->device && strcmp(o->device, w.frame[w.now].device) != 0) {
		log_error("top: process %d has device %s open, not %s", (int)pid, w.frame[w.now].device,
			o->device);
		err = 1;
	} else {
		err = show(&w, o);
	}
	watch_close(&w);
	return err;
}

static int watch_kernel(const struct options *o, enum top_key key)
{
	struct top_watch w = watch_of(o, key);
	pid_t pid = (pid_t)o->number;
	int err;

	if (pid && !*o->root && kill(pid, 0) && errno == ESRCH) {
		log_error("top: there is no process %d", (int)pid);
		return 1;
	}
	w.kernel = top_kernel_open(o->device, pid, o->root, o->record, &err);
	if (!w.kernel) {
		log_error("top: --record %s: %s", o->record, strerror(-err));
		return 1;
	}
	err = watch_open(&w, pid, o->root);
	if (err) {
		log_error("top: %s: %s", o->device, top_trouble(&w, err));
		err = 1;
	} else {
		if (*w.frame[w.now].trouble && (o->json || o->batch))
			log_warn("top: %s: not told: %s", o->device, w.frame[w.now].trouble);
		err = show(&w, o);
	}
	watch_close(&w);
	return err;
}

int cmd_top(int argc, char **argv)
{
	struct options o = { 0 };
	const struct option_row rows[] = {
		{ 'd', "device", "NAME", "an unpin device that a process has open, or a kernel device", NULL,
			&o.device },
		{ 'w', "every", "SECONDS", "between looks (default 1)", NULL, &o.every },
		{ 'b', "batch", NULL, "lines for logs instead of the screen", &o.batch, NULL },
		{ 'j', "json", NULL, "one JSON object per line (keys: unpin-top(1))", &o.json, NULL },
		{ 'n', "count", "N", "with -b or -j: end after N (default: with the process)", NULL,
			&o.count },
		{ 's', "sort", "COLUMN",
			"faults, major, invalidations, prefetch, readahead, bytes, resident, length, address",
			NULL, &o.sort },
		{ 'f', "filter", "TEXT", "only what has this text in it", NULL, &o.filter },
		{ 'h', "help", NULL, "this text", &o.help, NULL },
		{ 0, "root", "DIR", NULL, NULL, &o.root },
		{ 0, "record", "DIR", "of a kernel device: keep what rdma netlink answers, for the doctor",
			NULL, &o.record },
		{ 0 },
	};
	enum top_key key;

	for (;;) {
		int first = options_parse("top", rows, argc, argv);

		if (first < 0)
			return EXIT_USAGE;
		if (first >= argc)
			break;
		if (o.pid) {
			log_error("top: one process at a time, not '%s' and '%s'", o.pid, argv[first]);
			return EXIT_USAGE;
		}
		o.pid = argv[first];
		argc -= first;
		argv += first;
	}
	if (o.help) {
		help(rows);
		return 0;
	}
	if (parse_values(&o) || parse_key(o.sort, &key))
		return EXIT_USAGE;
	if (!o.json && !o.batch && !isatty(STDOUT_FILENO)) {
		log_error("top: standard output is no terminal; use --batch for lines or --json");
		return EXIT_USAGE;
	}
	if (!o.root)
		o.root = "";
	if (o.device && top_kernel_has(o.root, o.device))
		return watch_kernel(&o, key);
	if (o.record) {
		log_error("top: --record is for a kernel device, which -d names");
		return EXIT_USAGE;
	}
	return watch(&o, key);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin advise`. unpin-advise(1) is the manual. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "tool/advise.h"
#include "tool/attach.h"
#include "tool/command.h"
#include "tool/option.h"

#define SECONDS	    3.0
#define WIDTH	    100u
#define WIDTH_LEAST 60u
#define WIDTH_MOST  140u

struct options {
	bool json, all, help;
	const char *watch, *bench;
	double seconds;
};

static void help(const struct option_row *rows)
{
	puts("Usage: unpin advise [OPTION]... PID\n"
	     "       unpin advise [OPTION]... TIMELINE...\n"
	     "\n"
	     "Tells of each memory region what it is, what it should be (pinned; on demand; on demand\n"
	     "with prefetch, or with mlock of its hot part; registered once), what that would gain, and\n"
	     "the line of code or the setting that does it. From a running process, or from what\n"
	     "'unpin run --trace FILE' has written.\n");
	options_help(stdout, rows);
}

/* A number is a process, unless a file has that name. */
static bool is_process(const char *word, uint64_t *pid)
{
	struct stat st;

	return option_number(word, 1, INT32_MAX, pid) == 0 && stat(word, &st) != 0;
}

static unsigned columns(void)
{
	struct winsize size;
	unsigned width = WIDTH;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
		width = size.ws_col;
	return width < WIDTH_LEAST ? WIDTH_LEAST : width > WIDTH_MOST ? WIDTH_MOST : width;
}

static bool may_colour(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

static int print_pages(const struct advise_crowd *crowd, const struct advise_costs *costs, bool all)
{
	const struct advise_look look = { .width = columns(), .colour = may_colour(), .all = all };

	for (size_t i = 0; i < crowd->count; i++) {
		struct advise_verdict *v = advise_judge_all(&crowd->facts[i], costs);

		if (i)
			putchar('\n');
		advise_page(stdout, &crowd->facts[i], v, costs, &look);
		free(v);
	}
	return fflush(stdout) || ferror(stdout) ? -EIO : 0;
}

static int watch_process(struct advise_crowd *crowd, pid_t pid, double seconds)
{
	int err;

	crowd->facts = calloc(1, sizeof(*crowd->facts));
	if (!crowd->facts)
		return -ENOMEM;
	crowd->count = 1;
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "watching process %d for %g s...\n", (int)pid, seconds);
	err = advise_live(crowd->facts, pid, seconds);
	if (err)
		log_error("advise: process %d: %s", (int)pid, attach_error(err));
	return err;
}

static int read_timelines(struct advise_crowd *crowd, int argc, char **argv)
{
	uint64_t pid;

	for (int i = 0; i < argc; i++) {
		int err;

		if (is_process(argv[i], &pid)) {
			log_error("advise: one process, or timelines, and not process %s among others",
				argv[i]);
			return EXIT_USAGE;
		}
		err = advise_trace(crowd, argv[i]);
		if (err)
			return 1;
	}
	return 0;
}

static int gather(struct advise_crowd *crowd, const struct options *o, int argc, char **argv)
{
	uint64_t pid;

	if (argc == 1 && is_process(argv[0], &pid))
		return watch_process(crowd, (pid_t)pid, o->seconds) ? 1 : 0;
	return read_timelines(crowd, argc, argv);
}

static int advise(const struct options *o, int argc, char **argv)
{
	struct advise_crowd crowd = { 0 };
	struct advise_costs costs;
	int err;

	if (o->bench) {
		if (advise_costs_read(&costs, o->bench))
			return 1;
	} else {
		advise_measure(&costs);
	}
	err = gather(&crowd, o, argc, argv);
	for (size_t i = 0; !err && i < crowd.count; i++)
		advise_fold(&crowd.facts[i]);
	if (!err && (o->json ? advise_json(stdout, &crowd, &costs) : print_pages(&crowd, &costs, o->all))) {
		log_error("advise: cannot write: %s", strerror(errno));
		err = 1;
	}
	advise_crowd_free(&crowd);
	return err;
}

int cmd_advise(int argc, char **argv)
{
	struct options o = { .seconds = SECONDS };
	const struct option_row rows[] = {
		{ 'w', "watch", "SECONDS", "how long a running process is watched (default 3)", NULL,
			&o.watch },
		{ 'b', "bench", "FILE",
			"costs from a report of 'unpin bench --json FILE' instead of measuring now", NULL,
			&o.bench },
		{ 'a', "all", NULL, "list every region, not only the first of each sort", &o.all, NULL },
		{ 'j', "json", NULL, "one JSON object (keys: unpin-advise(1))", &o.json, NULL },
		{ 'h', "help", NULL, "this text", &o.help, NULL },
		{ 0 },
	};
	int first = options_parse("advise", rows, argc, argv);

	if (first < 0)
		return EXIT_USAGE;
	if (o.help) {
		help(rows);
		return 0;
	}
	if (o.watch && (option_seconds(o.watch, &o.seconds) || o.seconds < 0.05)) {
		log_error("advise: --watch '%s' is not a number of seconds (0.05 to a day)", o.watch);
		return EXIT_USAGE;
	}
	if (first >= argc) {
		log_error("advise: of what? Name a process (unpin stat lists them) or timelines");
		return EXIT_USAGE;
	}
	return advise(&o, argc - first, argv + first);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin trace`: finishes timelines that their processes could not finish. unpin-trace(1) is the manual. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/trace_finish.h"
#include "base/trace_spool.h"
#include "tool/command.h"
#include "tool/option.h"
#include "tool/trace_watch.h"

struct tally {
	unsigned finished, running, failed;
};

static const char *reason(int err)
{
	switch (err) {
	case -EINVAL:
		return "it is damaged, or does not belong to the timeline; what could be read is in the "
		       "timeline";
	case -EPERM:
		return "it is another user's, or a link";
	case -ENOENT:
		return "the timeline itself has gone; remove this file, too";
	case -ENOSPC:
		return "there is no room for all of it; make room and try again";
	default:
		return strerror(-err);
	}
}

static bool finish(const char *spool, void *arg)
{
	struct tally *t = arg;
	int err = trace_finish_spool(spool, false);

	if (!err) {
		t->finished++;
	} else if (err == -EAGAIN) {
		t->running++;
		log_error("trace: a process is writing %s; it finishes the timeline when it ends (name a "
			  "second file "
			  "for a copy of what there is now)",
			spool);
	} else {
		t->failed++;
		log_error("trace: %s: %s", spool, reason(err));
	}
	return true;
}

static int finish_all(const char *timeline)
{
	struct tally t = { 0 };
	int err = trace_watch_each(timeline, finish, &t);

	if (err) {
		log_error("trace: %s: its directory cannot be read: %s", timeline, strerror(-err));
		return 1;
	}
	if (!t.finished && !t.running && !t.failed) {
		if (access(timeline, F_OK)) {
			log_error("trace: %s: %s", timeline, strerror(errno));
			return 1;
		}
		printf("%s: nothing is left to finish\n", timeline);
	} else {
		printf("%s: %u finished\n", timeline, t.finished);
	}
	return t.running || t.failed;
}

static int copy(const char *timeline, const char *to)
{
	char spool[PATH_MAX];
	int err;

	if (snprintf(spool, sizeof(spool), "%s" TRACE_SPOOL_SUFFIX, timeline) >= (int)sizeof(spool))
		err = -ENAMETOOLONG;
	else
		err = trace_finish_copy(spool, to);
	if (!err)
		return 0;
	if (err == -ENOENT)
		log_error("trace: no process is writing %s", timeline);
	else if (err == -EEXIST)
		log_error("trace: %s exists; name a file that does not", to);
	else
		log_error("trace: %s to %s: %s", spool, to, reason(err));
	return 1;
}

static void help(const struct option_row *rows)
{
	puts("Usage: unpin trace FILE [COPY]\n"
	     "\n"
	     "Finishes the timeline FILE, and FILE.PID of other processes of the same run, where a\n"
	     "process was killed and nobody did it. With COPY: writes what a process that runs\n"
	     "has recorded for FILE so far to a new file.\n");
	options_help(stdout, rows);
}

int cmd_trace(int argc, char **argv)
{
	bool wants_help = false;
	const struct option_row rows[] = {
		{ 'h', "help", NULL, "this text", &wants_help, NULL },
		{ 0 },
	};
	int first = options_parse("trace", rows, argc, argv);

	if (first < 0)
		return EXIT_USAGE;
	if (wants_help) {
		help(rows);
		return 0;
	}
	if (argc - first < 1 || argc - first > 2) {
		log_error("trace: which timeline? For example: unpin trace t.json");
		return EXIT_USAGE;
	}
	return argc - first == 1 ? finish_all(argv[first]) : copy(argv[first], argv[first + 1]);
}

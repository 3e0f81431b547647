/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/trace_watch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/trace_finish.h"
#include "base/trace_spool.h"

#define EVERY_MS     1000
#define WATCHER_NICE 10
#define WATCHER_FD   3

/* BASE.spool or BASE.PID.spool */
static bool is_spool_of(const char *base, const char *name)
{
	size_t n = strlen(base);

	if (strncmp(name, base, n) != 0)
		return false;
	name += n;
	if (name[0] == '.' && name[1] >= '0' && name[1] <= '9')
		name += 1 + strspn(name + 1, "0123456789");
	return strcmp(name, TRACE_SPOOL_SUFFIX) == 0;
}

int trace_watch_each(const char *timeline, trace_watch_fn fn, void *arg)
{
	char folder[PATH_MAX], base[PATH_MAX], spool[2 * PATH_MAX];
	const char *directory, *name;
	struct dirent *entry;
	DIR *d;

	if (strlen(timeline) >= PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(folder, timeline);
	strcpy(base, timeline);
	directory = dirname(folder);
	name = basename(base);
	d = opendir(directory);
	if (!d)
		return -errno;
	while ((entry = readdir(d))) {
		if (!is_spool_of(name, entry->d_name))
			continue;
		snprintf(spool, sizeof(spool), "%s/%s", directory, entry->d_name);
		if (!fn(spool, arg))
			break;
	}
	closedir(d);
	return 0;
}

/* --- the process beside the program -----------------------------------------------------------------------
 */

struct rounds {
	bool wait;
	bool finished, trouble; /* of one round: a timeline was; one could not be */
};

static bool finish(const char *spool, void *arg)
{
	struct rounds *r = arg;
	int err = trace_finish_spool(spool, r->wait);

	if (!err)
		r->finished = true;
	else if (err != -EAGAIN && err != -ENOENT)
		r->trouble = true;
	return true;
}

/* While the program runs. What could not be finished, for want of room perhaps, is tried again at the end
 * only. */
static void watch(const char *timeline, int pidfd)
{
	struct pollfd end = { .fd = pidfd, .events = POLLIN };
	struct rounds r = { .wait = false };

	while (poll(&end, 1, r.trouble ? -1 : EVERY_MS) == 0)
		trace_watch_each(timeline, finish, &r);
}

/* The program has ended; others of its run may go on for long. */
static void finish_all(const char *timeline)
{
	struct rounds r;

	do {
		r = (struct rounds){ .wait = true };
		trace_watch_each(timeline, finish, &r);
	} while (r.finished);
}

/* Whoever waits for the end of the program's output must not wait for this process. */
static int let_go(int pidfd)
{
	int null = open("/dev/null", O_RDWR);

	if (null < 0)
		return -errno;
	for (int fd = 0; fd < WATCHER_FD; fd++)
		if (dup2(null, fd) < 0)
			return -errno;
	if (pidfd != WATCHER_FD && dup2(pidfd, WATCHER_FD) < 0)
		return -errno;
	return close_range(WATCHER_FD + 1, ~0u, 0) ? -errno : 0;
}

static void be_watcher(const char *timeline, int pidfd)
{
	if (let_go(pidfd))
		_exit(1);
	prctl(PR_SET_NAME, "unpin-trace");
	setpriority(PRIO_PROCESS, 0, WATCHER_NICE);
	signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a full disk */
	watch(timeline, WATCHER_FD);
	finish_all(timeline);
	_exit(0);
}

/* Orphans become children of this process: it is the first of its pid namespace, or has asked for them. */
static bool adopts_orphans(void)
{
	int adopts = 0;

	return getpid() == 1 || (!prctl(PR_GET_CHILD_SUBREAPER, &adopts) && adopts);
}

int trace_watch_start(const char *timeline)
{
	int pidfd, status = 0, err = 0;
	pid_t pid;

	if (adopts_orphans())
		return 0;
	pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (pidfd < 0)
		return -errno;
	pid = fork();
	if (!pid) {
		/* The program must not find a child that it did not make. */
		setsid();
		pid = fork();
		if (!pid)
			be_watcher(timeline, pidfd);
		_exit(pid < 0);
	}
	/* Where SIGCHLD is ignored there is nothing to wait for. */
	if (pid < 0 || (waitpid(pid, &status, 0) != pid && errno != ECHILD))
		err = -errno;
	else if (status)
		err = -EAGAIN;
	close(pidfd);
	return err;
}

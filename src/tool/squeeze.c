/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/squeeze.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define V1	      "/sys/fs/cgroup/memory"
#define V2	      "/sys/fs/cgroup"
#define PAGE	      4096u
#define LOOK_MS	      5
#define PREFERENCE    100  /* before whatever other swap the machine has */
#define SWAPOFF_TRIES 3000 /* a nap between them: half a minute */

static int fail(struct squeeze *s, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct squeeze *s, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
	return err;
}

static void nap(void)
{
	const struct timespec ms10 = { .tv_nsec = 10000000 };

	nanosleep(&ms10, NULL);
}

static int put(const char *folder, const char *file, const char *text)
{
	char path[640];
	ssize_t n;
	int fd, err = 0;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	if (n != (ssize_t)strlen(text))
		err = n < 0 ? -errno : -EIO;
	close(fd);
	return err;
}

static int get(const char *folder, const char *file, char *text, size_t size)
{
	char path[640];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return -errno;
	text[n] = 0;
	return 0;
}

/* --- the cgroup --------------------------------------------------------------------------------------------
 */

/* The folder of the cgroup that this process is in. */
static bool find_home(struct squeeze *s)
{
	const char *prefix = s->v1 ? ":memory:" : "0::";
	char line[512];
	FILE *f = fopen("/proc/self/cgroup", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		const char *at = strstr(line, prefix);

		line[strcspn(line, "\n")] = 0;
		found = at && (s->v1 || at == line);
		if (found)
			snprintf(s->home, sizeof(s->home), "%s%.400s", s->v1 ? V1 : V2, at + strlen(prefix));
	}
	if (f)
		fclose(f);
	return found;
}

int squeeze_limit(struct squeeze *s, uint64_t limit)
{
	char bytes[32];
	int err = -EBUSY;

	snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)limit);
	/* Version 1 gives up when a pass of reclaim was not enough. */
	for (int i = 0; err == -EBUSY && i < 50; i++)
		err = put(s->cgroup, s->v1 ? "memory.limit_in_bytes" : "memory.high", bytes);
	return err;
}

static int make_cgroup(struct squeeze *s, uint64_t limit)
{
	for (int v1 = 1; v1 >= 0; v1--) {
		s->v1 = v1;
		snprintf(s->cgroup, sizeof(s->cgroup), "%s/unpin-squeeze-%d", v1 ? V1 : V2, (int)s->owner);
		if (mkdir(s->cgroup, 0755))
			continue;
		if (squeeze_limit(s, limit) == 0 && find_home(s) &&
			(!v1 || put(s->cgroup, "memory.oom_control", "1") == 0))
			return 0;
		rmdir(s->cgroup);
	}
	s->cgroup[0] = 0;
	return fail(s, -EOPNOTSUPP, "no memory cgroup can be made here");
}

/* --- swap --------------------------------------------------------------------------------------------------
 */

struct swap {
	int zram; /* its number, or -1 */
	char path[64];
	bool on;
};

/* What mkswap(8) writes: version 1, the number of the last page, the label, the mark at the end of the first
 * page. */
static bool format(const char *path, uint64_t bytes, pid_t owner)
{
	unsigned char page[PAGE] = { 0 };
	uint32_t version = 1, last = (uint32_t)(bytes / PAGE - 1);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool done;

	if (fd < 0)
		return false;
	memcpy(page + 1024, &version, sizeof(version));
	memcpy(page + 1028, &last, sizeof(last));
	snprintf((char *)page + 1052, 16, "unpin-%d", (int)owner);
	memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
	done = pwrite(fd, page, PAGE, 0) == (ssize_t)PAGE && fsync(fd) == 0;
	close(fd);
	return done;
}

static void zram_remove(const struct swap *w)
{
	char text[16], folder[64];

	snprintf(folder, sizeof(folder), "/sys/block/zram%d", w->zram);
	put(folder, "reset", "1");
	snprintf(text, sizeof(text), "%d", w->zram);
	put("/sys/class/zram-control", "hot_remove", text);
}

static bool zram_make(struct swap *w, uint64_t bytes, pid_t owner)
{
	char text[32], folder[64];

	/* Reading it makes one. */
	if (get("/sys/class/zram-control", "hot_add", text, sizeof(text)))
		return false;
	w->zram = atoi(text);
	snprintf(folder, sizeof(folder), "/sys/block/zram%d", w->zram);
	snprintf(w->path, sizeof(w->path), "/dev/zram%d", w->zram);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	for (int i = 0; i < 200 && access(w->path, F_OK); i++)
		nap();
	if (put(folder, "disksize", text) == 0 && format(w->path, bytes, owner))
		return true;
	zram_remove(w);
	w->zram = -1;
	return false;
}

static bool file_make(struct swap *w, uint64_t bytes, pid_t owner)
{
	int fd;

	snprintf(w->path, sizeof(w->path), "/var/tmp/unpin-squeeze-swap-%d", (int)owner);
	fd = open(w->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	if (posix_fallocate(fd, 0, (off_t)bytes) || !format(w->path, bytes, owner)) {
		close(fd);
		unlink(w->path);
		return false;
	}
	close(fd);
	return true;
}

/*
 * Others' pages may have come here, and go back to where they are charged: the kernel gives up when another
 * group is at its own limit (ENOMEM) or when a signal comes. Somebody's pages must not be lost: as long as it
 * takes, within reason.
 */
static void swap_remove(struct swap *w)
{
	for (int i = 0; w->on && i < SWAPOFF_TRIES && swapoff(w->path) && errno != EINVAL; i++)
		nap();
	if (w->zram >= 0)
		zram_remove(w);
	else if (*w->path)
		unlink(w->path);
}

static bool swap_make(struct swap *w, uint64_t bytes, pid_t owner)
{
	*w = (struct swap){ .zram = -1 };
	if (!zram_make(w, bytes, owner) && !file_make(w, bytes, owner))
		return false;
	w->on = swapon(w->path, SWAP_FLAG_PREFER | PREFERENCE) == 0;
	if (!w->on)
		swap_remove(w);
	return w->on;
}

/* --- the turn ----------------------------------------------------------------------------------------------
 */

/* An abstract name, which goes with the last process that has the socket: the keeper, when all is taken away.
 */
static int take_turn(struct squeeze *s)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "\0unpin-squeeze" };
	int err;

	s->turn = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->turn < 0)
		return fail(s, -errno, "no socket can be made: %s", strerror(errno));
	if (bind(s->turn, (const struct sockaddr *)&name, sizeof(name)) == 0)
		return 0;
	err = errno == EADDRINUSE ? -EBUSY : -errno;
	close(s->turn);
	return fail(s, err, "somebody else is squeezing memory on this machine at this time");
}

/* --- the keeper --------------------------------------------------------------------------------------------
 */

/* A limit that stands above what was asked for, for a moment. given is 0: it does not. Bytes. */
struct room {
	unsigned long long asked, given;
};

static unsigned long long number(const struct squeeze *s, const char *file)
{
	char text[128];

	return get(s->cgroup, file, text, sizeof(text)) ? 0 : strtoull(text, NULL, 10);
}

static unsigned long long limit_of(const struct squeeze *s)
{
	return number(s, "memory.limit_in_bytes");
}

static int set_limit(const struct squeeze *s, unsigned long long bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", bytes);
	return put(s->cgroup, "memory.limit_in_bytes", text);
}

/* Somebody waits for memory. (Unless he allowed the kernel to kill: then that is what he gets.) */
static bool under_oom(const struct squeeze *s)
{
	char text[128];

	return get(s->cgroup, "memory.oom_control", text, sizeof(text)) == 0 &&
	       strstr(text, "oom_kill_disable 1") && strstr(text, "under_oom 1");
}

/* All of the room, or, as long as the kernel cannot make the rest free (EBUSY), what of it is free. A process
 * that uses its pages again and again would never be at its limit otherwise: it takes what it is given at
 * once. */
static void take_back(const struct squeeze *s, struct room *room)
{
	unsigned long long lower;

	if (set_limit(s, room->asked) != -EBUSY) {
		room->given = 0;
		return;
	}
	lower = number(s, "memory.usage_in_bytes") / PAGE * PAGE;
	if (lower > room->asked && lower < room->given && set_limit(s, lower) == 0)
		room->given = lower;
}

/*
 * Version 1 kills a process for which a pass of reclaim brought nothing, though there is swap: when all pages
 * were used a moment ago. So it is told not to, and then the process waits; a little more room for a moment
 * sets it going again. It is taken back at once, or at one of the next looks.
 * (Version 2 has memory.high, above which a process is slowed down and never killed.)
 */
static void help_out(const struct squeeze *s, struct room *room)
{
	unsigned long long now = limit_of(s);

	if (!now)
		return;
	if (now != room->given)
		room->given = 0; /* another limit was set meanwhile */
	if (under_oom(s)) {
		if (!room->given)
			room->asked = now;
		if (set_limit(s, now + SQUEEZE_ROOM))
			return;
		room->given = now + SQUEEZE_ROOM;
		nap();
	}
	if (room->given && limit_of(s) == room->given)
		take_back(s, room);
}

/* Until the other end of the pipe is closed, by squeeze_end or by the end of the process. */
static void keep(const struct squeeze *s, struct swap *w, int alive)
{
	struct pollfd end = { .fd = alive, .events = POLLIN };
	struct room room = { 0 };

	setsid();
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	while (poll(&end, 1, LOOK_MS) <= 0)
		if (s->v1)
			help_out(s, &room);
	for (int i = 0; i < 500 && rmdir(s->cgroup) && errno == EBUSY; i++)
		nap();
	swap_remove(w);
	_exit(0);
}

static void keeper_main(struct squeeze *s, uint64_t swap_bytes, int alive, int ready)
{
	struct swap w = { .zram = -1 };
	char byte = swap_make(&w, swap_bytes, s->owner) ? 'y' : 'n';

	/* Who does not hear of it has ended, and keep returns at once. */
	if (write(ready, &byte, 1) != 1)
		byte = 'n';
	close(ready);
	keep(s, &w, alive);
}

/* Starts the keeper and waits until it has made the swap. *made: it has. 0 or negative errno. */
static int start_keeper(struct squeeze *s, uint64_t swap_bytes, bool *made)
{
	int alive[2], ready[2];
	char byte = 0;

	if (pipe2(alive, O_CLOEXEC))
		return fail(s, -errno, "no pipe can be made: %s", strerror(errno));
	if (pipe2(ready, O_CLOEXEC) || (s->keeper = fork()) < 0) {
		close(alive[0]);
		close(alive[1]);
		return fail(s, -EAGAIN, "no process can be started");
	}
	if (!s->keeper) {
		close(alive[1]);
		close(ready[0]);
		keeper_main(s, swap_bytes, alive[0], ready[1]);
	}
	close(alive[0]);
	close(ready[1]);
	s->alive = alive[1];
	while (read(ready[0], &byte, 1) < 0 && errno == EINTR)
		;
	close(ready[0]);
	*made = byte == 'y';
	return 0;
}

int squeeze_begin(struct squeeze *s, uint64_t limit, uint64_t swap_bytes)
{
	bool made = false;
	int err;

	memset(s, 0, sizeof(*s));
	s->owner = getpid();
	if (geteuid() != 0)
		return fail(s, -EPERM, "making swap and a memory cgroup needs root");
	err = take_turn(s);
	if (err)
		return err;
	err = make_cgroup(s, limit);
	if (!err) {
		err = start_keeper(s, swap_bytes, &made);
		if (err) {
			s->keeper = 0;
			rmdir(s->cgroup);
		}
	}
	/* The keeper has it from here on. */
	close(s->turn);
	if (err || made)
		return err;
	squeeze_end(s);
	return fail(s, -EOPNOTSUPP, "neither a zram device nor a file can be made a swap device here");
}

int squeeze_enter(struct squeeze *s)
{
	int err = put(s->cgroup, "cgroup.procs", "0");

	return err ? fail(s, err, "cannot enter the memory cgroup: %s", strerror(-err)) : 0;
}

uint64_t squeeze_usage(const struct squeeze *s)
{
	char text[64];

	if (get(s->cgroup, s->v1 ? "memory.usage_in_bytes" : "memory.current", text, sizeof(text)))
		return 0;
	return strtoull(text, NULL, 10);
}

void squeeze_end(struct squeeze *s)
{
	if (s->keeper <= 0)
		return;
	put(s->home, "cgroup.procs", "0");
	close(s->alive);
	while (waitpid(s->keeper, NULL, 0) < 0 && errno == EINTR)
		;
	s->keeper = 0;
}

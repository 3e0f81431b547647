/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "squeeze.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <unistd.h>

#include "check.h"

#define V1 "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"

static bool put(const char *folder, const char *file, const char *text)
{
	char path[512];
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text);
}

static bool get(const char *folder, const char *file, char *text, size_t size)
{
	char path[512];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, size - 1);
	close(fd);
	if (n < 0)
		return false;
	text[n] = '\0';
	return true;
}

/* --- the cgroup --- */

static const char *limit_file(const struct squeeze *s)
{
	return !strncmp(s->cgroup, V1 "/", sizeof(V1)) ? "memory.limit_in_bytes" : "memory.max";
}

/* False: there is no memory controller to be had. */
static bool make_cgroup(struct squeeze *s, size_t limit)
{
	static const char *const roots[] = { V1, V2 };
	char bytes[32];

	snprintf(bytes, sizeof(bytes), "%zu", limit);
	for (size_t i = 0; i < COUNT(roots); i++) {
		snprintf(s->cgroup, sizeof(s->cgroup), "%s/unpin-test-%d", roots[i], (int)getpid());
		if (mkdir(s->cgroup, 0755))
			continue;
		if (put(s->cgroup, limit_file(s), bytes))
			return true;
		rmdir(s->cgroup);
	}
	return false;
}

/* --- swap --- */

struct swap {
	int zram;      /* its number, or -1 */
	char path[64]; /* of the device or file */
	bool on;
};

/* What mkswap(8) writes: version 1, the last page, the magic at the end of the first page. */
static bool format(const char *path, size_t bytes)
{
	unsigned char *page = calloc(1, 4096);
	unsigned version = 1, last = (unsigned)(bytes / 4096 - 1);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	bool done;

	memcpy(page + 1024, &version, 4);
	memcpy(page + 1028, &last, 4);
	memcpy(page + 4086, "SWAPSPACE2", 10);
	done = fd >= 0 && pwrite(fd, page, 4096, 0) == 4096 && !fsync(fd);
	if (fd >= 0)
		close(fd);
	free(page);
	return done;
}

static void zram_remove(int number)
{
	char text[16], folder[64];

	snprintf(folder, sizeof(folder), "/sys/block/zram%d", number);
	put(folder, "reset", "1");
	snprintf(text, sizeof(text), "%d", number);
	put("/sys/class/zram-control", "hot_remove", text);
}

static bool zram_make(struct swap *w, size_t bytes)
{
	char text[32], folder[64];

	if (!get("/sys/class/zram-control", "hot_add", text, sizeof(text)))
		return false;
	w->zram = atoi(text);
	snprintf(folder, sizeof(folder), "/sys/block/zram%d", w->zram);
	snprintf(w->path, sizeof(w->path), "/dev/zram%d", w->zram);
	snprintf(text, sizeof(text), "%zu", bytes);
	for (int i = 0; i < 200 && access(w->path, F_OK); i++)
		nap(10);
	if (put(folder, "disksize", text) && format(w->path, bytes))
		return true;
	zram_remove(w->zram);
	w->zram = -1;
	return false;
}

static bool file_make(struct swap *w, size_t bytes)
{
	int fd;

	snprintf(w->path, sizeof(w->path), "/var/tmp/unpin-test-swap-%d", (int)getpid());
	fd = open(w->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	if (posix_fallocate(fd, 0, (off_t)bytes) || !format(w->path, bytes)) {
		close(fd);
		unlink(w->path);
		return false;
	}
	close(fd);
	return true;
}

static void swap_remove(struct swap *w)
{
	if (w->on)
		swapoff(w->path);
	if (w->zram >= 0)
		zram_remove(w->zram);
	else if (*w->path)
		unlink(w->path);
}

static bool swap_make(struct swap *w, size_t bytes)
{
	*w = (struct swap){ .zram = -1 };
	if (!zram_make(w, bytes) && !file_make(w, bytes))
		return false;
	/* Before whatever else the machine has. */
	w->on = !swapon(w->path, SWAP_FLAG_PREFER | 100);
	if (!w->on)
		swap_remove(w);
	return w->on;
}

/* --- the keeper --- */

static void keep(const struct squeeze *s, struct swap *w, int alive)
{
	char byte;

	/* Not killed with the case's process group, and not by what ends the others. */
	setsid();
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	while (read(alive, &byte, 1) < 0 && errno == EINTR)
		;
	for (int i = 0; i < 500 && rmdir(s->cgroup) && errno == EBUSY; i++)
		nap(10);
	swap_remove(w);
	_exit(0);
}

void squeeze_begin(struct squeeze *s, size_t limit, size_t swap)
{
	int pipe_end[2], ready[2];
	struct swap w;
	char byte = 0;
	pid_t keeper;

	*s = (struct squeeze){ .limit = limit };
	if (geteuid())
		check_skip("making swap and a cgroup needs root");
	check_sys(pipe2(pipe_end, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
	if (!make_cgroup(s, limit))
		check_skip("no memory cgroup can be made here");
	/* The keeper makes the swap, so that whatever it made goes with it. */
	keeper = fork();
	check_sys(keeper >= 0);
	if (!keeper) {
		close(pipe_end[1]);
		byte = swap_make(&w, swap) ? 'y' : 'n';
		if (write(ready[1], &byte, 1) != 1)
			byte = 'n';
		close(ready[1]);
		close(ready[0]);
		keep(s, &w, pipe_end[0]);
	}
	close(pipe_end[0]);
	close(ready[1]);
	s->alive = pipe_end[1];
	if (read(ready[0], &byte, 1) != 1 || byte != 'y')
		check_skip("neither a zram device nor a file can be made a swap device here");
	close(ready[0]);
}

void squeeze_enter(const struct squeeze *s)
{
	check_sys(put(s->cgroup, "cgroup.procs", "0"));
}

size_t squeeze_usage(const struct squeeze *s)
{
	char text[64];

	check_sys(get(s->cgroup,
		!strcmp(limit_file(s), "memory.max") ? "memory.current" : "memory.usage_in_bytes", text,
		sizeof(text)));
	return strtoull(text, NULL, 10);
}

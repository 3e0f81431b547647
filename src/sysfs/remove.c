/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sysfs/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sysfs/tree.h"

#define DEPTH_MAX 8	/* a tree has seven levels of directories */
#define LOOK_MAX  10000 /* entries of a directory of temporary files that are looked at */

/* What getdents64(2) gives. */
struct entry {
	uint64_t inode;
	int64_t next;
	unsigned short size;
	unsigned char type;
	char name[];
};

static int open_directory(int base, const char *name)
{
	long fd = syscall(SYS_openat, base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

int sysfs_open_own(int base, const char *name)
{
	int fd = open_directory(base, name);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) || st.st_uid != geteuid() || st.st_mode & 022) {
		fd_close(fd);
		return -EPERM;
	}
	return fd;
}

void sysfs_each_name(int dir, bool (*tell)(void *arg, const char *name), void *arg)
{
	char buf[2048] __attribute__((aligned(8)));
	long n;

	while ((n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n;) {
			const struct entry *e = (const void *)(buf + at);

			at += e->size;
			if (strcmp(e->name, ".") && strcmp(e->name, "..") && !tell(arg, e->name))
				return;
		}
	}
}

/* --- removing ------------------------------------------------------------------------------------------ */

struct emptying {
	int dir, depth;
	bool removed; /* something, in this round */
};

static bool empty_one(void *arg, const char *name);

/* Round after round: entries that go while a directory is read may hide others. */
static void empty(int dir, int depth)
{
	struct emptying e = { .dir = dir, .depth = depth };

	do {
		e.removed = false;
		syscall(SYS_lseek, dir, 0, SEEK_SET);
		sysfs_each_name(dir, empty_one, &e);
	} while (e.removed);
}

static bool empty_one(void *arg, const char *name)
{
	struct emptying *e = arg;
	int dir;

	if (!syscall(SYS_unlinkat, e->dir, name, 0)) {
		e->removed = true;
		return true;
	}
	dir = e->depth < DEPTH_MAX ? open_directory(e->dir, name) : -ELOOP;
	if (dir < 0)
		return true;
	empty(dir, e->depth + 1);
	fd_close(dir);
	e->removed |= !syscall(SYS_unlinkat, e->dir, name, AT_REMOVEDIR);
	return true;
}

static void remove_open(int base, const char *name, int dir)
{
	empty(dir, 0);
	syscall(SYS_unlinkat, base, name, AT_REMOVEDIR);
}

void sysfs_remove(int base, const char *name)
{
	int dir = sysfs_open_own(base, name);

	if (dir < 0) {
		syscall(SYS_unlinkat, base, name,
			AT_REMOVEDIR); /* while it is empty, no descriptor is needed */
		return;
	}
	remove_open(base, name, dir);
	fd_close(dir);
}

void sysfs_private_name(char *name, unsigned long size)
{
	uint64_t dice = 0;

	if (syscall(SYS_getrandom, &dice, sizeof(dice), GRND_NONBLOCK) != sizeof(dice))
		dice = clock_ns() * 0x9e3779b97f4a7c15ull ^ (uint64_t)syscall(SYS_gettid);
	snprintf(name, size, SYSFS_PREFIX "%u-new-%016llx", (unsigned)geteuid(), (unsigned long long)dice);
}

void sysfs_remove_unheld(int base, const char *name)
{
	int dir = sysfs_open_own(base, name);
	char dying[64];

	if (dir < 0)
		return;
	if (!flock(dir, LOCK_EX | LOCK_NB)) {
		sysfs_private_name(dying, sizeof(dying));
		if (!renameat(base, name, base, dying))
			remove_open(base, dying, dir);
	}
	fd_close(dir);
}

struct sweep {
	int base;
	const char *keep;
	char mine[32];
	unsigned left;
};

static bool sweep_one(void *arg, const char *name)
{
	struct sweep *s = arg;

	if (!strncmp(name, s->mine, strlen(s->mine)) && strcmp(name, s->keep))
		sysfs_remove_unheld(s->base, name);
	return --s->left;
}

void sysfs_sweep(int base, const char *keep)
{
	struct sweep s = { .base = base, .keep = keep, .left = LOOK_MAX };
	int dir = open_directory(base, ".");

	if (dir < 0)
		return;
	snprintf(s.mine, sizeof(s.mine), SYSFS_PREFIX "%u-", (unsigned)geteuid());
	sysfs_each_name(dir, sweep_one, &s);
	fd_close(dir);
}

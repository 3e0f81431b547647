/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Which paths are ours, and where in the tree they lead. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic/device.h"
#include "posix/libc.h"
#include "posix/path.h"
#include "sysfs/entry.h"
#include "sysfs/tree.h"

static bool begins_with(const char *s, const char *name)
{
	while (*name && *s == *name)
		s++, name++;
	return !*name;
}

/* Where the next of the words by which paths of ours begin stands; NULL: nowhere. */
static const char *find_word(const char *path)
{
	for (; *path; path++) {
		if (*path == 'i' && begins_with(path, "infiniband"))
			return path;
		if (SYSFS_RDMA_CM && *path == 'r' && begins_with(path, "rdma_cm"))
			return path;
	}
	return NULL;
}

/*
 * Two letters of each word first, which libc finds many times as fast. Not before our constructor: a
 * sanitizer's runtime may stand in front of libc's functions, and calls open() before it is ready.
 */
bool path_has_word(const char *path)
{
	if (LIBC(open) && !strstr(path, "fi") && !(SYSFS_RDMA_CM && strstr(path, "_c")))
		return false;
	return find_word(path);
}

/* A name in a directory by which paths of ours begin. */
struct door {
	const char *directory, *name;
	enum path_kind kind;
	const char *tree; /* below the root of the tree */
	bool whole;	  /* all below it is ours; else it lists devices, of which one is */
};

static const struct door doors[] = {
	{ "/sys/class", "infiniband", PATH_SYSFS, "class/infiniband", false },
	{ "/sys/devices/virtual", "infiniband", PATH_SYSFS, "devices/virtual/infiniband", false },
	{ "/dev", "infiniband", PATH_RDMA_CM, NULL, false },
	{ "/sys/class/misc", "rdma_cm", PATH_SYSFS, "class/misc/rdma_cm", true },
	{ "/sys/devices/virtual/misc", "rdma_cm", PATH_SYSFS, "devices/virtual/misc/rdma_cm", true },
};

#define DOORS (SYSFS_RDMA_CM ? sizeof(doors) / sizeof(doors[0]) : 3)

/* The name, if it is a component of its own; then *rest is what follows it. */
static bool component(const char *path, const char *at, const char *name, const char **rest)
{
	if ((at > path && at[-1] != '/') || !begins_with(at, name))
		return false;
	*rest = at + strlen(name);
	return !**rest || **rest == '/';
}

static bool same_file(const struct stat *a, const char *path)
{
	struct stat b;

	return !syscall(SYS_newfstatat, AT_FDCWD, path, &b, 0) && a->st_dev == b.st_dev &&
	       a->st_ino == b.st_ino;
}

/* Whether what stands before `at` in the path leads to this directory, however it is written. */
static bool leads_to(int dirfd, const char *path, const char *at, const char *directory)
{
	size_t n = (size_t)(at - path), m = strlen(directory);
	char before[PATH_MAX];
	struct stat st;

	if (n == m + 1 && !memcmp(path, directory, m) && path[m] == '/')
		return true;
	if (n >= sizeof(before))
		return false;
	memcpy(before, path, n);
	before[n] = '\0';
	if (syscall(SYS_newfstatat, dirfd, n || dirfd != AT_FDCWD ? before : ".", &st, n ? 0 : AT_EMPTY_PATH))
		return false;
	return same_file(&st, directory);
}

/* Steps over slashes and "." components. */
static const char *skip_dots(const char *s)
{
	for (;;) {
		while (*s == '/')
			s++;
		if (s[0] != '.' || (s[1] && s[1] != '/'))
			return s;
		s++;
	}
}

/* Whether the path goes through this door; *below is what follows, without slashes in front. */
static bool through(const struct door *d, int dirfd, const char *path, const char *at, const char **below)
{
	const char *rest, *device = nic_device_name(), *ignored;

	if (!component(path, at, d->name, &rest))
		return false;
	*below = skip_dots(rest);
	if (d->kind == PATH_RDMA_CM) {
		if (strcmp(*below, "rdma_cm"))
			return false;
	} else if (!d->whole && **below && !component(*below, *below, device, &ignored) &&
		   !component(*below, *below, "..", &ignored)) {
		return false;
	}
	return leads_to(dirfd, path, at, d->directory);
}

static const struct door *find_door(int dirfd, const char *path, const char **below)
{
	for (const char *at = path; (at = find_word(at)); at++)
		for (size_t i = 0; i < DOORS; i++)
			if (through(&doors[i], dirfd, path, at, below))
				return &doors[i];
	return NULL;
}

enum path_kind path_classify(int dirfd, const char *path)
{
	const char *below;
	const struct door *d;
	int saved = errno;

	d = find_door(dirfd, path, &below);
	errno = saved;
	return d ? d->kind : PATH_PLAIN;
}

/* What of a path through this door is below the device, in place; NULL: it is not below, or leads out of it.
 */
static const char *below_device(char *below)
{
	const char *rest;
	char *to;

	if (!component(below, below, nic_device_name(), &rest))
		return NULL;
	rest = skip_dots(rest);
	for (to = below; *rest; rest = skip_dots(rest)) {
		if (to > below)
			*to++ = '/';
		if (rest[0] == '.' && rest[1] == '.' && (!rest[2] || rest[2] == '/'))
			return NULL;
		while (*rest && *rest != '/')
			*to++ = *rest++;
	}
	*to = '\0';
	return below;
}

static const char *lead(const struct door *d, const char *below, char buf[PATH_MAX], const char **sub)
{
	char root[SYSFS_ROOT_MAX];
	const char *ignored;
	int n;

	/* The class is a directory and no link, so this leads to where it is. */
	if (!d->whole && component(below, below, "..", &ignored)) {
		n = snprintf(buf, PATH_MAX, "%s/%s", d->directory, skip_dots(below + 2));
		return n < PATH_MAX ? buf : NULL;
	}
	if (sysfs_tree(root))
		return NULL;
	n = snprintf(buf, PATH_MAX, "%s/%s%s%s", root, d->tree, *below ? "/" : "", below);
	if (n >= PATH_MAX)
		return NULL;
	if (sub)
		*sub = !d->whole && strlen(below) < NAME_MAX ? below : NULL;
	return buf;
}

const char *path_in_tree(int dirfd, const char *path, char buf[PATH_MAX], const char **sub)
{
	const char *below, *served = NULL;
	const struct door *d;
	int saved = errno;

	if (sub)
		*sub = NULL;
	d = find_door(dirfd, path, &below);
	if (d && d->kind == PATH_SYSFS)
		served = lead(d, below, buf, sub);
	errno = saved;
	return served;
}

/* ---- Descriptors of the tree ---- */

static atomic_bool entered;

void path_entered(void)
{
	atomic_store_explicit(&entered, true, memory_order_relaxed);
}

bool path_has_entered(void)
{
	return atomic_load_explicit(&entered, memory_order_relaxed);
}

/* The descriptor's number stays, whatever it is that reads from it. */
static void make_live(int fd, const char *below)
{
	char sub[NAME_MAX + 1];
	const char *at;
	int live;

	if (strlen(below) > NAME_MAX)
		return;
	strcpy(sub, below);
	at = below_device(sub);
	live = at ? sysfs_live(at) : -ENOENT;
	if (live < 0)
		return;
	syscall(SYS_dup3, live, fd, (int)syscall(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
	syscall(SYS_close, live);
}

void path_refresh(int fd)
{
	static const char devices[] = "devices/virtual/infiniband/";
	char link[64], place[PATH_MAX];
	const char *inside;
	int saved = errno;
	long n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, place, sizeof(place) - 1);
	if (n > 0) {
		place[n] = '\0';
		inside = sysfs_inside(place);
		if (inside && begins_with(inside, devices))
			make_live(fd, inside + sizeof(devices) - 1);
	}
	errno = saved;
}

static int refuse(int err)
{
	errno = err;
	return -1;
}

/* What sysfs answers to one who would write, or make a file, where this one is (fd) or is not (-1). */
static int not_to_write(int fd, const struct stat *st, int flags)
{
	bool directory = fd >= 0 && S_ISDIR(st->st_mode);

	if (fd >= 0)
		syscall(SYS_close, fd);
	if ((flags & O_TMPFILE) == O_TMPFILE)
		return refuse(fd < 0 ? ENOENT : directory ? EOPNOTSUPP : ENOTDIR);
	if (fd < 0)
		return refuse(flags & O_CREAT ? EACCES : ENOENT);
	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		return refuse(EEXIST);
	return refuse(directory ? EISDIR : EACCES);
}

int path_open(const char *served, const char *sub, int flags)
{
	static const int making = O_CREAT | O_EXCL | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY);
	int looks = flags & O_PATH, fd;
	bool writes = !looks && (flags & (O_ACCMODE | O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE);
	struct stat st;

	fd = (int)syscall(SYS_openat, AT_FDCWD, served, flags & ~(making | O_ACCMODE), 0);
	if (fd < 0 && errno != ENOENT)
		return -1;
	if (fd >= 0)
		syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH);
	if (writes && (fd < 0 || flags & (O_ACCMODE | O_TRUNC | O_EXCL) || S_ISDIR(st.st_mode)))
		return not_to_write(fd, &st, flags);
	if (fd < 0)
		return -1;
	if (S_ISDIR(st.st_mode))
		path_entered();
	else if (!looks && sub)
		make_live(fd, sub);
	return fd;
}

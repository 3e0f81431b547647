/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Where a path leads: readlink, realpath. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "posix/libc.h"
#include "posix/path.h"
#include "sysfs/tree.h"

static ssize_t raw_readlink(int dirfd, const char *path, char *buf, size_t size)
{
	return syscall(SYS_readlinkat, dirfd, path, buf, size);
}

static ssize_t link_again(ssize_t r, int dirfd, const char *path, char *buf, size_t size)
{
	const char *there;

	if (r < 0 && (there = PATH_SERVED(dirfd, path)))
		r = raw_readlink(AT_FDCWD, there, buf, size);
	return r;
}

POSIX_EXPORT ssize_t readlink(const char *restrict path, char *restrict buf, size_t size)
{
	__typeof__(LIBC(readlink)) next = LIBC(readlink);

	return link_again(next ? next(path, buf, size) : raw_readlink(AT_FDCWD, path, buf, size), AT_FDCWD,
		path, buf, size);
}

POSIX_EXPORT ssize_t readlinkat(int dirfd, const char *restrict path, char *restrict buf, size_t size)
{
	__typeof__(LIBC(readlinkat)) next = LIBC(readlinkat);

	return link_again(next ? next(dirfd, path, buf, size) : raw_readlink(dirfd, path, buf, size), dirfd,
		path, buf, size);
}

/* libc's ends the program when the buffer is smaller than the call says; so the second call is in bounds. */
POSIX_EXPORT ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room);
POSIX_EXPORT ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room)
{
	__typeof__(LIBC(__readlink_chk)) next = LIBC(__readlink_chk);

	if (!next && size > room)
		abort();
	return link_again(next ? next(path, buf, size, room) : raw_readlink(AT_FDCWD, path, buf, size),
		AT_FDCWD, path, buf, size);
}

POSIX_EXPORT ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t size, size_t room);
POSIX_EXPORT ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t size, size_t room)
{
	__typeof__(LIBC(__readlinkat_chk)) next = LIBC(__readlinkat_chk);

	if (!next && size > room)
		abort();
	return link_again(next ? next(dirfd, path, buf, size, room) : raw_readlink(dirfd, path, buf, size),
		dirfd, path, buf, size);
}

/* ---- realpath ---- */

/* A path in the tree becomes the one in /sys that it stands for, in place: that is shorter. */
static char *outside(char *path)
{
	const char *inside = path ? sysfs_inside(path) : NULL;

	if (!inside)
		return path;
	memmove(path + 5, inside, strlen(inside) + 1);
	memcpy(path, "/sys/", 5);
	return path;
}

/* `fn(path, ...)` has failed: again with the path that answers for it. */
#define REALPATH(r, path, there, call)                                                                       \
	do {                                                                                                 \
		const char *there;                                                                           \
                                                                                                             \
		if (!(r) && (there = PATH_SERVED(AT_FDCWD, path)))                                           \
			r = call;                                                                            \
		if (r && path_has_word(r))                                                                   \
			r = outside(r);                                                                      \
	} while (0)

POSIX_EXPORT char *realpath(const char *restrict path, char *restrict resolved)
{
	__typeof__(LIBC(realpath)) next = LIBC_LATE(realpath);
	char *r = next(path, resolved);

	REALPATH(r, path, there, next(there, resolved));
	return r;
}

POSIX_EXPORT char *__realpath_chk(const char *path, char *resolved, size_t room);
POSIX_EXPORT char *__realpath_chk(const char *path, char *resolved, size_t room)
{
	__typeof__(LIBC(__realpath_chk)) next = LIBC_LATE(__realpath_chk);
	char *r = next(path, resolved, room);

	REALPATH(r, path, there, next(there, resolved, room));
	return r;
}

POSIX_EXPORT char *canonicalize_file_name(const char *path)
{
	__typeof__(LIBC(canonicalize_file_name)) next = LIBC_LATE(canonicalize_file_name);
	char *r = next(path);

	REALPATH(r, path, there, next(there));
	return r;
}

/* ---- the working directory ---- */

POSIX_EXPORT int chdir(const char *path)
{
	__typeof__(LIBC(chdir)) next = LIBC(chdir);
	int r = next ? next(path) : (int)syscall(SYS_chdir, path);
	const char *there;

	/* The kernel's class lacks our device. */
	if (r < 0 ? !path_was_read(errno) : 0)
		return r;
	if (!path_has_word(path))
		return r;
	there = path_in_tree(AT_FDCWD, path, alloca(PATH_MAX), NULL);
	if (!there)
		return r;
	r = (int)syscall(SYS_chdir, there);
	if (!r)
		path_entered();
	return r;
}

#define CURRENT(r)                                                                                           \
	do {                                                                                                 \
		if (r && path_has_word(r))                                                                   \
			r = outside(r);                                                                      \
	} while (0)

POSIX_EXPORT char *getcwd(char *buf, size_t size)
{
	__typeof__(LIBC(getcwd)) next = LIBC_LATE(getcwd);
	char *r = next(buf, size);

	CURRENT(r);
	return r;
}

POSIX_EXPORT char *__getcwd_chk(char *buf, size_t size, size_t room);
POSIX_EXPORT char *__getcwd_chk(char *buf, size_t size, size_t room)
{
	__typeof__(LIBC(__getcwd_chk)) next = LIBC_LATE(__getcwd_chk);
	char *r = next(buf, size, room);

	CURRENT(r);
	return r;
}

POSIX_EXPORT char *get_current_dir_name(void)
{
	__typeof__(LIBC(get_current_dir_name)) next = LIBC_LATE(get_current_dir_name);
	char *r = next();

	CURRENT(r);
	return r;
}

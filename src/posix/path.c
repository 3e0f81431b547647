/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Build systems ask for 64-bit offsets and for checked forms, and then the headers make one function another
 * name of the other; here each is a function. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include "posix/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "posix/libc.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- What a path is about ---- */

bool path_was_read(int err)
{
	return err == ENOENT || err == ENOTDIR || err == EACCES || err == ENXIO || err == ENODEV;
}

static const char word[] = "infiniband";

/*
 * Where the word stands in the path; NULL: nowhere. No function of libc's: a sanitizer's runtime may stand in
 * front of those and call open() before it is ready.
 */
static const char *find_word(const char *path)
{
	for (; *path; path++) {
		size_t n = 0;

		if (*path != word[0])
			continue;
		while (word[n] && path[n] == word[n])
			n++;
		if (!word[n])
			return path;
	}
	return NULL;
}

/* Whether what is left of a path is this one name. */
static bool is_last(const char *rest, const char *name)
{
	while (*rest == '/')
		rest++;
	while (*name && *rest == *name)
		rest++, name++;
	return !*name && !*rest;
}

/* Whether the path before the word is this directory, written plainly. */
static bool is_below(const char *path, const char *found, const char *directory)
{
	while (path < found && *directory && *path == *directory)
		path++, directory++;
	return path == found && !*directory;
}

/* Not inlined: programs that never say the word need none of it. */
static __attribute__((noinline)) enum path_kind classify_word(const char *path, const char *found)
{
	const char *rest = found + sizeof(word) - 1;

	if (is_below(path, found, "/dev/") && *rest == '/' && is_last(rest, "rdma_cm"))
		return PATH_RDMA_CM;
	if (is_below(path, found, "/sys/class/") && (*rest == '/' || !*rest))
		return PATH_SYSFS;
	return PATH_PLAIN;
}

enum path_kind path_classify(int dirfd, const char *path)
{
	const char *found = find_word(path);

	return found ? classify_word(path, found) : PATH_PLAIN;
}

/* ---- open ---- */

/*
 * What becomes of an open whose outcome is r (a descriptor, or -1 with errno): the same for whoever is not
 * concerned.
 */
static inline int opened(int r, int dirfd, const char *path, int flags)
{
	if (r < 0 && !path_was_read(errno))
		return r;
	switch (path_classify(dirfd, path)) {
	case PATH_SYSFS:
	case PATH_RDMA_CM:
	case PATH_PLAIN:
		break;
	}
	return r;
}

static bool needs_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

#define TAKE_MODE(flags, mode)                                                                               \
	do {                                                                                                 \
		va_list ap;                                                                                  \
                                                                                                             \
		va_start(ap, flags);                                                                         \
		if (needs_mode(flags))                                                                       \
			mode = va_arg(ap, mode_t);                                                           \
		va_end(ap);                                                                                  \
	} while (0)

/* What libc adds for the names with 64; nothing where every file may be large. */
#ifndef __O_LARGEFILE
#define __O_LARGEFILE 0
#endif

static int raw_openat(int dirfd, const char *path, int flags, mode_t mode)
{
	return (int)syscall(SYS_openat, dirfd, path, flags, mode);
}

EXPORT int open(const char *path, int flags, ...)
{
	__typeof__(LIBC(open)) next = LIBC(open);
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return opened(next ? next(path, flags, mode) : raw_openat(AT_FDCWD, path, flags, mode), AT_FDCWD,
		path, flags);
}

EXPORT int open64(const char *path, int flags, ...)
{
	__typeof__(LIBC(open64)) next = LIBC(open64);
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return opened(
		next ? next(path, flags, mode) : raw_openat(AT_FDCWD, path, flags | __O_LARGEFILE, mode),
		AT_FDCWD, path, flags);
}

EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	__typeof__(LIBC(openat)) next = LIBC(openat);
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return opened(next ? next(dirfd, path, flags, mode) : raw_openat(dirfd, path, flags, mode), dirfd,
		path, flags);
}

EXPORT int openat64(int dirfd, const char *path, int flags, ...)
{
	__typeof__(LIBC(openat64)) next = LIBC(openat64);
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return opened(
		next ? next(dirfd, path, flags, mode) : raw_openat(dirfd, path, flags | __O_LARGEFILE, mode),
		dirfd, path, flags);
}

/*
 * The forms of programs built with _FORTIFY_SOURCE, which take no mode. libc's ends the program where one is
 * needed.
 */
static int checked_raw(int dirfd, const char *path, int flags)
{
	if (needs_mode(flags))
		abort();
	return raw_openat(dirfd, path, flags, 0);
}

EXPORT int __open_2(const char *path, int flags);
EXPORT int __open_2(const char *path, int flags)
{
	__typeof__(LIBC(__open_2)) next = LIBC(__open_2);

	return opened(next ? next(path, flags) : checked_raw(AT_FDCWD, path, flags), AT_FDCWD, path, flags);
}

EXPORT int __open64_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags)
{
	__typeof__(LIBC(__open64_2)) next = LIBC(__open64_2);

	return opened(next ? next(path, flags) : checked_raw(AT_FDCWD, path, flags | __O_LARGEFILE), AT_FDCWD,
		path, flags);
}

EXPORT int __openat_2(int dirfd, const char *path, int flags);
EXPORT int __openat_2(int dirfd, const char *path, int flags)
{
	__typeof__(LIBC(__openat_2)) next = LIBC(__openat_2);

	return opened(next ? next(dirfd, path, flags) : checked_raw(dirfd, path, flags), dirfd, path, flags);
}

EXPORT int __openat64_2(int dirfd, const char *path, int flags);
EXPORT int __openat64_2(int dirfd, const char *path, int flags)
{
	__typeof__(LIBC(__openat64_2)) next = LIBC(__openat64_2);

	return opened(next ? next(dirfd, path, flags) : checked_raw(dirfd, path, flags | __O_LARGEFILE),
		dirfd, path, flags);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Build systems ask for 64-bit offsets and for checked forms, and then the headers make one function another
 * name of the other; here each is a function. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include "posix/path.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "posix/descriptor.h"
#include "posix/libc.h"

bool path_was_read(int err)
{
	return err == ENOENT || err == ENOTDIR || err == EACCES || err == ENXIO || err == ENODEV;
}

/*
 * What becomes of an open whose outcome is r (a descriptor, or -1 with errno). The kernel's own descriptor
 * gives way only where it is for the directory of the class.
 */
static __attribute__((noinline)) int opened_word(int r, int dirfd, const char *path, int flags)
{
	char buf[PATH_MAX];
	const char *sub, *served;
	int ours;

	switch (path_classify(dirfd, path)) {
	case PATH_SYSFS:
		served = path_in_tree(dirfd, path, buf, &sub);
		if (!served)
			return r;
		ours = path_open(served, sub, flags);
		if (r < 0)
			return ours;
		if (ours < 0)
			return r;
		/* The number that the program was given stays. */
		syscall(SYS_dup3, ours, r, flags & O_CLOEXEC);
		syscall(SYS_close, ours);
		return r;
	case PATH_RDMA_CM:
		return descriptor_rdma_cm(r, flags);
	case PATH_PLAIN:
		break;
	}
	return r;
}

/*
 * What the kernel has opened gives way only in /sys/class and /dev, whose names are written out: most paths
 * are known not to be there by their first letters.
 */
static inline bool is_elsewhere(const char *path)
{
	return path[0] == '/' && path[1] != 's' && path[1] != 'd' && path[1] != '/' && path[1] != '.';
}

static inline int opened(int r, int dirfd, const char *path, int flags)
{
	if (r < 0 ? !path_was_read(errno) : is_elsewhere(path))
		return r;
	if (path_has_word(path))
		return opened_word(r, dirfd, path, flags);
	if (r >= 0 && path_has_entered() && *path != '/' && !(flags & O_PATH))
		path_refresh(r);
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

POSIX_EXPORT int open(const char *path, int flags, ...)
{
	__typeof__(LIBC(open)) next = LIBC(open);
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return opened(next ? next(path, flags, mode) : raw_openat(AT_FDCWD, path, flags, mode), AT_FDCWD,
		path, flags);
}

POSIX_EXPORT int open64(const char *path, int flags, ...)
{
	__typeof__(LIBC(open64)) next = LIBC(open64);
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return opened(
		next ? next(path, flags, mode) : raw_openat(AT_FDCWD, path, flags | __O_LARGEFILE, mode),
		AT_FDCWD, path, flags);
}

POSIX_EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	__typeof__(LIBC(openat)) next = LIBC(openat);
	mode_t mode = 0;

	TAKE_MODE(flags, mode);
	return opened(next ? next(dirfd, path, flags, mode) : raw_openat(dirfd, path, flags, mode), dirfd,
		path, flags);
}

POSIX_EXPORT int openat64(int dirfd, const char *path, int flags, ...)
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

POSIX_EXPORT int __open_2(const char *path, int flags);
POSIX_EXPORT int __open_2(const char *path, int flags)
{
	__typeof__(LIBC(__open_2)) next = LIBC(__open_2);

	return opened(next ? next(path, flags) : checked_raw(AT_FDCWD, path, flags), AT_FDCWD, path, flags);
}

POSIX_EXPORT int __open64_2(const char *path, int flags);
POSIX_EXPORT int __open64_2(const char *path, int flags)
{
	__typeof__(LIBC(__open64_2)) next = LIBC(__open64_2);

	return opened(next ? next(path, flags) : checked_raw(AT_FDCWD, path, flags | __O_LARGEFILE), AT_FDCWD,
		path, flags);
}

POSIX_EXPORT int __openat_2(int dirfd, const char *path, int flags);
POSIX_EXPORT int __openat_2(int dirfd, const char *path, int flags)
{
	__typeof__(LIBC(__openat_2)) next = LIBC(__openat_2);

	return opened(next ? next(dirfd, path, flags) : checked_raw(dirfd, path, flags), dirfd, path, flags);
}

POSIX_EXPORT int __openat64_2(int dirfd, const char *path, int flags);
POSIX_EXPORT int __openat64_2(int dirfd, const char *path, int flags)
{
	__typeof__(LIBC(__openat64_2)) next = LIBC(__openat64_2);

	return opened(next ? next(dirfd, path, flags) : checked_raw(dirfd, path, flags | __O_LARGEFILE),
		dirfd, path, flags);
}

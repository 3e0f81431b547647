/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Looking at a path: stat, access, extended attributes. None of these is a cancellation point. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "posix/libc.h"
#include "posix/path.h"

/* One system call fills both. */
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "off_t has 64 bits");

static int raw_stat(int dirfd, const char *path, void *st, int flags)
{
	return (int)syscall(SYS_newfstatat, dirfd, path, st, flags);
}

/* Again with the path that answers for it, if the call has failed for one of ours. */
#define AGAIN(r, dirfd, path, there, call)                                                                   \
	do {                                                                                                 \
		const char *there;                                                                           \
                                                                                                             \
		if (__builtin_expect((r) < 0, 0) && (there = PATH_SERVED(dirfd, path)))                      \
			r = call;                                                                            \
	} while (0)

#define STAT(name, type, flags)                                                                              \
	POSIX_EXPORT int name(const char *restrict path, struct type *restrict st)                           \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC(name);                                                    \
		int r = next ? next(path, st) : raw_stat(AT_FDCWD, path, st, flags);                         \
                                                                                                             \
		AGAIN(r, AT_FDCWD, path, there, raw_stat(AT_FDCWD, there, st, flags));                       \
		return r;                                                                                    \
	}

#define XSTAT(name, type, flags)                                                                             \
	POSIX_EXPORT int name(int version, const char *path, struct type *st);                               \
	POSIX_EXPORT int name(int version, const char *path, struct type *st)                                \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC(name);                                                    \
		int r = next ? next(version, path, st) : raw_stat(AT_FDCWD, path, st, flags);                \
                                                                                                             \
		AGAIN(r, AT_FDCWD, path, there, raw_stat(AT_FDCWD, there, st, flags));                       \
		return r;                                                                                    \
	}

#define STATAT(name, type)                                                                                   \
	POSIX_EXPORT int name(int dirfd, const char *restrict path, struct type *restrict st, int flags)     \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC(name);                                                    \
		int r = next ? next(dirfd, path, st, flags) : raw_stat(dirfd, path, st, flags);              \
                                                                                                             \
		AGAIN(r, dirfd, path, there, raw_stat(AT_FDCWD, there, st, flags));                          \
		return r;                                                                                    \
	}

#define XSTATAT(name, type)                                                                                  \
	POSIX_EXPORT int name(int version, int dirfd, const char *path, struct type *st, int flags);         \
	POSIX_EXPORT int name(int version, int dirfd, const char *path, struct type *st, int flags)          \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC(name);                                                    \
		int r = next ? next(version, dirfd, path, st, flags) : raw_stat(dirfd, path, st, flags);     \
                                                                                                             \
		AGAIN(r, dirfd, path, there, raw_stat(AT_FDCWD, there, st, flags));                          \
		return r;                                                                                    \
	}

STAT(stat, stat, 0)
STAT(stat64, stat64, 0)
STAT(lstat, stat, AT_SYMLINK_NOFOLLOW)
STAT(lstat64, stat64, AT_SYMLINK_NOFOLLOW)
STATAT(fstatat, stat)
STATAT(fstatat64, stat64)
/* What programs built against a libc before 2.33 call. */
XSTAT(__xstat, stat, 0)
XSTAT(__xstat64, stat64, 0)
XSTAT(__lxstat, stat, AT_SYMLINK_NOFOLLOW)
XSTAT(__lxstat64, stat64, AT_SYMLINK_NOFOLLOW)
XSTATAT(__fxstatat, stat)
XSTATAT(__fxstatat64, stat64)

static int raw_statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *st)
{
	return (int)syscall(SYS_statx, dirfd, path, flags, mask, st);
}

POSIX_EXPORT int statx(
	int dirfd, const char *restrict path, int flags, unsigned mask, struct statx *restrict st)
{
	__typeof__(LIBC(statx)) next = LIBC(statx);
	int r = next ? next(dirfd, path, flags, mask, st) : raw_statx(dirfd, path, flags, mask, st);

	/* libc's fills it in where the kernel has no such call. */
	AGAIN(r, dirfd, path, there,
		next ? next(AT_FDCWD, there, flags, mask, st) : raw_statx(AT_FDCWD, there, flags, mask, st));
	return r;
}

/* ---- access ---- */

/* Where the real and the effective user differ, libc asks for the flags itself. */
static int raw_access(int dirfd, const char *path, int mode, int flags)
{
	return flags ? (int)syscall(SYS_faccessat2, dirfd, path, mode, flags)
		     : (int)syscall(SYS_faccessat, dirfd, path, mode);
}

#define ACCESS(name, flags)                                                                                  \
	POSIX_EXPORT int name(const char *path, int mode)                                                    \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC(name);                                                    \
		int r = next ? next(path, mode) : raw_access(AT_FDCWD, path, mode, flags);                   \
                                                                                                             \
		AGAIN(r, AT_FDCWD, path, there,                                                              \
			next ? next(there, mode) : raw_access(AT_FDCWD, there, mode, flags));                \
		return r;                                                                                    \
	}

ACCESS(access, 0)
ACCESS(eaccess, AT_EACCESS)
ACCESS(euidaccess, AT_EACCESS)

POSIX_EXPORT int faccessat(int dirfd, const char *path, int mode, int flags)
{
	__typeof__(LIBC(faccessat)) next = LIBC(faccessat);
	int r = next ? next(dirfd, path, mode, flags) : raw_access(dirfd, path, mode, flags);

	AGAIN(r, dirfd, path, there,
		next ? next(AT_FDCWD, there, mode, flags) : raw_access(AT_FDCWD, there, mode, flags));
	return r;
}

/* ---- extended attributes: ls -l asks for them ---- */

#define GETXATTR(name)                                                                                       \
	POSIX_EXPORT ssize_t name(const char *path, const char *attribute, void *value, size_t size)         \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC(name);                                                    \
		ssize_t r = next ? next(path, attribute, value, size)                                        \
				 : syscall(SYS_##name, path, attribute, value, size);                        \
                                                                                                             \
		AGAIN(r, AT_FDCWD, path, there, syscall(SYS_##name, there, attribute, value, size));         \
		return r;                                                                                    \
	}

#define LISTXATTR(name)                                                                                      \
	POSIX_EXPORT ssize_t name(const char *path, char *list, size_t size)                                 \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC(name);                                                    \
		ssize_t r = next ? next(path, list, size) : syscall(SYS_##name, path, list, size);           \
                                                                                                             \
		AGAIN(r, AT_FDCWD, path, there, syscall(SYS_##name, there, list, size));                     \
		return r;                                                                                    \
	}

GETXATTR(getxattr)
GETXATTR(lgetxattr)
LISTXATTR(listxattr)
LISTXATTR(llistxattr)

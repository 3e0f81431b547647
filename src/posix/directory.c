/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Listing directories: opendir, scandir, glob. libc's own calls of them do not come by here. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "posix/libc.h"
#include "posix/path.h"

/* The directory that answers for one of ours; NULL: this is none. The call before it succeeded or not. */
#define DIRECTORY(succeeded, dirfd, path)                                                                    \
	(((succeeded) || path_was_read(errno)) && path_has_word(path)                                        \
			? path_in_tree(dirfd, path, alloca(PATH_MAX), NULL)                                  \
			: NULL)

POSIX_EXPORT DIR *opendir(const char *path)
{
	__typeof__(LIBC(opendir)) next = LIBC_LATE(opendir);
	DIR *r = next(path), *ours;
	const char *there = DIRECTORY(r, AT_FDCWD, path);

	if (!there)
		return r;
	ours = next(there);
	if (!ours)
		return r;
	path_entered();
	if (r)
		closedir(r);
	return ours;
}

/* The kernel's class, which lacks our device, was listed before the path was looked at. */
static void forget(int n, void **list)
{
	for (int i = 0; i < n; i++)
		free(list[i]);
	free(list);
}

#define SCANDIR(name, entry, filter_type, order_type)                                                        \
	POSIX_EXPORT int name(const char *restrict path, struct entry ***restrict list, filter_type *filter, \
		order_type *order)                                                                           \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC_LATE(name);                                               \
		int r = next(path, list, filter, order);                                                     \
		const char *there = DIRECTORY(r >= 0, AT_FDCWD, path);                                       \
                                                                                                             \
		if (!there)                                                                                  \
			return r;                                                                            \
		if (r >= 0)                                                                                  \
			forget(r, (void **)*list);                                                           \
		return next(there, list, filter, order);                                                     \
	}

#define SCANDIRAT(name, entry, filter_type, order_type)                                                      \
	POSIX_EXPORT int name(int dirfd, const char *restrict path, struct entry ***restrict list,           \
		filter_type *filter, order_type *order)                                                      \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC_LATE(name);                                               \
		int r = next(dirfd, path, list, filter, order);                                              \
		const char *there = DIRECTORY(r >= 0, dirfd, path);                                          \
                                                                                                             \
		if (!there)                                                                                  \
			return r;                                                                            \
		if (r >= 0)                                                                                  \
			forget(r, (void **)*list);                                                           \
		return next(AT_FDCWD, there, list, filter, order);                                           \
	}

SCANDIR(scandir, dirent, dirent_filter, dirent_order)
SCANDIR(scandir64, dirent64, dirent64_filter, dirent64_order)
SCANDIRAT(scandirat, dirent, dirent_filter, dirent_order)
SCANDIRAT(scandirat64, dirent64, dirent64_filter, dirent64_order)

/* ---- glob ---- */

static void close_listed(void *dir)
{
	closedir(dir);
}

/*
 * glob() is libc's with our functions below it, which it takes by GLOB_ALTDIRFUNC; unless the program has its
 * own. Patterns are read by libc first, which does not forgive bad pointers either.
 */
#define GLOB(name, type, entry, read, stat_name, lstat_name, stat_type)                                      \
	POSIX_EXPORT int name(const char *restrict pattern, int flags, int (*failed)(const char *, int),     \
		type *restrict found)                                                                        \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC_LATE(name);                                               \
                                                                                                             \
		if (flags & GLOB_ALTDIRFUNC || !path_has_word(pattern))                                      \
			return next(pattern, flags, failed, found);                                          \
		found->gl_opendir = (void *(*)(const char *))opendir;                                        \
		found->gl_readdir = (struct entry * (*)(void *)) read;                                       \
		found->gl_closedir = close_listed;                                                           \
		found->gl_stat = (int (*)(const char *, struct stat_type *))stat_name;                       \
		found->gl_lstat = (int (*)(const char *, struct stat_type *))lstat_name;                     \
		return next(pattern, flags | GLOB_ALTDIRFUNC, failed, found);                                \
	}

GLOB(glob, glob_t, dirent, readdir, stat, lstat, stat)
GLOB(glob64, glob64_t, dirent64, readdir64, stat64, lstat64, stat64)

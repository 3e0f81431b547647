/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The functions that stand behind those of this room (base/next.h): libc's, or another library's that also
 * stands in front of libc. A constructor looks them up. Until it has run, which only the constructors of
 * other libraries can see, and where libc has no such name, an entry is NULL: then the caller makes the
 * system call itself, or, for what is no system call, asks libc_late().
 */
#ifndef UNPIN_POSIX_LIBC_H
#define UNPIN_POSIX_LIBC_H

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

typedef int dirent_filter(const struct dirent *);
typedef int dirent_order(const struct dirent **, const struct dirent **);
typedef int dirent64_filter(const struct dirent64 *);
typedef int dirent64_order(const struct dirent64 **, const struct dirent64 **);

/* X(result, name, parameters): each has the type that libc's has. */
#define LIBC_FUNCTIONS(X)                                                                                    \
	X(int, open, (const char *path, int flags, ...))                                                     \
	X(int, open64, (const char *path, int flags, ...))                                                   \
	X(int, openat, (int dirfd, const char *path, int flags, ...))                                        \
	X(int, openat64, (int dirfd, const char *path, int flags, ...))                                      \
	X(int, __open_2, (const char *path, int flags))                                                      \
	X(int, __open64_2, (const char *path, int flags))                                                    \
	X(int, __openat_2, (int dirfd, const char *path, int flags))                                         \
	X(int, __openat64_2, (int dirfd, const char *path, int flags))                                       \
	X(ssize_t, write, (int fd, const void *buf, size_t n))                                               \
	X(int, dup, (int fd))                                                                                \
	X(int, dup2, (int fd, int copy))                                                                     \
	X(int, dup3, (int fd, int copy, int flags))                                                          \
	X(int, fcntl, (int fd, int cmd, ...))                                                                \
	X(int, fcntl64, (int fd, int cmd, ...))                                                              \
	X(int, fstat, (int fd, struct stat *st))                                                             \
	X(int, fstat64, (int fd, struct stat64 *st))                                                         \
	X(int, __fxstat, (int version, int fd, struct stat *st))                                             \
	X(int, __fxstat64, (int version, int fd, struct stat64 *st))                                         \
	X(int, stat, (const char *path, struct stat *st))                                                    \
	X(int, stat64, (const char *path, struct stat64 *st))                                                \
	X(int, lstat, (const char *path, struct stat *st))                                                   \
	X(int, lstat64, (const char *path, struct stat64 *st))                                               \
	X(int, fstatat, (int dirfd, const char *path, struct stat *st, int flags))                           \
	X(int, fstatat64, (int dirfd, const char *path, struct stat64 *st, int flags))                       \
	X(int, __xstat, (int version, const char *path, struct stat *st))                                    \
	X(int, __xstat64, (int version, const char *path, struct stat64 *st))                                \
	X(int, __lxstat, (int version, const char *path, struct stat *st))                                   \
	X(int, __lxstat64, (int version, const char *path, struct stat64 *st))                               \
	X(int, __fxstatat, (int version, int dirfd, const char *path, struct stat *st, int flags))           \
	X(int, __fxstatat64, (int version, int dirfd, const char *path, struct stat64 *st, int flags))       \
	X(int, statx, (int dirfd, const char *path, int flags, unsigned mask, struct statx *st))             \
	X(int, access, (const char *path, int mode))                                                         \
	X(int, eaccess, (const char *path, int mode))                                                        \
	X(int, euidaccess, (const char *path, int mode))                                                     \
	X(int, faccessat, (int dirfd, const char *path, int mode, int flags))                                \
	X(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t size))                 \
	X(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t size))                \
	X(ssize_t, listxattr, (const char *path, char *list, size_t size))                                   \
	X(ssize_t, llistxattr, (const char *path, char *list, size_t size))                                  \
	X(ssize_t, readlink, (const char *path, char *buf, size_t size))                                     \
	X(ssize_t, readlinkat, (int dirfd, const char *path, char *buf, size_t size))                        \
	X(ssize_t, __readlink_chk, (const char *path, char *buf, size_t size, size_t room))                  \
	X(ssize_t, __readlinkat_chk, (int dirfd, const char *path, char *buf, size_t size, size_t room))     \
	X(char *, realpath, (const char *path, char *resolved))                                              \
	X(char *, __realpath_chk, (const char *path, char *resolved, size_t room))                           \
	X(char *, canonicalize_file_name, (const char *path))                                                \
	X(int, chdir, (const char *path))                                                                    \
	X(char *, getcwd, (char *buf, size_t size))                                                          \
	X(char *, __getcwd_chk, (char *buf, size_t size, size_t room))                                       \
	X(char *, get_current_dir_name, (void))                                                              \
	X(DIR *, opendir, (const char *path))                                                                \
	X(int, scandir,                                                                                      \
		(const char *path, struct dirent ***list, dirent_filter *filter, dirent_order *order))       \
	X(int, scandir64,                                                                                    \
		(const char *path, struct dirent64 ***list, dirent64_filter *filter, dirent64_order *order)) \
	X(int, scandirat,                                                                                    \
		(int dirfd, const char *path, struct dirent ***list, dirent_filter *filter,                  \
			dirent_order *order))                                                                \
	X(int, scandirat64,                                                                                  \
		(int dirfd, const char *path, struct dirent64 ***list, dirent64_filter *filter,              \
			dirent64_order *order))                                                              \
	X(int, glob, (const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found))      \
	X(int, glob64, (const char *pattern, int flags, int (*failed)(const char *, int), glob64_t *found))  \
	X(FILE *, fopen, (const char *path, const char *mode))                                               \
	X(FILE *, fopen64, (const char *path, const char *mode))                                             \
	X(FILE *, freopen, (const char *path, const char *mode, FILE *stream))                               \
	X(FILE *, freopen64, (const char *path, const char *mode, FILE *stream))

struct libc_functions {
#define X(result, name, parameters) result(*name) parameters;
	LIBC_FUNCTIONS(X)
#undef X
};

extern struct libc_functions libc_functions;

/* The function behind, or NULL. Async-signal-safe. */
#define LIBC(name) __atomic_load_n(&libc_functions.name, __ATOMIC_RELAXED)

/* The same for a function that may allocate: looked up at once where the constructor has not run yet. */
#define LIBC_LATE(name) (LIBC(name) ? LIBC(name) : (__typeof__(LIBC(name)))libc_late(#name))
void *libc_late(const char *name);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The functions that stand behind those of this room (base/next.h): libc's, or another library's that also
 * stands in front of libc. A constructor looks them up. Until it has run, which only the constructors of
 * other libraries can see, and where libc has no such name, an entry is NULL, and the caller makes the system
 * call itself.
 */
#ifndef UNPIN_POSIX_LIBC_H
#define UNPIN_POSIX_LIBC_H

#include <sys/types.h>

/* X(result, name, parameters): each has the type that libc's has. */
#define LIBC_FUNCTIONS(X)                                                                                    \
	X(int, open, (const char *path, int flags, ...))                                                     \
	X(int, open64, (const char *path, int flags, ...))                                                   \
	X(int, openat, (int dirfd, const char *path, int flags, ...))                                        \
	X(int, openat64, (int dirfd, const char *path, int flags, ...))                                      \
	X(int, __open_2, (const char *path, int flags))                                                      \
	X(int, __open64_2, (const char *path, int flags))                                                    \
	X(int, __openat_2, (int dirfd, const char *path, int flags))                                         \
	X(int, __openat64_2, (int dirfd, const char *path, int flags))

struct libc_functions {
#define X(result, name, parameters) result(*name) parameters;
	LIBC_FUNCTIONS(X)
#undef X
};

extern struct libc_functions libc_functions;

/* The function behind, or NULL. Async-signal-safe. */
#define LIBC(name) __atomic_load_n(&libc_functions.name, __ATOMIC_RELAXED)

#endif

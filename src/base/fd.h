/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Descriptors of a library inside somebody's program: close-on-exec, and out of the low numbers that
 * applications use by value (select, dup2 onto 0..2, "close everything below N").
 */
#ifndef UNPIN_BASE_FD_H
#define UNPIN_BASE_FD_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FD_HIGH 512

/* Not libc's functions, which are cancellation points (cancel.h). The thread sanitizer, though, has to see
 * when a number comes into use and is free again. */
static inline int fd_open(const char *path, int flags)
{
#ifdef __SANITIZE_THREAD__
	return open(path, flags | O_CLOEXEC);
#else
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC);
#endif
}

static inline void fd_close(int fd)
{
#ifdef __SANITIZE_THREAD__
	close(fd);
#else
	syscall(SYS_close, fd);
#endif
}

/* Whether a file may have this size here. Beyond the limit ftruncate(2) does not only fail, it sends SIGXFSZ
 * to a program that never asked for a file. */
static inline bool fd_size_allowed(size_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= bytes;
}

/* Moves a descriptor to FD_HIGH or above, close-on-exec; when the process's limit is lower, the low one is
 * kept. Passes a negative fd through with errno kept. */
static inline int fd_move_high(int fd)
{
	int high;

	if (fd < 0 || fd >= FD_HIGH)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, FD_HIGH);
	if (high < 0)
		return fd;
	fd_close(fd);
	return high;
}

#endif

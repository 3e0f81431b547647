/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Descriptors of a library inside somebody's program: close-on-exec, and out of the low numbers that
 * applications use by value (select, dup2 onto 0..2, "close everything below N").
 *
 * A program may close descriptors that it does not know, and open files of its own under the same numbers. So
 * the device notes what each of its descriptors is, and asks before it writes to one or closes one. Hidden
 * descriptors are those of which the application is never told: close() and its relatives in front of libc
 * (src/posix) leave them open. What gets past these functions, by system call, is noticed here: by the file's
 * identity (device and inode), which eventfds, epolls and timers share among each other; one of these that
 * took the place of another is taken for ours.
 *
 * Any thread, signal handlers, a forked child: no locks, no allocation, errno is kept. Numbers above FD_NOTED
 * are not noted and count as ours.
 */
#ifndef UNPIN_BASE_FD_H
#define UNPIN_BASE_FD_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Hidden descriptors lie here or above: beyond what select() can hold. */
#define FD_HIGH	 1024
#define FD_NOTED (1 << 20)

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

/* Notes that fd is ours. */
void fd_note(int fd, bool hidden);
/* Whether fd is what was noted, or nothing was. One load when nothing was, else one system call. */
bool fd_is_ours(int fd);
/* Whether fd is a hidden one of ours. One load where it is not noted. */
bool fd_is_hidden(int fd);
/* The lowest hidden descriptor of ours that is not below from; -1: none. */
int fd_next_hidden(int from);
/* Of a descriptor that somebody else closes for us: before that. */
void fd_forget(int fd);

/* Closes fd, unless something else has taken the place of what was noted; notes nothing of it any more. */
void fd_close(int fd);

/* Whether a file may have this size here. Beyond the limit ftruncate(2) does not only fail, it sends SIGXFSZ
 * to a program that never asked for a file. */
static inline bool fd_size_allowed(size_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur >= bytes;
}

/*
 * Moves a descriptor to FD_HIGH or above, close-on-exec, and notes it as hidden; when the process's limit is
 * lower, to the last eighth below the limit, and if that is full it keeps its number. Passes a negative fd
 * through with errno kept.
 */
int fd_move_high(int fd);

#endif

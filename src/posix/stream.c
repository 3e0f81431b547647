/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Streams: fopen, freopen. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "posix/libc.h"
#include "posix/path.h"

/* The flags that libc's fopen() opens with; libc refuses other modes before it opens anything. */
static int mode_flags(const char *mode)
{
	int flags = *mode == 'r' ? O_RDONLY : O_WRONLY | O_CREAT | (*mode == 'w' ? O_TRUNC : O_APPEND);

	for (mode++; *mode && *mode != ','; mode++) {
		if (*mode == '+')
			flags = (flags & ~O_ACCMODE) | O_RDWR;
		else if (*mode == 'x')
			flags |= O_EXCL;
		else if (*mode == 'e')
			flags |= O_CLOEXEC;
	}
	return flags;
}

/* noinline: only paths of ours need the room. */
static __attribute__((noinline)) FILE *open_stream(FILE *r, const char *path, const char *mode)
{
	char buf[PATH_MAX];
	const char *sub, *there = path_in_tree(AT_FDCWD, path, buf, &sub);
	FILE *ours;
	int fd;

	if (!there)
		return r;
	fd = path_open(there, sub, mode_flags(mode));
	ours = fd < 0 ? NULL : fdopen(fd, mode);
	if (fd >= 0 && !ours)
		syscall(SYS_close, fd);
	if (!r || !ours)
		return r ? r : ours;
	fclose(r);
	return ours;
}

static FILE *opened(FILE *r, const char *path, const char *mode)
{
	if (!r && !path_was_read(errno))
		return r;
	if (path_has_word(path))
		return open_stream(r, path, mode);
	if (r && path_has_entered() && *path != '/')
		path_refresh(fileno(r));
	return r;
}

#define FOPEN(name)                                                                                          \
	POSIX_EXPORT FILE *name(const char *restrict path, const char *restrict mode)                        \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC_LATE(name);                                               \
                                                                                                             \
		return opened(next(path, mode), path, mode);                                                 \
	}

FOPEN(fopen)
FOPEN(fopen64)

/*
 * A freopen() that fails has closed the stream, so the path is looked at first, once the kernel has read it.
 * A path of ours is opened by its name in the tree.
 */
#define FREOPEN(name)                                                                                        \
	POSIX_EXPORT FILE *name(const char *restrict path, const char *restrict mode, FILE *restrict stream) \
	{                                                                                                    \
		__typeof__(LIBC(name)) next = LIBC_LATE(name);                                               \
		int saved = errno;                                                                           \
		const char *there = NULL;                                                                    \
		FILE *r;                                                                                     \
                                                                                                             \
		if (path && syscall(SYS_faccessat, AT_FDCWD, path, F_OK))                                    \
			there = PATH_SERVED(AT_FDCWD, path);                                                 \
		errno = saved;                                                                               \
		r = next(there ? there : path, mode, stream);                                                \
		if (r && there)                                                                              \
			path_refresh(fileno(r));                                                             \
		return r;                                                                                    \
	}

FREOPEN(freopen)
FREOPEN(freopen64)

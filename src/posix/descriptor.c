/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* With 64-bit offsets asked for, or checked forms, the headers make one function another name of the other.
 */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include "posix/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "posix/libc.h"
#include "rdmacm/channel.h"
#include "rdmacm/ucma.h"

#define EXPORT __attribute__((visibility("default")))

#define NODE "/dev/infiniband/rdma_cm"

/* The major number of miscellaneous devices; the minor is given out by the kernel at load time. */
#define MISC_MAJOR 10
#define MISC_MINOR 255

/* ---- Opening ---- */

/* Directories that hold an entry have more to say than "." and "..". */
static bool real_devices(void)
{
	char buf[1024];
	int fd = fd_open("/sys/class/infiniband", O_RDONLY | O_DIRECTORY);
	long n = 0, at = 0;
	bool found = false;

	if (fd < 0)
		return false;
	while (!found && (n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0)
		for (at = 0; at < n && !found;) {
			const char *entry = buf + at;
			unsigned short len;

			/* struct linux_dirent64: the length at 16, the name at 19 */
			memcpy(&len, entry + 16, sizeof(len));
			found = entry[19] != '.';
			at += len;
		}
	fd_close(fd);
	return found;
}

int descriptor_rdma_cm(int r, int flags)
{
	int fd;

	if (r >= 0 && real_devices()) {
		log_info("rdma_cm: the kernel's own serves this process, for its devices; "
			 "addresses do not resolve to unpin's");
		return r;
	}
	if (r >= 0)
		fd_close(r);
	fd = event_channel_open(flags);
	if (fd >= 0)
		return fd;
	errno = -fd;
	return -1;
}

/* ---- Which descriptors ---- */

/* Whether it is a channel, of this process or inherited. */
static inline bool is_channel(int fd, bool *inherited)
{
	return __builtin_expect(event_channel_any(), 0) && event_channel_is(fd, inherited);
}

/* ---- write ---- */

static void put(void *channel)
{
	event_channel_put(channel);
}

static __attribute__((noinline)) ssize_t write_channel(int fd, const void *buf, size_t n, bool inherited)
{
	struct event_channel *c = inherited ? NULL : event_channel_get(fd);
	ssize_t r = -EIO;

	if (c) {
		pthread_cleanup_push(put, c);
		r = ucma_write(c, buf, n);
		pthread_cleanup_pop(1);
	} else if (!inherited) {
		/* It was closed without our seeing it, and the number is somebody else's. */
		return syscall(SYS_write, fd, buf, n);
	}
	if (r >= 0)
		return r;
	errno = (int)-r;
	return -1;
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	__typeof__(LIBC(write)) next;
	bool inherited;

	if (is_channel(fd, &inherited))
		return write_channel(fd, buf, n, inherited);
	next = LIBC(write);
	return next ? next(fd, buf, n) : syscall(SYS_write, fd, buf, n);
}

/* ---- close and copies ---- */

void descriptor_closing(unsigned first, unsigned last)
{
	if (__builtin_expect(event_channel_any(), 0))
		event_channel_closed_range(first, last);
}

/* A copy may also have replaced a channel by what is none. */
static inline int copied(int fd, int copy)
{
	bool ignored;

	if (copy >= 0 && (is_channel(fd, &ignored) || is_channel(copy, &ignored))) {
		int saved = errno;

		event_channel_copied(fd, copy);
		errno = saved;
	}
	return copy;
}

EXPORT int dup(int fd)
{
	__typeof__(LIBC(dup)) next = LIBC(dup);

	return copied(fd, next ? next(fd) : (int)syscall(SYS_dup, fd));
}

EXPORT int dup2(int fd, int copy)
{
	__typeof__(LIBC(dup2)) next = LIBC(dup2);

	if (next)
		return copied(fd, next(fd, copy));
	if (fd == copy)
		return syscall(SYS_fcntl, fd, F_GETFD) < 0 ? -1 : copy;
	return copied(fd, (int)syscall(SYS_dup3, fd, copy, 0));
}

EXPORT int dup3(int fd, int copy, int flags)
{
	__typeof__(LIBC(dup3)) next = LIBC(dup3);

	return copied(fd, next ? next(fd, copy, flags) : (int)syscall(SYS_dup3, fd, copy, flags));
}

static int fcntl_result(int fd, int cmd, int r)
{
	return cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC ? copied(fd, r) : r;
}

/* The third argument, if there is one, is an int or a pointer: passed on as libc takes it. */
#define TAKE_ARGUMENT(last, arg)                                                                             \
	do {                                                                                                 \
		va_list ap;                                                                                  \
                                                                                                             \
		va_start(ap, last);                                                                          \
		arg = va_arg(ap, void *);                                                                    \
		va_end(ap);                                                                                  \
	} while (0)

EXPORT int fcntl(int fd, int cmd, ...)
{
	__typeof__(LIBC(fcntl)) next = LIBC(fcntl);
	void *arg;

	TAKE_ARGUMENT(cmd, arg);
	return fcntl_result(fd, cmd, next ? next(fd, cmd, arg) : (int)syscall(SYS_fcntl, fd, cmd, arg));
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	__typeof__(LIBC(fcntl64)) next = LIBC(fcntl64);
	void *arg;

	TAKE_ARGUMENT(cmd, arg);
	return fcntl_result(fd, cmd, next ? next(fd, cmd, arg) : (int)syscall(SYS_fcntl, fd, cmd, arg));
}

/* ---- fstat ---- */

/* A channel is shown as the character device that the program opened: with the number of the kernel's own
 * node where there is one, since librdmacm compares it. */
static __attribute__((noinline)) void show_device(mode_t *mode, dev_t *rdev)
{
	struct statx node;
	int saved = errno;

	*mode = S_IFCHR | 0666;
	*rdev = makedev(MISC_MAJOR, MISC_MINOR);
	if (!syscall(SYS_statx, AT_FDCWD, NODE, 0, STATX_BASIC_STATS, &node) && S_ISCHR(node.stx_mode))
		*rdev = makedev(node.stx_rdev_major, node.stx_rdev_minor);
	errno = saved;
}

#define SHOWN(fd, r, st)                                                                                     \
	do {                                                                                                 \
		bool ignored;                                                                                \
                                                                                                             \
		if (!(r) && is_channel(fd, &ignored))                                                        \
			show_device(&(st)->st_mode, &(st)->st_rdev);                                         \
	} while (0)

/* Until libc's can be called nobody has a channel. */
static int raw_fstat(int fd, void *st)
{
	return (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

EXPORT int fstat(int fd, struct stat *st)
{
	__typeof__(LIBC(fstat)) next = LIBC(fstat);
	int r = next ? next(fd, st) : raw_fstat(fd, st);

	SHOWN(fd, r, st);
	return r;
}

EXPORT int fstat64(int fd, struct stat64 *st)
{
	__typeof__(LIBC(fstat64)) next = LIBC(fstat64);
	int r = next ? next(fd, st) : raw_fstat(fd, st);

	SHOWN(fd, r, st);
	return r;
}

/* What programs linked against a C library before 2.33 call. */
EXPORT int __fxstat(int version, int fd, struct stat *st);
EXPORT int __fxstat(int version, int fd, struct stat *st)
{
	__typeof__(LIBC(__fxstat)) next = LIBC(__fxstat);
	int r = next ? next(version, fd, st) : raw_fstat(fd, st);

	SHOWN(fd, r, st);
	return r;
}

EXPORT int __fxstat64(int version, int fd, struct stat64 *st);
EXPORT int __fxstat64(int version, int fd, struct stat64 *st)
{
	__typeof__(LIBC(__fxstat64)) next = LIBC(__fxstat64);
	int r = next ? next(version, fd, st) : raw_fstat(fd, st);

	SHOWN(fd, r, st);
	return r;
}

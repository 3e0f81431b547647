/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close, close_range and closefrom in front of libc's: a program that closes descriptors which it does not
 * know (a daemon that begins, a library that cleans up before it starts a program) leaves those that the
 * device has to itself open (base/fd.h). They are close-on-exec, so a program that is started does not
 * inherit them.
 *
 * close() of a hidden descriptor fails with EBADF, as for a number that is not open. Async-signal-safe; a
 * cancellation point where libc's is one. In a child of fork or vfork as in its parent.
 */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/next.h"
#include "posix/descriptor.h"

#define EXPORT __attribute__((visibility("default")))

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CLOSE_RANGE_CLOEXEC_FLAG 4u

typedef int close_fn(int fd);
typedef int close_range_fn(unsigned first, unsigned last, int flags);
typedef void closefrom_fn(int lowest);

static _Atomic(close_fn *) next_close;
static _Atomic(close_range_fn *) next_close_range;
static _Atomic(closefrom_fn *) next_closefrom;

__attribute__((constructor(101))) static void look_up(void)
{
	atomic_store(&next_close, (close_fn *)next_function("close"));
	atomic_store(&next_close_range, (close_range_fn *)next_function("close_range"));
	atomic_store(&next_closefrom, (closefrom_fn *)next_function("closefrom"));
}

EXPORT int close(int fd)
{
	close_fn *next = atomic_load_explicit(&next_close, memory_order_acquire);

	if (fd_is_hidden(fd)) {
		errno = EBADF;
		return -1;
	}
	/* Before its number can be somebody else's. */
	descriptor_closing((unsigned)fd, (unsigned)fd);
	return next ? next(fd) : (int)syscall(SYS_close, fd);
}

static int close_part(unsigned first, unsigned last, int flags)
{
	close_range_fn *next = atomic_load_explicit(&next_close_range, memory_order_acquire);

	if (!((unsigned)flags & CLOSE_RANGE_CLOEXEC_FLAG))
		descriptor_closing(first, last);
	return next ? next(first, last, flags) : (int)syscall(SYS_close_range, first, last, flags);
}

int close_range(unsigned first, unsigned last, int flags);
EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	int hidden = first <= INT_MAX ? fd_next_hidden((int)first) : -1, r = 0;

	/* Ours are close-on-exec; and what the kernel refuses is refused whole. */
	if (hidden < 0 || (unsigned)hidden > last || first > last ||
		(unsigned)flags & CLOSE_RANGE_CLOEXEC_FLAG)
		return close_part(first, last, flags);
	while (!r && hidden >= 0 && (unsigned)hidden <= last) {
		if ((unsigned)hidden > first)
			r = close_part(first, (unsigned)hidden - 1, flags);
		first = (unsigned)hidden + 1;
		hidden = fd_next_hidden((int)first);
	}
	return r || first > last ? r : close_part(first, last, flags);
}

/* Where the kernel has no close_range: one by one, up to the limit. */
static void close_each(int lowest)
{
	struct rlimit limit;
	int end = 1 << 20;

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < (rlim_t)end)
		end = (int)limit.rlim_cur;
	for (int fd = lowest; fd < end; fd++)
		if (!fd_is_hidden(fd)) {
			descriptor_closing((unsigned)fd, (unsigned)fd);
			syscall(SYS_close, fd);
		}
}

void closefrom(int lowest);
EXPORT void closefrom(int lowest)
{
	closefrom_fn *next = atomic_load_explicit(&next_closefrom, memory_order_acquire);
	int saved = errno;

	lowest = lowest < 0 ? 0 : lowest;
	if (next && fd_next_hidden(lowest) < 0) {
		descriptor_closing((unsigned)lowest, UINT_MAX);
		next(lowest);
	} else if (close_range((unsigned)lowest, UINT_MAX, 0))
		close_each(lowest);
	errno = saved;
}

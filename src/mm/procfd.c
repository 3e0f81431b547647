/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/procfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "mm/generation.h"

static const char *const path_of[PROCFDS] = { "/proc/self/maps", "/proc/self/pagemap" };

/* Low half: descriptor + 1, 0 for none; high half: the generation it was opened in. Changed by compare and
 * swap. */
static _Atomic uint64_t open_fd[PROCFDS];

int procfd_open(const char *path)
{
	int saved = errno;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0)
		fd = -errno;
	errno = saved;
	return fd;
}

long procfd_pread(int fd, void *buf, unsigned long n, long off)
{
	int saved = errno;
	long r;

	do {
		r = syscall(SYS_pread64, fd, buf, n, off);
	} while (r < 0 && errno == EINTR);
	if (r < 0)
		r = -errno;
	errno = saved;
	return r;
}

void procfd_close(int fd)
{
	int saved = errno;

	fd_close(fd);
	errno = saved;
}

int procfd_raise(int fd)
{
	return fd_move_high(fd);
}

static uint64_t pack(int fd)
{
	return (uint64_t)(uint32_t)generation_now() << 32 | (uint32_t)(fd + 1);
}

int procfd_get(enum procfd which)
{
	uint64_t seen = atomic_load_explicit(&open_fd[which], memory_order_acquire);
	int fd = (int)(uint32_t)seen - 1;
	int err;

	if (fd >= 0 && seen == pack(fd))
		return fd;
	err = generation_begin();
	if (err)
		return err;
	fd = procfd_open(path_of[which]);
	if (fd < 0)
		return fd;
	fd = procfd_raise(fd);
	if (atomic_compare_exchange_strong(&open_fd[which], &seen, pack(fd)))
		return fd;
	/* Another thread was first. */
	procfd_close(fd);
	fd = (int)(uint32_t)seen - 1;
	return fd >= 0 ? fd : -EAGAIN;
}

void procfd_lost(enum procfd which, int fd)
{
	uint64_t seen = pack(fd);

	atomic_compare_exchange_strong(&open_fd[which], &seen, 0);
}

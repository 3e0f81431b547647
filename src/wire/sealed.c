/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef TMPFS_MAGIC
#define TMPFS_MAGIC 0x01021994
#endif

#define NEEDED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int make_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	/* Before Linux 6.3 there was no such flag. */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? log_refused("memfd_create", -errno) : fd;
}

static int resize(int fd, size_t bytes)
{
	if (!fd_size_allowed(bytes))
		return -EFBIG;
	return ftruncate(fd, (off_t)bytes) ? log_refused("ftruncate", -errno) : 0;
}

static int map_shared(int fd, size_t bytes, int prot, void **map)
{
	void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, bytes, MADV_DONTFORK)) {
		int err = log_refused("madvise(MADV_DONTFORK)", -errno);

		sealed_unmap(p, bytes);
		return err;
	}
	*map = p;
	return 0;
}

int sealed_make(const char *name, size_t bytes, bool readonly, void **map)
{
	int seals = NEEDED_SEALS | F_SEAL_SEAL | (readonly ? F_SEAL_FUTURE_WRITE : 0);
	int err, fd = make_memfd(name);

	if (fd < 0)
		return fd;
	err = resize(fd, bytes);
	if (!err)
		err = map_shared(fd, bytes, PROT_READ | PROT_WRITE, map);
	if (err)
		goto fail;
	if (fcntl(fd, F_ADD_SEALS, seals)) {
		err = log_refused("fcntl(F_ADD_SEALS)", -errno);
		sealed_unmap(*map, bytes);
		goto fail;
	}
	return fd;
fail:
	fd_close(fd);
	return err;
}

int sealed_map(int fd, size_t bytes, bool writable, void **map)
{
	struct statfs fs;
	struct stat st;
	int seals;

	/* Seals first: only shared memory has them, and any other file could make the calls below wait. */
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & NEEDED_SEALS) != NEEDED_SEALS)
		return -EPROTO;
	/* A hole in hugetlbfs is SIGBUS when no huge page is left; in tmpfs it reads as zeroes. */
	if (fstatfs(fd, &fs)) {
		log_refused("fstatfs", -errno);
		return -EPROTO;
	}
	if (fs.f_type != TMPFS_MAGIC)
		return -EPROTO;
	if (fstat(fd, &st) || st.st_size != (off_t)bytes)
		return -EPROTO;
	if (writable && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		return -EPROTO;
	return map_shared(fd, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, map);
}

int sealed_populate(void *map, size_t offset, size_t bytes, int fd)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)map + offset) & ~(page - 1);
	uintptr_t to = ((uintptr_t)map + offset + bytes + page - 1) & ~(page - 1);

	if (!madvise((void *)from, to - from, MADV_POPULATE_WRITE))
		return 0;
	/* Absent before Linux 5.14, or refused by a filter. */
	if ((errno == EINVAL || errno == EPERM || errno == EACCES || errno == ENOSYS) &&
		!syscall(SYS_fallocate, fd, 0, (off_t)offset, (off_t)bytes))
		return 1;
	return -ENOMEM;
}

void sealed_unmap(void *map, size_t bytes)
{
	if (!map)
		return;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	munmap(map, bytes); /* the sanitizer has to know */
#else
	/* Not libc's: the device interposes that, and this may run below its locks. */
	syscall(SYS_munmap, map, bytes);
#endif
}

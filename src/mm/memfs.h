/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Which file systems keep their files in memory: tmpfs (with memfd, shared anonymous memory and System V
 * segments, which live on a tmpfs that the kernel mounts for itself), ramfs and hugetlbfs.
 *
 * Told by the device number of the file. The kernel's own tmpfs has that of a memfd, asked once. Others are
 * looked up in /proc/self/mountinfo and remembered for ten seconds, since the number of a file system that
 * was unmounted is given to another. A file system that is mounted outside of this process's mount namespace
 * only is not known. A device node counts as what its node lies on, so devtmpfs does not count: a mapped
 * block device is on a disk.
 *
 * Any thread; async-signal-safe; no allocation, no locks; errno is kept.
 */
#ifndef UNPIN_MM_MEMFS_H
#define UNPIN_MM_MEMFS_H

#include <stddef.h>
#include <stdint.h>

enum memfs_kind {
	MEMFS_UNKNOWN, /* no mount has this device number, or the mounts cannot be read */
	MEMFS_NONE,    /* another file system */
	MEMFS_SHMEM,   /* tmpfs, ramfs, the kernel's own tmpfs */
	MEMFS_HUGETLB,
};

struct memfs {
	enum memfs_kind kind;
	size_t page_size; /* as memfs_note() was told, else 0 */
};

/* The file system with this device number, as PROCMAP_QUERY and /proc/self/maps tell it. */
struct memfs memfs_of(uint32_t major, uint32_t minor);
/* It turned out to be a hugetlbfs with pages of this size, a power of two: remembered likewise. */
void memfs_note(uint32_t major, uint32_t minor, size_t page_size);

#endif

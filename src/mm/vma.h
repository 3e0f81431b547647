/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* One mapping of our own address space, asked from the kernel. */
#ifndef UNPIN_MM_VMA_H
#define UNPIN_MM_VMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vma {
	uintptr_t start, end; /* [start, end) */
	bool read, write, exec, shared;
	bool file; /* backed by a file, shmem or memfd: its pages can be given back without swap, unless shmem
		    */
	bool shmem;   /* a file that lives in memory or swap, never on a disk: memfd, tmpfs (/dev/shm), shared
			 anonymous memory, System V segments, hugetlb (memfs.h says how it is told) */
	bool special; /* [vdso], [vvar], [vsyscall] and the like */
	uint64_t offset, inode; /* of the file; 0 without one */
	size_t page_size; /* hugetlb: of its huge pages; else the machine's (transparent huge pages too) */
};

/* The mapping that holds addr, or with next, the first one that ends above addr. 0; -ENOENT: there is none;
 * another negative errno: the kernel does not tell (-EOPNOTSUPP: no /proc, or it is refused). No allocation;
 * any thread; async-signal-safe; errno is kept. */
int vma_find(uintptr_t addr, bool next, struct vma *out);

/*
 * Walks [addr, addr + len): 0 when all is mapped with at least the wanted rights, -ENOMEM at a hole, -EACCES
 * at a mapping without them; *where gets the first address concerned (may be NULL).
 */
int vma_check(uintptr_t addr, size_t len, bool want_read, bool want_write, uintptr_t *where);

/* For facility.c: whether the kernel has PROCMAP_QUERY. 0 or a negative errno. */
int vma_probe_query(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory of huge pages that are reserved for it, as root, where the machine's pool has none that is free. The
 * pool is everybody's: programs that include this take turns, by a lock on the pool's own file.
 */
#ifndef UNPIN_TESTS_ODP_HUGETLB_H
#define UNPIN_TESTS_ODP_HUGETLB_H

#include <stdio.h>
#include <sys/file.h>

#include "fixture.h"

#define HUGETLB_POOL "/proc/sys/vm/nr_hugepages"

static struct {
	int lock;   /* a descriptor; -1: not ours */
	long added; /* pages, to be given back */
} hugetlb = { .lock = -1 };

/* -1: nobody tells. */
static inline long hugetlb_pages(void)
{
	FILE *f = fopen(HUGETLB_POOL, "re");
	long n = -1;

	if (f && fscanf(f, "%ld", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

/* How many more there are then: fewer where memory is short, none where we are not root. */
static inline long hugetlb_add(long pages)
{
	long before = hugetlb_pages();
	FILE *f = fopen(HUGETLB_POOL, "we");

	if (f) {
		fprintf(f, "%ld\n", before + pages);
		fclose(f);
	}
	return hugetlb_pages() - before;
}

/* The pool is as it was, and somebody else's turn. */
static inline void hugetlb_give_back(void)
{
	if (hugetlb.added)
		hugetlb_add(-hugetlb.added);
	hugetlb.added = 0;
	if (hugetlb.lock >= 0)
		close(hugetlb.lock);
	hugetlb.lock = -1;
}

static inline void *hugetlb_try(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* NULL (and said so): there are no huge pages. The pool is the caller's until it gives it back. */
static inline void *hugetlb_map(size_t len)
{
	void *p;

	hugetlb.lock = open(HUGETLB_POOL, O_RDONLY | O_CLOEXEC);
	/* A kernel without huge pages has no pool to take turns at. */
	if (hugetlb.lock >= 0)
		assert_int_equal(flock(hugetlb.lock, LOCK_EX), 0);
	p = hugetlb_try(len);
	if (!p) {
		hugetlb.added = hugetlb_add((long)(len / LEAF_BYTES));
		p = hugetlb_try(len);
	}
	if (!p)
		print_message("no huge pages are free, and none can be reserved\n");
	return p;
}

#endif

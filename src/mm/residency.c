/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/residency.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "mm/facility.h"
#include "mm/page.h"
#include "mm/procfd.h"
#include "mm/vma.h"

/* linux/fs.h of 6.7 and later. */
struct scan_region {
	uint64_t start, end, categories;
};

struct scan {
	uint64_t size, flags, start, end, walk_end;
	uint64_t vec, vec_len, max_pages;
	uint64_t inverted, all_of, any_of, report;
};

#define SCAN	     _IOWR('f', 16, struct scan)
#define SCAN_PRESENT (1u << 3)
#define SCAN_SWAPPED (1u << 4)
#define SCAN_HUGE    (1u << 6)
#define SCAN_GUARD   (1u << 8) /* 6.15 */

/* Bits of an entry of /proc/self/pagemap. */
#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_SWAPPED (1ull << 62)
#define ENTRY_GUARD   (1ull << 58) /* 6.15 */

#define MOST_PAGES 4096

/* The answer is collected here and written to the caller's array only when all of it is known. */
struct answer {
	int count;
	uint64_t bits[MOST_PAGES / 64];
};

static void answer_set(struct answer *a, size_t i)
{
	a->bits[i / 64] |= 1ull << (i % 64);
	a->count++;
}

static int answer_write(const struct answer *a, size_t npages, unsigned char *out)
{
	for (size_t i = 0; i < npages; i++)
		out[i] = a->bits[i / 64] >> (i % 64) & 1;
	return a->count;
}

static int scan_once(struct scan *s)
{
	int fd = procfd_get(PROCFD_PAGEMAP), saved = errno, r;

	if (fd < 0)
		return fd;
	r = (int)syscall(SYS_ioctl, fd, SCAN, s);
	if (r < 0)
		r = -errno;
	errno = saved;
	if (r == -EBADF || r == -ENOTTY)
		procfd_lost(PROCFD_PAGEMAP, fd);
	return r;
}

/* The number of regions found in [s->start, s->walk_end), or a negative errno. */
static int scan(struct scan *s)
{
	int r = scan_once(s);

	/* A descriptor that was closed under us is replaced once. */
	return r == -EBADF || r == -ENOTTY ? scan_once(s) : r;
}

int residency_probe_scan(void)
{
	struct scan_region region;
	char here;
	struct scan s = {
		.size = sizeof(s),
		.start = page_down((uintptr_t)&here),
		.end = page_down((uintptr_t)&here) + page_size(),
		.vec = (uintptr_t)&region,
		.vec_len = 1,
		.all_of = SCAN_PRESENT,
		.report = SCAN_PRESENT,
	};
	int r = scan(&s);

	return r < 0 ? r : 0;
}

/* Sets the bit of every page that has all categories and none of the inverted ones. */
static int answer_by_scan(uintptr_t addr, size_t npages, uint64_t all_of, uint64_t inverted, struct answer *a)
{
	struct scan_region region[64];
	uintptr_t end = addr + npages * page_size();
	struct scan s = {
		.size = sizeof(s),
		.start = addr,
		.end = end,
		.vec = (uintptr_t)region,
		.vec_len = sizeof(region) / sizeof(region[0]),
		.all_of = all_of,
		.inverted = inverted,
		.report = all_of,
	};
	int found;

	while (s.start < end) {
		found = scan(&s);
		if (found < 0)
			return found;
		for (int i = 0; i < found; i++)
			for (uint64_t at = region[i].start; at < region[i].end; at += page_size())
				answer_set(a, (at - addr) / page_size());
		if (s.walk_end <= s.start)
			return -EIO;
		s.start = s.walk_end;
	}
	return 0;
}

/* Entries of /proc/self/pagemap: one 64-bit word per page. Returns how many were read (none above the last
 * mapping). */
static long read_pagemap(uintptr_t addr, uint64_t *entry, size_t n)
{
	int fd = procfd_get(PROCFD_PAGEMAP);
	long r;

	if (fd < 0)
		return fd;
	r = procfd_pread(fd, entry, n * sizeof(*entry), (long)(addr / page_size() * sizeof(*entry)));
	if (r == -EBADF || r == -EISDIR || r == -ESPIPE)
		procfd_lost(PROCFD_PAGEMAP, fd);
	return r < 0 ? r : r / (long)sizeof(*entry);
}

int residency_probe_pagemap(void)
{
	uint64_t entry;
	char here = 1;
	long r = read_pagemap(page_down((uintptr_t)&here), &entry, 1);

	if (r == -EBADF || r == -EISDIR || r == -ESPIPE)
		r = read_pagemap(page_down((uintptr_t)&here), &entry, 1);
	if (r != 1)
		return r < 0 ? (int)r : -EIO;
	/* Our own stack is present: whoever says no is not to be trusted (gVisor and the like). */
	return entry & ENTRY_PRESENT ? 0 : -EOPNOTSUPP;
}

static int answer_by_pagemap(
	uintptr_t addr, size_t npages, uint64_t all_of, uint64_t none_of, struct answer *a)
{
	uint64_t entry[256];
	size_t done = 0, n;
	long r;

	while (done < npages) {
		n = npages - done < 256 ? npages - done : 256;
		r = read_pagemap(addr + done * page_size(), entry, n);
		if (r < 0)
			return (int)r;
		for (long i = 0; i < r; i++)
			if ((entry[i] & all_of) == all_of && !(entry[i] & none_of))
				answer_set(a, done + (size_t)i);
		if ((size_t)r < n)
			break;
		done += n;
	}
	return 0;
}

/* mincore fails on a range with a hole: ask mapping by mapping then. */
static int mincore_part(uintptr_t addr, size_t npages, size_t first, struct answer *a)
{
	unsigned char vec[256];
	size_t done = 0, n;

	while (done < npages) {
		n = npages - done < sizeof(vec) ? npages - done : sizeof(vec);
		if (mincore((void *)(addr + done * page_size()), n * page_size(), vec))
			return -errno;
		for (size_t i = 0; i < n; i++)
			if (vec[i] & 1)
				answer_set(a, first + done + i);
		done += n;
	}
	return 0;
}

static int mincore_mapped(uintptr_t addr, size_t npages, struct answer *a)
{
	uintptr_t end = addr + npages * page_size(), at = addr, stop;
	struct vma v;
	int err;

	while (at < end) {
		err = vma_find(at, true, &v);
		if (err == -ENOENT)
			return 0;
		if (err)
			return err;
		if (v.start >= end)
			return 0;
		if (v.start > at)
			at = v.start;
		stop = v.end < end ? v.end : end;
		err = mincore_part(at, (stop - at) / page_size(), (at - addr) / page_size(), a);
		/* Unmapped meanwhile: absent. */
		if (err && err != -ENOMEM)
			return err;
		at = stop;
	}
	return 0;
}

static int answer_by_mincore(uintptr_t addr, size_t npages, struct answer *a)
{
	int saved = errno;
	int err = mincore_part(addr, npages, 0, a);

	if (err == -ENOMEM) {
		memset(a, 0, sizeof(*a));
		err = mincore_mapped(addr, npages, a);
	}
	errno = saved;
	return err;
}

static int check_args(const void *addr, size_t npages)
{
	uintptr_t from = (uintptr_t)addr;

	if (from & (page_size() - 1) || npages > MOST_PAGES)
		return -EINVAL;
	return from + npages * page_size() < from ? -EINVAL : 0;
}

int residency_query(const void *addr, size_t npages, unsigned char *resident)
{
	struct answer a = { 0 };
	int err = check_args(addr, npages);

	if (err || !npages)
		return err;
	if (mm_have(MM_PAGEMAP_SCAN))
		err = answer_by_scan((uintptr_t)addr, npages, SCAN_PRESENT, 0, &a);
	else if (mm_have(MM_PAGEMAP))
		err = answer_by_pagemap((uintptr_t)addr, npages, ENTRY_PRESENT, 0, &a);
	else
		err = answer_by_mincore((uintptr_t)addr, npages, &a);
	return err ? err : answer_write(&a, npages, resident);
}

int residency_swapped(const void *addr, size_t npages, unsigned char *swapped)
{
	/* Kernels before 6.15 refuse the category of guard pages; asked once. */
	static atomic_bool no_guard;
	struct answer a = { 0 };
	int err = check_args(addr, npages);

	if (err || !npages)
		return err;
	if (mm_have(MM_PAGEMAP_SCAN)) {
		err = -EINVAL;
		if (!atomic_load_explicit(&no_guard, memory_order_relaxed))
			err = answer_by_scan(
				(uintptr_t)addr, npages, SCAN_SWAPPED | SCAN_GUARD, SCAN_GUARD, &a);
		if (err == -EINVAL) {
			atomic_store_explicit(&no_guard, true, memory_order_relaxed);
			err = answer_by_scan((uintptr_t)addr, npages, SCAN_SWAPPED, 0, &a);
		}
	} else if (mm_have(MM_PAGEMAP)) {
		err = answer_by_pagemap((uintptr_t)addr, npages, ENTRY_SWAPPED, ENTRY_GUARD, &a);
	} else {
		return -EOPNOTSUPP;
	}
	return err ? err : answer_write(&a, npages, swapped);
}

int residency_huge(const void *addr)
{
	struct scan_region region;
	struct scan s = {
		.size = sizeof(s),
		.start = page_down((uintptr_t)addr),
		.end = page_down((uintptr_t)addr) + page_size(),
		.vec = (uintptr_t)&region,
		.vec_len = 1,
		.all_of = SCAN_PRESENT | SCAN_HUGE,
		.report = SCAN_HUGE,
	};

	return mm_have(MM_PAGEMAP_SCAN) ? scan(&s) : -EOPNOTSUPP;
}

/* The file has a line of headings, then one line per device. */
static bool read_swaps(void)
{
	char buf[512];
	const char *line;
	int fd = procfd_open("/proc/swaps");
	long n;

	if (fd < 0)
		return true;
	n = procfd_pread(fd, buf, sizeof(buf), 0);
	procfd_close(fd);
	if (n <= 0)
		return true;
	line = memchr(buf, '\n', (size_t)n);
	return line && line + 1 < buf + n;
}

bool residency_swap_on(uint64_t now_ns)
{
	/* The time of the last reading, plus 1 (0: never), and what it said. */
	static _Atomic uint64_t read_at;
	static atomic_bool on = true;
	uint64_t last = atomic_load_explicit(&read_at, memory_order_acquire);

	/* A coarse clock may be behind. */
	if (last && (int64_t)(now_ns + 1 - last) < (int64_t)NSEC_PER_SEC)
		return atomic_load_explicit(&on, memory_order_acquire);
	/* One thread reads; the others go on with the old answer. */
	if (atomic_compare_exchange_strong(&read_at, &last, now_ns + 1))
		atomic_store_explicit(&on, read_swaps(), memory_order_release);
	return atomic_load_explicit(&on, memory_order_acquire);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/memlock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "mm/populate.h"
#include "mm/vma.h"

/* Ascending, not overlapping, none empty; between calls every count is at least 1. */
struct piece {
	uintptr_t start, end;
	unsigned count;
	bool foreign; /* the application's lock was there first */
};

static struct piece *pieces;
static size_t piece_count, piece_room;

static bool make_room(size_t more)
{
	size_t room = piece_room ? piece_room : 16;
	struct piece *bigger;

	if (piece_count + more <= piece_room)
		return true;
	while (room < piece_count + more)
		room *= 2;
	bigger = realloc(pieces, room * sizeof(*pieces));
	if (!bigger)
		return false;
	pieces = bigger;
	piece_room = room;
	return true;
}

/* Index of the first piece that ends above addr. */
static size_t piece_at(uintptr_t addr)
{
	size_t low = 0, high = piece_count, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (pieces[mid].end > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static bool insert(size_t i, struct piece p)
{
	if (!make_room(1))
		return false;
	memmove(pieces + i + 1, pieces + i, (piece_count - i) * sizeof(*pieces));
	pieces[i] = p;
	piece_count++;
	return true;
}

/* Sees to it that no piece reaches across addr. */
static bool split(uintptr_t addr)
{
	size_t i = piece_at(addr);
	struct piece left;

	if (i == piece_count || pieces[i].start >= addr)
		return true;
	left = pieces[i];
	left.end = addr;
	if (!insert(i, left))
		return false;
	pieces[i + 1].start = addr;
	return true;
}

static void drop_empty(void)
{
	size_t kept = 0;

	for (size_t i = 0; i < piece_count; i++)
		if (pieces[i].count)
			pieces[kept++] = pieces[i];
	piece_count = kept;
}

/* New pieces, of count 0, for what no piece covers between start and end: one per mapping. */
static int fill_gap(uintptr_t start, uintptr_t end)
{
	struct piece p = { .start = start };
	struct vma v;

	while (p.start < end) {
		int err = vma_find(p.start, false, &v);

		if (err == -ENOENT)
			return -EFAULT;
		/* What the kernel does not tell apart is one piece. */
		p.end = !err && v.end < end ? v.end : end;
		p.foreign = syscall(SYS_msync, p.start, p.end - p.start, MS_ASYNC | MS_INVALIDATE) &&
			    errno == EBUSY;
		if (!insert(piece_at(p.start), p))
			return -ENOMEM;
		p.start = p.end;
	}
	return 0;
}

static int fill(uintptr_t start, uintptr_t end)
{
	uintptr_t at = start, stop;
	size_t i;
	int err;

	if (!split(start) || !split(end))
		return -ENOMEM;
	while (at < end) {
		i = piece_at(at);
		if (i < piece_count && pieces[i].start <= at) {
			at = pieces[i].end;
			continue;
		}
		stop = i < piece_count && pieces[i].start < end ? pieces[i].start : end;
		err = fill_gap(at, stop);
		if (err)
			return err;
		at = stop;
	}
	return 0;
}

/* EPERM is also what the kernel says to who may lock nothing at all. */
static bool is_refused(int err)
{
	struct rlimit limit;

	return err == ENOSYS || (err == EPERM && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur);
}

/* The kernel's mlock answers ENOMEM over the limit, over a hole, and over pages that cannot be had (past the
 * end of a file). */
static int lock_pages(uintptr_t start, uintptr_t end)
{
	int err;

	/* By system call: the sanitizers make libc's function do nothing. */
	if (!syscall(SYS_mlock, start, end - start))
		return 0;
	if (is_refused(errno))
		log_refused("mlock", -errno);
	err = vma_check(start, end - start, false, false, NULL);
	if (!err)
		err = populate((void *)start, end - start, false) == -EFAULT ? -EFAULT : -EAGAIN;
	return err == -ENOMEM || err == -EFAULT ? -EFAULT : -ENOMEM;
}

/* Unlocks what nobody holds in the range. */
static void unlock_unheld(uintptr_t start, uintptr_t end)
{
	for (size_t i = piece_at(start); i < piece_count && pieces[i].start < end; i++)
		if (!pieces[i].count && !pieces[i].foreign)
			syscall(SYS_munlock, pieces[i].start, pieces[i].end - pieces[i].start);
}

int memlock_add(uintptr_t addr, size_t len)
{
	uintptr_t end = addr + len;
	int saved = errno;
	int err = fill(addr, end);

	for (size_t i = piece_at(addr); !err && i < piece_count && pieces[i].start < end; i++)
		if (!pieces[i].count)
			err = lock_pages(pieces[i].start, pieces[i].end);
	if (err)
		unlock_unheld(addr, end);
	for (size_t i = piece_at(addr); !err && i < piece_count && pieces[i].start < end; i++)
		pieces[i].count++;
	drop_empty();
	errno = saved;
	return err;
}

static int let_go(uintptr_t addr, size_t len, bool unlock)
{
	uintptr_t end = addr + len;
	int saved = errno;

	if (!split(addr) || !split(end))
		return -ENOMEM;
	for (size_t i = piece_at(addr); i < piece_count && pieces[i].start < end; i++)
		if (pieces[i].count)
			pieces[i].count--;
	if (unlock)
		unlock_unheld(addr, end);
	drop_empty();
	errno = saved;
	return 0;
}

void memlock_remove(uintptr_t addr, size_t len)
{
	/* Splitting needs memory only for part of what was added; without it the pages stay locked, which is
	 * safe. */
	let_go(addr, len, true);
}

int memlock_forget(uintptr_t addr, size_t len)
{
	return let_go(addr, len, false);
}

void memlock_reset(void)
{
	/* The array is left to the allocator of the parent's time, which may be in any state. */
	pieces = NULL;
	piece_count = piece_room = 0;
}

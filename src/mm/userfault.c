/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/userfault.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mm/behind.h"
#include "mm/early.h"
#include "mm/interpose.h"
#include "mm/page.h"
#include "mm/safecopy.h"

/* ---- The set ----
 *
 * What is registered, exactly: ranges in ascending order that neither overlap nor touch. The set is replaced
 * as a whole: whoever changes it writes what it is to be into a buffer that nobody uses, and exchanges that
 * for the one in use, unless another was faster; then it begins anew. So nothing has to be undone for who is
 * interrupted by a signal handler, or forked away, in the middle. Readers look whether the set is still the
 * same when they are done; memory of buffers is never given back, so that they may be late.
 */

struct range {
	_Atomic uintptr_t start, end;
};

struct list {
	size_t room; /* constant */
	_Atomic size_t n;
	struct range range[];
};

/* As many as may change the set at once, and what children lose that were forked in the middle. */
#define BUFFERS 64u

static struct buffer {
	atomic_bool taken;
	_Atomic(struct list *) list;
} buffers[BUFFERS];

/* Low byte: the buffer in use, 0 for none: the set is empty. Above: how many sets there have been. */
static _Atomic uint64_t current;

#define IN_USE(set)    ((unsigned)((set)&0xff))
#define AFTER(set, in) (((set) | 0xff) + 1 + (in))

static struct list nothing;

EARLY static const struct list *list_of(uint64_t set)
{
	return IN_USE(set) ? atomic_load(&buffers[IN_USE(set)].list) : &nothing;
}

/* The first of the n ranges that ends at addr or above. */
EARLY static size_t first_from(const struct list *l, size_t n, uintptr_t addr)
{
	size_t low = 0, high = n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (atomic_load(&l->range[mid].end) >= addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

EARLY static bool overlaps(const struct list *l, uintptr_t start, uintptr_t end)
{
	size_t n = atomic_load(&l->n), i = first_from(l, n, start + 1);

	return i < n && atomic_load(&l->range[i].start) < end;
}

EARLY static bool contains(const struct list *l, uintptr_t start, uintptr_t end)
{
	size_t n = atomic_load(&l->n), i = first_from(l, n, end);

	return i < n && atomic_load(&l->range[i].start) <= start;
}

/* Whoever copies a set that is being replaced may see anything: what does not fit is of no use then. */
EARLY static void append(struct list *l, uintptr_t start, uintptr_t end)
{
	size_t n = atomic_load(&l->n);

	if (start >= end || n == l->room)
		return;
	atomic_store(&l->range[n].start, start);
	atomic_store(&l->range[n].end, end);
	atomic_store(&l->n, n + 1);
}

/* What the range touches becomes one with it. */
EARLY static void copy_with(
	const struct list *from, size_t n, uintptr_t start, uintptr_t end, struct list *to)
{
	bool done = false;

	for (size_t i = 0; i < n; i++) {
		uintptr_t s = atomic_load(&from->range[i].start), e = atomic_load(&from->range[i].end);

		if (s <= end && e >= start) {
			start = s < start ? s : start;
			end = e > end ? e : end;
			continue;
		}
		if (s > end && !done)
			append(to, start, end);
		done |= s > end;
		append(to, s, e);
	}
	if (!done)
		append(to, start, end);
}

EARLY static void copy_without(
	const struct list *from, size_t n, uintptr_t start, uintptr_t end, struct list *to)
{
	for (size_t i = 0; i < n; i++) {
		uintptr_t s = atomic_load(&from->range[i].start), e = atomic_load(&from->range[i].end);

		if (s >= end || e <= start) {
			append(to, s, e);
			continue;
		}
		append(to, s, start);
		append(to, end, e);
	}
}

EARLY static struct list *map_list(size_t n)
{
	size_t bytes = page_up(sizeof(struct list) + n * sizeof(struct range));
	struct list *l = raw_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (l == MAP_FAILED)
		return NULL;
	l->room = (bytes - sizeof(*l)) / sizeof(struct range);
	return l;
}

/* An empty list for n ranges in a buffer of our own, which is then its number; 0: there is no memory. */
EARLY static unsigned claim_buffer(size_t n, struct list **out)
{
	unsigned b = 1;
	struct list *l;

	for (unsigned tries = 0; atomic_exchange(&buffers[b].taken, true);) {
		if (++b < BUFFERS)
			continue;
		/* So many others are at it. */
		b = 1;
		if (tries++ == 10000)
			return 0;
		syscall(SYS_sched_yield);
	}
	l = atomic_load(&buffers[b].list);
	if (!l || l->room < n) {
		/* The old one may still be looked at. Growing by half, all that were grown out of take up
		 * twice what is in use. */
		l = map_list(n + n / 2);
		if (!l) {
			atomic_store(&buffers[b].taken, false);
			return 0;
		}
		atomic_store(&buffers[b].list, l);
	}
	atomic_store(&l->n, 0);
	*out = l;
	return b;
}

EARLY static void release_buffer(unsigned b)
{
	if (b)
		atomic_store(&buffers[b].taken, false);
}

/* What of [start, end) the ranges cover, from its first byte to its last. */
EARLY static struct userfault_span covered(const struct list *from, size_t n, uintptr_t start, uintptr_t end)
{
	struct userfault_span span = { end, start };

	for (size_t i = first_from(from, n, start + 1); i < n; i++) {
		uintptr_t s = atomic_load(&from->range[i].start), e = atomic_load(&from->range[i].end);

		if (s >= end)
			break;
		s = s > start ? s : start;
		e = e < end ? e : end;
		span.start = s < span.start ? s : span.start;
		span.end = e;
	}
	return span;
}

/* The set with, or without, what lies in [start, end): 1 changed, 0 it was so already, -1 no memory. covers,
 * if not NULL: what of it was there. */
EARLY static int change(bool with, uintptr_t start, uintptr_t end, struct userfault_span *covers)
{
	const struct list *from;
	struct list *to;
	uint64_t was;
	unsigned b, next;
	bool same;
	size_t n;

	for (;;) {
		was = atomic_load(&current);
		from = list_of(was);
		n = atomic_load(&from->n);
		same = with ? contains(from, start, end) : !overlaps(from, start, end);
		if (same && atomic_load(&current) == was)
			return 0;
		if (same)
			continue;
		b = claim_buffer(n + 1, &to);
		if (!b)
			return -1;
		if (with)
			copy_with(from, n, start, end, to);
		else
			copy_without(from, n, start, end, to);
		if (covers)
			*covers = covered(from, n, start, end);
		next = atomic_load(&to->n) ? b : 0;
		if (atomic_compare_exchange_strong(&current, &was, AFTER(was, next))) {
			release_buffer(IN_USE(was));
			release_buffer(next ? 0 : b);
			return 1;
		}
		release_buffer(b);
	}
}

/* ---- Registrations under way ----
 *
 * Apart from the set, so that one that is refused takes nothing away with it that was registered before.
 */

#define ROWS 32u

/* end 0: free; 1: being written, and above no address. */
static struct range rows[ROWS];
static _Atomic unsigned rows_used;

EARLY static struct range *begin(uintptr_t start, uintptr_t end)
{
	uintptr_t free;

	atomic_fetch_add(&rows_used, 1);
	for (unsigned i = 0; i < ROWS; i++) {
		free = 0;
		if (!atomic_compare_exchange_strong(&rows[i].end, &free, 1))
			continue;
		atomic_store(&rows[i].start, start);
		atomic_store(&rows[i].end, end);
		return &rows[i];
	}
	atomic_fetch_sub(&rows_used, 1);
	return NULL;
}

EARLY static void finish(struct range *row)
{
	atomic_store(&row->end, 0);
	atomic_fetch_sub(&rows_used, 1);
}

EARLY static bool under_way(uintptr_t start, uintptr_t end)
{
	for (unsigned i = 0; atomic_load(&rows_used) && i < ROWS; i++)
		if (atomic_load(&rows[i].end) > start && atomic_load(&rows[i].start) < end)
			return true;
	return false;
}

/* ---- What others ask and tell ---- */

bool userfault_watched(uintptr_t addr, size_t len)
{
	uint64_t was;
	bool found;

	/* First: what is under way gets into the set before it is over. */
	if (under_way(addr, addr + len))
		return true;
	for (unsigned tries = 0; tries < 10; tries++) {
		was = atomic_load(&current);
		found = overlaps(list_of(was), addr, addr + len);
		if (atomic_load(&current) == was)
			return found;
	}
	return true;
}

EARLY bool userfault_forget(uintptr_t start, size_t len, struct userfault_span *was)
{
	uintptr_t end = page_up(start + len);
	int saved = errno, done = 0;

	if (IN_USE(atomic_load(&current)) && !(start & (page_size() - 1)) && start < end)
		done = change(false, start, end, was);
	errno = saved;
	return done == 1;
}

EARLY void userfault_restore(const struct userfault_span *was)
{
	int saved = errno;

	/* Without memory for it a row is, and stays, as good. */
	if (change(true, was->start, was->end, NULL) < 0)
		begin(was->start, was->end);
	errno = saved;
}

/*
 * Whether nothing of the range is registered after this error. -ENOMEM comes when some mappings already are,
 * -EFAULT also when all are and the answer could not be written.
 */
EARLY static bool refused(int err)
{
	return err != ENOMEM && err != EFAULT;
}

EARLY static int next_ioctl(int fd, unsigned long request, void *arg)
{
	behind_ioctl_fn *next = BEHIND(ioctl);

	return next ? next(fd, request, arg) : (int)syscall(SYS_ioctl, fd, request, arg);
}

/* Before anybody can fault on the range it is known; the set has it as soon as the kernel has. */
EARLY static int observed_register(int fd, void *reg, uintptr_t start, uintptr_t end)
{
	struct range *row = begin(start, end);
	int saved = errno, r;

	/* Too many at once: known before it is known whether it is refused. */
	if (!row && change(true, start, end, NULL) < 0) {
		errno = ENOMEM;
		return -1;
	}
	errno = saved;
	r = next_ioctl(fd, UFFDIO_REGISTER, reg);
	if (!row)
		return r;
	saved = errno;
	/* Without memory the row stays. */
	if ((r && refused(saved)) || change(true, start, end, NULL) >= 0)
		finish(row);
	errno = saved;
	return r;
}

/* Forgotten before: afterwards another thread may have registered it anew. Who touches it in between is woken
 * by the kernel. */
EARLY static int observed_unregister(int fd, void *arg, const struct uffdio_range *range)
{
	struct userfault_span was;
	bool forgot = userfault_forget(range->start, range->len, &was);
	int r = next_ioctl(fd, UFFDIO_UNREGISTER, arg);

	if (r && forgot)
		userfault_restore(&was);
	return r;
}

/* What the caller points to may be anything; where that cannot be found out it is taken for what it should
 * be. */
EARLY static bool read_argument(void *to, const void *arg, size_t n)
{
	int saved = errno;
	enum safecopy_path path = safecopy_path();
	bool read = arg && (path == SAFECOPY_NONE || safecopy_from_user(path, to, arg, n, NULL) == n);

	if (read && path == SAFECOPY_NONE)
		memcpy(to, arg, n);
	errno = saved;
	return read;
}

EARLY __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	struct uffdio_register reg;
	struct uffdio_range range;
	unsigned known = (unsigned)request;
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* The kernel looks at 32 bits; a request that the program kept in an int comes sign-extended. */
	if (known == (unsigned)UFFDIO_REGISTER && read_argument(&reg, arg, sizeof(reg)) &&
		reg.mode & (UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR) &&
		reg.range.start < reg.range.start + reg.range.len)
		return observed_register(fd, arg, reg.range.start, reg.range.start + reg.range.len);
	if (known == (unsigned)UFFDIO_UNREGISTER && read_argument(&range, arg, sizeof(range)))
		return observed_unregister(fd, arg, &range);
	return next_ioctl(fd, request, arg);
}

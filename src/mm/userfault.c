/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/userfault.h"

#include <linux/userfaultfd.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mm/early.h"

#define RANGES 256u

/* end 0: free; 1: being written, and above no address. */
struct range {
	_Atomic uintptr_t start, end;
};

static struct range ranges[RANGES];
static _Atomic unsigned high;	/* ranges below have been used */
static _Atomic bool overflowed; /* there were more at a time: everything may be watched */

EARLY static bool claim(struct range *r, uintptr_t start, uintptr_t end)
{
	uintptr_t free = 0;

	if (!atomic_compare_exchange_strong(&r->end, &free, 1))
		return false;
	atomic_store(&r->start, start);
	atomic_store(&r->end, end);
	return true;
}

EARLY static void add(uintptr_t start, uintptr_t end)
{
	for (unsigned i = 0; i < RANGES; i++) {
		unsigned was = atomic_load(&high);

		if (!claim(&ranges[i], start, end))
			continue;
		while (was <= i && !atomic_compare_exchange_strong(&high, &was, i + 1))
			;
		return;
	}
	atomic_store(&overflowed, true);
}

/* What is only cut stays whole. */
EARLY void userfault_forget(uintptr_t start, uintptr_t end)
{
	for (unsigned i = 0; i < atomic_load(&high); i++) {
		uintptr_t to = atomic_load(&ranges[i].end);

		if (to > 1 && to <= end && atomic_load(&ranges[i].start) >= start)
			atomic_compare_exchange_strong(&ranges[i].end, &to, 0);
	}
}

bool userfault_watched(uintptr_t addr, size_t len)
{
	unsigned n = atomic_load_explicit(&high, memory_order_acquire);

	if (atomic_load_explicit(&overflowed, memory_order_relaxed))
		return true;
	for (unsigned i = 0; i < n; i++)
		if (atomic_load(&ranges[i].end) > addr && atomic_load(&ranges[i].start) < addr + len)
			return true;
	return false;
}

EARLY __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	const struct uffdio_register *reg;
	const struct uffdio_range *range;
	va_list ap;
	void *arg;
	int r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	/* Before anybody can fault on it. */
	if (request == UFFDIO_REGISTER && arg) {
		reg = arg;
		if (reg->mode & (UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR))
			add(reg->range.start, reg->range.start + reg->range.len);
	}
	r = (int)syscall(SYS_ioctl, fd, request, arg);
	if (request == UFFDIO_UNREGISTER && !r && arg) {
		range = arg;
		userfault_forget(range->start, range->start + range->len);
	}
	return r;
}

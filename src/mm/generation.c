/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/generation.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "base/log.h"
#include "mm/interpose.h"
#include "mm/page.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

/* Lies in a page of its own that reads as zero in a child. Set once, never unmapped; read by everybody. */
static _Atomic(_Atomic uint64_t *) wiped;
/* The last generation given out in this process or an ancestor: not wiped, so no number comes twice in one
 * line. */
static _Atomic uint64_t last;

static int make_page(void)
{
	_Atomic uint64_t *page, *none = NULL;
	int saved = errno, err = 0;

	page = raw_mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		err = -errno;
	} else if (raw_madvise((void *)page, page_size(), MADV_WIPEONFORK)) {
		err = log_refused("madvise(MADV_WIPEONFORK)", -errno);
		raw_munmap((void *)page, page_size());
	} else if (!atomic_compare_exchange_strong(&wiped, &none, page)) {
		raw_munmap((void *)page, page_size());
	}
	errno = saved;
	return err;
}

int generation_begin(void)
{
	uint64_t zero = 0, next;
	_Atomic uint64_t *now;
	int err;

	if (!atomic_load_explicit(&wiped, memory_order_acquire)) {
		err = make_page();
		if (err)
			return err;
	}
	now = atomic_load_explicit(&wiped, memory_order_acquire);
	if (atomic_load_explicit(now, memory_order_acquire))
		return 0;
	next = atomic_fetch_add(&last, 1) + 1;
	/* Two threads at once: one number is used, the other is skipped. */
	atomic_compare_exchange_strong(now, &zero, next);
	return 0;
}

uint64_t generation_now(void)
{
	_Atomic uint64_t *now = atomic_load_explicit(&wiped, memory_order_acquire);

	return now ? atomic_load_explicit(now, memory_order_acquire) : 0;
}

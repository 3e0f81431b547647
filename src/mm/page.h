/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The size of a page of this machine, and rounding to it. Any thread, any context. */
#ifndef UNPIN_MM_PAGE_H
#define UNPIN_MM_PAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

static inline size_t page_size(void)
{
#if defined(__x86_64__)
	return 4096;
#else
	return getauxval(AT_PAGESZ);
#endif
}

static inline uintptr_t page_down(uintptr_t addr)
{
	return addr & ~(uintptr_t)(page_size() - 1);
}

/* Wraps to 0 for an address in the last page of the address space. */
static inline uintptr_t page_up(uintptr_t addr)
{
	return page_down(addr + page_size() - 1);
}

#endif

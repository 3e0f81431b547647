/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/heap.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/next.h"
#include "mm/early.h"
#include "mm/page.h"
#include "mm/pin.h"

#define EXPORT EARLY __attribute__((visibility("default")))

typedef void free_function(void *block);
typedef void *realloc_function(void *block, size_t size);
typedef int trim_function(size_t pad);

static _Atomic(free_function *) next_free;
static _Atomic(realloc_function *) next_realloc;
static _Atomic(trim_function *) next_trim;
/* The blocks are glibc's. */
static atomic_bool of_glibc;
static atomic_bool looking;

/* libc's own, under a name that nobody interposes. */
extern void *__sbrk(intptr_t delta);

/* When the library is loaded, or at the first call if that comes before. The dynamic linker may free what it
 * allocated for the look-up: that is lost. */
EARLY __attribute__((constructor)) static void look_up(void)
{
	free_function *found;

	if (atomic_load(&next_free) || atomic_exchange(&looking, true))
		return;
	found = (free_function *)next_function("free");
	atomic_store(&next_realloc, (realloc_function *)next_function("realloc"));
	atomic_store(&next_trim, (trim_function *)next_function("malloc_trim"));
	atomic_store(&of_glibc, found && found == (free_function *)next_function("__libc_free"));
	atomic_store(&next_free, found);
	atomic_store(&looking, false);
}

/*
 * The words before a block of glibc: of its mapping, what lies before the block's header, and the size of the
 * rest with flags in its low bits.
 */
#define IS_MAPPING 2u
#define FLAGS	   7u

EARLY bool heap_mapping_of(const void *block, uintptr_t *start, size_t *len)
{
	const size_t *words = (const size_t *)block - 2;

	if (!atomic_load_explicit(&of_glibc, memory_order_relaxed) || !(words[1] & IS_MAPPING))
		return false;
	*start = (uintptr_t)words - words[0];
	*len = words[0] + (words[1] & ~(size_t)FLAGS);
	return !(*start & (page_size() - 1)) && !(*len & (page_size() - 1));
}

EARLY static uintptr_t heap_end(void)
{
	return atomic_load_explicit(&of_glibc, memory_order_relaxed) ? (uintptr_t)__sbrk(0) : 0;
}

EARLY static void heap_was(uintptr_t end)
{
	uintptr_t now = heap_end();
	int saved = errno;

	if (page_up(now) < page_up(end))
		pin_diverge(page_up(now), page_up(end) - page_up(now));
	errno = saved;
}

EARLY static void watched_free(free_function *next, void *block)
{
	uintptr_t start, end = heap_end();
	int saved = errno;
	size_t len;

	if (heap_mapping_of(block, &start, &len))
		pin_diverge(start, len);
	errno = saved;
	next(block);
	heap_was(end);
}

EXPORT void free(void *block)
{
	free_function *next = atomic_load_explicit(&next_free, memory_order_acquire);

	if (__builtin_expect(!next, 0)) {
		look_up();
		next = atomic_load(&next_free);
		if (!next)
			return;
	}
	if (__builtin_expect(!pin_any() || !block, 1))
		next(block);
	else
		watched_free(next, block);
}

/* The block is a mapping of its own and a pin has a page of it. */
EARLY static void *move_block(void *block, size_t size)
{
	size_t had = malloc_usable_size(block);
	void *other = malloc(size);

	if (!other)
		return NULL;
	memcpy(other, block, had < size ? had : size);
	free(block);
	return other;
}

EARLY static void *watched_realloc(realloc_function *next, void *block, size_t size)
{
	uintptr_t start, end = heap_end();
	size_t len;
	void *r;

	if (size && heap_mapping_of(block, &start, &len) && pin_overlaps(start, len))
		return move_block(block, size);
	if (!size && heap_mapping_of(block, &start, &len))
		pin_diverge(start, len);
	r = next(block, size);
	heap_was(end);
	return r;
}

EXPORT void *realloc(void *block, size_t size)
{
	realloc_function *next = atomic_load_explicit(&next_realloc, memory_order_acquire);

	if (__builtin_expect(!next, 0)) {
		look_up();
		next = atomic_load(&next_realloc);
		if (!next) {
			errno = ENOMEM;
			return NULL;
		}
	}
	if (__builtin_expect(!pin_any() || !block, 1))
		return next(block, size);
	return watched_realloc(next, block, size);
}

EXPORT int malloc_trim(size_t pad)
{
	trim_function *next;
	uintptr_t end;
	int r;

	look_up();
	next = atomic_load(&next_trim);
	if (!next)
		return 0;
	end = pin_any() ? heap_end() : 0;
	r = next(pad);
	heap_was(end);
	return r;
}

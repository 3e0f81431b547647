/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How a piece of memory is used: how often, how much of it, which parts most, and whether in sequence. Small
 * and of a fixed size whatever the memory's; it lies in the exported segment (base/segment.h), one for each
 * memory region.
 *
 * usage_note() is on the path of every access and costs a few nanoseconds: all counts are loads and stores
 * without a locked instruction. Where several threads note at once, some of them may be lost, so counts are
 * lower bounds there; nothing else goes wrong.
 *
 * Threads: usage_note, usage_pages, usage_slices from any thread; begin and merge are serialised by the
 * caller (nobody notes into what is begun, or merged into). Readers see values of slightly different moments.
 */
#ifndef UNPIN_BASE_USAGE_H
#define UNPIN_BASE_USAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define USAGE_PAGE_SHIFT 12u /* pages are 4 KiB here, whatever the machine's */
#define USAGE_SLICES	 64u
#define USAGE_ENDS	 16u
#define USAGE_REGISTERS	 256u

/* Four parts that begin with a cache line each, if the structure does. */
struct unpin_usage {
	_Atomic uint64_t accesses;   /* copies by the device, each of at most a packet's payload */
	_Atomic uint64_t sequential; /* of those, that began where one of the last few had ended */
	_Atomic uint64_t base;	     /* where slice 0 begins: whole pages */
	_Atomic uint32_t shift;	     /* a slice has 1 << shift bytes, 12 or more; 0: there are none */
	uint32_t unused;
	_Atomic uint64_t last_page; /* its register has been looked at just now */
	uint64_t unused2[3];
	/* Low halves (inverted, so that 0 is none) of the addresses where accesses ended, each at a place
	 * that the address determines. */
	_Atomic uint32_t end[USAGE_ENDS];
	/* Accesses to each slice; they stay at UINT32_MAX. An access over several counts in each. */
	_Atomic uint32_t slice[USAGE_SLICES];
	/* For the number of different pages (HyperLogLog): the longest run of zero bits, and one, in the
	 * hashes of pages that fall to each register. Not used when a slice is a page. */
	_Atomic uint8_t page[USAGE_REGISTERS];
};

/* Forgets what was noted; from now on it is about [addr, addr + length). length UINT64_MAX: about memory
 * anywhere, without slices. */
void usage_begin(struct unpin_usage *u, uint64_t addr, uint64_t length);

/* Adds what happened to the same range (that is: one of the same base and shift) in another life of it. */
void usage_merge(struct unpin_usage *u, const struct unpin_usage *life);

/* How many different pages were accessed: exact up to 64 slices of a page; else an estimate that is seldom
 * more than 15 % off, and never outside of what the slices allow. */
uint64_t usage_pages(const struct unpin_usage *u);

/* Slices that were accessed at all. */
unsigned usage_slices(const struct unpin_usage *u);

/* --- the hot path
 * -------------------------------------------------------------------------------------------- */

/* Two windows of the product, since in each of them streams at a fixed distance from each other meet at every
 * step or never. */
static inline _Atomic uint32_t *usage_end_at(struct unpin_usage *u, uint64_t addr)
{
	uint64_t x = addr * 0x9e3779b97f4a7c15ull;

	return &u->end[(x >> 60 ^ x >> 40) % USAGE_ENDS];
}

/* One register per page and look: once the registers have grown, it only reads. */
static inline void usage_note_page(struct unpin_usage *u, uint64_t page)
{
	uint64_t x = page * 0xff51afd7ed558ccdull;
	_Atomic uint8_t *at;
	uint8_t rank;

	x = (x ^ x >> 32) * 0xc4ceb9fe1a85ec53ull;
	x ^= x >> 29;
	at = &u->page[x % USAGE_REGISTERS];
	rank = (uint8_t)(__builtin_clzll(x | USAGE_REGISTERS) + 1);
	if (__builtin_expect(atomic_load_explicit(at, memory_order_relaxed) < rank, 0))
		atomic_store_explicit(at, rank, memory_order_relaxed);
}

static inline void usage_note_slice(struct unpin_usage *u, uint64_t slice)
{
	_Atomic uint32_t *at = &u->slice[slice % USAGE_SLICES];
	uint32_t n = atomic_load_explicit(at, memory_order_relaxed);

	atomic_store_explicit(at, n + (n != UINT32_MAX), memory_order_relaxed);
}

static inline void usage_count(_Atomic uint64_t *count, uint64_t n)
{
	atomic_store_explicit(
		count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

/* An access to [at, at + length), length > 0, inside of the range. */
static inline void usage_note(struct unpin_usage *u, uint64_t at, uint32_t length)
{
	uint64_t base = atomic_load_explicit(&u->base, memory_order_relaxed), end = at + length;
	uint64_t first = at >> USAGE_PAGE_SHIFT, last = (end - 1) >> USAGE_PAGE_SHIFT;
	uint32_t shift = atomic_load_explicit(&u->shift, memory_order_relaxed);
	bool goes_on = atomic_load_explicit(usage_end_at(u, at), memory_order_relaxed) == (uint32_t)~at;

	usage_count(&u->accesses, 1);
	if (goes_on)
		usage_count(&u->sequential, 1);
	atomic_store_explicit(usage_end_at(u, end), (uint32_t)~end, memory_order_relaxed);
	if (shift)
		for (uint64_t s = (at - base) >> shift; s <= (end - 1 - base) >> shift; s++)
			usage_note_slice(u, s);
	if (shift == USAGE_PAGE_SHIFT ||
		(first == last && first == atomic_load_explicit(&u->last_page, memory_order_relaxed)))
		return;
	for (uint64_t p = first; p <= last; p++)
		usage_note_page(u, p);
	atomic_store_explicit(&u->last_page, last, memory_order_relaxed);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/usage.h"

static uint32_t get32(const _Atomic uint32_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static uint64_t get64(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static unsigned get8(const _Atomic uint8_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static void put32(_Atomic uint32_t *v, uint32_t value)
{
	atomic_store_explicit(v, value, memory_order_relaxed);
}

void usage_begin(struct unpin_usage *u, uint64_t addr, uint64_t length)
{
	const uint64_t base = addr >> USAGE_PAGE_SHIFT << USAGE_PAGE_SHIFT;
	uint32_t shift = USAGE_PAGE_SHIFT;

	/* What was never used is as it was begun, and need not be touched. */
	if (get64(&u->accesses)) {
		for (unsigned i = 0; i < USAGE_ENDS; i++)
			put32(&u->end[i], 0);
		for (unsigned i = 0; i < USAGE_SLICES; i++)
			put32(&u->slice[i], 0);
		for (unsigned i = 0; i < USAGE_REGISTERS; i++)
			atomic_store_explicit(&u->page[i], 0, memory_order_relaxed);
	}
	while (length && length != UINT64_MAX && (addr + length - 1 - base) >> shift >= USAGE_SLICES)
		shift++;
	atomic_store_explicit(&u->accesses, 0, memory_order_relaxed);
	atomic_store_explicit(&u->sequential, 0, memory_order_relaxed);
	atomic_store_explicit(&u->base, base, memory_order_relaxed);
	atomic_store_explicit(&u->last_page, UINT64_MAX, memory_order_relaxed);
	put32(&u->shift, length == UINT64_MAX ? 0 : shift);
}

void usage_merge(struct unpin_usage *u, const struct unpin_usage *life)
{
	if (!get64(&life->accesses))
		return;
	usage_count(&u->accesses, get64(&life->accesses));
	usage_count(&u->sequential, get64(&life->sequential));
	for (unsigned i = 0; i < USAGE_SLICES; i++) {
		uint32_t more = get32(&life->slice[i]), sum = get32(&u->slice[i]) + more;

		put32(&u->slice[i], sum < more ? UINT32_MAX : sum);
	}
	for (unsigned i = 0; i < USAGE_REGISTERS; i++)
		if (get8(&life->page[i]) > get8(&u->page[i]))
			atomic_store_explicit(
				&u->page[i], (uint8_t)get8(&life->page[i]), memory_order_relaxed);
}

unsigned usage_slices(const struct unpin_usage *u)
{
	unsigned n = 0;

	for (unsigned i = 0; i < USAGE_SLICES; i++)
		n += get32(&u->slice[i]) != 0;
	return n;
}

/*
 * Few pages: so many different registers are expected to be hit by them (the collector of coupons: n pages
 * leave m - k registers empty when n is m (1/m + 1/(m-1) + ... + 1/(m-k+1))). Many: the harmonic mean of what
 * each register alone would say (Flajolet and others, 2007).
 */
static double estimate(const struct unpin_usage *u)
{
	const double m = USAGE_REGISTERS, alpha = 0.7213 / (1 + 1.079 / m);
	double inverse = 0, few = 0, many;
	unsigned empty = 0;

	for (unsigned i = 0; i < USAGE_REGISTERS; i++) {
		unsigned rank = get8(&u->page[i]);

		empty += !rank;
		inverse += 1 / (double)(1ull << (rank & 63));
	}
	many = alpha * m * m / inverse;
	if (!empty || many > 2.5 * m)
		return many;
	for (unsigned k = empty + 1; k <= USAGE_REGISTERS; k++)
		few += m / k;
	return few;
}

uint64_t usage_pages(const struct unpin_usage *u)
{
	uint32_t shift = get32(&u->shift);
	uint64_t slices = usage_slices(u), most, pages;

	if (shift == USAGE_PAGE_SHIFT)
		return slices;
	pages = (uint64_t)(estimate(u) + 0.5);
	if (shift < USAGE_PAGE_SHIFT || shift > 63)
		return pages;
	most = slices << (shift - USAGE_PAGE_SHIFT);
	return pages < slices ? slices : pages > most ? most : pages;
}

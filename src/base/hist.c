/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/hist.h"

#define relaxed memory_order_relaxed

unsigned hist_index(uint64_t value)
{
	unsigned msb, shift;

	if (value < HIST_SUB)
		return (unsigned)value;
	msb = 63 - (unsigned)__builtin_clzll(value);
	shift = msb - HIST_SUB_BITS;
	return (shift + 1) * HIST_SUB + (unsigned)((value >> shift) & (HIST_SUB - 1));
}

uint64_t hist_upper(unsigned index)
{
	unsigned shift;

	if (index < 2 * HIST_SUB)
		return index;
	shift = index / HIST_SUB - 1;
	return ((((uint64_t)(index % HIST_SUB) + HIST_SUB) + 1) << shift) - 1;
}

static void raise_max(struct hist *h, uint64_t value)
{
	uint64_t max = atomic_load_explicit(&h->max, relaxed);

	while (value > max && !atomic_compare_exchange_weak_explicit(&h->max, &max, value, relaxed, relaxed))
		;
}

void hist_add(struct hist *h, uint64_t value)
{
	atomic_fetch_add_explicit(&h->bucket[hist_index(value)], 1, relaxed);
	atomic_fetch_add_explicit(&h->count, 1, relaxed);
	atomic_fetch_add_explicit(&h->sum, value, relaxed);
	raise_max(h, value);
}

uint64_t hist_quantile(const struct hist *h, double q)
{
	uint64_t total = 0, seen = 0, want, max = atomic_load_explicit(&h->max, relaxed);

	/* The buckets, not the count field: a reader beside writers must not look for values that are not
	 * there yet. */
	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		total += atomic_load_explicit(&h->bucket[i], relaxed);
	if (!total)
		return 0;
	want = (uint64_t)(q * (double)total + 0.999999);
	if (want < 1)
		want = 1;
	if (want > total)
		want = total;
	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		seen += atomic_load_explicit(&h->bucket[i], relaxed);
		if (seen >= want)
			return hist_upper(i) < max ? hist_upper(i) : max;
	}
	return max;
}

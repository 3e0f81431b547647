/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Log-linear histogram of unsigned 64-bit values (nanoseconds, bytes, counts): 16 linear steps per power of
 * two, so a reported percentile is at most 6.25 % above the true value. Fixed size, no allocation; it may lie
 * in shared memory; zeroes are an empty one. hist_add may be called by any number of threads at once; readers
 * see a slightly older state, never a torn count.
 */
#ifndef UNPIN_BASE_HIST_H
#define UNPIN_BASE_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define HIST_SUB_BITS 4
#define HIST_SUB      (1u << HIST_SUB_BITS)
#define HIST_BUCKETS  ((64 - HIST_SUB_BITS + 1) * HIST_SUB)

struct hist {
	_Atomic uint64_t count, sum, max;
	_Atomic uint32_t bucket[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t value);
/* The smallest bucket bound that at least the fraction q (0..1) of the values does not exceed; never above
 * the recorded maximum; 0 when empty. */
uint64_t hist_quantile(const struct hist *h, double q);
/* Index of the bucket that holds value, and the largest value that a bucket holds. */
unsigned hist_index(uint64_t value);
uint64_t hist_upper(unsigned index);

#endif

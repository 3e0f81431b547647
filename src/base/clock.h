/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The one clock of the house: CLOCK_MONOTONIC in nanoseconds. */
#ifndef UNPIN_BASE_CLOCK_H
#define UNPIN_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NSEC_PER_USEC 1000ull
#define NSEC_PER_MSEC 1000000ull
#define NSEC_PER_SEC  1000000000ull

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* The same, some milliseconds behind at most, and cheap: for what need not be looked at again so soon. */
static inline uint64_t clock_coarse_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

#endif

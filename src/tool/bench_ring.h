/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the machine itself can do, to compare with: a bare ring through which one thread copies in and another
 * copies out, with the segment and the total size of the shared-memory wire, and nothing else of a device;
 * and two threads that wake each other by futex.
 */
#ifndef UNPIN_TOOL_BENCH_RING_H
#define UNPIN_TOOL_BENCH_RING_H

#include <stddef.h>
#include <stdint.h>

struct ring;

/* Starts the second thread, on the second processor. NULL with errno. */
struct ring *ring_start(void);
void ring_stop(struct ring *r);

/* Moves total bytes in messages of message bytes through the ring; source and target are each source_bytes
 * long and are used again and again when total is more. Returns the nanoseconds until the last byte has
 * arrived. */
uint64_t ring_copy(
	struct ring *r, const void *source, void *target, size_t span, size_t message, uint64_t total);

/* Round trips between the two threads by futex; writes the nanoseconds of each. */
void ring_futex(struct ring *r, uint32_t iterations, uint64_t *round_ns);

#endif

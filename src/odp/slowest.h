/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The slowest faults of late, for whoever looks at the segment (base/segment.h, struct unpin_slow).
 * Lock-free, from any thread: most events are passed over after two loads; two that want the same place at
 * the same time leave it to one of them, and the other is not kept.
 */
#ifndef UNPIN_ODP_SLOWEST_H
#define UNPIN_ODP_SLOWEST_H

#include "base/segment.h"

/* Takes note of an event that ended at ended_ns after waited_ns and then resolved_ns (sum: how slow it was).
 * The other fields of f but sequence are copied. */
void slowest_note(struct unpin_slow *s, const struct unpin_slow_fault *f);

#endif

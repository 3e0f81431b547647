/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A segment as a process of the device exports it, made by hand in a memfd of this process: for tests of
 * those who read it. One at a time.
 */
#ifndef UNPIN_TESTS_TOOL_MADE_SEGMENT_H
#define UNPIN_TESTS_TOOL_MADE_SEGMENT_H

#include "base/segment.h"

extern struct unpin_segment *made;
extern int made_fd;

/* Right in everything that a reader checks, of this process and device unpin0, without a region. 0 or -1. */
int made_segment_open(void);
void made_segment_close(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Names that UNPIN_DISABLE understands: those of mm/facility.c. They are written twice because the command
 * must not link mm/, whose interposed munmap() and the like would stand before the library's own; a test
 * compares the two.
 */
#ifndef UNPIN_TOOL_FACILITIES_H
#define UNPIN_TOOL_FACILITIES_H

#include <stddef.h>

struct facility {
	const char *name, *what;
};

extern const struct facility facilities[];
extern const size_t facilities_count;

#endif

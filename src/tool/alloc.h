/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Memory for small things of a command that has nothing sensible left to do without it: a failure ends the
 * process with a sentence and status 1. Large buffers are not taken from here. */
#ifndef UNPIN_TOOL_ALLOC_H
#define UNPIN_TOOL_ALLOC_H

#include <stddef.h>

/* n zeroed elements. */
void *alloc_array(size_t n, size_t size);
/* Room for n elements (realloc), new ones not zeroed. */
void *alloc_grow(void *old, size_t n, size_t size);
char *alloc_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif

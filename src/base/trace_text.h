/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Events of the timeline that come as texts (trace_text() of base/trace.h), in a line until the writer takes
 * them. Memory: TRACE_TEXT_QUEUE bytes, mapped by the first text.
 *
 * Threads: open and abandon are called by trace_open() and trace_abandon(); take by the writer.
 */
#ifndef UNPIN_BASE_TRACE_TEXT_H
#define UNPIN_BASE_TRACE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/trace.h"

/* Before each text in the line, and in a spool. */
struct trace_text_head {
	uint32_t bytes;
};

/* Texts are from now on taken from this process, and what waits is forgotten. */
void trace_text_open(pid_t pid);
/* In a forked child: without the lock. */
void trace_text_abandon(void);

/* Moves what waits (a trace_text_head before each text) to out, of TRACE_TEXT_QUEUE bytes; returns the bytes.
 */
size_t trace_text_take(char *out);
/* Texts that were too long or found no room, since trace_text_open(). */
uint64_t trace_text_dropped(void);

/* Whether this is one JSON object and nothing else, on one line; nested at most 64 deep. RFC 8259, but for
 * the bytes of strings above 127, which may be any. */
bool trace_text_is_object(const char *text, size_t length);

#endif

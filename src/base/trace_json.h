/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Events as text: writes a timeline in the Chrome trace event format (JSON array form), which Perfetto and
 * chrome://tracing open. Times are CLOCK_MONOTONIC in microseconds.
 *
 * The file is complete JSON after every write: the last TRACE_JSON_TRAILER bytes are a counter,
 * "dropped_events", and the end of the array, which what is written next takes the place of. When there is no
 * room for more, what has been written stays, the rest is counted as dropped, and the count is told in the
 * trailer, whose place is taken.
 *
 * Threads: none; one owner.
 */
#ifndef UNPIN_BASE_TRACE_JSON_H
#define UNPIN_BASE_TRACE_JSON_H

#include <stdint.h>
#include <sys/types.h>

#include "base/trace_clock.h"
#include "base/trace_event.h"

#define TRACE_JSON_TRAILER 192u
#define TRACE_JSON_BUFFER  65536u

/* The end of the phase, and which thread: the same for many events. */
struct trace_json_place {
	uint32_t tid;
	char text[64];
	size_t length;
};

struct trace_json {
	int fd;
	uint32_t pid; /* of the process that the timeline is of */
	int err;      /* the first of writing, negative errno; nothing is written any more */
	uint64_t end; /* of what has been written, without the trailer */
	uint64_t flights, dropped;
	uint64_t told;	  /* dropped, when it was last told */
	uint64_t now;	  /* ns: the counter's time */
	uint32_t waiting; /* events in the buffer */
	struct trace_json_place place;
	size_t used;
	char buffer[TRACE_JSON_BUFFER + TRACE_JSON_TRAILER];
};

/* Writes what comes to fd from end on, where a trailer stands, or the opening if end is 0. */
void trace_json_init(struct trace_json *j, int fd, uint32_t pid, uint64_t end);

/* The first event of a file: the process's name, of any bytes. */
void trace_json_open(struct trace_json *j, const char *program);
/* Whether a file begins as the timelines of that process do: another one may be where it was, with its
 * inode's number even. fd is open for reading. */
bool trace_json_is_of(int fd, uint32_t pid);
/* The name of a thread, of any bytes; shown from here on. */
void trace_json_name(struct trace_json *j, uint32_t tid, const char *name);
/* An event by that thread; scale: of its ticks. */
void trace_json_event(
	struct trace_json *j, uint32_t tid, const struct trace_event *e, const struct trace_scale *scale);
/* A whole event, of TRACE_TEXT_MAX bytes at most. */
void trace_json_text(struct trace_json *j, const char *text, size_t length);
/* The counter, when it has changed: that many were dropped up to that time. */
void trace_json_dropped(struct trace_json *j, uint64_t dropped, uint64_t now);

/* Writes what is in the buffer, and the trailer. 0, or j->err. */
int trace_json_flush(struct trace_json *j);
/* The same, and cuts off what is behind it. */
int trace_json_close(struct trace_json *j);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A timeline of what the device does, in a file in the Chrome trace event format (JSON array form), which
 * Perfetto and chrome://tracing open: spans and points per thread.
 *
 * Off (the default) it costs one relaxed load per site. On, each thread writes events of 16 or 32 bytes into
 * a ring of its own without locks or system calls (trace_ring.h); a writer thread of low priority moves them,
 * as they are, into a spool beside the file (trace_spool.h), FILE.spool; closing formats them
 * (trace_finish.h) and removes the spool. Formatting takes some tenths of a microsecond per event, and the
 * text is six to ten times as long.
 *
 * The file is complete JSON at any time: until it is closed, that of what had been recorded when it was
 * opened. A process that is killed, or that replaces its program, leaves the spool, with all but what was
 * recorded since the writer's last pass (20 ms at most, when there is a processor for it): whoever gets its
 * lock finishes the file. `unpin run --trace` leaves a process for that, and `unpin trace FILE` does it.
 *
 * Bounded: memory (TRACE_RINGS rings of TRACE_RING_UNITS units, touched as they fill, and the line of texts),
 * and the spool (TRACE_SPOOL_MOST bytes each time it is opened). What does not fit, there or on the disk, is
 * dropped and counted; the count is in the file (counter "dropped_events").
 *
 * Times are CLOCK_MONOTONIC in microseconds, so that the files of several processes fit together.
 *
 * Threads: everything but open, close and abandon from any thread, also inside malloc and munmap (but for
 * trace_text). An event in a signal handler that interrupted another event of its thread is dropped and
 * counted. A thread's first event maps its ring; nothing allocates by malloc. open and close are serialised
 * by the caller.
 */
#ifndef UNPIN_BASE_TRACE_H
#define UNPIN_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

#define TRACE_RINGS	 64u
#define TRACE_RING_UNITS 32768u /* of 16 bytes; a power of two. A moment takes one, another event two */

/*
 * SPAN: by one thread, nested in its other spans. FLIGHT: a span that may overlap others of its thread.
 * POINT: a moment.
 */
enum trace_shape { TRACE_SPAN, TRACE_FLIGHT, TRACE_POINT };

/* X(id, name in the file, category, shape, name of the first argument, of the second; "" for none). The file
 * has addresses ("addr") as hexadecimal texts, causes ("cause", enum unpin_storm_cause) as words, and other
 * arguments as numbers, or as hexadecimal texts when a double could not hold them. */
#define TRACE_SITES(X)                                                                                       \
	X(FAULT, "fault", "odp", FLIGHT, "addr", "pages")	  /* raised to mapped */                     \
	X(RESOLVE, "resolve", "odp", SPAN, "addr", "pages")	  /* by whoever resolves */                  \
	X(INVALIDATE, "invalidate", "odp", SPAN, "addr", "bytes") /* by whoever unmaps */                    \
	X(PREFETCH, "prefetch", "odp", SPAN, "addr", "bytes")	  /* one chunk */                            \
	X(POST_SEND, "post_send", "verbs", POINT, "qp", "wr_id")  /* per work request */                     \
	X(POST_RECV, "post_recv", "verbs", POINT, "qp", "wr_id")                                             \
	X(COMPLETION, "completion", "verbs", POINT, "qp", "wr_id") /* it became visible to polling */        \
	X(STORM, "storm", "odp", FLIGHT, "cause", "")		   /* began to over */

enum trace_site {
#define X(id, ...) TRACE_##id,
	TRACE_SITES(X)
#undef X
		TRACE_SITE_COUNT
};

extern _Atomic bool trace_on;

/*
 * Begins. The file is path when nobody has written to it yet; this process goes on where it ended when it
 * wrote there before; else (another process of the same run has it) it is path.PID, replaced. 0; -EBUSY: it
 * is on; -EINVAL: no regular file; -EEXIST: its spool is somebody else's; or the negative errno of opening,
 * writing or starting a thread.
 */
int trace_open(const char *path);
/* Ends, and formats what was recorded: it may take seconds after millions of events. No-op when off. The end
 * of the process does it too (exit, not _exit or a signal). When the disk is full, what fits is in the file,
 * and the spool stays. */
void trace_close(void);
/* In a forked child: forget it without locks; the file stays the parent's. No-op when off. */
void trace_abandon(void);

/* The slow half; call the inlines. Times are clock_ns(); end == begin for a POINT. */
void trace_record(enum trace_site site, uint64_t begin_ns, uint64_t end_ns, uint64_t a, uint64_t b);

static inline bool trace_enabled(void)
{
	return __builtin_expect(atomic_load_explicit(&trace_on, memory_order_relaxed), 0);
}

/* A POINT, now: cheaper than trace_record with a clock that was read for it. */
void trace_moment(enum trace_site site, uint64_t a, uint64_t b);

static inline void trace_point(enum trace_site site, uint64_t a, uint64_t b)
{
	if (trace_enabled())
		trace_moment(site, a, b);
}

/*
 * Adds a whole event: one JSON object of the Chrome trace event format, as text on one line, without a comma
 * or newline around it, of at most TRACE_TEXT_MAX bytes (no 0 needed); the caller answers for its being
 * right. For what happens now and then: it takes a lock. From any thread, under any lock of base/lock.h, but
 * not from a signal handler and not where malloc or munmap may be on the stack. Texts stand in the file in
 * the order in which they came. While off: nothing. One that is too long, or that finds TRACE_TEXT_QUEUE
 * bytes waiting, is dropped and counted.
 */
#define TRACE_TEXT_MAX	 8192u
#define TRACE_TEXT_QUEUE (256u << 10)
void trace_text(const char *json, size_t length);

/* A time of clock_ns() as the value of "ts" or "dur", in microseconds: "1234.567". Returns out. */
#define TRACE_US_BYTES 24
char *trace_us(char out[TRACE_US_BYTES], uint64_t ns);

/* When a span begins: the time, or 0 while off. */
static inline uint64_t trace_begin(void)
{
	return trace_enabled() ? clock_ns() : 0;
}

#endif

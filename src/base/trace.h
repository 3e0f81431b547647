/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A timeline of what the device does, written to a file in the Chrome trace event format (JSON array form),
 * which Perfetto and chrome://tracing open: spans and points per thread.
 *
 * Off (the default) it costs one relaxed load per site. On, each thread writes fixed-size events into a ring
 * of its own without locks or system calls; a writer thread drains the rings into the file a few times a
 * second. Memory is bounded (TRACE_RINGS rings of TRACE_EVENTS events); what does not fit is dropped,
 * counted, and the count is in the file.
 *
 * Threads: trace_span and trace_point from anywhere but signal handlers; they do not allocate after a
 * thread's first event. open and close are serialised by the caller.
 */
#ifndef UNPIN_BASE_TRACE_H
#define UNPIN_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* X(id, name in the file, category, name of the first argument, of the second; "" for none) */
#define TRACE_SITES(X)                                                                                       \
	X(FAULT, "fault", "odp", "addr", "pages")	    /* span: raise to resume */                      \
	X(RESOLVE, "resolve", "odp", "addr", "pages")	    /* span: by whoever resolves */                  \
	X(INVALIDATE, "invalidate", "odp", "addr", "bytes") /* span */                                       \
	X(PREFETCH, "prefetch", "odp", "addr", "bytes")	    /* span: one chunk */                            \
	X(POST_SEND, "post_send", "verbs", "qp", "wr_id")   /* point, per work request */                    \
	X(POST_RECV, "post_recv", "verbs", "qp", "wr_id")   /* point */                                      \
	X(COMPLETION, "completion", "verbs", "qp", "wr_id") /* point: the completion became visible */       \
	X(STORM, "storm", "odp", "cause", "")		    /* span: began to over */

enum trace_site {
#define X(id, name, category, a, b) TRACE_##id,
	TRACE_SITES(X)
#undef X
		TRACE_SITE_COUNT
};

extern _Atomic bool trace_on;

/* Begins: creates path (or, if another process of the same run has taken it, path.PID). 0 or negative errno.
 */
int trace_open(const char *path);
/* Drains, completes the file and ends. No-op when off. */
void trace_close(void);
/* In a forked child: forget it without locks; the file stays the parent's. */
void trace_abandon(void);

/* The slow half; call the inlines. Times are clock_ns(). */
void trace_record(enum trace_site site, uint64_t begin_ns, uint64_t end_ns, uint64_t a, uint64_t b);

static inline bool trace_enabled(void)
{
	return __builtin_expect(atomic_load_explicit(&trace_on, memory_order_relaxed), 0);
}

#endif

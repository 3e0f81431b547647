/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Timelines of processes that ended without finishing them (base/trace_finish.h): the spools beside a
 * timeline, and a process that stays beside a program for them.
 */
#ifndef UNPIN_TOOL_TRACE_WATCH_H
#define UNPIN_TOOL_TRACE_WATCH_H

#include <stdbool.h>

/* Called for a spool; returns whether to go on. */
typedef bool (*trace_watch_fn)(const char *spool, void *arg);

/*
 * Every spool of that run: of the timeline itself, TIMELINE.spool, and of its other processes,
 * TIMELINE.PID.spool; in no order. 0, or the negative errno of reading the directory. Not thread safe.
 */
int trace_watch_each(const char *timeline, trace_watch_fn fn, void *arg);

/*
 * Leaves a process that finishes the timelines of that run: within a second when a process of it has been
 * killed or has replaced its program; at the end of this process, which is about to become the program, at
 * once; then it waits for those that still write, and ends. It is no child of this process, in a session of
 * its own, without standard streams. 0 or negative errno.
 *
 * The first process of a pid namespace, and one that is a subreaper, would find it as a child that the
 * program did not make: none is left there, and `unpin trace` finishes what a killed process leaves.
 */
int trace_watch_start(const char *timeline);

#endif

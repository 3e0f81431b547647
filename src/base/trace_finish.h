/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * From a spool to the timeline: formats what a process recorded. By the process itself when it closes the
 * timeline, and for a process that had no time for that (it was killed, or began another program) by whoever
 * gets the spool's lock.
 *
 * Threads: any; no state. Maps what it needs (under 1.5 MiB) and allocates nothing.
 */
#ifndef UNPIN_BASE_TRACE_FINISH_H
#define UNPIN_BASE_TRACE_FINISH_H

#include <stdbool.h>
#include <stdint.h>

/* Where the timeline stands then. */
struct trace_finish {
	uint64_t end; /* trace_spool_head.resume of what is recorded later */
	uint64_t flights, dropped;
};

/*
 * Reads the spool and writes the timeline on from where the spool's head says, to the file of the descriptor
 * `timeline`, which is complete JSON at the end, whatever is returned. 0; -EINVAL: this is no spool, or it is
 * damaged (what stood before the damage is in the timeline), or it does not belong to this file; -ENOMEM; or
 * the negative errno of reading or writing (-ENOSPC: what fits is there and the rest is counted as dropped).
 */
int trace_finish(int spool, int timeline, struct trace_finish *out);

/*
 * The same for the spool of that name, and removes it: when nobody has its lock, or, wait, when who has it
 * ends. 0: done, or somebody else did it; -EAGAIN: a process is writing it; -ENOENT: there is none, or the
 * timeline has gone; -EPERM: another user's, or linked to from elsewhere; or as above, and then the spool
 * stays.
 */
int trace_finish_spool(const char *path, bool wait);

/*
 * What has been recorded so far by a process that runs, with what its timeline has already, as a timeline in
 * a new file. 0; -EEXIST: there is such a file; -ENOENT: there is no spool; or as above, and then there may
 * be a file.
 */
int trace_finish_copy(const char *path, const char *copy);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Reading the segment that a process with an open device exports (base/segment.h), without stopping the
 * process and without trusting it: the segment is copied with pread(2), never mapped, so that a process which
 * truncates it harms no one; sizes must be exactly this version's; every row is copied under its sequence;
 * texts are made printable.
 */
#ifndef UNPIN_TOOL_ATTACH_H
#define UNPIN_TOOL_ATTACH_H

#include <sys/types.h>

#include "base/segment.h"

struct attach {
	int fd;
	pid_t pid;	  /* as this command sees it; 0 for attach_fd */
	char command[64]; /* /proc/PID/comm */
	/* The private copy. Rows beyond regions_high and qps_high are not filled in; rows that changed faster
	 * than they could be read have kind UNPIN_REGION_NONE; slow faults that were changing are free. */
	struct unpin_segment *copy;
	unsigned unreadable; /* rows of the latter kind */
};

/*
 * Finds and opens the segment of a process. 0; -ESRCH: no such process; -EACCES: it belongs to another user
 * or cannot be inspected; -ENODEV: it has no device open; other errno from the system. Nothing is read yet.
 */
int attach_open(struct attach *a, pid_t pid);

/* The same for a segment that is already open; takes over fd. */
int attach_fd(struct attach *a, int fd);

/* Copies a new snapshot. 0; -EPROTO: no segment, or damaged; -ESTALE: one of an older version of unpin;
 * -EPROTONOSUPPORT: of a newer one; -ENODEV: inherited by fork from a process of another number; -EIO or
 * another errno of reading. */
int attach_read(struct attach *a);

/* Copies, after attach_read, how memory is used: copy->usage of the regions that are in the copy, and
 * copy->past. The usage of a region that has changed since is emptied; rows of past[] that changed faster
 * than they could be read have kind UNPIN_REGION_NONE. 0 or an error as above. */
int attach_read_usage(struct attach *a);

void attach_close(struct attach *a);

/* The numbers of all processes, in order; to be freed. Returns how many. */
size_t attach_processes(pid_t **out);

/* What such an error means, as a sentence without the process. */
const char *attach_error(int err);

#endif

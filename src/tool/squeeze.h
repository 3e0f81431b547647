/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A memory cgroup with a limit, and swap, for this process: so that what a device does under memory pressure
 * can be measured. It needs root. A keeper process takes everything away again when squeeze_end is called,
 * and also when this process ends in whatever way. One at a time; not thread safe.
 */
#ifndef UNPIN_TOOL_SQUEEZE_H
#define UNPIN_TOOL_SQUEEZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SQUEEZE_WHY_MAX 256
/* There may be this much above the limit when nothing can leave, and as much again if that is not enough,
 * until something can. Bytes. */
#define SQUEEZE_ROOM (8u << 20)

struct squeeze {
	pid_t owner;	  /* who began it; the names of what is made end with it */
	char cgroup[256]; /* the folder made: .../unpin-squeeze-OWNER */
	char home[512];	  /* where this process was before */
	bool v1;
	int turn;  /* a socket whose name is held while the squeeze lasts */
	int alive; /* the keeper reads from its other end */
	pid_t keeper;
	char why[SQUEEZE_WHY_MAX];
};

/*
 * Makes the cgroup, limited to limit bytes, and swap_bytes of swap (a zram device, or where there is none a
 * file, /var/tmp/unpin-squeeze-swap-OWNER; swapon(8) shows "unpin-OWNER" as the label of either), which is
 * preferred to what the machine has. It forks: before a device is opened. One squeeze at a
 * time on a machine: when swap is taken away, what is in it must go back to where it came from, and the
 * kernel kills a process whose limit does not allow that. 0 or negative errno with a sentence in why: -EPERM
 * when not root, -EBUSY while somebody else's squeeze lasts, -EOPNOTSUPP when there is no memory controller
 * or no swap to be had.
 */
int squeeze_begin(struct squeeze *s, uint64_t limit, uint64_t swap_bytes);
/* This process, with all its threads, and what it uses from now on, counts. 0 or negative errno with why. */
int squeeze_enter(struct squeeze *s);
/* Another limit. The kernel takes back what is above it before this returns; -EBUSY when it cannot at this
 * time. A process is slowed down by its limit, or waits, and is not killed. */
int squeeze_limit(struct squeeze *s, uint64_t limit);
/* Bytes that count now. */
uint64_t squeeze_usage(const struct squeeze *s);
/* Goes back to where this process was and waits until everything is taken away. Harmless when zeroed. */
void squeeze_end(struct squeeze *s);

#endif

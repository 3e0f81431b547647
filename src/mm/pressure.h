/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * How short of memory this process is: time lost to it so far, and how much more it may use.
 *
 * Both come from one sample that is taken when somebody asks and the last one is older than 100 ms; whoever
 * asks while another thread is taking it gets the last one. The memory control group (version 1 or 2) is
 * found through /proc/self/cgroup and /proc/self/mountinfo, wherever it is mounted, and looked for again
 * every ten seconds, since a process can be moved to another one.
 *
 * Any thread; no locks; no allocation; descriptors are open during a call only; errno is kept. A child starts
 * anew.
 */
#ifndef UNPIN_MM_PRESSURE_H
#define UNPIN_MM_PRESSURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Microseconds, since it began, that at least one task of this process's control group (version 2), or where
 * that cannot be read, of the machine, stood still for want of memory: "some ... total=" of memory.pressure
 * or /proc/pressure/memory. Only differences mean something, and a move to another group is a jump, backwards
 * too. UINT64_MAX: not known (no PSI, or UNPIN_DISABLE=psi).
 */
uint64_t pressure_stall_us(void);

/*
 * Bytes that may still become resident before something has to give: the least of what is left up to
 * memory.max and memory.high (version 2) or memory.limit_in_bytes (version 1) of this process's control group
 * and each group above it that is visible here, and of the machine's MemAvailable. A group's clean file pages
 * that were not used lately (inactive_file) count as room; what could be swapped out does not. 0 at the
 * limit; INT64_MAX: not known.
 */
int64_t pressure_headroom(void);

/*
 * Whether bytes more, and some for others, fit below the nearest limit; they are taken for used until the
 * next sample. Cheap: a sample more often than every 100 ms is taken only as the limit comes near.
 */
bool pressure_room_for(size_t bytes);

/* For facility.c: whether the kernel tells stall times. 0 or a negative errno. */
int pressure_probe_stall(void);

#endif

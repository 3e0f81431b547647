/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Real memory pressure: a swap device of this test's own (a fresh zram, or a file where there is none) and a
 * memory cgroup with a limit. Needs root and a kernel with both; skips the case otherwise, saying what is
 * missing.
 *
 * A keeper process takes everything away again when the process that called squeeze_begin() has ended,
 * whichever way.
 */
#ifndef UNPIN_TESTS_USERS_SQUEEZE_H
#define UNPIN_TESTS_USERS_SQUEEZE_H

#include <stddef.h>

struct squeeze {
	char cgroup[256]; /* its folder */
	size_t limit;
	int alive; /* closed by our end */
};

/* Called before verbs are used, in the case's own process. limit: bytes of the cgroup; swap: of the device.
 */
void squeeze_begin(struct squeeze *s, size_t limit, size_t swap);
/* The calling process, and what it forks from now on, is under the limit. */
void squeeze_enter(const struct squeeze *s);
/* Bytes charged to the cgroup now. */
size_t squeeze_usage(const struct squeeze *s);

#endif

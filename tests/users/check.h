/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The frame of the programs in this folder. Each case runs in a process of its own, in a process group of its
 * own: a crash, a hang or a device left open spoils nothing but its case, and the process that forks has
 * never touched verbs. Output is in cmocka's format. The exit status is the number of failed cases.
 *
 * The checks may be used in any process and thread of a case; a failing one ends its process with status 1,
 * and the process of the case fails with it if it is the case's own or was started by peer_start() (pair.h).
 */
#ifndef UNPIN_TESTS_USERS_CHECK_H
#define UNPIN_TESTS_USERS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct check_case {
	const char *name;
	void (*run)(void);
};

#define CASE(function)                                                                                       \
	{                                                                                                    \
#function, function                                                                          \
	}
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Runs all cases, or those whose names are given as arguments. Seconds that one case may take: CHECK_TIMEOUT,
 * counted anew each time that it says check_goes_on(). */
#define CHECK_TIMEOUT 40
int check_main(const struct check_case *cases, size_t n, int argc, char **argv);

/* For cases whose length is the machine's affair (a disk that swaps): they have hung when they say nothing
 * any more. Any process and thread of the case. */
void check_goes_on(void);

void check_failed(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
struct squeeze;

/*
 * Real memory pressure (tool/squeeze.h): begins a squeeze, once whoever squeezes on this machine now has
 * ended. Skips the case, saying what is missing, when there is none to be had or the wait is too long. Before
 * verbs are used, in the case's own process. All is taken away when that process has ended, whichever way.
 */
void check_squeeze(struct squeeze *s, uint64_t limit, uint64_t swap_bytes);

/* Ends the case as skipped. Only in the case's own process. */
void check_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define check(condition)                                                                                     \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			check_failed(__FILE__, __LINE__, "%s", #condition);                                  \
	} while (0)

/* With errno in the message. */
#define check_sys(condition)                                                                                 \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			check_failed(__FILE__, __LINE__, "%s (errno %m)", #condition);                       \
	} while (0)

#define check_int(got, want)                                                                                 \
	do {                                                                                                 \
		long long got_ = (long long)(got), want_ = (long long)(want);                                \
		if (got_ != want_)                                                                           \
			check_failed(__FILE__, __LINE__, "%s is %lld, not %lld", #got, got_, want_);         \
	} while (0)

/* Seconds since some fixed point. */
double now(void);
/* Sleeps for so many milliseconds. */
void nap(int ms);

/* Fresh anonymous private memory, and its opposite. Lengths are rounded up to pages by the kernel. */
void *fresh(size_t length);
void drop(void *memory, size_t length);
/* The same at an address where the kernel puts nothing by itself: a hole made there stays one. */
void *fresh_apart(size_t length);
/* Bytes that depend on the seed and the position, and the check that they are there. */
void fill(void *memory, size_t length, unsigned seed);
void check_filled(const void *memory, size_t length, unsigned seed);
void check_zero(const void *memory, size_t length);

/* A field of /proc/self/status in KiB ("VmPin", "VmLck", "VmRSS"). */
long status_kib(const char *field);
/* Of a file of the kernel that holds one number. -1 or false: there is none, or it cannot be set. */
long number_in(const char *path);
bool set_number(const char *path, long value);

#endif

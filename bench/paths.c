/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What functions in front of libc's cost a program whose paths are not the device's: the function behind is
 * called directly, and through ours, in turns. The fastest round of each, nanoseconds per
 * call: on a busy machine the others tell of the machine.
 */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "posix/libc.h"

#define ROUNDS 200
#define CALLS  500

static const char here[] = "/proc/self/../sys/kernel/random/../../kernel/ostype";
static const char nowhere[] = "/usr/lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libnowhere.so.6";

static double timed(void (*call)(void))
{
	uint64_t begin = clock_ns();

	for (int i = 0; i < CALLS; i++)
		call();
	return (double)(clock_ns() - begin) / CALLS;
}

static void open_ours(void)
{
	syscall(SYS_close, open(here, O_RDONLY));
}

static void open_libcs(void)
{
	syscall(SYS_close, LIBC(open)(here, O_RDONLY));
}

static void stat_ours(void)
{
	struct stat st;

	stat(here, &st);
}

static void stat_libcs(void)
{
	struct stat st;

	LIBC(stat)(here, &st);
}

static void miss_ours(void)
{
	(void)access(nowhere, F_OK);
}

static void miss_libcs(void)
{
	LIBC(access)(nowhere, F_OK);
}

static void compare(const char *name, void (*ours)(void), void (*libcs)(void))
{
	double direct = 1e9, through = 1e9, t;

	for (int i = 0; i < ROUNDS; i++) {
		t = timed(libcs);
		direct = t < direct ? t : direct;
		t = timed(ours);
		through = t < through ? t : through;
	}
	printf("%-28s libc's %7.1f ns   ours %7.1f ns   %+5.1f ns\n", name, direct, through,
		through - direct);
}

int main(void)
{
	compare("open and close", open_ours, open_libcs);
	compare("stat", stat_ours, stat_libcs);
	compare("access, nothing there", miss_ours, miss_libcs);
	return 0;
}

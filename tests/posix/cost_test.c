/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A program that never says "infiniband" pays nothing: one call of the function behind, and no system call.
 */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "posix/libc.h"

static unsigned behind, system_calls;
static int outcome, reason;
static const char *asked;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	system_calls++;
	errno = ENOSYS;
	return -1;
}

static int note(const char *path)
{
	behind++;
	asked = path;
	errno = reason;
	return outcome;
}

static int fake_open(const char *path, int flags, ...)
{
	return note(path);
}

static int fake_openat(int dirfd, const char *path, int flags, ...)
{
	return note(path);
}

static int fake_stat(const char *path, struct stat *st)
{
	return note(path);
}

static int fake_fstatat(int dirfd, const char *path, struct stat *st, int flags)
{
	return note(path);
}

static int fake_access(const char *path, int mode)
{
	return note(path);
}

static ssize_t fake_readlink(const char *path, char *buf, size_t size)
{
	return note(path);
}

static FILE *fake_fopen(const char *path, const char *mode)
{
	note(path);
	return NULL;
}

static DIR *fake_opendir(const char *path)
{
	note(path);
	return NULL;
}

/* Every function with one path and one outcome. */
static void each_calls_once(const char *path)
{
	struct stat st;
	char buf[8];

#define ONCE(call, want)                                                                                     \
	do {                                                                                                 \
		behind = 0;                                                                                  \
		asked = NULL;                                                                                \
		assert_true((call) == (want));                                                               \
		assert_int_equal(behind, 1);                                                                 \
		assert_ptr_equal(asked, path);                                                               \
		assert_int_equal(errno, reason);                                                             \
	} while (0)
	ONCE(open(path, O_RDONLY), outcome);
	ONCE(openat(7, path, O_RDONLY), outcome);
	ONCE(stat(path, &st), outcome);
	ONCE(fstatat(7, path, &st, 0), outcome);
	ONCE(access(path, F_OK), outcome);
	ONCE(readlink(path, buf, sizeof(buf)), outcome);
	ONCE(fopen(path, "r"), NULL);
	ONCE(opendir(path), NULL);
	assert_int_equal(system_calls, 0);
}

static void other_paths_cost_one_call(void **state)
{
	struct libc_functions kept = libc_functions;
	static const char *const paths[] = { "/etc/hosts", "relative", "", "/sys/class/net/eth0", "/dev/null",
		"/usr/include/infinibanc/verbs.h", "infinibaninfiniban" };

	libc_functions.open = fake_open;
	libc_functions.openat = fake_openat;
	libc_functions.stat = fake_stat;
	libc_functions.fstatat = fake_fstatat;
	libc_functions.access = fake_access;
	libc_functions.readlink = fake_readlink;
	libc_functions.fopen = fake_fopen;
	libc_functions.opendir = fake_opendir;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		outcome = 0;
		reason = 4711;
		each_calls_once(paths[i]);
		outcome = -1;
		reason = ENOENT;
		each_calls_once(paths[i]);
		reason = EACCES;
		each_calls_once(paths[i]);
	}
	/* What the kernel has not read is not looked at, whatever it is. */
	outcome = -1;
	reason = EFAULT;
	each_calls_once((const char *)(uintptr_t)16);
	reason = EMFILE;
	each_calls_once((const char *)(uintptr_t)16);
	libc_functions = kept;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(other_paths_cost_one_call) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

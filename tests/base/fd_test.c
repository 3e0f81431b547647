/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What is known of the device's descriptors when others close them and take their numbers; and close() and
 * its relatives in front of libc's, which are linked into this program. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/fd.h"

int close_range(unsigned first, unsigned last, int flags);
void closefrom(int lowest);

static int null(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* As a program does that the library does not see. */
static void replace(int fd)
{
	int other = open("/", O_RDONLY | O_CLOEXEC);

	assert_true(other >= 0);
	assert_int_equal(syscall(SYS_dup3, other, fd, O_CLOEXEC), fd);
	syscall(SYS_close, other);
}

static int setup(void **state)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
	return setrlimit(RLIMIT_NOFILE, &limit);
}

static void a_hidden_descriptor_lies_high_and_is_known(void **state)
{
	int fd = fd_move_high(null());

	assert_true(fd >= 100);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_true(fd_is_ours(fd) && fd_is_hidden(fd));
	assert_int_equal(fd_next_hidden(0), fd);
	assert_int_equal(fd_next_hidden(fd + 1), -1);
	fd_close(fd);
	assert_false(is_open(fd) || fd_is_hidden(fd));
	assert_int_equal(fd_next_hidden(0), -1);
}

static void under_a_small_limit_it_lies_as_high_as_it_may(void **state)
{
	struct rlimit was, small;
	int fd;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	small = was;
	small.rlim_cur = 256;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
	fd = fd_move_high(null());
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_int_equal(fd, 224);
	fd_close(fd);
}

static void what_is_not_there_is_passed_through(void **state)
{
	errno = ENFILE;
	assert_int_equal(fd_move_high(-1), -1);
	assert_int_equal(errno, ENFILE);
	assert_false(fd_is_ours(-1) || fd_is_hidden(-1) || fd_is_hidden(INT_MAX));
	assert_int_equal(fd_next_hidden(INT_MAX), -1);
}

static void what_took_its_place_is_not_ours_and_stays_open(void **state)
{
	int fd = fd_move_high(null());

	replace(fd);
	errno = 5;
	assert_false(fd_is_ours(fd) || fd_is_hidden(fd));
	fd_close(fd);
	assert_int_equal(errno, 5);
	assert_true(is_open(fd));
	/* Nothing is noted of it any more. */
	assert_true(fd_is_ours(fd));
	fd_close(fd);
	assert_false(is_open(fd));
}

static void what_is_closed_is_not_ours(void **state)
{
	int fd = fd_move_high(null());

	syscall(SYS_close, fd);
	assert_false(fd_is_ours(fd) || fd_is_hidden(fd));
	fd_close(fd);
}

static void sockets_are_told_apart(void **state)
{
	int fd = fd_move_high(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	int other = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd_is_ours(fd));
	assert_int_equal(syscall(SYS_dup3, other, fd, O_CLOEXEC), fd);
	assert_false(fd_is_ours(fd));
	fd_forget(fd);
	syscall(SYS_close, fd);
	syscall(SYS_close, other);
}

static void close_spares_hidden_ones_only(void **state)
{
	int fd = fd_move_high(null()), shown = null(), plain = null();

	fd_note(shown, false);
	assert_int_equal(close(fd), -1);
	assert_int_equal(errno, EBADF);
	assert_true(is_open(fd));
	assert_int_equal(close(shown), 0);
	assert_int_equal(close(plain), 0);
	/* A file of the program in its place is the program's to close. */
	replace(fd);
	assert_int_equal(close(fd), 0);
	assert_false(is_open(fd));
	fd_forget(fd);
}

static void ranges_are_closed_around_hidden_ones(void **state)
{
	int a = fd_move_high(null()), b = fd_move_high(null()), c = fd_move_high(null());
	int from = fcntl(0, F_DUPFD_CLOEXEC, a > b ? a : b), to = fcntl(0, F_DUPFD_CLOEXEC, c + 10);

	fd_forget(b);
	assert_int_equal(close_range((unsigned)a, (unsigned)to, 0), 0);
	assert_true(is_open(a) && is_open(c));
	assert_false(is_open(b) || is_open(from) || is_open(to));
	assert_int_equal(close_range((unsigned)a, (unsigned)a, 0), 0);
	assert_true(is_open(a));
	assert_int_equal(close_range(5, 4, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(close_range((unsigned)a, UINT_MAX, 1 << 20), -1);
	fd_close(a);
	fd_close(c);
}

static void closefrom_spares_them_too(void **state)
{
	int a = fd_move_high(null()), high = fcntl(0, F_DUPFD_CLOEXEC, a + 1), low;

	low = fcntl(0, F_DUPFD_CLOEXEC, a - 1);
	closefrom(low < a ? low : a);
	assert_true(is_open(a));
	assert_false(is_open(high));
	fd_close(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hidden_descriptor_lies_high_and_is_known),
		cmocka_unit_test(under_a_small_limit_it_lies_as_high_as_it_may),
		cmocka_unit_test(what_is_not_there_is_passed_through),
		cmocka_unit_test(what_took_its_place_is_not_ours_and_stays_open),
		cmocka_unit_test(what_is_closed_is_not_ours),
		cmocka_unit_test(sockets_are_told_apart),
		cmocka_unit_test(close_spares_hidden_ones_only),
		cmocka_unit_test(ranges_are_closed_around_hidden_ones),
		cmocka_unit_test(closefrom_spares_them_too),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The threshold is read once per process, so each case logs in a child whose standard error is a pipe. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"

static char printed[8192];

static void run(const char *level, void (*body)(void))
{
	int fd[2], status;
	ssize_t n, used = 0;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		dup2(fd[1], STDERR_FILENO);
		close(fd[0]);
		close(fd[1]);
		if (level)
			setenv("UNPIN_LOG", level, 1);
		else
			unsetenv("UNPIN_LOG");
		body();
		_exit(0);
	}
	close(fd[1]);
	while ((n = read(fd[0], printed + used, sizeof(printed) - 1 - (size_t)used)) > 0)
		used += n;
	printed[used] = '\0';
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void one_of_each(void)
{
	log_error("an error %d", 1);
	log_warn("a warning");
	log_info("some information");
	log_debug("a detail");
}

static void errors_and_warnings_are_printed_by_default(void **state)
{
	run(NULL, one_of_each);
	assert_string_equal(printed, "unpin: error: an error 1\nunpin: warn: a warning\n");
}

static void the_level_selects_what_is_printed(void **state)
{
	run("error", one_of_each);
	assert_string_equal(printed, "unpin: error: an error 1\n");
	run("info", one_of_each);
	assert_string_equal(
		printed, "unpin: error: an error 1\nunpin: warn: a warning\nunpin: some information\n");
	run("debug", one_of_each);
	assert_non_null(strstr(printed, "unpin: a detail\n"));
}

static void an_unknown_level_is_reported_once_and_warnings_stay_on(void **state)
{
	char *report;

	run("loud", one_of_each);
	report = strstr(printed, "UNPIN_LOG=loud");
	assert_non_null(report);
	assert_null(strstr(report + 1, "UNPIN_LOG=loud"));
	assert_non_null(strstr(printed, "unpin: warn: a warning\n"));
	assert_null(strstr(printed, "some information"));
}

static void an_empty_level_is_no_level(void **state)
{
	run("", one_of_each);
	assert_string_equal(printed, "unpin: error: an error 1\nunpin: warn: a warning\n");
}

static void long_line(void)
{
	static char text[2000];

	memset(text, 'x', sizeof(text) - 1);
	log_error("%s", text);
}

static void a_long_message_is_cut_and_still_ends_its_line(void **state)
{
	size_t n;

	run(NULL, long_line);
	n = strlen(printed);
	assert_in_range(n, 100, 512);
	assert_int_equal(printed[n - 1], '\n');
	assert_ptr_equal(strchr(printed, '\n'), printed + n - 1);
}

static void with_errno(void)
{
	errno = ENOTTY;
	log_error("message");
	if (errno != ENOTTY)
		_exit(1);
	close(STDERR_FILENO);
	log_error("message that cannot be written");
	if (errno != ENOTTY)
		_exit(1);
}

static void logging_keeps_errno(void **state)
{
	run(NULL, with_errno);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_and_warnings_are_printed_by_default),
		cmocka_unit_test(the_level_selects_what_is_printed),
		cmocka_unit_test(an_unknown_level_is_reported_once_and_warnings_stay_on),
		cmocka_unit_test(an_empty_level_is_no_level),
		cmocka_unit_test(a_long_message_is_cut_and_still_ends_its_line),
		cmocka_unit_test(logging_keeps_errno),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

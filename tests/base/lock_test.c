/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Each case plays in a child, with its standard error in a pipe, since what it proves may be that the program
 * ends. Without the checks the wrong cases cannot be told from the right ones and are skipped.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/lock.h"

#ifdef UNPIN_DEBUG_CHECKS
#define CHECKED true
#else
#define CHECKED false
#endif

static struct lock outer = LOCK_INIT(LOCK_REGISTRY), inner = LOCK_INIT(LOCK_FAULTS);
static struct lock twin = LOCK_INIT(LOCK_FAULTS);
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static char printed[1024];

static int play(void (*body)(void))
{
	const struct rlimit no_core = { 0, 0 };
	size_t used = 0;
	int fd[2], status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		signal(SIGABRT, SIG_DFL);
		setrlimit(RLIMIT_CORE, &no_core);
		dup2(fd[1], STDERR_FILENO);
		close(fd[0]);
		close(fd[1]);
		body();
		_exit(0);
	}
	close(fd[1]);
	while ((n = read(fd[0], printed + used, sizeof(printed) - 1 - used)) > 0)
		used += (size_t)n;
	printed[used] = '\0';
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void passes(void (*body)(void))
{
	int status = play(body);

	assert_string_equal(printed, "");
	assert_int_equal(status, 0);
}

static void ends(void (*body)(void), const char *message)
{
	int status;

	if (!CHECKED) {
		print_message("not built with debug_checks\n");
		skip();
	}
	status = play(body);
	assert_non_null(strstr(printed, message));
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void take_in_order(void)
{
	for (int i = 0; i < 2; i++) {
		lock_take(&outer);
		lock_take(&inner);
		lock_drop(&outer);
		lock_drop(&inner);
	}
}

static void locks_in_order_may_be_held_together_and_dropped_in_any(void **state)
{
	passes(take_in_order);
}

static void take_outer_under_inner(void)
{
	lock_take(&inner);
	lock_take(&outer);
}

static void an_outer_lock_under_an_inner_one_ends_the_program_and_names_both(void **state)
{
	ends(take_outer_under_inner, "REGISTRY taken while FAULTS is held");
}

static void take_twins(void)
{
	lock_take(&inner);
	lock_take(&twin);
}

static void two_locks_of_one_rank_end_the_program(void **state)
{
	ends(take_twins, "FAULTS taken while FAULTS is held");
}

static void try_twins(void)
{
	lock_take(&inner);
	lock_try(&twin);
}

static void nor_may_the_second_be_tried(void **state)
{
	ends(try_twins, "a second FAULTS");
}

static void try_outer_under_inner(void)
{
	lock_take(&inner);
	if (!lock_try(&outer))
		_exit(1);
	lock_drop(&outer);
	lock_drop(&inner);
}

static void a_try_is_allowed_in_any_order(void **state)
{
	passes(try_outer_under_inner);
}

static void take_under_tried(void)
{
	if (lock_try(&inner))
		lock_take(&outer);
}

static void but_what_it_took_counts(void **state)
{
	ends(take_under_tried, "REGISTRY taken while FAULTS is held");
}

static void *hold(void *arg)
{
	lock_take(&inner);
	if (lock_try(arg))
		_exit(1);
	lock_drop(&inner);
	return NULL;
}

static void try_what_another_holds(void)
{
	pthread_t thread;

	lock_take(&twin);
	if (pthread_create(&thread, NULL, hold, &twin) || pthread_join(thread, NULL))
		_exit(2);
	lock_drop(&twin);
	take_in_order();
}

static void a_try_that_fails_holds_nothing_and_each_thread_has_its_own_ranks(void **state)
{
	passes(try_what_another_holds);
}

static void drop_what_is_free(void)
{
	lock_drop(&inner);
}

static void dropping_what_is_not_held_ends_the_program(void **state)
{
	ends(drop_what_is_free, "FAULTS dropped and not held");
}

static void wait_a_moment(struct lock *l)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	lock_timedwait(&cond, l, &until);
}

static void wait_under_the_innermost(void)
{
	lock_take(&outer);
	lock_take(&inner);
	wait_a_moment(&inner);
	lock_drop(&inner);
	lock_drop(&outer);
	take_in_order();
}

static void a_wait_gives_the_lock_back(void **state)
{
	passes(wait_under_the_innermost);
}

static void wait_under_the_outer(void)
{
	lock_take(&outer);
	lock_take(&inner);
	wait_a_moment(&outer);
}

static void a_wait_under_a_lock_that_is_not_the_innermost_ends_the_program(void **state)
{
	ends(wait_under_the_outer, "a wait under REGISTRY while the innermost held is FAULTS");
}

static void lend_two(void)
{
	lock_take(&inner);
	lock_lend(&inner);
	lock_take(&twin);
	lock_lend(&twin);
	lock_take(&outer);
	lock_drop(&outer);
	lock_drop_lent(&inner);
	lock_drop_lent(&twin);
	if (!lock_try(&inner))
		_exit(1);
	lock_drop(&inner);
}

static void a_lent_lock_is_taken_but_does_not_count(void **state)
{
	passes(lend_two);
}

static void fork_under_a_lock(void)
{
	int status;
	pid_t pid;

	lock_take(&inner);
	pid = fork();
	if (!pid) {
		lock_reinit(&inner, LOCK_FAULTS);
		take_in_order();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		_exit(1);
	lock_drop(&inner);
	take_in_order();
}

static void a_child_may_begin_anew_with_a_lock_that_its_parent_holds(void **state)
{
	passes(fork_under_a_lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(locks_in_order_may_be_held_together_and_dropped_in_any),
		cmocka_unit_test(an_outer_lock_under_an_inner_one_ends_the_program_and_names_both),
		cmocka_unit_test(two_locks_of_one_rank_end_the_program),
		cmocka_unit_test(nor_may_the_second_be_tried),
		cmocka_unit_test(a_try_is_allowed_in_any_order),
		cmocka_unit_test(but_what_it_took_counts),
		cmocka_unit_test(a_try_that_fails_holds_nothing_and_each_thread_has_its_own_ranks),
		cmocka_unit_test(dropping_what_is_not_held_ends_the_program),
		cmocka_unit_test(a_wait_gives_the_lock_back),
		cmocka_unit_test(a_wait_under_a_lock_that_is_not_the_innermost_ends_the_program),
		cmocka_unit_test(a_lent_lock_is_taken_but_does_not_count),
		cmocka_unit_test(a_child_may_begin_anew_with_a_lock_that_its_parent_holds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/generation.h"
#include "tests/mm/child.h"

static int nothing_yet(void)
{
	return generation_now() == 0 ? 0 : 1;
}

static void there_is_none_before_it_begins(void **state)
{
	assert_true(exited(in_child(nothing_yet), 0));
}

static void it_begins_once(void **state)
{
	uint64_t first;

	assert_int_equal(generation_begin(), 0);
	first = generation_now();
	assert_int_not_equal(first, 0);
	assert_int_equal(generation_begin(), 0);
	assert_int_equal(generation_now(), first);
}

static int child_has_its_own(void)
{
	static uint64_t mine;
	uint64_t parents;

	if (generation_now())
		return 1;
	if (generation_begin() || !generation_now())
		return 2;
	mine = generation_now();
	/* No grandchild gets the number of any ancestor. */
	pid_t pid = fork();
	int status;
	if (!pid) {
		if (generation_now() || generation_begin())
			_exit(1);
		_exit(generation_now() > mine ? 0 : 2);
	}
	waitpid(pid, &status, 0);
	parents = generation_now();
	return exited(status, 0) && parents == mine ? 0 : 3;
}

static void a_child_has_none_until_it_begins_its_own(void **state)
{
	uint64_t before;

	assert_int_equal(generation_begin(), 0);
	before = generation_now();
	assert_true(exited(in_child(child_has_its_own), 0));
	assert_int_equal(generation_now(), before);
}

static void a_child_made_by_the_bare_system_call_sees_it_too(void **state)
{
	int status;
	long pid;

	assert_int_equal(generation_begin(), 0);
	pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		syscall(SYS_exit_group, generation_now() ? 1 : 0);
	waitpid((pid_t)pid, &status, 0);
	assert_true(exited(status, 0));
}

static void *begin(void *arg)
{
	generation_begin();
	return (void *)(uintptr_t)generation_now();
}

static int begun_by_many(void)
{
	pthread_t thread[4];
	void *seen;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, begin, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &seen);
		if (!seen || (uintptr_t)seen != generation_now())
			return 1;
	}
	return 0;
}

static void threads_that_begin_at_once_agree(void **state)
{
	assert_true(exited(in_child(begun_by_many), 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_is_none_before_it_begins),
		cmocka_unit_test(threads_that_begin_at_once_agree),
		cmocka_unit_test(it_begins_once),
		cmocka_unit_test(a_child_has_none_until_it_begins_its_own),
		cmocka_unit_test(a_child_made_by_the_bare_system_call_sees_it_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

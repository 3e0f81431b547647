/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "tests/mm/child.h"

static void every_facility_has_a_name_and_a_reason_when_missing(void **state)
{
	for (int f = 0; f < MM_FACILITIES; f++) {
		assert_non_null(mm_facility_name(f));
		assert_int_equal(mm_have(f), !mm_facility_why_not(f));
		for (int g = 0; g < f; g++)
			assert_string_not_equal(mm_facility_name(f), mm_facility_name(g));
	}
}

static int two_disabled(void)
{
	bool populates = mm_have(MM_POPULATE);

	setenv("UNPIN_DISABLE", ",io_uring,nonsense,,process_vm,populate_not", 1);
	if (mm_have(MM_IO_URING) || mm_have(MM_PROCESS_VM))
		return 1;
	if (strcmp(mm_facility_why_not(MM_IO_URING), "disabled by UNPIN_DISABLE"))
		return 2;
	return mm_have(MM_POPULATE) == populates ? 0 : 3;
}

static void what_the_user_names_is_off_and_nothing_else(void **state)
{
	assert_true(exited(in_child(two_disabled), 0));
}

/* What the child has written to standard error while asking, after setting UNPIN_DISABLE to a word unknown.
 */
static int reports_once(void)
{
	char text[4096];
	int fds[2], lines = 0;
	ssize_t n;

	setenv("UNPIN_DISABLE", "nonsense", 1);
	if (pipe(fds) || dup2(fds[1], STDERR_FILENO) < 0)
		return 1;
	for (int f = 0; f < MM_FACILITIES; f++)
		mm_have(f);
	close(fds[1]);
	close(STDERR_FILENO);
	n = read(fds[0], text, sizeof(text));
	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	return n > 0 && memmem(text, (size_t)n, "nonsense", 8) && lines == 1 ? 0 : 2;
}

static void an_unknown_word_is_reported_once(void **state)
{
	assert_true(exited(in_child(reports_once), 0));
}

/* Has the kernel refuse a system call with EPERM, as containers do. */
static int refuse(int number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(filter[0]), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static int refused(void)
{
	unsetenv("UNPIN_DISABLE");
	if (refuse(SYS_process_vm_readv) || refuse(SYS_io_uring_setup))
		return 77;
	errno = 5;
	if (mm_have(MM_PROCESS_VM) || mm_have(MM_IO_URING) || errno != 5)
		return 1;
	return strcmp(mm_facility_why_not(MM_IO_URING), "refused by the kernel: Operation not permitted") ? 2
													  : 0;
}

static void what_the_kernel_refuses_is_missing_with_its_reason(void **state)
{
	int status = in_child(refused);

	if (exited(status, 77)) {
		print_message("seccomp filters cannot be set here\n");
		skip();
	}
	assert_true(exited(status, 0));
}

static void *ask_all(void *arg)
{
	uintptr_t bits = 0;

	for (int f = 0; f < MM_FACILITIES; f++)
		bits |= (uintptr_t)mm_have(f) << f | (uintptr_t)!mm_facility_why_not(f) << (f + 16);
	return (void *)bits;
}

static int asked_by_many(void)
{
	pthread_t thread[4];
	void *first = NULL, *other;

	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, ask_all, NULL);
	pthread_join(thread[0], &first);
	for (int i = 1; i < 4; i++) {
		pthread_join(thread[i], &other);
		if (other != first)
			return 1;
	}
	return 0;
}

static void threads_that_ask_at_once_hear_the_same(void **state)
{
	assert_true(exited(in_child(asked_by_many), 0));
}

int main(void)
{
	/* The children first: what this process has asked once, they would inherit. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_user_names_is_off_and_nothing_else),
		cmocka_unit_test(an_unknown_word_is_reported_once),
		cmocka_unit_test(what_the_kernel_refuses_is_missing_with_its_reason),
		cmocka_unit_test(threads_that_ask_at_once_hear_the_same),
		cmocka_unit_test(every_facility_has_a_name_and_a_reason_when_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

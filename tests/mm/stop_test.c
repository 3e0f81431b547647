/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A program whose threads change mappings without end can be stopped: by a debugger, by Ctrl-Z, by SIGSTOP,
 * with every notifier. A thread that changes a mapping under userfaultfd waits for the reader, and a thread
 * that waits there stops for nobody.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "mm/interpose.h"
#include "mm/notifier.h"
#include "mm/uffd.h"
#include "tests/mm/child.h"

#define PAGE 4096ul

/* ---- the program ---- */

static void observer(enum mm_change what, uintptr_t addr, size_t len)
{
	(void)what, (void)addr, (void)len;
}

/* Shared with the test: rounds done. */
static _Atomic uint64_t *rounds;

static void *change_mappings(void *unused)
{
	struct vma v;
	char *p;

	for (;;) {
		p = raw_mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		poke(p);
		if (!vma_find((uintptr_t)p, false, &v))
			notifier_cover(&v);
		raw_madvise(p, PAGE, MADV_DONTNEED);
		raw_munmap(p, 4 * PAGE);
		atomic_fetch_add(rounds, 1);
	}
	return NULL;
}

static pid_t start(enum setting_notifier kind, unsigned threads)
{
	pid_t pid;

	atomic_store(rounds, 0);
	pid = fork();
	if (pid) {
		for (int i = 0; i < 5000 && atomic_load(rounds) < 50; i++)
			usleep(1000);
		return pid;
	}
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	if (notifier_start(kind, observer) != kind)
		_exit(1);
	for (unsigned i = 1; i < threads; i++) {
		pthread_t t;

		pthread_create(&t, NULL, change_mappings, NULL);
	}
	change_mappings(NULL);
	_exit(1);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Still at work. */
static bool goes_on(void)
{
	uint64_t before = atomic_load(rounds);

	for (int i = 0; i < 5000; i++) {
		if (atomic_load(rounds) > before + 10)
			return true;
		usleep(1000);
	}
	return false;
}

/* ---- who stops it ---- */

/* Whether the stop is reported within ten seconds. */
static bool stops_on(pid_t pid, int sig)
{
	int status;

	kill(-pid, sig);
	for (int i = 0; i < 10000; i++) {
		if (waitpid(pid, &status, WUNTRACED | WNOHANG) == pid)
			return WIFSTOPPED(status) && WSTOPSIG(status) == sig;
		usleep(1000);
	}
	return false;
}

static void stop_by_signals(enum setting_notifier kind)
{
	pid_t pid = start(kind, 2);
	unsigned stopped = 0, tries = 20;

	assert_true(goes_on());
	for (unsigned i = 0; i < tries; i++) {
		stopped += stops_on(pid, i % 2 ? SIGSTOP : SIGTSTP);
		kill(-pid, SIGCONT);
		if (!goes_on() || stopped != i + 1)
			break;
	}
	end(pid);
	print_message("%s: %u of %u stops\n", kind == NOTIFIER_USERFAULTFD ? "userfaultfd" : "interpose",
		stopped, tries);
	assert_int_equal(stopped, tries);
}

static bool have_gdb(void)
{
	return !system("command -v gdb >/dev/null 2>&1");
}

/* A debugger comes and goes. Whether it is through within its time. */
static bool debug(pid_t pid)
{
	char command[160];

	snprintf(command, sizeof(command),
		"timeout -s KILL 30 gdb -batch -nx -iex 'set auto-load off' -p %d -ex detach >/dev/null 2>&1 "
		"</dev/null",
		pid);
	return !system(command);
}

static void attach_debugger(enum setting_notifier kind)
{
	pid_t pid = start(kind, 2);
	unsigned through = 0, tries = 5;

	assert_true(goes_on());
	while (through < tries && debug(pid) && goes_on())
		through++;
	end(pid);
	print_message("%s: gdb attached and detached %u of %u times\n",
		kind == NOTIFIER_USERFAULTFD ? "userfaultfd" : "interpose", through, tries);
	assert_int_equal(through, tries);
}

static void a_stop_signal_is_obeyed_with_every_notifier(void **state)
{
	stop_by_signals(NOTIFIER_INTERPOSE);
	if (!mm_have(MM_UFFD)) {
		printf("skipped: no userfaultfd: %s\n", mm_facility_why_not(MM_UFFD));
		skip();
	}
	stop_by_signals(NOTIFIER_USERFAULTFD);
}

static void a_debugger_attaches_and_detaches_with_userfaultfd(void **state)
{
	if (!mm_have(MM_UFFD) || !have_gdb()) {
		puts("skipped: needs userfaultfd and gdb");
		skip();
	}
	attach_debugger(NOTIFIER_USERFAULTFD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stop_signal_is_obeyed_with_every_notifier),
		cmocka_unit_test(a_debugger_attaches_and_detaches_with_userfaultfd),
	};

	rounds = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The application's own signals. The device takes faults while it copies; the program must not notice: its
 * SIGSEGV handlers, masks and core dumps are as they were.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

static sigjmp_buf back;
static volatile sig_atomic_t caught;
static void *volatile fault_address;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	caught = sig;
	fault_address = info->si_addr;
	siglongjmp(back, 1);
}

static void handle(int sig, struct sigaction *old)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	sigemptyset(&sa.sa_mask);
	check_sys(sigaction(sig, &sa, old) == 0);
}

/* Faults of this program reach this program's handler, with their address. */
static void own_fault_is_caught(void)
{
	volatile char *nothing = fresh_apart(PAGE);

	check_sys(mprotect((void *)(uintptr_t)nothing, PAGE, PROT_NONE) == 0);
	caught = 0;
	if (!sigsetjmp(back, 1))
		nothing[17] = 1;
	check_int(caught, SIGSEGV);
	check(fault_address == nothing + 17);
	check_sys(munmap((void *)(uintptr_t)nothing, PAGE) == 0);
}

/* A stale entry and a hole: the device's copies fault, the requests fail, no handler of ours here is called.
 */
static void device_faults(struct pair *p)
{
	char *mine = fresh(PAGE), *memory = fresh_apart(4 * PAGE);
	struct ibv_mr *here = reg(&p->a, mine, PAGE, LOCAL),
		      *there = reg(&p->b, memory, 4 * PAGE, REMOTE | ODP);

	caught = 0;
	post(&p->a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
	wait_for(&p->a, IBV_WC_SUCCESS);
	/* Behind the interposer's back, so that the copy itself runs into it. */
	syscall(SYS_munmap, memory, 4 * PAGE);
	post(&p->a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
	wait_for(&p->a, IBV_WC_REM_ACCESS_ERR);
	pair_reconnect(p);
	check_int(caught, 0);
	dereg(here);
	dereg(there);
	drop(mine, PAGE);
}

static void handlers_installed_before_the_device_see_their_faults_only(void)
{
	struct pair p;

	handle(SIGSEGV, NULL);
	pair_open(&p, NULL);
	own_fault_is_caught();
	device_faults(&p);
	own_fault_is_caught();
	pair_close(&p);
	own_fault_is_caught();
}

static void handlers_installed_after_the_device_see_their_faults_only(void)
{
	struct sigaction old;
	struct pair p;

	pair_open(&p, NULL);
	handle(SIGSEGV, &old);
	/* What was there before is what the program had put there: nothing. */
	check(old.sa_handler == SIG_DFL);
	own_fault_is_caught();
	device_faults(&p);
	own_fault_is_caught();
	check_sys(sigaction(SIGSEGV, NULL, &old) == 0);
	check(old.sa_sigaction == on_fault);
	pair_close(&p);
	own_fault_is_caught();
}

static void a_thread_that_blocks_the_signals_may_drive_the_device(void)
{
	sigset_t all, before, after;
	struct pair p;

	sigfillset(&all);
	check_int(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
	pair_open(&p, NULL);
	device_faults(&p);
	pair_close(&p);
	check_int(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
	for (int sig = 1; sig < 32; sig++)
		if (sig != SIGKILL && sig != SIGSTOP)
			check_int(sigismember(&after, sig), 1);
}

static void ignored_stays_ignored_and_default_stays_default(void)
{
	struct sigaction sa = { .sa_handler = SIG_IGN }, got;
	struct pair p;

	check_sys(sigaction(SIGBUS, &sa, NULL) == 0);
	pair_open(&p, NULL);
	device_faults(&p);
	check_sys(sigaction(SIGBUS, NULL, &got) == 0);
	check(got.sa_handler == SIG_IGN);
	check_sys(sigaction(SIGSEGV, NULL, &got) == 0);
	check(got.sa_handler == SIG_DFL);
	pair_close(&p);
}

/* The wait status of a child that does this. */
static int child_status(void (*what)(struct pair *p))
{
	struct pair p;
	int status;
	pid_t pid;

	fflush(NULL);
	check_sys((pid = fork()) >= 0);
	if (!pid) {
		struct rlimit none = { 0, 0 };

		setrlimit(RLIMIT_CORE, &none);
		pair_open(&p, NULL);
		device_faults(&p);
		what(&p);
		_exit(0);
	}
	check_sys(waitpid(pid, &status, 0) == pid);
	return status;
}

static void read_nothing(struct pair *p)
{
	static volatile uintptr_t address = 16;

	(void)p;
	*(volatile char *)address = 1;
}

static void raise_it(struct pair *p)
{
	(void)p;
	raise(SIGSEGV);
}

static void read_beyond_a_file(struct pair *p)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	volatile char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	(void)p;
	memory[0] = 1;
}

static void a_crash_of_the_program_ends_it_by_its_signal(void)
{
	int status = child_status(read_nothing);

	check(WIFSIGNALED(status));
	check_int(WTERMSIG(status), SIGSEGV);
	status = child_status(raise_it);
	check(WIFSIGNALED(status));
	check_int(WTERMSIG(status), SIGSEGV);
	status = child_status(read_beyond_a_file);
	check(WIFSIGNALED(status));
	check_int(WTERMSIG(status), SIGBUS);
}

/* With an on-demand region and its handler in one program: a garbage collector's write barrier, for instance.
 */
static void a_program_may_resolve_faults_of_its_own_in_registered_memory(void)
{
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	handle(SIGSEGV, NULL);
	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE | ODP);
	for (int i = 0; i < 20; i++) {
		check_sys(mprotect(memory, PAGE, PROT_READ) == 0);
		caught = 0;
		if (!sigsetjmp(back, 1))
			*(volatile char *)memory = 5;
		check_int(caught, SIGSEGV);
		check_sys(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) == 0);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(handlers_installed_before_the_device_see_their_faults_only),
		CASE(handlers_installed_after_the_device_see_their_faults_only),
		CASE(a_thread_that_blocks_the_signals_may_drive_the_device),
		CASE(ignored_stays_ignored_and_default_stays_default),
		CASE(a_crash_of_the_program_ends_it_by_its_signal),
		CASE(a_program_may_resolve_faults_of_its_own_in_registered_memory),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

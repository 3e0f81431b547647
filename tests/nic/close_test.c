/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The last close of the device while a thread of the application is telling it of a change to its memory. The
 * linker sends what the device calls then through this file: the change takes as long as the test wants, and
 * the device may be taken apart only when it is over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nic/nic.h"
#include "pair.h"

#define PAGE 4096u

static _Atomic bool holds, inside, taken_apart, taken_apart_inside;
static pid_t closer;
static _Atomic bool interrupted; /* the next change, by a signal */
static volatile pid_t child;

void __real_odp_space_invalidate(struct odp_space *sp, uintptr_t addr, size_t len, enum odp_cause cause);
void __real_odp_space_forked(struct odp_space *sp);
void __real_nic_engine_stop(struct nic *nic);
void __wrap_odp_space_invalidate(struct odp_space *sp, uintptr_t addr, size_t len, enum odp_cause cause);
void __wrap_odp_space_forked(struct odp_space *sp);
void __wrap_nic_engine_stop(struct nic *nic);

/* The state letter of a thread of this process. */
static char state_of(pid_t tid)
{
	char path[64], line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	return strrchr(line, ')')[2];
}

/* Until whoever closes waits, or has not waited. */
static void hold(void)
{
	if (!atomic_exchange(&holds, false))
		return;
	atomic_store(&inside, true);
	while (!atomic_load(&taken_apart) && state_of(closer) != 'S')
		sched_yield();
	atomic_store(&inside, false);
}

void __wrap_odp_space_invalidate(struct odp_space *sp, uintptr_t addr, size_t len, enum odp_cause cause)
{
	hold();
	if (atomic_exchange(&interrupted, false))
		raise(SIGUSR1);
	__real_odp_space_invalidate(sp, addr, len, cause);
}

void __wrap_odp_space_forked(struct odp_space *sp)
{
	hold();
	__real_odp_space_forked(sp);
}

void __wrap_nic_engine_stop(struct nic *nic)
{
	atomic_store(&taken_apart_inside, atomic_load(&inside));
	atomic_store(&taken_apart, true);
	__real_nic_engine_stop(nic);
}

static void *discards(void *memory)
{
	assert_int_equal(madvise(memory, PAGE, MADV_DONTNEED), 0);
	return NULL;
}

static void *forks(void *memory)
{
	pid_t pid = fork();

	(void)memory;
	if (!pid)
		_exit(0);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return NULL;
}

static void closes_beside(void *(*change)(void *))
{
	void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct nic_context *ctx;
	pthread_t thread;

	assert_true(memory != MAP_FAILED);
	closer = getpid();
	assert_int_equal(nic_context_open(&ctx), 0);
	atomic_store(&taken_apart, false);
	atomic_store(&holds, true);
	assert_int_equal(pthread_create(&thread, NULL, change, memory), 0);
	while (!atomic_load(&inside))
		sched_yield();
	assert_true(nic_context_close(ctx));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(atomic_load(&taken_apart));
	assert_false(atomic_load(&taken_apart_inside));
	munmap(memory, PAGE);
}

static void closing_waits_for_a_change_that_is_being_told(void **unused)
{
	(void)unused;
	closes_beside(discards);
}

static void closing_waits_for_a_fork_that_is_being_told(void **unused)
{
	(void)unused;
	closes_beside(forks);
}

static void a_device_that_was_closed_opens_and_is_told_again(void **unused)
{
	struct nic_context *ctx;
	void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)unused;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(nic_context_open(&ctx), 0);
		atomic_store(&taken_apart, true); /* nobody is waited for */
		atomic_store(&holds, true);
		discards(memory);
		assert_false(atomic_load(&holds)); /* told */
		assert_true(nic_context_close(ctx));
		atomic_store(&holds, true);
		discards(memory);
		assert_true(atomic_exchange(&holds, false)); /* not told */
	}
	munmap(memory, PAGE);
}

static void fork_again(int sig)
{
	(void)sig;
	child = fork();
}

/* Its parent was telling the device of a change; it comes back from where there is none. */
static void a_child_of_a_handler_that_interrupts_a_change_goes_on(void **unused)
{
	void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction old, act = { .sa_handler = fork_again };
	struct nic_context *ctx;
	int status;

	(void)unused;
	assert_int_equal(sigaction(SIGUSR1, &act, &old), 0);
	assert_int_equal(nic_context_open(&ctx), 0);
	atomic_store(&interrupted, true);
	discards(memory);
	if (!child) {
		/* Calls that would tell a device. */
		signal(SIGSEGV, SIG_DFL);
		forks(NULL);
		discards(memory);
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(nic_context_close(ctx));
	sigaction(SIGUSR1, &old, NULL);
	munmap(memory, PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(closing_waits_for_a_change_that_is_being_told),
		cmocka_unit_test(closing_waits_for_a_fork_that_is_being_told),
		cmocka_unit_test(a_device_that_was_closed_opens_and_is_told_again),
		cmocka_unit_test(a_child_of_a_handler_that_interrupts_a_change_goes_on),
	};
	char name[32];

	snprintf(name, sizeof(name), "close%d", (int)getpid());
	setenv("UNPIN_DEVICE", name, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

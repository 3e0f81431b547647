/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* For tests: run a function in a forked child and look at how it ends; and faults made on purpose. */
#ifndef UNPIN_TESTS_MM_CHILD_H
#define UNPIN_TESTS_MM_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The sanitizers' own handlers would stand where the tests expect none. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
	return "handle_segv=0:handle_sigbus=0:handle_abort=0:detect_leaks=0";
}
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
	return "handle_segv=0:handle_sigbus=0:handle_abort=0";
}

/* In a function that a child runs, where cmocka's assertions cannot be used: its result is 1 when what is
 * false. */
#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                   \
			return 1;                                                                            \
		}                                                                                            \
	} while (0)

/* The wait status of a child that ran fn and left with its result, without cmocka's handlers. A child that
 * hangs is killed by SIGALRM. */
static inline int in_child(int (*fn)(void))
{
	const struct rlimit no_core = { 0, 0 };
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		alarm(20);
		_exit(fn());
	}
	waitpid(pid, &status, 0);
	return status;
}

static inline bool exited(int status, int code)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static inline bool killed(int status, int sig)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == sig;
}

/* Stores one byte where a sanitizer does not look; poke_at is the address of the instruction that stores. */
extern const char poke_at[];
void poke(volatile void *addr);
__asm__(".text\n"
	".globl poke\n"
	".type poke, @function\n"
	"poke:\n"
#if defined(__x86_64__)
	".globl poke_at\n"
	"poke_at:\n"
	"movb $1, (%rdi)\n"
	"ret\n"
#elif defined(__aarch64__)
	"mov w1, #1\n"
	".globl poke_at\n"
	"poke_at:\n"
	"strb w1, [x0]\n"
	"ret\n"
#endif
	".size poke, . - poke\n");

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "check.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tool/squeeze.h"

#define STATUS_SKIP 77

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void nap(int ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	/* By system call: libc's is a cancellation point, which a case may need to do without. */
	while (syscall(SYS_nanosleep, &ts, &ts) && errno == EINTR)
		;
}

static void say(const char *lead, const char *fmt, va_list ap)
{
	int saved = errno;
	char text[600];

	errno = saved;
	vsnprintf(text, sizeof(text), fmt, ap);
	fprintf(stderr, "%s%s\n", lead, text);
}

void check_failed(const char *file, int line, const char *fmt, ...)
{
	const char *slash = strrchr(file, '/');
	char lead[160];
	va_list ap;

	snprintf(lead, sizeof(lead), "%s:%d: [%d] ", slash ? slash + 1 : file, line, (int)getpid());
	va_start(ap, fmt);
	say(lead, fmt, ap);
	va_end(ap);
	_exit(1);
}

void check_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
	_exit(STATUS_SKIP);
}

#define TURN_SECONDS 25

void check_squeeze(struct squeeze *s, uint64_t limit, uint64_t swap_bytes)
{
	double end = now() + TURN_SECONDS;
	int err;

	while ((err = squeeze_begin(s, limit, swap_bytes)) == -EBUSY && now() < end)
		nap(50);
	if (err)
		check_skip("%s", s->why);
}

static void show_where_it_hangs(pid_t pid)
{
	char command[160];

	/* A thread that is stuck in the kernel cannot be stopped: gdb would wait for it for ever. */
	snprintf(command, sizeof(command),
		"timeout -k 1 15 gdb -batch -nx -p %d -ex 'thread apply all backtrace 24' </dev/null >&2 "
		"2>/dev/null",
		(int)pid);
	if (system(command))
		fprintf(stderr, "(no backtrace)\n");
}

/* Signs of life of the case that runs, shared with its processes. */
static _Atomic uint64_t *signs;

void check_goes_on(void)
{
	atomic_fetch_add(signs, 1);
}

/* The wait status of the case, or -1 when it had to be killed. */
static int wait_for_case(pid_t pid)
{
	double begin = now(), end = begin + CHECK_TIMEOUT;
	uint64_t seen = atomic_load(signs);
	int status;

	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			return status;
		if (atomic_load(signs) != seen) {
			seen = atomic_load(signs);
			end = now() + CHECK_TIMEOUT;
		}
		if (now() > end)
			break;
		nap(now() > begin + 0.2 ? 10 : 1);
	}
	show_where_it_hangs(pid);
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

/* 1 if the case failed. */
static int run_case(const struct check_case *c)
{
	int status;
	pid_t pid;

	printf("[ RUN      ] %s\n", c->name);
	fflush(stdout);
	pid = fork();
	if (pid < 0) {
		perror("fork");
		return 1;
	}
	if (!pid) {
		setpgid(0, 0);
		c->run();
		exit(0);
	}
	setpgid(pid, pid);
	status = wait_for_case(pid);
	if (status != -1 && WIFEXITED(status) && !WEXITSTATUS(status)) {
		printf("[       OK ] %s\n", c->name);
	} else if (status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == STATUS_SKIP) {
		printf("[  SKIPPED ] %s\n", c->name);
	} else {
		if (status == -1)
			fprintf(stderr, "%s: no end and no sign of life for %d s\n", c->name, CHECK_TIMEOUT);
		else if (WIFSIGNALED(status))
			fprintf(stderr, "%s: killed by signal %d\n", c->name, WTERMSIG(status));
		printf("[  FAILED  ] %s\n", c->name);
		/* Children of a failed case have nobody left to end them. */
		kill(-pid, SIGKILL);
		fflush(stdout);
		return 1;
	}
	fflush(stdout);
	return 0;
}

static bool wanted(const char *name, int argc, char **argv)
{
	if (argc < 2)
		return true;
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

int check_main(const struct check_case *cases, size_t n, int argc, char **argv)
{
	int failed = 0;

	signs = mmap(NULL, sizeof(*signs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check_sys(signs != MAP_FAILED);
	for (size_t i = 0; i < n; i++)
		if (wanted(cases[i].name, argc, argv))
			failed += run_case(&cases[i]);
	return failed;
}

void *fresh(size_t length)
{
	void *memory = mmap(
		NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	check_sys(memory != MAP_FAILED);
	return memory;
}

void *fresh_apart(size_t length)
{
	static uintptr_t next = 0x200000000000;
	void *at = (void *)next, *memory;

	next += (length + 0x3fffffff) & ~0x3ffffffful;
	memory = mmap(at, length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	check_sys(memory == at);
	return memory;
}

void drop(void *memory, size_t length)
{
	check_sys(munmap(memory, length) == 0);
}

static unsigned char pattern(size_t i, unsigned seed)
{
	return (unsigned char)(i * 7 + (i >> 8) * 13 + (i >> 16) * 31 + seed * 101 + 1);
}

void fill(void *memory, size_t length, unsigned seed)
{
	unsigned char *p = memory;

	for (size_t i = 0; i < length; i++)
		p[i] = pattern(i, seed);
}

void check_filled(const void *memory, size_t length, unsigned seed)
{
	const unsigned char *p = memory;

	for (size_t i = 0; i < length; i++)
		if (p[i] != pattern(i, seed))
			check_failed(__FILE__, __LINE__, "byte %zu of %zu is %02x, not %02x (seed %u)", i,
				length, p[i], pattern(i, seed), seed);
}

void check_zero(const void *memory, size_t length)
{
	const unsigned char *p = memory;

	for (size_t i = 0; i < length; i++)
		if (p[i])
			check_failed(
				__FILE__, __LINE__, "byte %zu of %zu is %02x, not zero", i, length, p[i]);
}

long status_kib(const char *field)
{
	FILE *f = fopen("/proc/self/status", "re");
	size_t n = strlen(field);
	char line[256];
	long value = -1;

	check_sys(f != NULL);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, field, n) && line[n] == ':')
			value = strtol(line + n + 1, NULL, 10);
	fclose(f);
	check(value >= 0);
	return value;
}

long number_in(const char *path)
{
	FILE *f = fopen(path, "re");
	long value = -1;

	if (f) {
		if (fscanf(f, "%ld", &value) != 1)
			value = -1;
		fclose(f);
	}
	return value;
}

bool set_number(const char *path, long value)
{
	FILE *f = fopen(path, "we");
	bool good = f && fprintf(f, "%ld\n", value) > 0;

	return f && !fclose(f) && good;
}

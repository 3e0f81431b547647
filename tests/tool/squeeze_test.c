/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/squeeze.h"

#define MIB ((uint64_t)1 << 20)

static void begin(struct squeeze *s)
{
	/* Another build's test on this machine may have the turn. */
	for (int i = 0, err = squeeze_begin(s, 64 * MIB, 128 * MIB); err; i++) {
		if (err != -EBUSY || i == 300) {
			print_message("%s\n", s->why);
			skip();
		}
		usleep(100000);
		err = squeeze_begin(s, 64 * MIB, 128 * MIB);
	}
}

static char *home(void)
{
	static char text[4096];
	FILE *f = fopen("/proc/self/cgroup", "r");
	size_t n = fread(text, 1, sizeof(text) - 1, f);

	fclose(f);
	text[n] = 0;
	return text;
}

/* By its label, which is 28 bytes behind the beginning of the header at 1024. */
static bool has_swap_of(pid_t owner)
{
	char line[512], name[17], label[17] = "";
	FILE *f = fopen("/proc/swaps", "r");
	bool found = false;

	snprintf(name, sizeof(name), "unpin-%d", (int)owner);
	while (fgets(line, sizeof(line), f)) {
		int fd;

		line[strcspn(line, " \t\n")] = 0;
		fd = open(line, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		found = found || (pread(fd, label, 16, 1052) == 16 && strcmp(label, name) == 0);
		close(fd);
	}
	fclose(f);
	return found;
}

static void what_is_above_the_limit_is_swapped_out_and_all_is_taken_away(void **state)
{
	struct squeeze s;
	char *before, *p;
	struct rusage u, v;
	char name[64];

	begin(&s);
	before = strdup(home());
	snprintf(name, sizeof(name), "/unpin-squeeze-%d", (int)getpid());
	assert_non_null(strstr(s.cgroup, name));
	assert_true(has_swap_of(getpid()));
	assert_int_equal(squeeze_enter(&s), 0);
	assert_string_not_equal(home(), before);
	p = mmap(NULL, 96 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(p != MAP_FAILED);
	memset(p, 1, 96 * MIB);
	/* The limit, and the little room that is given when nothing can leave. */
	assert_true(squeeze_usage(&s) < 96 * MIB);
	getrusage(RUSAGE_SELF, &u);
	for (size_t i = 0; i < 96 * MIB; i += 4096)
		assert_int_equal(p[i], 1);
	getrusage(RUSAGE_SELF, &v);
	assert_true(v.ru_majflt > u.ru_majflt);
	assert_int_equal(squeeze_limit(&s, 256 * MIB), 0);
	munmap(p, 96 * MIB);
	squeeze_end(&s);
	assert_string_equal(home(), before);
	assert_int_not_equal(access(s.cgroup, F_OK), 0);
	assert_false(has_swap_of(getpid()));
	free(before);
}

static uint64_t limit_of(const struct squeeze *s)
{
	char path[320], text[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "%s/memory.limit_in_bytes", s->cgroup);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof(text), f));
	fclose(f);
	return strtoull(text, NULL, 10);
}

static void wait_for_limit(const struct squeeze *s, uint64_t least, uint64_t most)
{
	for (int i = 0; i < 3000 && (limit_of(s) < least || limit_of(s) > most); i++)
		usleep(10000);
	assert_in_range(limit_of(s), least, most);
}

/* What is locked cannot leave: the kernel refuses the old limit until it is unlocked. */
static void room_that_was_given_is_taken_back_as_soon_as_it_can_be(void **state)
{
	const uint64_t limit = 64 * MIB;
	int locked[2], go[2], status;
	struct squeeze s;
	pid_t child;
	char byte;

	begin(&s);
	if (!s.v1) {
		squeeze_end(&s);
		print_message("version 2 gives no room: it slows down\n");
		skip();
	}
	assert_int_equal(pipe(locked) | pipe(go), 0);
	child = fork();
	if (!child) {
		char *p = mmap(NULL, 72 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		close(go[1]);
		close(s.alive); /* or the squeeze would last as long as this process */
		/* Locked as they come: only a fault of the program's own waits for memory. */
		if (squeeze_enter(&s) || p == MAP_FAILED || mlock2(p, 72 * MIB, MLOCK_ONFAULT))
			_exit(1);
		memset(p, 1, 72 * MIB);
		if (write(locked[1], "", 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(1);
		munmap(p, 72 * MIB);
		pause();
	}
	close(locked[1]);
	assert_int_equal(read(locked[0], &byte, 1), 1);
	wait_for_limit(&s, 72 * MIB, limit + 2 * SQUEEZE_ROOM);
	/* Many attempts to take it back fail meanwhile. */
	usleep(500000);
	wait_for_limit(&s, 72 * MIB, limit + 2 * SQUEEZE_ROOM);
	assert_int_equal(write(go[1], "", 1), 1);
	wait_for_limit(&s, limit, limit);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	close(locked[0]);
	close(go[0]);
	close(go[1]);
	squeeze_end(&s);
}

static void a_killed_process_leaves_nothing(void **state)
{
	struct squeeze s, other;
	int pipes[2];
	pid_t child;

	begin(&s);
	squeeze_end(&s);
	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (!child) {
		if (squeeze_begin(&s, 64 * MIB, 128 * MIB) || squeeze_enter(&s))
			memset(&s, 0, sizeof(s));
		if (write(pipes[1], &s, sizeof(s)) != (ssize_t)sizeof(s))
			_exit(1);
		pause();
	}
	assert_int_equal(read(pipes[0], &s, sizeof(s)), sizeof(s));
	close(pipes[0]);
	close(pipes[1]);
	if (s.keeper > 0) {
		/* One at a time. */
		assert_int_equal(squeeze_begin(&other, 64 * MIB, 128 * MIB), -EBUSY);
		assert_non_null(strstr(other.why, "somebody else"));
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	for (int i = 0; s.keeper > 0 && kill(s.keeper, 0) == 0 && i < 300; i++)
		usleep(100000);
	if (s.keeper > 0) {
		assert_int_not_equal(access(s.cgroup, F_OK), 0);
		assert_false(has_swap_of(s.owner));
	}
}

static void who_is_not_root_is_told(void **state)
{
	struct squeeze s;

	if (geteuid() == 0 && seteuid(65534)) {
		print_message("no other user to be\n");
		skip();
	}
	assert_int_equal(squeeze_begin(&s, 64 * MIB, 128 * MIB), -EPERM);
	assert_non_null(strstr(s.why, "root"));
	squeeze_end(&s);
	if (getuid() == 0)
		assert_int_equal(seteuid(0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_above_the_limit_is_swapped_out_and_all_is_taken_away),
		cmocka_unit_test(room_that_was_given_is_taken_back_as_soon_as_it_can_be),
		cmocka_unit_test(a_killed_process_leaves_nothing),
		cmocka_unit_test(who_is_not_root_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

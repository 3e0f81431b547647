/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Against the machine's own figures, against a real control group where we may make one (version 1), and
 * against hierarchies of plain files, shown to a child by mounting them over /proc/self/cgroup and mountinfo.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "mm/pressure.h"
#include "tests/mm/child.h"

#define MIB (1l << 20)

static long mem_available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];
	long kib = -1;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024;
}

static int write_file(const char *dir, const char *name, const char *text)
{
	char path[400];
	int fd, err;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	err = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
	return close(fd) || err ? -1 : 0;
}

static int off(void)
{
	setenv("UNPIN_DISABLE", "psi", 1);
	errno = 6;
	CHECK(pressure_stall_us() == UINT64_MAX);
	CHECK(pressure_headroom() > 0 && errno == 6);
	return 0;
}

static int on(void)
{
	uint64_t first = pressure_stall_us();

	CHECK((first != UINT64_MAX) == mm_have(MM_PSI));
	usleep(150000);
	CHECK(pressure_stall_us() >= first);
	return 0;
}

static void the_time_of_stall_is_told_unless_switched_off(void **state)
{
	assert_true(exited(in_child(off), 0));
	assert_true(exited(in_child(on), 0));
	if (!access("/proc/pressure/memory", R_OK))
		assert_true(mm_have(MM_PSI) || getenv("UNPIN_DISABLE"));
}

static void no_more_is_left_than_the_machine_has(void **state)
{
	long before = mem_available();
	int64_t room = pressure_headroom();
	long after = mem_available();

	assert_true(room >= 0);
	assert_true(room < (before > after ? before : after) + 512 * MIB);
}

/* ---- a real group ---- */

static char group[300];

static bool memory_mount(char point[256])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[1024], options[256];
	bool found = false;

	while (!found && f && fgets(line, sizeof(line), f)) {
		char *end = strstr(line, " - cgroup ");

		found = end && sscanf(line, "%*s %*s %*s / %255s", point) == 1 &&
			sscanf(end, " - cgroup %*s %255s", options) == 1 && strstr(options, "memory");
	}
	if (f)
		fclose(f);
	return found;
}

/* Waits for a sample that is at most the limit. */
static int64_t headroom_at_most(int64_t limit)
{
	int64_t room = INT64_MAX;

	for (int i = 0; i < 50 && (room = pressure_headroom()) > limit; i++)
		usleep(20000);
	return room;
}

static int limited(void)
{
	char inner[320], pid[16];
	char *p;

	snprintf(inner, sizeof(inner), "%s/inner", group);
	snprintf(pid, sizeof(pid), "%d", getpid());
	CHECK(!write_file(group, "memory.limit_in_bytes", "67108864"));
	CHECK(!write_file(inner, "cgroup.procs", pid));
	CHECK(pressure_headroom() <= 64 * MIB && pressure_headroom() > 40 * MIB);
	p = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	CHECK(p != MAP_FAILED);
	CHECK(headroom_at_most(32 * MIB) <= 32 * MIB && pressure_headroom() > 8 * MIB);
	/* The nearest limit counts. */
	CHECK(!write_file(inner, "memory.limit_in_bytes", "41943040"));
	CHECK(headroom_at_most(8 * MIB) <= 8 * MIB && pressure_headroom() > 0);
	return 0;
}

static void in_a_group_no_more_is_left_than_its_limit(void **state)
{
	char point[256], inner[320];
	int status = 0;

	if (geteuid() || !memory_mount(point)) {
		puts("skipped: needs root and the memory controller of control groups, version 1");
		skip();
	}
	snprintf(group, sizeof(group), "%s/unpin-test-%d", point, getpid());
	snprintf(inner, sizeof(inner), "%s/inner", group);
	if (mkdir(group, 0755) || mkdir(inner, 0755)) {
		rmdir(group);
		puts("skipped: no control group can be made");
		skip();
	}
	status = in_child(limited);
	/* A group may take a moment to become empty. */
	for (int i = 0; i < 100 && rmdir(inner); i++)
		usleep(10000);
	assert_false(rmdir(group));
	assert_true(exited(status, 0));
}

/* ---- groups of plain files ---- */

static char tree[] = "/tmp/unpin-pressure-XXXXXX";

static int put(const char *dir, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", tree, dir);
	mkdir(path, 0755);
	return write_file(path, name, text);
}

/* From here on this process sees these groups and mounts. %s in mounts is the tree. */
static int show(const char *cgroup, const char *mounts)
{
	char text[1024], cgroup_file[128], mounts_file[128];

	snprintf(text, sizeof(text), mounts, tree, tree);
	snprintf(cgroup_file, sizeof(cgroup_file), "%s/cgroup", tree);
	snprintf(mounts_file, sizeof(mounts_file), "%s/mountinfo", tree);
	if (put("", "cgroup", cgroup) || put("", "mountinfo", text))
		return -1;
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	return mount(cgroup_file, "/proc/self/cgroup", NULL, MS_BIND, NULL) ||
	       mount(mounts_file, "/proc/self/mountinfo", NULL, MS_BIND, NULL);
}

#define V2 "40 31 0:38 / %s/a\\040mount rw,relatime shared:7 - cgroup2 cgroup2 rw\n"

static int fill_v2(void)
{
	mkdir(tree, 0755);
	return put("a mount", "memory.stat", "inactive_file 1048576\n") ||
	       put("a mount/x", "memory.max", "max\n") || put("a mount/x", "memory.high", "209715200\n") ||
	       put("a mount/x", "memory.current", "104857600\n") ||
	       put("a mount/x", "memory.stat",
		       "anon 5\ninactive_anon 6\ninactive_file 4096\nunevictable 9\n") ||
	       put("a mount/x/y", "memory.max", "1048576000\n") ||
	       put("a mount/x/y", "memory.high", "max\n") || put("a mount/x/y", "memory.current", "1000\n") ||
	       put("a mount/x/y", "memory.pressure",
		       "some avg10=0.00 avg60=0.00 avg300=0.00 total=123456\nfull avg10=0.00 total=7\n");
}

static int version_2(void)
{
	CHECK(!fill_v2() && !show("1:name=systemd:/q\n0::/x/y\n", V2));
	/* The group above has less room: 100 MiB, and a page that is as good as free. */
	CHECK(pressure_headroom() == 100 * MIB + 4096);
	CHECK(pressure_stall_us() == 123456);
	CHECK(!put("a mount/x/y", "memory.max", "5000\n"));
	CHECK(headroom_at_most(4000) == 4000);
	CHECK(!put("a mount/x/y", "memory.current", "70000\n"));
	CHECK(headroom_at_most(0) == 0);
	return 0;
}

/* A container without a namespace of its own for groups: the mount shows only what is below its own group. */
static int below_root(void)
{
	CHECK(!fill_v2());
	CHECK(!show(
		"0::/docker/abc/x/y\n", "40 31 0:38 /docker/abc %s/a\\040mount rw - cgroup2 cgroup2 rw\n"));
	CHECK(pressure_headroom() == 100 * MIB + 4096);
	return 0;
}

/* Not to be seen from here, though the names fit. */
static int out_of_sight(const char *cgroup, const char *mounts)
{
	CHECK(!fill_v2() && !show(cgroup, mounts));
	CHECK(pressure_headroom() > 110 * MIB);
	CHECK(pressure_stall_us() != 123456);
	return 0;
}

static int above_namespace(void)
{
	return out_of_sight("0::/../x/y\n", V2);
}

static int beside_root(void)
{
	return out_of_sight(
		"0::/docker/abcd/x/y\n", "40 31 0:38 /docker/abc %s/a\\040mount rw - cgroup2 cgroup2 rw\n");
}

static int no_lines(void)
{
	return out_of_sight("", "");
}

static int nonsense(void)
{
	return out_of_sight(
		"0::\n:::\n0\n9:memory\n", "40\n - - - \n40 31 0:38 / / - cgroup2 \n\n40 31 0:38");
}

/* The memory controller is with version 1; version 2 is there for the rest. */
static int both_versions(void)
{
	CHECK(!fill_v2() && !put("v1", "memory.limit_in_bytes", "9223372036854771712\n"));
	CHECK(!put("v1/m", "memory.limit_in_bytes", "2000000\n") &&
		!put("v1/m", "memory.usage_in_bytes", "1500000\n") &&
		!put("v1/m", "memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n"));
	CHECK(!show("5:cpu,memory:/m\n0::/x/y\n",
		V2 "50 31 0:39 / %s/v1 rw,relatime - cgroup cgroup rw,cpu,memory\n"));
	CHECK(pressure_headroom() == 600000);
	CHECK(pressure_stall_us() == 123456);
	return 0;
}

static void remove_tree(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf '%s'", tree);
	assert_int_equal(system(command), 0);
	mkdir(tree, 0700);
}

static void groups_are_found_wherever_they_are_mounted(void **state)
{
	static int (*const cases[])(void) = { version_2, below_root, above_namespace, beside_root, no_lines,
		nonsense, both_versions };

	if (geteuid()) {
		puts("skipped: needs root, to mount");
		skip();
	}
	assert_non_null(mkdtemp(tree));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = in_child(cases[i]);

		remove_tree();
		if (!exited(status, 0))
			fail_msg("case %zu", i);
	}
	rmdir(tree);
}

/* ---- threads and children ---- */

static void *ask_often(void *unused)
{
	for (int i = 0; i < 20000; i++)
		if (pressure_headroom() < 0)
			return (void *)1;
	return NULL;
}

static void many_threads_may_ask_at_once(void **state)
{
	pthread_t thread[4];
	void *bad;

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, ask_often, NULL), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], &bad);
		assert_null(bad);
	}
}

static int in_grandchild(void)
{
	int status;
	pid_t pid;

	CHECK(pressure_headroom() > 110 * MIB);
	pid = fork();
	if (!pid)
		_exit(version_2());
	waitpid(pid, &status, 0);
	return exited(status, 0) ? 0 : 1;
}

static void a_child_looks_for_its_own_group(void **state)
{
	int status;

	if (geteuid()) {
		puts("skipped: needs root, to mount");
		skip();
	}
	mkdir(tree, 0700);
	status = in_child(in_grandchild);
	remove_tree();
	rmdir(tree);
	assert_true(exited(status, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_time_of_stall_is_told_unless_switched_off),
		cmocka_unit_test(no_more_is_left_than_the_machine_has),
		cmocka_unit_test(in_a_group_no_more_is_left_than_its_limit),
		cmocka_unit_test(groups_are_found_wherever_they_are_mounted),
		cmocka_unit_test(many_threads_may_ask_at_once),
		cmocka_unit_test(a_child_looks_for_its_own_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The tree's life: who makes it, who shares it, who takes it away, and who must not be able to plant one. */
#include <dirent.h>
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "sysfs/tree.h"

static char place[64];

static int make_place(void **state)
{
	/* In memory where there is such a place: disks are slow at making files. */
	strcpy(place,
		access("/dev/shm", W_OK) ? "/tmp/unpin-tree-test-XXXXXX" : "/dev/shm/unpin-tree-test-XXXXXX");
	unsetenv("UNPIN_DEVICE");
	return !mkdtemp(place) || setenv("XDG_RUNTIME_DIR", place, 1);
}

/* How many trees there are; the name of one of them. */
static unsigned trees(char name[256])
{
	DIR *dir = opendir(place);
	unsigned n = 0;

	assert_non_null(dir);
	for (struct dirent *d; (d = readdir(dir));) {
		if (strncmp(d->d_name, SYSFS_PREFIX, sizeof(SYSFS_PREFIX) - 1))
			continue;
		n++;
		if (name)
			snprintf(name, 256, "%s", d->d_name);
	}
	closedir(dir);
	return n;
}

static int remove_place(void **state)
{
	chmod(place, 0700);
	if (rmdir(place))
		fail_msg("%s: %s", place, strerror(errno));
	return 0;
}

/* A process of its own, which ends as most do; its status. */
static int in_child(int (*run)(void))
{
	int status;
	pid_t pid = fork();

	if (!pid)
		exit(run());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static bool whole(const char *root)
{
	char path[SYSFS_ROOT_MAX + 64];

	snprintf(path, sizeof(path), "%s/class/infiniband/unpin0/ports/1/hw_counters/bytes_out", root);
	return !access(path, R_OK);
}

static int use(void)
{
	char root[SYSFS_ROOT_MAX], again[SYSFS_ROOT_MAX];
	int saved = errno = 4711;

	if (sysfs_tree(root) || sysfs_tree(again) || errno != saved)
		return 1;
	if (strncmp(root, place, strlen(place)) || strcmp(root, again))
		return 2;
	return whole(root) && trees(NULL) == 1 ? 0 : 3;
}

static int use_and_be_killed(void)
{
	if (use())
		return 1;
	raise(SIGKILL);
	return 2;
}

static void it_goes_with_its_last_user(void **state)
{
	assert_int_equal(in_child(use), 0);
	assert_int_equal(trees(NULL), 0);
}

/* The first user ends while the second has it. */
static int share(void)
{
	char root[SYSFS_ROOT_MAX], byte = 0;
	int ends[2], ready[2], status;
	pid_t pid;

	if (pipe(ends) || pipe(ready))
		return 1;
	pid = fork();
	if (!pid) {
		close(ends[1]);
		if (sysfs_tree(root) || write(ready[1], "r", 1) != 1 || read(ends[0], &byte, 1))
			exit(1);
		exit(whole(root) ? 0 : 2);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1 || sysfs_tree(root) || in_child(use))
		return 3;
	if (!whole(root))
		return 4;
	close(ends[1]);
	waitpid(pid, &status, 0);
	return status || !whole(root) ? 5 : 0;
}

static void users_share_it(void **state)
{
	assert_int_equal(in_child(share), 0);
	assert_int_equal(trees(NULL), 0);
}

static int daemon_pipe[2];

/* As a daemon begins: the parent ends, the child goes on with what it has inherited. */
static int become_a_daemon(void)
{
	char root[SYSFS_ROOT_MAX];
	pid_t parent = getpid();

	if (sysfs_tree(root))
		return 1;
	if (fork())
		return 0;
	for (int i = 0; i < 5000 && getppid() == parent; i++)
		usleep(1000);
	if (write(daemon_pipe[1], whole(root) ? "y" : "n", 1) != 1)
		exit(1);
	exit(0);
}

static void it_stays_for_a_child_that_outlives_its_parent(void **state)
{
	char byte = 0;

	assert_int_equal(pipe(daemon_pipe), 0);
	assert_int_equal(in_child(become_a_daemon), 0);
	close(daemon_pipe[1]);
	assert_int_equal(read(daemon_pipe[0], &byte, 1), 1);
	assert_int_equal(byte, 'y');
	/* The end of file comes when the child's descriptors go, just behind its last function. */
	assert_int_equal(read(daemon_pipe[0], &byte, 1), 0);
	close(daemon_pipe[0]);
	assert_int_equal(trees(NULL), 0);
}

static void one_that_was_left_is_used_and_goes(void **state)
{
	assert_int_equal(in_child(use_and_be_killed), -SIGKILL);
	assert_int_equal(trees(NULL), 1);
	assert_int_equal(in_child(use), 0);
	assert_int_equal(trees(NULL), 0);
}

static void one_that_nobody_will_use_is_swept(void **state)
{
	char path[512];

	assert_int_equal(in_child(use_and_be_killed), -SIGKILL);
	setenv("UNPIN_DEVICE", "unpin-other", 1);
	snprintf(path, sizeof(path), "%s/" SYSFS_PREFIX "%u-new-0123456789abcdef", place, geteuid());
	assert_int_equal(mkdir(path, 0700), 0); /* of a process that was killed while it built one */
	in_child(use);
	unsetenv("UNPIN_DEVICE");
	assert_int_equal(trees(NULL), 0);
}

/* The right name, but others may write to it: not to be trusted, and not to be removed. */
static int avoid_the_planted(void)
{
	char root[SYSFS_ROOT_MAX];

	if (sysfs_tree(root))
		return 1;
	return whole(root) && trees(NULL) == 2 ? 0 : 2;
}

static void a_planted_one_is_not_used(void **state)
{
	char name[256], path[512];

	assert_int_equal(in_child(use_and_be_killed), -SIGKILL);
	assert_int_equal(trees(name), 1);
	snprintf(path, sizeof(path), "%s/%s", place, name);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(in_child(avoid_the_planted), 0);
	assert_int_equal(trees(name), 1);
	assert_int_equal(chmod(path, 0755), 0);
	assert_int_equal(in_child(use), 0);
	/* A link, wherever it leads. */
	assert_int_equal(symlink("/", path), 0);
	assert_int_equal(in_child(avoid_the_planted), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(trees(NULL), 0);
}

static int use_where_others_write(void)
{
	char root[SYSFS_ROOT_MAX];

	if (sysfs_tree(root))
		return 1;
	return strncmp(root, place, strlen(place)) ? 0 : 2;
}

static void a_place_where_others_may_rename_is_not_used(void **state)
{
	assert_int_equal(chmod(place, 0777), 0);
	assert_int_equal(in_child(use_where_others_write), 0);
	assert_int_equal(chmod(place, 0700), 0);
}

/* Somebody removes it, or closes the descriptor that holds it, under a process that uses it. */
static int lose_it(void)
{
	char root[SYSFS_ROOT_MAX], command[SYSFS_ROOT_MAX + 32];
	int fd;

	if (sysfs_tree(root))
		return 1;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	if (system(command) || sysfs_tree(root) || !whole(root))
		return 2;
	for (fd = 3; fd < 2048; fd++)
		close(fd);
	fd = open("/dev/null", O_RDONLY);
	if (sysfs_tree(root) || !whole(root) || fcntl(fd, F_GETFD) < 0)
		return 3;
	return 0;
}

static void one_that_is_lost_is_made_again(void **state)
{
	assert_int_equal(in_child(lose_it), 0);
	assert_int_equal(trees(NULL), 0);
}

static int use_at_once(void)
{
	pid_t pid[8];
	int failed = 0, status;

	for (int i = 0; i < 8; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			char root[SYSFS_ROOT_MAX];
			int bad = 0;

			for (int n = 0; n < 5 && !bad; n++)
				bad = sysfs_tree(root) || !whole(root);
			exit(bad);
		}
	}
	for (int i = 0; i < 8; i++) {
		waitpid(pid[i], &status, 0);
		failed += status != 0;
	}
	return failed;
}

static void many_that_begin_and_end_at_once_find_it_whole(void **state)
{
	for (int i = 0; i < 5; i++)
		assert_int_equal(in_child(use_at_once), 0);
	assert_int_equal(trees(NULL), 0);
}

/* With so many descriptors free; a tree, or nothing. */
static int use_with_few_descriptors(void)
{
	for (int n = 2; n < 12; n++) {
		const struct rlimit few = { (rlim_t)n, 64 };
		char root[SYSFS_ROOT_MAX];
		int err;

		if (setrlimit(RLIMIT_NOFILE, &few))
			return 1;
		err = sysfs_tree(root);
		if (err && err != -EMFILE && err != -ENOENT)
			return 2;
	}
	return 0;
}

static int use_without_files(void)
{
	const struct rlimit none = { 0, 0 };
	char root[SYSFS_ROOT_MAX];

	return setrlimit(RLIMIT_FSIZE, &none) || sysfs_tree(root) != -EFBIG;
}

static void what_cannot_be_made_leaves_nothing(void **state)
{
	assert_int_equal(in_child(use_with_few_descriptors), 0);
	assert_int_equal(in_child(use_without_files), 0);
	assert_int_equal(trees(NULL), 0);
}

static void what_is_inside_is_known(void **state)
{
	assert_string_equal(sysfs_inside("/tmp/" SYSFS_PREFIX "0-0123/class/infiniband"), "class/infiniband");
	assert_string_equal(sysfs_inside("/a/" SYSFS_PREFIX "7-new-1/devices/virtual"), "devices/virtual");
	assert_null(sysfs_inside("/tmp/" SYSFS_PREFIX "0-0123"));
	assert_null(sysfs_inside("/tmp/" SYSFS_PREFIX "0-0123/classes"));
	assert_null(sysfs_inside("/sys/class/infiniband"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
		IN_PLACE(it_goes_with_its_last_user),
		IN_PLACE(users_share_it),
		IN_PLACE(it_stays_for_a_child_that_outlives_its_parent),
		IN_PLACE(one_that_was_left_is_used_and_goes),
		IN_PLACE(one_that_nobody_will_use_is_swept),
		IN_PLACE(a_planted_one_is_not_used),
		IN_PLACE(a_place_where_others_may_rename_is_not_used),
		IN_PLACE(one_that_is_lost_is_made_again),
		IN_PLACE(many_that_begin_and_end_at_once_find_it_whole),
		IN_PLACE(what_cannot_be_made_leaves_nothing),
		cmocka_unit_test(what_is_inside_is_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A timeline opened, closed and left by programs that end in all manners, in child processes or in this one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/trace.h"
#include "base/trace_finish.h"
#include "timeline.h"

static void off_nothing_is_recorded(void **state)
{
	assert_false(trace_enabled());
	trace_point(TRACE_COMPLETION, 1, 2);
	assert_int_equal(trace_begin(), 0);
	trace_close();
	assert_int_equal(access(timeline_path, F_OK), -1);
}

/* Until the writer has written so many. */
static void wait_for_events(const char *name, size_t n)
{
	for (int i = 0; i < 1000; i++) {
		json_object *f = NULL;
		size_t there = 0;

		unlink(timeline_copy);
		if (trace_finish_copy(timeline_spool, timeline_copy) == 0)
			f = json_object_from_file(timeline_copy);
		if (f)
			there = timeline_count(f, name);
		json_object_put(f);
		if (there >= n)
			return;
		usleep(10000);
	}
	fail_msg("the writer wrote nothing");
}

static void the_file_is_complete_json_while_the_process_runs_and_a_copy_has_all(void **state)
{
	assert_int_equal(trace_open(timeline_path), 0);
	for (unsigned i = 1; i <= 3; i++) {
		json_object *f;

		trace_point(TRACE_POST_RECV, i, i);
		wait_for_events("post_recv", i);
		f = timeline_read(timeline_path);
		assert_int_equal(timeline_count(f, "process_name"), 1);
		assert_int_equal(timeline_count(f, "post_recv"), 0);
		json_object_put(f);
	}
	assert_int_equal(trace_finish_copy(timeline_spool, timeline_copy), -EEXIST);
}

static void a_copy_has_what_the_file_has_already(void **state)
{
	json_object *f;

	assert_int_equal(trace_finish_copy(timeline_spool, timeline_copy), -ENOENT);
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(trace_open(timeline_path), 0);
		trace_record(TRACE_FAULT, 1000, 2000, 4096, i);
		wait_for_events("fault", 2 * i);
		trace_close();
	}
	f = timeline_read(timeline_copy);
	assert_int_equal(timeline_count(f, "process_name"), 1);
	assert_int_equal(timeline_count(f, "dropped_events"), 1);
	assert_int_equal(timeline_number(timeline_find(f, "fault", 0), "id"), 1);
	assert_int_equal(timeline_number(timeline_find(f, "fault", 2), "id"), 2);
	json_object_put(f);
}

static void no_spool_is_left(void **state)
{
	assert_int_equal(trace_open(timeline_path), 0);
	assert_int_equal(access(timeline_spool, F_OK), 0);
	trace_close();
	assert_int_equal(access(timeline_spool, F_OK), -1);
}

static void a_spool_that_is_left_over_is_replaced(void **state)
{
	int fd = open(timeline_spool, O_WRONLY | O_CREAT, 0600);

	assert_int_equal(write(fd, "old", 3), 3);
	close(fd);
	assert_int_equal(trace_open(timeline_path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	trace_close();
	json_object_put(timeline_read(timeline_path));
	assert_int_equal(access(timeline_spool, F_OK), -1);
}

static void what_has_taken_the_place_of_file_and_spool_is_left_alone(void **state)
{
	struct stat st;

	assert_int_equal(trace_open(timeline_path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	/* Not removed: the new ones would have their numbers. */
	assert_int_equal(rename(timeline_path, timeline_copy), 0);
	assert_int_equal(unlink(timeline_spool), 0);
	close(open(timeline_path, O_WRONLY | O_CREAT, 0600));
	close(open(timeline_spool, O_WRONLY | O_CREAT, 0600));
	trace_close();
	assert_int_equal(stat(timeline_path, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(stat(timeline_spool, &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void a_spool_that_is_a_link_is_not_followed(void **state)
{
	char other[PATH_MAX];
	struct stat st;
	int fd;

	snprintf(other, sizeof(other), "%s/other", timeline_folder);
	fd = open(other, O_WRONLY | O_CREAT, 0600);
	close(fd);
	assert_int_equal(symlink(other, timeline_spool), 0);
	assert_int_equal(trace_open(timeline_path), -EEXIST);
	assert_false(trace_enabled());
	assert_int_equal(stat(other, &st), 0);
	assert_int_equal(st.st_size, 0);
}

/* Somebody else's link, in a directory that all may write to, may lead anywhere; one's own is meant. */
static void a_link_of_somebody_else_is_not_followed(void **state)
{
	char other[PATH_MAX];
	struct stat st;

	snprintf(other, sizeof(other), "%s/other", timeline_folder);
	assert_int_equal(symlink(other, timeline_path), 0);
	if (geteuid() == 0) {
		assert_int_equal(lchown(timeline_path, 65534, 65534), 0);
		assert_int_equal(trace_open(timeline_path), -ELOOP);
		assert_false(trace_enabled());
		assert_int_equal(stat(other, &st), -1);
		assert_int_equal(lchown(timeline_path, 0, 0), 0);
	}
	/* It leads to no file yet: nothing is made through it. */
	assert_int_equal(trace_open(timeline_path), -ELOOP);
	close(open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	assert_int_equal(trace_open(timeline_path), 0);
	trace_close();
	assert_int_equal(stat(other, &st), 0);
	assert_true(st.st_size > 0);
}

static void opening_again_goes_on_in_the_same_file(void **state)
{
	json_object *f;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(trace_open(timeline_path), 0);
		assert_int_equal(trace_open(timeline_path), -EBUSY);
		trace_point(TRACE_POST_RECV, 7, i);
		trace_close();
		trace_point(TRACE_POST_RECV, 7, 99); /* off */
	}
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "post_recv"), 3);
	assert_int_equal(
		json_object_get_int64(timeline_argument(timeline_find(f, "post_recv", 2), "wr_id")), 2);
	assert_int_equal(timeline_count(f, "process_name"), 1);
	json_object_put(f);
}

static void what_another_process_wrote_is_left_alone(void **state)
{
	static const char before[] = "something";
	char own[PATH_MAX], text[sizeof(before)] = "";
	int fd = open(timeline_path, O_RDWR | O_CREAT, 0600);
	json_object *f;

	assert_int_equal(write(fd, before, strlen(before)), strlen(before));
	assert_int_equal(trace_open(timeline_path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	trace_close();
	assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), strlen(before));
	assert_string_equal(text, before);
	close(fd);
	snprintf(own, sizeof(own), "%s.%d", timeline_path, (int)getpid());
	f = timeline_read(own);
	assert_int_equal(timeline_count(f, "post_recv"), 1);
	json_object_put(f);
}

static void what_cannot_be_written_is_an_error(void **state)
{
	char other[PATH_MAX];

	snprintf(other, sizeof(other), "%s/no/t.json", timeline_folder);
	assert_int_equal(trace_open(other), -ENOENT);
	assert_int_equal(trace_open(timeline_folder), -EISDIR);
	assert_int_equal(trace_open("/dev/null"), -EINVAL);
	assert_false(trace_enabled());
}

/* "Close everything below N", and a file of the program's own on the number. */
static void a_program_that_closes_the_file_gets_no_events_into_its_own(void **state)
{
	char other[PATH_MAX];
	json_object *f;
	struct stat st;
	int fd;

	snprintf(other, sizeof(other), "%s/other", timeline_folder);
	fd = open(other, O_RDWR | O_CREAT, 0600);
	assert_int_equal(trace_open(timeline_path), 0);
	for (int i = 3; i < 1024; i++)
		if (i != fd)
			dup2(fd, i);
	trace_point(TRACE_POST_RECV, 1, 1);
	wait_for_events("post_recv", 1);
	trace_close();
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	for (int i = 3; i < 1024; i++)
		close(i);
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "post_recv"), 1);
	json_object_put(f);
}

static void wait_for_bytes(int64_t bytes)
{
	struct stat st = { 0 };

	for (int i = 0; i < 1000 && st.st_size < bytes; i++) {
		usleep(10000);
		stat(timeline_spool, &st);
	}
}

/* RLIMIT_FSIZE stands in for it, for spool and file alike. */
static int record_on_a_full_disk(int64_t events)
{
	struct rlimit limit = { 100000, RLIM_INFINITY };
	char text[] = "{\"name\":\"text\"}";

	setrlimit(RLIMIT_FSIZE, &limit);
	freopen("/dev/null", "w", stderr);
	if (trace_open(timeline_path))
		return 1;
	for (int64_t i = 0; i < events; i++) {
		trace_point(TRACE_POST_RECV, 1, (uint64_t)i);
		if (i % 100 == 0)
			trace_text(text, strlen(text));
		/* Some of it is on disk before it is full. */
		if (i == events / 8)
			wait_for_bytes(i * 16);
	}
	if (!trace_enabled())
		return 2;
	trace_close();
	return 0;
}

static void a_full_disk_drops_and_counts_and_the_program_goes_on(void **state)
{
	const int64_t events = 20000;
	int status;
	pid_t pid = fork();
	json_object *f;
	int64_t there;

	if (!pid)
		_exit(record_on_a_full_disk(events));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	f = timeline_read(timeline_path);
	there = (int64_t)(timeline_count(f, "post_recv") + timeline_count(f, "text"));
	assert_true(there > 0 && timeline_dropped(f) > 0);
	assert_int_equal(there + timeline_dropped(f), events + events / 100);
	json_object_put(f);
	/* There is room again: what the spool has, which is more, since it is shorter than its text. */
	assert_int_equal(trace_finish_spool(timeline_spool, false), 0);
	f = timeline_read(timeline_path);
	assert_true((int64_t)(timeline_count(f, "post_recv") + timeline_count(f, "text")) > there);
	assert_int_equal(
		(int64_t)(timeline_count(f, "post_recv") + timeline_count(f, "text")) + timeline_dropped(f),
		events + events / 100);
	json_object_put(f);
	assert_int_equal(access(timeline_spool, F_OK), -1);
}

static void where_there_is_no_room_for_the_first_event_no_file_is_left(void **state)
{
	struct rlimit limit = { 100, RLIM_INFINITY };
	int status;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(trace_open(timeline_path) == -EFBIG && !trace_enabled() ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(timeline_path, F_OK), -1);
	assert_int_equal(access(timeline_spool, F_OK), -1);
}

static void a_small_file_system_that_is_full_has_a_file_that_can_be_read(void **state)
{
	const int64_t events = 100000;
	json_object *f;
	int status;
	pid_t pid;

	if (mount("none", timeline_folder, "tmpfs", 0, "size=1m")) {
		print_message("no file system can be mounted here: %s\n", strerror(errno));
		skip();
	}
	pid = fork();
	if (!pid) {
		freopen("/dev/null", "w", stderr);
		if (trace_open(timeline_path))
			_exit(1);
		for (int64_t i = 0; i < events; i++) {
			trace_point(TRACE_POST_RECV, 1, (uint64_t)i);
			if (i % 1000 == 0)
				usleep(1000);
		}
		trace_close();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	f = json_object_from_file(timeline_path);
	umount(timeline_folder);
	assert_int_equal(status, 0);
	assert_non_null(f);
	assert_true(timeline_dropped(f) > 0);
	assert_int_equal((int64_t)timeline_count(f, "post_recv") + timeline_dropped(f), events);
	json_object_put(f);
}

/* --- ends and forks ----------------------------------------------------------------------------------------
 */

static void in_child(void (*body)(void), int expected)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		body();
		_exit(99);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, expected);
}

static void record_and_exit(void)
{
	trace_open(timeline_path);
	for (int i = 0; i < 1000; i++)
		trace_point(TRACE_POST_RECV, 1, (uint64_t)i);
	exit(0);
}

static void the_end_of_the_process_completes_the_file(void **state)
{
	json_object *f;

	in_child(record_and_exit, 0);
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "post_recv"), 1000);
	json_object_put(f);
}

static void record_until_written(void)
{
	trace_open(timeline_path);
	for (int i = 0; i < 1000; i++)
		trace_point(TRACE_POST_RECV, 1, (uint64_t)i);
	wait_for_events("post_recv", 1000);
}

static void record_and_die(void)
{
	record_until_written();
	kill(getpid(), SIGKILL);
}

static void record_and_leave(void)
{
	record_until_written();
	_exit(3);
}

static void record_and_exec(void)
{
	record_until_written();
	execl("/bin/true", "true", NULL);
}

/* All of it can be had; until then the file is complete. */
static void check_left(void (*end)(void), int status)
{
	json_object *f;

	in_child(end, status);
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "process_name"), 1);
	json_object_put(f);
	assert_int_equal(trace_finish_spool(timeline_spool, false), 0);
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "post_recv"), 1000);
	assert_int_equal(timeline_dropped(f), 0);
	json_object_put(f);
	assert_int_equal(access(timeline_spool, F_OK), -1);
	assert_int_equal(trace_finish_spool(timeline_spool, false), -ENOENT);
}

static void a_killed_process_leaves_what_it_recorded(void **state)
{
	check_left(record_and_die, SIGKILL);
}

static void a_process_that_does_not_exit_in_order_leaves_what_it_recorded(void **state)
{
	check_left(record_and_leave, 3 << 8);
}

static void a_process_that_becomes_another_program_leaves_what_it_recorded(void **state)
{
	check_left(record_and_exec, 0);
}

/* Until the other process says so. */
static void record_and_wait(void)
{
	char said[PATH_MAX];

	snprintf(said, sizeof(said), "%s/end", timeline_folder);
	trace_open(timeline_path);
	for (int i = 0; i < 1000; i++)
		trace_point(TRACE_POST_RECV, 1, (uint64_t)i);
	while (access(said, F_OK))
		usleep(1000);
	trace_close();
	_exit(0);
}

static void what_a_process_writes_is_finished_by_nobody_else_until_it_ends(void **state)
{
	char said[PATH_MAX];
	json_object *f;
	int status;
	pid_t pid = fork();

	if (!pid)
		record_and_wait();
	wait_for_events("post_recv", 1000);
	assert_int_equal(trace_finish_spool(timeline_spool, false), -EAGAIN);
	snprintf(said, sizeof(said), "%s/end", timeline_folder);
	close(open(said, O_CREAT | O_WRONLY, 0600));
	/* Waits, and finds that it has been done. */
	status = trace_finish_spool(timeline_spool, true);
	assert_true(status == 0 || status == -ENOENT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "post_recv"), 1000);
	json_object_put(f);
}

static void record_in_child(void)
{
	trace_abandon();
	trace_point(TRACE_POST_SEND, 1, 1); /* off */
	if (trace_open(timeline_path))
		_exit(1);
	trace_point(TRACE_POST_SEND, 1, 2);
	trace_close();
	_exit(0);
}

static void a_forked_child_has_a_file_of_its_own(void **state)
{
	char own[PATH_MAX];
	json_object *f;
	int status;
	pid_t pid;

#ifdef __SANITIZE_THREAD__
	print_message("ThreadSanitizer lets no thread begin in a child of a program with threads\n");
	skip();
#endif
	assert_int_equal(trace_open(timeline_path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	pid = fork();
	if (!pid)
		record_in_child();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	trace_point(TRACE_POST_RECV, 1, 2);
	trace_close();
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "post_recv"), 2);
	assert_int_equal(timeline_count(f, "post_send"), 0);
	json_object_put(f);
	snprintf(own, sizeof(own), "%s.%d", timeline_path, (int)pid);
	f = timeline_read(own);
	assert_int_equal(timeline_count(f, "post_send"), 1);
	assert_int_equal(timeline_count(f, "post_recv"), 0);
	json_object_put(f);
}

/* No handler has run: sites still see it on. */
static void a_child_of_a_raw_clone_may_meet_a_site(void **state)
{
	json_object *f;
	int status;
	pid_t pid;

	assert_int_equal(trace_open(timeline_path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid) {
		trace_point(TRACE_POST_RECV, 1, 2);
		if (trace_open(timeline_path))
			_exit(1);
		trace_point(TRACE_POST_SEND, 1, 2);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	trace_close();
	f = timeline_read(timeline_path);
	assert_int_equal(timeline_count(f, "post_recv"), 1);
	json_object_put(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, timeline_make, timeline_unmake)
		CASE(off_nothing_is_recorded),
		CASE(the_file_is_complete_json_while_the_process_runs_and_a_copy_has_all),
		CASE(a_copy_has_what_the_file_has_already),
		CASE(no_spool_is_left),
		CASE(a_spool_that_is_left_over_is_replaced),
		CASE(what_has_taken_the_place_of_file_and_spool_is_left_alone),
		CASE(a_spool_that_is_a_link_is_not_followed),
		CASE(a_link_of_somebody_else_is_not_followed),
		CASE(opening_again_goes_on_in_the_same_file),
		CASE(what_another_process_wrote_is_left_alone),
		CASE(what_cannot_be_written_is_an_error),
		CASE(a_program_that_closes_the_file_gets_no_events_into_its_own),
		CASE(a_full_disk_drops_and_counts_and_the_program_goes_on),
		CASE(where_there_is_no_room_for_the_first_event_no_file_is_left),
		CASE(a_small_file_system_that_is_full_has_a_file_that_can_be_read),
		CASE(the_end_of_the_process_completes_the_file),
		CASE(a_killed_process_leaves_what_it_recorded),
		CASE(a_process_that_does_not_exit_in_order_leaves_what_it_recorded),
		CASE(a_process_that_becomes_another_program_leaves_what_it_recorded),
		CASE(what_a_process_writes_is_finished_by_nobody_else_until_it_ends),
		CASE(a_forked_child_has_a_file_of_its_own),
		CASE(a_child_of_a_raw_clone_may_meet_a_site),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Every case writes a timeline of its own in a child process or in this one, and reads it back with json-c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
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
#include <json-c/json.h>

#include "base/trace.h"
#include "base/trace_finish.h"
#include "base/trace_spool.h"

static char folder[64], path[128], spool[136], copy[136];

static int make(void **state)
{
	strcpy(folder, "/tmp/unpin-trace.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/t.json", folder);
	snprintf(spool, sizeof(spool), "%s" TRACE_SPOOL_SUFFIX, path);
	snprintf(copy, sizeof(copy), "%s.copy", path);
	return 0;
}

static int unmake(void **state)
{
	char command[128];

	trace_close();
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static json_object *read_file(const char *name)
{
	json_object *o = json_object_from_file(name);

	assert_non_null(o);
	assert_true(json_object_is_type(o, json_type_array));
	return o;
}

static const char *text_of(json_object *o, const char *key)
{
	json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "";
}

static double number_of(json_object *o, const char *key)
{
	json_object *v = NULL;

	return json_object_object_get_ex(o, key, &v) ? json_object_get_double(v) : -1;
}

static json_object *argument_of(json_object *o, const char *key)
{
	json_object *args = NULL, *v = NULL;

	assert_true(json_object_object_get_ex(o, "args", &args));
	assert_true(json_object_object_get_ex(args, key, &v));
	return v;
}

/* The nth event of that name, or NULL. */
static json_object *find(json_object *file, const char *name, size_t nth)
{
	for (size_t i = 0; i < json_object_array_length(file); i++) {
		json_object *o = json_object_array_get_idx(file, i);

		if (strcmp(text_of(o, "name"), name) == 0 && nth-- == 0)
			return o;
	}
	return NULL;
}

static size_t count(json_object *file, const char *name)
{
	size_t n = 0;

	for (size_t i = 0; i < json_object_array_length(file); i++)
		n += strcmp(text_of(json_object_array_get_idx(file, i), "name"), name) == 0;
	return n;
}

static int64_t dropped(json_object *file)
{
	size_t n = count(file, "dropped_events");

	assert_true(n > 0);
	return json_object_get_int64(argument_of(find(file, "dropped_events", n - 1), "dropped"));
}

static void off_nothing_is_recorded(void **state)
{
	assert_false(trace_enabled());
	trace_point(TRACE_COMPLETION, 1, 2);
	assert_int_equal(trace_begin(), 0);
	trace_close();
	assert_int_equal(access(path, F_OK), -1);
}

static void each_shape_is_in_the_file_as_the_format_wants_it(void **state)
{
	json_object *f, *o;

	assert_int_equal(trace_open(path), 0);
	assert_true(trace_enabled());
	trace_record(TRACE_RESOLVE, 1234567, 1234999, 0xabcd000, 3);
	trace_record(TRACE_FAULT, 5000000, 7000001, 0x1000, 1);
	trace_record(TRACE_COMPLETION, 9000042, 9000042, 17, UINT64_MAX);
	trace_record(TRACE_STORM, 1000, 2000, 1, 0);
	trace_close();
	assert_false(trace_enabled());
	f = read_file(path);
	o = find(f, "resolve", 0);
	assert_string_equal(text_of(o, "ph"), "X");
	assert_string_equal(text_of(o, "cat"), "odp");
	assert_string_equal(text_of(o, "ts"), "1234.567");
	assert_string_equal(text_of(o, "dur"), "0.432");
	assert_int_equal(number_of(o, "pid"), getpid());
	assert_int_equal(number_of(o, "tid"), gettid());
	assert_string_equal(json_object_get_string(argument_of(o, "addr")), "0xabcd000");
	assert_int_equal(json_object_get_int64(argument_of(o, "pages")), 3);
	o = find(f, "fault", 0);
	assert_string_equal(text_of(o, "ph"), "b");
	assert_string_equal(text_of(o, "ts"), "5000.000");
	assert_string_equal(text_of(find(f, "fault", 1), "ph"), "e");
	assert_string_equal(text_of(find(f, "fault", 1), "ts"), "7000.001");
	assert_int_equal(number_of(o, "id"), number_of(find(f, "fault", 1), "id"));
	o = find(f, "completion", 0);
	assert_string_equal(text_of(o, "ph"), "i");
	assert_string_equal(json_object_get_string(argument_of(o, "wr_id")), "0xffffffffffffffff");
	assert_string_equal(
		json_object_get_string(argument_of(find(f, "storm", 0), "cause")), "major faults");
	assert_int_equal(count(f, "process_name"), 1);
	assert_int_equal(count(f, "thread_name"), 1);
	assert_int_equal(dropped(f), 0);
	json_object_put(f);
}

/* The writer may empty the ring meanwhile: what counts is that nothing is lost without being told. */
static void what_a_full_ring_drops_is_counted_in_the_file(void **state)
{
	const int64_t all = 8 * TRACE_RING_UNITS;
	json_object *f;

	assert_int_equal(trace_open(path), 0);
	for (int64_t i = 0; i < all; i++)
		trace_record(TRACE_POST_SEND, 1, 1, 1, (uint64_t)i);
	trace_close();
	f = read_file(path);
	assert_true(dropped(f) > 0);
	assert_int_equal((int64_t)count(f, "post_send") + dropped(f), all);
	json_object_put(f);
}

static void texts_stand_in_the_file_as_they_came(void **state)
{
	char text[TRACE_TEXT_MAX], ts[TRACE_US_BYTES];
	json_object *f;
	int n;

	trace_text("{}", 2); /* off */
	assert_int_equal(trace_open(path), 0);
	for (unsigned i = 0; i < 100; i++) {
		n = snprintf(text, sizeof(text),
			"{\"name\":\"text\",\"ph\":\"i\",\"ts\":%s,\"args\":{\"i\":%u}}",
			trace_us(ts, 1000 * i + 7), i);
		trace_text(text, (size_t)n);
	}
	/* The longest, and one that is longer. */
	memset(text, ' ', sizeof(text));
	memcpy(text, "{\"name\":\"long\"", 14);
	text[sizeof(text) - 1] = '}';
	trace_text(text, sizeof(text));
	trace_text(text, sizeof(text) + 1);
	trace_close();
	f = read_file(path);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(json_object_get_int(argument_of(find(f, "text", i), "i")), i);
		snprintf(text, sizeof(text), "%u.007", i);
		assert_string_equal(text_of(find(f, "text", i), "ts"), text);
	}
	assert_int_equal(count(f, "long"), 1);
	assert_int_equal(dropped(f), 1);
	json_object_put(f);
}

static void texts_that_find_no_room_are_counted(void **state)
{
	const int64_t all = 4 * TRACE_TEXT_QUEUE / 64;
	char text[64] = "{\"name\":\"text\"";
	json_object *f;

	memset(text + 14, ' ', sizeof(text) - 14);
	text[sizeof(text) - 1] = '}';
	assert_int_equal(trace_open(path), 0);
	for (int64_t i = 0; i < all; i++)
		trace_text(text, sizeof(text));
	trace_close();
	f = read_file(path);
	assert_true(dropped(f) > 0);
	assert_int_equal((int64_t)count(f, "text") + dropped(f), all);
	json_object_put(f);
}

/* --- threads -----------------------------------------------------------------------------------------------
 */

#define THREADS	   (TRACE_RINGS / 2)
#define PER_THREAD 500u

static void *record(void *arg)
{
	pthread_setname_np(pthread_self(), arg ? arg : "many");
	for (unsigned i = 0; i < PER_THREAD; i++)
		trace_point(TRACE_COMPLETION, (uint64_t)gettid(), i);
	return NULL;
}

static void in_threads(unsigned n)
{
	pthread_t t[THREADS];

	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pthread_create(&t[i], NULL, record, NULL), 0);
	for (unsigned i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

/* By thread, the events stand in the order in which they happened, whole. */
static void check_order(json_object *f, unsigned threads)
{
	struct {
		int64_t tid, next;
		double ts;
	} seen[TRACE_RINGS * 8] = { 0 };
	unsigned used = 0, ended = 0;

	for (size_t i = 0; i < json_object_array_length(f); i++) {
		json_object *o = json_object_array_get_idx(f, i);
		int64_t tid = (int64_t)number_of(o, "tid");
		unsigned k = used;

		if (strcmp(text_of(o, "name"), "completion") != 0)
			continue;
		assert_int_equal(json_object_get_int64(argument_of(o, "qp")), tid);
		/* The last one of that number: numbers come again. */
		while (k > 0 && seen[k - 1].tid != tid)
			k--;
		if (!k || seen[k - 1].next == PER_THREAD) {
			assert_true(used < TRACE_RINGS * 8);
			seen[used++].tid = tid;
			k = used;
		}
		assert_int_equal(json_object_get_int64(argument_of(o, "wr_id")), seen[k - 1].next);
		assert_true(number_of(o, "ts") >= seen[k - 1].ts);
		seen[k - 1].ts = number_of(o, "ts");
		ended += ++seen[k - 1].next == PER_THREAD;
	}
	assert_int_equal(used, threads);
	assert_int_equal(ended, threads);
}

static void many_threads_have_their_events_in_order(void **state)
{
	json_object *f;

	assert_int_equal(trace_open(path), 0);
	in_threads(THREADS);
	trace_close();
	f = read_file(path);
	assert_int_equal(dropped(f), 0);
	check_order(f, THREADS);
	json_object_put(f);
}

/* Twice as many threads as there are rings, in turns: the writer needs a moment to see that they ended. */
static void rings_of_ended_threads_serve_others(void **state)
{
	json_object *f;

	assert_int_equal(trace_open(path), 0);
	for (int turn = 0; turn < 4; turn++) {
		in_threads(THREADS);
		usleep(100000);
	}
	trace_close();
	f = read_file(path);
	assert_int_equal((int64_t)count(f, "completion") + dropped(f), 4 * THREADS * PER_THREAD);
	assert_true(count(f, "completion") > TRACE_RINGS * PER_THREAD);
	json_object_put(f);
}

static pthread_barrier_t all_there;

static void *record_together(void *arg)
{
	trace_point(TRACE_COMPLETION, 1, 1);
	pthread_barrier_wait(&all_there);
	return arg;
}

static void threads_without_a_ring_are_counted(void **state)
{
	pthread_t t[TRACE_RINGS + 5];
	json_object *f;

	assert_int_equal(pthread_barrier_init(&all_there, NULL, TRACE_RINGS + 5), 0);
	assert_int_equal(trace_open(path), 0);
	trace_point(TRACE_COMPLETION, 1, 1);
	for (unsigned i = 0; i < TRACE_RINGS + 5; i++)
		assert_int_equal(pthread_create(&t[i], NULL, record_together, NULL), 0);
	for (unsigned i = 0; i < TRACE_RINGS + 5; i++)
		pthread_join(t[i], NULL);
	trace_close();
	pthread_barrier_destroy(&all_there);
	f = read_file(path);
	assert_true(dropped(f) >= 6);
	assert_int_equal((int64_t)count(f, "completion") + dropped(f), TRACE_RINGS + 6);
	json_object_put(f);
}

static void names_of_threads_cannot_break_the_file(void **state)
{
	static char name[] = "a\"b\\c\n\xff";
	pthread_t t;
	json_object *f;
	bool found = false;

	assert_int_equal(trace_open(path), 0);
	assert_int_equal(pthread_create(&t, NULL, record, name), 0);
	pthread_join(t, NULL);
	trace_close();
	f = read_file(path);
	for (size_t i = 0; i < count(f, "thread_name"); i++)
		found = found ||
			strcmp(json_object_get_string(argument_of(find(f, "thread_name", i), "name")),
				"a\"b\\c??") == 0;
	assert_true(found);
	json_object_put(f);
}

/* --- files -------------------------------------------------------------------------------------------------
 */

/* Until the writer has written so many. */
static void wait_for_events(const char *name, size_t n)
{
	for (int i = 0; i < 1000; i++) {
		json_object *f = NULL;
		size_t there = 0;

		unlink(copy);
		if (trace_finish_copy(spool, copy) == 0)
			f = json_object_from_file(copy);
		if (f)
			there = count(f, name);
		json_object_put(f);
		if (there >= n)
			return;
		usleep(10000);
	}
	fail_msg("the writer wrote nothing");
}

static void the_file_is_complete_json_while_the_process_runs_and_a_copy_has_all(void **state)
{
	assert_int_equal(trace_open(path), 0);
	for (unsigned i = 1; i <= 3; i++) {
		json_object *f;

		trace_point(TRACE_POST_RECV, i, i);
		wait_for_events("post_recv", i);
		f = read_file(path);
		assert_int_equal(count(f, "process_name"), 1);
		assert_int_equal(count(f, "post_recv"), 0);
		json_object_put(f);
	}
	assert_int_equal(trace_finish_copy(spool, copy), -EEXIST);
}

static void a_copy_has_what_the_file_has_already(void **state)
{
	json_object *f;

	assert_int_equal(trace_finish_copy(spool, copy), -ENOENT);
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(trace_open(path), 0);
		trace_record(TRACE_FAULT, 1000, 2000, 4096, i);
		wait_for_events("fault", 2 * i);
		trace_close();
	}
	f = read_file(copy);
	assert_int_equal(count(f, "process_name"), 1);
	assert_int_equal(count(f, "dropped_events"), 1);
	assert_int_equal(number_of(find(f, "fault", 0), "id"), 1);
	assert_int_equal(number_of(find(f, "fault", 2), "id"), 2);
	json_object_put(f);
}

static void no_spool_is_left(void **state)
{
	assert_int_equal(trace_open(path), 0);
	assert_int_equal(access(spool, F_OK), 0);
	trace_close();
	assert_int_equal(access(spool, F_OK), -1);
}

static void a_spool_that_is_left_over_is_replaced(void **state)
{
	int fd = open(spool, O_WRONLY | O_CREAT, 0600);

	assert_int_equal(write(fd, "old", 3), 3);
	close(fd);
	assert_int_equal(trace_open(path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	trace_close();
	json_object_put(read_file(path));
	assert_int_equal(access(spool, F_OK), -1);
}

static void a_spool_that_is_a_link_is_not_followed(void **state)
{
	char other[PATH_MAX];
	struct stat st;
	int fd;

	snprintf(other, sizeof(other), "%s/other", folder);
	fd = open(other, O_WRONLY | O_CREAT, 0600);
	close(fd);
	assert_int_equal(symlink(other, spool), 0);
	assert_int_equal(trace_open(path), -EEXIST);
	assert_false(trace_enabled());
	assert_int_equal(stat(other, &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void opening_again_goes_on_in_the_same_file(void **state)
{
	json_object *f;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(trace_open(path), 0);
		assert_int_equal(trace_open(path), -EBUSY);
		trace_point(TRACE_POST_RECV, 7, i);
		trace_close();
		trace_point(TRACE_POST_RECV, 7, 99); /* off */
	}
	f = read_file(path);
	assert_int_equal(count(f, "post_recv"), 3);
	assert_int_equal(json_object_get_int64(argument_of(find(f, "post_recv", 2), "wr_id")), 2);
	assert_int_equal(count(f, "process_name"), 1);
	json_object_put(f);
}

static void what_another_process_wrote_is_left_alone(void **state)
{
	static const char before[] = "something";
	char own[PATH_MAX], text[sizeof(before)] = "";
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	json_object *f;

	assert_int_equal(write(fd, before, strlen(before)), strlen(before));
	assert_int_equal(trace_open(path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	trace_close();
	assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), strlen(before));
	assert_string_equal(text, before);
	close(fd);
	snprintf(own, sizeof(own), "%s.%d", path, (int)getpid());
	f = read_file(own);
	assert_int_equal(count(f, "post_recv"), 1);
	json_object_put(f);
}

static void what_cannot_be_written_is_an_error(void **state)
{
	char other[PATH_MAX];

	snprintf(other, sizeof(other), "%s/no/t.json", folder);
	assert_int_equal(trace_open(other), -ENOENT);
	assert_int_equal(trace_open(folder), -EISDIR);
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

	snprintf(other, sizeof(other), "%s/other", folder);
	fd = open(other, O_RDWR | O_CREAT, 0600);
	assert_int_equal(trace_open(path), 0);
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
	f = read_file(path);
	assert_int_equal(count(f, "post_recv"), 1);
	json_object_put(f);
}

static void wait_for_bytes(int64_t bytes)
{
	struct stat st = { 0 };

	for (int i = 0; i < 1000 && st.st_size < bytes; i++) {
		usleep(10000);
		stat(spool, &st);
	}
}

/* RLIMIT_FSIZE stands in for it, for spool and file alike. */
static int record_on_a_full_disk(int64_t events)
{
	struct rlimit limit = { 100000, RLIM_INFINITY };
	char text[] = "{\"name\":\"text\"}";

	setrlimit(RLIMIT_FSIZE, &limit);
	freopen("/dev/null", "w", stderr);
	if (trace_open(path))
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
	f = read_file(path);
	there = (int64_t)(count(f, "post_recv") + count(f, "text"));
	assert_true(there > 0 && dropped(f) > 0);
	assert_int_equal(there + dropped(f), events + events / 100);
	json_object_put(f);
	/* There is room again: what the spool has, which is more, since it is shorter than its text. */
	assert_int_equal(trace_finish_spool(spool, false), 0);
	f = read_file(path);
	assert_true((int64_t)(count(f, "post_recv") + count(f, "text")) > there);
	assert_int_equal(
		(int64_t)(count(f, "post_recv") + count(f, "text")) + dropped(f), events + events / 100);
	json_object_put(f);
	assert_int_equal(access(spool, F_OK), -1);
}

static void a_small_file_system_that_is_full_has_a_file_that_can_be_read(void **state)
{
	const int64_t events = 100000;
	json_object *f;
	int status;
	pid_t pid;

	if (mount("none", folder, "tmpfs", 0, "size=1m")) {
		print_message("no file system can be mounted here: %s\n", strerror(errno));
		skip();
	}
	pid = fork();
	if (!pid) {
		freopen("/dev/null", "w", stderr);
		if (trace_open(path))
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
	f = json_object_from_file(path);
	umount(folder);
	assert_int_equal(status, 0);
	assert_non_null(f);
	assert_true(dropped(f) > 0);
	assert_int_equal((int64_t)count(f, "post_recv") + dropped(f), events);
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
	trace_open(path);
	for (int i = 0; i < 1000; i++)
		trace_point(TRACE_POST_RECV, 1, (uint64_t)i);
	exit(0);
}

static void the_end_of_the_process_completes_the_file(void **state)
{
	json_object *f;

	in_child(record_and_exit, 0);
	f = read_file(path);
	assert_int_equal(count(f, "post_recv"), 1000);
	json_object_put(f);
}

static void record_until_written(void)
{
	trace_open(path);
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
	f = read_file(path);
	assert_int_equal(count(f, "process_name"), 1);
	json_object_put(f);
	assert_int_equal(trace_finish_spool(spool, false), 0);
	f = read_file(path);
	assert_int_equal(count(f, "post_recv"), 1000);
	assert_int_equal(dropped(f), 0);
	json_object_put(f);
	assert_int_equal(access(spool, F_OK), -1);
	assert_int_equal(trace_finish_spool(spool, false), -ENOENT);
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

	snprintf(said, sizeof(said), "%s/end", folder);
	trace_open(path);
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
	assert_int_equal(trace_finish_spool(spool, false), -EAGAIN);
	snprintf(said, sizeof(said), "%s/end", folder);
	close(open(said, O_CREAT | O_WRONLY, 0600));
	/* Waits, and finds that it has been done. */
	status = trace_finish_spool(spool, true);
	assert_true(status == 0 || status == -ENOENT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	f = read_file(path);
	assert_int_equal(count(f, "post_recv"), 1000);
	json_object_put(f);
}

static void record_in_child(void)
{
	trace_abandon();
	trace_point(TRACE_POST_SEND, 1, 1); /* off */
	if (trace_open(path))
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
	assert_int_equal(trace_open(path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	pid = fork();
	if (!pid)
		record_in_child();
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	trace_point(TRACE_POST_RECV, 1, 2);
	trace_close();
	f = read_file(path);
	assert_int_equal(count(f, "post_recv"), 2);
	assert_int_equal(count(f, "post_send"), 0);
	json_object_put(f);
	snprintf(own, sizeof(own), "%s.%d", path, (int)pid);
	f = read_file(own);
	assert_int_equal(count(f, "post_send"), 1);
	assert_int_equal(count(f, "post_recv"), 0);
	json_object_put(f);
}

/* No handler has run: sites still see it on. */
static void a_child_of_a_raw_clone_may_meet_a_site(void **state)
{
	json_object *f;
	int status;
	pid_t pid;

	assert_int_equal(trace_open(path), 0);
	trace_point(TRACE_POST_RECV, 1, 1);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (!pid) {
		trace_point(TRACE_POST_RECV, 1, 2);
		if (trace_open(path))
			_exit(1);
		trace_point(TRACE_POST_SEND, 1, 2);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	trace_close();
	f = read_file(path);
	assert_int_equal(count(f, "post_recv"), 1);
	json_object_put(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, make, unmake)
		CASE(off_nothing_is_recorded),
		CASE(each_shape_is_in_the_file_as_the_format_wants_it),
		CASE(what_a_full_ring_drops_is_counted_in_the_file),
		CASE(texts_stand_in_the_file_as_they_came),
		CASE(texts_that_find_no_room_are_counted),
		CASE(many_threads_have_their_events_in_order),
		CASE(rings_of_ended_threads_serve_others),
		CASE(threads_without_a_ring_are_counted),
		CASE(names_of_threads_cannot_break_the_file),
		CASE(the_file_is_complete_json_while_the_process_runs_and_a_copy_has_all),
		CASE(a_copy_has_what_the_file_has_already),
		CASE(no_spool_is_left),
		CASE(a_spool_that_is_left_over_is_replaced),
		CASE(a_spool_that_is_a_link_is_not_followed),
		CASE(opening_again_goes_on_in_the_same_file),
		CASE(what_another_process_wrote_is_left_alone),
		CASE(what_cannot_be_written_is_an_error),
		CASE(a_program_that_closes_the_file_gets_no_events_into_its_own),
		CASE(a_full_disk_drops_and_counts_and_the_program_goes_on),
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

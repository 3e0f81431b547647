/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Spools are made by trace_open() and its kin, or by hand, damaged, and finished; json-c says what comes of
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <json-c/json.h>

#include "base/trace.h"
#include "base/trace_finish.h"
#include "base/trace_json.h"
#include "base/trace_spool.h"
#include "base/trace_text.h"

static char folder[64], path[128], spool_path[136];
static struct trace_json json;
static struct trace_spool spool;

/* A timeline of which the process's name is written. */
static int make(void **state)
{
	int fd;

	strcpy(folder, "/tmp/unpin-finish.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/t.json", folder);
	snprintf(spool_path, sizeof(spool_path), "%s" TRACE_SPOOL_SUFFIX, path);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	trace_json_init(&json, fd, 77, 0);
	trace_json_open(&json, "pro\"gram");
	if (trace_json_close(&json))
		return -1;
	return close(fd);
}

static int unmake(void **state)
{
	char command[128];

	trace_spool_close(&spool, false);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static void create(void)
{
	const struct trace_spool_head head = { .pid = 77, .resume = json.end };

	assert_int_equal(trace_spool_create(&spool, path, &head), 0);
}

static int append(enum trace_spool_kind kind, const void *payload, size_t n)
{
	struct trace_spool_block b = {
		.kind = kind, .tid = 78, .from = { 1000, 5000 }, .to = { 2000, 6000 }
	};
	const struct iovec piece = { (void *)(uintptr_t)payload, n };

	return trace_spool_append(&spool, &b, &piece, 1);
}

static void append_moment(uint64_t number)
{
	struct trace_unit u = trace_event_short(TRACE_POST_SEND, 1600, 3, number);

	assert_int_equal(append(TRACE_SPOOL_EVENTS, &u, sizeof(u)), 0);
}

static void append_text(const char *text)
{
	struct trace_text_head head = { (uint32_t)strlen(text) };
	char payload[512];

	memcpy(payload, &head, sizeof(head));
	memcpy(payload + sizeof(head), text, head.bytes);
	assert_int_equal(append(TRACE_SPOOL_TEXTS, payload, sizeof(head) + head.bytes), 0);
}

/* The process that wrote it has gone. */
static int finish(void)
{
	if (spool.fd >= 0)
		trace_spool_close(&spool, false);
	return trace_finish_spool(spool_path, false);
}

static json_object *read_file(void)
{
	json_object *f = json_object_from_file(path);

	assert_non_null(f);
	assert_true(json_object_is_type(f, json_type_array));
	return f;
}

static size_t count(const char *name)
{
	json_object *f = read_file(), *v;
	size_t n = 0;

	for (size_t i = 0; i < json_object_array_length(f); i++)
		if (json_object_object_get_ex(json_object_array_get_idx(f, i), "name", &v))
			n += strcmp(json_object_get_string(v), name) == 0;
	json_object_put(f);
	return n;
}

static int64_t dropped(void)
{
	json_object *f = read_file(), *v = NULL;
	int64_t n;

	assert_true(json_object_object_get_ex(
		json_object_array_get_idx(f, json_object_array_length(f) - 1), "args", &v));
	assert_true(json_object_object_get_ex(v, "dropped", &v));
	n = json_object_get_int64(v);
	json_object_put(f);
	return n;
}

static void ticks_become_nanoseconds_on_the_line_through_two_instants(void **state)
{
	json_object *f, *v = NULL;

	create();
	append_moment(1);
	assert_int_equal(finish(), 0);
	f = read_file();
	assert_true(json_object_object_get_ex(json_object_array_get_idx(f, 1), "ts", &v));
	assert_string_equal(json_object_get_string(v), "5.600");
	json_object_put(f);
	assert_int_equal(access(spool_path, F_OK), -1);
}

static void a_text_that_is_no_event_is_counted_as_dropped(void **state)
{
	create();
	append_text("{\"name\":\"right\"}");
	append_text("{\"name\":\"wrong\"");
	append_text("{\"name\":\"right\"}");
	assert_int_equal(finish(), 0);
	assert_int_equal(count("right"), 2);
	assert_int_equal(dropped(), 1);
}

static void a_block_that_was_being_written_counts_as_far_as_it_goes(void **state)
{
	struct trace_unit u[8];
	struct stat st;

	for (uint64_t i = 0; i < 8; i++)
		u[i] = trace_event_short(TRACE_POST_SEND, 1600, 3, i);
	create();
	append_moment(1);
	assert_int_equal(append(TRACE_SPOOL_EVENTS, u, sizeof(u)), 0);
	assert_int_equal(stat(spool_path, &st), 0);
	assert_int_equal(truncate(spool_path, st.st_size - 40), 0);
	assert_int_equal(finish(), 0);
	assert_int_equal(count("post_send"), 1 + 5);
}

static void what_stands_before_damage_is_kept_and_the_spool_stays(void **state)
{
	static const char junk[64] = "junk";
	int fd;

	create();
	append_moment(1);
	fd = open(spool_path, O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	close(fd);
	assert_int_equal(finish(), -EINVAL);
	assert_int_equal(count("post_send"), 1);
	assert_int_equal(access(spool_path, F_OK), 0);
	/* Again: not twice in the file. */
	assert_int_equal(finish(), -EINVAL);
	assert_int_equal(count("post_send"), 1);
}

static void half_an_event_is_damage(void **state)
{
	create();
	assert_int_equal(append(TRACE_SPOOL_EVENTS, "fifteen bytes..", 15), 0);
	append_moment(1);
	assert_int_equal(finish(), -EINVAL);
	assert_int_equal(count("post_send"), 0);
}

static void a_spool_that_belongs_to_another_file_does_nothing_to_it(void **state)
{
	static const uint64_t resumes[] = { 0, 1, 4, 5, 1u << 20, INT64_MAX, UINT64_MAX };
	struct stat before, after;

	assert_int_equal(stat(path, &before), 0);
	for (size_t i = 0; i < sizeof(resumes) / sizeof(resumes[0]); i++) {
		const struct trace_spool_head head = { .pid = 77, .resume = resumes[i] };

		assert_int_equal(trace_spool_create(&spool, path, &head), 0);
		append_moment(1);
		assert_int_equal(finish(), -EINVAL);
	}
	/* Of another process, whose file has been replaced by this one. */
	for (uint32_t pid = 7; pid <= 777; pid *= 111) {
		const struct trace_spool_head head = { .pid = pid, .resume = json.end };

		assert_int_equal(trace_spool_create(&spool, path, &head), 0);
		append_moment(1);
		assert_int_equal(finish(), -EINVAL);
	}
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_int_equal(count("post_send"), 0);
}

static void links_and_things_that_are_no_files_are_refused(void **state)
{
	char other[136];

	snprintf(other, sizeof(other), "%s/other", folder);
	assert_int_equal(trace_finish_spool(spool_path, false), -ENOENT);
	assert_int_equal(trace_finish_spool(path, false), -EINVAL);
	create();
	append_moment(1);
	assert_int_equal(link(spool_path, other), 0);
	assert_int_equal(finish(), -EPERM);
	assert_int_equal(unlink(spool_path), 0);
	assert_int_equal(symlink(other, spool_path), 0);
	assert_int_equal(finish(), -ELOOP);
	assert_int_equal(unlink(spool_path), 0);
	assert_int_equal(mkfifo(spool_path, 0600), 0);
	assert_int_equal(finish(), -EINVAL);
	assert_int_equal(count("post_send"), 0);
}

static void a_timeline_that_has_gone_is_not_made_anew(void **state)
{
	create();
	append_moment(1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(finish(), -ENOENT);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(access(spool_path, F_OK), 0);
}

static void a_spool_does_not_grow_without_bound(void **state)
{
	create();
	append_moment(1);
	spool.end = TRACE_SPOOL_MOST - 8;
	struct trace_unit u = { { 0, 0 } };

	assert_int_equal(append(TRACE_SPOOL_EVENTS, &u, sizeof(u)), -EFBIG);
}

/* A real one, changed at random: whatever it says, the timeline can be read. */
static void whatever_a_spool_says_the_timeline_can_be_read(void **state)
{
	static char good[65536], bad[65536];
	ssize_t n;
	int fd;

	create();
	for (uint64_t i = 0; i < 20; i++) {
		struct trace_unit u[2] = { trace_event_long((enum trace_site)(i % TRACE_SITE_COUNT), i, i),
			{ { i, i } } };

		append_moment(i);
		assert_int_equal(append(TRACE_SPOOL_EVENTS, u, sizeof(u)), 0);
		append_text("{\"name\":\"a text\",\"args\":{\"x\":[1,2,3]}}");
		assert_int_equal(append(TRACE_SPOOL_NAME, "a thread's name", TRACE_RING_NAME), 0);
	}
	trace_spool_close(&spool, false);
	fd = open(spool_path, O_RDWR);
	n = read(fd, good, sizeof(good));
	assert_true(n > 1000 && n < (ssize_t)sizeof(good));
	srandom(4);
	for (int turn = 0; turn < 3000; turn++) {
		int changes = 1 + (int)(random() % 4);
		ssize_t length = random() % 4 ? n : random() % n;

		memcpy(bad, good, (size_t)n);
		while (changes--) {
			ssize_t at = random() % n;

			if (random() % 2)
				bad[at] = (char)random();
			else
				memset(bad + at, random() % 2 ? 0xff : 0, (size_t)(n - at < 8 ? n - at : 8));
		}
		assert_int_equal(pwrite(fd, bad, (size_t)n, 0), n);
		assert_int_equal(ftruncate(fd, length), 0);
		/* It may have been finished, and removed. */
		if (finish() == 0) {
			close(fd);
			fd = open(spool_path, O_RDWR | O_CREAT | O_EXCL, 0600);
			assert_true(fd >= 0);
		}
		assert_int_equal(count("process_name"), 1);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, make, unmake)
		CASE(ticks_become_nanoseconds_on_the_line_through_two_instants),
		CASE(a_text_that_is_no_event_is_counted_as_dropped),
		CASE(a_block_that_was_being_written_counts_as_far_as_it_goes),
		CASE(what_stands_before_damage_is_kept_and_the_spool_stays),
		CASE(half_an_event_is_damage),
		CASE(a_spool_that_belongs_to_another_file_does_nothing_to_it),
		CASE(links_and_things_that_are_no_files_are_refused),
		CASE(a_timeline_that_has_gone_is_not_made_anew),
		CASE(a_spool_does_not_grow_without_bound),
		CASE(whatever_a_spool_says_the_timeline_can_be_read),
	};

	spool.fd = -1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "../counted_pins.h"
#include "../small_pages.h"
#include "mm/facility.h"
#include "mm/uringbuf.h"
#include "tests/mm/child.h"
#include "tests/mm/status.h"

#define PAGE 4096ul

static bool missing(void)
{
	if (mm_have(MM_IO_URING))
		return false;
	print_message("io_uring: %s\n", mm_facility_why_not(MM_IO_URING));
	return true;
}

static char *map(size_t pages)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* On older kernels pages are let go of a moment later. */
static bool pinned_becomes(long kib)
{
	for (int i = 0; i < 3000; i++) {
		if (status_kib("VmPin") == kib)
			return true;
		usleep(1000);
	}
	return false;
}

static void a_buffer_is_pinned_and_given_back(void **state)
{
	struct uringbuf buf;
	char *p = map(16);
	long before;

	if (missing())
		skip();
	before = status_kib("VmPin");
	assert_int_equal(uringbuf_pin((uintptr_t)p, 16 * PAGE, &buf), 0);
	assert_int_equal(status_kib("VmPin"), before + 64);
	uringbuf_unpin(&buf);
	assert_true(pinned_becomes(before));
	munmap(p, 16 * PAGE);
}

static void bytes_pass_through_the_pinned_pages_when_the_mapping_is_gone(void **state)
{
	const size_t pages = 100;
	char *p = map(pages), *sent = malloc(pages * PAGE), *got = malloc(pages * PAGE);
	struct uringbuf buf;

	if (missing())
		skip();
	for (size_t i = 0; i < pages * PAGE; i++)
		sent[i] = (char)(i * 31 >> 3);
	assert_int_equal(uringbuf_pin((uintptr_t)p, pages * PAGE, &buf), 0);
	memset(p, 1, pages * PAGE);
	munmap(p, pages * PAGE);
	memset(got, 0, pages * PAGE);
	assert_int_equal(uringbuf_read(&buf, (uintptr_t)p + 5, got, pages * PAGE - 10), 0);
	assert_int_equal(got[0], 1);
	assert_int_equal(got[pages * PAGE - 11], 1);
	assert_int_equal(got[pages * PAGE - 10], 0);
	assert_int_equal(uringbuf_write(&buf, (uintptr_t)p + 3, sent, pages * PAGE - 3), 0);
	assert_int_equal(uringbuf_read(&buf, (uintptr_t)p + 3, got, pages * PAGE - 3), 0);
	assert_memory_equal(sent, got, pages * PAGE - 3);
	assert_int_equal(uringbuf_read(&buf, (uintptr_t)p, got, 3), 0);
	assert_int_equal(got[2], 1);
	/* Outside. */
	assert_int_equal(uringbuf_read(&buf, (uintptr_t)p + pages * PAGE - 1, got, 2), -EFAULT);
	assert_int_equal(uringbuf_write(&buf, (uintptr_t)p - 1, got, 1), -EFAULT);
	assert_int_equal(uringbuf_read(&buf, (uintptr_t)p + 3, got, 8), 0);
	assert_memory_equal(sent, got, 8);
	uringbuf_unpin(&buf);
	free(sent);
	free(got);
}

static uint64_t plus(uint64_t old, const void *arg)
{
	return old + *(const uint64_t *)arg;
}

static struct uringbuf shared_buf;
static uintptr_t shared_word;

static void *add_many(void *arg)
{
	uint64_t one = 1, orig;

	for (int i = 0; i < 500; i++)
		if (uringbuf_modify(&shared_buf, shared_word, plus, &one, &orig))
			return (void *)1;
	return NULL;
}

static void changes_of_one_word_do_not_overtake_each_other(void **state)
{
	pthread_t thread[3];
	uint64_t word, forty = 40, orig;
	void *failed;
	char *p = map(1);

	if (missing())
		skip();
	assert_int_equal(uringbuf_pin((uintptr_t)p, PAGE, &shared_buf), 0);
	shared_word = (uintptr_t)p + 64;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, add_many, NULL);
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &failed);
		assert_null(failed);
	}
	assert_int_equal(uringbuf_modify(&shared_buf, shared_word, plus, &forty, &orig), 0);
	assert_int_equal(orig, 1500);
	memcpy(&word, p + 64, 8);
	assert_int_equal(word, 1540);
	uringbuf_unpin(&shared_buf);
	munmap(p, PAGE);
}

static void there_may_be_more_buffers_than_a_ring_has_slots(void **state)
{
	static struct uringbuf buf[1100];
	const unsigned n = 1100;
	char *p = map(n);
	char c;
	long before;

	if (missing() || (getuid() && status_kib("VmPin") >= 0 && n * 4 > 4096)) {
		print_message("needs the right to pin more\n");
		skip();
	}
	before = status_kib("VmPin");
	for (unsigned i = 0; i < n; i++) {
		p[i * PAGE] = (char)i;
		assert_int_equal(uringbuf_pin((uintptr_t)p + i * PAGE, PAGE, &buf[i]), 0);
	}
	assert_int_equal(status_kib("VmPin"), before + 4 * n);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(uringbuf_read(&buf[i], (uintptr_t)p + i * PAGE, &c, 1), 0);
		assert_int_equal(c, (char)i);
	}
	/* Slots in the middle are used again. */
	for (unsigned i = 100; i < 900; i += 7)
		uringbuf_unpin(&buf[i]);
	for (unsigned i = 100; i < 900; i += 7)
		assert_int_equal(uringbuf_pin((uintptr_t)p + i * PAGE, PAGE, &buf[i]), 0);
	for (unsigned i = 0; i < n; i++)
		uringbuf_unpin(&buf[i]);
	assert_true(pinned_becomes(before));
	munmap(p, n * PAGE);
}

static void memory_that_cannot_be_pinned_is_refused(void **state)
{
	struct uringbuf buf;
	char *p = map(4);
	long before;

	if (missing())
		skip();
	before = status_kib("VmPin");
	mprotect(p, PAGE, PROT_READ);
	munmap(p + 2 * PAGE, PAGE);
	assert_int_equal(uringbuf_pin((uintptr_t)p, PAGE, &buf), -EFAULT);
	assert_int_equal(uringbuf_pin((uintptr_t)p + PAGE, 3 * PAGE, &buf), -EFAULT);
	assert_int_equal(status_kib("VmPin"), before);
	munmap(p, 4 * PAGE);
}

/* As an ordinary user with room for 128 KiB; also that what was given back can be had again at once. */
static int limited(void)
{
	const struct rlimit room = { 128 << 10, 128 << 10 };
	struct uringbuf a, b;
	char *p = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* A ring made by root has no limit. */
	uringbuf_drop_inherited();
	/* A user whom nobody else pins for. */
	if (setrlimit(RLIMIT_MEMLOCK, &room) || (!getuid() && setresuid(54321, 54321, 54321)))
		return 77;
	if (uringbuf_pin((uintptr_t)p, 64 * PAGE, &a) != -ENOMEM)
		return 1;
	for (int i = 0; i < 3; i++) {
		int err = uringbuf_pin((uintptr_t)p, 20 * PAGE, &a);

		/* The charges of processes of the same user that have just ended may stand for a while. */
		for (int tries = 0; err == -ENOMEM && tries < 100; tries++)
			err = uringbuf_pin((uintptr_t)p, 20 * PAGE, &a);
		if (err)
			return 2;
		if (uringbuf_pin((uintptr_t)p + 20 * PAGE, 20 * PAGE, &b) != -ENOMEM)
			return 3;
		uringbuf_unpin(&a);
	}
	return 0;
}

static void the_limit_is_honoured_and_given_back(void **state)
{
	int status;

	if (missing())
		skip();
	status = in_child(limited);
	if (exited(status, 77)) {
		print_message("cannot become another user or lower the limit here\n");
		skip();
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int ring_fd(void)
{
	char path[64], target[64];

	for (int fd = 3; fd < 70000; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, target, sizeof(target) - 1);
		if (n == 21 && !memcmp(target, "anon_inode:[io_uring]", 21))
			return fd;
	}
	return -1;
}

static int inherits_nothing(void)
{
	struct uringbuf buf;
	char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	uringbuf_drop_inherited();
	if (ring_fd() >= 0)
		return 1;
	if (uringbuf_pin((uintptr_t)p, PAGE, &buf) || status_kib("VmPin") != 4)
		return 2;
	uringbuf_unpin(&buf);
	return 0;
}

static void a_child_drops_the_ring_and_makes_its_own(void **state)
{
	struct uringbuf buf;
	char *p = map(1), c = 0;
	int fd;

	if (missing())
		skip();
	*p = 7;
	assert_int_equal(uringbuf_pin((uintptr_t)p, PAGE, &buf), 0);
	fd = ring_fd();
	assert_true(fd >= 512);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_true(exited(in_child(inherits_nothing), 0));
	assert_int_equal(uringbuf_read(&buf, (uintptr_t)p, &c, 1), 0);
	assert_int_equal(c, 7);
	uringbuf_unpin(&buf);
	munmap(p, PAGE);
}

static int ring_closed(void)
{
	struct uringbuf a, b;
	char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), c = 1;

	if (uringbuf_pin((uintptr_t)p, PAGE, &a))
		return 1;
	close(ring_fd());
	if (uringbuf_write(&a, (uintptr_t)p, &c, 1) != -EFAULT || *p)
		return 2;
	/* A new ring is made. */
	if (uringbuf_pin((uintptr_t)p + PAGE, PAGE, &b) || uringbuf_write(&b, (uintptr_t)p + PAGE, &c, 1) ||
		p[PAGE] != 1)
		return 3;
	uringbuf_unpin(&a);
	uringbuf_unpin(&b);
	return 0;
}

static void a_ring_that_the_application_closed_fails_cleanly_and_is_replaced(void **state)
{
	if (missing())
		skip();
	assert_true(exited(in_child(ring_closed), 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_that_the_application_closed_fails_cleanly_and_is_replaced),
		cmocka_unit_test(a_buffer_is_pinned_and_given_back),
		cmocka_unit_test(bytes_pass_through_the_pinned_pages_when_the_mapping_is_gone),
		cmocka_unit_test(changes_of_one_word_do_not_overtake_each_other),
		cmocka_unit_test(there_may_be_more_buffers_than_a_ring_has_slots),
		cmocka_unit_test(memory_that_cannot_be_pinned_is_refused),
		cmocka_unit_test(the_limit_is_honoured_and_given_back),
		cmocka_unit_test(a_child_drops_the_ring_and_makes_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/interpose.h"
#include "mm/userfault.h"

#define PAGE 4096ul

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

static int open_or_skip(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0) {
		print_message("no userfaultfd here\n");
		skip();
	}
	assert_int_equal(ioctl(fd, UFFDIO_API, &api), 0);
	return fd;
}

static uintptr_t map(size_t pages)
{
	void *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return (uintptr_t)p;
}

static void watch(int fd, uintptr_t addr, size_t pages, uint64_t mode)
{
	struct uffdio_register r = { .range = { addr, pages * PAGE }, .mode = mode };

	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &r), 0);
}

static void unwatch(int fd, uintptr_t addr, size_t pages)
{
	struct uffdio_range r = { addr, pages * PAGE };

	assert_int_equal(ioctl(fd, UFFDIO_UNREGISTER, &r), 0);
}

static void a_registered_range_is_watched_until_it_is_unregistered(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(4);

	(void)state;
	assert_false(userfault_watched(m, 4 * PAGE));
	watch(fd, m + PAGE, 2, UFFDIO_REGISTER_MODE_MISSING);
	assert_false(userfault_watched(m, PAGE));
	assert_true(userfault_watched(m, PAGE + 1));
	assert_true(userfault_watched(m + 2 * PAGE + 5, 1));
	assert_false(userfault_watched(m + 3 * PAGE, PAGE));
	/* A part: the rest may be watched still. */
	unwatch(fd, m + PAGE, 1);
	assert_true(userfault_watched(m + 2 * PAGE, 1));
	unwatch(fd, m, 4);
	assert_false(userfault_watched(m, 4 * PAGE));
	close(fd);
	munmap((void *)m, 4 * PAGE);
}

static void unmapping_ends_it(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(2);

	(void)state;
	watch(fd, m, 2, UFFDIO_REGISTER_MODE_MISSING);
	munmap((void *)m, 2 * PAGE);
	assert_false(userfault_watched(m, 2 * PAGE));
	close(fd);
}

static void write_protection_alone_makes_nobody_wait_for_a_missing_page(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(1);

	(void)state;
	watch(fd, m, 1, UFFDIO_REGISTER_MODE_WP);
	assert_false(userfault_watched(m, PAGE));
	close(fd);
	munmap((void *)m, PAGE);
}

static void more_ranges_than_there_is_room_for_make_everything_watched(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(1024);

	(void)state;
	assert_false(userfault_watched(1, 1));
	for (size_t i = 0; i < 300; i++)
		watch(fd, m + 2 * i * PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	assert_true(userfault_watched(m + 2 * 299 * PAGE, 1));
	assert_true(userfault_watched(1, 1));
	close(fd);
	munmap((void *)m, 1024 * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_registered_range_is_watched_until_it_is_unregistered),
		cmocka_unit_test(unmapping_ends_it),
		cmocka_unit_test(write_protection_alone_makes_nobody_wait_for_a_missing_page),
		cmocka_unit_test(more_ranges_than_there_is_room_for_make_everything_watched),
	};

	/* Links our munmap, where a sanitizer's would do. */
	interpose_observe(NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/behind.h"
#include "mm/early.h"
#include "mm/interpose.h"
#include "mm/sigchain.h"
#include "mm/userfault.h"
#include "tests/mm/child.h"

#define PAGE 4096ul

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

void *__real_raw_mmap(void *addr, size_t len, int prot, int flags, int fd, long off);
void *__wrap_raw_mmap(void *addr, size_t len, int prot, int flags, int fd, long off);

/* The memory that is taken for what is noted. */
static atomic_bool no_memory;
static atomic_uint maps;

__attribute__((visibility("default"))) void *__wrap_raw_mmap(
	void *addr, size_t len, int prot, int flags, int fd, long off)
{
	atomic_fetch_add(&maps, 1);
	if (atomic_load(&no_memory)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return __real_raw_mmap(addr, len, prot, flags, fd, off);
}

long __real_syscall(long n, ...);
long __wrap_syscall(long n, long a, long b, long c, long d, long e, long f);

/* What another thread registers just when a range has been unregistered. */
static uintptr_t registers_next;
static int registers_by;

EARLY __attribute__((visibility("default"))) long __wrap_syscall(
	long n, long a, long b, long c, long d, long e, long f)
{
	long r = __real_syscall(n, a, b, c, d, e, f);

	if (n == SYS_ioctl && (unsigned long)b == UFFDIO_UNREGISTER && registers_next) {
		struct uffdio_register reg = { .range = { registers_next, PAGE },
			.mode = UFFDIO_REGISTER_MODE_MISSING };

		registers_next = 0;
		assert_int_equal(ioctl(registers_by, UFFDIO_REGISTER, &reg), 0);
	}
	return r;
}

static int open_one(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	return fd < 0 || !ioctl(fd, UFFDIO_API, &api) ? fd : -1;
}

static int open_or_skip(void)
{
	int fd = open_one();

	if (fd < 0) {
		print_message("no userfaultfd here\n");
		skip();
	}
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
	/* A part: the rest is watched still. */
	unwatch(fd, m + PAGE, 1);
	assert_false(userfault_watched(m, 2 * PAGE));
	assert_true(userfault_watched(m + 2 * PAGE, 1));
	unwatch(fd, m, 4);
	assert_false(userfault_watched(m, 4 * PAGE));
	close(fd);
	munmap((void *)m, 4 * PAGE);
}

/* As of a program that keeps requests in an int: the upper half is the sign's. */
static void a_request_kept_in_an_int_is_recognised(void **state)
{
	int fd = open_or_skip(), request = (int)UFFDIO_REGISTER, end = (int)UFFDIO_UNREGISTER;
	uintptr_t m = map(1);
	struct uffdio_register r = { .range = { m, PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_range all = { m, PAGE };

	(void)state;
	assert_true(request < 0 && end < 0);
	assert_int_equal(ioctl(fd, (unsigned long)request, &r), 0);
	assert_true(userfault_watched(m, PAGE));
	assert_int_equal(ioctl(fd, (unsigned long)end, &all), 0);
	assert_false(userfault_watched(m, PAGE));
	close(fd);
	munmap((void *)m, PAGE);
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

static void a_hole_in_the_middle_leaves_both_sides(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(8);

	(void)state;
	watch(fd, m, 8, UFFDIO_REGISTER_MODE_MISSING);
	unwatch(fd, m + 3 * PAGE, 1);
	munmap((void *)(m + 6 * PAGE), PAGE - 1);
	for (size_t i = 0; i < 8; i++)
		assert_int_equal(userfault_watched(m + i * PAGE, PAGE), i != 3 && i != 6);
	/* Not at a page: the kernel refuses it, and nothing is over. */
	assert_int_equal(munmap((void *)(m + 1), 8 * PAGE), -1);
	assert_true(userfault_watched(m, PAGE));
	munmap((void *)m, 4 * PAGE);
	assert_false(userfault_watched(m, 4 * PAGE));
	assert_true(userfault_watched(m + 4 * PAGE, PAGE));
	munmap((void *)m, 8 * PAGE);
	assert_false(userfault_watched(m, 8 * PAGE));
	close(fd);
}

/* More than any table of a fixed size may have had room for. */
#define MANY 3000ul

static void any_number_of_ranges_is_known_one_by_one(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(2 * MANY);

	(void)state;
	for (size_t i = 0; i < MANY; i++)
		watch(fd, m + 2 * (i * 7 % MANY) * PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	for (size_t i = 0; i < 2 * MANY; i++)
		assert_int_equal(userfault_watched(m + i * PAGE, PAGE), i % 2 == 0);
	assert_false(userfault_watched(1, 1));
	for (size_t i = 0; i < MANY; i++) {
		unwatch(fd, m + 2 * i * PAGE, 1);
		assert_false(userfault_watched(m, 2 * (i + 1) * PAGE));
		assert_int_equal(userfault_watched(m, 2 * MANY * PAGE), i + 1 < MANY);
	}
	close(fd);
	munmap((void *)m, 2 * MANY * PAGE);
}

static void what_is_registered_again_or_beside_takes_no_more_room(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(MANY);
	unsigned before;

	(void)state;
	watch(fd, m, 2, UFFDIO_REGISTER_MODE_MISSING);
	watch(fd, m, 1, UFFDIO_REGISTER_MODE_MISSING);
	watch(fd, m + 2 * PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	before = atomic_load(&maps);
	for (size_t i = 0; i < MANY; i++)
		watch(fd, m + i % 3 * PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	for (size_t i = 0; i < MANY; i++)
		watch(fd, m + i * PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	for (size_t i = 0; i + 4 < MANY; i++)
		watch(fd, m + i * PAGE, 4, UFFDIO_REGISTER_MODE_MISSING);
	assert_int_equal(atomic_load(&maps), before);
	assert_true(userfault_watched(m + (MANY - 1) * PAGE, 1));
	unwatch(fd, m, MANY);
	assert_false(userfault_watched(m, MANY * PAGE));
	close(fd);
	munmap((void *)m, MANY * PAGE);
}

static void what_the_kernel_refuses_is_not_watched(void **state)
{
	int fd = open_or_skip(), other = open_or_skip();
	uintptr_t m = map(4);
	struct uffdio_register r = { .range = { m, 4 * PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };

	(void)state;
	/* Another one's, of which a part was registered before: that part stays. */
	watch(fd, m + PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	for (int i = 0; i < 100; i++) {
		errno = 0;
		assert_int_equal(ioctl(other, UFFDIO_REGISTER, &r), -1);
		assert_int_equal(errno, EBUSY);
	}
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(userfault_watched(m + i * PAGE, PAGE), i == 1);
	unwatch(fd, m, 4);
	/* No userfaultfd. */
	assert_int_equal(ioctl(-1, UFFDIO_REGISTER, &r), -1);
	assert_int_equal(errno, EBADF);
	assert_false(userfault_watched(m, 4 * PAGE));
	/* Nothing there. */
	munmap((void *)m, 4 * PAGE);
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, &r), -1);
	assert_int_equal(errno, EINVAL);
	assert_false(userfault_watched(m, 4 * PAGE));
	close(other);
	close(fd);
}

/* Has the kernel refuse munmap at one address. */
static int refuse_munmap(uintptr_t addr)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)addr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(filter[0]), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

#define SKIPPED 77

static int still_mapped(void)
{
	uintptr_t m = map(3);
	struct uffdio_register r = { .range = { m, 3 * PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = open_one();

	if (fd < 0 || refuse_munmap(m))
		return SKIPPED;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
	CHECK(munmap((void *)m, 3 * PAGE) && errno == ENOMEM);
	for (size_t i = 0; i < 3; i++)
		CHECK(userfault_watched(m + i * PAGE, PAGE));
	return 0;
}

static void what_could_not_be_unmapped_is_still_watched(void **state)
{
	int status = in_child(still_mapped);

	(void)state;
	if (exited(status, SKIPPED))
		skip();
	assert_true(exited(status, 0));
}

/* As many as are kept where they were noted while they were under way; the next is refused. */
static int without_memory(void)
{
	uintptr_t m = map(200);
	struct uffdio_register r = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = open_one();
	size_t fit = 0;

	if (fd < 0)
		return SKIPPED;
	atomic_store(&no_memory, true);
	for (;; fit++) {
		r.range.start = m + 2 * fit * PAGE;
		r.range.len = PAGE;
		if (fit == 100 || ioctl(fd, UFFDIO_REGISTER, &r))
			break;
	}
	CHECK(fit > 0 && fit < 100 && errno == ENOMEM);
	for (size_t i = 0; i < 100; i++)
		CHECK(userfault_watched(m + 2 * i * PAGE, PAGE) == (i < fit));
	CHECK(!userfault_watched(1, 1));
	atomic_store(&no_memory, false);
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
	for (size_t i = 0; i < 100; i++)
		CHECK(userfault_watched(m + 2 * i * PAGE, PAGE) == (i <= fit));
	return 0;
}

static void without_memory_what_was_registered_is_known_and_the_rest_refused(void **state)
{
	int status = in_child(without_memory);

	(void)state;
	if (exited(status, SKIPPED))
		skip();
	assert_true(exited(status, 0));
}

/* ---- Threads ---- */

static int shared_fd;
static uintptr_t arena;
static atomic_bool over;

/* Beside a page that stays registered, ranges come and go, so that what stands for it is always another. */
static void *come_and_go(void *arg)
{
	uintptr_t at = arena + (uintptr_t)arg * PAGE;

	for (size_t i = 0; i < 3000; i++) {
		struct uffdio_register r = { .range = { at, (1 + i % 5) * PAGE },
			.mode = UFFDIO_REGISTER_MODE_MISSING };
		struct uffdio_range u = { at, 5 * PAGE };

		if (ioctl(shared_fd, UFFDIO_REGISTER, &r) || !userfault_watched(at, (1 + i % 5) * PAGE) ||
			ioctl(shared_fd, UFFDIO_UNREGISTER, &u) || userfault_watched(at, 5 * PAGE))
			return (void *)1;
	}
	return NULL;
}

static void *look_for_ever(void *arg)
{
	uintptr_t lost = 0;

	while (!atomic_load(&over))
		lost += !userfault_watched(arena + 5 * PAGE, PAGE) ||
			!userfault_watched(arena + 11 * PAGE, PAGE);
	return (void *)lost;
}

static void what_stays_is_seen_while_others_come_and_go(void **state)
{
	pthread_t thread[3], reader;
	void *result;

	(void)state;
	shared_fd = open_or_skip();
	arena = map(17);
	watch(shared_fd, arena + 5 * PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	watch(shared_fd, arena + 11 * PAGE, 1, UFFDIO_REGISTER_MODE_MISSING);
	pthread_create(&reader, NULL, look_for_ever, NULL);
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&thread[i], NULL, come_and_go, (void *)(i * 6));
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &result);
		assert_null(result);
	}
	atomic_store(&over, true);
	pthread_join(reader, &result);
	assert_null(result);
	for (size_t i = 0; i < 17; i++)
		assert_int_equal(userfault_watched(arena + i * PAGE, PAGE), i == 5 || i == 11);
	munmap((void *)arena, 17 * PAGE);
	assert_false(userfault_watched(arena, 17 * PAGE));
	close(shared_fd);
}

/* What the kernel refuses to unmap is watched as before, and nothing else is. */
static void a_munmap_that_fails_watches_nothing_more(void **state)
{
	int fd = open_or_skip();
	uintptr_t m = map(8);

	(void)state;
	watch(fd, m + 2 * PAGE, 2, UFFDIO_REGISTER_MODE_MISSING);
	assert_int_equal(munmap((void *)m, 1ul << 47), -1);
	assert_true(userfault_watched(m + 2 * PAGE, 2 * PAGE));
	assert_false(userfault_watched(m, 2 * PAGE));
	assert_false(userfault_watched(m + 4 * PAGE, 4 * PAGE));
	assert_false(userfault_watched((uintptr_t)&fd, 1));
	munmap((void *)m, 8 * PAGE);
	close(fd);
}

/* As soon as the kernel has let go of a range another thread may register it. */
static void what_is_registered_as_an_unregister_returns_is_known(void **state)
{
	int fd = open_or_skip(), second = open_or_skip();
	uintptr_t m = map(1);

	(void)state;
	watch(fd, m, 1, UFFDIO_REGISTER_MODE_MISSING);
	registers_next = m;
	registers_by = second;
	assert_int_equal(ioctl(fd, UFFDIO_UNREGISTER, &(struct uffdio_range){ m, PAGE }), 0);
	assert_int_equal(registers_next, 0);
	assert_true(userfault_watched(m, PAGE));
	/* One that is refused takes nothing away. */
	assert_int_equal(ioctl(fd, UFFDIO_UNREGISTER, &(struct uffdio_range){ m, PAGE - 1 }), -1);
	assert_true(userfault_watched(m, PAGE));
	munmap((void *)m, PAGE);
	close(second);
	close(fd);
}

/* As the kernel does, whatever the descriptor. */
static void an_argument_that_cannot_be_read_is_the_kernels_affair(void **state)
{
	int fd = open_or_skip();

	(void)state;
	/* One of the two ways to find out; the other may be switched off. */
	assert_int_equal(sigchain_install(), 0);
	assert_int_equal(ioctl(fd, UFFDIO_REGISTER, (void *)8), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ioctl(fd, UFFDIO_UNREGISTER, (void *)8), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ioctl(fd, UFFDIO_UNREGISTER, NULL), -1);
	close(fd);
}

int main(void)
{
	/* First what needs a process in which nothing was noted yet. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_memory_what_was_registered_is_known_and_the_rest_refused),
		cmocka_unit_test(a_registered_range_is_watched_until_it_is_unregistered),
		cmocka_unit_test(a_request_kept_in_an_int_is_recognised),
		cmocka_unit_test(unmapping_ends_it),
		cmocka_unit_test(write_protection_alone_makes_nobody_wait_for_a_missing_page),
		cmocka_unit_test(a_hole_in_the_middle_leaves_both_sides),
		cmocka_unit_test(what_is_registered_again_or_beside_takes_no_more_room),
		cmocka_unit_test(any_number_of_ranges_is_known_one_by_one),
		cmocka_unit_test(what_the_kernel_refuses_is_not_watched),
		cmocka_unit_test(what_could_not_be_unmapped_is_still_watched),
		cmocka_unit_test(what_stays_is_seen_while_others_come_and_go),
		cmocka_unit_test(a_munmap_that_fails_watches_nothing_more),
		cmocka_unit_test(what_is_registered_as_an_unregister_returns_is_known),
		cmocka_unit_test(an_argument_that_cannot_be_read_is_the_kernels_affair),
	};

	/* Calls of the kernel pass through syscall(), which is wrapped here. */
	atomic_store(&behind.ioctl, NULL);
	/* Links our munmap, where a sanitizer's would do. */
	interpose_observe(NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What holds for both kinds of pins is tested with io_uring and, in a child, without. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "../counted_pins.h"
#include "mm/facility.h"
#include "mm/interpose.h"
#include "mm/pin.h"
#include "mm/sigchain.h"
#include "mm/vma.h"
#include "tests/mm/child.h"
#include "tests/mm/status.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define PAGE 4096ul

static enum safecopy_path path;

/* The path of this thread, when a child has begun. */
static void prepare(void)
{
	struct vma v;

	sigchain_install();
	path = safecopy_path();
	/* What the library keeps mapped is made first, so that it does not fall into a hole. */
	vma_find((uintptr_t)&v, false, &v);
}

static unsigned char *map(size_t pages)
{
	return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int create(unsigned char *p, size_t len, struct pin **out)
{
	return pin_create((uintptr_t)p, len, true, out);
}

/* Under a limit: the charges of processes of the same user that have just ended may stand for a while. */
static int create_at_last(unsigned char *p, size_t len, struct pin **out)
{
	int err = create(p, len, out);

	for (int i = 0; err == -ENOMEM && i < 100; i++)
		err = create(p, len, out);
	return err;
}

static bool pinned_becomes(long kib)
{
	for (int i = 0; i < 3000; i++) {
		if (status_kib("VmPin") + status_kib("VmLck") == kib)
			return true;
		usleep(1000);
	}
	return false;
}

static long held(void)
{
	return status_kib("VmPin") + status_kib("VmLck");
}

#define SKIPPED 77

/* In a child, so that what is disabled for one is not remembered for the next. */
static void run(int (*fn)(void))
{
	int status = in_child(fn);

	if (exited(status, SKIPPED))
		skip();
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Both kinds of pins. */
static void both(int (*fn)(void))
{
	unsetenv("UNPIN_DISABLE");
	run(fn);
	setenv("UNPIN_DISABLE", "io_uring", 1);
	run(fn);
	unsetenv("UNPIN_DISABLE");
}

static int (*needs_rings)(void);

static int if_there_are_rings(void)
{
	if (mm_have(MM_IO_URING))
		return needs_rings();
	print_message("io_uring: %s\n", mm_facility_why_not(MM_IO_URING));
	return SKIPPED;
}

/* Only where the pages are really pinned; elsewhere there is nothing to test. */
static void with_rings(int (*fn)(void))
{
	unsetenv("UNPIN_DISABLE");
	needs_rings = fn;
	run(if_there_are_rings);
}

static void with_mlock(int (*fn)(void))
{
	setenv("UNPIN_DISABLE", "io_uring", 1);
	run(fn);
	unsetenv("UNPIN_DISABLE");
}

/* ---- Holding ---- */

static int holds(void)
{
	unsigned char *p = map(16);
	struct pin *a, *b;
	long before = held();

	prepare();
	CHECK(!pin_any() && pin_total() == 0);
	errno = 3;
	CHECK(!create(p + 5, 3 * PAGE, &a));
	CHECK(errno == 3 && pin_any() && pin_total() == 4 * PAGE);
	CHECK(held() == before + 16);
	/* Overlapping, and one inside. */
	CHECK(!create(p + 2 * PAGE, 8 * PAGE, &b));
	CHECK(pin_total() == 12 * PAGE);
	pin_destroy(a);
	CHECK(pin_total() == 8 * PAGE);
	CHECK(held() >= before + 32);
	pin_destroy(b);
	CHECK(!pin_any() && pin_total() == 0);
	CHECK(pinned_becomes(before));
	pin_destroy(NULL);
	return 0;
}

static void a_pin_is_charged_and_given_back(void **state)
{
	both(holds);
}

static int refuses(void)
{
	unsigned char *p = map(6);
	struct pin *pin = NULL;
	long before = held();

	prepare();
	munmap(p + 4 * PAGE, PAGE);
	mprotect(p + PAGE, PAGE, PROT_READ);
	mprotect(p + 3 * PAGE, PAGE, PROT_NONE);
	CHECK(create(p, 6 * PAGE, &pin) == -EFAULT);
	CHECK(create(p + 4 * PAGE + 7, 1, &pin) == -EFAULT);
	CHECK(create(p, PAGE + 1, &pin) == -EFAULT);
	CHECK(create(p + 3 * PAGE, 1, &pin) == -EFAULT);
	CHECK(pin_create((uintptr_t)p + 3 * PAGE, 1, false, &pin) == -EFAULT);
	CHECK(create(p, 0, &pin) == -EINVAL);
	CHECK(pin_create(UINTPTR_MAX - 10, 20, true, &pin) == -EINVAL);
	CHECK(!pin && !pin_any() && pin_total() == 0 && held() == before);
	return 0;
}

static void what_is_not_all_there_with_its_rights_is_refused(void **state)
{
	both(refuses);
}

static int read_only(void)
{
	unsigned char *p = map(2), got[8];
	struct pin *pin;

	prepare();
	p[PAGE] = 9;
	mprotect(p, 2 * PAGE, PROT_READ);
	CHECK(create(p, 2 * PAGE, &pin) == -EFAULT);
	CHECK(!pin_create((uintptr_t)p, 2 * PAGE, false, &pin));
	CHECK(held() == 8);
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p + PAGE, got, 8) && got[0] == 9);
	CHECK(pin_copy_in(pin, path, (uintptr_t)p, got, 8) == -EFAULT);
	pin_destroy(pin);
	CHECK(held() == 0);
	return 0;
}

static void read_only_memory_is_held_for_reading(void **state)
{
	both(read_only);
}

/* As an ordinary user with room for 128 KiB. */
static int limited(void)
{
	const struct rlimit room = { 128 << 10, 128 << 10 };
	unsigned char *p = map(64);
	struct pin *a, *b;

	prepare();
	/* A user whom nobody else pins for. */
	if (setrlimit(RLIMIT_MEMLOCK, &room) || (!getuid() && setresuid(54322, 54322, 54322)))
		return 0;
	for (int i = 0; i < 3; i++) {
		CHECK(create(p, 64 * PAGE, &a) == -ENOMEM);
		CHECK(!create_at_last(p, 20 * PAGE, &a));
		CHECK(create(p + 20 * PAGE, 20 * PAGE, &b) == -ENOMEM);
		pin_destroy(a);
	}
	CHECK(!pin_any());
	return 0;
}

static void the_limit_is_honoured_and_given_back(void **state)
{
	both(limited);
}

/* A process of the same user that holds 20 pages by io_uring until fd is closed at the other end. */
static pid_t holder(const int *fds)
{
	unsigned char *p = map(20);
	struct pin *pin;
	pid_t pid = fork();
	char byte = 0;

	if (pid)
		return pid;
	close(fds[1]);
	prepare();
	if (create_at_last(p, 20 * PAGE, &pin) || status_kib("VmPin") != 80)
		_exit(1);
	_exit(read(fds[0], &byte, 1) == 0 ? 0 : 2);
}

/* Room for 32 pages; another process of the user has taken 20 of them. */
static int beside_another(void)
{
	const struct rlimit room = { 128 << 10, 128 << 10 };
	unsigned char *p = map(64);
	struct pin *a, *b;
	int fds[2], status;
	pid_t pid;

	if (setrlimit(RLIMIT_MEMLOCK, &room) || (!getuid() && setresuid(54324, 54324, 54324)) || pipe(fds))
		return SKIPPED;
	pid = holder(fds);
	close(fds[0]);
	prepare();
	/* Whoever comes second is locked, not refused, and reachable. */
	while (!waitpid(pid, &status, WNOHANG) && status_kib("VmLck") == 0) {
		CHECK(!create(p, 20 * PAGE, &a));
		if (status_kib("VmLck") == 0)
			pin_destroy(a);
	}
	CHECK(status_kib("VmLck") == 80 && status_kib("VmPin") == 0);
	CHECK(!pin_copy_in(a, path, (uintptr_t)p, "\x09", 1) && p[0] == 9);
	/* The limit of this process stands. */
	CHECK(create(p + 20 * PAGE, 20 * PAGE, &b) == -ENOMEM);
	CHECK(pin_total() == 20 * PAGE);
	CHECK(!create(p + 20 * PAGE, 12 * PAGE, &b));
	pin_destroy(b);
	pin_destroy(a);
	CHECK(pinned_becomes(0));
	close(fds[1]);
	waitpid(pid, &status, 0);
	CHECK(exited(status, 0));
	return 0;
}

static void the_limit_counts_for_each_process(void **state)
{
	with_rings(beside_another);
}

/* Secret memory, as the kernel calls it: no driver gets its pages. */
static int secret(void)
{
	int fd = (int)syscall(447 /* memfd_secret */, 0);
	struct pin *pin = NULL;
	unsigned char *p;
	long before;

	if (fd < 0 || ftruncate(fd, 4 * PAGE)) {
		print_message("no memfd_secret here\n");
		return SKIPPED;
	}
	prepare();
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	p[0] = 1;
	CHECK(create(p, PAGE, &pin) == -EFAULT && create(p + PAGE, 2 * PAGE, &pin) == -EFAULT);
	/* Between pages that can be had. */
	p = map(3);
	CHECK(mmap(p + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == p + PAGE);
	before = held(); /* the kernel counts it as locked by itself */
	CHECK(create(p, 3 * PAGE, &pin) == -EFAULT && pinned_becomes(before));
	CHECK(!create(p, PAGE, &pin) && held() == before + 4);
	pin_destroy(pin);
	return 0;
}

static int secret_without_process_vm(void)
{
	setenv("UNPIN_DISABLE", "io_uring,process_vm", 1);
	return secret();
}

static void memory_that_no_driver_gets_is_refused(void **state)
{
	both(secret);
	run(secret_without_process_vm);
}

static int with_foreign_lock(void)
{
	unsigned char *p = map(4);
	struct pin *a, *b;

	prepare();
	CHECK(!syscall(SYS_mlock, p + PAGE, PAGE));
	CHECK(!create(p, 4 * PAGE, &a) && !create(p + PAGE, 2 * PAGE, &b));
	pin_destroy(a);
	CHECK(!page_locked(p) && page_locked(p + PAGE) && page_locked(p + 2 * PAGE) &&
		!page_locked(p + 3 * PAGE));
	pin_destroy(b);
	CHECK(page_locked(p + PAGE) && !page_locked(p + 2 * PAGE));
	return 0;
}

static void what_the_application_locked_stays_locked(void **state)
{
	with_mlock(with_foreign_lock);
}

/* ---- Copies ---- */

static int copies(void)
{
	unsigned char *p = map(8), sent[3 * PAGE], got[3 * PAGE];
	struct pin *pin;

	prepare();
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (unsigned char)(i * 11 >> 2);
	CHECK(!create(p + 100, 8 * PAGE - 200, &pin));
	CHECK(!pin_copy_in(pin, path, (uintptr_t)p + 1001, sent, sizeof(sent)));
	CHECK(!memcmp(p + 1001, sent, sizeof(sent)));
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p + 1001, got, sizeof(got)));
	CHECK(!memcmp(got, sent, sizeof(sent)));
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p + 100, got, 0));
	/* The bytes are the limit, not the pages. */
	CHECK(pin_copy_in(pin, path, (uintptr_t)p + 99, sent, 1) == -EFAULT);
	CHECK(pin_copy_out(pin, path, (uintptr_t)p + 8 * PAGE - 101, got, 2) == -EFAULT);
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p + 8 * PAGE - 101, got, 1));
	CHECK(pin_copy_out(pin, path, (uintptr_t)p + 200, got, SIZE_MAX - 10) == -EFAULT);
	CHECK(pin_copy_in(pin, SAFECOPY_NONE, (uintptr_t)p + 200, sent, 1) == -EAGAIN);
	if (mm_have(MM_PROCESS_VM)) {
		CHECK(!pin_copy_in(pin, SAFECOPY_PROCESS_VM, (uintptr_t)p + 200, sent, 50));
		CHECK(!memcmp(p + 200, sent, 50));
	}
	pin_destroy(pin);
	return 0;
}

static void bytes_go_in_and_out_within_the_bounds(void **state)
{
	both(copies);
}

static int atomics(void)
{
	unsigned char *p = map(2);
	uint64_t *word = (uint64_t *)(p + 64), orig = 0;
	struct pin *pin;

	prepare();
	CHECK(!create(p, PAGE, &pin));
	*word = 5;
	CHECK(pin_fetch_add(pin, SAFECOPY_PROCESS_VM, (uintptr_t)word, 1, &orig) == -EAGAIN);
	CHECK(pin_fetch_add(pin, path, (uintptr_t)word + 1, 1, &orig) == -EINVAL);
	CHECK(pin_fetch_add(pin, path, (uintptr_t)p + PAGE, 1, &orig) == -EFAULT);
	if (path == SAFECOPY_FIXUP) {
		CHECK(!pin_fetch_add(pin, path, (uintptr_t)word, 2, &orig) && orig == 5 && *word == 7);
		CHECK(!pin_cmp_swap(pin, path, (uintptr_t)word, 5, 9, &orig) && orig == 7 && *word == 7);
		CHECK(!pin_cmp_swap(pin, path, (uintptr_t)word, 7, 9, &orig) && orig == 7 && *word == 9);
	}
	pin_destroy(pin);
	return 0;
}

static void atomics_work_on_pinned_words(void **state)
{
	both(atomics);
}

/* ---- Divergence ---- */

/* What the application can do to a page under a pin; the page has other contents afterwards, or is gone. */
static void do_munmap(unsigned char *page)
{
	munmap(page, PAGE);
}

static void do_replace(unsigned char *page)
{
	mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void do_move_away(unsigned char *page)
{
	mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map(1));
	do_replace(page);
}

static void do_move_onto(unsigned char *page)
{
	mremap(map(1), PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page);
}

static void do_discard(unsigned char *page)
{
	madvise(page, PAGE, MADV_DONTNEED);
}

static void do_discard_locked(unsigned char *page)
{
	madvise(page, PAGE, MADV_DONTNEED_LOCKED);
}

static void (*const changes[])(unsigned char *page) = { do_munmap, do_replace, do_move_away, do_move_onto,
	do_discard, do_discard_locked };

#define CHANGES (sizeof(changes) / sizeof(changes[0]))

static int keeps_old_pages(void)
{
	struct vma v;

	prepare();
	for (unsigned c = 0; c < CHANGES; c++) {
		unsigned char *p = map(5), got[3 * PAGE], sent[3 * PAGE], fresh = 0;
		struct pin *pin;

		memset(p, 0x11, 5 * PAGE);
		memset(sent, 0x22, sizeof(sent));
		CHECK(!create(p, 5 * PAGE, &pin));
		changes[c](p + 2 * PAGE);
		/* Whole, across the border of what has diverged and what has not. */
		CHECK(!pin_copy_out(pin, path, (uintptr_t)p + PAGE + 5, got, 3 * PAGE - 10));
		for (size_t i = 0; i < 3 * PAGE - 10; i++)
			CHECK(got[i] == 0x11);
		CHECK(!pin_copy_in(pin, path, (uintptr_t)p + PAGE + 5, sent, 3 * PAGE - 10));
		CHECK(!pin_copy_out(pin, path, (uintptr_t)p + PAGE + 4, got, 3 * PAGE - 8));
		CHECK(got[0] == 0x11 && got[1] == 0x22 && got[3 * PAGE - 10] == 0x22 &&
			got[3 * PAGE - 9] == 0x11);
		/* What has not diverged is the application's memory still. */
		CHECK(p[PAGE + 4] == 0x11 && p[PAGE + 5] == 0x22 && p[3 * PAGE] == 0x22);
		/* What has never sees the new mapping. */
		if (!vma_find((uintptr_t)p + 2 * PAGE, false, &v))
			fresh = p[2 * PAGE + 100];
		CHECK(fresh == 0);
		pin_destroy(pin);
	}
	CHECK(!pin_any());
	CHECK(pinned_becomes(0));
	return 0;
}

static void a_diverged_page_keeps_its_old_memory_and_never_touches_the_new(void **state)
{
	with_rings(keeps_old_pages);
}

static int locked_fail(void)
{
	prepare();
	for (unsigned c = 0; c < CHANGES; c++) {
		unsigned char *p = map(5), got[PAGE] = { 0 }, sent[PAGE] = { 0x22 };
		bool stays = changes[c] == do_discard;
		struct pin *pin;
		uint64_t orig;

		memset(p, 0x11, 5 * PAGE);
		CHECK(!create(p, 5 * PAGE, &pin));
		changes[c](p + 2 * PAGE);
		if (stays) {
			/* The kernel refuses to discard locked memory. */
			CHECK(p[2 * PAGE] == 0x11);
			CHECK(!pin_copy_out(pin, path, (uintptr_t)p + 2 * PAGE, got, PAGE) && got[0] == 0x11);
		} else {
			CHECK(pin_copy_out(pin, path, (uintptr_t)p + 2 * PAGE, got, 1) == -EFAULT);
			CHECK(pin_copy_in(pin, path, (uintptr_t)p + 2 * PAGE - 8, sent, 16) == -EFAULT);
			CHECK(pin_fetch_add(pin, path, (uintptr_t)p + 2 * PAGE, 1, &orig) == -EFAULT ||
				path != SAFECOPY_FIXUP);
		}
		CHECK(!pin_copy_out(pin, path, (uintptr_t)p + 3 * PAGE, got, PAGE) && got[0] == 0x11);
		pin_destroy(pin);
		CHECK(!page_locked(p) && !page_locked(p + PAGE) && !page_locked(p + 4 * PAGE));
	}
	return 0;
}

static void under_mlock_a_diverged_page_is_an_error(void **state)
{
	with_mlock(locked_fail);
}

static int new_locks_respected(void)
{
	unsigned char *p = map(3);
	struct pin *old, *new;

	prepare();
	CHECK(!create(p, 3 * PAGE, &old));
	do_replace(p + PAGE);
	CHECK(!create(p + PAGE, PAGE, &new));
	pin_destroy(new);
	CHECK(!page_locked(p + PAGE) && page_locked(p));
	CHECK(!syscall(SYS_mlock, p + PAGE, PAGE));
	pin_destroy(old);
	CHECK(page_locked(p + PAGE) && !page_locked(p));
	return 0;
}

static void a_lock_in_the_place_of_a_diverged_page_is_not_ours_to_take(void **state)
{
	with_mlock(new_locks_respected);
}

static int diverged_atomics(void)
{
	unsigned char *p = map(1);
	uint64_t word = 5, orig;
	struct pin *pin;

	prepare();
	CHECK(!create(p, PAGE, &pin));
	CHECK(!pin_copy_in(pin, path, (uintptr_t)p + 8, &word, 8));
	do_replace(p);
	CHECK(!pin_fetch_add(pin, path, (uintptr_t)p + 8, 3, &orig) && orig == 5);
	CHECK(!pin_cmp_swap(pin, path, (uintptr_t)p + 8, 7, 1, &orig) && orig == 8);
	CHECK(!pin_cmp_swap(pin, path, (uintptr_t)p + 8, 8, 1, &orig) && orig == 8);
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p + 8, &word, 8) && word == 1);
	CHECK(p[8] == 0);
	pin_destroy(pin);
	return 0;
}

static void atomics_follow_the_old_page_too(void **state)
{
	with_rings(diverged_atomics);
}

static int unreachable(void)
{
	unsigned char *p = map(4), got[4 * PAGE], sent[4 * PAGE];
	struct pin *pin;
	uint64_t orig;

	prepare();
	memset(p, 0x11, 4 * PAGE);
	memset(sent, 0x22, sizeof(sent));
	CHECK(!create(p, 4 * PAGE, &pin));
	/* Rights, and what the notifier does not see. */
	mprotect(p + PAGE, PAGE, PROT_NONE);
	raw_munmap(p + 2 * PAGE, PAGE);
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p, got, 4 * PAGE));
	for (size_t i = 0; i < 4 * PAGE; i++)
		CHECK(got[i] == 0x11);
	CHECK(!pin_copy_in(pin, path, (uintptr_t)p, sent, 4 * PAGE));
	CHECK(p[0] == 0x22 && p[4 * PAGE - 1] == 0x22);
	mprotect(p + PAGE, PAGE, PROT_READ);
	CHECK(p[PAGE] == 0x22 && p[2 * PAGE - 1] == 0x22);
	if (path == SAFECOPY_FIXUP) {
		raw_munmap(p + 3 * PAGE, PAGE);
		CHECK(!pin_fetch_add(pin, path, (uintptr_t)p + 3 * PAGE, 1, &orig) &&
			orig == 0x2222222222222222);
	}
	pin_destroy(pin);
	return 0;
}

static void what_the_processor_cannot_reach_the_pin_still_can(void **state)
{
	with_rings(unreachable);
}

static int many_pins(void)
{
	unsigned char *p = map(64), got;
	struct pin *pin[200], *big;

	prepare();
	memset(p, 0x11, 64 * PAGE);
	CHECK(!create(p, 64 * PAGE, &big));
	for (int i = 0; i < 200; i++)
		CHECK(!create(p + i % 64 * PAGE, PAGE - 1, &pin[i]));
	/* Neighbours of what is replaced stay as they were. */
	mmap(p + 10 * PAGE, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	for (int i = 0; i < 200; i++) {
		uintptr_t at = (uintptr_t)p + (uintptr_t)(i % 64) * PAGE;

		CHECK(!pin_copy_out(pin[i], path, at, &got, 1) && got == 0x11);
		CHECK(!pin_copy_in(pin[i], path, at, "\x33", 1));
		CHECK(*(unsigned char *)at == (i % 64 >= 10 && i % 64 < 15 ? 0 : 0x33));
		*(unsigned char *)at = i % 64 >= 10 && i % 64 < 15 ? 0 : 0x11;
		CHECK(!pin_copy_in(pin[i], path, at, "\x11", 1));
	}
	for (int i = 0; i < 200; i++)
		pin_destroy(pin[i]);
	CHECK(!pin_copy_out(big, path, (uintptr_t)p + 12 * PAGE, &got, 1) && got == 0x11);
	pin_destroy(big);
	CHECK(!pin_any() && pinned_becomes(0));
	return 0;
}

static void every_pin_over_a_changed_page_diverges_and_no_other(void **state)
{
	with_rings(many_pins);
}

static int grows(void)
{
	unsigned char *p = map(8), *q, got;
	struct pin *pin;

	prepare();
	p[0] = 0x11;
	CHECK(!create(p, 4 * PAGE, &pin));
	/* In place: the pin is as good as before. */
	munmap(p + 4 * PAGE, 4 * PAGE);
	CHECK(mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE) == p);
	p[0] = 0x12;
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p, &got, 1) && got == 0x12);
	/* Where there is no room it moves. */
	mmap(p + 8 * PAGE, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	q = mremap(p, 8 * PAGE, 512 * PAGE, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	if (q != p) {
		q[0] = 0x13;
		if (mm_have(MM_IO_URING))
			CHECK(!pin_copy_out(pin, path, (uintptr_t)p, &got, 1) && got == 0x13);
		else
			CHECK(pin_copy_out(pin, path, (uintptr_t)p, &got, 1) == -EFAULT);
	}
	pin_destroy(pin);
	return 0;
}

static void growing_in_place_keeps_a_pin_and_moving_takes_its_pages_along(void **state)
{
	both(grows);
}

/* ---- Threads: no copy ever reaches a new mapping ---- */

static struct pin *shared;
static unsigned char *arena;
static atomic_bool stop;
static atomic_uint copied, failed;

static void *copy_for_ever(void *arg)
{
	unsigned char buf[3000];

	memset(buf, 0x77, sizeof(buf));
	while (!atomic_load(&stop)) {
		for (size_t page = 0; page < 16; page++)
			if (pin_copy_in(shared, path, (uintptr_t)arena + page * PAGE + 17, buf, sizeof(buf)))
				atomic_fetch_add(&failed, 1);
		atomic_fetch_add(&copied, 1);
	}
	return NULL;
}

static int replaced_under_traffic(void)
{
	pthread_t thread[2];

	prepare();
	for (int round = 0; round < 10; round++) {
		arena = map(16);
		CHECK(!create(arena, 16 * PAGE, &shared));
		atomic_store(&stop, false);
		atomic_store(&copied, 0);
		for (int i = 0; i < 2; i++)
			pthread_create(&thread[i], NULL, copy_for_ever, NULL);
		while (!atomic_load(&copied))
			sched_yield();
		for (size_t page = 0; page < 16; page++) {
			do_replace(arena + page * PAGE);
			/* From the return of mmap on. */
			for (int look = 0; look < 20; look++)
				for (size_t seen = 0; seen <= page; seen++)
					CHECK(*(volatile unsigned char *)(arena + seen * PAGE + 17 +
									  look * 100) == 0);
		}
		atomic_store(&stop, true);
		for (int i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		for (size_t i = 0; i < 16 * PAGE; i++)
			CHECK(arena[i] == 0);
		pin_destroy(shared);
		munmap(arena, 16 * PAGE);
	}
	CHECK(mm_have(MM_IO_URING) ? !failed : failed > 0);
	return 0;
}

static void under_traffic_no_byte_reaches_the_new_mapping(void **state)
{
	both(replaced_under_traffic);
}

static void *pin_for_ever(void *arg)
{
	unsigned char *p = map(8), byte = 1;
	struct pin *pin;

	for (unsigned i = 0; i < 300; i++) {
		if (create(p + i % 7 * 512, 3 * PAGE, &pin) ||
			pin_copy_in(pin, path, (uintptr_t)p + i % 7 * 512 + 9, &byte, 1))
			atomic_fetch_add(&failed, 1);
		else
			pin_destroy(pin);
		if (i % 10 == 0)
			madvise(p, 4 * PAGE, MADV_DONTNEED);
		munmap(map(2), 2 * PAGE);
	}
	munmap(p, 8 * PAGE);
	return NULL;
}

static int all_at_once(void)
{
	pthread_t thread[4];

	prepare();
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, pin_for_ever, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	CHECK(!failed && !pin_any() && pin_total() == 0 && pinned_becomes(0));
	return 0;
}

static void threads_create_copy_unmap_and_destroy_at_once(void **state)
{
	both(all_at_once);
}

/* ---- Fork ---- */

static int inherits_nothing(void)
{
	unsigned char *p = map(4), got;
	struct pin *pin, *own;
	int status;
	pid_t pid;

	prepare();
	CHECK(!create(p, 4 * PAGE, &pin));
	p[0] = 1;
	pid = fork();
	if (!pid) {
		CHECK(pin_total() == 0 && held() == 0);
		munmap(p + PAGE, PAGE);
		p[0] = 2;
		CHECK(!create(p, PAGE, &own));
		CHECK(held() == 4 && pin_total() == PAGE);
		CHECK(!pin_copy_out(own, path, (uintptr_t)p, &got, 1) && got == 2);
		do_discard(p);
		pin_destroy(pin);
		CHECK(pin_total() == PAGE);
		if (mm_have(MM_IO_URING))
			CHECK(!pin_copy_out(own, path, (uintptr_t)p, &got, 1) && got == 2);
		pin_destroy(own);
		CHECK(!pin_any());
		_exit(0);
	}
	waitpid(pid, &status, 0);
	CHECK(exited(status, 0));
	/* The device's writes are seen here. */
	CHECK(!pin_copy_in(pin, path, (uintptr_t)p, "\x09", 1) && p[0] == 9);
	CHECK(pin_total() == 4 * PAGE);
	pin_destroy(pin);
	CHECK(pinned_becomes(0));
	return 0;
}

static void a_child_has_no_pins_and_may_make_its_own(void **state)
{
	both(inherits_nothing);
}

/* A process pins and ends; a child of its lives on. */
static int not_kept_by_child(void)
{
	const struct rlimit room = { 128 << 10, 128 << 10 };
	unsigned char *p = map(48);
	struct pin *pin;
	int fds[2], status, result = 0;
	char byte;
	pid_t pid;

	if (setrlimit(RLIMIT_MEMLOCK, &room) || (!getuid() && setresuid(54323, 54323, 54323)) || pipe(fds))
		return 0;
	pid = fork();
	if (!pid) {
		prepare();
		CHECK(!create_at_last(p, 20 * PAGE, &pin));
		if (fork())
			_exit(0);
		close(fds[1]);
		_exit((int)read(fds[0], &byte, 1));
	}
	waitpid(pid, &status, 0);
	CHECK(exited(status, 0));
	prepare();
	if (create_at_last(p + 20 * PAGE, 20 * PAGE, &pin))
		result = 2;
	close(fds[1]);
	return result;
}

static void a_child_does_not_keep_the_parents_memory_pinned(void **state)
{
	with_rings(not_kept_by_child);
}

/* ---- Large ---- */

static int beyond_a_chunk(void)
{
	/* The zero page is not enough for a pin: 1 GiB and a little is really used. */
	const size_t len = (1ul << 30) + 3 * PAGE;
	unsigned char *p, sent[2 * PAGE], got[2 * PAGE];
	struct pin *pin;

	if (getuid() || sysconf(_SC_AVPHYS_PAGES) < (long)(3 * len / PAGE)) {
		print_message("needs root and 3 GiB\n");
		return SKIPPED;
	}
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(p, len, MADV_HUGEPAGE);
	prepare();
	CHECK(!create(p, len, &pin));
	CHECK(held() >= (long)(len / 1024));
	memset(sent, 0x55, sizeof(sent));
	/* Across the border, before and after it diverges. */
	CHECK(!pin_copy_in(pin, path, (uintptr_t)p + (1ul << 30) - PAGE, sent, 2 * PAGE));
	munmap(p + (1ul << 30) - PAGE, 2 * PAGE);
	CHECK(!pin_copy_out(pin, path, (uintptr_t)p + (1ul << 30) - PAGE, got, 2 * PAGE));
	CHECK(!memcmp(sent, got, sizeof(got)));
	pin_destroy(pin);
	CHECK(pinned_becomes(0));
	return 0;
}

static void a_pin_may_be_larger_than_a_buffer_of_the_kernel(void **state)
{
	with_rings(beyond_a_chunk);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pin_is_charged_and_given_back),
		cmocka_unit_test(what_is_not_all_there_with_its_rights_is_refused),
		cmocka_unit_test(read_only_memory_is_held_for_reading),
		cmocka_unit_test(the_limit_is_honoured_and_given_back),
		cmocka_unit_test(the_limit_counts_for_each_process),
		cmocka_unit_test(memory_that_no_driver_gets_is_refused),
		cmocka_unit_test(what_the_application_locked_stays_locked),
		cmocka_unit_test(bytes_go_in_and_out_within_the_bounds),
		cmocka_unit_test(atomics_work_on_pinned_words),
		cmocka_unit_test(a_diverged_page_keeps_its_old_memory_and_never_touches_the_new),
		cmocka_unit_test(under_mlock_a_diverged_page_is_an_error),
		cmocka_unit_test(a_lock_in_the_place_of_a_diverged_page_is_not_ours_to_take),
		cmocka_unit_test(atomics_follow_the_old_page_too),
		cmocka_unit_test(what_the_processor_cannot_reach_the_pin_still_can),
		cmocka_unit_test(every_pin_over_a_changed_page_diverges_and_no_other),
		cmocka_unit_test(growing_in_place_keeps_a_pin_and_moving_takes_its_pages_along),
		cmocka_unit_test(under_traffic_no_byte_reaches_the_new_mapping),
		cmocka_unit_test(threads_create_copy_unmap_and_destroy_at_once),
		cmocka_unit_test(a_child_has_no_pins_and_may_make_its_own),
		cmocka_unit_test(a_child_does_not_keep_the_parents_memory_pinned),
		cmocka_unit_test(a_pin_may_be_larger_than_a_buffer_of_the_kernel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

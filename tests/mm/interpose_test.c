/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/interpose.h"
#include "mm/sigchain.h"
#include "mm/vma.h"
#include "tests/mm/child.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

#define PAGE 4096ul

/* What the observer was told last, and how often. Volatile: libc promises the compiler that sbrk() calls
 * nobody back. */
static volatile struct told {
	enum mm_change what;
	uintptr_t addr;
	size_t len;
} told[16];
static volatile unsigned times;

static void observe(enum mm_change what, uintptr_t addr, size_t len)
{
	volatile struct told *t = &told[times++ % 16];

	t->what = what;
	t->addr = addr;
	t->len = len;
	errno = 99; /* must not be seen */
}

#define assert_told(n, w, a, l)                                                                              \
	do {                                                                                                 \
		assert_true(times > (n));                                                                    \
		assert_int_equal(told[n].what, w);                                                           \
		assert_ptr_equal(told[n].addr, (uintptr_t)(a));                                              \
		assert_int_equal(told[n].len, l);                                                            \
	} while (0)

static int setup(void **state)
{
	interpose_observe(observe);
	times = 0;
	return 0;
}

static int teardown(void **state)
{
	interpose_observe(NULL);
	return 0;
}

static char *map(size_t pages)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void munmap_tells_whole_pages(void **state)
{
	char *p = map(4);

	assert_int_equal(times, 0);
	errno = 5;
	assert_int_equal(munmap(p + PAGE, PAGE + 1), 0);
	assert_int_equal(errno, 5);
	assert_int_equal(times, 1);
	assert_told(0, MM_UNMAP, p + PAGE, 2 * PAGE);
	munmap(p, 4 * PAGE);
}

static void what_the_kernel_cannot_accept_is_not_told(void **state)
{
	char *p = map(1);

	assert_int_equal(munmap(p + 1, PAGE), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(munmap(p, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(munmap((void *)PAGE, SIZE_MAX), -1);
	assert_int_equal(madvise(p + 5, PAGE, MADV_DONTNEED), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(times, 0);
	munmap(p, PAGE);
}

static void mmap_tells_only_when_it_replaces(void **state)
{
	char *p = map(4);

	assert_ptr_equal(mmap(p, 2 * PAGE - 5, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
	assert_int_equal(times, 1);
	assert_told(0, MM_UNMAP, p, 2 * PAGE);
	assert_ptr_equal(
		mmap64(p + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p + PAGE);
	assert_told(1, MM_UNMAP, p + PAGE, PAGE);
	assert_ptr_equal(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
		MAP_FAILED);
	assert_int_equal(errno, EEXIST);
	assert_ptr_not_equal(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), p);
	assert_int_equal(times, 2);
	/* A call that fails may have done half of its work. */
	assert_ptr_equal(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0), MAP_FAILED);
	assert_int_equal(errno, EBADF);
	assert_told(2, MM_UNMAP, p, PAGE);
	munmap(p, 4 * PAGE);
}

static void mremap_tells_what_it_takes_away(void **state)
{
	char *p = map(8), *room = map(8), *q;

	assert_ptr_equal(mremap(p, 8 * PAGE, 6 * PAGE, 0), p);
	assert_int_equal(times, 1);
	assert_told(0, MM_UNMAP, p + 6 * PAGE, 2 * PAGE);
	/* Moved on top of something: both are gone. */
	assert_ptr_equal(mremap(p, 6 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room), room);
	assert_int_equal(times, 3);
	assert_told(1, MM_UNMAP, p, 6 * PAGE);
	assert_told(2, MM_UNMAP, room, 2 * PAGE);
	/* Grown where something is in the way. */
	q = mremap(room, PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	assert_ptr_not_equal(q, MAP_FAILED);
	if (q != room)
		assert_told(3, MM_UNMAP, room, PAGE);
	else
		assert_int_equal(times, 3);
	assert_ptr_equal(mremap(room + 1, PAGE, PAGE, 0), MAP_FAILED);
	assert_int_equal(errno, EINVAL);
	munmap(room, 8 * PAGE);
	munmap(q, 64 * PAGE);
}

static void growing_in_place_takes_nothing_away(void **state)
{
	char *p = map(4);

	munmap(p + 2 * PAGE, 2 * PAGE);
	times = 0;
	assert_ptr_equal(mremap(p, 2 * PAGE, 3 * PAGE, 0), p);
	assert_ptr_equal(mremap(p, 3 * PAGE, 4 * PAGE, MREMAP_MAYMOVE), p);
	assert_ptr_equal(mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE), p);
	assert_int_equal(times, 0);
	munmap(p, 4 * PAGE);
}

static void madvise_tells_what_discards_and_nothing_else(void **state)
{
	static const int harmless[] = { MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED,
		MADV_DONTFORK, MADV_DOFORK, 20 /* COLD */, 23 /* POPULATE_WRITE */ };
	static const int discards[] = { MADV_DONTNEED, MADV_FREE, MADV_REMOVE, 21 /* PAGEOUT */,
		MADV_DONTNEED_LOCKED, 102 /* GUARD_INSTALL */ };
	char *p = map(2);

	for (unsigned i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		madvise(p, PAGE, harmless[i]);
	assert_int_equal(times, 0);
	for (unsigned i = 0; i < sizeof(discards) / sizeof(discards[0]); i++) {
		madvise(p + PAGE, 10, discards[i]);
		assert_told(i, MM_DISCARD, p + PAGE, PAGE);
	}
	assert_int_equal(times, sizeof(discards) / sizeof(discards[0]));
	munmap(p, 2 * PAGE);
}

static void the_other_madvises_do_too(void **state)
{
	char *p = map(4);
	struct iovec vec[2] = { { p, PAGE }, { p + 2 * PAGE, 2 * PAGE } };
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	ssize_t raw, ours;

	/* As in a process with a device: only then is there always a way to read the ranges. */
	assert_int_equal(sigchain_install(), 0);
	*p = 1;
	errno = 4;
	assert_int_equal(posix_madvise(p, PAGE, POSIX_MADV_DONTNEED), 0);
	assert_int_equal(*p, 1);
	assert_int_equal(times, 0);
	assert_int_equal(posix_madvise(p + 1, PAGE, MADV_FREE), EINVAL);
	assert_int_equal(errno, 4);
	assert_int_equal(posix_madvise(p, PAGE, MADV_FREE), 0);
	assert_told(0, MM_DISCARD, p, PAGE);
	raw = syscall(SYS_process_madvise, self, vec, 2ul, 21, 0u);
	times = 0;
	ours = process_madvise(self, vec, 2, 21, 0);
	assert_int_equal(ours, raw);
	assert_int_equal(times, 2);
	assert_told(0, MM_DISCARD, p, PAGE);
	assert_told(1, MM_DISCARD, p + 2 * PAGE, 2 * PAGE);
	/* A bad pointer is the kernel's to refuse. */
	assert_int_equal(process_madvise(self, (void *)16, 2, 21, 0), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(times, 2);
	close(self);
	munmap(p, 4 * PAGE);
}

static void mprotect_tells_changed_rights(void **state)
{
	char *p = map(3);

	assert_int_equal(mprotect(p + PAGE, 1, PROT_READ), 0);
	assert_told(0, MM_PROTECT, p + PAGE, PAGE);
	assert_int_equal(pkey_mprotect(p, 2 * PAGE, PROT_READ, -1), 0);
	assert_told(1, MM_PROTECT, p, 2 * PAGE);
	assert_int_equal(mprotect(p + 1, 1, PROT_READ), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(times, 2);
	munmap(p, 3 * PAGE);
	times = 0;
	assert_int_equal(mprotect(p, PAGE, PROT_READ), -1);
	assert_int_equal(errno, ENOMEM);
	assert_told(0, MM_PROTECT, p, PAGE);
}

/* In a child, whose malloc is not used meanwhile. */
static int move_break(void)
{
	char *start = sbrk(0), *end;

	interpose_observe(observe);
	times = 0;
	if (sbrk(4 * PAGE) != start || times)
		return 1;
	end = sbrk(0);
	if (end != start + 4 * PAGE || sbrk(-(intptr_t)(2 * PAGE)) != end)
		return 2;
	end = (char *)(((uintptr_t)end + PAGE - 1) & ~(PAGE - 1));
	if (times != 1 || told[0].what != MM_UNMAP || told[0].addr != (uintptr_t)end - 2 * PAGE ||
		told[0].len != 2 * PAGE)
		return 3;
	if (brk(start) || times != 2 || told[1].len != 2 * PAGE || sbrk(0) != start)
		return 4;
	if (brk(start + PAGE) || times != 2)
		return 5;
	/* Not a page less. */
	start = (char *)(((uintptr_t)start + PAGE - 1) & ~(PAGE - 1));
	if (brk(start + 10) || (times = 0, brk(start + 5)) || times)
		return 6;
	errno = 0;
	if (brk((void *)(UINTPTR_MAX / 2)) != -1 || errno != ENOMEM)
		return 7;
	interpose_observe(NULL);
	return free(malloc(1 << 16)), 0;
}

static void the_break_tells_when_it_goes_down(void **state)
{
	int status = in_child(move_break);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void detaching_shared_memory_tells_all_of_it(void **state)
{
	int id = shmget(IPC_PRIVATE, 3 * PAGE + 1, IPC_CREAT | 0600);
	char *p, *q;

	if (id < 0) {
		print_message("no System V shared memory here\n");
		skip();
	}
	p = shmat(id, NULL, 0);
	assert_ptr_not_equal(p, (void *)-1);
	q = map(4);
	shmctl(id, IPC_RMID, NULL);
	/* Split into three mappings: still one segment. */
	mprotect(p + PAGE, PAGE, PROT_READ);
	times = 0;
	assert_int_equal(shmdt(p), 0);
	assert_int_equal(times, 1);
	assert_told(0, MM_UNMAP, p, 4 * PAGE);
	errno = 0;
	assert_int_equal(shmdt(q), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(times, 1);
	munmap(q, 4 * PAGE);
}

static void attaching_over_something_tells_it(void **state)
{
	int id = shmget(IPC_PRIVATE, 2 * PAGE, IPC_CREAT | 0600);
	char *p = map(4);

	if (id < 0) {
		print_message("no System V shared memory here\n");
		skip();
	}
	assert_ptr_equal(shmat(id, p, 0), (void *)-1);
	assert_int_equal(times, 0);
	assert_ptr_equal(shmat(id, p + PAGE + 7, SHM_REMAP | SHM_RND), p + PAGE);
	assert_told(0, MM_UNMAP, p + PAGE, 2 * PAGE);
	shmctl(id, IPC_RMID, NULL);
	munmap(p, 4 * PAGE);
}

static void the_raw_calls_tell_nobody(void **state)
{
	char *p = raw_mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_ptr_equal(raw_mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
	assert_int_equal(raw_madvise(p, PAGE, MADV_DONTNEED), 0);
	assert_int_equal(raw_munmap(p, 2 * PAGE), 0);
	assert_int_equal(times, 0);
	assert_int_equal(raw_munmap(p + 1, PAGE), -1);
	assert_int_equal(errno, EINVAL);
}

static void without_an_observer_all_goes_on_as_usual(void **state)
{
	char *p;

	interpose_observe(NULL);
	p = map(4);
	*p = 1;
	assert_int_equal(madvise(p, PAGE, MADV_DONTNEED), 0);
	assert_int_equal(*p, 0);
	assert_ptr_equal(mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
	assert_ptr_equal(mremap(p + PAGE, 3 * PAGE, PAGE, 0), p + PAGE);
	assert_int_equal(munmap(p, 2 * PAGE), 0);
	assert_int_equal(times, 0);
}

static void they_are_the_ones_that_libraries_find(void **state)
{
	static const char *const names[] = { "munmap", "mremap", "mmap", "mmap64", "madvise", "posix_madvise",
		"process_madvise", "mprotect", "pkey_mprotect", "brk", "sbrk", "shmat", "shmdt", "sigaction",
		"signal", "ssignal", "bsd_signal", "sysv_signal", "__sysv_signal", "sigset", "sigignore",
		"siginterrupt" };
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	Dl_info ours, found;

	assert_non_null(libc);
	assert_int_not_equal(dladdr((void *)(uintptr_t)they_are_the_ones_that_libraries_find, &ours), 0);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		void *first = dlsym(RTLD_DEFAULT, names[i]);

		/* A name that no library of this program asks for is not exported by the linker. */
		if (!first || first == dlsym(libc, names[i]))
			continue;
		assert_int_not_equal(dladdr(first, &found), 0);
	}
	assert_ptr_not_equal((void *)(uintptr_t)munmap, dlsym(libc, "munmap"));
	dlclose(libc);
}

/* ---- As seen by a copy of a mapping: after, not before ---- */

static char *watched_page;
static int mapped_when_told = -1;

static void look(enum mm_change what, uintptr_t addr, size_t len)
{
	struct vma v;

	if (addr == (uintptr_t)watched_page)
		mapped_when_told = !vma_find(addr, false, &v);
}

static void the_observer_is_told_when_it_has_happened(void **state)
{
	watched_page = map(1);
	interpose_observe(look);
	munmap(watched_page, PAGE);
	assert_int_equal(mapped_when_told, 0);
}

static atomic_uint seen_by_all;

static void count(enum mm_change what, uintptr_t addr, size_t len)
{
	atomic_fetch_add(&seen_by_all, 1);
}

static void *map_and_unmap(void *arg)
{
	for (int i = 0; i < 1000; i++)
		raw_munmap(NULL, 0), munmap(map(1), PAGE);
	return NULL;
}

static void every_thread_tells(void **state)
{
	pthread_t thread[4];

	interpose_observe(count);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread[i], NULL, map_and_unmap, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	assert_true(atomic_load(&seen_by_all) >= 4000);
}

#define observed(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		observed(munmap_tells_whole_pages),
		observed(what_the_kernel_cannot_accept_is_not_told),
		observed(mmap_tells_only_when_it_replaces),
		observed(mremap_tells_what_it_takes_away),
		observed(growing_in_place_takes_nothing_away),
		observed(madvise_tells_what_discards_and_nothing_else),
		observed(the_other_madvises_do_too),
		observed(mprotect_tells_changed_rights),
		observed(the_break_tells_when_it_goes_down),
		observed(detaching_shared_memory_tells_all_of_it),
		observed(attaching_over_something_tells_it),
		observed(the_raw_calls_tell_nobody),
		observed(without_an_observer_all_goes_on_as_usual),
		observed(they_are_the_ones_that_libraries_find),
		observed(the_observer_is_told_when_it_has_happened),
		observed(every_thread_tells),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

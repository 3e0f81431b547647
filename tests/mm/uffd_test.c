/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Every change by raw system call, which interposition cannot see. Each case in a process of its own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "mm/interpose.h"
#include "mm/uffd.h"
#include "tests/mm/child.h"

#define PAGE 4096ul

static void run(int (*fn)(void))
{
	if (!mm_have(MM_UFFD)) {
		printf("skipped: no userfaultfd: %s\n", mm_facility_why_not(MM_UFFD));
		skip();
	}
	assert_true(exited(in_child(fn), 0));
}

/* ---- what was told ---- */

static struct {
	enum mm_change what;
	uintptr_t addr;
	size_t len;
} log_of[4096];
static _Atomic unsigned told;
/* While it is held, the observer does not return. */
static sem_t gate;
static atomic_bool gated;

static void observer(enum mm_change what, uintptr_t addr, size_t len)
{
	unsigned i = atomic_load(&told);

	if (i < 4096) {
		log_of[i].what = what;
		log_of[i].addr = addr;
		log_of[i].len = len;
	}
	atomic_store(&told, i + 1);
	if (atomic_load(&gated))
		sem_wait(&gate);
}

static bool wait_for(unsigned n)
{
	for (int i = 0; i < 5000 && atomic_load(&told) < n; i++)
		usleep(1000);
	return atomic_load(&told) >= n;
}

/* The next thing told is this. */
static bool is_told(enum mm_change what, uintptr_t addr, size_t len)
{
	static unsigned seen;

	if (!wait_for(seen + 1))
		return false;
	if (log_of[seen].what == what && log_of[seen].addr == addr && log_of[seen].len == len) {
		seen++;
		return true;
	}
	fprintf(stderr, "told %d %#lx %#zx, not %d %#lx %#zx\n", log_of[seen].what, log_of[seen].addr,
		log_of[seen].len, what, addr, len);
	return false;
}

/* ---- memory ---- */

/* Pages without rights at both ends, so that nothing merges with what lies between. */
static uintptr_t map(size_t pages)
{
	char *p = raw_mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(p + PAGE, pages * PAGE, PROT_READ | PROT_WRITE);
	return (uintptr_t)p + PAGE;
}

static int cover(uintptr_t addr)
{
	struct vma v;
	int err = vma_find(addr, false, &v);

	return err ? err : uffd_cover(&v);
}

static uintptr_t map_covered(size_t pages)
{
	uintptr_t p = map(pages);

	if (cover(p))
		abort();
	memset((void *)p, 1, pages * PAGE);
	return p;
}

static struct uffd_counts counts(void)
{
	struct uffd_counts c;

	uffd_counts(&c);
	return c;
}

static int marker(void)
{
	uintptr_t p = map_covered(1);

	raw_munmap((void *)p, PAGE);
	return is_told(MM_UNMAP, p, PAGE) ? 0 : 1;
}

/* ---- cases ---- */

static int unmaps(void)
{
	uintptr_t p, brk0;

	CHECK(!uffd_open(observer));
	p = map_covered(10);
	errno = 5;
	CHECK(!raw_munmap((void *)(p + 2 * PAGE), 3 * PAGE));
	CHECK(is_told(MM_UNMAP, p + 2 * PAGE, 3 * PAGE));
	CHECK(raw_mmap((void *)(p + 7 * PAGE), PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		      0) != MAP_FAILED);
	CHECK(is_told(MM_UNMAP, p + 7 * PAGE, PAGE));
	CHECK((uintptr_t)syscall(SYS_mremap, p + 8 * PAGE, 2 * PAGE, PAGE, 0) == p + 8 * PAGE);
	CHECK(is_told(MM_UNMAP, p + 9 * PAGE, PAGE));
	brk0 = ((uintptr_t)syscall(SYS_brk, 0) + PAGE - 1) & ~(PAGE - 1);
	CHECK((uintptr_t)syscall(SYS_brk, brk0 + 4 * PAGE) == brk0 + 4 * PAGE);
	CHECK(!cover(brk0 + PAGE));
	CHECK((uintptr_t)syscall(SYS_brk, brk0 + 2 * PAGE) == brk0 + 2 * PAGE);
	CHECK(is_told(MM_UNMAP, brk0 + 2 * PAGE, 2 * PAGE));
	/* The neighbours of what went are there and watched still. */
	CHECK(!raw_munmap((void *)p, PAGE) && is_told(MM_UNMAP, p, PAGE));
	CHECK(!marker());
	CHECK(counts().events == 6 && counts().overflows == 0 && errno == 5);
	return 0;
}

static void an_unmapping_is_told_with_its_exact_range(void **state)
{
	run(unmaps);
}

static int discards(void)
{
	int fd = memfd_create("x", MFD_CLOEXEC);
	uintptr_t p, f;

	CHECK(!uffd_open(observer));
	p = map_covered(10);
	CHECK(!raw_madvise((void *)(p + PAGE), 2 * PAGE, MADV_DONTNEED));
	CHECK(is_told(MM_DISCARD, p + PAGE, 2 * PAGE));
	CHECK(((char *)p)[PAGE] == 0 && ((char *)p)[0] == 1);
	CHECK(!raw_madvise((void *)(p + 5 * PAGE), PAGE, MADV_FREE));
	CHECK(is_told(MM_DISCARD, p + 5 * PAGE, PAGE));
	CHECK(!ftruncate(fd, 4 * PAGE));
	f = (uintptr_t)raw_mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!cover(f)) {
		CHECK(!raw_madvise((void *)(f + PAGE), PAGE, MADV_REMOVE));
		CHECK(is_told(MM_DISCARD, f + PAGE, PAGE));
		CHECK(!raw_madvise((void *)f, PAGE, MADV_DONTNEED));
		CHECK(is_told(MM_DISCARD, f, PAGE));
	} else {
		puts("files left out: the kernel cannot watch them");
	}
	CHECK(!marker());
	return 0;
}

static void a_discard_is_told_with_its_exact_range(void **state)
{
	run(discards);
}

static int moves(void)
{
	uintptr_t p, to;

	CHECK(!uffd_open(observer));
	p = map_covered(4);
	to = map(4);
	CHECK((uintptr_t)syscall(SYS_mremap, p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(is_told(MM_UNMAP, p, 4 * PAGE) && is_told(MM_UNMAP, to, 4 * PAGE));
	CHECK(is_told(MM_UNMAP, p, 4 * PAGE));
	/* It is watched where it is now. */
	CHECK(!raw_munmap((void *)to, 4 * PAGE) && is_told(MM_UNMAP, to, 4 * PAGE));
	CHECK(!marker());
	return 0;
}

static void a_move_is_told_for_both_ends_and_is_watched_on(void **state)
{
	run(moves);
}

static int silent(void)
{
	uintptr_t p, q;

	CHECK(!uffd_open(observer));
	p = map_covered(4);
	q = map(4);
	CHECK(!syscall(SYS_mprotect, p, PAGE, PROT_READ));
	CHECK(!raw_madvise((void *)p, 4 * PAGE, 21 /* MADV_PAGEOUT */));
	CHECK(!raw_munmap((void *)q, 4 * PAGE));
	CHECK(!marker());
	CHECK(counts().events == 1);
	return 0;
}

static void rights_and_memory_that_is_not_covered_are_not_told(void **state)
{
	run(silent);
}

static int again(void)
{
	uintptr_t p;

	CHECK(!uffd_open(observer));
	CHECK(uffd_open(observer) == -EBUSY);
	p = map_covered(4);
	CHECK(!cover(p) && !cover(p + 3 * PAGE));
	CHECK(counts().covered == 1);
	/* What is mapped in its place is another mapping. */
	CHECK(!raw_munmap((void *)p, 4 * PAGE) && is_told(MM_UNMAP, p, 4 * PAGE));
	CHECK(raw_mmap((void *)p, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		      0) == (void *)p);
	CHECK(!cover(p) && counts().covered == 2);
	CHECK(!raw_munmap((void *)p, 4 * PAGE) && is_told(MM_UNMAP, p, 4 * PAGE));
	return 0;
}

static void a_mapping_is_registered_once_and_its_successor_again(void **state)
{
	run(again);
}

/* An application's own userfaultfd, for missing pages. */
static int own_fd(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);

	return ioctl(fd, UFFDIO_API, &api) ? -1 : fd;
}

static int own_register(int fd, uintptr_t addr, size_t len)
{
	struct uffdio_register reg = { .range = { addr, len }, .mode = UFFDIO_REGISTER_MODE_MISSING };

	return ioctl(fd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

static int with_own(void)
{
	uintptr_t p = map(4), q = map(4), covered;
	struct uffdio_zeropage zero = { .range = { p, PAGE } };
	int fd = own_fd();

	CHECK(fd >= 0 && !own_register(fd, p, 4 * PAGE));
	CHECK(!uffd_open(observer));
	CHECK(cover(p) == -EBUSY && cover(p + PAGE) == -EBUSY);
	CHECK(counts().busy == 1 && counts().covered == 0);
	CHECK(!cover(q));
	/* Its own goes on as before, and ours says nothing of it. */
	CHECK(!ioctl(fd, UFFDIO_ZEROPAGE, &zero));
	CHECK(((volatile char *)p)[5] == 0);
	CHECK(!raw_munmap((void *)p, 4 * PAGE));
	CHECK(!raw_munmap((void *)(q + PAGE), PAGE) && is_told(MM_UNMAP, q + PAGE, PAGE));
	/* The limit that the header tells: who comes second is refused. */
	covered = map_covered(2);
	CHECK(own_register(fd, covered, 2 * PAGE) == -EBUSY);
	CHECK(!own_register(fd, map(2), 2 * PAGE));
	return 0;
}

static void an_own_userfaultfd_of_the_application_keeps_its_ranges(void **state)
{
	run(with_own);
}

static int overflow(void)
{
	const unsigned many = 3000;
	uintptr_t p;

	sem_init(&gate, 0, 0);
	CHECK(!uffd_open(observer));
	p = map_covered(8);
	atomic_store(&gated, true);
	/* The first is told before there are too many, and the observer keeps it. */
	CHECK(!raw_madvise((void *)p, PAGE, MADV_DONTNEED) && wait_for(1));
	/* Nobody waits for the observer, however long it takes. */
	for (unsigned i = 1; i < many; i++)
		CHECK(!raw_madvise((void *)(p + i % 8 * PAGE), PAGE, MADV_DONTNEED));
	for (int i = 0; i < 2000 && counts().events < many; i++)
		usleep(1000);
	CHECK(counts().events == many && atomic_load(&told) <= 1);
	atomic_store(&gated, false);
	sem_post(&gate);
	CHECK(wait_for(2));
	CHECK(log_of[0].what == MM_DISCARD && log_of[0].addr == p);
	for (int i = 0; i < 2000 && counts().overflows == 0; i++)
		usleep(1000);
	CHECK(counts().overflows == 1);
	/* Then everything is invalid, and after that it goes on as before. */
	raw_munmap((void *)p, 8 * PAGE);
	for (int i = 0; i < 2000 && log_of[atomic_load(&told) - 1].what != MM_UNMAP; i++)
		usleep(1000);
	for (unsigned i = 0; i < atomic_load(&told); i++)
		if (log_of[i].what == MM_UNMAP && log_of[i].addr == 0 && log_of[i].len > UINTPTR_MAX / 2)
			return 0;
	return 1;
}

static void when_too_much_happens_everything_is_declared_invalid(void **state)
{
	run(overflow);
}

static int forks(void)
{
	uintptr_t p;
	int status;
	pid_t pid;

	CHECK(!uffd_open(observer));
	p = map_covered(4);
	pid = fork();
	if (!pid) {
		alarm(10);
		CHECK(!raw_munmap((void *)p, PAGE));
		uffd_abandon();
		CHECK(!raw_munmap((void *)(p + PAGE), PAGE) && atomic_load(&told) == 0);
#ifdef __SANITIZE_THREAD__
		_exit(0); /* it has no threads in a child */
#endif
		/* One of its own. */
		CHECK(!uffd_open(observer) && !cover(p + 2 * PAGE));
		CHECK(!raw_munmap((void *)(p + 2 * PAGE), PAGE));
		CHECK(is_told(MM_UNMAP, p + 2 * PAGE, PAGE));
		uffd_close();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	CHECK(exited(status, 0));
	CHECK(atomic_load(&told) == 0);
	CHECK(!raw_munmap((void *)p, 4 * PAGE) && is_told(MM_UNMAP, p, 4 * PAGE));
	return 0;
}

static void a_child_has_nothing_of_it_and_may_have_its_own(void **state)
{
	run(forks);
}

static int closes(void)
{
	uintptr_t p;

	for (int i = 0; i < 20; i++) {
		CHECK(!uffd_open(observer));
		p = map_covered(4);
		CHECK(!raw_munmap((void *)p, PAGE) && is_told(MM_UNMAP, p, PAGE));
		uffd_close();
		CHECK(!raw_munmap((void *)(p + PAGE), PAGE));
		CHECK(cover(p + 2 * PAGE) == -ENODEV && !uffd_active());
		CHECK(atomic_load(&told) == (unsigned)i + 1);
		/* No process is left. */
		CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
	}
	return 0;
}

static void after_its_end_nobody_waits_for_it(void **state)
{
	run(closes);
}

/* ---- the reader's process ---- */

/* The process id of the reader whose parent is this, or 0; zombies do not count. */
static pid_t reader_of(pid_t parent)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	pid_t found = 0;

	while (d && !found && (e = readdir(d))) {
		char path[300], state = 'Z';
		int pid, ppid = 0;
		FILE *f;

		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		f = fopen(path, "re");
		if (f && fscanf(f, "%d (unpin-uffd) %c %d", &pid, &state, &ppid) == 3 && ppid == parent &&
			state != 'Z')
			found = pid;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return found;
}

static int unnoticed(void)
{
	CHECK(!uffd_open(observer));
	CHECK(reader_of(getpid()));
	CHECK(wait(NULL) == -1 && errno == ECHILD);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	uffd_close();
	CHECK(!reader_of(getpid()));
	return 0;
}

static void a_program_that_waits_for_its_children_does_not_see_the_reader(void **state)
{
	run(unnoticed);
}

static int killed_reader(void)
{
	uint64_t readers = 1;
	uintptr_t p;
	pid_t pid;

	CHECK(!uffd_open(observer));
	p = map_covered(64);
	for (int i = 0; i < 4; i++) {
		pid = reader_of(getpid());
		CHECK(pid && !kill(pid, SIGKILL));
		/* Returns, though its reader may be gone. */
		CHECK(!raw_munmap((void *)(p + (unsigned)i * PAGE), PAGE));
		if (i == 3)
			break;
		for (int n = 0; n < 5000 && (counts().readers == readers || counts().overflows < readers);
			n++)
			usleep(1000);
		CHECK(counts().readers == ++readers);
		CHECK(counts().overflows == readers - 1);
	}
	for (int n = 0; n < 5000 && uffd_active(); n++)
		usleep(1000);
	CHECK(!uffd_active() && cover(p + 8 * PAGE) == -ENODEV && !reader_of(getpid()));
	CHECK(!raw_munmap((void *)p, 64 * PAGE));
	uffd_close();
	/* And may be had again. */
	CHECK(!uffd_open(observer) && uffd_active());
	p = map_covered(2);
	CHECK(!raw_munmap((void *)p, PAGE));
	uffd_close();
	return 0;
}

static void a_reader_that_is_killed_is_replaced_and_nobody_hangs(void **state)
{
	run(killed_reader);
}

static int descriptors_closed(void)
{
	uintptr_t p, q = map(1);

	CHECK(!uffd_open(observer));
	p = map_covered(4);
	for (int fd = 3; fd < 70000; fd++)
		syscall(SYS_close, fd);
	CHECK(!raw_munmap((void *)p, PAGE) && is_told(MM_UNMAP, p, PAGE));
	CHECK(cover(q) == -ENODEV);
	uffd_close();
	CHECK(!raw_munmap((void *)(p + PAGE), PAGE));
	return 0;
}

static void a_program_that_closes_all_descriptors_does_no_harm(void **state)
{
	run(descriptors_closed);
}

static bool ends(pid_t reader)
{
	char path[64], state = 'R';

	snprintf(path, sizeof(path), "/proc/%d/stat", reader);
	for (int i = 0; i < 5000; i++) {
		FILE *f = fopen(path, "re");

		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			state = 'X';
		if (f)
			fclose(f);
		if (state == 'X' || state == 'Z')
			return true;
		usleep(1000);
	}
	return false;
}

/* The program ends in its own way, in the middle of its work. */
static int ends_with(void (*end)(void))
{
	int ready[2];
	pid_t pid, reader;
	char c;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ready));
	pid = fork();
	if (!pid) {
		if (uffd_open(observer))
			_exit(1);
		map_covered(2);
		/* Until the reader has been found. */
		if (write(ready[1], "x", 1) == 1 && read(ready[1], &c, 1) == 1)
			end();
		_exit(1);
	}
	CHECK(read(ready[0], &c, 1) == 1);
	reader = reader_of(pid);
	CHECK(reader);
	CHECK(write(ready[0], "x", 1) == 1);
	CHECK(ends(reader));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}

static void by_kill(void)
{
	kill(getpid(), SIGKILL);
}

static void by_exit(void)
{
	_exit(0);
}

static void by_exec(void)
{
	execl("/bin/sleep", "sleep", "10", NULL);
}

static int ends_of_program(void)
{
	return ends_with(by_kill) || ends_with(by_exit) || ends_with(by_exec);
}

static void the_reader_ends_with_its_program(void **state)
{
	run(ends_of_program);
}

static int switched_off(void)
{
	setenv("UNPIN_DISABLE", "uffd", 1);
	return uffd_open(observer) == -EOPNOTSUPP && !uffd_active() ? 0 : 1;
}

static void it_can_be_switched_off(void **state)
{
	assert_true(exited(in_child(switched_off), 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: whether there is one is asked once per process. */
		cmocka_unit_test(it_can_be_switched_off),
		cmocka_unit_test(an_unmapping_is_told_with_its_exact_range),
		cmocka_unit_test(a_discard_is_told_with_its_exact_range),
		cmocka_unit_test(a_move_is_told_for_both_ends_and_is_watched_on),
		cmocka_unit_test(rights_and_memory_that_is_not_covered_are_not_told),
		cmocka_unit_test(a_mapping_is_registered_once_and_its_successor_again),
		cmocka_unit_test(an_own_userfaultfd_of_the_application_keeps_its_ranges),
		cmocka_unit_test(when_too_much_happens_everything_is_declared_invalid),
		cmocka_unit_test(a_child_has_nothing_of_it_and_may_have_its_own),
		cmocka_unit_test(after_its_end_nobody_waits_for_it),
		cmocka_unit_test(a_program_that_waits_for_its_children_does_not_see_the_reader),
		cmocka_unit_test(a_reader_that_is_killed_is_replaced_and_nobody_hangs),
		cmocka_unit_test(a_program_that_closes_all_descriptors_does_no_harm),
		cmocka_unit_test(the_reader_ends_with_its_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

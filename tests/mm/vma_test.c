/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Everything twice: by PROCMAP_QUERY and by reading /proc/self/maps. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "mm/vma.h"
#include "tests/mm/child.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef SHM_HUGETLB
#define SHM_HUGETLB 04000
#endif
#ifndef SHM_NORESERVE
#define SHM_NORESERVE 010000
#endif

#define PAGE 4096ul

static void both_ways(int (*fn)(void))
{
	unsetenv("UNPIN_DISABLE");
	assert_true(exited(in_child(fn), 0));
	setenv("UNPIN_DISABLE", "procmap_query", 1);
	assert_true(exited(in_child(fn), 0));
	unsetenv("UNPIN_DISABLE");
}

/* Pages without rights at both ends, so that nothing merges with what lies between. */
static uintptr_t map(size_t pages)
{
	struct vma v;
	char *p;

	/* What the library keeps mapped is made first, so that it does not fall into a hole. */
	vma_find((uintptr_t)&v, false, &v);
	p = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(p + PAGE, pages * PAGE, PROT_READ | PROT_WRITE);
	return (uintptr_t)p + PAGE;
}

static int anonymous(void)
{
	uintptr_t p = map(4);
	struct vma v;

	errno = 8;
	CHECK(!vma_find(p + 5, false, &v));
	CHECK(v.start == p && v.end == p + 4 * PAGE);
	CHECK(v.read && v.write && !v.exec && !v.shared && !v.file && !v.special && !v.inode);
	CHECK(!vma_find(p + 4 * PAGE - 1, false, &v) && v.start == p);
	mprotect((void *)p, PAGE, PROT_NONE);
	CHECK(!vma_find(p, false, &v) && !v.read && !v.write && v.end == p + PAGE);
	CHECK(errno == 8);
	return 0;
}

static int of_file(void)
{
	int fd = memfd_create("a name with blanks and [brackets]", MFD_CLOEXEC);
	uintptr_t p;
	struct vma v;

	map(1);
	CHECK(!ftruncate(fd, 4 * PAGE));
	p = (uintptr_t)mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
	CHECK(!vma_find(p + PAGE, false, &v));
	CHECK(v.start == p && v.end == p + 2 * PAGE);
	CHECK(v.read && !v.write && v.shared && v.file && !v.special && v.inode && v.offset == PAGE);
	p = (uintptr_t)mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	CHECK(!vma_find(p, false, &v) && v.exec && !v.shared && v.file);
	p = (uintptr_t)mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(!vma_find(p, false, &v) && v.shared && v.file);
	return 0;
}

static bool describes(void *p, bool shmem, size_t page_size)
{
	struct vma v;

	/* Twice: the second answer may be a remembered one. */
	for (int i = 0; i < 2; i++)
		if (p == MAP_FAILED || vma_find((uintptr_t)p, false, &v) || !v.file || v.shmem != shmem ||
			v.page_size != page_size)
			return false;
	return true;
}

static void *of_path(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);
	void *p;

	if (fd >= 0 && flags & O_CREAT && ftruncate(fd, 2 * PAGE))
		return MAP_FAILED;
	p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return p;
}

static void *of_memfd(const char *name, unsigned how, size_t len)
{
	int fd = memfd_create(name, MFD_CLOEXEC | how);
	void *p;

	if (fd < 0 || ftruncate(fd, (off_t)len))
		return MAP_FAILED;
	/* Without a reservation, so that no huge page has to exist. */
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	close(fd);
	return p;
}

static void *of_sysv(int how, size_t len)
{
	int id = shmget(IPC_PRIVATE, len, how | IPC_CREAT | SHM_NORESERVE | 0600);
	void *p = shmat(id, NULL, 0);

	shmctl(id, IPC_RMID, NULL);
	return p;
}

static int in_memory(void)
{
	char path[64];
	struct vma v;

	errno = 8;
	CHECK(describes(of_memfd("x", 0, 2 * PAGE), true, PAGE));
	CHECK(describes(of_sysv(0, 2 * PAGE), true, PAGE));
	CHECK(describes(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0), true, PAGE));
	CHECK(errno == 8);
	snprintf(path, sizeof(path), "/dev/shm/unpin-test-%d", getpid());
	CHECK(describes(of_path(path, O_RDWR | O_CREAT), true, PAGE));
	CHECK(!unlink(path));
	CHECK(!vma_find((uintptr_t)&v, false, &v) && !v.shmem && v.page_size == PAGE);
	return 0;
}

static void a_file_that_lives_in_memory_is_told(void **state)
{
	struct statfs fs;

	if (statfs("/dev/shm", &fs) || fs.f_type != 0x01021994) {
		puts("skipped: no tmpfs on /dev/shm");
		skip();
	}
	both_ways(in_memory);
}

/* A file whose name looks like one that lives in memory. */
static int on_disk(void)
{
	char path[] = "/var/tmp/memfd:unpin-XXXXXX";
	int fd = mkstemp(path);
	void *p;

	CHECK(fd >= 0 && !ftruncate(fd, PAGE));
	p = of_path(path, O_RDWR);
	CHECK(!unlink(path));
	CHECK(describes(p, false, PAGE));
	CHECK(describes(of_path("/proc/self/exe", O_RDONLY), false, PAGE));
	return 0;
}

static bool is_in_memory(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) || fs.f_type == 0x01021994 || fs.f_type == 0x858458f6;
}

static void a_file_on_a_disk_is_told(void **state)
{
	if (is_in_memory("/var/tmp") || is_in_memory("/proc/self/exe")) {
		puts("skipped: /var/tmp or the program is not on a disk");
		skip();
	}
	both_ways(on_disk);
}

#define HUGE (2ul << 20)

/* Nothing is touched, so no huge page has to be there. */
static int huge(void)
{
	int anonymous = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE | 21 << MAP_HUGE_SHIFT;

	map(1);
	CHECK(describes(mmap(NULL, 2 * HUGE, PROT_READ, anonymous, -1, 0), true, HUGE));
	CHECK(describes(of_memfd("x", MFD_HUGETLB | MFD_HUGE_2MB, 2 * HUGE), true, HUGE));
	CHECK(describes(of_sysv(SHM_HUGETLB | 21 << 26, 2 * HUGE), true, HUGE));
	CHECK(describes(of_memfd("x", 0, 2 * HUGE), true, PAGE));
	return 0;
}

/* A mount of our own, which ends with the child that made it. */
static int mounted(void)
{
	char dir[] = "/var/tmp/unpin-XXXXXX", path[64];
	int fd;

	CHECK(mkdtemp(dir));
	CHECK(!unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	CHECK(!mount("none", dir, "tmpfs", 0, NULL));
	snprintf(path, sizeof(path), "%s/file", dir);
	CHECK(describes(of_path(path, O_RDWR | O_CREAT), true, PAGE));
	CHECK(!umount2(dir, MNT_DETACH) && !mount("none", dir, "hugetlbfs", 0, "pagesize=2M"));
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !ftruncate(fd, HUGE));
	CHECK(describes(mmap(NULL, HUGE, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0), true, HUGE));
	CHECK(!umount2(dir, MNT_DETACH) && !rmdir(dir));
	return 0;
}

static void a_huge_page_has_its_size(void **state)
{
	if (access("/sys/kernel/mm/hugepages/hugepages-2048kB", F_OK)) {
		puts("skipped: no huge pages of 2 MiB");
		skip();
	}
	both_ways(huge);
}

static void file_systems_in_memory_are_told_wherever_mounted(void **state)
{
	if (geteuid() || access("/sys/kernel/mm/hugepages/hugepages-2048kB", F_OK)) {
		puts("skipped: needs root, and huge pages of 2 MiB");
		skip();
	}
	both_ways(mounted);
}

static int of_kernel(void)
{
	uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
	struct vma v;
	char here;

	CHECK(!vma_find((uintptr_t)&here, false, &v) && v.write && !v.special && !v.file);
	if (vdso)
		CHECK(!vma_find(vdso, false, &v) && v.special && v.read && !v.file);
	return 0;
}

static void a_mapping_is_described(void **state)
{
	both_ways(anonymous);
	both_ways(of_file);
	both_ways(of_kernel);
}

static int holes(void)
{
	uintptr_t p = map(6);
	struct vma v;

	munmap((void *)(p + 2 * PAGE), 2 * PAGE);
	CHECK(vma_find(p + 2 * PAGE, false, &v) == -ENOENT);
	CHECK(!vma_find(p + 2 * PAGE, true, &v) && v.start == p + 4 * PAGE);
	CHECK(!vma_find(p + PAGE, true, &v) && v.start == p);
	CHECK(vma_find(UINTPTR_MAX - PAGE, false, &v) == -ENOENT);
	CHECK(vma_find(UINTPTR_MAX - PAGE, true, &v) == -ENOENT);
	return 0;
}

static void in_a_hole_there_is_none_but_there_may_be_a_next(void **state)
{
	both_ways(holes);
}

static int checks(void)
{
	uintptr_t p = map(8), where = 1;

	munmap((void *)(p + 6 * PAGE), PAGE);
	mprotect((void *)(p + 2 * PAGE), PAGE, PROT_READ);
	mprotect((void *)(p + 4 * PAGE), PAGE, PROT_WRITE);
	CHECK(vma_check(p + 3, 4 * PAGE - 3, true, false, &where) == 0 && where == 1);
	CHECK(vma_check(p + 3, 2 * PAGE - 3, true, true, NULL) == 0);
	CHECK(vma_check(p + 3, 2 * PAGE, true, true, &where) == -EACCES && where == p + 2 * PAGE);
	CHECK(vma_check(p + 3 * PAGE, 2 * PAGE, true, false, &where) == -EACCES && where == p + 4 * PAGE);
	CHECK(vma_check(p + 3 * PAGE, 2 * PAGE, false, true, NULL) == 0);
	CHECK(vma_check(p, 8 * PAGE, false, false, &where) == -ENOMEM && where == p + 6 * PAGE);
	CHECK(vma_check(p + 6 * PAGE + 7, 1, false, false, &where) == -ENOMEM && where == p + 6 * PAGE + 7);
	CHECK(vma_check(p, 0, true, true, NULL) == 0);
	CHECK(vma_check(p + 7 * PAGE, UINTPTR_MAX - 5, true, true, &where) == -EACCES ||
		where >= p + 8 * PAGE);
	return 0;
}

static void a_range_is_checked_for_holes_and_rights(void **state)
{
	both_ways(checks);
}

static int after_fork(void)
{
	uintptr_t p = map(3);
	struct vma v;
	int status;
	pid_t pid;

	CHECK(!vma_find(p, false, &v));
	pid = fork();
	if (!pid) {
		munmap((void *)(p + PAGE), PAGE);
		_exit(!vma_find(p, false, &v) && v.end == p + PAGE ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	CHECK(exited(status, 0));
	CHECK(!vma_find(p, false, &v) && v.end == p + 3 * PAGE);
	return 0;
}

static void a_child_asks_about_itself(void **state)
{
	both_ways(after_fork);
}

static int descriptors_closed(void)
{
	uintptr_t p = map(2);
	struct vma v;

	CHECK(!vma_find(p, false, &v));
	for (int fd = 3; fd < 70000; fd++)
		close(fd);
	CHECK(!vma_find(p, false, &v) && v.start == p);
	CHECK(!vma_find(p, false, &v) && v.start == p);
	return 0;
}

static void a_program_that_closes_all_descriptors_does_no_harm(void **state)
{
	both_ways(descriptors_closed);
}

static bool forbid_open(int err)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(f) / sizeof(*f), f };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* ENOENT is what open says where /proc is not mounted, ENOMEM what it says for want of memory: neither is a
 * hole, and EACCES is no want of rights. */
static int maps_cannot_be_read(void)
{
	static const int errors[] = { ENOENT, EACCES, EPERM, ENOMEM };
	uintptr_t p = map(3);
	struct vma v;

	CHECK(!munmap((void *)(p + PAGE), PAGE));
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			if (!forbid_open(errors[i]))
				_exit(0);
			if (vma_find(p, false, &v) != -EOPNOTSUPP)
				_exit(1);
			if (vma_check(p, PAGE, true, true, NULL) != -EOPNOTSUPP)
				_exit(2);
			if (vma_find(p + PAGE, false, &v) != -ENOENT)
				_exit(3);
			_exit(vma_check(p, 2 * PAGE, true, true, NULL) == -EOPNOTSUPP ? 0 : 4);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	return 0;
}

static void maps_that_cannot_be_read_are_no_hole(void **state)
{
	both_ways(maps_cannot_be_read);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mapping_is_described),
		cmocka_unit_test(a_file_that_lives_in_memory_is_told),
		cmocka_unit_test(a_file_on_a_disk_is_told),
		cmocka_unit_test(a_huge_page_has_its_size),
		cmocka_unit_test(file_systems_in_memory_are_told_wherever_mounted),
		cmocka_unit_test(in_a_hole_there_is_none_but_there_may_be_a_next),
		cmocka_unit_test(a_range_is_checked_for_holes_and_rights),
		cmocka_unit_test(a_child_asks_about_itself),
		cmocka_unit_test(a_program_that_closes_all_descriptors_does_no_harm),
		cmocka_unit_test(maps_that_cannot_be_read_are_no_hole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

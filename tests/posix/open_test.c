/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The open family in front of libc's changes nothing for paths that are not the device's. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "posix/libc.h"
#include "posix/path.h"

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);

static char directory[] = "/tmp/unpin-open-test-XXXXXX";
static int dirfd_of_it;

static int make_directory(void **state)
{
	umask(0);
	if (!mkdtemp(directory))
		return -1;
	dirfd_of_it = open(directory, O_PATH | O_DIRECTORY);
	return dirfd_of_it < 0;
}

static int remove_directory(void **state)
{
	close(dirfd_of_it);
	return rmdir(directory);
}

/* The descriptor is a new file of this mode. */
static void is_new(int fd, mode_t mode)
{
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	close(fd);
	assert_int_equal(unlinkat(dirfd_of_it, "file", 0), 0);
}

static void the_mode_of_a_new_file_arrives(void **state)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/file", directory);
	is_new(open(path, O_CREAT | O_EXCL | O_RDWR, 0640), 0640);
	is_new(open64(path, O_CREAT | O_EXCL | O_RDWR, 0604), 0604);
	is_new(openat(dirfd_of_it, "file", O_CREAT | O_EXCL | O_RDWR, 0611), 0611);
	is_new(openat64(dirfd_of_it, "file", O_CREAT | O_EXCL | O_RDWR, 0622), 0622);
}

static void an_unnamed_file_has_its_mode(void **state)
{
	int fd = open(directory, O_TMPFILE | O_RDWR, 0751);
	struct stat st;

	if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
		skip();
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	close(fd);
}

/* The kernel answers for each; nothing of ours reads what cannot be read. */
static void a_bad_pointer_is_the_kernels_to_refuse(void **state)
{
	char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *bad[] = { page + 1, page, (const char *)(uintptr_t)0xdead000000000000ull };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *volatile p = bad[i];
		int (*const tries[])(const char *, int, ...) = { open, open64 };

		for (size_t t = 0; t < 2; t++) {
			errno = 0;
			assert_int_equal(tries[t](p, O_RDONLY), -1);
			assert_int_equal(errno, EFAULT);
		}
		errno = 0;
		assert_int_equal(openat(AT_FDCWD, p, O_RDONLY), -1);
		assert_int_equal(errno, EFAULT);
		errno = 0;
		assert_int_equal(__openat64_2(AT_FDCWD, p, O_RDONLY), -1);
		assert_int_equal(errno, EFAULT);
	}
	munmap(page, 4096);
}

static void errors_are_libcs(void **state)
{
	int fd;

	errno = 0;
	assert_int_equal(open("/nowhere/infiniband", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(openat(-1, "infiniband", O_RDONLY), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(__openat_2(dirfd_of_it, "missing", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	assert_int_equal(open("", O_RDONLY), -1);
	assert_int_equal(errno, ENOENT);
	errno = 4711;
	fd = open("/", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(errno, 4711);
	close(fd);
}

/* A constructor of another library may come before ours. */
static void before_the_constructor_the_kernel_is_asked(void **state)
{
	struct libc_functions kept = libc_functions;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/file", directory);
	libc_functions = (struct libc_functions){ 0 };
	is_new(open(path, O_CREAT | O_EXCL | O_RDWR, 0640), 0640);
	is_new(openat64(dirfd_of_it, "file", O_CREAT | O_EXCL | O_RDWR, 0622), 0622);
	fd = __open_2("/", O_RDONLY);
	libc_functions = kept;
	assert_true(fd >= 0);
	close(fd);
	assert_non_null(kept.open);
}

static void paths_are_told_apart(void **state)
{
	static const struct {
		const char *path;
		enum path_kind kind;
	} row[] = {
		{ "/sys/class/infiniband", PATH_SYSFS },
		{ "/dev/infiniband/rdma_cm", PATH_RDMA_CM },
		{ "/dev/infiniband/rdma_cm0", PATH_PLAIN },
		{ "/dev/infiniband/uverbs0", PATH_PLAIN },
		{ "/sys/class/infiniband_verbs", PATH_PLAIN },
		{ "/sys/class/infiniband_verbs/uverbs0/ibdev", PATH_PLAIN },
		{ "/home/infiniband", PATH_PLAIN },
		{ "/sys/class/net", PATH_PLAIN },
		{ "", PATH_PLAIN },
		{ "infiniban", PATH_PLAIN },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		if (path_classify(AT_FDCWD, row[i].path) != row[i].kind)
			fail_msg("%s", row[i].path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_mode_of_a_new_file_arrives),
		cmocka_unit_test(an_unnamed_file_has_its_mode),
		cmocka_unit_test(a_bad_pointer_is_the_kernels_to_refuse),
		cmocka_unit_test(errors_are_libcs),
		cmocka_unit_test(before_the_constructor_the_kernel_is_asked),
		cmocka_unit_test(paths_are_told_apart),
	};

	return cmocka_run_group_tests(tests, make_directory, remove_directory);
}

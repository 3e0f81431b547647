/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The device in /sys, through every function of libc that takes a path, as the kernel would show it. */
#undef _FILE_OFFSET_BITS
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "nic/device.h"
#include "posix/path.h"

#define CLASS  "/sys/class/infiniband"
#define DEVICE CLASS "/" NIC_NAME_DEFAULT
#define REAL   "/sys/devices/virtual/infiniband/" NIC_NAME_DEFAULT
#define TYPE   DEVICE "/node_type"

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int dirfd, const char *path, int flags);
int __openat64_2(int dirfd, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *st);
int __xstat64(int version, const char *path, struct stat64 *st);
int __lxstat(int version, const char *path, struct stat *st);
int __lxstat64(int version, const char *path, struct stat64 *st);
int __fxstatat(int version, int dirfd, const char *path, struct stat *st, int flags);
int __fxstatat64(int version, int dirfd, const char *path, struct stat64 *st, int flags);
ssize_t __readlink_chk(const char *path, char *buf, size_t size, size_t room);
ssize_t __readlinkat_chk(int dirfd, const char *path, char *buf, size_t size, size_t room);
char *__realpath_chk(const char *path, char *resolved, size_t room);
char *__getcwd_chk(char *buf, size_t size, size_t room);

static void reads(int fd, const char *text)
{
	char buf[128] = "";
	ssize_t n;

	if (fd < 0)
		fail_msg("%s", strerror(errno));
	n = read(fd, buf, sizeof(buf) - 1);
	assert_true(n >= 0);
	buf[n] = '\0';
	assert_string_equal(buf, text);
	close(fd);
}

static void every_way_to_open_opens(void **state)
{
	int sys = open("/sys", O_RDONLY | O_DIRECTORY), class = open(CLASS, O_PATH);
	FILE *f;

	reads(open(TYPE, O_RDONLY), "1: CA\n");
	reads(open64(TYPE, O_RDONLY | O_CLOEXEC), "1: CA\n");
	reads(openat(AT_FDCWD, TYPE, O_RDONLY), "1: CA\n");
	reads(openat64(-1, TYPE, O_RDONLY), "1: CA\n");
	reads(__open_2(TYPE, O_RDONLY), "1: CA\n");
	reads(__open64_2(TYPE, O_RDONLY), "1: CA\n");
	reads(__openat_2(sys, "class/infiniband/unpin0/node_type", O_RDONLY), "1: CA\n");
	reads(__openat64_2(class, "unpin0/node_type", O_RDONLY), "1: CA\n");
	reads(open(REAL "/node_type", O_RDONLY), "1: CA\n");
	for (int i = 0; i < 4; i++) {
		f = i == 0 ? fopen(TYPE, "r") : i == 1 ? fopen64(TYPE, "re") : fopen("/dev/null", "r");
		if (i == 2)
			f = freopen(TYPE, "r", f);
		if (i == 3)
			f = freopen64(TYPE, "r", f);
		assert_non_null(f);
		reads(dup(fileno(f)), "1: CA\n");
		fclose(f);
	}
	close(sys);
	close(class);
}

/* However a path to it is written. */
static void other_spellings_lead_there_too(void **state)
{
	int class = open("/sys/class", O_PATH), root = open("/", O_PATH);
	char link[] = "/tmp/unpin-served-XXXXXX";
	char path[128];

	reads(open("//sys/./class//infiniband/./unpin0///node_type", O_RDONLY), "1: CA\n");
	reads(open("/sys/bus/../class/infiniband/unpin0/node_type", O_RDONLY), "1: CA\n");
	reads(open(DEVICE "/ports/../node_type", O_RDONLY), "1: CA\n");
	reads(open(DEVICE "/ports/1/gids/../link_layer", O_RDONLY), "Ethernet\n");
	reads(open(DEVICE "/subsystem/unpin0/node_type", O_RDONLY), "1: CA\n");
	reads(openat(class, "infiniband/unpin0/node_type", O_RDONLY), "1: CA\n");
	/* As hwloc does it. */
	reads(openat(root, "sys/class/infiniband/unpin0/node_type", O_RDONLY), "1: CA\n");
	assert_non_null(mkdtemp(link));
	snprintf(path, sizeof(path), "%s/class", link);
	assert_int_equal(symlink("/sys/class", path), 0);
	snprintf(path, sizeof(path), "%s/class/infiniband/unpin0/node_type", link);
	reads(open(path, O_RDONLY), "1: CA\n");
	assert_int_equal(access(CLASS "/../net", F_OK), 0);
	assert_int_equal(access(CLASS "/..", F_OK), 0);
	snprintf(path, sizeof(path), "%s/class", link);
	unlink(path);
	rmdir(link);
	close(class);
	close(root);
}

static void what_is_not_ours_is_not_there(void **state)
{
	static const char *const paths[] = { CLASS "/mlx5_77", CLASS "/unpin", CLASS "/unpin00",
		DEVICE "/device", DEVICE "/ports/2", DEVICE "/ports/1/gids/64",
		"/sys/class/infiniband_verbs/unpin0", "/sys/class/infiniband_verbs/uverbs77",
		"/dev/infiniband/unpin0", "/tmp/infiniband/unpin0", "/sys/class/net/infiniband/unpin0" };

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		errno = 0;
		if (!access(paths[i], F_OK) || errno != ENOENT)
			fail_msg("%s: %s", paths[i], strerror(errno));
		assert_int_equal(open(paths[i], O_RDONLY), -1);
		assert_int_equal(errno, ENOENT);
		assert_null(fopen(paths[i], "r"));
		assert_null(opendir(paths[i]));
		assert_null(realpath(paths[i], NULL));
	}
	assert_int_equal(open(TYPE "/x", O_RDONLY), -1);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(open(TYPE, O_RDONLY | O_DIRECTORY), -1);
	assert_int_equal(errno, ENOTDIR);
}

static void refused(int fd, int err)
{
	assert_int_equal(fd, -1);
	assert_int_equal(errno, err);
}

/* Root too: the kernel's files have nobody who would take what is written. */
static void nobody_writes(void **state)
{
	refused(open(TYPE, O_WRONLY), EACCES);
	refused(open(TYPE, O_RDWR), EACCES);
	refused(open(TYPE, O_RDONLY | O_TRUNC), EACCES);
	refused(open(TYPE, O_WRONLY | O_CREAT | O_TRUNC, 0600), EACCES);
	refused(open(TYPE, O_RDONLY | O_CREAT | O_EXCL, 0600), EEXIST);
	refused(open(DEVICE "/new", O_WRONLY | O_CREAT, 0600), EACCES);
	refused(open(DEVICE "/new", O_WRONLY), ENOENT);
	refused(open(DEVICE, O_WRONLY), EISDIR);
	refused(open(DEVICE, O_TMPFILE | O_RDWR, 0600), EOPNOTSUPP);
	assert_null(fopen(TYPE, "w"));
	assert_int_equal(errno, EACCES);
	assert_null(fopen(TYPE, "r+"));
	assert_int_equal(errno, EACCES);
	reads(open(TYPE, O_RDONLY | O_CREAT, 0600), "1: CA\n");
	reads(open(TYPE, O_RDONLY), "1: CA\n");
}

static void every_way_to_look_sees(void **state)
{
	int sys = open("/sys", O_PATH);
	struct stat64 st64;
	struct statx stx;
	struct stat st;

#define SEES(call, mode, type)                                                                               \
	do {                                                                                                 \
		memset(&st, 0, sizeof(st));                                                                  \
		memset(&st64, 0, sizeof(st64));                                                              \
		assert_int_equal(call, 0);                                                                   \
		assert_int_equal(mode &S_IFMT, type);                                                        \
	} while (0)
	SEES(stat(DEVICE, &st), st.st_mode, S_IFDIR);
	SEES(stat64(DEVICE, &st64), st64.st_mode, S_IFDIR);
	SEES(lstat(DEVICE, &st), st.st_mode, S_IFLNK);
	SEES(lstat64(DEVICE, &st64), st64.st_mode, S_IFLNK);
	SEES(fstatat(sys, "class/infiniband/unpin0", &st, 0), st.st_mode, S_IFDIR);
	SEES(fstatat64(AT_FDCWD, DEVICE, &st64, AT_SYMLINK_NOFOLLOW), st64.st_mode, S_IFLNK);
	SEES(__xstat(1, TYPE, &st), st.st_mode, S_IFREG);
	SEES(__xstat64(1, TYPE, &st64), st64.st_mode, S_IFREG);
	SEES(__lxstat(1, DEVICE, &st), st.st_mode, S_IFLNK);
	SEES(__lxstat64(1, DEVICE, &st64), st64.st_mode, S_IFLNK);
	SEES(__fxstatat(1, sys, "class/infiniband/unpin0", &st, 0), st.st_mode, S_IFDIR);
	SEES(__fxstatat64(1, AT_FDCWD, DEVICE, &st64, 0), st64.st_mode, S_IFDIR);
	assert_int_equal(statx(AT_FDCWD, TYPE, 0, STATX_TYPE | STATX_MODE, &stx), 0);
	assert_int_equal(stx.stx_mode, S_IFREG | 0444);
	assert_int_equal(access(TYPE, R_OK), 0);
	assert_int_equal(eaccess(TYPE, R_OK), 0);
	assert_int_equal(euidaccess(TYPE, R_OK), 0);
	assert_int_equal(faccessat(sys, "class/infiniband/unpin0/node_type", R_OK, 0), 0);
	assert_int_equal(faccessat(AT_FDCWD, TYPE, R_OK, AT_EACCESS), 0);
	assert_int_equal(access(TYPE, X_OK), -1);
	assert_int_equal(errno, EACCES);
	errno = 0;
	assert_int_equal(getxattr(TYPE, "user.x", NULL, 0), -1);
	assert_int_not_equal(errno, ENOENT);
	assert_int_equal(lgetxattr(DEVICE, "user.x", NULL, 0), -1);
	assert_int_not_equal(errno, ENOENT);
	assert_true(listxattr(TYPE, NULL, 0) >= 0 || errno != ENOENT);
	assert_true(llistxattr(TYPE, NULL, 0) >= 0 || errno != ENOENT);
	close(sys);
}

static bool named(const char *name)
{
	return !strcmp(name, NIC_NAME_DEFAULT);
}

static int is_it(const struct dirent *d)
{
	return named(d->d_name);
}

static int is_it64(const struct dirent64 *d)
{
	return named(d->d_name);
}

/* list is filled by the call before it. */
static void one_is_listed(int n, void **list)
{
	assert_int_equal(n, 1);
	free(list[0]);
	free(list);
}

static void every_way_to_list_lists(void **state)
{
	int sys = open("/sys", O_PATH), found = 0, n;
	struct dirent64 **list64;
	struct dirent **list;
	glob64_t paths64;
	glob_t paths;
	DIR *dir;

	dir = opendir(CLASS);
	assert_non_null(dir);
	for (struct dirent *d; (d = readdir(dir));)
		found += named(d->d_name);
	closedir(dir);
	assert_int_equal(found, 1);
	n = scandir(CLASS, &list, is_it, alphasort);
	one_is_listed(n, (void **)list);
	n = scandir64(CLASS, &list64, is_it64, alphasort64);
	one_is_listed(n, (void **)list64);
	n = scandirat(sys, "class/infiniband", &list, is_it, alphasort);
	one_is_listed(n, (void **)list);
	n = scandirat64(sys, "class/infiniband", &list64, is_it64, alphasort64);
	one_is_listed(n, (void **)list64);
	assert_int_equal(glob(CLASS "/*/node_t?pe", 0, NULL, &paths), 0);
	assert_int_equal(paths.gl_pathc, 1);
	assert_string_equal(paths.gl_pathv[0], TYPE);
	globfree(&paths);
	assert_int_equal(glob64(CLASS "/unpin0/ports/1/gids/*", 0, NULL, &paths64), 0);
	assert_int_equal(paths64.gl_pathc, 64);
	globfree64(&paths64);
	close(sys);
}

static void links_lead_where_the_kernels_lead(void **state)
{
	static const char target[] = "../../devices/virtual/infiniband/unpin0";
	char buf[PATH_MAX], *path;
	int class = open(CLASS, O_PATH);

#define READS_LINK(call)                                                                                     \
	do {                                                                                                 \
		memset(buf, 0, sizeof(buf));                                                                 \
		assert_int_equal(call, sizeof(target) - 1);                                                  \
		assert_string_equal(buf, target);                                                            \
	} while (0)
	READS_LINK(readlink(DEVICE, buf, sizeof(buf)));
	READS_LINK(readlinkat(class, "unpin0", buf, sizeof(buf)));
	READS_LINK(readlinkat(AT_FDCWD, DEVICE, buf, sizeof(buf)));
	READS_LINK(__readlink_chk(DEVICE, buf, sizeof(buf), sizeof(buf)));
	READS_LINK(__readlinkat_chk(-1, DEVICE, buf, sizeof(buf), sizeof(buf)));
	assert_int_equal(readlink(DEVICE, buf, 4), 4);
	assert_int_equal(readlink(TYPE, buf, sizeof(buf)), -1);
	assert_int_equal(errno, EINVAL);
	path = realpath(DEVICE, NULL);
	assert_string_equal(path, REAL);
	free(path);
	path = canonicalize_file_name(DEVICE "/ports");
	assert_string_equal(path, REAL "/ports");
	free(path);
	assert_string_equal(realpath(DEVICE "/subsystem", buf), CLASS);
	assert_string_equal(__realpath_chk(CLASS, buf, sizeof(buf)), CLASS);
	close(class);
}

static void going_there(void **state)
{
	char before[PATH_MAX], buf[PATH_MAX], *path;

	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(DEVICE "/ports"), 0);
	assert_string_equal(getcwd(buf, sizeof(buf)), REAL "/ports");
	assert_string_equal(__getcwd_chk(buf, sizeof(buf), sizeof(buf)), REAL "/ports");
	path = get_current_dir_name();
	assert_string_equal(path, REAL "/ports");
	free(path);
	path = realpath("1", NULL);
	assert_string_equal(path, REAL "/ports/1");
	free(path);
	reads(open("1/link_layer", O_RDONLY), "Ethernet\n");
	assert_int_equal(chdir(before), 0);
}

/* A row of the GID table without an address has attributes that cannot be read, as the kernel's. */
static void an_empty_row_is_as_the_kernels(void **state)
{
	int gids = open(DEVICE "/ports/1/gid_attrs/types", O_RDONLY), fd;
	char buf[64];
	FILE *f;

	reads(open(DEVICE "/ports/1/gids/63", O_RDONLY), "0000:0000:0000:0000:0000:0000:0000:0000\n");
	fd = open(DEVICE "/ports/1/gid_attrs/types/63", O_RDONLY);
	assert_true(fd >= 0);
	refused((int)read(fd, buf, sizeof(buf)), EINVAL);
	close(fd);
	/* Relative to a directory: nothing in the path says what it is about. */
	fd = openat(gids, "63", O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	refused((int)read(fd, buf, sizeof(buf)), EINVAL);
	close(fd);
	reads(openat(gids, "0", O_RDONLY | O_CLOEXEC), "RoCE v2\n");
	f = fopen(DEVICE "/ports/1/gid_attrs/ndevs/63", "r");
	assert_non_null(f);
	assert_null(fgets(buf, sizeof(buf), f));
	assert_true(ferror(f));
	fclose(f);
	close(gids);
}

static void a_bad_pointer_is_the_kernels_to_refuse(void **state)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("the sanitizer's own functions, which stand behind ours, read the path\n");
	skip();
#endif
	char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *volatile bad = page;
	struct statx stx;
	struct stat st;
	char buf[64];

#define FAULTS(call)                                                                                         \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		assert_true((call) == -1);                                                                   \
		assert_int_equal(errno, EFAULT);                                                             \
	} while (0)
	for (int i = 0; i < 2; i++, bad = NULL) {
		FAULTS(open(bad, O_RDONLY));
		FAULTS(stat(bad, &st));
		FAULTS(lstat(bad, &st));
		FAULTS(__xstat(1, bad, &st));
		FAULTS(access(bad, F_OK));
		FAULTS(faccessat(AT_FDCWD, bad, F_OK, 0));
		FAULTS(readlink(bad, buf, sizeof(buf)));
		FAULTS(chdir(bad));
		FAULTS(getxattr(bad, "user.x", NULL, 0));
		FAULTS(fopen(bad, "r") ? 0 : -1);
	}
	bad = page;
	FAULTS(fstatat(AT_FDCWD, bad, &st, 0));
	FAULTS(statx(AT_FDCWD, bad, 0, STATX_MODE, &stx));
	FAULTS(readlink(DEVICE, page, 64));
	munmap(page, 4096);
}

/* A child of vfork(2) runs in its parent's memory, with descriptors of its own. */
static void a_child_of_vfork_sees_it(void **state)
{
	int status, fd;
	pid_t pid = vfork();

	if (!pid) {
		fd = open(TYPE, O_RDONLY);
		_exit(fd < 0 || access(DEVICE, F_OK));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	reads(open(TYPE, O_RDONLY), "1: CA\n");
}

static void *open_cancelled(void *path)
{
	pthread_cancel(pthread_self());
	open(path, O_RDONLY);
	return NULL;
}

static void *look_cancelled(void *path)
{
	struct stat st;
	char buf[64];

	pthread_cancel(pthread_self());
	if (access(path, F_OK) || stat(path, &st) || readlink(path, buf, sizeof(buf)) < 0)
		return NULL;
	pthread_testcancel();
	return NULL;
}

static void *result_of(void *(*run)(void *), const char *path)
{
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_create(&thread, NULL, run, (void *)path), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	return result;
}

static void cancellation_points_are_libcs(void **state)
{
	assert_ptr_equal(result_of(open_cancelled, "/dev/null"), PTHREAD_CANCELED);
	assert_ptr_equal(result_of(open_cancelled, TYPE), PTHREAD_CANCELED);
	assert_ptr_equal(result_of(look_cancelled, DEVICE), PTHREAD_CANCELED);
	/* Nothing of ours was left locked. */
	reads(open(TYPE, O_RDONLY), "1: CA\n");
}

#define THREADS 8

static void *look_about(void *failed)
{
	for (int i = 0; i < 50; i++) {
		DIR *dir = opendir(CLASS);
		char *path = realpath(DEVICE, NULL);

		if (!dir || !path || access(TYPE, R_OK))
			return failed;
		closedir(dir);
		free(path);
	}
	return NULL;
}

static void threads_may_look_at_once(void **state)
{
	pthread_t thread[THREADS];
	void *result;

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, look_about, thread), 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(thread[i], &result), 0);
		assert_null(result);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_way_to_open_opens),
		cmocka_unit_test(other_spellings_lead_there_too),
		cmocka_unit_test(what_is_not_ours_is_not_there),
		cmocka_unit_test(nobody_writes),
		cmocka_unit_test(every_way_to_look_sees),
		cmocka_unit_test(every_way_to_list_lists),
		cmocka_unit_test(links_lead_where_the_kernels_lead),
		cmocka_unit_test(going_there),
		cmocka_unit_test(an_empty_row_is_as_the_kernels),
		cmocka_unit_test(a_bad_pointer_is_the_kernels_to_refuse),
		cmocka_unit_test(a_child_of_vfork_sees_it),
		cmocka_unit_test(cancellation_points_are_libcs),
		cmocka_unit_test(threads_may_look_at_once),
	};

	unsetenv("UNPIN_DEVICE");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

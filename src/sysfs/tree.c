/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sysfs/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "mm/generation.h"
#include "nic/device.h"
#include "sysfs/build.h"
#include "sysfs/entry.h"
#include "sysfs/remove.h"

/* --- what a file says at this moment ------------------------------------------------------------------- */

/* A file in memory, or where there is none, or no file may be that long, a pipe. */
static int readable(const char *text, size_t n)
{
	int fd = fd_size_allowed(n) ? (int)syscall(SYS_memfd_create, "unpin-sysfs", MFD_CLOEXEC) : -1, end[2];

	if (fd >= 0 && syscall(SYS_pwrite64, fd, text, n, 0l) == (long)n)
		return fd;
	if (fd >= 0)
		fd_close(fd);
	if (syscall(SYS_pipe2, end, O_CLOEXEC))
		return -errno;
	syscall(SYS_write, end[1], text, n);
	fd_close(end[1]);
	return end[0];
}

/* read(2) fails with EINVAL, as it does for the kernel's file: epoll descriptors have nothing to read. */
static int unreadable(void)
{
	int fd = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int sysfs_live(const char *path)
{
	const struct sysfs_entry *e;
	char text[SYSFS_TEXT];
	sigset_t was;
	unsigned row;
	int saved = errno, n, fd;

	e = sysfs_entry_find(path, &row);
	if (!e || !e->live)
		return -ENOENT;
	sysfs_signals_hold(&was);
	n = e->show(e, row, text);
	fd = n < 0 ? unreadable() : readable(text, (size_t)n);
	sysfs_signals_restore(&was);
	errno = saved;
	return fd;
}

/* --- the tree of this process -------------------------------------------------------------------------- */

static struct {
	struct lock lock;
	_Atomic uint64_t generation; /* whose state it is */
	bool made, complained;
	uint64_t kernels; /* of the kernel's devices when it was made */
	char root[SYSFS_ROOT_MAX];
	size_t base_length; /* of root: the directory it is in */
	int hold;	    /* the root's descriptor, with the lock */
	dev_t device;	    /* of the root, to know it again */
	ino_t inode;
} tree = { .lock = LOCK_INIT(LOCK_SYSFS), .hold = -1 };

/* Blocks what can be blocked: a handler that opens a path of ours must not find its own thread here. */
void sysfs_signals_hold(sigset_t *was)
{
	uint64_t all = UINT64_MAX;

	sigemptyset(was);
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, was, sizeof(all));
}

void sysfs_signals_restore(const sigset_t *was)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, was, NULL, sizeof(uint64_t));
}

static bool is_root(const struct stat *st)
{
	return st->st_dev == tree.device && st->st_ino == tree.inode;
}

/*
 * Whether the descriptor is still the one that was opened. The program may have closed it; and what a child
 * of vfork(2) opens is a descriptor of the child only.
 */
static bool holds(void)
{
	struct stat st;

	return tree.hold >= 0 && !fstat(tree.hold, &st) && is_root(&st);
}

static void let_go(void)
{
	if (holds())
		fd_close(tree.hold);
	tree.hold = -1;
	tree.made = false;
}

/* Still there, and where the path leads. */
static bool in_place(void)
{
	struct stat st;

	return tree.made && !stat(tree.root, &st) && is_root(&st);
}

static int remember(const char *base, const char *name, int dir)
{
	struct stat st;
	int n = snprintf(tree.root, sizeof(tree.root), "%s/%s", base, name);

	if (n >= (int)sizeof(tree.root) || fstat(dir, &st))
		return -ENAMETOOLONG;
	tree.base_length = strlen(base);
	tree.device = st.st_dev;
	tree.inode = st.st_ino;
	tree.hold = fd_move_high(dir);
	tree.made = true;
	return 0;
}

/*
 * A tree of this name that is whole, with a shared lock on it; or a negative errno. Who removes a tree has an
 * exclusive lock while it renames it, so after locking the name must still be the same directory's.
 */
static int take(int base, const char *name)
{
	struct stat a, b;
	int dir;

	for (int tries = 0; tries < 8; tries++) {
		bool locked = false;

		dir = sysfs_open_own(base, name);
		if (dir < 0)
			return dir;
		/* Where a file system has no locks, nobody removes a tree either. */
		if (!flock(dir, LOCK_SH | LOCK_NB) || errno != EWOULDBLOCK)
			locked = true;
		if (locked && !fstat(dir, &a) && !fstatat(base, name, &b, AT_SYMLINK_NOFOLLOW) &&
			a.st_dev == b.st_dev && a.st_ino == b.st_ino)
			return dir;
		fd_close(dir);
	}
	return -ENOENT;
}

/* Builds it under another name. Who has been faster has made the same tree. */
static int make(int base, char name[64])
{
	char building[64];
	int dir, other, err;

	sysfs_private_name(building, sizeof(building));
	if (syscall(SYS_mkdirat, base, building, 0755))
		return -errno;
	dir = (int)syscall(SYS_openat, base, building, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	err = dir < 0 ? -errno : 0;
	if (!err) {
		flock(dir, LOCK_SH | LOCK_NB);
		err = sysfs_build(dir);
	}
	if (err) {
		/* First, since descriptors may be what is lacking. */
		if (dir >= 0)
			fd_close(dir);
		sysfs_remove(base, building);
		return err;
	}
	if (!renameat(base, building, base, name))
		return dir;
	other = take(base, name);
	if (other >= 0) {
		sysfs_remove(base, building);
		fd_close(dir);
		return other;
	}
	/* The name is somebody else's: this process has a tree of its own. */
	strcpy(name, building);
	return dir;
}

/* Whether nobody but this user and root can replace what is in it. */
static bool trustworthy(int base)
{
	struct stat st;

	return !fstat(base, &st) && (st.st_uid == geteuid() || !st.st_uid) &&
	       (!(st.st_mode & 022) || st.st_mode & S_ISVTX);
}

static int make_in(const char *path, uint64_t hash)
{
	char name[64];
	int base, dir, err = 0;

	if (!path || *path != '/')
		return -ENOENT;
	base = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (base < 0)
		return -errno;
	if (!trustworthy(base)) {
		fd_close(base);
		return -EPERM;
	}
	snprintf(
		name, sizeof(name), SYSFS_PREFIX "%u-%016llx", (unsigned)geteuid(), (unsigned long long)hash);
	dir = take(base, name);
	if (dir < 0) {
		sysfs_sweep(base, name);
		dir = make(base, name);
	}
	if (dir >= 0) {
		err = remember(path, name, dir);
		if (err)
			fd_close(dir);
	} else {
		err = dir;
	}
	fd_close(base);
	return err;
}

static int make_anywhere(void)
{
	const char *places[] = { getenv("XDG_RUNTIME_DIR"), "/dev/shm", "/tmp" };
	int err = -ENOENT, first = 0;
	uint64_t hash = sysfs_hash();

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		err = make_in(places[i], hash);
		if (!err)
			return 0;
		if (err != -ENOENT && !first)
			first = err;
	}
	err = first ? first : err;
	if (!tree.complained)
		log_warn("%s is not shown in /sys/class/infiniband: no directory for it can be made in "
			 "XDG_RUNTIME_DIR, /dev/shm or /tmp: %s",
			nic_device_name(), strerror(-err));
	tree.complained = true;
	return err;
}

/* Called with the lock. */
static int find(char root[SYSFS_ROOT_MAX])
{
	bool taken;
	uint64_t kernels = sysfs_kernel_devices(&taken);
	int err = 0;

	if (taken)
		return -EEXIST;
	if (kernels != tree.kernels || !in_place() || !holds()) {
		let_go();
		err = make_anywhere();
		tree.kernels = kernels;
	}
	if (!err)
		strcpy(root, tree.root);
	return err;
}

/*
 * In a forked child the lock may be held by a thread that is not there. A child of vfork(2) shares the
 * generation with its parent, and the lock too.
 */
static void start_over(void)
{
	uint64_t now, was = atomic_load(&tree.generation);

	generation_begin();
	now = generation_now();
	if (was != now && atomic_compare_exchange_strong(&tree.generation, &was, now) && was)
		lock_reinit(&tree.lock, LOCK_SYSFS);
}

int sysfs_tree(char root[SYSFS_ROOT_MAX])
{
	int saved = errno, err;
	sigset_t was;

	sysfs_signals_hold(&was);
	start_over();
	lock_take(&tree.lock);
	err = find(root);
	lock_drop(&tree.lock);
	sysfs_signals_restore(&was);
	errno = saved;
	return err;
}

const char *sysfs_inside(const char *path)
{
	for (const char *at = path; (at = strstr(at, "/" SYSFS_PREFIX)); at++) {
		const char *rest = strchr(at + 1, '/');

		if (rest && (!strncmp(rest + 1, "class/", 6) || !strncmp(rest + 1, "devices/", 8)))
			return rest + 1;
	}
	return NULL;
}

/* A child that is forked has the descriptor, and with it the lock, too: the last of the family finds nobody.
 */
__attribute__((destructor)) static void remove_at_exit(void)
{
	int base;

	if (!tree.made)
		return;
	let_go();
	tree.root[tree.base_length] = '\0';
	base = (int)syscall(SYS_openat, AT_FDCWD, tree.root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (base < 0)
		return;
	sysfs_remove_unheld(base, tree.root + tree.base_length + 1);
	fd_close(base);
}

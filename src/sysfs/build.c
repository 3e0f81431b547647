/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "sysfs/build.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "nic/device.h"
#include "sysfs/entry.h"
#include "sysfs/remove.h"

#define KERNEL_CLASS   "/sys/class/infiniband"
#define KERNEL_DEVICES "/sys/devices"
#define OUR_CLASS      "class/infiniband"
#define OUR_DEVICES    "devices/virtual/infiniband"

/* --- hashes: FNV-1a ------------------------------------------------------------------------------------- */

#define HASH_START 0xcbf29ce484222325ull

static uint64_t hash(uint64_t h, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h;
}

/* With the end of the text, so that where one ends and the next begins counts. */
static uint64_t hash_text(uint64_t h, const char *text)
{
	return hash(h, text, strlen(text) + 1);
}

static int open_kernel(const char *path)
{
	return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

struct kernel_names {
	uint64_t sum; /* the order of a directory's entries is no part of it */
	bool taken;
};

static bool add_name(void *arg, const char *name)
{
	struct kernel_names *k = arg;

	k->sum += hash_text(HASH_START, name);
	k->taken |= !strcmp(name, nic_device_name());
	return true;
}

uint64_t sysfs_kernel_devices(bool *taken)
{
	struct kernel_names k = { 0 };
	int dir = open_kernel(KERNEL_CLASS);

	if (dir >= 0) {
		sysfs_each_name(dir, add_name, &k);
		fd_close(dir);
	}
	*taken = k.taken;
	return k.sum;
}

uint64_t sysfs_hash(void)
{
	bool taken, rdma_cm = SYSFS_RDMA_CM;
	uint64_t h = hash_text(HASH_START, nic_device_name()), kernels = sysfs_kernel_devices(&taken);
	char text[SYSFS_TEXT];
	int n;

	h = hash(h, &kernels, sizeof(kernels));
	h = hash(h, &rdma_cm, sizeof(rdma_cm));
	for (size_t i = 0; i < sysfs_entry_count; i++) {
		const struct sysfs_entry *e = &sysfs_entries[i];
		unsigned rows = sysfs_entry_rows(e);

		h = hash_text(hash_text(h, e->directory), e->name ? e->name : "");
		/* Counters are always different. */
		for (unsigned row = 0; row < rows && !e->divisor; row++) {
			n = e->show(e, row, text);
			h = hash(h, text, n < 0 ? 0 : (size_t)n);
		}
	}
	return h;
}

/* --- making ----------------------------------------------------------------------------------------------
 */

/* The mode whatever the umask is. */
static int make_directory(int at, const char *path)
{
	if (syscall(SYS_mkdirat, at, path, 0755) && errno != EEXIST)
		return -errno;
	return syscall(SYS_fchmodat, at, path, 0755) ? -errno : 0;
}

/* A directory and those that lead to it. */
static int make_path(int at, const char *path)
{
	char part[256];
	int err;

	for (size_t i = 0; path[i]; i++) {
		if (i + 1 >= sizeof(part))
			return -ENAMETOOLONG;
		part[i] = path[i];
		part[i + 1] = '\0';
		if (path[i + 1] && path[i + 1] != '/')
			continue;
		err = make_directory(at, part);
		if (err)
			return err;
	}
	return 0;
}

static int make_file(int at, const char *name, const char *text, size_t n, mode_t mode)
{
	int fd = (int)syscall(
		SYS_openat, at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (n && !fd_size_allowed(n))
		err = -EFBIG;
	else if (n && syscall(SYS_write, fd, text, n) != (long)n)
		err = -ENOSPC;
	else if (syscall(SYS_fchmod, fd, mode))
		err = -errno;
	fd_close(fd);
	return err;
}

static int make_link(int at, const char *target, const char *name)
{
	return syscall(SYS_symlinkat, target, at, name) && errno != EEXIST ? -errno : 0;
}

/*
 * Most files say what others do (counters, rows that are empty): they are links to one. The last few texts,
 * each with the first file that says it. Under the tree's lock.
 */
#define ALIKE 4
#define NAME  64 /* of a file below the device */

static struct alike {
	char text[SYSFS_TEXT], path[NAME];
	int length;
	mode_t mode;
} alike[ALIKE];

static unsigned alike_next;

static int make_alike(int device, const char *name, const char *text, int n, mode_t mode)
{
	struct alike *a;
	int err;

	for (a = alike; a < alike + ALIKE; a++)
		if (*a->path && a->length == n && a->mode == mode && !memcmp(a->text, text, (size_t)n) &&
			!syscall(SYS_linkat, device, a->path, device, name, 0))
			return 0;
	err = make_file(device, name, text, (size_t)n, mode);
	a = &alike[alike_next++ % ALIKE];
	memcpy(a->text, text, (size_t)n);
	snprintf(a->path, sizeof(a->path), "%s", name);
	a->length = n;
	a->mode = mode;
	return err;
}

static int make_entry(int device, const struct sysfs_entry *e)
{
	unsigned rows = sysfs_entry_rows(e);
	char name[NAME], text[SYSFS_TEXT];
	int n, err = 0;

	for (unsigned row = 0; row < rows && !err; row++) {
		if (e->name)
			snprintf(name, sizeof(name), "%s%s%s", e->directory, *e->directory ? "/" : "",
				e->name);
		else
			snprintf(name, sizeof(name), "%s/%u", e->directory, row);
		/* Who reads the counters of a tree itself, and not through us, has no device open. */
		n = e->divisor ? snprintf(text, sizeof(text), "0\n") : e->show(e, row, text);
		err = make_alike(device, name, text, n < 0 ? 0 : n, e->mode);
	}
	return err;
}

static int make_device(int root)
{
	char path[128];
	int device, err;

	snprintf(path, sizeof(path), OUR_DEVICES "/%s", nic_device_name());
	err = make_path(root, path);
	if (err)
		return err;
	device = (int)syscall(SYS_openat, root, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (device < 0)
		return -errno;
	for (size_t i = 1; i < sysfs_directory_count && !err; i++)
		err = make_directory(device, sysfs_directories[i]);
	memset(alike, 0, sizeof(alike));
	for (size_t i = 0; i < sysfs_entry_count && !err; i++)
		err = make_entry(device, &sysfs_entries[i]);
	if (!err)
		err = make_link(device, "../../../../" OUR_CLASS, "subsystem");
	fd_close(device);
	return err;
}

static int make_class(int root)
{
	char target[128], name[128];
	int err = make_path(root, OUR_CLASS);

	if (err)
		return err;
	snprintf(target, sizeof(target), "../../" OUR_DEVICES "/%s", nic_device_name());
	snprintf(name, sizeof(name), OUR_CLASS "/%s", nic_device_name());
	return make_link(root, target, name);
}

static int make_rdma_cm(int root)
{
	int err = make_path(root, "devices/virtual/misc/rdma_cm");

	if (!err)
		err = make_path(root, "class/misc");
	if (!err)
		err = make_link(root, "../../devices/virtual/misc/rdma_cm", "class/misc/rdma_cm");
	if (!err)
		err = make_file(root, "devices/virtual/misc/rdma_cm/abi_version", SYSFS_RDMA_CM_ABI,
			sizeof(SYSFS_RDMA_CM_ABI) - 1, 0444);
	return err;
}

/* --- the kernel's devices ---------------------------------------------------------------------------------
 */

struct copying {
	int root, from, err;
	const char *to, *source; /* source NULL: links are copied; else links to what is there are made */
};

static bool copy_one(void *arg, const char *name)
{
	struct copying *c = arg;
	char path[PATH_MAX], target[PATH_MAX];
	long n;

	if (snprintf(path, sizeof(path), "%s/%s", c->to, name) >= (int)sizeof(path))
		return true;
	if (c->source) {
		if (snprintf(target, sizeof(target), "%s/%s", c->source, name) >= (int)sizeof(target))
			return true;
	} else {
		n = syscall(SYS_readlinkat, c->from, name, target, sizeof(target) - 1);
		if (n < 0)
			return true; /* it has gone */
		target[n] = '\0';
	}
	c->err = make_link(c->root, target, path);
	return !c->err;
}

/* All of a directory of the kernel's that the tree has not got itself. */
static int copy(int root, const char *to, const char *from, bool links)
{
	struct copying c = {
		.root = root, .from = open_kernel(from), .to = to, .source = links ? NULL : from
	};

	if (c.from < 0)
		return 0;
	sysfs_each_name(c.from, copy_one, &c);
	fd_close(c.from);
	return c.err;
}

static int make_kernels(int root)
{
	bool taken;
	int err;

	if (!sysfs_kernel_devices(&taken))
		return 0;
	err = copy(root, OUR_CLASS, KERNEL_CLASS, true);
	if (!err)
		err = copy(root, "devices", KERNEL_DEVICES, false);
	if (!err)
		err = copy(root, "devices/virtual", KERNEL_DEVICES "/virtual", false);
	if (!err)
		err = copy(root, OUR_DEVICES, KERNEL_DEVICES "/virtual/infiniband", false);
	return err;
}

int sysfs_build(int root)
{
	int err = syscall(SYS_fchmod, root, 0755) ? -errno : 0;

	if (!err)
		err = make_device(root);
	if (!err)
		err = make_class(root);
	if (!err && SYSFS_RDMA_CM)
		err = make_rdma_cm(root);
	return err ? err : make_kernels(root);
}

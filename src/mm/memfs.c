/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/memfs.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "mm/procfd.h"
#include "mm/procread.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u /* 6.3 */
#endif

#define REMEMBER_S 10

/*
 * A remembered answer in one word, so that it is read and written without a lock:
 * second (32 bits, since the first), kind (3), log2 of the page size (6, 0 not known), minor (20), 1.
 * All of these file systems have major 0.
 */
#define SLOTS 16u
static _Atomic uint64_t slots[SLOTS];

static uint64_t now_s(void)
{
	return clock_ns() / NSEC_PER_SEC & UINT32_MAX;
}

static uint64_t pack(uint32_t minor, struct memfs m)
{
	unsigned shift = m.page_size ? (unsigned)__builtin_ctzl(m.page_size) : 0;

	return now_s() << 32 | (uint64_t)m.kind << 27 | (uint64_t)shift << 21 | (uint64_t)minor << 1 | 1;
}

static bool recall(uint32_t minor, struct memfs *out)
{
	uint64_t word = atomic_load_explicit(&slots[minor % SLOTS], memory_order_relaxed);
	unsigned shift = word >> 21 & 0x3f;

	if (!(word & 1) || (word >> 1 & 0xfffff) != minor || now_s() - (word >> 32) >= REMEMBER_S)
		return false;
	*out = (struct memfs){ .kind = word >> 27 & 7, .page_size = shift ? (size_t)1 << shift : 0 };
	return true;
}

static void remember(uint32_t minor, struct memfs m)
{
	if (minor <= 0xfffff)
		atomic_store_explicit(&slots[minor % SLOTS], pack(minor, m), memory_order_relaxed);
}

/* The minor number of the kernel's own tmpfs, or -1. */
static int64_t own_tmpfs(void)
{
	static _Atomic int64_t known = -1;
	int64_t minor = atomic_load_explicit(&known, memory_order_relaxed);
	int saved = errno, fd;
	struct stat st;

	if (minor >= 0)
		return minor;
	fd = memfd_create("unpin-probe", MFD_CLOEXEC | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("unpin-probe", MFD_CLOEXEC);
	if (fd >= 0 && !fstat(fd, &st) && major(st.st_dev) == 0) {
		minor = minor(st.st_dev);
		atomic_store_explicit(&known, minor, memory_order_relaxed);
	}
	if (fd >= 0)
		procfd_close(fd);
	errno = saved;
	return minor;
}

static enum memfs_kind kind_named(const char *type)
{
	static const struct {
		const char *type;
		enum memfs_kind kind;
	} table[] = {
		{ "tmpfs", MEMFS_SHMEM },
		{ "ramfs", MEMFS_SHMEM },
		{ "rootfs", MEMFS_SHMEM }, /* the initial one: either of the two */
		{ "hugetlbfs", MEMFS_HUGETLB },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(type, table[i].type))
			return table[i].kind;
	return MEMFS_NONE;
}

/* "36 35 0:98 root point options ... - type source super-options". 1: got one; else the end or an error. */
static int read_mount(struct procread *r, uint64_t *dev_major, uint64_t *dev_minor, char *type, size_t size)
{
	char word[4];
	int c;

	procread_number(r, 10, &c);
	procread_number(r, 10, &c);
	*dev_major = procread_number(r, 10, &c);
	*dev_minor = procread_number(r, 10, &c);
	/* Blanks inside a path are written as escapes, so a lone "-" is what ends the optional fields. */
	do {
		c = procread_word(r, c, word, sizeof(word));
	} while (c == ' ' && strcmp(word, "-"));
	if (c != ' ')
		return 0;
	c = procread_word(r, c, type, size);
	while (c >= 0 && c != '\n')
		c = procread_get(r);
	return c == '\n';
}

static enum memfs_kind look_up(uint32_t minor)
{
	enum memfs_kind kind = MEMFS_UNKNOWN;
	uint64_t dev_major, dev_minor;
	struct procread r;
	char type[16];

	if (procread_open(&r, "/proc/self/mountinfo"))
		return MEMFS_UNKNOWN;
	while (kind == MEMFS_UNKNOWN && read_mount(&r, &dev_major, &dev_minor, type, sizeof(type)) > 0)
		if (dev_major == 0 && dev_minor == minor)
			kind = kind_named(type);
	procread_close(&r);
	return kind;
}

struct memfs memfs_of(uint32_t dev_major, uint32_t dev_minor)
{
	struct memfs m = { .kind = MEMFS_NONE };

	if (dev_major)
		return m;
	if (dev_minor == own_tmpfs()) {
		m.kind = MEMFS_SHMEM;
		return m;
	}
	if (!recall(dev_minor, &m)) {
		m.kind = look_up(dev_minor);
		remember(dev_minor, m);
	}
	return m;
}

void memfs_note(uint32_t dev_major, uint32_t dev_minor, size_t page_size)
{
	if (!dev_major)
		remember(dev_minor, (struct memfs){ .kind = MEMFS_HUGETLB, .page_size = page_size });
}

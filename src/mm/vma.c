/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/vma.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mm/facility.h"
#include "mm/procfd.h"

/* linux/fs.h of 6.11 and later. */
struct query {
	uint64_t size, flags, addr;
	uint64_t start, end, vma_flags, page_size, offset, inode;
	uint32_t dev_major, dev_minor, name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};

#define QUERY	      _IOWR('f', 17, struct query)
#define QUERY_READ    0x01
#define QUERY_WRITE   0x02
#define QUERY_EXEC    0x04
#define QUERY_SHARED  0x08
#define QUERY_OR_NEXT 0x10

/* Enough for any name in brackets. */
#define NAME_MAX_READ 96

/* Mappings without a file that the kernel made, not the application. */
static bool is_special(const char *name)
{
	static const char *const prefixes[] = { "[vdso", "[vvar", "[vsyscall", "[uprobes", "[vectors",
		"[sigpage" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static int query_ioctl(struct query *q)
{
	int fd = procfd_get(PROCFD_MAPS), saved = errno, err = 0;

	if (fd < 0)
		return fd;
	if (ioctl(fd, QUERY, q))
		err = -errno;
	errno = saved;
	if (err == -EBADF || err == -ENOTTY)
		procfd_lost(PROCFD_MAPS, fd);
	return err;
}

int vma_probe_query(void)
{
	char here;
	struct query q = { .size = sizeof(q), .addr = (uintptr_t)&here };
	int err = query_ioctl(&q);

	/* Once more with a new descriptor, in case the old one was lost. */
	return err == -EBADF || err == -ENOTTY ? query_ioctl(&q) : err;
}

static int query_name(const struct query *found, char *name, uint32_t size)
{
	struct query q = {
		.size = sizeof(q), .addr = found->start, .name_size = size, .name_addr = (uintptr_t)name
	};
	int err = query_ioctl(&q);

	return err ? err : q.start == found->start ? 0 : -EAGAIN;
}

static int find_by_query(uintptr_t addr, bool next, struct vma *out)
{
	struct query q = { .size = sizeof(q), .addr = addr, .flags = next ? QUERY_OR_NEXT : 0 };
	char name[NAME_MAX_READ] = "";
	int err = query_ioctl(&q);

	if (err)
		return err;
	*out = (struct vma){
		.start = q.start,
		.end = q.end,
		.read = q.vma_flags & QUERY_READ,
		.write = q.vma_flags & QUERY_WRITE,
		.exec = q.vma_flags & QUERY_EXEC,
		.shared = q.vma_flags & QUERY_SHARED,
		.file = q.inode || q.dev_major || q.dev_minor,
		.offset = q.offset,
		.inode = q.inode,
	};
	/* None of the kernel's own can be written: the name is asked for only where it can matter. */
	if (!out->file && !out->write && !query_name(&q, name, sizeof(name)))
		out->special = is_special(name);
	return 0;
}

/* ---- /proc/self/maps, read in pieces ---- */

/* Reads a character at a time, so that lines of any length need no buffer of their length. */
struct reader {
	int fd;
	long err;
	size_t at, have;
	char buf[2048];
};

static int get(struct reader *r)
{
	if (r->at == r->have) {
		do {
			r->err = syscall(SYS_read, r->fd, r->buf, sizeof(r->buf));
		} while (r->err < 0 && errno == EINTR);
		if (r->err <= 0) {
			r->err = r->err ? -errno : 0;
			return -1;
		}
		r->have = (size_t)r->err;
		r->at = 0;
	}
	return (unsigned char)r->buf[r->at++];
}

/* A number; stop gets the character behind it. */
static uint64_t get_number(struct reader *r, unsigned base, int *stop)
{
	uint64_t value = 0;
	int c;

	for (;;) {
		c = get(r);
		if (c >= '0' && c <= '9')
			value = value * base + (unsigned)(c - '0');
		else if (base == 16 && c >= 'a' && c <= 'f')
			value = value * base + (unsigned)(c - 'a' + 10);
		else
			break;
	}
	*stop = c;
	return value;
}

/* The rest of the line, its beginning (after blanks) into name. */
static int get_name(struct reader *r, int c, char *name, size_t size)
{
	size_t n = 0;

	while (c == ' ')
		c = get(r);
	for (; c >= 0 && c != '\n'; c = get(r))
		if (n + 1 < size)
			name[n++] = (char)c;
	name[n] = '\0';
	return c;
}

/* "start-end rwxp offset major:minor inode   name". 1: got one; 0: end; else a negative errno. */
static int get_line(struct reader *r, struct vma *v)
{
	char name[NAME_MAX_READ];
	char rights[4];
	uint64_t major, minor;
	int stop;

	v->start = get_number(r, 16, &stop);
	if (stop < 0)
		return (int)r->err;
	v->end = get_number(r, 16, &stop);
	for (int i = 0; i < 4; i++)
		rights[i] = (char)get(r);
	get(r);
	v->offset = get_number(r, 16, &stop);
	major = get_number(r, 16, &stop);
	minor = get_number(r, 16, &stop);
	v->inode = get_number(r, 10, &stop);
	if (get_name(r, stop, name, sizeof(name)) < 0)
		return r->err ? (int)r->err : -EIO;
	v->read = rights[0] == 'r';
	v->write = rights[1] == 'w';
	v->exec = rights[2] == 'x';
	v->shared = rights[3] == 's';
	v->file = v->inode || major || minor;
	v->special = !v->file && is_special(name);
	return 1;
}

static int find_by_reading(uintptr_t addr, bool next, struct vma *out)
{
	struct reader r = { .fd = procfd_open("/proc/self/maps") };
	struct vma v;
	int saved = errno, got;

	if (r.fd < 0)
		return r.fd;
	do {
		got = get_line(&r, &v);
	} while (got > 0 && v.end <= addr);
	procfd_close(r.fd);
	errno = saved;
	if (got < 0)
		return got;
	if (!got || (!next && v.start > addr))
		return -ENOENT;
	*out = v;
	return 0;
}

int vma_find(uintptr_t addr, bool next, struct vma *out)
{
	int err;

	if (mm_have(MM_PROCMAP_QUERY)) {
		err = find_by_query(addr, next, out);
		if (!err || err == -ENOENT)
			return err;
	}
	return find_by_reading(addr, next, out);
}

int vma_check(uintptr_t addr, size_t len, bool want_read, bool want_write, uintptr_t *where)
{
	uintptr_t at = addr, end = addr + len;
	struct vma v;
	int err = 0;

	if (end < addr) {
		end = UINTPTR_MAX;
		err = -ENOMEM;
	}
	while (at < end) {
		int found = vma_find(at, false, &v);

		if (found)
			err = found == -ENOENT ? -ENOMEM : found;
		else if ((want_read && !v.read) || (want_write && !v.write))
			err = -EACCES;
		else if (at = v.end, true)
			continue;
		break;
	}
	if (err && where)
		*where = at;
	return err;
}

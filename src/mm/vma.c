/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/vma.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mm/facility.h"
#include "mm/memfs.h"
#include "mm/page.h"
#include "mm/procfd.h"
#include "mm/procread.h"

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

/* Where /proc is not mounted its files are ENOENT, which would be taken for a hole; where it is, they may be
 * refused, or cost what is short. */
static int untold(int err)
{
	return mm_passing(err) && err != -ENOMEM ? err : -EOPNOTSUPP;
}

static int query_ioctl(struct query *q)
{
	int fd = procfd_get(PROCFD_MAPS), saved = errno, err = 0;

	if (fd < 0)
		return untold(fd);
	if (syscall(SYS_ioctl, fd, QUERY, q))
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
		.page_size = q.page_size ? q.page_size : page_size(),
	};
	if (out->file) {
		enum memfs_kind kind = memfs_of(q.dev_major, q.dev_minor).kind;

		/* The kernel's own hugetlbfs is mounted nowhere; its pages tell. */
		out->shmem = out->page_size != page_size() || kind == MEMFS_SHMEM || kind == MEMFS_HUGETLB;
	}
	/* None of the kernel's own can be written: the name is asked for only where it can matter. */
	if (!out->file && !out->write && !query_name(&q, name, sizeof(name)))
		out->special = is_special(name);
	return 0;
}

/* ---- /proc/self/maps ---- */

struct line {
	struct vma v;
	uint32_t dev_major, dev_minor;
	char name[NAME_MAX_READ];
};

/* "start-end rwxp offset major:minor inode   name". 1: got one; 0: end; else a negative errno. */
static int get_line(struct procread *r, struct line *l)
{
	struct vma *v = &l->v;
	char rights[4];
	int stop;

	*v = (struct vma){ .start = procread_number(r, 16, &stop) };
	if (stop < 0)
		return r->err;
	v->end = procread_number(r, 16, &stop);
	for (int i = 0; i < 4; i++)
		rights[i] = (char)procread_get(r);
	procread_get(r);
	v->offset = procread_number(r, 16, &stop);
	l->dev_major = (uint32_t)procread_number(r, 16, &stop);
	l->dev_minor = (uint32_t)procread_number(r, 16, &stop);
	v->inode = procread_number(r, 10, &stop);
	if (procread_rest(r, stop, l->name, sizeof(l->name)) < 0)
		return r->err ? r->err : -EIO;
	v->read = rights[0] == 'r';
	v->write = rights[1] == 'w';
	v->exec = rights[2] == 'x';
	v->shared = rights[3] == 's';
	v->file = v->inode || l->dev_major || l->dev_minor;
	v->special = !v->file && is_special(l->name);
	return 1;
}

/* Files on file systems that are mounted nowhere, some of which have huge pages. A file of any other may have
 * such a name too, so this is a hint only. */
static bool may_be_hugetlb(const char *name)
{
	static const char *const prefixes[] = { "/anon_hugepage", "/memfd:", "/SYSV" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/*
 * /proc/self/smaps has the page size, "KernelPageSize:     2048 kB", among the lines of each mapping. Field
 * names begin with a capital letter, which is no digit. It counts pages of all mappings before ours: asked
 * once per file system. 0 when it does not tell.
 */
static size_t page_size_by_smaps(uintptr_t start)
{
	static const char field[] = "KernelPageSize:";
	struct procread r;
	char word[24];
	bool ours = false;
	size_t size = 0;
	int c;

	if (procread_open(&r, "/proc/self/smaps"))
		return 0;
	do {
		uint64_t value = 0;

		c = procread_get(&r);
		if (c >= 'A' && c <= 'Z') {
			c = procread_word(&r, c, word, sizeof(word));
			if (ours && !strcmp(word, field)) {
				c = procread_word(&r, c, word, sizeof(word));
				for (const char *d = word; *d >= '0' && *d <= '9'; d++)
					value = value * 10 + (unsigned)(*d - '0');
				size = value * 1024;
			}
		} else if (c >= 0) {
			value = c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'a' + 10);
			while ((c = procread_get(&r)) >= 0 && c != '-' && c != '\n')
				value = value * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
			ours = value == start;
		}
		while (c >= 0 && c != '\n')
			c = procread_get(&r);
	} while (c >= 0 && !size);
	procread_close(&r);
	return size & (size - 1) ? 0 : size;
}

static void describe_pages(struct line *l)
{
	struct memfs fs = memfs_of(l->dev_major, l->dev_minor);
	size_t size;

	l->v.page_size = page_size();
	l->v.shmem = fs.kind == MEMFS_SHMEM || fs.kind == MEMFS_HUGETLB;
	if (fs.kind != MEMFS_HUGETLB && (fs.kind != MEMFS_UNKNOWN || !may_be_hugetlb(l->name)))
		return;
	size = fs.page_size ? fs.page_size : page_size_by_smaps(l->v.start);
	if (size <= page_size())
		return;
	memfs_note(l->dev_major, l->dev_minor, size);
	l->v.page_size = size;
	l->v.shmem = true;
}

static int find_by_reading(uintptr_t addr, bool next, struct vma *out)
{
	struct procread r;
	struct line l;
	int got = procread_open(&r, "/proc/self/maps");

	if (got)
		return untold(got);
	do {
		got = get_line(&r, &l);
	} while (got > 0 && l.v.end <= addr);
	procread_close(&r);
	if (got < 0)
		return got;
	if (!got || (!next && l.v.start > addr))
		return -ENOENT;
	l.v.page_size = page_size();
	if (l.v.file)
		describe_pages(&l);
	*out = l.v;
	return 0;
}

static bool is_hole(uintptr_t addr)
{
	int saved = errno;
	unsigned char vec;
	bool hole = mincore((void *)page_down(addr), page_size(), &vec) && errno == ENOMEM;

	errno = saved;
	return hole;
}

int vma_find(uintptr_t addr, bool next, struct vma *out)
{
	int err;

	if (mm_have(MM_PROCMAP_QUERY)) {
		err = find_by_query(addr, next, out);
		if (!err || err == -ENOENT)
			return err;
	}
	err = find_by_reading(addr, next, out);
	/* Not what is mapped here, but at least whether anything is. */
	return err && err != -ENOENT && !next && is_hole(addr) ? -ENOENT : err;
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

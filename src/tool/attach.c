/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/attach.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_NAME "/memfd:" UNPIN_SEGMENT_NAME " (deleted)"
#define HEADER	  offsetof(struct unpin_segment, region)
/* What every version has in front. */
#define PREFIX	     offsetof(struct unpin_segment, header_bytes)
#define TEXT_OF(x)   TEXT_OF_(x)
#define TEXT_OF_(x)  #x
#define ROW_ATTEMPTS 64

static int read_at(int fd, void *buf, size_t n, size_t offset)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = pread(fd, (char *)buf + done, n - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EPROTO;
		done += (size_t)got;
	}
	return 0;
}

/* A text from the segment or from /proc that goes to a terminal. */
static void make_printable(char *text, size_t size)
{
	text[size - 1] = 0;
	for (; *text; text++)
		if (!isprint((unsigned char)*text))
			*text = '?';
}

static void read_command(struct attach *a)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)a->pid);
	f = fopen(path, "re");
	if (!f || !fgets(a->command, sizeof(a->command), f))
		strcpy(a->command, "?");
	if (f)
		fclose(f);
	a->command[strcspn(a->command, "\n")] = 0;
	make_printable(a->command, sizeof(a->command));
}

/* The number that the process knows itself by: the innermost of NSpid, different from ours when it is in a
 * container. */
static int64_t own_number(pid_t pid)
{
	char path[64], line[256];
	int64_t number = pid;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		char *p = line + 6, *end;

		if (strncmp(line, "NSpid:", 6) != 0)
			continue;
		for (;;) {
			long v = strtol(p, &end, 10);

			if (end == p)
				break;
			number = v;
			p = end;
		}
	}
	if (f)
		fclose(f);
	return number;
}

/* Opens the next descriptor of the process that is a segment, or -ENODEV when there is no more. */
static int next_segment(DIR *dir)
{
	struct dirent *e;

	while ((e = readdir(dir))) {
		char target[sizeof(LINK_NAME) + 1];
		ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof(target));
		int fd;

		if (n != (ssize_t)sizeof(LINK_NAME) - 1 || memcmp(target, LINK_NAME, (size_t)n) != 0)
			continue;
		fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		if (fd >= 0)
			return fd;
	}
	return -ENODEV;
}

static DIR *open_descriptors(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	return opendir(path);
}

int attach_open(struct attach *a, pid_t pid)
{
	int err = -ENODEV, fd;
	DIR *dir;

	memset(a, 0, sizeof(*a));
	a->fd = -1;
	if (pid <= 0)
		return -ESRCH;
	dir = open_descriptors(pid);
	if (!dir)
		return errno == ENOENT ? -ESRCH : errno == EPERM ? -EACCES : -errno;
	/* A forked child that has not started another program still holds its parent's: look for one of its
	 * own. */
	while ((fd = next_segment(dir)) >= 0) {
		err = attach_fd(a, fd);
		if (err)
			break;
		a->pid = pid;
		err = attach_read(a);
		if (!err)
			break;
		attach_close(a);
	}
	closedir(dir);
	if (!err)
		read_command(a);
	return err;
}

int attach_fd(struct attach *a, int fd)
{
	memset(a, 0, sizeof(*a));
	a->fd = fd;
	a->copy = calloc(1, sizeof(*a->copy));
	if (a->copy)
		return 0;
	attach_close(a);
	return -ENOMEM;
}

/* Only magic and version: other versions may be shorter, and lie otherwise behind them. */
static int check_prefix(const struct unpin_segment *s)
{
	if (atomic_load(&s->magic) != UNPIN_SEGMENT_MAGIC)
		return -EPROTO;
	if (s->version != UNPIN_SEGMENT_VERSION)
		return s->version < UNPIN_SEGMENT_VERSION ? -ESTALE : -EPROTONOSUPPORT;
	return 0;
}

static int check_header(const struct attach *a, uint64_t file_bytes)
{
	const struct unpin_segment *s = a->copy;
	int err = check_prefix(s);

	if (err)
		return err;
	if (s->header_bytes != HEADER || s->region_bytes != sizeof(s->region[0]) ||
		s->region_rows > UNPIN_SEGMENT_REGIONS || s->total_bytes > file_bytes ||
		HEADER + (uint64_t)s->region_rows * sizeof(s->region[0]) > s->total_bytes ||
		s->total_bytes != sizeof(*s) || atomic_load(&s->qps_high) > UNPIN_SEGMENT_QPS)
		return -EPROTO;
	if (atomic_load(&s->storm.cause) > UNPIN_STORM_STALL ||
		atomic_load(&s->storm.last_cause) > UNPIN_STORM_STALL)
		return -EPROTO;
	if (a->pid && s->pid != a->pid && s->pid != own_number(a->pid))
		return -ENODEV;
	return 0;
}

/* One row, whole: its sequence is even and the same before and after. */
static int read_row(struct attach *a, uint32_t i)
{
	struct unpin_segment_region *row = &a->copy->region[i];
	size_t offset = HEADER + i * sizeof(*row);

	for (int attempt = 0; attempt < ROW_ATTEMPTS; attempt++) {
		uint32_t before, after;
		int err = read_at(a->fd, &before, sizeof(before), offset);

		if (!err)
			err = read_at(a->fd, row, sizeof(*row), offset);
		if (!err)
			err = read_at(a->fd, &after, sizeof(after), offset);
		if (err)
			return err;
		if (!(before & 1) && before == after && before == atomic_load(&row->sequence)) {
			if (atomic_load(&row->kind) > UNPIN_REGION_IMPLICIT)
				return -EPROTO;
			return 0;
		}
	}
	memset(row, 0, sizeof(*row));
	a->unreadable++;
	return 0;
}

/* The slowest faults came with the header; those that were changing then are left out. */
static int read_slow(struct attach *a)
{
	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++) {
		struct unpin_slow_fault *f = &a->copy->slow.fault[i];
		uint32_t after;
		int err =
			read_at(a->fd, &after, sizeof(after), offsetof(struct unpin_segment, slow.fault[i]));

		if (err)
			return err;
		if ((after & 1) || after != atomic_load(&f->sequence))
			memset(f, 0, sizeof(*f));
	}
	return 0;
}

static int read_qps(struct attach *a)
{
	struct unpin_segment *s = a->copy;
	uint32_t high = atomic_load(&s->qps_high);

	return read_at(a->fd, s->qp, high * sizeof(s->qp[0]), offsetof(struct unpin_segment, qp));
}

int attach_read(struct attach *a)
{
	struct unpin_segment *s = a->copy;
	struct stat st;
	uint32_t rows;
	int err;

	if (fstat(a->fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EPROTO;
	err = read_at(a->fd, s, PREFIX, 0);
	if (!err)
		err = check_prefix(s);
	if (!err)
		err = read_at(a->fd, s, HEADER, 0);
	if (!err)
		err = check_header(a, (uint64_t)st.st_size);
	if (err)
		return err;
	make_printable(s->device, sizeof(s->device));
	make_printable(s->notifier, sizeof(s->notifier));
	make_printable(s->profile, sizeof(s->profile));
	make_printable(s->fault_mode, sizeof(s->fault_mode));
	make_printable(s->fault_reply, sizeof(s->fault_reply));
	rows = atomic_load(&s->regions_high);
	if (rows > s->region_rows)
		return -EPROTO;
	a->unreadable = 0;
	for (uint32_t i = 0; !err && i < rows; i++)
		err = read_row(a, i);
	if (!err)
		err = read_slow(a);
	return err ? err : read_qps(a);
}

static int read_usage(struct attach *a, uint32_t i)
{
	struct unpin_usage *u = &a->copy->usage[i];
	uint32_t after;
	int err = read_at(a->fd, u, sizeof(*u), offsetof(struct unpin_segment, usage[i]));

	if (!err)
		err = read_at(a->fd, &after, sizeof(after), offsetof(struct unpin_segment, region[i]));
	if (err)
		return err;
	if (atomic_load(&u->shift) > 63)
		return -EPROTO;
	if (after != atomic_load(&a->copy->region[i].sequence))
		memset(u, 0, sizeof(*u));
	return 0;
}

static int read_past(struct attach *a, unsigned i)
{
	struct unpin_past_region *p = &a->copy->past[i];
	size_t offset = offsetof(struct unpin_segment, past[i]);

	for (int attempt = 0; attempt < ROW_ATTEMPTS; attempt++) {
		uint32_t after;
		int err = read_at(a->fd, p, sizeof(*p), offset);

		if (!err)
			err = read_at(a->fd, &after, sizeof(after), offset);
		if (err)
			return err;
		if ((after & 1) || after != atomic_load(&p->sequence))
			continue;
		return atomic_load(&p->kind) > UNPIN_REGION_IMPLICIT || atomic_load(&p->usage.shift) > 63
			       ? -EPROTO
			       : 0;
	}
	memset(p, 0, sizeof(*p));
	return 0;
}

int attach_read_usage(struct attach *a)
{
	uint32_t rows = atomic_load(&a->copy->regions_high);
	int err = 0;

	for (uint32_t i = 0; !err && i < rows; i++)
		if (atomic_load(&a->copy->region[i].kind) != UNPIN_REGION_NONE)
			err = read_usage(a, i);
	for (unsigned i = 0; !err && i < UNPIN_PAST_REGIONS; i++)
		err = read_past(a, i);
	return err;
}

void attach_close(struct attach *a)
{
	if (a->fd >= 0)
		close(a->fd);
	free(a->copy);
	a->fd = -1;
	a->copy = NULL;
}

static int by_number(const void *a, const void *b)
{
	const pid_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

size_t attach_processes(pid_t **out)
{
	pid_t *list = NULL;
	size_t n = 0, room = 0;
	struct dirent *e;
	DIR *dir = opendir("/proc");

	while (dir && (e = readdir(dir))) {
		pid_t *more;

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		if (n == room) {
			room = room ? 2 * room : 256;
			more = realloc(list, room * sizeof(*list));
			if (!more)
				break;
			list = more;
		}
		list[n++] = (pid_t)atol(e->d_name);
	}
	if (dir)
		closedir(dir);
	if (n)
		qsort(list, n, sizeof(*list), by_number);
	*out = list;
	return n;
}

const char *attach_error(int err)
{
	switch (err) {
	case -ESRCH:
		return "there is no such process";
	case -EACCES:
		return "it belongs to another user, or may not be inspected (only its own user and root can "
		       "read its counters)";
	case -ENODEV:
		return "it has no unpin device open (was it started with 'unpin run', has it opened the "
		       "device yet?), "
		       "or its ulimit -f is below 55 MiB";
	case -EPROTO:
		return "its segment is damaged or not one of unpin's";
	case -ESTALE:
		return "it runs an older version of unpin than this command (which reads segments of "
		       "version " TEXT_OF(
			       UNPIN_SEGMENT_VERSION) "): start it anew, or use the command of that version";
	case -EPROTONOSUPPORT:
		return "it runs a newer version of unpin than this command (which reads segments of "
		       "version " TEXT_OF(UNPIN_SEGMENT_VERSION) "): use the command of that version";
	default:
		return strerror(-err);
	}
}

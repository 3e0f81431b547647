/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define VERSION	    1u
#define BLOCK_MAGIC 0x6b636c62u
#define PIECES	    4

static const char file_magic[8] = { 'u', 'n', 'p', 'i', 'n', 't', 'l', '\n' };

_Static_assert(TRACE_SPOOL_PAYLOAD >= TRACE_TEXT_QUEUE, "the line of texts fits one block");

static int take_lock(int fd, bool wait)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	while (fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock))
		if (errno == EACCES)
			return -EAGAIN;
		else if (errno != EINTR)
			return -errno;
	return 0;
}

/* --- writing -----------------------------------------------------------------------------------------------
 */

static bool is_ours(const struct trace_spool *s, int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == s->dev && st.st_ino == s->ino;
}

/* One of a process that has gone; the timeline that it belonged to has, too. */
static int remove_leftover(const char *path)
{
	int fd = trace_spool_open(path), err;

	if (fd < 0)
		return fd == -ENOENT ? 0 : -EEXIST;
	err = trace_spool_lock(fd, false);
	if (!err)
		err = trace_spool_remove(fd, path);
	fd_close(fd);
	return !err || err == -ESTALE ? 0 : -EEXIST;
}

static int create_file(struct trace_spool *s)
{
	struct stat st;
	int err;

	s->fd = fd_move_high(open(s->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (s->fd < 0)
		return -errno;
	/* Somebody may just be trying whether it is left over. */
	err = take_lock(s->fd, true);
	if (!err && fstat(s->fd, &st))
		err = -errno;
	if (err) {
		fd_close(s->fd);
		s->fd = -1;
		return err;
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return 0;
}

static int write_head(struct trace_spool *s, const struct trace_spool_head *given)
{
	struct trace_spool_head head = *given;
	ssize_t n;

	memcpy(head.magic, file_magic, sizeof(head.magic));
	head.version = VERSION;
	n = pwrite(s->fd, &head, sizeof(head), 0);
	if (n != (ssize_t)sizeof(head))
		return n < 0 ? -errno : -ENOSPC;
	s->end = sizeof(head);
	s->dropped = head.dropped;
	return 0;
}

int trace_spool_create(struct trace_spool *s, const char *timeline, const struct trace_spool_head *head)
{
	int err;

	s->fd = -1;
	if (snprintf(s->path, sizeof(s->path), "%s" TRACE_SPOOL_SUFFIX, timeline) >= (int)sizeof(s->path))
		return -ENAMETOOLONG;
	err = create_file(s);
	if (err == -EEXIST) {
		err = remove_leftover(s->path);
		if (!err)
			err = create_file(s);
	}
	if (err)
		return err;
	err = write_head(s, head);
	if (err)
		trace_spool_close(s, true);
	return err;
}

/* A program may close descriptors that it does not know, and use the number for a file of its own. */
int trace_spool_fd(struct trace_spool *s)
{
	int err;

	if (is_ours(s, s->fd))
		return s->fd;
	s->fd = fd_move_high(open(s->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
	if (s->fd < 0)
		return -errno;
	err = is_ours(s, s->fd) ? take_lock(s->fd, false) : -ENOENT;
	if (!err)
		return s->fd;
	fd_close(s->fd);
	s->fd = -1;
	return err;
}

/* A file is written whole but for a full disk. A reader must not find half of a block before another one. */
static int give_back(const struct trace_spool *s, int err)
{
	return ftruncate(s->fd, (off_t)s->end) ? -errno : err;
}

int trace_spool_append(
	struct trace_spool *s, struct trace_spool_block *block, const struct iovec *pieces, int n)
{
	static const char zeros[16];
	struct iovec all[PIECES + 2] = { { block, sizeof(*block) } };
	size_t payload = 0, pad;
	ssize_t did;
	int fd = trace_spool_fd(s);

	if (fd < 0)
		return fd;
	for (int i = 0; i < n; i++) {
		all[1 + i] = pieces[i];
		payload += pieces[i].iov_len;
	}
	pad = -payload % 16;
	all[1 + n] = (struct iovec){ (void *)(uintptr_t)zeros, pad };
	block->magic = BLOCK_MAGIC;
	block->bytes = (uint32_t)payload;
	block->zero = 0;
	if (s->end + sizeof(*block) + payload + pad > TRACE_SPOOL_MOST)
		return -EFBIG;
	did = pwritev(fd, all, n + 2, (off_t)s->end);
	if (did != (ssize_t)(sizeof(*block) + payload + pad))
		return give_back(s, did < 0 ? -errno : -ENOSPC);
	s->end += (uint64_t)did;
	return 0;
}

void trace_spool_set_dropped(struct trace_spool *s, uint64_t dropped)
{
	int fd;

	if (dropped == s->dropped)
		return;
	fd = trace_spool_fd(s);
	if (fd >= 0 && pwrite(fd, &dropped, sizeof(dropped), offsetof(struct trace_spool_head, dropped)) ==
			       (ssize_t)sizeof(dropped))
		s->dropped = dropped;
}

int trace_spool_remove(int fd, const char *path)
{
	struct stat ours, there;

	if (fstat(fd, &ours) || lstat(path, &there))
		return -errno;
	if (ours.st_dev != there.st_dev || ours.st_ino != there.st_ino)
		return 0;
	return unlink(path) ? -errno : 0;
}

void trace_spool_close(struct trace_spool *s, bool remove)
{
	if (remove && trace_spool_fd(s) >= 0)
		trace_spool_remove(s->fd, s->path);
	if (is_ours(s, s->fd))
		fd_close(s->fd);
	s->fd = -1;
}

/* --- reading -----------------------------------------------------------------------------------------------
 */

int trace_spool_open(const char *path)
{
	int fd = open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), err = 0;
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL;
	else if (st.st_uid != geteuid() || st.st_nlink > 1)
		err = -EPERM;
	if (!err)
		return fd;
	fd_close(fd);
	return err;
}

int trace_spool_lock(int fd, bool wait)
{
	struct stat st;
	int err = take_lock(fd, wait);

	if (err)
		return err;
	if (fstat(fd, &st))
		return -errno;
	return st.st_nlink ? 0 : -ESTALE;
}

static int read_at(int fd, void *out, size_t n, uint64_t at)
{
	char *p = out;

	while (n) {
		ssize_t did = pread(fd, p, n, (off_t)at);

		if (did < 0 && errno == EINTR)
			continue;
		if (did <= 0)
			return did < 0 ? -errno : -EIO;
		p += did;
		n -= (size_t)did;
		at += (uint64_t)did;
	}
	return 0;
}

int trace_spool_begin(struct trace_spool_reader *r, int fd)
{
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;
	*r = (struct trace_spool_reader){ .fd = fd, .at = sizeof(r->head), .end = (uint64_t)st.st_size };
	if (r->end < sizeof(r->head))
		return -EINVAL;
	err = read_at(fd, &r->head, sizeof(r->head), 0);
	if (err)
		return err;
	if (memcmp(r->head.magic, file_magic, sizeof(file_magic)) != 0 || r->head.version != VERSION ||
		r->head.resume > INT64_MAX || r->head.pid > INT32_MAX)
		return -EINVAL;
	return 0;
}

static bool is_valid(const struct trace_spool_block *b)
{
	if (b->magic != BLOCK_MAGIC || b->kind >= TRACE_SPOOL_KINDS || b->zero || b->tid > INT32_MAX ||
		b->bytes > TRACE_SPOOL_PAYLOAD)
		return false;
	if (b->kind == TRACE_SPOOL_NAME)
		return b->bytes == TRACE_RING_NAME;
	return b->kind != TRACE_SPOOL_EVENTS || b->bytes % sizeof(struct trace_unit) == 0;
}

/* The process ended while it wrote this one. */
static bool cut_payload(struct trace_spool_block *b, uint64_t there)
{
	if (b->kind == TRACE_SPOOL_NAME)
		return false;
	b->bytes = (uint32_t)(there - there % sizeof(struct trace_unit));
	return b->bytes > 0;
}

int trace_spool_next(struct trace_spool_reader *r, struct trace_spool_block *block)
{
	uint64_t left;
	int err;

	if (r->end - r->at < sizeof(*block))
		return 0;
	err = read_at(r->fd, block, sizeof(*block), r->at);
	if (err)
		return err;
	if (!is_valid(block))
		return -EINVAL;
	left = r->end - r->at - sizeof(*block);
	if (left < block->bytes && !cut_payload(block, left))
		return 0;
	r->payload = r->at + sizeof(*block);
	r->at = r->payload + (block->bytes + 15) / 16 * 16;
	if (r->at > r->end)
		r->at = r->end;
	return 1;
}

int trace_spool_payload(
	const struct trace_spool_reader *r, const struct trace_spool_block *block, void *payload)
{
	return read_at(r->fd, payload, block->bytes, r->payload);
}

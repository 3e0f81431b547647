/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace_finish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/trace_json.h"
#include "base/trace_spool.h"
#include "base/trace_text.h"

struct work {
	struct trace_json json;
	struct trace_spool_reader spool;
	struct trace_spool_block block;
	_Alignas(64) char payload[TRACE_SPOOL_PAYLOAD];
};

/* --- blocks ------------------------------------------------------------------------------------------------
 */

/* How far the rest can be made sense of, the numbers say. */
static int format_events(struct work *w)
{
	const struct trace_spool_block *b = &w->block;
	const struct trace_unit *unit = (const struct trace_unit *)w->payload;
	const struct trace_scale scale = trace_clock_scale(b->from, b->to);
	size_t units = b->bytes / sizeof(*unit);
	uint64_t near = b->from.ticks;
	struct trace_event e;

	for (size_t at = 0, n; at < units; at += n) {
		n = trace_event_read(unit + at, units - at, &near, &e);
		if (!n)
			/* The second half of the last may be missing. */
			return at + 1 == units ? 0 : -EINVAL;
		trace_json_event(&w->json, b->tid, &e, &scale);
	}
	return 0;
}

static int format_name(struct work *w)
{
	w->payload[TRACE_RING_NAME - 1] = 0;
	trace_json_name(&w->json, w->block.tid, w->payload);
	return 0;
}

/* A text that is none would make the whole file unreadable. */
static void format_text(struct work *w, const char *text, size_t bytes)
{
	if (trace_text_is_object(text, bytes))
		trace_json_text(&w->json, text, bytes);
	else
		w->json.dropped++;
}

static int format_texts(struct work *w)
{
	struct trace_text_head head;
	size_t left = w->block.bytes;
	const char *p = w->payload;

	while (left > sizeof(head)) {
		memcpy(&head, p, sizeof(head));
		if (head.bytes > TRACE_TEXT_MAX)
			return -EINVAL;
		if (head.bytes > left - sizeof(head))
			return 0;
		format_text(w, p + sizeof(head), head.bytes);
		p += sizeof(head) + head.bytes;
		left -= sizeof(head) + head.bytes;
	}
	return 0;
}

static int (*const formats[TRACE_SPOOL_KINDS])(struct work *) = {
	[TRACE_SPOOL_EVENTS] = format_events,
	[TRACE_SPOOL_NAME] = format_name,
	[TRACE_SPOOL_TEXTS] = format_texts,
};

static int format_blocks(struct work *w)
{
	for (;;) {
		int err = trace_spool_next(&w->spool, &w->block);

		if (err <= 0)
			return err;
		err = trace_spool_payload(&w->spool, &w->block, w->payload);
		if (!err)
			err = formats[w->block.kind](w);
		if (err)
			return err;
		trace_json_dropped(&w->json, w->block.dropped, w->block.to.ns);
	}
}

/* --- the timeline ------------------------------------------------------------------------------------------
 */

/* It is the process's, and where the spool wants to go on, an event has ended: a trailer begins there, or
 * another event. */
static int check_resume(int timeline, const struct trace_spool_head *head)
{
	uint64_t resume = head->resume;
	char there[3];
	struct stat st;

	if (fstat(timeline, &st))
		return -errno;
	if (!S_ISREG(st.st_mode) || resume < 4 || resume + 2 > (uint64_t)st.st_size ||
		!trace_json_is_of(timeline, head->pid))
		return -EINVAL;
	if (pread(timeline, there, sizeof(there), (off_t)resume - 1) != (ssize_t)sizeof(there))
		return -EINVAL;
	return memcmp(there, "},\n", sizeof(there)) == 0 ? 0 : -EINVAL;
}

static int write_timeline(struct work *w, int timeline)
{
	int err = check_resume(timeline, &w->spool.head), closed;

	if (err)
		return err;
	trace_json_init(&w->json, timeline, w->spool.head.pid, w->spool.head.resume);
	w->json.flights = w->spool.head.flights;
	err = format_blocks(w);
	if (w->spool.head.dropped > w->json.told)
		trace_json_dropped(&w->json, w->spool.head.dropped, w->json.now);
	closed = trace_json_close(&w->json);
	return err ? err : closed;
}

static struct work *map_work(void)
{
	long at = syscall(SYS_mmap, NULL, sizeof(struct work), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == -1 ? NULL : (struct work *)at;
}

int trace_finish(int spool, int timeline, struct trace_finish *out)
{
	struct work *w = map_work();
	int err;

	if (!w)
		return -ENOMEM;
	err = trace_spool_begin(&w->spool, spool);
	if (!err)
		err = write_timeline(w, timeline);
	*out = (struct trace_finish){ w->json.end, w->json.flights, w->json.dropped };
	syscall(SYS_munmap, w, sizeof(*w));
	return err;
}

/* --- by name -----------------------------------------------------------------------------------------------
 */

/* Of a timeline by its spool's. */
static int name_timeline(const char *spool, char path[PATH_MAX])
{
	size_t n = strlen(spool), suffix = strlen(TRACE_SPOOL_SUFFIX);

	if (n <= suffix || strcmp(spool + n - suffix, TRACE_SPOOL_SUFFIX) != 0)
		return -EINVAL;
	if (n - suffix >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(path, spool, n - suffix);
	path[n - suffix] = 0;
	return 0;
}

static int finish_locked(int fd, const char *spool)
{
	char path[PATH_MAX];
	struct trace_finish end;
	int err = name_timeline(spool, path), timeline;

	if (err)
		return err;
	timeline = trace_spool_open(path);
	if (timeline < 0)
		return timeline;
	err = trace_finish(fd, timeline, &end);
	fd_close(timeline);
	return err ? err : trace_spool_remove(fd, spool);
}

int trace_finish_spool(const char *path, bool wait)
{
	int fd = trace_spool_open(path), err;

	if (fd < 0)
		return fd;
	err = trace_spool_lock(fd, wait);
	if (!err)
		err = finish_locked(fd, path);
	fd_close(fd);
	return err == -ESTALE ? 0 : err;
}

static int copy_bytes(int from, int to, uint64_t n)
{
	char buffer[16384];

	for (uint64_t at = 0; at < n;) {
		size_t want = n - at < sizeof(buffer) ? (size_t)(n - at) : sizeof(buffer);
		ssize_t got = pread(from, buffer, want, (off_t)at);

		if (got <= 0)
			return got < 0 ? -errno : -EINVAL;
		if (pwrite(to, buffer, (size_t)got, (off_t)at) != got)
			return -ENOSPC;
		at += (uint64_t)got;
	}
	return 0;
}

/* As far as the process had finished it, and a trailer. */
static int copy_timeline(int spool, const char *path, int copy)
{
	struct trace_spool_reader r;
	int err = trace_spool_begin(&r, spool), timeline;

	if (err)
		return err;
	timeline = trace_spool_open(path);
	if (timeline < 0)
		return timeline;
	err = check_resume(timeline, &r.head);
	if (!err)
		err = copy_bytes(timeline, copy, r.head.resume + 2);
	fd_close(timeline);
	return err;
}

int trace_finish_copy(const char *path, const char *copy)
{
	char timeline[PATH_MAX];
	struct trace_finish end;
	int err = name_timeline(path, timeline), spool, fd;

	if (err)
		return err;
	spool = trace_spool_open(path);
	if (spool < 0)
		return spool;
	fd = open(copy, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	err = fd < 0 ? -errno : copy_timeline(spool, timeline, fd);
	if (!err)
		err = trace_finish(spool, fd, &end);
	if (fd >= 0)
		fd_close(fd);
	fd_close(spool);
	return err;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/rseq.h"
#include "base/trace_clock.h"
#include "base/trace_finish.h"
#include "base/trace_json.h"
#include "base/trace_ring.h"
#include "base/trace_spool.h"
#include "base/trace_text.h"

/* The writer sleeps between these: less while rings fill up. */
#define PAUSE_LEAST_NS (2 * NSEC_PER_MSEC)
#define PAUSE_MOST_NS  (20 * NSEC_PER_MSEC)
#define WRITER_NICE    15

enum { OFF, ON, CLOSING };

/* The writer thread's between open and close; open and close touch it while there is none. */
static struct writer {
	_Atomic int state; /* who moves it to CLOSING closes */
	pid_t pid;
	pthread_t thread;
	sem_t stop;
	char asked[PATH_MAX]; /* what trace_open was given */
	char path[PATH_MAX];  /* of the timeline, without links */
	dev_t dev;
	ino_t ino;
	struct trace_finish finish; /* how far the timeline goes; end 0: there is none */
	struct trace_spool spool;
	struct trace_instant from, to; /* the pass of the writer before this one and this one */
	uint64_t dropped_rings_before; /* trace_ring_dropped() at open */
	uint64_t lost, before;	       /* events that found no room on disk; dropped before open */
	bool warned;
	char texts[TRACE_TEXT_QUEUE];
} w = { .spool.fd = -1 };

/* --- from rings to the spool ------------------------------------------------------------------------------
 */

static uint64_t dropped(void)
{
	return w.before + w.lost + trace_text_dropped() + trace_ring_dropped() - w.dropped_rings_before;
}

static struct trace_spool_block block_of(enum trace_spool_kind kind, uint32_t tid)
{
	return (struct trace_spool_block){
		.kind = kind,
		.tid = tid,
		.from = w.from,
		.to = w.to,
		.dropped = dropped(),
	};
}

/* The program goes on; when there is room again, so does the timeline. */
static void warn_once(int err)
{
	if (!w.warned)
		log_warn("the timeline %s loses events: %s", w.path,
			err == -EFBIG ? "it is as long as it may be" : strerror(-err));
	w.warned = true;
}

static uint64_t count_events(const struct trace_batch *b)
{
	uint64_t n = 0, near = 0;
	struct trace_event e;

	/* One that lies across the ring's end is two pieces, of which the second is no event. */
	for (unsigned i = 0; i < 2; i++)
		for (size_t at = 0, used; at < b->units[i]; at += used, n++) {
			used = trace_event_read(b->piece[i] + at, b->units[i] - at, &near, &e);
			used = used ? used : 1;
		}
	return n;
}

static void write_name(const struct trace_batch *b)
{
	struct trace_spool_block block = block_of(TRACE_SPOOL_NAME, b->tid);
	const struct iovec name = { (void *)(uintptr_t)b->name, sizeof(b->name) };
	int err = trace_spool_append(&w.spool, &block, &name, 1);

	if (err)
		warn_once(err);
}

static void write_batch(const struct trace_batch *b)
{
	struct trace_spool_block block = block_of(TRACE_SPOOL_EVENTS, b->tid);
	struct iovec pieces[2];
	int err;

	if (b->renamed)
		write_name(b);
	for (int i = 0; i < 2; i++)
		pieces[i] = (struct iovec){ (void *)(uintptr_t)b->piece[i],
			b->units[i] * sizeof(struct trace_unit) };
	err = trace_spool_append(&w.spool, &block, pieces, 2);
	if (!err)
		return;
	warn_once(err);
	w.lost += count_events(b);
}

static uint64_t count_texts(size_t bytes)
{
	struct trace_text_head head;
	uint64_t n = 0;

	for (size_t at = 0; at < bytes; at += sizeof(head) + head.bytes, n++)
		memcpy(&head, w.texts + at, sizeof(head));
	return n;
}

static void write_texts(void)
{
	struct trace_spool_block block = block_of(TRACE_SPOOL_TEXTS, (uint32_t)w.pid);
	const struct iovec piece = { w.texts, trace_text_take(w.texts) };
	int err = piece.iov_len ? trace_spool_append(&w.spool, &block, &piece, 1) : 0;

	if (!err)
		return;
	warn_once(err);
	w.lost += count_texts(piece.iov_len);
}

/* Returns the most that one ring held, in units. */
static uint32_t write_all(void)
{
	struct trace_batch b;
	uint32_t most = 0;

	w.to = trace_clock_look();
	for (unsigned i = 0; i < TRACE_RINGS; i++) {
		if (!trace_ring_take(i, &b))
			continue;
		write_batch(&b);
		trace_ring_release(i, &b);
		most = trace_batch_units(&b) > most ? trace_batch_units(&b) : most;
	}
	write_texts();
	trace_spool_set_dropped(&w.spool, dropped());
	w.from = w.to;
	return most;
}

static void *write_on(void *unused)
{
	uint64_t pause = PAUSE_MOST_NS;

	(void)unused;
	rseq_leave();
	prctl(PR_SET_NAME, "unpin-trace");
	/* Where all processors are busy it gets some hundredths of one: rather events that are dropped than a
	 * program that is another one when it is watched. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), WRITER_NICE);
	for (;;) {
		uint64_t until = clock_ns() + pause;
		struct timespec ts = { (time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC) };
		uint32_t most;

		if (sem_clockwait(&w.stop, CLOCK_MONOTONIC, &ts) == 0)
			break;
		most = write_all();
		if (most > TRACE_RING_UNITS / 2)
			pause = pause / 2 > PAUSE_LEAST_NS ? pause / 2 : PAUSE_LEAST_NS;
		else if (most < TRACE_RING_UNITS / 8)
			pause = 2 * pause < PAUSE_MOST_NS ? 2 * pause : PAUSE_MOST_NS;
	}
	write_all();
	return NULL;
}

static int start_writer(void)
{
	sigset_t all, before;
	int err;

	if (sem_init(&w.stop, 0, 0))
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(&w.thread, NULL, write_on, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		sem_destroy(&w.stop);
	return err;
}

/* --- the timeline ------------------------------------------------------------------------------------------
 */

/* Only what is written here: its other pages are not touched. */
static struct trace_json opening;

static int write_opening(int fd)
{
	int err;

	trace_json_init(&opening, fd, (uint32_t)w.pid, 0);
	trace_json_open(&opening, program_invocation_short_name);
	err = trace_json_close(&opening);
	w.finish = (struct trace_finish){ .end = opening.end };
	return err;
}

/* 0: it is ours to write. -EEXIST: somebody else's. */
static int claim_file(int fd, bool may_replace, struct stat *st)
{
	if (fstat(fd, st))
		return -errno;
	if (!S_ISREG(st->st_mode))
		return -EINVAL; /* what has been written is written over */
	/* The lock is held until something has been written: of two processes that see it empty, one begins.
	 */
	if (flock(fd, LOCK_EX | LOCK_NB) || fstat(fd, st) || (st->st_size && !may_replace))
		return -EEXIST;
	return ftruncate(fd, 0) ? -errno : 0;
}

/*
 * A symbolic link is followed when this user or root has made it, not when somebody else has in a directory
 * that all may write to: it may lead to any file of this user. A descriptor or a negative errno (-ELOOP).
 */
static int open_checked(const char *path)
{
	char target[PATH_MAX];
	struct stat st;
	int fd;

	if (!lstat(path, &st) && S_ISLNK(st.st_mode)) {
		if (st.st_uid != geteuid() && st.st_uid)
			return -ELOOP;
		if (realpath(path, target))
			path = target;
	}
	fd = fd_move_high(open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
	return fd < 0 ? -errno : fd;
}

/* Opens path when it is new, empty, or (may_replace) whatever it is. */
static int open_file(const char *path, bool may_replace)
{
	int fd = open_checked(path), err;
	struct stat st;

	if (fd < 0)
		return fd;
	err = claim_file(fd, may_replace, &st);
	if (!err && !realpath(path, w.path))
		err = -errno;
	if (!err) {
		err = write_opening(fd);
		/* Half of it would be no timeline, and would keep others from beginning one. */
		if (err)
			unlink(w.path);
	}
	fd_close(fd);
	w.dev = st.st_dev;
	w.ino = st.st_ino;
	return err;
}

static int begin_file(const char *path)
{
	char own[PATH_MAX];
	int err = open_file(path, false);

	if (err != -EEXIST)
		return err;
	if (snprintf(own, sizeof(own), "%s.%d", path, (int)w.pid) >= (int)sizeof(own))
		return -ENAMETOOLONG;
	return open_file(own, true);
}

/* The timeline's descriptor, for reading and writing, if it is still the file that was begun. */
static int reopen_file(void)
{
	int fd = fd_move_high(open(w.path, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) == 0 && st.st_dev == w.dev && st.st_ino == w.ino &&
		trace_json_is_of(fd, (uint32_t)w.pid))
		return fd;
	fd_close(fd);
	return -ENOENT;
}

/* The device is opened again: the timeline goes on. */
static bool goes_on(const char *path)
{
	int fd;

	if (w.pid != getpid() || !w.finish.end || strcmp(path, w.asked) != 0)
		return false;
	fd = reopen_file();
	if (fd < 0)
		return false;
	fd_close(fd);
	return true;
}

static void finish_file(void)
{
	int spool = trace_spool_fd(&w.spool), timeline = reopen_file();
	int err = spool < 0 ? spool : timeline < 0 ? timeline : trace_finish(spool, timeline, &w.finish);

	if (timeline >= 0)
		fd_close(timeline);
	if (err)
		log_warn("the timeline %s is not complete: %s", w.path, strerror(-err));
	/* What did not fit is in the spool, for who makes room; what has no file is nobody's. */
	trace_spool_close(&w.spool, !err || err == -ENOENT);
}

/* --- open and close ----------------------------------------------------------------------------------------
 */

static int begin(const char *path)
{
	struct trace_spool_head head;
	int err = 0;

	if (!goes_on(path)) {
		w.pid = getpid();
		w.finish.end = 0;
		err = begin_file(path);
	}
	if (err)
		return err;
	strcpy(w.asked, path);
	head = (struct trace_spool_head){
		.pid = (uint32_t)w.pid,
		.resume = w.finish.end,
		.flights = w.finish.flights,
		.dropped = w.finish.dropped,
	};
	err = trace_spool_create(&w.spool, w.path, &head);
	if (err)
		return err;
	w.before = w.finish.dropped;
	w.lost = 0;
	w.warned = false;
	trace_ring_restart();
	w.dropped_rings_before = trace_ring_dropped();
	trace_text_open(w.pid);
	trace_clock_choose();
	w.from = trace_clock_look();
	err = start_writer();
	if (err)
		trace_spool_close(&w.spool, true);
	return err;
}

int trace_open(const char *path)
{
	int err, state = atomic_load(&w.state), cancel;

	if (state != OFF && w.pid != getpid())
		trace_abandon();
	else if (state != OFF)
		return -EBUSY;
	if (strlen(path) >= sizeof(w.asked))
		return -ENAMETOOLONG;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	err = begin(path);
	pthread_setcancelstate(cancel, NULL);
	if (err)
		return err;
	atomic_store(&w.state, ON);
	atomic_store(&trace_on, true);
	return 0;
}

/* A file that may not grow sends a signal, which would end the program: not the timeline's to do. */
static void finish_without_signals(void)
{
	const struct timespec at_once = { 0 };
	sigset_t size, before, pending;

	sigemptyset(&size);
	sigaddset(&size, SIGXFSZ);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &size, &before);
	finish_file();
	if (!sigismember(&pending, SIGXFSZ))
		while (sigtimedwait(&size, NULL, &at_once) == SIGXFSZ)
			;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void trace_close(void)
{
	int on = ON, cancel;

	if (!atomic_compare_exchange_strong(&w.state, &on, CLOSING))
		return;
	atomic_store(&trace_on, false);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	sem_post(&w.stop);
	pthread_join(w.thread, NULL);
	sem_destroy(&w.stop);
	finish_without_signals();
	pthread_setcancelstate(cancel, NULL);
	atomic_store(&w.state, OFF);
}

void trace_abandon(void)
{
	atomic_store(&trace_on, false);
	trace_text_abandon();
	trace_ring_abandon();
	if (atomic_load(&w.state) != OFF)
		trace_spool_close(&w.spool, false);
	w.finish.end = 0;
	atomic_store(&w.state, OFF);
}

__attribute__((destructor)) static void end_with_the_process(void)
{
	if (atomic_load(&w.state) == ON && w.pid == getpid())
		trace_close();
}

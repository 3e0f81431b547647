/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/uringbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "mm/facility.h"
#include "mm/procfd.h"
#include "mm/ringmake.h"

/* The first ring is small: most programs pin a few buffers. The kernel allows 16384 slots in a ring. */
#define FIRST_SLOTS 512u
#define MORE_SLOTS  16384u
#define MOST_RINGS  32

/*
 * What passes between private buffers and pinned pages goes through a pipe: the kernel serves a pipe that
 * does not block within the system call, while it hands reads of a memory file to a worker thread (50 us). At
 * most this much at a time; the pipe may hold less.
 */
#define PIPE_BYTES 65536u

/* What a completion is of. */
enum { OF_COPY = 1, OF_RELEASE = 2 };
#define NO_RESULT INT_MIN

struct ring {
	/* Under lock. */
	unsigned slots, taken;
	unsigned hint; /* slots below are taken */
	bool usable;
	uint64_t used[MORE_SLOTS / 64];
	/* Under io. */
	struct lock io;
	struct io_uring uring;
	int pipe[2]; /* empty between copies */
	/* Buffers given back whose pages the kernel has not let go of yet: on older kernels that takes up to
	 * a second. */
	unsigned releasing;
	bool dead; /* the queues are of no use any more */
};

/* Rings are made and never destroyed in the process that made them. */
static struct lock lock = LOCK_INIT(LOCK_RINGS);
static struct ring *rings[MOST_RINGS];
/* Grows under lock, after the entry was written; read by everybody. */
static atomic_int ring_count;

/*
 * Charges are per user, and the kernel gives back those of a process that has ended 10 to 20 ms late: a
 * program that runs twice in a row must not fail the second time. So who meets -ENOMEM, or what else may
 * pass, tries again for a while; not soon after a wait in vain, so that many registrations do not wait one
 * after the other. True: once more, after a nap. *until is 0 at first.
 */
static bool patience(uint64_t *until)
{
	static _Atomic uint64_t in_vain;
	const struct timespec nap = { 0, 2 * NSEC_PER_MSEC };
	uint64_t now = clock_ns(), last = atomic_load(&in_vain);

	if (!*until) {
		if (last && now - last < NSEC_PER_SEC)
			return false;
		*until = now + 60 * NSEC_PER_MSEC;
	}
	if (now >= *until) {
		atomic_store(&in_vain, now);
		return false;
	}
	syscall(SYS_nanosleep, &nap, NULL);
	return true;
}

/* ---- Rings ---- */

static int make_pipe(struct ring *r)
{
	if (pipe2(r->pipe, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	r->pipe[0] = procfd_raise(r->pipe[0]);
	r->pipe[1] = procfd_raise(r->pipe[1]);
	return 0;
}

static int make_ring(unsigned slots, struct ring **out)
{
	struct ring *r = calloc(1, sizeof(*r));
	int err;

	*out = NULL;
	if (!r)
		return -ENOMEM;
	/* The pipe first: a ring is not ended by this thread. */
	err = make_pipe(r);
	if (!err) {
		err = ring_make(slots, &r->uring);
		if (err) {
			procfd_close(r->pipe[0]);
			procfd_close(r->pipe[1]);
		}
	}
	if (err) {
		free(r);
		return err;
	}
	lock_init(&r->io, LOCK_RING_IO);
	r->slots = slots;
	r->usable = true;
	*out = r;
	return 0;
}

/* ---- Slots, under lock ---- */

static bool take_slot(struct ring *r, unsigned *slot)
{
	if (!r->usable || r->taken == r->slots)
		return false;
	for (unsigned w = r->hint / 64; w < r->slots / 64; w++) {
		if (r->used[w] == UINT64_MAX)
			continue;
		*slot = w * 64 + (unsigned)__builtin_ctzll(~r->used[w]);
		r->used[w] |= 1ull << (*slot % 64);
		r->hint = *slot;
		r->taken++;
		return true;
	}
	return false;
}

static bool take_any_slot(struct uringbuf *out)
{
	for (int i = 0; i < ring_count; i++) {
		if (!take_slot(rings[i], &out->slot))
			continue;
		out->ring = i;
		return true;
	}
	return false;
}

static void free_slot(const struct uringbuf *buf)
{
	struct ring *r = rings[buf->ring];

	lock_take(&lock);
	r->used[buf->slot / 64] &= ~(1ull << (buf->slot % 64));
	r->taken--;
	if (buf->slot < r->hint)
		r->hint = buf->slot;
	lock_drop(&lock);
}

/* A free slot, in a new ring if need be. The new one is made without the lock; one made in vain is lost
 * (it takes 32 rings at once). While one cannot be made, another thread may give back a slot. */
static int claim_slot(struct uringbuf *out)
{
	uint64_t until = 0;
	struct ring *r;
	bool got;
	int err;

	for (;;) {
		lock_take(&lock);
		got = take_any_slot(out);
		err = ring_count == MOST_RINGS ? -ENOSPC : 0;
		lock_drop(&lock);
		if (got || err)
			return got ? 0 : err;
		err = make_ring(ring_count ? MORE_SLOTS : FIRST_SLOTS, &r);
		if (mm_passing(err) && patience(&until))
			continue;
		if (err)
			return err;
		lock_take(&lock);
		if (ring_count < MOST_RINGS) {
			rings[ring_count] = r;
			ring_count++;
		}
		lock_drop(&lock);
	}
}

/* ---- Completions, under io ---- */

/* Takes what has completed; true if the copy was among it, its result in *res. */
static bool reap(struct ring *r, int *res)
{
	struct io_uring_cqe *cqe;
	bool copied = false;

	while (!io_uring_peek_cqe(&r->uring, &cqe)) {
		if (io_uring_cqe_get_data64(cqe) == OF_COPY) {
			*res = cqe->res;
			copied = true;
		} else if (r->releasing) {
			r->releasing--;
		}
		io_uring_cqe_seen(&r->uring, cqe);
	}
	return copied;
}

/* ---- Pinning ---- */

static int update(struct ring *r, unsigned slot, uintptr_t addr, size_t len, uint64_t tag)
{
	struct iovec iov = { (void *)addr, len };
	int n;

	do {
		n = io_uring_register_buffers_update_tag(&r->uring, slot, &iov, (__u64 *)&tag, 1);
	} while (n == -EINTR || n == -EAGAIN);
	return n == 1 ? 0 : n < 0 ? n : -EFAULT;
}

/* Waits until some ring has nothing left to let go of, for a moment at most. False: there was nothing to wait
 * for. */
static bool wait_for_releases(void)
{
	const struct timespec nap = { 0, 2 * NSEC_PER_MSEC };
	uint64_t until = clock_ns() + 3 * NSEC_PER_SEC;
	bool waited = false, busy = true;
	int res;

	while (busy && clock_ns() < until) {
		busy = false;
		for (int i = 0; i < ring_count; i++) {
			lock_take(&rings[i]->io);
			reap(rings[i], &res);
			busy |= rings[i]->releasing > 0;
			lock_drop(&rings[i]->io);
		}
		waited |= busy;
		if (busy)
			syscall(SYS_nanosleep, &nap, NULL);
	}
	return waited;
}

/* What can never fit fails at once. */
static int update_patiently(struct ring *r, unsigned slot, uintptr_t addr, size_t len)
{
	uint64_t until = 0;
	struct rlimit limit;
	int err = update(r, slot, addr, len, OF_RELEASE);

	if (err == -ENOMEM && wait_for_releases())
		err = update(r, slot, addr, len, OF_RELEASE);
	if (err != -ENOMEM || getrlimit(RLIMIT_MEMLOCK, &limit) || len > limit.rlim_cur)
		return err;
	while (err == -ENOMEM && patience(&until))
		err = update(r, slot, addr, len, OF_RELEASE);
	return err;
}

int uringbuf_pin(uintptr_t addr, size_t len, struct uringbuf *out)
{
	int saved = errno;
	struct ring *r;
	int err;

	for (;;) {
		err = claim_slot(out);
		if (err)
			break;
		r = rings[out->ring];
		err = update_patiently(r, out->slot, addr, len);
		if (!err)
			break;
		free_slot(out);
		if (err != -EBADF)
			break;
		/* The application closed our descriptor. What is pinned stays so (the ring's memory holds
		 * it); new pins get another ring. */
		lock_take(&lock);
		r->usable = false;
		lock_drop(&lock);
	}
	errno = saved;
	return err;
}

void uringbuf_unpin(const struct uringbuf *buf)
{
	struct ring *r = rings[buf->ring];
	int saved = errno, res, err;

	lock_take(&r->io);
	r->releasing++;
	lock_drop(&r->io);
	err = update(r, buf->slot, 0, 0, 0);
	lock_take(&r->io);
	if (err)
		r->releasing--;
	reap(r, &res);
	lock_drop(&r->io);
	free_slot(buf);
	errno = saved;
}

/* ---- Through the pinned pages, under io ---- */

/* Between the pipe and the pinned pages, n <= PIPE_BYTES: how many bytes went, or -EFAULT. */
static long transfer(struct ring *r, unsigned slot, uintptr_t va, size_t n, bool into_pages)
{
	struct io_uring_sqe *sqe = r->dead ? NULL : io_uring_get_sqe(&r->uring);
	int res = NO_RESULT, err;

	if (!sqe)
		return -EFAULT;
	if (into_pages)
		io_uring_prep_read_fixed(sqe, r->pipe[0], (void *)va, (unsigned)n, 0, (int)slot);
	else
		io_uring_prep_write_fixed(sqe, r->pipe[1], (void *)va, (unsigned)n, 0, (int)slot);
	io_uring_sqe_set_data64(sqe, OF_COPY);
	/* A signal may end the wait early: the copy is under way and must be seen to its end. */
	do {
		err = io_uring_submit_and_wait(&r->uring, 1);
	} while (!reap(r, &res) && (err >= 0 || err == -EINTR || err == -EAGAIN || err == -EBUSY));
	if (res > 0)
		return res;
	/* The application closed our descriptor: what is still queued must never run. */
	r->dead = res == NO_RESULT;
	return -EFAULT;
}

/* Left-overs must not reach the next copy. */
static void empty_pipe(struct ring *r)
{
	char rest[512];

	while (syscall(SYS_read, r->pipe[0], rest, sizeof(rest)) > 0)
		;
}

/* One passage from the buffer to the pinned pages: how many bytes went, or -EFAULT. */
static long write_part(struct ring *r, unsigned slot, uintptr_t va, const void *from, size_t n)
{
	long staged, went;

	/* Nothing is written into what may be a file of the application. */
	if (!fd_is_ours(r->pipe[0]) || !fd_is_ours(r->pipe[1]))
		return -EFAULT;
	staged = syscall(SYS_write, r->pipe[1], from, n < PIPE_BYTES ? n : PIPE_BYTES);
	if (staged <= 0)
		return -EFAULT;
	for (long done = 0; done < staged; done += went) {
		went = transfer(r, slot, va + (size_t)done, (size_t)(staged - done), true);
		if (went < 0) {
			empty_pipe(r);
			return went;
		}
	}
	return staged;
}

static long read_part(struct ring *r, unsigned slot, uintptr_t va, void *to, size_t n)
{
	long staged;

	if (!fd_is_ours(r->pipe[0]) || !fd_is_ours(r->pipe[1]))
		return -EFAULT;
	staged = transfer(r, slot, va, n < PIPE_BYTES ? n : PIPE_BYTES, false);
	if (staged < 0 || syscall(SYS_read, r->pipe[0], to, staged) == staged)
		return staged;
	empty_pipe(r);
	return -EFAULT;
}

int uringbuf_write(const struct uringbuf *buf, uintptr_t va, const void *from, size_t n)
{
	struct ring *r = rings[buf->ring];
	int saved = errno;
	long went = 0;

	lock_take(&r->io);
	for (size_t done = 0; done < n; done += (size_t)went) {
		went = write_part(r, buf->slot, va + done, (const char *)from + done, n - done);
		if (went < 0)
			break;
	}
	lock_drop(&r->io);
	errno = saved;
	return went < 0 ? -EFAULT : 0;
}

int uringbuf_read(const struct uringbuf *buf, uintptr_t va, void *to, size_t n)
{
	struct ring *r = rings[buf->ring];
	int saved = errno;
	long went = 0;

	lock_take(&r->io);
	for (size_t done = 0; done < n; done += (size_t)went) {
		went = read_part(r, buf->slot, va + done, (char *)to + done, n - done);
		if (went < 0)
			break;
	}
	lock_drop(&r->io);
	errno = saved;
	return went < 0 ? -EFAULT : 0;
}

int uringbuf_modify(const struct uringbuf *buf, uintptr_t va,
	uint64_t (*change)(uint64_t old, const void *arg), const void *arg, uint64_t *orig)
{
	struct ring *r = rings[buf->ring];
	int saved = errno;
	uint64_t next;
	bool done;

	lock_take(&r->io);
	done = read_part(r, buf->slot, va, orig, sizeof(*orig)) == sizeof(*orig);
	if (done) {
		next = change(*orig, arg);
		done = write_part(r, buf->slot, va, &next, sizeof(next)) == sizeof(next);
	}
	lock_drop(&r->io);
	errno = saved;
	return done ? 0 : -EFAULT;
}

/* ---- Fork ---- */

/* Closes fd if it still is what it was: its number may have been given to a file of the application. */
static void close_if(int fd, const char *what)
{
	static const char prefix[] = "/proc/self/fd/";
	char path[32], target[64], *at = path + sizeof(prefix) - 1;
	unsigned divisor = 1;
	long n;

	memcpy(path, prefix, sizeof(prefix));
	while ((unsigned)fd / divisor >= 10)
		divisor *= 10;
	for (; divisor; divisor /= 10)
		*at++ = (char)('0' + (unsigned)fd / divisor % 10);
	*at = '\0';
	n = syscall(SYS_readlinkat, AT_FDCWD, path, target, sizeof(target));
	if (n == (long)strlen(what) && !memcmp(target, what, (size_t)n))
		procfd_close(fd);
}

void uringbuf_drop_inherited(void)
{
	int saved = errno;

	/* The structures are left alone: they were made by an allocator that may be in any state. */
	for (int i = 0; i < ring_count; i++)
		close_if(rings[i]->uring.ring_fd, "anon_inode:[io_uring]");
	ring_count = 0;
	lock_reinit(&lock, LOCK_RINGS);
	errno = saved;
}

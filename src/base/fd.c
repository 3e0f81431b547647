/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/fd.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CHUNK  1024
#define CHUNKS (FD_NOTED / CHUNK)

/* Per descriptor what it is, 0: not noted. Bit 0: hidden; bit 1 is always set. */
#define HIDDEN_BIT 1u
#define NOTED_BIT  2u

struct chunk {
	_Atomic uint64_t note[CHUNK];
};

/* Set once each, never given back. */
static _Atomic(struct chunk *) chunks[CHUNKS];
/* No chunk with a hidden descriptor above this one. */
static atomic_int last_chunk = -1;

static _Atomic uint64_t *note_of(int fd)
{
	struct chunk *c;

	if (fd < 0 || fd >= FD_NOTED)
		return NULL;
	c = atomic_load_explicit(&chunks[fd / CHUNK], memory_order_acquire);
	return c ? &c->note[fd % CHUNK] : NULL;
}

static _Atomic uint64_t *make_note_of(int fd)
{
	struct chunk *c, *none = NULL;

	if (fd < 0 || fd >= FD_NOTED || note_of(fd))
		return note_of(fd);
	c = (struct chunk *)syscall(
		SYS_mmap, NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0l);
	if (c == MAP_FAILED)
		return NULL;
	if (!atomic_compare_exchange_strong(&chunks[fd / CHUNK], &none, c))
		syscall(SYS_munmap, c, sizeof(*c));
	return note_of(fd);
}

/* What fd is now, without the bits; 0: nothing; UINT64_MAX: the kernel does not say. */
static uint64_t identity(int fd)
{
	struct stat st;

	/* Past the functions in front of libc. */
	if (syscall(SYS_fstat, fd, &st))
		return errno == EBADF ? 0 : UINT64_MAX;
	/* Two files of one number on two devices are told apart by the mixed-in device. */
	return (((uint64_t)st.st_ino ^ (uint64_t)st.st_dev * 0x9e3779b97f4a7c15ull) << 2) | NOTED_BIT;
}

static bool is_still(int fd, uint64_t note)
{
	uint64_t now = identity(fd);

	return now == UINT64_MAX || now == (note & ~(uint64_t)HIDDEN_BIT);
}

void fd_note(int fd, bool hidden)
{
	int saved = errno, last = atomic_load(&last_chunk);
	_Atomic uint64_t *note = make_note_of(fd);
	uint64_t is = note ? identity(fd) : 0;

	if (is && is != UINT64_MAX) {
		while (hidden && last < fd / CHUNK &&
			!atomic_compare_exchange_weak(&last_chunk, &last, fd / CHUNK))
			;
		atomic_store(note, is | (hidden ? HIDDEN_BIT : 0));
	}
	errno = saved;
}

bool fd_is_ours(int fd)
{
	_Atomic uint64_t *note = note_of(fd);
	uint64_t was = note ? atomic_load(note) : 0;
	int saved = errno;
	bool ours = fd >= 0 && (!was || is_still(fd, was));

	errno = saved;
	return ours;
}

bool fd_is_hidden(int fd)
{
	_Atomic uint64_t *note = note_of(fd);
	uint64_t was = note ? atomic_load(note) : 0;
	int saved = errno;
	bool hidden = was & HIDDEN_BIT && is_still(fd, was);

	errno = saved;
	return hidden;
}

int fd_next_hidden(int from)
{
	int end = (atomic_load(&last_chunk) + 1) * CHUNK, fd = from < 0 ? 0 : from;

	while (fd < end) {
		if (!note_of(fd))
			fd = (fd / CHUNK + 1) * CHUNK;
		else if (fd_is_hidden(fd))
			return fd;
		else
			fd++;
	}
	return -1;
}

void fd_forget(int fd)
{
	_Atomic uint64_t *note = note_of(fd);

	if (note)
		atomic_store(note, 0);
}

/* Not by libc's function, which is a cancellation point (cancel.h). The thread sanitizer, though, has to see
 * when a number is free again. */
void fd_close(int fd)
{
	_Atomic uint64_t *note = note_of(fd);
	uint64_t was = note ? atomic_exchange(note, 0) : 0;

	if (was && !is_still(fd, was))
		return;
#ifdef __SANITIZE_THREAD__
	close(fd);
#else
	syscall(SYS_close, fd);
#endif
}

/* By system call: libc's fcntl is a cancellation point. */
static int dup_at(int fd, int lowest)
{
	return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest);
}

int fd_move_high(int fd)
{
	int saved = errno, high = -1;
	struct rlimit limit;

	if (fd < 0)
		return fd;
	if (fd < FD_HIGH) {
		high = dup_at(fd, FD_HIGH);
		if (high < 0 && !getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur > 16 &&
			limit.rlim_cur <= FD_HIGH)
			high = dup_at(fd, (int)(limit.rlim_cur - limit.rlim_cur / 8));
		if (high >= 0)
			fd_close(fd);
	}
	fd = high >= 0 ? high : fd;
	fd_note(fd, true);
	errno = saved;
	return fd;
}

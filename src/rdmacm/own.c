/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/own.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/fd.h"

/* A bit per descriptor, in chunks that are never freed. */
#define CHUNK_FDS   4096u
#define CHUNKS	    256u
#define CHUNK_WORDS (CHUNK_FDS / 64)

static _Atomic(_Atomic uint64_t *) chunk[CHUNKS];

static _Atomic uint64_t *word_of(unsigned fd)
{
	_Atomic uint64_t *words, *none = NULL;
	unsigned at = fd / CHUNK_FDS;

	if (at >= CHUNKS)
		return NULL;
	words = atomic_load(&chunk[at]);
	if (!words) {
		words = calloc(CHUNK_WORDS, sizeof(*words));
		if (!words)
			return NULL;
		if (!atomic_compare_exchange_strong(&chunk[at], &none, words)) {
			free((void *)words);
			words = none;
		}
	}
	return &words[fd % CHUNK_FDS / 64];
}

int own_fd(int fd)
{
	_Atomic uint64_t *word;

	if (fd < 0)
		return -errno;
	fd = fd_move_high(fd);
	word = word_of((unsigned)fd);
	if (!word) {
		fd_close(fd);
		return -EMFILE;
	}
	atomic_fetch_or(word, 1ull << (unsigned)fd % 64);
	return fd;
}

void own_close(int *fd)
{
	if (*fd < 0)
		return;
	/* First the bit: a child that was forked in between leaks one, but closes nothing of somebody else.
	 */
	atomic_fetch_and(word_of((unsigned)*fd), ~(1ull << (unsigned)*fd % 64));
	fd_close(*fd);
	*fd = -1;
}

void own_abandon(void)
{
	for (unsigned c = 0; c < CHUNKS; c++) {
		_Atomic uint64_t *words = atomic_load(&chunk[c]);

		for (unsigned w = 0; words && w < CHUNK_WORDS; w++) {
			uint64_t bits = atomic_exchange(&words[w], 0);

			for (; bits; bits &= bits - 1)
				fd_close((int)(c * CHUNK_FDS + w * 64 + (unsigned)__builtin_ctzll(bits)));
		}
	}
}

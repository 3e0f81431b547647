/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/fds.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"

static atomic_int discards;

int fds_init(struct fds *t)
{
	t->entry = calloc(FDS_MAX, sizeof(*t->entry));
	atomic_store(&t->high, 0);
	return t->entry ? 0 : -ENOMEM;
}

void fds_fini(struct fds *t)
{
	free(t->entry);
	t->entry = NULL;
}

int fds_add(struct fds *t, int fd)
{
	fd = fd_move_high(fd);
	for (uint32_t i = 0; i < FDS_MAX; i++) {
		int expect = 0;
		uint32_t high;

		if (atomic_load_explicit(&t->entry[i], memory_order_relaxed))
			continue;
		if (!atomic_compare_exchange_strong(&t->entry[i], &expect, fd + 1))
			continue;
		high = atomic_load(&t->high);
		while (high <= i && !atomic_compare_exchange_weak(&t->high, &high, i + 1))
			;
		return fd;
	}
	fd_close(fd);
	return -EMFILE;
}

void fds_close(struct fds *t, int *fd)
{
	uint32_t high = atomic_load(&t->high);

	if (*fd < 0)
		return;
	for (uint32_t i = 0; i < high; i++) {
		int expect = *fd + 1;

		if (atomic_compare_exchange_strong(&t->entry[i], &expect, 0))
			break;
	}
	fd_close(*fd);
	*fd = -1;
}

void fds_abandon(struct fds *t)
{
	uint32_t high = atomic_load(&t->high);

	for (uint32_t i = 0; i < high; i++) {
		int fd = atomic_exchange(&t->entry[i], 0) - 1;

		if (fd >= 0)
			fd_close(fd);
	}
}

static void *discard_thread(void *arg)
{
	fd_close((int)(intptr_t)arg);
	atomic_fetch_sub(&discards, 1);
	return NULL;
}

void fds_discard(int fd)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int err;

	if (fd < 0)
		return;
	atomic_fetch_add(&discards, 1);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, discard_thread, (void *)(intptr_t)fd);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		discard_thread((void *)(intptr_t)fd);
}

bool fds_discard_ready(void)
{
	return atomic_load(&discards) + 2 <= FDS_DISCARDS;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/ringmake.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/fd.h"
#include "mm/procfd.h"

/* liburing's frames are small; what else lies on the stack (thread-local storage) libc adds by itself or
 * refuses. */
#define STACK_BYTES (256ul << 10)

struct errand {
	int (*work)(unsigned slots, struct io_uring *out);
	unsigned slots;
	struct io_uring *out;
	int err;
};

static int make(unsigned slots, struct io_uring *out)
{
	struct iovec *empty;
	int err = io_uring_queue_init(8, out, 0);

	if (err)
		return err;
	io_uring_ring_dontfork(out);
	out->ring_fd = procfd_raise(out->ring_fd);
	out->enter_ring_fd = out->ring_fd;
	err = io_uring_register_buffers_sparse(out, slots);
	if (err == -EINVAL) {
		/* Before 5.19: a table of empty buffers. */
		empty = calloc(slots, sizeof(*empty));
		err = empty ? io_uring_register_buffers(out, empty, slots) : -ENOMEM;
		free(empty);
	}
	if (err) {
		fd_forget(out->ring_fd);
		io_uring_queue_exit(out);
	}
	return err;
}

static int probe(unsigned slots, struct io_uring *out)
{
	struct iovec none = { NULL, 0 };
	int err = io_uring_queue_init(2, out, 0);

	(void)slots;
	if (err)
		return err;
	/* An empty slot that can be filled later: 5.13. */
	err = io_uring_register_buffers(out, &none, 1);
	io_uring_queue_exit(out);
	return err;
}

static void *errand_main(void *arg)
{
	struct errand *e = arg;

	e->err = e->work(e->slots, e->out);
	return NULL;
}

static int start(pthread_t *thread, struct errand *e)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	sigfillset(&all);
	if (pthread_attr_init(&attr))
		return -ENOMEM;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, &attr, errand_main, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return -err;
}

/* The kernel wakes who joins a thread before it has noted the thread's end everywhere, but after it has let
 * go of the thread's rings. */
static int run(struct errand *e)
{
	int held = cancel_hold();
	pthread_t thread;

	if (start(&thread, e))
		errand_main(e);
	else
		pthread_join(thread, NULL);
	cancel_restore(held);
	return e->err;
}

int ring_make(unsigned slots, struct io_uring *out)
{
	struct errand e = { .work = make, .slots = slots, .out = out };

	return run(&e);
}

int ring_probe(void)
{
	struct io_uring ring;
	struct errand e = { .work = probe, .out = &ring };

	return run(&e);
}

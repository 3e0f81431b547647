/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Driver threads: they take fault events off the line and resolve them, one each at a time, and may sleep in
 * the kernel while they do. They start one by one, when the line is longer than the threads that are idle,
 * and stay until the space closes.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "base/log.h"
#include "odp/core.h"

static void *driver_main(void *arg)
{
	struct odp_space *s = arg;
	struct fault_queue *q = &s->faults;
	struct fault *f;

	pthread_setname_np(pthread_self(), "unpin-odp");
	fault_lock(q);
	for (;;) {
		f = fault_dequeue(q);
		if (f) {
			fault_unlock(q);
			odp_resolve(s, f, f->pages, false);
			fault_lock(q);
			continue;
		}
		if (s->stopping)
			break;
		s->drivers_idle++;
		lock_wait(&q->work, &q->lock);
		s->drivers_idle--;
	}
	fault_unlock(q);
	return NULL;
}

/*
 * A thread with every signal blocked but those that a copy is repaired by: it never runs a handler of the
 * application.
 */
static int start(pthread_t *thread, struct odp_space *s)
{
	sigset_t ours, before;
	int err;

	sigfillset(&ours);
	sigdelset(&ours, SIGSEGV);
	sigdelset(&ours, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &ours, &before);
	err = pthread_create(thread, NULL, driver_main, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -err;
}

/* A free slot, reserved; -1: there are threads enough. Under the lock. */
static int reserve(struct odp_space *s)
{
	int slot;

	if (s->faults.line_len <= s->drivers_idle ||
		(unsigned)__builtin_popcountll(s->drivers) == s->cfg.driver_threads)
		return -1;
	slot = __builtin_ctzll(~s->drivers);
	s->drivers |= 1ull << slot;
	return slot;
}

static void do_it_ourselves(struct odp_space *s)
{
	struct fault *f;

	for (;;) {
		fault_lock(&s->faults);
		f = fault_dequeue(&s->faults);
		fault_unlock(&s->faults);
		if (!f)
			return;
		odp_resolve(s, f, f->pages, false);
	}
}

void odp_drivers_need(struct odp_space *s)
{
	pthread_t thread;
	bool alone;
	int slot, err;

	fault_lock(&s->faults);
	slot = reserve(s);
	fault_unlock(&s->faults);
	if (slot < 0)
		return;
	err = start(&thread, s);
	fault_lock(&s->faults);
	if (!err)
		s->driver[slot] = thread;
	else
		s->drivers &= ~(1ull << slot);
	alone = !s->drivers;
	fault_unlock(&s->faults);
	if (err)
		log_warn("cannot start a thread for page faults (error %d)%s", -err,
			alone ? "; faults are resolved by whoever meets them" : "");
	if (alone)
		do_it_ourselves(s);
}

void odp_drivers_stop(struct odp_space *s)
{
	fault_lock(&s->faults);
	s->stopping = true;
	pthread_cond_broadcast(&s->faults.work);
	fault_unlock(&s->faults);
	for (unsigned i = 0; i < ODP_DRIVERS_MAX; i++)
		if (s->drivers & 1ull << i)
			pthread_join(s->driver[i], NULL);
	s->drivers = 0;
	do_it_ourselves(s);
}

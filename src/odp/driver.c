/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Driver threads: they take fault events off the line and resolve them, one each at a time, and may sleep in
 * the kernel while they do; end those that had to be kept until they are due; and carry out prefetches when
 * there is nothing else to do. They start one by one, when there is more to do than there are idle threads,
 * and stay until the space closes.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rseq.h"
#include "odp/core.h"

/* What a driver thread does next, the first that there is. Under the lock, which is dropped meanwhile. */
static bool end_due(struct odp_space *s)
{
	/* At the end nobody waits any more. */
	struct fault *f = fault_due(&s->faults, s->stopping ? UINT64_MAX : clock_ns());

	if (!f)
		return false;
	fault_unlock(&s->faults);
	odp_resolve_due(s, f);
	fault_lock(&s->faults);
	return true;
}

static bool resolve_next(struct odp_space *s)
{
	struct fault *f = fault_dequeue(&s->faults);
	bool others_wait;

	if (!f)
		return false;
	/* It may take long: what is due meanwhile, or queued behind all faults, is somebody else's. */
	others_wait = !list_empty(&s->faults.due) || !list_empty(&s->prefetches.line);
	if (others_wait)
		pthread_cond_signal(&s->faults.work);
	fault_unlock(&s->faults);
	if (others_wait)
		odp_drivers_need(s);
	odp_resolve(s, f, f->pages, false);
	odp_tick_guard(s, clock_ns());
	fault_lock(&s->faults);
	return true;
}

static bool prefetch_next(struct odp_space *s)
{
	if (s->stopping || !prefetch_ready(s))
		return false;
	prefetch_some(s);
	fault_unlock(&s->faults);
	odp_tick_guard(s, clock_ns());
	fault_lock(&s->faults);
	return true;
}

/* Until there is something to do, or something is due. Under the lock. */
static void idle(struct odp_space *s)
{
	uint64_t due = fault_due_at(&s->faults), held = prefetch_held_until(s), at = due < held ? due : held;
	struct timespec until = { (time_t)(at / NSEC_PER_SEC), (long)(at % NSEC_PER_SEC) };

	s->drivers_idle++;
	if (at == UINT64_MAX)
		lock_wait(&s->faults.work, &s->faults.lock);
	else
		lock_timedwait(&s->faults.work, &s->faults.lock, &until);
	s->drivers_idle--;
}

static void *driver_main(void *arg)
{
	struct odp_space *s = arg;

	rseq_leave();
	pthread_setname_np(pthread_self(), "unpin-odp");
	fault_lock(&s->faults);
	for (;;) {
		if (end_due(s) || resolve_next(s) || prefetch_next(s))
			continue;
		if (s->stopping)
			break;
		idle(s);
	}
	fault_unlock(&s->faults);
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

/* How many threads could be used at once. Under the lock. */
static unsigned wanted(const struct odp_space *s)
{
	return s->faults.line.len + !list_empty(&s->faults.due) + prefetch_ready(s);
}

/* A free slot, reserved; -1: there are threads enough. Under the lock. */
static int reserve(struct odp_space *s)
{
	int slot;

	/* Nobody would join it. */
	if (s->stopping)
		return -1;
	if (wanted(s) <= s->drivers_idle ||
		(unsigned)__builtin_popcountll(s->drivers) == s->cfg.driver_threads)
		return -1;
	slot = __builtin_ctzll(~s->drivers);
	s->drivers |= 1ull << slot;
	return slot;
}

static void sleep_until(uint64_t due)
{
	struct timespec until = { (time_t)(due / NSEC_PER_SEC), (long)(due % NSEC_PER_SEC) };

	/* By system call: libc's is a cancellation point, and threads of the application come here too. */
	while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) && errno == EINTR)
		;
}

static void do_it_ourselves(struct odp_space *s)
{
	fault_lock(&s->faults);
	for (;;) {
		uint64_t due;

		if (resolve_next(s) || end_due(s))
			continue;
		due = fault_due_at(&s->faults);
		if (due == UINT64_MAX)
			break;
		fault_unlock(&s->faults);
		sleep_until(due);
		fault_lock(&s->faults);
	}
	prefetch_drop_all(s);
	fault_unlock(&s->faults);
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

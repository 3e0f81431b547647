/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "nic/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rseq.h"
#include "nic/nic.h"

#define STUCK_NS   (20 * NSEC_PER_MSEC)
#define IDLE_TICKS 50 /* ticks without anything new before the lookout sleeps */

/* The thread gives itself its name: it may be over before we could. */
static int spawn(struct nic *nic, void *(*run)(void *))
{
	sigset_t most, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	/* Our threads take no signal of the application's; the two that a copy may raise stay open. */
	sigfillset(&most);
	sigdelset(&most, SIGSEGV);
	sigdelset(&most, SIGBUS);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &most, &old);
	err = pthread_create(&thread, &attr, run, nic);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return log_refused("new threads (clone3)", -err);
}

/* Under the lock. */
static void leave(struct crew *c)
{
	c->threads--;
	pthread_cond_broadcast(&c->changed);
}

/* A tick while there is something to watch, else a sleep until called. Under the lock. */
static void wait_tick(struct crew *c, uint32_t idle)
{
	struct timespec at;
	uint64_t until = clock_ns() + STUCK_NS;

	if (idle < IDLE_TICKS) {
		at = (struct timespec){ (time_t)(until / NSEC_PER_SEC), (long)(until % NSEC_PER_SEC) };
		lock_timedwait(&c->changed, &c->lock, &at);
		return;
	}
	c->called = false;
	atomic_store(&c->asleep, true);
	/* The helm stores that it is busy and then looks whether we sleep; we the other way round. */
	while (!c->stop && !c->called && !atomic_load(&c->busy_since))
		lock_wait(&c->changed, &c->lock);
	atomic_store(&c->asleep, false);
}

/* Looks out until the helm is stuck (true, the helm is ours) or the crew ends. Under the lock. */
static bool look_out(struct nic *nic)
{
	struct crew *c = &nic->crew;
	uint32_t idle = IDLE_TICKS, seen = atomic_load(&c->jobs), jobs;
	uint64_t since;

	pthread_setname_np(pthread_self(), "unpin-lookout");
	while (!c->stop) {
		wait_tick(c, idle);
		since = atomic_load(&c->busy_since);
		jobs = atomic_load(&c->jobs);
		idle = jobs == seen && !since ? idle + 1 : 0;
		if (since && clock_ns() - since >= STUCK_NS &&
			atomic_compare_exchange_strong(&c->busy_since, &since, 0))
			return true;
		seen = jobs;
	}
	return false;
}

static void steer(struct nic *nic)
{
	pthread_setname_np(pthread_self(), "unpin-engine");
	nic_engine_loop(nic);
}

/* What a thread does in turns: it looks out, takes the helm, is relieved while it is stuck, and looks out
 * again if nobody else does. Where there are too many to make another one, that is how the crew gets its
 * lookout back. */
static void serve(struct nic *nic, bool at_helm)
{
	struct crew *c = &nic->crew;

	if (at_helm)
		steer(nic);
	lock_take(&c->lock);
	while (!at_helm || (!c->have_lookout && !c->stop)) {
		c->have_lookout = true;
		if (!look_out(nic))
			break;
		at_helm = true;
		atomic_fetch_add_explicit(&c->reliefs, 1, memory_order_relaxed);
		log_debug("the engine thread has been held up by one operation; another one carries on");
		c->have_lookout = false;
		lock_drop(&c->lock);
		steer(nic);
		lock_take(&c->lock);
	}
	leave(c);
	lock_drop(&c->lock);
}

static void *lookout_main(void *arg)
{
	rseq_leave();
	serve(arg, false);
	return NULL;
}

static void *first_main(void *arg)
{
	rseq_leave();
	serve(arg, true);
	return NULL;
}

/* Under no lock; only the helm calls it. */
static void need_lookout(struct nic *nic)
{
	struct crew *c = &nic->crew;
	bool want;

	lock_take(&c->lock);
	want = !c->have_lookout && !c->stop && c->threads < CREW_MOST;
	if (want) {
		c->have_lookout = true;
		c->threads++;
	}
	lock_drop(&c->lock);
	if (!want || !spawn(nic, lookout_main))
		return;
	lock_take(&c->lock);
	c->have_lookout = false;
	leave(c);
	lock_drop(&c->lock);
}

/* --- hands
 * -------------------------------------------------------------------------------------------------------- */

/* Under the lock. */
static void count_free_hands(struct crew *c)
{
	uint32_t made_free = c->hands_asleep - c->calls, unmade = c->stop ? 0 : c->hands_most - c->hands;

	atomic_store_explicit(&c->hands_free, made_free + unmade, memory_order_relaxed);
}

/* Waits until called; false: the crew ends. Under the lock. */
static bool await_call(struct crew *c)
{
	c->hands_asleep++;
	count_free_hands(c);
	while (!c->stop && !c->calls)
		lock_wait(&c->work, &c->lock);
	c->hands_asleep--;
	if (c->calls)
		c->calls--;
	count_free_hands(c);
	return !c->stop;
}

static void *hand_main(void *arg)
{
	struct nic_burst burst = { .engine = true };
	struct nic *nic = arg;
	struct crew *c = &nic->crew;
	bool go_on;

	rseq_leave();
	pthread_setname_np(pthread_self(), "unpin-hand");
	do {
		atomic_fetch_add_explicit(&c->hand_jobs, 1, memory_order_relaxed);
		while (!atomic_load(&nic->engine_stop) && nic_progress(nic, &burst))
			;
		lock_take(&c->lock);
		go_on = await_call(c);
		if (!go_on) {
			c->hands--;
			pthread_cond_broadcast(&c->changed);
		}
		lock_drop(&c->lock);
	} while (go_on);
	return NULL;
}

void crew_call_hand(struct nic *nic)
{
	struct crew *c = &nic->crew;
	bool make = false;

	if (!atomic_load_explicit(&c->hands_free, memory_order_relaxed))
		return;
	lock_take(&c->lock);
	if (c->hands_asleep > c->calls) {
		c->calls++;
		pthread_cond_signal(&c->work);
	} else if (c->hands < c->hands_most && !c->stop) {
		c->hands++;
		make = true;
	}
	count_free_hands(c);
	lock_drop(&c->lock);
	if (!make || !spawn(nic, hand_main))
		return;
	lock_take(&c->lock);
	c->hands--;
	count_free_hands(c);
	pthread_cond_broadcast(&c->changed);
	lock_drop(&c->lock);
}

int crew_start(struct nic *nic, uint32_t threads)
{
	struct crew *c = &nic->crew;
	pthread_condattr_t attr;
	int err;

	lock_init(&c->lock, LOCK_CREW);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->changed, &attr);
	pthread_condattr_destroy(&attr);
	pthread_cond_init(&c->work, NULL);
	c->hands_most = threads - 1;
	atomic_store(&c->hands_free, c->hands_most);
	c->threads = 1;
	err = spawn(nic, first_main);
	if (err)
		c->threads = 0;
	return err;
}

void crew_stop(struct nic *nic)
{
	struct crew *c = &nic->crew;

	lock_take(&c->lock);
	c->stop = true;
	count_free_hands(c);
	pthread_cond_broadcast(&c->changed);
	pthread_cond_broadcast(&c->work);
	while (c->threads || c->hands)
		lock_wait(&c->changed, &c->lock);
	lock_drop(&c->lock);
	pthread_cond_destroy(&c->changed);
	pthread_cond_destroy(&c->work);
	lock_fini(&c->lock);
}

void crew_busy(struct nic *nic, uint64_t now)
{
	struct crew *c = &nic->crew;

	atomic_fetch_add_explicit(&c->jobs, 1, memory_order_relaxed);
	atomic_store(&c->busy_since, now);
	if (atomic_load(&c->asleep)) {
		lock_take(&c->lock);
		c->called = true;
		pthread_cond_broadcast(&c->changed);
		lock_drop(&c->lock);
	}
	if (!c->have_lookout)
		need_lookout(nic);
}

bool crew_done(struct nic *nic, uint64_t now)
{
	return atomic_compare_exchange_strong(&nic->crew.busy_since, &now, 0);
}

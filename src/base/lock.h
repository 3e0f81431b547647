/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Mutexes, and the order in which they are taken.
 *
 * LOCK_RANKS is that order, outermost first: a thread takes a lock only while every lock it holds stands
 * above it in the table. Two locks of one rank are never held together.
 *
 * Built with UNPIN_DEBUG_CHECKS (meson -Ddebug_checks=true, as the sanitizers' builds are), each lock knows
 * its rank and each thread what it holds: whoever takes a lock against the order, drops what it does not
 * hold, or sleeps on a condition under a lock that is not its innermost, ends the program with a message that
 * names the ranks. Otherwise a lock is a mutex and nothing more.
 *
 * Not here: the mutexes of libibverbs' public structures (ibv_context, ibv_cq, ibv_qp), whose type is not
 * ours. They are leaves (src/verbs): nothing of ours is called under them.
 *
 * Nothing here allocates; conditions are plain pthread ones.
 */
#ifndef UNPIN_BASE_LOCK_H
#define UNPIN_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"

#define LOCK_RANKS(X)                                                                                        \
	X(QP_SQ)    /* nic_qp.sq_lock; the application keeps it from ibv_wr_start() to ibv_wr_complete() */  \
	X(SYSFS)    /* sysfs/tree.c tree.lock: the tree of this process */                                   \
	X(LISTS)    /* verbs/device.c lists_lock: device lists handed out */                                 \
	X(REGISTRY) /* nic/device.c registry_lock: the one device; held while it opens and closes */         \
	X(CM)	    /* rdmacm/channel.c cm_lock: ids and channels of rdma_cm */                              \
	X(QP_RUN)   /* nic_qp.run_lock: the transport's state; the one lock held across copies */            \
	X(QP_RQ)    /* nic_rq.lock: those who post receives */                                               \
	X(CQ)	    /* nic_cq.lock: the completion ring, arming */                                           \
	X(EVENTS)   /* nic_event_queue.lock: events not read yet, acknowledgements */                        \
	X(GIDS)	    /* nic/gid.c table.lock */                                                               \
	X(NIC)	    /* nic.lock: tables and free lists of keys and queue pair numbers */                     \
	X(WIRE)	    /* wire.lock: peers, guests, and what is being taken down */                             \
	X(WIRE_RX)  /* wire.rx_lock: the receive table; packets are taken under it */                        \
	X(FABRIC)   /* fabric.lock: channels for which an impaired fabric holds packets */                   \
	X(CHANNEL)  /* wire_channel.lock: the sending side of a channel */                                   \
	X(HUNGRY)   /* wire.hungry_lock: channels whose flows wait for credit */                             \
	X(WATCH)    /* watch.lock: channels whose receivers promised to poll */                              \
	X(QP_RX)    /* nic_qp.rx_lock: packets that wait for a lane */                                       \
	X(TIMERS)   /* nic.timer_lock */                                                                     \
	X(RUNQ)	    /* nic.runq_lock */                                                                      \
	X(RX_POOL)  /* nic.rx_pool_lock: free and refused packet buffers */                                  \
	X(CREW)	    /* crew.lock: who is at the helm, who looks out */                                       \
	X(SWEEP)    /* odp_space.sweep_lock: the one sweeper */                                              \
	X(FAULTS)   /* fault_queue.lock: fault events, regions; never across malloc or munmap */             \
	X(PINS)	    /* mm/pin.c create_lock: pins coming and going */                                        \
	X(RINGS)    /* mm/uringbuf.c lock: rings and their slots */                                          \
	X(RING_IO)  /* mm/uringbuf.c ring.io: one ring's queues and pipe */                                  \
	X(TRACE)    /* base/trace_text.c lock: events that came as texts */

enum lock_rank {
#define LOCK_X(name) LOCK_##name,
	LOCK_RANKS(LOCK_X)
#undef LOCK_X
		LOCK_RANK_COUNT
};

_Static_assert(LOCK_RANK_COUNT <= 64, "a thread's held ranks are bits of one word");

struct lock {
	pthread_mutex_t mutex;
#ifdef UNPIN_DEBUG_CHECKS
	enum lock_rank rank;
#endif
};

#ifdef UNPIN_DEBUG_CHECKS

#define LOCK_INIT(r)                                                                                         \
	{                                                                                                    \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (r)                                              \
	}

/* One bit for each rank that this thread holds. A child has its own copy of the thread that forked. */
extern _Thread_local uint64_t lock_held __attribute__((tls_model("initial-exec")));

/* These end the program: a lock of this rank must not be taken, or dropped or slept on, now. */
void lock_refuse_take(enum lock_rank rank) __attribute__((noreturn));
void lock_refuse_again(enum lock_rank rank) __attribute__((noreturn));
void lock_refuse_drop(enum lock_rank rank) __attribute__((noreturn));
void lock_refuse_wait(enum lock_rank rank) __attribute__((noreturn));

static inline void lock_set_rank(struct lock *l, enum lock_rank rank)
{
	l->rank = rank;
}

/* Before the mutex is taken, so that an order that would deadlock is told and not lived. */
static inline void lock_check_take(const struct lock *l)
{
	if (lock_held >> l->rank)
		lock_refuse_take(l->rank);
}

static inline void lock_record(const struct lock *l)
{
	if (lock_held >> l->rank & 1)
		lock_refuse_again(l->rank);
	lock_held |= 1ull << l->rank;
}

static inline void lock_erase(const struct lock *l)
{
	if (!(lock_held >> l->rank & 1))
		lock_refuse_drop(l->rank);
	lock_held &= ~(1ull << l->rank);
}

/* Waking up takes the lock again: as if anew, so it must be the innermost. */
static inline void lock_check_wait(const struct lock *l)
{
	if (lock_held >> l->rank != 1)
		lock_refuse_wait(l->rank);
}

static inline void lock_forget(enum lock_rank rank)
{
	lock_held &= ~(1ull << rank);
}

#else

#define LOCK_INIT(r)                                                                                         \
	{                                                                                                    \
		.mutex = PTHREAD_MUTEX_INITIALIZER                                                           \
	}

static inline void lock_set_rank(struct lock *l, enum lock_rank rank)
{
	(void)l, (void)rank;
}

static inline void lock_check_take(const struct lock *l)
{
	(void)l;
}

static inline void lock_record(const struct lock *l)
{
	(void)l;
}

static inline void lock_erase(const struct lock *l)
{
	(void)l;
}

static inline void lock_check_wait(const struct lock *l)
{
	(void)l;
}

static inline void lock_forget(enum lock_rank rank)
{
	(void)rank;
}

#endif

static inline void lock_init(struct lock *l, enum lock_rank rank)
{
	pthread_mutex_init(&l->mutex, NULL);
	lock_set_rank(l, rank);
}

/*
 * In a forked child: makes the lock free, whoever of the parent's threads held it. A child inherits what the
 * thread that forked holds, and that alone.
 */
static inline void lock_reinit(struct lock *l, enum lock_rank rank)
{
	lock_forget(rank);
	lock_init(l, rank);
}

/* Nobody holds it. */
static inline void lock_fini(struct lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void lock_take(struct lock *l)
{
	lock_check_take(l);
	pthread_mutex_lock(&l->mutex);
	lock_record(l);
}

/*
 * true: taken (pthread_mutex_trylock() says 0 for that). It never waits, so any order is allowed, but not a
 * second lock of a rank that the thread holds.
 */
static inline bool lock_try(struct lock *l)
{
	if (pthread_mutex_trylock(&l->mutex))
		return false;
	lock_record(l);
	return true;
}

static inline void lock_drop(struct lock *l)
{
	lock_erase(l);
	pthread_mutex_unlock(&l->mutex);
}

/*
 * The lock, which this thread holds, stays taken while the application's code runs, which may call us and
 * lend more of the same rank; it no longer counts as held. Ends with lock_drop_lent() by the same thread.
 */
static inline void lock_lend(struct lock *l)
{
	lock_erase(l);
}

static inline void lock_drop_lent(struct lock *l)
{
	pthread_mutex_unlock(&l->mutex);
}

/* pthread_cond_wait(3), but no cancellation point; the lock is the innermost that the thread holds. */
static inline void lock_wait(pthread_cond_t *cond, struct lock *l)
{
	int was;

	lock_check_wait(l);
	lock_erase(l);
	was = cancel_hold();
	pthread_cond_wait(cond, &l->mutex);
	cancel_restore(was);
	lock_record(l);
}

/* The same, at most until the time, on the condition's clock. */
static inline void lock_timedwait(pthread_cond_t *cond, struct lock *l, const struct timespec *until)
{
	int was;

	lock_check_wait(l);
	lock_erase(l);
	was = cancel_hold();
	pthread_cond_timedwait(cond, &l->mutex, until);
	cancel_restore(was);
	lock_record(l);
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The fault queue: fault events under way, who waits for them, and the line of those that driver threads have
 * yet to take.
 *
 * An event owns the pages that its raise made faulting: a stretch inside one leaf. Other accesses that meet
 * one of them join the event as waiters. Events of different regions never overlap in what they own: a page
 * has one owner.
 *
 * Flows take turns in the line (turns.h), and a region has at most ODP_REGION_EVENTS events under way: an
 * access that would raise one more waits in the region's crowd, where flows take turns as well, and is told
 * to try again when there is room. Somebody who is in a crowd implies an event of the region under way, whose
 * end tells who is next; the end of the last one tells all.
 *
 * With a latency (odp_cfg.fault_latency_ns), an event that has been resolved too early is kept in a list
 * until it is due, so that no thread sleeps for it.
 *
 * An event is found by its leaf in a hash of short lists. Its memory comes from a pool, so that raising
 * allocates nothing.
 *
 * Threads: every function is called under the queue's lock (fault_lock()), except where it says otherwise.
 */
#ifndef UNPIN_ODP_FAULT_H
#define UNPIN_ODP_FAULT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"
#include "odp/slab.h"
#include "odp/space.h"

struct leaf;

#define FAULT_BUCKETS 256u

struct fault {
	struct list hash;    /* in its leaf's bucket */
	struct turn line;    /* waiting for a driver thread */
	struct list due;     /* resolved, and waiting for its time */
	struct list waiters; /* odp_waiter.node, in the order of their coming */
	const void *flow;    /* whose turn it is resolved in; NULL: nobody's in particular */
	uintptr_t addr;	     /* of the first page */
	unsigned pages;	     /* owned: from addr on */
	unsigned before;     /* owned too, below addr: of the huge page that holds it */
	unsigned needed;     /* the leading ones that the raising access asked for; the rest is read ahead */
	bool write, file, major;
	bool huge;	/* the page at addr may turn out to be a huge one (huge.c) */
	bool hugetlb;	/* all of its leaf's pages that could be had are the event's */
	bool imprecise; /* names region and waiter only: no pages, no leaf (imprecise.c) */
	bool alone;	/* raised by an access that does not wait: the region remembers its error */
	bool prefetch;	/* of a prefetch: nobody has accessed the pages, at first */
	bool put_off;	/* it was resolved before it was due */
	bool no_fault;	/* nothing may be populated for it */
	uint16_t owner; /* the region's number, for the table */
	struct leaf *leaf;
	struct odp_region
		*region;       /* that raised it; NULL once that has ended: then nothing is counted for it */
	struct list of_region; /* on region->faults */
	uint64_t raised_ns, started_ns;
	uint64_t due_ns;    /* not over before this; 0: at any time */
	unsigned retried;   /* rounds lost */
	uint64_t reads;	    /* major faults of the kernel, of the thread that resolved it, meanwhile */
	unsigned populated; /* of its pages, by the first round */
	int error;	    /* of that round */
};

struct fault_queue {
	struct lock lock;
	pthread_cond_t work;	/* there is something to do, or stopping; on CLOCK_MONOTONIC */
	pthread_cond_t scanned; /* a waiter's scan() has returned */
	struct list bucket[FAULT_BUCKETS];
	struct turn_table flows; /* of the line and of every region's crowd */
	struct turns line;
	struct list due; /* fault.due, the earliest first */
	struct slab_pool pool;
};

int fault_queue_init(struct fault_queue *q);
/* No event may be left. */
void fault_queue_destroy(struct fault_queue *q);

static inline void fault_lock(struct fault_queue *q)
{
	lock_take(&q->lock);
}

static inline void fault_unlock(struct fault_queue *q)
{
	lock_drop(&q->lock);
}

/* The region's part in the queue begins. */
void fault_region_begin(struct fault_queue *q, struct odp_region *r);

/*
 * Whether one more event of the region may be raised. Who has been told that there is room (admitted) goes
 * before the crowd, the crowd before everybody else.
 */
bool fault_room(const struct odp_region *r, bool admitted);
/* w waits until there may be room. There is none for it. w->raised_ns and what park() saves are filled. */
void fault_crowd(struct odp_region *r, struct odp_waiter *w);

/*
 * A new event over pages (0: an imprecise one) of one leaf, raised by the region, for which there is room;
 * NULL: no memory.
 */
struct fault *fault_new(struct fault_queue *q, struct odp_region *r, uintptr_t addr, unsigned pages);
/* The event that owns the page of va, or NULL. */
struct fault *fault_find(struct fault_queue *q, uintptr_t va);
/* Whether an event is under way in the leaf of va. */
bool fault_in_leaf(struct fault_queue *q, uintptr_t va);

/* Puts the event in the line, behind those of f->flow, and wakes a driver thread. */
void fault_enqueue(struct fault_queue *q, struct fault *f);
/* The one whose turn it is, no longer in the line; NULL: none. */
struct fault *fault_dequeue(struct fault_queue *q);

/* Keeps the event until f->due_ns. */
void fault_put_off(struct fault_queue *q, struct fault *f);
/* The earliest of those, no longer kept; NULL: none is due by now (UINT64_MAX: whatever its time). */
struct fault *fault_due(struct fault_queue *q, uint64_t now);
/* When that will be; UINT64_MAX: there is none. */
uint64_t fault_due_at(const struct fault_queue *q);

/*
 * Makes w wait for f, behind the others, or as its raiser before them. w->addr, write, raised_ns are filled
 * by the caller.
 */
void fault_join(struct fault *f, struct odp_region *r, struct odp_waiter *w, bool raiser);
/* Takes a waiter back out; w->fault is not NULL. */
void fault_leave(struct odp_waiter *w);
/* Makes it as good as new: what it has waited for is over. */
void fault_forget(struct odp_waiter *w);

/*
 * Ends the event: it is forgotten and its memory reused. Its waiters move to *told with their result: err for
 * those who waited for the first page with no more than the event's rights, else 0. forced: their next access
 * is let through. Behind them come those of the crowd for whom there is room now, with 0.
 */
void fault_finish(
	struct fault_queue *q, struct fault *f, int err, bool forced, uint64_t now, struct list *told);

/* Calls ready() of each on the list, in order. Without the lock. */
void fault_tell(struct list *told);

/* Returns when no waiter of the region is being scanned; nobody may join meanwhile. */
void fault_region_scanned(struct fault_queue *q, struct odp_region *r);

/*
 * The region ends: its waiters and its crowd move to *told with -ECANCELED, its events go on without
 * it.
 */
void fault_region_end(struct odp_region *r, struct list *told);

#endif

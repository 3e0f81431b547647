/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/fault.h"

#include <assert.h>
#include <errno.h>

#include "odp/pagetable.h"

/* What a piece of the pool is padded to. */
#define FAULT_BYTES 256u

_Static_assert(sizeof(struct fault) <= FAULT_BYTES, "an event fits its piece");

int fault_queue_init(struct fault_queue *q)
{
	pthread_condattr_t monotonic;
	int err;

	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	err = pthread_cond_init(&q->work, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (err)
		return -err;
	err = pthread_cond_init(&q->scanned, NULL);
	if (err) {
		pthread_cond_destroy(&q->work);
		return -err;
	}
	lock_init(&q->lock, LOCK_FAULTS);
	for (unsigned i = 0; i < FAULT_BUCKETS; i++)
		list_init(&q->bucket[i]);
	turn_table_init(&q->flows);
	turns_init(&q->line, &q->flows);
	list_init(&q->due);
	slab_init(&q->pool, FAULT_BYTES, true);
	return 0;
}

void fault_queue_destroy(struct fault_queue *q)
{
	assert(!q->pool.used);
	slab_destroy(&q->pool);
	pthread_cond_destroy(&q->scanned);
	pthread_cond_destroy(&q->work);
	lock_fini(&q->lock);
}

static struct list *bucket_of(struct fault_queue *q, uintptr_t va)
{
	uint64_t leaf = va >> LEAF_SHIFT;

	return &q->bucket[(leaf ^ leaf >> 8) % FAULT_BUCKETS];
}

/* ---- regions ---- */

void fault_region_begin(struct fault_queue *q, struct odp_region *r)
{
	list_init(&r->waiters);
	list_init(&r->faults);
	turns_init(&r->crowd, &q->flows);
	r->events = 0;
}

bool fault_room(const struct odp_region *r, bool admitted)
{
	return r->events < ODP_REGION_EVENTS && (!r->crowd.len || admitted);
}

void fault_crowd(struct odp_region *r, struct odp_waiter *w)
{
	assert(!w->fault && r->events);
	w->region = r;
	w->space = r->space;
	w->fault = r;
	w->crowded = true;
	w->admitted = false;
	w->raiser = false;
	turns_add(&r->crowd, &w->turn, w->flow);
	list_add_tail(&r->waiters, &w->of_region);
}

/* ---- events ---- */

struct fault *fault_new(struct fault_queue *q, struct odp_region *r, uintptr_t addr, unsigned pages)
{
	struct fault *f = slab_take(&q->pool);

	if (!f)
		return NULL;
	*f = (struct fault){ .addr = addr, .pages = pages, .region = r };
	list_init(&f->due);
	list_init(&f->waiters);
	list_init(&f->hash);
	if (pages)
		list_add_tail(bucket_of(q, addr), &f->hash);
	list_add_tail(&r->faults, &f->of_region);
	r->events++;
	return f;
}

struct fault *fault_find(struct fault_queue *q, uintptr_t va)
{
	list_for_each (pos, bucket_of(q, va)) {
		struct fault *f = container_of(pos, struct fault, hash);
		uintptr_t first = f->addr - ((uintptr_t)f->before << ODP_PAGE_SHIFT);

		if (va >= first && va - first < (uintptr_t)(f->before + f->pages) << ODP_PAGE_SHIFT)
			return f;
	}
	return NULL;
}

bool fault_in_leaf(struct fault_queue *q, uintptr_t va)
{
	list_for_each (pos, bucket_of(q, va))
		if (container_of(pos, struct fault, hash)->addr >> LEAF_SHIFT == va >> LEAF_SHIFT)
			return true;
	return false;
}

void fault_enqueue(struct fault_queue *q, struct fault *f)
{
	turns_add(&q->line, &f->line, f->flow);
	pthread_cond_signal(&q->work);
}

struct fault *fault_dequeue(struct fault_queue *q)
{
	struct turn *t = turns_take(&q->line);

	return t ? container_of(t, struct fault, line) : NULL;
}

void fault_put_off(struct fault_queue *q, struct fault *f)
{
	struct list *after = q->due.prev;

	/* Nearly always the last, since all take as long. */
	while (after != &q->due && container_of(after, struct fault, due)->due_ns > f->due_ns)
		after = after->prev;
	list_add_head(after, &f->due);
}

struct fault *fault_due(struct fault_queue *q, uint64_t now)
{
	if (fault_due_at(q) > now || list_empty(&q->due))
		return NULL;
	return container_of(list_pop(&q->due), struct fault, due);
}

uint64_t fault_due_at(const struct fault_queue *q)
{
	return list_empty(&q->due) ? UINT64_MAX : list_first(&q->due, struct fault, due)->due_ns;
}

/* ---- waiters ---- */

void fault_join(struct fault *f, struct odp_region *r, struct odp_waiter *w, bool raiser)
{
	assert(!w->fault);
	w->region = r;
	w->space = r->space;
	w->fault = f;
	w->major = f->major;
	w->raiser = raiser;
	w->admitted = false;
	if (raiser)
		list_add_head(&f->waiters, &w->node);
	else
		list_add_tail(&f->waiters, &w->node);
	list_add_tail(&r->waiters, &w->of_region);
}

void fault_leave(struct odp_waiter *w)
{
	if (w->crowded && w->turn.in)
		turns_remove(&w->turn);
	else if (!w->crowded)
		list_del(&w->node);
	list_del(&w->of_region);
	w->crowded = false;
	w->fault = NULL;
}

void fault_forget(struct odp_waiter *w)
{
	w->raised_ns = w->resolved_ns = 0;
	w->high = 0;
	w->forced = 0;
	w->admitted = false;
}

/* A waiter that is on no event any more and has yet to be told: nobody but the teller touches it. */
static void move_to_told(struct odp_waiter *w, int result, struct list *told)
{
	fault_leave(w);
	list_init(&w->node);
	w->result = result;
	list_add_tail(told, &w->node);
}

/*
 * An event has ended: who waits for room is told. One for each event, so that the room is there when it comes
 * back; one more where there is much of it, since not everybody who is told uses it; all when nobody would be
 * left to tell them later.
 */
static void invite(struct odp_region *r, struct list *told)
{
	unsigned n = !r->events ? r->crowd.len : r->events < ODP_REGION_EVENTS / 2 ? 2 : 1;
	struct turn *t;

	while (n-- && (t = turns_take(&r->crowd))) {
		struct odp_waiter *w = container_of(t, struct odp_waiter, turn);

		w->admitted = true;
		move_to_told(w, 0, told);
	}
}

void fault_finish(
	struct fault_queue *q, struct fault *f, int err, bool forced, uint64_t now, struct list *told)
{
	list_for_each_safe (pos, &f->waiters) {
		struct odp_waiter *w = container_of(pos, struct odp_waiter, node);
		bool same = w->addr >> ODP_PAGE_SHIFT == f->addr >> ODP_PAGE_SHIFT;

		w->resolved_ns = now;
		w->major = f->major;
		if (same && forced)
			w->forced = ODP_FORCED;
		/*
		 * Only who raised it is refused. Who joined may have come after the populate found its
		 * obstacle, and the obstacle may be gone since; he looks for himself.
		 */
		move_to_told(w, same && w->raiser ? err : 0, told);
	}
	if (f->region) {
		f->region->events--;
		invite(f->region, told);
	}
	list_del(&f->hash);
	list_del(&f->of_region);
	slab_give(&q->pool, f);
}

void fault_tell(struct list *told)
{
	struct list *node;

	/*
	 * Taken off before it is told: from then on it is its owner's, who may free it or let it wait again.
	 */
	while ((node = list_pop(told))) {
		struct odp_waiter *w = container_of(node, struct odp_waiter, node);

		w->ready(w, w->result);
	}
}

static bool scanned(const struct odp_region *r)
{
	list_for_each (pos, &r->waiters)
		if (container_of(pos, struct odp_waiter, of_region)->scanning)
			return true;
	return false;
}

void fault_region_scanned(struct fault_queue *q, struct odp_region *r)
{
	while (scanned(r))
		lock_wait(&q->scanned, &q->lock);
}

void fault_region_end(struct odp_region *r, struct list *told)
{
	struct list *node;

	list_for_each_safe (pos, &r->waiters)
		move_to_told(container_of(pos, struct odp_waiter, of_region), -ECANCELED, told);
	while ((node = list_pop(&r->faults)))
		container_of(node, struct fault, of_region)->region = NULL;
	r->events = 0;
}

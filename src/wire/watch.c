/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/watch.h"

#include "base/clock.h"
#include "wire/channel.h"
#include "wire/meet.h"

/* A poll that finds nothing takes some 50 ns: a look every ten microseconds or so. It takes the line with the
 * index from the receiver, so it must not come with every message. */
#define POLLS_PER_LOOK 256
/* Longer than a thread that polls is busy with one thing of its own, such as copying large messages. */
#define PATIENCE_NS (100 * NSEC_PER_USEC)

void watch_init(struct watch *w)
{
	lock_init(&w->lock, LOCK_WATCH);
	list_init(&w->channels);
}

void watch_fini(struct watch *w)
{
	lock_fini(&w->lock);
}

void watch_enter(struct watch *w, struct wire_channel *c)
{
	lock_take(&w->lock);
	list_add_tail(&w->channels, &c->watched.node);
	lock_drop(&w->lock);
}

void watch_leave(struct watch *w, struct wire_channel *c)
{
	lock_take(&w->lock);
	list_del(&c->watched.node);
	lock_drop(&w->lock);
}

static void rest(struct watched *d)
{
	d->since = 0;
	atomic_store_explicit(&d->on, false, memory_order_relaxed);
}

/* A receiver that takes anything is there, however much lies in front of it. */
static void look(struct wire_channel *c, uint64_t now)
{
	struct watched *d = &c->watched;
	uint64_t consumed = atomic_load(&c->head->consumed);

	if (consumed >= atomic_load_explicit(&d->committed, memory_order_relaxed)) {
		rest(d);
	} else if (!d->since || consumed != d->consumed) {
		d->consumed = consumed;
		d->since = now;
	} else if (now - d->since >= PATIENCE_NS) {
		meet_nudge(c->sock);
		counter_add(&c->w->counters->wakes_sent, 1);
		rest(d);
	}
}

void watch_poll(struct watch *w)
{
	uint32_t turns = atomic_load_explicit(&w->turns, memory_order_relaxed) + 1;
	bool any = false;
	uint64_t now;

	atomic_store_explicit(&w->turns, turns, memory_order_relaxed);
	if (turns % POLLS_PER_LOOK || !lock_try(&w->lock))
		return;
	now = clock_ns();
	atomic_store_explicit(&w->any, false, memory_order_relaxed);
	list_for_each (node, &w->channels) {
		struct wire_channel *c = container_of(node, struct wire_channel, watched.node);

		if (atomic_load_explicit(&c->watched.on, memory_order_relaxed))
			look(c, now);
		any |= atomic_load_explicit(&c->watched.on, memory_order_relaxed);
	}
	if (any)
		atomic_store_explicit(&w->any, true, memory_order_relaxed);
	lock_drop(&w->lock);
}

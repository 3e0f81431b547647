/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/watch.h"

#include "base/clock.h"
#include "wire/channel.h"
#include "wire/meet.h"

#define POLLS_PER_LOOK                                                                                       \
	24 /* a poll that finds nothing takes 50 to 100 ns: a look every two microseconds or so */
/* Longer than a thread that polls is busy with one thing of its own, such as copying a large message. */
#define PATIENCE_NS (50 * NSEC_PER_USEC)

void watch_init(struct watch *w)
{
	pthread_mutex_init(&w->lock, NULL);
	list_init(&w->channels);
}

void watched_init(struct watched *d)
{
	list_init(&d->node);
}

/* Under the lock. The reference goes with it: the caller puts it when the lock is free. */
static void take_off(struct watch *w, struct wire_channel *c)
{
	list_del(&c->watched.node);
	atomic_store(&c->watched.on, false);
	atomic_fetch_sub_explicit(&w->n, 1, memory_order_relaxed);
}

void watch_fini(struct watch *w)
{
	struct list *node;

	for (;;) {
		pthread_mutex_lock(&w->lock);
		node = w->channels.next;
		if (node == &w->channels)
			break;
		take_off(w, container_of(node, struct wire_channel, watched.node));
		pthread_mutex_unlock(&w->lock);
		channel_put(container_of(node, struct wire_channel, watched.node));
	}
	pthread_mutex_unlock(&w->lock);
	pthread_mutex_destroy(&w->lock);
}

void watch_add(struct watch *w, struct wire_channel *c)
{
	struct watched *d = &c->watched;

	if (atomic_load_explicit(&d->on, memory_order_relaxed) || atomic_exchange(&d->on, true))
		return;
	channel_ref(c);
	pthread_mutex_lock(&w->lock);
	d->pos = atomic_load(&d->committed);
	d->since = 0;
	list_add_tail(&w->channels, &d->node);
	atomic_fetch_add_explicit(&w->n, 1, memory_order_relaxed);
	pthread_mutex_unlock(&w->lock);
}

enum verdict { KEEP, CONTENT, NUDGE };

static enum verdict look(struct wire_channel *c, uint64_t now)
{
	struct watched *d = &c->watched;
	uint64_t consumed = atomic_load(&c->head->consumed), committed;

	if (!d->since)
		d->since = now;
	if (consumed < d->pos)
		return now - d->since < PATIENCE_NS ? KEEP : NUDGE;
	/* Commits since then found the channel watched already and counted on us. */
	committed = atomic_load(&d->committed);
	if (consumed >= committed)
		return CONTENT;
	d->pos = committed;
	d->since = now;
	return KEEP;
}

/* One channel whose time has come leaves the list; its reference goes to the caller. */
static struct wire_channel *next_over(struct watch *w, uint64_t now, bool *nudge)
{
	struct wire_channel *over = NULL;

	pthread_mutex_lock(&w->lock);
	list_for_each (node, &w->channels) {
		struct wire_channel *c = container_of(node, struct wire_channel, watched.node);
		enum verdict v = look(c, now);

		if (v == KEEP)
			continue;
		*nudge = v == NUDGE;
		over = c;
		take_off(w, c);
		break;
	}
	pthread_mutex_unlock(&w->lock);
	return over;
}

void watch_poll(struct watch *w)
{
	uint32_t turns = atomic_load_explicit(&w->turns, memory_order_relaxed) + 1;
	struct wire_channel *c;
	uint64_t now;
	bool nudge;

	atomic_store_explicit(&w->turns, turns, memory_order_relaxed);
	if (turns % POLLS_PER_LOOK)
		return;
	now = clock_ns();
	while ((c = next_over(w, now, &nudge))) {
		if (nudge) {
			meet_nudge(c->sock);
			counter_add(&c->w->counters->wakes_sent, 1);
		} else if (atomic_load(&c->head->consumed) < atomic_load(&c->watched.committed)) {
			/* A commit between the look and the flag's clearing counted on us. */
			watch_add(w, c);
		}
		channel_put(c);
	}
}

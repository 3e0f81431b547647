/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/impair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "wire/channel.h"

#define MILLION	   1000000u
#define MOST_DELAY (86400 * NSEC_PER_SEC)

/* --- a channel's --- */

/* splitmix64 */
static uint64_t throw_dice(struct impair *m)
{
	uint64_t z = m->dice += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

struct impair *impair_new(
	const struct wire_impairment *cfg, uint32_t nth, struct unpin_device_counters *counters)
{
	struct impair *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->cfg = *cfg;
	m->counters = counters;
	m->dice = cfg->seed;
	m->dice = throw_dice(m) ^ nth;
	list_init(&m->line);
	list_init(&m->aside);
	list_init(&m->free);
	for (uint32_t i = 0; i < IMPAIR_HELD; i++)
		list_add_tail(&m->free, &m->held[i].node);
	return m;
}

void impair_free(struct impair *m)
{
	free(m);
}

static struct impair_packet *first(const struct list *queue)
{
	return list_empty(queue) ? NULL : container_of(queue->next, struct impair_packet, node);
}

/* Packet number goes into the ring, in front of those that are set aside and were committed before it. */
static void overtake(struct impair *m, uint64_t number)
{
	list_for_each (node, &m->aside) {
		struct impair_packet *p = container_of(node, struct impair_packet, node);

		if (p->number > number || !p->behind)
			continue;
		p->behind--;
		if (!p->overtaken)
			counter_add(&m->counters->tx_reordered, 1);
		p->overtaken = true;
	}
}

static void set_aside(struct impair *m, struct impair_packet *p, uint64_t now)
{
	p->due = now < UINT64_MAX - IMPAIR_PATIENCE_NS ? now + IMPAIR_PATIENCE_NS : UINT64_MAX;
	list_add_tail(&m->aside, &p->node);
}

static void copy(struct impair_packet *q, const struct ring_packet *p, const void *hdr, const void *payload)
{
	q->packet = *p;
	memcpy(q->hdr, hdr, p->hdrlen);
	if (p->slot == LAYOUT_NO_SLOT)
		memcpy(q->inline_data, payload, p->paylen);
}

enum impair_fate impair_commit(
	struct impair *m, const struct ring_packet *p, const void *hdr, const void *payload, uint64_t now)
{
	uint64_t loss = throw_dice(m), order = throw_dice(m);
	uint32_t behind = 0;
	struct impair_packet *q;

	m->committed++;
	if (order % MILLION < m->cfg.reorder_ppm)
		behind = 1 + (uint32_t)(order / MILLION % IMPAIR_OVERTAKERS);
	if (loss % MILLION < m->cfg.loss_ppm) {
		counter_add(&m->counters->tx_lost, 1);
		return IMPAIR_LOST;
	}
	if (!behind && !m->cfg.delay_ns) {
		overtake(m, m->committed);
		return IMPAIR_PASS;
	}
	q = first(&m->free);
	if (!q) {
		counter_add(&m->counters->tx_lost, 1);
		return IMPAIR_LOST;
	}
	list_del(&q->node);
	copy(q, p, hdr, payload);
	q->number = m->committed;
	q->behind = behind;
	q->overtaken = false;
	if (m->cfg.delay_ns) {
		counter_add(&m->counters->tx_delayed, 1);
		q->due = now + m->cfg.delay_ns;
		list_add_tail(&m->line, &q->node);
	} else {
		set_aside(m, q, now);
	}
	return IMPAIR_HELD_BACK;
}

/* One that has been overtaken enough, or set aside for long enough. */
static struct impair_packet *next_aside(struct impair *m, uint64_t now)
{
	list_for_each (node, &m->aside) {
		struct impair_packet *p = container_of(node, struct impair_packet, node);

		if (!p->behind || p->due <= now)
			return p;
	}
	return NULL;
}

struct impair_packet *impair_next(struct impair *m, uint64_t now)
{
	struct impair_packet *p = next_aside(m, now);

	while (!p) {
		p = first(&m->line);
		if (!p || p->due > now)
			return NULL;
		if (!p->behind)
			break;
		list_del(&p->node);
		set_aside(m, p, now);
		p = next_aside(m, now);
	}
	list_del(&p->node);
	overtake(m, p->number);
	return p;
}

void impair_recycle(struct impair *m, struct impair_packet *p)
{
	list_add_head(&m->free, &p->node);
}

uint64_t impair_due(const struct impair *m)
{
	const struct impair_packet *line = first(&m->line), *aside = first(&m->aside);
	uint64_t due = line ? line->due : UINT64_MAX;

	return aside && aside->due < due ? aside->due : due;
}

/* --- the wire's --- */

int fabric_init(struct fabric *f, const struct wire_impairment *cfg)
{
	f->cfg = *cfg;
	f->impaired = cfg->loss_ppm || cfg->reorder_ppm || cfg->delay_ns;
	f->timer = -1;
	lock_init(&f->lock, LOCK_FABRIC);
	list_init(&f->channels);
	atomic_init(&f->due, UINT64_MAX);
	return cfg->loss_ppm > MILLION || cfg->reorder_ppm > MILLION || cfg->delay_ns > MOST_DELAY ? -EINVAL
												   : 0;
}

void fabric_fini(struct fabric *f)
{
	lock_fini(&f->lock);
}

int fabric_enter(struct wire *w, struct wire_channel *c)
{
	struct fabric *f = &w->fabric;

	if (!f->impaired)
		return 0;
	lock_take(&f->lock);
	c->impair = impair_new(&f->cfg, f->nth, w->counters);
	if (c->impair) {
		f->nth++;
		list_add_tail(&f->channels, &c->held);
	}
	lock_drop(&f->lock);
	return c->impair ? 0 : -ENOMEM;
}

void fabric_leave(struct wire *w, struct wire_channel *c)
{
	struct fabric *f = &w->fabric;

	if (!c->impair)
		return;
	lock_take(&f->lock);
	list_del(&c->held);
	lock_drop(&f->lock);
	impair_free(c->impair);
}

/* Under the lock. */
static void set_due(struct fabric *f, uint64_t due)
{
	struct itimerspec t = { .it_value = { (time_t)(due / NSEC_PER_SEC), (long)(due % NSEC_PER_SEC) } };

	atomic_store(&f->due, due);
	if (due != UINT64_MAX)
		timerfd_settime(f->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

void fabric_schedule(struct fabric *f, uint64_t due)
{
	/* A time that has passed meanwhile belongs to a delivery that has not begun to look: it finds our
	 * packet.
	 */
	if (due >= atomic_load(&f->due))
		return;
	lock_take(&f->lock);
	if (due < atomic_load(&f->due))
		set_due(f, due);
	lock_drop(&f->lock);
}

void fabric_deliver(struct fabric *f, uint64_t now, bool all)
{
	uint64_t due = UINT64_MAX;

	if (all)
		lock_take(&f->lock);
	else if (!lock_try(&f->lock))
		return; /* another thread is at it, and looks when the next one is due */
	if (all || atomic_load(&f->due) <= now) {
		/* Whoever holds a packet back from here on waits for the lock; those before are found now. */
		atomic_store(&f->due, UINT64_MAX);
		list_for_each (node, &f->channels) {
			uint64_t next = channel_release(
				container_of(node, struct wire_channel, held), all ? UINT64_MAX : now);

			due = next < due ? next : due;
		}
		set_due(f, due);
	}
	lock_drop(&f->lock);
}

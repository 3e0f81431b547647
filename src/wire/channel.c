/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/meet.h"
#include "wire/peer.h"
#include "wire/sealed.h"

#define GROW_MOST  8u		 /* slots allocated at a time */
#define GROW_PAUSE NSEC_PER_MSEC /* between attempts when memory is short */

static void write_head(struct layout_head *h)
{
	atomic_store(&h->version, LAYOUT_VERSION);
	atomic_store(&h->ring, WIRE_RING);
	atomic_store(&h->slots, WIRE_SLOTS);
	atomic_store(&h->segment, WIRE_SEGMENT);
	atomic_store(&h->magic, LAYOUT_CHANNEL_MAGIC);
}

static int make_memory(struct wire_channel *c)
{
	int fd = sealed_make("unpin-channel", LAYOUT_BYTES, false, &c->memory);
	int err;

	if (fd < 0)
		return fd;
	err = sealed_populate(c->memory, 0, LAYOUT_FIRST_BYTES, fd);
	if (err >= 0) {
		c->keep_memfd = err;
		c->memfd = fds_add(&c->w->fds, fd);
		if (c->memfd >= 0)
			return 0;
		err = c->memfd;
		fd = -1;
	}
	sealed_unmap(c->memory, LAYOUT_BYTES);
	if (fd >= 0)
		fd_close(fd);
	return err;
}

struct wire_channel *channel_new(struct wire *w, uint32_t slot)
{
	struct wire_channel *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return NULL;
	c->w = w;
	c->slot = slot;
	c->sock = -1;
	err = make_memory(c);
	if (err == -EFBIG)
		log_warn("no other process can be reached: files may not be as large here as a channel, %zu "
			 "KiB (ulimit -f)",
			(size_t)LAYOUT_BYTES / 1024);
	if (err) {
		free(c);
		errno = -err;
		return NULL;
	}
	c->head = c->memory;
	write_head(c->head);
	ring_init(&c->ring, layout_ring(c->memory));
	c->ring_allocated = LAYOUT_FIRST_RING;
	slots_init(&c->slots);
	atomic_init(&c->refs, 1);
	list_init(&c->dropping);
	list_init(&c->hungry);
	list_init(&c->held);
	list_init(&c->waiting);
	lock_init(&c->lock, LOCK_CHANNEL);
	pthread_cond_init(&c->called, NULL);
	watch_enter(&w->watch, c);
	if (fabric_enter(w, c)) {
		channel_put(c);
		errno = ENOMEM;
		return NULL;
	}
	return c;
}

void channel_ref(struct wire_channel *c)
{
	atomic_fetch_add(&c->refs, 1);
}

void channel_put(struct wire_channel *c)
{
	if (atomic_fetch_sub(&c->refs, 1) != 1)
		return;
	watch_leave(&c->w->watch, c);
	fabric_leave(c->w, c);
	fds_close(&c->w->fds, &c->memfd);
	fds_close(&c->w->fds, &c->sock);
	doorbell_close(&c->bell);
	sealed_unmap(c->memory, LAYOUT_BYTES);
	pthread_cond_destroy(&c->called);
	lock_fini(&c->lock);
	free(c);
}

enum channel_state channel_set_state(struct wire_channel *c, enum channel_state state)
{
	enum channel_state was;

	lock_take(&c->lock);
	was = c->state;
	c->state = state;
	lock_drop(&c->lock);
	return was;
}

static void ring_receiver(struct wire_channel *c)
{
	meet_ring(c->sock);
	counter_add(&c->w->counters->wakes_sent, 1);
}

void channel_opened(struct wire_channel *c, struct doorbell *bell)
{
	bool due;

	lock_take(&c->lock);
	c->bell.page = bell->page;
	atomic_store(&c->lossy, bell->lossy);
	atomic_store(&c->lossy_news, bell->lossy);
	c->state = CHANNEL_OPEN;
	/* Packets committed before did not know the door. */
	due = c->ring.pos && doorbell_due(&c->bell);
	lock_drop(&c->lock);
	if (due)
		ring_receiver(c);
}

/* The receiver's index is impossible: nothing more is sent, and the engine throws it out. */
static void channel_break(struct wire_channel *c)
{
	c->state = CHANNEL_DEAD;
	atomic_store(&c->broken, true);
	atomic_store(&c->w->broken, true);
	wire_kick(c->w);
}

static void collect(struct wire_channel *c)
{
	slots_collect(&c->slots, c->head->released);
	if (ring_refresh(&c->ring, atomic_load(&c->head->consumed)))
		channel_break(c);
}

/* More slots get memory, a few at first. */
static int grow_slots(struct wire_channel *c)
{
	uint32_t n = c->slots.allocated < GROW_MOST ? c->slots.allocated : GROW_MOST;
	size_t offset = LAYOUT_SLOT_OFFSET + (size_t)c->slots.allocated * WIRE_SEGMENT;

	if (!n)
		n = 1;
	if (n > WIRE_SLOTS - c->slots.allocated)
		n = WIRE_SLOTS - c->slots.allocated;
	if (c->grow_at && clock_ns() < c->grow_at)
		return -ENOMEM;
	if (sealed_populate(c->memory, offset, (size_t)n * WIRE_SEGMENT, c->memfd) < 0) {
		c->grow_at = clock_ns() + GROW_PAUSE;
		return -ENOMEM;
	}
	c->grow_at = 0;
	slots_allocated(&c->slots, n);
	return 0;
}

static int grow_ring(struct wire_channel *c)
{
	if (sealed_populate(
		    c->memory, LAYOUT_FIRST_BYTES, LAYOUT_SLOT_OFFSET - LAYOUT_FIRST_BYTES, c->memfd) < 0)
		return -ENOMEM;
	c->ring_allocated = WIRE_RING;
	return 0;
}

static int find_slot(struct wire_channel *c, struct wire_flow *f, struct wire_tx *tx)
{
	if (!c->slots.nfree || !slots_allowed(&c->slots, f->held, f->response))
		slots_collect(&c->slots, c->head->released);
	if (!slots_allowed(&c->slots, f->held, f->response))
		return -EAGAIN;
	/* Without memory for one more, those in use will come back; if there are none, nothing will. */
	if (!c->slots.nfree && (c->slots.allocated == WIRE_SLOTS || grow_slots(c)))
		return c->slots.used ? -EAGAIN : -ENOMEM;
	tx->slot = slots_take(&c->slots, f);
	tx->payload = layout_slot(c->memory, tx->slot);
	return 0;
}

static int find_place(struct wire_channel *c, struct wire_flow *f, struct wire_tx *tx)
{
	int err = 0;

	if (!ring_room(&c->ring) && ring_refresh(&c->ring, atomic_load(&c->head->consumed)))
		channel_break(c);
	if (c->state == CHANNEL_DEAD)
		return -EPIPE;
	if (!ring_room(&c->ring))
		return -EAGAIN;
	if (c->ring.pos + c->ring.reserved >= c->ring_allocated && c->ring_allocated < WIRE_RING)
		err = grow_ring(c);
	if (!err && f->wants_slot)
		err = find_slot(c, f, tx);
	if (!err)
		c->ring.reserved++;
	return err;
}

/* The channel's waiting list has become empty, or is not so any more. */
static void set_hungry(struct wire_channel *c, bool hungry)
{
	struct wire *w = c->w;

	lock_take(&w->hungry_lock);
	if (hungry && !list_linked(&c->hungry)) {
		list_add_tail(&w->hungry, &c->hungry);
		atomic_fetch_add(&w->nhungry, 1);
	} else if (!hungry && list_linked(&c->hungry)) {
		list_del(&c->hungry);
		atomic_fetch_sub(&w->nhungry, 1);
	}
	lock_drop(&w->hungry_lock);
	/* Sequentially consistent: the receiver gives credit and reads this, we write this and look for
	 * credit. */
	atomic_store(&c->head->want, hungry);
}

static void wait_for_credit(struct wire_channel *c, struct wire_flow *f)
{
	if (!list_linked(&f->waiting))
		list_add_tail(&c->waiting, &f->waiting);
	set_hungry(c, true);
}

static void stop_waiting(struct wire_channel *c, struct wire_flow *f)
{
	if (!list_linked(&f->waiting))
		return;
	list_del(&f->waiting);
	if (list_empty(&c->waiting))
		set_hungry(c, false);
}

void wire_flow_init(struct wire_flow *f, struct wire_channel *c, void *owner)
{
	f->channel = c;
	list_init(&f->waiting);
	f->held = 0;
	f->owner = owner;
	f->response = false;
}

void wire_flow_fini(struct wire_flow *f)
{
	struct wire_channel *c = f->channel;

	lock_take(&c->lock);
	stop_waiting(c, f);
	slots_forget(&c->slots, f);
	/* A credit() call for it may be under way; from within that call the flow may end itself. */
	while (c->calling == f && !pthread_equal(c->deliverer, pthread_self()))
		lock_wait(&c->called, &c->lock);
	lock_drop(&c->lock);
}

static int reserve_locked(struct wire_channel *c, struct wire_flow *f, struct wire_tx *tx)
{
	int err;

	if (c->state == CHANNEL_ABSENT)
		return -EPIPE;
	err = find_place(c, f, tx);
	if (err == -EAGAIN) {
		wait_for_credit(c, f);
		collect(c);
		err = find_place(c, f, tx);
	}
	if (err != -EAGAIN)
		stop_waiting(c, f);
	return err;
}

/* At most once per millisecond; the only way from a packet to the tables. */
static void look_for_receiver(struct wire_channel *c)
{
	struct wire *w = c->w;
	struct peer *p;

	lock_take(&w->lock);
	p = peer_of(w, c->slot);
	if (p && p->tx == c)
		peer_seek(p, clock_ns());
	lock_drop(&w->lock);
}

int wire_reserve(struct wire_flow *f, uint32_t paylen, struct wire_tx *tx)
{
	struct wire_channel *c = f->channel;
	int err;

	if (paylen > WIRE_SEGMENT)
		return -EMSGSIZE;
	tx->paylen = paylen;
	tx->slot = LAYOUT_NO_SLOT;
	tx->payload = tx->inline_data;
	lock_take(&c->lock);
	if (c->state == CHANNEL_ABSENT) {
		lock_drop(&c->lock);
		look_for_receiver(c);
		lock_take(&c->lock);
	}
	f->wants_slot = paylen > WIRE_INLINE;
	err = reserve_locked(c, f, tx);
	lock_drop(&c->lock);
	if (err == -EAGAIN)
		counter_add(&c->w->counters->tx_no_credit, 1);
	return err;
}

/* The packet goes into the ring. */
static void publish(struct wire_channel *c, const struct ring_packet *p, const void *hdr, const void *payload)
{
	ring_put(&c->ring, p, hdr, payload);
	if (p->slot != LAYOUT_NO_SLOT)
		slots_sent(&c->slots, p->slot);
	atomic_store_explicit(&c->watched.committed, c->ring.pos, memory_order_relaxed);
}

/* What was reserved for a packet that will not be sent. */
static void give_back(struct wire_channel *c, uint32_t slot)
{
	c->ring.reserved--;
	if (slot != LAYOUT_NO_SLOT)
		slots_give(&c->slots, slot);
}

static uint64_t release_locked(struct wire_channel *c, uint64_t now)
{
	struct impair_packet *q;

	while ((q = impair_next(c->impair, now))) {
		if (c->state == CHANNEL_DEAD)
			give_back(c, q->packet.slot);
		else
			publish(c, &q->packet, q->hdr, q->inline_data);
		impair_recycle(c->impair, q);
	}
	return impair_due(c->impair);
}

/* What the receiver has to be told after packets up to here were published; under the lock. */
enum news { NEWS_NONE, NEWS_WATCH, NEWS_RING };

static enum news news_of(struct wire_channel *c)
{
	if (doorbell_due(&c->bell))
		return NEWS_RING;
	return c->state == CHANNEL_OPEN ? NEWS_WATCH : NEWS_NONE;
}

static void tell(struct wire_channel *c, enum news news)
{
	if (news == NEWS_RING)
		ring_receiver(c);
	else if (news == NEWS_WATCH)
		watch_set(&c->w->watch, &c->watched);
}

uint64_t channel_release(struct wire_channel *c, uint64_t now)
{
	enum news news = NEWS_NONE;
	uint64_t pos, due;

	lock_take(&c->lock);
	pos = c->ring.pos;
	due = release_locked(c, now);
	if (c->ring.pos != pos)
		news = news_of(c);
	lock_drop(&c->lock);
	tell(c, news);
	return due;
}

static void commit_impaired(
	struct wire_channel *c, const struct ring_packet *p, const void *hdr, const void *payload)
{
	uint64_t now = clock_ns(), pos, due;
	enum news news = NEWS_NONE;
	enum impair_fate fate;
	bool credit;

	lock_take(&c->lock);
	pos = c->ring.pos;
	fate = impair_commit(c->impair, p, hdr, payload, now);
	if (fate == IMPAIR_LOST)
		give_back(c, p->slot);
	else if (fate == IMPAIR_PASS)
		publish(c, p, hdr, payload);
	due = release_locked(c, now);
	if (c->ring.pos != pos)
		news = news_of(c);
	credit = fate == IMPAIR_LOST && !list_empty(&c->waiting);
	lock_drop(&c->lock);
	tell(c, news);
	fabric_schedule(&c->w->fabric, due);
	/* Credit that no peer will announce. */
	if (credit)
		wire_kick(c->w);
}

void wire_commit(struct wire_flow *f, struct wire_tx *tx, uint32_t src_qpn, uint32_t dest_qpn,
	const void *hdr, uint32_t hdrlen)
{
	struct wire_channel *c = f->channel;
	struct ring_packet p = { .src_qpn = src_qpn,
		.dest_qpn = dest_qpn,
		.hdrlen = hdrlen,
		.paylen = tx->paylen,
		.slot = tx->slot };
	enum news news;

	if (__builtin_expect(c->impair != NULL, 0)) {
		commit_impaired(c, &p, hdr, tx->payload);
		return;
	}
	lock_take(&c->lock);
	publish(c, &p, hdr, tx->payload);
	news = news_of(c);
	lock_drop(&c->lock);
	tell(c, news);
}

void wire_cancel(struct wire_flow *f, struct wire_tx *tx)
{
	struct wire_channel *c = f->channel;
	bool others;

	lock_take(&c->lock);
	give_back(c, tx->slot);
	others = !list_empty(&c->waiting);
	lock_drop(&c->lock);
	/* Credit that no peer will announce. */
	if (others)
		wire_kick(c->w);
}

bool wire_lossy(const struct wire_channel *c)
{
	return c->w->fabric.impaired || atomic_load(&c->lossy);
}

static bool may_try(const struct wire_channel *c, const struct wire_flow *f)
{
	if (!ring_room(&c->ring))
		return false;
	if (!f->wants_slot)
		return true;
	return slots_allowed(&c->slots, f->held, f->response) &&
	       (c->slots.nfree || (c->slots.allocated < WIRE_SLOTS && !c->grow_at));
}

static struct wire_flow *next_to_try(struct wire_channel *c, bool all)
{
	list_for_each (node, &c->waiting) {
		struct wire_flow *f = container_of(node, struct wire_flow, waiting);

		if (all || may_try(c, f))
			return f;
	}
	return NULL;
}

bool channel_has_credit(struct wire_channel *c)
{
	bool has;

	lock_take(&c->lock);
	collect(c);
	has = next_to_try(c, false) != NULL;
	lock_drop(&c->lock);
	return has;
}

bool channel_deliver(struct wire_channel *c, bool all)
{
	struct wire_flow *f;
	uint32_t turns = 0;
	bool any = false;

	lock_take(&c->lock);
	while (all && c->delivering)
		lock_wait(&c->called, &c->lock);
	if (c->delivering) {
		lock_drop(&c->lock);
		return false;
	}
	c->delivering = true;
	c->deliverer = pthread_self();
	collect(c);
	/* Those who wait now; one that comes back at once waits for the next call. */
	list_for_each (node, &c->waiting)
		turns++;
	while (turns-- && (f = next_to_try(c, all))) {
		any = true;
		stop_waiting(c, f);
		c->calling = f;
		lock_drop(&c->lock);
		c->w->ops.credit(c->w->ctx, f);
		lock_take(&c->lock);
		c->calling = NULL;
		pthread_cond_broadcast(&c->called);
	}
	c->delivering = false;
	pthread_cond_broadcast(&c->called);
	lock_drop(&c->lock);
	return any;
}

void channel_dropped(struct wire_channel *c)
{
	struct wire *w = c->w;
	uint64_t words = atomic_exchange(&c->head->drop_words, 0);

	if (atomic_exchange(&c->head->drop_any, 0) | atomic_exchange(&c->lossy_news, false))
		w->ops.dropped(w->ctx, c->slot, 0);
	for (; words; words &= words - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(words);
		uint64_t bits = atomic_exchange(&c->head->drop[i], 0);

		for (; bits; bits &= bits - 1)
			w->ops.dropped(w->ctx, c->slot,
				w->slot << WIRE_SLOT_BITS | (i * 64 + (uint32_t)__builtin_ctzll(bits)));
	}
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/inbound.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/meet.h"
#include "wire/sealed.h"

#define QUARTER (WIRE_RING / 4)

static int check_head(struct layout_head *h)
{
	return atomic_load(&h->magic) == LAYOUT_CHANNEL_MAGIC && atomic_load(&h->version) == LAYOUT_VERSION &&
			       atomic_load(&h->ring) == WIRE_RING && atomic_load(&h->slots) == WIRE_SLOTS &&
			       atomic_load(&h->segment) == WIRE_SEGMENT
		       ? 0
		       : -EPROTO;
}

int inbound_new(struct wire *w, uint32_t slot, int memfd, int doorfd, int sock, struct inbound **out)
{
	struct inbound *in = calloc(1, sizeof(*in));
	int err;

	if (!in)
		return -ENOMEM;
	err = sealed_map(memfd, LAYOUT_BYTES, true, &in->memory);
	if (err)
		goto fail;
	in->head = in->memory;
	in->desc = layout_ring(in->memory);
	err = check_head(in->head);
	if (!err)
		err = doorbell_open(&in->bell, doorfd);
	if (err)
		goto fail;
	in->w = w;
	in->slot = slot;
	in->sock = sock;
	in->limit = UINT64_MAX;
	atomic_init(&in->refs, 1);
	*out = in;
	return 0;
fail:
	sealed_unmap(in->memory, LAYOUT_BYTES);
	free(in);
	return err;
}

void inbound_put(struct inbound *in)
{
	if (atomic_fetch_sub(&in->refs, 1) != 1)
		return;
	fds_close(&in->w->fds, &in->sock);
	doorbell_close(&in->bell);
	sealed_unmap(in->memory, LAYOUT_BYTES);
	free(in);
}

static void aim(struct rx_entry *e)
{
	e->next = &e->in->desc[e->in->pos % WIRE_RING].word[0];
	e->empty = ring_sequence(e->in->pos) - 1;
}

static int make_room(struct wire *w)
{
	uint32_t room = w->rx_room ? w->rx_room * 2 : 16;
	struct rx_entry *rx;

	if (w->nrx < w->rx_room)
		return 0;
	rx = realloc(w->rx, room * sizeof(*rx));
	if (!rx)
		return -ENOMEM;
	w->rx = rx;
	w->rx_room = room;
	return 0;
}

int inbound_attach(struct inbound *in)
{
	struct wire *w = in->w;
	int err;

	lock_take(&w->rx_lock);
	err = make_room(w);
	if (!err) {
		w->rx[w->nrx].in = in;
		aim(&w->rx[w->nrx++]);
	}
	lock_drop(&w->rx_lock);
	return err;
}

static void detach(struct wire *w, struct inbound *in)
{
	for (uint32_t i = 0; i < w->nrx; i++) {
		if (w->rx[i].in == in) {
			w->rx[i] = w->rx[--w->nrx];
			return;
		}
	}
}

void inbound_end(struct inbound *in, bool drain)
{
	lock_take(&in->w->rx_lock);
	in->limit = drain ? in->pos + WIRE_RING : in->pos;
	lock_drop(&in->w->rx_lock);
}

void inbound_credit(struct inbound *in)
{
	if (!atomic_load(&in->head->want) || !doorbell_due(&in->bell))
		return;
	meet_ring(in->sock);
	counter_add(&in->w->counters->wakes_sent, 1);
}

static void set_broken(struct inbound *in)
{
	in->limit = in->pos;
	atomic_store(&in->broken, true);
	atomic_store(&in->w->broken, true);
	counter_add(&in->w->counters->rx_dropped, 1);
	wire_kick(in->w);
}

static void fill(struct wire_rx *rx, struct inbound *in, const struct ring_packet *p)
{
	rx->src_slot = in->slot;
	rx->src_qpn = p->src_qpn;
	rx->dest_qpn = p->dest_qpn;
	rx->hdrlen = p->hdrlen;
	rx->paylen = p->paylen;
	rx->slot = p->slot;
	/* Fixed sizes, which are a few moves: what lies behind the valid bytes is old and private. */
	memcpy(rx->hdr, p->bytes, WIRE_HDR);
	if (p->slot == LAYOUT_NO_SLOT) {
		memcpy(rx->inline_data, p->bytes + p->hdrlen, WIRE_INLINE);
		rx->payload = rx->inline_data;
		rx->channel = NULL;
	} else {
		rx->payload = layout_slot(in->memory, p->slot);
		rx->channel = in;
		atomic_fetch_add_explicit(&in->refs, 1, memory_order_relaxed);
	}
}

/* True: one packet was put, and another may be there. */
static bool take_one(struct wire *w, struct inbound *in)
{
	enum ring_state state = in->pos == in->limit ? RING_EMPTY : ring_peek(in->desc, in->pos);
	struct ring_packet p;
	struct wire_rx *rx;

	if (state == RING_EMPTY)
		return false;
	if (state == RING_BROKEN) {
		set_broken(in);
		return false;
	}
	rx = w->ops.get(w->ctx);
	if (!rx)
		return false;
	if (ring_get(in->desc, in->pos, in->slot, w->slot, &p)) {
		rx->hdrlen = 0;
		w->ops.put(w->ctx, rx);
		set_broken(in);
		return false;
	}
	in->pos++;
	fill(rx, in, &p);
	w->ops.put(w->ctx, rx);
	return true;
}

static int take(struct wire *w, struct inbound *in, int budget)
{
	uint64_t before = in->pos;
	int n = 0;

	while (n < budget && take_one(w, in))
		n++;
	if (!n)
		return 0;
	/* The sender reads this when it has filled the ring. One that waits has at least a quarter in front
	 * of us, so it is enough to look for it at each quarter; in between the index costs a plain store. */
	if (before / QUARTER == in->pos / QUARTER) {
		atomic_store_explicit(&in->head->consumed, in->pos, memory_order_release);
		return n;
	}
	atomic_store(&in->head->consumed, in->pos);
	inbound_credit(in);
	return n;
}

/* All that is in the ring, as far as get() allows. */
static void take_all(struct wire *w, struct inbound *in)
{
	take(w, in, (int)WIRE_RING);
	for (uint32_t i = 0; i < w->nrx; i++)
		if (w->rx[i].in == in)
			aim(&w->rx[i]);
}

bool inbound_drain(struct inbound *in)
{
	struct wire *w = in->w;
	bool empty;

	lock_take(&w->rx_lock);
	take_all(w, in);
	empty = in->pos == in->limit || ring_peek(in->desc, in->pos) != RING_FULL;
	if (empty)
		detach(w, in);
	lock_drop(&w->rx_lock);
	return empty;
}

void inbound_catch_up(struct inbound *in)
{
	struct wire *w = in->w;

	lock_take(&w->rx_lock);
	take_all(w, in);
	lock_drop(&w->rx_lock);
}

int inbound_poll_all(struct wire *w, int budget)
{
	uint32_t n = w->nrx, i = w->rx_turn < n ? w->rx_turn : 0;
	int taken = 0;

	/* The first one changes, so that buffers which run out do not run out for the same channels. */
	w->rx_turn = i + 1;
	for (uint32_t k = 0; k < n; k++, i = i + 1 < n ? i + 1 : 0) {
		struct rx_entry *e = &w->rx[i];

		if ((uint32_t)atomic_load_explicit(e->next, memory_order_relaxed) == e->empty)
			continue;
		taken += take(w, e->in, budget);
		aim(e);
	}
	return taken;
}

bool inbound_any(struct wire *w)
{
	for (uint32_t i = 0; i < w->nrx; i++) {
		struct inbound *in = w->rx[i].in;

		if (in->pos != in->limit && ring_peek(in->desc, in->pos) != RING_EMPTY)
			return true;
	}
	return false;
}

void inbound_notify_dropped(struct inbound *in, uint32_t qpn)
{
	uint32_t bit = qpn & (LAYOUT_QPS - 1);
	bool first;

	if (!qpn) {
		first = !atomic_exchange(&in->head->drop_any, 1);
	} else {
		atomic_fetch_or(&in->head->drop[bit / 64], 1ull << bit % 64);
		first = !atomic_fetch_or(&in->head->drop_words, 1ull << bit / 64);
	}
	/* Once until the sender has looked, asleep or not: it looks when its engine is woken. */
	if (!first)
		return;
	meet_ring(in->sock);
	counter_add(&in->w->counters->wakes_sent, 1);
}

void wire_release(struct wire *w, struct wire_rx *rx)
{
	struct inbound *in = rx->channel;

	if (!in)
		return;
	rx->channel = NULL;
	atomic_fetch_or(&in->head->released[rx->slot / 64], 1ull << rx->slot % 64);
	inbound_credit(in);
	inbound_put(in);
}

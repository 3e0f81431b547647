/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A party to a conversation: a wire with buffers that records what it is told. Any thread may pump it.
 * Failures in threads and children that cmocka does not watch end them by abort().
 */
#ifndef UNPIN_TESTS_WIRE_PARTY_H
#define UNPIN_TESTS_WIRE_PARTY_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "wire/shm.h"

#define PARTY_WAIT (20 * NSEC_PER_SEC) /* only ever reached by a failure */

struct party {
	struct wire *w;
	pthread_mutex_t lock;
	struct wire_rx *pool;
	struct list free;
	struct list got; /* received and not yet looked at */
	unsigned long ngot, ngone, ndead, ncredit, ndropped;
	unsigned long got_at_gone;
	uint32_t gone_slot, dropped_slot, dropped_qpn;
	struct wire_flow *credited;
	bool starve;  /* get() gives nothing */
	bool release; /* put() gives everything back at once */
	struct unpin_device_counters counters;
};

static struct wire_rx *party_get(void *ctx)
{
	struct party *p = ctx;
	struct list *node;

	pthread_mutex_lock(&p->lock);
	node = p->starve ? NULL : list_pop(&p->free);
	pthread_mutex_unlock(&p->lock);
	return node ? container_of(node, struct wire_rx, node) : NULL;
}

static void party_put(void *ctx, struct wire_rx *rx)
{
	struct party *p = ctx;

	if (rx->hdrlen && p->release)
		wire_release(p->w, rx);
	pthread_mutex_lock(&p->lock);
	p->ngot += rx->hdrlen != 0;
	list_add_tail(rx->hdrlen && !p->release ? &p->got : &p->free, &rx->node);
	pthread_mutex_unlock(&p->lock);
}

static void party_dropped(void *ctx, uint32_t peer_slot, uint32_t qpn)
{
	struct party *p = ctx;

	p->ndropped++;
	p->dropped_slot = peer_slot;
	p->dropped_qpn = qpn;
}

static void party_credit(void *ctx, struct wire_flow *f)
{
	struct party *p = ctx;

	p->ncredit++;
	p->credited = f;
}

static void party_gone(void *ctx, uint32_t peer_slot, bool dead)
{
	struct party *p = ctx;

	p->ngone++;
	p->ndead += dead;
	p->gone_slot = peer_slot;
	p->got_at_gone = p->ngot;
}

static const struct wire_ops party_ops = { party_get, party_put, party_dropped, party_credit, party_gone };

/* The device of this test program and its children: its slots are not those of a test that runs beside it,
 * which takes all there are, or the one that a dying child has just given up. */
static inline const char *party_device(void)
{
	static char name[32];

	if (!*name)
		snprintf(name, sizeof(name), "test%d", (int)getpid());
	return name;
}

static inline int party_try_open_impaired(
	struct party *p, unsigned buffers, const struct wire_impairment *impairment)
{
	struct wire_cfg cfg = { party_device(), &party_ops, p, &p->counters, *impairment };

	memset(p, 0, sizeof(*p));
	pthread_mutex_init(&p->lock, NULL);
	list_init(&p->free);
	list_init(&p->got);
	p->pool = calloc(buffers, sizeof(*p->pool));
	for (unsigned i = 0; i < buffers; i++)
		list_add_tail(&p->free, &p->pool[i].node);
	return wire_open(&cfg, &p->w);
}

static inline int party_try_open(struct party *p, unsigned buffers)
{
	return party_try_open_impaired(p, buffers, &(struct wire_impairment){ 0 });
}

static inline void party_open(struct party *p, unsigned buffers)
{
	int err = party_try_open(p, buffers);

	if (err) {
		fprintf(stderr, "wire_open: %s\n", strerror(-err));
		abort();
	}
}

/* The oldest packet that has not been looked at, or NULL. */
static inline struct wire_rx *party_next(struct party *p)
{
	struct list *node;

	pthread_mutex_lock(&p->lock);
	node = list_pop(&p->got);
	pthread_mutex_unlock(&p->lock);
	return node ? container_of(node, struct wire_rx, node) : NULL;
}

static inline void party_release(struct party *p, struct wire_rx *rx)
{
	wire_release(p->w, rx);
	pthread_mutex_lock(&p->lock);
	list_add_tail(&p->free, &rx->node);
	pthread_mutex_unlock(&p->lock);
}

static inline void party_release_all(struct party *p)
{
	struct wire_rx *rx;

	while ((rx = party_next(p)))
		party_release(p, rx);
}

static inline void party_close(struct party *p)
{
	party_release_all(p);
	wire_close(p->w);
	pthread_mutex_destroy(&p->lock);
	free(p->pool);
}

static inline void party_pump(struct party *p)
{
	wire_service(p->w, clock_ns());
	wire_poll(p->w, 64);
}

/* Pumps one or two parties until the condition holds. */
#define party_until(a, b, condition)                                                                         \
	do {                                                                                                 \
		uint64_t end_ = clock_ns() + PARTY_WAIT;                                                     \
                                                                                                             \
		while (!(condition)) {                                                                       \
			party_pump(a);                                                                       \
			if ((struct party *)(b) != (a))                                                      \
				party_pump(b);                                                               \
			if (clock_ns() > end_) {                                                             \
				fprintf(stderr, "%s:%d: never: %s\n", __FILE__, __LINE__, #condition);       \
				abort();                                                                     \
			}                                                                                    \
		}                                                                                            \
	} while (0)

static inline uint32_t party_qpn(const struct party *p, uint32_t index)
{
	return wire_slot(p->w) << WIRE_SLOT_BITS | index;
}

static inline void party_flow(struct wire_flow *f, struct party *from, uint32_t to_slot)
{
	struct wire_channel *c = wire_connect(from->w, to_slot);

	if (!c)
		abort();
	memset(f, 0, sizeof(*f));
	wire_flow_init(f, c, from);
}

static inline void party_end_flow(struct wire_flow *f)
{
	struct wire_channel *c = f->channel;

	wire_flow_fini(f);
	wire_disconnect(c);
}

/* A packet whose every byte follows from tag and length. 0 or what wire_reserve() says. */
static inline int party_send(
	struct wire_flow *f, uint32_t to_slot, uint32_t index, uint32_t paylen, uint32_t tag)
{
	struct party *from = f->owner;
	uint8_t hdr[WIRE_HDR];
	struct wire_tx tx;
	uint32_t hdrlen = 12 + tag % (WIRE_HDR - 11);
	int err = wire_reserve(f, paylen, &tx);

	if (err)
		return err;
	memset(hdr, (int)(tag * 7 & 0xff), sizeof(hdr));
	memcpy(hdr, &tag, sizeof(tag));
	for (uint32_t i = 0; i < paylen; i++)
		((uint8_t *)tx.payload)[i] = (uint8_t)(tag + i * 3);
	wire_commit(f, &tx, party_qpn(from, index), to_slot << WIRE_SLOT_BITS | index, hdr, hdrlen);
	return 0;
}

/* Is this such a packet, with this tag and length? */
static inline bool party_intact(const struct wire_rx *rx, uint32_t paylen, uint32_t tag)
{
	uint32_t hdrlen = 12 + tag % (WIRE_HDR - 11);

	if (rx->hdrlen != hdrlen || rx->paylen != paylen || memcmp(rx->hdr, &tag, sizeof(tag)))
		return false;
	for (uint32_t i = sizeof(tag); i < hdrlen; i++)
		if (rx->hdr[i] != (uint8_t)(tag * 7))
			return false;
	for (uint32_t i = 0; i < paylen; i++)
		if (((const uint8_t *)rx->payload)[i] != (uint8_t)(tag + i * 3))
			return false;
	return true;
}

static inline unsigned open_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

#endif

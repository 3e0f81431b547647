/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A queue in which flows take turns: each flow's entries leave in the order of their coming, and between two
 * entries of one flow every other flow that has one is served once. So a flow with a thousand entries delays
 * another's single one by one turn at most.
 *
 * Nothing is allocated: an entry is a part of what is queued, and a flow exists as long as it has entries
 * (its first one stands for it). Adding and taking cost the same however many flows and entries there are.
 *
 * Threads: queues that share a table are serialised by the caller.
 */
#ifndef UNPIN_ODP_TURNS_H
#define UNPIN_ODP_TURNS_H

#include "base/list.h"

#define TURN_BUCKETS 256u

/* Where the flows of any number of queues are found. */
struct turn_table {
	struct list bucket[TURN_BUCKETS]; /* turn.hash of each flow's first entry */
};

struct turns {
	struct turn_table *table;
	struct list order; /* turn.order of each flow's first entry: whose turn is next */
	unsigned len;	   /* entries */
};

struct turn {
	struct turns *in; /* the queue it is in; NULL: none */
	const void *flow; /* a flow's name; NULL is one too */
	struct list order, hash;
	struct list next; /* a ring through the flow's entries, without a head */
};

void turn_table_init(struct turn_table *table);
void turns_init(struct turns *q, struct turn_table *table);

/* The entry is in no queue; it need not be initialised. */
void turns_add(struct turns *q, struct turn *t, const void *flow);
/* The entry whose turn it is, no longer in the queue; NULL: there is none. */
struct turn *turns_take(struct turns *q);
/* Takes an entry out of the queue it is in; its flow keeps its turn. */
void turns_remove(struct turn *t);

#endif

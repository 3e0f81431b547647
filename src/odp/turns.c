/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/turns.h"

#include <stdint.h>

void turn_table_init(struct turn_table *table)
{
	for (unsigned i = 0; i < TURN_BUCKETS; i++)
		list_init(&table->bucket[i]);
}

void turns_init(struct turns *q, struct turn_table *table)
{
	q->table = table;
	list_init(&q->order);
	q->len = 0;
}

static struct list *bucket_of(struct turns *q, const void *flow)
{
	/* Both are addresses of structures: the low bits tell nothing. */
	uint64_t key = ((uint64_t)(uintptr_t)q ^ (uint64_t)(uintptr_t)flow << 16) * 0x9e3779b97f4a7c15ull;

	return &q->table->bucket[key >> 56 & (TURN_BUCKETS - 1)];
}

/* The entry that stands for the flow in this queue. */
static struct turn *first_of(struct turns *q, struct list *bucket, const void *flow)
{
	list_for_each (pos, bucket) {
		struct turn *t = container_of(pos, struct turn, hash);

		if (t->in == q && t->flow == flow)
			return t;
	}
	return NULL;
}

void turns_add(struct turns *q, struct turn *t, const void *flow)
{
	struct list *bucket = bucket_of(q, flow);
	struct turn *first = first_of(q, bucket, flow);

	t->in = q;
	t->flow = flow;
	list_init(&t->order);
	list_init(&t->hash);
	list_init(&t->next);
	q->len++;
	if (first) {
		list_add_tail(&first->next, &t->next);
		return;
	}
	list_add_tail(bucket, &t->hash);
	list_add_tail(&q->order, &t->order);
}

/* Takes it out. The flow's next entry, which stands for the flow from now on and is in no order yet, or NULL.
 */
static struct turn *unlink_first(struct turn *t)
{
	struct turn *heir = list_linked(&t->next) ? list_first(&t->next, struct turn, next) : NULL;

	if (heir)
		list_add_head(&t->hash, &heir->hash);
	list_del(&t->hash);
	list_del(&t->next);
	t->in->len--;
	t->in = NULL;
	return heir;
}

struct turn *turns_take(struct turns *q)
{
	struct list *node = list_pop(&q->order);
	struct turn *t, *heir;

	if (!node)
		return NULL;
	t = container_of(node, struct turn, order);
	heir = unlink_first(t);
	if (heir)
		list_add_tail(&q->order, &heir->order);
	return t;
}

void turns_remove(struct turn *t)
{
	struct turn *heir;

	/* Only a flow's first entry is in the order. */
	if (!list_linked(&t->order)) {
		list_del(&t->next);
		t->in->len--;
		t->in = NULL;
		return;
	}
	heir = unlink_first(t);
	if (heir)
		list_add_head(&t->order, &heir->order);
	list_del(&t->order);
}

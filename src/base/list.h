/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Intrusive doubly linked list. A head and an unlinked node both point to themselves. Not thread safe. */
#ifndef UNPIN_BASE_LIST_H
#define UNPIN_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

#define LIST_INIT(name)                                                                                      \
	{                                                                                                    \
		&(name), &(name)                                                                             \
	}
#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define list_first(head, type, member)	container_of((head)->next, type, member)
#define list_for_each(pos, head)	for (struct list *pos = (head)->next; pos != (head); pos = pos->next)
/* The body may unlink and free pos. */
#define list_for_each_safe(pos, head)                                                                        \
	for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head);                        \
		pos = pos##_next, pos##_next = pos->next)

static inline void list_init(struct list *l)
{
	l->prev = l->next = l;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

/* True if the node is on a list (it must have been initialised). */
static inline bool list_linked(const struct list *node)
{
	return node->next != node;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

static inline void list_add_head(struct list *head, struct list *node)
{
	node->prev = head;
	node->next = head->next;
	head->next->prev = node;
	head->next = node;
}

/* Unlinks the node and leaves it initialised; harmless on a node that is not linked. */
static inline void list_del(struct list *node)
{
	/* clang's analyzer does not know that the neighbours of a node are nodes, and alive. */
	node->prev->next = node->next;
	node->next->prev = node->prev; /* NOLINT(clang-analyzer-core.NullDereference) */
	list_init(node);
}

/* Unlinks and returns the first node, or NULL. */
static inline struct list *list_pop(struct list *head)
{
	struct list *node = head->next; /* NOLINT(clang-analyzer-unix.Malloc) */

	if (node == head)
		return NULL;
	list_del(node); /* NOLINT(clang-analyzer-unix.Malloc) */
	return node;
}

/* Moves all of from behind the last of head; from is empty afterwards. */
static inline void list_splice_tail(struct list *head, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = head->prev;
	head->prev->next = from->next;
	from->prev->next = head;
	head->prev = from->prev;
	list_init(from);
}

#endif

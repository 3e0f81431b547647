/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <stdlib.h>
#include <string.h>

#include "cm/conn.h"

struct action {
	struct list link;
	struct cm_action what;
};

/* Spare actions that are kept rather than freed. */
enum { KEEP_SPARES = 2 * CM_RESERVE, FIRST_HEAP = 64 };

static struct list *bucket(const struct cm *cm, struct list *table, uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ cm->config.seed) * UINT64_C(0x9e3779b97f4a7c15);

	h = (h ^ h >> 29 ^ b) * UINT64_C(0xbf58476d1ce4e5b9);
	return &table[(h ^ h >> 32) % CM_BUCKETS];
}

struct cm *cm_new(const struct cm_config *config)
{
	struct cm *cm = calloc(1, sizeof(*cm));

	if (!cm)
		return NULL;
	cm->config = *config;
	if (!cm->config.max_conns)
		cm->config.max_conns = CM_MAX_CONNS;
	cm->next_id = (uint32_t)config->seed;
	cm->next_tid = config->seed << 16 | UINT64_C(1) << 63;
	list_init(&cm->conns);
	list_init(&cm->ended);
	list_init(&cm->actions);
	list_init(&cm->spare);
	for (unsigned i = 0; i < CM_BUCKETS; i++) {
		list_init(&cm->local[i]);
		list_init(&cm->remote[i]);
		list_init(&cm->qpn[i]);
		list_init(&cm->service[i]);
	}
	return cm;
}

static void free_actions(struct list *head)
{
	struct list *l;

	while ((l = list_pop(head)))
		free(container_of(l, struct action, link));
}

void cm_free(struct cm *cm)
{
	if (!cm)
		return;
	while (!list_empty(&cm->conns))
		cm_release(cm, list_first(&cm->conns, struct cm_conn, all));
	free_actions(&cm->actions);
	free_actions(&cm->spare);
	free(cm->heap);
	free(cm);
}

/* Actions */

bool cm_reserve(struct cm *cm, unsigned n)
{
	while (cm->spares < n) {
		struct action *a = malloc(sizeof(*a));

		if (!a)
			return false;
		list_add_tail(&cm->spare, &a->link);
		cm->spares++;
	}
	return true;
}

static struct cm_action *push(struct cm *cm, enum cm_action_type type)
{
	struct list *l = list_pop(&cm->spare);
	struct action *a;

	if (!l)
		abort(); /* cm_reserve() comes before, for as many */
	a = container_of(l, struct action, link);
	cm->spares--;
	a->what.type = type;
	list_add_tail(&cm->actions, l);
	return &a->what;
}

void cm_push_send(struct cm *cm, cm_route route, const uint8_t mad[CM_MAD_BYTES])
{
	struct cm_action *a = push(cm, CM_SEND);

	a->send.route = route;
	memcpy(a->send.mad, mad, CM_MAD_BYTES);
}

struct cm_event *cm_push_event(struct cm *cm, struct cm_conn *conn, enum cm_event_type type)
{
	struct cm_event *e = conn->destroyed ? &cm->nowhere : &push(cm, CM_EVENT)->event;

	memset(e, 0, sizeof(*e));
	e->type = type;
	e->conn = conn;
	e->user = conn->user;
	return e;
}

static void put_back(struct cm *cm, struct action *a)
{
	if (cm->spares >= KEEP_SPARES) {
		free(a);
		return;
	}
	list_add_tail(&cm->spare, &a->link);
	cm->spares++;
}

void cm_drop_events(struct cm *cm, const struct cm_conn *conn)
{
	/* An action is unlinked before it is freed. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	list_for_each_safe (l, &cm->actions) {
		struct action *a = container_of(l, struct action, link);

		if (a->what.type == CM_EVENT && a->what.event.conn == conn) {
			list_del(l);
			put_back(cm, a);
		}
	}
}

struct cm_conn *cm_unseen_request(struct cm *cm, const struct cm_conn *listener)
{
	list_for_each (l, &cm->actions) {
		const struct cm_action *a = &container_of(l, struct action, link)->what;

		if (a->type == CM_EVENT && a->event.listener == listener)
			return a->event.conn;
	}
	return NULL;
}

bool cm_next_action(struct cm *cm, struct cm_action *action)
{
	struct list *l = list_pop(&cm->actions);

	if (!l)
		return false;
	*action = container_of(l, struct action, link)->what;
	put_back(cm, container_of(l, struct action, link));
	return true;
}

/* Timers: a binary heap; the earliest is heap[0]. */

static void place(struct cm *cm, unsigned at, struct cm_conn *conn)
{
	cm->heap[at] = conn;
	conn->timer = (int)at;
}

static void sift_up(struct cm *cm, unsigned at, struct cm_conn *conn)
{
	for (; at && cm->heap[(at - 1) / 2]->deadline > conn->deadline; at = (at - 1) / 2)
		place(cm, at, cm->heap[(at - 1) / 2]);
	place(cm, at, conn);
}

static void sift_down(struct cm *cm, unsigned at, struct cm_conn *conn)
{
	unsigned child;

	while ((child = 2 * at + 1) < cm->armed) {
		if (child + 1 < cm->armed && cm->heap[child + 1]->deadline < cm->heap[child]->deadline)
			child++;
		if (cm->heap[child]->deadline >= conn->deadline)
			break;
		place(cm, at, cm->heap[child]);
		at = child;
	}
	place(cm, at, conn);
}

void cm_disarm(struct cm *cm, struct cm_conn *conn)
{
	unsigned at = (unsigned)conn->timer; /* NOLINT(clang-analyzer-unix.Malloc): as above */
	struct cm_conn *last;

	if (conn->timer == CM_UNARMED)
		return;
	conn->timer = CM_UNARMED;
	last = cm->heap[--cm->armed];
	if (last == conn)
		return;
	if (at && cm->heap[(at - 1) / 2]->deadline > last->deadline)
		sift_up(cm, at, last);
	else
		sift_down(cm, at, last);
}

void cm_arm(struct cm *cm, struct cm_conn *conn, uint64_t at)
{
	cm_disarm(cm, conn);
	conn->deadline = at;
	sift_up(cm, cm->armed++, conn);
}

uint64_t cm_next_deadline(const struct cm *cm)
{
	return cm->armed ? cm->heap[0]->deadline : UINT64_MAX;
}

/* Connections */

static bool make_heap_room(struct cm *cm)
{
	unsigned room = cm->heap_room ? 2 * cm->heap_room : FIRST_HEAP;
	struct cm_conn **heap;

	if (cm->count < cm->heap_room)
		return true;
	heap = realloc(cm->heap, room * sizeof(struct cm_conn *));
	if (!heap)
		return false;
	cm->heap = heap;
	cm->heap_room = room;
	return true;
}

static bool id_in_use(struct cm *cm, uint32_t id)
{
	list_for_each (l, bucket(cm, cm->local, id, 0))
		if (container_of(l, struct cm_conn, by_local)->local_id == id)
			return true;
	return false;
}

struct cm_conn *cm_new_conn(struct cm *cm)
{
	struct cm_conn *conn;

	if (cm->count - cm->destroyed >= cm->config.max_conns || !make_heap_room(cm))
		return NULL;
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		return NULL;
	do
		conn->local_id = ++cm->next_id;
	while (!conn->local_id || id_in_use(cm, conn->local_id));
	conn->timer = CM_UNARMED;
	list_init(&conn->ended);
	list_init(&conn->by_remote);
	list_init(&conn->by_qpn);
	list_init(&conn->by_service);
	list_add_tail(&cm->conns, &conn->all);
	list_add_tail(bucket(cm, cm->local, conn->local_id, 0), &conn->by_local);
	cm->count++;
	return conn;
}

struct cm_conn *cm_create(struct cm *cm, void *user)
{
	struct cm_conn *conn = cm_new_conn(cm);

	if (conn)
		conn->user = user;
	return conn;
}

void cm_release(struct cm *cm, struct cm_conn *conn)
{
	cm_drop_events(cm, conn);
	cm_disarm(cm, conn);
	list_del(&conn->all);
	list_del(&conn->ended);
	list_del(&conn->by_local);
	list_del(&conn->by_service);
	cm_unlink_remote(conn);
	cm->count--;
	cm->destroyed -= conn->destroyed;
	free(conn);
}

struct cm_conn *cm_by_local(struct cm *cm, cm_route from, uint32_t local_id)
{
	list_for_each (l, bucket(cm, cm->local, local_id, 0)) {
		struct cm_conn *conn = container_of(l, struct cm_conn, by_local);

		if (conn->local_id == local_id)
			return conn->route == from && conn->state != CM_LISTEN && !conn->gone ? conn : NULL;
	}
	return NULL;
}

struct cm_conn *cm_by_service(struct cm *cm, uint64_t service_id)
{
	list_for_each (l, bucket(cm, cm->service, service_id, 0)) {
		struct cm_conn *conn = container_of(l, struct cm_conn, by_service);

		if (conn->service_id == service_id)
			return conn;
	}
	return NULL;
}

void cm_link_service(struct cm *cm, struct cm_conn *conn)
{
	list_add_tail(bucket(cm, cm->service, conn->service_id, 0), &conn->by_service);
}

/* A connection of a SIDR_REQ is in the table of remote ids, but has no queue pair of the peer. */
static bool is_sidr(const struct cm_conn *conn)
{
	return !list_linked(&conn->by_qpn);
}

struct cm_conn *cm_by_remote(struct cm *cm, cm_route from, bool sidr, uint64_t guid, uint32_t remote_id)
{
	list_for_each (l, bucket(cm, cm->remote, guid ^ from, remote_id)) {
		struct cm_conn *conn = container_of(l, struct cm_conn, by_remote);

		if (conn->remote_id == remote_id && conn->remote_guid == guid && conn->route == from &&
			is_sidr(conn) == sidr && !conn->gone)
			return conn;
	}
	return NULL;
}

struct cm_conn *cm_by_qpn(struct cm *cm, cm_route from, uint64_t guid, uint32_t qpn)
{
	list_for_each (l, bucket(cm, cm->qpn, guid ^ from, qpn)) {
		struct cm_conn *conn = container_of(l, struct cm_conn, by_qpn);

		if (conn->remote_qpn == qpn && conn->remote_guid == guid && conn->route == from &&
			!cm_is(conn, CM_IDLE, CM_TIMEWAIT) && !conn->destroyed && !conn->gone)
			return conn;
	}
	return NULL;
}

void cm_link_remote(struct cm *cm, struct cm_conn *conn, bool sidr)
{
	list_add_tail(
		bucket(cm, cm->remote, conn->remote_guid ^ conn->route, conn->remote_id), &conn->by_remote);
	if (!sidr)
		list_add_tail(bucket(cm, cm->qpn, conn->remote_guid ^ conn->route, conn->remote_qpn),
			&conn->by_qpn);
}

void cm_unlink_remote(struct cm_conn *conn)
{
	list_del(&conn->by_remote);
	list_del(&conn->by_qpn);
}

void cm_get_counters(const struct cm *cm, struct cm_counters *counters)
{
	*counters = cm->counters;
}

unsigned cm_count(const struct cm *cm)
{
	return cm->count;
}

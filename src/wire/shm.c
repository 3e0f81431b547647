/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/channel.h"
#include "wire/guest.h"
#include "wire/inbound.h"
#include "wire/meet.h"
#include "wire/names.h"
#include "wire/peer.h"
#include "wire/state.h"

#define EVENTS	 64
#define HURRY_NS NSEC_PER_MSEC
#define QUIET_NS (100 * NSEC_PER_MSEC)

/* For an owner that does not count. */
static struct unpin_device_counters uncounted;

/* --- opening and closing --- */

/* what: the call that gave the descriptor. */
static int own(struct wire *w, int *place, const char *what, long fd)
{
	if (fd < 0)
		return log_refused(what, fd == -1 ? -errno : (int)fd);
	fd = fds_add(&w->fds, (int)fd);
	if (fd < 0)
		return (int)fd;
	*place = (int)fd;
	return 0;
}

static int watch_own(struct wire *w, int fd, struct source *s, enum source_kind kind)
{
	struct epoll_event e = { .events = EPOLLIN, .data.ptr = s };

	*s = (struct source){ kind, w };
	return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

/* By either call: a filter may refuse one of them. */
static int look_at_events(int epoll, struct epoll_event *e)
{
	struct timespec zero = { 0, 0 };
	int n = (int)syscall(SYS_epoll_pwait, epoll, e, EVENTS, 0, NULL, 0);

	return n >= 0 || errno == EINTR ? n
					: (int)syscall(SYS_epoll_pwait2, epoll, e, EVENTS, &zero, NULL, 0);
}

/* The timer of an impaired fabric. */
static int open_fabric(struct wire *w)
{
	int err = own(w, &w->fabric.timer, "timerfd_create",
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));

	return err ? err : watch_own(w, w->fabric.timer, &w->on_fabric, SOURCE_FABRIC);
}

static int open_descriptors(struct wire *w)
{
	struct epoll_event e[EVENTS];
	int err, sock;

	err = own(w, &w->epoll, "epoll_create1", epoll_create1(EPOLL_CLOEXEC));
	if (!err)
		err = own(w, &w->kick, "eventfd", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!err)
		err = own(w, &w->timer, "timerfd_create",
			timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (!err)
		err = door_open(&w->door, w->fabric.impaired);
	if (!err)
		err = own(w, &w->door.fd, "memfd_create", w->door.fd);
	if (err)
		return err;
	peer_take_spare(w);
	if (w->spare < 0)
		return -EMFILE;
	/* Without it nothing would ever be heard of a peer. */
	if (look_at_events(w->epoll, e) < 0 && errno != EINTR)
		return log_refused("epoll_pwait", -errno);
	err = meet_rehearse();
	if (err)
		return err;
	sock = names_listen(w->euid, w->device, &w->slot);
	if (sock < 0)
		return sock;
	err = own(w, &w->listener, "socket", sock);
	if (!err)
		err = watch_own(w, w->listener, &w->on_listener, SOURCE_LISTENER);
	if (!err)
		err = watch_own(w, w->kick, &w->on_kick, SOURCE_KICK);
	if (!err)
		err = watch_own(w, w->timer, &w->on_timer, SOURCE_TIMER);
	if (!err && w->fabric.impaired)
		err = open_fabric(w);
	return err;
}

static void destroy(struct wire *w)
{
	fds_close(&w->fds, &w->listener);
	fds_close(&w->fds, &w->door.fd);
	fds_close(&w->fds, &w->spare);
	fds_close(&w->fds, &w->fabric.timer);
	fds_close(&w->fds, &w->timer);
	fds_close(&w->fds, &w->kick);
	fds_close(&w->fds, &w->epoll);
	door_close(&w->door);
	fds_fini(&w->fds);
	fabric_fini(&w->fabric);
	watch_fini(&w->watch);
	lock_fini(&w->hungry_lock);
	lock_fini(&w->rx_lock);
	lock_fini(&w->lock);
	free(w->rx);
	free(w);
}

int wire_open(const struct wire_cfg *cfg, struct wire **out)
{
	struct wire *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->ops = *cfg->ops;
	w->ctx = cfg->ctx;
	w->counters = cfg->counters ? cfg->counters : &uncounted;
	w->euid = geteuid();
	w->vague_user = names_user_is_vague(w->euid);
	w->listener = w->epoll = w->kick = w->timer = w->spare = w->door.fd = -1;
	list_init(&w->guests);
	list_init(&w->dead_guests);
	list_init(&w->ending);
	list_init(&w->dropping);
	list_init(&w->hungry);
	lock_init(&w->lock, LOCK_WIRE);
	lock_init(&w->rx_lock, LOCK_WIRE_RX);
	lock_init(&w->hungry_lock, LOCK_HUNGRY);
	watch_init(&w->watch);
	err = fabric_init(&w->fabric, &cfg->impairment);
	if (!err)
		err = fds_init(&w->fds);
	if (!err && snprintf(w->device, sizeof(w->device), "%s", cfg->device) >= (int)sizeof(w->device))
		err = -ENAMETOOLONG;
	if (!err)
		err = open_descriptors(w);
	if (err) {
		destroy(w);
		return err;
	}
	*out = w;
	return 0;
}

void wire_close(struct wire *w)
{
	/* What is under way arrives: a fabric goes on when its sender leaves. */
	fabric_deliver(&w->fabric, 0, true);
	lock_take(&w->lock);
	guest_stop_listening(w);
	guest_close_all(w);
	peer_close_all(w);
	lock_drop(&w->lock);
	destroy(w);
}

void wire_abandon(struct wire *w)
{
	fds_abandon(&w->fds);
}

uint32_t wire_slot(const struct wire *w)
{
	return w->slot;
}

int wire_fd(const struct wire *w)
{
	return w->epoll;
}

/* --- channels --- */

/* Under the wire's lock. */
static void disconnect(struct wire_channel *c)
{
	struct peer *p = peer_of(c->w, c->slot);

	c->users--;
	if (!c->users && p && p->tx == c) {
		peer_unused(p);
	} else if (!c->users && p && p->heir == c) {
		p->heir = NULL;
		channel_put(c);
	}
	channel_put(c);
}

struct wire_channel *wire_connect(struct wire *w, uint32_t slot)
{
	struct wire_channel *c = NULL, **at;
	struct peer *p;

	if (!slot || slot >= LAYOUT_QPS) {
		errno = EINVAL;
		return NULL;
	}
	lock_take(&w->lock);
	p = peer_of(w, slot);
	if (p && p->never) {
		lock_drop(&w->lock);
		errno = EHOSTUNREACH;
		return NULL;
	}
	at = !p ? NULL : p->ending ? &p->heir : &p->tx;
	if (!at || !*at) {
		c = channel_new(w, slot);
		if (c && !at && (p = peer_new(w, slot)))
			at = &p->tx;
		if (c && at)
			*at = c;
		else if (c)
			channel_put(c);
	}
	c = at ? *at : NULL;
	if (c) {
		c->users++;
		channel_ref(c);
		if (!p->ending)
			peer_seek(p, clock_ns());
		if (p->never) {
			disconnect(c);
			c = NULL;
			errno = EHOSTUNREACH;
		}
	}
	lock_drop(&w->lock);
	return c;
}

void wire_disconnect(struct wire_channel *c)
{
	struct wire *w = c->w;

	lock_take(&w->lock);
	disconnect(c);
	lock_drop(&w->lock);
}

/* --- receiving --- */

/* The channels with waiting flows, in turn; NULL: there is none. The caller puts the reference. */
static struct wire_channel *next_hungry(struct wire *w)
{
	struct wire_channel *c = NULL;
	struct list *node;

	lock_take(&w->hungry_lock);
	node = list_pop(&w->hungry);
	if (node) {
		list_add_tail(&w->hungry, node);
		c = container_of(node, struct wire_channel, hungry);
		/* Its flows hold a reference while it is on the list, so this is not the first. */
		channel_ref(c);
	}
	lock_drop(&w->hungry_lock);
	return c;
}

/* Each channel with waiting flows gets one look. */
static void give_credit(struct wire *w)
{
	struct wire_channel *c;

	for (uint32_t turns = atomic_load(&w->nhungry); turns && (c = next_hungry(w)); turns--) {
		channel_deliver(c, false);
		channel_put(c);
	}
}

/* What the impaired fabric has held back long enough. */
static void deliver_due(struct wire *w)
{
	uint64_t now = clock_ns();

	if (atomic_load(&w->fabric.due) <= now)
		fabric_deliver(&w->fabric, now, false);
}

int wire_poll(struct wire *w, int budget)
{
	int n = 0;

	if (lock_try(&w->rx_lock)) {
		n = inbound_poll_all(w, budget);
		lock_drop(&w->rx_lock);
	}
	if (atomic_load_explicit(&w->nhungry, memory_order_relaxed))
		give_credit(w);
	if (atomic_load_explicit(&w->watch.any, memory_order_relaxed))
		watch_poll(&w->watch);
	if (fabric_holds(&w->fabric))
		deliver_due(w);
	return n;
}

void wire_catch_up(struct wire *w, uint32_t peer_slot)
{
	struct peer *p;

	lock_take(&w->lock);
	p = peer_of(w, peer_slot);
	/* It may have called and sent, and nobody has answered yet. */
	if (!p || !p->rx) {
		guest_hear_all(w, clock_ns());
		wire_kick(w); /* what follows from it is the engine's, whose events these were */
	}
	p = peer_of(w, peer_slot);
	if (p && p->rx && !p->ending)
		inbound_catch_up(p->rx);
	lock_drop(&w->lock);
}

void wire_notify_dropped(struct wire *w, uint32_t peer_slot, uint32_t qpn)
{
	struct peer *p;

	lock_take(&w->lock);
	p = peer_of(w, peer_slot);
	if (p && p->rx && !p->ending)
		inbound_notify_dropped(p->rx, qpn);
	lock_drop(&w->lock);
}

/* --- sleeping and waking --- */

static bool credit_waits(struct wire *w)
{
	struct wire_channel *c;
	bool has = false;

	for (uint32_t turns = atomic_load(&w->nhungry); turns && !has && (c = next_hungry(w)); turns--) {
		has = channel_has_credit(c);
		channel_put(c);
	}
	return has;
}

bool wire_arm(struct wire *w)
{
	bool work;

	door_arm(&w->door);
	/* Another thread that takes packets at this moment is work too: it has not finished looking. */
	work = !lock_try(&w->rx_lock);
	if (!work) {
		work = inbound_any(w);
		lock_drop(&w->rx_lock);
	}
	work = work || credit_waits(w);
	if (work)
		door_disarm(&w->door);
	return work;
}

void wire_disarm(struct wire *w)
{
	door_disarm(&w->door);
}

bool wire_armed(const struct wire *w)
{
	return door_armed(&w->door);
}

uint32_t wire_nudges(struct wire *w)
{
	return atomic_exchange(&w->nudges, 0);
}

void wire_kick(struct wire *w)
{
	uint64_t one = 1;

	if (fd_is_ours(w->kick))
		syscall(SYS_write, w->kick, &one, sizeof(one));
}

/* --- service --- */

static void clear(int fd)
{
	uint64_t count;

	if (fd_is_ours(fd))
		syscall(SYS_read, fd, &count, sizeof(count));
}

static void on_listener(void *owner, uint64_t now)
{
	guest_accept(owner, now);
}

static void on_kick(void *owner, uint64_t now)
{
	clear(((struct wire *)owner)->kick);
}

static void on_timer(void *owner, uint64_t now)
{
	clear(((struct wire *)owner)->timer);
}

static void on_fabric(void *owner, uint64_t now)
{
	clear(((struct wire *)owner)->fabric.timer);
}

static void on_guest(void *owner, uint64_t now)
{
	guest_event(owner, now);
}

static void on_tx(void *owner, uint64_t now)
{
	peer_tx_event(owner);
}

static void on_rx(void *owner, uint64_t now)
{
	peer_rx_event(owner);
}

static void on_process(void *owner, uint64_t now)
{
	peer_process_event(owner);
}

static void (*const on_event[SOURCES])(void *owner, uint64_t now) = {
	[SOURCE_LISTENER] = on_listener,
	[SOURCE_KICK] = on_kick,
	[SOURCE_TIMER] = on_timer,
	[SOURCE_FABRIC] = on_fabric,
	[SOURCE_GUEST] = on_guest,
	[SOURCE_TX] = on_tx,
	[SOURCE_RX] = on_rx,
	[SOURCE_PROCESS] = on_process,
};

static void handle_events(struct wire *w, uint64_t now)
{
	struct epoll_event e[EVENTS];
	int n;

	/* A few rounds: whoever keeps us busy here shares with the packets. */
	for (int round = 0; round < 4; round++) {
		n = look_at_events(w->epoll, e);
		for (int i = 0; i < n; i++) {
			struct source *s = e[i].data.ptr;

			on_event[s->kind](s->owner, now);
		}
		if (n < EVENTS)
			return;
	}
}

/* Hands out drop notices, one channel at a time, without locks. */
static void tell_dropped(struct wire *w)
{
	for (;;) {
		struct wire_channel *c = NULL;
		struct list *node;

		lock_take(&w->lock);
		node = list_pop(&w->dropping);
		if (node) {
			c = container_of(node, struct wire_channel, dropping);
			channel_ref(c);
		}
		lock_drop(&w->lock);
		if (!c)
			return;
		channel_dropped(c);
		channel_put(c);
	}
}

static void tell_gone(struct wire *w, uint64_t now)
{
	struct peer *p;

	for (;;) {
		lock_take(&w->lock);
		p = peer_next_gone(w, now);
		lock_drop(&w->lock);
		if (!p)
			return;
		if (!p->unmet)
			w->ops.gone(w->ctx, p->slot, p->dead);
		if (p->tx) {
			/* Whoever still waits learns that there is nothing to wait for. */
			channel_deliver(p->tx, true);
			channel_put(p->tx);
		}
		if (p->rx)
			inbound_put(p->rx);
		peer_free(p);
	}
}

static void set_timer(struct wire *w)
{
	uint64_t ns = w->hurry ? HURRY_NS : w->nguests ? QUIET_NS : 0;
	struct itimerspec t = { .it_value = { .tv_nsec = (long)ns } };

	if (ns)
		timerfd_settime(w->timer, 0, &t, NULL);
}

void wire_service(struct wire *w, uint64_t now)
{
	lock_take(&w->lock);
	w->hurry = false;
	handle_events(w, now);
	peer_tick(w, now);
	guest_tick(w, now);
	lock_drop(&w->lock);
	deliver_due(w);
	tell_dropped(w);
	tell_gone(w, now);
	lock_take(&w->lock);
	set_timer(w);
	lock_drop(&w->lock);
}

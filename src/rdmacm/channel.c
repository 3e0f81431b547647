/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/fd.h"
#include "rdmacm/id.h"
#include "rdmacm/link.h"
#include "rdmacm/own.h"
#include "rdmacm/service.h"

#ifndef RWF_NOWAIT
#define RWF_NOWAIT 8
#endif

struct lock cm_lock = LOCK_INIT(LOCK_CM);

/* --- which descriptors are channels --------------------------------------------------------------- */

#define CHUNK_FDS 1024u
#define CHUNKS	  1024u

_Atomic int event_channel_count;

static _Atomic(_Atomic(struct event_channel *) *) table[CHUNKS];
static struct event_channel inherited; /* stands for each channel of the parent process */
static _Atomic pid_t owner;	       /* the process whose channels these are */

static _Atomic(struct event_channel *) *slot_of(int fd, bool make)
{
	_Atomic(struct event_channel *) *slots, *none = NULL;
	unsigned at = (unsigned)fd / CHUNK_FDS;

	if (fd < 0 || at >= CHUNKS)
		return NULL;
	slots = atomic_load_explicit(&table[at], memory_order_acquire);
	if (!slots && make) {
		slots = calloc(CHUNK_FDS, sizeof(*slots));
		if (!slots)
			return NULL;
		if (!atomic_compare_exchange_strong(&table[at], &none, slots)) {
			free((void *)slots);
			slots = none;
		}
	}
	return slots ? &slots[(unsigned)fd % CHUNK_FDS] : NULL;
}

static struct event_channel *look(int fd)
{
	_Atomic(struct event_channel *) *slot = slot_of(fd, false);

	return slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
}

/* Whether the calling process is a child that shares our memory (vfork): what it does to its descriptors does
 * not concern ours. */
static bool guest(void)
{
	return atomic_load(&owner) != (pid_t)syscall(SYS_getpid);
}

bool event_channel_is(int fd, bool *is_inherited)
{
	struct event_channel *c = look(fd);

	*is_inherited = c && (c == &inherited || guest());
	return c;
}

/* In a forked child: the channels stay the parent's. */
static void child(void)
{
	lock_reinit(&cm_lock, LOCK_CM);
	own_abandon();
	for (unsigned i = 0; i < CHUNKS; i++) {
		_Atomic(struct event_channel *) *slots = atomic_load(&table[i]);

		for (unsigned n = 0; slots && n < CHUNK_FDS; n++)
			if (atomic_load(&slots[n]))
				atomic_store(&slots[n], &inherited);
	}
	id_abandon();
	link_abandon();
	service_abandon();
	atomic_store(&owner, (pid_t)syscall(SYS_getpid));
}

static void begin(void)
{
	atomic_store(&owner, (pid_t)syscall(SYS_getpid));
	pthread_atfork(NULL, NULL, child);
}

static void drop(struct event_channel *c)
{
	if (--c->refs)
		return;
	while (!list_empty(&c->ids))
		id_destroy(list_first(&c->ids, struct cm_id, of_channel));
	own_close(&c->fd);
	free(c);
}

/* Under the lock. */
static int enter(int fd, struct event_channel *c)
{
	_Atomic(struct event_channel *) *slot = slot_of(fd, true);

	if (!slot)
		return -EMFILE;
	c->refs++;
	atomic_fetch_add(&event_channel_count, 1);
	atomic_store_explicit(slot, c, memory_order_release);
	return 0;
}

/* Under the lock. */
static void leave(int fd)
{
	_Atomic(struct event_channel *) *slot = slot_of(fd, false);
	struct event_channel *c = slot ? atomic_exchange(slot, NULL) : NULL;

	if (!c)
		return;
	atomic_fetch_sub(&event_channel_count, 1);
	if (c != &inherited)
		drop(c);
}

int event_channel_open(int flags)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct event_channel *c = calloc(1, sizeof(*c));
	int fd, err;

	if (!c)
		return -ENOMEM;
	pthread_once(&once, begin);
	list_init(&c->ids);
	list_init(&c->events);
	fd = (int)syscall(SYS_eventfd2, 0,
		EFD_SEMAPHORE | (flags & O_CLOEXEC ? EFD_CLOEXEC : 0) |
			(flags & O_NONBLOCK ? EFD_NONBLOCK : 0));
	err = fd < 0 ? -errno : 0;
	if (!err) {
		c->fd = own_fd((int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, FD_HIGH));
		if (c->fd < 0) /* the process's limit is lower */
			c->fd = own_fd((int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3));
		err = c->fd < 0 ? c->fd : 0;
	}
	if (!err) {
		lock_take(&cm_lock);
		leave(fd); /* somebody closed a channel in a way that we do not see */
		err = enter(fd, c);
		lock_drop(&cm_lock);
		if (err)
			own_close(&c->fd);
	}
	if (err) {
		if (fd >= 0)
			fd_close(fd);
		free(c);
		return err;
	}
	return fd;
}

void event_channel_copied(int fd, int copy)
{
	struct event_channel *c;

	if (fd == copy)
		return;
	lock_take(&cm_lock);
	leave(copy);
	c = look(fd);
	if (c == &inherited) {
		_Atomic(struct event_channel *) *slot = slot_of(copy, true);

		if (slot) {
			atomic_store(slot, c);
			atomic_fetch_add(&event_channel_count, 1);
		}
	} else if (c) {
		enter(copy, c);
	}
	lock_drop(&cm_lock);
}

void event_channel_closed(int fd)
{
	if (!look(fd) || guest())
		return;
	lock_take(&cm_lock);
	leave(fd);
	lock_drop(&cm_lock);
}

void event_channel_closed_range(unsigned first, unsigned last)
{
	const unsigned end = CHUNKS * CHUNK_FDS;

	for (unsigned fd = first; fd <= last && fd < end; fd++) {
		if (!atomic_load_explicit(&table[fd / CHUNK_FDS], memory_order_acquire))
			fd |= CHUNK_FDS - 1; /* none in this chunk */
		else
			event_channel_closed((int)fd);
	}
}

/* Whether the descriptor still is this channel's: it may have been closed by a system call of its own. */
static bool same_file(int fd, const struct event_channel *c)
{
	const int kcmp_file = 0;
	pid_t pid = (pid_t)syscall(SYS_getpid);

	return syscall(SYS_kcmp, pid, pid, kcmp_file, fd, c->fd) <= 0;
}

struct event_channel *event_channel_of(int fd)
{
	struct event_channel *c = look(fd);

	if (!c || c == &inherited)
		return NULL;
	if (same_file(fd, c))
		return c;
	leave(fd);
	return NULL;
}

struct event_channel *event_channel_get(int fd)
{
	struct event_channel *c;

	if (guest())
		return NULL;
	lock_take(&cm_lock);
	c = event_channel_of(fd);
	if (c)
		c->refs++;
	lock_drop(&cm_lock);
	return c;
}

void event_channel_put(struct event_channel *c)
{
	lock_take(&cm_lock);
	drop(c);
	lock_drop(&cm_lock);
}

/* --- events --------------------------------------------------------------------------------------- */

static void count(const struct event_channel *c)
{
	const uint64_t one = 1;

	syscall(SYS_write, c->fd, &one, sizeof(one));
}

/* Takes a count back if there is one; a count without an event only wakes somebody for nothing. */
static void uncount(const struct event_channel *c)
{
	uint64_t value;
	struct iovec io = { &value, sizeof(value) };

	syscall(SYS_preadv2, c->fd, &io, 1, -1l, -1l, RWF_NOWAIT);
}

void event_channel_post(struct event_channel *c, struct ucma_event *e)
{
	list_add_tail(&c->events, &e->node);
	count(c);
}

void event_channel_withdraw(struct event_channel *c, struct cm_id *id, struct list *out)
{
	list_for_each_safe (node, &c->events) {
		const struct ucma_event *e = container_of(node, struct ucma_event, node);

		if (e->id != id && e->request != id)
			continue;
		list_del(node);
		list_add_tail(out, node);
		uncount(c);
	}
}

void event_channel_move(struct event_channel *from, struct event_channel *to, struct cm_id *id)
{
	struct list moving = LIST_INIT(moving);
	struct list *node;

	event_channel_withdraw(from, id, &moving);
	while ((node = list_pop(&moving))) {
		struct ucma_event *e = container_of(node, struct ucma_event, node);

		if (e->request && e->request != id) {
			e->request->channel = to;
			list_del(&e->request->of_channel);
			list_add_tail(&to->ids, &e->request->of_channel);
		}
		event_channel_post(to, e);
	}
}

struct ucma_event *event_channel_first(struct event_channel *c)
{
	return list_empty(&c->events) ? NULL : list_first(&c->events, struct ucma_event, node);
}

int event_channel_wait(struct event_channel *c)
{
	uint64_t value;

	return read(c->fd, &value, sizeof(value)) < 0 ? -errno : 0;
}

void event_channel_recount(const struct event_channel *c)
{
	count(c);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "nic/event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

int nic_event_queue_init(struct nic_event_queue *q)
{
	int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);

	if (fd < 0)
		return log_refused("eventfd", -errno);
	/* The application's to poll and select() on: not moved. */
	q->fd = fd;
	fd_note(fd, false);
	lock_init(&q->lock, LOCK_EVENTS);
	pthread_cond_init(&q->acked, NULL);
	list_init(&q->events);
	return 0;
}

void nic_event_queue_fini(struct nic_event_queue *q)
{
	fd_close(q->fd);
	q->fd = -1;
	lock_fini(&q->lock);
	pthread_cond_destroy(&q->acked);
}

void nic_event_post(struct nic_event_queue *q, struct nic_event *e)
{
	const uint64_t one = 1;

	lock_take(&q->lock);
	if (!list_linked(&e->node)) {
		list_add_tail(&q->events, &e->node);
		/* Under the lock, so that the count never runs ahead of the list by more than what a reader
		 * is taking. Cannot block: the count stays far below the eventfd's limit. */
		if (fd_is_ours(q->fd))
			syscall(SYS_write, q->fd, &one, sizeof(one));
	}
	lock_drop(&q->lock);
}

static bool take_count(struct nic_event_queue *q);

/* Cancelled as it came back from read(2), which may have taken a count: libc does not tell. There have to be
 * as many as events. */
static void count_anew(void *arg)
{
	struct nic_event_queue *q = arg;
	const uint64_t one = 1;

	lock_take(&q->lock);
	while (take_count(q))
		;
	list_for_each (node, &q->events)
		syscall(SYS_write, q->fd, &one, sizeof(one));
	lock_drop(&q->lock);
}

int nic_event_get(struct nic_event_queue *q, void **cookie, int *type, struct nic_event_source **source)
{
	struct nic_event *e;
	struct list *node;
	uint64_t one;
	ssize_t n;

	for (;;) {
		pthread_cleanup_push(count_anew, q);
		/* libc's, as in libibverbs: the one place where a thread may be cancelled. */
		n = read(q->fd, &one, sizeof(one));
		pthread_cleanup_pop(0);
		if (n < 0)
			return -errno;
		lock_take(&q->lock);
		node = list_pop(&q->events);
		if (node)
			break;
		/* A count without an event: its object was destroyed in between. */
		lock_drop(&q->lock);
	}
	e = container_of(node, struct nic_event, node);
	e->source->reported++;
	*cookie = e->source->cookie;
	if (type)
		*type = e->type;
	if (source)
		*source = e->source;
	lock_drop(&q->lock);
	return 0;
}

void nic_event_ack(struct nic_event_queue *q, struct nic_event_source *source, uint32_t n)
{
	lock_take(&q->lock);
	source->acked += n;
	pthread_cond_broadcast(&q->acked);
	lock_drop(&q->lock);
}

/* Takes one count back for an event that leaves the queue unread; a reader may have taken it already and then
 * finds nothing. The descriptor's blocking mode is the application's, so the read itself says that it will
 * not wait. */
static bool take_count(struct nic_event_queue *q)
{
	uint64_t one;
	struct iovec iov = { &one, sizeof(one) };

	return syscall(SYS_preadv2, q->fd, &iov, 1L, -1L, -1L, RWF_NOWAIT) == (long)sizeof(one);
}

void nic_event_retire(
	struct nic_event_queue *q, struct nic_event_source *source, struct nic_event *events, int n)
{
	lock_take(&q->lock);
	for (int i = 0; i < n; i++) {
		if (list_linked(&events[i].node)) {
			list_del(&events[i].node);
			take_count(q);
		}
	}
	while (source->acked != source->reported)
		lock_wait(&q->acked, &q->lock);
	lock_drop(&q->lock);
}

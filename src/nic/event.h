/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A queue of events behind a pollable descriptor (an eventfd semaphore, one count per event): completion
 * channels and a context's asynchronous events. The reader may set O_NONBLOCK on the descriptor; get() then
 * returns -EAGAIN when empty. A blocking get() is interrupted by signals (-EINTR) and is a cancellation
 * point, as read(2) is; a thread that is cancelled there has taken no event.
 */
#ifndef UNPIN_NIC_EVENT_H
#define UNPIN_NIC_EVENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/lock.h"

struct nic_event_queue {
	int fd;
	struct lock lock; /* guards events and the fields of event sources below; nothing is called under
				 it but write(2) on fd */
	pthread_cond_t acked;
	struct list events;
};

/* One thing that can happen to one object; embedded in that object or allocated with it. It is queued at most
 * once at a time. */
struct nic_event {
	struct list node;
	struct nic_event_source *source;
	int type; /* enum ibv_event_type; unused on completion channels */
};

/* The object events are about. */
struct nic_event_source {
	void *cookie;	   /* the verbs object handed to the application */
	uint32_t reported; /* given out by get() */
	uint32_t acked;
};

int nic_event_queue_init(struct nic_event_queue *q);
void nic_event_queue_fini(struct nic_event_queue *q);
/* Queues the event unless it is queued already. Never blocks or allocates. */
void nic_event_post(struct nic_event_queue *q, struct nic_event *e);
/* 0 with the cookie and type; -EAGAIN (O_NONBLOCK), -EINTR, other errno of read(2). */
int nic_event_get(struct nic_event_queue *q, void **cookie, int *type, struct nic_event_source **source);
void nic_event_ack(struct nic_event_queue *q, struct nic_event_source *source, uint32_t n);
/* For destroy: takes the n events of the source off the queue, then waits until all that were given out are
 * acknowledged (ibv_destroy_cq(3), ibv_destroy_qp(3)). */
void nic_event_retire(
	struct nic_event_queue *q, struct nic_event_source *source, struct nic_event *events, int n);

#endif

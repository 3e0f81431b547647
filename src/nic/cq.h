/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Completion queues and completion channels (IBTA 11.2.8, ibv_create_cq(3), ibv_poll_cq(3),
 * ibv_req_notify_cq(3)). */
#ifndef UNPIN_NIC_CQ_H
#define UNPIN_NIC_CQ_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "nic/event.h"

struct nic_context;
struct nic_cq;

struct nic_channel {
	struct nic_context *ctx;
	struct nic_event_queue queue; /* queue.fd is the channel's fd */
	_Atomic int users;	      /* CQs on it */
};

int nic_channel_create(struct nic_context *ctx, struct nic_channel **out);
int nic_channel_destroy(struct nic_channel *ch); /* -EBUSY while a CQ uses it */

/* cqe: 1..NIC_MAX_CQE, else -EINVAL. *actual gets the capacity (>= cqe). cookie is what events name. */
int nic_cq_create(struct nic_context *ctx, int cqe, struct nic_channel *ch, void *cookie, struct nic_cq **out,
	int *actual);
/* Keeps what is in it; -EINVAL when cqe is out of range or less than what it holds. */
int nic_cq_resize(struct nic_cq *cq, int cqe, int *actual);
/* -EBUSY while a queue pair uses it; otherwise waits until its events are acknowledged. */
int nic_cq_destroy(struct nic_cq *cq);
/* Up to n completions, and drives the device's progress when there is none. Count, or negative after an
 * overrun (-EOVERFLOW) or fork. */
int nic_cq_poll(struct nic_cq *cq, int n, struct ibv_wc *wc);
int nic_cq_req_notify(struct nic_cq *cq, bool solicited_only);

/* For ibv_get_cq_event(3) and ibv_ack_cq_events(3): blocking follows the fd's O_NONBLOCK. */
int nic_channel_get_event(struct nic_channel *ch, void **cookie);
void nic_cq_ack_events(struct nic_cq *cq, unsigned n);

#endif

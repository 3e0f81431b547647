/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * An id's connection: between the id (id.h), the communication manager (src/cm), of which a process has one,
 * and the link that carries its messages (link.h). What the manager tells becomes the id's events here.
 *
 * Every function wants cm_lock held. Errors are negative errno values.
 */
#ifndef UNPIN_RDMACM_CONNECTION_H
#define UNPIN_RDMACM_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_cm.h>

struct link;
struct cm_id;

/* --- from the link -------------------------------------------------------------------------------- */

/* A message. What it leads to may destroy nothing but, with an answer of our own, its connection. */
void connection_message(struct link *l, const void *bytes, size_t length);
/* Nobody listens there. */
void connection_refused(struct link *l);
/* There is no way to the other end (a negative errno). */
void connection_unreachable(struct link *l, int why);
/* The other end is gone, and all that it had sent has been told. */
void connection_lost(struct link *l);
/* The link is closed: nothing of its route is left. */
void connection_forget(struct link *l);
/* What is due. */
void connection_tick(uint64_t now);

/* --- from the id ---------------------------------------------------------------------------------- */

/* Requests for the id's port are taken, until it says otherwise. -ENOMEM. */
int connection_listen(struct cm_id *id);
void connection_unlisten(struct cm_id *id);

/* rdma_connect(3) and so on, as the kernel's rdma_cm does them. */
int connection_connect(struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece);
/* p NULL: the active side is ready (RTU). */
int connection_accept(
	struct cm_id *id, const struct rdma_ucm_conn_param *p, const struct rdma_ucm_ece *ece, uint64_t uid);
int connection_reject(struct cm_id *id, const void *data, uint8_t len, uint8_t reason);
int connection_disconnect(struct cm_id *id);
/* The queue pair has seen the peer's first packet (IBV_EVENT_COMM_EST). */
int connection_notify(struct cm_id *id, uint32_t event);
int connection_qp_attr(const struct cm_id *id, uint32_t state, struct ib_uverbs_qp_attr *out);
/* The id is being destroyed: the peer is told as its state requires, and the link closed. */
void connection_release(struct cm_id *id);

/* In a forked child: the parent's connections are forgotten. */
void connection_abandon(void);

#endif

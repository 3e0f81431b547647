/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Reliable connected queue pairs (IBTA 11.2.5; ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3),
 * ibv_wr_post(3)). */
#ifndef UNPIN_NIC_QP_H
#define UNPIN_NIC_QP_H

#include <stdint.h>
#include <infiniband/verbs.h>

#include "ib/sq.h"

struct nic_context;
struct nic_pd;
struct nic_cq;
struct nic_qp;

struct nic_qp_init {
	struct nic_cq *send_cq, *recv_cq;
	/* Wanted; what it has (at least as much) is written back: max_inline_data is rounded up to the next
	 * NIC_INLINE_STEP, as providers round it up to what their work queue elements have room for. */
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	void *cookie; /* the verbs object that events name */
};

/* 0; -EINVAL: a cap beyond caps.h; -ENOMEM: numbers or memory. */
int nic_qp_create(struct nic_pd *pd, struct nic_qp_init *init, struct nic_qp **out);
/* Stops it, discards its completions from both CQs, waits for copies running and events unacknowledged. */
int nic_qp_destroy(struct nic_qp *qp);
uint32_t nic_qp_num(const struct nic_qp *qp);
/*
 * -EINVAL: illegal move, missing or forbidden attribute, value out of range, a path without a GRH or with a
 * source GID that the port has not; nothing is then changed. A destination that is not of this host
 * (nic/gid.h), or not there, is none: requests to it end with IBV_WC_RETRY_EXC_ERR. What a peer that is not
 * connected to this queue pair sends is dropped, and its requests end so too.
 */
int nic_qp_modify(struct nic_qp *qp, const struct ibv_qp_attr *attr, int mask);
/* 0, or -EIO in a forked child. */
int nic_qp_query(struct nic_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_cap *cap);

/*
 * Posts the list. 0, or -EINVAL (state below RTS for sends, RESET for receives; opcode, flags or inline data
 * not allowed), -ENOMEM (queue full), with *bad at the first one not posted; those before it are posted. In
 * ERR posting succeeds and the requests are flushed.
 */
int nic_qp_post_send(struct nic_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int nic_qp_post_recv(struct nic_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/*
 * The ibv_wr_* way: start locks the send queue, next gives one zeroed WQE to fill (NULL: full; the error is
 * remembered), complete posts all of them or none (returns 0 or the remembered negative errno) and unlocks;
 * abort forgets them and unlocks. fail() remembers an error for complete.
 */
void nic_wr_start(struct nic_qp *qp);
struct ib_wqe *nic_wr_next(struct nic_qp *qp);
void nic_wr_fail(struct nic_qp *qp, int err);
int nic_wr_complete(struct nic_qp *qp);
void nic_wr_abort(struct nic_qp *qp);
/* max_inline and max_sge of the send queue, for checks while building. */
uint32_t nic_qp_max_inline(const struct nic_qp *qp);
uint32_t nic_qp_max_send_sge(const struct nic_qp *qp);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two queue pairs of one device that are connected with each other, and one operation at a time between them:
 * from the first, the requester, to the second, the responder. Reliable, unreliable or datagram. One thread.
 */
#ifndef UNPIN_TOOL_DOCTOR_PAIR_H
#define UNPIN_TOOL_DOCTOR_PAIR_H

#include "tool/endpoint.h"

struct doctor_pair {
	struct endpoint *e; /* lends device, protection domain, addresses */
	enum ibv_qp_type type;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_srq *srq; /* NULL: the responder has a receive queue of its own */
	struct ibv_ah *ah;
	uint32_t largest; /* message, in bytes */
	char why[200];
};

struct doctor_buffer {
	void *addr;
	uint32_t key; /* lkey on the requester's side and for receives, else rkey */
};

struct doctor_transfer {
	enum ibv_wr_opcode opcode;
	struct doctor_buffer local,
		remote; /* remote of a SEND: where the responder receives, with its lkey */
	uint32_t length;
	uint64_t compare_add, swap;
};

/* 0; -EOPNOTSUPP: the device has no such queue pairs, or (with_srq) no shared receive queues; another
 * negative errno with a sentence in why. To be closed in every case. */
int doctor_pair_open(struct doctor_pair *p, struct endpoint *e, enum ibv_qp_type type, bool with_srq);
void doctor_pair_close(struct doctor_pair *p);

/* From post to completion, on both sides for a SEND. 0; -EIO: it completed with an error; -ETIMEDOUT after 20
 * seconds; another negative errno; then why is a sentence and the pair is to be opened anew. For datagrams
 * the receive has room for the 40 bytes of the global route header before remote.addr. */
int doctor_pair_do(struct doctor_pair *p, const struct doctor_transfer *t);

#define DOCTOR_PAIR_GRH 40

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The send queue: a ring of work queue elements of one stride, filled by the application's threads and
 * consumed by the requester and the completer.
 *
 * Four indices, counting for ever (element = index modulo size):   freed <= done <= next <= prod
 *   prod   posted; advanced by posters under the poster's lock (nic's), released to the requester
 *   next   the requester has sent (or is sending) everything below; under the queue pair's run lock
 *   done   completed (a CQE was made, or success without one); under the run lock
 *   freed  the application was told, by a CQE it polled (its own or a later one): what posters count against;
 *          atomic
 */
#ifndef UNPIN_IB_SQ_H
#define UNPIN_IB_SQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

struct ib_wqe {
	uint64_t wr_id;
	uint8_t opcode;	     /* enum ibv_wr_opcode */
	uint8_t num_sge;     /* 0 with inline data */
	uint16_t inline_len; /* bytes at ib_wqe_inline() when is_inline */
	bool is_inline;
	bool signaled;
	bool solicited;
	bool fence; /* IBV_SEND_FENCE: wait for earlier reads and atomics */
	uint32_t imm;
	uint32_t rkey;
	uint64_t remote_addr;
	uint64_t compare_add, swap;
	uint32_t length; /* of the whole message, bytes, at most 2^31; 8 for atomics */
	/* The requester's: */
	uint32_t first_psn, last_psn;
	struct ibv_sge sge[]; /* num_sge of them, or inline bytes in their place */
};

struct ib_sq {
	uint8_t *ring;
	uint32_t stride;
	uint32_t size; /* a power of two, at least max_wr */
	uint32_t max_wr, max_sge, max_inline;
	_Atomic uint32_t prod, freed;
	uint32_t next, done;
};

/* Allocates the ring; 0 or -ENOMEM. Any max may be 0. */
int ib_sq_init(struct ib_sq *sq, uint32_t max_wr, uint32_t max_sge, uint32_t max_inline);
void ib_sq_fini(struct ib_sq *sq);

static inline struct ib_wqe *ib_sq_at(const struct ib_sq *sq, uint32_t index)
{
	return (struct ib_wqe *)(sq->ring + (size_t)(index & (sq->size - 1)) * sq->stride);
}

static inline void *ib_wqe_inline(struct ib_wqe *wqe)
{
	return wqe->sge;
}

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One end of a connection for the tests of ib/: a queue pair with a send queue, receives, memory as an array,
 * and everything that nic would do to carry out steps, with checks that no step ever reaches outside of what
 * it may touch. Packets that it sends pile up in `out`; packets for it are put into `in`, one queue per lane.
 * A hook may park steps.
 *
 * Memory has addresses base .. base + size. Keys: TEST_LKEY for local use; TEST_RKEY for the peer, with the
 * rights in `rights`.
 */
#ifndef TEST_IB_ENDPOINT_H
#define TEST_IB_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ib/opcode.h"
#include "ib/qp.h"

#define TEST_LKEY 0x1111u
#define TEST_RKEY 0x2222u
#define TEST_SGES 4

struct frame {
	struct frame *next;
	struct ib_packet pkt;
	uint32_t paylen;
	uint64_t at; /* for the use of whoever carries it */
	uint8_t payload[];
};

struct frames {
	struct frame *head, **tail;
	unsigned count;
};

struct test_recv {
	uint64_t wr_id;
	struct ibv_sge sge[TEST_SGES];
	uint32_t num_sge, length;
};

struct test_wc {
	struct ib_wc wc;
	unsigned tx_before;	/* packets sent by this end before it */
	unsigned events_before; /* and events raised */
};

struct endpoint {
	struct ib_qp qp;
	struct ib_sq sq;
	struct ib_qp_attr attr;
	struct unpin_device_counters counters;
	uint8_t *mem;
	uint64_t base;
	uint32_t size;
	int rights;		 /* of TEST_RKEY */
	uint32_t hole, hole_end; /* offsets: copies there fail with -EFAULT, checks of keys do not notice */
	bool local_refused;	 /* TEST_LKEY fails */
	struct frames out, in[IB_LANES];
	struct frame *current[IB_LANES]; /* payload of the packet that the lane works on */
	struct test_recv recv[256];
	unsigned recv_head, recv_tail; /* tail: next to be taken */
	struct test_wc *wc;	       /* all completions, in order */
	unsigned wcs, wcs_max;
	enum ibv_event_type event[64];
	unsigned events;
	unsigned tx, dropped, steps, checks, atomics;
	bool (*park)(struct endpoint *e, enum ib_lane lane, const struct ib_step *step);
	/* Asked for every step with may_defer: is its memory not ready? A scatter has then written a part. */
	bool (*defer)(struct endpoint *e, const struct ib_step *step);
	unsigned deferred, rnr; /* steps for which it said so; those, and requests that found no receive */
	void (*on_wc)(struct endpoint *e, const struct ib_wc *wc);
	bool parked[IB_LANES];
	uint32_t parked_serial[IB_LANES];
	void *context;
	unsigned first; /* the lane that is asked first, then in turn */
	bool hostile;	/* the input is garbage: the peer's addresses may be anything */
};

struct test_wr {
	uint8_t opcode; /* enum ibv_wr_opcode */
	uint64_t wr_id;
	bool unsignaled, solicited, fence, is_inline;
	uint32_t local, length; /* offset in our memory */
	unsigned sges;		/* pieces that the local buffer is described in; 0: 1 */
	uint64_t remote;	/* address in the peer's memory */
	uint32_t rkey;
	uint32_t imm;
	uint64_t compare_add, swap;
};

void endpoint_init(struct endpoint *e, uint64_t base, uint32_t size, uint32_t max_wr);
void endpoint_fini(struct endpoint *e);
/* The attributes most tests want. */
struct ib_qp_attr endpoint_attr(void);
/* To that state, through those before it, with e->attr. */
void endpoint_to(struct endpoint *e, enum ibv_qp_state state, uint64_t now);
/* False: the queue is full. Counts are of WQEs whose completions were polled, which is at once. */
bool endpoint_post_send(struct endpoint *e, const struct test_wr *wr);
void endpoint_post_recv(struct endpoint *e, uint64_t wr_id, uint32_t local, uint32_t length, unsigned sges);
uint32_t endpoint_recvs(const struct endpoint *e);
/* Runs all lanes, taking packets from `in`, until nothing moves. */
void endpoint_run(struct endpoint *e, uint64_t now);
/* A packet for the endpoint; the payload is copied. */
void endpoint_give(struct endpoint *e, const struct ib_packet *pkt, const void *payload, uint32_t paylen);
/* Takes the oldest packet sent, NULL: none. The caller frees it. */
struct frame *endpoint_take(struct endpoint *e);

void frames_init(struct frames *q);
void frames_put(struct frames *q, struct frame *f);
struct frame *frames_get(struct frames *q);

/* Two ends and a wire between them that loses only what the filter says. */
struct pair {
	struct endpoint a, b;
	uint64_t now;
	bool (*filter)(struct pair *p, struct endpoint *from, struct frame *f); /* true: drop it */
	unsigned seen, limit;
	uint32_t note;
};

#define PAIR_MEM (1u << 16)

/* Both in RTS. */
void pair_init(struct pair *p);
void pair_fini(struct pair *p);
/* Moves packets and runs both until nothing moves. Time stands still. */
void pair_settle(struct pair *p);
/* Lets time pass to the next deadline of either end and settles; false: no timer runs. */
bool pair_expire(struct pair *p);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The world of the fuzzer: slots with objects that are made, used and unmade at random by one or more
 * threads.
 *
 * The lock of a slot is taken for reading by who uses its object and for writing by who makes or unmakes it,
 * and only ever tried: who does not get it does something else. So verbs meet on one object as verbs allow,
 * and a queue pair is destroyed, or reset, while its packets and completions are on their way, not during
 * another call.
 */
#ifndef UNPIN_TESTS_VERBS_FUZZ_H
#define UNPIN_TESTS_VERBS_FUZZ_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "fuzz_book.h"

enum { FUZZ_QPS = 10, FUZZ_MRS = 12, FUZZ_CQS = 4, FUZZ_BUFS = 3, FUZZ_DEAD_KEYS = 64 };
#define FUZZ_BUF   (1ul << 20)
#define FUZZ_GUARD (64ul << 10)

struct fuzz_qp {
	pthread_rwlock_t lock;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex; /* when made with all operations */
	struct life *life;
	unsigned send_cq, recv_cq;
	bool sig_all;
};

struct fuzz_mr {
	pthread_rwlock_t lock;
	struct ibv_mr *mr;
	bool guard; /* over the guard: nobody may write there */
};

struct fuzz_cq {
	pthread_rwlock_t lock;
	struct ibv_cq *cq;
};

struct fuzz {
	struct ibv_context *ctx;
	struct ibv_pd *pd[2];
	struct ibv_comp_channel *channel;
	union ibv_gid gid;
	struct fuzz_qp qp[FUZZ_QPS];
	struct fuzz_mr mr[FUZZ_MRS];
	struct fuzz_cq cq[FUZZ_CQS]; /* the last one is small and overflows */
	uint8_t *buf[FUZZ_BUFS];
	uint8_t *guard; /* registered without rights to write, and beside it what is not registered at all */
	_Atomic uint32_t dead_key[FUZZ_DEAD_KEYS]; /* of regions that are gone; 0: none yet */
	_Atomic uint32_t deaths;
};

/* Of one thread. */
struct fuzz_hand {
	struct fuzz *f;
	uint64_t rng;
};

/* A number below n, a chance of one in n. */
uint32_t fuzz_below(struct fuzz_hand *h, uint32_t n);
bool fuzz_once_in(struct fuzz_hand *h, uint32_t n);

/* One random action. */
void fuzz_step(struct fuzz_hand *h);
/* Takes what completion queues and channels hold. */
void fuzz_poll(struct fuzz_hand *h, unsigned cq);
void fuzz_take_events(struct fuzz *f);
/* Posting, good and bad (fuzz_post.c). The slot is locked. */
void fuzz_post(struct fuzz_hand *h, struct fuzz_qp *q);

void fuzz_make_cq(struct fuzz *f, unsigned i);
bool fuzz_unmake_qp(struct fuzz *f, unsigned i);
void fuzz_unmake_mr(struct fuzz *f, struct fuzz_mr *m);

#endif

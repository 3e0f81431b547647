/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Two connected queue pairs of one process, for the tests of nic/. */
#ifndef UNPIN_TESTS_NIC_PAIR_H
#define UNPIN_TESTS_NIC_PAIR_H

#include <infiniband/verbs.h>

#include "nic/cq.h"
#include "nic/device.h"
#include "nic/mr.h"
#include "nic/qp.h"

struct pair {
	struct nic_context *ctx;
	struct nic_pd *pd;
	struct nic_channel *channel;
	struct nic_cq *cq[2];
	struct nic_qp *qp[2];
};

struct pair_options {
	int max_wr;		   /* default 64 */
	int cqe;		   /* default 256 */
	int max_rd;		   /* default 4 */
	int max_dest_rd;	   /* default max_rd */
	int rnr_retry;		   /* default 7; -1 stands for 0 */
	int timeout;		   /* default 14 */
	int retry_cnt;		   /* default 7 */
	const union ibv_gid *dgid; /* default ::1 */
};

/* Fails the test when anything goes wrong. The device's name is private to the process. */
void pair_open(struct pair *p, const struct pair_options *o);
void pair_close(struct pair *p);
/* Moves one queue pair through INIT and RTR to RTS. */
void pair_connect(struct nic_qp *qp, uint32_t dest, const struct pair_options *o);

/* As ibv_query_qp(3) tells it. */
enum ibv_qp_state pair_state(struct nic_qp *qp);

/* Waits (at most ten seconds, polling) for n completions on cq[side]; fails the test when they do not come.
 */
void pair_wait(struct pair *p, int side, int n, struct ibv_wc *wc);
/* One completion, which must have the status. */
void pair_expect(struct pair *p, int side, enum ibv_wc_status status);

/* Posts on qp[side]; length 0 means no scatter/gather element. Return what the post returned. */
int pair_send(struct pair *p, int side, enum ibv_wr_opcode op, const void *addr, uint32_t len, uint32_t lkey,
	uint64_t raddr, uint32_t rkey);
int pair_recv(struct pair *p, int side, void *addr, uint32_t len, uint32_t lkey);

#define PAIR_ACCESS_ALL                                                                                      \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
/* Registers with all rights and more (IBV_ACCESS_ON_DEMAND). */
struct nic_mr *pair_reg(struct pair *p, void *addr, size_t len, int more);
uint32_t pair_key(const struct nic_mr *mr);

#endif

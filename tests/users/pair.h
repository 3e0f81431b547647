/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Two connected queue pairs, in one process (struct pair) or in two (peer_start, exchange), made with the
 * public verbs only. Everything here ends the case when it does not succeed (check.h); waits are bounded by
 * WAIT_SECONDS.
 */
#ifndef UNPIN_TESTS_USERS_PAIR_H
#define UNPIN_TESTS_USERS_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <infiniband/verbs.h>

#include "check.h"

#define WAIT_SECONDS 20
#define PAGE	     4096ul

#define LOCAL IBV_ACCESS_LOCAL_WRITE
#define REMOTE                                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ODP IBV_ACCESS_ON_DEMAND

/* Zero means the default in brackets. */
struct options {
	uint32_t send_wr;     /* [128] */
	uint32_t recv_wr;     /* [128] */
	uint32_t sge;	      /* [4] */
	uint32_t inline_data; /* [0] */
	int cqe;	      /* [512] */
	bool events;	      /* with a completion channel */
	bool sig_all;
	bool retry_set;	       /* retry_cnt, rnr_retry are meant even where they are 0 */
	uint8_t retry_cnt;     /* [7] */
	uint8_t rnr_retry;     /* [7] */
	uint8_t min_rnr_timer; /* [1] */
	uint8_t timeout;       /* [14] */
	uint8_t rd_atomic;     /* [16] */
	enum ibv_mtu mtu;      /* [1024] */
	uint8_t gid;	       /* [0], row of the GID table */
};

struct end {
	struct options opt;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint32_t psn;
};

struct address {
	uint32_t qpn, psn;
	union ibv_gid gid;
};

struct pair {
	struct end a, b;
};

/* The device of UNPIN_DEVICE, or unpin0. */
struct ibv_context *device_open(void);

void end_open(struct end *e, const struct options *opt); /* up to a queue pair in INIT */
/* The same over an open context, domain and queue: e->ctx, pd, cq are set. */
void end_make_qp(struct end *e);
struct address end_address(struct end *e);
void end_connect(struct end *e, const struct address *peer); /* to RTS */
/* The same, but an error of the move to RTR is the caller's. */
int end_try_connect(struct end *e, const struct address *peer);
/* RESET and INIT again, for the next end_connect(). */
void end_reset(struct end *e);
void end_close(struct end *e);

void pair_open(struct pair *p, const struct options *opt); /* opt may be NULL */
void pair_reconnect(struct pair *p);			   /* after an error */
void pair_close(struct pair *p);

struct ibv_mr *reg(struct end *e, void *addr, size_t length, int access);
void dereg(struct ibv_mr *mr);

/* One signaled request with one piece of memory (none when local is NULL). remote may be 0 for a SEND. wr_id
 * is length. */
void post(struct end *e, enum ibv_wr_opcode op, const struct ibv_mr *mr, void *local, size_t length,
	const void *remote, uint32_t rkey);
/* The same, but the return value of ibv_post_send(3) is the caller's. */
int try_post(struct end *e, enum ibv_wr_opcode op, const struct ibv_mr *mr, void *local, size_t length,
	const void *remote, uint32_t rkey, unsigned flags);
void post_recv(struct end *e, const struct ibv_mr *mr, void *local, size_t length);

/* The next completion. */
struct ibv_wc wait_any(struct end *e);
/* The next completion must have this status. */
struct ibv_wc wait_for(struct end *e, enum ibv_wc_status status);
/* True if a completion came within so many milliseconds. */
bool poll_for(struct end *e, struct ibv_wc *wc, int ms);

/* The state that ibv_query_qp(3) reports. */
enum ibv_qp_state state_of(struct ibv_qp *qp);

/* A process of its own that runs function(sock, arg); sock is connected to .sock of the result. Called before
 * verbs are used. */
struct peer {
	pid_t pid;
	int sock;
};
struct peer peer_start(void (*function)(int sock, void *arg), void *arg);
/* Closes the socket, waits for the process and returns its wait status. */
int peer_wait(struct peer *p);
/* ...which must be a clean exit. */
void peer_done(struct peer *p);
void tell(int sock, const void *data, size_t length);
void hear(int sock, void *data, size_t length);
/* Says a word and waits for the other's: both have come here. */
void meet(int sock);
/* Addresses both ways, connects, meets. */
void exchange(struct end *e, int sock);

/* A region of the peer. */
struct window {
	uint64_t addr;
	uint64_t length;
	uint32_t rkey;
};
struct window window_of(const struct ibv_mr *mr);

/* Counters of the exported segment of a process, by their printed name; the device's totals. */
uint64_t counter(pid_t pid, const char *name);
/* Waits until it is at least value. */
void wait_counter(pid_t pid, const char *name, uint64_t value);

/* The storm guard's state in the segment: what the present storm is for (0: there is none), and how many
 * there were. */
struct storm {
	uint32_t cause;
	uint64_t count;
};
struct storm storm_of(pid_t pid);

#endif

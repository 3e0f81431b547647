/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * One end of a connection of the bench: a device, its protection domain, one completion queue, one reliable
 * connected queue pair, and the memory it uses. Plain libibverbs, any device. One thread at a time.
 *
 * Functions return 0 or a negative errno; endpoint.why then has a sentence for the person.
 */
#ifndef UNPIN_TOOL_ENDPOINT_H
#define UNPIN_TOOL_ENDPOINT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENDPOINT_DEPTH	    256 /* work requests in each direction */
#define ENDPOINT_NAME_MAX   64
#define ENDPOINT_TIMEOUT_NS 60000000000ull /* without a completion that long, something is broken */

struct endpoint_choice {
	char device[ENDPOINT_NAME_MAX];
	uint32_t port;
	int32_t gid_index; /* -1: chosen */
	uint32_t depth;	   /* send work requests; 0: ENDPOINT_DEPTH */
};

/* What the other end must know. */
struct endpoint_address {
	uint32_t qpn, psn;
	uint32_t lid, mtu;
	uint8_t gid[16];
};

struct endpoint {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct endpoint_choice choice;
	struct endpoint_address address;
	bool has_gid;
	bool odp; /* on-demand paging with send, receive, write and read on reliable connections */
	bool odp_implicit;
	uint64_t max_mr_size;
	unsigned unacked;   /* completion events to acknowledge */
	int lifeline;	    /* a socket that hangs up when the other end's process has ended; -1: none. The
			       caller sets it after endpoint_open and keeps it open until endpoint_close. */
	uint64_t looked_ns; /* when the lifeline was last looked at */
	char why[256];
};

/* ENDPOINT_KINDS counts those that most parts compare. An implicit region is the whole address space; the
 * memory beside it is what it is used for. */
enum endpoint_kind {
	ENDPOINT_PINNED,
	ENDPOINT_ON_DEMAND,
	ENDPOINT_KINDS,
	ENDPOINT_IMPLICIT = ENDPOINT_KINDS
};

extern const char *const endpoint_kind_names[ENDPOINT_KINDS + 1]; /* "pinned", "on demand", "implicit" */

struct endpoint_region {
	void *addr;
	size_t length;
	struct ibv_mr *mr;
};

/* -ENODEV: no such device (why lists those there are); other errno from verbs. */
int endpoint_open(struct endpoint *e, const struct endpoint_choice *choice);
int endpoint_connect(struct endpoint *e, const struct endpoint_address *peer);
void endpoint_close(struct endpoint *e);

/* Fresh memory, registered. -ENOMEM with the limit on locked memory and its cure in why. */
int endpoint_region_make(
	struct endpoint *e, struct endpoint_region *r, size_t length, enum endpoint_kind kind);
/* The same over memory that the caller keeps. */
int endpoint_region_register(
	struct endpoint *e, struct endpoint_region *r, void *addr, size_t length, enum endpoint_kind kind);
void endpoint_region_release(struct endpoint_region *r); /* made ones; harmless when zeroed */
void endpoint_region_deregister(struct endpoint_region *r);

/* ibv_advise_mr(3): the pages are brought in, for writing as well or for reading only; flush: before it
 * returns. -EOPNOTSUPP from a device that has no such thing. */
int endpoint_prefetch(struct endpoint *e, const struct endpoint_region *r, size_t offset, size_t length,
	bool write, bool flush);

/* One work request. For IBV_WR_SEND remote and rkey are not used; length 0 needs no key. */
struct endpoint_op {
	enum ibv_wr_opcode opcode;
	void *local;
	uint32_t lkey, length;
	uint64_t remote;
	uint32_t rkey;
	bool unsignaled;
};

int endpoint_post(struct endpoint *e, const struct endpoint_op *op);
int endpoint_post_recv(struct endpoint *e, void *addr, uint32_t length, uint32_t lkey);

/* Takes what completed, at most max; adds to the counters. -EIO with a failed completion's meaning in why. */
struct endpoint_done {
	unsigned sends, recvs;
};
int endpoint_poll(struct endpoint *e, struct endpoint_done *done, int max);

/*
 * What a loop that waits for the other end asks now and then. 0: wait on. -EINTR: endpoint_stop is set.
 * -EPIPE: the other process has ended, which a queue pair that only waits to be written to is never told.
 * -ETIMEDOUT: ENDPOINT_TIMEOUT_NS have passed since the first call, the one with *deadline 0; missing is what
 * did not come, for e->why. It costs a system call at most every 10 ms.
 */
int endpoint_patience(struct endpoint *e, uint64_t *deadline, const char *missing);

/* Polls until that many sends and receives have completed since done was zeroed. Errors of endpoint_poll and
 * endpoint_patience. */
int endpoint_wait(struct endpoint *e, struct endpoint_done *done, unsigned sends, unsigned recvs);

/* Asks for an event and, when nothing has completed meanwhile, sleeps for it. Errors of endpoint_poll and
 * endpoint_patience. */
int endpoint_sleep(struct endpoint *e, struct endpoint_done *done);
/* Acknowledges events so far. */
void endpoint_ack(struct endpoint *e);

/* Another queue pair, connected to itself, whose requests complete on e's completion queue; to be destroyed
 * by the caller before endpoint_close. To post to it, put it in e->qp's place for that time. */
int endpoint_loop(struct endpoint *e, struct ibv_qp **out);

/* One operation from post to completion. */
int endpoint_do(struct endpoint *e, const struct endpoint_op *op);

/* Set by a signal handler: waiting functions give up. */
extern volatile int endpoint_stop;

#endif

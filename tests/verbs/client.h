/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the tests of this room share: cmocka, an open device, and objects on it. All through the public API.
 */
#ifndef UNPIN_TESTS_VERBS_CLIENT_H
#define UNPIN_TESTS_VERBS_CLIENT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdbool.h>
#include <infiniband/verbs.h>

#define CLIENT_DEPTH  16
#define CLIENT_INLINE 64
#define CLIENT_SGE    4

/* Everything that one side of a connection has. */
struct client {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex; /* when made with all operations */
	struct ibv_mr *mr;
	uint8_t *buf;
	size_t size;
};

/* Our device (UNPIN_DEVICE or unpin0), opened; the test fails when it is not listed. */
struct ibv_context *client_open(void);

/*
 * A context, domain, channel, queue of CLIENT_DEPTH * 2 and an RC queue pair; access != 0 registers size
 * bytes as well.
 */
void client_make(struct client *c, bool extended, size_t size, int access);
void client_unmake(struct client *c);

/* Through INIT, RTR and RTS with one another; both may be the same. */
void client_connect(struct client *a, struct client *b);
int client_to_init(struct client *c);

/* Polls one completion, for at most some seconds. */
struct ibv_wc client_wait(struct client *c);

#endif

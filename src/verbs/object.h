/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What stands behind each pointer that we hand out: the public structure of <infiniband/verbs.h> first,
 * exactly as programs read and write it, then ours. The layouts of the public part are the ABI.
 *
 * Whose object is it? There is one device of ours in a process and it lives in static storage, so a
 * comparison of the device pointer tells (device_is_ours). Every object leads to its context and that to its
 * device.
 */
#ifndef UNPIN_VERBS_OBJECT_H
#define UNPIN_VERBS_OBJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "ib/sq.h"
#include "nic/caps.h"
#include "nic/cq.h"
#include "nic/device.h"
#include "nic/gid.h"
#include "nic/mr.h"
#include "nic/qp.h"
#include "verbs/newer.h"

#define PORT_NUM 1 /* the only one */

/* struct ibv_device and the words that the real library's providers and the library itself read behind it. */
struct device {
	struct ibv_device ibv;
	const void *ops; /* libmlx5 and libefa compare it with tables of their own */
	_Atomic int refcount;
	void *entry[2];
	void *sysfs; /* the real ibv_import_device reads device numbers there */
	uint64_t core_support;
	uint64_t room[8];
};

/* Readable zeros for code of the real library that is handed an object of ours by a name we do not know. */
#define PRIVATE_ROOM 4096

struct context {
	struct nic_context *nic;
	void *private_room;
	struct verbs_context verbs;
};

struct pd {
	struct ibv_pd ibv;
	struct nic_pd *nic;
};

struct mr {
	struct ibv_mr ibv;
	struct nic_mr *nic;
};

struct channel {
	struct ibv_comp_channel ibv;
	struct nic_channel *nic;
};

struct cq {
	struct ibv_cq ibv;
	struct nic_cq *nic;
	_Atomic(struct nic_event_source *)
		async_source; /* of the events given out; for their acknowledgement */
};

/*
 * Programs built with newer headers call pointers behind the end of this header's ibv_qp_ex (wr_flush and
 * what follows it), so the structure is longer than it says and every pointer in it is callable.
 */
#define QP_EX_LATER 8

struct qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
		void *words[sizeof(struct ibv_qp_ex) / sizeof(void *) + QP_EX_LATER];
	};
	struct nic_qp *nic;
	bool extended; /* made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: the ibv_wr_* calls may be used */
	bool sq_sig_all;
	uint64_t send_ops;  /* IBV_QP_EX_WITH_* asked for */
	struct ib_wqe *wqe; /* being built between ibv_wr_start and the end; under nic's send queue lock */
	uint32_t max_inline, max_send_sge;
	_Atomic(struct nic_event_source *) async_source;
};

extern struct device unpin_device;

static inline bool device_is_ours(const struct ibv_device *device)
{
	return device == &unpin_device.ibv;
}

static inline bool context_is_ours(const struct ibv_context *context)
{
	return device_is_ours(context->device);
}

static inline struct context *to_context(const struct ibv_context *context)
{
	return container_of(context, struct context, verbs.context);
}

static inline struct pd *to_pd(struct ibv_pd *pd)
{
	return container_of(pd, struct pd, ibv);
}

static inline struct mr *to_mr(struct ibv_mr *mr)
{
	return container_of(mr, struct mr, ibv);
}

static inline struct channel *to_channel(struct ibv_comp_channel *channel)
{
	return container_of(channel, struct channel, ibv);
}

static inline struct cq *to_cq(struct ibv_cq *cq)
{
	return container_of(cq, struct cq, ibv);
}

static inline struct qp *to_qp(struct ibv_qp *qp)
{
	return container_of(qp, struct qp, ibv);
}

/* Of an operation's functions, only those that another file of this room calls: */

/* context.c: what ibv_open_device gives; NULL with errno. */
struct ibv_context *context_open(void);
int context_close(struct ibv_context *context); /* 0 */

/* query.c, for the tables of the context. Positive errno or 0. */
int query_device_ex(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *attr, size_t attr_size);
int query_port(struct ibv_context *context, uint8_t port_num, struct ibv_port_attr *attr, size_t attr_size);

/* mr.c */
int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sg_list,
	uint32_t num_sge);

/* cq.c */
int cq_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int cq_req_notify(struct ibv_cq *cq, int solicited_only);

/* qp.c */
int qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init);

/* wr.c: fills the pointers of qp->ex; ops the queue pair may use are in qp->send_ops. */
#define WR_SEND_OPS                                                                                          \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |              \
		IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |                                    \
		IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
void wr_attach(struct qp *qp);

#endif

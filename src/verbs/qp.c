/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Queue pairs (ibv_create_qp(3), ibv_create_qp_ex(3), ibv_modify_qp(3), ibv_query_qp(3), ibv_post_send(3)).
 */
#include <stdlib.h>
#include <string.h>

#include "verbs/object.h"
#include "verbs/real.h"

/* 0, EOPNOTSUPP for a type that other devices know, EINVAL for what is none. */
static int check_type(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return 0;
	case IBV_QPT_UC:
		return REFUSED("ibv_create_qp of type UC", EOPNOTSUPP);
	case IBV_QPT_UD:
		return REFUSED("ibv_create_qp of type UD", EOPNOTSUPP);
	case IBV_QPT_RAW_PACKET:
		return REFUSED("ibv_create_qp of type RAW_PACKET", EOPNOTSUPP);
	case IBV_QPT_XRC_SEND:
	case IBV_QPT_XRC_RECV:
		return REFUSED("ibv_create_qp of an XRC type", EOPNOTSUPP);
	case IBV_QPT_DRIVER:
		return REFUSED("ibv_create_qp of type DRIVER", EOPNOTSUPP);
	default:
		return EINVAL;
	}
}

static int check_init(struct ibv_context *context, const struct ibv_qp_init_attr_ex *init)
{
	int ret = check_type(init->qp_type);

	if (ret)
		return ret;
	if (init->srq)
		return REFUSED("ibv_create_qp with a shared receive queue", EOPNOTSUPP);
	if (!init->send_cq || init->send_cq->context != context)
		return EINVAL;
	if (!init->recv_cq || init->recv_cq->context != context)
		return EINVAL;
	return 0;
}

/* Both ways to make one. comp_mask tells which fields behind the common part the caller has. */
static struct ibv_qp *create(struct ibv_pd *pd, struct ibv_qp_init_attr_ex *init, uint32_t comp_mask)
{
	struct nic_qp_init nic_init;
	struct qp *qp;
	int ret = check_init(pd->context, init);

	if (ret)
		return NO_POINTER(ret);
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NO_POINTER(ENOMEM);
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = init->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = init->send_cq;
	qp->ibv.recv_cq = init->recv_cq;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_type = init->qp_type;
	qp->sq_sig_all = init->sq_sig_all != 0;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);

	nic_init = (struct nic_qp_init){
		.send_cq = to_cq(init->send_cq)->nic,
		.recv_cq = to_cq(init->recv_cq)->nic,
		.cap = init->cap,
		.sq_sig_all = qp->sq_sig_all,
		.cookie = &qp->ibv,
	};
	ret = nic_qp_create(to_pd(pd)->nic, &nic_init, &qp->nic);
	if (ret) {
		free(qp);
		return NO_POINTER(-ret);
	}
	init->cap = nic_init.cap;
	qp->ibv.qp_num = qp->ibv.handle = nic_qp_num(qp->nic);
	qp->max_inline = nic_qp_max_inline(qp->nic);
	qp->max_send_sge = nic_qp_max_send_sge(qp->nic);
	if (comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qp->extended = true;
		qp->send_ops = init->send_ops_flags;
	}
	wr_attach(qp);
	return &qp->ibv;
}

UNPIN_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (!context_is_ours(pd->context))
		return PASS(ibv_create_qp, NO_POINTER(EOPNOTSUPP), pd, init);
	/* The extended structure begins with this one; create() looks no further without a mask. */
	return create(pd, (struct ibv_qp_init_attr_ex *)init, 0);
}

/* Attributes that belong to other queue pair types and offloads. */
#define ATTR_UNSUPPORTED                                                                                     \
	(IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE |              \
		IBV_QP_INIT_ATTR_RX_HASH)
#define ATTR_SUPPORTED (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

struct ibv_qp *qp_create_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *init)
{
	uint32_t mask = init->comp_mask;

	if (mask & ~(uint32_t)(ATTR_SUPPORTED | ATTR_UNSUPPORTED))
		return NO_POINTER(EINVAL);
	if (mask & ATTR_UNSUPPORTED)
		return REFUSED("ibv_create_qp_ex with XRC, TSO or RSS", NO_POINTER(EOPNOTSUPP));
	if (!(mask & IBV_QP_INIT_ATTR_PD) || !init->pd || init->pd->context != context)
		return NO_POINTER(EINVAL);
	if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags)
		return REFUSED("ibv_create_qp_ex with create_flags", NO_POINTER(EOPNOTSUPP));
	if ((mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (init->send_ops_flags & ~(uint64_t)WR_SEND_OPS))
		return REFUSED("ibv_create_qp_ex with these send_ops_flags", NO_POINTER(EOPNOTSUPP));
	return create(init->pd, init, mask);
}

UNPIN_EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	if (!context_is_ours(qp->context))
		return PASS(ibv_qp_to_qp_ex, NULL, qp);
	return to_qp(qp)->extended ? &to_qp(qp)->ex : NULL;
}

/*
 * Access flags that say something of a memory region only. Programs use one set of flags for both, and
 * devices let them.
 */
#define REGION_FLAGS                                                                                         \
	(IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |                                 \
		(unsigned)IBV_ACCESS_OPTIONAL_RANGE)

/* The field that programs look at; threads that modify and query at once all write it. */
static void show_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	__atomic_store_n(&qp->state, state, __ATOMIC_RELAXED);
}

UNPIN_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask)
{
	struct ibv_qp_attr own;
	int ret;

	if (!context_is_ours(qp->context))
		return PASS(ibv_modify_qp, EOPNOTSUPP, qp, attr, attr_mask);
	if (attr_mask & IBV_QP_RATE_LIMIT)
		return EOPNOTSUPP;
	own = *attr;
	own.qp_access_flags &= ~REGION_FLAGS;
	ret = nic_qp_modify(to_qp(qp)->nic, &own, attr_mask);
	if (ret)
		return -ret;
	if (attr_mask & IBV_QP_STATE)
		show_state(qp, attr->qp_state);
	return 0;
}

/* attr_mask may limit what is asked for; everything is given, as the man page allows. */
UNPIN_EXPORT int ibv_query_qp(
	struct ibv_qp *qp, struct ibv_qp_attr *attr, int attr_mask, struct ibv_qp_init_attr *init)
{
	struct ibv_qp_cap cap;
	int ret;

	if (!context_is_ours(qp->context))
		return PASS(ibv_query_qp, EOPNOTSUPP, qp, attr, attr_mask, init);
	memset(attr, 0, sizeof(*attr));
	ret = nic_qp_query(to_qp(qp)->nic, attr, &cap);
	if (ret)
		return -ret;
	attr->cap = cap;
	*init = (struct ibv_qp_init_attr){
		.qp_context = qp->qp_context,
		.send_cq = qp->send_cq,
		.recv_cq = qp->recv_cq,
		.cap = cap,
		.qp_type = qp->qp_type,
		.sq_sig_all = to_qp(qp)->sq_sig_all,
	};
	show_state(qp, attr->qp_state);
	return 0;
}

/*
 * Our order is enough to poll on the end of a message: packets are written in order and the last 1 to 8 bytes
 * after all others. This call promises more, that any byte is written after all before it, and not every copy
 * path of ours keeps that (a system call copies words in the kernel's order). So: no.
 */
UNPIN_EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	if (!context_is_ours(qp->context))
		return PASS(ibv_query_qp_data_in_order, 0, qp, op, flags);
	return 0;
}

UNPIN_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	int ret;

	if (!context_is_ours(qp->context))
		return PASS(ibv_destroy_qp, EOPNOTSUPP, qp);
	ret = nic_qp_destroy(to_qp(qp)->nic);
	if (ret)
		return -ret;
	pthread_mutex_destroy(&qp->mutex);
	pthread_cond_destroy(&qp->cond);
	free(to_qp(qp));
	return 0;
}

int qp_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return -nic_qp_post_send(to_qp(qp)->nic, wr, bad);
}

int qp_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return -nic_qp_post_recv(to_qp(qp)->nic, wr, bad);
}

/* Enhanced connection establishment: options that providers of one vendor agree on. There are none. */
UNPIN_EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!context_is_ours(qp->context))
		return PASS(ibv_set_ece, EOPNOTSUPP, qp, ece);
	return REFUSED("ibv_set_ece", EOPNOTSUPP);
}

UNPIN_EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	if (!context_is_ours(qp->context))
		return PASS(ibv_query_ece, EOPNOTSUPP, qp, ece);
	return REFUSED("ibv_query_ece", EOPNOTSUPP);
}

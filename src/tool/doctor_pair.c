/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/doctor_pair.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tool/machine.h"

/* Unreliable transports say nothing when a message is lost; reliable ones try for a while. */
#define PATIENCE_NS(p) (((p)->type == IBV_QPT_RC ? 20 : 2) * NSEC_PER_SEC)
#define QKEY	       0x1234567
#define FIRST_PSN      0x1234
#define ACCESS	       (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static int fail(struct doctor_pair *p, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct doctor_pair *p, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->why, sizeof(p->why), fmt, ap);
	va_end(ap);
	return err < 0 ? err : -err;
}

static int make_qps(struct doctor_pair *p, bool with_srq)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };

	if (with_srq && !(p->srq = ibv_create_srq(p->e->pd, &srq)))
		return fail(
			p, errno ? errno : EIO, "cannot make a shared receive queue: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = p->type,
			.srq = i ? p->srq : NULL,
			.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		};

		p->cq[i] = ibv_create_cq(p->e->context, 8, NULL, NULL, 0);
		if (!p->cq[i])
			return fail(p, errno ? errno : EIO, "cannot make a completion queue: %s",
				strerror(errno));
		init.send_cq = init.recv_cq = p->cq[i];
		p->qp[i] = ibv_create_qp(p->e->pd, &init);
		if (!p->qp[i])
			return fail(p, errno ? errno : EIO, "cannot make a queue pair: %s", strerror(errno));
	}
	return 0;
}

static struct ibv_ah_attr path(const struct doctor_pair *p)
{
	const struct endpoint *e = p->e;
	struct ibv_ah_attr ah = { .dlid = (uint16_t)e->address.lid, .port_num = (uint8_t)e->choice.port };

	if (e->has_gid) {
		ah.is_global = 1;
		memcpy(ah.grh.dgid.raw, e->address.gid, sizeof(e->address.gid));
		ah.grh.sgid_index = (uint8_t)e->choice.gid_index;
		ah.grh.hop_limit = 64;
	}
	return ah;
}

static int to_init(struct doctor_pair *p, int i)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)p->e->choice.port, .qkey = QKEY
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	attr.qp_access_flags = p->type == IBV_QPT_RC ? ACCESS : IBV_ACCESS_REMOTE_WRITE;
	mask |= p->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(p->qp[i], &attr, mask);
}

static int to_rtr(struct doctor_pair *p, int i)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)p->e->address.mtu,
		.dest_qp_num = p->qp[!i]->qp_num,
		.rq_psn = FIRST_PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = path(p),
	};
	int mask = IBV_QP_STATE;

	if (p->type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (p->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(p->qp[i], &attr, mask);
}

static int to_rts(struct doctor_pair *p, int i)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 17, /* half a second */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = FIRST_PSN,
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (p->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(p->qp[i], &attr, mask);
}

static int connect_qps(struct doctor_pair *p)
{
	static int (*const step[])(struct doctor_pair * p, int i) = { to_init, to_rtr, to_rts };

	for (size_t s = 0; s < 3; s++)
		for (int i = 0; i < 2; i++) {
			int err = step[s](p, i);

			if (err)
				return fail(p, err, "cannot connect the queue pairs: %s",
					strerror(err < 0 ? -err : err));
		}
	return 0;
}

int doctor_pair_open(struct doctor_pair *p, struct endpoint *e, enum ibv_qp_type type, bool with_srq)
{
	int err;

	memset(p, 0, sizeof(*p));
	p->e = e;
	p->type = type;
	p->largest = type == IBV_QPT_UD ? 128u << e->address.mtu : 1u << 20;
	err = make_qps(p, with_srq);
	/* What a device without such queue pairs answers differs; all mean the same here. */
	if (err == -EINVAL || err == -ENOSYS || err == -ENOTSUP)
		err = -EOPNOTSUPP;
	if (!err)
		err = connect_qps(p);
	if (!err && type == IBV_QPT_UD) {
		struct ibv_ah_attr ah = path(p);

		p->ah = ibv_create_ah(e->pd, &ah);
		if (!p->ah)
			err = fail(
				p, errno ? errno : EIO, "cannot make an address handle: %s", strerror(errno));
	}
	return err;
}

void doctor_pair_close(struct doctor_pair *p)
{
	for (int i = 0; i < 2; i++)
		if (p->qp[i])
			ibv_destroy_qp(p->qp[i]);
	if (p->srq)
		ibv_destroy_srq(p->srq);
	for (int i = 0; i < 2; i++)
		if (p->cq[i])
			ibv_destroy_cq(p->cq[i]);
	if (p->ah)
		ibv_destroy_ah(p->ah);
	memset(p, 0, sizeof(*p));
}

static int post_recv(struct doctor_pair *p, const struct doctor_transfer *t)
{
	uint32_t before = p->type == IBV_QPT_UD ? DOCTOR_PAIR_GRH : 0;
	struct ibv_sge sge = { .addr = (uintptr_t)t->remote.addr - before,
		.length = t->length + before,
		.lkey = t->remote.key };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int err = p->srq ? ibv_post_srq_recv(p->srq, &wr, &bad) : ibv_post_recv(p->qp[1], &wr, &bad);

	return err ? fail(p, err, "cannot post a receive: %s", strerror(err < 0 ? -err : err)) : 0;
}

static int post(struct doctor_pair *p, const struct doctor_transfer *t)
{
	struct ibv_sge sge = { .addr = (uintptr_t)t->local.addr, .length = t->length, .lkey = t->local.key };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = t->opcode, .send_flags = IBV_SEND_SIGNALED
	};
	struct ibv_send_wr *bad;
	int err;

	if (p->type == IBV_QPT_UD) {
		wr.wr.ud.ah = p->ah;
		wr.wr.ud.remote_qpn = p->qp[1]->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (t->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || t->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)t->remote.addr;
		wr.wr.atomic.rkey = t->remote.key;
		wr.wr.atomic.compare_add = t->compare_add;
		wr.wr.atomic.swap = t->swap;
	} else if (t->opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = (uintptr_t)t->remote.addr;
		wr.wr.rdma.rkey = t->remote.key;
	}
	err = ibv_post_send(p->qp[0], &wr, &bad);
	return err ? fail(p, err, "cannot post a work request: %s", strerror(err < 0 ? -err : err)) : 0;
}

/* Whether this side's completion is there. 1, 0 or a negative errno. */
static int look(struct doctor_pair *p, int side)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(p->cq[side], 1, &wc);

	if (n < 0)
		return fail(p, EIO, "cannot poll the completion queue");
	if (n && wc.status != IBV_WC_SUCCESS)
		return fail(p, EIO, "the %s completed with \"%s\"", side ? "receive" : "request",
			ibv_wc_status_str(wc.status));
	return n;
}

static int wait(struct doctor_pair *p, bool both)
{
	uint64_t deadline = clock_ns() + PATIENCE_NS(p);
	bool done[2] = { false, !both };

	while (!done[0] || !done[1]) {
		for (int side = 0; side < 2; side++) {
			int n = look(p, side);

			if (n < 0)
				return n;
			done[side] = done[side] || n;
		}
		if (endpoint_stop)
			return fail(p, EINTR, "interrupted");
		if (clock_ns() > deadline)
			return fail(p, ETIMEDOUT, "no completion came within %llu seconds",
				(unsigned long long)(PATIENCE_NS(p) / NSEC_PER_SEC));
		machine_relax();
	}
	return 0;
}

int doctor_pair_do(struct doctor_pair *p, const struct doctor_transfer *t)
{
	bool receives = t->opcode == IBV_WR_SEND;
	int err = receives ? post_recv(p, t) : 0;

	if (!err)
		err = post(p, t);
	return err ? err : wait(p, receives);
}

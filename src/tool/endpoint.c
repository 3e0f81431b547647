/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/endpoint.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tool/machine.h"
#include "tool/units.h"

/* How often a waiting loop looks at the clock. */
#define LOOK_EVERY 4096
/* How often at most one that spins looks at the lifeline, and how often one that sleeps wakes up to do so. */
#define LIFELINE_NS (10 * NSEC_PER_MSEC)
#define NAP_NS	    NSEC_PER_SEC

volatile int endpoint_stop;
const char *const endpoint_kind_names[ENDPOINT_KINDS + 1] = { "pinned", "on demand", "implicit" };

static int fail(struct endpoint *e, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct endpoint *e, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->why, sizeof(e->why), fmt, ap);
	va_end(ap);
	return err < 0 ? err : -err;
}

/* --- opening -----------------------------------------------------------------------------------------------
 */

static int no_device(struct endpoint *e, struct ibv_device **list)
{
	size_t used;

	used = (size_t)snprintf(e->why, sizeof(e->why), "there is no RDMA device '%s' here; there %s",
		e->choice.device, list && list[0] ? "is:" : "is none at all");
	for (size_t i = 0; list && list[i] && used < sizeof(e->why); i++)
		used += (size_t)snprintf(
			e->why + used, sizeof(e->why) - used, " %s", ibv_get_device_name(list[i]));
	if (used < sizeof(e->why))
		snprintf(e->why + used, sizeof(e->why) - used, ". unpin's own device: unpin bench -d unpin0");
	return -ENODEV;
}

static int open_context(struct endpoint *e)
{
	struct ibv_device **list = ibv_get_device_list(NULL), *device = NULL;
	int err = 0;

	for (size_t i = 0; list && list[i]; i++)
		if (strcmp(ibv_get_device_name(list[i]), e->choice.device) == 0)
			device = list[i];
	if (!device)
		err = no_device(e, list);
	else if (!(e->context = ibv_open_device(device)))
		err = fail(e, errno ? errno : EIO, "cannot open %s: %s", e->choice.device, strerror(errno));
	if (list)
		ibv_free_device_list(list);
	return err;
}

static int query_odp(struct endpoint *e)
{
	const uint32_t needed =
		IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
	struct ibv_device_attr_ex attr;
	int err;

	memset(&attr, 0, sizeof(attr));
	err = ibv_query_device_ex(e->context, NULL, &attr);
	if (err)
		return fail(e, err, "cannot query %s: %s", e->choice.device, strerror(err));
	e->odp = (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) &&
		 (attr.odp_caps.per_transport_caps.rc_odp_caps & needed) == needed;
	e->odp_implicit = e->odp && (attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT);
	e->max_mr_size = attr.orig_attr.max_mr_size;
	return 0;
}

/* The first RoCE v2 row of the GID table that is an IPv4 address, else the first RoCE v2 row, else row 0. */
static int choose_gid(struct endpoint *e, int rows)
{
	struct ibv_gid_entry entry;
	int best = -1;

	for (int i = 0; i < rows; i++) {
		static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

		if (ibv_query_gid_ex(e->context, e->choice.port, (uint32_t)i, &entry, 0) ||
			entry.gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		if (memcmp(entry.gid.raw, mapped, sizeof(mapped)) == 0)
			return i;
		if (best < 0)
			best = i;
	}
	return best < 0 ? 0 : best;
}

static int query_port(struct endpoint *e)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	int err;

	memset(&port, 0, sizeof(port));
	err = ibv_query_port(e->context, (uint8_t)e->choice.port, &port);
	if (err)
		return fail(e, err, "cannot query port %u of %s: %s", e->choice.port, e->choice.device,
			strerror(err));
	if (port.state != IBV_PORT_ACTIVE)
		return fail(e, ENETDOWN, "port %u of %s is not active (%s)", e->choice.port, e->choice.device,
			ibv_port_state_str(port.state));
	e->address.lid = port.lid;
	e->address.mtu = port.active_mtu;
	e->has_gid = port.link_layer == IBV_LINK_LAYER_ETHERNET || e->choice.gid_index >= 0;
	if (!e->has_gid)
		return 0;
	if (e->choice.gid_index < 0)
		e->choice.gid_index = choose_gid(e, port.gid_tbl_len);
	if (ibv_query_gid(e->context, (uint8_t)e->choice.port, e->choice.gid_index, &gid))
		return fail(e, errno ? errno : EIO, "cannot read row %d of the GID table of %s",
			e->choice.gid_index, e->choice.device);
	memcpy(e->address.gid, gid.raw, sizeof(e->address.gid));
	return 0;
}

static uint32_t depth_of(const struct endpoint *e)
{
	return e->choice.depth ? e->choice.depth : ENDPOINT_DEPTH;
}

static int make_qp(struct endpoint *e, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = e->cq,
		.recv_cq = e->cq,
		.cap = { .max_send_wr = depth,
			.max_recv_wr = ENDPOINT_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1 },
	};

	e->qp = ibv_create_qp(e->pd, &init);
	if (!e->qp)
		return fail(e, errno, "cannot make a queue pair: %s", strerror(errno));
	e->address.qpn = e->qp->qp_num;
	e->address.psn = (uint32_t)clock_ns() & 0xffffff;
	return 0;
}

static int make_objects(struct endpoint *e)
{
	e->pd = ibv_alloc_pd(e->context);
	if (!e->pd)
		return fail(e, errno, "cannot make a protection domain: %s", strerror(errno));
	e->channel = ibv_create_comp_channel(e->context);
	if (!e->channel)
		return fail(e, errno, "cannot make a completion channel: %s", strerror(errno));
	e->cq = ibv_create_cq(e->context, (int)(depth_of(e) + ENDPOINT_DEPTH), NULL, e->channel, 0);
	if (!e->cq)
		return fail(e, errno, "cannot make a completion queue: %s", strerror(errno));
	return make_qp(e, depth_of(e));
}

int endpoint_open(struct endpoint *e, const struct endpoint_choice *choice)
{
	int err;

	memset(e, 0, sizeof(*e));
	e->lifeline = -1;
	e->choice = *choice;
	err = open_context(e);
	if (!err)
		err = query_odp(e);
	if (!err)
		err = query_port(e);
	if (!err)
		err = make_objects(e);
	if (err)
		endpoint_close(e);
	return err;
}

static int to_init(struct endpoint *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = (uint8_t)e->choice.port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	return ibv_modify_qp(
		e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct endpoint *e, const struct endpoint_address *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)(peer->mtu < e->address.mtu ? peer->mtu : e->address.mtu),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 8,
		.min_rnr_timer = 12,
		.ah_attr = { .dlid = (uint16_t)peer->lid, .port_num = (uint8_t)e->choice.port },
	};

	if (e->has_gid) {
		attr.ah_attr.is_global = 1;
		memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
		attr.ah_attr.grh.sgid_index = (uint8_t)e->choice.gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	return ibv_modify_qp(e->qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct endpoint *e)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 18, /* about a second */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = e->address.psn,
		.max_rd_atomic = 8,
	};

	return ibv_modify_qp(e->qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
}

int endpoint_connect(struct endpoint *e, const struct endpoint_address *peer)
{
	int err = to_init(e);

	if (!err)
		err = to_rtr(e, peer);
	if (!err)
		err = to_rts(e);
	return err ? fail(e, err, "cannot connect the queue pairs: %s", strerror(err < 0 ? -err : err)) : 0;
}

int endpoint_loop(struct endpoint *e, struct ibv_qp **out)
{
	struct endpoint loop = *e;
	int err = make_qp(&loop, 8);

	if (!err) {
		err = endpoint_connect(&loop, &loop.address);
		if (err)
			ibv_destroy_qp(loop.qp);
	}
	*out = err ? NULL : loop.qp;
	memcpy(e->why, loop.why, sizeof(e->why));
	return err;
}

void endpoint_close(struct endpoint *e)
{
	endpoint_ack(e);
	if (e->qp)
		ibv_destroy_qp(e->qp);
	if (e->cq)
		ibv_destroy_cq(e->cq);
	if (e->channel)
		ibv_destroy_comp_channel(e->channel);
	if (e->pd)
		ibv_dealloc_pd(e->pd);
	if (e->context)
		ibv_close_device(e->context);
	e->qp = NULL;
	e->cq = NULL;
	e->channel = NULL;
	e->pd = NULL;
	e->context = NULL;
	e->lifeline = -1;
}

/* --- memory ------------------------------------------------------------------------------------------------
 */

static int fail_register(struct endpoint *e, int err, size_t length, enum endpoint_kind kind)
{
	char size[UNITS_MAX], limit[UNITS_MAX];
	uint64_t memlock = machine_memlock();

	units_bytes(size, length);
	if (err == ENOMEM && kind == ENDPOINT_PINNED && memlock != UINT64_MAX)
		return fail(e, err,
			"ENOMEM: pinning %s exceeds the limit on locked memory, %s (raise it with 'ulimit "
			"-l', as root with 'prlimit --memlock', or in /etc/security/limits.conf)",
			size, units_bytes(limit, memlock));
	return fail(e, err, "cannot register %s (%s): %s", size, endpoint_kind_names[kind], strerror(err));
}

int endpoint_region_register(
	struct endpoint *e, struct endpoint_region *r, void *addr, size_t length, enum endpoint_kind kind)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (kind != ENDPOINT_PINNED && !e->odp)
		return fail(e, EOPNOTSUPP, "%s has no on-demand paging for reliable connections",
			e->choice.device);
	if (kind == ENDPOINT_IMPLICIT && !e->odp_implicit)
		return fail(e, EOPNOTSUPP, "%s has no implicit on-demand regions", e->choice.device);
	if (kind != ENDPOINT_PINNED)
		access |= IBV_ACCESS_ON_DEMAND;
	r->addr = addr;
	r->length = length;
	errno = 0;
	if (kind == ENDPOINT_IMPLICIT)
		r->mr = ibv_reg_mr(e->pd, NULL, SIZE_MAX, access);
	else
		r->mr = ibv_reg_mr(e->pd, addr, length, access);
	return r->mr ? 0 : fail_register(e, errno ? errno : EIO, length, kind);
}

int endpoint_region_make(
	struct endpoint *e, struct endpoint_region *r, size_t length, enum endpoint_kind kind)
{
	void *addr = machine_map(length);
	int err;

	memset(r, 0, sizeof(*r));
	if (!addr)
		return fail(e, errno, "cannot map %zu bytes: %s", length, strerror(errno));
	err = endpoint_region_register(e, r, addr, length, kind);
	if (err) {
		machine_unmap(addr, length);
		memset(r, 0, sizeof(*r));
	}
	return err;
}

void endpoint_region_deregister(struct endpoint_region *r)
{
	if (r->mr)
		ibv_dereg_mr(r->mr);
	r->mr = NULL;
}

void endpoint_region_release(struct endpoint_region *r)
{
	endpoint_region_deregister(r);
	machine_unmap(r->addr, r->length);
	memset(r, 0, sizeof(*r));
}

/* A scatter/gather element has 32 bits for its length. */
#define PREFETCH_PIECE ((size_t)1 << 30)

int endpoint_prefetch(struct endpoint *e, const struct endpoint_region *r, size_t offset, size_t length,
	bool write, bool flush)
{
	enum ibv_advise_mr_advice advice =
		write ? IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE : IBV_ADVISE_MR_ADVICE_PREFETCH;
	uint32_t flags = flush ? IBV_ADVISE_MR_FLAG_FLUSH : 0;

	while (length) {
		size_t piece = length < PREFETCH_PIECE ? length : PREFETCH_PIECE;
		struct ibv_sge sge = {
			.addr = (uintptr_t)r->addr + offset, .length = (uint32_t)piece, .lkey = r->mr->lkey
		};
		int err = ibv_advise_mr(e->pd, advice, flags, &sge, 1);

		if (err)
			return fail(e, err, "cannot prefetch: %s", strerror(err < 0 ? -err : err));
		offset += piece;
		length -= piece;
	}
	return 0;
}

/* --- data --------------------------------------------------------------------------------------------------
 */

int endpoint_post(struct endpoint *e, const struct endpoint_op *op)
{
	struct ibv_sge sge = { .addr = (uintptr_t)op->local, .length = op->length, .lkey = op->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = op->length ? 1 : 0,
		.opcode = op->opcode,
		.send_flags = op->unsignaled ? 0 : IBV_SEND_SIGNALED,
		.wr = { .rdma = { .remote_addr = op->remote, .rkey = op->rkey } },
	};
	struct ibv_send_wr *bad;
	int err = ibv_post_send(e->qp, &wr, &bad);

	return err ? fail(e, err, "cannot post a work request: %s", strerror(err < 0 ? -err : err)) : 0;
}

/* wr_id tells receives from sends: a failed completion has no opcode. */
#define RECV_ID 1

int endpoint_post_recv(struct endpoint *e, void *addr, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)addr, .length = length, .lkey = lkey };
	struct ibv_recv_wr wr = { .wr_id = RECV_ID, .sg_list = &sge, .num_sge = length ? 1 : 0 };
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(e->qp, &wr, &bad);

	return err ? fail(e, err, "cannot post a receive: %s", strerror(err < 0 ? -err : err)) : 0;
}

int endpoint_poll(struct endpoint *e, struct endpoint_done *done, int max)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(e->cq, max < 16 ? max : 16, wc);

	if (n < 0)
		return fail(e, EIO, "cannot poll the completion queue");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			return fail(e, EIO, "a %s failed: %s", wc[i].wr_id == RECV_ID ? "receive" : "request",
				ibv_wc_status_str(wc[i].status));
		if (wc[i].wr_id == RECV_ID)
			done->recvs++;
		else
			done->sends++;
	}
	return n;
}

static bool hung_up(struct endpoint *e, uint64_t now)
{
	struct pollfd p = { .fd = e->lifeline };

	if (now - e->looked_ns < LIFELINE_NS)
		return false;
	e->looked_ns = now;
	/* Hang-ups are told unasked; -1 is passed over. */
	return poll(&p, 1, 0) > 0;
}

int endpoint_patience(struct endpoint *e, uint64_t *deadline, const char *missing)
{
	uint64_t now = clock_ns();

	if (endpoint_stop)
		return fail(e, EINTR, "interrupted");
	if (hung_up(e, now))
		return fail(e, EPIPE, "the other process has ended");
	if (!*deadline)
		*deadline = now + ENDPOINT_TIMEOUT_NS;
	if (now > *deadline)
		return fail(e, ETIMEDOUT, "no %s for %llu s", missing, ENDPOINT_TIMEOUT_NS / NSEC_PER_SEC);
	return 0;
}

int endpoint_wait(struct endpoint *e, struct endpoint_done *done, unsigned sends, unsigned recvs)
{
	uint64_t deadline = 0;
	unsigned idle = 0;

	while (done->sends < sends || done->recvs < recvs) {
		int n = endpoint_poll(e, done, 16), err;

		if (n < 0)
			return n;
		if (n > 0)
			continue;
		if (++idle % LOOK_EVERY) {
			machine_relax();
			continue;
		}
		err = endpoint_patience(e, &deadline, "completion");
		if (err)
			return err;
	}
	return 0;
}

static int take_event(struct endpoint *e)
{
	struct pollfd p = { .fd = e->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	uint64_t deadline = 0;
	int n, err;

	/* The lifeline is not slept on: a second file would make the sleep that is measured longer. */
	while ((n = poll(&p, 1, (int)(NAP_NS / NSEC_PER_MSEC))) == 0) {
		err = endpoint_patience(e, &deadline, "completion event");
		if (err)
			return err;
	}
	if (n < 0 && errno == EINTR && endpoint_stop)
		return fail(e, EINTR, "interrupted");
	if (n < 0 && errno == EINTR)
		return 0;
	if (n < 0 || ibv_get_cq_event(e->channel, &cq, &context))
		return fail(e, errno, "cannot get a completion event: %s", strerror(errno));
	e->unacked++;
	return 0;
}

int endpoint_sleep(struct endpoint *e, struct endpoint_done *done)
{
	int n;

	if (ibv_req_notify_cq(e->cq, 0))
		return fail(e, EIO, "cannot ask for a completion event");
	n = endpoint_poll(e, done, 16);
	if (n)
		return n < 0 ? n : 0;
	return take_event(e);
}

void endpoint_ack(struct endpoint *e)
{
	if (e->unacked)
		ibv_ack_cq_events(e->cq, e->unacked);
	e->unacked = 0;
}

int endpoint_do(struct endpoint *e, const struct endpoint_op *op)
{
	struct endpoint_done done = { 0 };
	int err = endpoint_post(e, op);

	return err ? err : endpoint_wait(e, &done, 1, 0);
}

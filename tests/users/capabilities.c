/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Seen elsewhere: capability bits that did not match what works (linux-rdma/rdma-core#1229). A bit is set if
 * and only if it works. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (64 * PAGE)

static struct ibv_device_attr_ex attributes(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr;

	memset(&attr, 0xff, sizeof(attr));
	check_int(ibv_query_device_ex(ctx, NULL, &attr), 0);
	return attr;
}

static bool works_on_demand(enum ibv_wr_opcode op)
{
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	bool works = true;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL | ODP);
	there = reg(&p.b, memory, PAGE, REMOTE | ODP);
	fill(mine, 64, 1);
	if (op == IBV_WR_SEND)
		post_recv(&p.b, there, memory, 64);
	post(&p.a, op, here, mine, op >= IBV_WR_ATOMIC_CMP_AND_SWP ? 8 : 64, memory, there->rkey);
	works = wait_any(&p.a).status == IBV_WC_SUCCESS;
	if (op == IBV_WR_SEND)
		works &= wait_any(&p.b).status == IBV_WC_SUCCESS;
	dereg(here);
	dereg(there);
	pair_close(&p);
	return works;
}

static void on_demand_rc_bits_are_those_that_work(void)
{
	static const struct {
		uint32_t bit;
		enum ibv_wr_opcode op;
	} rows[] = {
		{ IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV, IBV_WR_SEND },
		{ IBV_ODP_SUPPORT_WRITE, IBV_WR_RDMA_WRITE },
		{ IBV_ODP_SUPPORT_READ, IBV_WR_RDMA_READ },
		{ IBV_ODP_SUPPORT_ATOMIC, IBV_WR_ATOMIC_FETCH_AND_ADD },
		{ IBV_ODP_SUPPORT_ATOMIC, IBV_WR_ATOMIC_CMP_AND_SWP },
	};
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr_ex attr = attributes(ctx);

	check(attr.odp_caps.general_caps & IBV_ODP_SUPPORT);
	check_int(attr.orig_attr.atomic_cap, IBV_ATOMIC_HCA);
	for (size_t i = 0; i < COUNT(rows); i++)
		check_int(works_on_demand(rows[i].op),
			(attr.odp_caps.per_transport_caps.rc_odp_caps & rows[i].bit) == rows[i].bit);
	check_int(ibv_close_device(ctx), 0);
}

/* Whether creating the type works is what the capabilities of its transport say. */
static void transports_that_are_not_offered_are_refused_and_have_no_bits(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr_ex attr = attributes(ctx);
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 }
	};
	static const enum ibv_qp_type types[] = { IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RAW_PACKET };
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 10, NULL, NULL, 0);
	bool works[3];

	check(pd && cq);
	init.send_cq = init.recv_cq = cq;
	for (int i = 0; i < 3; i++) {
		struct ibv_qp *qp;

		init.qp_type = types[i];
		errno = 0;
		qp = ibv_create_qp(pd, &init);
		works[i] = qp != NULL;
		if (qp)
			check_int(ibv_destroy_qp(qp), 0);
		else
			check_int(errno, EOPNOTSUPP);
	}
	check_int(attr.odp_caps.per_transport_caps.ud_odp_caps != 0, works[0]);
	check_int(attr.odp_caps.per_transport_caps.uc_odp_caps != 0, works[1]);
	check_int(attr.raw_packet_caps != 0, works[2]);
	check_int(ibv_destroy_cq(cq), 0);
	check_int(ibv_dealloc_pd(pd), 0);
	check_int(ibv_close_device(ctx), 0);
}

static void shared_receive_queues_are_offered_or_refused(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr_ex attr = attributes(ctx);
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_srq *srq;

	errno = 0;
	srq = ibv_create_srq(pd, &init);
	check_int(srq != NULL, attr.orig_attr.max_srq > 0);
	if (srq) {
		check_int(ibv_destroy_srq(srq), 0);
	} else {
		check_int(errno, EOPNOTSUPP);
		check_int(attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV, 0);
	}
	check_int(ibv_dealloc_pd(pd), 0);
	check_int(ibv_close_device(ctx), 0);
}

static void memory_windows_are_offered_or_refused(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr_ex attr = attributes(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	unsigned flags = attr.orig_attr.device_cap_flags;
	struct ibv_mw *mw;

	errno = 0;
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	check_int(mw != NULL, (flags & IBV_DEVICE_MEM_WINDOW) != 0);
	if (mw)
		check_int(ibv_dealloc_mw(mw), 0);
	else
		check_int(errno, EOPNOTSUPP);
	errno = 0;
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	check_int(mw != NULL, (flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0);
	if (mw)
		check_int(ibv_dealloc_mw(mw), 0);
	check_int(ibv_dealloc_pd(pd), 0);
	check_int(ibv_close_device(ctx), 0);
}

static void extended_connections_are_offered_or_refused(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr_ex attr = attributes(ctx);
	struct ibv_xrcd_init_attr init = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1 };
	struct ibv_xrcd *xrcd;

	errno = 0;
	xrcd = ibv_open_xrcd(ctx, &init);
	check_int(xrcd != NULL, (attr.orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0);
	if (xrcd)
		check_int(ibv_close_xrcd(xrcd), 0);
	else
		check_int(errno, EOPNOTSUPP);
	if (!xrcd)
		check_int(attr.xrc_odp_caps, 0);
	check_int(ibv_close_device(ctx), 0);
}

static void implicit_regions_are_offered_or_refused(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr_ex attr = attributes(ctx);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(pd, NULL, SIZE_MAX, LOCAL | ODP);

	check_int(mr != NULL, (attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0);
	if (mr)
		dereg(mr);
	check_int(ibv_dealloc_pd(pd), 0);
	check_int(ibv_close_device(ctx), 0);
}

static void limits_are_honoured_up_to_the_last(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_device_attr_ex attr = attributes(ctx);
	struct ibv_device_attr *d = &attr.orig_attr;
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, d->max_cqe, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = (uint32_t)d->max_qp_wr,
			.max_recv_wr = (uint32_t)d->max_qp_wr,
			.max_send_sge = (uint32_t)d->max_sge,
			.max_recv_sge = (uint32_t)d->max_sge },
	};
	struct ibv_qp *qp;

	check(pd && cq);
	check(cq->cqe >= d->max_cqe);
	check_sys((qp = ibv_create_qp(pd, &init)) != NULL);
	check_int(ibv_destroy_qp(qp), 0);
	init.cap.max_send_wr = (uint32_t)d->max_qp_wr + 1;
	check(!ibv_create_qp(pd, &init));
	check_int(errno, EINVAL);
	init.cap.max_send_wr = 1;
	init.cap.max_recv_sge = (uint32_t)d->max_sge + 1;
	check(!ibv_create_qp(pd, &init));
	check_int(errno, EINVAL);
	check(!ibv_create_cq(ctx, d->max_cqe + 1, NULL, NULL, 0));
	check_int(errno, EINVAL);
	check(!ibv_create_cq(ctx, 0, NULL, NULL, 0));
	check_int(errno, EINVAL);
	check_int(ibv_destroy_cq(cq), 0);
	check_int(ibv_dealloc_pd(pd), 0);
	check_int(ibv_close_device(ctx), 0);
}

static void the_port_is_an_active_ethernet_port(void)
{
	struct ibv_context *ctx = device_open();
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid, none = { 0 };

	check_int(ibv_query_port(ctx, 1, &port), 0);
	check_int(port.state, IBV_PORT_ACTIVE);
	check_int(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	check(port.gid_tbl_len > 0);
	check(port.max_msg_sz >= 1u << 30);
	check_int(ibv_query_gid(ctx, 1, 0, &gid), 0);
	check(memcmp(&gid, &none, sizeof(gid)));
	check_int(ibv_query_gid_ex(ctx, 1, 0, &entry, 0), 0);
	check_int(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
	check(ibv_query_port(ctx, 2, &port) != 0);
	check_int(ibv_close_device(ctx), 0);
}

/* Beyond the limit a file is not only refused: the process gets SIGXFSZ. The program has not asked for one.
 */
static void where_files_must_be_small_the_device_works_all_the_same(void)
{
	const struct rlimit small = { 16ul << 20, 16ul << 20 };
	char *mine = fresh(LENGTH), *memory = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct pair p;

	check_sys(setrlimit(RLIMIT_FSIZE, &small) == 0);
	pair_open(&p, NULL);
	here = reg(&p.a, mine, LENGTH, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	fill(mine, LENGTH, 3);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_filled(memory, LENGTH, 3);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(on_demand_rc_bits_are_those_that_work),
		CASE(transports_that_are_not_offered_are_refused_and_have_no_bits),
		CASE(shared_receive_queues_are_offered_or_refused),
		CASE(memory_windows_are_offered_or_refused),
		CASE(extended_connections_are_offered_or_refused),
		CASE(implicit_regions_are_offered_or_refused),
		CASE(limits_are_honoured_up_to_the_last),
		CASE(the_port_is_an_active_ethernet_port),
		CASE(where_files_must_be_small_the_device_works_all_the_same),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

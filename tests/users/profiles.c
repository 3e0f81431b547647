/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The manners of other devices, as a program sees them: what the device says of itself, what it refuses and
 * how, and whether on demand means on demand. The last is the trap of openucx/ucx#8869: a device that reports
 * the capability, takes the flag and pins all the same; only the process's own figures tell.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../counted_pins.h"
#include "pair.h"

#define LENGTH (1ul << 20)
#define RC                                                                                                   \
	(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |        \
		IBV_ODP_SUPPORT_ATOMIC)

struct manners {
	const char *profile;
	uint64_t general;
	int on_demand;	/* errno of an on-demand registration; 0: taken */
	int everywhere; /* of an implicit one */
	int prefetch;	/* what ibv_advise_mr(3) answers */
	bool pins;	/* an on-demand registration */
};

static const struct manners unpin = { "unpin", IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, 0, 0, 0, false };
static const struct manners mlx5 = { "mlx5", IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT, 0, 0, 0, false };
static const struct manners rxe = { "rxe", IBV_ODP_SUPPORT, 0, EOPNOTSUPP, 0, false };
static const struct manners none = { "none", 0, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, false };
static const struct manners stale = { "stale-firmware", IBV_ODP_SUPPORT, 0, EINVAL, EOPNOTSUPP, true };

static long pinned(void)
{
	return status_kib("VmPin") + status_kib("VmLck");
}

static struct ibv_mr *try_reg(struct end *e, void *addr, size_t length, int access)
{
	errno = 0;
	return ibv_reg_mr(e->pd, addr, length, access);
}

static void says_of_itself(struct end *e, const struct manners *m)
{
	struct ibv_device_attr_ex attr;

	check_int(ibv_query_device_ex(e->ctx, NULL, &attr), 0);
	check_int(attr.odp_caps.general_caps, m->general);
	check_int(attr.odp_caps.per_transport_caps.rc_odp_caps, m->general ? RC : 0);
	/* Neither datagrams nor shared receive queues are offered yet, whatever is imitated. */
	check_int(attr.odp_caps.per_transport_caps.ud_odp_caps, 0);
	check_int(attr.odp_caps.per_transport_caps.uc_odp_caps, 0);
}

static void registers(struct end *e, const struct manners *m, void *memory)
{
	struct ibv_sge sge = { (uintptr_t)memory, PAGE, 0 };
	long before = pinned();
	struct ibv_mr *mr = try_reg(e, memory, LENGTH, REMOTE);

	check_sys(mr != NULL);
	check_int(pinned() - before, LENGTH / 1024);
	sge.lkey = mr->lkey;
	check_int(ibv_advise_mr(e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EOPNOTSUPP);
	dereg(mr);
	check_int(pinned(), before);

	mr = try_reg(e, memory, LENGTH, REMOTE | ODP);
	check_int(mr ? 0 : errno, m->on_demand);
	check_int(pinned() - before, m->pins ? LENGTH / 1024 : 0);
	if (mr) {
		sge.lkey = mr->lkey;
		check_int(ibv_advise_mr(
				  e->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1),
			m->prefetch);
		dereg(mr);
	}
	check_int(pinned(), before);

	mr = try_reg(e, NULL, SIZE_MAX, REMOTE | ODP);
	check_int(mr ? 0 : errno, m->everywhere);
	if (mr)
		dereg(mr);
}

/* What is taken works, byte for byte. */
static void carries(struct pair *p, const struct manners *m, char *memory)
{
	int access = REMOTE | (m->on_demand ? 0 : ODP);
	struct ibv_mr *mr = reg(&p->a, memory, LENGTH, access), *there = reg(&p->b, memory, LENGTH, access);

	memset(memory, 0x5a, PAGE);
	post(&p->a, IBV_WR_RDMA_WRITE, mr, memory + 1, PAGE - 1, memory + 4 * PAGE + 3, there->rkey);
	wait_for(&p->a, IBV_WC_SUCCESS);
	check(!memcmp(memory + 1, memory + 4 * PAGE + 3, PAGE - 1));
	check_int(memory[4 * PAGE + 2], 0);
	dereg(mr);
	dereg(there);
}

static void behaves(const struct manners *m)
{
	char *memory = fresh(LENGTH);
	struct pair p;

	check_sys(setenv("UNPIN_PROFILE", m->profile, 1) == 0);
	pair_open(&p, NULL);
	says_of_itself(&p.a, m);
	registers(&p.a, m, memory);
	carries(&p, m, memory);
	pair_close(&p);
}

static void of_its_own_it_offers_all(void)
{
	behaves(&unpin);
}

static void a_connectx_offers_all(void)
{
	behaves(&mlx5);
}

static void the_kernels_rxe_has_no_implicit_regions(void)
{
	behaves(&rxe);
}

static void a_device_without_paging_refuses_on_demand(void)
{
	behaves(&none);
}

static void stale_firmware_takes_on_demand_and_pins(void)
{
	behaves(&stale);
}

static void implicit_regions_can_be_hidden(void)
{
	const struct manners without = { "mlx5", IBV_ODP_SUPPORT, 0, EINVAL, 0, false };

	check_sys(setenv("UNPIN_IMPLICIT", "0", 1) == 0);
	behaves(&without);
}

/* All ways to ask agree: with the pairs, each second row is RoCE v2 of the GID before it. */
static void check_table(struct ibv_context *ctx, bool pairs)
{
	struct ibv_gid_entry table[256], one;
	struct ibv_port_attr port;
	ssize_t n = ibv_query_gid_table(ctx, table, COUNT(table), 0);
	union ibv_gid gid;

	check_int(ibv_query_port(ctx, 1, &port), 0);
	check(n >= (pairs ? 4 : 1) && n <= port.gid_tbl_len);
	for (ssize_t i = 0; i < n; i++) {
		uint32_t row = table[i].gid_index;
		bool v1 = pairs && row % 2 == 0;

		check_int(table[i].gid_type, v1 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2);
		check_int(ibv_query_gid_ex(ctx, 1, row, &one, 0), 0);
		check(!memcmp(&one, &table[i], sizeof(one)));
		check_int(ibv_query_gid(ctx, 1, (int)row, &gid), 0);
		check(!memcmp(&gid, &one.gid, sizeof(gid)));
		if (pairs)
			check(!memcmp(&table[i].gid, &table[i - i % 2].gid, sizeof(gid)));
	}
	check_int(ibv_query_gid_ex(ctx, 1, (uint32_t)port.gid_tbl_len - 1, &one, 0), ENODATA);
	check(ibv_query_gid_ex(ctx, 1, (uint32_t)port.gid_tbl_len, &one, 0) != 0);
}

/* What every recipe for a ConnectX names: row 3. All rows lead to the same peer. */
static void a_connectx_has_two_rows_per_address(void)
{
	struct options opt = { .gid = 3 };
	struct pair p;

	check_sys(setenv("UNPIN_PROFILE", "mlx5", 1) == 0);
	for (opt.gid = 0; opt.gid < 4; opt.gid++) {
		pair_open(&p, &opt);
		check_table(p.a.ctx, true);
		post_recv(&p.b, NULL, NULL, 0);
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		wait_for(&p.a, IBV_WC_SUCCESS);
		wait_for(&p.b, IBV_WC_SUCCESS);
		pair_close(&p);
	}
}

static void other_profiles_have_one_row_per_address(void)
{
	struct ibv_context *ctx = device_open();

	check_table(ctx, false);
	check_int(ibv_close_device(ctx), 0);
}

/* The device is listed, since other programs ask for lists too; opening it says what is wrong. */
static void a_wrong_setting_opens_no_device(void)
{
	struct ibv_device **list;
	const char *name = getenv("UNPIN_DEVICE") ? getenv("UNPIN_DEVICE") : "unpin0";
	struct ibv_context *ctx;
	int n;

	check_sys(setenv("UNPIN_PROFILE", "connectx", 1) == 0);
	check_sys((list = ibv_get_device_list(&n)) != NULL);
	check(n >= 1);
	errno = 0;
	for (int i = 0; i < n; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		check(!ibv_open_device(list[i]));
		check_int(errno, EINVAL);
	}
	check_int(errno, EINVAL);
	ibv_free_device_list(list);
	check_sys(unsetenv("UNPIN_PROFILE") == 0);
	check_sys((ctx = device_open()) != NULL);
	check_int(ibv_close_device(ctx), 0);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(of_its_own_it_offers_all),
		CASE(a_connectx_offers_all),
		CASE(the_kernels_rxe_has_no_implicit_regions),
		CASE(a_device_without_paging_refuses_on_demand),
		CASE(stale_firmware_takes_on_demand_and_pins),
		CASE(implicit_regions_can_be_hidden),
		CASE(a_connectx_has_two_rows_per_address),
		CASE(other_profiles_have_one_row_per_address),
		CASE(a_wrong_setting_opens_no_device),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A small limit on locked memory, as containers have: pinning fails with ENOMEM beyond it
 * (NVIDIA/nccl-tests#206), on demand does not. */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

#define MIB (1024ul * 1024)

/* 8 MiB, and without the capability that exempts from it. */
static void limit(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	struct rlimit lim = { 8 * MIB, 8 * MIB };

	check_sys(setrlimit(RLIMIT_MEMLOCK, &lim) == 0);
	check_sys(syscall(SYS_capget, &head, data) == 0);
	for (int i = 0; i < 2; i++)
		data[i].inheritable = 0;
	data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	data[CAP_TO_INDEX(CAP_IPC_LOCK)].permitted &= ~CAP_TO_MASK(CAP_IPC_LOCK);
	check_sys(syscall(SYS_capset, &head, data) == 0);
}

static void check_enomem(struct end *e, void *memory, size_t length, int access)
{
	errno = 0;
	check(ibv_reg_mr(e->pd, memory, length, access) == NULL);
	check_int(errno, ENOMEM);
}

static void pinning_within_the_limit_works(void)
{
	struct end e;

	limit();
	end_open(&e, NULL);
	dereg(reg(&e, fresh(4 * MIB), 4 * MIB, REMOTE));
	end_close(&e);
}

static void pinning_beyond_the_limit_is_ENOMEM(void)
{
	struct end e;

	limit();
	end_open(&e, NULL);
	check_enomem(&e, fresh(16 * MIB), 16 * MIB, REMOTE);
	end_close(&e);
}

static void on_demand_knows_no_limit(void)
{
	struct end e;

	limit();
	end_open(&e, NULL);
	dereg(reg(&e, fresh(16 * MIB), 16 * MIB, REMOTE | ODP));
	dereg(reg(&e, fresh(1024 * MIB), 1024 * MIB, REMOTE | ODP));
	end_close(&e);
}

static void what_dereg_gives_back_can_be_pinned_again(void)
{
	char *memory = fresh(16 * MIB);
	struct end e;

	limit();
	end_open(&e, NULL);
	for (int i = 0; i < 20; i++)
		dereg(reg(&e, memory + (size_t)(i % 3) * 4 * MIB, 6 * MIB, REMOTE));
	end_close(&e);
}

static void what_failed_is_not_charged(void)
{
	char *memory = fresh(32 * MIB);
	struct end e;

	limit();
	end_open(&e, NULL);
	for (int i = 0; i < 20; i++)
		check_enomem(&e, memory, 32 * MIB, REMOTE);
	dereg(reg(&e, memory, 6 * MIB, REMOTE));
	end_close(&e);
}

static void regions_together_reach_the_limit(void)
{
	char *memory = fresh(16 * MIB);
	struct ibv_mr *mr[4];
	struct end e;
	int n = 0;

	limit();
	end_open(&e, NULL);
	for (; n < 4; n++) {
		mr[n] = ibv_reg_mr(e.pd, memory + (size_t)n * 3 * MIB, 3 * MIB, REMOTE);
		if (!mr[n])
			break;
	}
	check_int(errno, ENOMEM);
	check_int(n, 2);
	/* On demand beside them still works, and so does pinning once one is gone. */
	dereg(reg(&e, memory, 16 * MIB, REMOTE | ODP));
	dereg(mr[0]);
	dereg(reg(&e, memory + 8 * MIB, 3 * MIB, REMOTE));
	dereg(mr[1]);
	end_close(&e);
}

static void traffic_runs_under_the_limit(void)
{
	char *memory = fresh(64 * MIB), *mine = fresh(MIB);
	struct ibv_mr *here, *there;
	struct pair p;

	limit();
	pair_open(&p, NULL);
	here = reg(&p.a, mine, MIB, LOCAL);
	there = reg(&p.b, memory, 64 * MIB, REMOTE | ODP);
	fill(mine, MIB, 4);
	for (size_t at = 0; at < 64 * MIB; at += 8 * MIB) {
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, MIB, memory + at, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(memory + at, MIB, 4);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(pinning_within_the_limit_works),
		CASE(pinning_beyond_the_limit_is_ENOMEM),
		CASE(on_demand_knows_no_limit),
		CASE(what_dereg_gives_back_can_be_pinned_again),
		CASE(what_failed_is_not_charged),
		CASE(regions_together_reach_the_limit),
		CASE(traffic_runs_under_the_limit),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ibv_rereg_mr(3) on on-demand regions, in all its forms: another range, other rights, another domain, and
 * from on demand to pinned and back; a failing one leaves the region as it was.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "../counted_pins.h"
#include "pair.h"
#include "slow.h"

#define LENGTH (4 * PAGE)

#define RANGE  IBV_REREG_MR_CHANGE_TRANSLATION
#define DOMAIN IBV_REREG_MR_CHANGE_PD
#define RIGHTS IBV_REREG_MR_CHANGE_ACCESS

struct site {
	struct pair p;
	char *mine, *x, *y;
	struct ibv_mr *here, *mr; /* mr: at b, over x */
};

static void site_open(struct site *s, int access)
{
	pair_open(&s->p, NULL);
	s->mine = fresh(LENGTH);
	s->x = fresh(LENGTH);
	s->y = fresh(LENGTH);
	s->here = reg(&s->p.a, s->mine, LENGTH, LOCAL);
	s->mr = reg(&s->p.b, s->x, LENGTH, access);
}

static void site_close(struct site *s)
{
	dereg(s->mr);
	dereg(s->here);
	pair_close(&s->p);
}

static void try_it(struct site *s, uint32_t key, enum ibv_wr_opcode op, char *at, enum ibv_wc_status status)
{
	static unsigned seed;

	fill(s->mine, LENGTH, ++seed);
	post(&s->p.a, op, s->here, s->mine, LENGTH, at, key);
	wait_for(&s->p.a, status);
	if (status != IBV_WC_SUCCESS)
		pair_reconnect(&s->p);
	else
		check(!memcmp(s->mine, at, LENGTH));
}

static void writes(struct site *s, uint32_t key, char *at, enum ibv_wc_status status)
{
	try_it(s, key, IBV_WR_RDMA_WRITE, at, status);
}

static void another_range_has_another_key(void)
{
	static const int kinds[] = { REMOTE | ODP, REMOTE };
	struct site s;
	uint32_t old;

	for (size_t from = 0; from < COUNT(kinds); from++)
		for (size_t to = 0; to < COUNT(kinds); to++) {
			site_open(&s, kinds[from]);
			old = s.mr->rkey;
			writes(&s, old, s.x, IBV_WC_SUCCESS);
			check_int(ibv_rereg_mr(s.mr, RANGE | RIGHTS, NULL, s.y, LENGTH, kinds[to]), 0);
			check(s.mr->addr == s.y && s.mr->length == LENGTH);
			writes(&s, old, s.x, IBV_WC_REM_ACCESS_ERR);
			writes(&s, s.mr->rkey, s.x, IBV_WC_REM_ACCESS_ERR);
			writes(&s, s.mr->rkey, s.y, IBV_WC_SUCCESS);
			site_close(&s);
		}
}

static void rights_come_and_go(void)
{
	struct site s;

	site_open(&s, IBV_ACCESS_REMOTE_READ | ODP);
	try_it(&s, s.mr->rkey, IBV_WR_RDMA_READ, s.x, IBV_WC_SUCCESS);
	writes(&s, s.mr->rkey, s.x, IBV_WC_REM_ACCESS_ERR);
	check_int(ibv_rereg_mr(s.mr, RIGHTS, NULL, NULL, 0, REMOTE | ODP), 0);
	writes(&s, s.mr->rkey, s.x, IBV_WC_SUCCESS);
	check_int(ibv_rereg_mr(s.mr, RIGHTS, NULL, NULL, 0, LOCAL | ODP), 0);
	try_it(&s, s.mr->rkey, IBV_WR_RDMA_READ, s.x, IBV_WC_REM_ACCESS_ERR);
	/* From on demand to pinned and back, by rights alone. */
	check_int(ibv_rereg_mr(s.mr, RIGHTS, NULL, NULL, 0, REMOTE), 0);
	check(status_kib("VmPin") + status_kib("VmLck") == 2 * (long)LENGTH / 1024);
	writes(&s, s.mr->rkey, s.x, IBV_WC_SUCCESS);
	check_int(ibv_rereg_mr(s.mr, RIGHTS, NULL, NULL, 0, REMOTE | ODP), 0);
	check(status_kib("VmPin") + status_kib("VmLck") == (long)LENGTH / 1024);
	writes(&s, s.mr->rkey, s.x, IBV_WC_SUCCESS);
	site_close(&s);
}

static void another_domain_is_whose_it_is_then(void)
{
	struct ibv_pd *other;
	struct site s;

	site_open(&s, REMOTE | ODP);
	check_sys((other = ibv_alloc_pd(s.p.b.ctx)) != NULL);
	check_int(ibv_rereg_mr(s.mr, DOMAIN, other, NULL, 0, 0), 0);
	check(s.mr->pd == other);
	writes(&s, s.mr->rkey, s.x, IBV_WC_REM_ACCESS_ERR);
	check_int(ibv_dealloc_pd(other), EBUSY);
	check_int(ibv_rereg_mr(s.mr, DOMAIN, s.p.b.pd, NULL, 0, 0), 0);
	writes(&s, s.mr->rkey, s.x, IBV_WC_SUCCESS);
	check_int(ibv_dealloc_pd(other), 0);
	site_close(&s);
}

static void a_failing_one_leaves_the_region_as_it_was(void)
{
	char *hole = fresh_apart(LENGTH);
	struct site s;
	uint32_t key;

	drop(hole, LENGTH);
	site_open(&s, REMOTE | ODP);
	key = s.mr->rkey;
	/* A pin over nothing; rights that do not go together; nothing to change. */
	check_int(ibv_rereg_mr(s.mr, RANGE | RIGHTS, NULL, hole, LENGTH, REMOTE), IBV_REREG_MR_ERR_INPUT);
	check_int(ibv_rereg_mr(s.mr, RIGHTS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE | ODP),
		IBV_REREG_MR_ERR_INPUT);
	check_int(ibv_rereg_mr(s.mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	check_int(ibv_rereg_mr(s.mr, RANGE, NULL, s.y, 0, 0), IBV_REREG_MR_ERR_INPUT);
	check_int(s.mr->rkey, key);
	writes(&s, key, s.x, IBV_WC_SUCCESS);
	/* On demand a hole is as good as any other range. */
	check_int(ibv_rereg_mr(s.mr, RANGE, NULL, hole, LENGTH, 0), 0);
	writes(&s, s.mr->rkey, hole, IBV_WC_REM_ACCESS_ERR);
	site_close(&s);
}

static void what_is_parked_on_the_old_range_fails_at_once(void)
{
	struct ibv_wc wc;
	struct slow slow;
	struct site s;

	slow_open(&slow, LENGTH, true);
	site_open(&s, REMOTE | ODP);
	check_int(ibv_rereg_mr(s.mr, RANGE, NULL, slow.memory, LENGTH, 0), 0);
	post(&s.p.a, IBV_WR_RDMA_WRITE, s.here, s.mine, PAGE, slow.memory, s.mr->rkey);
	check_int(slow_fault(&slow, WAIT_SECONDS * 1000), 0);
	check(!poll_for(&s.p.a, &wc, 20));
	/* It returns although the page has not come. */
	check_int(ibv_rereg_mr(s.mr, RANGE, NULL, s.y, LENGTH, 0), 0);
	wait_for(&s.p.a, IBV_WC_REM_ACCESS_ERR);
	pair_reconnect(&s.p);
	writes(&s, s.mr->rkey, s.y, IBV_WC_SUCCESS);
	slow_answer(&slow, 0, 0);
	check_zero(slow.memory, PAGE);
	site_close(&s);
	slow_close(&slow);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(another_range_has_another_key),
		CASE(rights_come_and_go),
		CASE(another_domain_is_whose_it_is_then),
		CASE(a_failing_one_leaves_the_region_as_it_was),
		CASE(what_is_parked_on_the_old_range_fails_at_once),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

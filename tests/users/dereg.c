/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Deregistration while the region is in use. Seen elsewhere: it raced with faults and hung, or left a use
 * after free (the kernel's CVE-2025-21714, CVE-2025-21886). It waits for what runs, fails what is parked, and
 * later uses of the key fail cleanly.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>

#include "pair.h"
#include "slow.h"

static void a_key_is_dead_after_dereg(void)
{
	char *memory = fresh(PAGE), *mine = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	for (int i = 0; i < 200; i++) {
		uint32_t key;

		there = reg(&p.b, memory, PAGE, REMOTE | (i % 2 ? ODP : 0));
		key = there->rkey;
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 8, memory, key);
		wait_for(&p.a, IBV_WC_SUCCESS);
		dereg(there);
		/* The slot may be used again; the key may not. */
		there = reg(&p.b, memory, PAGE, REMOTE | ODP);
		check(there->rkey != key);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 8, memory, key);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		pair_reconnect(&p);
		dereg(there);
	}
	dereg(here);
	pair_close(&p);
}

static void a_dead_local_key_is_a_local_protection_error(void)
{
	char *memory = fresh(PAGE), *mine = fresh(PAGE);
	struct ibv_mr *here, *there, dead;
	struct pair p;

	pair_open(&p, NULL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	here = reg(&p.a, mine, PAGE, LOCAL | ODP);
	dead = *here;
	dereg(here);
	post(&p.a, IBV_WR_RDMA_WRITE, &dead, mine, 8, memory, there->rkey);
	wait_for(&p.a, IBV_WC_LOC_PROT_ERR);
	dereg(there);
	pair_close(&p);
}

static void a_parked_remote_fault_fails_at_once(void)
{
	char *mine = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct ibv_wc wc;
	struct pair p;
	struct slow s;

	slow_open(&s, 4 * PAGE, true);
	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, s.memory, s.length, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, s.memory, there->rkey);
	check_int(slow_fault(&s, 5000), 0);
	check(!poll_for(&p.a, &wc, 50));
	/* The page still does not come; dereg must return all the same. */
	dereg(there);
	wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
	check(slow_fault(&s, 0) == -1);
	slow_answer(&s, 0, 0);
	check_zero(s.memory, PAGE);
	dereg(here);
	pair_close(&p);
	slow_close(&s);
}

static void a_parked_local_fault_fails_at_once(void)
{
	char *other = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct ibv_wc wc;
	struct pair p;
	struct slow s;

	slow_open(&s, 4 * PAGE, true);
	pair_open(&p, NULL);
	here = reg(&p.a, s.memory, s.length, LOCAL | ODP);
	there = reg(&p.b, other, PAGE, REMOTE);
	post(&p.a, IBV_WR_RDMA_WRITE, here, s.memory, PAGE, other, there->rkey);
	check_int(slow_fault(&s, 5000), 0);
	check(!poll_for(&p.a, &wc, 50));
	dereg(here);
	wait_for(&p.a, IBV_WC_LOC_PROT_ERR);
	slow_answer(&s, 0, 0);
	dereg(there);
	pair_close(&p);
	slow_close(&s);
}

static void destroying_a_queue_pair_drops_its_parked_requests(void)
{
	char *mine = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;
	struct slow s;

	slow_open(&s, 4 * PAGE, true);
	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, s.memory, s.length, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, s.memory, there->rkey);
	check_int(slow_fault(&s, 5000), 0);
	check_int(ibv_destroy_qp(p.b.qp), 0);
	check_int(ibv_destroy_qp(p.a.qp), 0);
	slow_answer(&s, 0, 5);
	end_make_qp(&p.a);
	end_make_qp(&p.b);
	dereg(here);
	dereg(there);
	pair_close(&p);
	check_int(s.memory[0], 5);
	slow_close(&s);
}

struct owner {
	struct end *end;
	char *memory;
	_Atomic(struct ibv_mr *) mr;
	_Atomic uint32_t key;
	atomic_bool stop;
};

static void *registers_and_deregisters(void *arg)
{
	struct owner *o = arg;

	for (int i = 0; !o->stop; i++) {
		struct ibv_mr *mr = reg(o->end, o->memory, 16 * PAGE, REMOTE | (i % 4 ? ODP : 0));

		o->key = mr->rkey;
		if (i % 3 == 0)
			madvise(o->memory, 16 * PAGE, MADV_DONTNEED);
		if (i % 8 == 0)
			nap(1);
		dereg(mr);
	}
	return NULL;
}

static void dereg_may_race_with_writes(void)
{
	char *mine = fresh(16 * PAGE);
	struct owner o = { .memory = fresh(16 * PAGE) };
	int good = 0, refused = 0;
	struct ibv_mr *here;
	pthread_t thread;
	struct pair p;
	double end = now() + 3;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, 16 * PAGE, LOCAL);
	o.end = &p.b;
	check_int(pthread_create(&thread, NULL, registers_and_deregisters, &o), 0);
	while (!o.key)
		;
	while (now() < end || !good || !refused) {
		struct ibv_wc wc;

		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, good % 2 ? 8 : 16 * PAGE, o.memory, o.key);
		wc = wait_any(&p.a);
		if (wc.status == IBV_WC_SUCCESS) {
			good++;
			continue;
		}
		check_int(wc.status, IBV_WC_REM_ACCESS_ERR);
		refused++;
		pair_reconnect(&p);
		check(now() < end + 10);
	}
	o.stop = true;
	check_int(pthread_join(thread, NULL), 0);
	dereg(here);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_key_is_dead_after_dereg),
		CASE(a_dead_local_key_is_a_local_protection_error),
		CASE(a_parked_remote_fault_fails_at_once),
		CASE(a_parked_local_fault_fails_at_once),
		CASE(destroying_a_queue_pair_drops_its_parked_requests),
		CASE(dereg_may_race_with_writes),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fork(2) with open devices and registered memory. Seen elsewhere: MADV_DONTFORK on registered pages took a
 * child's neighbouring data away, or failed on unmapped pages (linux-rdma/rdma-core#834, #1222). No DONTFORK
 * here; both live; the peer reads the parent's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (8 * PAGE)

static void child_succeeds(pid_t pid)
{
	double end = now() + WAIT_SECONDS;
	int status;

	while (waitpid(pid, &status, WNOHANG) != pid) {
		check(now() < end);
		nap(1);
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		check_failed(__FILE__, __LINE__, "the child ended with wait status %#x", (unsigned)status);
}

static void fork_support_is_not_needed(void)
{
	check_int(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	check_int(ibv_fork_init(), 0);
	check_int(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
}

static void the_child_sees_the_memory_and_the_peer_reads_the_parents(void)
{
	for (int odp = 0; odp <= ODP; odp += ODP) {
		unsigned char *memory = fresh(LENGTH), *got = fresh(LENGTH);
		struct ibv_mr *mr, *dst;
		struct pair p;
		pid_t child;

		check_int(ibv_fork_init(), 0);
		pair_open(&p, NULL);
		fill(memory, LENGTH, 1);
		mr = reg(&p.b, memory + 100, LENGTH - 200, REMOTE | odp);
		dst = reg(&p.a, got, LENGTH, LOCAL | odp);
		/* Valid in the device before the fork. */
		post(&p.a, IBV_WR_RDMA_READ, dst, got, LENGTH - 200, memory + 100, mr->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_sys((child = fork()) >= 0);
		if (!child) {
			check_filled(memory, LENGTH, 1);
			fill(memory, LENGTH, 2);
			nap(200);
			check_filled(memory, LENGTH, 2);
			_exit(0);
		}
		nap(50);
		for (int i = 0; i < 50; i++) {
			fill(memory, LENGTH, 3 + (unsigned)i);
			post(&p.a, IBV_WR_RDMA_READ, dst, got, LENGTH - 200, memory + 100, mr->rkey);
			wait_for(&p.a, IBV_WC_SUCCESS);
			check(!memcmp(got, memory + 100, LENGTH - 200));
			/* And what is written arrives in the parent's page, not in the child's. */
			fill(got, LENGTH, 90 + (unsigned)i);
			post(&p.a, IBV_WR_RDMA_WRITE, dst, got, LENGTH - 200, memory + 100, mr->rkey);
			wait_for(&p.a, IBV_WC_SUCCESS);
			check_filled(memory + 100, LENGTH - 200, 90 + (unsigned)i);
		}
		child_succeeds(child);
		dereg(mr);
		dereg(dst);
		pair_close(&p);
		drop(memory, LENGTH);
		drop(got, LENGTH);
	}
}

static void a_child_cannot_use_what_it_inherited_and_does_not_hang(void)
{
	char *memory = fresh(PAGE);
	struct ibv_mr *mr;
	struct pair p;
	pid_t child;

	pair_open(&p, NULL);
	mr = reg(&p.a, memory, PAGE, REMOTE | ODP);
	check_sys((child = fork()) >= 0);
	if (!child) {
		struct ibv_wc wc;

		check(try_post(&p.a, IBV_WR_RDMA_WRITE, mr, memory, 8, memory, mr->rkey, IBV_SEND_SIGNALED) !=
			0);
		check(ibv_poll_cq(p.a.cq, 1, &wc) <= 0);
		check(ibv_reg_mr(p.a.pd, memory, PAGE, LOCAL | ODP) == NULL);
		/* Whatever these say, they return and harm nobody. */
		ibv_dereg_mr(mr);
		ibv_destroy_qp(p.a.qp);
		ibv_destroy_qp(p.b.qp);
		ibv_destroy_cq(p.a.cq);
		ibv_close_device(p.a.ctx);
		_exit(0);
	}
	child_succeeds(child);
	post(&p.a, IBV_WR_RDMA_WRITE, mr, memory, 8, memory, mr->rkey);
	wait_for(&p.a, IBV_WC_REM_ACCESS_ERR); /* a key of the other end's domain */
	dereg(mr);
	pair_close(&p);
}

static void a_child_can_open_a_device_of_its_own(void)
{
	struct pair p;
	pid_t child;

	pair_open(&p, NULL);
	check_sys((child = fork()) >= 0);
	if (!child) {
		char *memory = fresh(LENGTH), *mine = fresh(LENGTH);
		struct ibv_mr *here, *there;
		struct pair own;

		pair_open(&own, NULL);
		fill(mine, LENGTH, 8);
		here = reg(&own.a, mine, LENGTH, LOCAL);
		there = reg(&own.b, memory, LENGTH, REMOTE | ODP);
		post(&own.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory, there->rkey);
		wait_for(&own.a, IBV_WC_SUCCESS);
		check_filled(memory, LENGTH, 8);
		dereg(here);
		dereg(there);
		pair_close(&own);
		exit(0);
	}
	child_succeeds(child);
	pair_close(&p);
}

static void forking_in_the_middle_of_traffic_breaks_nothing(void)
{
	char *memory = fresh(LENGTH), *mine = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, LENGTH, LOCAL | ODP);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	for (unsigned i = 0; i < 40; i++) {
		pid_t child;

		fill(mine, LENGTH, i);
		for (int k = 0; k < 8; k++)
			post(&p.a, IBV_WR_RDMA_WRITE, here, mine, LENGTH, memory, there->rkey);
		check_sys((child = fork()) >= 0);
		if (!child)
			_exit(0);
		for (int k = 0; k < 8; k++)
			wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(memory, LENGTH, i);
		child_succeeds(child);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(fork_support_is_not_needed),
		CASE(the_child_sees_the_memory_and_the_peer_reads_the_parents),
		CASE(a_child_cannot_use_what_it_inherited_and_does_not_hang),
		CASE(a_child_can_open_a_device_of_its_own),
		CASE(forking_in_the_middle_of_traffic_breaks_nothing),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Ranges with a hole. Seen elsewhere: registering across an unmapped hole gave now ENOMEM, now EFAULT
 * (openucx/ucx#9592). Pinned it is EFAULT; on demand it registers, and only the request that touches the hole
 * fails, with the verbs' own error.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

#define PAGES 9ul
#define HOLE  4ul

enum hole { UNMAPPED, NO_ACCESS, BEYOND_THE_FILE, HOLES };

/* PAGES pages, of which number HOLE (and, beyond a file, all after it) cannot be reached. */
static char *with_hole(enum hole kind)
{
	char *memory;
	int fd;

	if (kind == BEYOND_THE_FILE) {
		check_sys((fd = memfd_create("short", MFD_CLOEXEC)) >= 0);
		check_sys(ftruncate(fd, HOLE * PAGE) == 0);
		memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		check_sys(memory != MAP_FAILED);
		close(fd);
		return memory;
	}
	memory = fresh_apart(PAGES * PAGE);
	if (kind == UNMAPPED)
		check_sys(munmap(memory + HOLE * PAGE, PAGE) == 0);
	else
		check_sys(mprotect(memory + HOLE * PAGE, PAGE, PROT_NONE) == 0);
	return memory;
}

static void pinning_across_it_is_EFAULT_each_time(void)
{
	struct end e;

	end_open(&e, NULL);
	for (int kind = 0; kind < HOLES; kind++) {
		char *memory = with_hole(kind);

		for (int i = 0; i < 30; i++) {
			errno = 0;
			check(ibv_reg_mr(e.pd, memory, PAGES * PAGE,
				      i % 2 ? REMOTE : IBV_ACCESS_REMOTE_READ) == NULL);
			check_int(errno, EFAULT);
		}
		/* And nothing stays pinned behind it. */
		check_int(status_kib("VmPin") + status_kib("VmLck"), 0);
		dereg(reg(&e, memory, HOLE * PAGE, REMOTE));
	}
	end_close(&e);
}

static void only_the_request_that_touches_it_fails(void)
{
	char *mine = fresh(PAGES * PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	memset(mine, 3, PAGES * PAGE);
	here = reg(&p.a, mine, PAGES * PAGE, LOCAL);
	for (int kind = 0; kind < HOLES; kind++) {
		char *memory = with_hole(kind);

		there = reg(&p.b, memory, PAGES * PAGE, REMOTE | ODP);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, HOLE * PAGE, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_int(memory[HOLE * PAGE - 1], 3);
		if (kind != BEYOND_THE_FILE) {
			post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory + (HOLE + 1) * PAGE,
				there->rkey);
			wait_for(&p.a, IBV_WC_SUCCESS);
		}
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 2, memory + HOLE * PAGE - 1, there->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		pair_reconnect(&p);
		post(&p.a, IBV_WR_RDMA_READ, here, mine, PAGES * PAGE, memory, there->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		pair_reconnect(&p);
		post(&p.a, IBV_WR_ATOMIC_CMP_AND_SWP, here, mine, 8, memory + HOLE * PAGE, there->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		pair_reconnect(&p);
		/* The region outlives all that. */
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		dereg(there);
	}
	dereg(here);
	pair_close(&p);
}

static void it_can_be_filled_later(void)
{
	char *mine = fresh(PAGES * PAGE), *memory = with_hole(UNMAPPED);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGES * PAGE, LOCAL);
	there = reg(&p.b, memory, PAGES * PAGE, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGES * PAGE, memory, there->rkey);
	wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
	pair_reconnect(&p);
	check_sys(mmap(memory + HOLE * PAGE, PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	fill(mine, PAGES * PAGE, 12);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGES * PAGE, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_filled(memory, PAGES * PAGE, 12);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void a_sender_with_a_hole_gets_a_local_protection_error(void)
{
	char *other = fresh(PAGES * PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	there = reg(&p.b, other, PAGES * PAGE, REMOTE);
	for (int kind = 0; kind < HOLES; kind++) {
		char *mine = with_hole(kind);

		here = reg(&p.a, mine, PAGES * PAGE, LOCAL | ODP);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGES * PAGE, other, there->rkey);
		wait_for(&p.a, IBV_WC_LOC_PROT_ERR);
		pair_reconnect(&p);
		post(&p.a, IBV_WR_RDMA_READ, here, mine, PAGES * PAGE, other, there->rkey);
		wait_for(&p.a, IBV_WC_LOC_PROT_ERR);
		pair_reconnect(&p);
		post_recv(&p.b, there, other, PAGES * PAGE);
		post(&p.a, IBV_WR_SEND, here, mine + HOLE * PAGE, PAGE, NULL, 0);
		wait_for(&p.a, IBV_WC_LOC_PROT_ERR);
		pair_reconnect(&p);
		dereg(here);
	}
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(pinning_across_it_is_EFAULT_each_time),
		CASE(only_the_request_that_touches_it_fails),
		CASE(it_can_be_filled_later),
		CASE(a_sender_with_a_hole_gets_a_local_protection_error),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

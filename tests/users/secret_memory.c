/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* memfd_secret(2): memory whose pages the kernel gives to nobody else, a device's driver included. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

static char *secret(size_t length)
{
	const char *without = getenv("UNPIN_DISABLE");
	int fd = (int)syscall(SYS_memfd_secret, 0);
	char *memory;

	if (without && strstr(without, "process_vm") && strstr(without, "populate"))
		check_skip("without process_vm and populate nothing tells this memory from other");
	if (fd < 0)
		check_skip("this kernel has no memfd_secret");
	check_sys(ftruncate(fd, (off_t)length) == 0);
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check_sys(memory != MAP_FAILED);
	close(fd);
	fill(memory, length, 1);
	return memory;
}

static void it_cannot_be_pinned(void)
{
	char *memory = secret(4 * PAGE);
	struct end e;

	end_open(&e, NULL);
	errno = 0;
	check(!ibv_reg_mr(e.pd, memory, 4 * PAGE, REMOTE));
	check_int(errno, EFAULT);
	end_close(&e);
}

static void requests(enum ibv_wr_opcode op)
{
	char *memory = secret(4 * PAGE), *mine = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, 4 * PAGE, REMOTE | ODP);
	fill(mine, PAGE, 2);
	post(&p.a, op, here, mine, PAGE, memory + PAGE, there->rkey);
	wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
	check_filled(memory, 4 * PAGE, 1);
	check_filled(mine, PAGE, 2);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void on_demand_it_cannot_be_reached(void)
{
	requests(IBV_WR_RDMA_WRITE);
	requests(IBV_WR_RDMA_READ);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(it_cannot_be_pinned),
		CASE(on_demand_it_cannot_be_reached),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

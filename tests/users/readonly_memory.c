/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Read-only memory. Seen elsewhere: reading it through an on-demand region that also allows writing failed
 * with a remote access error (chapel-lang/chapel#18245), and it could not be registered at all
 * (ofiwg/libfabric#6467).
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (8 * 4096ul)

static const unsigned char constants[LENGTH] __attribute__((aligned(4096))) = { 1, 2, 3, 4, 5 };

enum kind { ANONYMOUS, PRIVATE_FILE, SHARED_FILE, RODATA, KINDS };
static const char *const kind_names[] = { "anonymous", "private file", "shared file", "constants" };

/* Memory that can only be read, filled with seed 5 (constants: with themselves). */
static void *read_only(enum kind kind)
{
	unsigned char bytes[4096];
	void *memory;
	int fd;

	if (kind == RODATA)
		return (void *)(uintptr_t)constants;
	if (kind == ANONYMOUS) {
		memory = fresh(LENGTH);
		fill(memory, LENGTH, 5);
		check_sys(mprotect(memory, LENGTH, PROT_READ) == 0);
		return memory;
	}
	check_sys((fd = memfd_create("read-only", MFD_CLOEXEC)) >= 0);
	for (size_t at = 0; at < LENGTH; at += sizeof(bytes)) {
		memset(bytes, 5, sizeof(bytes));
		check_sys(write(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes));
	}
	memory = mmap(NULL, LENGTH, PROT_READ, kind == PRIVATE_FILE ? MAP_PRIVATE : MAP_SHARED, fd, 0);
	check_sys(memory != MAP_FAILED);
	close(fd);
	return memory;
}

static void can_be_read(struct pair *p, struct ibv_mr *src, const void *memory)
{
	unsigned char *got = fresh(LENGTH);
	struct ibv_mr *dst = reg(&p->a, got, LENGTH, LOCAL);

	post(&p->a, IBV_WR_RDMA_READ, dst, got, LENGTH, memory, src->rkey);
	wait_for(&p->a, IBV_WC_SUCCESS);
	check(!memcmp(got, memory, LENGTH));
	dereg(dst);
	drop(got, LENGTH);
}

static void a_read_of_it_succeeds_through_an_on_demand_region_that_allows_writing(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int k = 0; k < KINDS; k++) {
		void *memory = read_only(k);
		struct ibv_mr *mr = reg(&p.b, memory, LENGTH, REMOTE | ODP);

		can_be_read(&p, mr, memory);
		dereg(mr);
	}
	pair_close(&p);
}

static void a_write_to_it_is_a_remote_access_error(void)
{
	unsigned char *from = fresh(LENGTH);
	struct ibv_mr *src;
	struct pair p;

	pair_open(&p, NULL);
	src = reg(&p.a, from, LENGTH, LOCAL);
	memset(from, 0x99, LENGTH);
	for (int k = 0; k < KINDS; k++) {
		unsigned char *memory = read_only(k), first = memory[0], last = memory[LENGTH - 1];
		struct ibv_mr *mr = reg(&p.b, memory, LENGTH, REMOTE | ODP);

		post(&p.a, IBV_WR_RDMA_WRITE, src, from, LENGTH, memory, mr->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		check_int(memory[0], first);
		check_int(memory[LENGTH - 1], last);
		pair_reconnect(&p);
		/* Atomics write too. */
		post(&p.a, IBV_WR_ATOMIC_FETCH_AND_ADD, src, from, 8, memory, mr->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		pair_reconnect(&p);
		/* And the region is still good for reading. */
		can_be_read(&p, mr, memory);
		dereg(mr);
	}
	dereg(src);
	pair_close(&p);
}

static void a_receive_into_it_is_a_local_protection_error(void)
{
	unsigned char *memory = read_only(ANONYMOUS), *from = fresh(LENGTH);
	struct ibv_mr *src, *dst;
	struct pair p;

	pair_open(&p, NULL);
	src = reg(&p.a, from, LENGTH, LOCAL);
	dst = reg(&p.b, memory, LENGTH, LOCAL | ODP);
	post_recv(&p.b, dst, memory, LENGTH);
	post(&p.a, IBV_WR_SEND, src, from, LENGTH, NULL, 0);
	wait_for(&p.b, IBV_WC_LOC_PROT_ERR);
	wait_for(&p.a, IBV_WC_REM_OP_ERR);
	check_filled(memory, LENGTH, 5);
	dereg(src);
	dereg(dst);
	pair_close(&p);
}

static void after_mprotect_the_same_region_can_be_written(void)
{
	unsigned char *memory = read_only(ANONYMOUS), *from = fresh(LENGTH);
	struct ibv_mr *src, *mr;
	struct pair p;

	pair_open(&p, NULL);
	src = reg(&p.a, from, LENGTH, LOCAL);
	mr = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	fill(from, LENGTH, 6);
	for (int round = 0; round < 3; round++) {
		can_be_read(&p, mr, memory);
		post(&p.a, IBV_WR_RDMA_WRITE, src, from, LENGTH, memory, mr->rkey);
		wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
		pair_reconnect(&p);
		check_sys(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0);
		post(&p.a, IBV_WR_RDMA_WRITE, src, from, LENGTH, memory, mr->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(memory, LENGTH, 6);
		check_sys(mprotect(memory, LENGTH, PROT_READ) == 0);
	}
	dereg(src);
	dereg(mr);
	pair_close(&p);
}

static void pinning_it_for_local_write_is_EFAULT(void)
{
	struct end e;

	end_open(&e, NULL);
	for (int k = 0; k < KINDS; k++) {
		void *memory = read_only(k);

		errno = 0;
		if (ibv_reg_mr(e.pd, memory, LENGTH, LOCAL))
			check_failed(__FILE__, __LINE__, "%s: registered", kind_names[k]);
		check_int(errno, EFAULT);
	}
	end_close(&e);
}

static void pinning_it_for_reading_works(void)
{
	struct pair p;

	pair_open(&p, NULL);
	for (int k = 0; k < KINDS; k++) {
		void *memory = read_only(k);
		struct ibv_mr *mr = reg(&p.b, memory, LENGTH, IBV_ACCESS_REMOTE_READ);

		can_be_read(&p, mr, memory);
		dereg(mr);
	}
	pair_close(&p);
}

static void on_demand_it_registers_either_way(void)
{
	struct end e;

	end_open(&e, NULL);
	for (int k = 0; k < KINDS; k++) {
		void *memory = read_only(k);

		dereg(reg(&e, memory, LENGTH, ODP));
		dereg(reg(&e, memory, LENGTH, IBV_ACCESS_REMOTE_READ | ODP));
		dereg(reg(&e, memory, LENGTH, REMOTE | ODP));
	}
	end_close(&e);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_read_of_it_succeeds_through_an_on_demand_region_that_allows_writing),
		CASE(a_write_to_it_is_a_remote_access_error),
		CASE(a_receive_into_it_is_a_local_protection_error),
		CASE(after_mprotect_the_same_region_can_be_written),
		CASE(pinning_it_for_local_write_is_EFAULT),
		CASE(pinning_it_for_reading_works),
		CASE(on_demand_it_registers_either_way),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

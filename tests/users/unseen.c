/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pinned memory that goes without munmap() being called: by free(), realloc(), a shrinking heap, a raw system
 * call. What is mapped there afterwards is not what was registered, and requests do not touch it; they reach
 * the old pages or fail.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pair.h"

#define MIB    (1024 * 1024ul)
#define LENGTH (40 * MIB) /* a mapping of its own, whatever was freed before */
#define OFFSET (64 * 1024ul)

struct site {
	struct pair p;
	char *mine;
	struct ibv_mr *here, *there;
};

static void site_open(struct site *s, char *memory, size_t length)
{
	pair_open(&s->p, NULL);
	s->mine = fresh(PAGE);
	memset(s->mine, 0xee, PAGE);
	s->here = reg(&s->p.a, s->mine, PAGE, LOCAL);
	memset(memory, 1, length);
	s->there = reg(&s->p.b, memory, length, REMOTE);
}

/* A WRITE through the old key to where memory was, in which new memory with byte lies. */
static void write_to(struct site *s, char *at, unsigned char byte)
{
	struct ibv_wc wc;

	post(&s->p.a, IBV_WR_RDMA_WRITE, s->here, s->mine, PAGE, at, s->there->rkey);
	wc = wait_any(&s->p.a);
	check(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_REM_ACCESS_ERR);
	for (size_t i = 0; i < PAGE; i++)
		check_int((unsigned char)at[i], byte);
	if (wc.status != IBV_WC_SUCCESS)
		pair_reconnect(&s->p);
}

static void site_close(struct site *s)
{
	dereg(s->here);
	dereg(s->there);
	pair_close(&s->p);
}

/* The compiler must not know that a block is freed. */
static void *volatile block;

static void a_freed_block(void)
{
	struct site s;
	char *old, *new;

	block = malloc(LENGTH);
	old = block;
	site_open(&s, old, LENGTH);
	free(block);
	block = malloc(LENGTH);
	new = block;
	if (new != old)
		check_skip("the allocator gave another address");
	memset(new, 2, LENGTH);
	write_to(&s, new + OFFSET, 2);
	free(block);
	site_close(&s);
}

/* A block that is resized may move; what is mapped where it was is new. */
static void a_block_that_moved(void)
{
	struct site s;
	char *old, *new, *moved;

	block = malloc(LENGTH);
	old = block;
	site_open(&s, old, LENGTH);
	block = realloc(block, 2 * LENGTH);
	moved = block;
	check_int(moved[0], 1);
	check_int(moved[LENGTH - 1], 1);
	new = (char *)((uintptr_t)old & ~(PAGE - 1));
	if (moved != old)
		check_sys(mmap(new, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				  -1, 0) == new);
	memset(new + OFFSET, 2, PAGE);
	if (moved != old)
		write_to(&s, new + OFFSET, 2);
	site_close(&s);
}

/* In the heap below the break. */
static void a_heap_that_shrank(void)
{
	struct site s;
	char *old, *new;
	char *end;

	mallopt(M_MMAP_THRESHOLD, 32 * MIB);
	mallopt(M_TRIM_THRESHOLD, 128 * 1024);
	block = malloc(MIB);
	old = block;
	end = sbrk(0);
	if (old + MIB > end)
		check_skip("the block is not in the heap");
	pair_open(&s.p, NULL); /* allocates */
	pair_close(&s.p);
	free(block);
	site_open(&s, fresh(PAGE), PAGE);
	dereg(s.there);
	block = malloc(MIB);
	old = block;
	s.there = reg(&s.p.b, old, MIB, REMOTE);
	end = sbrk(0);
	free(block);
	if ((char *)sbrk(0) >= end)
		check_skip("the heap did not shrink");
	block = malloc(MIB);
	new = block;
	if (new != old)
		check_skip("the allocator gave another address");
	memset(new, 2, MIB);
	/* Not at the beginning: the allocator keeps some of what is free. */
	write_to(&s, new + MIB / 2, 2);
	free(block);
	site_close(&s);
}

static void a_raw_munmap(void)
{
	char *old = fresh_apart(LENGTH), *new;
	struct site s;

	site_open(&s, old, LENGTH);
	check_sys(syscall(SYS_munmap, old, LENGTH) == 0);
	new = mmap(old, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(new == old);
	write_to(&s, new + OFFSET, 0);
	memset(new, 2, LENGTH);
	write_to(&s, new + OFFSET, 2);
	site_close(&s);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_freed_block),
		CASE(a_block_that_moved),
		CASE(a_heap_that_shrank),
		CASE(a_raw_munmap),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

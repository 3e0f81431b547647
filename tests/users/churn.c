/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory that changes under the device. Seen elsewhere: registering or prefetching on demand collided with an
 * invalidation and returned EAGAIN without end (openucx/ucx#9967), writes into a valid region failed under
 * churn (openucx/ucx#2915). A region over mapped memory never fails, and there is progress whatever another
 * thread does.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH (64 * 4096ul)
#define ROUNDS 150
/* Where each page costs a refusal, less of them have to do: at least so many, and for so many seconds. */
#define LEAST  15
#define ENOUGH 4

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

struct churn {
	void (*once)(void *memory);
	void *memory;
	atomic_bool stop;
	atomic_ulong times;
	pthread_t thread;
};

static void *churning(void *arg)
{
	struct churn *c = arg;

	while (!c->stop) {
		c->once(c->memory);
		c->times++;
	}
	return NULL;
}

static void churn_begin(struct churn *c, void (*once)(void *), void *memory)
{
	c->once = once;
	c->memory = memory;
	c->stop = false;
	c->times = 0;
	check_int(pthread_create(&c->thread, NULL, churning, c), 0);
	while (!c->times)
		;
}

static void churn_end(struct churn *c)
{
	c->stop = true;
	check_int(pthread_join(c->thread, NULL), 0);
}

static void dontneed(void *memory)
{
	check_sys(madvise(memory, LENGTH, MADV_DONTNEED) == 0);
}

/* EINVAL over memory that is pinned by mlock. */
static void dontneed_if_possible(void *memory)
{
	madvise(memory, LENGTH, MADV_DONTNEED);
}

static void replace(void *memory)
{
	check_sys(mmap(memory, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			  0) == memory);
}

static void protect_and_allow(void *memory)
{
	check_sys(mprotect(memory, LENGTH, PROT_READ) == 0);
	check_sys(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) == 0);
}

static void pageout(void *memory)
{
	/* EINVAL where the kernel refuses; then this is an idle loop. */
	madvise(memory, LENGTH, MADV_PAGEOUT);
}

static void one_page_at_a_time(void *memory)
{
	for (size_t at = 0; at < LENGTH; at += PAGE)
		check_sys(madvise((char *)memory + at, PAGE, MADV_DONTNEED) == 0);
}

/* All requests of the kind succeed while the memory of the remote side (and, for a SEND, of the receiver) is
 * churned. */
static void all_succeed(enum ibv_wr_opcode op, void (*once)(void *), void *memory)
{
	unsigned char *mine = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct churn c;
	struct pair p;
	double end;

	pair_open(&p, NULL);
	memset(mine, 1, LENGTH);
	here = reg(&p.a, mine, LENGTH, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	churn_begin(&c, once, memory);
	end = now() + ENOUGH;
	for (int i = 0; i < ROUNDS && (i < LEAST || now() < end); i++) {
		size_t length = i % 3 ? LENGTH : 8;

		if (op == IBV_WR_SEND)
			post_recv(&p.b, there, memory, length);
		post(&p.a, op, here, mine, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : length, memory,
			there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		if (op == IBV_WR_SEND)
			wait_for(&p.b, IBV_WC_SUCCESS);
	}
	churn_end(&c);
	/* And in peace everything is as it should be. */
	if (op == IBV_WR_RDMA_WRITE) {
		fill(mine, LENGTH, 3);
		post(&p.a, op, here, mine, LENGTH, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(memory, LENGTH, 3);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void writes_succeed_while_the_pages_are_dropped(void)
{
	all_succeed(IBV_WR_RDMA_WRITE, dontneed, fresh(LENGTH));
}

static void writes_succeed_while_single_pages_are_dropped(void)
{
	all_succeed(IBV_WR_RDMA_WRITE, one_page_at_a_time, fresh(LENGTH));
}

static void reads_succeed_while_the_pages_are_dropped(void)
{
	all_succeed(IBV_WR_RDMA_READ, dontneed, fresh(LENGTH));
}

static void sends_succeed_while_the_receivers_pages_are_dropped(void)
{
	all_succeed(IBV_WR_SEND, dontneed, fresh(LENGTH));
}

static void atomics_succeed_while_the_pages_are_dropped(void)
{
	all_succeed(IBV_WR_ATOMIC_FETCH_AND_ADD, dontneed, fresh(LENGTH));
}

static void writes_succeed_while_the_mapping_is_replaced(void)
{
	all_succeed(IBV_WR_RDMA_WRITE, replace, fresh(LENGTH));
}

static void reads_succeed_while_the_protection_changes(void)
{
	all_succeed(IBV_WR_RDMA_READ, protect_and_allow, fresh(LENGTH));
}

static void writes_succeed_while_the_kernel_pages_out(void)
{
	all_succeed(IBV_WR_RDMA_WRITE, pageout, fresh(LENGTH));
}

static void writes_to_a_file_succeed_while_it_is_paged_out(void)
{
	char name[] = "/var/tmp/unpin-test-XXXXXX";
	int fd = mkstemp(name);
	void *memory;

	check_sys(fd >= 0);
	unlink(name);
	check_sys(ftruncate(fd, LENGTH) == 0);
	memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check_sys(memory != MAP_FAILED);
	all_succeed(IBV_WR_RDMA_WRITE, pageout, memory);
	all_succeed(IBV_WR_RDMA_READ, pageout, memory);
	close(fd);
}

static void a_sender_whose_own_pages_are_dropped_succeeds(void)
{
	unsigned char *mine = fresh(LENGTH), *other = fresh(LENGTH);
	struct ibv_mr *here, *there;
	struct churn c;
	struct pair p;
	double end;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, LENGTH, LOCAL | ODP);
	there = reg(&p.b, other, LENGTH, REMOTE);
	churn_begin(&c, dontneed, mine);
	end = now() + ENOUGH;
	for (int i = 0; i < ROUNDS && (i < LEAST || now() < end); i++) {
		post(&p.a, i % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, here, mine, LENGTH, other,
			there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	churn_end(&c);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void registration_never_says_again(void)
{
	void *memory = fresh(LENGTH);
	struct churn c;
	struct end e;

	end_open(&e, NULL);
	churn_begin(&c, dontneed_if_possible, memory);
	for (int i = 0; i < 2000; i++)
		dereg(reg(&e, memory, LENGTH, REMOTE | ODP));
	/* Pinned registration needs the pages at one moment only. */
	for (int i = 0; i < 50; i++)
		dereg(reg(&e, memory, LENGTH, REMOTE));
	churn_end(&c);
	end_close(&e);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(writes_succeed_while_the_pages_are_dropped),
		CASE(writes_succeed_while_single_pages_are_dropped),
		CASE(reads_succeed_while_the_pages_are_dropped),
		CASE(sends_succeed_while_the_receivers_pages_are_dropped),
		CASE(atomics_succeed_while_the_pages_are_dropped),
		CASE(writes_succeed_while_the_mapping_is_replaced),
		CASE(reads_succeed_while_the_protection_changes),
		CASE(writes_succeed_while_the_kernel_pages_out),
		CASE(writes_to_a_file_succeed_while_it_is_paged_out),
		CASE(a_sender_whose_own_pages_are_dropped_succeeds),
		CASE(registration_never_says_again),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Regions far larger than memory. Seen elsewhere: regions over 4 GB whose queue pairs died on the first fault
 * unless the RNR retry count was not zero (zrlio/disni#39); lengths of 2 GiB and more refused (the kernel's
 * rxe); minutes to register terabytes.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

#define GIB (1024ul * 1024 * 1024)

/* The same 4 KiB and a bit at places that 31 and 32 bits cannot say, by every kind of request. */
static void touch_everywhere(const struct options *opt)
{
	static const uint64_t places[] = { 0, 2 * GIB - 2048, 4 * GIB - 2048, 6 * GIB + 1, 8 * GIB - 5000 };
	char *memory = fresh(8 * GIB), *mine = fresh(2 * 5000);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, opt);
	here = reg(&p.a, mine, 2 * 5000, LOCAL);
	there = reg(&p.b, memory, 8 * GIB, REMOTE | ODP);
	check(there->length == 8 * GIB);
	for (unsigned i = 0; i < COUNT(places); i++) {
		char *place = memory + places[i];

		fill(mine, 5000, i);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 5000, place, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(place, 5000, i);
		check_sys(madvise((void *)((uintptr_t)place & ~(PAGE - 1)), 2 * PAGE, MADV_DONTNEED) == 0);
		memset(mine, 1, 10000);
		post(&p.a, IBV_WR_RDMA_READ, here, mine + 5000, 4096, place, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_zero(mine + 5000, (PAGE - ((uintptr_t)place & (PAGE - 1))) % 4096);
		check_sys(madvise((void *)((uintptr_t)place & ~(PAGE - 1)), 2 * PAGE, MADV_DONTNEED) == 0);
		fill(mine, 5000, i + 50);
		post_recv(&p.b, there, place, 5000);
		post(&p.a, IBV_WR_SEND, here, mine, 5000, NULL, 0);
		wait_for(&p.b, IBV_WC_SUCCESS);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(place, 5000, i + 50);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void cold_pages_of_8_GiB_are_reached_with_rnr_retry_0(void)
{
	touch_everywhere(&(struct options){ .retry_set = true, .retry_cnt = 0, .rnr_retry = 0 });
}

static void cold_pages_of_8_GiB_are_reached_with_rnr_retry_1(void)
{
	touch_everywhere(&(struct options){ .retry_set = true, .retry_cnt = 1, .rnr_retry = 1 });
}

static void cold_pages_of_8_GiB_are_reached_with_rnr_retry_7(void)
{
	touch_everywhere(&(struct options){ .retry_set = true, .retry_cnt = 7, .rnr_retry = 7 });
}

/*
 * Where a fault is answered with "receiver not ready", as hardware does it, a request survives if it may be
 * tried again. The timer is long beside a fault: one retry is enough.
 */
static void as_hardware_answers_faults_only_retry_0_fails(void)
{
	static const uint8_t retries[] = { 0, 1, 7 };
	char *mine = fresh(PAGE);

	check_sys(setenv("UNPIN_FAULT_REPLY", "rnr", 1) == 0);
	for (size_t i = 0; i < COUNT(retries); i++) {
		struct options opt = { .retry_set = true,
			.retry_cnt = 7,
			.rnr_retry = retries[i],
			.min_rnr_timer = 31 /* 491.52 ms */ };
		char *memory = fresh(8 * GIB);
		struct ibv_mr *here, *there;
		struct pair p;

		pair_open(&p, &opt);
		here = reg(&p.a, mine, PAGE, LOCAL);
		there = reg(&p.b, memory, 8 * GIB, REMOTE | ODP);
		fill(mine, PAGE, retries[i]);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory + 5 * GIB, there->rkey);
		wait_for(&p.a, retries[i] ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR);
		check(counter(getpid(), "faults_rnr") > 0);
		if (retries[i]) {
			check_filled(memory + 5 * GIB, PAGE, retries[i]);
		} else {
			/* The fault has been seen to all the same: connected anew it works. */
			wait_counter(getpid(), "page_faults_handled", 1);
			pair_reconnect(&p);
			post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory + 5 * GIB, there->rkey);
			wait_for(&p.a, IBV_WC_SUCCESS);
		}
		dereg(here);
		dereg(there);
		pair_close(&p);
		drop(memory, 8 * GIB);
	}
}

static void terabytes_register_and_cost_nothing(void)
{
	long before;
	struct end e;

	end_open(&e, NULL);
	before = status_kib("VmRSS");
	for (unsigned long tib = 1; tib <= 16; tib *= 4) {
		size_t length = tib * 1024 * GIB;
		char *memory = fresh(length);
		struct ibv_mr *mr = reg(&e, memory, length, REMOTE | ODP);

		check(mr->length == length);
		check(status_kib("VmRSS") - before < 2048);
		dereg(mr);
		drop(memory, length);
	}
	end_close(&e);
}

static void the_ends_of_a_terabyte_can_be_written(void)
{
	size_t length = 1024 * GIB;
	char *memory = fresh(length), *mine = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, length, REMOTE | ODP);
	fill(mine, PAGE, 1);
	for (size_t at = 0; at < length; at += length / 4 - PAGE / 4) {
		size_t n = length - at < PAGE ? length - at : PAGE;

		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, n, memory + at, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
		check_filled(memory + at, n, 1);
	}
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 2, memory + length - 1, there->rkey);
	wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void a_message_of_more_than_a_gigabyte_arrives(void)
{
	size_t length = GIB + 4097;
	char *from = fresh(length), *to = fresh(length);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	/* Mostly the zero page here; its ends and a middle tell whether it was all there. */
	fill(from, PAGE, 1);
	fill(from + length / 2, PAGE, 2);
	fill(from + length - PAGE, PAGE, 3);
	here = reg(&p.a, from, length, LOCAL | ODP);
	there = reg(&p.b, to, length, REMOTE | ODP);
	post(&p.a, IBV_WR_RDMA_WRITE, here, from, length, to, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_filled(to, PAGE, 1);
	check_zero(to + PAGE, 100 * PAGE);
	check_filled(to + length / 2, PAGE, 2);
	check_filled(to + length - PAGE, PAGE, 3);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(cold_pages_of_8_GiB_are_reached_with_rnr_retry_0),
		CASE(cold_pages_of_8_GiB_are_reached_with_rnr_retry_1),
		CASE(cold_pages_of_8_GiB_are_reached_with_rnr_retry_7),
		CASE(as_hardware_answers_faults_only_retry_0_fails),
		CASE(terabytes_register_and_cost_nothing),
		CASE(the_ends_of_a_terabyte_can_be_written),
		CASE(a_message_of_more_than_a_gigabyte_arrives),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

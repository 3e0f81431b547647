/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The steps of a queue pair that meet a fault, in each manner that can be chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "nic/nic.h"
#include "pair.h"

#define PAGE 4096u

static uint8_t *fresh(void)
{
	uint8_t *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static const struct {
	const char *name;
	enum ibv_wr_opcode op;
	bool recv;
} requests[] = {
	{ "WRITE", IBV_WR_RDMA_WRITE, false },
	{ "READ", IBV_WR_RDMA_READ, false },
	{ "atomic", IBV_WR_ATOMIC_FETCH_AND_ADD, false },
	{ "SEND", IBV_WR_SEND, true },
};

#define REQUESTS (sizeof(requests) / sizeof(requests[0]))

struct outcome {
	enum ibv_wc_status status;
	uint64_t refused, sent, received; /* faults answered so, RNR NAKs sent and received */
	uint64_t faults;
};

/* One request from warm pinned memory to a page that was never touched. */
static struct outcome cold_request(unsigned i, int rnr_retry)
{
	struct pair_options o = { .rnr_retry = rnr_retry };
	uint8_t *mine = fresh(), *cold = fresh();
	struct unpin_segment *seg;
	struct nic_mr *here, *there;
	struct outcome out;
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, &o);
	seg = p.ctx->nic->seg;
	here = pair_reg(&p, mine, PAGE, 0);
	there = pair_reg(&p, cold, PAGE, IBV_ACCESS_ON_DEMAND);
	memset(mine, 0x5a, PAGE);
	if (requests[i].recv)
		assert_int_equal(0, pair_recv(&p, 1, cold, PAGE, pair_key(there)));
	assert_int_equal(0,
		pair_send(&p, 0, requests[i].op, mine, 8, pair_key(here), (uintptr_t)cold, pair_key(there)));
	pair_wait(&p, 0, 1, &wc);
	out = (struct outcome){ wc.status, there->counters->faults_rnr, seg->dev.rnr_nak_sent,
		seg->dev.rnr_nak_rcvd, seg->odp.page_faults };
	assert_int_equal(out.refused, seg->odp.faults_rnr);
	if (wc.status == IBV_WC_SUCCESS && requests[i].recv)
		pair_expect(&p, 1, IBV_WC_SUCCESS);
	if (wc.status == IBV_WC_SUCCESS && requests[i].op == IBV_WR_RDMA_WRITE)
		assert_memory_equal(mine, cold, 8);
	nic_mr_destroy(here);
	nic_mr_destroy(there);
	pair_close(&p);
	munmap(mine, PAGE);
	munmap(cold, PAGE);
	return out;
}

static void a_request_that_faults_is_held_by_default_whatever_the_retry_count(void **state)
{
	(void)state;
	for (unsigned i = 0; i < REQUESTS; i++) {
		struct outcome out = cold_request(i, -1);

		assert_int_equal(IBV_WC_SUCCESS, out.status);
		assert_int_equal(0, out.refused + out.sent + out.received);
		assert_true(out.faults > 0);
	}
}

static void it_is_answered_receiver_not_ready_on_request(void **state)
{
	(void)state;
	setenv("UNPIN_FAULT_REPLY", "rnr", 1);
	for (unsigned i = 0; i < REQUESTS; i++) {
		struct outcome out = cold_request(i, 7);

		if (out.status != IBV_WC_SUCCESS || !out.refused || out.sent != out.refused ||
			out.received != out.sent)
			fail_msg("%s: status %d, refused %d, sent %d, received %d", requests[i].name,
				(int)out.status, (int)out.refused, (int)out.sent, (int)out.received);
	}
	unsetenv("UNPIN_FAULT_REPLY");
}

/* zrlio/disni#39: on hardware, queue pairs die unless the retry count is not zero. */
static void then_a_retry_count_of_nought_fails(void **state)
{
	(void)state;
	setenv("UNPIN_FAULT_REPLY", "rnr", 1);
	for (unsigned i = 0; i < REQUESTS; i++) {
		struct outcome out = cold_request(i, -1);

		assert_int_equal(IBV_WC_RNR_RETRY_EXC_ERR, out.status);
		assert_int_equal(1, out.refused);
	}
	unsetenv("UNPIN_FAULT_REPLY");
}

/* The sender's own memory may fault too: there is nobody to be told to come again. */
static void faults_of_the_requesters_own_memory_are_waited_for_in_any_manner(void **state)
{
	uint8_t *cold = fresh(), *target = fresh();
	struct nic_mr *here, *there;
	struct pair p;

	(void)state;
	setenv("UNPIN_FAULT_REPLY", "rnr", 1);
	pair_open(&p, &(struct pair_options){ .rnr_retry = -1 });
	here = pair_reg(&p, cold, PAGE, IBV_ACCESS_ON_DEMAND);
	there = pair_reg(&p, target, PAGE, 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(0, pair_send(&p, 0, i ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, cold, PAGE,
					    pair_key(here), (uintptr_t)target, pair_key(there)));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		assert_int_equal(0, madvise(cold, PAGE, MADV_DONTNEED));
	}
	assert_int_equal(0, here->counters->faults_rnr);
	assert_true(here->counters->page_faults > 0);
	nic_mr_destroy(here);
	nic_mr_destroy(there);
	pair_close(&p);
	unsetenv("UNPIN_FAULT_REPLY");
	munmap(cold, PAGE);
	munmap(target, PAGE);
}

static void an_imprecise_fault_is_resolved_by_what_is_outstanding(void **state)
{
	enum { REQUESTS_OUT = 32 };
	const size_t len = REQUESTS_OUT * 8 * PAGE;
	uint8_t *mine = fresh();
	uint8_t *cold = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_wc wc[REQUESTS_OUT];
	struct nic_mr *here, *there;
	struct pair p;

	(void)state;
	for (int precise = 0; precise < 2; precise++) {
		setenv("UNPIN_FAULT_MODE", precise ? "precise" : "imprecise", 1);
		pair_open(&p, NULL);
		here = pair_reg(&p, mine, PAGE, 0);
		there = pair_reg(&p, cold, len, IBV_ACCESS_ON_DEMAND);
		/* Gathers from pages far apart: the sender's queue names them all. */
		for (int i = 0; i < REQUESTS_OUT; i++)
			assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, cold + i * 8 * PAGE, 8,
						    pair_key(there), (uintptr_t)mine, pair_key(here)));
		pair_wait(&p, 0, REQUESTS_OUT, wc);
		for (int i = 0; i < REQUESTS_OUT; i++)
			assert_int_equal(IBV_WC_SUCCESS, wc[i].status);
		assert_int_equal(precise, there->counters->faults_imprecise == 0);
		assert_string_equal(p.ctx->nic->seg->fault_mode, precise ? "precise" : "imprecise");
		nic_mr_destroy(here);
		nic_mr_destroy(there);
		pair_close(&p);
		assert_int_equal(0, madvise(cold, len, MADV_DONTNEED));
	}
	unsetenv("UNPIN_FAULT_MODE");
	munmap(mine, PAGE);
	munmap(cold, len);
}

static void a_fault_takes_as_long_as_it_is_told_to(void **state)
{
	struct unpin_segment *seg;
	uint8_t *mine = fresh(), *cold = fresh();
	struct nic_mr *here, *there;
	uint64_t begin;
	struct pair p;

	(void)state;
	setenv("UNPIN_FAULT_LATENCY", "30ms", 1);
	pair_open(&p, NULL);
	seg = p.ctx->nic->seg;
	here = pair_reg(&p, mine, PAGE, 0);
	there = pair_reg(&p, cold, PAGE, IBV_ACCESS_ON_DEMAND);
	begin = clock_ns();
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, mine, 8, pair_key(here), (uintptr_t)cold,
				    pair_key(there)));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	assert_true(clock_ns() - begin >= 30 * NSEC_PER_MSEC);
	assert_true(seg->odp.page_faults > 0);
	nic_mr_destroy(here);
	nic_mr_destroy(there);
	pair_close(&p);
	unsetenv("UNPIN_FAULT_LATENCY");
	munmap(mine, PAGE);
	munmap(cold, PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_that_faults_is_held_by_default_whatever_the_retry_count),
		cmocka_unit_test(it_is_answered_receiver_not_ready_on_request),
		cmocka_unit_test(then_a_retry_count_of_nought_fails),
		cmocka_unit_test(faults_of_the_requesters_own_memory_are_waited_for_in_any_manner),
		cmocka_unit_test(an_imprecise_fault_is_resolved_by_what_is_outstanding),
		cmocka_unit_test(a_fault_takes_as_long_as_it_is_told_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

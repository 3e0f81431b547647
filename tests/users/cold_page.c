/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Many requests for one page that is not there. Seen elsewhere: a second request issued while the first one
 * faults, or many queue pairs on one cold page, cost thousands of times as much as one fault (the pitfalls
 * paper, ISPASS 2021). Here it is one fault, whoever waits, and nothing is sent again.
 */
#include <string.h>
#include <unistd.h>

#include "pair.h"
#include "slow.h"

#define QPS 16

struct crowd {
	struct pair pair[QPS];
	char *mine;
	struct ibv_mr *here[QPS], *there[QPS];
};

static void crowd_open(struct crowd *c, void *memory, size_t length)
{
	c->mine = fresh(PAGE);
	memset(c->mine, 7, PAGE);
	for (int i = 0; i < QPS; i++) {
		pair_open(&c->pair[i], NULL);
		c->here[i] = reg(&c->pair[i].a, c->mine, PAGE, LOCAL);
		c->there[i] = reg(&c->pair[i].b, memory, length, REMOTE | ODP);
	}
}

static void crowd_close(struct crowd *c)
{
	for (int i = 0; i < QPS; i++) {
		dereg(c->here[i]);
		dereg(c->there[i]);
		pair_close(&c->pair[i]);
	}
}

static uint64_t events(void)
{
	return counter(getpid(), "faults_minor") + counter(getpid(), "faults_major");
}

static void many_queue_pairs_on_one_page_are_one_fault(void)
{
	static struct crowd c;
	struct ibv_wc wc;
	struct slow s;

	slow_open(&s, 4 * PAGE, true);
	crowd_open(&c, s.memory, s.length);
	for (int i = 0; i < QPS; i++)
		post(&c.pair[i].a, IBV_WR_RDMA_WRITE, c.here[i], c.mine, 8, s.memory + 8 * i,
			c.there[i]->rkey);
	check_int(slow_fault(&s, 5000), 0);
	/* All others have joined: no second fault has reached the kernel, and none is completed. */
	wait_counter(getpid(), "faults_coalesced", QPS - 1);
	check_int(slow_fault(&s, 100), -1);
	for (int i = 0; i < QPS; i++)
		check_int(ibv_poll_cq(c.pair[i].a.cq, 1, &wc), 0);
	slow_answer(&s, 0, 0);
	for (int i = 0; i < QPS; i++)
		wait_for(&c.pair[i].a, IBV_WC_SUCCESS);
	for (int i = 0; i < QPS; i++)
		check_int(s.memory[8 * i], 7);
	check_int(events(), 1);
	check_int(counter(getpid(), "retransmits"), 0);
	check_int(counter(getpid(), "rnr_nak_sent"), 0);
	crowd_close(&c);
	slow_close(&s);
}

static void requests_behind_a_faulting_one_wait_and_are_not_sent_again(void)
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
	/* The first goes to the page that is slow, the rest to another, and then to the same; a gap of 20 ms
	 * in between. */
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 100, s.memory, there->rkey);
	check_int(slow_fault(&s, 5000), 0);
	nap(20);
	for (int i = 0; i < 20; i++)
		post(&p.a, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, here, mine, 100,
			s.memory + (i % 3) * 16, there->rkey);
	check(!poll_for(&p.a, &wc, 300));
	slow_answer(&s, 0, 0);
	for (int i = 0; i < 21; i++)
		wait_for(&p.a, IBV_WC_SUCCESS);
	check_int(counter(getpid(), "retransmits"), 0);
	check_int(counter(getpid(), "rnr_nak_sent"), 0);
	dereg(here);
	dereg(there);
	pair_close(&p);
	slow_close(&s);
}

static void a_crowd_on_cold_anonymous_pages_faults_each_page_once(void)
{
	static struct crowd c;
	char *memory = fresh(64 * PAGE);
	uint64_t handled;

	crowd_open(&c, memory, 64 * PAGE);
	for (int page = 0; page < 64; page++)
		for (int i = 0; i < QPS; i++)
			post(&c.pair[i].a, IBV_WR_RDMA_WRITE, c.here[i], c.mine, 8,
				memory + PAGE * page + 8 * i, c.there[i]->rkey);
	for (int page = 0; page < 64; page++)
		for (int i = 0; i < QPS; i++)
			wait_for(&c.pair[i].a, IBV_WC_SUCCESS);
	/* Pages read ahead of need are valid without having been a fault. */
	handled = counter(getpid(), "page_faults_handled");
	check(handled > 0 && handled <= 64);
	check_int(handled, counter(getpid(), "page_faults"));
	check(events() <= handled);
	for (int page = 0; page < 64; page++)
		for (int i = 0; i < QPS; i++)
			check_int(memory[PAGE * page + 8 * i], 7);
	check_int(counter(getpid(), "retransmits"), 0);
	check_int(counter(getpid(), "rnr_nak_sent"), 0);
	crowd_close(&c);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(many_queue_pairs_on_one_page_are_one_fault),
		CASE(requests_behind_a_faulting_one_wait_and_are_not_sent_again),
		CASE(a_crowd_on_cold_anonymous_pages_faults_each_page_once),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

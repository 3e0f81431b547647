/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A receiver that is not ready. Seen elsewhere: storms of RNR answers, connections that die unless the retry
 * count is 7 (spdk/spdk#2429). The timer is waited for, so that there is no storm; the counts are honoured
 * exactly; 7 means for ever.
 */
#include <string.h>
#include <unistd.h>

#include "pair.h"

static void exactly(uint8_t retries)
{
	struct options opt = { .retry_set = true,
		.retry_cnt = 7,
		.rnr_retry = retries,
		.min_rnr_timer = 14 /* 1.28 ms */ };
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, &opt);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	wait_for(&p.a, IBV_WC_RNR_RETRY_EXC_ERR);
	wait_for(&p.a, IBV_WC_WR_FLUSH_ERR);
	check_int(state_of(p.a.qp), IBV_QPS_ERR);
	/* The first try and each of the retries was answered. */
	check_int(counter(getpid(), "rnr_nak_rcvd"), retries + 1);
	check_int(counter(getpid(), "rnr_nak_sent"), retries + 1);
	check_int(ibv_poll_cq(p.b.cq, 1, &wc), 0);
	check_int(state_of(p.b.qp), IBV_QPS_RTS);
	pair_close(&p);
}

static void no_retry_is_one_answer(void)
{
	exactly(0);
}

static void one_retry_is_two_answers(void)
{
	exactly(1);
}

static void six_retries_are_seven_answers(void)
{
	exactly(6);
}

static void seven_means_for_ever(void)
{
	struct options opt = { .retry_set = true, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 1 };
	struct ibv_wc wc;
	struct pair p;

	pair_open(&p, &opt);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	check(!poll_for(&p.a, &wc, 500));
	check(counter(getpid(), "rnr_nak_rcvd") > 8);
	post_recv(&p.b, NULL, NULL, 0);
	wait_for(&p.b, IBV_WC_SUCCESS);
	wait_for(&p.a, IBV_WC_SUCCESS);
	pair_close(&p);
}

static void the_timer_is_waited_for(void)
{
	/* Code 22 is 20.48 ms: half a second has room for 25 answers. */
	struct options opt = { .retry_set = true, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 22 };
	struct ibv_wc wc;
	struct pair p;
	double begin;

	pair_open(&p, &opt);
	begin = now();
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	check(!poll_for(&p.a, &wc, 500));
	check(counter(getpid(), "rnr_nak_rcvd") >= 2);
	check((double)counter(getpid(), "rnr_nak_rcvd") <= (now() - begin) / 0.02048 + 1);
	post_recv(&p.b, NULL, NULL, 0);
	wait_for(&p.a, IBV_WC_SUCCESS);
	pair_close(&p);
}

static void order_is_kept_across_retries(void)
{
	struct options opt = { .retry_set = true, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 1 };
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, &opt);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	for (int i = 0; i < 100; i++) {
		mine[i] = (char)i;
		post(&p.a, IBV_WR_SEND, here, mine + i, 1, NULL, 0);
	}
	for (int i = 0; i < 100; i++) {
		if (i % 7 == 0)
			nap(1);
		post_recv(&p.b, there, memory + i, 1);
	}
	for (int i = 0; i < 100; i++) {
		wait_for(&p.a, IBV_WC_SUCCESS);
		wait_for(&p.b, IBV_WC_SUCCESS);
	}
	check(!memcmp(mine, memory, 100));
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(no_retry_is_one_answer),
		CASE(one_retry_is_two_answers),
		CASE(six_retries_are_seven_answers),
		CASE(seven_means_for_ever),
		CASE(the_timer_is_waited_for),
		CASE(order_is_kept_across_retries),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

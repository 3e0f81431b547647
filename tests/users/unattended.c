/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Timers of the transport while nobody attends to the device. Each program here polls until the device takes
 * it for a poller, posts its request, and from then on calls no verb at all: it sleeps in poll(2) on an event
 * descriptor, or looks at its memory. Whatever has to happen next is the engine thread's affair.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

#define ROUNDS	   10
#define RNR_640_US 12
#define RNR_10_MS  20
#define ACK_1_MS   8

static const struct options quick = { .timeout = ACK_1_MS };

/* Polls without a pause, as poll_for() does not. */
static enum ibv_wc_status spin_for_one(struct end *e)
{
	double end = now() + WAIT_SECONDS;
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(e->cq, 1, &wc)) == 0)
		check(now() < end);
	check_int(n, 1);
	return wc.status;
}

/* Has traffic of its own, on another pair, until the engine leaves the work to this thread, which polls. */
static void poll_until_believed(struct pair *busy)
{
	uint64_t ticks = counter(getpid(), "polled_ticks") + 3;
	double end = now() + WAIT_SECONDS;

	while (counter(getpid(), "polled_ticks") < ticks) {
		post(&busy->a, IBV_WR_RDMA_WRITE, NULL, NULL, 0, NULL, 0);
		if (spin_for_one(&busy->a) != IBV_WC_SUCCESS)
			pair_reconnect(busy); /* its retries ran out: the fabric loses packets */
		check(now() < end);
	}
}

/* Waits without a verb until the descriptor can be read. */
static void wait_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	double end = now() + WAIT_SECONDS;
	int n;

	do
		n = poll(&p, 1, 100);
	while ((n == 0 || (n < 0 && errno == EINTR)) && now() < end);
	check_int(n, 1);
}

/* Waits without a verb until the byte has the value. */
static void wait_byte(const char *at, char value)
{
	double end = now() + WAIT_SECONDS;

	while (*(const volatile char *)at != value) {
		check(now() < end);
		nap(1);
	}
}

static void arm(struct end *e)
{
	check_int(ibv_req_notify_cq(e->cq, 0), 0);
}

static void take_event(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	wait_readable(e->channel->fd);
	check_int(ibv_get_cq_event(e->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
}

static void a_send_goes_on_after_its_rnr_backoff(void)
{
	struct options opt = { .min_rnr_timer = RNR_640_US };
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p, busy;

	pair_open(&p, &opt);
	pair_open(&busy, &quick);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE);
	for (int i = 1; i <= ROUNDS; i++) {
		mine[0] = (char)i;
		post(&p.a, IBV_WR_SEND, here, mine, 1, NULL, 0);
		poll_until_believed(&busy);
		post_recv(&p.b, there, memory, PAGE);
		wait_byte(memory, (char)i);
		wait_for(&p.a, IBV_WC_SUCCESS);
		wait_for(&p.b, IBV_WC_SUCCESS);
	}
	dereg(here);
	dereg(there);
	pair_close(&p);
	pair_close(&busy);
}

static void set_state(struct end *e, enum ibv_qp_state state, bool notify)
{
	struct ibv_qp_attr a = { .qp_state = state, .en_sqd_async_notify = notify };

	check_int(ibv_modify_qp(e->qp, &a, IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0)), 0);
}

static void a_drained_send_queue_is_told(void)
{
	struct options opt = { .min_rnr_timer = RNR_640_US };
	struct ibv_async_event event;
	struct pair p, busy;

	pair_open(&p, &opt);
	pair_open(&busy, &quick);
	for (int i = 0; i < ROUNDS; i++) {
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		poll_until_believed(&busy);
		set_state(&p.a, IBV_QPS_SQD, true);
		post_recv(&p.b, NULL, NULL, 0);
		wait_readable(p.a.ctx->async_fd);
		check_int(ibv_get_async_event(p.a.ctx, &event), 0);
		check_int(event.event_type, IBV_EVENT_SQ_DRAINED);
		check(event.element.qp == p.a.qp);
		ibv_ack_async_event(&event);
		wait_for(&p.a, IBV_WC_SUCCESS);
		wait_for(&p.b, IBV_WC_SUCCESS);
		set_state(&p.a, IBV_QPS_RTS, false);
	}
	pair_close(&p);
	pair_close(&busy);
}

static void rnr_retries_run_out(void)
{
	struct options opt = {
		.events = true, .retry_set = true, .rnr_retry = 5, .retry_cnt = 7, .min_rnr_timer = RNR_10_MS
	};
	struct pair p, busy;

	pair_open(&p, &opt);
	pair_open(&busy, &quick);
	for (int i = 0; i < ROUNDS; i++) {
		arm(&p.a);
		poll_until_believed(&busy);
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		take_event(&p.a);
		wait_for(&p.a, IBV_WC_RNR_RETRY_EXC_ERR);
		pair_reconnect(&p);
	}
	pair_close(&p);
	pair_close(&busy);
}

static void ack_retries_run_out(void)
{
	struct options opt = { .events = true, .timeout = ACK_1_MS };

	struct pair p, busy;

	pair_open(&busy, &quick);
	for (int i = 0; i < ROUNDS; i++) {
		pair_open(&p, &opt);
		check_int(ibv_destroy_qp(p.b.qp), 0);
		arm(&p.a);
		poll_until_believed(&busy);
		post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		take_event(&p.a);
		wait_for(&p.a, IBV_WC_RETRY_EXC_ERR);
		end_make_qp(&p.b);
		pair_close(&p);
	}
	pair_close(&busy);
}

/* Each WRITE is seen by looking at memory, and its completion by the channel's descriptor. What the case is
 * about was counted for each of them. */
static void write_and_look(const struct options *opt, unsigned rounds, int more, const char *counted)
{
	char *mine = fresh(PAGE), *memory = fresh(rounds * PAGE);
	struct ibv_mr *here, *there;
	struct pair p, busy;

	pair_open(&p, opt);
	pair_open(&busy, &quick);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, rounds * PAGE, REMOTE | more);
	mine[0] = 'x';
	for (unsigned i = rounds; i--;) { /* downwards: no page is brought in ahead of its turn */
		arm(&p.a);
		poll_until_believed(&busy);
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 1, memory + i * PAGE, there->rkey);
		wait_byte(memory + i * PAGE, 'x');
		take_event(&p.a);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	check(counter(getpid(), counted) >= rounds);
	dereg(here);
	dereg(there);
	pair_close(&p);
	pair_close(&busy);
}

static void packets_that_the_fabric_holds_back_are_delivered(void)
{
	const struct options opt = { .events = true };

	check_sys(!setenv("UNPIN_DELAY", "3ms", 1));
	write_and_look(&opt, ROUNDS, 0, "tx_delayed");
}

static void packets_that_the_fabric_loses_are_sent_again(void)
{
	/* One of two tries is lost on one of its ways: once in hundreds of rounds seven retries are used up.
	 */
	const struct options opt = { .events = true, .timeout = 10 };
	struct pair p, busy;

	check_sys(!setenv("UNPIN_LOSS", "25%", 1));
	pair_open(&p, &opt);
	pair_open(&busy, &quick);
	for (int i = 0; i < 2 * ROUNDS; i++) {
		struct ibv_wc wc;

		arm(&p.a);
		poll_until_believed(&busy);
		post(&p.a, IBV_WR_RDMA_WRITE, NULL, NULL, 0, NULL, 0);
		take_event(&p.a);
		wc = wait_any(&p.a);
		check(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_RETRY_EXC_ERR);
		if (wc.status != IBV_WC_SUCCESS)
			pair_reconnect(&p);
	}
	check(counter(getpid(), "retransmits") > 0);
	pair_close(&p);
	pair_close(&busy);
}

static void memory_that_was_not_ready_is_written_later(void)
{
	const struct options opt = { .events = true, .min_rnr_timer = RNR_640_US };

	check_sys(!setenv("UNPIN_FAULT_REPLY", "rnr", 1) && !setenv("UNPIN_FAULT_LATENCY", "2ms", 1));
	write_and_look(&opt, ROUNDS, ODP, "rnr_nak_rcvd");
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_send_goes_on_after_its_rnr_backoff),
		CASE(a_drained_send_queue_is_told),
		CASE(rnr_retries_run_out),
		CASE(ack_retries_run_out),
		CASE(packets_that_the_fabric_holds_back_are_delivered),
		CASE(packets_that_the_fabric_loses_are_sent_again),
		CASE(memory_that_was_not_ready_is_written_later),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

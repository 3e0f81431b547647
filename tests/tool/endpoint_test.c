/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Waiting for another process that has ended, on a completion queue in which nothing ever arrives. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "tool/endpoint.h"

static int nothing(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return 0;
}

static int notify(struct ibv_cq *cq, int solicited_only)
{
	return 0;
}

static struct ibv_context context = { .ops = { .poll_cq = nothing, .req_notify_cq = notify } };
static struct ibv_cq cq = { .context = &context };

/* An endpoint whose other process lives until the returned socket is closed. */
static int with_lifeline(struct endpoint *e)
{
	int fd[2];

	memset(e, 0, sizeof(*e));
	e->cq = &cq;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd), 0);
	e->lifeline = fd[0];
	return fd[1];
}

static void patience_lasts_as_long_as_the_other_process(void **state)
{
	struct endpoint e;
	uint64_t deadline = 0;
	int other = with_lifeline(&e);

	assert_int_equal(endpoint_patience(&e, &deadline, "completion"), 0);
	assert_true(deadline > clock_ns());
	/* An answer that waits to be read is no hang-up. */
	assert_int_equal(send(other, "x", 1, 0), 1);
	e.looked_ns = 0;
	assert_int_equal(endpoint_patience(&e, &deadline, "completion"), 0);
	close(other);
	e.looked_ns = 0;
	assert_int_equal(endpoint_patience(&e, &deadline, "completion"), -EPIPE);
	assert_non_null(strstr(e.why, "has ended"));
	close(e.lifeline);
}

static void patience_ends_after_the_deadline_and_when_told_to_stop(void **state)
{
	struct endpoint e = { .lifeline = -1 };
	uint64_t deadline = 1;

	assert_int_equal(endpoint_patience(&e, &deadline, "completion"), -ETIMEDOUT);
	assert_string_equal(e.why, "no completion for 60 s");
	endpoint_stop = 1;
	assert_int_equal(endpoint_patience(&e, &deadline, "completion"), -EINTR);
	endpoint_stop = 0;
}

static void a_wait_for_completions_ends_with_the_other_process(void **state)
{
	struct endpoint_done done = { 0 };
	struct endpoint e;

	close(with_lifeline(&e));
	assert_int_equal(endpoint_wait(&e, &done, 0, 1), -EPIPE);
	close(e.lifeline);
}

static void a_sleep_ends_with_the_other_process(void **state)
{
	struct ibv_comp_channel channel = { .fd = eventfd(0, 0) };
	struct endpoint_done done = { 0 };
	struct endpoint e;

	close(with_lifeline(&e));
	e.channel = &channel;
	assert_int_equal(endpoint_sleep(&e, &done), -EPIPE);
	close(channel.fd);
	close(e.lifeline);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patience_lasts_as_long_as_the_other_process),
		cmocka_unit_test(patience_ends_after_the_deadline_and_when_told_to_stop),
		cmocka_unit_test(a_wait_for_completions_ends_with_the_other_process),
		cmocka_unit_test(a_sleep_ends_with_the_other_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

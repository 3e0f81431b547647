/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The end of a game in which one spins on memory and the other writes no more. The completion queue is a
 * function of ours. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/pingpong.h"

static int nothing(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return 0;
}

static int failure(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	*wc = (struct ibv_wc){ .status = IBV_WC_WR_FLUSH_ERR };
	return 1;
}

static struct ibv_context context;
static struct ibv_cq cq = { .context = &context };
static _Alignas(64) char memory[PINGPONG_BYTES];

/* Waits for the first message, which the memory does not get. */
static int play(struct endpoint *e, int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc))
{
	struct endpoint_region region = { .addr = memory, .length = sizeof(memory) };
	struct pingpong p = { .style = PINGPONG_WRITE, .iterations = 1, .memory = &region };

	context.ops.poll_cq = poll_cq;
	e->cq = &cq;
	assert_int_equal(pingpong_prepare(e, &p), 0);
	return pingpong_play(e, &p, NULL);
}

static void one_that_spins_on_memory_ends_with_the_other_process(void **state)
{
	struct endpoint e = { 0 };
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd), 0);
	e.lifeline = fd[0];
	close(fd[1]);
	assert_int_equal(play(&e, nothing), -EPIPE);
	assert_non_null(strstr(e.why, "has ended"));
	close(fd[0]);
}

static void one_that_spins_on_memory_ends_with_its_queue_pair(void **state)
{
	struct endpoint e = { .lifeline = -1 };

	assert_int_equal(play(&e, failure), -EIO);
	assert_non_null(strstr(e.why, "failed"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_spins_on_memory_ends_with_the_other_process),
		cmocka_unit_test(one_that_spins_on_memory_ends_with_its_queue_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Completion queues and channels: limits, refusals, descriptors, what keeps what alive. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "nic/caps.h"

static struct ibv_context *ctx;

static int setup(void **state)
{
	ctx = client_open();
	return 0;
}

static int teardown(void **state)
{
	return ibv_close_device(ctx);
}

static void cq_refused(int cqe, struct ibv_comp_channel *channel, int vector)
{
	errno = 0;
	assert_null(ibv_create_cq(ctx, cqe, NULL, channel, vector));
	assert_int_equal(errno, EINVAL);
}

static void a_queue_shows_how_it_was_made(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	int cookie;
	struct ibv_cq *cq = ibv_create_cq(ctx, 100, &cookie, ch, 0);

	assert_non_null(cq);
	assert_ptr_equal(cq->context, ctx);
	assert_ptr_equal(cq->channel, ch);
	assert_ptr_equal(cq->cq_context, &cookie);
	assert_true(cq->cqe >= 100);
	assert_int_equal(ch->refcnt, 1);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ch->refcnt, 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

static void sizes_and_vectors_are_checked(void **state)
{
	struct ibv_cq *cq;

	cq_refused(0, NULL, 0);
	cq_refused(-1, NULL, 0);
	cq_refused(NIC_MAX_CQE + 1, NULL, 0);
	cq_refused(16, NULL, -1);
	cq_refused(16, NULL, ctx->num_comp_vectors);
	cq = ibv_create_cq(ctx, NIC_MAX_CQE, NULL, NULL, 0);
	assert_non_null(cq);
	assert_true(cq->cqe >= NIC_MAX_CQE);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void a_channel_belongs_to_its_context(void **state)
{
	struct ibv_context *other = client_open();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(other);

	cq_refused(16, ch, 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	assert_int_equal(ibv_close_device(other), 0);
}

static void a_queue_is_resized_within_the_limits(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);

	assert_int_equal(ibv_resize_cq(cq, 0), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, -1), EINVAL);
	assert_int_equal(ibv_resize_cq(cq, NIC_MAX_CQE + 1), EINVAL);
	assert_true(cq->cqe >= 16);
	assert_int_equal(ibv_resize_cq(cq, 1000), 0);
	assert_true(cq->cqe >= 1000);
	assert_int_equal(ibv_resize_cq(cq, 4), 0);
	assert_true(cq->cqe >= 4);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void an_empty_queue_gives_nothing(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_wc wc[4];

	assert_int_equal(ibv_poll_cq(cq, 4, wc), 0);
	assert_int_equal(ibv_poll_cq(cq, 0, wc), 0);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0); /* without a channel nothing will come of it */
	assert_int_equal(ibv_req_notify_cq(cq, 1), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void a_channel_can_be_polled_and_made_nonblocking(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct pollfd pfd = { .fd = ch->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *cookie;

	assert_true(fcntl(ch->fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	assert_int_equal(fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK), 0);
	errno = 0;
	assert_int_equal(ibv_get_cq_event(ch, &cq, &cookie), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

static void a_channel_in_use_stays(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *a = ibv_create_cq(ctx, 1, NULL, ch, 0), *b = ibv_create_cq(ctx, 1, NULL, ch, 0);

	assert_int_equal(ch->refcnt, 2);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	assert_int_equal(ibv_destroy_cq(a), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	assert_int_equal(ibv_destroy_cq(b), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

static void the_extended_queue_is_not_offered(void **state)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16 };

	errno = 0;
	assert_null(ibv_create_cq_ex(ctx, &init));
	assert_int_equal(errno, EOPNOTSUPP);
}

static void moderation_is_not_offered(void **state)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE };

	assert_int_equal(ibv_modify_cq(cq, &attr), EOPNOTSUPP);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_queue_shows_how_it_was_made),
		cmocka_unit_test(sizes_and_vectors_are_checked),
		cmocka_unit_test(a_channel_belongs_to_its_context),
		cmocka_unit_test(a_queue_is_resized_within_the_limits),
		cmocka_unit_test(an_empty_queue_gives_nothing),
		cmocka_unit_test(a_channel_can_be_polled_and_made_nonblocking),
		cmocka_unit_test(a_channel_in_use_stays),
		cmocka_unit_test(the_extended_queue_is_not_offered),
		cmocka_unit_test(moderation_is_not_offered),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

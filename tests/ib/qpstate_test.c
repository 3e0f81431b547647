/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ib/qpstate.h"

enum { STATES = 7, MASK_BITS = 26 };

/* Written apart from the table, as lists: the whole matrix, state by state. */
struct expected {
	int cur, next;
	int required, optional;
};

#define INIT_ATTRS (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTS_ATTRS                                                                                            \
	(IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |                   \
		IBV_QP_PATH_MIG_STATE)

static const struct expected moves[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_ATTRS, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, INIT_ATTRS },
	{ IBV_QPS_INIT, IBV_QPS_RTR,
		IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER,
		IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	{ IBV_QPS_RTR, IBV_QPS_RTS,
		IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC,
		RTS_ATTRS },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, RTS_ATTRS },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, RTS_ATTRS },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0,
		IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
			IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER |
			IBV_QP_PATH_MIG_STATE },
};

static const struct expected *find(int cur, int next)
{
	static const struct expected always;

	if (next == IBV_QPS_RESET || next == IBV_QPS_ERR)
		return &always;
	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
		if (moves[i].cur == cur && moves[i].next == next)
			return &moves[i];
	return NULL;
}

static bool allowed(int cur, int next, int mask)
{
	return ib_qpstate_allowed(IBV_QPT_RC, (enum ibv_qp_state)cur, (enum ibv_qp_state)next, mask);
}

static void exactly_the_listed_moves_exist(void **state)
{
	(void)state;
	for (int cur = 0; cur < STATES; cur++)
		for (int next = 0; next < STATES; next++) {
			const struct expected *x = find(cur, next);

			assert_int_equal(allowed(cur, next, IBV_QP_STATE | (x ? x->required : 0)), x != NULL);
		}
}

static void each_required_attribute_is_required(void **state)
{
	(void)state;
	for (int cur = 0; cur < STATES; cur++)
		for (int next = 0; next < STATES; next++)
			for (int bit = 0; bit < MASK_BITS; bit++) {
				const struct expected *x = find(cur, next);

				if (x && x->required & 1 << bit)
					assert_false(allowed(
						cur, next, IBV_QP_STATE | (x->required & ~(1 << bit))));
			}
}

static void each_other_attribute_is_allowed_or_refused_as_listed(void **state)
{
	(void)state;
	for (int cur = 0; cur < STATES; cur++)
		for (int next = 0; next < STATES; next++)
			for (int bit = 0; bit < MASK_BITS; bit++) {
				const struct expected *x = find(cur, next);
				int ok = IBV_QP_STATE | IBV_QP_CUR_STATE;

				if (!x)
					continue;
				ok |= x->required | x->optional;
				assert_int_equal(allowed(cur, next, IBV_QP_STATE | x->required | 1 << bit),
					!!(ok & 1 << bit));
			}
}

static void other_types_and_states_are_refused(void **state)
{
	(void)state;
	assert_false(ib_qpstate_allowed(IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_STATE));
	assert_false(ib_qpstate_allowed(IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_ERR, IBV_QP_STATE));
	assert_false(allowed(IBV_QPS_RTS, IBV_QPS_UNKNOWN, IBV_QP_STATE));
	assert_false(allowed(IBV_QPS_UNKNOWN, IBV_QPS_ERR, IBV_QP_STATE));
	assert_false(allowed(-1, IBV_QPS_ERR, IBV_QP_STATE));
	assert_false(allowed(IBV_QPS_RTS, 1000, IBV_QP_STATE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exactly_the_listed_moves_exist),
		cmocka_unit_test(each_required_attribute_is_required),
		cmocka_unit_test(each_other_attribute_is_allowed_or_refused_as_listed),
		cmocka_unit_test(other_types_and_states_are_refused),
	};

	return cmocka_run_group_tests_name("ib/qpstate", tests, NULL, NULL);
}

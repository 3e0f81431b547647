/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "ib/qpstate.h"

#include <stddef.h>

#define STATES IBV_QPS_UNKNOWN

/* Every attribute change that the states share. */
#define PATH_AND_ACCESS (IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER)

struct move {
	bool legal;
	int required, optional;
};

static const struct move rc_moves[STATES][STATES] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_INIT] = { true, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_INIT] = { true, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
		[IBV_QPS_RTR] = { true,
			IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
			IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX },
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RTS] = { true,
			IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC,
			PATH_AND_ACCESS },
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RTS] = { true, 0, PATH_AND_ACCESS },
		[IBV_QPS_SQD] = { true, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RTS] = { true, 0, PATH_AND_ACCESS },
		[IBV_QPS_SQD] = { true, 0,
			PATH_AND_ACCESS | IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
				IBV_QP_PKEY_INDEX },
	},
};

static const struct move to_reset_or_error = { true, 0, 0 };

static const struct move *find_move(enum ibv_qp_state cur, enum ibv_qp_state next)
{
	if (cur >= STATES || next >= STATES)
		return NULL;
	if (next == IBV_QPS_RESET || next == IBV_QPS_ERR)
		return &to_reset_or_error;
	return rc_moves[cur][next].legal ? &rc_moves[cur][next] : NULL;
}

bool ib_qpstate_allowed(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask)
{
	const struct move *move = type == IBV_QPT_RC ? find_move(cur, next) : NULL;

	mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
	return move && !(move->required & ~mask) && !(mask & ~(move->required | move->optional));
}

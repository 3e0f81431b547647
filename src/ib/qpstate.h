/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The queue pair state machine as a table: which moves are legal and which attributes each needs and allows,
 * per IBTA 11.2.5.2 and ibv_modify_qp(3).
 */
#ifndef UNPIN_IB_QPSTATE_H
#define UNPIN_IB_QPSTATE_H

#include <stdbool.h>
#include <infiniband/verbs.h>

/*
 * Whether a queue pair of the type may go from cur to next with this attribute mask (enum ibv_qp_attr_mask;
 * IBV_QP_STATE and IBV_QP_CUR_STATE themselves are always allowed). Any state may go to RESET and ERR with
 * IBV_QP_STATE alone.
 */
bool ib_qpstate_allowed(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask);

#endif

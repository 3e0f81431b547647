/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Is it really on? The checks of this group, which are all tried on the device: what a registration takes
 * (doctor_held.c), cold pages (doctor_cold.c), the bytes (doctor_data.c),
 * and connecting (doctor_cm.c), and what UCX asks for (doctor_ucx.c). One thread.
 */
#ifndef UNPIN_TOOL_DOCTOR_REALITY_H
#define UNPIN_TOOL_DOCTOR_REALITY_H

#include "tool/doctor.h"

/* Registers a large untouched buffer, once; the same answer afterwards. */
const struct doctor_held *doctor_held_take(struct doctor *d, enum endpoint_kind kind);
/* True when on-demand regions turned out to be pinned. */
bool doctor_held_pins(struct doctor *d);
/* Tries all operations with on-demand memory; fills in tried[] and trouble of d, once. */
void doctor_data_try(struct doctor *d);

void doctor_held_on_demand(struct doctor *d, struct doctor_result *r);
void doctor_held_pinned(struct doctor *d, struct doctor_result *r);
void doctor_cold_access(struct doctor *d, struct doctor_result *r);
/* What pinned memory cannot do: the device follows when the program gives a page back and gets another one.
 */
void doctor_cold_follows(struct doctor *d, struct doctor_result *r);
void doctor_cold_counters(struct doctor *d, struct doctor_result *r);
void doctor_data_check(struct doctor *d, struct doctor_result *r);
/* The connection manager, which has nothing to do with paging: most programs connect by it. */
void doctor_cm_check(struct doctor *d, struct doctor_result *r);
/* What UCX would find. */
void doctor_ucx_check(struct doctor *d, struct doctor_result *r);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/doctor_reality.h"

static const struct doctor_check checks[] = {
	{ "reality.on-demand", "registration, on demand", DOCTOR_ODP | DOCTOR_VITAL, doctor_held_on_demand },
	{ "reality.pinned", "registration, pinned", DOCTOR_OPEN, doctor_held_pinned },
	{ "reality.cold", "a cold page", DOCTOR_ODP | DOCTOR_VITAL, doctor_cold_access },
	{ "reality.follows", "memory given back", DOCTOR_ODP | DOCTOR_VITAL, doctor_cold_follows },
	{ "reality.counters", "page fault counters", DOCTOR_ODP, doctor_cold_counters },
	{ "reality.data", "the bytes", DOCTOR_ODP | DOCTOR_VITAL, doctor_data_check },
	{ "reality.cm", "connections by rdma_cm", DOCTOR_OPEN, doctor_cm_check },
	{ "reality.ucx", "what UCX would find", DOCTOR_OPEN, doctor_ucx_check },
};

const struct doctor_group doctor_reality_group = { "reality", "Is it really on?", checks,
	sizeof(checks) / sizeof(checks[0]) };

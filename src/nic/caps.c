/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "nic/caps.h"

#include <errno.h>

/* All that the transport of this device can do on demand: there are no shared receive queues. */
#define RC                                                                                                   \
	(IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |        \
		IBV_ODP_SUPPORT_ATOMIC)

/*
 * Where a profile deviates from what it imitates: a bit that the device could not keep is not shown. So mlx5
 * lacks a ConnectX's UD (send), SRQ and XRC bits, and rxe those of UD, SRQ, flush and atomic write.
 *
 * What refusals look like:
 *  - mlx5 (drivers/infiniband/hw/mlx5/mr.c): implicit where the capability is missing: EINVAL.
 *  - rxe (Linux 7.3, tried): implicit, huge pages and a zero base are EOPNOTSUPP with ON_DEMAND.
 *  - a device without on-demand paging is refused by the core, before its driver is asked: EOPNOTSUPP
 *    (include/rdma/ib_verbs.h, ib_check_mr_access(), since Linux 6.1; it was EINVAL before).
 *  - stale firmware: the capability is reported and the flag taken, but the driver pins. It knows neither
 *    implicit regions nor prefetch, as the first firmware with on-demand paging did not.
 */
static const struct nic_caps profile[] = {
	[PROFILE_UNPIN] = {
		.general = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
		.rc = RC,
		.prefetch = true,
	},
	[PROFILE_MLX5] = {
		.gids = NIC_GID_PAIRS,
		.general = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
		.rc = RC,
		.prefetch = true,
	},
	[PROFILE_RXE] = {
		.general = IBV_ODP_SUPPORT,
		.rc = RC,
		.prefetch = true,
		.no_implicit = EOPNOTSUPP,
		.no_huge = EOPNOTSUPP,
		.no_zero_based = EOPNOTSUPP,
	},
	[PROFILE_NONE] = {
		.no_on_demand = EOPNOTSUPP,
		.no_implicit = EOPNOTSUPP,
	},
	[PROFILE_STALE_FIRMWARE] = {
		.general = IBV_ODP_SUPPORT,
		.rc = RC,
		.pins = true,
		.no_implicit = EINVAL,
	},
};

struct nic_caps nic_caps_of(const struct settings *set)
{
	struct nic_caps caps = profile[set->value[SETTING_PROFILE_ID]];

	if (!set->value[SETTING_IMPLICIT_ID]) {
		caps.general &= ~(uint64_t)IBV_ODP_SUPPORT_IMPLICIT;
		if (!caps.no_implicit)
			caps.no_implicit = EINVAL;
	}
	return caps;
}

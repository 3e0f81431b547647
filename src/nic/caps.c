/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "nic/caps.h"

#include "nic/gid.h"

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

/*
 * The values of IBTA 14.2.5.6 (PortInfo) that together read as 100 Gb/s: four lanes of EDR. The link is
 * memory.
 */
#define WIDTH_4X     2
#define SPEED_EDR    32
#define PHYS_LINK_UP 5

enum nic_gid_layout nic_gid_layout(void)
{
	struct settings set;
	char why[SETTING_WHY];

	return settings_load(&set, why) ? NIC_GID_SINGLE : nic_caps_of(&set).gids;
}

void nic_port_fill(enum nic_gid_layout gids, struct ibv_port_attr *attr)
{
	*attr = (struct ibv_port_attr){
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = (int)nic_gid_rows(gids),
		.port_cap_flags = IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = NIC_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_EDR,
		.phys_state = PHYS_LINK_UP,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the device offers; verbs reports it and nic enforces it. Limits are the same under every profile
 * (those of the devices that profiles imitate are higher, and what cannot be kept is not promised); what is
 * offered on demand, and how it is refused, is a row of the table in caps.c per profile.
 */
#ifndef UNPIN_NIC_CAPS_H
#define UNPIN_NIC_CAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/setting.h"
#include "nic/gid.h"

#define NIC_NAME_DEFAULT "unpin0"
#define NIC_VENDOR_ID	 0x554e50 /* "UNP" */
#define NIC_PART_ID	 1

#define NIC_MAX_QP	  4094 /* per process: 12 bits of queue pair beside 12 bits of slot, 0 and 1 excepted */
#define NIC_MAX_QP_WR	  16384
#define NIC_MAX_SGE	  30
#define NIC_MAX_INLINE	  512
#define NIC_INLINE_STEP	  64 /* max_inline_data is a multiple of it, and not 0 */
#define NIC_MAX_CQ	  65536
#define NIC_MAX_CQE	  (1 << 20)
#define NIC_MAX_PD	  65536
#define NIC_MAX_MR	  65535
#define NIC_MAX_MR_SIZE	  (1ull << 47)
#define NIC_MAX_RD_ATOM	  16 /* per queue pair, either side */
#define NIC_MAX_MSG	  (1u << 31)
#define NIC_COMP_VECTORS  1
#define NIC_PKEY	  0xffff
#define NIC_PAGE_SIZE_CAP 0x1000

struct nic_caps {
	uint64_t general; /* enum ibv_odp_general_caps */
	uint32_t rc, ud;  /* enum ibv_odp_transport_cap_bits */
	bool prefetch;	  /* ibv_advise_mr(3) is offered */
	enum nic_gid_layout gids;
	bool pins; /* accepts IBV_ACCESS_ON_DEMAND and pins the pages all the same */
	/* Positive errno with which registrations that ask for it are refused; 0: they are not. */
	int no_on_demand;
	int no_implicit;
	int no_huge;	   /* IBV_ACCESS_HUGETLB with ON_DEMAND */
	int no_zero_based; /* IBV_ACCESS_ZERO_BASED with ON_DEMAND */
};

/* As the settings have it: the profile's row, without implicit regions if they are not wanted. */
struct nic_caps nic_caps_of(const struct settings *set);

/* Of the GID table that the device has, or would have if it were opened now. */
enum nic_gid_layout nic_gid_layout(void);

/* The port, as ibv_query_port(3) tells it, with its GID table in this layout. */
void nic_port_fill(enum nic_gid_layout gids, struct ibv_port_attr *attr);

#endif

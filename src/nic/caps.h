/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the device offers; verbs reports these numbers and nic enforces them. */
#ifndef UNPIN_NIC_CAPS_H
#define UNPIN_NIC_CAPS_H

#define NIC_NAME_DEFAULT "unpin0"
#define NIC_VENDOR_ID	 0x554e50 /* "UNP" */
#define NIC_PART_ID	 1

#define NIC_MAX_QP	  4094 /* per process: 12 bits of queue pair beside 12 bits of slot, 0 and 1 excepted */
#define NIC_MAX_QP_WR	  16384
#define NIC_MAX_SGE	  30
#define NIC_MAX_INLINE	  512
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

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The GID table of the port, made from the addresses of the network namespace (getifaddrs): IPv4 as
 * ::ffff:a.b.c.d, IPv6 as it is; interfaces that are up, IPv4 first, loopback last. Read anew at most once
 * per second; rows keep their index while their address exists. Never empty: without any address there is one
 * link-local row made from the kernel's boot id.
 *
 * The port shows the table in one of two layouts. NIC_GID_SINGLE: a RoCE v2 row per address. NIC_GID_PAIRS,
 * as a ConnectX does: two rows per address, RoCE v1 and RoCE v2, behind two for the port itself (link-local,
 * from the boot id too), so that row 3 is RoCE v2 with the first IPv4 address if there is one. The type makes
 * no difference to the wire.
 *
 * Any thread; a lock of its own below all others, never held across anything but getifaddrs. Forked children
 * start over.
 */
#ifndef UNPIN_NIC_GID_H
#define UNPIN_NIC_GID_H

#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#define NIC_GID_TABLE_LEN 64 /* addresses */

enum nic_gid_layout { NIC_GID_SINGLE, NIC_GID_PAIRS };

/* How many rows the port has, empty ones included. */
unsigned nic_gid_rows(enum nic_gid_layout layout);
/* Row index as the port shows it, all of it: 0, -EINVAL (index >= nic_gid_rows), -ENODATA (row empty). */
int nic_gid_row(enum nic_gid_layout layout, unsigned index, struct ibv_gid_entry *row);

/*
 * The address of a number in the table: 0, -EINVAL (index >= NIC_GID_TABLE_LEN), -ENODATA (empty). ifindex
 * may be NULL; 0 means no interface.
 */
int nic_gid_get(unsigned index, union ibv_gid *gid, uint32_t *ifindex);

/*
 * Can a device of this host that we can reach have the GID? Peers meet within one network namespace
 * (wire/shm.h), so: an address of any interface of the caller's namespace at this moment, the loopback
 * addresses, and the link-local GIDs of the table above.
 */
bool nic_gid_is_here(const union ibv_gid *gid);

/*
 * The RoCE v2 row of an address's GID, as the port shows it; ifindex 0: whatever the interface. When it is
 * not in the table the addresses are read anew at once, so that one which has just appeared is found. 0 or
 * -ENODEV.
 */
int nic_gid_find(enum nic_gid_layout layout, const union ibv_gid *gid, uint32_t ifindex, unsigned *index);

/*
 * The GUID (EUI-64, network byte order) of a device of that name on this host: the same in every process and,
 * where the host has a machine id, after a restart; locally administered; never 0.
 */
__be64 nic_gid_eui64(const char *name);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The GID table of the port: RoCE v2 entries made from the addresses of the network namespace (getifaddrs):
 * IPv4 as
 * ::ffff:a.b.c.d, IPv6 as it is; interfaces that are up, loopback last. Read anew at most once per second;
 * rows keep their index while their address exists. Never empty: without any address there is one link-local
 * row made from the host's identity.
 *
 * Any thread; a lock of its own below all others, never held across anything but getifaddrs. Forked children
 * start over.
 */
#ifndef UNPIN_NIC_GID_H
#define UNPIN_NIC_GID_H

#include <stdint.h>
#include <infiniband/verbs.h>

#define NIC_GID_TABLE_LEN 64

/*
 * Row index: 0, -EINVAL (index >= NIC_GID_TABLE_LEN), -ENODATA (row empty). ifindex may be NULL; 0 means no
 * interface.
 */
int nic_gid_get(unsigned index, union ibv_gid *gid, uint32_t *ifindex);

/*
 * The GUID (EUI-64, network byte order) of a device of that name on this host: the same in every process and,
 * where the host has a machine id, after a restart; locally administered; never 0.
 */
__be64 nic_gid_eui64(const char *name);

#endif

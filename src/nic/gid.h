/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The GID table of the port: RoCE v2 entries made from the addresses of the network namespace (getifaddrs): IPv4 as
 * ::ffff:a.b.c.d, IPv6 as it is; interfaces that are up, loopback last. Read anew at most once per second; rows keep
 * their index while their address exists. Never empty: without any address there is one link-local row made from the host's boot id.
 */
#ifndef UNPIN_NIC_GID_H
#define UNPIN_NIC_GID_H

#include <stdint.h>
#include <infiniband/verbs.h>

#define NIC_GID_TABLE_LEN 64

/* Row index: 0, -EINVAL (index >= NIC_GID_TABLE_LEN), -ENODATA (row empty). ifindex may be NULL. */
int nic_gid_get(unsigned index, union ibv_gid *gid, uint32_t *ifindex);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/fd.h"
#include "nic/caps.h"
#include "nic/gid.h"

/* As IPv4 if it stands for that. */
static union address plain(const union address *a)
{
	union address v4 = { .in = { .sin_family = AF_INET } };

	if (a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return *a;
	memcpy(&v4.in.sin_addr, a->in6.sin6_addr.s6_addr + 12, 4);
	return v4;
}

static bool is_interface(const struct ifaddrs *i, const union address *a)
{
	union address is = { 0 };
	size_t size;

	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || i->ifa_addr->sa_family != a->sa.sa_family)
		return false;
	size = i->ifa_addr->sa_family == AF_INET ? sizeof(is.in) : sizeof(is.in6);
	memcpy(&is, i->ifa_addr, size);
	return address_equal(&is, a);
}

bool address_is_local(const union address *a)
{
	union address want = plain(a);
	struct ifaddrs *list = NULL;
	bool found = address_loopback(&want) && want.sa.sa_family == AF_INET;
	int cancel = cancel_hold();

	if (!found && getifaddrs(&list))
		list = NULL;
	for (struct ifaddrs *i = list; i && !found; i = i->ifa_next)
		found = is_interface(i, &want);
	freeifaddrs(list);
	cancel_restore(cancel);
	return found;
}

int address_route(const union address *dst, union address *src)
{
	union address from = *src, to = *dst;
	socklen_t len = sizeof(from);
	int fd = (int)syscall(SYS_socket, dst->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err = 0;

	if (fd < 0)
		return -errno;
	address_set_port(&from, 0);
	/* Any port will do: nothing is sent. */
	if (!address_port(&to))
		address_set_port(&to, 9);
	if (from.sa.sa_family && !address_any(&from) &&
		syscall(SYS_bind, fd, &from, (socklen_t)address_size(&from)))
		err = -errno;
	if (!err && syscall(SYS_connect, fd, &to, (socklen_t)address_size(&to)))
		err = -errno;
	if (!err && syscall(SYS_getsockname, fd, &from, &len))
		err = -errno;
	fd_close(fd);
	if (err)
		return err;
	address_set_port(&from, src->sa.sa_family ? address_port(src) : 0);
	*src = from;
	return 0;
}

static uint32_t scope_of(const union address *a)
{
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr) ? a->in6.sin6_scope_id
										       : 0;
}

int address_gid_index(const union address *a, unsigned *index)
{
	union ibv_gid gid;

	address_gid(a, gid.raw);
	return nic_gid_find(nic_gid_layout(), &gid, scope_of(a), index);
}

int address_gid_local(const union address *a, uint8_t gid[16], unsigned *index)
{
	union address home = { .in = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } } };
	int err = address_gid_index(a, index);

	address_gid(a, gid);
	if (!err || !address_loopback(a))
		return err;
	address_gid(&home, gid);
	return address_gid_index(&home, index);
}

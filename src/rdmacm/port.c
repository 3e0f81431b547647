/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- addresses ------------------------------------------------------------------------------------ */

size_t address_size(const union address *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return sizeof(a->in);
	case AF_INET6:
		return sizeof(a->in6);
	default:
		return 0;
	}
}

uint16_t address_port(const union address *a)
{
	return ntohs(a->sa.sa_family == AF_INET ? a->in.sin_port : a->in6.sin6_port);
}

void address_set_port(union address *a, uint16_t port)
{
	if (a->sa.sa_family == AF_INET)
		a->in.sin_port = htons(port);
	else
		a->in6.sin6_port = htons(port);
}

bool address_any(const union address *a)
{
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

bool address_loopback(const union address *a)
{
	const uint8_t *byte = a->in6.sin6_addr.s6_addr;

	if (a->sa.sa_family == AF_INET)
		return ntohl(a->in.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr) && byte[12] == IN_LOOPBACKNET);
}

bool address_equal(const union address *a, const union address *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	if (memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, sizeof(a->in6.sin6_addr)))
		return false;
	return !IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr) || a->in6.sin6_scope_id == b->in6.sin6_scope_id;
}

void address_gid(const union address *a, uint8_t gid[16])
{
	if (a->sa.sa_family == AF_INET) {
		memset(gid, 0, 10);
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &a->in.sin_addr, 4);
	} else {
		memcpy(gid, &a->in6.sin6_addr, 16);
	}
}

void address_text(const union address *a, char text[ADDRESS_TEXT])
{
	char host[INET6_ADDRSTRLEN] = "?";

	if (a->sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &a->in.sin_addr, host, sizeof(host));
	else if (a->sa.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &a->in6.sin6_addr, host, sizeof(host));
	snprintf(text, ADDRESS_TEXT, "%s port %u", host, address_port(a));
}

/* --- conflicts ------------------------------------------------------------------------------------ */

int port_conflict(const struct port_claim *mine, const struct port_claim *other, bool reuse)
{
	if (mine->ps != other->ps || address_port(&mine->addr) != address_port(&other->addr))
		return 0;
	if (reuse && mine->reuse && other->reuse)
		return 0;
	if (mine->afonly && other->afonly && mine->addr.sa.sa_family != other->addr.sa.sa_family)
		return 0;
	if (address_any(&mine->addr) || address_any(&other->addr))
		return -EADDRNOTAVAIL;
	return address_equal(&mine->addr, &other->addr) ? -EADDRINUSE : 0;
}

/* --- names ---------------------------------------------------------------------------------------- */

#define HOST_TEXT 48

/* Family and host: "4" and 8 digits, or "6" and 32 with the scope of a link-local address behind them. */
static void host_text(const union address *a, char text[HOST_TEXT])
{
	const uint8_t *byte = a->in6.sin6_addr.s6_addr;
	size_t n = 1;

	if (a->sa.sa_family == AF_INET) {
		snprintf(text, HOST_TEXT, "4%08x", ntohl(a->in.sin_addr.s_addr));
		return;
	}
	text[0] = '6';
	for (unsigned i = 0; i < 16; i++)
		n += (size_t)snprintf(text + n, HOST_TEXT - n, "%02x", byte[i]);
	if (IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr))
		snprintf(text + n, HOST_TEXT - n, "%%%x", a->in6.sin6_scope_id);
}

static bool hex_bytes(const char *text, uint8_t *byte, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned value;

		if (sscanf(text + 2 * i, "%2x", &value) != 1)
			return false;
		byte[i] = (uint8_t)value;
	}
	return true;
}

static bool host_parse(const char *text, union address *a)
{
	char again[HOST_TEXT];

	memset(a, 0, sizeof(*a));
	if (text[0] == '4' && strlen(text) == 9) {
		a->in.sin_family = AF_INET;
		if (!hex_bytes(text + 1, (uint8_t *)&a->in.sin_addr, 4))
			return false;
	} else if (text[0] == '6' && strlen(text) >= 33) {
		a->in6.sin6_family = AF_INET6;
		if (!hex_bytes(text + 1, a->in6.sin6_addr.s6_addr, 16))
			return false;
		if (text[33] == '%')
			a->in6.sin6_scope_id = (uint32_t)strtoul(text + 34, NULL, 16);
	} else {
		return false;
	}
	/* What we would not have written is nobody's of ours. */
	host_text(a, again);
	return !strcmp(text, again);
}

static int name_length(int len)
{
	return len < 0 || len >= PORT_NAME_MAX - 1 ? -ENAMETOOLONG : len;
}

int port_claim_name(const struct port_claim *c, uid_t user, char name[PORT_NAME_MAX])
{
	char host[HOST_TEXT];

	host_text(&c->addr, host);
	return name_length(snprintf(name, PORT_NAME_MAX, "unpin/cm/%u/port/%x/%u/%s/%c%c/%" PRIx64,
		(unsigned)user, c->ps, address_port(&c->addr), host, c->reuse ? 'r' : '-',
		c->afonly ? 'f' : '-', c->owner));
}

bool port_claim_parse(const char *name, size_t len, uid_t user, struct port_claim *c)
{
	char text[PORT_NAME_MAX], again[PORT_NAME_MAX], host[HOST_TEXT], flags[3];
	unsigned whose, ps, port;
	uint64_t owner;

	if (len >= sizeof(text))
		return false;
	memcpy(text, name, len);
	text[len] = '\0';
	if (sscanf(text, "unpin/cm/%u/port/%x/%u/%47[0-9a-f%%]/%2[-rf]/%" SCNx64, &whose, &ps, &port, host,
		    flags, &owner) != 6)
		return false;
	if (whose != user || port > UINT16_MAX || !host_parse(host, &c->addr))
		return false;
	address_set_port(&c->addr, (uint16_t)port);
	c->ps = ps;
	c->reuse = flags[0] == 'r';
	c->afonly = flags[1] == 'f';
	c->owner = owner;
	return port_claim_name(c, user, again) == (int)len && !strcmp(text, again);
}

int port_lock_name(uint32_t ps, uint16_t port, uid_t user, char name[PORT_NAME_MAX])
{
	return name_length(snprintf(name, PORT_NAME_MAX, "unpin/cm/%u/lock/%x/%u", (unsigned)user, ps, port));
}

static int listener_name(
	uid_t user, const char *device, uint32_t ps, uint16_t port, const char *host, char *name)
{
	return name_length(snprintf(
		name, PORT_NAME_MAX, "unpin/cm/%u/%s/%x/%u/%s", (unsigned)user, device, ps, port, host));
}

/* An IPv4-mapped address is the IPv4 address that it stands for. */
static union address unmapped(const union address *a)
{
	union address plain = { .in = { .sin_family = AF_INET } };

	if (a->sa.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return *a;
	memcpy(&plain.in.sin_addr, a->in6.sin6_addr.s6_addr + 12, 4);
	plain.in.sin_port = a->in6.sin6_port;
	return plain;
}

int port_listener_name(const struct port_claim *c, uid_t user, const char *device, char name[PORT_NAME_MAX])
{
	union address addr = unmapped(&c->addr);
	char host[HOST_TEXT];

	if (!address_any(&c->addr))
		host_text(&addr, host);
	else if (c->addr.sa.sa_family == AF_INET)
		strcpy(host, "any4");
	else
		strcpy(host, c->afonly ? "any6" : "any");
	return listener_name(user, device, c->ps, address_port(&c->addr), host, name);
}

int port_target_name(uint32_t ps, const union address *to, uid_t user, const char *device, unsigned nth,
	char name[PORT_NAME_MAX])
{
	union address addr = unmapped(to);
	char host[HOST_TEXT];

	switch (nth) {
	case 0:
		host_text(&addr, host);
		break;
	case 1:
		strcpy(host, addr.sa.sa_family == AF_INET ? "any4" : "any6");
		break;
	case 2:
		strcpy(host, "any");
		break;
	default:
		return 0;
	}
	return listener_name(user, device, ps, address_port(to), host, name);
}

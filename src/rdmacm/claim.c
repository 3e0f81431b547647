/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "rdmacm/claim.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "rdmacm/own.h"

#define LOCK_WAIT_NS (2 * NSEC_PER_SEC)
#define CHUNK	     65536

/* --- the claims of the network namespace ---------------------------------------------------------- */

struct claims {
	struct port_claim *claim;
	size_t n, room;
	int err; /* no memory */
};

static void add_name(struct claims *all, const char *name, size_t len)
{
	struct port_claim *more, one;

	if (!port_claim_parse(name, len, geteuid(), &one))
		return;
	if (all->n == all->room) {
		more = realloc(all->claim, (all->room * 2 + 64) * sizeof(*more));
		if (!more) {
			all->err = -ENOMEM;
			return;
		}
		all->claim = more;
		all->room = all->room * 2 + 64;
	}
	all->claim[all->n++] = one;
}

/* A line of /proc/net/unix: the name is behind the last space, with @ for each 0 byte. */
static void add_line(struct claims *all, const char *line, size_t len)
{
	const char *name = memrchr(line, ' ', len);

	if (name && name + 1 < line + len && name[1] == '@')
		add_name(all, name + 2, (size_t)(line + len - (name + 2)));
}

/* What is left of the buffer after its whole lines. */
static size_t add_lines(struct claims *all, char *buf, size_t len)
{
	char *line = buf, *end;

	while ((end = memchr(line, '\n', len - (size_t)(line - buf)))) {
		add_line(all, line, (size_t)(end - line));
		line = end + 1;
	}
	len -= (size_t)(line - buf);
	memmove(buf, line, len);
	return len;
}

static int list_proc(struct claims *all)
{
	int fd = fd_open("/proc/net/unix", O_RDONLY);
	size_t have = 0;
	char *buf;
	long n;

	if (fd < 0)
		return -errno;
	buf = malloc(CHUNK);
	while (buf && (n = syscall(SYS_read, fd, buf + have, CHUNK - have)) > 0) {
		have = add_lines(all, buf, have + (size_t)n);
		if (have == CHUNK)
			have = 0; /* no line of the kernel's is that long */
	}
	fd_close(fd);
	if (!buf)
		return -ENOMEM;
	free(buf);
	return all->err;
}

static void add_diag(struct claims *all, const struct nlmsghdr *h)
{
	const struct unix_diag_msg *msg = NLMSG_DATA(h);
	const struct nlattr *a = (const void *)(msg + 1);
	size_t left =
		h->nlmsg_len > NLMSG_LENGTH(sizeof(*msg)) ? h->nlmsg_len - NLMSG_LENGTH(sizeof(*msg)) : 0;

	while (left >= sizeof(*a) && a->nla_len >= sizeof(*a) && a->nla_len <= left) {
		size_t whole = NLMSG_ALIGN(a->nla_len), len = a->nla_len - sizeof(*a);
		const char *name = (const char *)(a + 1);

		if (a->nla_type == UNIX_DIAG_NAME && len && !name[0])
			add_name(all, name + 1, len - 1);
		if (whole >= left)
			break;
		left -= whole;
		a = (const void *)((const char *)a + whole);
	}
}

/* 1: there is more to come; 0: done. */
static int read_diag(struct claims *all, int fd, char *buf)
{
	long n = syscall(SYS_recvfrom, fd, buf, CHUNK, 0, NULL, NULL);
	const struct nlmsghdr *h = (const void *)buf;

	if (n < 0)
		return errno == EINTR ? 1 : -errno;
	for (size_t left = (size_t)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
		if (h->nlmsg_type == NLMSG_DONE)
			return 0;
		if (h->nlmsg_type == NLMSG_ERROR)
			return ((const struct nlmsgerr *)NLMSG_DATA(h))->error ?: -EIO;
		if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY)
			add_diag(all, h);
	}
	return n ? 1 : -EIO;
}

/* Where there is no /proc. */
static int list_diag(struct claims *all)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req req;
	} ask = {
		.head = { .nlmsg_len = sizeof(ask),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.req = { .sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_show = UDIAG_SHOW_NAME },
	};
	int fd = (int)syscall(SYS_socket, AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	char *buf;
	int err;

	if (fd < 0)
		return -errno;
	buf = malloc(CHUNK);
	err = buf ? 1 : -ENOMEM;
	if (buf && syscall(SYS_sendto, fd, &ask, sizeof(ask), 0, NULL, 0) < 0)
		err = -errno;
	while (err > 0)
		err = read_diag(all, fd, buf);
	free(buf);
	fd_close(fd);
	return err ? err : all->err;
}

/* The user's claims. Where neither way is open only listeners' names tell conflicts; that is said once. */
static int list_claims(struct claims *all)
{
	static _Atomic bool said;
	int err;

	memset(all, 0, sizeof(*all));
	err = list_proc(all);
	if (err && err != -ENOMEM) {
		all->n = 0;
		err = list_diag(all);
	}
	if (err && err != -ENOMEM) {
		if (!atomic_exchange(&said, true))
			log_warn("rdma_cm: neither /proc/net/unix nor socket diagnosis can be read (%s): "
				 "ports "
				 "of other processes are seen only when they are listened on",
				strerror(-err));
		all->n = 0;
		err = 0;
	}
	return err;
}

static int conflict(const struct claims *all, const struct port_claim *mine, bool reuse)
{
	int err = 0;

	for (size_t i = 0; i < all->n && !err; i++)
		if (all->claim[i].owner != mine->owner)
			err = port_conflict(mine, &all->claim[i], reuse);
	return err;
}

/* --- names ---------------------------------------------------------------------------------------- */

/* A socket that does nothing but have the name. */
static int publish(const char *name, int len)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd, err;

	if (len < 0)
		return len;
	fd = own_fd((int)syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return fd;
	memcpy(addr.sun_path + 1, name, (size_t)len);
	if (!syscall(SYS_bind, fd, &addr, offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len))
		return fd;
	err = -errno;
	own_close(&fd);
	return err;
}

/* The lock of a port: its descriptor. A process that was stopped with it in its hand holds us up only so
 * long. */
static int lock_port(uint32_t ps, uint16_t port)
{
	const struct timespec pause = { 0, 200 * NSEC_PER_USEC };
	uint64_t until = clock_ns() + LOCK_WAIT_NS;
	char name[PORT_NAME_MAX];
	int len = port_lock_name(ps, port, geteuid(), name), fd;

	while ((fd = publish(name, len)) == -EADDRINUSE && clock_ns() < until)
		syscall(SYS_nanosleep, &pause, NULL);
	return fd;
}

static int publish_claim(struct claim *c)
{
	char name[PORT_NAME_MAX];
	int fd = publish(name, port_claim_name(&c->port, geteuid(), name));

	if (fd < 0)
		return fd;
	own_close(&c->fd);
	c->fd = fd;
	return 0;
}

/* --- ports ---------------------------------------------------------------------------------------- */

static bool read_numbers(const char *path, unsigned *a, unsigned *b)
{
	char text[64];
	int fd = fd_open(path, O_RDONLY), found = 0;
	long n;

	if (fd < 0)
		return false;
	n = syscall(SYS_read, fd, text, sizeof(text) - 1);
	fd_close(fd);
	if (n > 0) {
		text[n] = '\0';
		found = sscanf(text, "%u %u", a, b);
	}
	return found >= (b ? 2 : 1);
}

static bool may_bind_service(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data))
		return !geteuid();
	return data[0].effective >> CAP_NET_BIND_SERVICE & 1;
}

static bool privileged(uint16_t port)
{
	unsigned start = IPPORT_RESERVED;

	read_numbers("/proc/sys/net/ipv4/ip_unprivileged_port_start", &start, NULL);
	return port < start && !may_bind_service();
}

static int decide(struct claim *c, bool reuse)
{
	int lock = lock_port(c->port.ps, address_port(&c->port.addr)), err;
	struct claims all;

	if (lock < 0)
		return lock;
	err = list_claims(&all);
	if (!err)
		err = conflict(&all, &c->port, reuse);
	free(all.claim);
	if (!err)
		err = publish_claim(c);
	own_close(&lock);
	return err;
}

/* A random port of the kernel's range, then those behind it, that nobody has in any way. */
static int take_ephemeral(struct claim *c)
{
	unsigned low = 32768, high = 60999, start = 0, n;
	struct claims all;
	int err;

	if (!read_numbers("/proc/sys/net/ipv4/ip_local_port_range", &low, &high) || low < 1 || high < low ||
		high > UINT16_MAX) {
		low = 32768;
		high = 60999;
	}
	n = high - low + 1;
	if (syscall(SYS_getrandom, &start, sizeof(start), GRND_NONBLOCK) != sizeof(start))
		start = (unsigned)clock_ns();
	err = list_claims(&all);
	if (err)
		return err;
	err = -EADDRNOTAVAIL;
	for (unsigned i = 0; i < n && (err == -EADDRNOTAVAIL || err == -EADDRINUSE); i++) {
		address_set_port(&c->port.addr, (uint16_t)(low + (start % n + i) % n));
		err = conflict(&all, &c->port, false);
		if (!err)
			err = decide(c, false);
	}
	free(all.claim);
	if (err)
		address_set_port(&c->port.addr, 0);
	return err == -EADDRINUSE ? -EADDRNOTAVAIL : err;
}

int claim_take(struct claim *c)
{
	static _Atomic uint32_t counter;
	uint16_t port = address_port(&c->port.addr);

	c->fd = -1;
	c->port.owner = (uint64_t)getpid() << 32 | atomic_fetch_add(&counter, 1);
	if (!port)
		return take_ephemeral(c);
	return privileged(port) ? -EACCES : decide(c, true);
}

int claim_own(struct claim *c)
{
	struct claim alone = *c;
	int err;

	if (!c->port.reuse)
		return 0;
	alone.port.reuse = false;
	err = decide(&alone, false);
	if (!err)
		*c = alone;
	return err;
}

int claim_change(struct claim *c, bool reuse, bool afonly)
{
	struct port_claim was = c->port;
	int err;

	if (c->fd < 0 || (was.reuse == reuse && was.afonly == afonly))
		return 0;
	c->port.reuse = reuse;
	c->port.afonly = afonly;
	err = publish_claim(c);
	if (err)
		c->port = was;
	return err;
}

void claim_drop(struct claim *c)
{
	own_close(&c->fd);
}

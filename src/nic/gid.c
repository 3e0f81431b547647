/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "nic/gid.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"

/* --- the host's identity -------------------------------------------------------------------------- */

static const char *const identities[] = {
	"/etc/machine-id",		   /* survives a restart; may be missing or empty in a container */
	"/proc/sys/kernel/random/boot_id", /* the kernel's, so all containers of a host share it */
};

/* Reads one identity; its length, 0 when there is none. */
static size_t read_identity(const char *path, char *buf, size_t size)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n;

	if (fd < 0)
		return 0;
	n = syscall(SYS_read, (int)fd, buf, size);
	fd_close((int)fd);
	return n > 0 ? (size_t)n : 0;
}

/* FNV-1a, spread once more so that near names do not give near numbers. */
static uint64_t hash(uint64_t h, const void *data, size_t n)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	h ^= h >> 32;
	return h * 0x9e3779b97f4a7c15ull;
}

/* From the first identity of the list, from its row first on, that there is. */
static __be64 eui64_from(size_t first, const char *name)
{
	uint64_t h = 0xcbf29ce484222325ull;
	char id[64];
	size_t n = 0;

	for (size_t i = first; i < sizeof(identities) / sizeof(identities[0]) && !n; i++)
		n = read_identity(identities[i], id, sizeof(id));
	h = hash(h, id, n);
	h = hash(h, name, strlen(name));
	/*
	 * Of the first byte, bit 1 says that nobody assigned the number and bit 0 that it names one device.
	 */
	h = (h | 0x0200000000000000ull) & ~0x0100000000000000ull;
	return htobe64(h);
}

__be64 nic_gid_eui64(const char *name)
{
	return eui64_from(0, name);
}

/* A link-local GID: the same for every process on this kernel, whatever container it is in. */
static void link_local_gid(union ibv_gid *gid, const char *name)
{
	gid->global.subnet_prefix = htobe64(0xfe80000000000000ull);
	gid->global.interface_id = eui64_from(1, name);
}

#define OF_THE_HOST "" /* the row of a namespace without addresses */
#define OF_THE_PORT "port"

/* --- the table ------------------------------------------------------------------------------------ */

struct row {
	bool used;
	bool seen; /* during a refresh */
	union ibv_gid gid;
	uint32_t ifindex;
};

static struct {
	struct lock lock;
	_Atomic pid_t pid; /* whose table it is; 0: nobody's yet */
	uint64_t read_ns;  /* 0: never */
	struct row row[NIC_GID_TABLE_LEN];
} table = { .lock = LOCK_INIT(LOCK_GIDS) };

/* An address as the program's interfaces have it, with what decides its place. */
struct found {
	union ibv_gid gid;
	uint32_t ifindex;
	bool loopback;
	bool ipv6;
};

#define FOUND_MAX 256

/* false: neither IPv4 nor IPv6. */
static bool gid_of(const struct sockaddr *addr, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (addr && addr->sa_family == AF_INET) {
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(&gid->raw[12], &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
	} else if (addr && addr->sa_family == AF_INET6) {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr, 16);
	} else {
		return false;
	}
	return true;
}

static bool to_found(const struct ifaddrs *a, struct found *f)
{
	memset(f, 0, sizeof(*f));
	if (!(a->ifa_flags & IFF_UP) || !gid_of(a->ifa_addr, &f->gid))
		return false;
	f->ipv6 = a->ifa_addr->sa_family == AF_INET6;
	f->ifindex = if_nametoindex(a->ifa_name);
	f->loopback = a->ifa_flags & IFF_LOOPBACK;
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->loopback != y->loopback)
		return x->loopback - y->loopback;
	if (x->ipv6 != y->ipv6)
		return x->ipv6 - y->ipv6;
	if (x->ifindex != y->ifindex)
		return x->ifindex < y->ifindex ? -1 : 1;
	return memcmp(x->gid.raw, y->gid.raw, sizeof(x->gid.raw));
}

/*
 * The namespace's addresses. NULL: they cannot be read. getifaddrs is made of calls that can be cancelled:
 * not here.
 */
static struct ifaddrs *list_addresses(void)
{
	struct ifaddrs *list = NULL;
	int cancel, err;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	err = getifaddrs(&list);
	pthread_setcancelstate(cancel, NULL);
	return err ? NULL : list;
}

/* In their order, at least one. */
static size_t find_addresses(struct found *f)
{
	struct ifaddrs *list = list_addresses();
	size_t n = 0;

	for (struct ifaddrs *a = list; a && n < FOUND_MAX; a = a->ifa_next)
		n += to_found(a, &f[n]);
	freeifaddrs(list);
	if (!n) {
		memset(&f[n], 0, sizeof(f[n]));
		link_local_gid(&f[n++].gid, OF_THE_HOST);
	}
	qsort(f, n, sizeof(f[0]), by_place);
	return n;
}

static struct row *row_of(const struct found *f)
{
	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++) {
		struct row *r = &table.row[i];

		if (r->used && r->ifindex == f->ifindex &&
			!memcmp(r->gid.raw, f->gid.raw, sizeof(r->gid.raw)))
			return r;
	}
	return NULL;
}

static struct row *free_row(void)
{
	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++)
		if (!table.row[i].used)
			return &table.row[i];
	return NULL;
}

/* Rows whose address is gone become empty first, then new addresses take the first empty rows. */
static void merge(const struct found *f, size_t n)
{
	struct row *r;

	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++)
		table.row[i].seen = false;
	for (size_t i = 0; i < n; i++)
		if ((r = row_of(&f[i])))
			r->seen = true;
	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++)
		table.row[i].used = table.row[i].used && table.row[i].seen;
	for (size_t i = 0; i < n; i++) {
		if (row_of(&f[i]))
			continue;
		r = free_row();
		if (!r)
			return; /* more addresses than rows: the last ones have none */
		*r = (struct row){ .used = true, .gid = f[i].gid, .ifindex = f[i].ifindex };
	}
}

static void refresh(void)
{
	struct found found[FOUND_MAX];
	uint64_t now = clock_ns();

	if (table.read_ns && now - table.read_ns < NSEC_PER_SEC)
		return;
	merge(found, find_addresses(found));
	table.read_ns = now;
}

#define PID_CHANGING ((pid_t)-1)

/*
 * A child that was forked while the table was locked would wait for ever: it starts with a fresh lock and an
 * empty table.
 */
static void start_over(pid_t old, pid_t pid)
{
	if (!atomic_compare_exchange_strong(&table.pid, &old, PID_CHANGING))
		return; /* another thread does */
	if (old) {
		lock_reinit(&table.lock, LOCK_GIDS);
		memset(table.row, 0, sizeof(table.row));
		table.read_ns = 0;
	}
	atomic_store(&table.pid, pid);
}

static void lock_table(void)
{
	pid_t pid = (pid_t)syscall(SYS_getpid);
	pid_t owner;

	while ((owner = atomic_load(&table.pid)) != pid)
		if (owner != PID_CHANGING)
			start_over(owner, pid);
	lock_take(&table.lock);
}

int nic_gid_get(unsigned index, union ibv_gid *gid, uint32_t *ifindex)
{
	int ret = 0;

	if (index >= NIC_GID_TABLE_LEN)
		return -EINVAL;
	lock_table();
	refresh();
	if (table.row[index].used) {
		*gid = table.row[index].gid;
		if (ifindex)
			*ifindex = table.row[index].ifindex;
	} else {
		ret = -ENODATA;
	}
	lock_drop(&table.lock);
	return ret;
}

/* --- as the port shows it ------------------------------------------------------------------------- */

/* Under layout PAIRS: two rows for the port, then two for each address. */
#define PAIR_ROWS (2 * (1 + NIC_GID_TABLE_LEN))

unsigned nic_gid_rows(enum nic_gid_layout layout)
{
	return layout == NIC_GID_PAIRS ? PAIR_ROWS : NIC_GID_TABLE_LEN;
}

int nic_gid_row(enum nic_gid_layout layout, unsigned index, struct ibv_gid_entry *row)
{
	unsigned pair = index / 2;
	int ret;

	memset(row, 0, sizeof(*row));
	row->gid_index = index;
	row->port_num = 1;
	row->gid_type = IBV_GID_TYPE_ROCE_V2;
	if (layout != NIC_GID_PAIRS)
		return nic_gid_get(index, &row->gid, &row->ndev_ifindex);
	if (index >= PAIR_ROWS)
		return -EINVAL;
	if (index % 2 == 0)
		row->gid_type = IBV_GID_TYPE_ROCE_V1;
	/* The port's own, which is of the interface that the first address is of. */
	ret = nic_gid_get(pair ? pair - 1 : 0, &row->gid, &row->ndev_ifindex);
	if (pair)
		return ret;
	link_local_gid(&row->gid, OF_THE_PORT);
	return 0;
}

/* --- whose it is ---------------------------------------------------------------------------------- */

static bool same(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a->raw, b->raw, sizeof(a->raw));
}

static bool is_loopback(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)(const void *)gid->raw) ||
	       (!memcmp(gid->raw, mapped, sizeof(mapped)) && gid->raw[12] == IN_LOOPBACKNET);
}

static bool in_table(const union ibv_gid *gid)
{
	bool found = false;

	lock_table();
	refresh();
	for (unsigned i = 0; i < NIC_GID_TABLE_LEN && !found; i++)
		found = table.row[i].used && same(&table.row[i].gid, gid);
	lock_drop(&table.lock);
	return found;
}

/* Any address of the namespace now: those that the table has not seen yet, has no row for, or does not show.
 */
static bool is_address(const union ibv_gid *gid)
{
	struct ifaddrs *list = list_addresses();
	union ibv_gid own;
	bool found = false;

	for (struct ifaddrs *a = list; a && !found; a = a->ifa_next)
		found = gid_of(a->ifa_addr, &own) && same(&own, gid);
	freeifaddrs(list);
	return found;
}

bool nic_gid_is_here(const union ibv_gid *gid)
{
	union ibv_gid own[2];

	if (is_loopback(gid) || in_table(gid))
		return true;
	link_local_gid(&own[0], OF_THE_HOST);
	link_local_gid(&own[1], OF_THE_PORT);
	return same(&own[0], gid) || same(&own[1], gid) || is_address(gid);
}

static int find_row(const union ibv_gid *gid, uint32_t ifindex, unsigned *index)
{
	for (unsigned i = 0; i < NIC_GID_TABLE_LEN; i++) {
		const struct row *r = &table.row[i];

		if (!r->used || memcmp(r->gid.raw, gid->raw, sizeof(gid->raw)) ||
			(ifindex && r->ifindex != ifindex))
			continue;
		*index = i;
		return 0;
	}
	return -ENODEV;
}

int nic_gid_find(enum nic_gid_layout layout, const union ibv_gid *gid, uint32_t ifindex, unsigned *index)
{
	int ret;

	lock_table();
	refresh();
	ret = find_row(gid, ifindex, index);
	if (ret) {
		table.read_ns = 0;
		refresh();
		ret = find_row(gid, ifindex, index);
	}
	lock_drop(&table.lock);
	if (!ret && layout == NIC_GID_PAIRS)
		*index = 2 * (1 + *index) + 1;
	return ret;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "wire/names.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

/* linux/unix_diag.h has them since 5.3. */
#define SHOW_UID 0x40
#define ATTR_UID 7

#define STATE_LISTEN 10 /* TCP_LISTEN, which unix sockets share */
#define BUFFER	     16384

int names_make(struct meet_name *n, uid_t euid, const char *device, uint32_t slot)
{
	int err = meet_name(n, euid, device, slot), len;
	size_t used, room;
	uint64_t end;

	if (err)
		return err;
	if (getrandom(&end, sizeof(end), GRND_NONBLOCK) != sizeof(end))
		end = clock_ns() * 0x9e3779b97f4a7c15ull ^ (uint64_t)getpid();
	used = n->len - offsetof(struct sockaddr_un, sun_path);
	room = sizeof(n->addr.sun_path) - used;
	len = snprintf(n->addr.sun_path + used, room, "/%016llx", (unsigned long long)end);
	if (len < 0 || (size_t)len >= room)
		return -ENAMETOOLONG;
	n->len += (socklen_t)len;
	return 0;
}

#define END_DIGITS 16
#define APART	   (LAYOUT_QPS - LAYOUT_APART)

/* What is looked for, and what has been found. */
struct search {
	uid_t euid;
	char prefix[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* "unpin/<euid>/<device>/" */
	uint32_t slot;						  /* for found and n; 0: any */
	struct meet_name *found;
	int max, n;
	unsigned char taken[APART]; /* per slot, 255 at most */
};

/* The slot in a name like ours, or 0. */
static uint32_t slot_in(const struct search *s, const char *name, size_t length)
{
	size_t at = strlen(s->prefix), digits = 0;
	uint32_t slot = 0;

	/* The first byte is the 0 of abstract names. */
	if (length <= 1 + at || name[0] || memcmp(name + 1, s->prefix, at))
		return 0;
	for (at++; at < length && digits < 4 && name[at] >= '0' && name[at] <= '9'; at++, digits++)
		slot = slot * 10 + (uint32_t)(name[at] - '0');
	if (length != at + 1 + END_DIGITS || name[at] != '/' || slot < LAYOUT_APART || slot >= LAYOUT_QPS)
		return 0;
	return slot;
}

static void note(struct search *s, const char *name, size_t length)
{
	uint32_t slot = slot_in(s, name, length);
	struct meet_name *to;

	if (!slot || length > sizeof(to->addr.sun_path))
		return;
	if (s->taken[slot - LAYOUT_APART] < UINT8_MAX)
		s->taken[slot - LAYOUT_APART]++;
	if (s->slot && s->slot != slot)
		return;
	if (s->n < s->max) {
		to = &s->found[s->n];
		memset(to, 0, sizeof(*to));
		to->addr.sun_family = AF_UNIX;
		memcpy(to->addr.sun_path, name, length);
		to->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	}
	s->n++;
}

static void look_at(struct search *s, const struct nlmsghdr *h)
{
	const struct unix_diag_msg *m = NLMSG_DATA(h);
	int left = (int)h->nlmsg_len - (int)NLMSG_LENGTH(sizeof(*m));
	const char *name = NULL;
	size_t length = 0;
	uid_t uid = (uid_t)-1;

	if (left < 0 || m->udiag_type != SOCK_SEQPACKET)
		return;
	for (const struct rtattr *a = (const void *)(m + 1); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
		if (a->rta_type == UNIX_DIAG_NAME) {
			name = RTA_DATA(a);
			length = RTA_PAYLOAD(a);
		} else if (a->rta_type == ATTR_UID && RTA_PAYLOAD(a) == sizeof(uid)) {
			memcpy(&uid, RTA_DATA(a), sizeof(uid));
		}
	}
	if (name && uid == s->euid)
		note(s, name, length);
}

static int ask(int sock)
{
	struct {
		struct nlmsghdr h;
		struct unix_diag_req r;
	} m = {
		.h = { .nlmsg_len = sizeof(m),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.r = { .sdiag_family = AF_UNIX,
			.udiag_states = 1u << STATE_LISTEN,
			.udiag_show = UDIAG_SHOW_NAME | SHOW_UID },
	};

	return syscall(SYS_sendto, sock, &m, sizeof(m), 0, NULL, 0) < 0 ? -errno : 0;
}

/* One datagram of the answer. 1: there is more; 0: that was all; else a negative errno. */
static int hear(int sock, struct search *s)
{
	_Alignas(struct nlmsghdr) char buf[BUFFER];
	long got = syscall(SYS_recvfrom, sock, buf, sizeof(buf), MSG_DONTWAIT, NULL, NULL);

	if (got <= 0)
		return got && errno == EINTR ? 1 : got ? -errno : -EIO;
	for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, (size_t)got); h = NLMSG_NEXT(h, got)) {
		if (h->nlmsg_type == NLMSG_DONE)
			return 0;
		if (h->nlmsg_type == NLMSG_ERROR)
			return ((struct nlmsgerr *)NLMSG_DATA(h))->error ?: -EIO;
		if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY)
			look_at(s, h);
	}
	return 1;
}

static int search(struct search *s, const char *device)
{
	int sock, err;

	snprintf(s->prefix, sizeof(s->prefix), "unpin/%u/%s/", (unsigned)s->euid, device);
	sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
	if (sock < 0)
		return -errno;
	err = ask(sock);
	if (!err)
		while ((err = hear(sock, s)) > 0)
			;
	fd_close(sock);
	return err;
}

int names_find(uid_t euid, const char *device, uint32_t slot, struct meet_name *found, int max)
{
	struct search s = { .euid = euid, .slot = slot, .found = found, .max = max };
	int err = search(&s, device);

	return err ? err : s.n;
}

int names_call(uid_t euid, const char *device, uint32_t slot)
{
	struct meet_name name;
	int n;

	if (slot >= LAYOUT_APART)
		n = names_find(euid, device, slot, &name, 1);
	else
		n = meet_name(&name, euid, device, slot) ?: 1;
	if (n <= 0)
		return n ? n : -ECONNREFUSED;
	return meet_connect(&name);
}

/* The search for a free slot begins anywhere, so that numbers come back late. */
static uint32_t somewhere(void)
{
	uint32_t start;

	if (getrandom(&start, sizeof(start), GRND_NONBLOCK) != sizeof(start))
		start = (uint32_t)clock_ns();
	return start;
}

static int listen_plain(uid_t euid, const char *device, uint32_t *slot)
{
	uint32_t start = somewhere(), n = LAYOUT_APART - 1;
	struct meet_name name;
	int sock = -EADDRINUSE, err;

	for (uint32_t i = 0; i < n && sock == -EADDRINUSE; i++) {
		*slot = 1 + (start % n + i) % n;
		err = meet_name(&name, euid, device, *slot);
		if (err)
			return err;
		sock = meet_listen(&name);
	}
	return sock;
}

/* Who takes the slot at the same time finds our name as well: at least one of the two sees the other, and
 * goes on. */
static int listen_apart(uid_t euid, const char *device, uint32_t *slot)
{
	uint32_t start = somewhere();
	struct search s = { .euid = euid };
	struct meet_name name;
	int sock, err;

	for (uint32_t i = 0; i < APART; i++) {
		uint32_t at = (start + i) % APART;

		memset(s.taken, 0, sizeof(s.taken));
		err = search(&s, device);
		if (err)
			return err;
		while (i < APART && s.taken[at])
			at = (start + ++i) % APART;
		if (i == APART)
			break;
		*slot = LAYOUT_APART + at;
		err = names_make(&name, euid, device, *slot);
		sock = err ? err : meet_listen(&name);
		if (sock < 0)
			return sock;
		memset(s.taken, 0, sizeof(s.taken));
		err = search(&s, device);
		if (!err && s.taken[at] == 1)
			return sock;
		fd_close(sock);
		if (err)
			return err;
	}
	return -EADDRINUSE;
}

int names_listen(uid_t euid, const char *device, uint32_t *slot)
{
	int sock = listen_plain(euid, device, slot);

	if (sock != -EADDRINUSE)
		return sock;
	sock = listen_apart(euid, device, slot);
	if (sock == -EADDRINUSE || sock == -EMFILE || sock == -ENFILE)
		return sock;
	if (sock < 0) {
		log_warn("all plain names of %s are taken, perhaps by another user, and the kernel refuses "
			 "the list of sockets (sock_diag) in which others could be found: %s",
			device, strerror(-sock));
		return -EADDRINUSE;
	}
	log_info("all plain names of %s are taken: this process has one that ends in random digits", device);
	return sock;
}

static bool read_text(const char *path, char *text, size_t size)
{
	int fd = fd_open(path, O_RDONLY);
	long n = fd < 0 ? -1 : (long)syscall(SYS_read, fd, text, size - 1);

	if (fd >= 0)
		fd_close(fd);
	text[n > 0 ? n : 0] = '\0';
	return n > 0;
}

/*
 * Our user's number may be the one that stands for all users whom our user namespace does not map
 * (user_namespaces(7)). In a namespace that maps all it is a user as any other. When /proc does not tell, it
 * is not.
 */
bool names_user_is_vague(uid_t euid)
{
	char text[128];
	unsigned long number = 65534, inside, outside, count;

	if (read_text("/proc/sys/kernel/overflowuid", text, sizeof(text)))
		sscanf(text, "%lu", &number);
	if (euid != number)
		return false;
	return !read_text("/proc/self/uid_map", text, sizeof(text)) ||
	       sscanf(text, "%lu %lu %lu", &inside, &outside, &count) != 3 || inside || count < UINT32_MAX;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Asking over rdma netlink, the kernel or a record; reading the answers is rdmanl_answer.c. */
#include "tool/rdmanl.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "tool/alloc.h"

#define TIMES	 4
#define RECEIVED ((size_t)64 << 10) /* the kernel's parts of a dump are 32 KiB at most */

/* How a question is asked. */
static const struct question {
	const char *file;  /* of a record: behind the device's name */
	uint16_t command;  /* enum rdma_nldev_command */
	uint16_t resource; /* whose statistics; 0: it is not about statistics */
} questions[RDMANL_QUESTIONS] = {
	[RDMANL_DEVICES] = { "devices", RDMA_NLDEV_CMD_GET, 0 },
	[RDMANL_REGIONS] = { "regions", RDMA_NLDEV_CMD_RES_MR_GET, 0 },
	[RDMANL_QPS] = { "queue-pairs", RDMA_NLDEV_CMD_RES_QP_GET, 0 },
	[RDMANL_REGION_COUNTERS] = { "region-counters", RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_RES_MR },
	[RDMANL_QP_COUNTERS] = { "queue-pair-counters", RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_RES_QP },
};

/* --- where answers come from -----------------------------------------------------------------------------
 */

/* How often each question was asked, by the name of its file. */
struct turn {
	char *name;
	unsigned asked, last; /* last: the newest that the record has */
};

struct rdmanl {
	char *(*read)(void *arg, const char *path); /* NULL: live */
	void *arg;
	int keep; /* the folder "netlink" of a record that is written; -1 */
	struct turn *turn;
	size_t turns;
	uint32_t seq;
};

struct rdmanl *rdmanl_recorded(char *(*read)(void *arg, const char *path), void *arg)
{
	struct rdmanl *nl = alloc_array(1, sizeof(*nl));

	nl->read = read;
	nl->arg = arg;
	nl->keep = -1;
	return nl;
}

struct rdmanl *rdmanl_live(void)
{
	return rdmanl_recorded(NULL, NULL);
}

int rdmanl_record(struct rdmanl *nl, int dir)
{
	if (mkdirat(dir, "netlink", 0777) && errno != EEXIST)
		return -errno;
	nl->keep = openat(dir, "netlink", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return nl->keep < 0 ? -errno : 0;
}

void rdmanl_close(struct rdmanl *nl)
{
	for (size_t i = 0; i < nl->turns; i++)
		free(nl->turn[i].name);
	free(nl->turn);
	if (nl->keep >= 0)
		close(nl->keep);
	free(nl);
}

static struct turn *turn_of(struct rdmanl *nl, const struct question *q, const struct rdmanl_device *of)
{
	char *name = of ? alloc_text("%s.%s", of->name, q->file) : alloc_text("%s", q->file);
	size_t i = 0;

	while (i < nl->turns && strcmp(nl->turn[i].name, name) != 0)
		i++;
	if (i < nl->turns) {
		free(name);
	} else {
		nl->turn = alloc_grow(nl->turn, ++nl->turns, sizeof(*nl->turn));
		nl->turn[i] = (struct turn){ .name = name };
	}
	return &nl->turn[i];
}

static char *file_of_turn(const char *folder, const struct turn *t, unsigned number)
{
	return number > 1 ? alloc_text("%s%s.%u", folder, t->name, number)
			  : alloc_text("%s%s", folder, t->name);
}

/* --- a record --------------------------------------------------------------------------------------------
 */

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* In place. The number of bytes, or -EBADMSG. */
static ssize_t from_hex(char *text)
{
	size_t n = 0;
	int high, low;

	for (const char *at = text; *at; at++) {
		if (*at == '#')
			at += strcspn(at, "\n");
		if (!*at)
			break;
		if (isspace((unsigned char)*at))
			continue;
		high = digit(at[0]);
		low = high < 0 ? -1 : digit(at[1]);
		if (low < 0)
			return -EBADMSG;
		text[n++] = (char)(high << 4 | low);
		at++;
	}
	return (ssize_t)n;
}

static char *read_turn(struct rdmanl *nl, const struct turn *t, unsigned number)
{
	char *path = file_of_turn("/netlink/", t, number), *text = nl->read(nl->arg, path);
	int err = errno;

	free(path);
	errno = err;
	return text;
}

static int ask_record(struct rdmanl *nl, enum rdmanl_question what, struct turn *t, struct rdmanl_answer *a)
{
	char *text = read_turn(nl, t, t->asked);
	ssize_t n;
	int got;

	if (text)
		t->last = t->asked;
	else if (t->last)
		text = read_turn(nl, t, t->last);
	if (!text)
		return errno == ENOENT || errno == ENOTDIR ? -EOPNOTSUPP : -errno;
	n = from_hex(text);
	got = n < 0 ? (int)n : rdmanl_parse(a, what, 0, text, (size_t)n);
	free(text);
	return got > 0 ? -EBADMSG : got;
}

/* --- the kernel ------------------------------------------------------------------------------------------
 */

static void keep(int fd, const char *bytes, size_t n)
{
	char line[2 * 32 + 2];

	for (size_t i = 0; fd >= 0 && i < n;) {
		size_t used = 0;

		while (i < n && used < 64)
			used += (size_t)sprintf(line + used, "%02x", (unsigned char)bytes[i++]);
		line[used++] = '\n';
		if (write(fd, line, used) != (ssize_t)used)
			return;
	}
}

static int send_question(
	struct mnl_socket *s, uint32_t seq, const struct question *q, const struct rdmanl_device *of)
{
	char room[MNL_NLMSG_HDRLEN + 64] __attribute__((aligned(4)));
	struct nlmsghdr *h;

	memset(room, 0, sizeof(room));
	h = mnl_nlmsg_put_header(room);
	h->nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, q->command);
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	h->nlmsg_seq = seq;
	if (of)
		mnl_attr_put_u32(h, RDMA_NLDEV_ATTR_DEV_INDEX, of->index);
	if (q->resource)
		mnl_attr_put_u32(h, RDMA_NLDEV_ATTR_STAT_RES, q->resource);
	return mnl_socket_sendto(s, h, h->nlmsg_len) < 0 ? -errno : 0;
}

static int receive(
	struct mnl_socket *s, uint32_t seq, enum rdmanl_question what, struct rdmanl_answer *a, int kept)
{
	char *bytes = alloc_array(RECEIVED, 1);
	int got = 1;

	while (got > 0) {
		ssize_t n = mnl_socket_recvfrom(s, bytes, RECEIVED);

		if (n < 0 && errno == EINTR)
			continue;
		if (n > 0)
			keep(kept, bytes, (size_t)n);
		/* (A signal is not what an interrupted dump is.) */
		got = n > 0 ? rdmanl_parse(a, what, seq, bytes, (size_t)n) : n ? -errno : -EBADMSG;
	}
	free(bytes);
	return got;
}

static int converse(struct mnl_socket *s, uint32_t seq, enum rdmanl_question what,
	const struct rdmanl_device *of, struct rdmanl_answer *a, int kept)
{
	struct timeval patience = { .tv_sec = 2 };
	int err;

	if (setsockopt(mnl_socket_get_fd(s), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
		mnl_socket_bind(s, 0, MNL_SOCKET_AUTOPID) < 0)
		return -errno;
	err = send_question(s, seq, &questions[what], of);
	return err ? err : receive(s, seq, what, a, kept);
}

/* A socket for each time: what is left of an interrupted dump goes with it. */
static int ask_kernel(struct rdmanl *nl, enum rdmanl_question what, const struct rdmanl_device *of,
	struct turn *t, struct rdmanl_answer *a)
{
	struct mnl_socket *s = mnl_socket_open2(NETLINK_RDMA, SOCK_CLOEXEC);
	int err, kept = -1;

	if (!s)
		return -errno;
	if (nl->keep >= 0) {
		char *name = file_of_turn("", t, t->asked);

		kept = openat(nl->keep, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
		free(name);
	}
	err = converse(s, ++nl->seq, what, of, a, kept);
	if (kept >= 0)
		close(kept);
	mnl_socket_close(s);
	return err;
}

/* --- asking ----------------------------------------------------------------------------------------------
 */

static int regions_by_number(const void *a, const void *b)
{
	const struct rdmanl_region *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int qps_by_number(const void *a, const void *b)
{
	const struct rdmanl_qp *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static void put_in_order(struct rdmanl_answer *a)
{
	if (a->regions)
		qsort(a->region, a->regions, sizeof(*a->region), regions_by_number);
	if (a->qps)
		qsort(a->qp, a->qps, sizeof(*a->qp), qps_by_number);
}

/* Takes back what was told of a dump that begins again. */
static void forget(struct rdmanl_answer *a, const struct rdmanl_answer *before)
{
	a->devices = before->devices;
	a->regions = before->regions;
	a->qps = before->qps;
	a->counters = before->counters;
	a->left_out = before->left_out;
}

int rdmanl_ask(
	struct rdmanl *nl, enum rdmanl_question what, const struct rdmanl_device *of, struct rdmanl_answer *a)
{
	struct turn *t = turn_of(nl, &questions[what], of);
	struct rdmanl_answer before = *a;
	int err = -EINTR;

	for (int i = 0; i < TIMES && err == -EINTR; i++) {
		forget(a, &before);
		t->asked++;
		err = nl->read ? ask_record(nl, what, t, a) : ask_kernel(nl, what, of, t, a);
	}
	put_in_order(a);
	/* To what it does not know, as to a device that has just gone, the kernel says EINVAL. */
	return err == -EINTR ? -EAGAIN : err == -EINVAL ? -EOPNOTSUPP : err;
}

int rdmanl_find(struct rdmanl *nl, const char *name, struct rdmanl_device *out)
{
	struct rdmanl_answer a = { 0 };
	int err = rdmanl_ask(nl, RDMANL_DEVICES, NULL, &a);

	if (!err)
		err = -ENODEV;
	for (size_t i = 0; err == -ENODEV && i < a.devices; i++)
		if (strcmp(a.device[i].name, name) == 0) {
			*out = a.device[i];
			err = 0;
		}
	rdmanl_answer_free(&a);
	return err;
}

const char *rdmanl_error(int err)
{
	switch (-err) {
	case EPROTONOSUPPORT:
		return "the kernel has no rdma netlink (ib_core is not loaded)";
	case EOPNOTSUPP:
		return "not known to this kernel's rdma netlink";
	case ENODEV:
		return "rdma netlink knows no such device here (in this network namespace)";
	case EBADMSG:
		return "the answer of rdma netlink cannot be read";
	case EAGAIN:
		return "rdma netlink was interrupted again and again, or did not answer in time";
	case EPERM:
	case EACCES:
		return "rdma netlink is forbidden here (seccomp, SELinux)";
	default:
		return strerror(-err);
	}
}

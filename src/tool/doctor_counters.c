/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Page fault counters of the kernel's devices: rdma netlink statistics (what `rdma statistic show mr`
 * prints), else sysfs. */
#include <errno.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tool/doctor.h"

#define COUNTER "page_faults"

struct request {
	struct nlmsghdr head;
	char room[256];
};

static void add_attr(struct request *q, uint16_t type, const void *data, size_t length)
{
	struct nlattr *a = (struct nlattr *)((char *)q + NLMSG_ALIGN(q->head.nlmsg_len));

	a->nla_type = type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + length);
	memcpy((char *)a + NLA_HDRLEN, data, length);
	q->head.nlmsg_len = NLMSG_ALIGN(q->head.nlmsg_len) + (uint32_t)NLA_ALIGN(a->nla_len);
}

static void begin(struct request *q, int command)
{
	memset(q, 0, sizeof(*q));
	q->head.nlmsg_len = NLMSG_HDRLEN;
	q->head.nlmsg_type = (uint16_t)RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command);
	q->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	q->head.nlmsg_seq = 1;
}

/* Attributes one after the other, and into nests: see gets every one that is not a nest. */
struct walk {
	void (*see)(struct walk *w, unsigned type, const char *data, size_t length);
	const char *device; /* the name that is looked for */
	uint32_t index, found_index;
	bool found;
	bool is_faults; /* the value that comes next is the counter's */
	uint64_t faults;
};

static bool is_nest(unsigned type)
{
	switch (type) {
	case RDMA_NLDEV_ATTR_RES_MR:
	case RDMA_NLDEV_ATTR_RES_MR_ENTRY:
	case RDMA_NLDEV_ATTR_STAT_COUNTER:
	case RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY:
	case RDMA_NLDEV_ATTR_STAT_HWCOUNTERS:
	case RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY:
		return true;
	default:
		return false;
	}
}

static void walk(struct walk *w, const char *at, size_t left, unsigned depth)
{
	while (left >= NLA_HDRLEN) {
		struct nlattr a;
		size_t step;
		unsigned type;

		memcpy(&a, at, sizeof(a));
		if (a.nla_len < NLA_HDRLEN || a.nla_len > left)
			return;
		type = a.nla_type & NLA_TYPE_MASK;
		if (!is_nest(type))
			w->see(w, type, at + NLA_HDRLEN, a.nla_len - NLA_HDRLEN);
		else if (depth)
			walk(w, at + NLA_HDRLEN, a.nla_len - NLA_HDRLEN, depth - 1);
		step = NLA_ALIGN(a.nla_len);
		if (step >= left)
			return;
		at += step;
		left -= step;
	}
}

/* Sends the request and walks through every answer. 0 or negative errno. */
static int ask(int fd, const struct request *q, struct walk *w)
{
	static char answer[64 << 10];

	if (send(fd, q, q->head.nlmsg_len, 0) < 0)
		return -errno;
	for (;;) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);
		size_t left = n > 0 ? (size_t)n : 0;

		if (n <= 0)
			return n ? -errno : -EIO;
		for (char *at = answer; left >= NLMSG_HDRLEN;) {
			struct nlmsghdr head;

			memcpy(&head, at, sizeof(head));
			if (head.nlmsg_len < NLMSG_HDRLEN || head.nlmsg_len > left)
				return -EPROTO;
			if (head.nlmsg_type == NLMSG_DONE)
				return 0;
			if (head.nlmsg_type == NLMSG_ERROR) {
				int err = -EIO;

				if (head.nlmsg_len >= NLMSG_HDRLEN + sizeof(err))
					memcpy(&err, at + NLMSG_HDRLEN, sizeof(err));
				return err;
			}
			walk(w, at + NLMSG_HDRLEN, head.nlmsg_len - NLMSG_HDRLEN, 8);
			if (NLMSG_ALIGN(head.nlmsg_len) >= left)
				break;
			left -= NLMSG_ALIGN(head.nlmsg_len);
			at += NLMSG_ALIGN(head.nlmsg_len);
		}
	}
}

static void see_device(struct walk *w, unsigned type, const char *data, size_t length)
{
	if (type == RDMA_NLDEV_ATTR_DEV_INDEX && length == sizeof(w->index))
		memcpy(&w->index, data, sizeof(w->index));
	if (type == RDMA_NLDEV_ATTR_DEV_NAME && length == strlen(w->device) + 1 &&
		memcmp(data, w->device, length) == 0) {
		w->found_index = w->index;
		w->found = true;
	}
}

static void see_counter(struct walk *w, unsigned type, const char *data, size_t length)
{
	uint64_t value;

	if (type == RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME)
		w->is_faults = length == sizeof(COUNTER) && memcmp(data, COUNTER, length) == 0;
	if (type != RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE || !w->is_faults || length != sizeof(value))
		return;
	memcpy(&value, data, sizeof(value));
	w->faults += value;
	w->found = true;
}

static int by_netlink(const char *device, uint64_t *faults)
{
	const uint32_t regions = RDMA_NLDEV_ATTR_RES_MR;
	struct walk w = { .see = see_device, .device = device };
	struct timeval patience = { .tv_sec = 2 };
	struct request q;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA), err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	begin(&q, RDMA_NLDEV_CMD_GET);
	err = ask(fd, &q, &w);
	if (!err && !w.found)
		err = -ENODEV;
	if (!err) {
		w = (struct walk){ .see = see_counter, .found_index = w.found_index };
		begin(&q, RDMA_NLDEV_CMD_STAT_GET);
		add_attr(&q, RDMA_NLDEV_ATTR_DEV_INDEX, &w.found_index, sizeof(w.found_index));
		add_attr(&q, RDMA_NLDEV_ATTR_STAT_RES, &regions, sizeof(regions));
		err = ask(fd, &q, &w);
	}
	close(fd);
	if (!err && !w.found)
		err = -ENODATA;
	*faults = w.faults;
	return err;
}

/* NVIDIA's own drivers have a file per uverbs device; ibdev beside it names the device it belongs to. */
static int by_sysfs(const struct doctor *d, uint64_t *faults, char *from, size_t size)
{
	static const char base[] = "/sys/class/infiniband_verbs";
	char **names = doctor_names(d, base), owner[ENDPOINT_NAME_MAX];
	int err = -ENODATA;

	for (size_t i = 0; err && names && names[i]; i++) {
		if (!doctor_line(d, owner, sizeof(owner), "%s/%s/ibdev", base, names[i]) ||
			strcmp(owner, d->device.name) != 0)
			continue;
		snprintf(from, size, "%s/%s/num_page_faults", base, names[i]);
		if (doctor_number(d, faults, "%s", from))
			err = 0;
	}
	doctor_names_free(names);
	return err;
}

int doctor_counters_faults(const struct doctor *d, uint64_t *faults, char *from, size_t size)
{
	if (by_netlink(d->device.name, faults))
		return by_sysfs(d, faults, from, size);
	snprintf(from, size, "rdma netlink statistics");
	return 0;
}

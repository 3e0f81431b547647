/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
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

/* Attributes of one nest, by type: the last of each. */
typedef const struct nlattr *attrs[RDMA_NLDEV_ATTR_MAX];

/* --- attributes ------------------------------------------------------------------------------------------
 */

/* 0; -EBADMSG: lengths do not fit. */
static int sort_out(attrs at, const void *from, size_t n)
{
	const struct nlattr *a = from;
	int left = (int)n;

	memset(at, 0, sizeof(attrs));
	while (mnl_attr_ok(a, left)) {
		if (mnl_attr_get_type(a) < RDMA_NLDEV_ATTR_MAX)
			at[mnl_attr_get_type(a)] = a;
		/* The last one may lack what would align the next. */
		left -= (int)MNL_ALIGN(a->nla_len);
		a = mnl_attr_next(a);
	}
	return left > 0 ? -EBADMSG : 0;
}

static int sort_out_nest(attrs at, const struct nlattr *nest)
{
	return sort_out(at, mnl_attr_get_payload(nest), mnl_attr_get_payload_len(nest));
}

static bool holds(const struct nlattr *a, size_t size)
{
	return a && mnl_attr_get_payload_len(a) == size;
}

static uint32_t u32_of(const struct nlattr *a, uint32_t otherwise)
{
	return holds(a, sizeof(uint32_t)) ? mnl_attr_get_u32(a) : otherwise;
}

static uint32_t u8_of(const struct nlattr *a, uint32_t otherwise)
{
	return holds(a, sizeof(uint8_t)) ? mnl_attr_get_u8(a) : otherwise;
}

static uint64_t u64_of(const struct nlattr *a, uint64_t otherwise)
{
	return holds(a, sizeof(uint64_t)) ? mnl_attr_get_u64(a) : otherwise;
}

/* Up to its NUL or its end. Whoever wrote it must not give orders to a terminal. */
static void text_of(char *out, size_t size, const struct nlattr *a)
{
	size_t n = a ? mnl_attr_get_payload_len(a) : 0, i;
	const char *text = a ? mnl_attr_get_payload(a) : NULL;

	for (i = 0; i < n && i + 1 < size && text[i]; i++)
		out[i] = text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
	out[i] = 0;
}

/* Calls take for each entry of a table. */
static int each_entry(const struct nlattr *table, unsigned entry,
	int (*take)(struct rdmanl_answer *out, attrs at), struct rdmanl_answer *out)
{
	const struct nlattr *a = mnl_attr_get_payload(table);
	int left = mnl_attr_get_payload_len(table), err = 0;

	while (!err && mnl_attr_ok(a, left)) {
		if (mnl_attr_get_type(a) == entry) {
			attrs at;

			err = sort_out_nest(at, a);
			if (!err)
				err = take(out, at);
		}
		left -= (int)MNL_ALIGN(a->nla_len);
		a = mnl_attr_next(a);
	}
	return err ? err : left > 0 ? -EBADMSG : 0;
}

/* --- rows ------------------------------------------------------------------------------------------------
 */

/* Room for one more row; NULL: there are too many. */
static void *one_more(struct rdmanl_answer *out, void *list, size_t *count, size_t size)
{
	void **rows = list;
	char *row;

	if (*count == RDMANL_ROWS_MAX) {
		out->left_out++;
		return NULL;
	}
	/* Powers of two from 16 on: grown when the count is one. */
	if (*count == 0 || (*count >= 16 && !(*count & (*count - 1))))
		*rows = alloc_grow(*rows, *count ? *count * 2 : 16, size);
	row = (char *)*rows + (*count)++ * size;
	memset(row, 0, size);
	return row;
}

#define ONE_MORE(out, list, count) one_more(out, &(out)->list, &(out)->count, sizeof(*(out)->list))

static void take_owner(struct rdmanl_owner *o, attrs at)
{
	o->pid = u32_of(at[RDMA_NLDEV_ATTR_RES_PID], 0);
	o->pd = u32_of(at[RDMA_NLDEV_ATTR_RES_PDN], RDMANL_NONE);
	text_of(o->module, sizeof(o->module), at[RDMA_NLDEV_ATTR_RES_KERN_NAME]);
}

/* A name and, each of its type, a value: "odp" "explicit". */
struct details {
	char *text;
	size_t size, used;
};

static void add_detail(struct details *d, const char *lead, const struct nlattr *a)
{
	char value[RDMANL_TEXT] = "?";

	switch (mnl_attr_get_type(a)) {
	case RDMA_NLDEV_ATTR_DRIVER_STRING:
		text_of(value, sizeof(value), a);
		break;
	case RDMA_NLDEV_ATTR_DRIVER_U32:
		if (holds(a, sizeof(uint32_t)))
			snprintf(value, sizeof(value), "%u", mnl_attr_get_u32(a));
		break;
	case RDMA_NLDEV_ATTR_DRIVER_S32:
		if (holds(a, sizeof(uint32_t)))
			snprintf(value, sizeof(value), "%d", (int32_t)mnl_attr_get_u32(a));
		break;
	case RDMA_NLDEV_ATTR_DRIVER_U64:
		if (holds(a, sizeof(uint64_t)))
			snprintf(value, sizeof(value), "%llu", (unsigned long long)mnl_attr_get_u64(a));
		break;
	case RDMA_NLDEV_ATTR_DRIVER_S64:
		if (holds(a, sizeof(uint64_t)))
			snprintf(value, sizeof(value), "%lld", (long long)mnl_attr_get_u64(a));
		break;
	default: /* how to print it: we print all alike */
		return;
	}
	if (d->used < d->size)
		d->used += (size_t)snprintf(d->text + d->used, d->size - d->used, "%s%s", lead, value);
}

/* The driver's own: names and values in turn, flat (as the kernel does) or in entries. */
static int take_details(char *text, size_t size, const struct nlattr *table)
{
	struct details d = { text, size, 0 };
	const struct nlattr *a;
	bool name = true;
	int left;

	if (!table)
		return 0;
	a = mnl_attr_get_payload(table);
	left = mnl_attr_get_payload_len(table);
	while (mnl_attr_ok(a, left)) {
		unsigned type = mnl_attr_get_type(a);

		if (type == RDMA_NLDEV_ATTR_DRIVER_STRING || type == RDMA_NLDEV_ATTR_DRIVER_U32 ||
			type == RDMA_NLDEV_ATTR_DRIVER_S32 || type == RDMA_NLDEV_ATTR_DRIVER_U64 ||
			type == RDMA_NLDEV_ATTR_DRIVER_S64) {
			add_detail(&d, !name ? "=" : d.used ? " " : "", a);
			name = !name;
		}
		left -= (int)MNL_ALIGN(a->nla_len);
		a = mnl_attr_next(a);
	}
	return left > 0 ? -EBADMSG : 0;
}

static int take_device(struct rdmanl_answer *out, attrs at)
{
	struct rdmanl_device *d;

	if (!holds(at[RDMA_NLDEV_ATTR_DEV_INDEX], sizeof(uint32_t)) || !at[RDMA_NLDEV_ATTR_DEV_NAME])
		return 0;
	d = ONE_MORE(out, device, devices);
	if (!d)
		return 0;
	d->index = mnl_attr_get_u32(at[RDMA_NLDEV_ATTR_DEV_INDEX]);
	d->ports = u32_of(at[RDMA_NLDEV_ATTR_PORT_INDEX], 0);
	text_of(d->name, sizeof(d->name), at[RDMA_NLDEV_ATTR_DEV_NAME]);
	text_of(d->firmware, sizeof(d->firmware), at[RDMA_NLDEV_ATTR_FW_VERSION]);
	text_of(d->protocol, sizeof(d->protocol), at[RDMA_NLDEV_ATTR_DEV_PROTOCOL]);
	return 0;
}

static int take_region(struct rdmanl_answer *out, attrs at)
{
	struct rdmanl_region *r = ONE_MORE(out, region, regions);

	if (!r)
		return 0;
	r->number = u32_of(at[RDMA_NLDEV_ATTR_RES_MRN], RDMANL_NONE);
	r->keys_told = holds(at[RDMA_NLDEV_ATTR_RES_LKEY], sizeof(uint32_t));
	r->lkey = u32_of(at[RDMA_NLDEV_ATTR_RES_LKEY], 0);
	r->rkey = u32_of(at[RDMA_NLDEV_ATTR_RES_RKEY], 0);
	r->iova_told = holds(at[RDMA_NLDEV_ATTR_RES_IOVA], sizeof(uint64_t));
	r->iova = u64_of(at[RDMA_NLDEV_ATTR_RES_IOVA], 0);
	r->length = u64_of(at[RDMA_NLDEV_ATTR_RES_MRLEN], 0);
	take_owner(&r->owner, at);
	return take_details(r->details, sizeof(r->details), at[RDMA_NLDEV_ATTR_DRIVER]);
}

static int take_qp(struct rdmanl_answer *out, attrs at)
{
	struct rdmanl_qp *q;

	if (!holds(at[RDMA_NLDEV_ATTR_RES_LQPN], sizeof(uint32_t)))
		return 0;
	q = ONE_MORE(out, qp, qps);
	if (!q)
		return 0;
	q->number = mnl_attr_get_u32(at[RDMA_NLDEV_ATTR_RES_LQPN]);
	q->port = u32_of(at[RDMA_NLDEV_ATTR_PORT_INDEX], RDMANL_NONE);
	q->peer = u32_of(at[RDMA_NLDEV_ATTR_RES_RQPN], RDMANL_NONE);
	q->type = u8_of(at[RDMA_NLDEV_ATTR_RES_TYPE], RDMANL_NONE);
	q->state = u8_of(at[RDMA_NLDEV_ATTR_RES_STATE], RDMANL_NONE);
	take_owner(&q->owner, at);
	return 0;
}

static int take_counter(struct rdmanl_answer *out, attrs at)
{
	struct rdmanl_counter *c;

	if (!at[RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME] ||
		!holds(at[RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE], sizeof(uint64_t)))
		return 0;
	c = ONE_MORE(out, counter, counters);
	if (!c)
		return 0;
	text_of(c->name, sizeof(c->name), at[RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME]);
	c->value = mnl_attr_get_u64(at[RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE]);
	return 0;
}

static int take_counters(struct rdmanl_answer *out, const struct nlattr *table, uint32_t of)
{
	size_t first = out->counters;
	int err = each_entry(table, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, take_counter, out);

	for (size_t i = first; i < out->counters; i++)
		out->counter[i].of = of;
	return err;
}

static int take_region_counters(struct rdmanl_answer *out, attrs at)
{
	uint32_t number = u32_of(at[RDMA_NLDEV_ATTR_RES_MRN], RDMANL_NONE);

	/* A region that is not on demand has none. */
	return at[RDMA_NLDEV_ATTR_STAT_HWCOUNTERS]
		       ? take_counters(out, at[RDMA_NLDEV_ATTR_STAT_HWCOUNTERS], number)
		       : 0;
}

/* Which of several queue pairs it was that a shared counter counted cannot be told. */
static int take_qp_counters(struct rdmanl_answer *out, attrs at)
{
	struct rdmanl_answer of = { 0 };
	int err = 0;

	if (!at[RDMA_NLDEV_ATTR_RES_QP] || !at[RDMA_NLDEV_ATTR_STAT_HWCOUNTERS])
		return 0;
	err = each_entry(at[RDMA_NLDEV_ATTR_RES_QP], RDMA_NLDEV_ATTR_RES_QP_ENTRY, take_qp, &of);
	if (!err && of.qps == 1)
		err = take_counters(out, at[RDMA_NLDEV_ATTR_STAT_HWCOUNTERS], of.qp[0].number);
	rdmanl_answer_free(&of);
	return err;
}

/* --- answers ---------------------------------------------------------------------------------------------
 */

static const struct question {
	const char *file;  /* of a record: behind the device's name */
	uint16_t command;  /* enum rdma_nldev_command */
	uint16_t resource; /* whose statistics; 0: it is not about statistics */
	uint16_t table;	   /* 0: the message itself is the row */
	uint16_t entry;
	int (*take)(struct rdmanl_answer *out, attrs at);
} questions[RDMANL_QUESTIONS] = {
	[RDMANL_DEVICES] = { "devices", RDMA_NLDEV_CMD_GET, 0, 0, 0, take_device },
	[RDMANL_REGIONS] = { "regions", RDMA_NLDEV_CMD_RES_MR_GET, 0, RDMA_NLDEV_ATTR_RES_MR,
		RDMA_NLDEV_ATTR_RES_MR_ENTRY, take_region },
	[RDMANL_QPS] = { "queue-pairs", RDMA_NLDEV_CMD_RES_QP_GET, 0, RDMA_NLDEV_ATTR_RES_QP,
		RDMA_NLDEV_ATTR_RES_QP_ENTRY, take_qp },
	[RDMANL_REGION_COUNTERS] = { "region-counters", RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_RES_MR,
		RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY, take_region_counters },
	[RDMANL_QP_COUNTERS] = { "queue-pair-counters", RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_RES_QP,
		RDMA_NLDEV_ATTR_STAT_COUNTER, RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY, take_qp_counters },
};

/* The error in an answer: a negative errno, at the beginning of the payload. */
static int error_in(const struct nlmsghdr *h, int otherwise)
{
	int err;

	if (mnl_nlmsg_get_payload_len(h) < sizeof(err))
		return otherwise;
	memcpy(&err, mnl_nlmsg_get_payload(h), sizeof(err));
	return err > 0 || err < -4095 ? -EBADMSG : err;
}

static int take_message(struct rdmanl_answer *out, const struct question *q, const struct nlmsghdr *h)
{
	attrs at;
	int err;

	switch (h->nlmsg_type) {
	case NLMSG_ERROR: /* 0: an acknowledgement */
		return error_in(h, -EBADMSG);
	case NLMSG_DONE: /* tells how the dump went, from Linux 4.20 on */
		return error_in(h, 0);
	case NLMSG_OVERRUN:
		return -EOVERFLOW;
	}
	if (h->nlmsg_type != RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, q->command))
		return 1;
	err = sort_out(at, mnl_nlmsg_get_payload(h), mnl_nlmsg_get_payload_len(h));
	if (!err && !q->table)
		err = q->take(out, at);
	else if (!err && at[q->table])
		err = each_entry(at[q->table], q->entry, q->take, out);
	return err ? err : 1;
}

int rdmanl_parse(
	struct rdmanl_answer *a, enum rdmanl_question what, uint32_t seq, const void *bytes, size_t n)
{
	const struct nlmsghdr *h = bytes;
	int left = (int)n;

	/* (libmnl takes lengths for signed: one above 2 GiB would pass.) */
	while (mnl_nlmsg_ok(h, left) && h->nlmsg_len <= (uint32_t)left) {
		int got = 1;

		if (!seq || h->nlmsg_seq == seq)
			got = h->nlmsg_flags & NLM_F_DUMP_INTR ? -EINTR
							       : take_message(a, &questions[what], h);
		if (got <= 0)
			return got;
		h = mnl_nlmsg_next(h, &left);
	}
	return left > 0 ? -EBADMSG : 1;
}

void rdmanl_answer_free(struct rdmanl_answer *a)
{
	free(a->device);
	free(a->region);
	free(a->qp);
	free(a->counter);
	memset(a, 0, sizeof(*a));
}

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

	for (const char *at = text; *at; at++) {
		if (*at == '#')
			at += strcspn(at, "\n");
		if (!*at)
			break;
		if (isspace((unsigned char)*at))
			continue;
		if (digit(at[0]) < 0 || digit(at[1]) < 0)
			return -EBADMSG;
		text[n++] = (char)(digit(at[0]) << 4 | digit(at[1]));
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

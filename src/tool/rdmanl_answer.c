/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Reading answers of rdma netlink; asking is rdmanl.c. */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool/alloc.h"
#include "tool/rdmanl.h"

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

/* Where its rows are. */
static const struct place {
	uint16_t command; /* enum rdma_nldev_command */
	uint16_t table;	  /* 0: the message itself is the row */
	uint16_t entry;
	int (*take)(struct rdmanl_answer *out, attrs at);
} places[RDMANL_QUESTIONS] = {
	[RDMANL_DEVICES] = { RDMA_NLDEV_CMD_GET, 0, 0, take_device },
	[RDMANL_REGIONS] = { RDMA_NLDEV_CMD_RES_MR_GET, RDMA_NLDEV_ATTR_RES_MR, RDMA_NLDEV_ATTR_RES_MR_ENTRY,
		take_region },
	[RDMANL_QPS] = { RDMA_NLDEV_CMD_RES_QP_GET, RDMA_NLDEV_ATTR_RES_QP, RDMA_NLDEV_ATTR_RES_QP_ENTRY,
		take_qp },
	[RDMANL_REGION_COUNTERS] = { RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_RES_MR,
		RDMA_NLDEV_ATTR_RES_MR_ENTRY, take_region_counters },
	[RDMANL_QP_COUNTERS] = { RDMA_NLDEV_CMD_STAT_GET, RDMA_NLDEV_ATTR_STAT_COUNTER,
		RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY, take_qp_counters },
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

static int take_message(struct rdmanl_answer *out, const struct place *q, const struct nlmsghdr *h)
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
			got = h->nlmsg_flags & NLM_F_DUMP_INTR ? -EINTR : take_message(a, &places[what], h);
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

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What is other on the page of a device of the kernel: no time of faults and no slow faults, which the kernel
 * does not tell; whose regions and queue pairs are; counters of ports. Pure functions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tool/top_page.h"

const char *const top_kernel_help[] = {
	"4        counters of the ports, instead",
	"heat     hot: page faults or prefetch since the last look;",
	"         warm: in 10 s before; cold: longer ago; never;",
	"         -: the driver does not count page faults of it",
	"REGION   implicit, odp: as the driver tells; -: not told",
	"         (mlx5 tells of those that are on demand)",
	"lkey     told to root only (CAP_NET_ADMIN)",
	"retry/s  packets sent again, and receiver-not-ready",
	"         answers; -: no counter is bound to the queue",
	"         pair ('rdma statistic qp bind')",
	NULL,
};

/* --- the head --------------------------------------------------------------------------------------------
 */

static void put_title(struct top_paper *p, const struct top_view *v)
{
	const struct top_look *look = p->look;
	const struct top_frame *f = v->frame;
	char every[UNITS_MAX], process[TOP_WORDS] = "", firmware[TOP_WORDS] = "";

	if (f->pid)
		snprintf(process, sizeof(process), "%d %s on ", (int)f->pid, f->command);
	if (*f->firmware)
		snprintf(firmware, sizeof(firmware), ", firmware %s", f->firmware);
	top_put(p, TOP_TITLE, "unpin top: %s%s of the kernel%s, every %s s%s", process, f->device, firmware,
		units_digits(every, look->every), look->paused ? " [PAUSED]" : "");
	if (look->notice)
		top_put(p, TOP_BAD, "%s", look->notice);
	if (*f->trouble)
		top_put(p, TOP_WARNING, "not told: %s", f->trouble);
}

static void put_rates(struct top_paper *p, const struct top_view *v)
{
	double retransmits = v->dev[TOP_DEV_retransmits], rnr = v->dev[TOP_DEV_rnr_nak_rcvd];
	char a[5][UNITS_MAX];

	top_put(p, TOP_PLAIN, "faults   %s/s; invalidated %s/s, prefetched %s/s pages",
		top_number(a[0], v->odp[TOP_ODP_page_faults]),
		top_number(a[1], v->odp[TOP_ODP_page_invalidations_handled]),
		top_number(a[2], v->odp[TOP_ODP_page_prefetch]));
	top_put(p, TOP_PLAIN, "traffic  in %s/s, out %s/s, packets %s/s in, %s/s out; retries %s/s",
		top_flow(a[0], v->dev[TOP_DEV_rx_bytes]), top_flow(a[1], v->dev[TOP_DEV_tx_bytes]),
		top_number(a[2], v->dev[TOP_DEV_rx_packets]), top_number(a[3], v->dev[TOP_DEV_tx_packets]),
		top_number(a[4], retransmits < 0 ? rnr
				 : rnr < 0	 ? retransmits
						 : retransmits + rnr));
}

static void put_memory(struct top_paper *p, const struct top_view *v)
{
	const struct top_system *s = &v->frame->system;
	bool limited = s->group_limit != TOP_UNKNOWN && s->group_limit && s->group_used != TOP_UNKNOWN;
	double share = limited ? (double)s->group_used * 100 / (double)s->group_limit : 0;
	char a[7][UNITS_MAX];

	if (s->of_machine)
		top_put(p, TOP_PLAIN, "machine  major faults %s/s, minor %s/s", top_number(a[0], v->majflt),
			top_number(a[1], v->minflt));
	else
		top_put(p, TOP_PLAIN,
			"process  major faults %s/s, minor %s/s; resident %s, in swap %s, pinned %s",
			top_number(a[0], v->majflt), top_number(a[1], v->minflt), top_bytes(a[2], s->rss),
			top_bytes(a[3], s->swap), top_bytes(a[4], s->pinned));
	a[5][0] = 0;
	if (limited)
		snprintf(a[5], UNITS_MAX, " (%.0f%%)", share);
	top_put(p,
		share > 95 || v->psi_full > 20	? TOP_BAD
		: share > 85 || v->psi_some > 5 ? TOP_WARNING
						: TOP_PLAIN,
		"memory   stalled %s%% some, %s%% all; swap in %s/s, out %s/s; %s %s of %s%s",
		top_number(a[0], v->psi_some), top_number(a[1], v->psi_full), top_number(a[2], v->swap_in),
		top_number(a[3], v->swap_out), s->of_machine ? "used" : "group",
		top_bytes(a[4], s->group_used),
		s->group_limit != TOP_UNKNOWN ? units_bytes(a[6], s->group_limit)
		: s->of_machine		      ? "-"
					      : "no limit",
		a[5]);
}

void top_put_kernel_head(struct top_paper *p, const struct top_view *v)
{
	put_title(p, v);
	/* What would leave no room for the lists is left out, the least telling first. */
	if (p->look->height >= 8)
		put_rates(p, v);
	if (p->look->height >= 12)
		put_memory(p, v);
}

/* --- the lists -------------------------------------------------------------------------------------------
 */

/* A number that may be not told. */
static const char *told(char buf[UNITS_MAX], uint32_t v, uint32_t not_told)
{
	snprintf(buf, UNITS_MAX, "%" PRIu32, v);
	return v == not_told ? "-" : buf;
}

static void put_region(struct top_paper *p, const struct top_region_view *v)
{
	const struct top_region *r = v->region;
	char a[6][UNITS_MAX], key[UNITS_MAX] = "-", addr[UNITS_MAX] = "-", number[UNITS_MAX], pid[UNITS_MAX],
			      pd[UNITS_MAX];
	enum top_colour c = v->heat == TOP_HOT					 ? TOP_GOOD
			    : v->heat == TOP_HEAT_UNKNOWN || v->heat == TOP_WARM ? TOP_PLAIN
										 : TOP_DIM;

	if (r->keys_told)
		snprintf(key, sizeof(key), "0x%" PRIx32, r->lkey);
	if (r->addr != TOP_UNKNOWN)
		snprintf(addr, sizeof(addr), "%" PRIx64, r->addr);
	top_put(p, c, "%-8s %8s %9s %-15.15s %7s %-5s %7s %7s %6s %-10s %-14s %5s %s",
		r->kind == UNPIN_REGION_NONE ? "-" : top_kind_name(r->kind), told(number, r->row, TOP_NONE),
		r->kind == UNPIN_REGION_IMPLICIT && r->length > INT64_MAX ? "all"
									  : units_bytes(a[0], r->length),
		*r->owner.command ? r->owner.command : "-", told(pid, r->owner.pid, 0),
		top_heat_names[v->heat], top_number(a[1], v->faults), top_number(a[2], v->invalidations),
		top_number(a[3], v->prefetched), key, addr, told(pd, r->owner.pd, TOP_NONE), r->details);
}

static void put_regions(struct top_paper *p, const struct top_view *v, size_t from, size_t n)
{
	top_put(p, TOP_HEADING, "%-8s %8s %9s %-15s %7s %-5s %7s %7s %6s %-10s %-14s %5s %s", "REGION",
		"number", "length", "command", "pid", "heat", "fault/s", "inval/s", "pref/s", "lkey",
		"address", "pd", "driver");
	for (size_t i = from; i < v->regions && i < from + n; i++)
		put_region(p, &v->region[i]);
	if (!v->regions)
		top_put_none(p, "none");
}

static void put_qp(struct top_paper *p, const struct top_qp_view *v)
{
	const struct top_qp *q = v->qp;
	char a[UNITS_MAX], peer[UNITS_MAX] = "-", port[UNITS_MAX], pid[UNITS_MAX], pd[UNITS_MAX];

	if (q->peer != TOP_NONE)
		snprintf(peer, sizeof(peer), "0x%06" PRIx32, q->peer);
	top_put(p, v->retries > 0 ? TOP_WARNING : TOP_PLAIN,
		"0x%06" PRIx32 " %-6s %-5s %-8s %-15.15s %7s %8s %4s %5s", q->number,
		top_qp_type_name(q->type), q->state == TOP_NONE ? "-" : top_qp_state_name(q->state), peer,
		*q->owner.command ? q->owner.command : "-", told(pid, q->owner.pid, 0),
		top_number(a, v->retries), told(port, q->port, TOP_NONE), told(pd, q->owner.pd, TOP_NONE));
}

static void put_qps(struct top_paper *p, const struct top_view *v, size_t from, size_t n)
{
	top_put(p, TOP_HEADING, "%-8s %-6s %-5s %-8s %-15s %7s %8s %4s %5s", "QP", "type", "state", "peer",
		"command", "pid", "retry/s", "port", "pd");
	for (size_t i = from; i < v->qps && i < from + n; i++)
		put_qp(p, &v->qp[i]);
	if (!v->qps)
		top_put_none(p, "none");
}

static void put_counters(struct top_paper *p, const struct top_view *v, size_t from, size_t n)
{
	char a[UNITS_MAX];

	top_put(p, TOP_HEADING, "%-44s %20s %12s", "COUNTER", "total", "per second");
	for (size_t i = from; i < v->counters && i < from + n; i++)
		top_put(p, v->counter[i].rate > 0 ? TOP_PLAIN : TOP_DIM, "%-44s %20" PRIu64 " %12s",
			v->counter[i].counter->name, v->counter[i].counter->value,
			top_number(a, v->counter[i].rate));
	if (!v->counters)
		top_put_none(p, "none");
}

void top_put_kernel_lists(struct top_paper *p, const struct top_view *v)
{
	const struct top_list lists[TOP_LISTS] = { { put_regions, v->regions }, { put_qps, v->qps },
		{ put_counters, v->counters } };

	top_put_lists(p, v, lists);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A view as lines of text. Pure functions. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tool/top_page.h"

static unsigned width_of(const struct top_paper *p)
{
	return p->look->width < TOP_WIDTH - 1 ? p->look->width : TOP_WIDTH - 1;
}

size_t top_room(const struct top_paper *p)
{
	return p->look->height - p->lines;
}

void top_put(struct top_paper *p, enum top_colour colour, const char *fmt, ...)
{
	struct top_line *l;
	va_list ap;

	if (!top_room(p))
		return;
	l = &p->line[p->lines++];
	l->colour = colour;
	va_start(ap, fmt);
	vsnprintf(l->text, width_of(p) + 1, fmt, ap);
	va_end(ap);
}

const char *top_number(char buf[UNITS_MAX], double v)
{
	return v < 0 ? strcpy(buf, "-") : v < 0.005 ? strcpy(buf, "0") : units_digits(buf, v);
}

const char *top_bytes(char buf[UNITS_MAX], uint64_t v)
{
	return v == TOP_UNKNOWN ? strcpy(buf, "-") : units_bytes(buf, v);
}

const char *top_flow(char buf[UNITS_MAX], double v)
{
	return v < 0 ? strcpy(buf, "-") : units_bytes(buf, units_whole(v));
}

/* --- the head --------------------------------------------------------------------------------------------
 */

static void put_title(struct top_paper *p, const struct top_view *v)
{
	const struct top_look *look = p->look;
	const struct top_frame *f = v->frame;
	char b[UNITS_MAX], every[UNITS_MAX];

	top_put(p, TOP_TITLE, "unpin top: %d %s on %s, open %s, every %s s%s", (int)f->pid, f->command,
		f->device, units_time(b, f->at_ns > f->start_ns ? f->at_ns - f->start_ns : 0),
		units_digits(every, look->every), look->paused ? " [PAUSED]" : "");
	if (look->notice)
		top_put(p, TOP_BAD, "%s", look->notice);
}

static void put_rates(struct top_paper *p, const struct top_view *v)
{
	char a[6][UNITS_MAX];

	top_put(p, TOP_PLAIN,
		"faults   %s/s, %s/s to drivers; invalidated %s/s, prefetched %s/s, read ahead %s/s pages",
		top_number(a[0], v->odp[TOP_ODP_page_faults]), top_number(a[1], v->odp[TOP_ODP_faults_major]),
		top_number(a[2], v->odp[TOP_ODP_page_invalidations_handled]),
		top_number(a[3], v->odp[TOP_ODP_page_prefetch]),
		top_number(a[4], v->odp[TOP_ODP_page_readahead]));
	top_put(p, TOP_PLAIN, "traffic  in %s/s, out %s/s, packets %s/s in, %s/s out; retries %s/s",
		top_flow(a[0], v->dev[TOP_DEV_rx_bytes]), top_flow(a[1], v->dev[TOP_DEV_tx_bytes]),
		top_number(a[2], v->dev[TOP_DEV_rx_packets]), top_number(a[3], v->dev[TOP_DEV_tx_packets]),
		top_number(a[4], v->dev[TOP_DEV_retransmits] + v->dev[TOP_DEV_rnr_nak_rcvd]));
}

static void put_time(struct top_paper *p, const struct top_view *v)
{
	const struct top_time *t = &v->time;
	double all = (double)(t->waited + t->reads + t->work + t->resume), part = all > 0 ? 100 / all : 0;
	char a[2][UNITS_MAX];
	enum top_colour c = t->reads > t->work + t->waited + t->resume ? TOP_WARNING : TOP_PLAIN;

	if (all <= 0) {
		top_put(p, TOP_PLAIN, "its time no faults");
		return;
	}
	top_put(p, c,
		"its time %s/s, mostly %s: in line %.0f%%, disk or swap %.0f%% (%s/s), driver %.0f%%, waking "
		"%.0f%%",
		units_time(a[0], units_whole(all / v->seconds)), top_verdict(t), (double)t->waited * part,
		(double)t->reads * part, top_number(a[1], v->read_events), (double)t->work * part,
		(double)t->resume * part);
}

static void put_memory(struct top_paper *p, const struct top_view *v)
{
	const struct top_system *s = &v->frame->system;
	char a[7][UNITS_MAX];
	bool limited = s->group_limit != TOP_UNKNOWN && s->group_limit;
	double share = limited ? (double)s->group_used * 100 / (double)s->group_limit : 0;

	top_put(p, TOP_PLAIN, "process  major faults %s/s, minor %s/s; resident %s, in swap %s, pinned %s",
		top_number(a[0], v->majflt), top_number(a[1], v->minflt), top_bytes(a[2], s->rss),
		top_bytes(a[3], s->swap), units_bytes(a[4], v->frame->pinned_bytes));
	if (limited)
		snprintf(a[5], UNITS_MAX, " (%.0f%%)", share);
	else
		a[5][0] = 0;
	top_put(p,
		share > 95 || v->psi_full > 20	? TOP_BAD
		: share > 85 || v->psi_some > 5 ? TOP_WARNING
						: TOP_PLAIN,
		"memory   stalled %s%% some, %s%% all; swap in %s/s, out %s/s; group %s of %s%s",
		top_number(a[0], v->psi_some), top_number(a[1], v->psi_full), top_number(a[2], v->swap_in),
		top_number(a[3], v->swap_out), top_bytes(a[4], s->group_used),
		limited ? units_bytes(a[6], s->group_limit) : "no limit", a[5]);
	if (v->frame->storm)
		top_put(p, TOP_BAD,
			"storm    of %s, number %" PRIu64 ": read-ahead is small, prefetch held back",
			v->frame->storm == UNPIN_STORM_MAJORS ? "major faults" : "memory stalls",
			v->frame->storms);
}

void top_put_none(struct top_paper *p, const char *none)
{
	top_put(p, TOP_DIM, "%s%s", none, *p->look->filter ? " that the filter leaves" : "");
}

/* --- the lists -------------------------------------------------------------------------------------------
 */

static void put_region_heading(struct top_paper *p)
{
	top_put(p, TOP_HEADING, "%-8s %-14s %8s %-5s %5s %-16s %7s %6s %7s %6s %6s %9s %9s", "REGION",
		"address", "length", "heat", "res%", "in memory", "fault/s", "major", "inval/s", "pref/s",
		"ahead", "in/s", "out/s");
}

static void put_region(struct top_paper *p, const struct top_region_view *v)
{
	char a[9][UNITS_MAX], strip[TOP_STRIP + 1];
	double resident = top_resident(&v->region->residency);
	enum top_colour c = v->majors > 0	  ? TOP_WARNING
			    : v->heat == TOP_HOT  ? TOP_GOOD
			    : v->heat <= TOP_COLD ? TOP_DIM
						  : TOP_PLAIN;

	if (resident < 0)
		strcpy(a[0], "-");
	else
		snprintf(a[0], UNITS_MAX, "%.0f", resident);
	top_put(p, c, "%-8s %-14" PRIx64 " %8s %-5s %5s %-16s %7s %6s %7s %6s %6s %9s %9s",
		top_kind_name(v->region->kind), v->region->addr,
		v->region->kind == UNPIN_REGION_IMPLICIT ? "all" : units_bytes(a[1], v->region->length),
		top_heat_names[v->heat], a[0], top_strip(strip, &v->region->residency),
		top_number(a[2], v->faults), top_number(a[3], v->majors), top_number(a[4], v->invalidations),
		top_number(a[5], v->prefetched), top_number(a[6], v->ahead), top_flow(a[7], v->bytes_in),
		top_flow(a[8], v->bytes_out));
}

static void put_regions(struct top_paper *p, const struct top_view *v, size_t from, size_t n)
{
	put_region_heading(p);
	for (size_t i = from; i < v->regions && i < from + n; i++)
		put_region(p, &v->region[i]);
	if (!v->regions)
		top_put_none(p, "none");
}

static void put_qp(struct top_paper *p, const struct top_qp_view *v)
{
	static const char *const lanes[] = { "", "sending", "receiving an answer",
		"sending, receiving an answer", "serving the peer", "sending, serving", "receiving, serving",
		"all lanes" };
	char a[3][UNITS_MAX];

	top_put(p, v->waits_ns ? TOP_WARNING : TOP_PLAIN,
		"0x%06" PRIx32 " %-5s 0x%06" PRIx32 " %7u %7u %9s %7s %8s %s", v->qp->number,
		top_qp_state_name(v->qp->state), v->qp->peer, v->qp->outstanding, v->qp->receives,
		v->waits_ns ? units_time(a[0], v->waits_ns) : "-", top_number(a[1], v->parkings),
		top_number(a[2], v->retries), lanes[v->qp->parked & 7]);
}

static void put_qps(struct top_paper *p, const struct top_view *v, size_t from, size_t n)
{
	top_put(p, TOP_HEADING, "%-8s %-5s %-8s %7s %7s %9s %7s %8s %s", "QP", "state", "peer", "outst.",
		"recvs", "waiting", "waits/s", "retry/s", "for a fault while");
	for (size_t i = from; i < v->qps && i < from + n; i++)
		put_qp(p, &v->qp[i]);
	if (!v->qps)
		top_put_none(p, "none");
}

#define WIDE 100u /* narrower pages tell why rather than in which region */

static void put_slow(struct top_paper *p, const struct top_slow_view *v)
{
	enum top_colour c =
		v->slow->reads && v->slow->resolved_ns > v->slow->waited_ns ? TOP_WARNING : TOP_PLAIN;
	char a[4][UNITS_MAX], region[32], why[TOP_WORDS];

	units_time(a[0], v->took_ns);
	units_time(a[1], v->slow->waited_ns);
	units_time(a[2], v->slow->resolved_ns);
	units_time(a[3], v->ago_ns);
	top_why(why, v->slow);
	if (width_of(p) < WIDE) {
		top_put(p, c, "%9s %9s %8s %-14" PRIx64 " %s", a[0], a[1], a[3], v->slow->addr, why);
		return;
	}
	if (v->region)
		snprintf(region, sizeof(region), "%.4s %" PRIx64, top_kind_name(v->region->kind),
			v->region->addr);
	else
		strcpy(region, "gone");
	top_put(p, c, "%9s %9s %9s %8s %-14" PRIx64 " %-19s %s", a[0], a[1], a[2], a[3], v->slow->addr,
		region, why);
}

static void put_slowest(struct top_paper *p, const struct top_view *v, size_t from, size_t n)
{
	if (width_of(p) < WIDE)
		top_put(p, TOP_HEADING, "%9s %9s %8s %-14s %s", "SLOWEST", "in line", "ago", "address",
			"why");
	else
		top_put(p, TOP_HEADING, "%9s %9s %9s %8s %-14s %-19s %s", "SLOWEST", "in line", "resolving",
			"ago", "address", "region", "why");
	for (size_t i = from; i < v->slows && i < from + n; i++)
		put_slow(p, &v->slow[i]);
	if (!v->slows)
		top_put_none(p, "none in the last 30 s");
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many more rows a list with so many can be given of those to spare. */
static size_t take(size_t *spare, size_t wanted, size_t given)
{
	size_t more = wanted > given ? least(wanted - given, *spare) : 0;

	*spare -= more;
	return more;
}

/* So many rows of each list there are; so many are shown. */
static void share_room(const struct top_paper *p, size_t n[TOP_LISTS])
{
	size_t left = top_room(p), rows = left > 6 ? left - 3 : 3;
	size_t wanted[3] = { n[0], n[1], n[2] }, spare;

	/* Shares of half, a quarter and a quarter, and what is left of them in this order. */
	for (int i = 0; i < 3; i++) {
		size_t part = rows / (i ? 4 : 2);

		n[i] = least(wanted[i] ? wanted[i] : 1, part ? part : 1);
	}
	spare = rows > n[0] + n[1] + n[2] ? rows - n[0] - n[1] - n[2] : 0;
	n[0] += take(&spare, wanted[0], n[0]);
	n[2] += take(&spare, wanted[2], n[2]);
	n[1] += take(&spare, wanted[1], n[1]);
}

void top_put_lists(struct top_paper *p, const struct top_view *v, const struct top_list lists[TOP_LISTS])
{
	size_t share[TOP_LISTS];

	if (p->look->panel != TOP_ALL) {
		lists[p->look->panel - TOP_REGIONS].put(p, v, p->look->scroll, top_room(p));
		return;
	}
	for (int i = 0; i < TOP_LISTS; i++)
		share[i] = lists[i].rows;
	share_room(p, share);
	for (int i = 0; i < TOP_LISTS; i++)
		lists[i].put(p, v, i ? 0 : p->look->scroll, share[i]);
}

size_t top_rows(const struct top_view *v, enum top_panel panel)
{
	return panel == TOP_QPS	      ? v->qps
	       : panel != TOP_SLOWEST ? v->regions
	       : v->frame->kernel     ? v->counters
				      : v->slows;
}

static void put_lists(struct top_paper *p, const struct top_view *v)
{
	const struct top_list lists[TOP_LISTS] = { { put_regions, v->regions }, { put_qps, v->qps },
		{ put_slowest, v->slows } };

	top_put_lists(p, v, lists);
}

/* --- help and foot ---------------------------------------------------------------------------------------
 */

static const char *const keys[] = {
	"q        quit",
	"space p  pause and go on",
	"s S      sort by the next or previous column",
	"r        turn the order round",
	"/        filter: type a text, Enter; empty: all",
	"Tab 1-4  everything, regions, queue pairs, slowest",
	"arrows   scroll; PgUp PgDn Home",
	"+ -      look less or more often",
	"h ?      this",
	"",
	NULL,
};

static const char *const help[] = {
	"heat     hot: used since the last look; warm: in 10 s",
	"         before; cold: longer ago; never",
	"res%     share of pages in the process's page table",
	"in memory  ' ' none . : + more # all; s: in swap",
	"its time of page faults: in line, until somebody",
	"         worked on it; disk or swap, while the kernel",
	"         read; driver, its and the kernel's own work;",
	"         waking, until what waited went on",
	"SLOWEST  page faults of the last 30 s",
	NULL,
};

static void put_help(struct top_paper *p, bool kernel)
{
	top_put(p, TOP_TITLE, "unpin top: keys");
	for (const char *const *line = keys; *line; line++)
		top_put(p, TOP_PLAIN, "%s", *line);
	for (const char *const *line = kernel ? top_kernel_help : help; *line; line++)
		top_put(p, TOP_PLAIN, "%s", *line);
}

static void put_foot(struct top_paper *p)
{
	const struct top_look *look = p->look;

	if (look->editing)
		top_put(p, TOP_TITLE, "filter: %s_", look->filter);
	else
		top_put(p, TOP_TITLE, "q quit  h help  space pause  s sort: %s%s  / filter%s%s",
			top_key_names[look->key], look->backwards ? " (turned)" : "",
			*look->filter ? ": " : "", look->filter);
}

size_t top_page(const struct top_view *v, const struct top_look *look, struct top_line *lines)
{
	struct top_look inner = *look;
	struct top_paper p = { &inner, lines, 0 };
	bool foot = look->height > 3;

	inner.height -= foot;
	if (look->help) {
		put_help(&p, v && v->frame->kernel);
	} else if (!v) {
		top_put(&p, TOP_TITLE, "unpin top: the first figures come after %.3g s", look->every);
		if (look->notice)
			top_put(&p, TOP_BAD, "%s", look->notice);
	} else if (v->frame->kernel) {
		top_put_kernel_head(&p, v);
		top_put_kernel_lists(&p, v);
	} else {
		put_title(&p, v);
		/* What would leave no room for the lists is left out, the least telling first. */
		if (look->height >= 14)
			put_rates(&p, v);
		if (look->height >= 6)
			put_time(&p, v);
		if (look->height >= 12)
			put_memory(&p, v);
		put_lists(&p, v);
	}
	inner.height += foot;
	while (foot && p.lines + 1 < inner.height)
		top_put(&p, TOP_PLAIN, "%s", "");
	if (foot)
		put_foot(&p);
	return p.lines;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Verdicts as sentences, and the lines that carry them out. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <infiniband/verbs.h>

#include "tool/advise.h"
#include "tool/units.h"

const char *const advise_should_keys[ADVISE_SHOULDS] = {
	[ADVISE_UNSURE] = "unsure",
	[ADVISE_PINNED] = "pinned",
	[ADVISE_ON_DEMAND] = "on_demand",
	[ADVISE_PREFETCH] = "prefetch",
	[ADVISE_LOCK_HOT] = "lock_hot",
	[ADVISE_ONCE] = "once",
	[ADVISE_IMPLICIT] = "implicit",
};

const char *const advise_should_names[ADVISE_SHOULDS] = {
	[ADVISE_UNSURE] = "not known",
	[ADVISE_PINNED] = "pinned",
	[ADVISE_ON_DEMAND] = "on demand",
	[ADVISE_PREFETCH] = "on demand, with prefetch",
	[ADVISE_LOCK_HOT] = "on demand, with mlock of its hot part",
	[ADVISE_ONCE] = "registered once and kept",
	[ADVISE_IMPLICIT] = "one implicit region for all of them",
};

const char *const advise_why_keys[ADVISE_WHYS] = {
	[ADVISE_TOO_LITTLE] = "too_little_traffic",
	[ADVISE_TOO_YOUNG] = "too_young",
	[ADVISE_UNUSED] = "unused",
	[ADVISE_AGAIN_AND_AGAIN] = "registered_again_and_again",
	[ADVISE_GIVEN_BACK] = "given_back",
	[ADVISE_RECLAIMED] = "reclaimed",
	[ADVISE_HOT_PART] = "hot_part",
	[ADVISE_HOT] = "hot",
	[ADVISE_STREAM] = "stream",
	[ADVISE_SPARSE] = "sparse",
	[ADVISE_FEW_USES] = "few_uses",
	[ADVISE_EITHER] = "either",
};

const char *const advise_pattern_keys[ADVISE_PATTERNS] = {
	[ADVISE_NO_PATTERN] = "unknown",
	[ADVISE_IN_SEQUENCE] = "sequential",
	[ADVISE_REPEATED] = "repeated",
	[ADVISE_AT_RANDOM] = "random",
};

const char *const advise_library_names[ADVISE_LIBRARIES] = {
	[ADVISE_VERBS] = "verbs",
	[ADVISE_UCX] = "UCX",
	[ADVISE_LIBFABRIC] = "libfabric",
};

static void add(char out[ADVISE_WORDS], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(char out[ADVISE_WORDS], const char *fmt, ...)
{
	size_t used = strlen(out);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(out + used, ADVISE_WORDS - used, fmt, ap);
	va_end(ap);
}

static bool is_pinned(const struct advise_region *r)
{
	return r->kind == UNPIN_REGION_PINNED;
}

/* --- what it is
 * ---------------------------------------------------------------------------------------------- */

const char *advise_kind_name(uint32_t kind)
{
	return kind == UNPIN_REGION_PINNED     ? "pinned"
	       : kind == UNPIN_REGION_ODP      ? "on demand"
	       : kind == UNPIN_REGION_IMPLICIT ? "implicit"
					       : "?";
}

char *advise_what(char out[ADVISE_WORDS], const struct advise_region *r)
{
	char size[UNITS_MAX];

	out[0] = 0;
	units_bytes(size, r->length);
	if (r->kind == UNPIN_REGION_IMPLICIT)
		add(out, "all of the address space");
	else if (r->places > 1)
		add(out, "buffers of %s at %" PRIu32 " addresses", size, r->places);
	else
		add(out, "%s at 0x%" PRIx64, size, r->addr);
	if (!r->live && r->places == 1 && r->kind != UNPIN_REGION_IMPLICIT)
		add(out, " (deregistered)");
	return out;
}

char *advise_is(char out[ADVISE_WORDS], const struct advise_region *r)
{
	out[0] = 0;
	add(out, "%s", advise_kind_name(r->kind));
	if (r->times > 1)
		add(out, ", registered %" PRIu64 " times", r->times);
	return out;
}

char *advise_shall(char out[ADVISE_WORDS], const struct advise_verdict *v)
{
	out[0] = 0;
	add(out, "%s", advise_should_names[v->should]);
	if (v->should == ADVISE_ONCE)
		add(out, ", %s", advise_should_names[v->as]);
	return out;
}

static void add_pattern(char out[ADVISE_WORDS], const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	char size[UNITS_MAX];

	switch (v->pattern) {
	case ADVISE_IN_SEQUENCE:
		add(out, "; in sequence, %s at a stretch", units_bytes(size, units_whole(v->run)));
		break;
	case ADVISE_REPEATED:
	case ADVISE_AT_RANDOM:
		add(out, "; at %s places, %s at a time",
			v->pattern == ADVISE_REPEATED ? "the same" : "random",
			units_bytes(size, units_whole(v->run)));
		break;
	default:
		break;
	}
	if (r->odp[ADVISE_bytes_in] && !r->odp[ADVISE_bytes_out])
		add(out, ", written only");
	else if (r->odp[ADVISE_bytes_out] && !r->odp[ADVISE_bytes_in])
		add(out, ", read only");
}

static void add_faults(char out[ADVISE_WORDS], const struct advise_region *r)
{
	uint64_t faults = r->odp[ADVISE_page_faults], dropped = r->odp[ADVISE_page_invalidations_handled];
	char time[UNITS_MAX], rate[UNITS_MAX];

	if (is_pinned(r))
		return;
	add(out, "; %" PRIu64 " page%s faulted", faults, faults == 1 ? "" : "s");
	if (faults && r->fault_ns_known)
		add(out, " (%s)", units_time(time, r->fault_ns));
	if (dropped)
		add(out, ", %" PRIu64 " taken away", dropped);
	if (r->look_seconds > 0 && (r->look_faults || r->look_invalidations)) {
		add(out, ", lately %s", units_digits(rate, (double)r->look_faults / r->look_seconds));
		add(out, " and %s per second",
			units_digits(rate, (double)r->look_invalidations / r->look_seconds));
	}
}

char *advise_seen(char out[ADVISE_WORDS], const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	char uses[UNITS_MAX], share[UNITS_MAX], size[UNITS_MAX];

	out[0] = 0;
	if (!r->accesses) {
		add(out, "never used");
	} else if (v->touched >= 0 && v->touched < 0.995) {
		add(out, "%s %% of it touched (%s), each page %s times",
			units_digits(share, 100 * v->touched), units_bytes(size, r->pages * ADVISE_PAGE),
			units_digits(uses, v->reuse));
	} else {
		add(out, "%s (%s), each page %s times", v->touched < 0 ? "touched" : "all of it touched",
			units_bytes(size, r->pages * ADVISE_PAGE), units_digits(uses, v->reuse));
	}
	add_pattern(out, v);
	add_faults(out, r);
	return out;
}

/* --- why
 * ----------------------------------------------------------------------------------------------------- */

char *advise_because(char out[ADVISE_WORDS], const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	char a[UNITS_MAX], b[UNITS_MAX];

	out[0] = 0;
	switch (v->why) {
	case ADVISE_TOO_LITTLE:
		add(out, "too little traffic seen: %" PRIu64 " access%s", r->accesses,
			r->accesses == 1 ? "" : "es");
		break;
	case ADVISE_TOO_YOUNG:
		add(out, "registered %s ago, and not used yet", units_time(a, r->lived_ns / r->times));
		break;
	case ADVISE_UNUSED:
		add(out, "not used in the %s that it was registered; if it never is, do not register it",
			units_time(a, r->lived_ns / r->times));
		break;
	case ADVISE_AGAIN_AND_AGAIN:
		add(out, "registered %" PRIu64 " times for %s each; registering took %s of that", r->times,
			units_time(a, r->lived_ns / r->times), units_time(b, r->register_ns / r->times));
		break;
	case ADVISE_GIVEN_BACK:
		add(out,
			"the program gives its pages back (madvise, munmap) and uses them again, each %s "
			"times "
			"so far; pinned, the device would go on with the old pages",
			units_digits(a, v->refaults));
		break;
	case ADVISE_RECLAIMED:
		add(out,
			"the kernel takes its pages for want of memory, and reads them back: each %s times "
			"so far",
			units_digits(a, v->refaults));
		break;
	case ADVISE_HOT_PART:
		add(out, "%s %% of the accesses go to %s of it", units_digits(a, 100 * v->hot_share),
			units_bytes(b, v->hot_bytes));
		break;
	case ADVISE_HOT:
		add(out, "it is used again and again: pinning is paid once, and then no access waits");
		break;
	case ADVISE_STREAM:
		add(out, "used %s times, in sequence: its pages can be brought in ahead of the accesses",
			units_digits(a, v->reuse));
		break;
	case ADVISE_SPARSE:
		add(out, "only %s of %s are used", units_bytes(a, r->pages * ADVISE_PAGE),
			units_bytes(b, r->length * r->places));
		break;
	case ADVISE_FEW_USES:
		add(out, "each page is used %s times only, which does not pay for locking it",
			units_digits(a, v->reuse));
		break;
	default:
		add(out, "%s",
			r->kind == UNPIN_REGION_IMPLICIT
				? "an implicit region faults in what is used, and nothing else"
				: "the difference between pinned and on demand is small here");
		break;
	}
	return out;
}

/* --- what is gained
 * ------------------------------------------------------------------------------------------ */

static void add_gain(char out[ADVISE_WORDS], const char *what, const char *less, const char *more,
	double value, bool is_time)
{
	char text[UNITS_MAX];
	double size = fabs(value);

	if (!isnan(value) && size < 1)
		return;
	if (out[0])
		add(out, "; ");
	if (isnan(value))
		add(out, "%s: not known", what);
	else
		add(out, "%s %s%s", what,
			is_time ? units_time(text, units_whole(size)) : units_bytes(text, units_whole(size)),
			value > 0 ? less : more);
}

char *advise_gain(char out[ADVISE_WORDS], const struct advise_verdict *v)
{
	out[0] = 0;
	add_gain(out, "locked memory", " less", " more", v->locked_bytes, false);
	add_gain(out, "registration", " less", " more", v->register_ns, true);
	add_gain(out, v->should == ADVISE_PREFETCH ? "page faults up to" : "page faults", " less", " more",
		v->fault_ns, true);
	if (v->should == ADVISE_LOCK_HOT && !is_pinned(v->region))
		add(out, "%sno access to its hot part waits for a disk when memory is short",
			out[0] ? "; " : "");
	if (!out[0])
		add(out, "nothing that can be measured");
	return out;
}

/* --- lines
 * --------------------------------------------------------------------------------------------------- */

static void add_access(char out[ADVISE_WORDS], uint32_t access, bool on_demand)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} names[] = {
		{ IBV_ACCESS_LOCAL_WRITE, "IBV_ACCESS_LOCAL_WRITE" },
		{ IBV_ACCESS_REMOTE_WRITE, "IBV_ACCESS_REMOTE_WRITE" },
		{ IBV_ACCESS_REMOTE_READ, "IBV_ACCESS_REMOTE_READ" },
		{ IBV_ACCESS_REMOTE_ATOMIC, "IBV_ACCESS_REMOTE_ATOMIC" },
	};
	bool any = on_demand;

	if (on_demand)
		add(out, "IBV_ACCESS_ON_DEMAND");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(access & names[i].bit))
			continue;
		add(out, "%s%s", any ? " | " : "", names[i].name);
		any = true;
	}
	if (!any)
		add(out, "0");
}

/* One more line; what does not fit is not written. */
static char *line(char out[ADVISE_LINES][ADVISE_WORDS], unsigned *n)
{
	char *text = out[*n < ADVISE_LINES ? *n : ADVISE_LINES - 1];

	*n += *n < ADVISE_LINES;
	text[0] = 0;
	return text;
}

static void line_register(char out[ADVISE_LINES][ADVISE_WORDS], unsigned *n, const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	char *text = line(out, n);

	if (v->should == ADVISE_IMPLICIT)
		add(text, "mr = ibv_reg_mr(pd, NULL, SIZE_MAX, ");
	else
		add(text, "mr = ibv_reg_mr(pd, buffer, %" PRIu64 ", ", r->length);
	add_access(text, r->access, v->should == ADVISE_IMPLICIT || v->as != ADVISE_PINNED);
	add(text, ");");
}

static void lines_lock(char out[ADVISE_LINES][ADVISE_WORDS], unsigned *n, const struct advise_verdict *v)
{
	for (unsigned i = 0; i < v->hots && *n < ADVISE_LINES; i++)
		add(line(out, n), "mlock((char *)buffer + %" PRIu64 ", %" PRIu64 ");", v->hot[i].offset,
			v->hot[i].length);
}

static bool is_written(const struct advise_region *r)
{
	return r->odp[ADVISE_bytes_in] != 0;
}

static void verbs_lines(char out[ADVISE_LINES][ADVISE_WORDS], unsigned *n, const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	bool to_demand = v->as != ADVISE_PINNED;

	if (v->should == ADVISE_ONCE) {
		line_register(out, n, v);
		add(line(out, n), "/* once, where the buffer is made; ibv_dereg_mr(mr) where it is freed */");
	} else if (v->should == ADVISE_IMPLICIT || to_demand == is_pinned(r)) {
		line_register(out, n, v);
	}
	if (v->should == ADVISE_IMPLICIT)
		add(line(out, n), "/* once per protection domain; its key serves every buffer */");
	if (v->as == ADVISE_PREFETCH && v->should != ADVISE_IMPLICIT)
		add(line(out, n),
			"ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH%s, 0, &sge, 1); /* ahead of %s */",
			is_written(r) ? "_WRITE" : "",
			v->why == ADVISE_GIVEN_BACK ? "using it again" : "the transfer");
	if (v->should == ADVISE_LOCK_HOT)
		lines_lock(out, n, v);
}

static void ucx_lines(char out[ADVISE_LINES][ADVISE_WORDS], unsigned *n, const struct advise_verdict *v)
{
	bool from_pinned = is_pinned(v->region);

	if (v->should == ADVISE_ONCE)
		add(line(out, n),
			"UCX_RCACHE_ENABLE=y (and no UCX_RCACHE_MAX_REGIONS or UCX_RCACHE_MAX_SIZE that is "
			"too small)");
	if (v->should == ADVISE_IMPLICIT)
		add(line(out, n), "UCX_GVA_ENABLE=on (where 'ucx_info -c' lists it), or UCX_RCACHE_ENABLE=y");
	if (v->should == ADVISE_ONCE || v->should == ADVISE_IMPLICIT)
		return;
	if (v->as == ADVISE_PINNED)
		add(line(out, n),
			"ucp_mem_map() without UCP_MEM_MAP_NONBLOCK, and no UCX_REG_NONBLOCK_MEM_TYPES "
			"(pins all)");
	else if (from_pinned)
		add(line(out, n),
			"ucp_mem_map() with UCP_MEM_MAP_NONBLOCK, or UCX_REG_NONBLOCK_MEM_TYPES=host (all "
			"host memory)");
	if (v->as == ADVISE_PREFETCH)
		add(line(out, n),
			"ucp_mem_advise() with UCP_MADV_WILLNEED, or UCX_IB_ODP_PREFETCH=y (all of it, when "
			"registered)");
	if (v->should == ADVISE_LOCK_HOT)
		lines_lock(out, n, v);
}

static void libfabric_lines(char out[ADVISE_LINES][ADVISE_WORDS], unsigned *n, const struct advise_verdict *v)
{
	bool from_pinned = is_pinned(v->region);

	if (v->should == ADVISE_ONCE)
		add(line(out, n),
			"FI_MR_CACHE_MONITOR=memhooks (a cache that is on: FI_MR_CACHE_MAX_COUNT not 0, "
			"FI_MR_CACHE_MAX_SIZE large enough)");
	if (v->should == ADVISE_IMPLICIT)
		add(line(out, n), "no setting for an implicit region; the registration cache comes near: "
				  "FI_MR_CACHE_MONITOR=memhooks");
	if (v->should == ADVISE_ONCE || v->should == ADVISE_IMPLICIT)
		return;
	if (v->as == ADVISE_PINNED)
		add(line(out, n), "FI_VERBS_USE_ODP=0 (all registrations of the verbs provider)");
	else if (from_pinned)
		add(line(out, n), "FI_VERBS_USE_ODP=1 (all registrations of the verbs provider)");
	if (v->as == ADVISE_PREFETCH)
		add(line(out, n),
			"no setting for prefetch; the CPU's side of it: madvise(buffer, length, "
			"MADV_POPULATE_%s)",
			is_written(v->region) ? "WRITE" : "READ");
	if (v->should == ADVISE_LOCK_HOT)
		lines_lock(out, n, v);
}

unsigned advise_lines(
	char out[ADVISE_LINES][ADVISE_WORDS], const struct advise_verdict *v, enum advise_library library)
{
	static void (*const of[ADVISE_LIBRARIES])(
		char out[ADVISE_LINES][ADVISE_WORDS], unsigned *n, const struct advise_verdict *v) = {
		[ADVISE_VERBS] = verbs_lines,
		[ADVISE_UCX] = ucx_lines,
		[ADVISE_LIBFABRIC] = libfabric_lines,
	};
	unsigned n = 0;

	if (!v->same && v->should != ADVISE_UNSURE)
		of[library](out, &n, v);
	return n;
}

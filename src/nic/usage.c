/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What becomes of a region's usage (base/usage.h) when the region ends, and what of it goes to the timeline:
 * events "region" (one that is registered), "past_region" (a range, for all registrations of it that have
 * ended) and "region_end" (one that an event "region" told of has ended, and is in its range's numbers from
 * now on). Each of the first two replaces what an earlier one said of the same region or range. Once a second
 * those that have changed are told, and at the end the rest; so a process that is killed loses a second, and
 * one that registers a buffer for each transfer fills no disk.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/trace.h"
#include "nic/nic.h"

#define TELL_NS	      NSEC_PER_SEC
#define TELL_MOST     64u   /* regions at a time, and ranges: few enough for what may wait for the writer */
#define TELL_END_MOST 8192u /* regions at the end */
#define PACE_US	      25000
#define EVENT_MOST    4096u
#define EXACT	      (1ull << 53) /* below it, a reader's double holds every number */

static uint64_t get64(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static uint32_t get32(const _Atomic uint32_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static void put64(_Atomic uint64_t *v, uint64_t value)
{
	atomic_store_explicit(v, value, memory_order_relaxed);
}

/* --- events
 * -------------------------------------------------------------------------------------------------- */

struct event {
	char text[EVENT_MOST];
	size_t length; /* EVENT_MOST: it did not fit */
};

static void put(struct event *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct event *e, const char *fmt, ...)
{
	size_t room = sizeof(e->text) - e->length;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = room ? vsnprintf(e->text + e->length, room, fmt, ap) : 0;
	va_end(ap);
	e->length = n < 0 || (size_t)n >= room ? sizeof(e->text) : e->length + (size_t)n;
}

static void put_number(struct event *e, const char *name, uint64_t v)
{
	put(e, v < EXACT ? ",\"%s\":%" PRIu64 : ",\"%s\":\"0x%" PRIx64 "\"", name, v);
}

static void begin(struct event *e, const char *name, const char *phase, uint64_t now)
{
	int pid = (int)getpid();
	char us[TRACE_US_BYTES];

	e->length = 0;
	put(e,
		"{\"name\":\"%s\",\"cat\":\"nic\",\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,"
		"\"ts\":%s,\"args\":{",
		name, phase, pid, pid, trace_us(us, now));
}

static void end(struct event *e)
{
	put(e, "}}");
	if (e->length < sizeof(e->text))
		trace_text(e->text, e->length);
}

static void put_counters(struct event *e, const struct unpin_odp_counters *c)
{
	/* Most are 0, and are when they are missing. */
#define X(field, name, what)                                                                                 \
	if (get64(&c->field))                                                                                \
		put_number(e, name, get64(&c->field));
	UNPIN_ODP_COUNTERS(X)
#undef X
}

static void put_usage(struct event *e, const struct unpin_usage *u)
{
	uint32_t shift = get32(&u->shift);
	unsigned used = USAGE_SLICES;

	put_number(e, "accesses", get64(&u->accesses));
	put_number(e, "sequential", get64(&u->sequential));
	put_number(e, "pages", usage_pages(u));
	if (!shift)
		return;
	put_number(e, "slice_bytes", 1ull << shift);
	put(e, ",\"slices\":[");
	while (used > 1 && !get32(&u->slice[used - 1]))
		used--;
	for (unsigned i = 0; i < used; i++)
		put(e, "%s%" PRIu32, i ? "," : "", get32(&u->slice[i]));
	put(e, "]");
}

static const char *kind_name(uint32_t kind)
{
	return kind == UNPIN_REGION_PINNED ? "pinned" : kind == UNPIN_REGION_ODP ? "odp" : "implicit";
}

static void put_range(struct event *e, uint32_t kind, uint32_t access, uint64_t addr, uint64_t length)
{
	put(e, "\"kind\":\"%s\",\"addr\":\"0x%" PRIx64 "\"", kind_name(kind), addr);
	put_number(e, "length", length);
	put_number(e, "access", access);
}

/* Numbers for the person who looks at the timeline. */
static void tell_counter(struct event *e, const struct unpin_segment_region *row, uint64_t now)
{
	char name[64];

	snprintf(name, sizeof(name), "region 0x%" PRIx64, get64(&row->addr));
	begin(e, name, "C", now);
	put(e, "\"bytes_in\":%" PRIu64 ",\"bytes_out\":%" PRIu64 ",\"page_faults\":%" PRIu64,
		get64(&row->odp.bytes_in), get64(&row->odp.bytes_out), get64(&row->odp.page_faults));
	end(e);
}

/* Of a region that cannot end meanwhile. */
static void tell_region(struct nic_mr *mr, uint64_t now)
{
	const struct unpin_segment_region *row = &mr->nic->seg->region[mr->row];
	struct event e;

	begin(&e, "region", "i", now);
	put_range(&e, get32(&row->kind), get32(&row->access), get64(&row->addr), get64(&row->length));
	put_number(&e, "key", get32(&row->lkey));
	put_number(&e, "registered_ns", get64(&row->registered_ns));
	put_number(&e, "register_ns", get64(&row->register_ns));
	put_counters(&e, &row->odp);
	put_usage(&e, mr->usage);
	end(&e);
	tell_counter(&e, row, now);
}

/* Under nic->lock. */
static void tell_past(struct nic *nic, unsigned i, uint64_t now)
{
	const struct unpin_past_region *p = &nic->seg->past[i];
	struct event e;

	nic->past_told[i] = get64(&p->times);
	begin(&e, "past_region", "i", now);
	put_range(&e, get32(&p->kind), get32(&p->access), get64(&p->addr), get64(&p->length));
	put_number(&e, "number", get64(&p->number));
	put_number(&e, "times", get64(&p->times));
	put_number(&e, "register_ns", get64(&p->register_ns));
	put_number(&e, "lived_ns", get64(&p->lived_ns));
	put_number(&e, "first_ns", get64(&p->first_ns));
	put_number(&e, "last_ns", get64(&p->last_ns));
	put_counters(&e, &p->odp);
	put_usage(&e, &p->usage);
	end(&e);
}

/* The timeline has been told of it; it is in its range's numbers now. */
static void tell_end(const struct nic_mr *mr, uint64_t now)
{
	const struct unpin_segment_region *row = &mr->nic->seg->region[mr->row];
	struct event e;

	begin(&e, "region_end", "i", now);
	put(&e, "\"key\":%" PRIu32, get32(&row->lkey));
	put_number(&e, "registered_ns", get64(&row->registered_ns));
	end(&e);
}

/* --- what has ended
 * ------------------------------------------------------------------------------------------ */

static void past_begin_change(struct unpin_past_region *p)
{
	atomic_fetch_add(&p->sequence, 1);
	atomic_thread_fence(memory_order_release);
}

static bool past_is(const struct unpin_past_region *p, uint32_t kind, const struct unpin_segment_region *row)
{
	return get32(&p->kind) == kind && get64(&p->addr) == get64(&row->addr) &&
	       get64(&p->length) == get64(&row->length) && get32(&p->access) == get32(&row->access);
}

static struct unpin_past_region *past_set(struct nic *nic, const struct unpin_segment_region *row)
{
	uint64_t x = (get64(&row->addr) >> USAGE_PAGE_SHIFT) * 0x9e3779b97f4a7c15ull + get64(&row->length);
	const unsigned sets = UNPIN_PAST_REGIONS / UNPIN_PAST_WAYS;

	return &nic->seg->past[(x * 0x9e3779b97f4a7c15ull >> 32) % sets * UNPIN_PAST_WAYS];
}

static void past_renew(
	struct nic *nic, struct unpin_past_region *p, uint32_t kind, const struct unpin_segment_region *row)
{
	atomic_store_explicit(&p->kind, kind, memory_order_relaxed);
	atomic_store_explicit(&p->access, get32(&row->access), memory_order_relaxed);
	put64(&p->number, ++nic->past_numbers);
	put64(&p->addr, get64(&row->addr));
	put64(&p->length, get64(&row->length));
	put64(&p->times, 0);
	put64(&p->register_ns, 0);
	put64(&p->lived_ns, 0);
	put64(&p->first_ns, get64(&row->registered_ns));
#define X(field, name, what) put64(&p->odp.field, 0);
	UNPIN_ODP_COUNTERS(X)
#undef X
	usage_begin(&p->usage, get64(&row->addr), get64(&row->length));
}

/* The row of a range. A row that another range had been using is told of once more, before it is forgotten.
 */
static struct unpin_past_region *past_of(
	struct nic *nic, uint32_t kind, const struct unpin_segment_region *row, uint64_t now, bool *is_new)
{
	struct unpin_past_region *set = past_set(nic, row), *oldest = set;
	unsigned i;

	*is_new = false;
	for (i = 0; i < UNPIN_PAST_WAYS; i++) {
		if (past_is(&set[i], kind, row))
			return &set[i];
		if (get64(&set[i].last_ns) < get64(&oldest->last_ns))
			oldest = &set[i];
	}
	*is_new = true;
	if (get64(&oldest->times)) {
		counter_add(&nic->seg->registrations.forgotten, get64(&oldest->times));
		i = (unsigned)(oldest - nic->seg->past);
		if (trace_enabled() && get64(&oldest->times) != nic->past_told[i])
			tell_past(nic, i, now);
		nic->past_told[i] = 0;
	}
	return oldest;
}

/* The region's row still says what it was, but for the kind: it is shown as free already. */
static void past_add(struct nic_mr *mr, uint64_t now)
{
	const struct unpin_segment_region *row = &mr->nic->seg->region[mr->row];
	const uint32_t kind = nic_segment_region_kind(mr);
	struct nic *nic = mr->nic;
	struct unpin_past_region *p;
	bool is_new;

	lock_take(&nic->lock);
	p = past_of(nic, kind, row, now, &is_new);
	past_begin_change(p);
	if (is_new)
		past_renew(nic, p, kind, row);
	usage_count(&p->times, 1);
	usage_count(&p->register_ns, get64(&row->register_ns));
	usage_count(&p->lived_ns, now - get64(&row->registered_ns));
	put64(&p->last_ns, now);
#define X(field, name, what) usage_count(&p->odp.field, get64(&row->odp.field));
	UNPIN_ODP_COUNTERS(X)
#undef X
	usage_merge(&p->usage, mr->usage);
	atomic_fetch_add(&p->sequence, 1);
	lock_drop(&nic->lock);
}

void nic_usage_begin(struct nic_mr *mr, uint64_t asked_ns)
{
	struct unpin_segment *seg = mr->nic->seg;
	struct unpin_segment_region *row = &seg->region[mr->row];
	uint64_t took = clock_ns() - asked_ns;

	mr->usage = &seg->usage[mr->row];
	atomic_store_explicit(&mr->told_accesses, 0, memory_order_relaxed);
	atomic_store_explicit(&mr->told, false, memory_order_relaxed);
	usage_begin(mr->usage, mr->addr, mr->implicit ? UINT64_MAX : mr->length);
	put64(&row->registered_ns, asked_ns);
	put64(&row->register_ns, took);
	counter_add(&seg->registrations.begun, 1);
	counter_add(&seg->registrations.register_ns, took);
}

void nic_usage_end(struct nic_mr *mr)
{
	uint64_t now = clock_ns();

	past_add(mr, now);
	counter_add(&mr->nic->seg->registrations.ended, 1);
	if (atomic_exchange(&mr->told, false) && trace_enabled())
		tell_end(mr, now);
}

/* --- telling
 * ------------------------------------------------------------------------------------------------- */

/* Whether there was something to tell of it. */
static bool tell_row(struct nic *nic, uint32_t row, uint64_t now, bool unused_too)
{
	struct nic_mr *mr = atomic_load(&nic->mr[row]);
	uint64_t accesses;
	bool news;

	if (!mr || !rundown_enter(&mr->users))
		return false;
	accesses = get64(&mr->usage->accesses);
	news = accesses != get64(&mr->told_accesses) || (unused_too && !atomic_load(&mr->told));
	if (news) {
		put64(&mr->told_accesses, accesses);
		atomic_store(&mr->told, true);
		tell_region(mr, now);
	}
	rundown_leave(&mr->users);
	return news;
}

/* What waits for the writer is bounded: at the end, when nothing else has to be done, it is waited for. */
static void pace(unsigned told, enum nic_usage_tell when)
{
	if (when == NIC_TELL_END && told % TELL_MOST == 0)
		usleep(PACE_US);
}

static unsigned tell_regions(struct nic *nic, uint64_t now, enum nic_usage_tell when)
{
	unsigned told = 0, most = when == NIC_TELL_END ? TELL_END_MOST : TELL_MOST;
	uint32_t rows, row = get32(&nic->tell_row);

	lock_take(&nic->lock);
	rows = nic->mr_rows;
	lock_drop(&nic->lock);
	/* Where there are too many for once, it goes on behind them next time. */
	for (uint32_t i = 1; i < rows && told < most; i++) {
		row = row + 1 < rows ? row + 1 : 1;
		if (tell_row(nic, row, now, when != NIC_TELL_TICK))
			pace(++told, when);
	}
	atomic_store_explicit(&nic->tell_row, row, memory_order_relaxed);
	return told;
}

static void tell_pasts(struct nic *nic, uint64_t now, enum nic_usage_tell when, unsigned told)
{
	unsigned most = told + (when == NIC_TELL_END ? UNPIN_PAST_REGIONS : TELL_MOST);

	for (unsigned i = 0; i < UNPIN_PAST_REGIONS && told < most; i++) {
		bool news = false;

		lock_take(&nic->lock);
		nic->past_row = (nic->past_row + 1) % UNPIN_PAST_REGIONS;
		if (get64(&nic->seg->past[nic->past_row].times) != nic->past_told[nic->past_row]) {
			tell_past(nic, nic->past_row, now);
			news = true;
		}
		lock_drop(&nic->lock);
		if (news)
			pace(++told, when);
	}
}

void nic_usage_tell(struct nic *nic, uint64_t now, enum nic_usage_tell when)
{
	uint64_t due = atomic_load(&nic->tell_at);

	if (!trace_enabled())
		return;
	if (when == NIC_TELL_TICK && now < due)
		return;
	if (!atomic_compare_exchange_strong(&nic->tell_at, &due, now + TELL_NS) && when != NIC_TELL_END)
		return;
	tell_pasts(nic, now, when, tell_regions(nic, now, when));
}

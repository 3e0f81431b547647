/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the measured figures mean for whoever has to decide, in plain words. Nothing is measured here. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tool/bench.h"
#include "tool/units.h"

static const struct report_column columns[] = { { "advice", NULL, "<advice" } };

static size_t column_of(const struct report_part *p, const char *stem)
{
	for (size_t c = 0; c < p->column_count; c++)
		if (strcmp(p->columns[c].stem, stem) == 0)
			return c;
	return SIZE_MAX;
}

/* NAN: was not measured. */
static double number_at(const struct report_part *p, size_t row, const char *stem)
{
	size_t c = column_of(p, stem);

	return c == SIZE_MAX || row >= p->rows ? NAN : report_value(p, row, c);
}

/* "": there are no words, or no such column. */
static const char *words_at(const struct report_part *p, size_t row, const char *stem)
{
	size_t c = column_of(p, stem);

	return c == SIZE_MAX ? "" : report_text(p, row, c);
}

/* The row whose first column has these words; SIZE_MAX when there is none. */
static size_t row_with(const struct report_part *p, const char *words)
{
	for (size_t r = 0; p && r < p->rows; r++)
		if (strcmp(report_text(p, r, 0), words) == 0)
			return r;
	return SIZE_MAX;
}

static double number_of(const struct report_part *p, const char *words, const char *stem)
{
	size_t r = row_with(p, words);

	return r == SIZE_MAX ? NAN : number_at(p, r, stem);
}

/* --- one sentence or two per question ----------------------------------------------------------------------
 */

static void advise_break_even(struct report_part *out, const struct report *r)
{
	const struct report_part *reuse = report_find(r, "reuse");
	bool any = false;

	for (size_t i = 0; reuse && i < reuse->plots; i++) {
		const struct plot *plot = reuse->plot[i];
		double at = bench_break_even(plot);
		char size[UNITS_MAX];

		if (isnan(at))
			continue;
		any = true;
		/* The key ends in the size in KiB. */
		units_bytes(size, strtoull(strrchr(plot->key, '_') + 1, NULL, 10) << 10);
		if (at < 0)
			report_note(out,
				"Break-even for a buffer of %s: none. Pinned and on demand cost the same, "
				"however often it is "
				"used; on demand leaves the memory to others.",
				size);
		else if (at == 0)
			report_note(out,
				"Break-even for a buffer of %s: the first use. Pinning brings all of its "
				"pages in for less than the "
				"faults would: pin it, if all of it is used.",
				size);
		else if (isinf(at))
			report_note(out,
				"Break-even for a buffer of %s: not reached in %.0f uses. Leave it on "
				"demand: its warm pages are as "
				"fast as pinned ones, and registering it costs less.",
				size, plot->series[0].point[plot->series[0].points - 1].x);
		else
			report_note(out,
				"Break-even for a buffer of %s: about %.0f uses. Register it on demand if it "
				"is used less often "
				"before it is freed, and pin it if more often.",
				size, fmax(at, 1));
	}
	if (any)
		report_note(out, "All of these buffers were used in full. Pinning a buffer of which only "
				 "parts are used costs "
				 "the time and the memory of the rest as well.");
}

static void advise_registration(struct report_part *out, const struct report *r)
{
	const struct report_part *p = report_find(r, "sizes");
	char size[UNITS_MAX], pinned[UNITS_MAX], on_demand[UNITS_MAX];
	double slow, fast;
	size_t row;

	if (!p || !p->rows)
		return;
	row = p->rows - 1;
	slow = number_at(p, row, "pinned");
	fast = number_at(p, row, "on_demand");
	if (isnan(slow) || isnan(fast) || fast <= 0)
		return;
	report_note(out,
		"When on demand pays: registering %s costs %s pinned and %s on demand. So where buffers are "
		"registered in "
		"the path of a request, or the whole heap or address space is to be registered, use on "
		"demand.",
		units_bytes(size, (uint64_t)number_at(p, row, "size")), bench_time(pinned, slow),
		bench_time(on_demand, fast));
}

static void advise_fault(struct report_part *out, const struct report *r)
{
	const struct report_part *p = report_find(r, "distribution");
	char minor[UNITS_MAX], tail[UNITS_MAX], major[UNITS_MAX];
	double p50 = NAN, p99 = NAN, disk = NAN;

	for (size_t i = 0; p && i < p->rows; i++) {
		if (strcmp(words_at(p, i, "toucher"), "the device") != 0)
			continue;
		if (strcmp(words_at(p, i, "fault"), "minor") == 0) {
			p50 = number_at(p, i, "p50");
			p99 = number_at(p, i, "p99");
		} else {
			disk = number_at(p, i, "p50");
		}
	}
	if (isnan(p50))
		return;
	report_note(out,
		"What a first touch costs: %s per page when no I/O is needed, and one in a hundred takes "
		"more than %s. If "
		"that is too much for your slowest requests, prefetch or touch the hot pages before traffic "
		"comes.",
		bench_time(minor, p50), bench_time(tail, p99));
	if (!isnan(disk))
		report_note(out,
			"A page that must be read from the disk takes %s: keep what requests wait for out of "
			"swap (mlock(2) of the "
			"hot part needs no pinning by the device).",
			bench_time(major, disk));
}

static void advise_prefetch(struct report_part *out, const struct report *r)
{
	const struct report_part *p = report_find(r, "prefetch");
	double before = number_of(p, "prefetched before", "over_cold");
	double with = number_of(p, "prefetch waited for, its time included", "over_cold");
	double begun = number_of(p, "prefetch begun, not waited for", "over_cold");

	if (isnan(before) || isnan(with))
		return;
	report_note(out,
		"What prefetch saves: a stream into prefetched memory takes %.0f %% of the time of one into "
		"cold memory. %s",
		100 / before,
		with > 1.05 ? "It pays even when it is waited for first."
			    : "When the stream waits for it, nothing is gained: call it as early as the "
			      "address is known.");
	if (!isnan(begun) && begun > 1.05)
		report_note(out,
			"A prefetch that is begun and not waited for, right before the transfer, takes %.0f "
			"%% of the time of a "
			"transfer without.",
			100 / begun);
}

static void advise_memory(struct report_part *out, const struct report *r)
{
	const struct report_part *p = report_find(r, "held");
	double pinned = number_of(p, "pinned", "vm_rss_delta"),
	       on_demand = number_of(p, "on demand", "vm_rss_delta");
	char a[UNITS_MAX], b[UNITS_MAX];

	if (isnan(pinned) || isnan(on_demand) || on_demand <= 0)
		return;
	report_note(out,
		"Buffers that are large and sparsely used should be on demand: here they hold %s instead of "
		"%s, that is %.0f "
		"times as many connections in the same memory.",
		units_bytes(b, (uint64_t)on_demand >> 20 << 20), units_bytes(a, (uint64_t)pinned >> 20 << 20),
		pinned / on_demand);
}

static void advise_pressure(struct report_part *out, const struct report *r)
{
	const struct report_part *p = report_find(r, "squeeze");
	double calm = number_of(p, "before the squeeze", "p99"), squeezed = number_of(p, "squeezed", "p99");
	char a[UNITS_MAX], b[UNITS_MAX];

	if (isnan(calm) || isnan(squeezed))
		return;
	report_note(out,
		"Under memory pressure, on-demand memory is taken away and comes back by major faults: the "
		"slowest request in "
		"a hundred went from %s to %s. Give such a program a limit above its working set, or pin (or "
		"mlock) its hot "
		"part.",
		bench_time(a, calm), bench_time(b, squeezed));
}

static void advise_caution(struct report_part *out, const struct report *r)
{
	const struct report_fact *busy = report_find_fact(r, "busy"), *quick = report_find_fact(r, "quick");

	if (busy && busy->number)
		report_note(out, "The machine was busy when this was measured: measure again when it is not, "
				 "before you act.");
	else if (quick && quick->number)
		report_note(
			out, "These figures are from a quick run: measure without --quick before you act.");
}

/* The one thing to know about such a device: whether on demand would pay on it does not matter. */
static bool advise_against(struct report_part *out, const struct report *r)
{
	const struct report_fact *wrong = report_find_fact(r, "wrong_data");

	if (wrong)
		report_note(out,
			"Do not use on-demand memory on this device: %s. Pin, or take a kernel or firmware "
			"on "
			"which the bytes are right, or unpin's own device ('unpin run').",
			wrong->text);
	return wrong;
}

void bench_advice(struct report *r)
{
	static void (*const topics[])(struct report_part *, const struct report *) = { advise_break_even,
		advise_registration, advise_fault, advise_prefetch, advise_memory, advise_pressure };
	const size_t count = sizeof(topics) / sizeof(topics[0]);
	struct report_part advice = { 0 }, *out;

	/* Gathered first: a part without a sentence is not shown. */
	for (size_t i = advise_against(&advice, r) ? count : 0; i < count; i++)
		topics[i](&advice, r);
	if (!advice.notes)
		return;
	advise_caution(&advice, r);
	out = report_part(r, "advice", "Advice for this machine",
		"From the figures above, for this machine and this device as they were when it was measured.",
		columns, 1);
	out->note = advice.note;
	out->notes = advice.notes;
}

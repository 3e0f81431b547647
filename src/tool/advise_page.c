/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Verdicts for a person, and as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/advise.h"
#include "tool/alloc.h"
#include "tool/table.h"
#include "tool/units.h"

#define INDENT 14u /* of what stands behind a word */

struct paper {
	FILE *out;
	const struct advise_look *look;
};

static void plain(const struct paper *p, const char *escape)
{
	if (p->look->colour)
		fputs(escape, p->out);
}

#define FEW 8u /* are listed unless all are asked for */

#define BOLD   "\033[1m"
#define GREEN  "\033[32m"
#define YELLOW "\033[33m"
#define NORMAL "\033[0m"

/* --- lines
 * --------------------------------------------------------------------------------------------------- */

/* Words, broken at blanks; lines after the first begin at column indent. */
static void wrap(const struct paper *p, const char *text, unsigned indent, unsigned column)
{
	bool first = true;

	while (*text) {
		size_t word = strcspn(text, " ");

		if (!first && column + 1 + word > p->look->width) {
			fprintf(p->out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (!first) {
			fputc(' ', p->out);
			column++;
		}
		fprintf(p->out, "%.*s", (int)word, text);
		column += (unsigned)word;
		text += word;
		text += strspn(text, " ");
		first = false;
	}
	fputc('\n', p->out);
}

static void topic(const struct paper *p, const char *word, const char *text)
{
	fprintf(p->out, "   %-*s", (int)INDENT - 3, word);
	wrap(p, text, INDENT, INDENT);
}

static void say(const struct paper *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct paper *p, const char *fmt, ...)
{
	char *text;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) >= 0) {
		wrap(p, text, 0, 0);
		free(text);
	}
	va_end(ap);
}

/* --- who and with what
 * --------------------------------------------------------------------------------------- */

static void print_process(const struct paper *p, const struct advise_facts *f)
{
	char seconds[UNITS_MAX], look[UNITS_MAX];

	plain(p, BOLD);
	fprintf(p->out, "Process %" PRId64 "%s%s%s%s%s", f->pid, f->command[0] ? " (" : "", f->command,
		f->command[0] ? ")" : "", f->device[0] ? ", device " : "", f->device);
	plain(p, NORMAL);
	if (f->look_seconds > 0)
		fprintf(p->out, ", watched for %s of the %s since it opened the device%s\n",
			units_time(look, units_whole(f->look_seconds * 1e9)),
			units_time(seconds, units_whole(f->seconds * 1e9)),
			f->running ? "" : "; it has ended meanwhile");
	else
		fprintf(p->out, ", timeline of %s\n", units_time(seconds, units_whole(f->seconds * 1e9)));
}

static char *cost(char out[UNITS_MAX], double ns)
{
	if (ns > 0)
		return units_time(out, units_whole(ns + 0.5));
	snprintf(out, UNITS_MAX, "not known");
	return out;
}

static void print_costs(const struct paper *p, const struct advise_costs *c)
{
	char pin[UNITS_MAX], populate[UNITS_MAX], fault[UNITS_MAX], call[UNITS_MAX], took[UNITS_MAX];

	say(p,
		"Costs per 4 KiB page on this machine (%s%s%s): pinning %s, bringing it in ahead of use %s, "
		"a page "
		"fault %s; registering on demand takes %s%s.",
		c->from, c->took > 0 ? ", in " : "",
		c->took > 0 ? units_time(took, units_whole(c->took)) : "", cost(pin, c->pin_page),
		cost(populate, c->populate_page), cost(fault, c->fault_page), cost(call, c->register_call),
		c->register_assumed ? " (assumed)" : "");
}

static void print_count(const struct paper *p, const struct advise_facts *f, const struct advise_verdict *v)
{
	size_t better = 0, same = 0, unsure = 0;

	for (size_t i = 0; i < f->regions; i++) {
		better += v[i].should != ADVISE_UNSURE && !v[i].same;
		same += v[i].should != ADVISE_UNSURE && v[i].same;
		unsure += v[i].should == ADVISE_UNSURE;
	}
	if (!f->regions)
		say(p, "It has registered no memory.");
	else
		say(p,
			"Of %zu region%s, %zu could be better, %zu %s as %s should be, and of %zu nothing "
			"can be said yet.%s",
			f->regions, f->regions == 1 ? "" : "s", better, same, same == 1 ? "is" : "are",
			same == 1 ? "it" : "they", unsure,
			better ? " Gains are those that would have been made so far." : "");
	if (f->forgotten)
		say(p,
			"%" PRIu64 " of %" PRIu64
			" registrations are missing here: only the last deregistered ranges "
			"are kept.",
			f->forgotten, f->registrations);
	if (f->dropped)
		say(p, "The timeline has lost %" PRIu64 " events: times of page faults are too small.",
			f->dropped);
}

/* --- what could be better
 * ------------------------------------------------------------------------------------ */

static void print_lines(const struct paper *p, const struct advise_verdict *v)
{
	char line[ADVISE_LINES][ADVISE_WORDS];

	for (int library = 0; library < ADVISE_LIBRARIES; library++) {
		unsigned n = advise_lines(line, v, (enum advise_library)library);

		for (unsigned i = 0; i < n; i++)
			topic(p, i ? "" : advise_library_names[library], line[i]);
	}
}

/* like: others of which the same can be said; their gains are in it. */
static void print_verdict(const struct paper *p, const struct advise_verdict *v, size_t number, size_t like)
{
	char what[ADVISE_WORDS], is[ADVISE_WORDS], shall[ADVISE_WORDS], text[ADVISE_WORDS];

	fprintf(p->out, "\n%zu. ", number);
	plain(p, BOLD);
	fprintf(p->out, "%s", advise_what(what, v->region));
	if (like)
		fprintf(p->out, ", and %zu like it", like);
	plain(p, NORMAL);
	fputc('\n', p->out);
	topic(p, "is", advise_is(is, v->region));
	plain(p, YELLOW);
	topic(p, "should be", advise_shall(shall, v));
	plain(p, NORMAL);
	topic(p, "seen", advise_seen(text, v));
	topic(p, "because", advise_because(text, v));
	topic(p, like ? "gain of all" : "gain", advise_gain(text, v));
	print_lines(p, v);
}

static bool is_like(const struct advise_verdict *a, const struct advise_verdict *b)
{
	return a->region->kind == b->region->kind && a->region->length == b->region->length &&
	       a->region->access == b->region->access && a->should == b->should && a->as == b->as &&
	       a->why == b->why;
}

static void print_better(const struct paper *p, const struct advise_facts *f, const struct advise_verdict *v)
{
	bool *done = alloc_array(f->regions + 1, sizeof(*done));
	size_t number = 0, left = 0;

	for (size_t i = 0; i < f->regions; i++) {
		struct advise_verdict sum = v[i];
		size_t like = 0;

		if (done[i] || v[i].should == ADVISE_UNSURE || v[i].same)
			continue;
		for (size_t j = i + 1; j < f->regions; j++) {
			if (done[j] || !is_like(&v[i], &v[j]))
				continue;
			done[j] = true;
			like++;
			sum.register_ns += v[j].register_ns;
			sum.fault_ns += v[j].fault_ns;
			sum.locked_bytes += v[j].locked_bytes;
		}
		if (!p->look->all && number == FEW)
			left++;
		else
			print_verdict(p, &sum, ++number, like);
	}
	if (left)
		fprintf(p->out, "\n... and %zu more (--all lists them)\n", left);
	free(done);
}

/* --- the rest
 * ------------------------------------------------------------------------------------------------ */

static void print_rest(const struct paper *p, const struct advise_facts *f, const struct advise_verdict *v,
	bool unsure, const char *title)
{
	size_t listed = 0, n = 0;

	for (size_t i = 0; i < f->regions; i++) {
		char what[ADVISE_WORDS], is[ADVISE_WORDS], text[ADVISE_WORDS], whole[4 * ADVISE_WORDS];

		if (unsure != (v[i].should == ADVISE_UNSURE) || (!unsure && !v[i].same))
			continue;
		if (!n++) {
			plain(p, unsure ? "" : GREEN);
			fprintf(p->out, "\n%s\n", title);
			plain(p, NORMAL);
		}
		if (!p->look->all && listed == FEW)
			continue;
		listed++;
		snprintf(whole, sizeof(whole), "%s, %s: %s", advise_what(what, v[i].region),
			advise_is(is, v[i].region),
			unsure ? advise_because(text, &v[i]) : advise_seen(text, &v[i]));
		fputs("   ", p->out);
		wrap(p, whole, 5, 3);
	}
	if (n > listed)
		fprintf(p->out, "   ... and %zu more (--all lists them)\n", n - listed);
}

void advise_page(FILE *out, const struct advise_facts *f, const struct advise_verdict *v,
	const struct advise_costs *c, const struct advise_look *look)
{
	const struct paper p = { out, look };

	print_process(&p, f);
	print_costs(&p, c);
	print_count(&p, f, v);
	print_better(&p, f, v);
	print_rest(&p, f, v, false, "As they should be:");
	print_rest(&p, f, v, true, "Nothing can be said yet:");
}

/* --- JSON
 * ---------------------------------------------------------------------------------------------------- */

static void put(json_object *o, const char *key, json_object *value)
{
	json_object_object_add(o, key, value);
}

static json_object *real(double v)
{
	char text[64];

	if (isnan(v) || isinf(v))
		return NULL;
	snprintf(text, sizeof(text), "%.3f", v);
	return json_object_new_double_s(v, text);
}

static json_object *number(uint64_t v)
{
	return json_object_new_uint64(v);
}

static json_object *text(const char *s)
{
	return json_object_new_string(s);
}

static json_object *address(uint64_t v)
{
	char hex[32];

	snprintf(hex, sizeof(hex), "0x%" PRIx64, v);
	return text(hex);
}

static json_object *hot_json(const struct advise_verdict *v)
{
	json_object *list = json_object_new_array();

	for (unsigned i = 0; i < v->hots; i++) {
		json_object *o = json_object_new_object();

		put(o, "offset_bytes", number(v->hot[i].offset));
		put(o, "length_bytes", number(v->hot[i].length));
		json_object_array_add(list, o);
	}
	return list;
}

static json_object *lines_json(const struct advise_verdict *v)
{
	json_object *o = json_object_new_object();
	char line[ADVISE_LINES][ADVISE_WORDS];

	for (int library = 0; library < ADVISE_LIBRARIES; library++) {
		unsigned n = advise_lines(line, v, (enum advise_library)library);
		json_object *list = json_object_new_array();

		for (unsigned i = 0; i < n; i++)
			json_object_array_add(list, text(line[i]));
		put(o, advise_library_names[library], list);
	}
	return o;
}

static json_object *counters_json(const struct advise_region *r)
{
	json_object *o = json_object_new_object();

	for (int i = 0; i < ADVISE_COUNTERS; i++)
		put(o, advise_counter_names[i], number(r->odp[i]));
	return o;
}

static json_object *seen_json(const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	json_object *o = json_object_new_object();

	put(o, "accesses", number(r->accesses));
	put(o, "sequential", number(r->sequential));
	put(o, "pages", number(r->pages));
	put(o, "touched_percent", v->touched < 0 ? NULL : real(100 * v->touched));
	put(o, "uses_per_page", real(v->reuse));
	put(o, "faults_per_page", real(v->refaults));
	put(o, "stretch_bytes", real(v->run));
	put(o, "pattern", text(advise_pattern_keys[v->pattern]));
	put(o, "fault_ns", r->fault_ns_known ? number(r->fault_ns) : NULL);
	put(o, "counters", counters_json(r));
	if (r->look_seconds > 0) {
		put(o, "lately_accesses_per_s", real((double)r->look_accesses / r->look_seconds));
		put(o, "lately_faults_per_s", real((double)r->look_faults / r->look_seconds));
		put(o, "lately_invalidations_per_s", real((double)r->look_invalidations / r->look_seconds));
	}
	return o;
}

static json_object *region_json(const struct advise_verdict *v)
{
	const struct advise_region *r = v->region;
	json_object *o = json_object_new_object(), *gain = json_object_new_object();
	char words[ADVISE_WORDS];

	put(o, "kind",
		text(r->kind == UNPIN_REGION_PINNED   ? "pinned"
			: r->kind == UNPIN_REGION_ODP ? "odp"
						      : "implicit"));
	put(o, "address", address(r->addr));
	put(o, "length_bytes", number(r->length));
	put(o, "addresses", number(r->places));
	put(o, "registered", json_object_new_boolean(r->live));
	put(o, "registrations", number(r->times));
	put(o, "register_ns", number(r->register_ns));
	put(o, "registered_for_ns", number(r->lived_ns));
	put(o, "seen", seen_json(v));
	put(o, "should_be", text(advise_should_keys[v->should]));
	if (v->should == ADVISE_ONCE)
		put(o, "once_as", text(advise_should_keys[v->as]));
	put(o, "same", json_object_new_boolean(v->same));
	put(o, "reason", text(advise_why_keys[v->why]));
	put(o, "because", text(advise_because(words, v)));
	put(o, "hot", hot_json(v));
	put(gain, "register_ns", real(v->register_ns));
	put(gain, "locked_bytes", real(v->locked_bytes));
	put(gain, "fault_ns", real(v->fault_ns));
	put(o, "gain", gain);
	put(o, "lines", lines_json(v));
	return o;
}

static json_object *process_json(const struct advise_facts *f, const struct advise_costs *c)
{
	struct advise_verdict *v = advise_judge_all(f, c);
	json_object *o = json_object_new_object(), *list = json_object_new_array();

	put(o, "pid", json_object_new_int64(f->pid));
	put(o, "command", text(f->command));
	put(o, "device", text(f->device));
	put(o, "running", json_object_new_boolean(f->running));
	put(o, "seconds", real(f->seconds));
	put(o, "watched_seconds", real(f->look_seconds));
	put(o, "registrations", number(f->registrations));
	put(o, "register_ns", number(f->register_ns));
	put(o, "registrations_forgotten", number(f->forgotten));
	put(o, "events_dropped", number(f->dropped));
	for (size_t i = 0; i < f->regions; i++)
		json_object_array_add(list, region_json(&v[i]));
	put(o, "regions", list);
	free(v);
	return o;
}

static json_object *costs_json(const struct advise_costs *c)
{
	json_object *o = json_object_new_object();

	put(o, "from", text(c->from));
	put(o, "pin_page_ns", c->pin_page > 0 ? real(c->pin_page) : NULL);
	put(o, "populate_page_ns", c->populate_page > 0 ? real(c->populate_page) : NULL);
	put(o, "fault_page_ns", c->fault_page > 0 ? real(c->fault_page) : NULL);
	put(o, "register_call_ns", c->register_call > 0 ? real(c->register_call) : NULL);
	put(o, "register_call_assumed", json_object_new_boolean(c->register_assumed));
	return o;
}

int advise_json(FILE *out, const struct advise_crowd *crowd, const struct advise_costs *c)
{
	json_object *o = json_object_new_object(), *list = json_object_new_array();
	const char *s;

	put(o, "unpin", text(UNPIN_VERSION));
	put(o, "costs", costs_json(c));
	for (size_t i = 0; i < crowd->count; i++)
		json_object_array_add(list, process_json(&crowd->facts[i], c));
	put(o, "processes", list);
	s = json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED);
	fprintf(out, "%s\n", s ? s : "null");
	json_object_put(o);
	return fflush(out) || ferror(out) || !s ? -EIO : 0;
}

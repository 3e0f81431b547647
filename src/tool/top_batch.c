/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Views as lines for logs, and as JSON. */
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "tool/output.h"
#include "tool/top.h"

static const char *const odp_names[TOP_ODP_COUNTERS] = {
#define X(field, name, what) [TOP_ODP_##field] = name,
	UNPIN_ODP_COUNTERS(X)
#undef X
};
static const char *const dev_names[TOP_DEV_COUNTERS] = {
#define X(field, name, what) [TOP_DEV_##field] = name,
	UNPIN_DEVICE_COUNTERS(X)
#undef X
};

static double wall_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* --- JSON ------------------------------------------------------------------------------------------------
 */

static void add(json_object *o, const char *key, json_object *value)
{
	json_object_object_add(o, key, value);
}

/* Three places are enough, and short. Not known: null. */
static json_object *real(double v)
{
	char text[32];

	if (v < 0)
		return NULL;
	snprintf(text, sizeof(text), "%.3f", v);
	return json_object_new_double_s(v, text);
}

static json_object *number(uint64_t v)
{
	return v == TOP_UNKNOWN ? NULL : json_object_new_uint64(v);
}

static json_object *text(const char *s)
{
	return json_object_new_string(s);
}

static json_object *rates_json(const char *const *names, const double *rate, int n)
{
	json_object *o = json_object_new_object();

	for (int i = 0; i < n; i++)
		add(o, names[i], real(rate[i]));
	return o;
}

static json_object *time_json(const struct top_view *v)
{
	json_object *o = json_object_new_object();

	add(o, "waiting_ns", number(v->time.waited));
	add(o, "io_ns", number(v->time.reads));
	add(o, "driver_ns", number(v->time.work));
	add(o, "resume_ns", number(v->time.resume));
	add(o, "io_events_per_s", real(v->read_events));
	add(o, "mostly", text(top_verdict(&v->time)));
	return o;
}

static json_object *system_json(const struct top_view *v)
{
	const struct top_system *s = &v->frame->system;
	json_object *o = json_object_new_object();

	add(o, "majflt_per_s", real(v->majflt));
	add(o, "minflt_per_s", real(v->minflt));
	add(o, "rss_bytes", number(s->rss));
	add(o, "swap_bytes", number(s->swap));
	add(o, "locked_bytes", number(s->locked));
	add(o, "pinned_bytes", number(s->pinned));
	add(o, "swap_in_per_s", real(v->swap_in));
	add(o, "swap_out_per_s", real(v->swap_out));
	add(o, "stall_some_percent", real(v->psi_some));
	add(o, "stall_full_percent", real(v->psi_full));
	add(o, "stall_of", text(s->psi_of_group ? "cgroup" : "machine"));
	add(o, "cgroup_bytes", number(s->of_machine ? TOP_UNKNOWN : s->group_used));
	add(o, "cgroup_limit_bytes", number(s->of_machine ? TOP_UNKNOWN : s->group_limit));
	if (s->of_machine) {
		add(o, "memory_used_bytes", number(s->group_used));
		add(o, "memory_bytes", number(s->group_limit));
	}
	return o;
}

static json_object *residency_json(const struct top_residency *r)
{
	json_object *o = json_object_new_object(), *strip = json_object_new_array();

	add(o, "pages_asked", number(r->asked));
	add(o, "present", number(r->present));
	add(o, "swapped", number(r->swapped));
	for (unsigned i = 0; i < TOP_STRIP; i++)
		json_object_array_add(strip, number(r->share[i]));
	add(o, "strip_percent", strip);
	return o;
}

static json_object *region_json(const struct top_region_view *v)
{
	const struct top_region *r = v->region;
	json_object *o = json_object_new_object();

	add(o, "kind", text(top_kind_name(r->kind)));
	add(o, "address", number(r->addr));
	add(o, "length_bytes", json_object_new_uint64(r->length));
	add(o, "lkey", number(r->lkey));
	add(o, "heat", text(top_heat_names[v->heat]));
	add(o, "page_faults_per_s", real(v->faults));
	add(o, "faults_major_per_s", real(v->majors));
	add(o, "page_invalidations_handled_per_s", real(v->invalidations));
	add(o, "page_prefetch_per_s", real(v->prefetched));
	add(o, "page_readahead_per_s", real(v->ahead));
	add(o, "bytes_in_per_s", real(v->bytes_in));
	add(o, "bytes_out_per_s", real(v->bytes_out));
	add(o, "residency", r->residency.known ? residency_json(&r->residency) : NULL);
	return o;
}

static json_object *qp_json(const struct top_qp_view *v)
{
	const struct top_qp *q = v->qp;
	json_object *o = json_object_new_object();

	add(o, "number", number(q->number));
	add(o, "state", text(top_qp_state_name(q->state)));
	add(o, "peer", number(q->peer));
	add(o, "outstanding", number(q->outstanding));
	add(o, "receives", number(q->receives));
	add(o, "waiting_ns", number(v->waits_ns));
	add(o, "waits", number(q->parkings));
	add(o, "waits_per_s", real(v->parkings));
	add(o, "retransmits", number(q->retransmits));
	add(o, "rnr_naks", number(q->rnr_naks));
	return o;
}

/* --- JSON of a device of the kernel ----------------------------------------------------------------------
 */

/* A number that may be not told. */
static json_object *told(uint32_t v, uint32_t not_told)
{
	return v == not_told ? NULL : json_object_new_uint64(v);
}

static void add_owner(json_object *o, const struct top_owner *owner)
{
	add(o, "pid", told(owner->pid, 0));
	add(o, "command", *owner->command ? text(owner->command) : NULL);
	add(o, "protection_domain", told(owner->pd, TOP_NONE));
}

static json_object *kernel_region_json(const struct top_region_view *v)
{
	const struct top_region *r = v->region;
	json_object *o = json_object_new_object(), *counters = json_object_new_object();

	add(o, "number", told(r->row, TOP_NONE));
	add(o, "kind", r->kind == UNPIN_REGION_NONE ? NULL : text(top_kind_name(r->kind)));
	add(o, "address", number(r->addr));
	add(o, "length_bytes", json_object_new_uint64(r->length));
	add(o, "lkey", r->keys_told ? number(r->lkey) : NULL);
	add(o, "rkey", r->keys_told ? number(r->rkey) : NULL);
	add_owner(o, &r->owner);
	add(o, "driver", *r->details ? text(r->details) : NULL);
	add(o, "heat", v->heat == TOP_HEAT_UNKNOWN ? NULL : text(top_heat_names[v->heat]));
	for (int i = 0; i < TOP_ODP_COUNTERS; i++)
		if (r->odp[i] != TOP_UNKNOWN)
			add(counters, odp_names[i], number(r->odp[i]));
	add(o, "counters", counters);
	add(o, "page_faults_per_s", real(v->faults));
	add(o, "page_invalidations_handled_per_s", real(v->invalidations));
	add(o, "page_prefetch_per_s", real(v->prefetched));
	return o;
}

static json_object *kernel_qp_json(const struct top_qp_view *v)
{
	const struct top_qp *q = v->qp;
	json_object *o = json_object_new_object();

	add(o, "number", number(q->number));
	add(o, "type", q->type == TOP_NONE ? NULL : text(top_qp_type_name(q->type)));
	add(o, "state", q->state == TOP_NONE ? NULL : text(top_qp_state_name(q->state)));
	add(o, "peer", told(q->peer, TOP_NONE));
	add(o, "port", told(q->port, TOP_NONE));
	add_owner(o, &q->owner);
	add(o, "retransmits", number(q->retransmits));
	add(o, "rnr_naks", number(q->rnr_naks));
	add(o, "retries_per_s", real(v->retries));
	return o;
}

static json_object *slow_json(const struct top_slow_view *v)
{
	json_object *o = json_object_new_object();
	char why[TOP_WORDS];

	add(o, "address", number(v->slow->addr));
	add(o, "pages", number(v->slow->pages));
	add(o, "region", v->region ? number(v->region->addr) : NULL);
	add(o, "took_ns", number(v->took_ns));
	add(o, "waited_ns", number(v->slow->waited_ns));
	add(o, "resolved_ns", number(v->slow->resolved_ns));
	add(o, "ago_ns", number(v->ago_ns));
	add(o, "reads", number(v->slow->reads));
	add(o, "why", text(top_why(why, v->slow)));
	return o;
}

#define LIST(key, list, count, convert)                                                                      \
	do {                                                                                                 \
		json_object *array = json_object_new_array();                                                \
		for (size_t i = 0; i < v->count; i++)                                                        \
			json_object_array_add(array, convert(&v->list[i]));                                  \
		add(o, key, array);                                                                          \
	} while (0)

static json_object *known_rates_json(const struct top_view *v)
{
	json_object *o = json_object_new_object();

	for (int i = 0; i < TOP_ODP_COUNTERS; i++)
		if (v->odp[i] >= 0)
			add(o, odp_names[i], real(v->odp[i]));
	return o;
}

static void print_kernel_json(const struct top_view *v)
{
	const struct top_frame *f = v->frame;
	json_object *o = json_object_new_object(), *totals = json_object_new_object(),
		    *rates = json_object_new_object();

	add(o, "time", real(wall_clock()));
	add(o, "seconds", real(v->seconds));
	add(o, "device", text(f->device));
	add(o, "kernel", json_object_new_boolean(true));
	add(o, "firmware", *f->firmware ? text(f->firmware) : NULL);
	add(o, "pid", told((uint32_t)f->pid, 0));
	add(o, "command", *f->command ? text(f->command) : NULL);
	add(o, "not_told", *f->trouble ? text(f->trouble) : NULL);
	for (size_t i = 0; i < v->counters; i++) {
		add(totals, v->counter[i].counter->name,
			json_object_new_uint64(v->counter[i].counter->value));
		add(rates, v->counter[i].counter->name, real(v->counter[i].rate));
	}
	add(o, "counters", totals);
	add(o, "per_s", rates);
	add(o, "odp_per_s", known_rates_json(v));
	add(o, "system", system_json(v));
	LIST("regions", region, regions, kernel_region_json);
	LIST("queue_pairs", qp, qps, kernel_qp_json);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
	json_object_put(o);
}

void top_print_json(const struct top_view *v)
{
	const struct top_frame *f = v->frame;
	json_object *o;

	if (f->kernel) {
		print_kernel_json(v);
		return;
	}
	o = json_object_new_object();
	add(o, "time", real(wall_clock()));
	add(o, "seconds", real(v->seconds));
	add(o, "pid", number((uint64_t)f->pid));
	add(o, "command", text(f->command));
	add(o, "device", text(f->device));
	add(o, "profile", text(f->profile));
	add(o, "odp_per_s", rates_json(odp_names, v->odp, TOP_ODP_COUNTERS));
	add(o, "counters_per_s", rates_json(dev_names, v->dev, TOP_DEV_COUNTERS));
	add(o, "fault_time", time_json(v));
	add(o, "storm", json_object_new_boolean(f->storm != UNPIN_STORM_NONE));
	add(o, "device_pinned_bytes", number(f->pinned_bytes));
	add(o, "page_table_bytes", number(f->table_bytes));
	add(o, "system", system_json(v));
	LIST("regions", region, regions, region_json);
	LIST("queue_pairs", qp, qps, qp_json);
	LIST("slowest", slow, slows, slow_json);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
	json_object_put(o);
}

/* --- lines -----------------------------------------------------------------------------------------------
 */

/* " name=12.3"; not known: left out. */
static void say(const char *name, double v)
{
	if (v >= 0)
		printf(" %s=%.6g", name, v);
}

static void say_bytes(const char *name, uint64_t v)
{
	if (v != TOP_UNKNOWN)
		printf(" %s=%" PRIu64, name, v);
}

static void print_device(const struct top_view *v, const char *time)
{
	printf("%s device pid=%d command=%s name=%s", time, (int)v->frame->pid, v->frame->command,
		v->frame->device);
	say("faults/s", v->odp[TOP_ODP_page_faults]);
	say("majors/s", v->odp[TOP_ODP_faults_major]);
	say("invalidations/s", v->odp[TOP_ODP_page_invalidations_handled]);
	say("prefetch/s", v->odp[TOP_ODP_page_prefetch]);
	say("readahead/s", v->odp[TOP_ODP_page_readahead]);
	say("in_bytes/s", v->dev[TOP_DEV_rx_bytes]);
	say("out_bytes/s", v->dev[TOP_DEV_tx_bytes]);
	printf(" storm=%d\n", v->frame->storm != UNPIN_STORM_NONE);
	printf("%s fault-time waiting_ns=%" PRIu64 " io_ns=%" PRIu64 " driver_ns=%" PRIu64
	       " resume_ns=%" PRIu64,
		time, v->time.waited, v->time.reads, v->time.work, v->time.resume);
	say("io_events/s", v->read_events);
	printf(" mostly=\"%s\"\n", top_verdict(&v->time));
}

static void print_system(const struct top_view *v, const char *time)
{
	const struct top_system *s = &v->frame->system;

	printf("%s system", time);
	say("majflt/s", v->majflt);
	say("minflt/s", v->minflt);
	say_bytes("rss", s->rss);
	say_bytes("swap", s->swap);
	say("swap_in/s", v->swap_in);
	say("swap_out/s", v->swap_out);
	say("stall_some%", v->psi_some);
	say("stall_full%", v->psi_full);
	say_bytes(s->of_machine ? "memory_used" : "cgroup", s->group_used);
	say_bytes(s->of_machine ? "memory" : "cgroup_limit", s->group_limit);
	putchar('\n');
}

static void print_region(const struct top_region_view *v, const char *time)
{
	printf("%s region kind=%s address=0x%" PRIx64 " length=%" PRIu64 " heat=%s", time,
		top_kind_name(v->region->kind), v->region->addr, v->region->length, top_heat_names[v->heat]);
	say("resident%", top_resident(&v->region->residency));
	say("faults/s", v->faults);
	say("majors/s", v->majors);
	say("invalidations/s", v->invalidations);
	say("prefetch/s", v->prefetched);
	say("readahead/s", v->ahead);
	say("in_bytes/s", v->bytes_in);
	say("out_bytes/s", v->bytes_out);
	putchar('\n');
}

static void print_qp(const struct top_qp_view *v, const char *time)
{
	printf("%s qp number=0x%" PRIx32 " state=%s peer=0x%" PRIx32
	       " outstanding=%u receives=%u waiting_ns=%" PRIu64,
		time, v->qp->number, top_qp_state_name(v->qp->state), v->qp->peer, v->qp->outstanding,
		v->qp->receives, v->waits_ns);
	say("waits/s", v->parkings);
	say("retries/s", v->retries);
	putchar('\n');
}

static void print_slow(const struct top_slow_view *v, const char *time)
{
	char why[TOP_WORDS];

	printf("%s slow address=0x%" PRIx64 " took_ns=%" PRIu64 " waited_ns=%" PRIu64 " ago_ns=%" PRIu64,
		time, v->slow->addr, v->took_ns, v->slow->waited_ns, v->ago_ns);
	if (v->region)
		printf(" region=0x%" PRIx64, v->region->addr);
	printf(" reads=%" PRIu64 " why=\"%s\"\n", v->slow->reads, top_why(why, v->slow));
}

/* --- lines of a device of the kernel ---------------------------------------------------------------------
 */

static void say_owner(const struct top_owner *o)
{
	if (o->pid)
		printf(" pid=%" PRIu32, o->pid);
	if (*o->command)
		printf(" command=\"%s\"", o->command);
	if (o->pd != TOP_NONE)
		printf(" pd=%" PRIu32, o->pd);
}

static void print_kernel_region(const struct top_region_view *v, const char *time)
{
	const struct top_region *r = v->region;

	printf("%s region number=%" PRIu32, time, r->row);
	if (r->kind != UNPIN_REGION_NONE)
		printf(" kind=%s", top_kind_name(r->kind));
	if (r->addr != TOP_UNKNOWN)
		printf(" address=0x%" PRIx64, r->addr);
	printf(" length=%" PRIu64, r->length);
	if (r->keys_told)
		printf(" lkey=0x%" PRIx32, r->lkey);
	say_owner(&r->owner);
	if (v->heat != TOP_HEAT_UNKNOWN)
		printf(" heat=%s", top_heat_names[v->heat]);
	say("faults/s", v->faults);
	say("invalidations/s", v->invalidations);
	say("prefetch/s", v->prefetched);
	putchar('\n');
}

static void print_kernel_qp(const struct top_qp_view *v, const char *time)
{
	printf("%s qp number=0x%" PRIx32, time, v->qp->number);
	if (v->qp->type != TOP_NONE)
		printf(" type=%s", top_qp_type_name(v->qp->type));
	if (v->qp->state != TOP_NONE)
		printf(" state=%s", top_qp_state_name(v->qp->state));
	if (v->qp->peer != TOP_NONE)
		printf(" peer=0x%" PRIx32, v->qp->peer);
	say_owner(&v->qp->owner);
	say("retries/s", v->retries);
	putchar('\n');
}

static void print_kernel_lines(const struct top_view *v, const char *time)
{
	printf("%s device name=%s", time, v->frame->device);
	say("faults/s", v->odp[TOP_ODP_page_faults]);
	say("invalidations/s", v->odp[TOP_ODP_page_invalidations_handled]);
	say("prefetch/s", v->odp[TOP_ODP_page_prefetch]);
	say("in_bytes/s", v->dev[TOP_DEV_rx_bytes]);
	say("out_bytes/s", v->dev[TOP_DEV_tx_bytes]);
	putchar('\n');
	print_system(v, time);
	for (size_t i = 0; i < v->regions; i++)
		print_kernel_region(&v->region[i], time);
	for (size_t i = 0; i < v->qps; i++)
		print_kernel_qp(&v->qp[i], time);
	for (size_t i = 0; i < v->counters; i++)
		printf("%s kernel name=%s counter=%s total=%" PRIu64 " per_s=%.6g\n", time, v->frame->device,
			v->counter[i].counter->name, v->counter[i].counter->value, v->counter[i].rate);
}

void top_print_lines(const struct top_view *v)
{
	char time[32];

	snprintf(time, sizeof(time), "%.3f", wall_clock());
	if (v->frame->kernel) {
		print_kernel_lines(v, time);
		return;
	}
	print_device(v, time);
	print_system(v, time);
	for (size_t i = 0; i < v->regions; i++)
		print_region(&v->region[i], time);
	for (size_t i = 0; i < v->qps; i++)
		print_qp(&v->qp[i], time);
	for (size_t i = 0; i < v->slows; i++)
		print_slow(&v->slow[i], time);
}

int top_batch(struct top_watch *w, bool json, uint64_t count)
{
	const struct top_view *v;
	uint64_t shown = 0;

	while (!count || shown < count) {
		int got = top_next(w, 1000, &v);

		if (got < 0) {
			log_info("top: %s", got == -ESRCH ? "the process has ended" : top_trouble(w, got));
			/* It was watched as long as there was something to watch. */
			return got == -ESRCH || got == -ENODEV ? 0 : 1;
		}
		if (!got)
			continue;
		(json ? top_print_json : top_print_lines)(v);
		if (output_flush())
			return 1;
		shown++;
	}
	return 0;
}

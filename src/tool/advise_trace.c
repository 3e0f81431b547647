/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Timelines: facts from the events "region", "past_region" and "region_end" (nic/usage.c), of which the last
 * one about a region or range counts, and the time of page faults from the events "fault". A file is gone
 * through twice, since a region is told of after its faults.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/trace_spool.h"
#include "tool/advise.h"
#include "tool/advise_event.h"
#include "tool/alloc.h"
#include "tool/units.h"

/* A file may be hostile: more than a device can have is not taken. */
#define RECORDS_MOST   ((size_t)2 * UNPIN_SEGMENT_REGIONS)
#define PROCESSES_MOST 1024u
#define FLIGHTS	       1024u /* fault events that are open at once, by their numbers' low bits */

/* What the file says of one region (past: of a range that was registered). */
struct record {
	int64_t pid;
	bool past, ended;
	uint64_t id[2]; /* key and time of registration; number of the range */
	uint64_t registered_ns;
	struct advise_region region;
};

struct process {
	int64_t pid;
	char command[64];
	double last_us; /* of its events */
	uint64_t dropped;
};

struct flight {
	uint64_t id;
	int64_t pid;
	double begin_us;
	uint64_t addr;
};

/* Regions by address, to find that of a fault. */
struct place {
	int64_t pid;
	uint64_t addr;
	size_t record;
};

struct reader {
	struct record *record;
	size_t records, room, refused;
	size_t *slot; /* a hash table of indices + 1 */
	size_t slots;
	struct process *process;
	size_t processes;
	double first_us, last_us;
	struct flight *flight;
	struct place *place;
};

/* --- processes and records
 * ----------------------------------------------------------------------------------- */

/* NULL: there are too many. */
static struct process *process_of(struct reader *t, int64_t pid)
{
	for (size_t i = t->processes; i-- > 0;)
		if (t->process[i].pid == pid)
			return &t->process[i];
	if (t->processes == PROCESSES_MOST)
		return NULL;
	t->process = alloc_grow(t->process, t->processes + 1, sizeof(*t->process));
	memset(&t->process[t->processes], 0, sizeof(*t->process));
	t->process[t->processes].pid = pid;
	return &t->process[t->processes++];
}

static size_t hash_of(int64_t pid, bool past, const uint64_t id[2])
{
	uint64_t x = (uint64_t)pid * 2 + past;

	for (int i = 0; i < 2; i++)
		x = ((x ^ id[i]) * 0x9e3779b97f4a7c15ull) ^ x >> 29;
	return (size_t)(x ^ x >> 32);
}

static bool is_record(const struct record *r, int64_t pid, bool past, const uint64_t id[2])
{
	return r->pid == pid && r->past == past && r->id[0] == id[0] && r->id[1] == id[1];
}

/* Where the record's index + 1 stands or belongs. */
static size_t *slot_of(struct reader *t, int64_t pid, bool past, const uint64_t id[2])
{
	size_t at = hash_of(pid, past, id) & (t->slots - 1);

	while (t->slot[at] && !is_record(&t->record[t->slot[at] - 1], pid, past, id))
		at = (at + 1) & (t->slots - 1);
	return &t->slot[at];
}

static void make_room(struct reader *t)
{
	if (t->records < t->room)
		return;
	t->room = t->room ? 2 * t->room : 256;
	t->record = alloc_grow(t->record, t->room, sizeof(*t->record));
	free(t->slot);
	t->slots = 2 * t->room;
	t->slot = alloc_array(t->slots, sizeof(*t->slot));
	for (size_t i = 0; i < t->records; i++) {
		struct record *r = &t->record[i];

		*slot_of(t, r->pid, r->past, r->id) = i + 1;
	}
}

/* The record of that name, a new one if there is none; NULL: there are too many, or (make false) none. */
static struct record *record_of(struct reader *t, int64_t pid, bool past, const uint64_t id[2], bool make)
{
	size_t *slot;

	if (make)
		make_room(t);
	if (!t->slots)
		return NULL;
	slot = slot_of(t, pid, past, id);
	if (*slot)
		return &t->record[*slot - 1];
	if (!make)
		return NULL;
	if (t->records == RECORDS_MOST) {
		t->refused++;
		return NULL;
	}
	memset(&t->record[t->records], 0, sizeof(t->record[0]));
	t->record[t->records].pid = pid;
	t->record[t->records].past = past;
	memcpy(t->record[t->records].id, id, sizeof(t->record[0].id));
	*slot = ++t->records;
	return &t->record[t->records - 1];
}

/* --- events of regions
 * --------------------------------------------------------------------------------------- */

static void on_region(struct reader *t, int64_t pid, json_object *args)
{
	const uint64_t id[2] = { advise_number(args, "key"), advise_number(args, "registered_ns") };
	struct advise_region region;
	struct record *r;

	if (!advise_event_region(&region, args))
		return;
	r = record_of(t, pid, false, id, true);
	if (!r || r->ended)
		return;
	r->region = region;
	r->region.live = true;
	r->region.times = 1;
	r->registered_ns = id[1];
}

static void on_region_end(struct reader *t, int64_t pid, json_object *args)
{
	const uint64_t id[2] = { advise_number(args, "key"), advise_number(args, "registered_ns") };
	struct record *r = record_of(t, pid, false, id, false);

	if (r)
		r->ended = true;
}

static void on_past(struct reader *t, int64_t pid, json_object *args)
{
	const uint64_t id[2] = { advise_number(args, "number"), 0 };
	struct advise_region region;
	struct record *r;

	if (!advise_event_region(&region, args) || !advise_number(args, "times"))
		return;
	r = record_of(t, pid, true, id, true);
	if (!r)
		return;
	r->region = region;
	r->region.times = advise_number(args, "times");
	r->region.lived_ns = advise_number(args, "lived_ns");
}

static void on_name(struct reader *t, int64_t pid, json_object *args)
{
	struct process *p = process_of(t, pid);

	if (!p)
		return;
	snprintf(p->command, sizeof(p->command), "%s", advise_text(args, "name"));
	for (char *at = p->command; *at; at++)
		if (!isprint((unsigned char)*at))
			*at = '?';
}

static void on_dropped(struct reader *t, int64_t pid, json_object *args)
{
	struct process *p = process_of(t, pid);

	if (p)
		p->dropped = advise_number(args, "dropped");
}

static const struct {
	const char *name;
	void (*on)(struct reader *t, int64_t pid, json_object *args);
} kinds[] = {
	{ "region", on_region },
	{ "region_end", on_region_end },
	{ "past_region", on_past },
	{ "process_name", on_name },
	{ "dropped_events", on_dropped },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Cheaply, since most events are others. */
static bool may_be(const char *event)
{
	return strstr(event, "region") || strstr(event, "process_name") || strstr(event, "dropped_events");
}

/* The time of an event without parsing it. */
static double quick_time(const char *event)
{
	const char *at = strstr(event, "\"ts\"");
	double d = -1;

	if (at)
		at = strchr(at, ':');
	if (at)
		d = strtod(at + 1, NULL);
	return d > 0 && d < 1e15 ? d : -1;
}

static int first_pass(void *arg, char *event, size_t length)
{
	struct reader *t = arg;
	double us = quick_time(event);
	json_object *o, *args;
	struct process *p;
	const char *name;

	(void)length;
	if (us >= 0) {
		t->first_us = t->first_us < 0 || us < t->first_us ? us : t->first_us;
		t->last_us = us > t->last_us ? us : t->last_us;
	}
	if (!may_be(event))
		return 0;
	o = json_tokener_parse(event);
	name = advise_text(o, "name");
	args = advise_member(o, "args");
	for (size_t i = 0; i < COUNT(kinds); i++) {
		if (strcmp(kinds[i].name, name) != 0)
			continue;
		kinds[i].on(t, (int64_t)advise_number(o, "pid"), args);
		p = process_of(t, (int64_t)advise_number(o, "pid"));
		if (p && us > p->last_us)
			p->last_us = us;
	}
	json_object_put(o);
	return 0;
}

/* Microseconds; < 0: there are none. */
static double time_us(json_object *event)
{
	json_object *v = advise_member(event, "ts");
	double d = v && (json_object_is_type(v, json_type_double) || json_object_is_type(v, json_type_int))
			   ? json_object_get_double(v)
			   : -1;

	return d >= 0 && d < 1e15 ? d : -1;
}

/* --- time of page faults
 * ------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void sort_places(struct reader *t)
{
	t->place = alloc_array(t->records + 1, sizeof(*t->place));
	for (size_t i = 0; i < t->records; i++)
		t->place[i] = (struct place){ t->record[i].pid, t->record[i].region.addr, i };
	qsort(t->place, t->records, sizeof(*t->place), by_place);
}

/* Places up to pid's address, at or below it. */
static size_t places_below(const struct reader *t, int64_t pid, uint64_t addr)
{
	const struct place key = { pid, addr, 0 };
	size_t low = 0, high = t->records;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (by_place(&t->place[mid], &key) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

#define OVERLAPS 64u /* places that are looked at, from the address downwards */

/* The smallest region over the address; an implicit one (address 0) stands first of its process. */
static struct record *record_over(struct reader *t, int64_t pid, uint64_t addr)
{
	size_t end = places_below(t, pid, addr), at = end, first = places_below(t, pid, 0);
	struct record *best = NULL;

	for (unsigned i = 0; at > 0 && i < OVERLAPS; i++) {
		struct record *r = &t->record[t->place[--at].record];

		if (r->pid != pid)
			break;
		if (addr - r->region.addr < r->region.length &&
			(!best || r->region.length < best->region.length))
			best = r;
	}
	if (!best && first && t->record[t->place[first - 1].record].pid == pid)
		best = &t->record[t->place[first - 1].record];
	return best;
}

static int second_pass(void *arg, char *event, size_t length)
{
	struct reader *t = arg;
	struct flight *f;
	struct record *r;
	json_object *o;
	uint64_t id;
	double us;

	(void)length;
	if (!strstr(event, "\"fault\""))
		return 0;
	o = json_tokener_parse(event);
	id = advise_number(o, "id");
	us = time_us(o);
	f = &t->flight[id % FLIGHTS];
	if (strcmp(advise_text(o, "name"), "fault") != 0 || us < 0) {
		json_object_put(o);
		return 0;
	}
	if (strcmp(advise_text(o, "ph"), "b") == 0) {
		*f = (struct flight){ id, (int64_t)advise_number(o, "pid"), us,
			advise_number(advise_member(o, "args"), "addr") };
	} else if (strcmp(advise_text(o, "ph"), "e") == 0 && f->id == id &&
		   f->pid == (int64_t)advise_number(o, "pid") && us >= f->begin_us) {
		r = record_over(t, f->pid, f->addr);
		if (r)
			r->region.fault_ns += units_whole((us - f->begin_us) * 1000);
		f->id = UINT64_MAX;
	}
	json_object_put(o);
	return 0;
}

/* --- the result
 * ---------------------------------------------------------------------------------------------- */

static struct advise_facts *facts_of(struct advise_crowd *crowd, int64_t pid)
{
	for (size_t i = 0; i < crowd->count; i++)
		if (crowd->facts[i].pid == pid)
			return &crowd->facts[i];
	crowd->facts = alloc_grow(crowd->facts, crowd->count + 1, sizeof(*crowd->facts));
	memset(&crowd->facts[crowd->count], 0, sizeof(*crowd->facts));
	crowd->facts[crowd->count].pid = pid;
	return &crowd->facts[crowd->count++];
}

/* Faults happened, but the timeline has none of them: nobody knows what they took. */
static bool fault_time_known(const struct advise_region *r)
{
	return r->fault_ns || !r->odp[ADVISE_page_faults];
}

static void deliver_record(struct reader *t, struct advise_crowd *crowd, const struct record *r)
{
	struct process *p = process_of(t, r->pid);
	struct advise_facts *f;
	struct advise_region *region;

	/* What has ended is in its range's numbers. */
	if (r->ended || !p)
		return;
	f = facts_of(crowd, r->pid);
	region = advise_add(f);
	*region = r->region;
	region->fault_ns_known = fault_time_known(region);
	if (!r->past) {
		double lived = p->last_us * 1000 - (double)r->registered_ns;

		region->lived_ns = units_whole(lived);
	}
	memcpy(f->command, p->command, sizeof(f->command));
	f->dropped = p->dropped;
	f->seconds = t->last_us > t->first_us ? (t->last_us - t->first_us) / 1e6 : 0;
	f->registrations += region->times;
	f->register_ns += region->register_ns;
}

static int pass(struct reader *t, FILE *f, int (*each)(void *arg, char *text, size_t length),
	enum advise_scan_end *end, uint64_t *passed)
{
	rewind(f);
	return advise_scan(f, each, t, end, passed);
}

/* What was recorded is beside it still. */
static bool is_unfinished(const char *path)
{
	char spool[PATH_MAX];

	return snprintf(spool, sizeof(spool), "%s" TRACE_SPOOL_SUFFIX, path) < (int)sizeof(spool) &&
	       access(spool, F_OK) == 0;
}

static int read_file(struct reader *t, FILE *f, const char *path)
{
	enum advise_scan_end end;
	uint64_t passed;
	struct stat st;
	int err = 0;

	if (fstat(fileno(f), &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -ESPIPE;
	if (!err)
		err = pass(t, f, first_pass, &end, &passed);
	if (err) {
		log_error("advise: cannot read %s: %s", path,
			err == -ESPIPE ? "it is no ordinary file" : strerror(-err));
		return err;
	}
	if (end == ADVISE_SCAN_NO_JSON) {
		log_error("advise: %s is no timeline (unpin run --trace FILE writes one)", path);
		return -EINVAL;
	}
	if (!t->records) {
		log_error("advise: %s has no memory regions in it: %s", path,
			is_unfinished(path)
				? "its process still runs, or was killed; 'unpin trace' finishes it"
			: end == ADVISE_SCAN_CUT
				? "it is cut off before the first"
				: "the program registered none, or another version of unpin wrote it");
		return -ENODATA;
	}
	if (is_unfinished(path))
		log_warn("advise: %s is not finished: its process still runs, or was killed ('unpin trace' "
			 "finishes it)",
			path);
	if (end == ADVISE_SCAN_CUT)
		log_warn("advise: %s is cut off: the advice is from what is there", path);
	if (passed || t->refused)
		log_warn("advise: %s: %" PRIu64 " events were passed over", path, passed + t->refused);
	sort_places(t);
	return pass(t, f, second_pass, &end, &passed);
}

int advise_trace(struct advise_crowd *crowd, const char *path)
{
	struct reader t = { .first_us = -1 };
	FILE *f = fopen(path, "re");
	int err;

	if (!f) {
		err = -errno;
		log_error("advise: cannot read %s: %s", path, strerror(-err));
		return err;
	}
	t.flight = alloc_array(FLIGHTS, sizeof(*t.flight));
	err = read_file(&t, f, path);
	fclose(f);
	for (size_t i = 0; !err && i < t.records; i++)
		deliver_record(&t, crowd, &t.record[i]);
	free(t.record);
	free(t.slot);
	free(t.process);
	free(t.flight);
	free(t.place);
	return err;
}

void advise_crowd_free(struct advise_crowd *crowd)
{
	for (size_t i = 0; i < crowd->count; i++)
		advise_facts_free(&crowd->facts[i]);
	free(crowd->facts);
	memset(crowd, 0, sizeof(*crowd));
}

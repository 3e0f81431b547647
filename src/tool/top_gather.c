/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* One look at a process: its segment, and what the kernel says of it in /proc and /sys. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tool/alloc.h"
#include "tool/attach.h"
#include "tool/top.h"

#define PAGE_ENTRIES 4096u /* regions of up to so many pages are asked for all of them */
#define SAMPLES	     256u  /* of larger ones so many pages */

static uint64_t get64(const _Atomic uint64_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

static uint32_t get32(const _Atomic uint32_t *v)
{
	return atomic_load_explicit(v, memory_order_relaxed);
}

void top_frame_free(struct top_frame *f)
{
	free(f->region);
	free(f->qp);
	free(f->counter);
	memset(f, 0, sizeof(*f));
}

/* --- the segment -----------------------------------------------------------------------------------------
 */

static void take_odp(uint64_t out[TOP_ODP_COUNTERS], const struct unpin_odp_counters *c)
{
#define X(field, name, what) out[TOP_ODP_##field] = get64(&c->field);
	UNPIN_ODP_COUNTERS(X)
#undef X
}

static void take_dev(uint64_t out[TOP_DEV_COUNTERS], const struct unpin_device_counters *c)
{
#define X(field, name, what) out[TOP_DEV_##field] = get64(&c->field);
	UNPIN_DEVICE_COUNTERS(X)
#undef X
}

static void take_regions(struct top_frame *f, const struct unpin_segment *s)
{
	uint32_t high = get32(&s->regions_high);

	f->region = alloc_array(high + 1, sizeof(*f->region));
	for (uint32_t i = 0; i < high; i++) {
		const struct unpin_segment_region *r = &s->region[i];
		struct top_region *to = &f->region[f->regions];

		if (get32(&r->kind) == UNPIN_REGION_NONE)
			continue;
		to->row = i;
		to->kind = get32(&r->kind);
		to->addr = get64(&r->addr);
		to->length = get64(&r->length);
		to->lkey = get32(&r->lkey);
		to->access = get32(&r->access);
		take_odp(to->odp, &r->odp);
		f->regions++;
	}
}

static void take_qps(struct top_frame *f, const struct unpin_segment *s)
{
	uint32_t high = get32(&s->qps_high);

	f->qp = alloc_array(high + 1, sizeof(*f->qp));
	for (uint32_t i = 0; i < high; i++) {
		const struct unpin_segment_qp *q = &s->qp[i];

		if (!get32(&q->number))
			continue;
		f->qp[f->qps++] = (struct top_qp){
			.number = get32(&q->number),
			.state = get32(&q->state),
			.peer = get32(&q->peer),
			.outstanding = get32(&q->outstanding),
			.receives = get32(&q->receives),
			.parked = get32(&q->parked),
			.parked_since_ns = get64(&q->parked_since_ns),
			.parkings = get64(&q->parkings),
			.retransmits = get64(&q->retransmits),
			.rnr_naks = get64(&q->rnr_naks),
		};
	}
}

static void take_slow(struct top_frame *f, const struct unpin_slow *s)
{
	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++) {
		const struct unpin_slow_fault *from = &s->fault[i];

		if (!get64(&from->ended_ns) || get64(&from->ended_ns) + UNPIN_SLOW_NS < f->at_ns)
			continue;
		f->slow[f->slows++] = (struct top_slow){
			.flags = get32(&from->flags),
			.ended_ns = get64(&from->ended_ns),
			.addr = get64(&from->addr),
			.pages = get64(&from->pages),
			.waited_ns = get64(&from->waited_ns),
			.resolved_ns = get64(&from->resolved_ns),
			.reads = get64(&from->reads),
		};
	}
}

static void take_time(struct top_time *t, const struct unpin_segment *s)
{
	uint64_t resolve = 0;

	for (int speed = 0; speed < 2; speed++) {
		t->waited += get64(&s->step_ns[speed][UNPIN_STEP_QUEUE].sum);
		resolve += get64(&s->step_ns[speed][UNPIN_STEP_RESOLVE].sum);
		t->resume += get64(&s->step_ns[speed][UNPIN_STEP_RESUME].sum);
	}
	t->reads = get64(&s->slow.read_ns);
	/* Read a moment before. */
	t->work = resolve > t->reads ? resolve - t->reads : 0;
}

static void take_segment(struct top_frame *f, const struct attach *a)
{
	const struct unpin_segment *s = a->copy;

	f->pid = a->pid;
	memcpy(f->command, a->command, sizeof(f->command));
	memcpy(f->device, s->device, sizeof(f->device));
	memcpy(f->profile, s->profile, sizeof(f->profile));
	memcpy(f->notifier, s->notifier, sizeof(f->notifier));
	memcpy(f->fault_mode, s->fault_mode, sizeof(f->fault_mode));
	memcpy(f->fault_reply, s->fault_reply, sizeof(f->fault_reply));
	f->start_ns = s->start_ns;
	f->pinned_bytes = get64(&s->pinned_bytes);
	f->table_bytes = get64(&s->odp_table_bytes);
	f->storm = get32(&s->storm.cause);
	f->storms = get64(&s->storm.count);
	f->read_events = get64(&s->slow.read_events);
	f->unreadable = a->unreadable;
	take_odp(f->odp, &s->odp);
	take_dev(f->dev, &s->dev);
	take_time(&f->time, s);
	take_regions(f, s);
	take_qps(f, s);
	take_slow(f, &s->slow);
}

/* --- the kernel ------------------------------------------------------------------------------------------
 */

static FILE *open_file(const char *root, const char *path)
{
	char full[1024];

	if (snprintf(full, sizeof(full), "%s%s", root, path) >= (int)sizeof(full))
		return NULL;
	return fopen(full, "re");
}

uint64_t top_number_behind(const char *root, const char *path, const char *word)
{
	size_t len = strlen(word);
	uint64_t v = TOP_UNKNOWN;
	char line[512];
	FILE *f = open_file(root, path);

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, word, len) == 0 && sscanf(line + len, "%" SCNu64, &v) == 1)
			break;
	if (f)
		fclose(f);
	return v;
}

static uint64_t kib_behind(const char *root, const char *path, const char *word)
{
	uint64_t v = top_number_behind(root, path, word);

	return v == TOP_UNKNOWN ? v : v << 10;
}

/* minflt and majflt: the tenth and the twelfth word of stat; the second may hold blanks and brackets. */
static void take_faults(struct top_system *s, pid_t pid, const char *root)
{
	char path[64], line[1024], *p = NULL;
	FILE *f;

	s->minflt = s->majflt = TOP_UNKNOWN;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = open_file(root, path);
	if (f && fgets(line, sizeof(line), f))
		p = strrchr(line, ')');
	if (p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %" SCNu64 " %*u %" SCNu64, &s->minflt,
			 &s->majflt) != 2)
		s->minflt = s->majflt = TOP_UNKNOWN;
	if (f)
		fclose(f);
}

static void take_memory(struct top_system *s, pid_t pid, const char *root)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	s->rss = kib_behind(root, path, "VmRSS:");
	s->locked = kib_behind(root, path, "VmLck:");
	s->pinned = kib_behind(root, path, "VmPin:");
	s->swap = kib_behind(root, path, "VmSwap:");
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" */
static bool take_stall(struct top_system *s, const char *root, const char *path)
{
	char line[256];
	FILE *f = open_file(root, path);
	bool any = false;

	while (f && fgets(line, sizeof(line), f)) {
		const char *total = strstr(line, "total=");
		uint64_t v;

		if (!total || sscanf(total, "total=%" SCNu64, &v) != 1)
			continue;
		if (strncmp(line, "some", 4) == 0)
			s->psi_some_us = v;
		else if (strncmp(line, "full", 4) == 0)
			s->psi_full_us = v;
		any = true;
	}
	if (f)
		fclose(f);
	return any;
}

#define GROUP_PATH 512

/* The memory group of a process, version 2 ("0::/path"), else version 1. Returns the version, 0: none. */
static int find_group(char group[GROUP_PATH], pid_t pid, const char *root)
{
	char path[64], line[GROUP_PATH];
	int version = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	f = open_file(root, path);
	while (f && fgets(line, sizeof(line), f)) {
		char *at = strchr(line, ':');
		int v = strncmp(line, "0::", 3) == 0 ? 2 : at && strncmp(at, ":memory:", 8) == 0 ? 1 : 0;

		line[strcspn(line, "\n")] = 0;
		if (!v || (version && v == 2))
			continue;
		strcpy(group, v == 2 ? line + 3 : at + 8);
		version = v;
	}
	if (f)
		fclose(f);
	return version;
}

/* The whole of a file that holds one number. "max" and version 1's huge value: no limit. */
static uint64_t lone_number(const char *root, const char *path)
{
	uint64_t v = top_number_behind(root, path, "");

	return v >= INT64_MAX / 2 ? TOP_UNKNOWN : v;
}

/* The nearest limit: of the group itself and of all above it. */
static void take_limits(struct top_system *s, const char *root, char *group, int version)
{
	static const struct {
		const char *mount, *used, *limit;
	} kind[] = {
		[1] = { "/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes" },
		[2] = { "/sys/fs/cgroup", "memory.current", "memory.max" },
	};
	char path[GROUP_PATH + 128];
	uint64_t left = UINT64_MAX;

	for (;;) {
		uint64_t used, limit;
		char *slash;

		snprintf(path, sizeof(path), "%s%s/%s", kind[version].mount, group, kind[version].used);
		used = lone_number(root, path);
		snprintf(path, sizeof(path), "%s%s/%s", kind[version].mount, group, kind[version].limit);
		limit = lone_number(root, path);
		if (used != TOP_UNKNOWN && s->group_used == TOP_UNKNOWN)
			s->group_used = used;
		if (used != TOP_UNKNOWN && limit != TOP_UNKNOWN && (limit > used ? limit - used : 0) < left) {
			left = limit > used ? limit - used : 0;
			s->group_used = used;
			s->group_limit = limit;
		}
		slash = strrchr(group, '/');
		if (!slash)
			return;
		*slash = 0;
	}
}

static void take_group(struct top_system *s, pid_t pid, const char *root)
{
	char group[GROUP_PATH], path[GROUP_PATH + 64];
	int version = find_group(group, pid, root);

	s->psi_some_us = s->psi_full_us = s->group_used = s->group_limit = TOP_UNKNOWN;
	if (version == 2) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.pressure", group);
		s->psi_of_group = take_stall(s, root, path);
	}
	if (!s->psi_of_group)
		take_stall(s, root, "/proc/pressure/memory");
	if (version)
		take_limits(s, root, group, version);
}

/* Counters of all processes, and the memory that is not available. */
static void take_machine(struct top_system *s, const char *root)
{
	uint64_t faults = top_number_behind(root, "/proc/vmstat", "pgfault ");
	uint64_t all = kib_behind(root, "/proc/meminfo", "MemTotal:");
	uint64_t available = kib_behind(root, "/proc/meminfo", "MemAvailable:");

	s->of_machine = true;
	s->majflt = top_number_behind(root, "/proc/vmstat", "pgmajfault ");
	s->minflt = faults != TOP_UNKNOWN && s->majflt != TOP_UNKNOWN && faults >= s->majflt
			    ? faults - s->majflt
			    : TOP_UNKNOWN;
	s->rss = s->locked = s->pinned = s->swap = TOP_UNKNOWN;
	s->psi_some_us = s->psi_full_us = TOP_UNKNOWN;
	take_stall(s, root, "/proc/pressure/memory");
	s->group_limit = all;
	s->group_used = all != TOP_UNKNOWN && available <= all ? all - available : TOP_UNKNOWN;
}

void top_system_read(struct top_system *s, pid_t pid, const char *root)
{
	memset(s, 0, sizeof(*s));
	s->swap_in = top_number_behind(root, "/proc/vmstat", "pswpin ");
	s->swap_out = top_number_behind(root, "/proc/vmstat", "pswpout ");
	if (!pid) {
		take_machine(s, root);
		return;
	}
	take_faults(s, pid, root);
	take_memory(s, pid, root);
	take_group(s, pid, root);
}

int top_frame_read(struct top_frame *f, pid_t pid, const char *root)
{
	struct attach a;
	int err;

	memset(f, 0, sizeof(*f));
	err = attach_open(&a, pid);
	if (err)
		return err;
	f->at_ns = clock_ns();
	take_segment(f, &a);
	attach_close(&a);
	top_system_read(&f->system, pid, root);
	return 0;
}

/* --- residency -------------------------------------------------------------------------------------------
 */

#define IN_MEMORY (1ull << 63)
#define IN_SWAP	  (1ull << 62)

struct tally {
	unsigned asked, present, swapped;
};

static bool ask(int fd, uint64_t page, uint64_t *entry, size_t n)
{
	return pread(fd, entry, n * sizeof(*entry), (off_t)(page * sizeof(*entry))) ==
	       (ssize_t)(n * sizeof(*entry));
}

static void tally(struct tally *t, uint64_t entry)
{
	t->asked++;
	t->present += !!(entry & IN_MEMORY);
	t->swapped += !(entry & IN_MEMORY) && (entry & IN_SWAP);
}

static void conclude(struct top_residency *r, const struct tally piece[TOP_STRIP])
{
	for (unsigned i = 0; i < TOP_STRIP; i++) {
		r->asked += piece[i].asked;
		r->present += piece[i].present;
		r->swapped += piece[i].swapped;
		r->share[i] = (uint8_t)(piece[i].asked ? piece[i].present * 100 / piece[i].asked : 0);
		/* A few of many are not none. */
		if (piece[i].present && !r->share[i])
			r->share[i] = 1;
		r->out[i] = piece[i].swapped > 0;
	}
	r->known = r->asked > 0;
}

/* All of its pages, in one go. */
static void ask_all(struct top_residency *r, int fd, uint64_t first, uint64_t pages)
{
	struct tally piece[TOP_STRIP] = { 0 };
	uint64_t entry[PAGE_ENTRIES];

	if (!ask(fd, first, entry, pages))
		return;
	/* With fewer pages than pieces, a page is seen in several. */
	for (unsigned i = 0; i < TOP_STRIP && pages < TOP_STRIP; i++)
		tally(&piece[i], entry[i * pages / TOP_STRIP]);
	for (uint64_t i = 0; i < pages && pages >= TOP_STRIP; i++)
		tally(&piece[i * TOP_STRIP / pages], entry[i]);
	conclude(r, piece);
}

/* Pages at equal distances. */
static void ask_some(struct top_residency *r, int fd, uint64_t first, uint64_t pages)
{
	struct tally piece[TOP_STRIP] = { 0 };
	uint64_t entry, step = pages / SAMPLES;

	for (unsigned i = 0; i < SAMPLES; i++) {
		if (!ask(fd, first + step * i + step / 2, &entry, 1))
			return;
		tally(&piece[i * TOP_STRIP / SAMPLES], entry);
	}
	conclude(r, piece);
}

void top_residency_read(struct top_frame *f, const size_t *order, size_t most, const char *root)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char path[1024];
	int fd;

	snprintf(path, sizeof(path), "%s/proc/%d/pagemap", root, (int)f->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	for (size_t i = 0; i < most && i < f->regions; i++) {
		struct top_region *r = &f->region[order[i]];
		uint64_t first = r->addr / page, end = r->addr + r->length;
		uint64_t pages = (end - 1) / page - first + 1;

		memset(&r->residency, 0, sizeof(r->residency));
		if (r->kind == UNPIN_REGION_IMPLICIT || !r->length || end < r->addr || end > INT64_MAX / 8)
			continue;
		if (pages <= PAGE_ENTRIES)
			ask_all(&r->residency, fd, first, pages);
		else
			ask_some(&r->residency, fd, first, pages);
	}
	close(fd);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What pinning, faults and registering cost on this machine. */
#include <errno.h>
#include <json-c/json.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tool/advise.h"
#include "tool/alloc.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define KIB	   1024ul
#define LARGE	   (2048 * KIB)
#define ROUNDS	   3u
#define SPENT_NS   (30 * NSEC_PER_MSEC) /* on each figure; more than ROUNDS if there is time */
#define STRIDE	   (64 * KIB)		/* far enough apart that no page is brought in with its neighbour */
#define ASSUMED_NS 1000			/* registering on demand records a range, and nothing else */

static char *map_fresh(size_t length)
{
	char *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, length, MADV_NOHUGEPAGE);
	return p;
}

/* Nanoseconds of doing it to a fresh range of so many bytes; 0: it cannot be done. */
static uint64_t time_of(bool (*act)(char *p, size_t length), size_t length)
{
	char *p = map_fresh(length);
	uint64_t began = clock_ns(), took = 0;

	if (p && act(p, length))
		took = clock_ns() - began;
	if (p)
		munmap(p, length);
	return took;
}

static bool lock(char *p, size_t length)
{
	return mlock(p, length) == 0;
}

static bool populate(char *p, size_t length)
{
	if (madvise(p, length, MADV_POPULATE_WRITE) == 0)
		return true;
	/* Linux before 5.14. */
	for (size_t at = 0; at < length; at += ADVISE_PAGE)
		*(volatile char *)(p + at) = 1;
	return true;
}

static bool touch_apart(char *p, size_t length)
{
	for (size_t at = 0; at < length; at += STRIDE)
		*(volatile char *)(p + at) = 1;
	return true;
}

/* The least of some: whatever comes in between only makes it longer. */
static double least(bool (*act)(char *p, size_t length), size_t length, size_t pages)
{
	uint64_t best = 0, until = clock_ns() + SPENT_NS;

	for (unsigned i = 0; i < ROUNDS || clock_ns() < until; i++) {
		uint64_t took = time_of(act, length);

		if (!took)
			return 0;
		best = best && best < took ? best : took;
	}
	return (double)best / (double)pages;
}

void advise_measure(struct advise_costs *c)
{
	uint64_t began = clock_ns();

	memset(c, 0, sizeof(*c));
	/* As much as the limit on locked memory allows. */
	for (size_t length = LARGE; !(c->pin_page > 0) && length >= 64 * KIB; length /= 8)
		c->pin_page = least(lock, length, length / ADVISE_PAGE);
	c->populate_page = least(populate, LARGE, LARGE / ADVISE_PAGE);
	c->fault_page = least(touch_apart, 4 * LARGE, 4 * LARGE / STRIDE);
	c->register_call = ASSUMED_NS;
	c->register_assumed = true;
	c->took = (double)(clock_ns() - began);
	strcpy(c->from, "measured now");
}

/* --- from a report
 * ------------------------------------------------------------------------------------------- */

#define FILE_MOST (64l << 20)

static json_object *member(json_object *o, const char *key, json_type type)
{
	json_object *v;

	return o && json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, key, &v) &&
			       json_object_is_type(v, type)
		       ? v
		       : NULL;
}

/* A figure of a row, a positive number; 0: there is none. */
static double figure(json_object *row, const char *key)
{
	json_object *v;
	double d;

	if (!row || !json_object_is_type(row, json_type_object) || !json_object_object_get_ex(row, key, &v))
		return 0;
	d = json_object_get_double(v);
	return d > 0 && d < 1e15 ? d : 0;
}

static json_object *rows_of(json_object *report, const char *part)
{
	return member(member(member(report, "parts", json_type_object), part, json_type_object), "rows",
		json_type_array);
}

/* Larger sizes say more about what a page costs, the smallest about the call. */
static void take_sizes(struct advise_costs *c, json_object *rows)
{
	double smallest = 0;

	for (size_t i = 0; rows && i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i);
		double size = figure(row, "size_bytes"), pages = size / ADVISE_PAGE;
		double pinned = figure(row, "pinned_us"), ahead = figure(row, "on_demand_prefetch_us");
		double call = figure(row, "on_demand_us");

		if (pages < 1)
			continue;
		if (pinned > 0)
			c->pin_page = pinned * 1000 / pages;
		if (ahead > 0)
			c->populate_page = ahead * 1000 / pages;
		if (call > 0 && (smallest == 0 || size < smallest)) {
			smallest = size;
			c->register_call = call * 1000;
			c->register_assumed = false;
		}
	}
}

static bool says(json_object *row, const char *key, const char *text)
{
	json_object *v = member(row, key, json_type_string);

	return v && strcmp(json_object_get_string(v), text) == 0;
}

static void take_registration(struct advise_costs *c, json_object *rows)
{
	for (size_t i = 0; rows && i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i);
		double pages = figure(row, "size_bytes") / ADVISE_PAGE, us = figure(row, "register_p50_us");

		if (pages < 1 || !(us > 0) || !says(row, "memory", "untouched"))
			continue;
		if (says(row, "region", "pinned")) {
			c->pin_page = us * 1000 / pages;
		} else if (says(row, "region", "on demand")) {
			c->register_call = us * 1000;
			c->register_assumed = false;
		}
	}
}

static void take_touches(struct advise_costs *c, json_object *rows)
{
	for (size_t i = 0; rows && i < json_object_array_length(rows); i++) {
		json_object *row = json_object_array_get_idx(rows, i);

		if (says(row, "toucher", "the device") && says(row, "fault", "minor") &&
			figure(row, "p50_us") > 0)
			c->fault_page = figure(row, "p50_us") * 1000;
	}
}

int advise_costs_read(struct advise_costs *c, const char *path)
{
	struct stat st;
	json_object *report;

	if (stat(path, &st) || !S_ISREG(st.st_mode) || st.st_size > FILE_MOST) {
		log_error("advise: --bench %s: %s", path,
			stat(path, &st) ? strerror(errno) : "it is not a report of 'unpin bench --json'");
		return -EINVAL;
	}
	report = json_object_from_file(path);
	if (!member(report, "parts", json_type_object) || !member(report, "device", json_type_string)) {
		log_error("advise: --bench %s is not a report of 'unpin bench --json'", path);
		json_object_put(report);
		return -EINVAL;
	}
	/* What the report does not have is measured. */
	advise_measure(c);
	take_registration(c, rows_of(report, "registration"));
	take_sizes(c, rows_of(report, "sizes"));
	take_touches(c, rows_of(report, "distribution"));
	json_object_put(report);
	snprintf(c->from, sizeof(c->from), "%s", path);
	return 0;
}

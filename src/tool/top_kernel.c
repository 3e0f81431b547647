/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A device of the kernel, as far as its counters in sysfs tell: those of its ports, with rates. */
#include <dirent.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "tool/alloc.h"
#include "tool/table.h"
#include "tool/top.h"
#include "tool/units.h"

struct counter {
	char name[80]; /* "port 1 rcvd_pkts" */
	uint64_t value;
};

struct counters {
	struct counter *row;
	size_t count, room;
	uint64_t at_ns;
};

static bool name_is_plain(const char *name)
{
	return *name && !strchr(name, '/') && name[0] != '.' && strlen(name) < 64;
}

bool top_kernel_has(const char *root, const char *device)
{
	char path[1024];
	DIR *dir;

	if (!name_is_plain(device))
		return false;
	snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s", root, device);
	dir = opendir(path);
	if (dir)
		closedir(dir);
	return dir;
}

static void take(struct counters *c, const char *port, const char *name, const char *path)
{
	uint64_t v;
	FILE *f = fopen(path, "re");

	/* Some counters cannot be read on some devices: passed over. */
	if (f && fscanf(f, "%" SCNu64, &v) == 1) {
		if (c->count == c->room) {
			c->room = c->room ? 2 * c->room : 64;
			c->row = alloc_grow(c->row, c->room, sizeof(*c->row));
		}
		snprintf(c->row[c->count].name, sizeof(c->row[0].name), "port%.8s.%.60s", port, name);
		c->row[c->count++].value = v;
	}
	if (f)
		fclose(f);
}

static void take_folder(struct counters *c, const char *ports, const char *port, const char *folder)
{
	char path[1400];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%.16s/%s", ports, port, folder);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		char file[1700];

		/* "lifespan" is a setting: how long the kernel believes what it read. */
		if (e->d_name[0] == '.' || strcmp(e->d_name, "lifespan") == 0)
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		take(c, port, e->d_name, file);
	}
	if (dir)
		closedir(dir);
}

static int by_name(const void *a, const void *b)
{
	const struct counter *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void read_all(struct counters *c, const char *root, const char *device)
{
	char ports[1024];
	struct dirent *e;
	DIR *dir;

	c->count = 0;
	c->at_ns = clock_ns();
	snprintf(ports, sizeof(ports), "%s/sys/class/infiniband/%s/ports", root, device);
	dir = opendir(ports);
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		take_folder(c, ports, e->d_name, "counters");
		take_folder(c, ports, e->d_name, "hw_counters");
	}
	if (dir)
		closedir(dir);
	if (c->count)
		qsort(c->row, c->count, sizeof(*c->row), by_name);
}

static double rate(const struct counters *before, const struct counters *now, size_t i)
{
	double seconds = (double)(now->at_ns - before->at_ns) / 1e9;
	const struct counter *was =
		before->count ? bsearch(&now->row[i], before->row, before->count, sizeof(*was), by_name)
			      : NULL;

	if (!was || now->row[i].value < was->value || seconds <= 0)
		return 0;
	return (double)(now->row[i].value - was->value) / seconds;
}

static void print_json(const char *device, const struct counters *before, const struct counters *now)
{
	json_object *o = json_object_new_object(), *list = json_object_new_object(),
		    *rates = json_object_new_object();

	json_object_object_add(o, "device", json_object_new_string(device));
	json_object_object_add(o, "kernel", json_object_new_boolean(true));
	json_object_object_add(
		o, "seconds", json_object_new_double((double)(now->at_ns - before->at_ns) / 1e9));
	for (size_t i = 0; i < now->count; i++) {
		json_object_object_add(list, now->row[i].name, json_object_new_uint64(now->row[i].value));
		json_object_object_add(rates, now->row[i].name, json_object_new_double(rate(before, now, i)));
	}
	json_object_object_add(o, "counters", list);
	json_object_object_add(o, "per_s", rates);
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN));
	json_object_put(o);
}

static void print_lines(const char *device, const struct counters *before, const struct counters *now)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	for (size_t i = 0; i < now->count; i++)
		printf("%lld.%03ld kernel name=%s counter=%s total=%" PRIu64 " per_s=%.6g\n",
			(long long)ts.tv_sec, ts.tv_nsec / 1000000, device, now->row[i].name,
			now->row[i].value, rate(before, now, i));
}

/* On a terminal: those that moved first; the rest is said to be still. */
static void print_table(const char *device, const struct counters *before, const struct counters *now)
{
	static const char *const headings[] = { "<counter", "total", "per second" };
	char b[UNITS_MAX];
	struct table t;
	size_t still = 0;

	printf("\033[H\033[J%s: a device of the kernel. Its page faults are not told by region here; "
	       "counters "
	       "of its ports that moved:\n\n",
		device);
	table_init(&t, headings, 3);
	for (size_t i = 0; i < now->count; i++) {
		double r = rate(before, now, i);

		if (r <= 0) {
			still++;
			continue;
		}
		table_add(&t, "%s", now->row[i].name);
		table_add(&t, "%" PRIu64, now->row[i].value);
		table_add(&t, "%s", units_digits(b, r));
	}
	table_print(&t, stdout, 2);
	table_free(&t);
	printf("\n%zu more did not move. Ctrl-C ends.\n", still);
}

int top_kernel(const char *root, const char *device, double every, bool json, bool batch, uint64_t count)
{
	struct timespec pause = { (time_t)every, (long)((every - (double)(time_t)every) * 1e9) };
	struct counters c[2] = { 0 };
	int status = 0;

	read_all(&c[0], root, device);
	if (!c[0].count) {
		log_error("top: %s has no counters that can be read", device);
		return 1;
	}
	for (uint64_t n = 1; !status; n++) {
		struct counters *before = &c[(n - 1) & 1], *now = &c[n & 1];

		nanosleep(&pause, NULL);
		read_all(now, root, device);
		if (!now->count) {
			log_error("top: %s has gone", device);
			status = 1;
			break;
		}
		(json ? print_json : batch ? print_lines : print_table)(device, before, now);
		status = fflush(stdout) ? 1 : 0;
		if (n == count)
			break;
	}
	free(c[0].row);
	free(c[1].row);
	return status;
}

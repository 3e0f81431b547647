/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/pressure.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "mm/facility.h"
#include "mm/generation.h"
#include "mm/procread.h"

#define SAMPLE_NS (100 * NSEC_PER_MSEC)
#define FIND_NS	  (10 * NSEC_PER_SEC)
#define PATH_SIZE 1024
/* Room is asked for again before the last answer is used up, but no more often than this. */
#define HURRY_NS NSEC_PER_MSEC
/* What others may take meanwhile. */
#define MARGIN (4ll << 20)

/* A group of one hierarchy: the directory of its files. */
struct group {
	size_t top; /* length of the mount point, above which nothing is visible; 0: not found */
	char dir[PATH_SIZE];
};

/* The directory of the machine's own figures is no group: v1 and v2 may both be there. */
struct groups {
	struct group v1, v2;
	bool v1_memory; /* the memory controller is with v1 */
};

/* What was found, guarded by busy. */
static struct groups groups;
static uint64_t found_at;
/* The generation of the process whose thread takes a sample; 0: nobody. One of an ancestor is left over. */
static _Atomic uint64_t busy;
/* When and in which generation the last sample was taken (0: never); written by whoever is busy. */
static _Atomic uint64_t sampled_at, sampled_by;
static _Atomic uint64_t stall_us = UINT64_MAX;
static _Atomic int64_t headroom = INT64_MAX;
/* Granted by pressure_room_for() since the last sample. */
static _Atomic int64_t spent;

/* ---- small files ---- */

/* A file of one number. False: missing, or "max". */
static bool read_number(const char *dir, const char *name, uint64_t *out)
{
	char path[PATH_SIZE + 32], word[24];
	struct procread r;
	int c;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (procread_open(&r, path))
		return false;
	c = procread_get(&r);
	procread_word(&r, c, word, sizeof(word));
	procread_close(&r);
	if (word[0] < '0' || word[0] > '9')
		return false;
	*out = 0;
	for (const char *d = word; *d >= '0' && *d <= '9'; d++)
		*out = *out * 10 + (unsigned)(*d - '0');
	return true;
}

/* A file of lines "name number ...", with blanks between. */
static bool read_field(const char *dir, const char *name, const char *field, uint64_t *out)
{
	char path[PATH_SIZE + 32], word[32];
	bool found = false;
	struct procread r;
	int c;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (procread_open(&r, path))
		return false;
	while (!found && (c = procread_get(&r)) >= 0) {
		c = procread_word(&r, c, word, sizeof(word));
		if (c == ' ' && !strcmp(word, field)) {
			while ((c = procread_get(&r)) == ' ')
				;
			*out = 0;
			for (; c >= '0' && c <= '9'; c = procread_get(&r), found = true)
				*out = *out * 10 + (unsigned)(c - '0');
		}
		while (c >= 0 && c != '\n')
			c = procread_get(&r);
	}
	procread_close(&r);
	return found;
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=123". 0 or a negative errno. */
static int read_stall(const char *path, uint64_t *out)
{
	struct procread r;
	char word[32];
	int err = procread_open(&r, path), c;

	if (err)
		return err;
	c = procread_get(&r);
	do {
		c = procread_word(&r, c, word, sizeof(word));
	} while (c == ' ' && strncmp(word, "total=", 6));
	procread_close(&r);
	if (strncmp(word, "total=", 6))
		return r.err ? r.err : -ENODATA;
	*out = 0;
	for (const char *d = word + 6; *d >= '0' && *d <= '9'; d++)
		*out = *out * 10 + (unsigned)(*d - '0');
	return 0;
}

/* ---- where the groups are ---- */

/* Whether list, separated by commas, has word in it. */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word), len;

	for (;; list += len + 1) {
		len = strcspn(list, ",");
		if (len == n && !memcmp(list, word, n))
			return true;
		if (!list[len])
			return false;
	}
}

/* Takes back mountinfo's escapes: "\040" and so on. */
static void unescape(char *s)
{
	char *to = s;

	while (*s) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
			s[3] <= '7') {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

static void skip_line(struct procread *r, int c)
{
	while (c >= 0 && c != '\n')
		c = procread_get(r);
}

/* The text up to stop or the end of the line. Returns the character that ended it. */
static int read_until(struct procread *r, int stop, char *out, size_t size)
{
	size_t n = 0;
	int c;

	while ((c = procread_get(r)) >= 0 && c != '\n' && c != stop)
		if (n + 1 < size)
			out[n++] = (char)c;
	out[n] = '\0';
	return c;
}

struct paths {
	char v1[PATH_SIZE], v2[PATH_SIZE]; /* from the hierarchy's root; empty: none */
};

/* Lines of /proc/self/cgroup: "number:controllers:path"; version 2 has number 0 and no controllers. */
static void read_paths(struct paths *p)
{
	char controllers[128];
	uint64_t number;
	struct procread r;
	int c;

	p->v1[0] = p->v2[0] = '\0';
	if (procread_open(&r, "/proc/self/cgroup"))
		return;
	for (;;) {
		char *path = NULL;

		number = procread_number(&r, 10, &c);
		if (c != ':')
			break;
		c = read_until(&r, ':', controllers, sizeof(controllers));
		if (c != ':')
			break;
		if (!number && !controllers[0])
			path = p->v2;
		else if (has_word(controllers, "memory"))
			path = p->v1;
		if (path)
			c = read_until(&r, '\n', path, PATH_SIZE);
		else
			skip_line(&r, procread_get(&r));
	}
	procread_close(&r);
}

/*
 * The mount shows what lies below root; the group is at path. A group outside of that (and paths with "..",
 * which lead out of a namespace) cannot be seen. What did not fit into its buffer is left out too.
 */
static void place(struct group *g, const char *root, const char *point, const char *path)
{
	size_t n = strcmp(root, "/") ? strlen(root) : 0;

	if (g->top || path[0] != '/' || strstr(path, "/..") || strncmp(path, root, n) ||
		(path[n] && path[n] != '/'))
		return;
	path += n;
	if (!strcmp(path, "/"))
		path = "";
	if (strlen(point) + strlen(path) >= PATH_SIZE - 1)
		return;
	snprintf(g->dir, sizeof(g->dir), "%s%s", point, path);
	g->top = strlen(point);
}

struct mount {
	char root[PATH_SIZE], point[PATH_SIZE], type[16], options[256];
};

/* "36 35 0:98 root point options ... - type source super-options". False at the end. */
static bool read_mount(struct procread *r, struct mount *m)
{
	char word[4];
	int c;

	procread_number(r, 10, &c);
	procread_number(r, 10, &c);
	c = procread_word(r, ' ', word, sizeof(word));
	c = procread_word(r, c, m->root, sizeof(m->root));
	c = procread_word(r, c, m->point, sizeof(m->point));
	do {
		c = procread_word(r, c, word, sizeof(word));
	} while (c == ' ' && strcmp(word, "-"));
	c = procread_word(r, c, m->type, sizeof(m->type));
	c = procread_word(r, c, m->options, sizeof(m->options)); /* the source, of no interest */
	c = procread_rest(r, c, m->options, sizeof(m->options));
	unescape(m->root);
	unescape(m->point);
	return c == '\n';
}

/* The stack has room for this: the caller is no signal handler. */
static void find_groups(struct groups *out)
{
	struct procread r;
	struct paths p;
	struct mount m;

	read_paths(&p);
	out->v1.top = out->v2.top = 0;
	out->v1_memory = p.v1[0];
	if (procread_open(&r, "/proc/self/mountinfo"))
		return;
	while (read_mount(&r, &m)) {
		if (!strcmp(m.type, "cgroup2"))
			place(&out->v2, m.root, m.point, p.v2);
		else if (!strcmp(m.type, "cgroup") && has_word(m.options, "memory"))
			place(&out->v1, m.root, m.point, p.v1);
	}
	procread_close(&r);
}

/* ---- the sample ---- */

static int64_t room_below(uint64_t limit, uint64_t used, uint64_t reclaimable)
{
	uint64_t kept = used > reclaimable ? used - reclaimable : 0;
	uint64_t room = limit > kept ? limit - kept : 0;

	return room < INT64_MAX ? (int64_t)room : INT64_MAX;
}

static uint64_t limit_of(const char *dir, bool v1)
{
	static const char *const files[2][2] = { { "memory.max", "memory.high" },
		{ "memory.limit_in_bytes", NULL } };
	uint64_t limit = UINT64_MAX, value;

	for (int i = 0; i < 2 && files[v1][i]; i++)
		if (read_number(dir, files[v1][i], &value) && value < limit)
			limit = value;
	/* Version 1 writes "none" as the largest multiple of a page. */
	return limit < INT64_MAX / 2 ? limit : UINT64_MAX;
}

static int64_t room_of(const char *dir, bool v1)
{
	uint64_t limit = limit_of(dir, v1), used, reclaimable = 0;

	if (limit == UINT64_MAX || !read_number(dir, v1 ? "memory.usage_in_bytes" : "memory.current", &used))
		return INT64_MAX;
	read_field(dir, "memory.stat", v1 ? "total_inactive_file" : "inactive_file", &reclaimable);
	return room_below(limit, used, reclaimable);
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The group and those above it, as far as they can be seen. */
static int64_t room_of_groups(const struct group *g, bool v1)
{
	int64_t room = INT64_MAX;
	char dir[PATH_SIZE];
	char *slash;

	if (!g->top)
		return room;
	strcpy(dir, g->dir);
	for (;;) {
		room = least(room, room_of(dir, v1));
		slash = strrchr(dir, '/');
		if (strlen(dir) <= g->top || !slash)
			return room;
		*slash = '\0';
	}
}

static int64_t room_of_machine(void)
{
	uint64_t kib;

	return read_field("/proc", "meminfo", "MemAvailable:", &kib) ? room_below(kib * 1024, 0, 0)
								     : INT64_MAX;
}

static int stall_of(const struct group *v2, uint64_t *us)
{
	char path[PATH_SIZE + 32];
	int err = -ENOENT;

	if (v2->top) {
		snprintf(path, sizeof(path), "%s/memory.pressure", v2->dir);
		err = read_stall(path, us);
	}
	return err ? read_stall("/proc/pressure/memory", us) : 0;
}

int pressure_probe_stall(void)
{
	struct groups local;
	uint64_t us;

	find_groups(&local);
	return stall_of(&local.v2, &us);
}

static void take_sample(uint64_t now)
{
	const struct group *memory;
	uint64_t us;

	if (!found_at || now - found_at >= FIND_NS) {
		find_groups(&groups);
		found_at = now;
	}
	memory = groups.v1_memory ? &groups.v1 : &groups.v2;
	if (!mm_have(MM_PSI) || stall_of(&groups.v2, &us))
		us = UINT64_MAX;
	atomic_store_explicit(&stall_us, us, memory_order_relaxed);
	atomic_store_explicit(&headroom, least(room_of_groups(memory, groups.v1_memory), room_of_machine()),
		memory_order_relaxed);
	atomic_store_explicit(&spent, 0, memory_order_relaxed);
}

/* Takes a sample if the last one is this old. */
static void refresh(uint64_t age)
{
	uint64_t me = generation_now(), now, holder;

	if (me && atomic_load_explicit(&sampled_by, memory_order_acquire) == me &&
		(int64_t)(clock_coarse_ns() - atomic_load_explicit(&sampled_at, memory_order_relaxed)) <
			(int64_t)age)
		return;
	now = clock_ns();
	if (!me && !generation_begin())
		me = generation_now();
	if (!me)
		return;
	holder = atomic_load_explicit(&busy, memory_order_relaxed);
	if (holder == me || !atomic_compare_exchange_strong(&busy, &holder, me))
		return;
	/* A child looks for its own group, wherever its parent was in doing so. */
	if (atomic_load_explicit(&sampled_by, memory_order_relaxed) != me)
		found_at = 0;
	take_sample(now);
	atomic_store_explicit(&sampled_at, now, memory_order_relaxed);
	atomic_store_explicit(&sampled_by, me, memory_order_release);
	atomic_store_explicit(&busy, 0, memory_order_release);
}

uint64_t pressure_stall_us(void)
{
	refresh(SAMPLE_NS);
	return atomic_load_explicit(&stall_us, memory_order_relaxed);
}

int64_t pressure_headroom(void)
{
	refresh(SAMPLE_NS);
	return atomic_load_explicit(&headroom, memory_order_relaxed);
}

bool pressure_room_for(size_t bytes)
{
	int64_t want = (int64_t)bytes + MARGIN, room, used;

	refresh(SAMPLE_NS);
	used = atomic_fetch_add_explicit(&spent, (int64_t)bytes, memory_order_relaxed);
	room = atomic_load_explicit(&headroom, memory_order_relaxed);
	if (room == INT64_MAX || used + want <= room / 2)
		return true;
	/* At the limit already: the next sample comes in its time. */
	if (want > room)
		return false;
	refresh(HURRY_NS);
	room = atomic_load_explicit(&headroom, memory_order_relaxed);
	return atomic_load_explicit(&spent, memory_order_relaxed) + want <= room;
}

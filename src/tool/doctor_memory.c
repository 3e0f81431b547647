/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Memory: what may be pinned, what pushes pages out, and what page faults meet. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tool/doctor.h"
#include "tool/machine.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define MIB	 ((uint64_t)1 << 20)

/* Below this, pinning programs meet the limit with their first larger buffer. */
#define MEMLOCK_SMALL (256 * MIB)

/* --- the limit on locked memory ---------------------------------------------------------------------------
 */

/* Soft and hard limit in bytes, UINT64_MAX: none; from /proc/self/limits, which a record has, too. */
static bool memlock(struct doctor *d, uint64_t limit[2])
{
	char *text = doctor_read(d, "/proc/self/limits"), word[2][32];
	char *at = text ? strstr(text, "Max locked memory") : NULL;
	bool any = at && sscanf(at + strlen("Max locked memory"), "%31s %31s", word[0], word[1]) == 2;

	for (int i = 0; any && i < 2; i++)
		limit[i] = strcmp(word[i], "unlimited") == 0 ? UINT64_MAX : strtoull(word[i], NULL, 10);
	free(text);
	return any;
}

static const char *limit_text(uint64_t limit)
{
	return limit == UINT64_MAX ? "unlimited" : doctor_bytes(limit);
}

/* Whether the process has CAP_IPC_LOCK (bit 14), which lifts the limit. */
static bool may_lock(struct doctor *d)
{
	char *text = doctor_read(d, "/proc/self/status"), *at = text ? strstr(text, "CapEff:") : NULL;
	uint64_t caps = at ? strtoull(at + 7, NULL, 16) : 0;

	free(text);
	return caps >> 14 & 1;
}

/* Locks length bytes piece by piece, for a moment. Returns how much could be locked, and why not more. */
static uint64_t lock_some(uint64_t length, int *err)
{
	char *addr = mmap(
		NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t done = 0, piece = 4 * MIB;

	*err = 0;
	/* No room for addresses says nothing about locking. */
	if (addr == MAP_FAILED)
		return length;
	while (!*err && done < length) {
		if (piece > length - done)
			piece = length - done;
		if (mlock(addr + done, piece))
			*err = errno;
		else
			done += piece;
	}
	munmap(addr, length);
	return done;
}

/* How much to lock: most of what the limit allows (the device may have locked something), up to 64 MiB. */
static uint64_t worth_trying(uint64_t limit)
{
	uint64_t most = machine_available() / 4, want = limit < 85 * MIB ? limit / 4 * 3 : 64 * MIB;

	return (want < most ? want : most) & ~(uint64_t)0xffff;
}

static void advise_memlock(struct doctor_result *r)
{
	doctor_advise(r, "For logins: 'username - memlock unlimited' in /etc/security/limits.conf; for "
			 "services: LimitMEMLOCK=infinity in the "
			 "unit; for containers: docker run --ulimit memlock=-1. Or register on demand, which "
			 "needs no such limit.");
}

static void check_memlock(struct doctor *d, struct doctor_result *r)
{
	uint64_t limit[2] = { 0, 0 }, tried = 0, got = 0;
	bool exempt = may_lock(d);
	int err = 0;

	if (!memlock(d, limit)) {
		doctor_say(r, DOCTOR_UNKNOWN, "the limit cannot be read");
		doctor_mean(r, "How much memory may be pinned is not known.");
		doctor_advise(r, "'ulimit -l' prints it in KiB; in a record it is in /proc/self/limits.");
		return;
	}
	if (!d->root) {
		tried = worth_trying(exempt ? UINT64_MAX : limit[0]);
		got = tried ? lock_some(tried, &err) : 0;
	}
	if (!d->root && got < tried) {
		doctor_say(r, DOCTOR_FAIL, "the limit is %s, and locking %s was refused after %s: %s",
			limit_text(limit[0]), doctor_bytes(tried), got ? doctor_bytes(got) : "nothing",
			strerror(err));
		doctor_mean(r, "The limit promises more than may be locked: another limit stands behind it "
			       "(of a container, of a user "
			       "namespace, or what other processes have locked). Pinned registrations fail "
			       "with ENOMEM at some point.");
		doctor_advise(r,
			"Run the program where the host's limits apply, or raise them there (a container "
			"without privileges gets no more "
			"than the daemon that started it). On-demand registrations are not concerned.");
		return;
	}
	if (exempt || limit[0] >= MEMLOCK_SMALL) {
		doctor_say(r, DOCTOR_OK, "%s%s%s",
			exempt ? "does not bind this process (CAP_IPC_LOCK); the limit is " : "",
			limit_text(limit[0]),
			d->root ? " (not tried)"
			: tried ? "; locking 64 MiB worked"
				: "");
		return;
	}
	doctor_say(r, DOCTOR_WARN, "%s%s%s%s%s%s", limit_text(limit[0]),
		limit[1] != limit[0] ? ", can be raised to " : "",
		limit[1] != limit[0] ? limit_text(limit[1]) : "",
		tried	  ? "; locking "
		: d->root ? " (not tried)"
			  : "",
		tried ? doctor_bytes(tried) : "", tried ? " worked" : "");
	doctor_mean(r, "Pinned registrations beyond that in sum fail with ENOMEM. On-demand registrations "
		       "are not counted.");
	advise_memlock(r);
}

/* --- cgroups -------------------------------------------------------------------------------------------- */

struct cgroup {
	bool found;
	int version;
	char path[512];
	uint64_t limit, high, usage, swap; /* UINT64_MAX: none, or not told */
};

static uint64_t cgroup_number(struct doctor *d, const char *base, const char *path, const char *file)
{
	uint64_t v;

	/* "max" is no number. Version 1 has a number near 2^63 instead. */
	if (!doctor_number(d, &v, "%s%s/%s", base, path, file))
		return UINT64_MAX;
	return v >= (uint64_t)1 << 62 ? UINT64_MAX : v;
}

static void lower(uint64_t *to, uint64_t value)
{
	*to = value < *to ? value : *to;
}

/* A group is bound by those above it: the lowest limit on the way up counts. */
static void read_v2(struct doctor *d, struct cgroup *g)
{
	char at[512];

	snprintf(at, sizeof(at), "%s", g->path);
	for (;;) {
		if (doctor_exists(d, "/sys/fs/cgroup%s/memory.max", at)) {
			if (!g->found)
				g->usage = cgroup_number(d, "/sys/fs/cgroup", at, "memory.current");
			g->found = true;
			lower(&g->limit, cgroup_number(d, "/sys/fs/cgroup", at, "memory.max"));
			lower(&g->high, cgroup_number(d, "/sys/fs/cgroup", at, "memory.high"));
			lower(&g->swap, cgroup_number(d, "/sys/fs/cgroup", at, "memory.swap.max"));
		}
		if (!strrchr(at, '/'))
			break;
		*strrchr(at, '/') = 0;
	}
}

static void read_v1(struct doctor *d, struct cgroup *g)
{
	static const char *const bases[] = { "/sys/fs/cgroup/memory" };
	char at[512];

	snprintf(at, sizeof(at), "%s", g->path);
	/* Inside of a container the path of the host does not exist; the root of the mount is the own group.
	 */
	if (!doctor_exists(d, "%s%s/memory.limit_in_bytes", bases[0], at))
		at[0] = 0;
	if (!doctor_exists(d, "%s%s/memory.limit_in_bytes", bases[0], at))
		return;
	g->found = true;
	g->limit = cgroup_number(d, bases[0], at, "memory.limit_in_bytes");
	g->usage = cgroup_number(d, bases[0], at, "memory.usage_in_bytes");
}

struct cgroup_paths {
	char v1[512], v2[512];
	bool has_v1, has_v2;
};

static bool cgroup_line(void *arg, char *line)
{
	struct cgroup_paths *p = arg;
	char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return true;
	*path++ = 0;
	controllers++;
	if (!*controllers) {
		p->has_v2 = true;
		snprintf(p->v2, sizeof(p->v2), "%s", strcmp(path, "/") == 0 ? "" : path);
	} else if (strcmp(controllers, "memory") == 0) {
		p->has_v1 = true;
		snprintf(p->v1, sizeof(p->v1), "%s", strcmp(path, "/") == 0 ? "" : path);
	}
	return true;
}

static struct cgroup find_cgroup(struct doctor *d)
{
	struct cgroup g = {
		.limit = UINT64_MAX, .high = UINT64_MAX, .usage = UINT64_MAX, .swap = UINT64_MAX
	};
	char *text = doctor_read(d, "/proc/self/cgroup");
	struct cgroup_paths p = { .has_v1 = false };

	if (text)
		doctor_lines(text, cgroup_line, &p);
	free(text);
	if (p.has_v1) {
		g.version = 1;
		memcpy(g.path, p.v1, sizeof(g.path));
		read_v1(d, &g);
	} else if (p.has_v2) {
		g.version = 2;
		memcpy(g.path, p.v2, sizeof(g.path));
		read_v2(d, &g);
	}
	return g;
}

static uint64_t swap_total(struct doctor *d)
{
	char *text = doctor_read(d, "/proc/meminfo");
	uint64_t v = text ? doctor_field(text, "SwapTotal") : UINT64_MAX;

	free(text);
	return v;
}

static void check_cgroup(struct doctor *d, struct doctor_result *r)
{
	struct cgroup g = find_cgroup(d);
	uint64_t bound = g.limit < g.high ? g.limit : g.high;
	bool no_swap = swap_total(d) == 0 || g.swap == 0;

	if (!g.found) {
		doctor_say(r, DOCTOR_OK, "this process is in no memory cgroup");
		return;
	}
	if (bound == UINT64_MAX) {
		doctor_say(r, DOCTOR_OK, "version %d, no limit", g.version);
		return;
	}
	doctor_say(r, no_swap && bound < 4096 * MIB ? DOCTOR_WARN : DOCTOR_OK,
		"version %d, limit %s%s, in use %s%s", g.version, doctor_bytes(bound),
		g.high < g.limit ? " (memory.high)" : "",
		g.usage == UINT64_MAX ? "unknown" : doctor_bytes(g.usage),
		g.swap == 0 ? ", no swap allowed" : "");
	if (r->verdict == DOCTOR_OK)
		return;
	doctor_mean(r,
		"Pinned memory counts fully against the limit and cannot be reclaimed; what is on "
		"demand counts as far as it is in "
		"memory. Without swap anonymous memory cannot leave either: beyond memory.high the group "
		"is slowed down to a crawl, at memory.max one of its processes is killed, whatever the "
		"registration.");
	doctor_advise(r, "Raise the limit (memory.max; docker run --memory), or allow swap (memory.swap.max, "
			 "and swap on the host), so that cold "
			 "on-demand memory can leave. Prefetch in small pieces.");
}

/* --- swap and reclaim ------------------------------------------------------------------------------------
 */

static const char *swap_kind(struct doctor *d, const char *path)
{
	const char *name = strrchr(path, '/');
	uint64_t spins = 0;

	name = name ? name + 1 : path;
	if (strncmp(name, "zram", 4) == 0)
		return "compressed memory";
	if (doctor_number(d, &spins, "/sys/class/block/%s/queue/rotational", name) ||
		doctor_number(d, &spins, "/sys/class/block/%s/../queue/rotational", name))
		return spins ? "a rotating disk" : "a solid-state disk";
	return "a file or an unknown disk";
}

static void check_swap(struct doctor *d, struct doctor_result *r)
{
	char *text = doctor_read(d, "/proc/swaps"), *save = NULL, list[512] = "";
	bool rotating = false;

	strtok_r(text ? text : (char[]){ "" }, "\n", &save); /* the heading */
	for (char *line = text ? strtok_r(NULL, "\n", &save) : NULL; line;
		line = strtok_r(NULL, "\n", &save)) {
		char path[256], type[32];
		unsigned long long kib;
		const char *kind;

		if (sscanf(line, "%255s %31s %llu", path, type, &kib) != 3)
			continue;
		kind = swap_kind(d, path);
		rotating = rotating || strstr(kind, "rotating");
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s, %s on %s",
			list[0] ? "; " : "", path, doctor_bytes(kib << 10), kind);
	}
	free(text);
	if (!list[0]) {
		doctor_say(r, DOCTOR_WARN, "none");
		doctor_mean(r, "Anonymous memory cannot leave: on-demand registration still saves the time "
			       "to register and memory that is never "
			       "touched, but what has been touched stays, and overcommitting ends in the "
			       "out-of-memory killer.");
		doctor_advise(r, "To overcommit on-demand memory, add swap: compressed memory (zram) or a "
				 "fast disk; 'mkswap' and 'swapon'. "
				 "Otherwise nothing needs to be done.");
		return;
	}
	doctor_say(r, rotating ? DOCTOR_WARN : DOCTOR_OK, "%s", list);
	if (!rotating)
		return;
	doctor_mean(r, "A page fault of the device that finds its page there waits about ten milliseconds "
		       "for it, and the request with it.");
	doctor_advise(r, "Swap to compressed memory (zram) or to a solid-state disk, or lock the hot part of "
			 "on-demand memory with mlock().");
}

static void check_swappiness(struct doctor *d, struct doctor_result *r)
{
	uint64_t v;

	if (!doctor_number(d, &v, "/proc/sys/vm/swappiness")) {
		doctor_say(r, DOCTOR_UNKNOWN, "cannot be read");
		doctor_mean(r, "How readily the kernel moves anonymous memory to swap is not known.");
		doctor_advise(r, "'sysctl vm.swappiness' prints it; 60 is usual.");
		return;
	}
	if (v <= 100) {
		doctor_say(r, DOCTOR_OK, "%llu", (unsigned long long)v);
		return;
	}
	doctor_say(r, DOCTOR_WARN, "%llu", (unsigned long long)v);
	doctor_mean(r, "The kernel rather swaps than drops file pages; on-demand buffers that are idle for a "
		       "while leave early, and their next "
		       "access is a fault with I/O.");
	doctor_advise(r, "Where latency matters and swap is not in memory (zram): 'sysctl vm.swappiness=10', "
			 "or mlock() the hot part.");
}

/* "always [madvise] never": the word in brackets. */
static bool chosen_word(struct doctor *d, const char *path, char *out, size_t size)
{
	char line[128], *from;

	if (!doctor_line(d, line, sizeof(line), "%s", path))
		return false;
	from = strchr(line, '[');
	if (!from)
		return false;
	snprintf(out, size, "%.*s", (int)strcspn(from + 1, "]"), from + 1);
	return true;
}

static void check_thp(struct doctor *d, struct doctor_result *r)
{
	char mode[32], defrag[32];

	if (!chosen_word(d, "/sys/kernel/mm/transparent_hugepage/enabled", mode, sizeof(mode)) ||
		!chosen_word(d, "/sys/kernel/mm/transparent_hugepage/defrag", defrag, sizeof(defrag))) {
		doctor_say(r, DOCTOR_OK, "this kernel has none");
		return;
	}
	if (strcmp(mode, "always") == 0 && strcmp(defrag, "always") == 0) {
		doctor_say(r, DOCTOR_WARN, "mode always, defrag always");
		doctor_mean(r, "A page fault of the device may wait while the kernel compacts memory to make "
			       "a huge page: rare and long delays; and "
			       "sparse on-demand buffers take 2 MiB for a touched byte.");
		doctor_advise(r, "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag; give dense "
				 "buffers huge pages with "
				 "madvise(MADV_HUGEPAGE).");
		return;
	}
	if (strcmp(mode, "never") == 0) {
		doctor_say(r, DOCTOR_WARN, "mode never");
		doctor_mean(r, "Every 4 KiB of a buffer is a page fault of its own at first use; with huge "
			       "pages it is one for 2 MiB.");
		doctor_advise(r, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, and "
				 "madvise(MADV_HUGEPAGE) on dense buffers.");
		return;
	}
	doctor_say(r, DOCTOR_OK, "mode %s, defrag %s", mode, defrag);
}

static void check_hugetlb(struct doctor *d, struct doctor_result *r)
{
	char *text = doctor_read(d, "/proc/meminfo"), *at = text ? strstr(text, "HugePages_Total:") : NULL;
	char *free_at = text ? strstr(text, "HugePages_Free:") : NULL;
	unsigned long long total = at ? strtoull(at + 16, NULL, 10) : 0,
			   unused = free_at ? strtoull(free_at + 15, NULL, 10) : 0;
	uint64_t size = text ? doctor_field(text, "Hugepagesize") : UINT64_MAX;

	free(text);
	if (!total)
		doctor_say(r, DOCTOR_OK, "no pool");
	else
		doctor_say(r, DOCTOR_OK, "%llu pages of %s, %llu free", total,
			size == UINT64_MAX ? "unknown size" : doctor_bytes(size), unused);
}

/* --- mappings --------------------------------------------------------------------------------------------
 */

static void check_map_count(struct doctor *d, struct doctor_result *r)
{
	char *maps = doctor_read(d, "/proc/self/maps");
	uint64_t most, used = 0;

	for (const char *p = maps; p && (p = strchr(p, '\n')); p++)
		used++;
	free(maps);
	if (!doctor_number(d, &most, "/proc/sys/vm/max_map_count")) {
		doctor_say(r, DOCTOR_UNKNOWN, "vm.max_map_count cannot be read");
		doctor_mean(r, "How many mappings a process may have is not known.");
		doctor_advise(r, "'sysctl vm.max_map_count' prints it; 65530 is usual.");
		return;
	}
	if (most >= 65530 && (!used || used < most * 8 / 10)) {
		doctor_say(r, DOCTOR_OK, "%llu allowed%s", (unsigned long long)most,
			d->root ? "" : ", this process has few");
		return;
	}
	doctor_say(r, DOCTOR_WARN, "%llu allowed, %llu in use", (unsigned long long)most,
		(unsigned long long)used);
	doctor_mean(r,
		"Each change of protection or advice in the middle of a buffer splits its mapping, and so "
		"does fork protection "
		"(MADV_DONTFORK) per registration. At the limit mmap, munmap and mprotect fail with ENOMEM.");
	doctor_advise(r, "sysctl vm.max_map_count=262144 (or more for programs with very many buffers).");
}

static void check_overcommit(struct doctor *d, struct doctor_result *r)
{
	uint64_t mode;

	if (!doctor_number(d, &mode, "/proc/sys/vm/overcommit_memory")) {
		doctor_say(r, DOCTOR_UNKNOWN, "cannot be read");
		doctor_mean(r, "Whether large sparse buffers can be mapped is not known.");
		doctor_advise(r, "'sysctl vm.overcommit_memory' prints it; 0 is usual.");
		return;
	}
	if (mode != 2) {
		doctor_say(r, DOCTOR_OK, "%s", mode == 1 ? "always (1)" : "heuristic (0)");
		return;
	}
	doctor_say(r, DOCTOR_WARN, "strict (2)");
	doctor_mean(r,
		"Every private writable mapping counts against the commit limit, touched or not, also with "
		"MAP_NORESERVE: large sparse on-demand "
		"buffers, which are what on-demand paging is good for, fail to be mapped.");
	doctor_advise(r, "sysctl vm.overcommit_memory=0, or use shared mappings of a file on a disk for "
			 "sparse buffers, which do not count.");
}

static void check_numa(struct doctor *d, struct doctor_result *r)
{
	char **names = doctor_names(d, "/sys/devices/system/node"), node[16] = "";
	uint64_t balancing = 0;
	unsigned nodes = 0;

	for (size_t i = 0; names && names[i]; i++)
		nodes += strncmp(names[i], "node", 4) == 0 && isdigit((unsigned char)names[i][4]);
	doctor_names_free(names);
	doctor_number(d, &balancing, "/proc/sys/kernel/numa_balancing");
	if (nodes < 2) {
		doctor_say(r, DOCTOR_OK, "one node");
		return;
	}
	if (d->device.found)
		doctor_line(
			d, node, sizeof(node), "/sys/class/infiniband/%s/device/numa_node", d->device.name);
	doctor_say(r, balancing ? DOCTOR_WARN : DOCTOR_OK, "%u nodes%s%s, automatic balancing %s", nodes,
		node[0] ? ", the card is at node " : "", node, balancing ? "on" : "off");
	if (!balancing)
		return;
	doctor_mean(r, "Balancing unmaps pages now and then to see who uses them, and moves them: each time "
		       "the device's entries of on-demand "
		       "memory are invalidated and faulted anew. Pinned pages are not moved.");
	doctor_advise(r,
		"For programs with large on-demand buffers: sysctl kernel.numa_balancing=0, or bind "
		"the program to the card's node: numactl --cpunodebind=%s --membind=%s PROGRAM.",
		node[0] ? node : "N", node[0] ? node : "N");
}

static const struct doctor_check checks[] = {
	{ "memory.memlock", "limit on locked memory", 0, check_memlock },
	{ "memory.cgroup", "memory cgroup", 0, check_cgroup },
	{ "memory.swap", "swap", 0, check_swap },
	{ "memory.swappiness", "swappiness", 0, check_swappiness },
	{ "memory.thp", "transparent huge pages", 0, check_thp },
	{ "memory.hugetlb", "hugetlb pool", 0, check_hugetlb },
	{ "memory.map-count", "mappings", 0, check_map_count },
	{ "memory.overcommit", "overcommit", 0, check_overcommit },
	{ "memory.numa", "NUMA", 0, check_numa },
};

const struct doctor_group doctor_memory_group = { "memory", "Memory", checks, COUNT(checks) };

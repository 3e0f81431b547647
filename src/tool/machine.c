/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/machine.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* The number behind "name:" in a file of such lines, times 1024 (they say kB). */
static uint64_t field(const char *path, const char *name)
{
	size_t len = strlen(name);
	uint64_t kib = 0;
	char line[256];
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, name, len) == 0 && line[len] == ':' &&
			sscanf(line + len + 1, "%" SCNu64, &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib << 10;
}

struct machine_memory machine_memory(void)
{
	return (struct machine_memory){
		.resident = field("/proc/self/status", "VmRSS"),
		.pinned = field("/proc/self/status", "VmPin"),
		.locked = field("/proc/self/status", "VmLck"),
	};
}

/* The only number in a file; 0 when there is none ("max"). */
static uint64_t number(const char *path)
{
	uint64_t v = 0;
	FILE *f = fopen(path, "re");

	if (f) {
		if (fscanf(f, "%" SCNu64, &v) != 1)
			v = 0;
		fclose(f);
	}
	return v;
}

/* What the limit of this process's own memory cgroup leaves; UINT64_MAX without one. Version 2, then
 * version 1. */
static uint64_t cgroup_left(void)
{
	static const struct {
		const char *prefix, *root, *limit, *usage;
	} kinds[] = {
		{ "0::", "/sys/fs/cgroup", "memory.max", "memory.current" },
		{ ":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes" },
	};
	uint64_t left = UINT64_MAX;
	char line[512], path[1024];
	FILE *f = fopen("/proc/self/cgroup", "re");

	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		for (size_t i = 0; i < 2; i++) {
			char *at = strstr(line, kinds[i].prefix);
			uint64_t limit, usage, rest;

			if (!at || (i == 0 && at != line))
				continue;
			at += strlen(kinds[i].prefix);
			snprintf(path, sizeof(path), "%s%s/%s", kinds[i].root, at, kinds[i].limit);
			limit = number(path);
			snprintf(path, sizeof(path), "%s%s/%s", kinds[i].root, at, kinds[i].usage);
			usage = number(path);
			rest = limit > usage ? limit - usage : 0;
			if (limit && rest < left)
				left = rest;
		}
	}
	if (f)
		fclose(f);
	return left;
}

uint64_t machine_available(void)
{
	uint64_t free_bytes = field("/proc/meminfo", "MemAvailable"), left = cgroup_left();

	return left < free_bytes ? left : free_bytes;
}

uint64_t machine_total(void)
{
	return field("/proc/meminfo", "MemTotal");
}

uint64_t machine_swap(void)
{
	return field("/proc/meminfo", "SwapTotal");
}

/* What stands behind "model name" and its like. */
void machine_processor(char name[MACHINE_WORDS_MAX])
{
	static const char *const keys[] = { "model name", "Processor", "cpu model", "CPU part" };
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[512];

	snprintf(name, MACHINE_WORDS_MAX, "unknown");
	while (f && fgets(line, sizeof(line), f)) {
		const char *value = strchr(line, ':');

		for (size_t i = 0; value && i < sizeof(keys) / sizeof(keys[0]); i++) {
			if (strncmp(line, keys[i], strlen(keys[i])) != 0)
				continue;
			value += 1 + strspn(value + 1, " \t");
			snprintf(name, MACHINE_WORDS_MAX, "%.*s", (int)strcspn(value, "\n"), value);
			fclose(f);
			return;
		}
	}
	if (f)
		fclose(f);
}

/* "always [madvise] never": the one in brackets. */
void machine_thp(char mode[MACHINE_WORDS_MAX])
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[MACHINE_WORDS_MAX], *at;

	snprintf(mode, MACHINE_WORDS_MAX, "unknown");
	if (!f)
		return;
	if (fgets(line, sizeof(line), f) && (at = strchr(line, '[')))
		snprintf(mode, MACHINE_WORDS_MAX, "%.*s", (int)strcspn(at + 1, "]"), at + 1);
	fclose(f);
}

/* The processors that the first caller may run on: one that has not been pinned. */
static pthread_once_t asked = PTHREAD_ONCE_INIT;
static cpu_set_t allowed;
static unsigned allowed_count;

static void ask(void)
{
	CPU_ZERO(&allowed);
	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		CPU_SET(0, &allowed);
	allowed_count = (unsigned)CPU_COUNT(&allowed);
}

unsigned machine_cpus(void)
{
	pthread_once(&asked, ask);
	return allowed_count;
}

bool machine_pin_thread(unsigned n)
{
	cpu_set_t one;

	if (machine_cpus() < 2)
		return false;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed) || n--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		return sched_setaffinity(0, sizeof(one), &one) == 0;
	}
	return false;
}

void machine_unpin_thread(void)
{
	machine_cpus();
	sched_setaffinity(0, sizeof(allowed), &allowed);
}

void machine_relax(void)
{
	if (machine_cpus() == 1)
		sched_yield();
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

uint64_t machine_memlock(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return 0;
	if (limit.rlim_cur != limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_MEMLOCK, &limit);
		getrlimit(RLIMIT_MEMLOCK, &limit);
	}
	return limit.rlim_cur == RLIM_INFINITY || geteuid() == 0 ? UINT64_MAX : limit.rlim_cur;
}

void *machine_map(size_t length)
{
	size_t room = length + HUGE_PAGE;
	char *start =
		mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *addr;

	if (start == MAP_FAILED)
		return NULL;
	addr = (char *)(((uintptr_t)start + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	if (addr > start)
		munmap(start, (size_t)(addr - start));
	/* A mapping of whole pages, whatever the length. */
	length = (length + (size_t)getpagesize() - 1) & ~((size_t)getpagesize() - 1);
	if (addr + length < start + room)
		munmap(addr + length, (size_t)(start + room - (addr + length)));
	madvise(addr, length, MADV_NOHUGEPAGE);
	return addr;
}

void machine_unmap(void *addr, size_t length)
{
	if (addr)
		munmap(addr, length);
}

void machine_touch(void *addr, size_t length)
{
	for (size_t i = 0; i < length; i += (size_t)getpagesize())
		*(volatile uint64_t *)((char *)addr + i) = i;
}

/* One multiplication and one shift per word: streams are filled faster than they are sent. */
static inline uint64_t word(size_t i, uint64_t seed)
{
	uint64_t x = (i + 1 + seed * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;

	return x ^ x >> 31;
}

#define PAGE	4096u
#define SCATTER 40503u /* odd, and far from every power of two */

size_t machine_scatter(size_t i, size_t pages)
{
	return (i * SCATTER & (pages - 1)) * PAGE;
}

void machine_touch_scattered(void *addr, size_t length)
{
	for (size_t i = 0; i < length / PAGE; i++)
		*(volatile uint64_t *)((char *)addr + machine_scatter(i, length / PAGE)) = i;
}

void machine_fill(void *addr, size_t length, uint64_t seed)
{
	uint64_t *w = addr;

	for (size_t i = 0; i < length / 8; i++)
		w[i] = word(i, seed);
}

size_t machine_compare(const void *addr, size_t length, uint64_t seed)
{
	const uint64_t *w = addr;

	for (size_t i = 0; i < length / 8; i++)
		if (w[i] != word(i, seed))
			return 8 * i;
	return length;
}

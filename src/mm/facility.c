/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/facility.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "mm/interpose.h"
#include "mm/page.h"
#include "mm/pressure.h"
#include "mm/residency.h"
#include "mm/ringmake.h"
#include "mm/uffd.h"
#include "mm/vma.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

static int probe_populate(void);
static int probe_process_vm(void);
static int probe_sched_slice(void);

/* A probe answers 0 or a negative errno, in any thread. */
static const struct {
	const char *name;
	int (*probe)(void);
} table[MM_FACILITIES] = {
	[MM_POPULATE] = { "populate", probe_populate },
	[MM_PAGEMAP_SCAN] = { "pagemap_scan", residency_probe_scan },
	[MM_PAGEMAP] = { "pagemap", residency_probe_pagemap },
	[MM_PROCMAP_QUERY] = { "procmap_query", vma_probe_query },
	[MM_IO_URING] = { "io_uring", ring_probe },
	[MM_PROCESS_VM] = { "process_vm", probe_process_vm },
	[MM_SCHED_SLICE] = { "sched_slice", probe_sched_slice },
	[MM_PSI] = { "psi", pressure_probe_stall },
	[MM_UFFD] = { "uffd", uffd_probe },
};

/* Per facility: 0 not known yet, 1 available, else the negative errno of the probe or DISABLED. Two threads
 * that ask at once probe twice; what they store is the same, for what may pass is not stored. */
#define DISABLED (-100000)
static atomic_int state[MM_FACILITIES];

/* What says nothing about the kernel, only about this moment. */
static const struct {
	int err;
	const char *why;
} passing[] = {
	{ -ENOMEM, "not to be had for the moment: no memory, or the limit on locked memory" },
	{ -EMFILE, "not to be had for the moment: too many open files in this process" },
	{ -ENFILE, "not to be had for the moment: too many open files in the system" },
	{ -EAGAIN, "not to be had for the moment: busy" },
	{ -EINTR, "not to be had for the moment: interrupted" },
};

/* The reason in words: claimed by the first who asks, then written once, then published. */
static struct {
	atomic_int claim, ready;
	char text[96];
} reason[MM_FACILITIES];

static int probe_populate(void)
{
	void *page = raw_mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err = 0;

	if (page == MAP_FAILED)
		return -errno;
	if (raw_madvise(page, page_size(), MADV_POPULATE_READ) ||
		raw_madvise(page, page_size(), MADV_POPULATE_WRITE))
		err = -errno;
	raw_munmap(page, page_size());
	return err;
}

static int probe_process_vm(void)
{
	char from = 'x', to = 0;
	struct iovec local = { &to, 1 }, remote = { &from, 1 };
	long r = syscall(SYS_process_vm_readv, getpid(), &local, 1ul, &remote, 1ul, 0ul);

	if (r != 1)
		return r < 0 ? -errno : -EIO;
	r = syscall(SYS_process_vm_writev, getpid(), &local, 1ul, &remote, 1ul, 0ul);
	if (r != 1)
		return r < 0 ? -errno : -EIO;
	return 0;
}

/* struct sched_attr of sched_getattr(2), as far as it is needed. */
struct sched_attr_v0 {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

/* Since 6.12 the slice of an ordinary thread is reported in sched_runtime, before that 0. */
static int probe_sched_slice(void)
{
	struct sched_attr_v0 attr = { .size = sizeof(attr) };

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0))
		return -errno;
	return attr.runtime ? 0 : -EOPNOTSUPP;
}

static int facility_by_name(const char *name, size_t len)
{
	for (int f = 0; f < MM_FACILITIES; f++)
		if (strlen(table[f].name) == len && !memcmp(table[f].name, name, len))
			return f;
	return -1;
}

static bool disabled_by_user(enum mm_facility f)
{
	const char *at = getenv("UNPIN_DISABLE");
	static atomic_bool reported;
	bool found = false, bad = false;
	size_t len;

	for (; at && *at; at += len + (at[len] == ',')) {
		len = strcspn(at, ",");
		if (!len)
			continue;
		int named = facility_by_name(at, len);
		found |= named == (int)f;
		bad |= named < 0;
		if (named < 0 && !atomic_load(&reported))
			log_warn("UNPIN_DISABLE: \"%.*s\" is not a facility and is ignored",
				(int)(len < 64 ? len : 64), at);
	}
	if (bad)
		atomic_store(&reported, true);
	return found;
}

static const char *why_passing(int err)
{
	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
		if (passing[i].err == err)
			return passing[i].why;
	return NULL;
}

bool mm_passing(int err)
{
	return why_passing(err);
}

static int ask(enum mm_facility f)
{
	int now = atomic_load_explicit(&state[f], memory_order_acquire);
	int saved, err;

	if (now)
		return now;
	saved = errno;
	err = disabled_by_user(f) ? DISABLED : table[f].probe();
	now = err ? err : 1;
	/* A process without a free descriptor would do without the facility for ever. */
	if (!mm_passing(now))
		atomic_store_explicit(&state[f], now, memory_order_release);
	errno = saved;
	return now;
}

bool mm_have(enum mm_facility f)
{
	return ask(f) == 1;
}

int mm_ask(enum mm_facility f)
{
	int now = ask(f);

	return now == 1 ? 0 : now == DISABLED ? -EOPNOTSUPP : now;
}

const char *mm_facility_name(enum mm_facility f)
{
	return table[f].name;
}

const char *mm_facility_why_not(enum mm_facility f)
{
	int now = ask(f), unclaimed = 0;
	const char *words;

	if (now == 1)
		return NULL;
	if (now == DISABLED)
		return "disabled by UNPIN_DISABLE";
	if (mm_passing(now))
		return why_passing(now);
	if (atomic_compare_exchange_strong(&reason[f].claim, &unclaimed, 1)) {
		words = strerrordesc_np(-now);
		snprintf(reason[f].text, sizeof(reason[f].text), "refused by the kernel: %s",
			words ? words : "unknown error");
		atomic_store_explicit(&reason[f].ready, 1, memory_order_release);
	}
	return atomic_load_explicit(&reason[f].ready, memory_order_acquire) ? reason[f].text
									    : "refused by the kernel";
}

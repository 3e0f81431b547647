/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the tests of the paging room share: an open space with its counters, regions, waiters that remember,
 * the notifier.
 */
#ifndef UNPIN_TESTS_ODP_FIXTURE_H
#define UNPIN_TESTS_ODP_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "mm/interpose.h"
#include "mm/sigchain.h"
#include "odp/core.h"
#include "odp/space.h"

#define PAGE 4096ul

struct fixture {
	struct unpin_odp_counters totals;
	struct hist steps[2][UNPIN_STEPS];
	_Atomic uint64_t table_bytes, leaves;
	struct unpin_storm storm;
	struct odp_space *space;
};

/* The counters of a region must live as long as the space: rows of this array, handed out in turn. */
#define FIXTURE_ROWS 4096u
static struct fixture fx;
static struct unpin_odp_counters fixture_row[FIXTURE_ROWS];
static _Atomic unsigned fixture_rows;
/* Of every fault, for the spaces that are opened next. */
static uint64_t fixture_latency;
static struct odp_storm_limits fixture_limits;

static void fixture_observer(enum mm_change what, uintptr_t addr, size_t len)
{
	odp_space_invalidate(fx.space, addr, len, what == MM_DISCARD ? ODP_DISCARD : ODP_NOTIFIER);
}

static int fixture_open(unsigned threads)
{
	struct odp_cfg cfg = {
		.driver_threads = threads,
		.fault_latency_ns = fixture_latency,
		.storm_limits = fixture_limits,
		.storm = &fx.storm,
		.totals = &fx.totals,
		.step_ns = fx.steps,
		.table_bytes = &fx.table_bytes,
		.leaves = &fx.leaves,
	};

	memset(&fx.totals, 0, sizeof(fx.totals));
	memset(&fx.storm, 0, sizeof(fx.storm));
	memset(fixture_row, 0, sizeof(fixture_row));
	atomic_store(&fixture_rows, 0);
	memset(fx.steps, 0, sizeof(fx.steps));
	if (sigchain_install())
		return -1;
	return odp_space_open(&cfg, &fx.space);
}

static inline int fixture_setup(void **state)
{
	(void)state;
	if (fixture_open(4))
		return -1;
	interpose_observe(fixture_observer);
	return 0;
}

static inline int fixture_teardown(void **state)
{
	(void)state;
	interpose_observe(NULL);
	/* A test that failed has left regions on its stack: the space is left alone then. */
	if (list_empty(&fx.space->regions))
		odp_space_close(fx.space);
	return 0;
}

static inline void region_open(struct odp_region *r, void *addr, size_t len, bool writable)
{
	memset(r, 0, sizeof(*r));
	r->space = fx.space;
	r->addr = (uintptr_t)addr;
	r->len = len;
	r->writable = writable;
	r->odp = &fixture_row[atomic_fetch_add(&fixture_rows, 1) % FIXTURE_ROWS];
	odp_region_init(r);
}

/* A waiter that remembers what it was told. */
struct witness {
	struct odp_waiter w;
	_Atomic int told; /* how often */
	int result;
	_Atomic unsigned *turn; /* counts tellings over all witnesses, if set */
	unsigned order;
};

static void witness_ready(struct odp_waiter *w, int result)
{
	struct witness *it = container_of(w, struct witness, w);

	it->result = result;
	if (it->turn)
		it->order = atomic_fetch_add(it->turn, 1);
	atomic_fetch_add(&it->told, 1);
}

static inline void witness_init(struct witness *it)
{
	memset(it, 0, sizeof(*it));
	it->w.ready = witness_ready;
}

static inline int witness_wait(struct witness *it)
{
	while (!atomic_load(&it->told))
		sched_yield();
	atomic_store(&it->told, 0);
	return it->result;
}

/* An access that waits for its faults, as a queue pair would. */
static inline int copy_in(struct odp_region *r, void *to, const void *buf, size_t n)
{
	struct witness it;
	int err;

	witness_init(&it);
	while ((err = odp_copy_in(r, SAFECOPY_FIXUP, (uintptr_t)to, buf, n, &it.w)) == -EINPROGRESS)
		witness_wait(&it);
	return err;
}

static inline int copy_out(struct odp_region *r, const void *from, void *buf, size_t n)
{
	struct witness it;
	int err;

	witness_init(&it);
	while ((err = odp_copy_out(r, SAFECOPY_FIXUP, (uintptr_t)from, buf, n, &it.w)) == -EINPROGRESS)
		witness_wait(&it);
	return err;
}

/*
 * A nameless file on a disk, or what passes for one: its pages, shared and written, are a driver's, which
 * those of a tmpfs (as /tmp is in many places) are not. -1: there is no room for one.
 */
static inline int disk_file(size_t len)
{
	static const char *const folder[] = { "/var/tmp", "/tmp", "." };

	for (unsigned i = 0; i < sizeof(folder) / sizeof(*folder); i++) {
		int fd = open(folder[i], O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		struct statfs fs;

		if (fd < 0) {
			char name[64];

			snprintf(name, sizeof(name), "%s/unpin-odp-XXXXXX", folder[i]);
			fd = mkostemp(name, O_CLOEXEC);
			if (fd >= 0)
				unlink(name);
		}
		if (fd >= 0 && !fstatfs(fd, &fs) && fs.f_type != TMPFS_MAGIC && !ftruncate(fd, (off_t)len))
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* What fits one leaf of the device's page table (2 MiB) lies in one: invalidations of pages that nobody used
 * are not counted where there is no leaf. */
static inline void *fresh(size_t len, int prot)
{
	uintptr_t leaf = 2ul << 20;
	void *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *other;

	assert_ptr_not_equal(p, MAP_FAILED);
	if (len > leaf / 2 || (uintptr_t)p / leaf == ((uintptr_t)p + len - 1) / leaf)
		return p;
	other = fresh(len, prot);
	munmap(p, len);
	return other;
}

/* NULL (and said so): under ThreadSanitizer there may be no terabyte of addresses in one piece. */
static inline char *fresh_terabyte(void)
{
	void *p = mmap(
		NULL, 1ul << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

#ifdef __SANITIZE_THREAD__
	if (p == MAP_FAILED) {
		print_message("no terabyte of addresses is free\n");
		return NULL;
	}
#endif
	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static inline enum page_state state_at(const void *addr)
{
	struct leaf *leaf = pagetable_leaf(&fx.space->table, (uintptr_t)addr);

	return leaf ? leaf_state(leaf, leaf_page((uintptr_t)addr)) : PAGE_INVALID;
}

static inline uint64_t value(_Atomic uint64_t *counter)
{
	return atomic_load(counter);
}

#define assert_counter(counters, field, expected) assert_int_equal(value(&(counters)->field), (expected))

#endif

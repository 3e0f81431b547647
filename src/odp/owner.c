/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/owner.h"

#include <errno.h>
#include <sys/mman.h>

#include "mm/interpose.h"

#define ROWS_BYTES (OWNERS * sizeof(struct owner))
#define FREE_BYTES (OWNERS * sizeof(uint16_t))

static void *reserve(size_t bytes)
{
	void *p = raw_mmap(
		NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int owners_init(struct owners *o)
{
	*o = (struct owners){ .row = reserve(ROWS_BYTES), .free = reserve(FREE_BYTES), .high = 1 };
	if (o->row && o->free)
		return 0;
	owners_destroy(o);
	return -ENOMEM;
}

void owners_destroy(struct owners *o)
{
	if (o->row)
		raw_munmap(o->row, ROWS_BYTES);
	if (o->free)
		raw_munmap(o->free, FREE_BYTES);
	o->row = NULL;
	o->free = NULL;
}

static uint16_t number_take(struct owners *o)
{
	uint16_t number = 0;

	if (o->high < OWNERS)
		return (uint16_t)o->high++;
	if (o->free_len) {
		number = o->free[o->free_at];
		o->free_at = (o->free_at + 1) % OWNERS;
		o->free_len--;
	}
	return number;
}

uint16_t owner_take(struct owners *o, uintptr_t first, uintptr_t end, struct unpin_odp_counters *counters)
{
	uint16_t number = number_take(o);
	struct owner *row = &o->row[number];

	if (!number)
		return 0;
	atomic_store_explicit(&row->first, first, memory_order_relaxed);
	atomic_store_explicit(&row->end, end, memory_order_relaxed);
	atomic_store_explicit(&row->counters, counters, memory_order_release);
	return number;
}

void owner_give(struct owners *o, uint16_t number)
{
	if (!number)
		return;
	atomic_store_explicit(&o->row[number].counters, NULL, memory_order_relaxed);
	o->free[(o->free_at + o->free_len++) % OWNERS] = number;
}

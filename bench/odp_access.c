/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What on-demand paging adds to a copy, without the rest of the device: warm copies against the bare
 * survivable copy and memcpy, a cold page against MADV_POPULATE_WRITE of one page and a CPU touch, a cold
 * stream against populate + memcpy. Medians of interleaved rounds, nanoseconds per operation.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/hist.h"
#include "mm/interpose.h"
#include "mm/sigchain.h"
#include "odp/space.h"

#define PAGE   4096ul
#define ROUNDS 15
#define STREAM (256ul << 20)
#define CHUNK  (16ul << 10)
#define COLD   2048ul

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static struct unpin_odp_counters totals, counters;
static struct hist steps[2][UNPIN_STEPS];
static _Atomic uint64_t table_bytes, leaves;
static struct odp_space *space;
static char buf[1 << 20] __attribute__((aligned(4096)));
/* A hard one for the compiler: it must not see through the copy. */
static void *(*volatile plain_copy)(void *, const void *, size_t) = memcpy;

static void never(struct odp_waiter *w, int result)
{
	(void)w;
	(void)result;
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

static void region_over(struct odp_region *r, void *p, size_t len)
{
	memset(r, 0, sizeof(*r));
	r->space = space;
	r->addr = (uintptr_t)p;
	r->len = len;
	r->writable = true;
	r->odp = &counters;
	odp_region_init(r);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

static void check(int err)
{
	if (!err)
		return;
	fprintf(stderr, "odp_access: an access failed: %d\n", err);
	exit(1);
}

static void warm(size_t n)
{
	double odp[ROUNDS], bare[ROUNDS], plain[ROUNDS];
	struct odp_waiter w = { .ready = never };
	size_t times = n <= PAGE ? 400000 : 20000;
	struct odp_region r;
	char *p = map(1 << 20);
	uint64_t t;

	memset(p, 1, 1 << 20);
	region_over(&r, p, 1 << 20);
	check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p, buf, n, &w));
	for (unsigned round = 0; round < ROUNDS; round++) {
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p, buf, n, &w));
		odp[round] = (double)(clock_ns() - t) / (double)times;
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			safecopy_to_user(SAFECOPY_FIXUP, p, buf, n, NULL);
		bare[round] = (double)(clock_ns() - t) / (double)times;
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			plain_copy(p, buf, n);
		plain[round] = (double)(clock_ns() - t) / (double)times;
	}
	printf("warm %7zu B   on demand %9.1f   bare %9.1f   memcpy %9.1f   added %6.1f\n", n,
		median(odp, ROUNDS), median(bare, ROUNDS), median(plain, ROUNDS),
		median(odp, ROUNDS) - median(bare, ROUNDS));
	odp_region_fini(&r);
	raw_munmap(p, 1 << 20);
}

/* Every third page in a scattered order, so that nothing is sequential. */
static char *scattered(char *p, size_t i)
{
	return p + i * 1031 % COLD * 3 * PAGE;
}

static void cold(void)
{
	double odp[ROUNDS], populate[ROUNDS], touch[ROUNDS];
	struct odp_waiter w = { .ready = never };
	struct odp_region r;
	size_t len = COLD * 3 * PAGE;
	uint64_t t;
	char *p;

	for (unsigned round = 0; round < ROUNDS; round++) {
		p = map(len);
		region_over(&r, p, len);
		t = clock_ns();
		for (size_t i = 0; i < COLD; i++)
			check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)scattered(p, i), buf, PAGE, &w));
		odp[round] = (double)(clock_ns() - t) / COLD;
		/* Warm the second time: what the copy itself costs. */
		t = clock_ns();
		for (size_t i = 0; i < COLD; i++)
			check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)scattered(p, i), buf, PAGE, &w));
		odp[round] -= (double)(clock_ns() - t) / COLD;
		odp_region_fini(&r);
		raw_munmap(p, len);

		p = map(len);
		t = clock_ns();
		for (size_t i = 0; i < COLD; i++)
			raw_madvise(scattered(p, i), PAGE, MADV_POPULATE_WRITE);
		populate[round] = (double)(clock_ns() - t) / COLD;
		raw_munmap(p, len);

		p = map(len);
		t = clock_ns();
		for (size_t i = 0; i < COLD; i++)
			*(volatile char *)scattered(p, i) = 1;
		touch[round] = (double)(clock_ns() - t) / COLD;
		raw_munmap(p, len);
	}
	printf("cold    4096 B   on demand minus warm %7.0f   populate of one page %7.0f   CPU touch %7.0f   "
	       "ratio %5.2f\n",
		median(odp, ROUNDS), median(populate, ROUNDS), median(touch, ROUNDS),
		median(odp, ROUNDS) / median(populate, ROUNDS));
}

static void stream(void)
{
	double odp[5], base[5];
	struct odp_waiter w = { .ready = never };
	struct odp_region r;
	uint64_t t;
	char *p;

	for (unsigned round = 0; round < 5; round++) {
		p = map(STREAM);
		region_over(&r, p, STREAM);
		t = clock_ns();
		for (size_t at = 0; at < STREAM; at += CHUNK)
			check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + at, buf, CHUNK, &w));
		odp[round] = (double)(clock_ns() - t);
		odp_region_fini(&r);
		raw_munmap(p, STREAM);

		p = map(STREAM);
		t = clock_ns();
		for (size_t at = 0; at < STREAM; at += 2ul << 20)
			raw_madvise(p + at, 2ul << 20, MADV_POPULATE_WRITE);
		for (size_t at = 0; at < STREAM; at += CHUNK)
			plain_copy(p + at, buf, CHUNK);
		base[round] = (double)(clock_ns() - t);
		raw_munmap(p, STREAM);
	}
	printf("cold stream     on demand %6.2f GB/s   populate + memcpy %6.2f GB/s   ratio %5.2f\n",
		(double)STREAM / median(odp, 5), (double)STREAM / median(base, 5),
		median(base, 5) / median(odp, 5));
}

int main(void)
{
	struct odp_cfg cfg = {
		.driver_threads = 2,
		.totals = &totals,
		.step_ns = steps,
		.table_bytes = &table_bytes,
		.leaves = &leaves,
	};

	if (sigchain_install() || odp_space_open(&cfg, &space)) {
		fprintf(stderr, "odp_access: no address space to page\n");
		return 1;
	}
	memset(buf, 1, sizeof(buf));
	warm(8);
	warm(PAGE);
	warm(65536);
	cold();
	stream();
	odp_space_close(space);
	return 0;
}

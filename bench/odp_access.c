/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What on-demand paging adds to a copy, without the rest of the device: warm copies against the bare
 * survivable copy and memcpy, a cold page against MADV_POPULATE_WRITE of one page and a CPU touch, a cold
 * stream against populate + memcpy, a page dropped and faulted in again against the CPU doing the same,
 * random pages with 64 accesses outstanding against a touch loop, an implicit region against an explicit one,
 * what the notifier costs an munmap of an untouched terabyte. Medians of interleaved rounds, nanoseconds per
 * operation.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/hist.h"
#include "mm/interpose.h"
#include "mm/pin.h"
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
static struct unpin_storm storm;
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

static void observer(enum mm_change what, uintptr_t addr, size_t len)
{
	odp_space_invalidate(space, addr, len, what == MM_DISCARD ? ODP_DISCARD : ODP_NOTIFIER);
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
	double odp[ROUNDS], pinned[ROUNDS], bare[ROUNDS], plain[ROUNDS];
	struct odp_waiter w = { .ready = never };
	size_t times = n <= PAGE ? 400000 : 20000;
	struct odp_region r;
	char *p = map(1 << 20);
	struct pin *pin;
	uint64_t t;

	memset(p, 1, 1 << 20);
	check(pin_create((uintptr_t)p, 1 << 20, true, &pin));
	region_over(&r, p, 1 << 20);
	check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p, buf, n, &w));
	for (unsigned round = 0; round < ROUNDS; round++) {
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p, buf, n, &w));
		odp[round] = (double)(clock_ns() - t) / (double)times;
		t = clock_ns();
		for (size_t i = 0; i < times; i++) {
			check(pin_copy_in(pin, SAFECOPY_FIXUP, (uintptr_t)p, buf, n));
			/* As the device does around it. */
			counter_add(&counters.bytes_in, n);
		}
		pinned[round] = (double)(clock_ns() - t) / (double)times;
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			safecopy_to_user(SAFECOPY_FIXUP, p, buf, n, NULL);
		bare[round] = (double)(clock_ns() - t) / (double)times;
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			plain_copy(p, buf, n);
		plain[round] = (double)(clock_ns() - t) / (double)times;
	}
	printf("warm %7zu B   on demand %9.1f   pinned %9.1f   bare %9.1f   memcpy %9.1f   to pinned %5.3f\n",
		n, median(odp, ROUNDS), median(pinned, ROUNDS), median(bare, ROUNDS), median(plain, ROUNDS),
		median(odp, ROUNDS) / median(pinned, ROUNDS));
	odp_region_fini(&r);
	pin_destroy(pin);
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

/* One page, dropped through the notifier and accessed again. */
static void refault(void)
{
	double odp[ROUNDS], cpu[ROUNDS];
	struct odp_waiter w = { .ready = never };
	const unsigned times = 4000;
	char *p = map(64 * PAGE), *q = map(64 * PAGE);
	struct odp_region r;
	uint64_t t;

	region_over(&r, p, 64 * PAGE);
	for (unsigned round = 0; round < ROUNDS; round++) {
		interpose_observe(observer);
		t = clock_ns();
		for (unsigned i = 0; i < times; i++) {
			madvise(p + 8 * PAGE, PAGE, MADV_DONTNEED);
			check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + 8 * PAGE, buf, 8, &w));
		}
		odp[round] = (double)(clock_ns() - t) / times;
		interpose_observe(NULL);
		t = clock_ns();
		for (unsigned i = 0; i < times; i++) {
			raw_madvise(q + 8 * PAGE, PAGE, MADV_DONTNEED);
			*(volatile char *)(q + 8 * PAGE) = 1;
		}
		cpu[round] = (double)(clock_ns() - t) / times;
	}
	printf("drop and refault  on demand %7.0f   CPU %7.0f   ratio %5.2f\n", median(odp, ROUNDS),
		median(cpu, ROUNDS), median(odp, ROUNDS) / median(cpu, ROUNDS));
	odp_region_fini(&r);
	raw_munmap(p, 64 * PAGE);
	raw_munmap(q, 64 * PAGE);
}

#define OUTSTANDING  64u
#define RANDOM_PAGES 16384ul

/* An access of a queue pair that may wait. */
struct outstanding {
	struct odp_waiter w;
	_Atomic bool done;
	char *at;
};

static void done(struct odp_waiter *w, int result)
{
	(void)result;
	atomic_store(&container_of(w, struct outstanding, w)->done, true);
}

/* Every page once, in an order without a pattern. */
static char *random_page(char *p, size_t i)
{
	return p + (i * 40503 + 12345) % RANDOM_PAGES * PAGE;
}

static void random_faults(const char *what)
{
	static struct outstanding out[OUTSTANDING];
	double odp[5], touch[5];
	struct odp_region r;
	uint64_t t;
	char *p;

	for (unsigned round = 0; round < 5; round++) {
		size_t next = 0, over = 0;

		p = map(RANDOM_PAGES * PAGE);
		region_over(&r, p, RANDOM_PAGES * PAGE);
		t = clock_ns();
		for (unsigned i = 0; i < OUTSTANDING; i++)
			out[i] =
				(struct outstanding){ .w = { .ready = done, .flow = &out[i] }, .done = true };
		while (over < RANDOM_PAGES)
			for (unsigned i = 0; i < OUTSTANDING; i++) {
				int err;

				if (!atomic_load_explicit(&out[i].done, memory_order_acquire))
					continue;
				if (!out[i].at && next == RANDOM_PAGES)
					continue;
				if (!out[i].at)
					out[i].at = random_page(p, next++);
				atomic_store_explicit(&out[i].done, false, memory_order_relaxed);
				err = odp_copy_in(
					&r, SAFECOPY_FIXUP, (uintptr_t)out[i].at, buf, 8, &out[i].w);
				if (err == -EINPROGRESS)
					continue;
				check(err);
				out[i].at = NULL;
				atomic_store_explicit(&out[i].done, true, memory_order_relaxed);
				over++;
			}
		odp[round] = (double)(clock_ns() - t) / RANDOM_PAGES;
		odp_region_fini(&r);
		raw_munmap(p, RANDOM_PAGES * PAGE);

		p = map(RANDOM_PAGES * PAGE);
		t = clock_ns();
		for (size_t i = 0; i < RANDOM_PAGES; i++)
			*(volatile uint64_t *)random_page(p, i) = 1;
		touch[round] = (double)(clock_ns() - t) / RANDOM_PAGES;
		raw_munmap(p, RANDOM_PAGES * PAGE);
	}
	printf("random pages %s  on demand %7.0f   CPU touch %7.0f   throughput %4.0f %%\n", what,
		median(odp, 5), median(touch, 5), 100 * median(touch, 5) / median(odp, 5));
}

static void implicit(size_t n)
{
	double explicit_ns[ROUNDS], implicit_ns[ROUNDS];
	struct odp_waiter w = { .ready = never };
	const size_t times = n <= PAGE ? 400000 : 20000;
	struct odp_region one, all;
	char *p = map(1 << 20);
	uint64_t t;

	memset(p, 1, 1 << 20);
	region_over(&one, p, 1 << 20);
	region_over(&all, NULL, SIZE_MAX);
	for (unsigned round = 0; round < ROUNDS; round++) {
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			check(odp_copy_in(&one, SAFECOPY_FIXUP, (uintptr_t)p, buf, n, &w));
		explicit_ns[round] = (double)(clock_ns() - t) / (double)times;
		t = clock_ns();
		for (size_t i = 0; i < times; i++)
			check(odp_copy_in(&all, SAFECOPY_FIXUP, (uintptr_t)p, buf, n, &w));
		implicit_ns[round] = (double)(clock_ns() - t) / (double)times;
	}
	printf("implicit %7zu B   implicit %7.1f   explicit %7.1f   ratio %5.3f\n", n,
		median(implicit_ns, ROUNDS), median(explicit_ns, ROUNDS),
		median(implicit_ns, ROUNDS) / median(explicit_ns, ROUNDS));
	odp_region_fini(&one);
	odp_region_fini(&all);
	raw_munmap(p, 1 << 20);
}

/* What an invalidation costs where the device has touched nothing, or one page. */
static void terabyte(void)
{
	double nothing[ROUNDS], page[ROUNDS];
	struct odp_waiter w = { .ready = never };
	const size_t len = 1ul << 40;
	const unsigned times = 2000;
	struct odp_region r;
	char *p = map(len);
	uint64_t t;

	region_over(&r, p, len);
	for (unsigned round = 0; round < ROUNDS; round++) {
		/* A page in the table is nearby, as in a program that uses the device. */
		check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)buf, buf, 8, &w));
		t = clock_ns();
		for (unsigned i = 0; i < times; i++)
			odp_space_invalidate(space, (uintptr_t)p, len, ODP_NOTIFIER);
		nothing[round] = (double)(clock_ns() - t) / times;
		check(odp_copy_in(&r, SAFECOPY_FIXUP, (uintptr_t)p + len / 2, buf, 8, &w));
		t = clock_ns();
		for (unsigned i = 0; i < times; i++)
			odp_space_invalidate(space, (uintptr_t)p, len, ODP_NOTIFIER);
		page[round] = (double)(clock_ns() - t) / times;
		while (odp_space_sweep(space, clock_ns()))
			;
	}
	printf("invalidate 1 TiB   untouched %7.0f   a page touched before %7.0f\n", median(nothing, ROUNDS),
		median(page, ROUNDS));
	odp_region_fini(&r);
	raw_munmap(p, len);
}

int main(void)
{
	struct odp_cfg cfg = {
		.driver_threads = 2,
		.storm = &storm,
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
	refault();
	random_faults("64 outstanding");
	implicit(8);
	implicit(PAGE);
	implicit(65536);
	terabyte();
	odp_space_close(space);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Everything at once over one space, against a model of what every byte must be.
 *
 * The arena is cut into cells of a few pages, anonymous and of a file in turn, so that neighbours share words
 * and leaves of the device page table and faults are resolved on the spot and by driver threads. A worker
 * locks a cell and does something to it: device writes, reads and atomics, CPU writes, munmap and mmap,
 * MADV_DONTNEED, mprotect, mremap away and back, with and without the notifier knowing; the cell's model is
 * kept in step and compared. Meanwhile, without any lock, others read every cell through the device (any
 * outcome but a hang, a signal or an unknown error is right), register and deregister overlapping regions
 * with operations parked on them and prefetches under way, cancel, drop entries at random, downgrade them as
 * fork does, and sweep. Then the same again with faults that take a while, so that they pile up.
 *
 * odp_stress_test [SEED [OPERATIONS]] repeats a run's decisions (not the scheduling).
 */
#include "fixture.h"

#include <inttypes.h>

#define CELLS	   96u
#define CELL_PAGES 3u
#define CELL	   (CELL_PAGES * PAGE)
#define ARENA	   (CELLS * CELL)
#define WORKERS	   3u
#define REGIONS	   3u

static uint64_t seed;
#ifdef __SANITIZE_THREAD__
static unsigned operations = 8000;
#else
static unsigned operations = 30000;
#endif
static atomic_bool stop;

static char *arena, *aside; /* aside: where cells are moved to and back from */
static int file;

struct cell {
	pthread_mutex_t lock;
	char *at, *aside;
	bool of_file;
	bool lost; /* somebody else has been given its addresses */
	long offset;
	unsigned char model[CELL];
};

static struct cell cell[CELLS];
/* Regions for the workers; the noisy ones have their own. */
static struct odp_region region[REGIONS];

struct dice {
	uint64_t s;
};

static uint64_t roll(struct dice *d)
{
	d->s += 0x9e3779b97f4a7c15ull;
	uint64_t z = d->s;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static unsigned below(struct dice *d, unsigned n)
{
	return (unsigned)(roll(d) % n);
}

#define REQUIRE(what)                                                                                        \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "%s:%d: %s does not hold (seed %" PRIu64 ", %u operations)\n",       \
				__FILE__, __LINE__, #what, seed, operations);                                \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

/* ---- what is done to a locked cell ---- */

static struct odp_region *any_region(struct dice *d)
{
	return &region[below(d, REGIONS)];
}

static void span(struct dice *d, unsigned *at, unsigned *n)
{
	unsigned most = below(d, 4) ? 64 : CELL;

	*at = below(d, CELL);
	*n = 1 + below(d, most);
	if (*n > CELL - *at)
		*n = CELL - *at;
}

static void device_writes(struct cell *c, struct dice *d)
{
	unsigned char buf[CELL];
	unsigned at, n;

	span(d, &at, &n);
	for (unsigned i = 0; i < n; i++)
		buf[i] = (unsigned char)roll(d);
	REQUIRE(copy_in(any_region(d), c->at + at, buf, n) == 0);
	memcpy(c->model + at, buf, n);
}

static void device_reads(struct cell *c, struct dice *d)
{
	unsigned char buf[CELL];
	unsigned at, n;

	span(d, &at, &n);
	REQUIRE(copy_out(any_region(d), c->at + at, buf, n) == 0);
	REQUIRE(!memcmp(buf, c->model + at, n));
}

static void device_adds(struct cell *c, struct dice *d)
{
	unsigned at = below(d, CELL / 8) * 8;
	uint64_t orig, model, add = roll(d);
	struct witness it;
	int err;

	witness_init(&it);
	while ((err = odp_fetch_add(any_region(d), SAFECOPY_FIXUP, (uintptr_t)c->at + at, add, &orig,
			&it.w)) == -EINPROGRESS)
		witness_wait(&it);
	REQUIRE(!err);
	memcpy(&model, c->model + at, 8);
	REQUIRE(orig == model);
	model += add;
	memcpy(c->model + at, &model, 8);
}

static void cpu_writes(struct cell *c, struct dice *d)
{
	unsigned at, n;

	span(d, &at, &n);
	memset(c->at + at, (int)n, n);
	memset(c->model + at, (int)n, n);
}

static void cpu_reads(struct cell *c, struct dice *d)
{
	unsigned at, n;

	span(d, &at, &n);
	REQUIRE(!memcmp(c->at + at, c->model + at, n));
}

/* MAP_FIXED or, into a hole, MAP_FIXED_NOREPLACE. */
static bool map_again(struct cell *c, int how, bool quietly)
{
	int flags = how | (c->of_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS),
	    fd = c->of_file ? file : -1;
	void *p = quietly ? raw_mmap(c->at, CELL, PROT_READ | PROT_WRITE, flags, fd, c->offset)
			  : mmap(c->at, CELL, PROT_READ | PROT_WRITE, flags, fd, c->offset);

	if (how != MAP_FIXED && p == MAP_FAILED && errno == EEXIST)
		return false;
	REQUIRE(p == c->at);
	if (!c->of_file)
		memset(c->model, 0, CELL);
	return true;
}

static void replaced(struct cell *c, struct dice *d)
{
	map_again(c, MAP_FIXED, below(d, 4) == 0);
}

/*
 * Somebody else in the process (a sanitizer, say) may be given the hole: then it is his, and the cell is left
 * out from now on.
 */
static void unmapped_and_mapped(struct cell *c, struct dice *d)
{
	char byte = 0;
	int out, in;

	if (below(d, 4))
		munmap(c->at, CELL);
	else
		raw_munmap(c->at, CELL);
	out = copy_out(any_region(d), c->at + below(d, CELL), &byte, 1);
	in = out ? copy_in(any_region(d), c->at + below(d, CELL), &byte, 1) : 0;
	c->lost = !map_again(c, MAP_FIXED_NOREPLACE, false);
	REQUIRE(c->lost || (out == -EFAULT && in == -EFAULT));
}

static void discarded(struct cell *c, struct dice *d)
{
	unsigned first = below(d, CELL_PAGES), n = 1 + below(d, CELL_PAGES - first);

	if (below(d, 4))
		madvise(c->at + first * PAGE, n * PAGE, MADV_DONTNEED);
	else
		raw_madvise(c->at + first * PAGE, n * PAGE, MADV_DONTNEED);
	if (!c->of_file)
		memset(c->model + first * PAGE, 0, n * PAGE);
}

static void protected(struct cell *c, struct dice *d)
{
	unsigned char buf[CELL];
	bool none = below(d, 2);

	REQUIRE(!mprotect(c->at, CELL, none ? PROT_NONE : PROT_READ));
	REQUIRE(copy_in(any_region(d), c->at + below(d, CELL), "x", 1) == -EACCES);
	if (none) {
		REQUIRE(copy_out(any_region(d), c->at + below(d, CELL), buf, 1) == -EACCES);
	} else {
		REQUIRE(copy_out(any_region(d), c->at, buf, CELL) == 0);
		REQUIRE(!memcmp(buf, c->model, CELL));
	}
	REQUIRE(!mprotect(c->at, CELL, PROT_READ | PROT_WRITE));
}

static void moved_away_and_back(struct cell *c, struct dice *d)
{
	char byte;
	int out;

	REQUIRE(mremap(c->at, CELL, CELL, MREMAP_MAYMOVE | MREMAP_FIXED, c->aside) == c->aside);
	out = copy_out(any_region(d), c->at, &byte, 1);
	/* Into the hole only if it still is one: by way of a mapping that is put there without replacing. */
	c->lost = mmap(c->at, CELL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
		  c->at;
	if (c->lost)
		return;
	REQUIRE(out == -EFAULT);
	REQUIRE(mremap(c->aside, CELL, CELL, MREMAP_MAYMOVE | MREMAP_FIXED, c->at) == c->at);
	/* The place aside is kept as well. */
	c->lost = mmap(c->aside, CELL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
		  c->aside;
}

static void (*const act[])(struct cell *, struct dice *) = {
	device_writes,
	device_writes,
	device_writes,
	device_reads,
	device_reads,
	device_reads,
	device_adds,
	cpu_writes,
	cpu_reads,
	replaced,
	unmapped_and_mapped,
	discarded,
	discarded,
	protected,
	moved_away_and_back,
};

static void *worker(void *arg)
{
	struct dice d = { seed * 1000 + (uintptr_t)arg };

	for (unsigned i = 0; i < operations; i++) {
		struct cell *c = &cell[below(&d, CELLS)];

		pthread_mutex_lock(&c->lock);
		if (!c->lost)
			act[below(&d, sizeof(act) / sizeof(act[0]))](c, &d);
		pthread_mutex_unlock(&c->lock);
	}
	return NULL;
}

/* ---- the noise ---- */

static bool known(int err)
{
	return !err || err == -EFAULT || err == -EACCES || err == -ECANCELED;
}

/*
 * Reads here and there, several at a time on as many waiters, over a region of its own that comes and goes;
 * some are given up.
 */
/* Whatever it finds: it must end, and leave entries that are true. */
static void prefetch_some_of(struct odp_region *r, struct dice *d)
{
	unsigned n = 1 + below(d, 4 * CELL);
	int err = odp_prefetch(r, r->addr + below(d, (unsigned)(r->len - n)), n, below(d, 8));

	REQUIRE(known(err));
}

static void *reader(void *arg)
{
	struct dice d = { seed * 2000 + (uintptr_t)arg };
	unsigned char buf[CELL];
	struct witness it[8];
	struct odp_region r;

	while (!atomic_load(&stop)) {
		region_open(&r, arena + below(&d, CELLS / 2) * CELL, ARENA / 2, true);
		for (unsigned round = 0; round < 1 + below(&d, 16); round++) {
			int err[8];

			if (below(&d, 2))
				prefetch_some_of(&r, &d);
			for (unsigned i = 0; i < 8; i++) {
				unsigned n = 1 + below(&d, CELL);

				witness_init(&it[i]);
				it[i].w.flow = &it[i % 3];
				err[i] = odp_copy_out(&r, SAFECOPY_FIXUP,
					r.addr + below(&d, (unsigned)(r.len - n)), buf, n, &it[i].w);
				REQUIRE(known(err[i]) || err[i] == -EINPROGRESS);
			}
			if (round == 0 && below(&d, 2))
				odp_region_fini(&r);
			for (unsigned i = 0; i < 8; i++) {
				if (err[i] != -EINPROGRESS || (below(&d, 2) && odp_cancel(&it[i].w)))
					continue;
				REQUIRE(known(witness_wait(&it[i])));
			}
			if (atomic_load(&r.closing))
				break;
		}
		if (!atomic_load(&r.closing))
			odp_region_fini(&r);
	}
	return NULL;
}

static void *meddler(void *arg)
{
	struct dice d = { seed * 3000 + (uintptr_t)arg };

	while (!atomic_load(&stop)) {
		size_t at = below(&d, (unsigned)(ARENA / PAGE)) * PAGE;

		switch (below(&d, 8)) {
		case 0:
			odp_space_forked(fx.space);
			break;
		case 1:
		case 2:
			odp_space_sweep(fx.space, clock_ns());
			break;
		default:
			odp_space_invalidate(
				fx.space, (uintptr_t)arena + at, (1 + below(&d, 16)) * PAGE, ODP_NOTIFIER);
		}
		if (below(&d, 2))
			usleep(below(&d, 100));
	}
	return NULL;
}

/* ---- the run ---- */

static void build_arena(void)
{
	memset(cell, 0, sizeof(cell));
	file = disk_file(ARENA);
	REQUIRE(file >= 0);
	/* In the middle of a leaf boundary, to have two of them. */
	arena = fresh(ARENA + 2 * LEAF_BYTES, PROT_NONE);
	arena = (char *)(((uintptr_t)arena + LEAF_BYTES - 1) & ~(LEAF_BYTES - 1)) + LEAF_BYTES -
		CELLS / 2 * CELL;
	aside = fresh(ARENA, PROT_NONE);
	for (unsigned i = 0; i < CELLS; i++) {
		struct cell *c = &cell[i];

		pthread_mutex_init(&c->lock, NULL);
		c->at = arena + i * CELL;
		c->aside = aside + i * CELL;
		c->offset = (long)(i * CELL);
		c->of_file = i % 4 == 3;
		map_again(c, MAP_FIXED, false);
	}
}

static void compare_everything(void)
{
	unsigned char buf[CELL];
	unsigned lost = 0;

	for (unsigned i = 0; i < CELLS; i++) {
		lost += cell[i].lost;
		if (cell[i].lost)
			continue;
		REQUIRE(copy_out(&region[0], cell[i].at, buf, CELL) == 0);
		REQUIRE(!memcmp(buf, cell[i].model, CELL));
		REQUIRE(!memcmp(cell[i].at, cell[i].model, CELL));
	}
	assert_true(lost < CELLS / 2);
}

static void run(void)
{
	pthread_t thread[WORKERS + 3];

	build_arena();
	/* One over all, two that overlap. */
	region_open(&region[0], arena, ARENA, true);
	region_open(&region[1], arena, ARENA, true);
	region_open(&region[2], arena - 100, ARENA + 200, true);
	atomic_store(&stop, false);
	for (uintptr_t i = 0; i < WORKERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, worker, (void *)i), 0);
	assert_int_equal(pthread_create(&thread[WORKERS], NULL, reader, (void *)1), 0);
	assert_int_equal(pthread_create(&thread[WORKERS + 1], NULL, reader, (void *)2), 0);
	assert_int_equal(pthread_create(&thread[WORKERS + 2], NULL, meddler, (void *)3), 0);
	for (unsigned i = 0; i < WORKERS; i++)
		pthread_join(thread[i], NULL);
	atomic_store(&stop, true);
	for (unsigned i = WORKERS; i < WORKERS + 3; i++)
		pthread_join(thread[i], NULL);

	compare_everything();
	assert_true(value(&fx.totals.faults_major) > 0);
	assert_true(value(&fx.totals.page_prefetch) > 0);
	assert_true(value(&fx.totals.page_invalidations_handled) > 0);
	assert_true(value(&fx.totals.page_faults_handled) <= value(&fx.totals.page_faults));
	assert_true(value(&fx.totals.page_invalidations_handled) <= value(&fx.totals.page_invalidations));
	print_message("seed %" PRIu64 ": %" PRIu64 " faults, %" PRIu64 " major, %" PRIu64
		      " coalesced, %" PRIu64 " stale, %" PRIu64 " retried, %" PRIu64 " invalidated\n",
		seed, value(&fx.totals.page_faults), value(&fx.totals.faults_major),
		value(&fx.totals.faults_coalesced), value(&fx.totals.faults_stale),
		value(&fx.totals.faults_retried), value(&fx.totals.page_invalidations_handled));
	for (unsigned i = 0; i < REGIONS; i++)
		odp_region_fini(&region[i]);
	while (odp_space_sweep(fx.space, clock_ns()))
		;
	assert_int_equal(value(&fx.leaves), 0);
	for (unsigned i = 0; i < CELLS; i++)
		if (!cell[i].lost)
			munmap(cell[i].at, CELL);
	close(file);
}

static void every_byte_is_what_it_must_be_whatever_happens_at_once(void **state)
{
	(void)state;
	run();
	assert_true(value(&fx.totals.faults_minor) > 0);
}

static int slow_setup(void **state)
{
	fixture_latency = 300000;
	return fixture_setup(state);
}

static void every_byte_is_what_it_must_be_when_faults_are_slow_as_well(void **state)
{
	(void)state;
	operations /= 8;
	run();
	assert_true(hist_quantile(&fx.steps[1][UNPIN_STEP_TOTAL], 0) >= fixture_latency * 15 / 16);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_byte_is_what_it_must_be_whatever_happens_at_once,
			fixture_setup, fixture_teardown),
		cmocka_unit_test_setup_teardown(every_byte_is_what_it_must_be_when_faults_are_slow_as_well,
			slow_setup, fixture_teardown),
	};

	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : clock_ns() % 1000000;
	if (argc > 2)
		operations = (unsigned)strtoul(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

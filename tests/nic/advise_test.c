/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "mm/residency.h"
#include "nic/nic.h"
#include "pair.h"

#define PAGE  4096u
#define PAGES 64u
#define READ  IBV_ADVISE_MR_ADVICE_PREFETCH
#define WRITE IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
#define LOOK  IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT
#define FLUSH IBV_ADVISE_MR_FLAG_FLUSH

static uint8_t *map(size_t len, int prot)
{
	uint8_t *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static unsigned resident(const void *m, unsigned pages)
{
	unsigned char vec[PAGES];
	unsigned n = 0;

	assert_int_equal(0, mincore((void *)(uintptr_t)m, pages * PAGE, vec));
	for (unsigned i = 0; i < pages; i++)
		n += vec[i] & 1;
	return n;
}

static int advise(
	struct pair *p, unsigned advice, unsigned flags, const void *addr, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = { (uintptr_t)addr, len, key };

	return nic_mr_advise(p->pd, advice, flags, &sge, 1);
}

static void a_flush_returns_when_all_pages_are_there(void **state)
{
	struct pair p;

	(void)state;
	for (int implicit = 0; implicit < 2; implicit++) {
		uint8_t *m = map(PAGES * PAGE, PROT_READ | PROT_WRITE);
		struct nic_mr *mr;
		uint64_t faults;

		pair_open(&p, NULL);
		if (implicit)
			assert_int_equal(0, nic_mr_create(p.pd, 0, SIZE_MAX, 0,
						    PAIR_ACCESS_ALL | IBV_ACCESS_ON_DEMAND, &mr));
		else
			mr = pair_reg(&p, m, PAGES * PAGE, IBV_ACCESS_ON_DEMAND);
		assert_int_equal(0, advise(&p, WRITE, FLUSH, m + 5, 10 * PAGE - 10, pair_key(mr)));
		assert_int_equal(10, resident(m, PAGES));
		assert_int_equal(10, mr->counters->page_prefetch);
		assert_int_equal(0, advise(&p, WRITE, FLUSH, m, PAGES * PAGE, pair_key(mr)));
		assert_int_equal(PAGES, resident(m, PAGES));
		assert_int_equal(PAGES, mr->counters->page_prefetch);
		/* An access then finds them valid. */
		faults = atomic_load(&p.ctx->nic->seg->odp.page_faults);
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, m, PAGE, pair_key(mr),
					    (uintptr_t)m + 32 * PAGE, pair_key(mr)));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		assert_int_equal(faults, p.ctx->nic->seg->odp.page_faults);
		nic_mr_destroy(mr);
		pair_close(&p);
		munmap(m, PAGES * PAGE);
	}
}

static void without_a_flush_they_come_by_themselves(void **state)
{
	uint8_t *m = map(PAGES * PAGE, PROT_READ | PROT_WRITE);
	uint64_t end = clock_ns() + 10 * NSEC_PER_SEC;
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	mr = pair_reg(&p, m, PAGES * PAGE, IBV_ACCESS_ON_DEMAND);
	assert_int_equal(0, advise(&p, WRITE, 0, m, PAGES * PAGE, pair_key(mr)));
	while (atomic_load(&mr->counters->page_prefetch) < PAGES && clock_ns() < end)
		sched_yield();
	assert_int_equal(PAGES, mr->counters->page_prefetch);
	assert_int_equal(PAGES, resident(m, PAGES));
	nic_mr_destroy(mr);
	pair_close(&p);
	munmap(m, PAGES * PAGE);
}

static void no_fault_takes_only_what_is_in_memory(void **state)
{
	uint8_t *m = map(PAGES * PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	mr = pair_reg(&p, m, PAGES * PAGE, IBV_ACCESS_ON_DEMAND);
	m[3 * PAGE] = 1;
	m[9 * PAGE] = 1;
	assert_int_equal(0, advise(&p, LOOK, FLUSH, m, PAGES * PAGE, pair_key(mr)));
	assert_int_equal(2, resident(m, PAGES));
	assert_int_equal(2, mr->counters->page_prefetch);
	nic_mr_destroy(mr);
	pair_close(&p);
	munmap(m, PAGES * PAGE);
}

static void each_mistake_has_its_error_and_nothing_is_begun(void **state)
{
	uint8_t *m = map(PAGES * PAGE, PROT_READ | PROT_WRITE), *other = map(PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr, *ro, *pinned;
	struct nic_pd *pd;
	struct pair p;
	uint32_t key;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, nic_pd_create(p.ctx, &pd));
	mr = pair_reg(&p, m, PAGES * PAGE, IBV_ACCESS_ON_DEMAND);
	pinned = pair_reg(&p, other, PAGE, 0);
	assert_int_equal(0, nic_mr_create(p.pd, (uintptr_t)m, PAGES * PAGE, (uintptr_t)m,
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND, &ro));
	key = pair_key(mr);
	const struct {
		int err;
		unsigned advice, flags;
		uint32_t n;
		struct nic_pd *pd;
		struct ibv_sge sge;
	} row[] = {
		{ -EINVAL, 3, 0, 2, p.pd, { (uintptr_t)m, 8, key } },
		{ -EINVAL, READ, 2, 2, p.pd, { (uintptr_t)m, 8, key } },
		{ -EINVAL, READ, 0, 0, p.pd, { (uintptr_t)m, 8, key } },
		{ -EINVAL, READ, 0, 2, pd, { (uintptr_t)m, 8, key } },
		{ -ENOENT, READ, 0, 2, p.pd, { (uintptr_t)m, 8, key ^ 1 } },
		{ -ENOENT, READ, 0, 2, p.pd, { (uintptr_t)m, 8, UINT32_MAX } },
		{ -ENOENT, READ, 0, 2, p.pd, { (uintptr_t)m, 8, 0 } },
		{ -EOPNOTSUPP, READ, 0, 2, p.pd, { (uintptr_t)other, 8, pair_key(pinned) } },
		{ -EPERM, WRITE, 0, 2, p.pd, { (uintptr_t)m, 8, pair_key(ro) } },
		{ -EFAULT, READ, 0, 2, p.pd, { (uintptr_t)m - 1, 8, key } },
		{ -EFAULT, READ, 0, 2, p.pd, { (uintptr_t)m + PAGES * PAGE - 1, 2, key } },
		{ -EFAULT, READ, 0, 2, p.pd, { (uintptr_t)m, PAGES * PAGE + 1, key } },
		{ -EFAULT, READ, FLUSH, 2, p.pd, { UINT64_MAX - 2, 8, key } },
		{ 0, READ, FLUSH, 1, p.pd, { (uintptr_t)m + PAGES * PAGE, 0, key } },
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		/* The first element is right each time. */
		struct ibv_sge sge[] = { { (uintptr_t)m, PAGE, key }, row[i].sge };
		int err = nic_mr_advise(
			row[i].pd, row[i].advice, row[i].flags, row[i].n == 1 ? sge + 1 : sge, row[i].n);

		if (err != row[i].err)
			fail_msg("row %u: %d", i, err);
	}
	assert_int_equal(-EINVAL, nic_mr_advise(p.pd, READ, 0, NULL, 1));
	assert_int_equal(0, resident(m, PAGES));
	/* A read is no write. */
	assert_int_equal(0, advise(&p, READ, FLUSH, m, PAGE, pair_key(ro)));
	nic_mr_destroy(mr);
	nic_mr_destroy(ro);
	nic_mr_destroy(pinned);
	assert_int_equal(0, nic_pd_destroy(pd));
	pair_close(&p);
	munmap(m, PAGES * PAGE);
	munmap(other, PAGE);
}

static void a_flush_tells_what_is_in_its_way(void **state)
{
	uint8_t *m = map(PAGES * PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	mr = pair_reg(&p, m, PAGES * PAGE, IBV_ACCESS_ON_DEMAND);
	mprotect(m + PAGE, PAGE, PROT_READ);
	mprotect(m + 2 * PAGE, PAGE, PROT_NONE);
	munmap(m + 3 * PAGE, PAGE);
	assert_int_equal(0, advise(&p, WRITE, FLUSH, m, PAGE, pair_key(mr)));
	assert_int_equal(0, advise(&p, READ, FLUSH, m, 2 * PAGE, pair_key(mr)));
	assert_int_equal(-EPERM, advise(&p, WRITE, FLUSH, m, 2 * PAGE, pair_key(mr)));
	assert_int_equal(-EPERM, advise(&p, READ, FLUSH, m + 2 * PAGE, PAGE, pair_key(mr)));
	assert_int_equal(-EFAULT, advise(&p, READ, FLUSH, m + 3 * PAGE, PAGE, pair_key(mr)));
	/* Handed on, it is only counted. */
	assert_int_equal(0, advise(&p, READ, 0, m + 3 * PAGE, PAGE, pair_key(mr)));
	nic_mr_destroy(mr);
	pair_close(&p);
	munmap(m, PAGES * PAGE);
}

static void a_region_of_its_own_addresses_is_translated(void **state)
{
	uint8_t *m = map(PAGES * PAGE, PROT_READ | PROT_WRITE);
	struct ibv_sge sge;
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, nic_mr_create(p.pd, (uintptr_t)m, PAGES * PAGE, 0x7000,
				    PAIR_ACCESS_ALL | IBV_ACCESS_ON_DEMAND, &mr));
	sge = (struct ibv_sge){ 0x7000 + 7 * PAGE, 2 * PAGE, pair_key(mr) };
	assert_int_equal(0, nic_mr_advise(p.pd, WRITE, FLUSH, &sge, 1));
	assert_int_equal(2, resident(m, PAGES));
	assert_int_equal(2, resident(m + 7 * PAGE, 2));
	nic_mr_destroy(mr);
	pair_close(&p);
	munmap(m, PAGES * PAGE);
}

/* Advises about a gigabyte again and again until the key is gone. */
struct advisor {
	struct pair *p;
	uint8_t *mem;
	uint32_t len, key;
	unsigned flags;
	_Atomic int rounds;
	int last;
};

static void *advisor_main(void *arg)
{
	struct advisor *a = arg;

	do {
		a->last = advise(a->p, READ, a->flags, a->mem, a->len, a->key);
		atomic_fetch_add(&a->rounds, 1);
		/* Too much handed on at once is put off, not queued without end. */
	} while (!a->last || (a->last == -ENOMEM && !a->flags));
	return NULL;
}

static void deregistration_breaks_a_flush_off(void **state)
{
	const uint32_t len = 1u << 30;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	for (int i = 0; i < 6; i++) {
		uint8_t *m = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		struct nic_mr *mr;
		struct advisor a = { .p = &p, .mem = m, .len = len, .flags = i & 1 ? FLUSH : 0 };
		pthread_t thread;

		assert_int_equal(0, nic_mr_create(p.pd, (uintptr_t)m, len, (uintptr_t)m,
					    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND, &mr));
		a.key = pair_key(mr);
		assert_int_equal(0, pthread_create(&thread, NULL, advisor_main, &a));
		/* Somewhere in the middle. */
		while (!atomic_load(&mr->counters->page_prefetch) && !atomic_load(&a.rounds))
			sched_yield();
		nic_mr_destroy(mr);
		pthread_join(thread, NULL);
		assert_int_equal(-ENOENT, a.last);
		munmap(m, len);
	}
	pair_close(&p);
}

static void a_profile_without_prefetch_declines(void **state)
{
	uint8_t *m = map(PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	setenv("UNPIN_PROFILE", "stale-firmware", 1);
	pair_open(&p, NULL);
	mr = pair_reg(&p, m, PAGE, IBV_ACCESS_ON_DEMAND);
	assert_int_equal(-EOPNOTSUPP, advise(&p, READ, FLUSH, m, PAGE, pair_key(mr)));
	nic_mr_destroy(mr);
	pair_close(&p);
	unsetenv("UNPIN_PROFILE");
	munmap(m, PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flush_returns_when_all_pages_are_there),
		cmocka_unit_test(without_a_flush_they_come_by_themselves),
		cmocka_unit_test(no_fault_takes_only_what_is_in_memory),
		cmocka_unit_test(each_mistake_has_its_error_and_nothing_is_begun),
		cmocka_unit_test(a_flush_tells_what_is_in_its_way),
		cmocka_unit_test(a_region_of_its_own_addresses_is_translated),
		cmocka_unit_test(deregistration_breaks_a_flush_off),
		cmocka_unit_test(a_profile_without_prefetch_declines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

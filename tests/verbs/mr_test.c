/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Protection domains and memory regions: what is accepted, what is refused and how (ibv_reg_mr(3),
 * ibv_rereg_mr(3)).
 */
#include "client.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "verbs/newer.h"

#define PAGES 4

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static uint8_t *mem;
static size_t len;

static int setup(void **state)
{
	ctx = client_open();
	pd = ibv_alloc_pd(ctx);
	len = PAGES * (size_t)sysconf(_SC_PAGESIZE);
	mem = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return pd && mem != MAP_FAILED ? 0 : -1;
}

static int teardown(void **state)
{
	munmap(mem, len);
	if (ibv_dealloc_pd(pd))
		return -1;
	return ibv_close_device(ctx);
}

/* The three ways to register must refuse alike. */
static void refused(void *addr, size_t length, unsigned access, int err)
{
	errno = 0;
	assert_null(ibv_reg_mr(pd, addr, length, (int)access));
	assert_int_equal(errno, err);
	errno = 0;
	assert_null(ibv_reg_mr_iova(pd, addr, length, (uintptr_t)addr, (int)access));
	assert_int_equal(errno, err);
	errno = 0;
	assert_null(ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, access));
	assert_int_equal(errno, err);
}

static void a_region_shows_what_was_registered(void **state)
{
	const int kinds[] = { 0, IBV_ACCESS_ON_DEMAND };

	for (int i = 0; i < 2; i++) {
		struct ibv_mr *mr = ibv_reg_mr(
			pd, mem + 3, 1001, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | kinds[i]);

		assert_non_null(mr);
		assert_ptr_equal(mr->context, ctx);
		assert_ptr_equal(mr->pd, pd);
		assert_ptr_equal(mr->addr, mem + 3);
		assert_int_equal(mr->length, 1001);
		assert_int_equal(mr->lkey, mr->rkey);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

static void a_region_may_have_an_address_of_its_own(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, mem, len, 0x1000, IBV_ACCESS_LOCAL_WRITE);

	assert_non_null(mr);
	assert_ptr_equal(mr->addr, mem);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void optional_access_is_dropped(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr_iova2(pd, mem, len, (uintptr_t)mem,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING | (1u << 29));

	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void keys_differ_and_are_not_reused_at_once(void **state)
{
	struct ibv_mr *a = ibv_reg_mr(pd, mem, len, 0), *b = ibv_reg_mr(pd, mem, len, 0), *c;
	uint32_t old;

	assert_int_not_equal(a->lkey, b->lkey);
	old = a->lkey;
	assert_int_equal(ibv_dereg_mr(a), 0);
	c = ibv_reg_mr(pd, mem, len, 0);
	assert_int_not_equal(c->lkey, old);
	assert_int_equal(ibv_dereg_mr(b), 0);
	assert_int_equal(ibv_dereg_mr(c), 0);
}

static void access_is_checked(void **state)
{
	const unsigned odp[] = { 0, IBV_ACCESS_ON_DEMAND };

	for (int i = 0; i < 2; i++) {
		refused(mem, len, IBV_ACCESS_REMOTE_WRITE | odp[i], EINVAL);
		refused(mem, len, IBV_ACCESS_REMOTE_ATOMIC | odp[i], EINVAL);
		refused(mem, len, IBV_ACCESS_LOCAL_WRITE | (1u << 15) | odp[i], EINVAL);
	}
	refused(NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE, EINVAL);
	refused(NULL, SIZE_MAX - 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, EINVAL);
	refused(NULL, SIZE_MAX,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND | (unsigned)IBV_ACCESS_ZERO_BASED, EINVAL);
}

static void an_implicit_region_shows_what_was_registered(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);

	assert_non_null(mr);
	assert_null(mr->addr);
	assert_true(mr->length == SIZE_MAX);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem, len, 0), 0);
	assert_ptr_equal(mr->addr, mem);
	assert_int_equal(mr->length, len);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, SIZE_MAX, 0), 0);
	assert_null(mr->addr);
	assert_true(mr->length == SIZE_MAX);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	errno = 0;
	assert_null(
		ibv_reg_mr_iova(pd, NULL, SIZE_MAX, 0x1000, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EINVAL);
}

static void ranges_are_checked(void **state)
{
	uint8_t *hole = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_int_equal(munmap(hole, len), 0);
	refused(hole, len, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	refused((void *)(UINTPTR_MAX - 100), 4096, IBV_ACCESS_LOCAL_WRITE, EINVAL);
}

static void read_only_memory_is_for_reading(void **state)
{
	uint8_t *ro = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, ro, len, IBV_ACCESS_REMOTE_READ);

	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	refused(ro, len, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	munmap(ro, len);
}

static void a_domain_in_use_stays(void **state)
{
	struct ibv_pd *other = ibv_alloc_pd(ctx);
	struct ibv_mr *mr = ibv_reg_mr(other, mem, len, IBV_ACCESS_LOCAL_WRITE);

	assert_int_not_equal(other->handle, pd->handle);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
}

/* --- rereg ---------------------------------------------------------------------------------------- */

static void rereg_refused(
	struct ibv_mr *mr, int flags, struct ibv_pd *to, void *addr, size_t length, int access)
{
	uint32_t key = mr->lkey;

	errno = 0;
	assert_int_equal(ibv_rereg_mr(mr, flags, to, addr, length, access), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(mr->lkey, key);
}

static void rereg_refuses_what_makes_no_sense(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, len, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_context *other = client_open();
	struct ibv_pd *foreign = ibv_alloc_pd(other);

	rereg_refused(mr, 0, NULL, NULL, 0, 0);
	rereg_refused(mr, IBV_REREG_MR_FLAGS_SUPPORTED + 1, NULL, NULL, 0, 0);
	rereg_refused(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, len, 0);
	rereg_refused(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem, 0, 0);
	rereg_refused(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0);
	rereg_refused(mr, IBV_REREG_MR_CHANGE_PD, foreign, NULL, 0, 0);
	rereg_refused(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem, len, IBV_ACCESS_LOCAL_WRITE);
	rereg_refused(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(foreign), 0);
	assert_int_equal(ibv_close_device(other), 0);
}

static void rereg_changes_what_it_is_told(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, len, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_pd *other = ibv_alloc_pd(ctx);

	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mem + 64, 128, 0), 0);
	assert_ptr_equal(mr->addr, mem + 64);
	assert_int_equal(mr->length, 128);
	assert_ptr_equal(mr->pd, pd);
	assert_int_equal(mr->lkey, mr->rkey);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, other);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_FLAGS_SUPPORTED, pd, mem, len,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
		0);
	assert_ptr_equal(mr->addr, mem);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void a_failed_rereg_leaves_the_old_region(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, len, IBV_ACCESS_LOCAL_WRITE);
	uint8_t *hole = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(hole, len);
	errno = 0;
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, hole, len, 0),
		IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EFAULT);
	assert_ptr_equal(mr->addr, mem);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void advice_is_taken_or_refused_as_the_manual_says(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, mem, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct ibv_sge sge = { (uintptr_t)mem, 64, mr->lkey };

	assert_int_equal(ibv_advise_mr(pd, 99, 0, &sge, 1), EINVAL);
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1 << 5, &sge, 1), EINVAL);
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0), EINVAL);
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 1), EINVAL);
	for (enum ibv_advise_mr_advice advice = IBV_ADVISE_MR_ADVICE_PREFETCH;
		advice <= IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; advice++) {
		assert_int_equal(ibv_advise_mr(pd, advice, 0, &sge, 1), 0);
		assert_int_equal(ibv_advise_mr(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1), 0);
	}
	sge.length = (uint32_t)len + 1;
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EFAULT);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_region_shows_what_was_registered),
		cmocka_unit_test(a_region_may_have_an_address_of_its_own),
		cmocka_unit_test(optional_access_is_dropped),
		cmocka_unit_test(keys_differ_and_are_not_reused_at_once),
		cmocka_unit_test(access_is_checked),
		cmocka_unit_test(an_implicit_region_shows_what_was_registered),
		cmocka_unit_test(ranges_are_checked),
		cmocka_unit_test(read_only_memory_is_for_reading),
		cmocka_unit_test(a_domain_in_use_stays),
		cmocka_unit_test(rereg_refuses_what_makes_no_sense),
		cmocka_unit_test(rereg_changes_what_it_is_told),
		cmocka_unit_test(a_failed_rereg_leaves_the_old_region),
		cmocka_unit_test(advice_is_taken_or_refused_as_the_manual_says),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}

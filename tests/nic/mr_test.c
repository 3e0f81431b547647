/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nic/nic.h"
#include "pair.h"

#define PAGE 4096u

static uint8_t *map(size_t len, int prot)
{
	uint8_t *p = mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static int reg(struct pair *p, const void *addr, size_t len, int access, struct nic_mr **mr)
{
	return nic_mr_create(p->pd, (uintptr_t)addr, len, (uintptr_t)addr, access, mr);
}

static void arguments_out_of_range_are_refused(void **state)
{
	const struct {
		uint64_t addr, len;
		int access, err;
	} row[] = {
		{ 0x10000, 0, 0, -EINVAL },
		{ 0x10000, 0, IBV_ACCESS_ON_DEMAND, -EINVAL },
		{ UINT64_MAX - 10, 100, IBV_ACCESS_ON_DEMAND, -EINVAL },
		{ 1ull << 47, PAGE, IBV_ACCESS_ON_DEMAND, -EINVAL },
		{ 0x10000, PAGE, IBV_ACCESS_REMOTE_WRITE, -EINVAL },
		{ 0x10000, PAGE, IBV_ACCESS_REMOTE_ATOMIC, -EINVAL },
		{ 0x10000, PAGE, 1 << 30, -EINVAL },
		{ 0x10000, 1ull << 47, IBV_ACCESS_ON_DEMAND, -EINVAL },
		{ 0x10000, PAGE, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB, -EINVAL },
		{ 0, SIZE_MAX, 0, -EINVAL },
		{ 0, SIZE_MAX - 1, IBV_ACCESS_ON_DEMAND, -EINVAL },
		{ 1, SIZE_MAX, IBV_ACCESS_ON_DEMAND, -EINVAL },
		{ 0, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED, -EINVAL },
		{ 0, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB, -EINVAL },
	};
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		assert_int_equal(row[i].err,
			nic_mr_create(p.pd, row[i].addr, row[i].len, row[i].addr, row[i].access, &mr));
	pair_close(&p);
}

static void a_pinned_region_over_a_hole_is_efault_and_an_on_demand_one_registers(void **state)
{
	uint8_t *m = map(4 * PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	/* Only now: opening maps memory, which would settle in the hole. */
	munmap(m + PAGE, PAGE);
	assert_int_equal(-EFAULT, reg(&p, m, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE, &mr));
	assert_int_equal(0, reg(&p, m, 4 * PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, &mr));
	nic_mr_destroy(mr);
	munmap(m, 4 * PAGE);
	pair_close(&p);
}

static void read_only_memory_registers_without_local_write(void **state)
{
	uint8_t *m = map(PAGE, PROT_READ);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(-EFAULT, reg(&p, m, PAGE, IBV_ACCESS_LOCAL_WRITE, &mr));
	assert_int_equal(0, reg(&p, m, PAGE, IBV_ACCESS_REMOTE_READ, &mr));
	nic_mr_destroy(mr);
	assert_int_equal(0, reg(&p, m, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, &mr));
	nic_mr_destroy(mr);
	munmap(m, PAGE);
	pair_close(&p);
}

static void keys_of_a_reused_row_differ(void **state)
{
	uint8_t *m = map(PAGE, PROT_READ | PROT_WRITE);
	uint32_t first, row;
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, reg(&p, m, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, &mr));
	first = pair_key(mr);
	row = mr->row;
	nic_mr_destroy(mr);
	/* Many other rows are used before this one comes back. */
	for (uint32_t i = 0; i < NIC_KEYS; i++) {
		assert_int_equal(0, reg(&p, m, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, &mr));
		assert_int_not_equal(first, pair_key(mr));
		if (mr->row == row)
			break;
		assert_int_equal(-EACCES, nic_mr_check(p.ctx->nic, p.pd, first, (uintptr_t)m, 8, 0));
		nic_mr_destroy(mr);
		if (i == NIC_KEYS_REST)
			fail_msg("the row did not come back");
	}
	assert_int_equal(row, mr->row);
	assert_int_equal(-EACCES, nic_mr_check(p.ctx->nic, p.pd, first, (uintptr_t)m, 8, 0));
	assert_int_equal(0, nic_mr_check(p.ctx->nic, p.pd, pair_key(mr), (uintptr_t)m, 8, 0));
	nic_mr_destroy(mr);
	munmap(m, PAGE);
	pair_close(&p);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* One registration after the other, as often as there are rows: the rows that rest, and hardly any memory. */
static void registrations_one_after_the_other_open_few_rows(void **state)
{
	uint8_t *m = map(PAGE, PROT_READ | PROT_WRITE);
	uint32_t *seen = calloc(NIC_KEYS, sizeof(*seen));
	struct nic_mr *mr;
	struct pair p;
	uint32_t key;

	(void)state;
	assert_non_null(seen);
	pair_open(&p, NULL);
	for (uint32_t i = 0; i < NIC_KEYS; i++) {
		assert_int_equal(0, reg(&p, m, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, &mr));
		key = pair_key(mr);
		assert_int_equal(0, nic_mr_check(p.ctx->nic, p.pd, key, (uintptr_t)m, 8, 0));
		seen[i] = key;
		nic_mr_destroy(mr);
		assert_int_equal(-EACCES, nic_mr_check(p.ctx->nic, p.pd, key, (uintptr_t)m, 8, 0));
	}
	assert_int_equal(NIC_KEYS_REST + 1, p.ctx->nic->mr_rows);
	qsort(seen, NIC_KEYS, sizeof(*seen), by_number);
	for (uint32_t i = 1; i < NIC_KEYS; i++)
		assert_int_not_equal(seen[i - 1], seen[i]);
	free(seen);
	munmap(m, PAGE);
	pair_close(&p);
}

/* All of its 16 bits, also where the low ones are used up, and where all are. */
static void the_count_in_a_key_goes_round(void **state)
{
	static const uint32_t before[] = { 0x000000fe, 0x000000ff, 0x7f0000ff, 0xff0000fe, 0xff0000ff };
	static const uint32_t after[] = { 0x000000ff, 0x01000000, 0x80000000, 0xff0000ff, 0x00000000 };
	uint8_t *m = map(PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	struct pair p;
	uint32_t row;

	(void)state;
	pair_open(&p, NULL);
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(0, reg(&p, m, PAGE, PAIR_ACCESS_ALL, &mr));
		row = mr->row << NIC_KEY_ROW_SHIFT;
		atomic_store(&mr->key, before[i] | row);
		m[0] = (uint8_t)(i + 1);
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, m, 1, before[i] | row,
					    (uintptr_t)m + 64, before[i] | row));
		pair_expect(&p, 0, IBV_WC_SUCCESS);
		assert_int_equal(i + 1, m[64]);
		nic_mr_destroy(mr);
		assert_int_equal(after[i] | row, atomic_load(&mr->key));
		assert_int_equal(
			-EACCES, nic_mr_check(p.ctx->nic, p.pd, before[i] | row, (uintptr_t)m, 8, 0));
	}
	munmap(m, PAGE);
	pair_close(&p);
}

static void bounds_rights_and_domain_are_checked(void **state)
{
	uint8_t *m = map(2 * PAGE, PROT_READ | PROT_WRITE);
	uintptr_t at = (uintptr_t)m + 5;
	struct nic_pd *other;
	struct nic *nic;
	struct nic_mr *mr;
	struct pair p;
	uint32_t key;

	(void)state;
	pair_open(&p, NULL);
	nic = p.ctx->nic;
	assert_int_equal(0, nic_pd_create(p.ctx, &other));
	assert_int_equal(0, nic_mr_create(p.pd, at, 1000, at, IBV_ACCESS_REMOTE_READ, &mr));
	key = pair_key(mr);
	assert_int_equal(0, nic_mr_check(nic, p.pd, key, at, 1000, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(0, nic_mr_check(nic, p.pd, key, at + 1000, 0, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key, at, 1001, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key, at - 1, 1, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key, at + 1, UINT64_MAX, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key, at, 8, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(-EACCES, nic_mr_check(nic, other, key, at, 8, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key ^ 1, at, 8, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, UINT32_MAX, at, 8, 0));
	nic_mr_destroy(mr);
	assert_int_equal(0, nic_pd_destroy(other));
	munmap(m, 2 * PAGE);
	pair_close(&p);
}

static void zero_based_regions_start_at_nought_and_an_iova_is_an_offset(void **state)
{
	uint8_t *m = map(PAGE, PROT_READ | PROT_WRITE), byte = 7;
	struct nic_burst burst = { 0 };
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, reg(&p, m, PAGE, PAIR_ACCESS_ALL | IBV_ACCESS_ZERO_BASED, &mr));
	assert_int_equal(0, nic_mr_copy_in(p.ctx->nic, &burst, p.pd, pair_key(mr), 100, &byte, 1,
				    IBV_ACCESS_REMOTE_WRITE, NULL));
	assert_int_equal(7, m[100]);
	nic_mr_destroy(mr);
	assert_int_equal(0, nic_mr_create(p.pd, (uintptr_t)m, PAGE, 0x7000000, PAIR_ACCESS_ALL, &mr));
	assert_int_equal(0, nic_mr_copy_in(p.ctx->nic, &burst, p.pd, pair_key(mr), 0x7000003, &byte, 1,
				    IBV_ACCESS_REMOTE_WRITE, NULL));
	assert_int_equal(7, m[3]);
	nic_mr_destroy(mr);
	munmap(m, PAGE);
	pair_close(&p);
}

static void reregistration_moves_rights_domain_and_range(void **state)
{
	uint8_t *a = map(PAGE, PROT_READ | PROT_WRITE), *b = map(PAGE, PROT_READ | PROT_WRITE);
	struct nic_pd *other;
	struct nic *nic;
	struct nic_mr *mr;
	uint32_t key;
	struct pair p;
	int still;

	(void)state;
	for (int odp = 0; odp < 2; odp++) {
		const int more = odp ? IBV_ACCESS_ON_DEMAND : 0;

		pair_open(&p, NULL);
		nic = p.ctx->nic;
		assert_int_equal(0, nic_pd_create(p.ctx, &other));
		assert_int_equal(0, reg(&p, a, PAGE, IBV_ACCESS_REMOTE_READ | more, &mr));
		key = pair_key(mr);
		assert_int_equal(0, nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, 0,
					    PAIR_ACCESS_ALL | more, &still));
		assert_int_equal(key, pair_key(mr));
		assert_int_equal(0, nic_mr_check(nic, p.pd, key, (uintptr_t)a, 8, IBV_ACCESS_REMOTE_WRITE));
		assert_int_equal(0, nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, other, 0, 0, 0, &still));
		assert_int_equal(-EBUSY, nic_pd_destroy(other));
		key = pair_key(mr);
		assert_int_equal(0, nic_mr_check(nic, other, key, (uintptr_t)a, 8, 0));
		assert_int_equal(0, nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (uintptr_t)b,
					    PAGE, 0, &still));
		key = pair_key(mr);
		assert_int_equal(0, nic_mr_check(nic, other, key, (uintptr_t)b, 8, 0));
		assert_int_equal(-EACCES, nic_mr_check(nic, other, key, (uintptr_t)a, 8, 0));
		nic_mr_destroy(mr);
		assert_int_equal(0, nic_pd_destroy(other));
		pair_close(&p);
	}
	munmap(a, PAGE);
	munmap(b, PAGE);
}

static void a_failed_reregistration_leaves_the_region_standing(void **state)
{
	uint8_t *a = map(PAGE, PROT_READ | PROT_WRITE), *hole = map(PAGE, PROT_READ);
	struct nic_mr *mr;
	struct pair p;
	int still = 0;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, reg(&p, a, PAGE, PAIR_ACCESS_ALL, &mr));
	munmap(hole, PAGE);
	assert_int_equal(-EFAULT,
		nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (uintptr_t)hole, PAGE, 0, &still));
	assert_int_equal(1, still);
	assert_int_equal(
		0, nic_mr_check(p.ctx->nic, p.pd, pair_key(mr), (uintptr_t)a, 8, IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(-EINVAL, nic_mr_rereg(mr, 0, NULL, 0, 0, 0, &still));
	assert_int_equal(-EINVAL, nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_PD, NULL, 0, 0, 0, &still));
	assert_int_equal(-EINVAL, nic_mr_rereg(mr, 1 << 20, NULL, 0, 0, 0, &still));
	nic_mr_destroy(mr);
	munmap(a, PAGE);
	pair_close(&p);
}

static void terabytes_register_on_demand_without_touching_anything(void **state)
{
	const size_t len = 1ull << 42;
	uint8_t *m =
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	if (m == MAP_FAILED)
		skip();
	pair_open(&p, NULL);
	assert_int_equal(0, reg(&p, m, len, PAIR_ACCESS_ALL | IBV_ACCESS_ON_DEMAND, &mr));
	assert_int_equal(0, atomic_load(&p.ctx->nic->seg->odp_leaves));
	assert_int_equal(0, atomic_load(&p.ctx->nic->seg->pinned_bytes));
	nic_mr_destroy(mr);
	munmap(m, len);
	pair_close(&p);
}

static struct nic_mr *reg_implicit(struct pair *p, int access)
{
	struct nic_mr *mr;

	assert_int_equal(0, nic_mr_create(p->pd, 0, SIZE_MAX, 0, access | IBV_ACCESS_ON_DEMAND, &mr));
	return mr;
}

static void an_implicit_region_is_all_of_the_address_space_as_it_is_at_any_time(void **state)
{
	struct nic_burst burst = { .asked = true, .path = SAFECOPY_FIXUP };
	uint8_t *m, byte = 7, *hole = map(PAGE, PROT_NONE);
	struct nic_mr_info info;
	struct nic_mr *mr;
	struct pair p;
	struct nic *nic;
	uint32_t key;

	(void)state;
	pair_open(&p, NULL);
	nic = p.ctx->nic;
	assert_int_equal(-EINVAL, nic_mr_create(p.pd, 0, SIZE_MAX, PAGE, IBV_ACCESS_ON_DEMAND, &mr));
	mr = reg_implicit(&p, PAIR_ACCESS_ALL);
	nic_mr_info(mr, &info);
	assert_int_equal(0, info.addr);
	assert_true(info.length == SIZE_MAX);
	key = info.key;
	assert_int_equal(UNPIN_REGION_IMPLICIT, nic->seg->region[mr->row].kind);
	assert_true(nic->seg->region[mr->row].length == SIZE_MAX);
	assert_int_equal(0, atomic_load(&nic->seg->odp_leaves));
	/* Mapped later, and private memory of this very function. */
	m = map(PAGE, PROT_READ | PROT_WRITE);
	assert_int_equal(0, nic_mr_copy_in(nic, &burst, p.pd, key, (uintptr_t)m + 9, &byte, 1, 0,
				    &p.qp[0]->lane[0].waiter));
	assert_int_equal(7, m[9]);
	byte = 0;
	assert_int_equal(0, nic_mr_copy_out(nic, &burst, p.pd, key, (uintptr_t)m + 9, &byte, 1, 0,
				    &p.qp[0]->lane[0].waiter));
	assert_int_equal(7, byte);
	/* What is not mapped, or not for this, or no application's. */
	assert_true(nic_mr_copy_out(nic, &burst, p.pd, key, (uintptr_t)hole, &byte, 1, 0,
			    &p.qp[0]->lane[0].waiter) < 0);
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key, NIC_MAX_MR_SIZE - 1, 2, 0));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key, UINT64_MAX - 1, 1, 0));
	assert_int_equal(-EACCES, nic_mr_check(nic, p.pd, key, UINT64_MAX, UINT64_MAX, 0));
	assert_int_equal(0, nic_mr_check(nic, p.pd, key, 0, 1, 0));
	nic_mr_destroy(mr);
	munmap(m, PAGE);
	munmap(hole, PAGE);
	pair_close(&p);
}

static void a_region_becomes_implicit_and_explicit_again(void **state)
{
	uint8_t *a = map(PAGE, PROT_READ | PROT_WRITE), *b = map(PAGE, PROT_READ | PROT_WRITE);
	const int move = IBV_REREG_MR_CHANGE_TRANSLATION, access = IBV_REREG_MR_CHANGE_ACCESS;
	struct nic_mr_info info;
	struct nic_mr *mr;
	struct pair p;
	int still;

	(void)state;
	pair_open(&p, NULL);
	mr = pair_reg(&p, a, PAGE, IBV_ACCESS_ON_DEMAND);
	assert_int_equal(-EACCES, nic_mr_check(p.ctx->nic, p.pd, pair_key(mr), (uintptr_t)b, 8, 0));
	assert_int_equal(0, nic_mr_rereg(mr, move, NULL, 0, SIZE_MAX, 0, &still));
	assert_int_equal(0, nic_mr_check(p.ctx->nic, p.pd, pair_key(mr), (uintptr_t)b, 8, 0));
	nic_mr_info(mr, &info);
	assert_true(info.length == SIZE_MAX);
	assert_int_equal(UNPIN_REGION_IMPLICIT, p.ctx->nic->seg->region[mr->row].kind);
	/* It cannot be pinned. */
	assert_int_equal(-EINVAL, nic_mr_rereg(mr, access, NULL, 0, 0, PAIR_ACCESS_ALL, &still));
	assert_int_equal(1, still);
	assert_int_equal(0, nic_mr_rereg(mr, access, NULL, 0, 0, IBV_ACCESS_ON_DEMAND, &still));
	assert_int_equal(0, nic_mr_check(p.ctx->nic, p.pd, pair_key(mr), (uintptr_t)b, 8, 0));
	assert_int_equal(-EACCES,
		nic_mr_check(p.ctx->nic, p.pd, pair_key(mr), (uintptr_t)b, 8, IBV_ACCESS_REMOTE_READ));
	assert_int_equal(
		0, nic_mr_rereg(mr, move | access, NULL, (uintptr_t)b, PAGE, PAIR_ACCESS_ALL, &still));
	assert_int_equal(UNPIN_REGION_PINNED, p.ctx->nic->seg->region[mr->row].kind);
	assert_int_equal(-EACCES, nic_mr_check(p.ctx->nic, p.pd, pair_key(mr), (uintptr_t)a, 8, 0));
	nic_mr_destroy(mr);
	munmap(a, PAGE);
	munmap(b, PAGE);
	pair_close(&p);
}

static void an_implicit_region_serves_both_ends_of_a_request(void **state)
{
	uint8_t *from = map(4 * PAGE, PROT_READ | PROT_WRITE), *to = map(4 * PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	uint32_t key;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	mr = reg_implicit(&p, PAIR_ACCESS_ALL);
	key = pair_key(mr);
	memset(from, 0x5a, 4 * PAGE);
	assert_int_equal(
		0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, from + 1, 3 * PAGE, key, (uintptr_t)to + 3, key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	assert_memory_equal(from + 1, to + 3, 3 * PAGE);
	assert_int_equal(0, to[2]);
	assert_int_equal(0, to[3 + 3 * PAGE]);
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_READ, from, 8, key, (uintptr_t)to + PAGE, key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	assert_int_equal(0,
		pair_send(&p, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, from, 8, key, (uintptr_t)to + 2 * PAGE, key));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	/* The vsyscall page is mapped, but no user's. */
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_READ, from, 8, key, 0xffffffffff600000ull, key));
	pair_expect(&p, 0, IBV_WC_REM_ACCESS_ERR);
	nic_mr_destroy(mr);
	munmap(from, 4 * PAGE);
	munmap(to, 4 * PAGE);
	pair_close(&p);
}

static void huge_pages_are_asked_for_and_must_be_there(void **state)
{
	const int access = PAIR_ACCESS_ALL | IBV_ACCESS_HUGETLB, odp = IBV_ACCESS_ON_DEMAND;
	const size_t huge = 2ul << 20;
	uint8_t *m, *room, *small = map(PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	/* To a pinned region the flag says nothing. */
	assert_int_equal(0, reg(&p, small, PAGE, access, &mr));
	/* ...until it becomes one on demand. */
	assert_int_equal(
		-EINVAL, nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, 0, access | odp, &(int){ 0 }));
	nic_mr_destroy(mr);
	assert_int_equal(-EINVAL, reg(&p, small, PAGE, access | odp, &mr));
	munmap(small, PAGE);
	/* Two huge pages and a small one behind them. */
	room = map(4 * huge, PROT_NONE);
	m = (uint8_t *)(((uintptr_t)room + huge - 1) & ~(huge - 1));
	if (mmap(m, 2 * huge, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE | MAP_FIXED |
			    21 << MAP_HUGE_SHIFT,
		    -1, 0) == MAP_FAILED) {
		munmap(room, 4 * huge);
		pair_close(&p);
		print_message("no huge pages of 2 MiB\n");
		skip();
	}
	assert_int_equal(0, reg(&p, m, 2 * huge, access | odp, &mr));
	nic_mr_destroy(mr);
	assert_int_equal(0, reg(&p, m + 5, 2 * huge - 77, access | odp, &mr));
	nic_mr_destroy(mr);
	assert_int_equal(-EINVAL, reg(&p, m, 2 * huge + 1, access | odp, &mr));
	assert_int_equal(-EINVAL, reg(&p, m - 1, 100, access | odp, &mr));
	munmap(room, 4 * huge);
	pair_close(&p);
}

static void closing_a_context_gives_back_what_was_left(void **state)
{
	uint8_t *m = map(16 * PAGE, PROT_READ | PROT_WRITE);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, reg(&p, m, 16 * PAGE, PAIR_ACCESS_ALL, &mr));
	assert_true(pin_total() >= 16 * PAGE);
	assert_false(nic_context_close(p.ctx));
	assert_int_equal(0, pin_total());
	/* And all of it may be destroyed afterwards. */
	nic_mr_destroy(mr);
	for (int i = 0; i < 2; i++)
		assert_int_equal(0, nic_qp_destroy(p.qp[i]));
	for (int i = 0; i < 2; i++)
		assert_int_equal(0, nic_cq_destroy(p.cq[i]));
	assert_int_equal(0, nic_channel_destroy(p.channel));
	assert_int_equal(0, nic_pd_destroy(p.pd));
	munmap(m, 16 * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_out_of_range_are_refused),
		cmocka_unit_test(a_pinned_region_over_a_hole_is_efault_and_an_on_demand_one_registers),
		cmocka_unit_test(read_only_memory_registers_without_local_write),
		cmocka_unit_test(keys_of_a_reused_row_differ),
		cmocka_unit_test(registrations_one_after_the_other_open_few_rows),
		cmocka_unit_test(the_count_in_a_key_goes_round),
		cmocka_unit_test(bounds_rights_and_domain_are_checked),
		cmocka_unit_test(zero_based_regions_start_at_nought_and_an_iova_is_an_offset),
		cmocka_unit_test(reregistration_moves_rights_domain_and_range),
		cmocka_unit_test(a_failed_reregistration_leaves_the_region_standing),
		cmocka_unit_test(terabytes_register_on_demand_without_touching_anything),
		cmocka_unit_test(an_implicit_region_is_all_of_the_address_space_as_it_is_at_any_time),
		cmocka_unit_test(a_region_becomes_implicit_and_explicit_again),
		cmocka_unit_test(an_implicit_region_serves_both_ends_of_a_request),
		cmocka_unit_test(huge_pages_are_asked_for_and_must_be_there),
		cmocka_unit_test(closing_a_context_gives_back_what_was_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

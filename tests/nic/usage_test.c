/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nic/nic.h"
#include "pair.h"

#define PAGE 4096u
#define LEN  (64u * PAGE)

static uint8_t *map(size_t len)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

static void transfer(struct pair *p, enum ibv_wr_opcode op, const struct nic_mr *from, uint8_t *local,
	const struct nic_mr *to, uint8_t *remote, uint32_t length)
{
	assert_int_equal(
		0, pair_send(p, 0, op, local, length, pair_key(from), (uintptr_t)remote, pair_key(to)));
	pair_expect(p, 0, IBV_WC_SUCCESS);
}

static const struct unpin_past_region *past_of(
	const struct nic *nic, const void *addr, size_t length, uint32_t kind)
{
	const struct unpin_past_region *found = NULL;

	for (unsigned i = 0; i < UNPIN_PAST_REGIONS; i++) {
		const struct unpin_past_region *p = &nic->seg->past[i];

		if (p->kind != kind || p->addr != (uintptr_t)addr || p->length != length)
			continue;
		assert_null(found);
		found = p;
	}
	return found;
}

/* Pinned or not, written, read and by atomics: all that the device does to memory is noted. */
static void every_access_is_noted(void **state)
{
	static const int kinds[] = { 0, IBV_ACCESS_ON_DEMAND };
	uint8_t *m = map(LEN), *l = map(LEN);

	(void)state;
	for (unsigned k = 0; k < 2; k++) {
		struct nic_mr *mr, *local;
		struct pair p;

		pair_open(&p, NULL);
		mr = pair_reg(&p, m, LEN, kinds[k]);
		local = pair_reg(&p, l, PAGE, 0);
		transfer(&p, IBV_WR_RDMA_WRITE, local, l, mr, m, 100);
		transfer(&p, IBV_WR_RDMA_WRITE, local, l, mr, m + 100, 100);
		transfer(&p, IBV_WR_RDMA_READ, local, l, mr, m + 10 * PAGE, 100);
		transfer(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, local, l, mr, m + 20 * PAGE, 8);
		assert_int_equal(mr->usage->accesses, 4);
		assert_int_equal(mr->usage->sequential, 1);
		assert_int_equal(mr->usage->slice[0], 2);
		assert_int_equal(mr->usage->slice[10], 1);
		assert_int_equal(mr->usage->slice[20], 1);
		assert_int_equal(usage_pages(mr->usage), 3);
		assert_int_equal(local->usage->accesses, 4);
		/* What is refused is none. */
		assert_int_equal(0, pair_send(&p, 0, IBV_WR_RDMA_WRITE, l, 100, pair_key(local),
					    (uintptr_t)m + LEN, pair_key(mr)));
		pair_expect(&p, 0, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(mr->usage->accesses, 4);
		nic_mr_destroy(mr);
		nic_mr_destroy(local);
		pair_close(&p);
	}
	munmap(m, LEN);
	munmap(l, LEN);
}

static void an_implicit_region_has_pages_and_no_slices(void **state)
{
	uint8_t *m = map(LEN);
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, nic_mr_create(p.pd, 0, SIZE_MAX, 0, PAIR_ACCESS_ALL | IBV_ACCESS_ON_DEMAND, &mr));
	for (unsigned i = 0; i < 32; i++)
		transfer(&p, IBV_WR_RDMA_WRITE, mr, m, mr, m + 2 * i * PAGE, 8);
	/* And the first page, which was written too. */
	assert_int_equal(mr->usage->shift, 0);
	assert_int_equal(usage_slices(mr->usage), 0);
	assert_in_range(usage_pages(mr->usage), 27, 37);
	nic_mr_destroy(mr);
	pair_close(&p);
	munmap(m, LEN);
}

static void what_has_ended_is_kept_by_range(void **state)
{
	uint8_t *m = map(LEN), *l = map(PAGE);
	const struct unpin_past_region *past;
	struct nic_mr *mr, *local;
	struct unpin_segment *seg;
	uint64_t began;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	seg = p.ctx->nic->seg;
	local = pair_reg(&p, l, PAGE, 0);
	began = seg->registrations.begun;
	for (unsigned i = 1; i <= 100; i++) {
		mr = pair_reg(&p, m, LEN, IBV_ACCESS_ON_DEMAND);
		assert_true(seg->region[mr->row].registered_ns);
		assert_int_equal(mr->usage->accesses, 0);
		transfer(&p, IBV_WR_RDMA_WRITE, local, l, mr, m + i % 50 * PAGE, 100);
		nic_mr_destroy(mr);
		past = past_of(p.ctx->nic, m, LEN, UNPIN_REGION_ODP);
		assert_non_null(past);
		assert_int_equal(past->times, i);
	}
	assert_int_equal(past->usage.accesses, 100);
	assert_int_equal(past->usage.slice[7], 2);
	assert_int_equal(usage_pages(&past->usage), 50);
	assert_int_equal(past->odp.bytes_in, 100 * 100);
	assert_true(past->odp.page_faults >= 50);
	assert_true(past->register_ns && past->lived_ns && past->first_ns < past->last_ns);
	assert_false(past->sequence & 1);
	assert_int_equal(seg->registrations.begun - began, 100);
	assert_int_equal(seg->registrations.ended, 100);
	assert_int_equal(seg->registrations.forgotten, 0);
	/* Of another kind, it is another. */
	nic_mr_destroy(pair_reg(&p, m, LEN, 0));
	assert_int_equal(past_of(p.ctx->nic, m, LEN, UNPIN_REGION_PINNED)->times, 1);
	assert_int_equal(past->times, 100);
	nic_mr_destroy(local);
	pair_close(&p);
	munmap(m, LEN);
	munmap(l, PAGE);
}

static void what_finds_no_room_takes_the_oldest_and_is_counted(void **state)
{
	const unsigned many = 4 * UNPIN_PAST_REGIONS;
	uint8_t *m = map((size_t)many * PAGE);
	uint64_t kept = 0;
	struct pair p;
	struct unpin_segment *seg;

	(void)state;
	pair_open(&p, NULL);
	seg = p.ctx->nic->seg;
	for (unsigned i = 0; i < many; i++)
		nic_mr_destroy(pair_reg(&p, m + (size_t)i * PAGE, PAGE, IBV_ACCESS_ON_DEMAND));
	for (unsigned i = 0; i < UNPIN_PAST_REGIONS; i++)
		kept += seg->past[i].times;
	assert_in_range(kept, UNPIN_PAST_REGIONS / 2, UNPIN_PAST_REGIONS);
	assert_int_equal(seg->registrations.forgotten, many - kept);
	assert_int_equal(
		past_of(p.ctx->nic, m + (size_t)(many - 1) * PAGE, PAGE, UNPIN_REGION_ODP)->times, 1);
	pair_close(&p);
	munmap(m, (size_t)many * PAGE);
}

static void another_translation_is_another_region(void **state)
{
	uint8_t *m = map(LEN), *l = map(PAGE);
	struct nic_mr *mr, *local;
	struct pair p;
	int valid;

	(void)state;
	pair_open(&p, NULL);
	local = pair_reg(&p, l, PAGE, 0);
	mr = pair_reg(&p, m, LEN, IBV_ACCESS_ON_DEMAND);
	transfer(&p, IBV_WR_RDMA_WRITE, local, l, mr, m, 100);
	/* Rights only: it is the same. */
	assert_int_equal(0, nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, 0, 0,
				    PAIR_ACCESS_ALL | IBV_ACCESS_ON_DEMAND, &valid));
	assert_int_equal(mr->usage->accesses, 1);
	assert_null(past_of(p.ctx->nic, m, LEN, UNPIN_REGION_ODP));
	assert_int_equal(
		0, nic_mr_rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, (uintptr_t)m, LEN / 2, 0, &valid));
	assert_int_equal(mr->usage->accesses, 0);
	assert_int_equal(mr->counters->bytes_in, 0);
	assert_int_equal(past_of(p.ctx->nic, m, LEN, UNPIN_REGION_ODP)->usage.accesses, 1);
	assert_int_equal(p.ctx->nic->seg->region[mr->row].kind, UNPIN_REGION_ODP);
	nic_mr_destroy(mr);
	assert_int_equal(past_of(p.ctx->nic, m, LEN / 2, UNPIN_REGION_ODP)->times, 1);
	nic_mr_destroy(local);
	pair_close(&p);
	munmap(m, LEN);
	munmap(l, PAGE);
}

static void a_closed_context_ends_its_regions(void **state)
{
	uint8_t *m = map(LEN);
	struct nic_context *keeper;
	struct nic_mr *mr;
	struct nic *nic;
	struct pair p;

	(void)state;
	assert_int_equal(0, nic_context_open(&keeper));
	pair_open(&p, NULL);
	nic = p.ctx->nic;
	mr = pair_reg(&p, m, LEN, 0);
	nic_mr_discard(mr);
	assert_int_equal(past_of(nic, m, LEN, UNPIN_REGION_PINNED)->times, 1);
	/* Only once. */
	nic_mr_destroy(mr);
	assert_int_equal(past_of(nic, m, LEN, UNPIN_REGION_PINNED)->times, 1);
	pair_close(&p);
	nic_context_close(keeper);
	munmap(m, LEN);
}

static char *read_all(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = calloc(1, 1 << 20);

	assert_non_null(f);
	assert_non_null(text);
	assert_in_range(fread(text, 1, (1 << 20) - 1, f), 1, (1 << 20) - 2);
	fclose(f);
	return text;
}

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		n++;
	return n;
}

/* What was told of a region that then ended is taken back; what changes is told again, what does not is not.
 */
static void the_timeline_is_told_what_changes_and_at_the_end_everything(void **state)
{
	char path[] = "/tmp/unpin-usage-test-XXXXXX", word[64], *text;
	uint8_t *m = map(LEN), *l = map(PAGE);
	struct nic_mr *mr, *local, *idle;
	int fd = mkstemp(path);
	struct nic *nic;
	struct pair p;

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	setenv("UNPIN_TRACE", path, 1);
	pair_open(&p, NULL);
	nic = p.ctx->nic;
	local = pair_reg(&p, l, PAGE, 0);
	mr = pair_reg(&p, m, LEN, IBV_ACCESS_ON_DEMAND);
	idle = pair_reg(&p, m, 2 * PAGE, IBV_ACCESS_ON_DEMAND);
	transfer(&p, IBV_WR_RDMA_WRITE, local, l, mr, m + 3 * PAGE, 100);
	/* The engine tells, too, when it is time; so it never is. */
	atomic_store(&nic->tell_at, UINT64_MAX);
	nic_usage_tell(nic, 1, NIC_TELL_END); /* mr, local, idle */
	nic_usage_tell(nic, 1, NIC_TELL_TICK);
	atomic_store(&nic->tell_at, UINT64_MAX);
	nic_usage_tell(nic, 1, NIC_TELL_END);
	atomic_store(&nic->tell_at, UINT64_MAX);
	transfer(&p, IBV_WR_RDMA_WRITE, local, l, mr, m + 5 * PAGE, 100);
	nic_usage_tell(nic, 1, NIC_TELL_END); /* mr, local */
	atomic_store(&nic->tell_at, UINT64_MAX);
	nic_mr_destroy(mr);
	nic_mr_destroy(idle);
	for (unsigned i = 0; i < 1000; i++)
		nic_mr_destroy(pair_reg(&p, m, 3 * PAGE, IBV_ACCESS_ON_DEMAND));
	nic_mr_destroy(local);
	pair_close(&p); /* four ranges */
	unsetenv("UNPIN_TRACE");
	text = read_all(path);
	assert_in_range(count(text, "\"name\":\"region\""), 5, 8);
	assert_int_equal(count(text, "\"name\":\"region_end\""), 3);
	assert_int_equal(count(text, "\"name\":\"past_region\""), 4);
	assert_int_equal(count(text, "\"times\":1000"), 1);
	snprintf(word, sizeof(word), "\"addr\":\"0x%lx\",\"length\":%u", (unsigned long)(uintptr_t)m, LEN);
	assert_in_range(count(text, word), 3, 5);
	assert_non_null(strstr(text, "\"slices\":[0,0,0,1,0,1]"));
	free(text);
	unlink(path);
	munmap(m, LEN);
	munmap(l, PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_access_is_noted),
		cmocka_unit_test(an_implicit_region_has_pages_and_no_slices),
		cmocka_unit_test(what_has_ended_is_kept_by_range),
		cmocka_unit_test(what_finds_no_room_takes_the_oldest_and_is_counted),
		cmocka_unit_test(another_translation_is_another_region),
		cmocka_unit_test(a_closed_context_ends_its_regions),
		cmocka_unit_test(the_timeline_is_told_what_changes_and_at_the_end_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

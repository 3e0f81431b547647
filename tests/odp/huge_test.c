/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Huge pages: transparent ones, which come, split and collapse as the kernel likes, and hugetlb. */
#include "fixture.h"
#include "hugetlb.h"

#include "mm/residency.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* 6.1 */
#endif

#define HUGE LEAF_BYTES

/* Aligned memory of n huge pages, with room around; *raw: what is to be unmapped. */
static char *aligned(unsigned n, char **raw)
{
	*raw = fresh((n + 1) * HUGE, PROT_READ | PROT_WRITE);
	return (char *)(((uintptr_t)*raw + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
}

static char *transparent(unsigned n, char **raw)
{
	char *p = aligned(n, raw);

	raw_madvise(p, n * HUGE, MADV_HUGEPAGE);
	return p;
}

/* Whether a touch brings in a huge page, and we can tell. */
static bool have_huge(void)
{
	char *raw, *p = transparent(1, &raw);
	bool huge;

	*(volatile char *)p = 1;
	huge = residency_huge(p) == 1;
	munmap(raw, 2 * HUGE);
	if (!huge)
		print_message("no transparent huge pages here, or nothing that tells\n");
	return huge;
}

static unsigned valid_pages(const char *p, unsigned pages, enum page_state as)
{
	unsigned n = 0;

	for (unsigned i = 0; i < pages; i++)
		n += state_at(p + i * PAGE) == as;
	return n;
}

static void a_huge_page_comes_in_one_event(void **state)
{
	char *raw, *p = transparent(2, &raw);
	struct odp_region r;

	if (!have_huge()) {
		munmap(raw, 3 * HUGE);
		skip();
	}
	region_open(&r, p, 2 * HUGE, true);
	assert_int_equal(copy_in(&r, p + 100 * PAGE + 5, "huge", 5), 0);
	assert_string_equal(p + 100 * PAGE + 5, "huge");
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 512);
	assert_int_equal(valid_pages(p + HUGE, 512, PAGE_INVALID), 512);
	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(copy_in(&r, p + i * PAGE, "x", 1), 0);
	assert_counter(r.odp, page_faults, 1);
	assert_counter(r.odp, page_faults_handled, 1);
	assert_counter(r.odp, faults_minor, 1);
	assert_counter(r.odp, faults_stale, 0);
	/* All of it goes, and comes again at once. */
	assert_int_equal(madvise(p, HUGE, MADV_DONTNEED), 0);
	assert_counter(r.odp, page_invalidations_handled, 512);
	assert_int_equal(valid_pages(p, 512, PAGE_INVALID), 512);
	assert_int_equal(copy_in(&r, p + 511 * PAGE, "y", 1), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 512);
	odp_region_fini(&r);
	assert_int_equal(valid_pages(p, 512, PAGE_INVALID), 512);
	munmap(raw, 3 * HUGE);
}

static void what_the_application_has_touched_comes_in_one_event_too(void **state)
{
	char *raw, *p = transparent(1, &raw), got[4];
	struct odp_region r;

	if (!have_huge()) {
		munmap(raw, 2 * HUGE);
		skip();
	}
	memset(p, 3, HUGE);
	region_open(&r, p, HUGE, true);
	assert_int_equal(copy_out(&r, p + 9 * PAGE, got, 4), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RO), 512);
	/* And for writing in one more. */
	assert_int_equal(copy_in(&r, p + 300 * PAGE, "x", 1), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 512);
	assert_counter(r.odp, page_faults, 2);
	odp_region_fini(&r);
	munmap(raw, 2 * HUGE);
}

static void small_pages_come_as_before(void **state)
{
	char *raw, *p = aligned(1, &raw);
	struct odp_region r;

	raw_madvise(p, HUGE, MADV_NOHUGEPAGE);
	region_open(&r, p, HUGE, true);
	assert_int_equal(copy_in(&r, p + 100 * PAGE, "x", 1), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 1);
	assert_int_equal(valid_pages(p, 512, PAGE_INVALID), 511);
	odp_region_fini(&r);
	munmap(raw, 2 * HUGE);
}

/* xorshift */
static uint64_t random_next(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* What the kernel does to the pages underneath: nothing here may change a byte, but DONTNEED. */
static void disturb(char *p, char *model, size_t len, uint64_t random)
{
	size_t page = random / 16 % (len / PAGE) * PAGE, huge = page & ~(HUGE - 1);

	switch (random % 16) {
	case 0:
		madvise(p + huge, HUGE, MADV_HUGEPAGE);
		break;
	case 1:
		madvise(p + huge, HUGE, MADV_NOHUGEPAGE);
		break;
	case 2:
		madvise(p + huge, HUGE, MADV_COLLAPSE);
		break;
	case 3:
		madvise(p + page, PAGE, MADV_DONTNEED);
		memset(model + page, 0, PAGE);
		break;
	case 4:
		madvise(p + huge, HUGE, MADV_DONTNEED);
		memset(model + huge, 0, HUGE);
		break;
	case 5: /* unknown to the notifier */
		raw_madvise(p + page, PAGE, MADV_DONTNEED);
		memset(model + page, 0, PAGE);
		break;
	case 6:
		mprotect(p + page, PAGE, PROT_READ);
		mprotect(p + page, PAGE, PROT_READ | PROT_WRITE);
		break;
	default:
		break;
	}
}

static void splits_and_collapses_underneath_are_harmless(void **state)
{
	const size_t len = 4 * HUGE;
	char *raw, *p = transparent(4, &raw), *model = calloc(1, len), buf[3 * PAGE];
	uint64_t x = 88172645463325252ull;
	struct odp_region r;

	region_open(&r, p, len, true);
	for (unsigned i = 0; i < 6000; i++) {
		size_t n = 1 + random_next(&x) % sizeof(buf), at = random_next(&x) % (len - n);

		disturb(p, model, len, random_next(&x));
		if (random_next(&x) & 1) {
			memset(buf, (int)i, n);
			memcpy(model + at, buf, n);
			assert_int_equal(copy_in(&r, p + at, buf, n), 0);
		} else {
			assert_int_equal(copy_out(&r, p + at, buf, n), 0);
			assert_memory_equal(buf, model + at, n);
		}
	}
	assert_memory_equal(p, model, len);
	odp_region_fini(&r);
	munmap(raw, 5 * HUGE);
	free(model);
}

static _Atomic bool stop;

static void *split_for_ever(void *arg)
{
	char *p = arg;

	for (unsigned i = 0; !atomic_load(&stop); i++) {
		madvise(p, HUGE, i % 3 ? MADV_COLLAPSE : MADV_HUGEPAGE);
		/* The last page is nobody's. */
		madvise(p + 511 * PAGE, PAGE, MADV_DONTNEED);
		if (!(i % 64))
			usleep(100);
	}
	return NULL;
}

static void they_are_harmless_under_access_too(void **state)
{
	const size_t len = HUGE - PAGE;
	char *raw, *p = transparent(1, &raw), *model = calloc(1, HUGE), buf[PAGE];
	uint64_t x = 88172645463325253ull;
	struct odp_region r;
	pthread_t thread;

	region_open(&r, p, HUGE, true);
	atomic_store(&stop, false);
	assert_int_equal(pthread_create(&thread, NULL, split_for_ever, p), 0);
	for (unsigned i = 0; i < 4000; i++) {
		size_t n = 1 + random_next(&x) % sizeof(buf), at = random_next(&x) % (len - n);

		if (i % 50 == 0)
			odp_space_invalidate(fx.space, (uintptr_t)p, HUGE, ODP_NOTIFIER);
		if (random_next(&x) & 1) {
			memset(buf, (int)i, n);
			memcpy(model + at, buf, n);
			assert_int_equal(copy_in(&r, p + at, buf, n), 0);
		} else {
			assert_int_equal(copy_out(&r, p + at, buf, n), 0);
			assert_memory_equal(buf, model + at, n);
		}
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	assert_memory_equal(p, model, len);
	odp_region_fini(&r);
	munmap(raw, 2 * HUGE);
	free(model);
}

static void shared_memory_of_huge_pages_comes_in_one_event(void **state)
{
	int fd = memfd_create("unpin-test", MFD_CLOEXEC);
	char *p = mmap(NULL, 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at;
	struct odp_region r;
	bool huge;

	assert_int_equal(ftruncate(fd, 2 * HUGE), 0);
	at = (char *)(((uintptr_t)p + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
	assert_ptr_equal(mmap(at, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0), at);
	*(volatile char *)at = 1;
	huge = !raw_madvise(at, HUGE, MADV_COLLAPSE) && (*(volatile char *)at = 2) && residency_huge(at) == 1;
	region_open(&r, at, 2 * HUGE, true);
	assert_int_equal(copy_in(&r, at + 77 * PAGE, "x", 1), 0);
	assert_int_equal(valid_pages(at, 512, PAGE_VALID_RW), huge ? 512 : 1);
	assert_counter(r.odp, faults_major, 0);
	odp_region_fini(&r);
	munmap(p, 4 * HUGE);
	close(fd);
}

/* ---- hugetlb ---- */

static int give_back(void **state)
{
	hugetlb_give_back();
	return fixture_teardown(state);
}

static void hugetlb_memory_comes_a_huge_page_at_a_time(void **state)
{
	char *p = hugetlb_map(2 * HUGE), got[8];
	struct odp_region r;

	if (!p)
		skip();
	/* An odd piece of it. */
	region_open(&r, p + 100, HUGE + 5000, true);
	assert_int_equal(copy_in(&r, p + 100 * PAGE + 4094, "htlb", 4), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 512);
	assert_int_equal(valid_pages(p + HUGE, 512, PAGE_INVALID), 512);
	assert_counter(r.odp, page_faults, 2);
	assert_counter(r.odp, faults_minor, 1);
	assert_int_equal(copy_out(&r, p + 100 * PAGE + 4094, got, 4), 0);
	assert_memory_equal(got, "htlb", 4);
	/* To the very end of the odd length. */
	assert_int_equal(copy_in(&r, p + HUGE + 5000 + 100 - 4, "end", 4), 0);
	assert_string_equal(p + HUGE + 5000 + 100 - 4, "end");
	assert_int_equal(valid_pages(p + HUGE, 512, PAGE_VALID_RW), 512);
	/* Reading first, then writing: all of it is upgraded. */
	assert_int_equal(madvise(p, HUGE, MADV_DONTNEED), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_INVALID), 512);
	assert_int_equal(copy_out(&r, p + 3 * PAGE, got, 4), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RO), 512);
	assert_int_equal(copy_in(&r, p + 5 * PAGE, "w", 2), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 512);
	assert_counter(r.odp, faults_major, 0);
	odp_region_fini(&r);
	munmap(p, 2 * HUGE);
}

static void a_piece_that_was_dropped_comes_back_alone(void **state)
{
	char *p = hugetlb_map(HUGE);
	struct odp_region r;

	if (!p)
		skip();
	region_open(&r, p, HUGE, true);
	assert_int_equal(copy_in(&r, p, "x", 1), 0);
	odp_space_invalidate(fx.space, (uintptr_t)p + 9 * PAGE, 5 * PAGE, ODP_STALE);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 507);
	assert_int_equal(copy_in(&r, p + 11 * PAGE, "y", 1), 0);
	assert_int_equal(valid_pages(p, 512, PAGE_VALID_RW), 512);
	odp_region_fini(&r);
	munmap(p, HUGE);
}

static void an_exhausted_pool_is_an_error_and_no_signal(void **state)
{
	/* Without a reservation: more than the pool has. */
	const unsigned pages = 1024;
	char *p = hugetlb_map(HUGE), *q;
	struct odp_region r;
	unsigned i = 0;
	int err = 0;

	if (!p)
		skip();
	munmap(p, HUGE);
	q = mmap(NULL, pages * HUGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(q, MAP_FAILED);
	region_open(&r, q, pages * HUGE, true);
	while (!err && i < pages)
		err = copy_in(&r, q + i++ * HUGE + 7 * PAGE, "x", 1);
	if (i < pages)
		assert_int_equal(err, -EFAULT);
	assert_true(i > 1);
	/* What came before works on. */
	assert_int_equal(copy_in(&r, q + 9 * PAGE, "y", 1), 0);
	assert_int_equal(state_at(q + (i - 1) * HUGE), i < pages ? PAGE_INVALID : PAGE_VALID_RW);
	odp_region_fini(&r);
	munmap(q, pages * HUGE);
}

#define TEST(name)    cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define HUGETLB(name) cmocka_unit_test_setup_teardown(name, fixture_setup, give_back)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_huge_page_comes_in_one_event),
		TEST(what_the_application_has_touched_comes_in_one_event_too),
		TEST(small_pages_come_as_before),
		TEST(splits_and_collapses_underneath_are_harmless),
		TEST(they_are_harmless_under_access_too),
		TEST(shared_memory_of_huge_pages_comes_in_one_event),
		HUGETLB(hugetlb_memory_comes_a_huge_page_at_a_time),
		HUGETLB(a_piece_that_was_dropped_comes_back_alone),
		HUGETLB(an_exhausted_pool_is_an_error_and_no_signal),
	};

	return cmocka_run_group_tests_name("odp/huge", tests, NULL, NULL);
}

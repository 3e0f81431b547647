/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What users of on-demand paging ran into: progress and no false errors while memory moves, large and odd
 * mappings.
 */
#include "fixture.h"
#include "hugetlb.h"

#include "mm/residency.h"

struct churn {
	char *at;
	size_t len;
	void (*once)(struct churn *c);
	atomic_bool stop;
	pthread_t thread;
};

static void *churning(void *arg)
{
	struct churn *c = arg;

	while (!atomic_load(&c->stop))
		c->once(c);
	return NULL;
}

static void churn_start(struct churn *c)
{
	atomic_store(&c->stop, false);
	assert_int_equal(pthread_create(&c->thread, NULL, churning, c), 0);
}

static void churn_stop(struct churn *c)
{
	atomic_store(&c->stop, true);
	pthread_join(c->thread, NULL);
}

static void discard(struct churn *c)
{
	madvise(c->at, c->len, MADV_DONTNEED);
}

static void protect_and_allow(struct churn *c)
{
	mprotect(c->at, c->len, PROT_READ | PROT_WRITE);
}

/* In place and without a gap: at no moment is there a hole. */
static void replace(struct churn *c)
{
	if (mmap(c->at, c->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
		c->at)
		abort();
}

static void pretend(struct churn *c)
{
	odp_space_invalidate(fx.space, (uintptr_t)c->at, c->len, ODP_NOTIFIER);
}

/* Everything succeeds, and everything ends, however fast the pages go away again. */
static void accesses_succeed_under(void (*once)(struct churn *))
{
	struct churn c = { .len = 16 * PAGE, .once = once };
	char buf[3 * PAGE];
	struct odp_region r;

	c.at = fresh(c.len, PROT_READ | PROT_WRITE);
	memset(buf, 1, sizeof(buf));
	region_open(&r, c.at, c.len, true);
	churn_start(&c);
	for (unsigned i = 0; i < 20000; i++) {
		assert_int_equal(copy_in(&r, c.at + i % 13 * PAGE, buf, sizeof(buf)), 0);
		assert_int_equal(copy_out(&r, c.at + i % 13 * PAGE + 5, buf, sizeof(buf) - 5), 0);
		memset(buf, 1, sizeof(buf));
	}
	churn_stop(&c);
	odp_region_fini(&r);
	munmap(c.at, c.len);
}

static void an_endless_dontneed_loop_does_not_stop_an_access(void **state)
{
	accesses_succeed_under(discard);
}

static void mprotect_without_effect_is_no_error(void **state)
{
	accesses_succeed_under(protect_and_allow);
}

static void mappings_replaced_in_place_are_no_error(void **state)
{
	accesses_succeed_under(replace);
}

static void invalidations_faster_than_faults_do_not_stop_an_access(void **state)
{
	accesses_succeed_under(pretend);
	assert_true(value(&fx.totals.page_invalidations) > 0);
}

/* The same for a fault that waits for a driver thread every time. */
static void parked_accesses_come_through_an_endless_dontneed_loop(void **state)
{
	char name[] = "/tmp/unpin-odp-XXXXXX", buf[16] = "through";
	struct churn c = { .len = 4 * PAGE, .once = discard };
	int fd = mkstemp(name);
	struct odp_region r;

	assert_true(fd >= 0);
	unlink(name);
	assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
	c.at = mmap(NULL, c.len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	region_open(&r, c.at, c.len, true);
	churn_start(&c);
	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(copy_in(&r, c.at + i % 3 * PAGE + PAGE - 8, buf, 16), 0);
		assert_int_equal(copy_out(&r, c.at + i % 3 * PAGE + PAGE - 8, buf, 16), 0);
		assert_string_equal(buf, "through");
	}
	churn_stop(&c);
	odp_region_fini(&r);
	munmap(c.at, c.len);
	close(fd);
}

static void a_region_of_eight_gigabytes_pages_in_where_it_is_touched(void **state)
{
	size_t len = 8ul << 30;
	char *p = fresh(len, PROT_READ | PROT_WRITE), got[8];
	struct odp_region r;

	region_open(&r, p, len, true);
	for (size_t at = len - 4096; at > 1ul << 28; at -= 1ul << 28) {
		assert_int_equal(copy_in(&r, p + at - 4, "boundary", 8), 0);
		assert_int_equal(copy_out(&r, p + at - 4, got, 8), 0);
		assert_memory_equal(got, "boundary", 8);
	}
	odp_region_fini(&r);
	munmap(p, len);
}

static void memory_freed_and_allocated_again_is_the_new_memory(void **state)
{
	char *p = fresh(4 * PAGE, PROT_READ | PROT_WRITE), got[4];
	struct odp_region r;

	region_open(&r, p, 4 * PAGE, true);
	for (int i = 0; i < 100; i++) {
		char text[4];

		snprintf(text, sizeof(text), "%03d", i);
		munmap(p, 4 * PAGE);
		assert_ptr_equal(mmap(p, 4 * PAGE, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			p);
		memcpy(p + PAGE, text, 4);
		assert_int_equal(copy_out(&r, p + PAGE, got, 4), 0);
		assert_string_equal(got, text);
	}
	assert_counter(r.odp, faults_stale, 0);
	odp_region_fini(&r);
	munmap(p, 4 * PAGE);
}

static void memfd_and_private_files_are_paged(void **state)
{
	int fd = memfd_create("unpin-test", MFD_CLOEXEC);
	char *shared, *private, got[4];
	struct odp_region r, s;

	assert_int_equal(ftruncate(fd, 4 * PAGE), 0);
	shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	private = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	region_open(&r, shared, 4 * PAGE, true);
	region_open(&s, private, 4 * PAGE, true);
	assert_int_equal(copy_in(&r, shared + PAGE, "all", 4), 0);
	assert_int_equal(copy_out(&s, private + PAGE, got, 4), 0);
	assert_string_equal(got, "all");
	assert_int_equal(copy_in(&s, private + PAGE, "own", 4), 0);
	assert_int_equal(copy_out(&r, shared + PAGE, got, 4), 0);
	assert_string_equal(got, "all");
	odp_region_fini(&r);
	odp_region_fini(&s);
	munmap(shared, 4 * PAGE);
	munmap(private, 4 * PAGE);
	close(fd);
}

static void transparent_huge_pages_split_and_all_are_paged(void **state)
{
	size_t len = 4ul << 21;
	char *p = fresh(len, PROT_READ | PROT_WRITE), *huge, got[4];
	struct odp_region r;

	huge = (char *)(((uintptr_t)p + LEAF_BYTES - 1) & ~(LEAF_BYTES - 1));
	raw_madvise(huge, 2 * LEAF_BYTES, MADV_HUGEPAGE);
	region_open(&r, huge, 2 * LEAF_BYTES, true);
	assert_int_equal(copy_in(&r, huge + 100 * PAGE, "thp", 4), 0);
	madvise(huge + 50 * PAGE, PAGE, MADV_DONTNEED);
	assert_int_equal(copy_out(&r, huge + 100 * PAGE, got, 4), 0);
	assert_string_equal(got, "thp");
	assert_int_equal(copy_in(&r, huge + 50 * PAGE, "new", 4), 0);
	assert_string_equal(huge + 50 * PAGE, "new");
	odp_region_fini(&r);
	munmap(p, len);
}

static void huge_pages_of_hugetlbfs_are_paged(void **state)
{
	char *p = hugetlb_map(LEAF_BYTES), got[4];
	struct odp_region r;

	if (!p)
		skip();
	region_open(&r, p, LEAF_BYTES, true);
	assert_int_equal(copy_in(&r, p + 100 * PAGE + 4094, "htlb", 4), 0);
	assert_int_equal(copy_out(&r, p + 100 * PAGE + 4094, got, 4), 0);
	assert_memory_equal(got, "htlb", 4);
	odp_region_fini(&r);
	munmap(p, LEAF_BYTES);
}

static int give_back(void **state)
{
	hugetlb_give_back();
	return fixture_teardown(state);
}

static void code_and_constants_can_be_read(void **state)
{
	static const char constant[] = "constant";
	char got[sizeof(constant)];
	struct odp_region r;

	region_open(&r, (void *)(uintptr_t)constant, sizeof(constant), true);
	assert_int_equal(copy_out(&r, constant, got, sizeof(got)), 0);
	assert_string_equal(got, "constant");
	assert_int_equal(copy_in(&r, (void *)(uintptr_t)constant, got, 1), -EACCES);
	odp_region_fini(&r);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(an_endless_dontneed_loop_does_not_stop_an_access),
		TEST(mprotect_without_effect_is_no_error),
		TEST(mappings_replaced_in_place_are_no_error),
		TEST(invalidations_faster_than_faults_do_not_stop_an_access),
		TEST(parked_accesses_come_through_an_endless_dontneed_loop),
		TEST(a_region_of_eight_gigabytes_pages_in_where_it_is_touched),
		TEST(memory_freed_and_allocated_again_is_the_new_memory),
		TEST(memfd_and_private_files_are_paged),
		TEST(transparent_huge_pages_split_and_all_are_paged),
		cmocka_unit_test_setup_teardown(huge_pages_of_hugetlbfs_are_paged, fixture_setup, give_back),
		TEST(code_and_constants_can_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Fork: the parent's writes are the parent's, the child's are the child's, and the child can page for itself.
 */
#include "fixture.h"

#include <sys/wait.h>

/* Runs f in a child; 0 when it says so. In the parent fork is reported as the device does. */
static pid_t child(int (*f)(void *), void *arg)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		odp_space_abandon(fx.space);
		_exit(f(arg));
	}
	assert_true(pid > 0);
	odp_space_forked(fx.space);
	return pid;
}

static int status_of(pid_t pid)
{
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

struct exchange {
	char *page;
	int to_child[2], to_parent[2];
};

/* Waits until the parent has written, then looks, then writes, and says so. */
static int look_and_write(void *arg)
{
	struct exchange *x = arg;
	char c;

	if (read(x->to_child[0], &c, 1) != 1)
		return 1;
	if (strcmp(x->page, "before"))
		return 2;
	strcpy(x->page, "child");
	if (write(x->to_parent[1], "x", 1) != 1 || read(x->to_child[0], &c, 1) != 1)
		return 3;
	return strcmp(x->page, "child") ? 4 : 0;
}

static void writes_of_the_parents_device_are_not_the_childs_nor_the_other_way_round(void **state)
{
	struct exchange x = { .page = fresh(PAGE, PROT_READ | PROT_WRITE) };
	struct odp_region r;
	char got[16];
	pid_t pid;

	assert_int_equal(pipe(x.to_child) | pipe(x.to_parent), 0);
	region_open(&r, x.page, PAGE, true);
	assert_int_equal(copy_in(&r, x.page, "before", 7), 0);
	pid = child(look_and_write, &x);
	assert_int_equal(state_at(x.page), PAGE_VALID_RO);
	assert_int_equal(copy_in(&r, x.page, "parent", 7), 0);
	assert_int_equal(state_at(x.page), PAGE_VALID_RW);
	assert_int_equal(write(x.to_child[1], "x", 1), 1);
	assert_int_equal(read(x.to_parent[0], got, 1), 1);
	assert_int_equal(copy_out(&r, x.page, got, 7), 0);
	assert_string_equal(got, "parent");
	assert_string_equal(x.page, "parent");
	assert_int_equal(write(x.to_child[1], "x", 1), 1);
	assert_int_equal(status_of(pid), 0);
	odp_region_fini(&r);
	munmap(x.page, PAGE);
	for (int i = 0; i < 2; i++) {
		close(x.to_child[i]);
		close(x.to_parent[i]);
	}
}

/* A region of the parent's is forgotten; a new space serves the child, threads included. */
static int page_for_itself(void *arg)
{
	char *p = arg, got[16], name[] = "/tmp/unpin-odp-XXXXXX";
	int fd = mkstemp(name);
	struct odp_region r;

	unlink(name);
	if (fd < 0 || ftruncate(fd, PAGE) || fixture_open(2))
		return 1;
	interpose_observe(fixture_observer);
	region_open(&r, p, PAGE, true);
	if (copy_in(&r, p, "mine", 5) || copy_out(&r, p, got, 5) || strcmp(got, "mine"))
		return 2;
	odp_region_fini(&r);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	region_open(&r, p, PAGE, true);
	if (copy_in(&r, p, "file", 5) || value(&r.odp->faults_major) != 1)
		return 3;
	odp_region_fini(&r);
	odp_space_close(fx.space);
	return strcmp(p, "file") ? 4 : 0;
}

static void a_child_can_open_its_own(void **state)
{
	char *p = fresh(PAGE, PROT_READ | PROT_WRITE);
	struct odp_region r;

	region_open(&r, p, PAGE, true);
	assert_int_equal(copy_in(&r, p, "before", 7), 0);
	assert_int_equal(status_of(child(page_for_itself, p)), 0);
	assert_string_equal(p, "before");
	odp_region_fini(&r);
	munmap(p, PAGE);
}

static int nothing(void *arg)
{
	return arg != NULL;
}

static void memory_that_the_child_does_not_get_stays_the_parents(void **state)
{
	char *p = fresh(2 * PAGE, PROT_READ | PROT_WRITE), got[8];
	struct odp_region r;

	assert_int_equal(raw_madvise(p, PAGE, MADV_DONTFORK), 0);
	assert_int_equal(raw_madvise(p + PAGE, PAGE, MADV_WIPEONFORK), 0);
	region_open(&r, p, 2 * PAGE, true);
	assert_int_equal(copy_in(&r, p + PAGE - 4, "straddle", 8), 0);
	assert_int_equal(status_of(child(nothing, NULL)), 0);
	assert_int_equal(copy_out(&r, p + PAGE - 4, got, 8), 0);
	assert_memory_equal(got, "straddle", 8);
	assert_int_equal(copy_in(&r, p + PAGE - 4, "STRADDLE", 8), 0);
	assert_memory_equal(p + PAGE - 4, "STRADDLE", 8);
	odp_region_fini(&r);
	munmap(p, 2 * PAGE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
	const struct CMUnitTest tests[] = {
		TEST(writes_of_the_parents_device_are_not_the_childs_nor_the_other_way_round),
		TEST(a_child_can_open_its_own),
		TEST(memory_that_the_child_does_not_get_stays_the_parents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

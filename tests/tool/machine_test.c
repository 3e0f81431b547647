/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/machine.h"

static void a_pattern_differs_by_place_and_seed(void **state)
{
	uint64_t a[512], b[512];

	machine_fill(a, sizeof(a), 1);
	machine_fill(b, sizeof(b), 2);
	assert_int_equal(machine_compare(a, sizeof(a), 1), sizeof(a));
	assert_int_equal(machine_compare(a, sizeof(a), 2), 0);
	a[100] ^= 1;
	assert_int_equal(machine_compare(a, sizeof(a), 1), 800);
	for (int i = 1; i < 512; i++)
		assert_true(b[i] != b[i - 1]);
}

static void memory_is_mapped_aligned_and_untouched(void **state)
{
	size_t length = 8 << 20;
	struct machine_memory before = machine_memory(), after;
	unsigned char present[2048];
	char *addr = machine_map(length);

	assert_non_null(addr);
	assert_int_equal((uintptr_t)addr % (2 << 20), 0);
	assert_int_equal(mincore(addr, length, present), 0);
	for (int i = 0; i < 2048; i++)
		assert_false(present[i] & 1);
	machine_touch(addr, length);
	after = machine_memory();
	assert_true(after.resident >= before.resident + length / 2);
	assert_int_equal(mincore(addr, length, present), 0);
	for (int i = 0; i < 2048; i++)
		assert_true(present[i] & 1);
	machine_unmap(addr, length);
	machine_unmap(NULL, length);
	addr = machine_map(100);
	assert_non_null(addr);
	addr[99] = 1;
	machine_unmap(addr, 100);
}

static void locked_memory_is_seen(void **state)
{
	struct machine_memory before = machine_memory();
	void *addr = machine_map(4096);

	/* The call itself: sanitizers make the function do nothing. */
	if (syscall(SYS_mlock, addr, 4096)) {
		print_message("no memory may be locked here\n");
		machine_unmap(addr, 4096);
		skip();
	}
	assert_int_equal(machine_memory().locked - before.locked, 4096);
	machine_unmap(addr, 4096);
}

static void available_memory_is_no_more_than_there_is(void **state)
{
	assert_true(machine_total() > 0);
	assert_true(machine_available() > 0);
	assert_true(machine_available() <= machine_total());
}

static void a_thread_is_kept_on_a_processor_and_let_go(void **state)
{
	unsigned cpus = machine_cpus();
	cpu_set_t set;

	assert_true(cpus > 0);
	assert_int_equal(machine_pin_thread(cpus), false);
	if (machine_pin_thread(cpus - 1)) {
		sched_getaffinity(0, sizeof(set), &set);
		assert_int_equal(CPU_COUNT(&set), 1);
	}
	machine_unpin_thread();
	sched_getaffinity(0, sizeof(set), &set);
	assert_int_equal(CPU_COUNT(&set), cpus);
	assert_int_equal(machine_cpus(), cpus);
}

static void the_soft_limit_on_locked_memory_is_raised(void **state)
{
	struct rlimit limit;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	limit.rlim_cur = 4096 < limit.rlim_max ? 4096 : limit.rlim_max;
	setrlimit(RLIMIT_MEMLOCK, &limit);
	machine_memlock();
	getrlimit(RLIMIT_MEMLOCK, &limit);
	assert_true(limit.rlim_cur == limit.rlim_max);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pattern_differs_by_place_and_seed),
		cmocka_unit_test(memory_is_mapped_aligned_and_untouched),
		cmocka_unit_test(locked_memory_is_seen),
		cmocka_unit_test(available_memory_is_no_more_than_there_is),
		cmocka_unit_test(a_thread_is_kept_on_a_processor_and_let_go),
		cmocka_unit_test(the_soft_limit_on_locked_memory_is_raised),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

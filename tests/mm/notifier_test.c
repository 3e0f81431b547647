/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "mm/notifier.h"
#include "tests/mm/child.h"

#define PAGE 4096ul

/* How often a change of the page under test was told. */
static _Atomic uintptr_t page;
static atomic_uint unmapped, changed;

static void observer(enum mm_change what, uintptr_t addr, size_t len)
{
	if (addr <= atomic_load(&page) && atomic_load(&page) - addr < len)
		atomic_fetch_add(what == MM_UNMAP ? &unmapped : &changed, 1);
}

static bool reaches(atomic_uint *count, unsigned n)
{
	for (int i = 0; i < 5000 && atomic_load(count) < n; i++)
		usleep(1000);
	return atomic_load(count) >= n;
}

static void *map_page(void)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct vma v;

	atomic_store(&unmapped, 0);
	atomic_store(&changed, 0);
	atomic_store(&page, (uintptr_t)p);
	if (!vma_find((uintptr_t)p, false, &v))
		notifier_cover(&v);
	return p;
}

static int interpose(void)
{
	void *p;

	CHECK(!strcmp(notifier_name(), "none"));
	CHECK(notifier_start(NOTIFIER_INTERPOSE, observer) == NOTIFIER_INTERPOSE);
	CHECK(!strcmp(notifier_name(), "interpose"));
	p = map_page();
	CHECK(!mprotect(p, PAGE, PROT_READ) && changed == 1);
	CHECK(!munmap(p, PAGE) && unmapped == 1);
	p = map_page();
	CHECK(!raw_munmap(p, PAGE) && !unmapped);
	notifier_stop();
	CHECK(!strcmp(notifier_name(), "none"));
	CHECK(!munmap(map_page(), PAGE) && !unmapped);
	return 0;
}

static void interposition_tells_what_goes_through_libc(void **state)
{
	assert_true(exited(in_child(interpose), 0));
}

static int none(void)
{
	CHECK(notifier_start(NOTIFIER_NONE, observer) == NOTIFIER_NONE);
	CHECK(!strcmp(notifier_name(), "none"));
	CHECK(!munmap(map_page(), PAGE) && !unmapped);
	notifier_stop();
	return 0;
}

static void with_none_nobody_tells(void **state)
{
	assert_true(exited(in_child(none), 0));
}

static int userfaultfd(void)
{
	int status;
	void *p;

	CHECK(notifier_start(NOTIFIER_USERFAULTFD, observer) == NOTIFIER_USERFAULTFD);
	CHECK(!strcmp(notifier_name(), "userfaultfd"));
	p = map_page();
	/* What the kernel does not tell, interposition does. */
	CHECK(!mprotect(p, PAGE, PROT_READ) && changed == 1);
	CHECK(!raw_munmap(p, PAGE) && reaches(&unmapped, 1));
	p = map_page();
	CHECK(!munmap(p, PAGE) && unmapped >= 1 && reaches(&unmapped, 2));
	if (!fork()) {
		notifier_abandon();
		_exit(strcmp(notifier_name(), "none") || munmap(map_page(), PAGE) || unmapped);
	}
	CHECK(wait(&status) > 0 && exited(status, 0));
	CHECK(!strcmp(notifier_name(), "userfaultfd"));
	notifier_stop();
	CHECK(!munmap(map_page(), PAGE) && !unmapped);
	return 0;
}

static void userfaultfd_tells_of_raw_system_calls_too(void **state)
{
	if (!mm_have(MM_UFFD)) {
		printf("skipped: no userfaultfd: %s\n", mm_facility_why_not(MM_UFFD));
		skip();
	}
	assert_true(exited(in_child(userfaultfd), 0));
}

static int falls_back(void)
{
	void *p;

	setenv("UNPIN_DISABLE", "uffd", 1);
	CHECK(notifier_start(NOTIFIER_USERFAULTFD, observer) == NOTIFIER_INTERPOSE);
	CHECK(!strcmp(notifier_name(), "interpose"));
	p = map_page();
	CHECK(!munmap(p, PAGE) && unmapped == 1);
	notifier_stop();
	return 0;
}

static void without_userfaultfd_interposition_takes_its_place(void **state)
{
	assert_true(exited(in_child(falls_back), 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: whether there is a userfaultfd is asked once per process. */
		cmocka_unit_test(without_userfaultfd_interposition_takes_its_place),
		cmocka_unit_test(interposition_tells_what_goes_through_libc),
		cmocka_unit_test(with_none_nobody_tells),
		cmocka_unit_test(userfaultfd_tells_of_raw_system_calls_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

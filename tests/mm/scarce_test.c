/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Pins while there is no ring to be had for the moment, and where there is none at all. io_uring_queue_init()
 * is wrapped and fails when told; each case runs in a child that has asked for nothing yet. The first call of
 * a process is the probe's, the next one makes the ring.
 */
#include <errno.h>
#include <liburing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "../counted_pins.h"
#include "mm/facility.h"
#include "mm/pin.h"
#include "mm/uringbuf.h"
#include "tests/mm/child.h"
#include "tests/mm/status.h"

#define PAGE 4096ul

#define NONE UINT32_MAX

int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);

/* Calls from this one on fail, that many. */
static uint32_t fail_from = NONE, fail_count = NONE, calls;
static int fail_with;
/* Which it is, where a case is about both. */
static uint32_t first;

int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	uint32_t call = calls++;

	if (call >= fail_from && call - fail_from < fail_count)
		return fail_with;
	return __real_io_uring_queue_init(entries, ring, flags);
}

static void refuse(uint32_t from, uint32_t count)
{
	calls = 0;
	fail_from = from;
	fail_count = count;
}

static const int passing[] = { -ENOMEM, -EMFILE, -ENFILE, -EAGAIN, -EINTR };
static const int lasting[] = { -EPERM, -ENOSYS, -EINVAL };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void with_each(const int *err, size_t n, int (*fn)(void))
{
	for (size_t i = 0; i < n; i++) {
		int status;

		fail_with = err[i];
		status = in_child(fn);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

static int rings_here(void)
{
	return mm_have(MM_IO_URING) ? 0 : 1;
}

static void need_rings(void)
{
	if (!exited(in_child(rings_here), 0)) {
		print_message("no io_uring here\n");
		skip();
	}
}

static struct pin *create(void)
{
	void *p = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pin *pin = NULL;
	int err = pin_create((uintptr_t)p, 8 * PAGE, true, &pin);

	errno = -err;
	return pin;
}

/* How many KiB are held, and by whom. */
static bool pinned(long kib)
{
	return status_kib("VmPin") == kib && !status_kib("VmLck");
}

static bool locked(long kib)
{
	return status_kib("VmLck") == kib && !status_kib("VmPin");
}

/* ---- The facility ---- */

static int asked_again(void)
{
	refuse(0, 1);
	CHECK(mm_ask(MM_IO_URING) == fail_with);
	CHECK(mm_have(MM_IO_URING) && !mm_ask(MM_IO_URING) && !mm_facility_why_not(MM_IO_URING));
	CHECK(calls == 2);
	return 0;
}

static void what_could_not_be_had_once_is_asked_for_again(void **state)
{
	need_rings();
	with_each(passing, COUNT(passing), asked_again);
}

static int kept(void)
{
	refuse(0, 1);
	CHECK(!mm_have(MM_IO_URING) && !mm_have(MM_IO_URING) && mm_ask(MM_IO_URING) == fail_with);
	CHECK(calls == 1);
	return 0;
}

static void what_the_kernel_refuses_is_asked_for_once(void **state)
{
	with_each(lasting, COUNT(lasting), kept);
}

static int reasons(void)
{
	const char *why;

	refuse(0, NONE);
	CHECK(!mm_have(MM_IO_URING));
	why = mm_facility_why_not(MM_IO_URING);
	CHECK(why && !strncmp(why, "not to be had for the moment: ", 30));
	fail_with = -EPERM;
	CHECK(!strcmp(mm_facility_why_not(MM_IO_URING), "refused by the kernel: Operation not permitted"));
	/* That is for good. */
	refuse(NONE, 0);
	CHECK(!mm_have(MM_IO_URING) && mm_ask(MM_IO_URING) == -EPERM && !calls);
	return 0;
}

static void a_reason_that_passes_does_not_stand_for_the_one_that_stays(void **state)
{
	with_each(passing, COUNT(passing), reasons);
}

/* ---- Buffers ---- */

static int ring_at_last(void)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uringbuf buf;

	refuse(0, 1);
	CHECK(!uringbuf_pin((uintptr_t)p, PAGE, &buf));
	CHECK(calls == 2 && pinned(4));
	uringbuf_unpin(&buf);
	return 0;
}

static void a_ring_that_cannot_be_made_is_tried_again(void **state)
{
	need_rings();
	with_each(passing, COUNT(passing), ring_at_last);
}

static int no_ring(void)
{
	void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uringbuf buf;

	refuse(0, NONE);
	CHECK(uringbuf_pin((uintptr_t)p, PAGE, &buf) == fail_with);
	CHECK(mm_passing(fail_with) ? calls > 1 : calls == 1);
	return 0;
}

static void patience_ends_and_is_not_for_what_stays(void **state)
{
	with_each(passing, COUNT(passing), no_ring);
	with_each(lasting, COUNT(lasting), no_ring);
}

/* ---- Pins ---- */

static int probe_failed(void)
{
	refuse(0, 1);
	CHECK(create() && calls == 2 && pinned(32));
	CHECK(create() && pinned(64));
	return 0;
}

static int ring_failed(void)
{
	refuse(1, 1);
	CHECK(create() && calls == 3 && pinned(32));
	CHECK(create() && pinned(64));
	return 0;
}

static void a_pin_is_a_pin_when_a_ring_could_not_be_had_once(void **state)
{
	need_rings();
	with_each(passing, COUNT(passing), probe_failed);
	with_each(passing, COUNT(passing), ring_failed);
}

static int short_for_long(void)
{
	struct rlimit limit, none;

	/* A process that is over its own limit: within it, -ENOMEM would mean that others are over it. */
	CHECK(!getrlimit(RLIMIT_MEMLOCK, &limit));
	none = limit;
	none.rlim_cur = 0;
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &none));
	refuse(first, NONE);
	CHECK(!create() && errno == ENOMEM);
	CHECK(!pin_any() && !pin_total() && pinned(0));
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	refuse(NONE, 0);
	CHECK(create() && pinned(32));
	return 0;
}

static void what_is_short_is_an_error_and_no_reason_to_lock(void **state)
{
	need_rings();
	first = 0;
	with_each(passing, COUNT(passing), short_for_long);
	first = 1;
	with_each(passing, COUNT(passing), short_for_long);
}

static int no_descriptor(void)
{
	struct rlimit limit, none;

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	none = limit;
	none.rlim_cur = 0;
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	CHECK(!create() && errno == ENOMEM);
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	CHECK(pinned(0) && create() && pinned(32));
	return 0;
}

static void a_process_out_of_descriptors_pins_when_it_has_some_again(void **state)
{
	static const int none[] = { 0 };

	need_rings();
	with_each(none, 1, no_descriptor);
}

static int refused(void)
{
	refuse(first, NONE);
	CHECK(create() && calls == first + 1 && locked(32));
	CHECK(create() && locked(64));
	return 0;
}

static void where_there_are_no_rings_memory_is_locked(void **state)
{
	first = 0;
	with_each(lasting, COUNT(lasting), refused);
	need_rings();
	/* The probe's ring was made, the next one is refused: a filter was set in between. */
	first = 1;
	with_each(lasting, COUNT(lasting), refused);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_could_not_be_had_once_is_asked_for_again),
		cmocka_unit_test(what_the_kernel_refuses_is_asked_for_once),
		cmocka_unit_test(a_reason_that_passes_does_not_stand_for_the_one_that_stays),
		cmocka_unit_test(a_ring_that_cannot_be_made_is_tried_again),
		cmocka_unit_test(patience_ends_and_is_not_for_what_stays),
		cmocka_unit_test(a_pin_is_a_pin_when_a_ring_could_not_be_had_once),
		cmocka_unit_test(what_is_short_is_an_error_and_no_reason_to_lock),
		cmocka_unit_test(a_process_out_of_descriptors_pins_when_it_has_some_again),
		cmocka_unit_test(where_there_are_no_rings_memory_is_locked),
	};

	unsetenv("UNPIN_DISABLE");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

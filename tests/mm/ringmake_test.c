/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Rings that come and go while a thread of the application waits in a system call. pthread_create() is
 * wrapped and fails when told. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "mm/ringmake.h"
#include "tests/mm/child.h"

#define ROUNDS 20

static bool no_threads;
static sigset_t mask_of_thread;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	pthread_sigmask(SIG_BLOCK, NULL, &mask_of_thread);
	return no_threads ? EAGAIN : __real_pthread_create(thread, attr, fn, arg);
}

static bool missing(void)
{
	if (mm_have(MM_IO_URING))
		return false;
	print_message("io_uring: %s\n", mm_facility_why_not(MM_IO_URING));
	return true;
}

/* The kernel tells a ring's maker of the end from a worker, a moment later. */
static bool interrupted(void)
{
	struct epoll_event ev;
	int ep = epoll_create1(EPOLL_CLOEXEC), n;

	assert_true(ep >= 0);
	n = epoll_wait(ep, &ev, 1, 30);
	close(ep);
	return n < 0;
}

static int interruptions_by(bool (*round)(void))
{
	int n = 0;

	for (int i = 0; i < ROUNDS; i++) {
		assert_true(round());
		n += interrupted();
	}
	return n;
}

static bool probed(void)
{
	return !ring_probe();
}

/* More slots than the kernel allows: the ring is there, and ends because its table cannot be made. */
static bool failed(void)
{
	struct io_uring ring;

	return ring_make(1u << 24, &ring) < 0;
}

/* As when a program closes descriptors that it does not know. */
static bool closed_here(void)
{
	struct io_uring ring;

	if (ring_make(512, &ring))
		return false;
	io_uring_queue_exit(&ring);
	return true;
}

static void a_ring_that_ends_interrupts_nobody(void **state)
{
	if (missing())
		skip();
	assert_int_equal(interruptions_by(probed), 0);
	assert_int_equal(interruptions_by(failed), 0);
	assert_int_equal(interruptions_by(closed_here), 0);
}

static void a_ring_is_to_be_had_where_no_thread_is(void **state)
{
	struct io_uring ring;

	if (missing())
		skip();
	no_threads = true;
	assert_int_equal(ring_probe(), 0);
	assert_int_equal(ring_make(512, &ring), 0);
	no_threads = false;
	io_uring_queue_exit(&ring);
}

static void a_ring_is_on_a_high_descriptor_and_is_not_inherited(void **state)
{
	struct io_uring ring;

	if (missing())
		skip();
	assert_int_equal(ring_make(512, &ring), 0);
	assert_true(ring.ring_fd >= 512);
	assert_int_equal(fcntl(ring.ring_fd, F_GETFD), FD_CLOEXEC);
	io_uring_queue_exit(&ring);
}

static void the_thread_takes_no_signal_and_the_caller_keeps_its_mask(void **state)
{
	sigset_t before, after;

	if (missing())
		skip();
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	assert_int_equal(ring_probe(), 0);
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	assert_int_equal(sigismember(&after, SIGUSR1), sigismember(&before, SIGUSR1));
	assert_int_equal(sigismember(&mask_of_thread, SIGUSR1), 1);
	assert_int_equal(sigismember(&mask_of_thread, SIGALRM), 1);
}

static int cancelled_outcome;

static void *probe_while_cancelled(void *arg)
{
	(void)arg;
	pthread_cancel(pthread_self());
	cancelled_outcome = ring_probe();
	pthread_testcancel();
	return NULL;
}

static void a_cancelled_thread_goes_on_to_its_own_cancellation_point(void **state)
{
	pthread_t thread;
	void *end;

	if (missing())
		skip();
	cancelled_outcome = -1;
	assert_int_equal(pthread_create(&thread, NULL, probe_while_cancelled, NULL), 0);
	pthread_join(thread, &end);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	assert_int_equal(cancelled_outcome, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_that_ends_interrupts_nobody),
		cmocka_unit_test(a_ring_is_to_be_had_where_no_thread_is),
		cmocka_unit_test(a_ring_is_on_a_high_descriptor_and_is_not_inherited),
		cmocka_unit_test(the_thread_takes_no_signal_and_the_caller_keeps_its_mask),
		cmocka_unit_test(a_cancelled_thread_goes_on_to_its_own_cancellation_point),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

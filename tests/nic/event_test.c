/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "nic/event.h"

struct thing {
	struct nic_event_source source;
	struct nic_event event[2];
};

static void thing_init(struct thing *t)
{
	memset(t, 0, sizeof(*t));
	t->source.cookie = t;
	for (int i = 0; i < 2; i++) {
		t->event[i].source = &t->source;
		t->event[i].type = 10 + i;
		list_init(&t->event[i].node);
	}
}

static bool readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void events_come_out_in_order_and_the_descriptor_tells(void **state)
{
	struct nic_event_source *source;
	struct nic_event_queue q;
	struct thing a, b;
	void *cookie;
	int type;

	(void)state;
	assert_int_equal(0, nic_event_queue_init(&q));
	assert_true(fcntl(q.fd, F_GETFD) & FD_CLOEXEC);
	thing_init(&a);
	thing_init(&b);
	assert_false(readable(q.fd));
	nic_event_post(&q, &a.event[1]);
	nic_event_post(&q, &b.event[0]);
	nic_event_post(&q, &a.event[1]); /* queued already */
	assert_true(readable(q.fd));
	assert_int_equal(0, nic_event_get(&q, &cookie, &type, &source));
	assert_ptr_equal(&a, cookie);
	assert_int_equal(11, type);
	assert_ptr_equal(&a.source, source);
	assert_int_equal(0, nic_event_get(&q, &cookie, &type, &source));
	assert_ptr_equal(&b, cookie);
	assert_false(readable(q.fd));
	nic_event_queue_fini(&q);
}

static void an_empty_queue_answers_eagain_when_it_may_not_block(void **state)
{
	struct nic_event_queue q;
	void *cookie;

	(void)state;
	assert_int_equal(0, nic_event_queue_init(&q));
	assert_int_equal(0, fcntl(q.fd, F_SETFL, fcntl(q.fd, F_GETFL) | O_NONBLOCK));
	assert_int_equal(-EAGAIN, nic_event_get(&q, &cookie, NULL, NULL));
	nic_event_queue_fini(&q);
}

static void retiring_takes_unread_events_off_without_changing_the_descriptors_mode(void **state)
{
	struct nic_event_queue q;
	struct thing a;

	(void)state;
	assert_int_equal(0, nic_event_queue_init(&q));
	thing_init(&a);
	nic_event_post(&q, &a.event[0]);
	nic_event_post(&q, &a.event[1]);
	nic_event_retire(&q, &a.source, a.event, 2);
	assert_false(readable(q.fd));
	assert_false(fcntl(q.fd, F_GETFL) & O_NONBLOCK);
	nic_event_queue_fini(&q);
}

struct retirement {
	struct nic_event_queue q;
	struct thing t;
	atomic_int acked_first, done;
};

static void *retire(void *arg)
{
	struct retirement *r = arg;

	nic_event_retire(&r->q, &r->t.source, r->t.event, 2);
	assert_int_equal(1, atomic_load(&r->acked_first));
	atomic_store(&r->done, 1);
	return NULL;
}

static void retiring_waits_for_events_that_were_given_out(void **state)
{
	struct retirement r = { 0 };
	pthread_t thread;
	void *cookie;

	(void)state;
	assert_int_equal(0, nic_event_queue_init(&r.q));
	thing_init(&r.t);
	nic_event_post(&r.q, &r.t.event[0]);
	assert_int_equal(0, nic_event_get(&r.q, &cookie, NULL, NULL));
	assert_int_equal(0, pthread_create(&thread, NULL, retire, &r));
	usleep(20000);
	assert_int_equal(0, atomic_load(&r.done));
	atomic_store(&r.acked_first, 1);
	nic_event_ack(&r.q, &r.t.source, 1);
	assert_int_equal(0, pthread_join(thread, NULL));
	assert_int_equal(1, atomic_load(&r.done));
	nic_event_queue_fini(&r.q);
}

/* The linker sends read(2) here. libc before 2.41 ends a cancelled thread also when the call has been made.
 */
ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);

static _Thread_local bool cancelled_after_reading;

ssize_t __wrap_read(int fd, void *to, size_t n)
{
	ssize_t got = __real_read(fd, to, n);

	if (cancelled_after_reading) {
		pthread_cancel(pthread_self());
		pthread_testcancel();
	}
	return got;
}

static void *gets_and_is_cancelled(void *q)
{
	void *cookie;

	cancelled_after_reading = true;
	nic_event_get(q, &cookie, NULL, NULL);
	return NULL;
}

static void a_thread_cancelled_with_an_event_leaves_it_to_the_next(void **state)
{
	struct nic_event_queue q;
	pthread_t thread;
	struct thing a;
	void *result, *cookie;

	(void)state;
	assert_int_equal(0, nic_event_queue_init(&q));
	thing_init(&a);
	nic_event_post(&q, &a.event[0]);
	nic_event_post(&q, &a.event[1]);
	assert_int_equal(0, pthread_create(&thread, NULL, gets_and_is_cancelled, &q));
	assert_int_equal(0, pthread_join(thread, &result));
	assert_ptr_equal(PTHREAD_CANCELED, result);
	for (int i = 0; i < 2; i++) {
		int type;

		assert_true(readable(q.fd));
		assert_int_equal(0, nic_event_get(&q, &cookie, &type, NULL));
		assert_int_equal(10 + i, type);
	}
	assert_false(readable(q.fd));
	nic_event_post(&q, &a.event[0]);
	assert_true(readable(q.fd));
	nic_event_ack(&q, &a.source, 2);
	nic_event_retire(&q, &a.source, a.event, 2);
	nic_event_queue_fini(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_out_in_order_and_the_descriptor_tells),
		cmocka_unit_test(an_empty_queue_answers_eagain_when_it_may_not_block),
		cmocka_unit_test(retiring_takes_unread_events_off_without_changing_the_descriptors_mode),
		cmocka_unit_test(retiring_waits_for_events_that_were_given_out),
		cmocka_unit_test(a_thread_cancelled_with_an_event_leaves_it_to_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

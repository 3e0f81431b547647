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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_come_out_in_order_and_the_descriptor_tells),
		cmocka_unit_test(an_empty_queue_answers_eagain_when_it_may_not_block),
		cmocka_unit_test(retiring_takes_unread_events_off_without_changing_the_descriptors_mode),
		cmocka_unit_test(retiring_waits_for_events_that_were_given_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What others do with a queue pair while a thread modifies or queries it. That thread is stopped at a lock of
 * its own choice (linked with --wrap=pthread_mutex_lock).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "nic/nic.h"
#include "pair.h"

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);

/* A thread that makes one call and stops, once, when it is about to take a lock or has just taken it. */
struct caller {
	struct nic_qp *qp;
	int (*call)(struct nic_qp *qp);
	const struct lock *before, *behind;
	sem_t stopped, go;
	int result;
	pthread_t thread;
};

static _Thread_local struct caller *me;

static void stop_at(const struct lock **at, const pthread_mutex_t *mutex)
{
	if (!*at || mutex != &(*at)->mutex)
		return;
	*at = NULL;
	sem_post(&me->stopped);
	sem_wait(&me->go);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	int err;

	if (me)
		stop_at(&me->before, mutex);
	err = __real_pthread_mutex_lock(mutex);
	if (me)
		stop_at(&me->behind, mutex);
	return err;
}

static void *call(void *arg)
{
	me = arg;
	me->result = me->call(me->qp);
	return NULL;
}

/* Returns when it has stopped. */
static void call_begin(struct caller *c)
{
	sem_init(&c->stopped, 0, 0);
	sem_init(&c->go, 0, 0);
	assert_int_equal(0, pthread_create(&c->thread, NULL, call, c));
	sem_wait(&c->stopped);
}

/* Its result. */
static int call_end(struct caller *c)
{
	assert_int_equal(0, pthread_join(c->thread, NULL));
	sem_destroy(&c->stopped);
	sem_destroy(&c->go);
	return c->result;
}

static int query(struct nic_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_cap cap;

	return nic_qp_query(qp, &attr, &cap);
}

static int to_state(struct nic_qp *qp, enum ibv_qp_state next, int more)
{
	struct ibv_qp_attr attr = { .qp_state = next, .port_num = 1 };

	return nic_qp_modify(qp, &attr, IBV_QP_STATE | more);
}

static int to_init(struct nic_qp *qp)
{
	return to_state(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

/* The move is allowed and the attribute is not: refused without the posters' lock. */
static int to_error_wrongly(struct nic_qp *qp)
{
	return to_state(qp, IBV_QPS_ERR, IBV_QP_PORT);
}

static int to_error(struct nic_qp *qp)
{
	return to_state(qp, IBV_QPS_ERR, 0);
}

static int to_reset(struct nic_qp *qp)
{
	return to_state(qp, IBV_QPS_RESET, 0);
}

/* ---- the run lock ---- */

static int post(struct pair *p)
{
	return pair_send(p, 0, IBV_WR_RDMA_WRITE, NULL, 0, 0, 0, 0);
}

/* A request is posted while the call has the run lock: nobody but the caller can see to it. */
static void post_while(struct pair *p, int (*it)(struct nic_qp *), int result)
{
	struct caller c = { .qp = p->qp[0], .call = it, .behind = &p->qp[0]->run_lock };
	uint32_t kick;
	int err;

	call_begin(&c);
	err = post(p);
	kick = atomic_load(&p->qp[0]->kick);
	sem_post(&c.go);
	assert_int_equal(result, call_end(&c));
	assert_int_equal(0, err);
	assert_int_equal(1, kick);
	pair_expect(p, 0, IBV_WC_SUCCESS);
}

static void what_is_posted_during_a_query_is_carried_out(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	post_while(&p, query, 0);
	pair_close(&p);
}

static void *post_receive(void *arg)
{
	return pair_recv(arg, 1, NULL, 0, 0) ? arg : NULL;
}

/* As every post, it waits for nobody who has the run lock. */
static void a_receive_posted_in_ERR_during_a_query_is_flushed(void **state)
{
	struct timespec until;
	pthread_t poster;
	struct pair p;
	void *failed;
	int late;

	(void)state;
	pair_open(&p, NULL);
	assert_int_equal(0, to_error(p.qp[1]));
	{
		struct caller c = { .qp = p.qp[1], .call = query, .behind = &p.qp[1]->run_lock };

		call_begin(&c);
		assert_int_equal(0, pthread_create(&poster, NULL, post_receive, &p));
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 20;
		late = pthread_timedjoin_np(poster, &failed, &until);
		sem_post(&c.go);
		assert_int_equal(0, call_end(&c));
	}
	assert_int_equal(0, late);
	assert_null(failed);
	pair_expect(&p, 1, IBV_WC_WR_FLUSH_ERR);
	pair_close(&p);
}

static void what_is_posted_during_a_modify_that_is_refused_is_carried_out(void **state)
{
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	post_while(&p, to_init, -EINVAL);
	post_while(&p, to_error_wrongly, -EINVAL);
	assert_int_equal(IBV_QPS_RTS, pair_state(p.qp[0]));
	pair_close(&p);
}

/* The modify gives the run lock back until who builds requests is done, which may take for ever. */
static void what_is_posted_before_a_modify_waits_for_posters_is_carried_out(void **state)
{
	struct caller c = { .call = to_init };
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	c.qp = p.qp[0];
	c.behind = &p.qp[0]->run_lock;
	call_begin(&c);
	assert_int_equal(0, post(&p));
	nic_wr_start(p.qp[0]);
	sem_post(&c.go);
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	nic_wr_abort(p.qp[0]);
	assert_int_equal(-EINVAL, call_end(&c));
	pair_close(&p);
}

/* ---- RESET ---- */

#define DEPTH 4u
#define TAKEN 2u

/* One more queue pair, in ERR, that completes sends on cq[0] and receives on cq[1]. */
static struct nic_qp *broken_qp(struct pair *p)
{
	struct nic_qp_init init = { .send_cq = p->cq[0], .recv_cq = p->cq[1] };
	struct nic_qp *qp;

	init.cap = (struct ibv_qp_cap){ .max_send_wr = DEPTH, .max_recv_wr = DEPTH };
	assert_int_equal(0, nic_qp_create(p->pd, &init, &qp));
	assert_int_equal(0, to_init(qp));
	assert_int_equal(0, to_state(qp, IBV_QPS_ERR, 0));
	return qp;
}

static int post_to(struct nic_qp *qp, bool recv)
{
	struct ibv_send_wr swr = { .opcode = IBV_WR_SEND }, *sbad;
	struct ibv_recv_wr rwr = { 0 }, *rbad;

	return recv ? nic_qp_post_recv(qp, &rwr, &rbad) : nic_qp_post_send(qp, &swr, &sbad);
}

static void fill(struct nic_qp *qp, bool recv)
{
	for (unsigned i = 0; i < DEPTH; i++)
		assert_int_equal(0, post_to(qp, recv));
	assert_int_equal(-ENOMEM, post_to(qp, recv));
}

static void until_completed(const struct nic_cq *cq, uint32_t n)
{
	while (atomic_load(&cq->tail) - atomic_load(&cq->head) < n)
		sched_yield();
}

/*
 * The queue is full of requests that were flushed to a completion queue that others use too. Somebody takes
 * some of them, and so gives their places back, when RESET is about to purge what is left.
 */
static void reset_while_polled(bool recv)
{
	struct caller c = { .call = to_reset };
	uint32_t old_prod, old_freed, new_freed;
	_Atomic uint32_t *prod, *freed;
	struct ibv_wc wc[TAKEN];
	struct nic_qp *qp;
	struct pair p;
	int taken;

	pair_open(&p, NULL);
	qp = broken_qp(&p);
	prod = recv ? &qp->rq.prod : &qp->sq.prod;
	freed = recv ? &qp->rq.freed : &qp->sq.freed;
	fill(qp, recv);
	until_completed(p.cq[recv], DEPTH);
	assert_int_equal(0, pair_recv(&p, 1, NULL, 0, 0));
	assert_int_equal(0, pair_send(&p, 0, IBV_WR_SEND, NULL, 0, 0, 0, 0));
	until_completed(p.cq[recv], DEPTH + 1);

	c.qp = qp;
	c.before = &p.cq[recv]->lock;
	call_begin(&c);
	old_prod = atomic_load(prod);
	old_freed = atomic_load(freed);
	taken = nic_cq_poll(p.cq[recv], TAKEN, wc);
	new_freed = atomic_load(freed);
	sem_post(&c.go);
	assert_int_equal(0, call_end(&c));
	assert_int_equal(DEPTH, old_prod);
	assert_int_equal(0, old_freed);
	assert_int_equal(TAKEN, taken);
	assert_int_equal(TAKEN, new_freed);
	for (unsigned i = 0; i < TAKEN; i++)
		assert_int_equal(IBV_WC_WR_FLUSH_ERR, wc[i].status);

	/* Of the others' completions none is lost, of its own none is left. */
	pair_wait(&p, recv, 1, wc);
	assert_int_equal(IBV_WC_SUCCESS, wc[0].status);
	assert_int_equal(nic_qp_num(p.qp[recv]), wc[0].qp_num);
	assert_int_equal(0, nic_cq_poll(p.cq[recv], 1, wc));
	assert_int_equal(0, to_init(qp));
	assert_int_equal(0, to_state(qp, IBV_QPS_ERR, 0));
	fill(qp, recv);
	assert_int_equal(0, nic_qp_destroy(qp));
	pair_close(&p);
}

static void a_receive_queue_has_all_its_places_after_a_reset_under_a_poller(void **state)
{
	(void)state;
	reset_while_polled(true);
}

static void a_send_queue_has_all_its_places_after_a_reset_under_a_poller(void **state)
{
	(void)state;
	reset_while_polled(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_posted_during_a_query_is_carried_out),
		cmocka_unit_test(a_receive_posted_in_ERR_during_a_query_is_flushed),
		cmocka_unit_test(what_is_posted_during_a_modify_that_is_refused_is_carried_out),
		cmocka_unit_test(what_is_posted_before_a_modify_waits_for_posters_is_carried_out),
		cmocka_unit_test(a_receive_queue_has_all_its_places_after_a_reset_under_a_poller),
		cmocka_unit_test(a_send_queue_has_all_its_places_after_a_reset_under_a_poller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

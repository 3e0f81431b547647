/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What the engine does for those who do not poll while it has no rest, and what becomes of a response that
 * the wire cannot take. The linker sends the wire's calls that matter through this file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "nic/nic.h"
#include "pair.h"

#define PAGE	4096u
#define WAIT_NS (20 * NSEC_PER_SEC) /* only ever reached by a failure */

int __real_wire_poll(struct wire *w, int budget);
int __wrap_wire_poll(struct wire *w, int budget);
int __real_sealed_populate(void *map, size_t offset, size_t bytes, int fd);
int __wrap_sealed_populate(void *map, size_t offset, size_t bytes, int fd);

static _Atomic bool restless; /* there is always something */
static _Atomic int shortages; /* memory that will not be had */

int __wrap_wire_poll(struct wire *w, int budget)
{
	int n = __real_wire_poll(w, budget);

	return n <= 0 && atomic_load(&restless) ? 1 : n;
}

int __wrap_sealed_populate(void *map, size_t offset, size_t bytes, int fd)
{
	if (atomic_load(&shortages) && atomic_fetch_sub(&shortages, 1) > 0)
		return -ENOMEM;
	return __real_sealed_populate(map, offset, bytes, fd);
}

static uint8_t *fresh(void)
{
	uint8_t *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* Nobody polls: that the first packet arrives at all takes somebody who answers the call of its wire. */
static void an_engine_without_rest_still_meets_peers(void **state)
{
	uint64_t end = clock_ns() + WAIT_NS;
	uint8_t *m = fresh();
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	atomic_store(&restless, true);
	pair_open(&p, NULL);
	mr = pair_reg(&p, m, 2 * PAGE, 0);
	m[0] = 77;
	assert_int_equal(0,
		pair_send(&p, 0, IBV_WR_RDMA_WRITE, m, 1, pair_key(mr), (uintptr_t)m + PAGE, pair_key(mr)));
	while (((volatile uint8_t *)m)[PAGE] != 77 && clock_ns() < end)
		sched_yield();
	assert_int_equal(77, m[PAGE]);
	atomic_store(&restless, false);
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	nic_mr_destroy(mr);
	pair_close(&p);
	munmap(m, 2 * PAGE);
}

/* Its requester has no timer, since the wire loses nothing; it is told, and asks again. */
static void a_response_that_the_wire_cannot_take_is_asked_for_again(void **state)
{
	uint8_t *m = fresh();
	struct nic_mr *mr;
	struct pair p;

	(void)state;
	pair_open(&p, NULL);
	mr = pair_reg(&p, m, 2 * PAGE, 0);
	memset(m, 5, PAGE);
	atomic_store(&shortages, 1);
	assert_int_equal(0,
		pair_send(&p, 0, IBV_WR_RDMA_READ, m + PAGE, PAGE, pair_key(mr), (uintptr_t)m, pair_key(mr)));
	pair_expect(&p, 0, IBV_WC_SUCCESS);
	assert_int_equal(0, atomic_load(&shortages));
	assert_memory_equal(m, m + PAGE, PAGE);
	assert_true(p.ctx->nic->seg->dev.retransmits > 0);
	nic_mr_destroy(mr);
	pair_close(&p);
	munmap(m, 2 * PAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_engine_without_rest_still_meets_peers),
		cmocka_unit_test(a_response_that_the_wire_cannot_take_is_asked_for_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

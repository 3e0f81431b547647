/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Seen elsewhere: on-demand paging was asked for and silently not used (openucx/ucx#8869). Here it can be
 * proved. */
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../counted_pins.h"
#include "../small_pages.h"
#include "pair.h"

#define MIB    (1024ul * 1024)
#define LENGTH (64 * MIB)

struct usage {
	long pinned, resident;
};

static struct usage usage(void)
{
	return (struct usage){ .pinned = status_kib("VmPin") + status_kib("VmLck"),
		.resident = status_kib("VmRSS") };
}

static void an_on_demand_registration_neither_pins_nor_touches(void)
{
	void *memory = fresh(LENGTH);
	struct usage before, after;
	struct ibv_mr *mr;
	struct end e;

	end_open(&e, NULL);
	before = usage();
	mr = reg(&e, memory, LENGTH, REMOTE | ODP);
	after = usage();
	check_int(after.pinned, before.pinned);
	check(after.resident - before.resident < 1024);
	dereg(mr);
	end_close(&e);
}

static void a_pinned_registration_pins_all_and_gives_it_back(void)
{
	void *memory = fresh(LENGTH);
	struct usage before, during, after;
	struct rlimit lim;
	struct ibv_mr *mr;
	struct end e;

	check_sys(getrlimit(RLIMIT_MEMLOCK, &lim) == 0);
	if (geteuid() && lim.rlim_cur < LENGTH)
		check_skip("RLIMIT_MEMLOCK is too small to pin %lu MiB", LENGTH / MIB);
	end_open(&e, NULL);
	before = usage();
	mr = reg(&e, memory, LENGTH, REMOTE);
	during = usage();
	check_int(during.pinned - before.pinned, LENGTH / 1024);
	check(during.resident - before.resident >= (long)(LENGTH / 1024));
	dereg(mr);
	after = usage();
	check_int(after.pinned, before.pinned);
	end_close(&e);
}

static void only_what_is_accessed_becomes_resident(void)
{
	char *memory = fresh(LENGTH), *mine = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct usage before, after;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	before = usage();
	for (size_t at = 0; at < LENGTH; at += 4 * MIB) {
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory + at, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	after = usage();
	check_int(after.pinned, before.pinned);
	check(after.resident - before.resident < 4096);
	/* What the device brought in may leave again. */
	check_sys(madvise(memory, LENGTH, MADV_DONTNEED) == 0);
	check_zero(memory + 4 * MIB, PAGE);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void the_counters_tell_each_fault_and_invalidation(void)
{
	char *memory = fresh(LENGTH), *mine = fresh(16 * PAGE);
	struct ibv_mr *here, *there;
	uint64_t faults, handled, invalidations;
	pid_t me = getpid();
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, 16 * PAGE, LOCAL);
	there = reg(&p.b, memory, LENGTH, REMOTE | ODP);
	faults = counter(me, "page_faults");
	handled = counter(me, "page_faults_handled");
	check_int(counter(me, "page_invalidations_handled"), 0);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 16 * PAGE, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	/* Pages read ahead of need are valid without having been a fault. */
	check(counter(me, "page_faults") > faults);
	check(counter(me, "page_faults") - faults <= 16);
	check_int(counter(me, "page_faults_handled") - handled, counter(me, "page_faults") - faults);
	/* Warm pages do not fault. */
	faults = counter(me, "page_faults");
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 16 * PAGE, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_int(counter(me, "page_faults"), faults);
	/* Dropped ones do. */
	invalidations = counter(me, "page_invalidations_handled");
	check_sys(madvise(memory, 16 * PAGE, MADV_DONTNEED) == 0);
	check_int(counter(me, "page_invalidations_handled") - invalidations, 16);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, PAGE, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check(counter(me, "page_faults") > faults);
	dereg(here);
	dereg(there);
	/* The bytes of a region are the device's when it has ended. */
	check_int(counter(me, "bytes_in"), 33 * PAGE);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(an_on_demand_registration_neither_pins_nor_touches),
		CASE(a_pinned_registration_pins_all_and_gives_it_back),
		CASE(only_what_is_accessed_becomes_resident),
		CASE(the_counters_tell_each_fault_and_invalidation),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

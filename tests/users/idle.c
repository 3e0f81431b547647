/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* An open device that nobody uses costs no processor time: under 0.5 % of one core, counted by the kernel for
 * all threads. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "pair.h"

#define SECONDS 10

static double cpu_seconds(void)
{
	struct rusage u;

	check_sys(getrusage(RUSAGE_SELF, &u) == 0);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void check_idle(void)
{
	double before, used;

	nap(200);
	before = cpu_seconds();
	nap(SECONDS * 1000);
	used = cpu_seconds() - before;
	fprintf(stderr, "%.3f %% of a core over %d s\n", used / SECONDS * 100, SECONDS);
	check(used < SECONDS * 0.005);
}

static void an_open_device_costs_nothing(void)
{
	struct ibv_context *ctx = device_open();

	check_idle();
	check_int(ibv_close_device(ctx), 0);
}

static void after_traffic_a_connected_pair_costs_nothing(void)
{
	char *mine = fresh(PAGE), *memory = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL);
	there = reg(&p.b, memory, PAGE, REMOTE | ODP);
	for (int i = 0; i < 1000; i++) {
		post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 64, memory, there->rkey);
		wait_for(&p.a, IBV_WC_SUCCESS);
	}
	post_recv(&p.b, there, memory, PAGE);
	check_idle();
	dereg(here);
	dereg(there);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(an_open_device_costs_nothing),
		CASE(after_traffic_a_connected_pair_costs_nothing),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Whoever reads a segment of another process believes nothing in it. The segment of this process is filled
 * with odd numbers, behind a head that a reader accepts, and stat, advise and top read it. What they print
 * does not matter: they end, and the sanitizers find nothing undefined.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "made_segment.h"
#include "tool/advise.h"
#include "tool/command.h"

#define SEEDS 25

static uint64_t dice;

static uint64_t roll(uint64_t below)
{
	dice = dice * 6364136223846793005ull + 1442695040888963407ull;
	return (dice >> 20) % below;
}

static uint64_t odd_number(void)
{
	switch (roll(8)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return 1ull << roll(64);
	case 3:
		return roll(100);
	case 4:
		return INT64_MAX;
	case 5:
		return roll(1000000000000u);
	default:
		return roll(1u << 20) << 44 | roll(1ull << 44);
	}
}

static void fill(void *to, size_t size)
{
	uint64_t *word = to;

	for (size_t i = 0; i < size / sizeof(*word); i++)
		word[i] = odd_number();
}

/* What a reader checks; the rest is a stranger's. */
static void make_acceptable(unsigned rows)
{
	made->version = UNPIN_SEGMENT_VERSION;
	made->header_bytes = offsetof(struct unpin_segment, region);
	made->total_bytes = sizeof(*made);
	made->region_bytes = sizeof(made->region[0]);
	made->region_rows = UNPIN_SEGMENT_REGIONS;
	made->pid = getpid();
	made->qps_high = (uint32_t)roll(60);
	made->regions_high = rows;
	made->storm.cause = (uint32_t)roll(3);
	made->storm.last_cause = (uint32_t)roll(3);
	if (roll(2))
		made->start_ns = clock_ns() - roll(NSEC_PER_SEC);
	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++)
		made->slow.fault[i].sequence &= ~1u;
	made->magic = UNPIN_SEGMENT_MAGIC;
}

static void fill_segment(void)
{
	unsigned rows = (unsigned)roll(40);

	fill(made, offsetof(struct unpin_segment, region));
	for (unsigned i = 0; i < rows; i++) {
		fill(&made->region[i], sizeof(made->region[i]));
		made->region[i].sequence &= ~1u;
		made->region[i].kind = (uint32_t)roll(4);
		fill(&made->usage[i], sizeof(made->usage[i]));
		made->usage[i].shift = (uint32_t)roll(64);
	}
	for (unsigned i = 0; i < UNPIN_PAST_REGIONS; i++) {
		fill(&made->past[i], sizeof(made->past[i]));
		made->past[i].sequence &= ~1u;
		made->past[i].kind = (uint32_t)roll(4);
		made->past[i].usage.shift = (uint32_t)roll(64);
	}
	fill(made->qp, 60 * sizeof(made->qp[0]));
	make_acceptable(rows);
}

/* Runs a command with its output thrown away. */
static int quietly(int (*command)(int argc, char **argv), char **argv)
{
	int out = dup(STDOUT_FILENO), argc = 0, status;

	while (argv[argc])
		argc++;
	fflush(stdout);
	assert_non_null(freopen("/dev/null", "w", stdout));
	status = command(argc, argv);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	return status;
}

static void show_stat_and_top(char *pid)
{
	char stat[] = "stat", top[] = "top", json[] = "-j", batch[] = "-b", count[] = "-n", two[] = "2",
	     every[] = "-w", soon[] = "0.05";
	char *text[] = { stat, pid, NULL }, *object[] = { stat, json, pid, NULL },
	     *lines[] = { top, batch, every, soon, count, two, pid, NULL },
	     *objects[] = { top, json, every, soon, count, two, pid, NULL };

	assert_int_equal(quietly(cmd_stat, text), 0);
	assert_int_equal(quietly(cmd_stat, object), 0);
	assert_int_equal(quietly(cmd_top, lines), 0);
	assert_int_equal(quietly(cmd_top, objects), 0);
}

static void show_advice(FILE *out)
{
	const struct advise_costs costs = { .pin_page = 200,
		.populate_page = 150,
		.fault_page = 500,
		.register_call = 1000,
		.took = 1e300,
		.from = "nowhere" };
	const struct advise_look look = { .width = 80, .all = true };
	struct advise_crowd crowd = { .facts = calloc(1, sizeof(*crowd.facts)), .count = 1 };
	struct advise_verdict *v;

	assert_non_null(crowd.facts);
	assert_int_equal(advise_live(crowd.facts, getpid(), 0.02), 0);
	advise_fold(crowd.facts);
	v = advise_judge_all(crowd.facts, &costs);
	advise_page(out, crowd.facts, v, &costs, &look);
	free(v);
	assert_int_equal(advise_json(out, &crowd, &costs), 0);
	advise_crowd_free(&crowd);
}

static void whoever_reads_a_segment_believes_nothing_in_it(void **state)
{
	FILE *out = fopen("/dev/null", "w");
	char pid[16];

	assert_non_null(out);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		dice = seed * 0x9e3779b97f4a7c15ull;
		assert_int_equal(made_segment_open(), 0);
		fill_segment();
		show_stat_and_top(pid);
		show_advice(out);
		made_segment_close();
	}
	fclose(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whoever_reads_a_segment_believes_nothing_in_it),
	};

	setenv("UNPIN_LOG", "error", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}

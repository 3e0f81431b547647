/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin stat` of this very process, which exports a made-up segment: what is printed, as text and as JSON.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include <json-c/json.h>

#include "base/clock.h"
#include "made_segment.h"
#include "tool/command.h"

static char printed[1 << 16];

static int make(void **state)
{
	if (made_segment_open())
		return -1;
	made->start_ns = clock_ns() - 5 * NSEC_PER_SEC;
	strcpy(made->notifier, "userfaultfd");
	strcpy(made->profile, "mlx5");
	strcpy(made->fault_mode, "imprecise");
	strcpy(made->fault_reply, "rnr");
	made->regions_high = 1;
	made->region[0].kind = UNPIN_REGION_IMPLICIT;
	made->region[0].length = UINT64_MAX;
	made->region[0].odp.page_faults = 42;
	made->odp.faults_imprecise = 7171;
	made->dev.tx_lost = 8282;
	for (int step = 0; step < UNPIN_STEPS; step++) {
		for (int i = 0; i < 100; i++)
			hist_add(&made->step_ns[0][step], 2000);
		hist_add(&made->step_ns[1][step], 3 * NSEC_PER_MSEC);
	}
	return 0;
}

static int unmake(void **state)
{
	made_segment_close();
	return 0;
}

/* Runs the command; its output is in printed. */
static void show(bool json)
{
	char pid[16], name[] = "stat", flag[] = "-j";
	char *argv[] = { name, pid, json ? flag : NULL, NULL };
	int out = dup(STDOUT_FILENO), fd = memfd_create("out", MFD_CLOEXEC), status;
	ssize_t n;

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	fflush(stdout);
	dup2(fd, STDOUT_FILENO);
	status = cmd_stat(json ? 3 : 2, argv);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	n = pread(fd, printed, sizeof(printed) - 1, 0);
	close(fd);
	close(out);
	assert_int_equal(status, 0);
	assert_true(n > 0);
	printed[n] = 0;
}

static void assert_printed(const char *text)
{
	if (!strstr(printed, text))
		fail_msg("\"%s\" is not in:\n%s", text, printed);
}

static json_object *get(json_object *o, const char *key)
{
	json_object *v = NULL;

	if (!json_object_object_get_ex(o, key, &v))
		fail_msg("no key %s in %s", key, json_object_to_json_string(o));
	return v;
}

static void the_device_is_shown_as_it_was_set(void **state)
{
	json_object *o;

	show(false);
	assert_printed("profile mlx5, notifier userfaultfd, fault mode imprecise, fault reply rnr");
	assert_printed("faults_imprecise");
	assert_printed("7171");
	assert_printed("8282");
	show(true);
	o = json_tokener_parse(printed);
	assert_string_equal(json_object_get_string(get(o, "profile")), "mlx5");
	assert_string_equal(json_object_get_string(get(o, "notifier")), "userfaultfd");
	assert_string_equal(json_object_get_string(get(o, "fault_mode")), "imprecise");
	assert_string_equal(json_object_get_string(get(o, "fault_reply")), "rnr");
	assert_int_equal(json_object_get_int64(get(get(o, "odp"), "faults_imprecise")), 7171);
	assert_int_equal(json_object_get_int64(get(get(o, "counters"), "tx_lost")), 8282);
	assert_true(json_object_get_int64(get(o, "open_ns")) >= (int64_t)(5 * NSEC_PER_SEC));
	json_object_put(o);
}

static void every_counter_of_the_segment_is_a_key(void **state)
{
	json_object *o;

	show(true);
	o = json_tokener_parse(printed);
#define X(field, name, what) get(get(o, "odp"), name);
	UNPIN_ODP_COUNTERS(X)
#undef X
#define X(field, name, what) get(get(o, "counters"), name);
	UNPIN_DEVICE_COUNTERS(X)
#undef X
	json_object_put(o);
}

static void minor_and_major_faults_have_columns_of_their_own(void **state)
{
	char rest[64];
	const char *total;
	unsigned minor;
	json_object *o;

	show(false);
	assert_printed("step     minor      p50      p99      max  major      p50      p99      max\n");
	total = strstr(strstr(printed, "Time of page faults"), "  total ");
	assert_non_null(total);
	assert_int_equal(sscanf(total, " total %u %*s us %*s us %63[0-9.a-z ]", &minor, rest), 2);
	assert_int_equal(minor, 100);
	assert_string_equal(rest, "2.00 us      1  3.00 ms  3.00 ms  3.00 ms");
	show(true);
	o = json_tokener_parse(printed);
	for (int major = 0; major < 2; major++) {
		json_object *step = get(get(get(o, "fault_steps"), major ? "major" : "minor"), "resume");

		assert_int_equal(json_object_get_int64(get(step, "count")), major ? 1 : 100);
		assert_int_equal(json_object_get_int64(get(step, "max_ns")), major ? 3000000 : 2000);
	}
	json_object_put(o);
}

static void an_implicit_region_is_called_that(void **state)
{
	json_object *o;

	show(false);
	assert_printed("\n  implicit  0 ");
	assert_printed("16 EiB");
	show(true);
	o = json_tokener_parse(printed);
	assert_string_equal(
		json_object_get_string(get(json_object_array_get_idx(get(o, "regions"), 0), "kind")),
		"implicit");
	json_object_put(o);
}

static void no_storm_is_shown(void **state)
{
	json_object *o;

	show(false);
	assert_printed("storm: off; none so far; 0 major faults per second, 0 % of the time stalled\n");
	show(true);
	o = json_tokener_parse(printed);
	assert_false(json_object_get_boolean(get(get(o, "storm"), "on")));
	assert_null(get(get(o, "storm"), "began_ago_ns"));
	json_object_put(o);
}

static void a_storm_that_lasts_is_shown(void **state)
{
	json_object *o;

	made->storm.cause = made->storm.last_cause = UNPIN_STORM_MAJORS;
	made->storm.count = 3;
	made->storm.began_ns = clock_ns() - 2 * NSEC_PER_SEC;
	made->storm.majors_per_s = 4242;
	made->storm.stall_ppm = 125000;
	show(false);
	assert_printed("storm: on, of major faults, for 2.");
	assert_printed("number 3; 4242 major faults per second, 12.5 % of the time stalled\n");
	show(true);
	o = json_tokener_parse(printed);
	assert_true(json_object_get_boolean(get(get(o, "storm"), "on")));
	assert_string_equal(json_object_get_string(get(get(o, "storm"), "cause")), "major faults");
	assert_int_equal(json_object_get_int64(get(get(o, "storm"), "count")), 3);
	assert_true(
		json_object_get_int64(get(get(o, "storm"), "began_ago_ns")) >= (int64_t)(2 * NSEC_PER_SEC));
	assert_null(get(get(o, "storm"), "ended_ago_ns"));
	assert_true(json_object_get_double(get(get(o, "storm"), "stall_percent")) == 12.5);
	json_object_put(o);
}

static void a_storm_that_is_over_is_shown(void **state)
{
	uint64_t now = clock_ns();

	made->storm.last_cause = UNPIN_STORM_STALL;
	made->storm.count = 1;
	made->storm.began_ns = now - 9 * NSEC_PER_SEC;
	made->storm.ended_ns = now - 6 * NSEC_PER_SEC;
	show(false);
	assert_printed("storm: off; 1 so far, the last of memory stall ended 6.");
	assert_printed("ago after 3.00 s;");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, make, unmake)
		CASE(the_device_is_shown_as_it_was_set),
		CASE(every_counter_of_the_segment_is_a_key),
		CASE(minor_and_major_faults_have_columns_of_their_own),
		CASE(an_implicit_region_is_called_that),
		CASE(no_storm_is_shown),
		CASE(a_storm_that_lasts_is_shown),
		CASE(a_storm_that_is_over_is_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

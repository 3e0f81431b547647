/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A segment is hostile: it is made here in a memfd, first right and then wrong in every field that a reader
 * uses. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "made_segment.h"
#include "tool/attach.h"

static int make(void **state)
{
	if (made_segment_open())
		return -1;
	strcpy(made->notifier, "interpose");
	made->regions_high = 2;
	made->region[1].kind = UNPIN_REGION_ODP;
	made->region[1].addr = 0x1000;
	made->region[1].odp.page_faults = 42;
	made->odp.page_faults = 43;
	hist_add(&made->step_ns[0][UNPIN_STEP_TOTAL], 2000);
	return 0;
}

static int unmake(void **state)
{
	made_segment_close();
	return 0;
}

/* What a reader that is handed the descriptor says now. */
static int verdict(void)
{
	struct attach a;
	int err = attach_fd(&a, dup(made_fd));

	assert_int_equal(err, 0);
	err = attach_read(&a);
	attach_close(&a);
	return err;
}

static void a_good_segment_is_copied(void **state)
{
	struct attach a;

	assert_int_equal(attach_fd(&a, dup(made_fd)), 0);
	assert_int_equal(attach_read(&a), 0);
	assert_int_equal(a.copy->odp.page_faults, 43);
	assert_int_equal(a.copy->region[0].kind, UNPIN_REGION_NONE);
	assert_int_equal(a.copy->region[1].kind, UNPIN_REGION_ODP);
	assert_int_equal(a.copy->region[1].odp.page_faults, 42);
	assert_int_equal(hist_quantile(&a.copy->step_ns[0][UNPIN_STEP_TOTAL], 0.5), 2000);
	attach_close(&a);
}

static void how_memory_is_used_is_copied_if_it_is_the_regions_own(void **state)
{
	struct attach a;

	usage_begin(&made->usage[1], 0x1000, 0x1000);
	usage_note(&made->usage[1], 0x1000, 8);
	usage_note(&made->usage[0], 0x1000, 8);
	made->past[7].kind = UNPIN_REGION_PINNED;
	made->past[7].times = 3;
	assert_int_equal(attach_fd(&a, dup(made_fd)), 0);
	assert_int_equal(attach_read(&a), 0);
	assert_int_equal(attach_read_usage(&a), 0);
	assert_int_equal(a.copy->usage[1].accesses, 1);
	/* Nobody's. */
	assert_int_equal(a.copy->usage[0].accesses, 0);
	assert_int_equal(a.copy->past[7].times, 3);
	/* It is another region now, and that row is being changed. */
	made->region[1].sequence += 2;
	made->past[7].sequence = 1;
	assert_int_equal(attach_read_usage(&a), 0);
	assert_int_equal(a.copy->usage[1].accesses, 0);
	assert_int_equal(a.copy->past[7].kind, UNPIN_REGION_NONE);
	made->past[7].sequence = 2;
	made->past[7].kind = UNPIN_REGION_IMPLICIT + 1;
	assert_int_equal(attach_read_usage(&a), -EPROTO);
	made->past[7].kind = UNPIN_REGION_PINNED;
	made->past[7].usage.shift = 64;
	assert_int_equal(attach_read_usage(&a), -EPROTO);
	made->past[7].usage.shift = 0;
	made->usage[1].shift = 64;
	assert_int_equal(attach_read_usage(&a), -EPROTO);
	attach_close(&a);
}

static void the_segment_of_a_process_is_found_by_name(void **state)
{
	struct attach a;

	assert_int_equal(attach_open(&a, getpid()), 0);
	assert_int_equal(a.pid, getpid());
	assert_string_equal(a.copy->device, "unpin0");
	assert_true(strlen(a.command) > 0);
	attach_close(&a);
	made->pid = getpid() + 1;
	assert_int_equal(attach_open(&a, getpid()), -ENODEV);
	assert_int_equal(attach_open(&a, 0), -ESRCH);
	assert_int_equal(attach_open(&a, 0x3fffffff), -ESRCH);
}

static void another_format_is_refused(void **state)
{
	made->magic = 1;
	assert_int_equal(verdict(), -EPROTO);
	made->magic = UNPIN_SEGMENT_MAGIC;
	made->version++;
	assert_int_equal(verdict(), -EPROTONOSUPPORT);
	made->version -= 2;
	assert_int_equal(verdict(), -ESTALE);
	assert_non_null(strstr(attach_error(-ESTALE), "older"));
	/* Another version may be shorter. */
	assert_int_equal(ftruncate(made_fd, 64), 0);
	assert_int_equal(verdict(), -ESTALE);
}

static void a_storm_of_no_cause_that_exists_is_refused(void **state)
{
	made->storm.cause = UNPIN_STORM_STALL;
	assert_int_equal(verdict(), 0);
	made->storm.cause = UNPIN_STORM_STALL + 1;
	assert_int_equal(verdict(), -EPROTO);
	made->storm.cause = UNPIN_STORM_NONE;
	made->storm.last_cause = UINT32_MAX;
	assert_int_equal(verdict(), -EPROTO);
}

static void sizes_that_lie_are_refused(void **state)
{
	made->header_bytes--;
	assert_int_equal(verdict(), -EPROTO);
	made->header_bytes = UINT32_MAX;
	assert_int_equal(verdict(), -EPROTO);
	made->header_bytes = offsetof(struct unpin_segment, region);
	made->region_bytes = 0;
	assert_int_equal(verdict(), -EPROTO);
	made->region_bytes = sizeof(made->region[0]);
	made->region_rows++;
	assert_int_equal(verdict(), -EPROTO);
	made->region_rows = UNPIN_SEGMENT_REGIONS;
	made->total_bytes++;
	assert_int_equal(verdict(), -EPROTO);
	made->total_bytes = 0;
	assert_int_equal(verdict(), -EPROTO);
	made->total_bytes = sizeof(*made);
	made->regions_high = UNPIN_SEGMENT_REGIONS + 1;
	assert_int_equal(verdict(), -EPROTO);
	made->regions_high = UINT32_MAX;
	assert_int_equal(verdict(), -EPROTO);
	made->regions_high = UNPIN_SEGMENT_REGIONS;
	assert_int_equal(verdict(), 0);
	made->qps_high = UNPIN_SEGMENT_QPS + 1;
	assert_int_equal(verdict(), -EPROTO);
	made->qps_high = UNPIN_SEGMENT_QPS;
	assert_int_equal(verdict(), 0);
}

static void a_truncated_segment_is_an_error_and_no_signal(void **state)
{
	struct attach a;

	assert_int_equal(attach_fd(&a, dup(made_fd)), 0);
	assert_int_equal(attach_read(&a), 0);
	assert_int_equal(ftruncate(made_fd, offsetof(struct unpin_segment, region) + 10), 0);
	assert_int_equal(attach_read(&a), -EPROTO);
	assert_int_equal(ftruncate(made_fd, 100), 0);
	assert_int_equal(attach_read(&a), -EPROTO);
	assert_int_equal(ftruncate(made_fd, 0), 0);
	assert_int_equal(attach_read(&a), -EPROTO);
	attach_close(&a);
}

static void a_row_that_never_settles_is_left_out(void **state)
{
	struct attach a;

	made->region[1].sequence = 7;
	assert_int_equal(attach_fd(&a, dup(made_fd)), 0);
	assert_int_equal(attach_read(&a), 0);
	assert_int_equal(a.unreadable, 1);
	assert_int_equal(a.copy->region[1].kind, UNPIN_REGION_NONE);
	attach_close(&a);
}

static void queue_pairs_and_slow_faults_are_copied_but_those_that_change(void **state)
{
	struct attach a;

	made->qps_high = 3;
	made->qp[2].number = 4711;
	made->slow.fault[0].ended_ns = made->slow.fault[1].ended_ns = 5;
	made->slow.fault[1].sequence = 3;
	assert_int_equal(attach_fd(&a, dup(made_fd)), 0);
	assert_int_equal(attach_read(&a), 0);
	assert_int_equal(a.copy->qp[2].number, 4711);
	assert_int_equal(a.copy->slow.fault[0].ended_ns, 5);
	assert_int_equal(a.copy->slow.fault[1].ended_ns, 0);
	attach_close(&a);
}

static void a_kind_that_does_not_exist_is_refused(void **state)
{
	made->region[1].kind = UNPIN_REGION_IMPLICIT + 1;
	assert_int_equal(verdict(), -EPROTO);
}

static void texts_cannot_reach_the_terminal_raw(void **state)
{
	struct attach a;

	memset(made->device, 27, sizeof(made->device));
	memset(made->profile, 27, sizeof(made->profile));
	memset(made->notifier, 27, sizeof(made->notifier));
	memset(made->fault_mode, 27, sizeof(made->fault_mode));
	memset(made->fault_reply, 27, sizeof(made->fault_reply));
	assert_int_equal(attach_fd(&a, dup(made_fd)), 0);
	assert_int_equal(attach_read(&a), 0);
	assert_int_equal(strlen(a.copy->device), sizeof(a.copy->device) - 1);
	assert_null(strchr(a.copy->device, 27));
	assert_null(strchr(a.copy->profile, 27));
	assert_null(strchr(a.copy->notifier, 27));
	assert_null(strchr(a.copy->fault_mode, 27));
	assert_null(strchr(a.copy->fault_reply, 27));
	attach_close(&a);
}

static void what_is_no_file_is_refused(void **state)
{
	struct attach a;
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	assert_int_equal(attach_fd(&a, fd[0]), 0);
	assert_int_equal(attach_read(&a), -EPROTO);
	attach_close(&a);
	close(fd[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_good_segment_is_copied, make, unmake),
		cmocka_unit_test_setup_teardown(
			how_memory_is_used_is_copied_if_it_is_the_regions_own, make, unmake),
		cmocka_unit_test_setup_teardown(the_segment_of_a_process_is_found_by_name, make, unmake),
		cmocka_unit_test_setup_teardown(another_format_is_refused, make, unmake),
		cmocka_unit_test_setup_teardown(a_storm_of_no_cause_that_exists_is_refused, make, unmake),
		cmocka_unit_test_setup_teardown(sizes_that_lie_are_refused, make, unmake),
		cmocka_unit_test_setup_teardown(a_truncated_segment_is_an_error_and_no_signal, make, unmake),
		cmocka_unit_test_setup_teardown(a_row_that_never_settles_is_left_out, make, unmake),
		cmocka_unit_test_setup_teardown(
			queue_pairs_and_slow_faults_are_copied_but_those_that_change, make, unmake),
		cmocka_unit_test_setup_teardown(a_kind_that_does_not_exist_is_refused, make, unmake),
		cmocka_unit_test_setup_teardown(texts_cannot_reach_the_terminal_raw, make, unmake),
		cmocka_unit_test(what_is_no_file_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

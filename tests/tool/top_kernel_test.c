/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What a look at a device of the kernel takes from its ports; the rest is top_kernel_device_test.py's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/top.h"

static char root[64];
static struct top_kernel *kernel;
static struct top_frame frame;

/* A file of a port, with the folders above it. */
static void put(unsigned port, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/sys/class/infiniband/dev0/ports/%u/%s", root, port, name);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		assert_true(!mkdir(path, 0755) || errno == EEXIST);
		*slash = '/';
	}
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int setup(void **state)
{
	int err;

	(void)state;
	strcpy(root, "/tmp/top_kernel_XXXXXX");
	assert_non_null(mkdtemp(root));
	put(1, "counters/port_rcv_data", "1000\n");
	put(1, "counters/port_rcv_packets", "9\n");
	kernel = top_kernel_open("dev0", 0, root, NULL, &err);
	assert_non_null(kernel);
	return 0;
}

static int rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	top_frame_free(&frame);
	top_kernel_close(kernel);
	nftw(root, rm, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}

static void look(void)
{
	top_frame_free(&frame);
	assert_int_equal(top_kernel_read(kernel, &frame), 0);
}

static uint64_t counter(const char *name)
{
	uint64_t v = TOP_UNKNOWN;

	for (size_t i = 0; i < frame.counters; i++)
		if (strcmp(frame.counter[i].name, name) == 0) {
			assert_true(v == TOP_UNKNOWN);
			v = frame.counter[i].value;
		}
	return v;
}

static void words_become_bytes_of_all_ports(void **state)
{
	put(2, "counters/port_rcv_data", "1\n");
	look();
	assert_int_equal(frame.dev[TOP_DEV_rx_bytes], 4004);
	assert_int_equal(frame.dev[TOP_DEV_rx_packets], 9);
	assert_true(frame.dev[TOP_DEV_tx_bytes] == TOP_UNKNOWN);
	assert_true(frame.dev[TOP_DEV_retransmits] == TOP_UNKNOWN);
}

/* rxe counts its traffic twice: as itself, and as InfiniBand's ports do. */
static void traffic_that_is_told_twice_is_counted_once(void **state)
{
	put(1, "hw_counters/rcvd_bytes", "4001\n");
	put(2, "counters/port_rcv_data", "3\n");
	put(2, "hw_counters/rcvd_bytes", "10\n");
	look();
	assert_int_equal(frame.dev[TOP_DEV_rx_bytes], 4011);
	assert_int_equal(frame.dev[TOP_DEV_rx_packets], 9);
}

static void kinds_of_retries_are_added_up(void **state)
{
	put(1, "hw_counters/packet_seq_err", "1\n");
	put(1, "hw_counters/local_ack_timeout_err", "2\n");
	put(2, "hw_counters/rnr_nak_retry_err", "4\n");
	look();
	assert_int_equal(frame.dev[TOP_DEV_retransmits], 3);
	assert_int_equal(frame.dev[TOP_DEV_rnr_nak_rcvd], 4);
}

static void a_name_stands_for_one_counter(void **state)
{
	put(1, "counters/link_downed", "1\n");
	put(1, "hw_counters/link_downed", "2\n");
	put(1, "hw_counters/sent_pkts", "3\n");
	put(1, "hw_counters/lifespan", "10\n");
	put(1, "hw_counters/broken", "Invalid argument\n");
	look();
	assert_int_equal(counter("port1.link_downed"), 1);
	assert_int_equal(counter("port1.hw.link_downed"), 2);
	assert_int_equal(counter("port1.sent_pkts"), 3);
	assert_int_equal(frame.counters, 5);
	for (size_t i = 1; i < frame.counters; i++)
		assert_true(strcmp(frame.counter[i - 1].name, frame.counter[i].name) < 0);
}

static void a_device_that_has_gone_is_no_device(void **state)
{
	int err;

	assert_true(top_kernel_has(root, "dev0"));
	assert_false(top_kernel_has(root, "dev1"));
	assert_false(top_kernel_has(root, "../infiniband/dev0"));
	assert_false(top_kernel_has(root, ""));
	top_kernel_close(kernel);
	kernel = top_kernel_open("dev1", 0, root, NULL, &err);
	assert_int_equal(top_kernel_read(kernel, &frame), -ENODEV);
}

static void a_look_without_netlink_says_why(void **state)
{
	look();
	assert_int_equal(frame.regions + frame.qps, 0);
	assert_string_equal(frame.trouble, "regions, queue pairs: not in the record");
	assert_true(frame.kernel && frame.system.of_machine);
	assert_true(frame.odp[TOP_ODP_page_faults] == TOP_UNKNOWN);
	assert_true(frame.system.majflt == TOP_UNKNOWN && frame.system.group_limit == TOP_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		CASE(words_become_bytes_of_all_ports),
		CASE(traffic_that_is_told_twice_is_counted_once),
		CASE(kinds_of_retries_are_added_up),
		CASE(a_name_stands_for_one_counter),
		CASE(a_device_that_has_gone_is_no_device),
		CASE(a_look_without_netlink_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

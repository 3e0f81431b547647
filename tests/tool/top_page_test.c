/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What is on the screen, at every size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <infiniband/verbs.h>

#include "tool/alloc.h"
#include "tool/top.h"

#define ROWS 60

static struct top_frame frame;
static struct top_region region[ROWS];
static struct top_qp qp[ROWS];
static struct top_memory memory;
static struct top_view view;
static struct top_line line[256];
static struct top_look look;

static int setup(void **state)
{
	struct top_frame before = { .at_ns = 1 };

	(void)state;
	memset(&frame, 0, sizeof(frame));
	frame.at_ns = 1000000001;
	frame.pid = 4711;
	strcpy(frame.command, "server");
	strcpy(frame.device, "unpin0");
	for (uint32_t i = 0; i < ROWS; i++) {
		region[i] = (struct top_region){ .row = i,
			.kind = UNPIN_REGION_ODP,
			.addr = 0x10000000ull * (i + 1),
			.length = 1 << 20,
			.lkey = i };
		qp[i] = (struct top_qp){ .number = 0x1000 + i, .state = IBV_QPS_RTS };
	}
	for (unsigned i = 0; i < UNPIN_SLOW_FAULTS; i++)
		frame.slow[i] =
			(struct top_slow){ .addr = region[i].addr, .resolved_ns = 1000, .ended_ns = 5 };
	frame.region = region;
	frame.qp = qp;
	frame.regions = frame.qps = ROWS;
	frame.slows = UNPIN_SLOW_FAULTS;
	frame.time.reads = 300000000;
	frame.time.work = 100000000;
	frame.read_events = 12;
	frame.system.group_used = 96 << 20;
	frame.system.group_limit = 100 << 20;
	top_view_make(&view, &before, &frame, &memory);
	look = (struct top_look){ .width = 120, .height = 40, .every = 1 };
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	top_view_free(&view);
	top_memory_free(&memory);
	return 0;
}

static size_t page(void)
{
	memset(line, 0, sizeof(line));
	return top_page(&view, &look, line);
}

/* How many lines begin with this, or hold it. */
static unsigned lines_with(const char *text)
{
	size_t n = page();
	unsigned found = 0;

	for (size_t i = 0; i < n; i++)
		found += strstr(line[i].text, text) != NULL;
	return found;
}

static void fits_at_every_size(void)
{
	static const unsigned widths[] = { 1, 2, 39, 40, 80, 132, 511, 512, 4000 };

	for (int panel = 0; panel < TOP_PANELS; panel++)
		for (int help = 0; help < 2; help++)
			for (unsigned h = 1; h < 64; h++)
				for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
					size_t n;

					look.width = widths[w];
					look.height = h;
					look.panel = (enum top_panel)panel;
					look.help = help;
					n = page();
					assert_true(n >= 1 && n <= h);
					for (size_t i = 0; i < n; i++)
						assert_true(strlen(line[i].text) <= widths[w]);
				}
}

static void it_fits_at_every_size(void **state)
{
	fits_at_every_size();
}

static void a_tiny_terminal_still_has_the_process_the_verdict_and_a_region(void **state)
{
	look.width = 40;
	look.height = 10;
	assert_int_equal(lines_with("unpin top: 4711 server"), 1);
	assert_int_equal(lines_with("mostly disk"), 1);
	assert_int_equal(lines_with("REGION"), 1);
	assert_true(lines_with("odp  ") >= 1);
	assert_int_equal(lines_with("q quit"), 1);
}

static void each_list_has_rows_when_all_are_long(void **state)
{
	assert_int_equal(lines_with("REGION"), 1);
	assert_int_equal(lines_with("SLOWEST"), 1);
	assert_true(lines_with("RTS") >= 3);
	assert_true(lines_with("kernel and driver; ") >= 3);
	assert_true(lines_with(" never ") >= 6);
	assert_int_equal(page(), 40);
}

static void a_panel_of_its_own_has_the_whole_screen(void **state)
{
	look.panel = TOP_QPS;
	assert_true(lines_with("RTS") > 25);
	assert_int_equal(lines_with("REGION"), 0);
	look.panel = TOP_REGIONS;
	assert_true(lines_with(" never ") > 25);
	assert_int_equal(lines_with("RTS"), 0);
	look.scroll = ROWS - 1;
	assert_int_equal(lines_with(" never "), 1);
	look.panel = TOP_SLOWEST;
	look.scroll = 0;
	assert_int_equal(lines_with("kernel and driver; "), UNPIN_SLOW_FAULTS);
}

static void eighty_columns_tell_why(void **state)
{
	look.width = 80;
	look.panel = TOP_SLOWEST;
	assert_int_equal(lines_with("kernel and driver; read"), UNPIN_SLOW_FAULTS);
	assert_int_equal(lines_with("in line      ago address        why"), 1);
}

static void a_disk_read_is_told_from_the_driver(void **state)
{
	assert_int_equal(
		lines_with(
			"400 ms/s, mostly disk or swap: in line 0%, disk or swap 75% (12.0/s), driver 25%"),
		1);
}

static void the_group_near_its_limit_is_marked(void **state)
{
	size_t n = page();

	for (size_t i = 0; i < n; i++)
		if (strstr(line[i].text, "group 96 MiB of 100 MiB (96%)")) {
			assert_int_equal(line[i].colour, TOP_BAD);
			return;
		}
	fail_msg("no line of the group");
}

static void states_of_the_screen_are_said(void **state)
{
	look.paused = true;
	look.notice = "The process has ended.";
	assert_int_equal(lines_with("[PAUSED]"), 1);
	assert_int_equal(lines_with("has ended"), 1);
	look.editing = true;
	strcpy(look.filter, "od");
	assert_int_equal(lines_with("filter: od_"), 1);
	look.editing = false;
	look.key = TOP_BY_BYTES;
	look.backwards = true;
	assert_int_equal(lines_with("sort: bytes (turned)  / filter: od"), 1);
	look.help = true;
	assert_int_equal(lines_with("unpin top: keys"), 1);
	assert_int_equal(top_page(NULL, &(struct top_look){ .width = 80, .height = 5, .every = 2 }, line), 5);
	assert_non_null(strstr(line[0].text, "the first figures come after 2 s"));
}

static void an_empty_list_says_so(void **state)
{
	view.regions = view.qps = view.slows = 0;
	assert_int_equal(lines_with("none"), 3);
	strcpy(look.filter, "x");
	assert_int_equal(lines_with("none that the filter leaves"), 2);
	assert_int_equal(lines_with("none in the last 30 s that the filter leaves"), 1);
}

/* --- a device of the kernel ------------------------------------------------------------------------------
 */

static struct top_counter counter[ROWS];
static struct top_counter_view counter_view[ROWS];

/* Of everything there is, as long as it gets. */
static void make_kernels(void)
{
	frame.kernel = true;
	frame.pid = 0;
	strcpy(frame.device, "mlx5_0");
	memset(frame.firmware, '9', sizeof(frame.firmware) - 1);
	for (unsigned i = 0; i < ROWS; i++) {
		struct top_owner *o = &region[i].owner;

		memset(o->command, 'c', sizeof(o->command) - 1);
		o->pid = UINT32_MAX;
		o->pd = UINT32_MAX - 1;
		qp[i].owner = *o;
		qp[i].type = 2;
		region[i].keys_told = i % 2;
		region[i].addr = i % 3 ? region[i].addr : TOP_UNKNOWN;
		memset(region[i].details, 'd', sizeof(region[i].details) - 1);
		memset(counter[i].name, 'n', sizeof(counter[i].name) - 1);
		counter[i].value = UINT64_MAX;
		counter_view[i] = (struct top_counter_view){ &counter[i], 1e19 };
	}
	free(view.counter);
	view.counter = alloc_array(ROWS, sizeof(*view.counter));
	memcpy(view.counter, counter_view, sizeof(counter_view));
	view.counters = ROWS;
}

static void a_device_of_the_kernel_fits_at_every_size_too(void **state)
{
	make_kernels();
	fits_at_every_size();
	strcpy(frame.trouble, "queue pairs: forbidden");
	view.regions = view.qps = view.counters = 0;
	fits_at_every_size();
}

static void a_device_of_the_kernel_has_columns_of_its_own(void **state)
{
	make_kernels();
	strcpy(frame.firmware, "16.35");
	strcpy(region[0].owner.command, "a store");
	region[0].owner.pid = 4242;
	region[1].owner = (struct top_owner){ .pd = TOP_NONE };
	view.region[1].heat = TOP_HEAT_UNKNOWN;
	view.region[1].faults = view.region[1].invalidations = view.region[1].prefetched = -1;
	region[1].kind = UNPIN_REGION_NONE;
	qp[0].peer = qp[0].port = TOP_NONE;
	view.qp[0].retries = -1;
	look.width = 80;
	assert_int_equal(lines_with("unpin top: mlx5_0 of the kernel, firmware 16.35, every 1.00 s"), 1);
	assert_int_equal(lines_with("a store            4242 never       0       0      0"), 1);
	assert_int_equal(
		lines_with(
			"-               1     1 MiB -                     - -           -       -      -"),
		1);
	assert_int_equal(lines_with("0x001000 RC     RTS   -        "), 1);
	assert_int_equal(lines_with("COUNTER"), 1);
	assert_int_equal(lines_with("SLOWEST") + lines_with("its time"), 0);
	assert_int_equal(top_rows(&view, TOP_SLOWEST), ROWS);
	look.panel = TOP_SLOWEST;
	assert_true(lines_with("nnnn") > 20);
	assert_int_equal(lines_with("REGION"), 0);
	look.help = true;
	assert_int_equal(lines_with("counters of the ports"), 1);
	assert_int_equal(lines_with("SLOWEST"), 0);
}

static void what_is_not_told_is_said_on_the_page(void **state)
{
	make_kernels();
	strcpy(frame.trouble, "queue pairs: forbidden");
	view.regions = view.qps = view.counters = 0;
	frame.system =
		(struct top_system){ .of_machine = true, .group_used = 96 << 20, .group_limit = 100 << 20 };
	assert_int_equal(lines_with("not told: queue pairs: forbidden"), 1);
	assert_int_equal(lines_with("none"), 3);
	assert_int_equal(lines_with("used 96 MiB of 100 MiB (96%)"), 1);
	assert_int_equal(lines_with("machine  major"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		CASE(it_fits_at_every_size),
		CASE(a_tiny_terminal_still_has_the_process_the_verdict_and_a_region),
		CASE(each_list_has_rows_when_all_are_long),
		CASE(a_panel_of_its_own_has_the_whole_screen),
		CASE(eighty_columns_tell_why),
		CASE(a_disk_read_is_told_from_the_driver),
		CASE(the_group_near_its_limit_is_marked),
		CASE(states_of_the_screen_are_said),
		CASE(an_empty_list_says_so),
		CASE(a_device_of_the_kernel_fits_at_every_size_too),
		CASE(a_device_of_the_kernel_has_columns_of_its_own),
		CASE(what_is_not_told_is_said_on_the_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

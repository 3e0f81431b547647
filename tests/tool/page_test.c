/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/page.h"

static const struct report_column columns[] = {
	{ "name", NULL, "<name" },
	{ "time", "us", "time us" },
};

static char folder[64], why[PAGE_WHY_MAX];
static struct report r;
static bool replaces;

static char *path(const char *name)
{
	static char text[128];

	snprintf(text, sizeof(text), "%s/%s", folder, name);
	return text;
}

static bool there(const char *name)
{
	return access(path(name), F_OK) == 0;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(path(name), "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static char *get(const char *name)
{
	static char text[1 << 17];
	FILE *f = fopen(path(name), "r");
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	return text;
}

static void add_part(const char *key, const char *plot_key)
{
	struct report_part *p = report_part(&r, key, "A <part>", "What it means.", columns, 2);
	struct plot *plot = report_plot(p, plot_key, PLOT_LINES,
		(struct plot_axis){ "x", PLOT_NUMBER, false }, (struct plot_axis){ "y", PLOT_US, true });

	report_row(p);
	report_words(p, 0, "a, b");
	report_spread(p, 1, (struct spread){ .median = 2, .q1 = 1, .q3 = 3, .count = 3 });
	plot_title(plot, "It is proved.");
	plot_point(plot, plot_series(plot, "one"), 1, 2);
	plot_point(plot, plot_series(plot, "one"), 2, 4);
	report_at_most(p, "fast", "things are fast", 2, 1, "us");
}

static int make(void **state)
{
	strcpy(folder, "/tmp/unpin-page-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
	report_fact_text(&r, "device", "unpin0");
	report_fact_text(&r, "kernel", "<&>");
	add_part("things", "plot");
	return 0;
}

static int unmake(void **state)
{
	char command[128];

	report_free(&r);
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

static void the_page_needs_no_other_file_and_no_script(void **state)
{
	char *page;

	assert_int_equal(page_prepare(folder, &replaces, why), 0);
	assert_false(replaces);
	assert_int_equal(page_write(&r, folder, why), 0);
	page = get("index.html");
	assert_non_null(strstr(page, "<svg"));
	assert_non_null(strstr(page, "It is proved."));
	assert_non_null(strstr(page, "&lt;&amp;&gt;"));
	assert_non_null(strstr(page, "missed"));
	assert_non_null(strstr(page, "prefers-color-scheme:dark"));
	assert_null(strstr(page, "<script"));
	assert_null(strstr(page, "<link"));
	assert_null(strstr(page, "src="));
	assert_null(strstr(page, "@import"));
	/* The only address is the name of the language that the plots are written in. */
	for (char *at = page; (at = strstr(at, "http")); at++)
		assert_memory_equal(at, "http://www.w3.org/2000/svg", 26);
	assert_true(there("things_plot.svg"));
	assert_true(there("bench.json"));
	assert_string_equal(get("things.csv"), "name,time_us,time_q1_us,time_q3_us\n\"a, b\",2,1,3\n");
	assert_string_equal(get("things_plot.csv"), "series,x,y\none,1,2\none,2,4\n");
}

static void a_page_that_was_not_finished_says_so(void **state)
{
	assert_int_equal(page_write(&r, folder, why), 0);
	assert_non_null(strstr(get("index.html"), "This report is partial"));
	report_fact_flag(&r, "interrupted", true);
	report_fact_flag(&r, "finished", false);
	assert_int_equal(page_write(&r, folder, why), 0);
	assert_non_null(strstr(get("index.html"), "was interrupted"));
	report_fact_flag(&r, "interrupted", false);
	report_fact_flag(&r, "finished", true);
	assert_int_equal(page_write(&r, folder, why), 0);
	assert_null(strstr(get("index.html"), "partial"));
}

static void an_earlier_report_is_replaced_with_all_of_its_files(void **state)
{
	assert_int_equal(page_prepare(folder, &replaces, why), 0);
	assert_int_equal(page_write(&r, folder, why), 0);
	put("notes.txt", "mine");
	assert_int_equal(page_prepare(folder, &replaces, why), 0);
	assert_true(replaces);
	assert_false(there("index.html"));
	assert_false(there("things_plot.svg"));
	assert_false(there("things.csv"));
	assert_false(there("bench.json"));
	assert_true(there("notes.txt"));
}

static void a_folder_with_other_things_is_refused_and_left_alone(void **state)
{
	put("notes.txt", "mine");
	assert_int_equal(page_prepare(folder, &replaces, why), -ENOTEMPTY);
	assert_non_null(strstr(why, folder));
	assert_non_null(strstr(why, "notes.txt"));
	put("index.html", "<!DOCTYPE html>\n<html>somebody else's</html>\n");
	assert_int_equal(page_prepare(folder, &replaces, why), -ENOTEMPTY);
	assert_string_equal(get("index.html"), "<!DOCTYPE html>\n<html>somebody else's</html>\n");
	assert_string_equal(get("notes.txt"), "mine");
}

static void a_page_cannot_name_files_elsewhere_to_be_removed(void **state)
{
	char outside[128], inside[256];
	int fd;

	snprintf(outside, sizeof(outside), "%s.csv", folder);
	fd = open(outside, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	snprintf(inside, sizeof(inside), "<!DOCTYPE html>\n<!-- unpin bench report: ../%s %s ..  -->\n",
		strrchr(outside, '/') + 1, outside);
	put("index.html", inside);
	assert_int_equal(page_prepare(folder, &replaces, why), 0);
	assert_int_equal(access(outside, F_OK), 0);
	unlink(outside);
}

static void a_folder_that_is_a_file_or_has_no_parent_is_refused(void **state)
{
	put("file", "");
	assert_int_equal(page_prepare(path("file"), &replaces, why), -ENOTDIR);
	assert_non_null(strstr(why, "Not a directory"));
	assert_int_equal(page_prepare(path("no/such"), &replaces, why), -ENOENT);
	assert_non_null(strstr(why, "No such file"));
}

static void a_full_disk_leaves_the_files_of_before(void **state)
{
	char *page;

	if (geteuid() != 0 || mount("none", folder, "tmpfs", 0, "size=48k")) {
		print_message("a small file system cannot be mounted here\n");
		skip();
	}
	assert_int_equal(page_prepare(folder, &replaces, why), 0);
	assert_int_equal(page_write(&r, folder, why), 0);
	report_fact_text(&r, "kernel", "another");
	for (int i = 0; i < 40; i++)
		add_part("more", "plot");
	assert_int_equal(page_write(&r, folder, why), -ENOSPC);
	assert_non_null(strstr(why, "No space left"));
	page = get("index.html");
	assert_non_null(strstr(page, "</html>"));
	assert_null(strstr(page, "another"));
	umount2(folder, MNT_DETACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_page_needs_no_other_file_and_no_script, make, unmake),
		cmocka_unit_test_setup_teardown(a_page_that_was_not_finished_says_so, make, unmake),
		cmocka_unit_test_setup_teardown(
			an_earlier_report_is_replaced_with_all_of_its_files, make, unmake),
		cmocka_unit_test_setup_teardown(
			a_folder_with_other_things_is_refused_and_left_alone, make, unmake),
		cmocka_unit_test_setup_teardown(
			a_page_cannot_name_files_elsewhere_to_be_removed, make, unmake),
		cmocka_unit_test_setup_teardown(
			a_folder_that_is_a_file_or_has_no_parent_is_refused, make, unmake),
		cmocka_unit_test_setup_teardown(a_full_disk_leaves_the_files_of_before, make, unmake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

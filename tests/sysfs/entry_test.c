/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The files of the device, and what they say. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sysfs/entry.h"

static void every_entry_is_found_by_its_path(void **state)
{
	char path[128];
	unsigned row;

	for (size_t i = 0; i < sysfs_entry_count; i++) {
		const struct sysfs_entry *e = &sysfs_entries[i];
		const char *slash = *e->directory ? "/" : "";
		size_t in = 0;

		for (unsigned r = 0; r < e->rows; r++) {
			if (e->name)
				snprintf(path, sizeof(path), "%s%s%s", e->directory, slash, e->name);
			else
				snprintf(path, sizeof(path), "%s/%u", e->directory, r);
			assert_ptr_equal(sysfs_entry_find(path, &row), e);
			assert_int_equal(row, r);
		}
		for (size_t d = 0; d < sysfs_directory_count; d++)
			in += !strcmp(sysfs_directories[d], e->directory);
		assert_int_equal(in, 1);
	}
}

static void other_paths_are_not(void **state)
{
	static const char *const paths[] = { "", "ports", "ports/1", "ports/1/gids", "ports/1/gids/",
		"ports/1/gids/64", "ports/1/gids/00", "ports/1/gids/01", "ports/1/gids/-1",
		"ports/1/gids/4294967296", "ports/1/gids/99999999999999999999", "ports/1/gids/0x1",
		"ports/2/state", "node_typ", "node_type2", "/node_type", "ports/1/pkeys/1" };
	unsigned row;

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (sysfs_entry_find(paths[i], &row))
			fail_msg("%s", paths[i]);
}

/* One line each, or EINVAL for the attributes of an empty row. */
static void every_entry_says_one_line(void **state)
{
	char text[SYSFS_TEXT];

	for (size_t i = 0; i < sysfs_entry_count; i++) {
		const struct sysfs_entry *e = &sysfs_entries[i];

		for (unsigned r = 0; r < e->rows; r++) {
			int n = e->show(e, r, text);

			if (n == -EINVAL && e->live)
				continue;
			assert_in_range(n, 2, SYSFS_TEXT - 1);
			assert_int_equal(text[n], '\0');
			assert_ptr_equal(strchr(text, '\n'), text + n - 1);
		}
	}
}

static const char *says(const char *path)
{
	static char text[SYSFS_TEXT];
	unsigned row;
	const struct sysfs_entry *e = sysfs_entry_find(path, &row);

	assert_non_null(e);
	assert_true(e->show(e, row, text) > 0);
	return text;
}

static void the_port_reads_as_the_kernel_writes_it(void **state)
{
	assert_string_equal(says("ports/1/state"), "4: ACTIVE\n");
	assert_string_equal(says("ports/1/phys_state"), "5: LinkUp\n");
	assert_string_equal(says("ports/1/rate"), "100 Gb/sec (4X EDR)\n");
	assert_string_equal(says("ports/1/lid"), "0x0\n");
	assert_string_equal(says("ports/1/pkeys/0"), "0xffff\n");
	assert_string_equal(says("ports/1/gids/63"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
	assert_string_equal(says("ports/1/counters/port_xmit_data"), "0\n");
	assert_string_equal(says("ports/1/hw_counters/page_faults"), "0\n");
}

static void the_gid_table_is_that_of_the_profile(void **state)
{
	unsigned row;

	assert_null(sysfs_entry_find("ports/1/gids/129", &row));
	setenv("UNPIN_PROFILE", "mlx5", 1);
	assert_non_null(sysfs_entry_find("ports/1/gids/129", &row));
	assert_null(sysfs_entry_find("ports/1/gids/130", &row));
	assert_string_equal(says("ports/1/gid_attrs/types/0"), "IB/RoCE v1\n");
	assert_string_equal(says("ports/1/gid_attrs/types/1"), "RoCE v2\n");
	assert_memory_equal(says("ports/1/gids/1"), "fe80:", 5);
	unsetenv("UNPIN_PROFILE");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_entry_is_found_by_its_path),
		cmocka_unit_test(other_paths_are_not),
		cmocka_unit_test(every_entry_says_one_line),
		cmocka_unit_test(the_port_reads_as_the_kernel_writes_it),
		cmocka_unit_test(the_gid_table_is_that_of_the_profile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

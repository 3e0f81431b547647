/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Page faults as the kernel counts them, read from records: of a ConnectX (argument:
 * tests/doctor/connectx5/machine), and of less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/doctor.h"

static const char *connectx;
static char folder[64];
static struct doctor d;
static struct doctor_result result;

static void look_at(const char *root, const char *device)
{
	d = (struct doctor){ .root = root, .root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC) };
	assert_true(d.root_fd >= 0);
	snprintf(d.device.name, sizeof(d.device.name), "%s", device);
}

static int setup(void **state)
{
	(void)state;
	strcpy(folder, "/tmp/doctor_counters_XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int rm(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	close(d.root_fd);
	free(result.seen);
	free(result.meaning);
	free(result.advice);
	memset(&result, 0, sizeof(result));
	return nftw(folder, rm, 16, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", folder, path);
	for (char *p = full + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void page_faults_of_all_regions_are_added_up(void **state)
{
	char from[128];
	uint64_t faults;

	look_at(connectx, "mlx5_0");
	assert_int_equal(doctor_counters_faults(&d, &faults, from, sizeof(from)), 0);
	assert_int_equal(faults, 1207);
	assert_string_equal(from, "rdma netlink statistics");
}

static void counters_that_move_are_seen_to_move(void **state)
{
	look_at(connectx, "mlx5_0");
	doctor_counters_use(&d, &result);
	assert_int_equal(result.verdict, DOCTOR_OK);
	assert_string_equal(result.seen, "4 memory regions, 2 of them on demand; page_faults: 1207, 450 more "
					 "while this looked; the busiest "
					 "region belongs to a_store (4242)");
}

static void a_device_that_has_none_has_none(void **state)
{
	char from[128];
	uint64_t faults;

	look_at(connectx, "mlx5_1");
	assert_int_equal(doctor_counters_faults(&d, &faults, from, sizeof(from)), -ENODATA);
	doctor_counters_use(&d, &result);
	assert_int_equal(result.verdict, DOCTOR_NA);
	assert_string_equal(result.seen, "not in the record");
}

static void what_netlink_does_not_tell_sysfs_may(void **state)
{
	char from[128];
	uint64_t faults;

	put("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_7\n");
	put("/sys/class/infiniband_verbs/uverbs0/num_page_faults", "1\n");
	put("/sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_0\n");
	put("/sys/class/infiniband_verbs/uverbs1/num_page_faults", "42\n");
	look_at(folder, "mlx5_0");
	assert_int_equal(doctor_counters_faults(&d, &faults, from, sizeof(from)), 0);
	assert_int_equal(faults, 42);
	assert_non_null(strstr(from, "uverbs1/num_page_faults"));
}

static void nonsense_is_called_that(void **state)
{
	put("/netlink/devices", "this is no answer\n");
	look_at(folder, "mlx5_0");
	doctor_counters_use(&d, &result);
	assert_int_equal(result.verdict, DOCTOR_NA);
	assert_non_null(strstr(result.seen, "cannot be read"));
}

static void unpins_own_device_is_told_of_elsewhere(void **state)
{
	look_at(folder, "unpin0");
	d.device.kind = DOCTOR_KIND_UNPIN;
	doctor_counters_use(&d, &result);
	assert_int_equal(result.verdict, DOCTOR_NA);
	assert_non_null(strstr(result.seen, "unpin top"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		CASE(page_faults_of_all_regions_are_added_up),
		CASE(counters_that_move_are_seen_to_move),
		CASE(a_device_that_has_none_has_none),
		CASE(what_netlink_does_not_tell_sysfs_may),
		CASE(nonsense_is_called_that),
		CASE(unpins_own_device_is_told_of_elsewhere),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: %s MACHINE\n", argv[0]);
		return 2;
	}
	connectx = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}

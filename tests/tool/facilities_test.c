/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mm/facility.h"
#include "tool/facilities.h"

static void the_command_knows_the_facilities_of_the_library(void **state)
{
	assert_int_equal(facilities_count, MM_FACILITIES);
	for (int f = 0; f < MM_FACILITIES; f++) {
		bool known = false;

		for (size_t i = 0; i < facilities_count; i++)
			known = known || strcmp(facilities[i].name, mm_facility_name(f)) == 0;
		if (!known)
			fail_msg("facility %s is missing in src/tool/facilities.c", mm_facility_name(f));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_command_knows_the_facilities_of_the_library),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/setting.h"

static const struct setting *row(enum setting_id id)
{
	return &settings_table[id];
}

static void assert_reads(enum setting_id id, const char *text, uint64_t want)
{
	char why[SETTING_WHY];
	uint64_t value = ~want;

	if (setting_parse(row(id), text, &value, why))
		fail_msg("%s \"%s\": %s", row(id)->variable, text, why);
	if (value != want)
		fail_msg("%s \"%s\" was read as %llu", row(id)->variable, text, (unsigned long long)value);
}

static void assert_refused(enum setting_id id, const char *text)
{
	char why[SETTING_WHY];
	uint64_t value = 4711;

	if (setting_parse(row(id), text, &value, why) != -EINVAL)
		fail_msg("%s \"%s\" was taken", row(id)->variable, text);
	assert_int_equal(value, 4711);
	assert_non_null(strstr(why, " is not "));
	assert_in_range(strlen(why), 1, SETTING_WHY - 2);
}

static void every_row_is_complete_and_unique(void **state)
{
	(void)state;
	for (int i = 0; i < SETTING_COUNT; i++) {
		const struct setting *s = row(i);

		assert_memory_equal(s->variable, "UNPIN_", 6);
		assert_true(strlen(s->option) > 0 && strlen(s->help) > 0);
		assert_int_equal(s->kind == SETTING_CHOICE, strlen(s->choices) > 0);
		assert_int_equal(s->kind == SETTING_SWITCH, strlen(s->argument) == 0);
		for (int k = 0; k < i; k++) {
			assert_string_not_equal(s->variable, row(k)->variable);
			assert_string_not_equal(s->option, row(k)->option);
		}
	}
}

static void a_choice_is_read_by_its_name(void **state)
{
	char name[32];

	(void)state;
	assert_reads(SETTING_PROFILE_ID, "unpin", PROFILE_UNPIN);
	assert_reads(SETTING_PROFILE_ID, "mlx5", PROFILE_MLX5);
	assert_reads(SETTING_PROFILE_ID, "rxe", PROFILE_RXE);
	assert_reads(SETTING_PROFILE_ID, "none", PROFILE_NONE);
	assert_reads(SETTING_PROFILE_ID, "stale-firmware", PROFILE_STALE_FIRMWARE);
	assert_reads(SETTING_NOTIFIER_ID, "userfaultfd", NOTIFIER_USERFAULTFD);
	assert_reads(SETTING_NOTIFIER_ID, "none", NOTIFIER_NONE);
	for (const char *const *wrong =
			(const char *const[]){ "", "mlx", "mlx55", "MLX5", "unpin|mlx5", "|", "mlx5 ", NULL };
		*wrong; wrong++)
		assert_refused(SETTING_PROFILE_ID, *wrong);
	setting_choice(row(SETTING_PROFILE_ID), PROFILE_STALE_FIRMWARE, name, sizeof(name));
	assert_string_equal(name, "stale-firmware");
	setting_choice(row(SETTING_PROFILE_ID), PROFILE_UNPIN, name, 3);
	assert_string_equal(name, "un");
	setting_choice(row(SETTING_PROFILE_ID), 17, name, sizeof(name));
	assert_string_equal(name, "");
}

static void a_duration_has_a_unit(void **state)
{
	(void)state;
	assert_reads(SETTING_FAULT_LATENCY_ID, "0", 0);
	assert_reads(SETTING_FAULT_LATENCY_ID, "0s", 0);
	assert_reads(SETTING_FAULT_LATENCY_ID, "1ns", 1);
	assert_reads(SETTING_FAULT_LATENCY_ID, "220us", 220000);
	assert_reads(SETTING_FAULT_LATENCY_ID, "1.5ms", 1500000);
	assert_reads(SETTING_FAULT_LATENCY_ID, "0.000000001s", 1);
	assert_reads(SETTING_FAULT_LATENCY_ID, "10s", 10000000000u);
	for (const char *const *wrong = (const char *const[]){ "", "5", "us", "-1us", "+1us", " 1us", "1us ",
		     "1 us", "1h", "10.1s", "0.5ns", "1.us", ".5us", "1e3us", "0x10us",
		     "99999999999999999999s", "18446744073709551615s", "0.00000000000000000000001s", NULL };
		*wrong; wrong++)
		assert_refused(SETTING_FAULT_LATENCY_ID, *wrong);
}

static void a_share_is_read_as_fraction_or_percentage(void **state)
{
	(void)state;
	assert_reads(SETTING_LOSS_ID, "0", 0);
	assert_reads(SETTING_LOSS_ID, "0.01", 10000);
	assert_reads(SETTING_LOSS_ID, "1%", 10000);
	assert_reads(SETTING_LOSS_ID, "0.0001%", 1);
	assert_reads(SETTING_LOSS_ID, "0.000001", 1);
	assert_reads(SETTING_LOSS_ID, "50%", 500000);
	assert_reads(SETTING_STORM_STALL_ID, "1", 1000000);
	for (const char *const *wrong = (const char *const[]){ "", "%", "51%", "0.51", "1", "0.0000001",
		     "-1%", "1%%", "1 %", "one", "nan", "0,01", NULL };
		*wrong; wrong++)
		assert_refused(SETTING_LOSS_ID, *wrong);
}

static void a_number_is_decimal_or_hexadecimal_and_within_its_range(void **state)
{
	(void)state;
	assert_reads(SETTING_ENGINE_THREADS_ID, "1", 1);
	assert_reads(SETTING_ENGINE_THREADS_ID, "16", 16);
	assert_reads(SETTING_ENGINE_THREADS_ID, "0x10", 16);
	assert_reads(SETTING_SEED_ID, "18446744073709551615", UINT64_MAX);
	assert_reads(SETTING_SEED_ID, "0XffffFFFFffffFFFF", UINT64_MAX);
	assert_refused(SETTING_SEED_ID, "18446744073709551616");
	assert_refused(SETTING_SEED_ID, "0x10000000000000000");
	for (const char *const *wrong = (const char *const[]){ "", "0", "17", "0x", "1x", "x1", "-1", "1.0",
		     "f", " 1", "1\n", NULL };
		*wrong; wrong++)
		assert_refused(SETTING_ENGINE_THREADS_ID, *wrong);
}

static void a_switch_is_0_or_1(void **state)
{
	(void)state;
	assert_reads(SETTING_IMPLICIT_ID, "0", 0);
	assert_reads(SETTING_IMPLICIT_ID, "1", 1);
	assert_refused(SETTING_IMPLICIT_ID, "");
	assert_refused(SETTING_IMPLICIT_ID, "2");
	assert_refused(SETTING_IMPLICIT_ID, "01");
	assert_refused(SETTING_IMPLICIT_ID, "yes");
}

static void the_sentence_tells_what_would_be_right(void **state)
{
	char why[SETTING_WHY];
	uint64_t value;
	char longer[400];

	(void)state;
	setting_parse(row(SETTING_FAULT_REPLY_ID), "nak", &value, why);
	assert_string_equal(why, "\"nak\" is not one of park, rnr");
	setting_parse(row(SETTING_FAULT_LATENCY_ID), "7", &value, why);
	assert_string_equal(why, "\"7\" is not a time up to 10s with its unit (ns, us, ms or s)");
	setting_parse(row(SETTING_LOSS_ID), "2", &value, why);
	assert_string_equal(
		why, "\"2\" is not a share up to 50%, in millionths at the finest, like 1% or 0.01");
	setting_parse(row(SETTING_DRIVER_THREADS_ID), "65", &value, why);
	assert_string_equal(why, "\"65\" is not a number from 1 to 64");
	setting_parse(row(SETTING_IMPLICIT_ID), "no", &value, why);
	assert_string_equal(why, "\"no\" is not 0 or 1");
	setting_parse(row(SETTING_TRACE_ID), "", &value, why);
	assert_string_equal(why, "\"\" is not a FILE");
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	for (int i = 0; i < SETTING_COUNT; i++)
		if (row(i)->kind != SETTING_TEXT)
			assert_refused(i, longer);
}

static void forget_all(void)
{
	for (int i = 0; i < SETTING_COUNT; i++)
		unsetenv(row(i)->variable);
}

static void what_the_environment_does_not_set_has_its_default(void **state)
{
	struct settings set;
	char why[SETTING_WHY];

	(void)state;
	forget_all();
	assert_int_equal(settings_load(&set, why), 0);
	for (int i = 0; i < SETTING_COUNT; i++) {
		assert_int_equal(set.value[i], row(i)->preset);
		assert_null(set.text[i]);
	}
}

static void the_environment_is_loaded(void **state)
{
	struct settings set;
	char why[SETTING_WHY];

	(void)state;
	forget_all();
	setenv("UNPIN_PROFILE", "rxe", 1);
	setenv("UNPIN_IMPLICIT", "0", 1);
	setenv("UNPIN_DELAY", "3us", 1);
	setenv("UNPIN_TRACE", "/tmp/timeline", 1);
	assert_int_equal(settings_load(&set, why), 0);
	assert_int_equal(set.value[SETTING_PROFILE_ID], PROFILE_RXE);
	assert_int_equal(set.value[SETTING_IMPLICIT_ID], 0);
	assert_int_equal(set.value[SETTING_DELAY_ID], 3000);
	assert_string_equal(set.text[SETTING_TRACE_ID], "/tmp/timeline");
	assert_int_equal(set.value[SETTING_DRIVER_THREADS_ID], 16);
	forget_all();
}

static void a_wrong_value_in_the_environment_is_named(void **state)
{
	struct settings set;
	char why[SETTING_WHY];

	(void)state;
	forget_all();
	setenv("UNPIN_ENGINE_THREADS", "0", 1);
	assert_int_equal(settings_load(&set, why), -EINVAL);
	assert_string_equal(why, "UNPIN_ENGINE_THREADS: \"0\" is not a number from 1 to 16");
	forget_all();
	setenv("UNPIN_TRACE", "", 1);
	assert_int_equal(settings_load(&set, why), -EINVAL);
	assert_string_equal(why, "UNPIN_TRACE: \"\" is not a FILE");
	forget_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_row_is_complete_and_unique),
		cmocka_unit_test(a_choice_is_read_by_its_name),
		cmocka_unit_test(a_duration_has_a_unit),
		cmocka_unit_test(a_share_is_read_as_fraction_or_percentage),
		cmocka_unit_test(a_number_is_decimal_or_hexadecimal_and_within_its_range),
		cmocka_unit_test(a_switch_is_0_or_1),
		cmocka_unit_test(the_sentence_tells_what_would_be_right),
		cmocka_unit_test(what_the_environment_does_not_set_has_its_default),
		cmocka_unit_test(the_environment_is_loaded),
		cmocka_unit_test(a_wrong_value_in_the_environment_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

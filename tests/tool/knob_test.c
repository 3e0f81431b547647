/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* usage: knob_test MAN-PAGE. The table of settings against what is made of it and written about it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tool/knob.h"

static struct knobs k;
static struct option_row rows[SETTING_COUNT + 1];
static size_t count;
static char manual[65536];

static int make(void **state)
{
	memset(&k, 0, sizeof(k));
	memset(rows, 0, sizeof(rows));
	count = 0;
	for (int g = KNOB_OTHER; g <= KNOB_STORM; g++)
		count += knob_rows(&k, (enum knob_group)g, rows + count);
	for (int i = 0; i < SETTING_COUNT; i++)
		unsetenv(settings_table[i].variable);
	return 0;
}

static int parse(int argc, const char **argv)
{
	return options_parse("run", rows, argc, (char **)argv);
}
#define PARSE(...)                                                                                           \
	parse(sizeof((const char *[]){ "run", __VA_ARGS__ }) / sizeof(char *),                               \
		(const char *[]){ "run", __VA_ARGS__, NULL })

static const struct option_row *row_of(const struct setting *s)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(rows[i].name, s->option) == 0)
			return &rows[i];
	fail_msg("--%s is no option", s->option);
	return NULL;
}

static void every_setting_is_an_option_of_one_group(void **state)
{
	assert_int_equal(count, SETTING_COUNT);
	for (int i = 0; i < SETTING_COUNT; i++) {
		const struct setting *s = &settings_table[i];
		const struct option_row *row = row_of(s);

		if (s->kind == SETTING_SWITCH)
			assert_null(row->argname);
		else
			assert_string_equal(row->argname, s->argument);
	}
}

static void help_has_every_choice_and_default(void **state)
{
	for (int i = 0; i < SETTING_COUNT; i++) {
		const struct setting *s = &settings_table[i];
		const char *help = row_of(s)->help;
		char word[64], preset[KNOB_DEFAULT];

		assert_non_null(strstr(help, s->help));
		knob_default(s, preset);
		snprintf(word, sizeof(word), "(default %s)", preset);
		if (s->kind == SETTING_CHOICE)
			snprintf(word, sizeof(word), "%s (default)", preset);
		if (preset[0] && !strstr(help, word))
			fail_msg("--%s: no \"%s\" in: %s", s->option, word, help);
		for (uint64_t c = 0; s->kind == SETTING_CHOICE; c++) {
			setting_choice(s, c, word, sizeof(word));
			if (!word[0])
				break;
			if (!strstr(help, word))
				fail_msg("--%s: no \"%s\" in: %s", s->option, word, help);
		}
	}
}

static void help_fits_a_terminal(void **state)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	options_help(f, rows);
	fclose(f);
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		if (strlen(line) > 80)
			fail_msg("too long: %s", line);
	free(text);
}

/* What the manual says between the tag of this option and the next tag. */
static void entry(const struct setting *s, char *out, size_t size)
{
	char tag[64];
	const char *begin, *end;

	snprintf(tag, sizeof(tag), ".It Fl -%s%s", s->option, s->kind == SETTING_SWITCH ? "\n" : " Ar ");
	begin = strstr(manual, tag);
	if (!begin) {
		fail_msg("the manual has no --%s", s->option);
		return;
	}
	end = strstr(begin + 1, "\n.It ");
	snprintf(out, size, "%.*s", (int)(end ? end - begin : (ptrdiff_t)strlen(begin)), begin);
}

static void the_manual_has_every_option_with_its_variable_and_default(void **state)
{
	if (!manual[0]) {
		print_message("no manual was given\n");
		skip();
	}
	for (int i = 0; i < SETTING_COUNT; i++) {
		const struct setting *s = &settings_table[i];
		char text[4096], preset[KNOB_DEFAULT], word[64];

		entry(s, text, sizeof(text));
		snprintf(word, sizeof(word), "Ev %s", s->variable);
		if (!strstr(text, word))
			fail_msg("--%s: no %s in: %s", s->option, word, text);
		knob_default(s, preset);
		snprintf(word, sizeof(word), "efault: .Li %s", preset);
		for (char *p = text; *p; p++)
			*p = *p == '\n' ? ' ' : *p;
		if (preset[0] && !strstr(text, word))
			fail_msg("--%s: no \"%s\" in: %s", s->option, word, text);
	}
}

static void values_become_variables(void **state)
{
	assert_int_equal(
		PARSE("--profile", "mlx5", "--no-implicit", "--loss=1%", "--fault-latency", "220us"), 7);
	assert_int_equal(knob_set(&k, true), 0);
	assert_string_equal(getenv("UNPIN_PROFILE"), "mlx5");
	assert_string_equal(getenv("UNPIN_IMPLICIT"), "0");
	assert_string_equal(getenv("UNPIN_LOSS"), "1%");
	assert_string_equal(getenv("UNPIN_FAULT_LATENCY"), "220us");
	assert_null(getenv("UNPIN_DELAY"));
}

static void wrong_values_are_refused(void **state)
{
	static const char *const wrong[][2] = {
		{ "--profile", "mlx6" },
		{ "--loss", "2" },
		{ "--delay", "5" },
		{ "--engine-threads", "0" },
		{ "--seed", "x" },
		{ "--fault-mode", "" },
		{ "--trace", "" },
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		make(NULL);
		assert_int_equal(PARSE(wrong[i][0], wrong[i][1]), 3);
		assert_int_equal(knob_set(&k, true), -EINVAL);
	}
}

static void a_wrong_value_of_the_environment_is_refused(void **state)
{
	setenv("UNPIN_NOTIFIER", "carrier-pigeon", 1);
	assert_int_equal(knob_set(&k, true), -EINVAL);
	unsetenv("UNPIN_NOTIFIER");
}

/* --- --trace -------------------------------------------------------------------------------------- */

static void a_timeline_has_an_absolute_path_and_takes_the_place_of_an_old_one(void **state)
{
	char folder[] = "/tmp/unpin-knob.XXXXXX", path[128];
	int fd;

	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	fd = open("old", O_WRONLY | O_CREAT, 0600);
	assert_int_equal(write(fd, "old", 3), 3);
	close(fd);
	assert_int_equal(PARSE("--trace", "old"), 3);
	assert_int_equal(knob_set(&k, false), 0);
	assert_int_equal(access("old", F_OK), 0);
	assert_int_equal(knob_set(&k, true), 0);
	assert_int_equal(access("old", F_OK), -1);
	snprintf(path, sizeof(path), "%s/old", folder);
	assert_string_equal(getenv("UNPIN_TRACE"), path);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rmdir(folder), 0); /* nothing was left */
}

static void a_timeline_that_cannot_be_written_is_refused(void **state)
{
	assert_int_equal(PARSE("--trace", "/no/such/place"), 3);
	assert_int_equal(knob_set(&k, true), -ENOENT);
	assert_int_equal(PARSE("--trace", "/dev/null"), 3);
	assert_int_equal(knob_set(&k, true), -EINVAL);
	assert_int_equal(PARSE("--trace", "/tmp"), 3);
	assert_int_equal(knob_set(&k, true), -EINVAL);
	assert_null(getenv("UNPIN_TRACE"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(every_setting_is_an_option_of_one_group, make),
		cmocka_unit_test_setup(help_has_every_choice_and_default, make),
		cmocka_unit_test_setup(help_fits_a_terminal, make),
		cmocka_unit_test_setup(the_manual_has_every_option_with_its_variable_and_default, make),
		cmocka_unit_test_setup(values_become_variables, make),
		cmocka_unit_test_setup(wrong_values_are_refused, make),
		cmocka_unit_test_setup(a_wrong_value_of_the_environment_is_refused, make),
		cmocka_unit_test_setup(
			a_timeline_has_an_absolute_path_and_takes_the_place_of_an_old_one, make),
		cmocka_unit_test_setup(a_timeline_that_cannot_be_written_is_refused, make),
	};
	FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;

	if (f) {
		manual[fread(manual, 1, sizeof(manual) - 1, f)] = 0;
		fclose(f);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tool/plot.h"

static const struct plot_axis plain = { "things", PLOT_NUMBER, false },
			      logarithmic = { "time", PLOT_US, true }, sizes = { "size", PLOT_BYTES, true };

static char *written(void (*write)(const struct plot *, FILE *), const struct plot *p)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	write(p, f);
	fclose(f);
	return text;
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		n++;
	return n;
}

static void each_series_is_a_line_with_markers(void **state)
{
	struct plot *p = plot_new("lines", PLOT_LINES, sizes, logarithmic);
	size_t a = plot_series(p, "first"), b = plot_series(p, "second");
	char *svg;

	plot_title(p, "Things take %d us.", 5);
	for (int i = 0; i < 5; i++) {
		plot_point(p, a, 65536 << (2 * i), 5);
		plot_point(p, b, 65536 << (2 * i), 10 << i);
	}
	assert_int_equal(plot_series(p, "first"), a);
	assert_int_equal(plot_drawn(p), 10);
	svg = written(plot_svg, p);
	assert_int_equal(count(svg, "<svg"), 1);
	assert_int_equal(count(svg, "</svg>"), 1);
	/* The line, and the one in the legend. */
	assert_int_equal(count(svg, "class=\"n s0\""), 2);
	assert_int_equal(count(svg, "class=\"n s1\""), 2);
	/* Five markers, and one in the legend. */
	assert_int_equal(count(svg, "class=\"f0\""), 6);
	assert_non_null(strstr(svg, "Things take 5 us."));
	assert_non_null(strstr(svg, "64 KiB"));
	assert_non_null(strstr(svg, "16 MiB"));
	assert_null(strstr(svg, "nan"));
	assert_null(strstr(svg, "inf"));
	free(svg);
	plot_free(p);
}

static void what_a_logarithmic_axis_cannot_show_is_left_out(void **state)
{
	struct plot *p = plot_new("log", PLOT_LINES, plain, logarithmic);
	char *svg;

	plot_series(p, "only");
	plot_point(p, 0, 1, 0);
	plot_point(p, 0, 2, -3);
	plot_point(p, 0, 3, NAN);
	assert_int_equal(plot_drawn(p), 0);
	plot_point(p, 0, 4, 7);
	assert_int_equal(plot_drawn(p), 1);
	svg = written(plot_svg, p);
	assert_int_equal(count(svg, "class=\"f0\""), 1);
	assert_null(strstr(svg, "nan"));
	assert_null(strstr(svg, "inf"));
	free(svg);
	plot_free(p);
}

static void bars_have_their_category_and_value(void **state)
{
	struct plot *p = plot_new("bars", PLOT_BARS, plain, (struct plot_axis){ 0 });
	char *svg;

	plot_bar(p, plot_series(p, "pinned"), "a category with a name that needs two lines", 0);
	plot_bar(p, plot_series(p, "pinned"), "other", 12.5);
	plot_bar(p, plot_series(p, "on demand"), "other", 25);
	assert_int_equal(p->categories, 2);
	svg = written(plot_svg, p);
	assert_non_null(strstr(svg, ">other<"));
	assert_non_null(strstr(svg, ">12.5<"));
	assert_non_null(strstr(svg, ">25.0<"));
	assert_null(strstr(svg, "a category with a name that needs two lines<"));
	assert_null(strstr(svg, "nan"));
	free(svg);
	plot_free(p);
}

static void texts_cannot_become_markup(void **state)
{
	struct plot *p = plot_new("evil", PLOT_LINES, plain, plain);
	char *svg;

	plot_point(p, plot_series(p, "<b>\"x\" & 'y'"), 1, 1);
	plot_point(p, plot_series(p, "other"), 1, 1);
	plot_title(p, "</svg><script>alert(1)</script>");
	svg = written(plot_svg, p);
	assert_int_equal(count(svg, "</svg>"), 1);
	assert_null(strstr(svg, "<script"));
	assert_non_null(strstr(svg, "&lt;b&gt;&quot;x&quot; &amp; &#39;y&#39;"));
	free(svg);
	plot_free(p);
}

static void csv_has_a_line_per_point_and_quotes_what_must_be(void **state)
{
	struct plot *p =
		plot_new("csv", PLOT_LINES, (struct plot_axis){ "size, bytes", PLOT_BYTES, true }, plain);
	struct plot *bars = plot_new("bars", PLOT_BARS, plain, (struct plot_axis){ 0 });
	char *csv;

	plot_point(p, plot_series(p, "the \"best\""), 1048576, 2.5);
	csv = written(plot_csv, p);
	assert_string_equal(csv, "series,\"size, bytes\",things\n\"the \"\"best\"\"\",1048576,2.5\n");
	free(csv);
	plot_bar(bars, plot_series(bars, "s"), "c", 3);
	csv = written(plot_csv, bars);
	assert_string_equal(csv, "series,category,things\ns,c,3\n");
	free(csv);
	plot_free(p);
	plot_free(bars);
}

static void more_series_than_can_be_told_apart_share_the_last(void **state)
{
	struct plot *p = plot_new("many", PLOT_LINES, plain, plain);
	char name[16];

	for (int i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "series %d", i);
		assert_true(plot_series(p, name) < PLOT_SERIES_MAX);
	}
	assert_int_equal(p->count, PLOT_SERIES_MAX);
	plot_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_series_is_a_line_with_markers),
		cmocka_unit_test(what_a_logarithmic_axis_cannot_show_is_left_out),
		cmocka_unit_test(bars_have_their_category_and_value),
		cmocka_unit_test(texts_cannot_become_markup),
		cmocka_unit_test(csv_has_a_line_per_point_and_quotes_what_must_be),
		cmocka_unit_test(more_series_than_can_be_told_apart_share_the_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

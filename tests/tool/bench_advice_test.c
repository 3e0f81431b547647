/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "tool/bench.h"

#define POINTS 4

/* A plot of the reuse part: 1, 4, 16 and 64 uses. */
static void draw(struct plot *p, const double *pinned, const double *on_demand)
{
	double uses = 1;

	plot_series(p, "pinned");
	plot_series(p, "on demand");
	for (int i = 0; i < POINTS; i++, uses *= 4) {
		if (pinned)
			plot_point(p, 0, uses, pinned[i]);
		plot_point(p, 1, uses, on_demand[i]);
	}
}

static double break_even(const double *pinned, const double *on_demand)
{
	const struct plot_axis axis = { "x", PLOT_NUMBER, true };
	struct plot *p = plot_new("reuse_64", PLOT_LINES, axis, axis);
	double at;

	draw(p, pinned, on_demand);
	at = bench_break_even(p);
	plot_free(p);
	return at;
}

static void pinning_pays_where_the_lines_cross(void **state)
{
	static const double early[] = { 1, 2, 3, 4 }, late[] = { 2, 3, 4, 5 }, steep[] = { 0.5, 1, 4, 9 },
			    same[] = { 1.01, 1.98, 3.02, 4.1 };

	/* Between 4 uses and 16, in the middle on a logarithmic axis. */
	assert_float_equal(break_even(early, steep), 8, 1e-9);
	assert_float_equal(break_even(early, late), 0, 0);
	assert_true(isinf(break_even(late, early)));
	/* Less than a twentieth is no difference. */
	assert_float_equal(break_even(early, same), -1, 0);
	assert_true(isnan(break_even(NULL, early)));
}

static void each_answer_is_said_in_words(void **state)
{
	static const double early[] = { 1, 2, 3, 4 }, late[] = { 2, 3, 4, 5 }, steep[] = { 0.5, 1, 4, 9 };
	static const struct {
		const double *pinned, *on_demand;
		const char *words;
	} cases[] = {
		{ early, steep, "1 MiB: about 8 uses" },
		{ early, late, "1 MiB: the first use" },
		{ late, early, "1 MiB: not reached in 64 uses" },
		{ early, early, "1 MiB: none" },
	};
	static const struct report_column columns[] = { { "size", "bytes", "size" } };
	const struct plot_axis axis = { "x", PLOT_NUMBER, true };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct report r = { 0 };
		struct report_part *p = report_part(&r, "reuse", "Reuse", "Reuse.", columns, 1);

		draw(report_plot(p, "1024", PLOT_LINES, axis, axis), cases[i].pinned, cases[i].on_demand);
		bench_advice(&r);
		p = report_find(&r, "advice");
		assert_non_null(p);
		assert_non_null(strstr(p->note[0], cases[i].words));
		report_free(&r);
	}
}

static void without_figures_there_is_no_advice(void **state)
{
	static const struct report_column columns[] = { { "size", "bytes", "size" } };
	struct report r = { 0 };

	/* Parts that were begun and not measured. */
	report_part(&r, "reuse", "Reuse", "Reuse.", columns, 1);
	report_part(&r, "sizes", "Sizes", "Sizes.", columns, 1);
	report_row(report_part(&r, "prefetch", "Prefetch", "Prefetch.", columns, 1));
	report_row(report_part(&r, "distribution", "Distribution", "Distribution.", columns, 1));
	bench_advice(&r);
	assert_null(report_find(&r, "advice"));
	report_free(&r);
}

static void a_device_that_delivers_wrong_data_has_one_advice(void **state)
{
	static const double early[] = { 1, 2, 3, 4 }, late[] = { 2, 3, 4, 5 };
	static const struct report_column columns[] = { { "size", "bytes", "size" } };
	const struct plot_axis axis = { "x", PLOT_NUMBER, true };
	struct report r = { 0 };
	struct report_part *p = report_part(&r, "reuse", "Reuse", "Reuse.", columns, 1);

	draw(report_plot(p, "1024", PLOT_LINES, axis, axis), late, early);
	report_fact_text(&r, "wrong_data", "x0 delivers wrong bytes");
	bench_advice(&r);
	p = report_find(&r, "advice");
	assert_non_null(p);
	assert_int_equal(p->notes, 1);
	assert_non_null(strstr(p->note[0], "Do not use on-demand memory on this device: x0 delivers"));
	report_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pinning_pays_where_the_lines_cross),
		cmocka_unit_test(each_answer_is_said_in_words),
		cmocka_unit_test(without_figures_there_is_no_advice),
		cmocka_unit_test(a_device_that_delivers_wrong_data_has_one_advice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool/alloc.h"
#include "tool/units.h"

/* Everything is laid out in these units; the drawing grows and shrinks as a whole. */
#define WIDTH	    720.0
#define RIGHT	    28.0
#define LEFT_LINES  84.0
#define LEFT_BARS   236.0
#define AREA_HEIGHT 300.0 /* of lines */
#define CHAR	    7.4	  /* a character of the axis text is about so wide, at 12 units of size */
#define TITLE_CHAR  9.9
#define TITLE_LINE  20.0
#define LEGEND_LINE 20.0
#define BAR	    14.0
#define TICKS_MAX   64

static char *copy(const char *text)
{
	return alloc_text("%s", text);
}

/* --- building ----------------------------------------------------------------------------------------------
 */

struct plot *plot_new(const char *key, enum plot_kind kind, struct plot_axis x, struct plot_axis y)
{
	struct plot *p = alloc_array(1, sizeof(*p));

	*p = (struct plot){ .kind = kind, .x = x, .y = y, .key = copy(key), .title = copy("") };
	return p;
}

void plot_free(struct plot *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->count; i++) {
		free(p->series[i].name);
		free(p->series[i].point);
	}
	for (size_t i = 0; i < p->categories; i++)
		free(p->category[i]);
	free(p->category);
	free(p->key);
	free(p->title);
	free(p);
}

void plot_title(struct plot *p, const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	free(p->title);
	p->title = text;
}

size_t plot_series(struct plot *p, const char *name)
{
	for (size_t i = 0; i < p->count; i++)
		if (strcmp(p->series[i].name, name) == 0)
			return i;
	if (p->count == PLOT_SERIES_MAX)
		return PLOT_SERIES_MAX - 1;
	p->series[p->count].name = copy(name);
	return p->count++;
}

void plot_point(struct plot *p, size_t series, double x, double y)
{
	struct plot_series *s = &p->series[series];

	if ((s->points & (s->points - 1)) == 0)
		s->point = alloc_grow(s->point, s->points ? 2 * s->points : 1, sizeof(*s->point));
	s->point[s->points++] = (struct plot_point){ x, y };
}

static size_t category(struct plot *p, const char *name)
{
	for (size_t i = 0; i < p->categories; i++)
		if (strcmp(p->category[i], name) == 0)
			return i;
	p->category = alloc_grow(p->category, p->categories + 1, sizeof(*p->category));
	p->category[p->categories] = copy(name);
	return p->categories++;
}

void plot_bar(struct plot *p, size_t series, const char *name, double value)
{
	plot_point(p, series, value, (double)category(p, name));
}

static bool can_draw(const struct plot *p, const struct plot_point *a)
{
	return isfinite(a->x) && isfinite(a->y) && (!p->x.log || a->x > 0) &&
	       (p->kind == PLOT_BARS || !p->y.log || a->y > 0);
}

static size_t series_drawn(const struct plot *p, const struct plot_series *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->points; i++)
		n += can_draw(p, &s->point[i]);
	return n;
}

size_t plot_drawn(const struct plot *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->count; i++)
		n += series_drawn(p, &p->series[i]);
	return n;
}

/* --- text --------------------------------------------------------------------------------------------------
 */

void plot_escape(FILE *out, const char *text)
{
	static const struct {
		char c;
		const char *entity;
	} entities[] = { { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '"', "&quot;" },
		{ '\'', "&#39;" } };

	for (; *text; text++) {
		const char *entity = NULL;

		for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]); i++)
			if (entities[i].c == *text)
				entity = entities[i].entity;
		if (entity)
			fputs(entity, out);
		else if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t')
			fputc(*text, out);
	}
}

void plot_quote(FILE *out, const char *text)
{
	if (!text[strcspn(text, ",\"\r\n")]) {
		fputs(text, out);
		return;
	}
	fputc('"', out);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputc('"', out);
}

static void text_at(FILE *out, double x, double y, const char *anchor, const char *class, const char *text)
{
	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s%s%s>", x, y, anchor,
		class ? " class=\"" : "", class ? class : "", class ? "\"" : "");
	plot_escape(out, text);
	fputs("</text>\n", out);
}

/* The length of the next line of at most room bytes, broken at a blank. */
static size_t line_of(const char *text, size_t room)
{
	size_t best = 0;

	for (size_t i = 0;; i++) {
		if (text[i] && text[i] != ' ')
			continue;
		if (i > room && best)
			return best;
		best = i;
		if (!text[i] || i > room)
			return best;
	}
}

/* Lines of at most room characters, below each other from y on; draws nothing when out is NULL. Returns how
 * many. */
static unsigned wrapped(FILE *out, double x, double y, double step, const char *anchor, const char *class,
	const char *text, size_t room)
{
	unsigned lines = 0;

	while (*text) {
		size_t n = line_of(text, room);
		char *line = alloc_text("%.*s", (int)n, text);

		if (out)
			text_at(out, x, y + step * lines, anchor, class, line);
		free(line);
		lines++;
		text += n;
		text += strspn(text, " ");
	}
	return lines;
}

/* --- axes --------------------------------------------------------------------------------------------------
 */

struct scale {
	const struct plot_axis *axis;
	double low, high; /* values */
	double from, to;  /* places on the drawing */
	double tick[TICKS_MAX];
	unsigned ticks;
};

static double place(const struct scale *s, double v)
{
	double part =
		s->axis->log ? log(v / s->low) / log(s->high / s->low) : (v - s->low) / (s->high - s->low);

	return s->from + part * (s->to - s->from);
}

/* Decades, or powers of four for bytes; every nth of them, so that there are no more than six or so. */
static void scale_log(struct scale *s)
{
	double base = s->axis->unit == PLOT_BYTES ? 4 : 10;
	int first = (int)floor(log(s->low) / log(base) + 1e-9),
	    last = (int)ceil(log(s->high) / log(base) - 1e-9);
	int step;

	if (last == first)
		last++;
	step = (last - first + 6) / 7;
	s->low = pow(base, first);
	s->high = pow(base, last);
	for (int e = first; e <= last && s->ticks < TICKS_MAX; e += step)
		s->tick[s->ticks++] = pow(base, e);
	/* One or two decades would have hardly a number on them. */
	if (base != 10 || last - first > 3)
		return;
	s->ticks = 0;
	for (int e = first; e < last; e++)
		for (int i = 0; i < 3 && s->ticks < TICKS_MAX; i++)
			s->tick[s->ticks++] = pow(10, e) * (i == 0 ? 1 : i == 1 ? 2 : 5);
	s->tick[s->ticks++] = s->high;
}

static double nice_step(double span, bool bytes)
{
	double raw = span / 5, unit = bytes ? pow(2, floor(log2(raw))) : pow(10, floor(log10(raw)));

	if (bytes)
		return raw > unit ? 2 * unit : unit;
	return raw <= unit ? unit : raw <= 2 * unit ? 2 * unit : raw <= 5 * unit ? 5 * unit : 10 * unit;
}

static void scale_linear(struct scale *s)
{
	double step;

	s->low = s->low > 0 ? 0 : s->low;
	if (s->high <= s->low)
		s->high = s->low + 1;
	step = nice_step(s->high - s->low, s->axis->unit == PLOT_BYTES);
	s->low = floor(s->low / step) * step;
	s->high = ceil(s->high / step - 1e-9) * step;
	for (double v = s->low; v <= s->high + step / 2 && s->ticks < TICKS_MAX; v += step)
		s->tick[s->ticks++] = fabs(v) < step / 1e6 ? 0 : v;
}

/* Lines go from edge to edge: the axis begins and ends with the data, and keeps the numbers between. */
static void fit(struct scale *s, double low, double high)
{
	unsigned kept = 0;

	if (high <= low)
		return;
	s->low = s->axis->log ? low : fmin(s->low, low);
	s->high = high;
	for (unsigned i = 0; i < s->ticks; i++)
		if (s->tick[i] >= s->low * 0.999 && s->tick[i] <= s->high * 1.001)
			s->tick[kept++] = s->tick[i];
	s->ticks = kept;
}

static struct scale scale_of(const struct plot *p, bool of_x, double from, double to)
{
	struct scale s = {
		.axis = of_x ? &p->x : &p->y, .low = INFINITY, .high = -INFINITY, .from = from, .to = to
	};
	double low, high;

	for (size_t i = 0; i < p->count; i++) {
		for (size_t j = 0; j < p->series[i].points; j++) {
			const struct plot_point *a = &p->series[i].point[j];
			double v = of_x ? a->x : a->y;

			if (!can_draw(p, a))
				continue;
			s.low = fmin(s.low, v);
			s.high = fmax(s.high, v);
		}
	}
	if (s.low > s.high) {
		s.low = 1;
		s.high = 10;
	}
	low = s.low;
	high = s.high;
	if (s.axis->log)
		scale_log(&s);
	else
		scale_linear(&s);
	if (of_x && p->kind != PLOT_BARS)
		fit(&s, low, high);
	return s;
}

static void tick_text(char buf[UNITS_MAX], enum plot_unit unit, double v)
{
	static const char *const times[] = { "ns", "us", "ms", "s" };
	static const char *const large[] = { "", "k", "M", "G" };
	const char *name = "";
	unsigned i = 0;

	if (unit == PLOT_BYTES) {
		units_bytes(buf, units_whole(fabs(v)));
		return;
	}
	if (unit == PLOT_US && v) {
		for (v *= 1000; fabs(v) >= 999.999 && i < 3; i++)
			v /= 1000;
		name = times[i];
	} else if (unit == PLOT_NUMBER) {
		for (; fabs(v) >= 9999.999 && i < 3; i++)
			v /= 1000;
		name = large[i];
	}
	snprintf(buf, UNITS_MAX, "%.4g%s%s", v, unit == PLOT_US && *name ? " " : "", name);
}

/* --- drawing -----------------------------------------------------------------------------------------------
 */

/* Every drawing says what it looks like, so that it does as a file too; inside of a page they agree. The
 * colours are those of Okabe and Ito, lighter where the ground is dark. */
static const char style[] =
	"<style>"
	".up{--g:#fff;--i:#1a1a1a;--m:#595959;--l:#d9d9d9;--c0:#0072b2;--c1:#d55e00;--c2:#00805c;--c3:#"
	"a8478a;"
	"--c4:#8f6400;--c5:#3a3a3a;background:var(--g);font:12px system-ui,'DejaVu Sans',sans-serif}"
	"@media(prefers-color-scheme:dark){.up{--g:#16181c;--i:#ececec;--m:#a8a8a8;--l:#3a3d44;--c0:#56b4e9;"
	"--c1:#ff8c42;--c2:#2fc79a;--c3:#e39ccb;--c4:#f0c341;--c5:#d0d0d0}}"
	".up text{fill:var(--m)}.up .t{fill:var(--i);font-size:15px;font-weight:600}.up .k{fill:var(--i)}"
	".up .g{stroke:var(--l);fill:none;stroke-width:1}.up .a{stroke:var(--m);fill:none;stroke-width:1}"
	".up .n{fill:none;stroke-width:2.2;stroke-linejoin:round}"
	".up .s0{stroke:var(--c0)}.up .s1{stroke:var(--c1);stroke-dasharray:8 4}"
	".up .s2{stroke:var(--c2);stroke-dasharray:2 3}.up .s3{stroke:var(--c3);stroke-dasharray:10 3 2 3}"
	".up .s4{stroke:var(--c4);stroke-dasharray:5 2}.up .s5{stroke:var(--c5);stroke-dasharray:1 2}"
	".up .f0{fill:var(--c0)}.up .f1{fill:var(--c1)}.up .f2{fill:var(--c2)}.up .f3{fill:var(--c3)}"
	".up .f4{fill:var(--c4)}.up .f5{fill:var(--c5)}"
	"</style>\n";

/* The shape of a series' marker around 0,0. */
static const char *const markers[PLOT_SERIES_MAX] = {
	"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
	"M-3.6 -3.6h7.2v7.2h-7.2z",
	"M0 -4.8L4.6 3.6H-4.6z",
	"M0 -5L5 0L0 5L-5 0z",
	"M0 4.8L4.6 -3.6H-4.6z",
	"M-4.5 -1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",
};

static void marker(FILE *out, size_t series, double x, double y)
{
	fprintf(out, "<path class=\"f%zu\" transform=\"translate(%.1f %.1f)\" d=\"%s\"/>\n", series, x, y,
		markers[series]);
}

/* One entry after the other, on a new line where the next would not fit. Returns the lines; draws nothing
 * when out is NULL. */
static unsigned legend(FILE *out, const struct plot *p, double top)
{
	double x = 20;
	unsigned line = 0;

	if (p->count < 2)
		return 0;
	for (size_t i = 0; i < p->count; i++) {
		double width = 44 + CHAR * (double)strlen(p->series[i].name), y;

		if (!series_drawn(p, &p->series[i]))
			continue;
		if (x > 20 && x + width > WIDTH - RIGHT) {
			x = 20;
			line++;
		}
		y = top + LEGEND_LINE * line;
		if (out && p->kind != PLOT_BARS)
			fprintf(out, "<path class=\"n s%zu\" d=\"M%.1f %.1fh24\"/>\n", i, x, y - 4);
		if (out && p->kind != PLOT_CURVES)
			marker(out, i, x + 12, y - 4);
		if (out)
			text_at(out, x + 30, y, "start", "k", p->series[i].name);
		x += width;
	}
	return line + 1;
}

static void draw_x_axis(FILE *out, const struct plot *p, const struct scale *x, double top, double bottom)
{
	double last = -INFINITY;
	char text[UNITS_MAX];

	for (unsigned i = 0; i < x->ticks; i++) {
		double at = place(x, x->tick[i]), half;

		fprintf(out, "<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/>\n", at, top, bottom);
		tick_text(text, p->x.unit, x->tick[i]);
		half = CHAR * (double)strlen(text) / 2;
		if (at - half < last + 4)
			continue;
		text_at(out, at, bottom + 16, "middle", NULL, text);
		last = at + half;
	}
	fprintf(out, "<path class=\"a\" d=\"M%.1f %.1fH%.1f\"/>\n", x->from, bottom, x->to);
	text_at(out, (x->from + x->to) / 2, bottom + 36, "middle", NULL, p->x.label);
}

static void draw_y_axis(FILE *out, const struct plot *p, const struct scale *y, double left, double right)
{
	double middle = (y->from + y->to) / 2;
	char text[UNITS_MAX];

	for (unsigned i = 0; i < y->ticks; i++) {
		double at = place(y, y->tick[i]);

		fprintf(out, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/>\n", left, at, right);
		tick_text(text, p->y.unit, y->tick[i]);
		text_at(out, left - 6, at + 4, "end", NULL, text);
	}
	fprintf(out, "<path class=\"a\" d=\"M%.1f %.1fV%.1f\"/>\n", left, y->to, y->from);
	fprintf(out, "<text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">", middle);
	plot_escape(out, p->y.label);
	fputs("</text>\n", out);
}

/* Points nearer than half a unit to the last one say nothing more. */
static void draw_series(
	FILE *out, const struct plot *p, size_t i, const struct scale *x, const struct scale *y)
{
	const struct plot_series *s = &p->series[i];
	double last_x = -INFINITY, last_y = -INFINITY;
	unsigned drawn = 0;

	for (size_t j = 0; j < s->points; j++) {
		double at_x, at_y;

		if (!can_draw(p, &s->point[j]))
			continue;
		at_x = place(x, s->point[j].x);
		at_y = place(y, s->point[j].y);
		if (fabs(at_x - last_x) + fabs(at_y - last_y) < 0.5 && j + 1 < s->points)
			continue;
		if (!drawn++)
			fprintf(out, "<path class=\"n s%zu\" d=\"M", i);
		else
			fputc('L', out);
		fprintf(out, "%.1f %.1f", at_x, at_y);
		last_x = at_x;
		last_y = at_y;
	}
	/* A single point has a marker, or is shown as a short dash. */
	if (drawn)
		fputs(drawn == 1 ? "h.1\"/>\n" : "\"/>\n", out);
	for (size_t j = 0; (p->kind == PLOT_LINES || drawn == 1) && j < s->points; j++)
		if (can_draw(p, &s->point[j]))
			marker(out, i, place(x, s->point[j].x), place(y, s->point[j].y));
}

static void draw_lines(FILE *out, const struct plot *p, double top)
{
	double bottom = top + AREA_HEIGHT;
	struct scale x = scale_of(p, true, LEFT_LINES, WIDTH - RIGHT);
	struct scale y = scale_of(p, false, bottom, top);

	draw_x_axis(out, p, &x, top, bottom);
	draw_y_axis(out, p, &y, LEFT_LINES, WIDTH - RIGHT);
	for (size_t i = 0; i < p->count; i++)
		draw_series(out, p, i, &x, &y);
}

/* Room for the bars of one category, and for two lines of its name. */
static double category_height(const struct plot *p)
{
	double height = (BAR + 3) * (double)p->count + 14;

	return height < 40 ? 40 : height;
}

static void draw_bar(FILE *out, const struct plot *p, const struct scale *x, size_t i,
	const struct plot_point *a, double y)
{
	double start = p->x.log ? x->from : place(x, 0), at = place(x, a->x), h = BAR;
	char text[UNITS_MAX], digits[UNITS_MAX];

	if (p->x.log) {
		fprintf(out, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/>\n", start, y + h / 2, at);
		marker(out, i, at, y + h / 2);
		at += 6;
	} else {
		fprintf(out, "<path class=\"f%zu\" d=\"M%.1f %.1fH%.1fv%.1fH%.1fz\"/>\n", i, start, y,
			fabs(at - start) < 1 ? start + 1 : at, h, start);
	}
	if (p->x.unit == PLOT_NUMBER)
		snprintf(text, sizeof(text), "%s", units_digits(digits, a->x));
	else
		tick_text(text, p->x.unit, a->x);
	text_at(out, fmax(at, start) + 5, y + h - 3, "start", "k", text);
}

static void draw_bars(FILE *out, const struct plot *p, double top)
{
	double each = category_height(p), bottom = top + each * (double)p->categories;
	/* Room for the number at the end of the longest bar. */
	struct scale x = scale_of(p, true, LEFT_BARS, WIDTH - RIGHT - 44);

	draw_x_axis(out, p, &x, top, bottom);
	for (size_t c = 0; c < p->categories; c++) {
		double middle = top + each * ((double)c + 0.5);
		unsigned lines = wrapped(NULL, 0, 0, 0, "end", NULL, p->category[c], 29);

		wrapped(out, LEFT_BARS - 8, middle + 4 - 7 * (lines - 1.0), 14, "end", "k", p->category[c],
			29);
	}
	for (size_t i = 0; i < p->count; i++) {
		for (size_t j = 0; j < p->series[i].points; j++) {
			const struct plot_point *a = &p->series[i].point[j];
			double y = top + each * (a->y + 0.5) - (BAR + 3) * (double)p->count / 2 +
				   (BAR + 3) * (double)i + 1.5;

			if (can_draw(p, a))
				draw_bar(out, p, &x, i, a, y);
		}
	}
	fprintf(out, "<path class=\"a\" d=\"M%.1f %.1fV%.1f\"/>\n", LEFT_BARS, top, bottom);
}

void plot_svg(const struct plot *p, FILE *out)
{
	size_t room = (size_t)((WIDTH - 40) / TITLE_CHAR);
	unsigned lines = wrapped(NULL, 0, 0, 0, "start", "t", p->title, room);
	double legend_top = 26 + TITLE_LINE * lines;
	double top = legend_top + LEGEND_LINE * legend(NULL, p, 0) - 2;
	double area = p->kind == PLOT_BARS ? category_height(p) * (double)p->categories : AREA_HEIGHT;

	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"up\" role=\"img\" viewBox=\"0 0 %.0f "
		"%.0f\" "
		"width=\"%.0f\" height=\"%.0f\" aria-label=\"",
		WIDTH, top + area + 48, WIDTH, top + area + 48);
	plot_escape(out, p->title);
	fputs("\">\n", out);
	fputs(style, out);
	wrapped(out, 20, 24, TITLE_LINE, "start", "t", p->title, room);
	legend(out, p, legend_top);
	if (p->kind == PLOT_BARS)
		draw_bars(out, p, top);
	else
		draw_lines(out, p, top);
	fputs("</svg>\n", out);
}

void plot_csv(const struct plot *p, FILE *out)
{
	bool bars = p->kind == PLOT_BARS;

	fprintf(out, "series,");
	plot_quote(out, bars ? "category" : p->x.label);
	fputc(',', out);
	plot_quote(out, bars ? p->x.label : p->y.label);
	fputc('\n', out);
	for (size_t i = 0; i < p->count; i++) {
		for (size_t j = 0; j < p->series[i].points; j++) {
			const struct plot_point *a = &p->series[i].point[j];

			plot_quote(out, p->series[i].name);
			fputc(',', out);
			if (bars)
				plot_quote(out, p->category[(size_t)a->y]);
			else
				fprintf(out, "%.10g", a->x);
			fprintf(out, ",%.10g\n", bars ? a->x : a->y);
		}
	}
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/page.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool/alloc.h"
#include "tool/units.h"

/* The second line of index.html: the names of the files that belong to it, so that a later report can tell
 * what it may replace. */
#define MARK "<!-- unpin bench report:"

static int complain(char why[PAGE_WHY_MAX], int err, const char *what, const char *folder, const char *name)
{
	snprintf(why, PAGE_WHY_MAX, "cannot %s %s%s%s: %s", what, folder, *name ? "/" : "", name,
		strerror(-err));
	return err;
}

static void path_of(char path[PATH_MAX], const char *folder, const char *name)
{
	snprintf(path, PATH_MAX, "%s/%s", folder, name);
}

/* --- one file ----------------------------------------------------------------------------------------------
 */

struct file {
	FILE *out;
	char path[PATH_MAX], temporary[PATH_MAX];
};

static int file_begin(struct file *f, const char *folder, const char *name)
{
	path_of(f->path, folder, name);
	snprintf(f->temporary, sizeof(f->temporary), "%.4000s/.%.80s.new", folder, name);
	f->out = fopen(f->temporary, "we");
	return f->out ? 0 : -errno;
}

/* A full disk is told by one of these; then the file of before stays. */
static int file_end(struct file *f)
{
	bool failed;
	int err;

	errno = 0;
	failed = fflush(f->out) || ferror(f->out);
	err = failed ? (errno ? -errno : -EIO) : 0;
	if (fclose(f->out) && !err)
		err = -errno;
	if (!err && rename(f->temporary, f->path))
		err = -errno;
	if (err)
		unlink(f->temporary);
	return err;
}

/* --- the folder --------------------------------------------------------------------------------------------
 */

static bool is_plain(const char *name)
{
	return *name && name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.")] == '\0' && *name != '.';
}

/* Takes away what an earlier page says is its own, the page last. False: the folder has no such page. */
static bool remove_earlier(const char *folder)
{
	char path[PATH_MAX], index[PATH_MAX], line[8192], *rest, *name;
	bool ours;
	FILE *f;

	path_of(index, folder, "index.html");
	f = fopen(index, "re");
	if (!f)
		return false;
	/* The second line. NOLINTNEXTLINE(misc-redundant-expression) */
	ours = fgets(line, sizeof(line), f) && fgets(line, sizeof(line), f) &&
	       strncmp(line, MARK, strlen(MARK)) == 0;
	fclose(f);
	if (!ours)
		return false;
	for (name = strtok_r(line + strlen(MARK), " \n", &rest); name; name = strtok_r(NULL, " \n", &rest)) {
		if (!is_plain(name))
			continue;
		path_of(path, folder, name);
		unlink(path);
	}
	unlink(index);
	return true;
}

/* The name of something that is in the folder; "" when it is empty. */
static int find_something(const char *folder, char name[NAME_MAX + 1])
{
	DIR *d = opendir(folder);
	const struct dirent *e;

	*name = 0;
	if (!d)
		return -errno;
	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			snprintf(name, NAME_MAX + 1, "%s", e->d_name);
	closedir(d);
	return 0;
}

int page_prepare(const char *folder, bool *replaces, char why[PAGE_WHY_MAX])
{
	char name[NAME_MAX + 1];
	struct file probe;
	int err;

	*replaces = false;
	if (mkdir(folder, 0777) && errno != EEXIST)
		return complain(why, -errno, "make the folder", folder, "");
	err = find_something(folder, name);
	if (err)
		return complain(why, err, "use the folder", folder, "");
	if (*name) {
		*replaces = remove_earlier(folder);
		if (!*replaces) {
			snprintf(why, PAGE_WHY_MAX,
				"the folder %s has other things in it (%s) and no report: nothing is written "
				"there; "
				"name one that is new or empty",
				folder, name);
			return -ENOTEMPTY;
		}
	}
	/* Now, and not after an hour of measurements. */
	err = file_begin(&probe, folder, "probe");
	if (err)
		return complain(why, err, "write into", folder, "");
	err = file_end(&probe);
	unlink(probe.path);
	return err ? complain(why, err, "write into", folder, "") : 0;
}

/* --- the page ----------------------------------------------------------------------------------------------
 */

static const char head[] =
	"<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	"<meta name=\"color-scheme\" content=\"light dark\">\n"
	"<style>\n"
	":root{--ground:#fff;--ink:#1a1a1a;--soft:#595959;--line:#d9d9d9;--panel:#f4f5f7;--link:#0062a3;--"
	"good:#00694b;"
	"--bad:#b34700}\n"
	"@media(prefers-color-scheme:dark){:root{--ground:#16181c;--ink:#ececec;--soft:#a8a8a8;--line:#"
	"3a3d44;"
	"--panel:#1f2228;--link:#7cc4f2;--good:#4fd1a5;--bad:#ff9d5c}}\n"
	"body{margin:0 auto;max-width:1060px;padding:24px;background:var(--ground);color:var(--ink);"
	"font:16px/1.5 system-ui,'DejaVu Sans',sans-serif}\n"
	"h1{font-size:1.7em;margin:0 0 .2em}h2{margin:2.2em 0 .3em;padding-top:.6em;border-top:1px solid "
	"var(--line)}"
	"h3{margin:1.6em 0 .4em}\n"
	"a{color:var(--link)}p{max-width:75ch}.soft{color:var(--soft)}\n"
	".warn{background:var(--panel);border-left:5px solid var(--bad);padding:.6em 1em}\n"
	".advice{background:var(--panel);border-left:5px solid var(--good);padding:.4em "
	"1em;list-style-position:inside}\n"
	".advice li{margin:.5em 0}\n"
	".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.82em;margin:.8em 0}\n"
	"th,td{padding:.3em .7em;border-bottom:1px solid var(--line);text-align:right;vertical-align:top;"
	"font-variant-numeric:tabular-nums}\n"
	"td{white-space:nowrap}td.w{white-space:normal;min-width:9em}th{font-weight:600;vertical-align:"
	"bottom}\n"
	".w{text-align:left}.met{color:var(--good)}.missed{color:var(--bad);font-weight:600}\n"
	"figure{margin:1.2em 0}svg{max-width:100%;height:auto;display:block}\n"
	"figcaption,.files{font-size:.82em;color:var(--soft)}\n"
	"@media print{h2{break-after:avoid}figure,table{break-inside:avoid}}\n"
	"</style>\n";

static bool flag(const struct report *r, const char *key)
{
	const struct report_fact *f = report_find_fact(r, key);

	return f && f->kind == REPORT_FLAG && f->number;
}

static const char *text_fact(const struct report *r, const char *key)
{
	const struct report_fact *f = report_find_fact(r, key);

	return f && f->kind == REPORT_TEXT ? f->text : "?";
}

static void element(FILE *out, const char *begin, const char *text, const char *end)
{
	fputs(begin, out);
	plot_escape(out, text);
	fputs(end, out);
}

static void write_state(FILE *out, const struct report *r)
{
	if (flag(r, "interrupted"))
		fputs("<p class=\"warn\"><strong>This report is partial:</strong> the measurement was "
		      "interrupted. What is shown had been measured until then.</p>\n",
			out);
	else if (!flag(r, "finished"))
		fputs("<p class=\"warn\"><strong>This report is partial:</strong> the measurement is still "
		      "running, or was ended before it could say so. What is shown had been measured until "
		      "then.</p>\n",
			out);
	if (report_find_fact(r, "wrong_data"))
		element(out,
			"<p class=\"warn\">What is on demand here tells how long requests take, not that "
			"they "
			"work: ",
			text_fact(r, "wrong_data"), ".</p>\n");
	if (flag(r, "busy"))
		fputs("<p class=\"warn\">The machine was busy when this began: expect figures that are too "
		      "slow, "
		      "and wide spreads.</p>\n",
			out);
}

/* The sentences that the plots prove, each leading to its plot. */
static void write_findings(FILE *out, const struct report *r)
{
	bool any = false;

	for (size_t i = 0; i < r->parts; i++) {
		for (size_t j = 0; j < r->part[i].plots; j++) {
			const struct plot *p = r->part[i].plot[j];

			if (!plot_drawn(p))
				continue;
			if (!any)
				fputs("<h3>What was found</h3>\n<ul>\n", out);
			any = true;
			fprintf(out, "<li><a href=\"#%s\">", p->key);
			plot_escape(out, p->title);
			fputs("</a></li>\n", out);
		}
	}
	if (any)
		fputs("</ul>\n", out);
}

static void write_facts(FILE *out, const struct report *r)
{
	char name[64], value[128];

	fputs("<h2 id=\"machine\">The machine and the run</h2>\n<table>\n", out);
	for (size_t i = 0; i < r->facts; i++) {
		if (strcmp(r->fact[i].key, "wrong_data") == 0)
			continue; /* stands on top */
		report_fact_words(&r->fact[i], name, value);
		element(out, "<tr><th class=\"w\">", name, "</th>");
		element(out, "<td class=\"w\">", value, "</td></tr>\n");
	}
	fputs("</table>\n", out);
}

static void write_target(FILE *out, const struct report_target *t, const char *part)
{
	char value[UNITS_MAX], limit[UNITS_MAX];
	bool met = report_is_met(t);

	fprintf(out, "<tr><td class=\"w %s\">%s</td><td class=\"w\">", met ? "met" : "missed",
		met ? "&#10003; met" : "&#10007; missed");
	plot_escape(out, t->what);
	fprintf(out, "</td><td>%s ", units_digits(value, t->value));
	plot_escape(out, t->unit);
	fprintf(out, "</td><td>%s %s ", t->at_most ? "at most" : "at least", units_digits(limit, t->limit));
	plot_escape(out, t->unit);
	fprintf(out, "</td><td class=\"w\"><a href=\"#%s\">%s</a></td></tr>\n", part, part);
}

static void write_targets(FILE *out, const struct report *r)
{
	bool any = false;

	for (size_t i = 0; i < r->parts; i++) {
		for (size_t j = 0; j < r->part[i].targets; j++) {
			if (!any)
				fputs("<h2 id=\"targets\">Targets</h2>\n<p>What the project set itself for "
				      "its own "
				      "device, on an idle machine.</p>\n<div class=\"wide\"><table>\n"
				      "<tr><th class=\"w\"></th><th class=\"w\">target</th><th>measured</th>"
				      "<th>aimed at</th><th class=\"w\">part</th></tr>\n",
					out);
			any = true;
			write_target(out, &r->part[i].target[j], r->part[i].key);
		}
	}
	if (any)
		fputs("</table></div>\n", out);
}

static void write_table(FILE *out, const struct report_part *p)
{
	struct table t;

	if (!report_grid(p, &t))
		return;
	fputs("<div class=\"wide\"><table>\n<tr>", out);
	for (size_t c = 0; c < t.columns; c++) {
		bool words = t.headings[c][0] == '<';

		element(out, words ? "<th class=\"w\">" : "<th>", t.headings[c] + words, "</th>");
	}
	fputs("</tr>\n", out);
	for (size_t i = 0; i + t.columns <= t.cells; i += t.columns) {
		fputs("<tr>", out);
		for (size_t c = 0; c < t.columns; c++)
			element(out, t.headings[c][0] == '<' ? "<td class=\"w\">" : "<td>", t.cell[i + c],
				"</td>");
		fputs("</tr>\n", out);
	}
	fputs("</table></div>\n", out);
	report_grid_free(&t);
}

static void write_plot(FILE *out, const struct plot *p)
{
	if (!plot_drawn(p))
		return;
	fprintf(out, "<figure id=\"%s\">\n", p->key);
	plot_svg(p, out);
	fprintf(out,
		"<figcaption><a href=\"%s.svg\">%s.svg</a>, <a href=\"%s.csv\">%s.csv</a></figcaption>\n"
		"</figure>\n",
		p->key, p->key, p->key, p->key);
}

static void write_part(FILE *out, const struct report_part *p)
{
	fprintf(out, "<h2 id=\"%s\">", p->key);
	element(out, "", p->title, "</h2>\n");
	element(out, "<p>", p->meaning, "</p>\n");
	for (size_t i = 0; i < p->plots; i++)
		write_plot(out, p->plot[i]);
	write_table(out, p);
	if (p->rows)
		fprintf(out, "<p class=\"files\"><a href=\"%s.csv\">%s.csv</a></p>\n", p->key, p->key);
	if (!p->rows && p->notes)
		fputs("<ul class=\"advice\">\n", out);
	for (size_t i = 0; i < p->notes; i++)
		element(out, p->rows ? "<p>" : "<li>", p->note[i], p->rows ? "</p>\n" : "</li>\n");
	if (!p->rows && p->notes)
		fputs("</ul>\n", out);
}

/* The files beside the page, which are written before it. */
static void for_each_file(const struct report *r, void (*visit)(const char *name, void *arg), void *arg)
{
	char name[128];

	visit("bench.json", arg);
	for (size_t i = 0; i < r->parts; i++) {
		const struct report_part *p = &r->part[i];

		snprintf(name, sizeof(name), "%s.csv", p->key);
		if (p->rows)
			visit(name, arg);
		for (size_t j = 0; j < p->plots; j++) {
			if (!plot_drawn(p->plot[j]))
				continue;
			snprintf(name, sizeof(name), "%s.svg", p->plot[j]->key);
			visit(name, arg);
			snprintf(name, sizeof(name), "%s.csv", p->plot[j]->key);
			visit(name, arg);
		}
	}
}

static void print_name(const char *name, void *arg)
{
	fprintf(arg, " %s", name);
}

static void write_page(FILE *out, const struct report *r)
{
	fputs("<!DOCTYPE html>\n" MARK, out);
	for_each_file(r, print_name, out);
	fputs(" -->\n<html lang=\"en\">\n<head>\n", out);
	fputs(head, out);
	element(out, "<title>unpin bench: ", text_fact(r, "device"), "</title>\n</head>\n<body>\n");
	element(out, "<h1>Pinned and on-demand memory on ", text_fact(r, "device"), "</h1>\n");
	element(out, "<p class=\"soft\">unpin ", text_fact(r, "unpin"), "");
	element(out, ", kernel ", text_fact(r, "kernel"), "");
	element(out, ", ", text_fact(r, "started"),
		". All figures: <a href=\"bench.json\">bench.json</a>.</p>\n");
	write_state(out, r);
	if (report_find(r, "advice"))
		fputs("<p><a href=\"#advice\">Advice for this machine</a> is at the end.</p>\n", out);
	write_findings(out, r);
	write_facts(out, r);
	write_targets(out, r);
	for (size_t i = 0; i < r->parts; i++)
		write_part(out, &r->part[i]);
	fputs("</body>\n</html>\n", out);
}

/* --- all files ---------------------------------------------------------------------------------------------
 */

typedef void content(FILE *out, const void *what);

static void part_csv(FILE *out, const void *what)
{
	report_csv(what, out);
}

static void one_svg(FILE *out, const void *what)
{
	plot_svg(what, out);
}

static void one_csv(FILE *out, const void *what)
{
	plot_csv(what, out);
}

static void whole_page(FILE *out, const void *what)
{
	write_page(out, what);
}

static void whole_json(FILE *out, const void *what)
{
	report_json_to(what, out);
}

struct writer {
	const char *folder;
	char *why;
	int err; /* of the first that failed; then nothing more is written */
};

static void write_file(
	struct writer *w, const char *stem, const char *ending, content *fill, const void *what)
{
	struct file f;
	char name[128];

	if (w->err)
		return;
	snprintf(name, sizeof(name), "%.100s.%.20s", stem, ending);
	w->err = file_begin(&f, w->folder, name);
	if (!w->err) {
		fill(f.out, what);
		w->err = file_end(&f);
	}
	if (w->err)
		complain(w->why, w->err, "write", w->folder, name);
}

int page_write(const struct report *r, const char *folder, char why[PAGE_WHY_MAX])
{
	struct writer w = { .folder = folder, .why = why };

	write_file(&w, "bench", "json", whole_json, r);
	for (size_t i = 0; i < r->parts; i++) {
		const struct report_part *p = &r->part[i];

		if (p->rows)
			write_file(&w, p->key, "csv", part_csv, p);
		for (size_t j = 0; j < p->plots; j++) {
			if (!plot_drawn(p->plot[j]))
				continue;
			write_file(&w, p->plot[j]->key, "svg", one_svg, p->plot[j]);
			write_file(&w, p->plot[j]->key, "csv", one_csv, p->plot[j]);
		}
	}
	write_file(&w, "index", "html", whole_page, r);
	return w.err;
}

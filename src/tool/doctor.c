/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin doctor`: options, the run through all checks, and the report. unpin-doctor(1) is the manual. */
#include "tool/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "nic/caps.h"
#include "tool/alloc.h"
#include "tool/command.h"
#include "tool/option.h"
#include "tool/preload.h"
#include "tool/units.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct doctor_group *const groups[] = { &doctor_device_group, &doctor_reality_group,
	&doctor_kernel_group, &doctor_pci_group, &doctor_memory_group, &doctor_manners_group };

#define GROUPS	   COUNT(groups)
#define CHECKS_MAX 32 /* of a group */

static const char *const verdict_names[DOCTOR_VERDICTS] = { "ok", "warn", "fail", "unknown",
	"not applicable" };

struct report {
	struct doctor_result result[GROUPS][CHECKS_MAX];
	unsigned count[DOCTOR_VERDICTS];
	bool usable;
	char summary[512];
};

/* --- what checks say ---------------------------------------------------------------------------------------
 */

static void set_text(char **to, const char *fmt, va_list ap)
{
	free(*to);
	if (vasprintf(to, fmt, ap) < 0)
		*to = alloc_text("?");
}

void doctor_say(struct doctor_result *r, enum doctor_verdict verdict, const char *seen, ...)
{
	va_list ap;

	r->verdict = verdict;
	va_start(ap, seen);
	set_text(&r->seen, seen, ap);
	va_end(ap);
}

void doctor_mean(struct doctor_result *r, const char *meaning, ...)
{
	va_list ap;

	va_start(ap, meaning);
	set_text(&r->meaning, meaning, ap);
	va_end(ap);
}

void doctor_advise(struct doctor_result *r, const char *advice, ...)
{
	va_list ap;

	va_start(ap, advice);
	set_text(&r->advice, advice, ap);
	va_end(ap);
}

void doctor_append(char *text, size_t size, const char *fmt, ...)
{
	size_t used = strlen(text);
	va_list ap;

	if (used && used + 2 < size) {
		strcpy(text + used, "; ");
		used += 2;
	}
	va_start(ap, fmt);
	vsnprintf(text + used, size - used, fmt, ap);
	va_end(ap);
}

const char *doctor_bytes(uint64_t bytes)
{
	static char buffer[8][UNITS_MAX];
	static unsigned next;

	return units_bytes(buffer[next++ % 8], bytes);
}

/* --- the run
 * ------------------------------------------------------------------------------------------------ */

/* Why a check cannot be run; NULL: it can. */
static const char *missing(const struct doctor *d, unsigned flags)
{
	if (d->root && flags & (DOCTOR_LIVE | DOCTOR_OPEN | DOCTOR_ODP))
		return "reading a recorded machine";
	if (!d->device.found && flags & (DOCTOR_DEVICE | DOCTOR_OPEN | DOCTOR_ODP))
		return "there is no device";
	if (!d->open && flags & (DOCTOR_OPEN | DOCTOR_ODP))
		return "the device cannot be used";
	if (!d->accepts_on_demand && flags & DOCTOR_ODP)
		return "the device has no on-demand paging";
	return NULL;
}

static void run_check(struct doctor *d, const struct doctor_check *check, struct doctor_result *r)
{
	const char *why = missing(d, check->flags);

	if (why)
		doctor_say(r, DOCTOR_NA, "%s", why);
	else if (endpoint_stop)
		doctor_say(r, DOCTOR_UNKNOWN, "interrupted");
	else
		check->run(d, r);
}

/* Whether a check, with this result, stands in the way. On a recorded machine what could not be tried is left
 * open; live, it must have been tried. What the device offers must be known in every case. */
static bool is_obstacle(
	const struct doctor *d, const struct doctor_check *check, const struct doctor_result *r)
{
	if (!(check->flags & DOCTOR_VITAL))
		return false;
	if (r->verdict == DOCTOR_FAIL)
		return true;
	return r->verdict >= DOCTOR_UNKNOWN &&
	       ((check->flags & DOCTOR_ODP && !d->root) || strcmp(check->id, "device.odp") == 0);
}

/* The first one, or NULL. Where there is no device because a card has no addresses, that is named. */
static const struct doctor_check *obstacle(
	const struct doctor *d, const struct report *p, const struct doctor_result **result)
{
	const struct doctor_check *first = NULL;

	for (size_t g = 0; g < GROUPS; g++)
		for (size_t i = 0; i < groups[g]->count; i++) {
			const struct doctor_check *check = &groups[g]->checks[i];

			if (!is_obstacle(d, check, &p->result[g][i]))
				continue;
			if (first && (d->device.found || strcmp(check->id, "pci.bars") != 0))
				continue;
			first = check;
			*result = &p->result[g][i];
		}
	return first;
}

static void conclude(const struct doctor *d, struct report *p)
{
	const struct doctor_result *r = NULL;
	const struct doctor_check *check = obstacle(d, p, &r);
	const char *name = d->device.found ? d->device.name : "this machine";

	p->usable = !check;
	if (check && (r->verdict == DOCTOR_UNKNOWN || endpoint_stop))
		snprintf(p->summary, sizeof(p->summary),
			"Whether on-demand paging is usable on %s cannot be told: %s (%s).", name, r->seen,
			check->id);
	else if (check)
		snprintf(p->summary, sizeof(p->summary), "On-demand paging is NOT usable on %s: %s (%s).",
			name, r->seen, check->id);
	else if (d->root)
		snprintf(p->summary, sizeof(p->summary),
			"Nothing in this record speaks against on-demand paging on %s. Nothing was tried.",
			name);
	else
		snprintf(p->summary, sizeof(p->summary), "On-demand paging is usable on %s: it was tried.",
			name);
}

static void run_checks(struct doctor *d, struct report *p, bool progress)
{
	for (size_t g = 0; g < GROUPS; g++)
		for (size_t i = 0; i < groups[g]->count && i < CHECKS_MAX; i++) {
			if (progress) {
				fprintf(stderr, "\r\033[K%s: %s", groups[g]->heading,
					groups[g]->checks[i].looks_at);
				fflush(stderr);
			}
			run_check(d, &groups[g]->checks[i], &p->result[g][i]);
			p->count[p->result[g][i].verdict]++;
		}
	if (progress)
		fputs("\r\033[K", stderr);
	conclude(d, p);
}

/* --- text
 * --------------------------------------------------------------------------------------------------- */

#define INDENT 7
#define WIDTH  100

struct style {
	bool colour, symbols;
};

static const struct {
	const char *word, *symbol, *colour;
} marks[DOCTOR_VERDICTS] = {
	[DOCTOR_OK] = { "ok", "✔", "\033[32m" },
	[DOCTOR_WARN] = { "warn", "!", "\033[33m" },
	[DOCTOR_FAIL] = { "FAIL", "✘", "\033[1;31m" },
	[DOCTOR_UNKNOWN] = { "?", "?", "\033[36m" },
	[DOCTOR_NA] = { "n/a", "–", "\033[2m" },
};

static void print_mark(const struct style *s, enum doctor_verdict v)
{
	const char *word = s->symbols ? marks[v].symbol : marks[v].word;
	int pad = s->symbols ? INDENT - 3 : INDENT - 2 - (int)strlen(word);

	printf("  %s%s%s%*s", s->colour ? marks[v].colour : "", word, s->colour ? "\033[0m" : "", pad, "");
}

/* Words from column used on, broken at WIDTH, further lines from column indent on. */
static void print_words(const char *text, size_t used, int indent)
{
	bool first = true;

	while (*text) {
		size_t n = strcspn(text, " \n");

		if (!first && used + 1 + n > WIDTH) {
			printf("\n%*s", indent, "");
			used = (size_t)indent;
		} else if (!first) {
			putchar(' ');
			used++;
		}
		printf("%.*s", (int)n, text);
		used += n;
		text += n;
		text += *text != 0;
		first = false;
	}
	putchar('\n');
}

static void print_labelled(const char *label, const char *text)
{
	printf("%*s%s", INDENT, "", label);
	print_words(text, INDENT + strlen(label), INDENT);
}

static void print_result(
	const struct style *s, const struct doctor_check *check, const struct doctor_result *r)
{
	print_mark(s, r->verdict);
	printf("%s%s:%s ", s->colour ? "\033[1m" : "", check->looks_at, s->colour ? "\033[0m" : "");
	print_words(r->seen ? r->seen : "", INDENT + strlen(check->looks_at) + 2, INDENT);
	if (r->verdict == DOCTOR_OK || r->verdict == DOCTOR_NA)
		return;
	if (r->meaning)
		print_labelled("", r->meaning);
	if (r->advice)
		print_labelled(s->symbols ? "→ " : "To do: ", r->advice);
}

static const char *cell(const struct doctor *d, int t, int o)
{
	static const char *const said[DOCTOR_TRIED] = { "offered", "works", "WRONG BYTES", "FAILS" };
	enum doctor_tried tried = d->tried[t][o];

	if (d->device.says[t] & doctor_operation_bits[o])
		return said[tried];
	return tried == DOCTOR_WORKS ? "works, not offered" : "-";
}

static void print_matrix(const struct doctor *d)
{
	static const char *const headings[] = { "<on demand", "<send", "<receive", "<write", "<read",
		"<atomic", "<shared receive" };
	struct table t;

	if (!d->device.caps_known || !(d->device.general & IBV_ODP_SUPPORT))
		return;
	putchar('\n');
	table_init(&t, headings, COUNT(headings));
	for (int transport = 0; transport < DOCTOR_TRANSPORTS; transport++) {
		table_add(&t, "%s", doctor_transport_names[transport]);
		for (int o = 0; o < DOCTOR_OPERATIONS; o++)
			table_add(&t, "%s", cell(d, transport, o));
	}
	table_print(&t, stdout, INDENT);
	table_free(&t);
}

static void print_report(const struct doctor *d, const struct report *p, const struct style *s)
{
	char release[128];

	doctor_kernel_version(d, release, sizeof(release));
	printf("unpin doctor " UNPIN_VERSION ", device %s, Linux %s%s%s\n",
		d->device.found ? d->device.name : "none", release[0] ? release : "unknown",
		d->root ? ", recorded in " : "", d->root ? d->root : "");
	for (size_t g = 0; g < GROUPS; g++) {
		printf("\n%s%s%s\n", s->colour ? "\033[1;4m" : "", groups[g]->heading,
			s->colour ? "\033[0m" : "");
		for (size_t i = 0; i < groups[g]->count; i++)
			print_result(s, &groups[g]->checks[i], &p->result[g][i]);
		if (groups[g] == &doctor_device_group)
			print_matrix(d);
	}
	printf("\n%u ok, %u to look at, %u failed, %u unknown, %u not applicable\n", p->count[DOCTOR_OK],
		p->count[DOCTOR_WARN], p->count[DOCTOR_FAIL], p->count[DOCTOR_UNKNOWN], p->count[DOCTOR_NA]);
	if (s->colour)
		fputs(p->usable ? "\033[1;32m" : "\033[1;31m", stdout);
	print_words(p->summary, 0, 0);
	if (s->colour)
		fputs("\033[0m", stdout);
}

/* --- JSON
 * ----------------------------------------------------------------------------------------------------- */

static json_object *json_text(const char *text)
{
	return text ? json_object_new_string(text) : NULL;
}

static json_object *json_checks(const struct report *p)
{
	json_object *list = json_object_new_array();

	for (size_t g = 0; g < GROUPS; g++)
		for (size_t i = 0; i < groups[g]->count; i++) {
			const struct doctor_check *check = &groups[g]->checks[i];
			const struct doctor_result *r = &p->result[g][i];
			json_object *o = json_object_new_object();

			json_object_object_add(o, "id", json_text(check->id));
			json_object_object_add(o, "group", json_text(groups[g]->id));
			json_object_object_add(o, "looks_at", json_text(check->looks_at));
			json_object_object_add(
				o, "vital", json_object_new_boolean(check->flags & DOCTOR_VITAL));
			json_object_object_add(o, "verdict", json_text(verdict_names[r->verdict]));
			json_object_object_add(o, "seen", json_text(r->seen));
			json_object_object_add(o, "meaning", json_text(r->meaning));
			json_object_object_add(o, "advice", json_text(r->advice));
			json_object_array_add(list, o);
		}
	return list;
}

static json_object *json_matrix(const struct doctor *d)
{
	json_object *list = json_object_new_array();

	for (int t = 0; t < DOCTOR_TRANSPORTS; t++)
		for (int o = 0; o < DOCTOR_OPERATIONS; o++) {
			json_object *row = json_object_new_object();

			json_object_object_add(row, "transport", json_text(doctor_transport_names[t]));
			json_object_object_add(row, "operation", json_text(doctor_operation_names[o]));
			json_object_object_add(row, "offered",
				d->device.caps_known
					? json_object_new_boolean(
						  (d->device.says[t] & doctor_operation_bits[o]) != 0)
					: NULL);
			json_object_object_add(row, "tried", json_text(doctor_tried_names[d->tried[t][o]]));
			json_object_array_add(list, row);
		}
	return list;
}

static void print_json(const struct doctor *d, const struct report *p)
{
	json_object *o = json_object_new_object(), *counts = json_object_new_object();
	char release[128];

	doctor_kernel_version(d, release, sizeof(release));
	json_object_object_add(o, "unpin", json_text(UNPIN_VERSION));
	json_object_object_add(o, "format", json_object_new_int(1));
	json_object_object_add(o, "recorded", json_object_new_boolean(d->root != NULL));
	json_object_object_add(o, "device", d->device.found ? json_text(d->device.name) : NULL);
	json_object_object_add(o, "kernel", json_text(release));
	json_object_object_add(o, "usable", json_object_new_boolean(p->usable));
	json_object_object_add(o, "summary", json_text(p->summary));
	for (int v = 0; v < DOCTOR_VERDICTS; v++)
		json_object_object_add(counts, verdict_names[v], json_object_new_int((int)p->count[v]));
	json_object_object_add(o, "counts", counts);
	json_object_object_add(o, "checks", json_checks(p));
	json_object_object_add(o, "operations", json_matrix(d));
	puts(json_object_to_json_string_ext(
		o, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED | JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

/* --- the command
 * ----------------------------------------------------------------------------------------------- */

static void on_signal(int sig)
{
	(void)sig;
	endpoint_stop = 1;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sa.sa_flags = (int)SA_RESETHAND;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

/* Our own device lives in libunpin.so. Where it may be what is asked for, start again with the library; where
 * there is none, go on without. */
static void load_library(const char *wanted, char **argv)
{
	const char *own = getenv("UNPIN_DEVICE");
	struct preload preload;
	struct program program;
	int err;

	if (preload_active() || (wanted && strcmp(wanted, own && *own ? own : NIC_NAME_DEFAULT) != 0))
		return;
	if (preload_find(&preload))
		return;
	err = program_find("/proc/self/exe", NULL, &program);
	if (!err && !realpath("/proc/self/exe", program.path))
		err = -errno;
	if (!err)
		err = preload_library(&preload, &program.elf);
	if (!err)
		err = preload_exec(&program, argv);
	log_error("doctor: cannot start with %s: %s", preload.library, strerror(-err));
}

static bool is_utf8(void)
{
	const char *names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (size_t i = 0; i < COUNT(names); i++) {
		const char *v = getenv(names[i]);

		if (v && *v)
			return strstr(v, "UTF-8") || strstr(v, "utf8") || strstr(v, "UTF8");
	}
	return false;
}

static int choose_style(const char *when, struct style *s)
{
	const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
	bool terminal = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;

	if (strcmp(when, "always") == 0)
		*s = (struct style){ true, true };
	else if (strcmp(when, "never") == 0)
		*s = (struct style){ false, false };
	else if (strcmp(when, "auto") == 0)
		*s = (struct style){ terminal && !(no && *no), terminal && is_utf8() };
	else
		return -EINVAL;
	return 0;
}

static void help(const struct option_row *rows)
{
	puts("Usage: unpin doctor [OPTION]...\n"
	     "\n"
	     "Can on-demand paging be used here, and is it really on? Tries it on one RDMA device, looks\n"
	     "through the machine for what stands in its way, and says what to do. Status 0: it is "
	     "usable.\n");
	options_help(stdout, rows);
}

static void free_report(struct report *p)
{
	for (size_t g = 0; g < GROUPS; g++)
		for (size_t i = 0; i < CHECKS_MAX; i++) {
			free(p->result[g][i].seen);
			free(p->result[g][i].meaning);
			free(p->result[g][i].advice);
		}
}

static int examine(struct doctor *d, const struct style *s, bool json)
{
	static struct report p;
	int status;

	memset(&p, 0, sizeof(p));
	catch_signals();
	doctor_find(d);
	run_checks(d, &p, !json && isatty(STDERR_FILENO) && isatty(STDOUT_FILENO));
	doctor_find_close(d);
	if (json)
		print_json(d, &p);
	else
		print_report(d, &p, s);
	status = p.usable ? 0 : 1;
	free_report(&p);
	free(d->config);
	d->config = NULL;
	return endpoint_stop ? 130 : status;
}

int cmd_doctor(int argc, char **argv)
{
	static struct doctor d;
	const char *device = NULL, *root = NULL, *colour = "auto";
	bool json = false, wants_help = false;
	const struct option_row rows[] = {
		{ 'd', "device", "NAME", "the device (default unpin0, unpin's own, else the first one)", NULL,
			&device },
		{ 'j', "json", NULL, "the report as JSON (keys: unpin-doctor(1))", &json, NULL },
		{ 'r', "root", "DIR",
			"look at another machine, whose files were recorded in DIR; nothing is tried", NULL,
			&root },
		{ 0, "color", "WHEN", "colours and symbols: auto (default: on a terminal), always or never",
			NULL, &colour },
		{ 'h', "help", NULL, "this text", &wants_help, NULL },
		{ 0 },
	};
	struct style style;
	int first = options_parse("doctor", rows, argc, argv), status;

	if (first < 0)
		return EXIT_USAGE;
	if (wants_help) {
		help(rows);
		return 0;
	}
	if (first < argc) {
		log_error("doctor: '%s' is not understood; see 'unpin doctor --help'", argv[first]);
		return EXIT_USAGE;
	}
	if (choose_style(colour, &style)) {
		log_error("doctor: --color '%s' is not one of auto, always, never", colour);
		return EXIT_USAGE;
	}
	if (device && (!*device || strlen(device) >= ENDPOINT_NAME_MAX || strchr(device, '/'))) {
		log_error("doctor: '%s' is not the name of a device", device);
		return EXIT_USAGE;
	}
	memset(&d, 0, sizeof(d));
	d.wanted = device;
	d.root = root;
	d.root_fd = root ? open(root, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (root && d.root_fd < 0) {
		log_error("doctor: %s: %s", root, strerror(errno));
		return EXIT_USAGE;
	}
	/* What the device refuses is in the report; its warnings would stand between the lines. */
	setenv("UNPIN_LOG", "error", 0);
	/* argv[0] is "doctor" here; the command line began one word earlier. */
	if (!root)
		load_library(device, argv - 1);
	status = examine(&d, &style, json);
	if (d.root_fd >= 0)
		close(d.root_fd);
	return status;
}

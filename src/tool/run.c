/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `unpin run`: starts a program with unpin's device in it. unpin-run(1) is the manual. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tool/command.h"
#include "tool/facilities.h"
#include "tool/knob.h"
#include "tool/option.h"
#include "tool/output.h"
#include "tool/preload.h"
#include "tool/suggest.h"
#include "tool/trace_watch.h"

#define DEVICE_NAME_MAX 31

struct run_options {
	const char *device, *disable, *log;
	bool nccl, print_env, help, version;
	struct knobs knobs;
};

static int check_device(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-')
			len = 0;
	if (len > 0 && len <= DEVICE_NAME_MAX)
		return 0;
	log_error("run: --device '%s': a device's name has 1 to %d letters, digits, '_' and '-'", name,
		DEVICE_NAME_MAX);
	return -EINVAL;
}

static int check_facility(const char *word, size_t len)
{
	char name[SUGGEST_WORD_MAX + 1];
	struct suggest s;

	snprintf(name, sizeof(name), "%.*s", (int)len, word);
	suggest_begin(&s, name);
	for (size_t i = 0; i < facilities_count; i++) {
		if (strcmp(facilities[i].name, name) == 0 && strlen(name) == len)
			return 0;
		suggest_offer(&s, facilities[i].name);
	}
	if (s.best)
		log_error("run: --disable: there is no facility '%.*s'; did you mean %s?", (int)len, word,
			s.best);
	else
		log_error("run: --disable: there is no facility '%.*s'; unpin-run(1) lists them", (int)len,
			word);
	return -EINVAL;
}

static int check_disable(const char *list)
{
	for (const char *p = list, *end; *p; p = *end ? end + 1 : end) {
		int err;

		end = strchrnul(p, ',');
		err = check_facility(p, (size_t)(end - p));
		if (err)
			return err;
	}
	return 0;
}

static int check_log(const char *level)
{
	enum log_level named;

	if (log_level_named(level, &named))
		return 0;
	log_error("run: --log '%s' is not one of error, warn, info, debug", level);
	return -EINVAL;
}

/* The options that become one variable of the environment each. */
struct run_variable {
	const char *value, *name;
	int (*check)(const char *value);
};

static int set_variables(struct run_options *o, const struct preload *preload)
{
	const struct run_variable vars[] = {
		{ o->device, "UNPIN_DEVICE", check_device },
		{ o->disable, "UNPIN_DISABLE", check_disable },
		{ o->log, "UNPIN_LOG", check_log },
		{ o->nccl ? preload->library : NULL, "NCCL_IBVERBS_LIB", NULL },
	};

	for (size_t i = 0; i < sizeof(vars) / sizeof(vars[0]); i++) {
		int err = vars[i].value && vars[i].check ? vars[i].check(vars[i].value) : 0;

		if (err)
			return err;
		if (vars[i].value && setenv(vars[i].name, vars[i].value, 1))
			return -errno;
	}
	return knob_set(&o->knobs, !o->print_env);
}

/* As a shell reads it back: NAME='value'. */
static void print_variable(const char *name)
{
	const char *value = getenv(name);

	if (!value)
		return;
	printf("%s='", name);
	for (; *value; value++) {
		if (*value == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*value);
	}
	puts("'");
}

static int print_env(void)
{
	static const char *const names[] = { "LD_PRELOAD", "PATH", "UNPIN_DEVICE", "UNPIN_DISABLE",
		"UNPIN_LOG", "NCCL_IBVERBS_LIB" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		print_variable(names[i]);
	for (int i = 0; i < SETTING_COUNT; i++)
		print_variable(settings_table[i].variable);
	return output_flush() ? PRELOAD_STATUS_SELF : 0;
}

/* A program that is killed leaves its timeline to be finished. */
static void watch_timeline(void)
{
	const char *timeline = getenv(settings_table[SETTING_TRACE_ID].variable);
	int err = timeline && *timeline ? trace_watch_start(timeline) : 0;

	if (err)
		log_warn("run: should the program be killed, nobody will finish its timeline (%s); 'unpin "
			 "trace %s' does "
			 "it then",
			strerror(-err), timeline);
}

static int run(struct run_options *o, char **argv)
{
	struct program program = { .path = "" };
	struct preload preload;
	int err = preload_find(&preload);

	if (err || set_variables(o, &preload))
		return PRELOAD_STATUS_SELF;
	err = preload_path(&preload);
	if (!err && argv[0]) {
		err = program_find(argv[0], getenv("PATH"), &program);
		if (err) {
			log_error("run: %s", program.why);
			return preload_status(err);
		}
	}
	if (!err)
		err = preload_library(&preload, &program.elf);
	if (err) {
		log_error("run: cannot set the program's environment: %s", strerror(-err));
		return PRELOAD_STATUS_SELF;
	}
	if (o->print_env)
		return print_env();
	watch_timeline();
	err = preload_exec(&program, argv);
	log_error("run: %s: %s", program.path, strerror(-err));
	return preload_status(err);
}

/* --- the command line ----------------------------------------------------------------------------- */

/* The rows of one group stand together, so that --help can show them so. */
struct command_line {
	struct option_row row[SETTING_COUNT + 8];
	size_t rows;
	struct {
		const char *heading;
		size_t end; /* behind its last row */
	} group[8];
	size_t groups;
};

static void begin_group(struct command_line *c, const char *heading)
{
	c->group[c->groups++].heading = heading;
}

static void add_row(struct command_line *c, struct option_row row)
{
	c->row[c->rows++] = row;
}

static void end_group(struct command_line *c, struct knobs *knobs, enum knob_group group)
{
	c->rows += knob_rows(knobs, group, c->row + c->rows);
	c->group[c->groups - 1].end = c->rows;
}

static void describe(struct command_line *c, struct run_options *o)
{
	begin_group(c, "The device");
	add_row(c, (struct option_row){ 'd', "device", "NAME", "call the device NAME (default unpin0)", NULL,
			   &o->device });
	add_row(c, (struct option_row){ 0, "disable", "LIST",
			   "do without these facilities of the kernel, comma-separated", NULL, &o->disable });
	end_group(c, &o->knobs, KNOB_DEVICE);
	begin_group(c, "Page faults");
	end_group(c, &o->knobs, KNOB_FAULTS);
	begin_group(c, "An impaired fabric");
	end_group(c, &o->knobs, KNOB_FABRIC);
	begin_group(c, "Storms of faults: read-ahead and prefetch are held back while one lasts");
	end_group(c, &o->knobs, KNOB_STORM);
	begin_group(c, "Other");
	add_row(c, (struct option_row){ 0, "log", "LEVEL", "messages: error, warn (default), info or debug",
			   NULL, &o->log });
	add_row(c, (struct option_row){ 0, "nccl", NULL,
			   "have NCCL load the device too (sets NCCL_IBVERBS_LIB)", &o->nccl, NULL });
	add_row(c, (struct option_row){ 0, "print-env", NULL,
			   "print the environment that PROGRAM would get instead of running it",
			   &o->print_env, NULL });
	add_row(c, (struct option_row){ 'h', "help", NULL, "this text", &o->help, NULL });
	add_row(c, (struct option_row){ 'V', "version", NULL, "the version", &o->version, NULL });
	end_group(c, &o->knobs, KNOB_OTHER);
}

static void help(const struct command_line *c)
{
	size_t first = 0;

	puts("Usage: unpin run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
	     "\n"
	     "Runs PROGRAM with unpin's RDMA device beside the machine's own, and exits with\n"
	     "its status.");
	for (size_t i = 0; i < c->groups; i++) {
		printf("\n%s:\n", c->group[i].heading);
		options_help_some(stdout, c->row + first, c->group[i].end - first);
		first = c->group[i].end;
	}
	puts("\nFacilities of the kernel for --disable:");
	for (size_t i = 0; i < facilities_count; i++)
		printf("      %-22s %s\n", facilities[i].name, facilities[i].what);
	puts("\n"
	     "A TIME has its unit: ns, us, ms or s. A SHARE is a fraction or has a %.\n"
	     "Each option sets a variable of the environment; see unpin-run(1).\n"
	     "\n"
	     "Exit status: the program's; 127 when there is no such program, 126 when it\n"
	     "cannot be run under unpin, 125 when unpin itself failed.");
}

int cmd_run(int argc, char **argv)
{
	static struct run_options o;
	static struct command_line c;
	int first;

	describe(&c, &o);
	first = options_parse("run", c.row, argc, argv);
	if (first < 0)
		return PRELOAD_STATUS_SELF;
	if (o.help) {
		help(&c);
		return 0;
	}
	if (o.version) {
		puts("unpin " UNPIN_VERSION);
		return 0;
	}
	if (first == argc && !o.print_env) {
		log_error("run: which program? For example: unpin run -- ibv_devinfo");
		return PRELOAD_STATUS_SELF;
	}
	return run(&o, argv + first);
}

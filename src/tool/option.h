/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Options of a subcommand, described by a table: parsing, the complaint about a wrong one, and the text of
 * --help all come from the same rows. Syntax is that of getopt_long(3): -x, -xVALUE, -x VALUE, clusters of
 * flags, --name,
 * --name=VALUE, --name VALUE; parsing stops at "--" and at the first word that is no option.
 */
#ifndef UNPIN_TOOL_OPTION_H
#define UNPIN_TOOL_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct option_row {
	char letter;	     /* 0: has no short form */
	const char *name;    /* long form, without dashes; NULL ends the table */
	const char *argname; /* NULL: a flag */
	const char *help;    /* without a line break; NULL: not shown by --help (internal) */
	bool *flag;	     /* set to true when a flag is given */
	const char **text;   /* set to the argument, the last one given wins */
};

/* Returns the index of the first word of argv that is no option (argc when there is none), or -EINVAL after a
 * sentence on standard error that names the option and, when there is a near one, what was meant. argv[0] is
 * skipped. */
int options_parse(const char *command, const struct option_row *rows, int argc, char **argv);
/* One option per line, its help wrapped to 80 columns. */
void options_help(FILE *out, const struct option_row *rows);
/* The same of the first count rows only. */
void options_help_some(FILE *out, const struct option_row *rows, size_t count);

/* A whole number in min..max. 0, -EINVAL (no number, trailing text), -ERANGE. */
int option_number(const char *text, uint64_t min, uint64_t max, uint64_t *out);
/* A number of bytes with an optional K, M, G or T (powers of 1024; "KiB", "MB" and the like are understood
 * the same). */
int option_bytes(const char *text, uint64_t *out);
/* Seconds as a decimal fraction, above 0 and at most a day. */
int option_seconds(const char *text, double *out);

#endif

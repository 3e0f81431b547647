/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/option.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "tool/suggest.h"

static const struct option_row *row_named(const struct option_row *rows, const char *name, size_t len)
{
	for (; rows->name; rows++)
		if (strlen(rows->name) == len && strncmp(rows->name, name, len) == 0)
			return rows;
	return NULL;
}

static const struct option_row *row_lettered(const struct option_row *rows, char letter)
{
	for (; rows->name; rows++)
		if (rows->letter && rows->letter == letter)
			return rows;
	return NULL;
}

static int complain_unknown(const char *command, const struct option_row *rows, const char *name, size_t len)
{
	char typed[SUGGEST_WORD_MAX + 1] = "";
	struct suggest s;

	if (len <= SUGGEST_WORD_MAX)
		memcpy(typed, name, len);
	suggest_begin(&s, typed);
	for (; rows->name; rows++)
		if (rows->help)
			suggest_offer(&s, rows->name);
	if (s.best)
		log_error(
			"%s: there is no option --%.*s; did you mean --%s?", command, (int)len, name, s.best);
	else
		log_error("%s: there is no option --%.*s; see 'unpin %s --help'", command, (int)len, name,
			command);
	return -EINVAL;
}

static void take(const struct option_row *row, const char *value)
{
	if (row->argname)
		*row->text = value;
	else
		*row->flag = true;
}

/* A word that starts with two dashes. Returns how many words it used, or -EINVAL. */
static int parse_long(const char *command, const struct option_row *rows, char **words, int left)
{
	const char *name = words[0] + 2, *equals = strchr(name, '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);
	const struct option_row *row = row_named(rows, name, len);

	if (!row)
		return complain_unknown(command, rows, name, len);
	if (!row->argname && equals) {
		log_error("%s: --%s takes no value", command, row->name);
		return -EINVAL;
	}
	if (row->argname && !equals && left < 2) {
		log_error("%s: --%s needs a value: --%s %s", command, row->name, row->name, row->argname);
		return -EINVAL;
	}
	if (!row->argname || equals) {
		take(row, equals ? equals + 1 : NULL);
		return 1;
	}
	take(row, words[1]);
	return 2;
}

/* A word that starts with one dash: flags in a row, of which the last may take a value. */
static int parse_short(const char *command, const struct option_row *rows, char **words, int left)
{
	for (const char *p = words[0] + 1; *p; p++) {
		const struct option_row *row = row_lettered(rows, *p);

		if (!row) {
			log_error("%s: there is no option -%c; see 'unpin %s --help'", command,
				isprint((unsigned char)*p) ? *p : '?', command);
			return -EINVAL;
		}
		if (!row->argname) {
			take(row, NULL);
			continue;
		}
		if (p[1]) {
			take(row, p + 1);
			return 1;
		}
		if (left < 2) {
			log_error("%s: -%c needs a value: -%c %s", command, *p, *p, row->argname);
			return -EINVAL;
		}
		take(row, words[1]);
		return 2;
	}
	return 1;
}

int options_parse(const char *command, const struct option_row *rows, int argc, char **argv)
{
	int i = 1;

	while (i < argc) {
		int used;

		if (strcmp(argv[i], "--") == 0)
			return i + 1;
		if (argv[i][0] != '-' || !argv[i][1])
			break;
		used = (argv[i][1] == '-' ? parse_long : parse_short)(command, rows, argv + i, argc - i);
		if (used < 0)
			return used;
		i += used;
	}
	return i;
}

#define HELP_COLUMN 29
#define HELP_WIDTH  80

/* Words from the help's column on, broken where the line would be too long. */
static void print_wrapped(FILE *out, const char *text)
{
	size_t column = HELP_COLUMN;

	while (*text) {
		size_t n = strcspn(text, " ");

		if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
			fprintf(out, "\n%*s", HELP_COLUMN, "");
			column = HELP_COLUMN;
		} else if (column > HELP_COLUMN) {
			fputc(' ', out);
			column++;
		}
		fprintf(out, "%.*s", (int)n, text);
		column += n;
		text += n + (text[n] == ' ');
	}
	fputc('\n', out);
}

static void print_option(FILE *out, const struct option_row *row)
{
	char left[48];

	snprintf(left, sizeof(left), "--%s%s%s", row->name, row->argname ? " " : "",
		row->argname ? row->argname : "");
	if (row->letter)
		fprintf(out, "  -%c, %-22s ", row->letter, left);
	else
		fprintf(out, "      %-22s ", left);
	print_wrapped(out, row->help);
}

void options_help_some(FILE *out, const struct option_row *rows, size_t count)
{
	for (; count && rows->name; count--, rows++)
		if (rows->help)
			print_option(out, rows);
}

void options_help(FILE *out, const struct option_row *rows)
{
	options_help_some(out, rows, SIZE_MAX);
}

int option_number(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno || v < min || v > max)
		return -ERANGE;
	*out = v;
	return 0;
}

int option_bytes(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	unsigned long long v;
	unsigned shift = 0;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno)
		return -ERANGE;
	if (*end && strcasecmp(end, "B") != 0) {
		const char *unit = strchr(units, toupper((unsigned char)*end));

		if (!unit)
			return -EINVAL;
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
		if (*end && strcasecmp(end, "B") != 0 && strcasecmp(end, "iB") != 0)
			return -EINVAL;
	}
	if (v > UINT64_MAX >> shift)
		return -ERANGE;
	*out = (uint64_t)v << shift;
	return 0;
}

int option_seconds(const char *text, double *out)
{
	char *end;
	double v;

	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return -EINVAL;
	v = strtod(text, &end);
	if (end == text || *end)
		return -EINVAL;
	if (!(v > 0) || v > 86400)
		return -ERANGE;
	*out = v;
	return 0;
}

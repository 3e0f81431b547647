/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/setting.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN 40 /* characters of a wrong value that are repeated */

const struct setting settings_table[SETTING_COUNT] = {
#define X(id, variable_, option_, argument_, kind_, choices_, least_, most_, preset_, help_)                 \
	[SETTING_##id##_ID] = {                                                                              \
		.variable = variable_,                                                                       \
		.option = option_,                                                                           \
		.argument = argument_,                                                                       \
		.kind = SETTING_##kind_,                                                                     \
		.choices = choices_,                                                                         \
		.least = least_,                                                                             \
		.most = most_,                                                                               \
		.preset = preset_,                                                                           \
		.help = help_,                                                                               \
	},
	SETTINGS(X)
#undef X
};

/* --- numbers: read here, since the C library's readers follow the application's locale ------------ */

struct decimal {
	uint64_t mantissa;
	uint64_t divisor; /* a power of ten */
};

static int digit(char c, unsigned base)
{
	int d = c >= '0' && c <= '9'   ? c - '0'
		: c >= 'a' && c <= 'f' ? c - 'a' + 10
		: c >= 'A' && c <= 'F' ? c - 'A' + 10
				       : 16;

	return d < (int)base ? d : -1;
}

/* Digits from *at on, which moves behind them. false: none, or too many. */
static bool read_digits(const char **at, unsigned base, uint64_t *value)
{
	const char *begin = *at;
	int d;

	while ((d = digit(**at, base)) >= 0) {
		if (__builtin_mul_overflow(*value, base, value) ||
			__builtin_add_overflow(*value, (unsigned)d, value))
			return false;
		++*at;
	}
	return *at > begin;
}

static bool read_decimal(const char **at, struct decimal *d)
{
	const char *fraction;

	*d = (struct decimal){ .divisor = 1 };
	if (!read_digits(at, 10, &d->mantissa))
		return false;
	if (**at != '.')
		return true;
	fraction = ++*at;
	if (!read_digits(at, 10, &d->mantissa))
		return false;
	/* The mantissa did not overflow, but leading zeros cost it nothing. */
	for (; fraction < *at; fraction++)
		if (__builtin_mul_overflow(d->divisor, 10u, &d->divisor))
			return false;
	return true;
}

/* In units of 1/scale; false: that is no whole number, or too big a one. */
static bool scale_decimal(const struct decimal *d, uint64_t scale, uint64_t *value)
{
	unsigned __int128 product = (unsigned __int128)d->mantissa * scale;

	if (product % d->divisor || product / d->divisor > UINT64_MAX)
		return false;
	*value = (uint64_t)(product / d->divisor);
	return true;
}

static bool in_range(const struct setting *s, uint64_t value)
{
	return value >= s->least && value <= s->most;
}

/* --- the kinds: how a value is read, and what a right one is -------------------------------------- */

struct sentence {
	char *at;
	size_t room;
};

static void __attribute__((format(printf, 2, 3))) say(struct sentence *out, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(out->at, out->room, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= out->room)
		n = out->room ? (int)out->room - 1 : 0;
	out->at += n;
	out->room -= (size_t)n;
}

/* The choice at an index, and its length; NULL: there are fewer. */
static const char *choice_at(const struct setting *s, uint64_t index, size_t *len)
{
	const char *at = s->choices;

	for (; index; index--) {
		at = strchr(at, '|');
		if (!at)
			return NULL;
		at++;
	}
	*len = strcspn(at, "|");
	return at;
}

static bool read_choice(const struct setting *s, const char *text, uint64_t *value)
{
	const char *name;
	size_t len;

	for (*value = 0; (name = choice_at(s, *value, &len)); ++*value)
		if (strlen(text) == len && !memcmp(text, name, len))
			return true;
	return false;
}

static void tell_choice(const struct setting *s, struct sentence *out)
{
	const char *name, *lead = "one of ";
	size_t len;

	for (uint64_t i = 0; (name = choice_at(s, i, &len)); i++) {
		say(out, "%s%.*s", lead, (int)len, name);
		lead = ", ";
	}
}

static const struct unit {
	const char *name;
	uint64_t ns;
} units[] = { { "ns", 1 }, { "us", 1000 }, { "ms", 1000000 }, { "s", 1000000000 } };

#define UNITS (sizeof(units) / sizeof(units[0]))

static bool read_duration(const struct setting *s, const char *text, uint64_t *value)
{
	struct decimal d;

	if (!read_decimal(&text, &d))
		return false;
	for (size_t i = 0; i < UNITS; i++)
		if (!strcmp(text, units[i].name))
			return scale_decimal(&d, units[i].ns, value) && in_range(s, *value);
	*value = 0;
	return !*text && !d.mantissa && in_range(s, 0);
}

static void tell_duration(const struct setting *s, struct sentence *out)
{
	size_t i = UNITS - 1;

	while (i && s->most % units[i].ns)
		i--;
	say(out, "a time up to %" PRIu64 "%s with its unit (ns, us, ms or s)", s->most / units[i].ns,
		units[i].name);
}

#define PPM	    1000000u
#define PPM_PERCENT 10000u

static bool read_share(const struct setting *s, const char *text, uint64_t *value)
{
	struct decimal d;
	bool percent;

	if (!read_decimal(&text, &d))
		return false;
	percent = *text == '%';
	if (text[percent])
		return false;
	return scale_decimal(&d, percent ? PPM_PERCENT : PPM, value) && in_range(s, *value);
}

static void tell_share(const struct setting *s, struct sentence *out)
{
	say(out, "a share up to %" PRIu64 "%%, in millionths at the finest, like 1%% or 0.01",
		s->most / PPM_PERCENT);
}

static bool read_number(const struct setting *s, const char *text, uint64_t *value)
{
	bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');

	*value = 0;
	text += hex ? 2 : 0;
	return read_digits(&text, hex ? 16 : 10, value) && !*text && in_range(s, *value);
}

static void tell_number(const struct setting *s, struct sentence *out)
{
	say(out, "a number from %" PRIu64 " to %" PRIu64, s->least, s->most);
}

static bool read_switch(const struct setting *s, const char *text, uint64_t *value)
{
	(void)s;
	*value = text[0] == '1';
	return (text[0] == '0' || text[0] == '1') && !text[1];
}

static void tell_switch(const struct setting *s, struct sentence *out)
{
	(void)s;
	say(out, "0 or 1");
}

static bool read_text(const struct setting *s, const char *text, uint64_t *value)
{
	(void)s;
	*value = 0;
	return *text;
}

static void tell_text(const struct setting *s, struct sentence *out)
{
	say(out, "a %s", s->argument);
}

static const struct {
	bool (*read)(const struct setting *s, const char *text, uint64_t *value);
	void (*tell)(const struct setting *s, struct sentence *out);
} kinds[] = {
	[SETTING_CHOICE] = { read_choice, tell_choice },
	[SETTING_DURATION] = { read_duration, tell_duration },
	[SETTING_SHARE] = { read_share, tell_share },
	[SETTING_NUMBER] = { read_number, tell_number },
	[SETTING_SWITCH] = { read_switch, tell_switch },
	[SETTING_TEXT] = { read_text, tell_text },
};

int setting_parse(const struct setting *s, const char *text, uint64_t *value, char why[SETTING_WHY])
{
	struct sentence out = { why, SETTING_WHY };
	uint64_t v = 0;

	if (kinds[s->kind].read(s, text, &v)) {
		*value = v;
		return 0;
	}
	say(&out, "\"%.*s\" is not ", SHOWN, text);
	kinds[s->kind].tell(s, &out);
	return -EINVAL;
}

void setting_choice(const struct setting *s, uint64_t index, char *name, size_t size)
{
	size_t len = 0;
	const char *at = choice_at(s, index, &len);

	snprintf(name, size, "%.*s", (int)len, at ? at : "");
}

int settings_load(struct settings *out, char why[SETTING_WHY])
{
	char wrong[SETTING_WHY];

	for (int i = 0; i < SETTING_COUNT; i++) {
		const struct setting *s = &settings_table[i];
		const char *text = getenv(s->variable);
		struct sentence sentence = { why, SETTING_WHY };

		out->value[i] = s->preset;
		out->text[i] = s->kind == SETTING_TEXT ? text : NULL;
		if (!text || !setting_parse(s, text, &out->value[i], wrong))
			continue;
		say(&sentence, "%s: %s", s->variable, wrong);
		return -EINVAL;
	}
	return 0;
}

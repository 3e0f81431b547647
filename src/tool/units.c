/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/units.h"

#include <math.h>
#include <stdio.h>

char *units_digits(char buf[UNITS_MAX], double value)
{
	double size = fabs(value);
	int decimals = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4;

	if (size == 0)
		decimals = 0;
	snprintf(buf, UNITS_MAX, "%.*f", decimals, value);
	return buf;
}

char *units_bytes(char buf[UNITS_MAX], uint64_t bytes)
{
	static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	char number[UNITS_MAX];
	double value = (double)bytes;
	unsigned i = 0;

	while (value >= 1024 && i < sizeof(names) / sizeof(names[0]) - 1) {
		value /= 1024;
		i++;
	}
	if (value == floor(value))
		snprintf(number, sizeof(number), "%.0f", value);
	else
		units_digits(number, value);
	snprintf(buf, UNITS_MAX, "%.20s %s", number, names[i]);
	return buf;
}

char *units_time(char buf[UNITS_MAX], uint64_t ns)
{
	static const char *const names[] = { "ns", "us", "ms", "s" };
	char number[UNITS_MAX];
	double value = (double)ns;
	unsigned i = 0;

	while (value >= 1000 && i < sizeof(names) / sizeof(names[0]) - 1) {
		value /= 1000;
		i++;
	}
	if (i == 0)
		snprintf(number, sizeof(number), "%.0f", value);
	else
		units_digits(number, value);
	snprintf(buf, UNITS_MAX, "%.20s %s", number, names[i]);
	return buf;
}

uint64_t units_whole(double value)
{
	if (!(value > 0))
		return 0;
	return value < 0x1p64 ? (uint64_t)value : UINT64_MAX;
}

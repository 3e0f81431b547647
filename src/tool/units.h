/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Quantities as people read them. Each writes at most UNITS_MAX bytes into buf and returns it. */
#ifndef UNPIN_TOOL_UNITS_H
#define UNPIN_TOOL_UNITS_H

#include <stdint.h>

#define UNITS_MAX 32

/* "0 B", "64 KiB", "1.50 GiB". */
char *units_bytes(char buf[UNITS_MAX], uint64_t bytes);
/* "850 ns", "12.3 us", "4.56 s". */
char *units_time(char buf[UNITS_MAX], uint64_t ns);
/* About three digits: "0.0123", "1.23", "45.6", "789", "12345". */
char *units_digits(char buf[UNITS_MAX], double value);
/* A computed quantity as a whole number, cut off: 0 for what is negative or not a number, the greatest for
 * what is greater. */
uint64_t units_whole(double value);

#endif

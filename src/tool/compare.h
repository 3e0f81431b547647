/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Two runs of the bench, from the JSON files that they wrote, side by side. */
#ifndef UNPIN_TOOL_COMPARE_H
#define UNPIN_TOOL_COMPARE_H

#include <stdio.h>

/*
 * Prints what differs between the machines and runs, and then part by part every figure of both with the
 * ratio of the second to the first. Figures are told by their part, by the words and sizes of their row, and
 * by their key; what only one of them has is listed. 0; or, after a sentence on standard error, a negative
 * errno: -ENOENT and the like for a file that cannot be read, -EINVAL for one that is no report of the bench,
 * -EPROTO for one of a format that is not understood.
 */
int compare_print(const char *first, const char *second, FILE *out);

#endif

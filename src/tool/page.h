/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A report as a folder of files: index.html, one page that needs no other file, no network and no script; its
 * plots as SVG and its tables and plots as CSV beside it; bench.json. It may be written again and again while
 * the report grows: each file is complete or is the one of before.
 */
#ifndef UNPIN_TOOL_PAGE_H
#define UNPIN_TOOL_PAGE_H

#include <stdbool.h>

#include "tool/report.h"

#define PAGE_WHY_MAX 512

/*
 * Makes the folder if it is not there, and finds out whether files can be written into it. A folder that has
 * an earlier report, whose files are removed first, sets *replaces. 0 or negative errno with a sentence in
 * why: -ENOTEMPTY when other things are in it; what the kernel says when it cannot be made or written.
 */
int page_prepare(const char *folder, bool *replaces, char why[PAGE_WHY_MAX]);

/* Writes everything. 0 or negative errno with a sentence in why. */
int page_write(const struct report *r, const char *folder, char why[PAGE_WHY_MAX]);

#endif

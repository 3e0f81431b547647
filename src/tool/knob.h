/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What can be set of the device (base/setting.h), as options of `unpin run`: each row of that table is an
 * option, a line of --help and a variable of the program's environment. A new row there is in a group here,
 * and nothing else. Not thread safe.
 */
#ifndef UNPIN_TOOL_KNOB_H
#define UNPIN_TOOL_KNOB_H

#include <limits.h>

#include "base/setting.h"
#include "tool/option.h"

enum knob_group { KNOB_OTHER, KNOB_DEVICE, KNOB_FAULTS, KNOB_FABRIC, KNOB_STORM };

#define KNOB_HELP    320
#define KNOB_DEFAULT 32

struct knobs {
	bool flag[SETTING_COUNT];
	const char *text[SETTING_COUNT];
	char help[SETTING_COUNT][KNOB_HELP];
	char trace[PATH_MAX]; /* --trace, made absolute */
};

/* Appends the options of a group to rows (room for all of them and an end is the caller's) and returns how
 * many. Parsing fills in k, which must be zero at first and outlive the rows. */
size_t knob_rows(struct knobs *k, enum knob_group group, struct option_row *rows);

/* The default as people read and type it: "park", "200ms", "20%", "16"; "" where there is none (SWITCH,
 * TEXT). */
void knob_default(const struct setting *s, char out[KNOB_DEFAULT]);

/*
 * Checks what was given and puts it into the environment. replace: --trace's file, if it exists, is removed,
 * and it is tried whether it can be written. 0; -EINVAL or another errno after a sentence on standard error,
 * also for a wrong value that was in the environment before.
 */
int knob_set(struct knobs *k, bool replace);

#endif

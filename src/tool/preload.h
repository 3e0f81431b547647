/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Putting libunpin.so in front of a program: where the library is, and the environment in which the program
 * starts. Used by `unpin run`, and by `unpin bench` to run itself on unpin's own device.
 */
#ifndef UNPIN_TOOL_PRELOAD_H
#define UNPIN_TOOL_PRELOAD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "tool/program.h"

struct preload {
	char library[PATH_MAX]; /* absolute path of libunpin.so */
	char answers[PATH_MAX]; /* directory of the programs that answer for unpin's device (rdma); "" when
				   not found */
};

/*
 * UNPIN_LIBRARY when it is set, else beside this command in a build tree, else in the library directory that
 * belongs to the directory this command is in, else in the one it was built for. 0; -ENOENT or -EINVAL after
 * a sentence on standard error.
 */
int preload_find(struct preload *p);

/* True when this process itself has been started with the library. */
bool preload_active(void);

/* Puts the directory of the answers first on PATH, once; nothing when there are none. Before the program is
 * looked up, so that `unpin run -- rdma` finds them. 0, -ENOMEM, -E2BIG. */
int preload_path(const struct preload *p);

/* Sets LD_PRELOAD: sanitizer runtimes of the program and those that were there before, the library, what else
 * was there before, each once. 0, -ENOMEM, -E2BIG. */
int preload_library(const struct preload *p, const struct elfinfo *elf);

/* LD_PRELOAD's value as preload_library makes it: before is the old value or NULL. 0 or -E2BIG. */
int preload_list(
	const struct preload *p, const struct elfinfo *elf, const char *before, char *out, size_t size);

/* Replaces this process by the program; returns only on failure, with negative errno. */
int preload_exec(const struct program *program, char **argv);

/* Exit status of env(1) and nohup(1) for a program that could not be started: 127 when there is none, else
 * 126. */
int preload_status(int err);

#define PRELOAD_STATUS_SELF 125 /* unpin itself failed */

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Finds the program that a command line names, the way execvp(3) does, and says whether a preloaded library
 * can reach it. A script is followed through its #! lines to the interpreter that the kernel will load.
 */
#ifndef UNPIN_TOOL_PROGRAM_H
#define UNPIN_TOOL_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

#include "tool/elfinfo.h"

struct program {
	char path[PATH_MAX];  /* what to execute */
	char image[PATH_MAX]; /* the ELF file that will be loaded: path, or the interpreter of a script */
	bool text;	      /* no ELF file and no #!: /bin/sh reads it, as execvp does */
	struct elfinfo elf;   /* of image */
	char why[PATH_MAX +
		 512]; /* on failure: a sentence with the cause and, where there is one, the cure */
};

/*
 * path is a PATH-like list (NULL: /usr/bin:/bin). 0, or with out->why filled in:
 * -ENOENT  there is no such program or interpreter
 * -EACCES  it exists and must not be executed, or is a directory
 * -ELOOP   scripts that interpret scripts, five deep
 * -EPERM   a preloaded library cannot reach it: static, setuid, setgid, with file capabilities, of another
 * machine or C library
 */
int program_find(const char *name, const char *path, struct program *out);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Standard output of a command. What a command says is lost when the disk is full or the descriptor is
 * closed; then the command says so on standard error and its status is not 0. A command that goes on
 * printing asks output_flush() after each piece and stops when it failed. main() asks output_end() once.
 */
#ifndef UNPIN_TOOL_OUTPUT_H
#define UNPIN_TOOL_OUTPUT_H

/* Before the first byte: a report that goes to a file is kept whole until it is flushed, so that the reason
 * of a failure is known. */
void output_begin(void);

/* Writes out what has been printed. 0; or a negative errno when this, or anything before it, was lost. */
int output_flush(void);

/* The exit status of a command that ended with this one: the same, or 1 for a command whose output was lost,
 * which is reported as an error. */
int output_end(const char *command, int status);

#endif

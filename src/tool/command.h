/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The subcommands of `unpin`. Each gets its own name as argv[0] and returns the exit status. */
#ifndef UNPIN_TOOL_COMMAND_H
#define UNPIN_TOOL_COMMAND_H

#define EXIT_USAGE 2

int cmd_advise(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_trace(int argc, char **argv);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The `unpin` command: a table of subcommands. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "tool/command.h"
#include "tool/output.h"
#include "tool/suggest.h"

static const struct {
	const char *name, *summary;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "run", "run a program with unpin's RDMA device in it", cmd_run },
	{ "doctor", "tell whether on-demand paging can be used here, by trying it", cmd_doctor },
	{ "bench", "measure what pinning and on-demand paging cost here", cmd_bench },
	{ "stat", "show the counters and regions of running programs", cmd_stat },
	{ "trace", "finish the timeline of a program that was killed", cmd_trace },
	{ "top", "watch a running program's page faults, live", cmd_top },
	{ "advise", "tell how a program's memory should be registered", cmd_advise },
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(FILE *out)
{
	fputs("Usage: unpin COMMAND [OPTION]...\n"
	      "\n"
	      "An RDMA device with on-demand paging, in software, without privileges or kernel modules.\n\n",
		out);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fputs("\n'unpin COMMAND --help' tells more, and so does man unpin-COMMAND.\n", out);
}

static int unknown(const char *word)
{
	struct suggest s;

	suggest_begin(&s, word);
	for (size_t i = 0; i < COMMANDS; i++)
		suggest_offer(&s, commands[i].name);
	if (s.best)
		log_error("there is no command '%s'; did you mean '%s'?", word, s.best);
	else
		log_error("there is no command '%s'; 'unpin --help' lists them", word);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	output_begin();
	log_enabled(LOG_ERROR); /* a wrong UNPIN_LOG is reported first */
	if (argc < 2) {
		help(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
		help(stdout);
		return output_end("help", 0);
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
		puts("unpin " UNPIN_VERSION);
		return output_end("version", 0);
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return output_end(commands[i].name, commands[i].run(argc - 1, argv + 1));
	return unknown(argv[1]);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/output.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define WHOLE (1u << 20) /* more than any report */

static int lost; /* the first failure, a negative errno */

void output_begin(void)
{
	static char whole[WHOLE];

	if (!isatty(STDOUT_FILENO))
		setvbuf(stdout, whole, _IOFBF, sizeof(whole));
}

int output_flush(void)
{
	int err = 0;

	if (fflush(stdout))
		err = errno ? -errno : -EIO;
	else if (ferror(stdout))
		err = -EIO;
	if (!lost)
		lost = err;
	return lost;
}

int output_end(const char *command, int status)
{
	int err = output_flush();

	if (!err)
		return status;
	log_error("%s: cannot write the output: %s", command, strerror(-err));
	return status ? status : 1;
}

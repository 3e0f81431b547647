/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What a descriptor gives to its end, as one text: a file of /proc or /sys, a record, a pipe. */
#ifndef UNPIN_TOOL_WHOLE_H
#define UNPIN_TOOL_WHOLE_H

/*
 * All that can be read from fd, up to 8 MiB, with NUL behind it; free(3) it. What cannot be read any more
 * (an error, the end, a FIFO without a writer) ends it. The file is not trusted: there may be NULs inside.
 */
char *whole_read(int fd);

#endif

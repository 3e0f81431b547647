/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A file of /proc read a character at a time, so that lines of any length need no buffer of their length.
 * No allocation; by system calls, so no cancellation points; async-signal-safe; a reader belongs to one
 * thread. Errno is kept by all.
 */
#ifndef UNPIN_MM_PROCREAD_H
#define UNPIN_MM_PROCREAD_H

#include <stddef.h>
#include <stdint.h>

struct procread {
	int fd;
	int err; /* 0 at the end of the file, else the negative errno that ended the reading */
	size_t at, have;
	char buf[2048];
};

/* 0 or a negative errno (nothing to close then). */
int procread_open(struct procread *r, const char *path);
void procread_close(struct procread *r);
/* The next character, or -1 at the end or after an error (r->err). */
int procread_get(struct procread *r);
/* A number in base 10 or 16 (lower case); *stop gets the character behind it, or -1. */
uint64_t procread_number(struct procread *r, unsigned base, int *stop);
/*
 * Up to a blank or the end of the line (word), or to the end of the line (rest), its beginning into out, of
 * size bytes with the final 0, without leading blanks. c is the first character, read already. Returns the
 * character that ended it, or -1.
 */
int procread_word(struct procread *r, int c, char *out, size_t size);
int procread_rest(struct procread *r, int c, char *out, size_t size);

#endif

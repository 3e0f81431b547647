/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory whose page faults wait until they are answered, as faults on a network file system or a slow disk
 * do. Made with userfaultfd for faults taken in the kernel, which needs a privilege: without it slow_open()
 * skips the case.
 */
#ifndef UNPIN_TESTS_USERS_SLOW_H
#define UNPIN_TESTS_USERS_SLOW_H

#include <stdbool.h>
#include <stddef.h>

struct slow {
	int fd;
	char *memory;
	size_t length;
};

/* Skips the case unless slow_open() will work; for the process that starts another which opens one. */
void slow_need(void);
/* shared: a shared mapping of a memory file, else private anonymous memory. */
void slow_open(struct slow *s, size_t length, bool shared);
/* Waits for the next fault and returns its page's offset; -1 when none comes within so many milliseconds. */
long slow_fault(struct slow *s, int ms);
/* Lets the fault on the page at offset end with a page full of byte. */
void slow_answer(struct slow *s, long offset, unsigned char byte);
/* No more waiting: faults that wait go on, later ones are ordinary. */
void slow_close(struct slow *s);

#endif

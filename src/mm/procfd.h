/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Files of /proc/self that are asked again and again, kept open: close-on-exec, on a high number, opened
 * again in a forked child (such a file describes the address space it was opened in) and when the application
 * has closed it under us. Any thread; no locks; no allocation; no cancellation points; errno is kept.
 */
#ifndef UNPIN_MM_PROCFD_H
#define UNPIN_MM_PROCFD_H

enum procfd { PROCFD_MAPS, PROCFD_PAGEMAP, PROCFDS };

/* The descriptor, or a negative errno. It stays ours: never close it. */
int procfd_get(enum procfd which);
/*
 * The descriptor fd from procfd_get() turned out not to be what it was (EBADF, ENOTTY, ...): forgets it,
 * without closing it, since the number belongs to somebody else now. The next procfd_get() opens a new one.
 */
void procfd_lost(enum procfd which, int fd);
/* Moves fd to a number that programs do not expect to get (close-on-exec), or leaves it where it is. Returns
 * it. */
int procfd_raise(int fd);
/* open(path, O_RDONLY | O_CLOEXEC), pread and close by system call: a negative errno or the result. */
int procfd_open(const char *path);
long procfd_pread(int fd, void *buf, unsigned long n, long off);
void procfd_close(int fd);

#endif

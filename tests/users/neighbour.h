/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the preloaded library of neighbour.c tells a program that looks for it with dlsym(). */
#ifndef UNPIN_TESTS_USERS_NEIGHBOUR_H
#define UNPIN_TESTS_USERS_NEIGHBOUR_H

#include <signal.h>
#include <stdbool.h>

#define NEIGHBOUR_LIST(X)                                                                                    \
	X(munmap)                                                                                            \
	X(mmap)                                                                                              \
	X(mmap64)                                                                                            \
	X(mremap)                                                                                            \
	X(madvise)                                                                                           \
	X(posix_madvise)                                                                                     \
	X(mprotect)                                                                                          \
	X(pkey_mprotect)                                                                                     \
	X(sbrk)                                                                                              \
	X(brk)                                                                                               \
	X(shmat)                                                                                             \
	X(shmdt)                                                                                             \
	X(ioctl)                                                                                             \
	X(sigaction)                                                                                         \
	X(signal)                                                                                            \
	X(sysv_signal)                                                                                       \
	X(sigset)                                                                                            \
	X(sigignore)                                                                                         \
	X(siginterrupt)

#define X(name) +1
enum { NEIGHBOUR_CALLS = NEIGHBOUR_LIST(X) };
#undef X

/* An ioctl of a device that only this library has, and its answer. */
#define NEIGHBOUR_REQUEST 0x12345ul
#define NEIGHBOUR_ANSWER  77

#define EXPORTED __attribute__((visibility("default")))

/* Counts the calls of the calling thread from now on, or stops. */
EXPORTED void neighbour_count(bool on);
/* So many calls were counted of the name at this place in the list. */
EXPORTED unsigned neighbour_counted(unsigned call);

#endif

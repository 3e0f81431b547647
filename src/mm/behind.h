/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What stands behind our functions in front of libc's: libc's own, or those of another library that wants to
 * see the same calls (libjsig, the memory hooks of UCX, umockdev, a profiler, a sanitizer). Ours call them,
 * so that such a library sees what it would see without us, wherever it stands in the order.
 *
 * They are looked up once, by a constructor of ours. Until then (constructors of other libraries that run
 * first) BEHIND() is NULL, and the caller makes the system call itself. Nothing is looked up later: these
 * functions are called from inside malloc and from signal handlers.
 *
 * A function behind ours that calls the same name again would, without us, call itself: nothing guards
 * against that here. One that calls another name of the list (mmap64 mmap, say) comes to ours again; what is
 * told then is told twice, which does no harm.
 *
 * Our own memory and descriptors are no affair of such libraries: they go by system call (raw_mmap() and its
 * relatives, base/fd.h).
 */
#ifndef UNPIN_MM_BEHIND_H
#define UNPIN_MM_BEHIND_H

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define BEHIND_LIST(X)                                                                                       \
	X(munmap, int, (void *, size_t))                                                                     \
	X(mmap, void *, (void *, size_t, int, int, int, off_t))                                              \
	X(mmap64, void *, (void *, size_t, int, int, int, off64_t))                                          \
	X(mremap, void *, (void *, size_t, size_t, int, ...))                                                \
	X(madvise, int, (void *, size_t, int))                                                               \
	X(posix_madvise, int, (void *, size_t, int))                                                         \
	X(process_madvise, ssize_t, (int, const struct iovec *, size_t, int, unsigned))                      \
	X(mprotect, int, (void *, size_t, int))                                                              \
	X(pkey_mprotect, int, (void *, size_t, int, int))                                                    \
	X(sbrk, void *, (intptr_t))                                                                          \
	X(brk, int, (void *))                                                                                \
	X(shmat, void *, (int, const void *, int))                                                           \
	X(shmdt, int, (const void *))                                                                        \
	X(ioctl, int, (int, unsigned long, ...))                                                             \
	X(sigaction, int, (int, const struct sigaction *, struct sigaction *))                               \
	X(signal, __sighandler_t, (int, __sighandler_t))                                                     \
	X(bsd_signal, __sighandler_t, (int, __sighandler_t))                                                 \
	X(ssignal, __sighandler_t, (int, __sighandler_t))                                                    \
	X(sysv_signal, __sighandler_t, (int, __sighandler_t))                                                \
	X(__sysv_signal, __sighandler_t, (int, __sighandler_t))                                              \
	X(sigset, __sighandler_t, (int, __sighandler_t))                                                     \
	X(sigignore, int, (int))                                                                             \
	X(siginterrupt, int, (int, int))

#define BEHIND_X(name, result, arguments) typedef result behind_##name##_fn arguments;
BEHIND_LIST(BEHIND_X)
#undef BEHIND_X

extern struct behind {
#define BEHIND_X(name, result, arguments) _Atomic(behind_##name##_fn *) name;
	BEHIND_LIST(BEHIND_X)
#undef BEHIND_X
} behind;

/* The next function of this name, or NULL: not known yet, or there is none. */
#define BEHIND(name) atomic_load_explicit(&behind.name, memory_order_acquire)

#endif

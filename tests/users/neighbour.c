/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A library that stands in front of libc, as a profiler, libjsig or umockdev does: it counts what the calling
 * thread calls while that thread counts, and has a device of its own. neighbours.c puts it before and behind
 * libunpin.so.
 */
#undef _FILE_OFFSET_BITS
#include "neighbour.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>

#undef signal
#undef sigset
#undef sigignore

/* Constant size: no allocation on first use inside malloc. */
static __thread unsigned counts[NEIGHBOUR_CALLS] __attribute__((tls_model("initial-exec")));
static __thread bool counting __attribute__((tls_model("initial-exec")));

#define X(name) #name,
static const char *const names[] = { NEIGHBOUR_LIST(X) };
#undef X
#define X(name) CALL_##name,
enum { NEIGHBOUR_LIST(X) };
#undef X

static void *next[NEIGHBOUR_CALLS];

static void *seen(unsigned call)
{
	if (counting)
		counts[call]++;
	if (!next[call])
		next[call] = dlsym(RTLD_NEXT, names[call]);
	return next[call];
}

void neighbour_count(bool on)
{
	if (on)
		memset(counts, 0, sizeof(counts));
	counting = on;
}

unsigned neighbour_counted(unsigned call)
{
	return counts[call];
}

#pragma GCC visibility push(default)

#define PASS(name, result, parameters, arguments)                                                            \
	result name parameters                                                                               \
	{                                                                                                    \
		return ((result(*) parameters)seen(CALL_##name))arguments;                                   \
	}

PASS(munmap, int, (void *p, size_t n), (p, n))
PASS(mmap, void *, (void *p, size_t n, int prot, int flags, int fd, off_t off), (p, n, prot, flags, fd, off))
PASS(mmap64, void *, (void *p, size_t n, int prot, int flags, int fd, off64_t off),
	(p, n, prot, flags, fd, off))
PASS(madvise, int, (void *p, size_t n, int advice), (p, n, advice))
PASS(posix_madvise, int, (void *p, size_t n, int advice), (p, n, advice))
PASS(mprotect, int, (void *p, size_t n, int prot), (p, n, prot))
PASS(pkey_mprotect, int, (void *p, size_t n, int prot, int key), (p, n, prot, key))
PASS(sbrk, void *, (intptr_t by), (by))
PASS(brk, int, (void *to), (to))
PASS(shmat, void *, (int id, const void *at, int flags), (id, at, flags))
PASS(shmdt, int, (const void *at), (at))
PASS(sigaction, int, (int sig, const struct sigaction *act, struct sigaction *old), (sig, act, old))
PASS(signal, __sighandler_t, (int sig, __sighandler_t handler), (sig, handler))
PASS(sysv_signal, __sighandler_t, (int sig, __sighandler_t handler), (sig, handler))
PASS(sigset, __sighandler_t, (int sig, __sighandler_t handler), (sig, handler))
PASS(sigignore, int, (int sig), (sig))
PASS(siginterrupt, int, (int sig, int flag), (sig, flag))

void *mremap(void *old, size_t old_len, size_t new_len, int flags, ...)
{
	va_list ap;
	void *new;

	va_start(ap, flags);
	new = va_arg(ap, void *);
	va_end(ap);
	return ((void *(*)(void *, size_t, size_t, int, ...))seen(CALL_mremap))(
		old, old_len, new_len, flags, new);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request == NEIGHBOUR_REQUEST && counting) {
		counts[CALL_ioctl]++;
		return NEIGHBOUR_ANSWER;
	}
	return ((int (*)(int, unsigned long, ...))seen(CALL_ioctl))(fd, request, arg);
}

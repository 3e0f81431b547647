/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/uffdreader.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define BATCH 16

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* A system call that leaves errno alone: the result or a negative errno. */
#if defined(__x86_64__)
static long call(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return r;
}

/*
 * clone() with body(arg) on the stack that ends at top. libc's would do, but ThreadSanitizer puts itself in
 * front of that and takes what it makes for a fork.
 */
static long make_process(long flags, void *top, _Atomic uint32_t *child_tid, int (*body)(void *), void *arg)
{
	register long r10 __asm__("r10") = (long)child_tid;
	register long r8 __asm__("r8") = 0;
	long r;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "mov %[arg], %%rdi\n\t"
			 "call *%[body]\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(r)
			 : "a"(SYS_clone), "D"(flags), "S"(top), "d"(0), "r"(r10),
			 "r"(r8), [body] "r"(body), [arg] "r"(arg), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory", "cc");
	return r;
}
#define SUPPORTED 1
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}

/* clone() with body(arg) on the stack that ends at top; see above. */
static long make_process(long flags, void *top, _Atomic uint32_t *child_tid, int (*body)(void *), void *arg)
{
	register long x8 __asm__("x8") = SYS_clone;
	register long x0 __asm__("x0") = flags;
	register long x1 __asm__("x1") = (long)top;
	register long x2 __asm__("x2") = 0;
	register long x3 __asm__("x3") = 0;
	register long x4 __asm__("x4") = (long)child_tid;

	__asm__ volatile("svc 0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x0, %[arg]\n\t"
			 "blr %[body]\n\t"
			 "mov x8, %[exit]\n\t"
			 "svc 0\n\t"
			 "brk #0\n"
			 "1:"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3),
			 "r"(x4), [body] "r"(body), [arg] "r"(arg), [exit] "i"(SYS_exit)
			 : "memory", "cc");
	return x0;
}
#define SUPPORTED 1
#else
static long call(long number, long a, long b, long c, long d, long e)
{
	(void)number, (void)a, (void)b, (void)c, (void)d, (void)e;
	return -ENOSYS;
}

static long make_process(long flags, void *top, _Atomic uint32_t *child_tid, int (*body)(void *), void *arg)
{
	(void)flags, (void)top, (void)child_tid, (void)body, (void)arg;
	return -ENOSYS;
}
#define SUPPORTED 0
#endif

int uffdreader_supported(void)
{
	return SUPPORTED;
}

static void push(struct uffdreader *r, uintptr_t start, uintptr_t end, uint32_t discard)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	struct uffdreader_event *e = &r->ring[head % UFFDREADER_RING];

	if (head - atomic_load_explicit(&r->tail, memory_order_acquire) == UFFDREADER_RING) {
		atomic_store_explicit(&r->overflow, 1, memory_order_release);
		return;
	}
	e->start = start;
	e->end = end;
	e->discard = discard;
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

static void take(struct uffdreader *r, const struct uffd_msg *m)
{
	switch (m->event) {
	case UFFD_EVENT_UNMAP:
		push(r, m->arg.remove.start, m->arg.remove.end, 0);
		break;
	case UFFD_EVENT_REMOVE:
		push(r, m->arg.remove.start, m->arg.remove.end, 1);
		break;
	case UFFD_EVENT_REMAP:
		push(r, m->arg.remap.from, m->arg.remap.from + m->arg.remap.len, 0);
		push(r, m->arg.remap.to, m->arg.remap.to + m->arg.remap.len, 0);
		break;
	default: /* no page faults: nothing is registered for them */
		break;
	}
}

static void tell(struct uffdreader *r)
{
	uint32_t turn = atomic_load_explicit(&r->turn, memory_order_relaxed) + 1;

	atomic_store_explicit(&r->turn, turn ? turn : 1, memory_order_release);
	/* Not a private one, since the kernel's own wake-up at our end is none. */
	call(SYS_futex, (long)&r->turn, FUTEX_WAKE, INT_MAX, 0, 0);
}

/* False when the descriptor is of no use any more. */
static int read_batch(struct uffdreader *r)
{
	struct pollfd p = { .fd = r->fd, .events = POLLIN };
	struct uffd_msg msg[BATCH];
	long n = call(SYS_ppoll, (long)&p, 1, 0, 0, 0);

	if (n == -EINTR)
		return 1;
	if (n < 0 || p.revents != POLLIN)
		return 0;
	atomic_fetch_add(&r->epoch, 1);
	n = call(SYS_read, r->fd, (long)msg, sizeof(msg), 0, 0);
	if (n > 0)
		atomic_fetch_add_explicit(&r->events, (uint64_t)n / sizeof(msg[0]), memory_order_relaxed);
	for (long i = 0; i < n / (long)sizeof(msg[0]); i++)
		take(r, &msg[i]);
	atomic_fetch_add(&r->epoch, 1);
	if (n > 0)
		tell(r);
	/* EAGAIN: who caused the event was killed meanwhile. */
	return n > 0 || n == -EAGAIN || n == -EINTR;
}

/* Not what the application has opened under the same number. An open one cannot be asked again: EINVAL. */
static int is_userfaultfd(int fd)
{
	struct uffdio_api a = { .api = UFFD_API };

	return call(SYS_ioctl, fd, (long)UFFDIO_API, (long)&a, 0, 0) == -EINVAL;
}

static int reader_main(void *arg)
{
	struct uffdreader *r = arg;
	unsigned fd = (unsigned)r->fd;

	call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (call(SYS_getppid, 0, 0, 0, 0, 0) != r->parent)
		return 1;
	/* kill -STOP of the program's process group is none of our business, nor is its terminal. */
	call(SYS_setsid, 0, 0, 0, 0, 0);
	call(SYS_prctl, PR_SET_NAME, (long)"unpin-uffd", 0, 0, 0);
	/* The application's descriptors must end when the application closes them. */
	if ((fd && call(SYS_close_range, 0, fd - 1, 0, 0, 0)) ||
		call(SYS_close_range, fd + 1, UINT_MAX, 0, 0, 0))
		return 1;
	if (!is_userfaultfd(r->fd))
		return 1;
	atomic_store(&r->reading, 1);
	tell(r);
	while (read_batch(r))
		;
	return 1;
}

pid_t uffdreader_start(struct uffdreader *r)
{
	static _Alignas(64) char stack[32 << 10];
	const int flags = CLONE_VM | CLONE_UNTRACED | CLONE_CHILD_CLEARTID;
	sigset_t all, before;
	pid_t pid;

	atomic_store(&r->reading, 0);
	atomic_store(&r->turn, 1);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = (pid_t)make_process(flags, stack + sizeof(stack), &r->turn, reader_main, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pid;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Restartable sequences (rseq(2)), which glibc 2.35 and newer register for each thread: the kernel then
 * writes to the thread's local storage whenever it lets the thread run again. Our threads sleep for long, so
 * under a memory limit that page is in swap; where the OOM killer is off, or another access of the kernel's
 * would have to wait as well, the write fails, and the kernel ends the process with SIGSEGV. Our threads have
 * no use for it.
 */
#ifndef UNPIN_BASE_RSEQ_H
#define UNPIN_BASE_RSEQ_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(SYS_rseq) && defined(__x86_64__)
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* The first thing that a thread of ours does. The kernel wants what was registered: the address, its size
 * and glibc's signature. sched_getcpu(3) goes on to work. */
static inline void rseq_leave(void)
{
	const long unregister = 1, signature = 0x53053053, least = 32;
	char *thread; /* the thread pointer */

	if (!&__rseq_offset || !&__rseq_size || !__rseq_size)
		return;
	__asm__("mov %%fs:0, %0" : "=r"(thread));
	if (syscall(SYS_rseq, thread + __rseq_offset, least, unregister, signature))
		syscall(SYS_rseq, thread + __rseq_offset, (long)__rseq_size, unregister, signature);
}
#else
static inline void rseq_leave(void)
{
}
#endif

#endif

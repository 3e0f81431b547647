/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The SIGSEGV and SIGBUS handlers behind safecopy.h, and their peace with the application's own.
 *
 * sigchain_install() puts our handler in front at first device open. From then on the interposed sigaction,
 * signal, ssignal, bsd_signal, sysv_signal, __sysv_signal, sigset, sigignore and siginterrupt keep what the
 * application installs for these two signals in a table of ours and report it back, exactly as the kernel
 * would; our handler stays first. A fault whose instruction lies in safecopy's copy routines is repaired. Any
 * other one is the application's: its handler is called with its flags honoured (SA_SIGINFO, SA_NODEFER,
 * SA_RESETHAND, SA_RESTART, SA_ONSTACK, sa_mask), or, when it has none, the kernel's default action is put
 * back and the very same signal, with its siginfo, is queued to the thread again: it is taken when our
 * handler returns, at the faulting instruction with its registers, so the core dump shows the fault and not
 * us. Ignoring a synchronous fault is the default action, as in the kernel. SIGSEGV and SIGBUS from kill() or
 * the like never count as a fault of ours, wherever they interrupt.
 *
 * A child of vfork() has its own actions but this memory: what it sets goes to the kernel alone, and the
 * parent keeps what it has.
 *
 * What differs from a program without us: a stack overflow without an alternate stack dies with si_code
 * SI_KERNEL (the kernel cannot deliver to us either); SIG_IGN for these signals is not inherited across exec,
 * and an ignored SIGSEGV sent by kill() may end a poll() or a sleep early; the kernel log has no "segfault
 * at" line.
 *
 * Other signals are passed to the next function of the same name (mm/behind.h). Before sigchain_install() the
 * interposed functions do what libc's do. Async-signal-safe, thread safe, no
 * locks.
 */
#ifndef UNPIN_MM_SIGCHAIN_H
#define UNPIN_MM_SIGCHAIN_H

#include <stdbool.h>

/* 0 or a negative errno. Idempotent; calling it again puts our handler back in front when something else (a
 * raw system call) has taken its place. */
int sigchain_install(void);
/* Whether sigchain_install() has succeeded in this process or the one it was forked from. */
bool sigchain_installed(void);

#endif

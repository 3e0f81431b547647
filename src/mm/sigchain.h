/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The SIGSEGV and SIGBUS handlers behind safecopy.h, and their peace with the application's own.
 *
 * sigchain_install() puts our handler in front at first device open. From then on the interposed sigaction, signal,
 * sigset, bsd_signal, sysv_signal, __sysv_signal (and ssignal) keep what the application installs for these two
 * signals in a table of ours and report it back, exactly as the kernel would; our handler stays first. A fault whose
 * instruction lies in safecopy's copy routines is repaired. Any other one is the application's: its handler is called
 * with its flags honoured (SA_SIGINFO, SA_NODEFER, SA_RESETHAND, sa_mask, SA_ONSTACK as far as a handler in front
 * can), or, when it has none, the default action is restored and the instruction is left to fault again, so that the
 * core dump shows the faulting instruction and not us. SIG_IGN of a synchronous fault is the default action, as in the
 * kernel.
 *
 * Before sigchain_install() the interposed functions are plain passages to libc. Async-signal-safe, thread safe.
 */
#ifndef UNPIN_MM_SIGCHAIN_H
#define UNPIN_MM_SIGCHAIN_H

/* 0 or a negative errno. Idempotent. */
int sigchain_install(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Protection keys (pkeys(7)): rights that a thread has, or has not, to memory that is tagged with a key. They
 * bind the processor, and a device no more than the kernel's own driver: memory with the rights of its
 * mapping is reached whatever the thread that happens to copy may do.
 *
 * A copy or a populate that meets a key opens all of them to its thread for the time of one repetition. Where
 * nobody uses keys nothing is done; a signal handler gets the kernel's default rights in between, and the
 * application's code never sees the change.
 */
#ifndef UNPIN_MM_PKEY_H
#define UNPIN_MM_PKEY_H

#include <stdbool.h>
#include <stdint.h>

/* Lets the calling thread use all keys; *was is for pkey_close(). False: it may do so already, or there are
 * no keys on this machine. No system call. */
bool pkey_open(uint32_t *was);
void pkey_close(uint32_t was);
/* Whether the processor and the kernel have them. */
bool pkey_have(void);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Filling a tree (sysfs/tree.h). Called with its lock; system calls only, but for what sysfs/entry.h asks. */
#ifndef UNPIN_SYSFS_BUILD_H
#define UNPIN_SYSFS_BUILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* Of all that a tree made at this moment would hold. */
uint64_t sysfs_hash(void);

/* Of the names of the kernel's devices; 0: there are none. *taken: one of them is named as ours. */
uint64_t sysfs_kernel_devices(bool *taken);

/* Fills an empty directory. 0 or a negative errno; then the caller removes it. */
int sysfs_build(int root);

/* Every signal of this thread, off and on again (tree.c). */
void sysfs_signals_hold(sigset_t *was);
void sysfs_signals_restore(const sigset_t *was);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Capabilities of the calling thread that decide which limits of the kernel bind it. */
#ifndef UNPIN_BASE_CAPABILITY_H
#define UNPIN_BASE_CAPABILITY_H

#include <stdbool.h>

/* CAP_IPC_LOCK is effective: the limit on locked memory does not bind, unless the capability is of a user
 * namespace. A system call; any thread; errno may change. */
bool has_ipc_lock(void);

#endif

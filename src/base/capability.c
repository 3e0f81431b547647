/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/capability.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

bool has_ipc_lock(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	return syscall(SYS_capget, &head, data) == 0 && data[0].effective & 1u << CAP_IPC_LOCK;
}

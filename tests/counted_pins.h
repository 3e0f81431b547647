/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Include it in a program that asks VmPin what is pinned: newer kernels (7.3) do not count what io_uring pins
 * for a process with CAP_IPC_LOCK. It does without, behind a limit on locked memory that never binds; whoever
 * may not raise the limit has no such capability either.
 */
#ifndef UNPIN_TESTS_COUNTED_PINS_H
#define UNPIN_TESTS_COUNTED_PINS_H

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((constructor)) static void counted_pins(void)
{
	const struct rlimit none = { RLIM_INFINITY, RLIM_INFINITY };
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (setrlimit(RLIMIT_MEMLOCK, &none) || syscall(SYS_capget, &head, data))
		return;
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	syscall(SYS_capset, &head, data);
}

#endif

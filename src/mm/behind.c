/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Here mmap and mmap64 are two functions, and signal is no other name of another. */
#undef _FILE_OFFSET_BITS
#include "mm/behind.h"

#include "base/next.h"

#undef signal
#undef sigset
#undef sigignore

struct behind behind;

/* Before the constructors of this library that have no priority, and of whatever the program consists of. */
__attribute__((constructor(101))) static void look_up(void)
{
	/*
	 * ThreadSanitizer stands behind ours only in a program that these functions are linked into, as tests
	 * are. Its functions deliver signals late and watch what is called in handlers: there the system
	 * calls are made. Where it is preloaded it comes first (tool/preload.h).
	 */
	if (next_function("__tsan_init"))
		return;
#define BEHIND_X(name, result, arguments)                                                                    \
	atomic_store_explicit(&behind.name, (behind_##name##_fn *)next_function(#name), memory_order_release);
	BEHIND_LIST(BEHIND_X)
#undef BEHIND_X
}

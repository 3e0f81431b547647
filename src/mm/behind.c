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
#define BEHIND_X(name, result, arguments)                                                                    \
	atomic_store_explicit(&behind.name, (behind_##name##_fn *)next_function(#name), memory_order_release);
	BEHIND_LIST(BEHIND_X)
#undef BEHIND_X
}

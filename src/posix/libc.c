/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#undef _FILE_OFFSET_BITS
#include "posix/libc.h"

#include "base/next.h"

struct libc_functions libc_functions;

/* A function pointer is one word, and the names are not called through it before it is complete. */
static void look_up(void *entry, const char *name)
{
	__atomic_store_n((void **)entry, next_function(name), __ATOMIC_RELAXED);
}

void *libc_late(const char *name)
{
	return next_function(name);
}

__attribute__((constructor(101))) static void look_up_all(void)
{
#define X(result, name, parameters) look_up(&libc_functions.name, #name);
	LIBC_FUNCTIONS(X)
#undef X
}

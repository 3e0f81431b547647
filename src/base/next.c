/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/next.h"

#include <dlfcn.h>

void *next_function(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

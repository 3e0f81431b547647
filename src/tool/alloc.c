/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

static void *checked(void *p)
{
	if (!p) {
		log_error("out of memory");
		exit(EXIT_FAILURE);
	}
	return p;
}

void *alloc_array(size_t n, size_t size)
{
	return checked(calloc(n ? n : 1, size));
}

void *alloc_grow(void *old, size_t n, size_t size)
{
	return checked(reallocarray(old, n ? n : 1, size));
}

char *alloc_text(const char *fmt, ...)
{
	char *text = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	return checked(n < 0 ? NULL : text);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* For tests: what /proc/self/status says, and whether a page is locked. */
#ifndef UNPIN_TESTS_MM_STATUS_H
#define UNPIN_TESTS_MM_STATUS_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* A field like "VmPin", in KiB; -1 when there is none. */
static inline long status_kib(const char *field)
{
	char line[256];
	long kib = -1;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, field, strlen(field)) && line[strlen(field)] == ':')
			sscanf(line + strlen(field) + 1, "%ld", &kib);
	if (f)
		fclose(f);
	return kib;
}

static inline bool page_locked(const void *page)
{
	return msync((void *)page, 1, MS_ASYNC | MS_INVALIDATE) && errno == EBUSY;
}

#endif

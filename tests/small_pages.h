/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Include it in a program that counts pages of 4 KiB: transparent huge pages are off in it from the start,
 * also for its children. Many machines have them on for all memory, and then one touch brings in 512 pages.
 */
#ifndef UNPIN_TESTS_SMALL_PAGES_H
#define UNPIN_TESTS_SMALL_PAGES_H

#include <sys/prctl.h>

__attribute__((constructor)) static void small_pages(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

#endif

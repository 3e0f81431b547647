/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The functions that stand behind ours in the dynamic linker's order of look-up: libc's, or those of another
 * library that also stands in front of libc (a profiler, an allocator's hooks, a sanitizer). A function of
 * ours that has a name of libc's calls the next one of that name, so that every library in the line sees the
 * call.
 */
#ifndef UNPIN_BASE_NEXT_H
#define UNPIN_BASE_NEXT_H

/*
 * The next function of this name; NULL: there is none. It calls dlsym(RTLD_NEXT), which takes the dynamic
 * linker's lock and may allocate: keep the answer, and do not call it from a function that malloc or a
 * signal handler may call.
 */
void *next_function(const char *name);

#endif

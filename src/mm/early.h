/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * EARLY marks functions that may run before anything is set up: an interposed function is called by the
 * dynamic loader's constructors, and by the runtime of ThreadSanitizer before its own tables exist. They are
 * built without its instrumentation.
 */
#ifndef UNPIN_MM_EARLY_H
#define UNPIN_MM_EARLY_H

#ifndef __has_attribute
#define __has_attribute(x) 0
#endif
#if __has_attribute(disable_sanitizer_instrumentation)
#define EARLY __attribute__((disable_sanitizer_instrumentation))
#else
#define EARLY __attribute__((no_sanitize("thread")))
#endif

#endif

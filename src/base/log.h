/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Messages for the person who runs the program, on standard error, each line led by "unpin: ".
 * UNPIN_LOG = error | warn (default) | info | debug selects what is printed; an unknown word is reported
 * once, when the first message is asked for. Any thread may call these; they never allocate and keep errno.
 */
#ifndef UNPIN_BASE_LOG_H
#define UNPIN_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

bool log_enabled(enum log_level level);
/* Whether a text is a word for a level; it is written to level. */
bool log_level_named(const char *text, enum log_level *level);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                                       \
	do {                                                                                                 \
		if (log_enabled(LOG_DEBUG))                                                                  \
			log_write(LOG_DEBUG, __VA_ARGS__);                                                   \
	} while (0)

/*
 * For what the device cannot do without: when the errno says that it is refused or absent (EPERM, EACCES,
 * ENOSYS), says so, and what to look at. what: a system call or a part of one. Returns err, a negative errno
 * (or anything else: then nothing is said).
 */
int log_refused(const char *what, int err);

#endif

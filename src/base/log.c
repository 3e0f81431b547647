/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

static const char *const level_names[] = { "error", "warn", "info", "debug" };
static atomic_int threshold = -1;

bool log_level_named(const char *text, enum log_level *level)
{
	for (enum log_level l = LOG_ERROR; l <= LOG_DEBUG; l++)
		if (!strcmp(text, level_names[l])) {
			*level = l;
			return true;
		}
	return false;
}

static int read_threshold(void)
{
	const char *want = getenv("UNPIN_LOG");
	enum log_level level = LOG_WARN;
	bool wrong = want && *want && !log_level_named(want, &level);

	atomic_store(&threshold, (int)level);
	if (wrong)
		log_write(LOG_WARN, "UNPIN_LOG=%s is not one of error, warn, info, debug; using warn", want);
	return (int)level;
}

bool log_enabled(enum log_level level)
{
	int t = atomic_load_explicit(&threshold, memory_order_relaxed);

	if (t < 0)
		t = read_threshold();
	return (int)level <= t;
}

/* Beyond a limit on file sizes a write does not only fail, it ends the program with SIGXFSZ. */
static bool has_room(int n)
{
	struct stat st;

	return fstat(STDERR_FILENO, &st) || !S_ISREG(st.st_mode) ||
	       fd_size_allowed((size_t)st.st_size + (size_t)n);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	int saved = errno;
	char line[512];
	int n, m;
	va_list ap;

	if (!log_enabled(level))
		return;
	n = snprintf(line, sizeof(line), level <= LOG_WARN ? "unpin: %s: " : "unpin: ", level_names[level]);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	if (m < 0)
		m = 0;
	n = n + m < (int)sizeof(line) - 2 ? n + m : (int)sizeof(line) - 2;
	line[n++] = '\n';
	/* A raw call: log lines may be written inside verbs, which must not be cancellation points. */
	if (has_room(n))
		syscall(SYS_write, STDERR_FILENO, line, n);
	errno = saved;
}

int log_refused(const char *what, int err)
{
	if (err == -EPERM || err == -EACCES || err == -ENOSYS)
		log_error(
			"the kernel refuses %s (%s), which unpin's device needs: is there a filter of system "
			"calls (seccomp), as containers have?",
			what, strerror(-err));
	return err;
}

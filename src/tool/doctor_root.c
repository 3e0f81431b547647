/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Files of the machine that is looked at: this one, or one that was recorded in a folder. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool/alloc.h"
#include "tool/doctor.h"
#include "tool/whole.h"

extern char **environ;

/* struct open_how of openat2(2), Linux 5.6. */
struct open_in_root {
	uint64_t flags, mode, resolve;
};
#define RESOLVE_IN_THE_ROOT 0x10
#ifndef SYS_openat2
#define SYS_openat2 437
#endif

/* On a kernel without openat2 only paths without a link at their end, and without "..", are opened. */
static int open_below(int root, const char *path, int flags)
{
	struct open_in_root how = { .flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_IN_THE_ROOT };
	long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

	if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
		return (int)fd;
	if (strstr(path, "..")) {
		errno = ELOOP;
		return -1;
	}
	return openat(root, path + (*path == '/'), flags | O_CLOEXEC | O_NOFOLLOW);
}

static int open_file(const struct doctor *d, const char *path, int flags)
{
	/* A record may hold a FIFO. (openat2 refuses flags that mean nothing.) */
	if (!(flags & O_PATH))
		flags |= O_NONBLOCK;
	return d->root ? open_below(d->root_fd, path, flags) : open(path, flags | O_CLOEXEC);
}

/* A terminal obeys control characters; whoever wrote the file must not give it orders. Returns the length. */
static void make_printable(char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] < ' ' && text[i] != '\n' && text[i] != '\t')
			text[i] = '?';
		else if (text[i] == 0x7f)
			text[i] = '?';
}

static char *read_path(const struct doctor *d, const char *path)
{
	int fd = open_file(d, path, O_RDONLY);
	char *text;

	if (fd < 0)
		return NULL;
	text = whole_read(fd);
	close(fd);
	make_printable(text, strlen(text));
	return text;
}

static char *path_of(const char *fmt, va_list ap)
{
	char *path;

	if (vasprintf(&path, fmt, ap) < 0)
		path = alloc_text("%s", "");
	return path;
}

char *doctor_read(const struct doctor *d, const char *fmt, ...)
{
	char *path, *text;
	va_list ap;
	int err;

	va_start(ap, fmt);
	path = path_of(fmt, ap);
	va_end(ap);
	text = read_path(d, path);
	err = errno;
	free(path);
	errno = err;
	return text;
}

/* The first line of text without blanks around it. */
static bool first_line(char *text, char *out, size_t size)
{
	char *from = text, *to;

	if (!text)
		return false;
	while (isspace((unsigned char)*from))
		from++;
	to = from + strcspn(from, "\n");
	while (to > from && isspace((unsigned char)to[-1]))
		to--;
	snprintf(out, size, "%.*s", (int)(to - from), from);
	return to > from;
}

bool doctor_line(const struct doctor *d, char *out, size_t size, const char *fmt, ...)
{
	char *path, *text;
	va_list ap;
	bool any;

	va_start(ap, fmt);
	path = path_of(fmt, ap);
	va_end(ap);
	out[0] = 0;
	text = read_path(d, path);
	any = first_line(text, out, size);
	free(text);
	free(path);
	return any;
}

bool doctor_number(const struct doctor *d, uint64_t *out, const char *fmt, ...)
{
	char *path, *text, *end = NULL;
	va_list ap;
	bool any;

	va_start(ap, fmt);
	path = path_of(fmt, ap);
	va_end(ap);
	text = read_path(d, path);
	any = text && isdigit((unsigned char)text[strspn(text, " \t\n")]);
	if (any)
		*out = strtoull(text, &end, 0);
	free(text);
	free(path);
	return any;
}

bool doctor_exists(const struct doctor *d, const char *fmt, ...)
{
	char *path;
	va_list ap;
	int fd;

	va_start(ap, fmt);
	path = path_of(fmt, ap);
	va_end(ap);
	fd = open_file(d, path, O_PATH);
	free(path);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

char **doctor_names(const struct doctor *d, const char *path)
{
	int fd = open_file(d, path, O_RDONLY | O_DIRECTORY);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	char **names = NULL;
	struct dirent *e;
	size_t n = 0;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		names = alloc_grow(names, n + 2, sizeof(*names));
		names[n] = alloc_text("%s", e->d_name);
		make_printable(names[n], strlen(names[n]));
		n++;
	}
	closedir(dir);
	names = alloc_grow(names, n + 1, sizeof(*names));
	names[n] = NULL;
	if (n)
		qsort(names, n, sizeof(*names), by_text);
	return names;
}

void doctor_names_free(char **names)
{
	for (size_t i = 0; names && names[i]; i++)
		free(names[i]);
	free(names);
}

#define KLOG_READ_ALL	 3
#define KLOG_SIZE_BUFFER 10

char *doctor_kernel_log(const struct doctor *d)
{
	char *text;
	int size, n;

	if (d->root)
		return doctor_read(d, "/dmesg");
	size = klogctl(KLOG_SIZE_BUFFER, NULL, 0);
	if (size <= 0)
		return NULL;
	text = alloc_array((size_t)size + 1, 1);
	n = klogctl(KLOG_READ_ALL, text, size);
	if (n < 0) {
		int err = errno;

		free(text);
		errno = err;
		return NULL;
	}
	text[n] = 0;
	make_printable(text, strlen(text));
	return text;
}

void doctor_lines(char *text, bool (*see)(void *arg, char *line), void *arg)
{
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!see(arg, line))
			return;
}

uint64_t doctor_field(const char *text, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, len) == 0 && line[len] == ':')
			return (uint64_t)strtoull(line + len + 1, NULL, 10) << 10;
	}
	return UINT64_MAX;
}

/* --- the kernel's configuration --------------------------------------------------------------------------
 */

/* gzip(1) unpacks /proc/config.gz: it is everywhere, and a library for one file is too much. */
static char *unpacked(int packed)
{
	char name[] = "gzip", flags[] = "-dc";
	char *argv[] = { name, flags, NULL };
	posix_spawn_file_actions_t actions;
	int out[2], err, status;
	char *text;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC))
		return NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, packed, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	err = posix_spawnp(&pid, name, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	if (err) {
		close(out[0]);
		return NULL;
	}
	text = whole_read(out[0]);
	close(out[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFEXITED(status) || WEXITSTATUS(status) || !*text) {
		free(text);
		return NULL;
	}
	make_printable(text, strlen(text));
	return text;
}

static char *load_config(const struct doctor *d, const char **source)
{
	char release[128], *text;
	int fd = open_file(d, "/proc/config.gz", O_RDONLY);

	*source = "/proc/config.gz";
	if (fd >= 0) {
		text = unpacked(fd);
		close(fd);
		if (text)
			return text;
	}
	doctor_kernel_version(d, release, sizeof(release));
	*source = "/boot/config-*";
	text = doctor_read(d, "/boot/config-%s", release);
	if (text)
		return text;
	*source = "/lib/modules/*/config";
	text = doctor_read(d, "/lib/modules/%s/config", release);
	return text ? text : doctor_read(d, "/lib/modules/%s/build/.config", release);
}

bool doctor_config(struct doctor *d, const char *name, char *value, size_t size, const char **source)
{
	const char *text;
	size_t len = strlen(name);

	if (!d->config_loaded)
		d->config = load_config(d, &d->config_source);
	d->config_loaded = true;
	text = d->config;
	if (source)
		*source = d->config_source;
	snprintf(value, size, "n");
	if (!text)
		return false;
	for (const char *line = text; line && *line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, "CONFIG_", 7) == 0 && strncmp(line + 7, name, len) == 0 &&
			line[7 + len] == '=') {
			const char *v = line + 8 + len;

			snprintf(value, size, "%.*s", (int)strcspn(v, "\n"), v);
			break;
		}
	}
	return true;
}

unsigned doctor_kernel_version(const struct doctor *d, char *release, size_t size)
{
	char own[128];
	unsigned major = 0, minor = 0;
	struct utsname u;

	if (!release) {
		release = own;
		size = sizeof(own);
	}
	release[0] = 0;
	if (d->root)
		doctor_line(d, release, size, "/proc/sys/kernel/osrelease");
	else if (uname(&u) == 0)
		snprintf(release, size, "%s", u.release);
	return sscanf(release, "%u.%u", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

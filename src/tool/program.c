/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SCRIPT_DEPTH 5	 /* Linux gives up after as many interpreters */
#define SHEBANG_MAX  256 /* BINPRM_BUF_SIZE */

static int fail(struct program *p, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail(struct program *p, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->why, sizeof(p->why), fmt, ap);
	va_end(ap);
	return err;
}

/* 0 when the file can be executed, else negative errno. */
static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -EACCES;
	return access(path, X_OK) ? -errno : 0;
}

static int check_executable(struct program *p, const char *path)
{
	switch (executable(path)) {
	case 0:
		return 0;
	case -ENOENT:
	case -ENOTDIR:
		return fail(p, -ENOENT, "%s: no such program", path);
	case -EISDIR:
		return fail(p, -EACCES, "%s is a directory", path);
	default:
		return fail(p, -EACCES, "%s: not allowed to execute it", path);
	}
}

static int look_up(struct program *p, const char *name, const char *path)
{
	char denied[PATH_MAX] = "";

	if (!*name)
		return fail(p, -ENOENT, "the name of the program is empty");
	if (strchr(name, '/')) {
		if (snprintf(p->path, sizeof(p->path), "%s", name) >= (int)sizeof(p->path))
			return fail(
				p, -ENOENT, "the path of the program is longer than %d characters", PATH_MAX);
		return check_executable(p, p->path);
	}
	for (const char *dir = path ? path : "/usr/bin:/bin", *end; dir; dir = *end ? end + 1 : NULL) {
		size_t len;

		end = strchrnul(dir, ':');
		len = (size_t)(end - dir);
		/* An empty element is the current directory, as execvp has it. */
		if (snprintf(p->path, sizeof(p->path), "%.*s%s%s", (int)len, dir, len ? "/" : "./", name) >=
			(int)sizeof(p->path))
			continue;
		switch (executable(p->path)) {
		case 0:
			return 0;
		case -EACCES:
			snprintf(denied, sizeof(denied), "%s", p->path);
			break;
		}
	}
	if (*denied)
		return fail(p, -EACCES, "%s: not allowed to execute it", denied);
	return fail(p, -ENOENT, "%s: no such program on PATH", name);
}

/* The interpreter of a #! line; "" when the line names none. */
static void interpreter(const char *line, char *out, size_t size)
{
	size_t len;

	line += 2;
	line += strspn(line, " \t");
	len = strcspn(line, " \t\n");
	snprintf(out, size, "%.*s", (int)len, line);
}

/*
 * The kernel tells the loader to ignore LD_PRELOAD when running the file changes what the caller may do
 * (AT_SECURE in getauxval(3)): set-user-ID, set-group-ID and file capabilities that count. On a nosuid mount
 * and under no_new_privs these bits have no effect.
 */
static int check_privileged(struct program *p, int fd)
{
	const char *kind = NULL;
	struct statvfs vfs;
	struct stat st;

	if (fstat(fd, &st) || fstatvfs(fd, &vfs))
		return fail(p, -EACCES, "%s: %s", p->image, strerror(errno));
	if ((vfs.f_flag & ST_NOSUID) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return 0;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		kind = "set-user-ID";
	else if ((st.st_mode & S_ISGID) && (st.st_mode & S_IXGRP) && st.st_gid != getgid())
		kind = "set-group-ID";
	else if (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		kind = "privileged by file capabilities";
	if (!kind)
		return 0;
	return fail(p, -EPERM,
		"%s is %s: the system ignores preloaded libraries for such programs. Run an unprivileged "
		"copy of it (cp makes one), or run as the user it changes to.",
		p->image, kind);
}

static int check_same_machine(struct program *p)
{
	struct elfinfo self;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int err = fd < 0 ? -errno : elfinfo_read(fd, &self);

	if (fd >= 0)
		close(fd);
	if (err)
		return fail(p, -EACCES, "cannot read /proc/self/exe: %s", strerror(-err));
	if (p->elf.bits == self.bits && p->elf.machine == self.machine)
		return 0;
	return fail(p, -EPERM,
		"%s is a %u-bit program for machine type %u, unpin is %u-bit for type %u: a library cannot "
		"be loaded into a program of another kind. Use a build of the program for this machine.",
		p->image, p->elf.bits, p->elf.machine, self.bits, self.machine);
}

static int check_image(struct program *p, int fd)
{
	int err = check_same_machine(p);

	if (err)
		return err;
	if (!p->elf.dynamic)
		return fail(p, -EPERM,
			"%s is statically linked: no loader runs that could put unpin's device into it. Link "
			"it dynamically (without -static), or use a build that is.",
			p->image);
	if (strstr(p->elf.interp, "ld-musl"))
		return fail(p, -EPERM,
			"%s uses the musl C library and unpin is built for glibc. Use a build of the program "
			"for glibc.",
			p->image);
	return check_privileged(p, fd);
}

/* One file of the chain. 1: it is a script, next has its interpreter; 0: the chain ends here; or an error. */
static int inspect(struct program *p, char *next, size_t size)
{
	char line[SHEBANG_MAX + 1];
	int fd = open(p->image, O_RDONLY | O_CLOEXEC);
	ssize_t got;
	int err;

	if (fd < 0)
		return fail(p, -EACCES,
			"%s cannot be read, so unpin cannot tell whether a library can be preloaded: %s",
			p->image, strerror(errno));
	err = elfinfo_read(fd, &p->elf);
	if (err == 0) {
		err = check_image(p, fd);
	} else if (err == -EBADMSG) {
		err = fail(p, -EPERM, "%s is a damaged program or one for a machine of the other byte order",
			p->image);
	} else if (err == -ENOEXEC) {
		got = pread(fd, line, sizeof(line) - 1, 0);
		line[got > 0 ? got : 0] = 0;
		err = got > 2 && strncmp(line, "#!", 2) == 0;
		if (err)
			interpreter(line, next, size);
	} else {
		err = fail(p, -EACCES, "%s: %s", p->image, strerror(-err));
	}
	close(fd);
	return err;
}

static int follow(struct program *p)
{
	char next[PATH_MAX];

	snprintf(p->image, sizeof(p->image), "%s", p->path);
	for (int depth = 0; depth <= SCRIPT_DEPTH; depth++) {
		int more = inspect(p, next, sizeof(next));

		if (more < 0)
			return more;
		if (more == 0 && p->elf.bits)
			return 0;
		if (more == 0) {
			p->text = true;
			snprintf(next, sizeof(next), "/bin/sh");
		}
		if (executable(next))
			return fail(p, -ENOENT, "%s: its interpreter '%s' is not there or cannot be executed",
				p->image, next);
		snprintf(p->image, sizeof(p->image), "%s", next);
	}
	return fail(p, -ELOOP, "%s: its interpreters are scripts more than %d deep", p->path, SCRIPT_DEPTH);
}

int program_find(const char *name, const char *path, struct program *out)
{
	int err;

	memset(out, 0, sizeof(*out));
	err = look_up(out, name, path);
	return err ? err : follow(out);
}

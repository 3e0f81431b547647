/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define LIBRARY "libunpin.so"

/* LD_PRELOAD and PATH may be long; the kernel's own limit for one string of the environment is 128 KiB. */
#define LIST_MAX (128 * 1024)

/* Directory of this command, without a trailing slash. */
static int own_directory(char *dir, size_t size)
{
	ssize_t n = readlink("/proc/self/exe", dir, size - 1);
	char *slash;

	if (n < 0)
		return -errno;
	dir[n] = 0;
	slash = strrchr(dir, '/');
	if (!slash)
		return -ENOENT;
	*slash = 0;
	return 0;
}

/* Places are tried in this order; %s is the directory of the command where the place is relative to it. */
static const char *const library_places[] = {
	("%s/" LIBRARY),
	("%s/../" UNPIN_LIBDIR_RELATIVE "/" LIBRARY),
	(UNPIN_LIBDIR "/" LIBRARY),
};
static const char *const answers_places[] = {
	"%s/src/tool/libexec",
	("%s/../" UNPIN_LIBEXECDIR_RELATIVE),
	UNPIN_LIBEXECDIR,
};

/* The first of the places where file (may be "") exists, made absolute and free of links. */
static bool first_place(const char *const *places, size_t n, const char *dir, const char *file, char *out)
{
	for (size_t i = 0; i < n; i++) {
		char path[PATH_MAX + 64];
		char real[PATH_MAX];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
		int len = snprintf(path, sizeof(path), places[i], dir);
#pragma GCC diagnostic pop
		size_t used = strlen(path);

		if (len >= (int)sizeof(path) - (int)strlen(file) - 1)
			continue;
		strcpy(path + used, file);
		if (!realpath(path, real))
			continue;
		real[strlen(real) - strlen(file)] = 0;
		memcpy(out, real, strlen(real) + 1);
		return true;
	}
	return false;
}

/* Whether the dynamic loader of this machine would take the file, and it says that it is the library. */
static bool is_library_file(const char *path)
{
	struct elfinfo elf, self;
	int fd = open(path, O_RDONLY | O_CLOEXEC), own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	bool is = fd >= 0 && !elfinfo_read(fd, &elf) && strcmp(elf.soname, LIBRARY) == 0 &&
		  (own < 0 || elfinfo_read(own, &self) ||
			  (elf.machine == self.machine && elf.bits == self.bits));

	if (fd >= 0)
		close(fd);
	if (own >= 0)
		close(own);
	return is;
}

static int find_library(struct preload *p, const char *dir)
{
	const char *named = getenv("UNPIN_LIBRARY");

	if (named && *named) {
		if (!realpath(named, p->library) || access(p->library, R_OK)) {
			log_error("UNPIN_LIBRARY=%s: %s", named, strerror(errno));
			return -ENOENT;
		}
		if (!is_library_file(p->library)) {
			log_error("UNPIN_LIBRARY=%s is not unpin's library; name a " LIBRARY
				  " for this machine, or unset it",
				named);
			return -EINVAL;
		}
	} else if (!first_place(library_places, sizeof(library_places) / sizeof(library_places[0]), dir, "",
			   p->library)) {
		log_error(LIBRARY " was found neither beside this command (%s) nor in %s; build it with "
				  "'make', install it with 'make install', or name it with "
				  "UNPIN_LIBRARY=/path/to/" LIBRARY,
			dir, UNPIN_LIBDIR);
		return -ENOENT;
	}
	if (strpbrk(p->library, " :\t\n")) {
		log_error("the path of the library, '%s', contains a blank or a colon, which LD_PRELOAD "
			  "cannot express; copy it elsewhere and name that with UNPIN_LIBRARY",
			p->library);
		return -EINVAL;
	}
	return 0;
}

int preload_find(struct preload *p)
{
	char dir[PATH_MAX];
	int err;

	memset(p, 0, sizeof(*p));
	err = own_directory(dir, sizeof(dir));
	if (err) {
		log_error("cannot tell where this command lies: /proc/self/exe: %s", strerror(-err));
		return -ENOENT;
	}
	err = find_library(p, dir);
	if (err)
		return err;
	if (first_place(answers_places, sizeof(answers_places) / sizeof(answers_places[0]), dir, "/rdma",
		    p->answers) &&
		strchr(p->answers, ':'))
		p->answers[0] = 0; /* PATH cannot express it; everything but `rdma` works without */
	return 0;
}

/* By the name inside it, whatever the file is called. */
static int is_library(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *names = NULL;
	const ElfW(Dyn) *dyn = NULL;

	(void)size;
	(void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dyn = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (const ElfW(Dyn) *d = dyn; d && d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_STRTAB)
			names = (const char *)d->d_un.d_ptr;
	/* The loader has made the address absolute, but for the kernel's own object. */
	if (!names || (uintptr_t)names < info->dlpi_addr)
		return 0;
	for (const ElfW(Dyn) *d = dyn; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_SONAME && strcmp(names + d->d_un.d_val, LIBRARY) == 0)
			return 1;
	return 0;
}

bool preload_active(void)
{
	return dl_iterate_phdr(is_library, NULL) != 0;
}

/* Appends word with sep before it, unless the list (of words up to sep) has it already. */
static int append_once(char *list, size_t size, char sep, const char *word, size_t len)
{
	size_t used = strlen(list);

	for (const char *p = list, *end; *p; p = *end ? end + 1 : end) {
		end = strchrnul(p, sep);
		if ((size_t)(end - p) == len && strncmp(p, word, len) == 0)
			return 0;
	}
	if (used + len + 2 > size)
		return -E2BIG;
	if (used)
		list[used++] = sep;
	memcpy(list + used, word, len);
	list[used + len] = 0;
	return 0;
}

/* Whether a word of LD_PRELOAD names a sanitizer's runtime, by path or not. */
static bool is_runtime(const char *word, size_t len)
{
	char name[ELFINFO_NAME_MAX];
	size_t start = len;

	while (start && word[start - 1] != '/')
		start--;
	if (len - start >= sizeof(name))
		return false;
	memcpy(name, word + start, len - start);
	name[len - start] = 0;
	return elfinfo_is_first_runtime(name);
}

/* Appends those words of an old LD_PRELOAD that are runtimes, or all of them. The loader takes blanks and
 * colons as separators. */
static int append_before(char *out, size_t size, const char *before, bool runtimes_only)
{
	int err = 0;

	for (const char *word = before; !err && word && *word;) {
		size_t len = strcspn(word, " :");

		if (len && (!runtimes_only || is_runtime(word, len)))
			err = append_once(out, size, ':', word, len);
		word += len + (word[len] != 0);
	}
	return err;
}

int preload_list(
	const struct preload *p, const struct elfinfo *elf, const char *before, char *out, size_t size)
{
	int err = 0;

	if (size)
		out[0] = 0;
	for (unsigned i = 0; !err && i < elf->runtimes; i++)
		err = append_once(out, size, ':', elf->runtime[i], strlen(elf->runtime[i]));
	if (!err)
		err = append_before(out, size, before, true);
	if (!err)
		err = append_once(out, size, ':', p->library, strlen(p->library));
	if (!err)
		err = append_before(out, size, before, false);
	return err;
}

/* PATH is not taken apart: an empty element of it means the current directory and must stay. */
static int set_path(const struct preload *p, char *buf)
{
	const char *before = getenv("PATH");
	size_t len = strlen(p->answers);

	if (before && strncmp(before, p->answers, len) == 0 && (before[len] == ':' || !before[len]))
		return 0;
	if (!before)
		before = "/usr/bin:/bin"; /* what execvp searches when there is no PATH */
	if (snprintf(buf, LIST_MAX, "%s:%s", p->answers, before) >= LIST_MAX)
		return -E2BIG;
	return setenv("PATH", buf, 1) ? -errno : 0;
}

int preload_path(const struct preload *p)
{
	char *buf;
	int err;

	if (!p->answers[0])
		return 0;
	buf = malloc(LIST_MAX);
	if (!buf)
		return -ENOMEM;
	err = set_path(p, buf);
	free(buf);
	return err;
}

/*
 * Only glibc's dynamic linker replaces $LIB, by its own directory (lib64, lib/x86_64-linux-gnu), so only it
 * finds the library by this prefix. Another C library's, musl's for one, passes over a name that it does not
 * find, while it would end its program over a library built for glibc. There are more ".." than can be
 * needed: the root is its own parent. A shell that replaces the word by nothing leaves a path that is right.
 */
#define GLIBC_ONLY "/$LIB/../../../../../.."

/* Whether the prefix leads to the root here: glibc lies in its own directory. */
static bool glibc_finds_prefix(void)
{
	void *libc = dlopen("/$LIB/libc.so.6", RTLD_LAZY | RTLD_NOLOAD);

	if (libc)
		dlclose(libc);
	return libc;
}

int preload_library(const struct preload *p, const struct elfinfo *elf)
{
	char *buf = malloc(LIST_MAX);
	struct preload named = *p;
	int err;

	if (!buf)
		return -ENOMEM;
	if (glibc_finds_prefix() && strlen(GLIBC_ONLY) + strlen(p->library) < sizeof(named.library))
		snprintf(named.library, sizeof(named.library), "%s%.*s", GLIBC_ONLY,
			(int)(sizeof(named.library) - sizeof(GLIBC_ONLY)), p->library);
	err = preload_list(&named, elf, getenv("LD_PRELOAD"), buf, LIST_MAX);
	if (!err && setenv("LD_PRELOAD", buf, 1))
		err = -errno;
	free(buf);
	return err;
}

int preload_exec(const struct program *program, char **argv)
{
	char **with_shell;
	size_t n = 0;
	int err;

	if (!program->text) {
		execv(program->path, argv);
		return -errno;
	}
	while (argv[n])
		n++;
	with_shell = calloc(n + 2, sizeof(*with_shell));
	if (!with_shell)
		return -ENOMEM;
	with_shell[0] = (char *)"sh";
	with_shell[1] = (char *)program->path;
	for (size_t i = 1; i < n; i++)
		with_shell[i + 1] = argv[i];
	execv(program->image, with_shell);
	err = -errno;
	free(with_shell);
	return err;
}

int preload_status(int err)
{
	return err == -ENOENT ? 127 : 126;
}

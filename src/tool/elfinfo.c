/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "tool/elfinfo.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PHDRS_MAX   256u
#define DYNAMIC_MAX (1u << 20) /* bytes of PT_DYNAMIC that are read at most */

#define NATIVE_DATA  (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)
#define NATIVE_CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)

struct elf_file {
	int fd;
	ElfW(Phdr) * phdr;
	unsigned phnum;
	uint64_t strtab; /* file offset of DT_STRTAB; 0: none */
};

/* All of n bytes at offset, or an error. */
static int read_at(int fd, void *buf, size_t n, uint64_t offset)
{
	size_t done = 0;

	if (offset > INT64_MAX - n)
		return -EBADMSG;
	while (done < n) {
		ssize_t got = pread(fd, (char *)buf + done, n - done, (off_t)(offset + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return -EBADMSG;
		done += (size_t)got;
	}
	return 0;
}

/* A string of at most size - 1 characters; cut short when it is longer or the file ends. */
static void read_string(int fd, uint64_t offset, char *buf, size_t size)
{
	ssize_t got = offset <= INT64_MAX ? pread(fd, buf, size - 1, (off_t)offset) : -1;

	buf[got > 0 ? got : 0] = 0;
}

bool elfinfo_is_first_runtime(const char *needed)
{
	static const char *const names[] = { "asan", "tsan", "hwasan", "lsan", "msan" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t len = strlen(names[i]);

		if (strncmp(needed, "lib", 3) == 0 && strncmp(needed + 3, names[i], len) == 0 &&
			strncmp(needed + 3 + len, ".so", 3) == 0)
			return true;
		if (strncmp(needed, "libclang_rt.", 12) == 0 && strncmp(needed + 12, names[i], len) == 0 &&
			(needed[12 + len] == '-' || needed[12 + len] == '.'))
			return true;
	}
	return false;
}

static int read_phdrs(struct elf_file *f)
{
	ElfW(Ehdr) eh;
	int err = read_at(f->fd, &eh, sizeof(eh), 0);

	if (err)
		return err;
	if (eh.e_phnum == 0)
		return 0;
	if (eh.e_phentsize != sizeof(*f->phdr) || eh.e_phnum > PHDRS_MAX)
		return -EBADMSG;
	f->phdr = calloc(eh.e_phnum, sizeof(*f->phdr));
	if (!f->phdr)
		return -ENOMEM;
	f->phnum = eh.e_phnum;
	return read_at(f->fd, f->phdr, f->phnum * sizeof(*f->phdr), eh.e_phoff);
}

static const ElfW(Phdr) * segment(const struct elf_file *f, uint32_t type)
{
	for (unsigned i = 0; i < f->phnum; i++)
		if (f->phdr[i].p_type == type)
			return &f->phdr[i];
	return NULL;
}

/* Where the byte at an address of the running program lies in the file; 0 when no PT_LOAD has it. */
static uint64_t file_offset(const struct elf_file *f, uint64_t vaddr)
{
	for (unsigned i = 0; i < f->phnum; i++) {
		const ElfW(Phdr) *p = &f->phdr[i];

		if (p->p_type == PT_LOAD && vaddr >= p->p_vaddr && vaddr - p->p_vaddr < p->p_filesz)
			return p->p_offset + (vaddr - p->p_vaddr);
	}
	return 0;
}

static void note_needed(struct elfinfo *out, const char *name)
{
	if (!elfinfo_is_first_runtime(name) || out->runtimes == ELFINFO_RUNTIMES_MAX)
		return;
	memcpy(out->runtime[out->runtimes++], name, strlen(name) + 1);
}

static void scan_dynamic(const struct elf_file *f, const ElfW(Dyn) * dyn, size_t n, struct elfinfo *out)
{
	char name[ELFINFO_NAME_MAX];

	for (size_t i = 0; i < n && dyn[i].d_tag != DT_NULL; i++) {
		if (dyn[i].d_tag != DT_NEEDED && dyn[i].d_tag != DT_SONAME)
			continue;
		read_string(f->fd, f->strtab + dyn[i].d_un.d_val, name, sizeof(name));
		if (dyn[i].d_tag == DT_NEEDED) {
			note_needed(out, name);
			continue;
		}
		memcpy(out->soname, name, sizeof(name));
		if (strncmp(name, "ld-", 3) == 0 || strncmp(name, "ld.", 3) == 0)
			out->dynamic = true;
	}
}

static int read_dynamic(struct elf_file *f, struct elfinfo *out)
{
	const ElfW(Phdr) *p = segment(f, PT_DYNAMIC);
	ElfW(Dyn) * dyn;
	size_t n;
	int err;

	if (!p || p->p_filesz < sizeof(*dyn))
		return 0;
	if (p->p_filesz > DYNAMIC_MAX)
		return -EBADMSG;
	n = p->p_filesz / sizeof(*dyn);
	dyn = malloc(n * sizeof(*dyn));
	if (!dyn)
		return -ENOMEM;
	err = read_at(f->fd, dyn, n * sizeof(*dyn), p->p_offset);
	for (size_t i = 0; !err && i < n && dyn[i].d_tag != DT_NULL; i++)
		if (dyn[i].d_tag == DT_STRTAB)
			f->strtab = file_offset(f, dyn[i].d_un.d_ptr);
	if (!err && f->strtab)
		scan_dynamic(f, dyn, n, out);
	free(dyn);
	return err;
}

int elfinfo_read(int fd, struct elfinfo *out)
{
	struct elf_file f = { .fd = fd };
	const ElfW(Phdr) * interp;
	unsigned char head[20]; /* e_ident, e_type, e_machine: at the same place in both classes */
	int err;

	memset(out, 0, sizeof(*out));
	err = read_at(fd, head, sizeof(head), 0);
	if (err)
		return err == -EBADMSG ? -ENOEXEC : err;
	if (memcmp(head, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	if (head[EI_CLASS] != ELFCLASS32 && head[EI_CLASS] != ELFCLASS64)
		return -EBADMSG;
	out->bits = head[EI_CLASS] == ELFCLASS64 ? 64 : 32;
	if (head[EI_DATA] != NATIVE_DATA)
		return -EBADMSG;
	memcpy(&out->machine, head + 18, sizeof(out->machine));
	if (head[EI_CLASS] != NATIVE_CLASS)
		return 0;

	err = read_phdrs(&f);
	interp = err ? NULL : segment(&f, PT_INTERP);
	if (interp) {
		out->dynamic = true;
		read_string(fd, interp->p_offset, out->interp, sizeof(out->interp));
	}
	if (!err)
		err = read_dynamic(&f, out);
	free(f.phdr);
	return err;
}

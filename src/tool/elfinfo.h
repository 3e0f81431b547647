/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What `unpin run` must know of a program before it starts it: does a dynamic loader read LD_PRELOAD for it,
 * is it of this machine's kind, and which sanitizer runtimes does it need first. Nothing in the file is
 * trusted: every offset is checked against what was read.
 */
#ifndef UNPIN_TOOL_ELFINFO_H
#define UNPIN_TOOL_ELFINFO_H

#include <stdbool.h>
#include <stdint.h>

#define ELFINFO_RUNTIMES_MAX 4
#define ELFINFO_NAME_MAX     64

struct elfinfo {
	unsigned bits;	  /* 32 or 64 */
	uint16_t machine; /* EM_... of elf(5) */
	bool dynamic; /* a dynamic loader runs first: named by PT_INTERP, or the file is one (its DT_SONAME is
			 ld-...) */
	char interp[256];	       /* PT_INTERP; "" when there is none */
	char soname[ELFINFO_NAME_MAX]; /* DT_SONAME, cut to fit; "" when there is none */
	/* DT_NEEDED names of sanitizer runtimes that insist on being loaded before other libraries, in file
	 * order. */
	char runtime[ELFINFO_RUNTIMES_MAX][ELFINFO_NAME_MAX];
	unsigned runtimes;
};

/*
 * Reads the file at its current size with pread(2); the offset of fd does not move. 0; -ENOEXEC: no ELF file;
 * -EBADMSG: an ELF file of the other byte order, cut short, or whose tables point outside of it; or the errno
 * of reading. Details (interp, soname, runtimes) are looked for only in files of this program's own class;
 * others have bits and machine filled in.
 */
int elfinfo_read(int fd, struct elfinfo *out);

/* True for the DT_NEEDED name of a shared sanitizer runtime that must come first: libasan.so.8,
 * libclang_rt.asan-x86_64.so, and the same for tsan, hwasan, lsan, msan. */
bool elfinfo_is_first_runtime(const char *needed);

#endif

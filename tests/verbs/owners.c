/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Prints which file each function of libc that we stand in front of comes from, as this program's own
 * references are bound.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define OWNER(fn) show(#fn, (void *)fn)

static void show(const char *name, void *address)
{
	Dl_info info;
	const char *file = dladdr(address, &info) ? info.dli_fname : "?";
	const char *slash = strrchr(file, '/');

	printf("%s %s\n", name, slash ? slash + 1 : file);
}

int main(void)
{
	OWNER(brk);
	OWNER(ioctl);
	OWNER(madvise);
	OWNER(mmap);
	OWNER(mmap64);
	OWNER(mprotect);
	OWNER(mremap);
	OWNER(munmap);
	OWNER(pkey_mprotect);
	OWNER(posix_madvise);
	OWNER(process_madvise);
	OWNER(sbrk);
	OWNER(shmat);
	OWNER(shmdt);
	OWNER(sigaction);
	OWNER(signal);
	OWNER(ssignal);
	OWNER(sysv_signal);
	return 0;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/populate.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "mm/facility.h"
#include "mm/interpose.h"
#include "mm/page.h"
#include "mm/pkey.h"
#include "mm/pressure.h"
#include "mm/safecopy.h"
#include "mm/vma.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* What stands in the way of access, if the mappings tell; otherwise the given error. */
static int explain(uintptr_t addr, size_t len, bool write, int otherwise)
{
	int err = vma_check(addr, len, !write, write, NULL);

	return err == -ENOMEM || err == -EACCES ? err : otherwise;
}

static int try_madvise(uintptr_t addr, size_t len, bool write)
{
	return raw_madvise((void *)addr, len, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) ? errno : 0;
}

static int by_madvise(uintptr_t addr, size_t len, bool write)
{
	int saved = errno, err = try_madvise(addr, len, write);
	uint32_t was;

	/* The kernel looks at the protection keys of the calling thread: as at rights, EINVAL. */
	if ((err == EINVAL || err == EFAULT) && pkey_open(&was)) {
		err = try_madvise(addr, len, write);
		pkey_close(was);
	}
	errno = saved;
	switch (err) {
	case 0:
		return 0;
	case ENOMEM: /* a hole, or really no memory */
		return explain(addr, len, write, -EAGAIN);
	case EINVAL: /* rights, or memory of a kind that has no pages to be made present */
		return -EACCES;
	case EFAULT:
	case EHWPOISON:
		return -EFAULT;
	case EPERM: /* by a filter: nothing is known of the memory */
	case ENOSYS:
		return -EPERM;
	default: /* EAGAIN, EINTR */
		return -EAGAIN;
	}
}

/* One byte of each page by system call, for a thread that may not fault: enough for reading. */
static int by_reading(uintptr_t addr, size_t len)
{
	char byte;

	for (size_t at = 0; at < len; at += page_size())
		if (!safecopy_from_user(SAFECOPY_PROCESS_VM, &byte, (void *)(addr + at), 1, NULL))
			return -EFAULT;
	return 0;
}

/* Whether the memory is readable and the kernel gives its page to nobody all the same (memfd_secret): a
 * populate says so by itself, a touch does not. */
static bool withheld(uintptr_t addr)
{
	char byte;

	return mm_have(MM_PROCESS_VM) &&
	       !safecopy_from_user(SAFECOPY_PROCESS_VM, &byte, (void *)addr, 1, NULL) &&
	       !vma_check(addr, 1, true, false, NULL);
}

static int by_touching(uintptr_t addr, size_t len, bool write)
{
	enum safecopy_path path = safecopy_path();
	int err;

	if (path == SAFECOPY_FIXUP)
		err = safecopy_touch((void *)addr, len, write, NULL);
	else if (path == SAFECOPY_PROCESS_VM && !write)
		err = by_reading(addr, len);
	else
		return -EAGAIN;
	if (err)
		return explain(addr, len, write, -EFAULT);
	/* Not near a memory limit: to ask for the page again would have to bring it in again. */
	return !mm_have(MM_POPULATE) && withheld(addr) ? -EACCES : 0;
}

int populate(void *addr, size_t len, bool write)
{
	int err = -EPERM;

	if (!len)
		return 0;
	/* A populate that meets the limit of its control group gets the process killed, though pages could be
	 * swapped out; a page that is touched waits for that (both measured). */
	if (mm_have(MM_POPULATE) && (pressure_room_for(len) || safecopy_path() != SAFECOPY_FIXUP))
		err = by_madvise((uintptr_t)addr, len, write);
	if (err != -EPERM)
		return err;
	return by_touching((uintptr_t)addr, len, write);
}

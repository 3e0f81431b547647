/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Build systems ask for 64-bit offsets, and then the headers make mmap another name of mmap64; here they are
 * two functions. */
#undef _FILE_OFFSET_BITS
#include "mm/interpose.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mm/behind.h"
#include "mm/early.h"
#include "mm/page.h"
#include "mm/pin.h"
#include "mm/safecopy.h"
#include "mm/userfault.h"
#include "mm/vma.h"

#define EXPORT EARLY __attribute__((visibility("default")))

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static _Atomic(mm_observer *) observer;

void interpose_observe(mm_observer *wanted)
{
	atomic_store(&observer, wanted);
}

EARLY void *raw_mmap(void *addr, size_t len, int prot, int flags, int fd, long off)
{
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

EARLY int raw_munmap(void *addr, size_t len)
{
	return (int)syscall(SYS_munmap, addr, len);
}

EARLY int raw_madvise(void *addr, size_t len, int advice)
{
	return (int)syscall(SYS_madvise, addr, len, advice);
}

/* ---- The next in line, or the kernel ---- */

EARLY static int next_munmap(void *addr, size_t len)
{
	behind_munmap_fn *next = BEHIND(munmap);

	return next ? next(addr, len) : raw_munmap(addr, len);
}

EARLY static int next_madvise(void *addr, size_t len, int advice)
{
	behind_madvise_fn *next = BEHIND(madvise);

	return next ? next(addr, len, advice) : raw_madvise(addr, len, advice);
}

EARLY static void *next_mremap(void *old, size_t old_len, size_t new_len, int flags, void *new)
{
	behind_mremap_fn *next = BEHIND(mremap);

	return next ? next(old, old_len, new_len, flags, new)
		    : (void *)syscall(SYS_mremap, old, old_len, new_len, flags, new);
}

EARLY static ssize_t next_process_madvise(
	int pidfd, const struct iovec *vec, size_t count, int advice, unsigned flags)
{
	behind_process_madvise_fn *next = BEHIND(process_madvise);

	return next ? next(pidfd, vec, count, advice, flags)
		    : syscall(SYS_process_madvise, pidfd, vec, count, advice, flags);
}

EARLY static int next_mprotect(void *addr, size_t len, int prot)
{
	behind_mprotect_fn *next = BEHIND(mprotect);

	return next ? next(addr, len, prot) : (int)syscall(SYS_mprotect, addr, len, prot);
}

EARLY static int next_pkey_mprotect(void *addr, size_t len, int prot, int pkey)
{
	behind_pkey_mprotect_fn *next = BEHIND(pkey_mprotect);

	return next ? next(addr, len, prot, pkey) : (int)syscall(SYS_pkey_mprotect, addr, len, prot, pkey);
}

/* libc's own, under a name that nobody interposes: it keeps libc's idea of where the break is. */
extern void *__sbrk(intptr_t delta);

EARLY static void *next_sbrk(intptr_t delta)
{
	behind_sbrk_fn *next = BEHIND(sbrk);

	return next ? next(delta) : __sbrk(delta);
}

EARLY static int next_brk(void *addr)
{
	behind_brk_fn *next = BEHIND(brk);

	if (next)
		return next(addr);
	return __sbrk((intptr_t)((uintptr_t)addr - (uintptr_t)__sbrk(0))) == (void *)-1 ? -1 : 0;
}

EARLY static void *next_shmat(int id, const void *addr, int flags)
{
	behind_shmat_fn *next = BEHIND(shmat);

	return next ? next(id, addr, flags) : (void *)syscall(SYS_shmat, id, addr, flags);
}

EARLY static int next_shmdt(const void *addr)
{
	behind_shmdt_fn *next = BEHIND(shmdt);

	return next ? next(addr) : (int)syscall(SYS_shmdt, addr);
}

/* ---- Who is told ----
 *
 * errno is the system call's when one of these functions returns: whatever is done before and after keeps it.
 */

EARLY static bool watched(void)
{
	return atomic_load_explicit(&observer, memory_order_acquire) || pin_any();
}

/* The pages of a range that the kernel will accept: starts at a page, has bytes, does not wrap. */
EARLY static bool sound(uintptr_t addr, size_t len)
{
	return !(addr & (page_size() - 1)) && len && addr + len > addr && page_up(addr + len) > addr;
}

EARLY static size_t whole(size_t len)
{
	return page_up(len);
}

EARLY static void before(uintptr_t addr, size_t len)
{
	int saved = errno;

	if (sound(addr, len))
		pin_diverge(addr, whole(len));
	errno = saved;
}

EARLY static void after(enum mm_change what, uintptr_t addr, size_t len)
{
	mm_observer *told = atomic_load_explicit(&observer, memory_order_acquire);
	int saved = errno;

	if (told && sound(addr, len))
		told(what, addr, whole(len));
	errno = saved;
}

/* ---- The interposed functions ---- */

EXPORT int munmap(void *addr, size_t len)
{
	/* Afterwards they may be somebody's who registers them anew. */
	struct userfault_span was;
	bool forgot = userfault_forget((uintptr_t)addr, len, &was);
	int r;

	if (watched()) {
		before((uintptr_t)addr, len);
		r = next_munmap(addr, len);
		after(MM_UNMAP, (uintptr_t)addr, len);
	} else {
		r = next_munmap(addr, len);
	}
	if (r && forgot)
		userfault_restore(&was);
	return r;
}

/* Which of the two names the program has called, so that the next in line sees the same. */
enum mmap_name { MMAP, MMAP64 };

EARLY static void *next_mmap(
	enum mmap_name name, void *addr, size_t len, int prot, int flags, int fd, long off)
{
	behind_mmap_fn *next = BEHIND(mmap);
	behind_mmap64_fn *next64 = BEHIND(mmap64);

	if (name == MMAP && next)
		return next(addr, len, prot, flags, fd, off);
	if (name == MMAP64 && next64)
		return next64(addr, len, prot, flags, fd, off);
	return raw_mmap(addr, len, prot, flags, fd, off);
}

/*
 * A mapping that has just been made where a pin is: what the pin holds was unmapped by somebody who was not
 * seen (libc itself, a raw system call). What the device may have written into the new mapping meanwhile goes
 * with a second one in the same place, unless it is a shared file's.
 */
EARLY static void *after_mapping(void *r, size_t len, int prot, int flags, int fd, long off)
{
	int saved = errno;

	if (r == MAP_FAILED || !pin_any() || !pin_overlaps((uintptr_t)r, whole(len)))
		return r;
	before((uintptr_t)r, len);
	if ((flags & MAP_TYPE) == MAP_PRIVATE || flags & MAP_ANONYMOUS)
		raw_mmap(r, len, prot, (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED, fd, off);
	errno = saved;
	return r;
}

EARLY static void *observed_mmap(
	enum mmap_name name, void *addr, size_t len, int prot, int flags, int fd, long off)
{
	/* Only with MAP_FIXED, and without MAP_FIXED_NOREPLACE, is anything replaced. */
	bool replaces = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED;
	void *r;

	if (!replaces || !watched())
		return after_mapping(
			next_mmap(name, addr, len, prot, flags, fd, off), len, prot, flags, fd, off);
	before((uintptr_t)addr, len);
	r = next_mmap(name, addr, len, prot, flags, fd, off);
	after(MM_UNMAP, (uintptr_t)addr, len);
	return r;
}

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return observed_mmap(MMAP, addr, len, prot, flags, fd, off);
}

#undef mmap64
EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off)
{
	return observed_mmap(MMAP64, addr, len, prot, flags, fd, off);
}

/* Growing: where it stands if there is room, and only if not by moving, so that a pin diverges only for a
 * move. */
static void *observed_grow(uintptr_t old, size_t old_len, size_t new_len, int flags)
{
	void *r;

	if (pin_any()) {
		r = next_mremap((void *)old, old_len, new_len, flags & ~MREMAP_MAYMOVE, NULL);
		/* What it grew over was nobody's. */
		if (r != MAP_FAILED)
			before(old + whole(old_len), whole(new_len) - whole(old_len));
		if (r != MAP_FAILED || errno != ENOMEM || !(flags & MREMAP_MAYMOVE))
			return r;
		before(old, old_len);
	}
	r = next_mremap((void *)old, old_len, new_len, flags, NULL);
	if (r != (void *)old)
		after(MM_UNMAP, old, old_len);
	if (r != (void *)old && r != MAP_FAILED)
		before((uintptr_t)r, new_len);
	return r;
}

static void *observed_mremap(uintptr_t old, size_t old_len, size_t new_len, int flags, uintptr_t new)
{
	bool moves = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP);
	size_t keep = whole(new_len) < whole(old_len) ? whole(new_len) : whole(old_len);
	void *r;

	if (!moves && whole(new_len) > whole(old_len))
		return observed_grow(old, old_len, new_len, flags);
	if (flags & MREMAP_FIXED)
		before(new, new_len);
	/* What a move takes away is the whole source, shrinking only the end of it. */
	if (moves)
		keep = 0;
	before(old + keep, whole(old_len) - keep);
	r = next_mremap((void *)old, old_len, new_len, flags, (void *)new);
	after(MM_UNMAP, old + keep, whole(old_len) - keep);
	if (flags & MREMAP_FIXED)
		after(MM_UNMAP, new, new_len);
	return r;
}

EXPORT void *mremap(void *old, size_t old_len, size_t new_len, int flags, ...)
{
	void *new = NULL;
	va_list ap;

	/* libc reads the fifth argument for these two flags, and the kernel looks at it for no others. */
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) {
		va_start(ap, flags);
		new = va_arg(ap, void *);
		va_end(ap);
	}
	if (!watched())
		return next_mremap(old, old_len, new_len, flags, new);
	return observed_mremap((uintptr_t)old, old_len, new_len, flags, (uintptr_t) new);
}

/* Whether the advice takes pages away. */
EARLY static bool discards(int advice)
{
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
	case MADV_REMOVE:
	case MADV_PAGEOUT:
	case MADV_GUARD_INSTALL:
		return true;
	default:
		return false;
	}
}

/* Pinned pages cannot be paged out, and only MADV_DONTNEED_LOCKED discards locked ones. */
static void before_discard(uintptr_t addr, size_t len, int advice)
{
	int saved = errno;

	if (advice == MADV_DONTNEED_LOCKED)
		before(addr, len);
	else if (advice != MADV_PAGEOUT && sound(addr, len))
		pin_discard(addr, whole(len));
	errno = saved;
}

EXPORT int madvise(void *addr, size_t len, int advice)
{
	int r;

	if (!discards(advice) || !watched())
		return next_madvise(addr, len, advice);
	before_discard((uintptr_t)addr, len, advice);
	r = next_madvise(addr, len, advice);
	after(MM_DISCARD, (uintptr_t)addr, len);
	return r;
}

/* Returns an error number and leaves errno alone; POSIX's DONTNEED is a hint that Linux's is not. */
EXPORT int posix_madvise(void *addr, size_t len, int advice)
{
	behind_posix_madvise_fn *next = BEHIND(posix_madvise);
	bool tells = advice != POSIX_MADV_DONTNEED && discards(advice) && watched();
	int saved = errno, err = 0;

	if (tells)
		before_discard((uintptr_t)addr, len, advice);
	if (next)
		err = next(addr, len, advice);
	else if (advice != POSIX_MADV_DONTNEED && raw_madvise(addr, len, advice))
		err = errno;
	if (tells)
		after(MM_DISCARD, (uintptr_t)addr, len);
	errno = saved;
	return err;
}

/* The ranges are the application's memory: read so that a bad pointer is the kernel's to refuse. */
static void each_range(
	const struct iovec *vec, size_t count, int advice, void (*tell)(uintptr_t, size_t, int))
{
	enum safecopy_path path = safecopy_path();
	struct iovec one;

	if (count > IOV_MAX)
		return;
	for (size_t i = 0; i < count; i++) {
		if (safecopy_from_user(path, &one, &vec[i], sizeof(one), NULL) != sizeof(one))
			return;
		tell((uintptr_t)one.iov_base, one.iov_len, advice);
	}
}

static void after_discard(uintptr_t addr, size_t len, int advice)
{
	(void)advice;
	after(MM_DISCARD, addr, len);
}

/* The descriptor may mean us or another process: telling too much does no harm. */
EXPORT ssize_t process_madvise(
	int pidfd, const struct iovec *vec, size_t count, int advice, unsigned int flags)
{
	ssize_t r;

	if (!discards(advice) || !watched())
		return next_process_madvise(pidfd, vec, count, advice, flags);
	each_range(vec, count, advice, before_discard);
	r = next_process_madvise(pidfd, vec, count, advice, flags);
	each_range(vec, count, advice, after_discard);
	return r;
}

/* Hardware keeps to the pages of a pin whatever the rights of the mapping become: only on-demand memory is
 * told. */
EXPORT int mprotect(void *addr, size_t len, int prot)
{
	int r = next_mprotect(addr, len, prot);

	after(MM_PROTECT, (uintptr_t)addr, len);
	return r;
}

EXPORT int pkey_mprotect(void *addr, size_t len, int prot, int pkey)
{
	int r = next_pkey_mprotect(addr, len, prot, pkey);

	after(MM_PROTECT, (uintptr_t)addr, len);
	return r;
}

/* The break moves from one place to another: what lies between is gone when it moves down. */
struct shrink {
	uintptr_t start;
	size_t len; /* 0: it does not shrink by a page, or nobody is told */
};

static struct shrink shrink_to(uintptr_t then)
{
	uintptr_t now = (uintptr_t)__sbrk(0);

	if (then >= now || page_up(then) >= page_up(now))
		return (struct shrink){ 0 };
	return (struct shrink){ page_up(then), page_up(now) - page_up(then) };
}

EXPORT void *sbrk(intptr_t delta)
{
	struct shrink s = { 0 };
	void *r;

	if (delta < 0 && watched())
		s = shrink_to((uintptr_t)__sbrk(0) + (uintptr_t)delta);
	before(s.start, s.len);
	r = next_sbrk(delta);
	after(MM_UNMAP, s.start, s.len);
	return r;
}

EXPORT int brk(void *addr)
{
	struct shrink s = { 0 };
	int r;

	if (watched())
		s = shrink_to((uintptr_t)addr);
	before(s.start, s.len);
	r = next_brk(addr);
	after(MM_UNMAP, s.start, s.len);
	return r;
}

static int shm_control(int id, struct shmid_ds *ds)
{
	return (int)syscall(SYS_shmctl, id, IPC_STAT, ds);
}

EXPORT void *shmat(int id, const void *addr, int flags)
{
	uintptr_t at = (uintptr_t)addr;
	struct shmid_ds ds;
	void *r;

	if (!watched() || shm_control(id, &ds))
		return next_shmat(id, addr, flags);
	if (!(flags & SHM_REMAP)) {
		r = next_shmat(id, addr, flags);
		if (r != (void *)-1)
			before((uintptr_t)r, ds.shm_segsz);
		return r;
	}
	if (flags & SHM_RND)
		at &= ~(uintptr_t)(SHMLBA - 1);
	before(at, ds.shm_segsz);
	r = next_shmat(id, addr, flags);
	after(MM_UNMAP, at, ds.shm_segsz);
	return r;
}

/* The length of what shmdt() will take away: the mappings from addr on that continue one segment. */
static size_t attached_length(uintptr_t addr)
{
	uintptr_t at = addr;
	uint64_t inode = 0;
	struct vma v;

	while (!vma_find(at, false, &v) && v.start == at && v.file && v.shared && v.offset == at - addr) {
		if (at > addr && v.inode != inode)
			break;
		inode = v.inode;
		at = v.end;
	}
	return at - addr;
}

EXPORT int shmdt(const void *addr)
{
	size_t len;
	int r;

	if (!watched())
		return next_shmdt(addr);
	len = attached_length((uintptr_t)addr);
	before((uintptr_t)addr, len);
	r = next_shmdt(addr);
	after(MM_UNMAP, (uintptr_t)addr, len);
	return r;
}

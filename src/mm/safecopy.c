/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/safecopy.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "mm/facility.h"
#include "mm/page.h"
#include "mm/pkey.h"
#include "mm/sigchain.h"
#include "mm/vma.h"

#if defined(__x86_64__)

#define HAVE_FIXUP 1

/* What a routine returns, in rax and rdx: a count or an address, and the signal that ended it early (0:
 * none). */
struct outcome {
	size_t value;
	size_t sig;
};

/*
 * The copy, once for each direction; USER is the register that walks the application's memory. rdi, rsi and
 * rcx (bytes left) are moved on after each piece. Every piece is naturally aligned on the application's side
 * and at most 64 bytes, so it never straddles a page: a fault always hits the first access of a piece, and
 * rcx is exact. The handler sends a fault to NAME_end with the signal in rdx.
 *
 * The loop of 64 bytes, LINE, runs while LEAST bytes are left. With SSE2, which every x86-64 has, it writes
 * upwards (rep movsb does not, and is ahead by more than a tenth only where everything is in the first-level
 * cache) and stops 8 bytes short, so that the last 8 are one store.
 */
#define PIECE(reg, mov, size)                                                                                \
	mov " (%rsi), " reg "\n" mov " " reg ", (%rdi)\n"                                                    \
	    "add $" size ", %rsi\n"                                                                          \
	    "add $" size ", %rdi\n"                                                                          \
	    "sub $" size ", %rcx\n"

/* clang-format off */
#define COPY_ROUTINE(NAME, USER, USER_LOW, LEAST, LINE)                                                      \
asm(	".text\n"                                                                                            \
	".p2align 6\n"                                                                                       \
	".globl " NAME "\n"                                                                                  \
	".hidden " NAME "\n"                                                                                 \
	".type " NAME ", @function\n"                                                                        \
	NAME ":\n"                                                                                           \
	".cfi_startproc\n"                                                                                   \
	"mov %rdx, %rcx\n"                                                                                   \
	"xor %edx, %edx\n"                                                                                   \
	"test $7, " USER_LOW "\n"                                                                            \
	"jnz 10f\n"                                                                                          \
	/* aligned to 8 */                                                                                   \
	"1:\n"                                                                                               \
	"cmp $" LEAST ", %rcx\n"                                                                             \
	"jae 20f\n"                                                                                          \
	"2:\n"                                                                                               \
	"cmp $8, %rcx\n"                                                                                     \
	"jb 4f\n"                                                                                            \
	"3:\n"                                                                                               \
	PIECE("%rax", "mov", "8")                                                                            \
	"cmp $8, %rcx\n"                                                                                     \
	"jae 3b\n"                                                                                           \
	/* the rest, less than 8 bytes */                                                                    \
	"4:\n"                                                                                               \
	"test %rcx, %rcx\n"                                                                                  \
	"jz 9f\n"                                                                                            \
	"cmp $4, %rcx\n"                                                                                     \
	"jb 5f\n"                                                                                            \
	PIECE("%eax", "mov", "4")                                                                            \
	"5:\n"                                                                                               \
	"cmp $2, %rcx\n"                                                                                     \
	"jb 6f\n"                                                                                            \
	PIECE("%ax", "mov", "2")                                                                             \
	"6:\n"                                                                                               \
	"test %rcx, %rcx\n"                                                                                  \
	"jz 9f\n"                                                                                            \
	PIECE("%al", "mov", "1")                                                                             \
	"9:\n"                                                                                               \
	".globl " NAME "_end\n"                                                                              \
	".hidden " NAME "_end\n"                                                                             \
	NAME "_end:\n"                                                                                       \
	"mov %rcx, %rax\n"                                                                                   \
	"ret\n"                                                                                              \
	/* up to a multiple of 8, as far as there are bytes */                                               \
	"10:\n"                                                                                              \
	"test %rcx, %rcx\n"                                                                                  \
	"jz 9b\n"                                                                                            \
	"test $1, " USER_LOW "\n"                                                                            \
	"jz 11f\n"                                                                                           \
	PIECE("%al", "mov", "1")                                                                             \
	"11:\n"                                                                                              \
	"test $2, " USER_LOW "\n"                                                                            \
	"jz 12f\n"                                                                                           \
	"cmp $2, %rcx\n"                                                                                     \
	"jb 6b\n"                                                                                            \
	PIECE("%ax", "mov", "2")                                                                             \
	"12:\n"                                                                                              \
	"test $4, " USER_LOW "\n"                                                                            \
	"jz 1b\n"                                                                                            \
	"cmp $4, %rcx\n"                                                                                     \
	"jb 5b\n"                                                                                            \
	PIECE("%eax", "mov", "4")                                                                            \
	"jmp 1b\n"                                                                                           \
	/* up to a multiple of 64: LEAST bytes are left, at least */                                         \
	"20:\n"                                                                                              \
	"test $56, " USER_LOW "\n"                                                                           \
	"jz 22f\n"                                                                                           \
	PIECE("%rax", "mov", "8")                                                                            \
	"jmp 20b\n"                                                                                          \
	"22:\n"                                                                                              \
	"cmp $" LEAST ", %rcx\n"                                                                             \
	"jb 2b\n"                                                                                            \
	LINE                                                                                                 \
	"add $64, %rsi\n"                                                                                    \
	"add $64, %rdi\n"                                                                                    \
	"sub $64, %rcx\n"                                                                                    \
	"jmp 22b\n"                                                                                          \
	".cfi_endproc\n"                                                                                     \
	".size " NAME ", . - " NAME "\n"                                                                     \
	".globl " NAME "_limit\n"                                                                            \
	".hidden " NAME "_limit\n"                                                                           \
	NAME "_limit:\n")

#define LINE_BY_FOUR(LOAD, STORE)                                                                            \
	LOAD " (%rsi), %xmm0\n"                                                                              \
	LOAD " 16(%rsi), %xmm1\n"                                                                            \
	LOAD " 32(%rsi), %xmm2\n"                                                                            \
	LOAD " 48(%rsi), %xmm3\n"                                                                            \
	STORE " %xmm0, (%rdi)\n"                                                                             \
	STORE " %xmm1, 16(%rdi)\n"                                                                           \
	STORE " %xmm2, 32(%rdi)\n"                                                                           \
	STORE " %xmm3, 48(%rdi)\n"

COPY_ROUTINE("safecopy_asm_to_user", "%rdi", "%dil", "72", LINE_BY_FOUR("movdqu", "movdqa"));
COPY_ROUTINE("safecopy_asm_from_user", "%rsi", "%sil", "72", LINE_BY_FOUR("movdqa", "movdqu"));
/*
 * A line in one store (AVX-512), the last one too: its last word is not ahead of the others. Of the upper
 * sixteen registers no instruction of SSE or AVX knows, so there is no transition to pay for and nothing to
 * clear afterwards.
 */
COPY_ROUTINE("safecopy_asm_to_user_wide", "%rdi", "%dil", "64",
	"vmovdqu64 (%rsi), %zmm16\n"
	"vmovdqa64 %zmm16, (%rdi)\n");

/* The small ones: body, then the label a fault goes to. */
#define SMALL_ROUTINE(NAME, BODY, END)                                                                       \
asm(	".text\n"                                                                                            \
	".p2align 4\n"                                                                                       \
	".globl " NAME "\n"                                                                                  \
	".hidden " NAME "\n"                                                                                 \
	".type " NAME ", @function\n"                                                                        \
	NAME ":\n"                                                                                           \
	".cfi_startproc\n"                                                                                   \
	BODY                                                                                                 \
	".globl " NAME "_end\n"                                                                              \
	".hidden " NAME "_end\n"                                                                             \
	NAME "_end:\n"                                                                                       \
	END                                                                                                  \
	"ret\n"                                                                                              \
	".cfi_endproc\n"                                                                                     \
	".size " NAME ", . - " NAME "\n"                                                                     \
	".globl " NAME "_limit\n"                                                                            \
	".hidden " NAME "_limit\n"                                                                           \
	NAME "_limit:\n")

/* (ptr, compare, swap): the value before in rax */
SMALL_ROUTINE("safecopy_asm_cmp_swap",
	"mov %rdx, %rcx\n"
	"xor %edx, %edx\n"
	"mov %rsi, %rax\n"
	"lock cmpxchg %rcx, (%rdi)\n",
	"");
/* (ptr, add): the value before in rax */
SMALL_ROUTINE("safecopy_asm_fetch_add",
	"xor %edx, %edx\n"
	"mov %rsi, %rax\n"
	"lock xadd %rax, (%rdi)\n",
	"");
/* (addr, last byte, page size): the address reached in rax. Of each further page the first byte is touched. */
SMALL_ROUTINE("safecopy_asm_touch_read",
	"lea -1(%rdx), %rcx\n"
	"xor %edx, %edx\n"
	"1:\n"
	"mov (%rdi), %al\n"
	"or %rcx, %rdi\n"
	"inc %rdi\n"
	"jz 2f\n"
	"cmp %rsi, %rdi\n"
	"jbe 1b\n"
	"2:\n",
	"mov %rdi, %rax\n");
SMALL_ROUTINE("safecopy_asm_touch_write",
	"lea -1(%rdx), %rcx\n"
	"xor %edx, %edx\n"
	"1:\n"
	"lock addb $0, (%rdi)\n"
	"or %rcx, %rdi\n"
	"inc %rdi\n"
	"jz 2f\n"
	"cmp %rsi, %rdi\n"
	"jbe 1b\n"
	"2:\n",
	"mov %rdi, %rax\n");
/* clang-format on */

#define ROUTINES(X)                                                                                          \
	X(safecopy_asm_to_user)                                                                              \
	X(safecopy_asm_to_user_wide)                                                                         \
	X(safecopy_asm_from_user)                                                                            \
	X(safecopy_asm_cmp_swap)                                                                             \
	X(safecopy_asm_fetch_add)                                                                            \
	X(safecopy_asm_touch_read)                                                                           \
	X(safecopy_asm_touch_write)

#define HIDDEN	__attribute__((visibility("hidden")))
#define X(name) extern HIDDEN const char name##_end[], name##_limit[];
ROUTINES(X)
#undef X

HIDDEN struct outcome safecopy_asm_to_user(void *dst, const void *src, size_t n);
HIDDEN struct outcome safecopy_asm_to_user_wide(void *dst, const void *src, size_t n);
HIDDEN struct outcome safecopy_asm_from_user(void *dst, const void *src, size_t n);
HIDDEN struct outcome safecopy_asm_cmp_swap(uint64_t *ptr, uint64_t compare, uint64_t swap);
HIDDEN struct outcome safecopy_asm_fetch_add(uint64_t *ptr, uint64_t add);
HIDDEN struct outcome safecopy_asm_touch_read(uintptr_t addr, uintptr_t last, size_t page);
HIDDEN struct outcome safecopy_asm_touch_write(uintptr_t addr, uintptr_t last, size_t page);

/* How an outcome's signal says that a protection key forbade the access. */
#define OF_KEY 0x100

/* The processor has AVX-512F, and the kernel keeps its registers. */
static bool wide;

__attribute__((constructor)) static void look_for_wide_stores(void)
{
	const unsigned kept = 0xe6; /* of XCR0: SSE, AVX, and the three parts of AVX-512 */
	unsigned a, b, c, d, low, high;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
		return;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	if ((low & kept) != kept || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return;
	wide = b & bit_AVX512F;
}

/*
 * Whether the access at at that o tells of was forbidden by nothing but a protection key. Then the caller's
 * keys are open until pkey_close(*was), and *end is where the rights of the mapping end. Memory that may be
 * executed only is guarded by a key too, and stays so.
 */
static bool open_keys(struct outcome *o, uintptr_t at, bool write, uintptr_t *end, uint32_t *was)
{
	struct vma v;

	if (!(o->sig & OF_KEY))
		return false;
	o->sig &= ~(size_t)OF_KEY;
	if (vma_find(at, false, &v) || !(write ? v.write : v.read))
		return false;
	*end = v.end;
	return pkey_open(was);
}

static void close_keys(struct outcome *o, uint32_t was)
{
	pkey_close(was);
	o->sig &= ~(size_t)OF_KEY;
}

static struct outcome to_user_asm(void *dst, const void *src, size_t n)
{
	return wide ? safecopy_asm_to_user_wide(dst, src, n) : safecopy_asm_to_user(dst, src, n);
}

static inline __attribute__((always_inline)) struct outcome copy_asm(
	void *dst, const void *src, size_t n, bool to_user)
{
	return to_user ? to_user_asm(dst, src, n) : safecopy_asm_from_user(dst, src, n);
}

/* Goes on with a copy of n bytes that o ended early, as long as that was for a protection key. */
static __attribute__((noinline)) struct outcome copy_past_keys(
	char *dst, const char *src, size_t n, bool to_user, struct outcome o)
{
	size_t done, most, left;
	uintptr_t at, end;
	uint32_t was;

	while (o.value) {
		done = n - o.value;
		at = (uintptr_t)(to_user ? dst : src) + done;
		if (!open_keys(&o, at, to_user, &end, &was))
			break;
		most = end - at < o.value ? end - at : o.value;
		left = o.value - most;
		o = copy_asm(dst + done, src + done, most, to_user);
		close_keys(&o, was);
		if (o.value) {
			o.value += left;
			break;
		}
		o = copy_asm(dst + done + most, src + done + most, left, to_user);
	}
	return o;
}

bool safecopy_wide(void)
{
	return wide;
}

bool safecopy_repair(int sig, int code, void *context)
{
	static const struct {
		uintptr_t begin, limit, end;
	} site[] = {
#define X(name) { (uintptr_t)name, (uintptr_t)name##_limit, (uintptr_t)name##_end },
		ROUTINES(X)
#undef X
	};
	greg_t *reg = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t pc = (uintptr_t)reg[REG_RIP];

	for (size_t i = 0; i < sizeof(site) / sizeof(site[0]); i++) {
		if (pc < site[i].begin || pc >= site[i].limit)
			continue;
		reg[REG_RIP] = (greg_t)site[i].end;
		reg[REG_RDX] = sig;
		if (sig == SIGSEGV && code == SEGV_PKUERR)
			reg[REG_RDX] |= OF_KEY;
		return true;
	}
	return false;
}

#else

#define HAVE_FIXUP 0

bool safecopy_wide(void)
{
	return false;
}

bool safecopy_repair(int sig, int code, void *context)
{
	(void)sig;
	(void)code;
	(void)context;
	return false;
}

#endif

enum safecopy_path safecopy_path(void)
{
	const uint64_t ours = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1);
	uint64_t mask = ours;
	int saved = errno;

	if (HAVE_FIXUP && sigchain_installed()) {
		syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, sizeof(mask));
		errno = saved;
		if (!(mask & ours))
			return SAFECOPY_FIXUP;
	}
	return mm_have(MM_PROCESS_VM) ? SAFECOPY_PROCESS_VM : SAFECOPY_NONE;
}

static void report(struct safecopy_fault *fault, uintptr_t addr, int sig)
{
	if (!fault)
		return;
	fault->addr = addr;
	fault->sig = sig;
}

/* At most 3 pieces to the first multiple of 8, the whole words, 3 pieces after them. */
#define PIECES 7

/* Cuts [addr, addr + n) into naturally aligned pieces in ascending order, as the header says; returns how
 * many. */
static unsigned cut(uintptr_t addr, size_t n, struct iovec *piece)
{
	unsigned count = 0;
	size_t step;

	while (n) {
		if (!(addr & 7) && n >= 8) {
			/* The last word by itself, after the others, when the range ends with it. */
			step = n & ~(size_t)7;
			if (step == n && n > 8)
				step -= 8;
		} else {
			step = addr & 7 ? addr & -addr : 4;
			while (step > n)
				step >>= 1;
		}
		piece[count++] = (struct iovec){ (void *)addr, step };
		addr += step;
		n -= step;
	}
	return count;
}

static size_t by_process_vm(long number, const void *private, const void *user, size_t n)
{
	struct iovec local = { (void *)(uintptr_t) private, n }, piece[PIECES];
	unsigned count = cut((uintptr_t)user, n, piece);
	int saved = errno;
	long r = syscall(number, getpid(), &local, 1ul, piece, (unsigned long)count, 0ul);

	errno = saved;
	return r > 0 ? (size_t)r : 0;
}

/* How much to copy from user in one step of at most most bytes: ends at a multiple of 8, so that no word is
 * cut. */
static size_t step_from(uintptr_t user, size_t n, size_t most)
{
	size_t step = most - (user & 7);

	return n < step ? n : step;
}

/* One call moves at most 2 GiB less a page. */
static size_t process_vm_copy(long number, const char *private, const char *user, size_t n)
{
	size_t done = 0, step, r;

	while (done < n) {
		step = step_from((uintptr_t)user + done, n - done, 1ul << 30);
		r = by_process_vm(number, private + done, (const char *)((uintptr_t)user + done), step);
		done += r;
		if (r < step)
			break;
	}
	return done;
}

/*
 * The kernel's copy is aligned on the side it writes. Reading, words of the application tear unless the
 * private buffer is aligned like them: one that is not gets its bytes by way of one that is.
 */
static size_t process_vm_read(char *private, const char *user, size_t n)
{
	_Alignas(64) char like[4096 + 8];
	size_t done = 0, step, r;
	uintptr_t at;

	if (!(((uintptr_t) private ^ (uintptr_t)user) & 7))
		return process_vm_copy(SYS_process_vm_readv, private, user, n);
	while (done < n) {
		at = (uintptr_t)user + done;
		step = step_from(at, n - done, 4096);
		r = by_process_vm(SYS_process_vm_readv, like + (at & 7), (const char *)at, step);
		memcpy(private + done, like + (at & 7), r);
		done += r;
		if (r < step)
			break;
	}
	return done;
}

/* A copy in either direction. Inlined into the two below, so that there is nothing to decide when it is
 * called. */
static inline __attribute__((always_inline)) size_t copy(enum safecopy_path path, void *dst, const void *src,
	size_t n, struct safecopy_fault *fault, bool to_user)
{
	size_t done = 0;
	int sig = 0;

#if HAVE_FIXUP
	if (__builtin_expect(path == SAFECOPY_FIXUP, 1)) {
		struct outcome o = copy_asm(dst, src, n, to_user);

		if (__builtin_expect(!o.value, 1))
			return n;
		o = copy_past_keys(dst, src, n, to_user, o);
		done = n - o.value;
		sig = (int)o.sig;
	} else
#endif
		if (path != SAFECOPY_NONE)
		done = to_user ? process_vm_copy(SYS_process_vm_writev, src, dst, n)
			       : process_vm_read(dst, src, n);
	if (done < n)
		report(fault, (uintptr_t)(to_user ? dst : src) + done, sig);
	return done;
}

size_t safecopy_to_user(
	enum safecopy_path path, void *dst, const void *src, size_t n, struct safecopy_fault *fault)
{
	return copy(path, dst, src, n, fault, true);
}

size_t safecopy_from_user(
	enum safecopy_path path, void *dst, const void *src, size_t n, struct safecopy_fault *fault)
{
	return copy(path, dst, src, n, fault, false);
}

#if HAVE_FIXUP

int safecopy_cmp_swap(enum safecopy_path path, uint64_t *ptr, uint64_t compare, uint64_t swap, uint64_t *orig,
	struct safecopy_fault *fault)
{
	struct outcome o;
	uintptr_t end;
	uint32_t was;

	if ((uintptr_t)ptr & 7)
		return -EINVAL;
	if (path != SAFECOPY_FIXUP)
		return -EAGAIN;
	o = safecopy_asm_cmp_swap(ptr, compare, swap);
	if (open_keys(&o, (uintptr_t)ptr, true, &end, &was)) {
		o = safecopy_asm_cmp_swap(ptr, compare, swap);
		close_keys(&o, was);
	}
	if (o.sig) {
		report(fault, (uintptr_t)ptr, (int)o.sig);
		return -EFAULT;
	}
	*orig = o.value;
	return 0;
}

int safecopy_fetch_add(
	enum safecopy_path path, uint64_t *ptr, uint64_t add, uint64_t *orig, struct safecopy_fault *fault)
{
	struct outcome o;
	uintptr_t end;
	uint32_t was;

	if ((uintptr_t)ptr & 7)
		return -EINVAL;
	if (path != SAFECOPY_FIXUP)
		return -EAGAIN;
	o = safecopy_asm_fetch_add(ptr, add);
	if (open_keys(&o, (uintptr_t)ptr, true, &end, &was)) {
		o = safecopy_asm_fetch_add(ptr, add);
		close_keys(&o, was);
	}
	if (o.sig) {
		report(fault, (uintptr_t)ptr, (int)o.sig);
		return -EFAULT;
	}
	*orig = o.value;
	return 0;
}

static struct outcome touch(uintptr_t first, uintptr_t last, bool write)
{
	return write ? safecopy_asm_touch_write(first, last, page_size())
		     : safecopy_asm_touch_read(first, last, page_size());
}

int safecopy_touch(const void *addr, size_t len, int write, struct safecopy_fault *fault)
{
	uintptr_t from = (uintptr_t)addr, last = from + len - 1, end;
	struct outcome o;
	uint32_t was;

	if (!len)
		return 0;
	o = touch(from, last, write);
	while (open_keys(&o, o.value, write, &end, &was)) {
		o = touch(o.value, end - 1 < last ? end - 1 : last, write);
		close_keys(&o, was);
		if (!o.sig && end - 1 < last)
			o = touch(end, last, write);
	}
	if (!o.sig)
		return 0;
	report(fault, o.value, (int)o.sig);
	return -EFAULT;
}

#else

int safecopy_cmp_swap(enum safecopy_path path, uint64_t *ptr, uint64_t compare, uint64_t swap, uint64_t *orig,
	struct safecopy_fault *fault)
{
	return -EOPNOTSUPP;
}

int safecopy_fetch_add(
	enum safecopy_path path, uint64_t *ptr, uint64_t add, uint64_t *orig, struct safecopy_fault *fault)
{
	return -EOPNOTSUPP;
}

int safecopy_touch(const void *addr, size_t len, int write, struct safecopy_fault *fault)
{
	return -EOPNOTSUPP;
}

#endif

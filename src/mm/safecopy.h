/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Copies between private buffers of ours and memory of the application by virtual address, through the CPU's
 * live page table, that survive a fault: what cannot be reached ends the copy early instead of ending the
 * program.
 *
 * Order (programs poll on memory): a copy into user memory goes upwards, in stores that are naturally
 * aligned: up to seven bytes to the first multiple of 8, then whole words, then the rest as 4, 2 and 1 byte.
 * So the last 1 to 8 bytes are one store after all others, and naturally aligned words of up to 8 bytes never
 * tear, in either direction. (An unaligned store of the last 8 bytes would tear the word that it shares with
 * the body.) x86-64's memory model makes the order of stores the order in which other processors see them.
 *
 * Lines: an aligned line of 64 bytes that a FIXUP copy into user memory fills whole is one store where the
 * processor has AVX-512 and writes 64 bytes at once (safecopy_wide(); Intel's do, AMD's from family 1Ah on):
 * who spins on its first word sees the line as it was or as it is to be. Elsewhere it is four stores of 16
 * bytes, upwards, and such a reader may see the first of them alone. The kernel's copy (PROCESS_VM) writes a
 * line at once on processors with fast short string moves only, as far as we have measured.
 *
 * Two paths: FIXUP (plain instructions, with the fault handlers of sigchain.h repairing the instruction
 * pointer; the calling thread must not block SIGSEGV or SIGBUS, and sigchain_install() must have been called)
 * and PROCESS_VM (system calls, no signals; same pieces in the same order, but each is copied by the kernel,
 * whose copy of a single 2- or 4-byte piece tears on processors without fast short string moves (FSRM), and
 * whose stores within the body of whole words come in any order; and a word that was read while another
 * thread wrote it has been seen torn, once in some fifty million). safecopy_path() tells which one a thread
 * may use; ask once per burst of work, since asking for the mask is a system call. On other machines than
 * x86-64 there is no FIXUP: safecopy_path() never answers it, the copies take it as PROCESS_VM, atomics and
 * touching return -EOPNOTSUPP.
 *
 * Rights are those of the mapping: a protection key that the calling thread may not use (pkey.h) is no
 * obstacle, at the price of a fault for each copy.
 *
 * No function here takes a lock or allocates. Reading and writing may sleep in the kernel's fault handler
 * (swap, file): callers that must not sleep verify residency first (residency.h).
 */
#ifndef UNPIN_MM_SAFECOPY_H
#define UNPIN_MM_SAFECOPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum safecopy_path {
	SAFECOPY_FIXUP,
	SAFECOPY_PROCESS_VM,
	SAFECOPY_NONE, /* signals blocked and no process_vm: hand the work to another thread */
};

/* Looks at the calling thread's signal mask. Threads created by us never block the two signals and need not
 * ask. FIXUP is answered only after sigchain_install(). */
enum safecopy_path safecopy_path(void);

/* Whether FIXUP copies store whole lines by one instruction. */
bool safecopy_wide(void);

struct safecopy_fault {
	uintptr_t addr; /* first byte that could not be reached */
	int sig;	/* SIGSEGV, SIGBUS; 0 when the path cannot tell */
};

/*
 * Copy n bytes; return how many were copied, from the start, without a gap. Less than n: *fault says where
 * and how (fault may be NULL). With n == 0 no address is looked at. to_user: dst is the application's;
 * from_user: src is.
 */
size_t safecopy_to_user(
	enum safecopy_path path, void *dst, const void *src, size_t n, struct safecopy_fault *fault);
size_t safecopy_from_user(
	enum safecopy_path path, void *dst, const void *src, size_t n, struct safecopy_fault *fault);

/*
 * 64-bit atomics on a naturally aligned application word (IBTA 9.4.5): *orig gets the value before. 0,
 * -EFAULT
 * (*fault filled), -EINVAL (not aligned), or -EAGAIN when the path is not FIXUP (there is no atomic by system
 * call): another thread must do it. Atomic with respect to the application's own locked instructions.
 */
int safecopy_cmp_swap(enum safecopy_path path, uint64_t *ptr, uint64_t compare, uint64_t swap, uint64_t *orig,
	struct safecopy_fault *fault);
int safecopy_fetch_add(
	enum safecopy_path path, uint64_t *ptr, uint64_t add, uint64_t *orig, struct safecopy_fault *fault);

/*
 * Touches one byte per page of [addr, addr + len) for reading, or for writing without changing it (a locked
 * add of 0), FIXUP only: the way to populate where MADV_POPULATE is missing. Returns 0 or -EFAULT with
 * *fault.
 */
int safecopy_touch(const void *addr, size_t len, int write, struct safecopy_fault *fault);

/*
 * For sigchain.c only: if the interrupted instruction lies in one of the routines above, makes the routine
 * return early, with its count exact and sig as the cause, and returns true. code is its si_code,
 * context the handler's ucontext_t.
 */
bool safecopy_repair(int sig, int code, void *context);

#endif

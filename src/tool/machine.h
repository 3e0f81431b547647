/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What the bench must know of the machine it runs on. Functions fall back to 0 where the kernel does not
 * tell. */
#ifndef UNPIN_TOOL_MACHINE_H
#define UNPIN_TOOL_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory of this process in bytes, from /proc/self/status. */
struct machine_memory {
	uint64_t resident, pinned, locked; /* VmRSS, VmPin, VmLck */
};

struct machine_memory machine_memory(void);

/* Bytes that can be used without swapping: MemAvailable, or less where a memory cgroup leaves less. */
uint64_t machine_available(void);
uint64_t machine_total(void);
uint64_t machine_swap(void);

/* The processor's name, and the mode of transparent huge pages (always, madvise, never); "unknown" where the
 * kernel does not tell. */
#define MACHINE_WORDS_MAX 128
void machine_processor(char name[MACHINE_WORDS_MAX]);
void machine_thp(char mode[MACHINE_WORDS_MAX]);

/* CPUs that this thread may run on. */
unsigned machine_cpus(void);
/* Keeps the calling thread on the nth of them. Nothing happens, and false is returned, when there is no such
 * CPU or only one in all. */
bool machine_pin_thread(unsigned n);
/* Lets the calling thread run everywhere again that it could when machine_pin_thread was first called. */
void machine_unpin_thread(void);

/* For loops that wait for another thread or process: lets it run when there is only one processor for both.
 */
void machine_relax(void);

/* Raises the soft limit on locked memory to the hard one and returns it in bytes; UINT64_MAX: none (or root,
 * which the limit does not bind). */
uint64_t machine_memlock(void);

/* length bytes of fresh private memory in 4 KiB pages (no transparent huge pages), aligned to 2 MiB, without
 * reserved swap. NULL with errno. */
void *machine_map(size_t length);
void machine_unmap(void *addr, size_t length);

/* Writes one word per page. */
void machine_touch(void *addr, size_t length);

/* The offset of page i of a walk that jumps about and takes every one of pages (a power of two) once. */
size_t machine_scatter(size_t i, size_t pages);
/* One word per page in that order; length is a power of two. */
void machine_touch_scattered(void *addr, size_t length);

/* A pattern that differs from word to word and from seed to seed; length in bytes, a multiple of 8.
 * machine_compare returns the offset of the first word that differs, or length. */
void machine_fill(void *addr, size_t length, uint64_t seed);
size_t machine_compare(const void *addr, size_t length, uint64_t seed);

#endif

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* What is in memory right now: asked without touching, so without faults and without sleeping on I/O. */
#ifndef UNPIN_MM_RESIDENCY_H
#define UNPIN_MM_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Of the npages pages from the page-aligned addr, sets resident[i] to 1 when page i is present in this
 * process's page table, else 0 (holes, never touched, swapped out; with the mincore fallback, file pages
 * count when they are in the page cache and swapped anonymous pages count as absent). Returns the number of
 * resident pages or a negative errno (nothing is then written). npages <= 4096. No allocation.
 */
int residency_query(const void *addr, size_t npages, unsigned char *resident);

/* Whether page i was swapped out (reading it back needs I/O): swapped[i] likewise. A page under migration
 * counts, a guard page does not on kernels that tell (6.15). With neither PAGEMAP_SCAN nor /proc/self/pagemap
 * nothing is known: returns -EOPNOTSUPP. */
int residency_swapped(const void *addr, size_t npages, unsigned char *swapped);

/*
 * Whether the page that holds addr (any alignment) is present and part of a huge page: one entry maps 2 MiB
 * (or whatever the machine's second level maps), transparently or as hugetlb. 1; 0; -EOPNOTSUPP without
 * PAGEMAP_SCAN, since nothing else tells; or another negative errno. By the time of the answer it may have
 * been split. No allocation; any thread; errno is kept.
 */
int residency_huge(const void *addr);

/* Whether any swap device is on, from /proc/swaps, read at most once per second of now_ns (clock.h). True
 * when the file cannot be read: memory may then leave for all we know. Any thread. */
bool residency_swap_on(uint64_t now_ns);

/* For facility.c: whether the kernel has PAGEMAP_SCAN, and lets us read /proc/self/pagemap. 0 or a negative
 * errno. */
int residency_probe_scan(void);
int residency_probe_pagemap(void);

#endif

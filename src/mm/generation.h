/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Fork detection without locks: a page that the kernel wipes in a child (MADV_WIPEONFORK) holds a generation.
 * A child, even one made by a raw clone(), sees that it is one and must drop inherited state.
 */
#ifndef UNPIN_MM_GENERATION_H
#define UNPIN_MM_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

/* Creates the page; 0 or negative errno. Idempotent; thread safe. In a child it starts a new generation. */
int generation_begin(void);
/* The generation of this process, 0 before generation_begin() and in a child that has not called it: a state
 * that remembers the value it was made under is inherited when they differ. One load. */
uint64_t generation_now(void);

#endif

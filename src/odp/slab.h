/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Type-stable memory in pieces of one size, from mappings that bypass our own notifier (so that taking some
 * inside malloc or under a lock never comes back to us).
 *
 * Type-stable: a piece's address stays readable and writable until slab_destroy(), and only ever holds a
 * piece of this kind (or zeros, once it has been freed and its memory given back). Readers without locks may
 * therefore follow an old pointer; what they find is a hint that they must be able to stand. Freed pieces
 * must be left in a state that such a reader takes for "nothing here".
 *
 * A slab is 64 KiB, aligned to its size, its first 64 bytes are the header. When its last piece is freed its
 * memory (but not its addresses) goes back to the kernel.
 *
 * Threads: calls on one slab pool are serialised by the caller.
 */
#ifndef UNPIN_ODP_SLAB_H
#define UNPIN_ODP_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#define SLAB_BYTES  65536u
#define SLAB_HEADER 64u
#define SLAB_MAX    320u /* pieces in a slab at most */

struct slab_pool {
	size_t piece; /* bytes, a multiple of 64 */
	unsigned per_slab;
	struct list partial; /* slabs with free pieces, fuller ones first as they come */
	struct list full;
	size_t used; /* pieces taken */
	bool keep;
};

/*
 * piece: 256 .. 16384 bytes, a multiple of 64. keep: memory once used is not given back before the end (for
 * pieces that come and go all the time).
 */
void slab_init(struct slab_pool *pool, size_t piece, bool keep);
/* Unmaps everything. */
void slab_destroy(struct slab_pool *pool);
/* A piece: zeros, or what the last owner left in it. NULL: no memory. */
void *slab_take(struct slab_pool *pool);
void slab_give(struct slab_pool *pool, void *piece);

#endif

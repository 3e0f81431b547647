/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/slab.h"

#include <assert.h>
#include <sys/mman.h>

#include "mm/interpose.h"
#include "mm/page.h"

struct slab {
	struct list node;
	uint64_t taken[SLAB_MAX / 64];
	uint32_t used;
};

_Static_assert(sizeof(struct slab) <= SLAB_HEADER, "the header fits before the first piece");

void slab_init(struct slab_pool *pool, size_t piece, bool keep)
{
	assert(piece % 64 == 0 && piece >= SLAB_BYTES / 256 && piece <= SLAB_BYTES / 4);
	pool->piece = piece;
	pool->per_slab = (unsigned)((SLAB_BYTES - SLAB_HEADER) / piece);
	list_init(&pool->partial);
	list_init(&pool->full);
	pool->used = 0;
	pool->keep = keep;
}

static void unmap_all(struct list *slabs)
{
	struct list *node;

	while ((node = list_pop(slabs)))
		raw_munmap(container_of(node, struct slab, node), SLAB_BYTES);
}

void slab_destroy(struct slab_pool *pool)
{
	unmap_all(&pool->partial);
	unmap_all(&pool->full);
	pool->used = 0;
}

/* Twice the size is mapped, and what sticks out of the aligned half is returned. */
static struct slab *slab_map(void)
{
	char *p = raw_mmap(NULL, 2 * SLAB_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t head;

	if (p == MAP_FAILED)
		return NULL;
	head = -(uintptr_t)p & (SLAB_BYTES - 1);
	if (head)
		raw_munmap(p, head);
	raw_munmap(p + head + SLAB_BYTES, SLAB_BYTES - head);
	return (struct slab *)(p + head);
}

static unsigned first_free(const struct slab *slab)
{
	unsigned i = 0;

	while (!~slab->taken[i])
		i++;
	return i * 64 + (unsigned)__builtin_ctzll(~slab->taken[i]);
}

void *slab_take(struct slab_pool *pool)
{
	struct slab *slab;
	unsigned i;

	if (list_empty(&pool->partial)) {
		slab = slab_map();
		if (!slab)
			return NULL;
		list_add_head(&pool->partial, &slab->node);
	}
	slab = list_first(&pool->partial, struct slab, node);
	i = first_free(slab);
	slab->taken[i / 64] |= 1ull << (i % 64);
	pool->used++;
	if (++slab->used == pool->per_slab) {
		list_del(&slab->node);
		list_add_tail(&pool->full, &slab->node);
	}
	return (char *)slab + SLAB_HEADER + i * pool->piece;
}

void slab_give(struct slab_pool *pool, void *piece)
{
	struct slab *slab = (struct slab *)((uintptr_t)piece & ~(uintptr_t)(SLAB_BYTES - 1));
	unsigned i = (unsigned)(((char *)piece - (char *)slab - SLAB_HEADER) / pool->piece);
	size_t first = page_size();

	assert(slab->taken[i / 64] & 1ull << (i % 64));
	slab->taken[i / 64] &= ~(1ull << (i % 64));
	pool->used--;
	list_del(&slab->node);
	if (--slab->used) {
		list_add_head(&pool->partial, &slab->node);
		return;
	}
	/*
	 * Behind the partly used ones, so that it is taken from last. Its first page holds the header and
	 * stays.
	 */
	list_add_tail(&pool->partial, &slab->node);
	if (!pool->keep && first < SLAB_BYTES)
		raw_madvise((char *)slab + first, SLAB_BYTES - first, MADV_DONTNEED);
}

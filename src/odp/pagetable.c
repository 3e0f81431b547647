/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "odp/pagetable.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "mm/interpose.h"

#define relaxed memory_order_relaxed

_Static_assert(sizeof(struct leaf) == 832, "at most two bytes per page, a multiple of a cache line");

int pagetable_init(struct pagetable *pt, _Atomic uint64_t *bytes, _Atomic uint64_t *leaves)
{
	void *root = raw_mmap(NULL, TABLE_NODES * sizeof(*pt->root), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (root == MAP_FAILED)
		return -ENOMEM;
	memset(pt, 0, sizeof(*pt));
	pt->root = root;
	slab_init(&pt->leaf_pool, sizeof(struct leaf), false);
	slab_init(&pt->node_pool, sizeof(struct node), false);
	pt->bytes = bytes;
	pt->leaves = leaves;
	atomic_store_explicit(bytes, 0, relaxed);
	atomic_store_explicit(leaves, 0, relaxed);
	return 0;
}

void pagetable_destroy(struct pagetable *pt)
{
	slab_destroy(&pt->leaf_pool);
	slab_destroy(&pt->node_pool);
	raw_munmap(pt->root, TABLE_NODES * sizeof(*pt->root));
	atomic_store_explicit(pt->bytes, 0, relaxed);
	atomic_store_explicit(pt->leaves, 0, relaxed);
}

static void set_gauges(struct pagetable *pt)
{
	atomic_store_explicit(pt->leaves, pt->leaf_pool.used, relaxed);
	atomic_store_explicit(pt->bytes,
		pt->leaf_pool.used * sizeof(struct leaf) + pt->node_pool.used * sizeof(struct node), relaxed);
}

static unsigned index_in_node(uintptr_t va)
{
	return (unsigned)(va >> LEAF_SHIFT) & (NODE_LEAVES - 1);
}

static struct node *make_node(struct pagetable *pt, uintptr_t va)
{
	struct node *node = atomic_load_explicit(&pt->root[va >> NODE_SHIFT], relaxed);

	if (node)
		return node;
	node = slab_take(&pt->node_pool); /* empty: new, or freed when it was */
	if (!node)
		return NULL;
	/* Count and bit before the pointer: who skips a stretch must not skip a node in it. */
	atomic_fetch_add(&pt->span_nodes[va >> SPAN_SHIFT], 1);
	atomic_fetch_or(&pt->used[va >> NODE_SHIFT >> 6], 1ull << (va >> NODE_SHIFT & 63));
	atomic_store(&pt->root[va >> NODE_SHIFT], node);
	return node;
}

static bool node_empty(struct node *node)
{
	for (unsigned i = 0; i < NODE_LEAVES / 64; i++)
		if (atomic_load_explicit(&node->used[i], relaxed))
			return false;
	return true;
}

static void free_node_if_empty(struct pagetable *pt, uintptr_t va)
{
	struct node *node = atomic_load_explicit(&pt->root[va >> NODE_SHIFT], relaxed);

	if (!node || !node_empty(node))
		return;
	atomic_store(&pt->root[va >> NODE_SHIFT], NULL);
	atomic_fetch_and(&pt->used[va >> NODE_SHIFT >> 6], ~(1ull << (va >> NODE_SHIFT & 63)));
	atomic_fetch_sub(&pt->span_nodes[va >> SPAN_SHIFT], 1);
	slab_give(&pt->node_pool, node);
}

struct leaf *pagetable_make(struct pagetable *pt, uintptr_t va)
{
	unsigned i = index_in_node(va);
	struct node *node;
	struct leaf *leaf;

	if (va >= TABLE_LIMIT)
		return NULL;
	node = make_node(pt, va);
	if (!node)
		return NULL;
	leaf = atomic_load_explicit(&node->leaf[i], relaxed);
	if (leaf)
		return leaf;
	leaf = slab_take(&pt->leaf_pool);
	if (!leaf) {
		free_node_if_empty(pt, va);
		set_gauges(pt);
		return NULL;
	}
	for (unsigned g = 0; g < LEAF_GROUPS; g++) {
		atomic_store_explicit(&leaf->tick[g], 0, relaxed);
		atomic_store_explicit(&leaf->owner[g], 0, relaxed);
	}
	atomic_store_explicit(&leaf->small, 0, relaxed);
	atomic_store_explicit(&leaf->number, (va >> LEAF_SHIFT) + 1, relaxed);
	atomic_fetch_or(&node->used[i / 64], 1ull << (i % 64));
	atomic_store(&node->leaf[i], leaf);
	set_gauges(pt);
	return leaf;
}

static bool leaf_empty(const struct leaf *leaf)
{
	for (unsigned g = 0; g < LEAF_GROUPS; g++)
		if (atomic_load_explicit(&leaf->word[g], memory_order_acquire))
			return false;
	return true;
}

bool pagetable_free_if_empty(struct pagetable *pt, uintptr_t va)
{
	struct leaf *leaf = pagetable_leaf(pt, va);
	unsigned i = index_in_node(va);
	struct node *node;

	/*
	 * Empty stays empty: only the caller's lock lets a page become faulting, and only a faulting one
	 * becomes valid.
	 */
	if (!leaf || !leaf_empty(leaf))
		return false;
	node = atomic_load_explicit(&pt->root[va >> NODE_SHIFT], relaxed);
	atomic_store(&node->leaf[i], NULL);
	atomic_fetch_and(&node->used[i / 64], ~(1ull << (i % 64)));
	atomic_store_explicit(&leaf->number, 0, relaxed);
	slab_give(&pt->leaf_pool, leaf);
	free_node_if_empty(pt, va);
	set_gauges(pt);
	return true;
}

#ifdef UNPIN_DEBUG_CHECKS
_Atomic uint64_t pagetable_looks;
#define count_look() atomic_fetch_add_explicit(&pagetable_looks, 1, relaxed)
#else
#define count_look() ((void)0)
#endif

/* The first bit from i on that is set, in the words below bit end; or some number that is not below end. */
static uintptr_t next_used(const _Atomic uint64_t *used, uintptr_t i, uintptr_t end)
{
	while (i < end) {
		uint64_t bits = atomic_load(&used[i / 64]) >> (i % 64);

		count_look();
		if (bits)
			return i + (unsigned)__builtin_ctzll(bits);
		i = (i | 63) + 1;
	}
	return end;
}

static uintptr_t next_multiple(uintptr_t va, unsigned shift)
{
	return ((va >> shift) + 1) << shift;
}

/* The first address from at on, below end, in a GiB that has a node; end: there is none. */
static uintptr_t next_with_node(const struct pagetable *pt, uintptr_t at, uintptr_t end)
{
	while (at < end) {
		uintptr_t span_end = next_multiple(at, SPAN_SHIFT), i;

		count_look();
		if (atomic_load(&pt->span_nodes[at >> SPAN_SHIFT])) {
			i = next_used(pt->used, at >> NODE_SHIFT, span_end >> NODE_SHIFT);
			if (i == at >> NODE_SHIFT)
				return at;
			if (i < span_end >> NODE_SHIFT)
				return i << NODE_SHIFT < end ? i << NODE_SHIFT : end;
		}
		at = span_end;
	}
	return end;
}

struct leaf *pagetable_next(const struct pagetable *pt, uintptr_t *va, uintptr_t end)
{
	uintptr_t at = *va;

	if (end > TABLE_LIMIT)
		end = TABLE_LIMIT;
	while ((at = next_with_node(pt, at, end)) < end) {
		struct node *node = atomic_load(&pt->root[at >> NODE_SHIFT]);
		uintptr_t i = node ? next_used(node->used, index_in_node(at), NODE_LEAVES) : NODE_LEAVES;
		struct leaf *leaf;

		if (i >= NODE_LEAVES) {
			at = next_multiple(at, NODE_SHIFT);
			continue;
		}
		if (i != index_in_node(at))
			at = (at >> NODE_SHIFT << NODE_SHIFT) + (i << LEAF_SHIFT);
		leaf = atomic_load(&node->leaf[i]);
		if (leaf && at < end) {
			*va = at;
			return leaf;
		}
		at = next_multiple(at, LEAF_SHIFT);
	}
	return NULL;
}

/* ---- changes of words ---- */

/* false: somebody else was faster; *old is what he left. */
static bool change(struct leaf *leaf, unsigned group, uint64_t *old, uint64_t new, enum page_actor actor)
{
	if (*old == new)
		return true;
#ifdef UNPIN_DEBUG_CHECKS
	page_moves_check(actor, *old, new);
#else
	(void)actor;
#endif
	return atomic_compare_exchange_weak(&leaf->word[group], old, new);
}

static unsigned count(uint64_t pages)
{
	return (unsigned)__builtin_popcountll(pages);
}

unsigned leaf_raise(struct leaf *leaf, unsigned first, unsigned last, bool write)
{
	unsigned raised = 0;

	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		uint64_t mask = leaf_mask(g, first, last), old = atomic_load(&leaf->word[g]), run;

		do {
			/* Keeps the masked pages below the first that is not raisable. */
			uint64_t other = (mask & PAGE_EACH(1)) & ~page_raisable(old, mask, write);

			run = other ? mask & ((other & -other) - 1) : mask;
		} while (!change(leaf, g, &old, page_word_raise(old, run, write), PAGE_RAISE));
		raised += count(run & PAGE_EACH(1));
		if (run != mask)
			break;
	}
	return raised;
}

unsigned leaf_raise_below(struct leaf *leaf, unsigned first, bool write)
{
	unsigned raised = 0;

	for (unsigned g = (first - 1) / GROUP_PAGES; first && g < LEAF_GROUPS; g--) {
		uint64_t mask = leaf_mask(g, 0, first - 1), old = atomic_load(&leaf->word[g]), run;

		do {
			/* Keeps the masked pages above the last that is not raisable. */
			uint64_t other = (mask & PAGE_EACH(1)) & ~page_raisable(old, mask, write);

			run = other ? mask & ~(~0ull >> (56 - (63 - __builtin_clzll(other)))) : mask;
		} while (!change(leaf, g, &old, page_word_raise(old, run, write), PAGE_RAISE));
		raised += count(run & PAGE_EACH(1));
		if (run != mask)
			break;
	}
	return raised;
}

bool leaf_raisable(const struct leaf *leaf, bool write)
{
	for (unsigned g = 0; g < LEAF_GROUPS; g++) {
		uint64_t word = atomic_load_explicit(&leaf->word[g], relaxed);

		if (word && (page_raisable(word, ~0ull, write) != PAGE_EACH(1)))
			return false;
	}
	return true;
}

/*
 * The tick says that all valid pages of the group were in memory then. It may move when this map made all of
 * them valid.
 */
static void freshen(struct leaf *leaf, unsigned group, uint64_t before, uint64_t pages, uint16_t tick)
{
	if (!(page_valid(before, ~0ull) & ~pages))
		atomic_store_explicit(&leaf->tick[group], tick, relaxed);
}

/* Of first..first+n-1, the pages in a group; n may be 0. */
static uint64_t mask_of_first(unsigned group, unsigned first, unsigned n)
{
	return n && group <= (first + n - 1) / GROUP_PAGES ? leaf_mask(group, first, first + n - 1) : 0;
}

/* Returns the pages that became valid, 0x01 each. */
static uint64_t settle_group(
	struct leaf *leaf, unsigned group, uint64_t map, uint64_t give_up, bool write, bool file)
{
	uint64_t old = atomic_load(&leaf->word[group]), mapped, new;

	do {
		mapped = page_word_map(old, map, write, file);
		new = page_word_give_up(mapped, give_up);
#ifdef UNPIN_DEBUG_CHECKS
		page_moves_check(PAGE_MAP, old, mapped);
		page_moves_check(PAGE_GIVE_UP, mapped, new);
#endif
	} while (!atomic_compare_exchange_weak(&leaf->word[group], &old, new));
	return page_faulting_clean(old, map);
}

bool leaf_settle(struct leaf *leaf, unsigned first, unsigned last, unsigned populated, bool write, bool file,
	uint16_t tick, uint16_t owner, unsigned lead, unsigned *leading)
{
	bool mapped = false;

	*leading = 0;
	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		uint64_t all = leaf_mask(g, first, last), map = mask_of_first(g, first, populated), pages;

		if (map) {
			atomic_store_explicit(&leaf->owner[g], owner, relaxed);
			freshen(leaf, g, atomic_load_explicit(&leaf->word[g], relaxed), map, tick);
		}
		pages = settle_group(leaf, g, map, all & ~mask_of_first(g, first, 1), write, file);
		mapped |= pages & mask_of_first(g, first, 1);
		*leading += count(pages & mask_of_first(g, first, lead));
	}
	return mapped;
}

void leaf_settle_rest(struct leaf *leaf, unsigned first, unsigned last, bool write, bool file, uint16_t tick,
	uint16_t owner)
{
	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		uint64_t mask = leaf_mask(g, first, last);

		atomic_store_explicit(&leaf->owner[g], owner, relaxed);
		freshen(leaf, g, atomic_load_explicit(&leaf->word[g], relaxed), mask, tick);
		settle_group(leaf, g, mask, mask, write, file);
	}
}

unsigned leaf_again(struct leaf *leaf, unsigned first, unsigned last)
{
	unsigned changed = 0;

	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		uint64_t mask = leaf_mask(g, first, last), old = atomic_load(&leaf->word[g]);

		while (!change(leaf, g, &old, page_word_again(old, mask), PAGE_AGAIN))
			;
		changed += count(page_faulting(old, mask) & ~page_faulting_clean(old, mask));
	}
	return changed;
}

unsigned leaf_give_up(struct leaf *leaf, unsigned first, unsigned last)
{
	unsigned changed = 0;

	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		uint64_t mask = leaf_mask(g, first, last), old = atomic_load(&leaf->word[g]);

		while (!change(leaf, g, &old, page_word_give_up(old, mask), PAGE_GIVE_UP))
			;
		changed += count(page_faulting(old, mask));
	}
	return changed;
}

unsigned leaf_fork(struct leaf *leaf, unsigned first, unsigned last)
{
	unsigned changed = 0;

	for (unsigned g = first / GROUP_PAGES; g <= last / GROUP_PAGES; g++) {
		uint64_t mask = leaf_mask(g, first, last), old = atomic_load(&leaf->word[g]);

		while (!change(leaf, g, &old, page_word_fork(old, mask), PAGE_FORK))
			;
		changed += count(page_valid_rw(old, mask));
	}
	return changed;
}

uint64_t leaf_drop(struct leaf *leaf, unsigned group, uint64_t mask)
{
	uint64_t old = atomic_load(&leaf->word[group]);

	while (!change(leaf, group, &old, page_word_drop(old, mask), PAGE_DROP))
		;
	return page_valid(old, mask);
}

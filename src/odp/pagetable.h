/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The device page table of an address space: which pages the device may access without asking. It is a cache
 * of hints: the CPU's page table decides what an access really reaches. A wrong entry costs a retry or a
 * wait, never a byte.
 *
 * Shape: a root of one pointer per GiB (addresses below 2^48; mapped without reserve, so untouched parts cost
 * nothing), nodes of 512 leaf pointers, leaves of 512 pages of 4 KiB. A leaf is 832 bytes: one byte of state
 * per page (state.h), and for each group of eight pages (one word) the tick when all of the group's valid
 * pages were last known to be in memory and the number of the region that faulted there last (for the
 * counters). That is 1.65 bytes per page including its share of the node.
 *
 * Size follows pages touched: leaves and nodes are made by faults and freed by the sweep when empty.
 *
 * Concurrency:
 *  - Lookups and changes of words are lock-free and may happen in any context. The memory is type-stable
 * (slab.h): a leaf that was freed or reused under a reader's feet is still a leaf. What the reader then sees
 * belongs to other pages, which is harmless in both directions: an access goes to memory on a wrong hint; an
 * invalidation drops an entry too many.
 *  - An invalidation cannot miss an entry this way: the caller reports after the change of the mapping took
 * effect, and a leaf that it does not find was made, or made faulting, after it looked; then populate comes
 * after the change too.
 *  - Making and freeing leaves, and the move from not faulting to faulting, are serialised by the caller (the
 * fault queue's lock), so that a leaf with a fault in progress is never freed.
 */
#ifndef UNPIN_ODP_PAGETABLE_H
#define UNPIN_ODP_PAGETABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "odp/slab.h"
#include "odp/state.h"

#define ODP_PAGE_SHIFT 12
#define ODP_PAGE       (1u << ODP_PAGE_SHIFT)
#define LEAF_SHIFT     21
#define LEAF_BYTES     (1ul << LEAF_SHIFT)
#define LEAF_PAGES     512u
#define GROUP_PAGES    8u
#define LEAF_GROUPS    (LEAF_PAGES / GROUP_PAGES)
#define NODE_SHIFT     30
#define NODE_LEAVES    512u
#define SPAN_SHIFT     39 /* what is skipped at once when nothing in it was touched: 512 GiB */
#define TABLE_BITS     48
#define TABLE_LIMIT    (1ul << TABLE_BITS)
#define TABLE_SPANS    (1u << (TABLE_BITS - SPAN_SHIFT))
#define TABLE_NODES    (1u << (TABLE_BITS - NODE_SHIFT))

struct leaf {
	_Atomic uint64_t word[LEAF_GROUPS];
	_Atomic uint16_t tick[LEAF_GROUPS];  /* see PAGETABLE_TICK_NS */
	_Atomic uint16_t owner[LEAF_GROUPS]; /* 0: nobody */
	_Atomic uint64_t number;	     /* address >> LEAF_SHIFT, plus one; 0: free */
	_Atomic uint32_t small;		     /* tick, plus one, when it was not one huge page; 0: not known */
	uint8_t pad[52];
};

struct node {
	_Atomic(struct leaf *) leaf[NODE_LEAVES];
	/* Bits of the leaves that exist: set before, cleared after the pointer. */
	_Atomic uint64_t used[NODE_LEAVES / 64];
};

struct pagetable {
	_Atomic(struct node *) *root;
	_Atomic uint32_t span_nodes[TABLE_SPANS];
	/* Bits of the nodes that exist: set before, cleared after the pointer. */
	_Atomic uint64_t used[TABLE_NODES / 64];
	/* Under the caller's lock: */
	struct slab_pool leaf_pool, node_pool;
	_Atomic uint64_t *bytes, *leaves; /* gauges */
};

/* Ticks are 50 ms and wrap after 54 minutes; an age of two is between 50 and 100 ms. */
#define PAGETABLE_TICK_NS 50000000ull

/*
 * 0 or -ENOMEM. The gauges are written (relaxed) with the bytes of leaves and nodes, and the number of
 * leaves.
 */
int pagetable_init(struct pagetable *pt, _Atomic uint64_t *bytes, _Atomic uint64_t *leaves);
void pagetable_destroy(struct pagetable *pt);

/* The leaf of an address, or NULL. Lock-free. */
static inline struct leaf *pagetable_leaf(const struct pagetable *pt, uintptr_t va)
{
	struct node *node;

	if (__builtin_expect(va >= TABLE_LIMIT, 0))
		return NULL;
	node = atomic_load_explicit(&pt->root[va >> NODE_SHIFT], memory_order_acquire);
	if (!node)
		return NULL;
	return atomic_load_explicit(&node->leaf[va >> LEAF_SHIFT & (NODE_LEAVES - 1)], memory_order_acquire);
}

/*
 * The leaf of an address, made if need be; NULL: no memory, or the address is beyond the table. Serialised.
 */
struct leaf *pagetable_make(struct pagetable *pt, uintptr_t va);
/*
 * The first existing leaf that covers an address in [*va, end): *va moves to the first address of [*va, end)
 * in it. NULL: none. Lock-free; a stretch without leaves costs a look per 512 GiB, per 64 GiB in those that
 * hold a leaf, and per 128 MiB in a GiB that holds one.
 */
struct leaf *pagetable_next(const struct pagetable *pt, uintptr_t *va, uintptr_t end);
#ifdef UNPIN_DEBUG_CHECKS
/* Looks that pagetable_next() has taken: what a walk costs, for tests. */
extern _Atomic uint64_t pagetable_looks;
#endif
/* Frees the leaf of an address if it is empty. Serialised. */
bool pagetable_free_if_empty(struct pagetable *pt, uintptr_t va);

static inline unsigned leaf_page(uintptr_t va)
{
	return (unsigned)(va >> ODP_PAGE_SHIFT) & (LEAF_PAGES - 1);
}

/* The pages of one group inside first..last, as a mask of its word. */
static inline uint64_t leaf_mask(unsigned group, unsigned first, unsigned last)
{
	unsigned lo = group == first / GROUP_PAGES ? first % GROUP_PAGES : 0;
	unsigned hi = group == last / GROUP_PAGES ? last % GROUP_PAGES : GROUP_PAGES - 1;

	return page_mask(lo, hi);
}

static inline enum page_state leaf_state(const struct leaf *leaf, unsigned page)
{
	return page_state_of(atomic_load_explicit(&leaf->word[page / GROUP_PAGES], memory_order_relaxed),
		page % GROUP_PAGES);
}

/* The changes of state.h over the pages first..last. Each returns how many pages it changed. */

/* Makes pages faulting from first on, up to last, and stops at the first that is not raisable. Serialised. */
unsigned leaf_raise(struct leaf *leaf, unsigned first, unsigned last, bool write);
/* The same from the page below first downwards. Serialised. */
unsigned leaf_raise_below(struct leaf *leaf, unsigned first, bool write);
/* Whether every page would have to be raised: none is valid for it or faulting. */
bool leaf_raisable(const struct leaf *leaf, bool write);
/*
 * The owner of first..last, all of them faulting, settles them in one step per group: of the first
 * `populated` pages the clean ones become valid (their groups fresh as of tick where that can be said, and
 * owned); all others become invalid, except the first page, which stays faulting when it was not mapped.
 * Returns whether it was; *leading: how many of the first `lead` pages were.
 */
bool leaf_settle(struct leaf *leaf, unsigned first, unsigned last, unsigned populated, bool write, bool file,
	uint16_t tick, uint16_t owner, unsigned lead, unsigned *leading);
/* The same without a first page that matters: what is clean becomes valid, the rest invalid. */
void leaf_settle_rest(struct leaf *leaf, unsigned first, unsigned last, bool write, bool file, uint16_t tick,
	uint16_t owner);
unsigned leaf_again(struct leaf *leaf, unsigned first, unsigned last);
unsigned leaf_give_up(struct leaf *leaf, unsigned first, unsigned last);
unsigned leaf_fork(struct leaf *leaf, unsigned first, unsigned last);
/* Drops the masked pages of one group; returns those that were valid, 0x01 each. */
uint64_t leaf_drop(struct leaf *leaf, unsigned group, uint64_t mask);

/* Not one huge page, as of this tick, and for the second after it. */
#define LEAF_SMALL_TICKS 20u

static inline void leaf_note_small(struct leaf *leaf, uint16_t now)
{
	atomic_store_explicit(&leaf->small, now + 1u, memory_order_relaxed);
}

static inline bool leaf_small(const struct leaf *leaf, uint16_t now)
{
	uint32_t noted = atomic_load_explicit(&leaf->small, memory_order_relaxed);

	return noted && (uint16_t)(now + 1u - noted) < LEAF_SMALL_TICKS;
}

/* Whether a group's verification is too old. */
static inline bool leaf_aged(const struct leaf *leaf, unsigned group, uint16_t now)
{
	return (uint16_t)(now - atomic_load_explicit(&leaf->tick[group], memory_order_relaxed)) > 1;
}

#endif

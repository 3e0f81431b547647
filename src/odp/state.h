/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The state of a page in the device page table, and who may change it how.
 *
 * One byte per page, eight of them in a word, changed together by compare-and-swap. The functions here are
 * pure: a word and a mask of bytes in, the new word out; pagetable.h applies them. No lock protects a word,
 * so that an invalidation can run inside malloc, free or a signal handler: what a lock and a sequence per
 * leaf would tell (has anything been taken away since resolve began?) is told per page by PAGE_DIRTY.
 *
 *            raise                 map
 *   INVALID -------> FAULTING --------------> VALID_RO, VALID_RW
 *      ^              |  ^ |                    |  |  |
 *      |      give up |  | | drop, fork         |  |  | fork: RW becomes RO
 *      |<-------------+  | v                    |  |  '->
 *      |              |  FAULTING + DIRTY       |  |
 *      |<-------------+     | again: FAULTING   |  '--> FAULTING (raise of a write on VALID_RO)
 *      |<---------------------------------------+ drop
 *
 * Only the owner of the fault event that covers a page takes it out of FAULTING; anybody may drop.
 */
#ifndef UNPIN_ODP_STATE_H
#define UNPIN_ODP_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum page_state { PAGE_INVALID, PAGE_FAULTING, PAGE_VALID_RO, PAGE_VALID_RW };

/* Bits of the byte. An invalid page's byte is 0. */
#define PAGE_STATE   0x03u
#define PAGE_PRESENT 0x02u /* set in both valid states */
#define PAGE_WRITE   0x03u /* all set: valid read-write */
#define PAGE_DIRTY   0x04u /* with FAULTING: dropped since; what has been populated may be gone */
#define PAGE_FILE    0x08u /* with a valid state: can leave memory without swap */

#define PAGE_EACH(byte) (0x0101010101010101ull * (byte))

/* Who changes a page. */
enum page_actor {
	PAGE_RAISE,   /* an access that found it not valid, under the fault queue's lock */
	PAGE_MAP,     /* the owner of the event, after populate */
	PAGE_AGAIN,   /* the owner, before it resolves a dirty page again */
	PAGE_GIVE_UP, /* the owner, on an error or after too many rounds */
	PAGE_DROP,    /* an invalidation, from anywhere */
	PAGE_FORK,    /* the parent after fork */
	PAGE_ACTORS
};

/* Whether the table allows the actor to turn one byte into the other. Not changing a page is always legal. */
bool page_move_legal(enum page_actor actor, uint8_t from, uint8_t to);
/* Ends the program with a message when one of the eight moves is illegal. */
void page_moves_check(enum page_actor actor, uint64_t from, uint64_t to);

static inline enum page_state page_state_of(uint64_t word, unsigned page)
{
	return (enum page_state)(word >> (page * 8) & PAGE_STATE);
}

/* The mask of pages first..last of a word: 0xff in each of their bytes. */
static inline uint64_t page_mask(unsigned first, unsigned last)
{
	return (~0ull >> (56 - 8 * (last - first))) << (8 * first);
}

/*
 * 0x01 in the byte of each page of the mask that is valid, valid for writing, faulting, faulting and not
 * dirty.
 */
static inline uint64_t page_valid(uint64_t word, uint64_t mask)
{
	return word >> 1 & PAGE_EACH(1) & mask;
}

static inline uint64_t page_valid_rw(uint64_t word, uint64_t mask)
{
	return word & word >> 1 & PAGE_EACH(1) & mask;
}

static inline uint64_t page_faulting(uint64_t word, uint64_t mask)
{
	return word & ~(word >> 1) & PAGE_EACH(1) & mask;
}

static inline uint64_t page_faulting_clean(uint64_t word, uint64_t mask)
{
	return page_faulting(word, mask) & ~(word >> 2);
}

/* The bits that must be set in each byte of a word for an access. */
static inline uint64_t page_wanted(bool write)
{
	return write ? PAGE_EACH(PAGE_WRITE) : PAGE_EACH(PAGE_PRESENT);
}

/* 0x01 in the byte of each page that an access has to raise: invalid, or read-only when it writes. */
static inline uint64_t page_raisable(uint64_t word, uint64_t mask, bool write)
{
	uint64_t low = word & PAGE_EACH(1), high = word >> 1 & PAGE_EACH(1);

	return (write ? ~low : ~(low | high)) & PAGE_EACH(1) & mask;
}

#define PAGE_FILL(ones) ((ones)*0xffu)

static inline uint64_t page_word_raise(uint64_t word, uint64_t mask, bool write)
{
	uint64_t pages = page_raisable(word, mask, write);

	return (word & ~PAGE_FILL(pages)) | pages * PAGE_FAULTING;
}

/* What is faulting and clean becomes valid; dirty pages stay. */
static inline uint64_t page_word_map(uint64_t word, uint64_t mask, bool write, bool file)
{
	uint64_t pages = page_faulting_clean(word, mask);

	return (word & ~PAGE_FILL(pages)) |
	       pages * ((write ? PAGE_VALID_RW : PAGE_VALID_RO) | (file ? PAGE_FILE : 0u));
}

static inline uint64_t page_word_again(uint64_t word, uint64_t mask)
{
	return word & ~(page_faulting(word, mask) * PAGE_DIRTY);
}

static inline uint64_t page_word_give_up(uint64_t word, uint64_t mask)
{
	return word & ~PAGE_FILL(page_faulting(word, mask));
}

static inline uint64_t page_word_drop(uint64_t word, uint64_t mask)
{
	return (word & ~PAGE_FILL(page_valid(word, mask))) | page_faulting(word, mask) * PAGE_DIRTY;
}

static inline uint64_t page_word_fork(uint64_t word, uint64_t mask)
{
	return (word & ~page_valid_rw(word, mask)) | page_faulting(word, mask) * PAGE_DIRTY;
}

#endif

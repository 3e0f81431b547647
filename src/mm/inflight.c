/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/inflight.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mm/interpose.h"

#define SLOTS 63

/* A page of slots; more are linked behind when there are more threads, and never taken away. */
struct block {
	struct inflight_slot slot[SLOTS];
	_Alignas(64) _Atomic(struct block *) next;
};

static struct block first;
_Thread_local struct inflight_slot *inflight_mine;
/* Written by inflight_begin() before anything passes. */
bool inflight_fence = true;
static pthread_key_t at_thread_end;
static bool have_key;

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

static void thread_ends(void *slot)
{
	inflight_mine = NULL;
	inflight_give_back(slot);
}

/* In a child: what its parent's other threads were doing is none of its business. */
static void forget_others(void)
{
	for (struct block *b = &first; b; b = atomic_load(&b->next)) {
		for (int i = 0; i < SLOTS; i++) {
			atomic_store(&b->slot[i].object, NULL);
			if (&b->slot[i] != inflight_mine)
				atomic_store(&b->slot[i].used, false);
		}
	}
}

int inflight_begin(void)
{
	int saved = errno;

	forget_others();
	inflight_fence = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
	/* Without a key a thread claims a slot for each pass and gives it back after it. */
	if (!have_key)
		have_key = !pthread_key_create(&at_thread_end, thread_ends);
	errno = saved;
	return 0;
}

static struct inflight_slot *claim_in(struct block *b)
{
	bool unused;

	for (int i = 0; i < SLOTS; i++) {
		unused = false;
		if (!atomic_load_explicit(&b->slot[i].used, memory_order_relaxed) &&
			atomic_compare_exchange_strong(&b->slot[i].used, &unused, true))
			return &b->slot[i];
	}
	return NULL;
}

/* The block behind b, made if need be; NULL when there is no memory. */
static struct block *block_after(struct block *b)
{
	struct block *next = atomic_load(&b->next), *none = NULL;

	if (next)
		return next;
	next = raw_mmap(NULL, sizeof(*next), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (next == MAP_FAILED)
		return NULL;
	if (atomic_compare_exchange_strong(&b->next, &none, next))
		return next;
	raw_munmap(next, sizeof(*next));
	return none;
}

struct inflight_slot *inflight_claim(void)
{
	struct inflight_slot *slot = NULL;
	struct block *b = &first, *next;
	int saved = errno;

	while (!(slot = claim_in(b))) {
		next = block_after(b);
		/* No memory: wait in the last block for another thread to end. */
		if (!next)
			sched_yield();
		else
			b = next;
	}
	if (have_key && !pthread_setspecific(at_thread_end, slot))
		inflight_mine = slot;
	errno = saved;
	return slot;
}

void inflight_give_back(struct inflight_slot *slot)
{
	atomic_store(&slot->used, false);
}

static void fence_everywhere(void)
{
	if (inflight_fence || membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		__sync_synchronize();
}

static void wait_for(struct inflight_slot *slot, const void *object)
{
	uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);

	for (unsigned spins = 0; atomic_load_explicit(&slot->object, memory_order_acquire) == object &&
				 atomic_load_explicit(&slot->turn, memory_order_acquire) == turn;
		spins++)
		if (spins > 100)
			sched_yield();
}

void inflight_drain(const void *object)
{
	int saved = errno;

	fence_everywhere();
	for (struct block *b = &first; b; b = atomic_load(&b->next))
		for (int i = 0; i < SLOTS; i++)
			if (&b->slot[i] != inflight_mine)
				wait_for(&b->slot[i], object);
	errno = saved;
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/pin.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/capability.h"
#include "base/lock.h"
#include "base/log.h"
#include "mm/early.h"
#include "mm/facility.h"
#include "mm/generation.h"
#include "mm/inflight.h"
#include "mm/interpose.h"
#include "mm/memlock.h"
#include "mm/page.h"
#include "mm/populate.h"
#include "mm/uringbuf.h"
#include "mm/vma.h"

enum hold { HOLD_NONE, HOLD_URING, HOLD_MLOCK };

struct chunk {
	_Atomic(enum hold) hold; /* written by pin_create, looked at by pin_diverge from the start */
	struct uringbuf buf;
};

struct entry;

/* All fields but the atomic ones are constant between pin_create and pin_destroy. */
struct pin {
	uintptr_t addr, end;   /* bytes, as asked for */
	uintptr_t first, last; /* whole pages: [first, last) */
	uint64_t generation;
	bool write;
	bool locks; /* some chunk is held by mlock */
	struct entry *entry;
	/*
	 * The door of inflight.h: false, and no page is diverged. Bits of diverged pages are set before it.
	 */
	atomic_bool diverged;
	_Atomic uint64_t *pages; /* a bit per page: diverged */
	uint64_t *forgotten;	 /* diverged, and memlock.h knows; under create_lock */
	size_t chunks;
	struct chunk chunk[];
};

/* ---- The table that pin_diverge() looks through ----
 *
 * Written under create_lock, read without locks: an entry is a row in a block that never goes away. A reader
 * counts itself among the walkers of the current epoch; whoever takes a pin out clears its row, begins a new
 * epoch and waits for the walkers of the old one, so that no one holds a pointer to a pin that is freed.
 */

struct entry {
	_Atomic uintptr_t first, last;
	_Atomic(struct pin *) pin;
};

#define ENTRIES 2729

struct block {
	struct entry entry[ENTRIES];
	_Atomic(struct block *) next;
	atomic_int high; /* rows ever used */
};

/* A coarse filter before the walk: per 2 MiB of address space (folded), how many pins touch it. */
#define GRANULE_SHIFT 21
#define GRANULES      65536u

static struct lock create_lock = LOCK_INIT(LOCK_PINS);
static struct block *_Atomic first_block;
static atomic_uint granule[GRANULES];
static atomic_uint live;
static atomic_uint epoch;
static atomic_uint walkers[2];
static _Atomic uint64_t total;
/* The generation that all of the above belongs to. */
static _Atomic uint64_t home;
static bool fork_handled;

static unsigned walk_begin(void)
{
	unsigned e;

	for (;;) {
		e = atomic_load(&epoch) & 1;
		atomic_fetch_add(&walkers[e], 1);
		if ((atomic_load(&epoch) & 1) == e)
			return e;
		atomic_fetch_sub(&walkers[e], 1);
	}
}

static void walk_end(unsigned e)
{
	atomic_fetch_sub(&walkers[e], 1);
}

static void walk_wait(void)
{
	unsigned old = atomic_fetch_add(&epoch, 1) & 1;

	while (atomic_load(&walkers[old]))
		sched_yield();
}

/* Adds delta to every granule of the pin, once each even when the address space is folded over it. */
static void granule_add(const struct pin *pin, int delta)
{
	uintptr_t from = pin->first >> GRANULE_SHIFT, to = (pin->last - 1) >> GRANULE_SHIFT;

	if (to - from >= GRANULES)
		to = from + GRANULES - 1;
	for (uintptr_t g = from; g <= to; g++)
		atomic_fetch_add(&granule[g % GRANULES], (unsigned)delta);
}

static bool granule_hit(uintptr_t first, uintptr_t last)
{
	uintptr_t from = first >> GRANULE_SHIFT, to = (last - 1) >> GRANULE_SHIFT;

	if (to - from >= GRANULES)
		return true;
	for (uintptr_t g = from; g <= to; g++)
		if (atomic_load_explicit(&granule[g % GRANULES], memory_order_acquire))
			return true;
	return false;
}

static struct entry *row_in(struct block *b)
{
	int high = atomic_load(&b->high);

	for (int i = 0; i < high; i++)
		if (!atomic_load_explicit(&b->entry[i].pin, memory_order_relaxed))
			return &b->entry[i];
	if (high == ENTRIES)
		return NULL;
	atomic_store(&b->high, high + 1);
	return &b->entry[high];
}

static struct entry *free_row(void)
{
	struct block *_Atomic *link = &first_block;
	struct block *b;
	struct entry *e;

	for (;;) {
		b = atomic_load(link);
		if (!b) {
			b = raw_mmap(
				NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (b == MAP_FAILED)
				return NULL;
			atomic_store(link, b);
		}
		e = row_in(b);
		if (e)
			return e;
		link = &b->next;
	}
}

static int publish(struct pin *pin)
{
	struct entry *e = free_row();

	if (!e)
		return -ENOMEM;
	atomic_store(&e->first, pin->first);
	atomic_store(&e->last, pin->last);
	atomic_store(&e->pin, pin);
	pin->entry = e;
	granule_add(pin, 1);
	atomic_fetch_add(&live, 1);
	return 0;
}

static void unpublish(struct pin *pin)
{
	atomic_store(&pin->entry->pin, NULL);
	granule_add(pin, -1);
	atomic_fetch_sub(&live, 1);
	walk_wait();
}

/* ---- Fork ---- */

/* In a child, by whoever comes first: what the parent had is forgotten. Rows and pins are left as they are.
 */
static void forget_parent(void)
{
	/* Without a pin the filter is all zero, and best not touched. */
	for (unsigned g = 0; g < GRANULES && pin_any(); g++)
		if (atomic_load_explicit(&granule[g], memory_order_relaxed))
			atomic_store_explicit(&granule[g], 0, memory_order_relaxed);
	atomic_store(&live, 0);
	atomic_store(&total, 0);
	atomic_store(&first_block, NULL);
	atomic_store(&walkers[0], 0);
	atomic_store(&walkers[1], 0);
	memlock_reset();
	uringbuf_drop_inherited();
	lock_reinit(&create_lock, LOCK_PINS);
}

static bool at_home(void)
{
	return atomic_load_explicit(&home, memory_order_acquire) == generation_now();
}

/* 0 is no generation, MOVING the time of moving in. */
#define MOVING UINT64_MAX

/* Makes the state above this process's own, once. */
static int move_in(void)
{
	uint64_t was = atomic_load(&home);
	int err = generation_begin();

	if (err || was == generation_now())
		return err;
	if (was == MOVING || !atomic_compare_exchange_strong(&home, &was, MOVING)) {
		while (atomic_load(&home) == MOVING)
			sched_yield();
		return 0;
	}
	if (was)
		forget_parent();
	err = inflight_begin();
	atomic_store(&home, generation_now());
	return err;
}

static void child_after_fork(void)
{
	if (atomic_load(&home) && !at_home())
		move_in();
}

/* Once in a line of processes: the handler is inherited too. */
static void handle_fork(void)
{
	lock_take(&create_lock);
	if (!fork_handled)
		fork_handled = !pthread_atfork(NULL, NULL, child_after_fork);
	lock_drop(&create_lock);
}

/* ---- Pages ---- */

static size_t page_index(const struct pin *pin, uintptr_t va)
{
	return (va - pin->first) / page_size();
}

static bool page_diverged(const struct pin *pin, size_t i)
{
	return atomic_load_explicit(&pin->pages[i / 64], memory_order_acquire) >> (i % 64) & 1;
}

static struct chunk *chunk_of(struct pin *pin, uintptr_t va)
{
	return &pin->chunk[(va - pin->first) / URINGBUF_MAX];
}

static uintptr_t chunk_start(const struct pin *pin, size_t i)
{
	return pin->first + i * URINGBUF_MAX;
}

static uintptr_t chunk_end(const struct pin *pin, size_t i)
{
	return i + 1 < pin->chunks ? chunk_start(pin, i + 1) : pin->last;
}

/* ---- Divergence ---- */

static bool mark(struct pin *pin, uintptr_t first, uintptr_t last, bool spare_locked)
{
	bool any = false;

	for (uintptr_t at = first; at < last; at += page_size()) {
		size_t i = page_index(pin, at);

		/* A chunk still being pinned counts as if by io_uring: its page is whatever will be there. */
		if (spare_locked && chunk_of(pin, at)->hold == HOLD_MLOCK)
			continue;
		atomic_fetch_or(&pin->pages[i / 64], 1ull << (i % 64));
		any = true;
	}
	return any;
}

static void diverge_pin(struct pin *pin, uintptr_t first, uintptr_t last, bool spare_locked)
{
	if (first < pin->first)
		first = pin->first;
	if (last > pin->last)
		last = pin->last;
	if (!mark(pin, first, last, spare_locked))
		return;
	atomic_store(&pin->diverged, true);
	inflight_drain(pin);
}

static void diverge_block(struct block *b, uintptr_t first, uintptr_t last, bool spare_locked)
{
	int high = atomic_load(&b->high);
	struct pin *pin;

	for (int i = 0; i < high; i++) {
		struct entry *e = &b->entry[i];

		if (atomic_load_explicit(&e->first, memory_order_acquire) >= last ||
			atomic_load_explicit(&e->last, memory_order_acquire) <= first)
			continue;
		pin = atomic_load(&e->pin);
		/* The row may have changed hands meanwhile. */
		if (pin && pin->first < last && pin->last > first)
			diverge_pin(pin, first, last, spare_locked);
	}
}

static void diverge(uintptr_t addr, size_t len, bool spare_locked)
{
	uintptr_t first = page_down(addr), last = page_up(addr + len);
	int saved = errno;
	unsigned e;

	if (!len || !pin_any() || last <= first || !at_home() || !granule_hit(first, last))
		return;
	e = walk_begin();
	for (struct block *b = atomic_load(&first_block); b; b = atomic_load(&b->next))
		diverge_block(b, first, last, spare_locked);
	walk_end(e);
	errno = saved;
}

static bool overlaps_block(struct block *b, uintptr_t first, uintptr_t last)
{
	int high = atomic_load(&b->high);
	struct pin *pin;

	for (int i = 0; i < high; i++) {
		pin = atomic_load(&b->entry[i].pin);
		if (pin && pin->first < last && pin->last > first)
			return true;
	}
	return false;
}

bool pin_overlaps(uintptr_t addr, size_t len)
{
	uintptr_t first = page_down(addr), last = page_up(addr + len);
	bool found = false;
	unsigned e;

	if (!len || !pin_any() || last <= first || !at_home() || !granule_hit(first, last))
		return false;
	e = walk_begin();
	for (struct block *b = atomic_load(&first_block); b && !found; b = atomic_load(&b->next))
		found = overlaps_block(b, first, last);
	walk_end(e);
	return found;
}

void pin_diverge(uintptr_t addr, size_t len)
{
	diverge(addr, len, false);
}

void pin_discard(uintptr_t addr, size_t len)
{
	diverge(addr, len, true);
}

EARLY bool pin_any(void)
{
	return atomic_load_explicit(&live, memory_order_acquire);
}

uint64_t pin_total(void)
{
	return at_home() ? atomic_load(&total) : 0;
}

/* ---- Holding pages ---- */

static bool bit_forgotten(const struct pin *pin, size_t i)
{
	return pin->forgotten[i / 64] >> (i % 64) & 1;
}

/* Whether page i is diverged and memlock.h still counts it. */
static bool page_to_forget(const struct pin *pin, size_t i)
{
	return page_diverged(pin, i) && !bit_forgotten(pin, i);
}

static void forget_run(struct pin *pin, size_t from, size_t to)
{
	if (memlock_forget(pin->first + from * page_size(), (to - from) * page_size()))
		return;
	for (size_t i = from; i < to; i++)
		pin->forgotten[i / 64] |= 1ull << (i % 64);
}

/* Tells memlock.h which pages of the chunk are no longer there, before it counts anything else. */
static void settle_chunk(struct pin *pin, size_t c)
{
	size_t from = page_index(pin, chunk_start(pin, c)), end = page_index(pin, chunk_end(pin, c)), to;

	for (; from < end; from = to) {
		to = from + 1;
		if (!page_to_forget(pin, from))
			continue;
		while (to < end && page_to_forget(pin, to))
			to++;
		forget_run(pin, from, to);
	}
}

static void settle_pin(struct pin *pin)
{
	if (!pin->locks || !atomic_load(&pin->diverged))
		return;
	for (size_t c = 0; c < pin->chunks; c++)
		if (pin->chunk[c].hold == HOLD_MLOCK)
			settle_chunk(pin, c);
}

/* Under create_lock, before any count changes. */
static void settle_all(void)
{
	for (struct block *b = atomic_load(&first_block); b; b = atomic_load(&b->next)) {
		int high = atomic_load(&b->high);

		for (int i = 0; i < high; i++) {
			struct pin *pin = atomic_load(&b->entry[i].pin);

			if (pin)
				settle_pin(pin);
		}
	}
}

static int lock_chunk(struct pin *pin, size_t c)
{
	uintptr_t start = chunk_start(pin, c);
	size_t len = chunk_end(pin, c) - start;
	int err;

	lock_take(&create_lock);
	settle_all();
	err = memlock_add(start, len);
	if (!err) {
		pin->chunk[c].hold = HOLD_MLOCK;
		pin->locks = true;
	}
	lock_drop(&create_lock);
	/* mlock leaves copy-on-write of shared files and the like alone. */
	if (!err && pin->write)
		populate((void *)start, len, true);
	return err;
}

/* What the caller hears is -ENOMEM, and looks at the wrong limit. */
static void explain_passing(int err)
{
	static atomic_bool told;

	if (err != -ENOMEM && !atomic_exchange(&told, true))
		log_warn("cannot pin: no io_uring for the moment: %s", strerrordesc_np(-err));
}

/*
 * The kernel charges io_uring's pins to the user, so that another process can have used up the limit; the
 * kernel's RDMA drivers charge each process for itself. Whether this process is within the limit with all its
 * pins, of which the one being made is counted already. A process that no limit binds is short of something
 * else.
 */
static bool within_own_limit(void)
{
	struct rlimit limit;

	return !has_ipc_lock() && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	       atomic_load(&total) <= limit.rlim_cur;
}

static void explain_locking(void)
{
	static atomic_bool told;

	if (!atomic_exchange(&told, true))
		log_warn("other processes of this user have used up the limit on memory that io_uring pins "
			 "(ulimit -l): regions of this process are locked by mlock instead, which counts for "
			 "each "
			 "process; unpin(7) says what differs");
}

/*
 * Memory whose pages the kernel gives to no driver (memfd_secret, memory of a device): mlock takes it, a
 * registration does not. process_vm asks for pages as a driver does; populate answers EINVAL, which is
 * -EACCES there, although the memory is readable.
 */
static int check_pages_can_be_had(uintptr_t start, uintptr_t end)
{
	struct vma v;
	char byte;

	for (uintptr_t at = start; at < end; at = v.end) {
		int err = vma_find(at, false, &v);

		if (err == -ENOENT)
			return -EFAULT;
		/* What the kernel does not tell apart is one mapping. */
		v.end = err ? end : v.end;
		if (mm_have(MM_PROCESS_VM)
				? !safecopy_from_user(SAFECOPY_PROCESS_VM, &byte, (void *)at, 1, NULL)
				: populate((void *)at, page_size(), false) == -EACCES)
			return -EFAULT;
	}
	return 0;
}

static int hold_chunk(struct pin *pin, size_t c)
{
	uintptr_t start = chunk_start(pin, c), end = chunk_end(pin, c);
	int err = mm_ask(MM_IO_URING);

	/* What kept the probe from a ring may be over, and here it is waited for. */
	if (!err || mm_passing(err))
		err = uringbuf_pin(start, end - start, &pin->chunk[c].buf);
	if (!err) {
		pin->chunk[c].hold = HOLD_URING;
		return 0;
	}
	/* mlock takes the place of what the kernel has not, and of what others have used up, not of what is
	 * short: a region would be another one for its lifetime, and nobody would know. */
	if (err == -ENOMEM && within_own_limit()) {
		explain_locking();
	} else if (mm_passing(err)) {
		explain_passing(err);
		return -ENOMEM;
	}
	err = check_pages_can_be_had(start, end);
	return err ? err : lock_chunk(pin, c);
}

/* The pages of a locked chunk that are still its own, run by run. */
static void unlock_chunk(struct pin *pin, size_t c)
{
	size_t from = page_index(pin, chunk_start(pin, c)), end = page_index(pin, chunk_end(pin, c)), to;

	lock_take(&create_lock);
	settle_all();
	settle_pin(pin);
	for (; from < end; from = to) {
		to = from + 1;
		if (bit_forgotten(pin, from))
			continue;
		while (to < end && !bit_forgotten(pin, to))
			to++;
		memlock_remove(pin->first + from * page_size(), (to - from) * page_size());
	}
	lock_drop(&create_lock);
}

static void release_chunks(struct pin *pin)
{
	for (size_t c = pin->chunks; c-- > 0;) {
		if (pin->chunk[c].hold == HOLD_URING)
			uringbuf_unpin(&pin->chunk[c].buf);
		else if (pin->chunk[c].hold == HOLD_MLOCK)
			unlock_chunk(pin, c);
	}
}

static void take_out(struct pin *pin)
{
	lock_take(&create_lock);
	unpublish(pin);
	lock_drop(&create_lock);
}

/* ---- Creation ---- */

/* One allocation: the pin, its chunks, and two bits for each page. */
static struct pin *new_pin(uintptr_t addr, size_t len, bool write)
{
	uintptr_t first = page_down(addr), last = page_up(addr + len);
	size_t chunks = (last - first + URINGBUF_MAX - 1) / URINGBUF_MAX;
	size_t words = ((last - first) / page_size() + 63) / 64;
	size_t head = sizeof(struct pin) + chunks * sizeof(struct chunk);
	struct pin *pin;

	head = (head + 7) & ~(size_t)7;
	pin = calloc(1, head + 2 * words * sizeof(uint64_t));
	if (!pin)
		return NULL;
	pin->addr = addr;
	pin->end = addr + len;
	pin->first = first;
	pin->last = last;
	pin->write = write;
	pin->generation = generation_now();
	pin->chunks = chunks;
	pin->pages = (void *)((char *)pin + head);
	pin->forgotten = (uint64_t *)(pin->pages + words);
	return pin;
}

static int hold(struct pin *pin)
{
	int err = 0;

	for (size_t c = 0; !err && c < pin->chunks; c++)
		err = hold_chunk(pin, c);
	return err;
}

int pin_create(uintptr_t addr, size_t len, bool write, struct pin **out)
{
	struct pin *pin;
	int saved = errno, err;

	if (!len || addr + len < addr || page_up(addr + len) < addr)
		return -EINVAL;
	err = move_in();
	if (err)
		return err;
	handle_fork();
	err = vma_check(addr, len, true, write, NULL);
	if (err == -ENOMEM || err == -EACCES)
		return -EFAULT;
	pin = new_pin(addr, len, write);
	if (!pin)
		return -ENOMEM;
	/* Visible to pin_diverge() before a page is held, so that no change is missed in between. */
	lock_take(&create_lock);
	err = publish(pin);
	lock_drop(&create_lock);
	if (!err) {
		atomic_fetch_add(&total, pin->last - pin->first);
		err = hold(pin);
		if (err) {
			take_out(pin);
			release_chunks(pin);
			atomic_fetch_sub(&total, pin->last - pin->first);
		}
	}
	errno = saved;
	if (err) {
		free(pin);
		return err;
	}
	*out = pin;
	return 0;
}

void pin_destroy(struct pin *pin)
{
	int saved = errno;

	if (!pin)
		return;
	if (pin->generation == generation_now()) {
		atomic_fetch_sub(&total, pin->last - pin->first);
		take_out(pin);
		release_chunks(pin);
	} else if (atomic_load(&home)) {
		move_in();
	}
	free(pin);
	errno = saved;
}

/* ---- Copies ---- */

static bool inside(const struct pin *pin, uintptr_t va, size_t n)
{
	return va >= pin->addr && va <= pin->end && n <= pin->end - va;
}

/* How many of the n bytes at va lie in one chunk and in pages that are all diverged, or all not, like the
 * first. */
static size_t run_length(const struct pin *pin, uintptr_t va, size_t n, bool *is_diverged)
{
	uintptr_t end = va + n, at = page_down(va) + page_size();
	uintptr_t border = chunk_start(pin, (va - pin->first) / URINGBUF_MAX) + URINGBUF_MAX;

	*is_diverged = page_diverged(pin, page_index(pin, va));
	if (border > va && border < end)
		end = border;
	while (at < end && page_diverged(pin, page_index(pin, at)) == *is_diverged)
		at += page_size();
	return (at < end ? at : end) - va;
}

/* The direct way for a run of pages, if they are not diverged when the door is passed: bytes copied. */
static size_t direct_run(struct pin *pin, enum safecopy_path path, uintptr_t va, char *buf, size_t n, bool in)
{
	struct inflight_slot *slot = inflight_enter(pin);
	size_t done = 0;
	bool is_diverged;

	if (run_length(pin, va, n, &is_diverged) == n && !is_diverged)
		done = in ? safecopy_to_user(path, (void *)va, buf, n, NULL)
			  : safecopy_from_user(path, buf, (void *)va, n, NULL);
	inflight_leave(slot);
	return done;
}

static int pinned_run(struct pin *pin, uintptr_t va, char *buf, size_t n, bool in)
{
	struct chunk *c = chunk_of(pin, va);

	if (c->hold != HOLD_URING)
		return -EFAULT;
	return in ? uringbuf_write(&c->buf, va, buf, n) : uringbuf_read(&c->buf, va, buf, n);
}

/* What the direct way cannot reach is there all the same when it is really pinned. */
static bool lost_page(struct pin *pin, uintptr_t va)
{
	if (chunk_of(pin, va)->hold != HOLD_URING)
		return false;
	diverge_pin(pin, page_down(va), page_down(va) + page_size(), false);
	return true;
}

static int copy_slow(struct pin *pin, enum safecopy_path path, uintptr_t va, char *buf, size_t n, bool in)
{
	int err = pin->generation == generation_now() ? 0 : -EFAULT;
	bool is_diverged;
	size_t run;

	while (n && !err) {
		run = run_length(pin, va, n, &is_diverged);
		if (is_diverged) {
			err = pinned_run(pin, va, buf, run, in);
		} else if (path == SAFECOPY_NONE) {
			err = -EAGAIN;
		} else {
			size_t done = direct_run(pin, path, va, buf, run, in);

			/* Short of the run: diverged meanwhile, or unreachable. Either way the next round
			 * goes on there. */
			if (done < run && !page_diverged(pin, page_index(pin, va + done)))
				err = lost_page(pin, va + done) ? 0 : -EFAULT;
			run = done;
		}
		if (err)
			break;
		va += run;
		buf += run;
		n -= run;
	}
	return err;
}

int pin_copy_in(struct pin *pin, enum safecopy_path path, uintptr_t va, const void *buf, size_t n)
{
	struct inflight_slot *slot;
	size_t done = 0;

	if (__builtin_expect(!inside(pin, va, n), 0))
		return -EFAULT;
	slot = inflight_enter(pin);
	if (__builtin_expect(!atomic_load_explicit(&pin->diverged, memory_order_relaxed), 1))
		done = safecopy_to_user(path, (void *)va, buf, n, NULL);
	inflight_leave(slot);
	if (__builtin_expect(done == n, 1))
		return 0;
	return copy_slow(pin, path, va + done, (char *)(uintptr_t)buf + done, n - done, true);
}

int pin_copy_out(struct pin *pin, enum safecopy_path path, uintptr_t va, void *buf, size_t n)
{
	struct inflight_slot *slot;
	size_t done = 0;

	if (__builtin_expect(!inside(pin, va, n), 0))
		return -EFAULT;
	slot = inflight_enter(pin);
	if (__builtin_expect(!atomic_load_explicit(&pin->diverged, memory_order_relaxed), 1))
		done = safecopy_from_user(path, buf, (void *)va, n, NULL);
	inflight_leave(slot);
	if (__builtin_expect(done == n, 1))
		return 0;
	return copy_slow(pin, path, va + done, (char *)buf + done, n - done, false);
}

/* ---- Atomics ---- */

struct atomic_op {
	bool is_swap;
	uint64_t operand, swap; /* what to compare with, or to add */
};

static uint64_t apply(uint64_t old, const void *arg)
{
	const struct atomic_op *op = arg;

	if (!op->is_swap)
		return old + op->operand;
	return old == op->operand ? op->swap : old;
}

static int direct_atomic(
	struct pin *pin, enum safecopy_path path, uintptr_t va, const struct atomic_op *op, uint64_t *orig)
{
	struct inflight_slot *slot = inflight_enter(pin);
	int err = -ESTALE;

	if (atomic_load_explicit(&pin->diverged, memory_order_relaxed) &&
		page_diverged(pin, page_index(pin, va)))
		err = -ESTALE;
	else if (op->is_swap)
		err = safecopy_cmp_swap(path, (uint64_t *)va, op->operand, op->swap, orig, NULL);
	else
		err = safecopy_fetch_add(path, (uint64_t *)va, op->operand, orig, NULL);
	inflight_leave(slot);
	return err;
}

static int do_atomic(
	struct pin *pin, enum safecopy_path path, uintptr_t va, const struct atomic_op *op, uint64_t *orig)
{
	int err;

	if (!inside(pin, va, sizeof(*orig)))
		return -EFAULT;
	if (va & 7)
		return -EINVAL;
	if (pin->generation != generation_now())
		return -EFAULT;
	err = direct_atomic(pin, path, va, op, orig);
	if (err == -EFAULT && !lost_page(pin, va))
		return -EFAULT;
	if (err != -EFAULT && err != -ESTALE)
		return err;
	if (chunk_of(pin, va)->hold != HOLD_URING)
		return -EFAULT;
	return uringbuf_modify(&chunk_of(pin, va)->buf, va, apply, op, orig);
}

int pin_cmp_swap(struct pin *pin, enum safecopy_path path, uintptr_t va, uint64_t compare, uint64_t swap,
	uint64_t *orig)
{
	const struct atomic_op op = { .is_swap = true, .operand = compare, .swap = swap };

	return do_atomic(pin, path, va, &op, orig);
}

int pin_fetch_add(struct pin *pin, enum safecopy_path path, uintptr_t va, uint64_t add, uint64_t *orig)
{
	const struct atomic_op op = { .operand = add };

	return do_atomic(pin, path, va, &op, orig);
}

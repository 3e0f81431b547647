/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "base/trace_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/trace_clock.h"

#define AHEAD 8 /* units: the line that is fetched while this one is filled */

_Atomic bool trace_on;

/*
 * One producer, the thread that has claimed the slot; one consumer, the writer. A child finds it wiped
 * (MADV_WIPEONFORK: a child made by a raw clone() runs no handler and must not crash here, as it would if the
 * ring were not inherited), and `live` tells it so.
 */
struct ring {
	_Atomic bool live;
	_Atomic uint32_t head;		    /* producer */
	uint32_t tail_seen;		    /* producer: tail when it last looked */
	uint64_t last;			    /* producer: ticks of its last recorded moment */
	_Atomic uint64_t dropped;	    /* producer */
	_Atomic uint32_t claims;	    /* producer, when it claims */
	char name[TRACE_RING_NAME];	    /* producer, before its first event */
	_Alignas(64) _Atomic uint32_t tail; /* consumer */
	_Alignas(64) struct trace_unit unit[TRACE_RING_UNITS];
};

_Static_assert((TRACE_RING_UNITS & (TRACE_RING_UNITS - 1)) == 0, "indexes run on beyond 32 bits");

/* The owner is a thread's number, with DEAD when a later thread of the same number has been seen; 0: free.
 * Threads claim by compare-and-swap, only the writer frees. Rings are mapped once and stay for other threads.
 */
#define DEAD (1ull << 32)
static struct slot {
	_Atomic uint64_t owner;
	struct ring *_Atomic ring;
	uint32_t introduced; /* writer: claims of the ring whose thread has been told */
} slots[TRACE_RINGS];

/* Events of threads that found no ring, or that interrupted another event. */
static _Atomic uint64_t homeless;

/* Of this thread. Initial-exec: reading it never allocates. */
static _Thread_local struct {
	struct ring *ring;
	uint32_t tid;
	bool busy;
} mine __attribute__((tls_model("initial-exec")));

/* --- recording ---------------------------------------------------------------------------------------------
 */

/* System calls and no libc functions: those of the library are observed, and what observes them is traced. */
static struct ring *map_ring(void)
{
	long at = syscall(SYS_mmap, NULL, sizeof(struct ring), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == -1)
		return NULL;
	syscall(SYS_madvise, at, sizeof(struct ring), MADV_WIPEONFORK);
	return (struct ring *)at;
}

/* A number comes again only after its thread has ended. */
static void mark_dead(uint64_t owner)
{
	for (unsigned i = 0; i < TRACE_RINGS; i++) {
		uint64_t same = owner;

		if (atomic_load_explicit(&slots[i].owner, memory_order_relaxed) == owner)
			atomic_compare_exchange_strong(&slots[i].owner, &same, owner | DEAD);
	}
}

static struct ring *take_slot(struct slot *s)
{
	struct ring *r = atomic_load_explicit(&s->ring, memory_order_relaxed);

	if (!r)
		r = map_ring();
	if (!r) {
		atomic_store_explicit(&s->owner, 0, memory_order_release);
		return NULL;
	}
	prctl(PR_GET_NAME, r->name);
	r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
	r->last = 0;
	atomic_store_explicit(&r->live, true, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->claims, 1, memory_order_relaxed);
	atomic_store_explicit(&s->ring, r, memory_order_release);
	return r;
}

static struct ring *claim(void)
{
	int saved = errno;
	struct ring *r = NULL;

	if (!mine.tid) {
		mine.tid = (uint32_t)syscall(SYS_gettid);
		mark_dead(mine.tid);
	}
	for (unsigned i = 0; i < TRACE_RINGS && !r; i++) {
		uint64_t none = 0;

		if (atomic_load_explicit(&slots[i].owner, memory_order_relaxed))
			continue;
		if (atomic_compare_exchange_strong(&slots[i].owner, &none, mine.tid)) {
			r = take_slot(&slots[i]);
			if (!r)
				break;
		}
	}
	mine.ring = r;
	errno = saved;
	return r;
}

/* This thread's ring, until leave(). NULL: none, which has been counted. */
static inline struct ring *enter(void)
{
	struct ring *r = mine.ring;

	if (__builtin_expect(mine.busy, 0)) {
		atomic_fetch_add_explicit(&homeless, 1, memory_order_relaxed);
		return NULL;
	}
	mine.busy = true;
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(r && atomic_load_explicit(&r->live, memory_order_relaxed), 1))
		return r;
	r = claim();
	if (r)
		return r;
	atomic_fetch_add_explicit(&homeless, 1, memory_order_relaxed);
	mine.busy = false;
	return NULL;
}

static inline void leave(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	mine.busy = false;
}

/* Room for n units behind head, or it has been counted that there is none. */
static inline bool has_room(struct ring *r, uint32_t head, uint32_t n)
{
	if (__builtin_expect(head + n - r->tail_seen <= TRACE_RING_UNITS, 1))
		return true;
	r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
	if (head + n - r->tail_seen <= TRACE_RING_UNITS)
		return true;
	atomic_store_explicit(&r->dropped, atomic_load_explicit(&r->dropped, memory_order_relaxed) + 1,
		memory_order_relaxed);
	return false;
}

/* Each sets `last` before it publishes: whoever claims the ring later sees it through head. */

static inline void put_one(struct ring *r, uint64_t last, struct trace_unit first)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (!has_room(r, head, 1))
		return;
	r->last = last;
	r->unit[head % TRACE_RING_UNITS] = first;
	__builtin_prefetch(&r->unit[(head + AHEAD) % TRACE_RING_UNITS], 1);
	atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

static inline void put_two(struct ring *r, uint64_t last, struct trace_unit first, struct trace_unit second)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);

	if (!has_room(r, head, 2))
		return;
	r->last = last;
	r->unit[head % TRACE_RING_UNITS] = first;
	r->unit[(head + 1) % TRACE_RING_UNITS] = second;
	__builtin_prefetch(&r->unit[(head + AHEAD) % TRACE_RING_UNITS], 1);
	atomic_store_explicit(&r->head, head + 2, memory_order_release);
}

void trace_record(enum trace_site site, uint64_t begin_ns, uint64_t end_ns, uint64_t a, uint64_t b)
{
	struct ring *r = enter();

	if (!r)
		return;
	put_two(r, r->last, trace_event_long(site, begin_ns, end_ns > begin_ns ? end_ns - begin_ns : 0),
		(struct trace_unit){ { a, b } });
	leave();
}

void trace_moment(enum trace_site site, uint64_t a, uint64_t b)
{
	uint64_t now = trace_clock_ticks();
	struct ring *r = enter();

	if (!r)
		return;
	if (trace_event_fits(now - r->last, a))
		put_one(r, now, trace_event_short(site, now, a, b));
	else
		put_two(r, now, trace_event_long_moment(site, now), (struct trace_unit){ { a, b } });
	leave();
}

/* --- the writer's side -------------------------------------------------------------------------------------
 */

static bool has_ended(uint64_t owner)
{
	return owner & DEAD || (syscall(SYS_tgkill, getpid(), (uint32_t)owner, 0) && errno == ESRCH);
}

/* Threads are often named just after they began: asked again here, while the thread is there. */
static void find_name(uint32_t tid, const struct ring *r, char name[TRACE_RING_NAME])
{
	char path[64], text[TRACE_RING_NAME + 1] = "";
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%u/comm", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, text, TRACE_RING_NAME);
		fd_close(fd);
	}
	if (n > 0 && text[n - 1] == '\n')
		text[n - 1] = 0;
	memcpy(name, n > 0 ? text : r->name, TRACE_RING_NAME);
	name[TRACE_RING_NAME - 1] = 0;
}

static void fill_batch(
	struct slot *s, const struct ring *r, uint32_t tail, uint32_t head, struct trace_batch *b)
{
	uint32_t at = tail % TRACE_RING_UNITS, n = head - tail, straight = TRACE_RING_UNITS - at;
	uint32_t claims = atomic_load_explicit(&r->claims, memory_order_relaxed);

	*b = (struct trace_batch){
		.tid = (uint32_t)atomic_load_explicit(&s->owner, memory_order_relaxed),
		.renamed = s->introduced != claims,
		.piece = { &r->unit[at], r->unit },
		.units = { n < straight ? n : straight, n < straight ? 0 : n - straight },
		.end = head,
	};
	if (b->renamed)
		find_name(b->tid, r, b->name);
	s->introduced = claims;
}

bool trace_ring_take(unsigned i, struct trace_batch *b)
{
	struct slot *s = &slots[i];
	uint64_t owner = atomic_load_explicit(&s->owner, memory_order_acquire);
	struct ring *r = atomic_load_explicit(&s->ring, memory_order_acquire);
	uint32_t tail, head;

	if (!owner || !r)
		return false;
	tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	head = atomic_load_explicit(&r->head, memory_order_acquire);
	if (head != tail) {
		fill_batch(s, r, tail, head, b);
		return true;
	}
	/* Only a thread that had gone before the ring was seen empty has left nothing. */
	if (has_ended(owner) && atomic_load_explicit(&r->head, memory_order_acquire) == tail)
		atomic_store_explicit(&s->owner, 0, memory_order_release);
	return false;
}

void trace_ring_release(unsigned i, const struct trace_batch *b)
{
	struct ring *r = atomic_load_explicit(&slots[i].ring, memory_order_acquire);

	atomic_store_explicit(&r->tail, b->end, memory_order_release);
}

uint64_t trace_ring_dropped(void)
{
	uint64_t sum = atomic_load_explicit(&homeless, memory_order_relaxed);

	for (unsigned i = 0; i < TRACE_RINGS; i++) {
		struct ring *r = atomic_load_explicit(&slots[i].ring, memory_order_acquire);

		if (r)
			sum += atomic_load_explicit(&r->dropped, memory_order_relaxed);
	}
	return sum;
}

/* What was recorded after the last batch belongs to no file; threads that ended since then have left their
 * rings.
 */
void trace_ring_restart(void)
{
	for (unsigned i = 0; i < TRACE_RINGS; i++) {
		struct ring *r = atomic_load_explicit(&slots[i].ring, memory_order_acquire);
		uint64_t owner = atomic_load(&slots[i].owner);

		slots[i].introduced = 0;
		if (r)
			atomic_store(&r->tail, atomic_load(&r->head));
		if (r && owner && has_ended(owner))
			atomic_store(&slots[i].owner, 0);
	}
}

void trace_ring_abandon(void)
{
	mine.ring = NULL;
	mine.tid = 0;
	mine.busy = false;
	for (unsigned i = 0; i < TRACE_RINGS; i++)
		atomic_store(&slots[i].owner, 0);
}

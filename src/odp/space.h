/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * On-demand paging of one address space: the device page table, the fault queue, the driver threads, the
 * intake of the notifier and the residency sweep, composed. One space serves every on-demand region of the
 * process.
 *
 * The device reads and writes memory by virtual address through the CPU's live page table, with a copy that
 * survives a fault; the device page table is a cache that decides whether to go, who waits and what is
 * counted. A stale entry costs a retry, never a byte.
 *
 * Life of a fault (the names are used in code, counters and documents):
 *   raise    an access finds a page not valid for it; the caller's waiter is queued
 *   queue    the event enters the fault queue (a page already faulting: the waiter joins, "coalesced"), where
 *            flows take turns; a region with ODP_REGION_EVENTS of them has no room: the waiter waits for some
 *            ("crowded"), flows taking turns again, and is told to retry
 *   resolve  rights and range are checked, pages are populated, in batches that grow with sequential use
 *            ("read-ahead") while memory is not short
 *   map      pages that no invalidation has touched since they became faulting become valid; else resolve
 *            again; after three such rounds the access is let through unmapped: its copy takes the CPU's own
 *            fault (progress)
 *   resume   waiters are told, in order, not before odp_cfg.fault_latency_ns have passed
 *   retry    the caller accesses again
 *
 * Cheap faults (absent anonymous memory that is not in swap, pages of a file that are in the page cache) are
 * resolved on the spot by the accessing thread, within a budget of pages; what may sleep goes to the driver
 * threads, which also carry out queued prefetches when no fault waits. A storm guard watches major faults and
 * memory stalls (guard.h).
 *
 * Threads: every function from any thread unless it says otherwise. There is one lock, the fault queue's; it
 * is not held across malloc, free, madvise, munmap, a populate, a copy, or a waiter's ready(). Invalidation
 * takes no lock at all.
 */
#ifndef UNPIN_ODP_SPACE_H
#define UNPIN_ODP_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/segment.h"
#include "mm/safecopy.h"
#include "odp/turns.h"

struct odp_space;

#define ODP_FORCED	  3u	      /* rounds lost before an access is let through */
#define ODP_VERDICTS	  8u	      /* pages whose faults nobody waited for that a region remembers */
#define ODP_VERDICT_NS	  2000000000u /* for so long; the longest RNR timer is 655 ms */
#define ODP_REGION_EVENTS 256u	/* events under way that accesses to a region raised; others wait for room */
#define ODP_PREFETCHES	  4096u /* requests queued */

/*
 * Thresholds of a storm: majors per second and the share of wall time (parts per million) in which some task
 * of the process's memory cgroup (or the machine) stalled for memory. Above one of them over a second a storm
 * begins; below half of both over two seconds it is over. 0: never by this one.
 */
struct odp_storm_limits {
	uint32_t majors_per_s;
	uint32_t stall_ppm;
};

/* How a fault event may name what it is about. */
enum odp_mode {
	ODP_PRECISE,  /* region, queue pair, address, length, access */
	ODP_IMPRECISE /* region and queue pair; the driver scans what the queue pair has outstanding */
};

struct odp_cfg {
	unsigned driver_threads; /* 1..64 */
	enum odp_mode mode;
	uint64_t fault_latency_ns; /* every fault takes at least so long from raise to resume, as slow
				      hardware; 0 */
	struct odp_storm_limits storm_limits;
	struct unpin_storm *storm;		/* the device's; never NULL */
	struct unpin_slow *slow;		/* the device's; NULL: nobody wants to know */
	struct unpin_odp_counters *totals;	/* the device's; never NULL */
	struct hist (*step_ns)[UNPIN_STEPS];	/* [2][UNPIN_STEPS], minor and major; never NULL */
	_Atomic uint64_t *table_bytes, *leaves; /* gauges; never NULL */
};

/* Threads start at the first fault that needs one. 0 or negative errno. */
int odp_space_open(const struct odp_cfg *cfg, struct odp_space **out);
/* No region may be left. Joins the threads; populates that cannot be interrupted are waited for. */
void odp_space_close(struct odp_space *s);
/* In a forked child: forget it without locks (memory is left). */
void odp_space_abandon(struct odp_space *s);

/*
 * ODP_NOTIFIER: the application has changed a mapping. ODP_DISCARD: it has given up what is in the memory
 * (MADV_DONTNEED and the like), and the mapping is as it was; otherwise the same.
 */
enum odp_cause { ODP_NOTIFIER, ODP_DISCARD, ODP_FORK, ODP_STALE, ODP_SWEEP, ODP_DEREG };

/*
 * Pages of [addr, addr + len) are no longer valid; called after the change has taken effect. Cost follows the
 * leaves that exist in the range. Lock-free: it may be called inside malloc or free, in a signal handler,
 * while any other thread is stopped. Counted (all but ODP_FORK and ODP_DEREG) as page_invalidations: the
 * range's pages of a region in those 2 MiB leaves where the device has touched any page;
 * page_invalidations_handled: those that were valid. The region that faulted last in a stretch of 32 KiB is
 * the one that is credited where several overlap.
 */
void odp_space_invalidate(struct odp_space *s, uintptr_t addr, size_t len, enum odp_cause cause);
/* In the parent after fork: read-write entries become read-only (the pages are shared copy-on-write now). */
void odp_space_forked(struct odp_space *s);

/*
 * A region: a window (bounds, rights, counters) on the space. Owned by the caller, zeroed before init.
 */
struct odp_region {
	struct odp_space *space;
	uintptr_t addr;
	size_t len;
	bool writable; /* else writes are -EACCES (rights of the key are checked by the caller) */
	/*
	 * The region's. Never NULL. Must stay mapped (not necessarily this region's) until odp_space_close().
	 */
	struct unpin_odp_counters *odp;
	/* The room's, from here on. Under the fault queue's lock, unless said otherwise. */
	_Atomic bool closing;
	uint16_t owner;		/* its number in the table's groups */
	struct list node;	/* on the space's list */
	struct list waiters;	/* parked on this region */
	struct list faults;	/* events that it raised */
	unsigned events;	/* of those, how many */
	struct turns crowd;	/* odp_waiter.turn of accesses that wait for room among them */
	struct list prefetches; /* requests queued */
	struct odp_verdict {
		uintptr_t page;
		uint64_t until_ns;
		int err;	 /* that the next access gets which does not wait either */
		uint32_t rounds; /* faults in vain; from ODP_FORCED on it is let through */
	} verdict[ODP_VERDICTS];
	uint64_t folded_in, folded_out; /* what of the byte counters the totals have already */
};

/* Records the window; no page is looked at. Cannot fail. Fields space .. odp are filled by the caller. */
void odp_region_init(struct odp_region *r);
/*
 * Ends it: parked waiters are told -ECANCELED (through ready()) at once; nobody parks on it afterwards;
 * populates under way are orphaned, not waited for. Accesses that begin later fail with -ECANCELED, those
 * that are running end or fail with it: the caller waits for them (its own rundown) before it reuses or frees
 * the region or its memory.
 */
void odp_region_fini(struct odp_region *r);

/* A piece of memory that an outstanding work request will touch. */
struct odp_extent {
	uintptr_t addr;
	size_t len;
	bool write;
};

/*
 * Someone who waits for a fault. Owned by the caller, zeroed before first use; on at most one region at a
 * time. ready() is called once per -EINPROGRESS, from any thread, without locks of this room, possibly before
 * the access that queued it has returned; result 0: retry; -EACCES, -EFAULT: the fault failed; -ECANCELED:
 * the region is gone. It must only hand on (it must not access). Whatever the result, the access may be made
 * again: a failed one then returns the error of its fault. A caller that gives the access up instead calls
 * odp_cancel() before it uses the waiter for another.
 */
struct odp_waiter {
	void (*ready)(struct odp_waiter *w, int result);
	/*
	 * ODP_IMPRECISE: what the waiter's queue pair has outstanding in region r, up to most extents from
	 * the nth on (0, 1, ...) in the order of posting; returns how many. Called by a driver thread without
	 * locks of this room, while w waits; odp_cancel() of w returns when it does not run. Must not access.
	 * NULL: the event is precise.
	 */
	unsigned (*scan)(struct odp_waiter *w, const struct odp_region *r, unsigned nth,
		struct odp_extent *out, unsigned most);
	void *owner;	  /* the caller's */
	const void *flow; /* whose it is (a queue pair): events of different flows take turns */
	/* The room's, from here on. Under the fault queue's lock while it waits, else its owner's. */
	struct list node, of_region;
	struct turn turn; /* in the region's crowd */
	struct odp_space *space;
	struct odp_region *region;
	void *fault;			 /* what it waits for; NULL: nothing */
	uintptr_t addr, high;		 /* the page it waits for, and the furthest one it has waited for */
	uint64_t raised_ns, resolved_ns; /* 0: none */
	uint32_t forced; /* rounds lost against invalidations; from ODP_FORCED on it is let through */
	int result;
	bool raiser, major;
	bool imprecise; /* its last event was */
	bool scanning;	/* scan() runs */
	bool crowded;	/* waits for room, not for an event */
	bool admitted;	/* it was told that there is room: it goes before those who come now */
};

/*
 * Forgets what it waits, or has waited, for. true: ready() has not been called and will not be. false: it was
 * or is being called.
 */
bool odp_cancel(struct odp_waiter *w);

/*
 * The device writes buf to (copy_in) or reads from (copy_out) [va, va + n) inside the region (the caller has
 * checked bounds and the key's rights; n may be 0). Ordered as safecopy.h says. buf is private memory. 0:
 * done. -EINPROGRESS: w is queued, ready() comes; with w NULL nobody waits: the fault is queued (never
 * resolved on the spot) and the caller tries again when it likes; an error that only the populate finds is
 * then the answer to the next such access to the page, for ODP_VERDICT_NS. -EACCES: the mapping forbids it.
 * -EFAULT: hole, past the end of file, guard page. -ECANCELED: closing. -EAGAIN: path is SAFECOPY_NONE:
 * another thread must do it. On anything but 0 a part of the bytes may have been copied.
 */
int odp_copy_in(struct odp_region *r, enum safecopy_path path, uintptr_t va, const void *buf, size_t n,
	struct odp_waiter *w);
int odp_copy_out(struct odp_region *r, enum safecopy_path path, uintptr_t va, void *buf, size_t n,
	struct odp_waiter *w);
int odp_cmp_swap(struct odp_region *r, enum safecopy_path path, uintptr_t va, uint64_t compare, uint64_t swap,
	uint64_t *orig, struct odp_waiter *w);
int odp_fetch_add(struct odp_region *r, enum safecopy_path path, uintptr_t va, uint64_t add, uint64_t *orig,
	struct odp_waiter *w);

/*
 * Prefetch (ibv_advise_mr(3)): makes pages of [va, va + n), inside the region, valid without an access.
 *
 * ODP_PREFETCH_WRITE: for writing. ODP_PREFETCH_NO_FAULT: only pages that are in memory now; none is
 * populated. ODP_PREFETCH_WAIT: in the calling thread, in chunks; 0 when all that could be is valid; -EFAULT:
 * hole or past the end of a file, -EACCES: the mapping or the region forbids it (what comes before is valid),
 * -ECANCELED: the region is closing, -EAGAIN: another thread's changes never let it finish, -ENOMEM: for the
 * page table. It is not a cancellation point.
 *
 * Without WAIT: queued behind all faults, carried out in chunks by a driver thread (a quarter of them at
 * most, requests taking turns), held back during a storm; 0, -ECANCELED, or -ENOMEM: ODP_PREFETCHES are
 * queued already. A request costs the same whatever its length. It ends at its first obstacle, when the
 * memory limit (pressure.h) less a margin leaves too little for the next chunk, when no thread can be made,
 * and at once by odp_region_fini(); its pages that have not become valid then are page_prefetch_dropped.
 */
enum odp_prefetch_flags { ODP_PREFETCH_WRITE = 1, ODP_PREFETCH_NO_FAULT = 2, ODP_PREFETCH_WAIT = 4 };
int odp_prefetch(struct odp_region *r, uintptr_t va, size_t n, unsigned flags);

/*
 * Work for whoever ticks (the engine, a few times a second while there is traffic): asks for a stretch of the
 * table what has left memory and drops it, frees empty leaves, brings the byte counters of the totals up to
 * date (the regions' are exact at any time). Bounded work per call (well under a millisecond); never sleeps
 * on I/O. Returns true while another call would find more to do: false after a full round in which nothing
 * was faulted or dropped.
 */
bool odp_space_sweep(struct odp_space *s, uint64_t now);

#endif

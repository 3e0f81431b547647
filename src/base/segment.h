/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Layout of the segment that a process with an open unpin device exports, so that tools can watch it without
 * stopping it. The segment is a memfd named UNPIN_SEGMENT_NAME, written only by its process; a tool of the
 * same user finds it in /proc/PID/fd and maps it read-only. A reader trusts nothing in it: it checks magic,
 * version and size before use, copies a region under its sequence, and bounds every index.
 *
 * Counters only grow (until the process ends) and are written with relaxed atomics. Names of counters that
 * the Linux kernel's rdma statistics have are theirs.
 */
#ifndef UNPIN_BASE_SEGMENT_H
#define UNPIN_BASE_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/hist.h"
#include "base/usage.h"

#define UNPIN_SEGMENT_NAME    "unpin-segment"
#define UNPIN_SEGMENT_MAGIC   0x314e49504e55ull /* "UNPIN1" */
#define UNPIN_SEGMENT_VERSION 4
#define UNPIN_SEGMENT_REGIONS 65536u
#define UNPIN_SEGMENT_QPS     4096u /* rows; a queue pair's is its number modulo this */
#define UNPIN_SLOW_FAULTS     16u
#define UNPIN_PAST_REGIONS    256u

/*
 * X(field, printed name, what it counts). One list for regions and for the device; the device's counter is
 * kept beside the regions', so that it still stands after a region is gone.
 */
#define UNPIN_ODP_COUNTERS(X)                                                                                \
	X(page_faults, "page_faults", "pages the device found not valid for an access")                      \
	X(page_faults_handled, "page_faults_handled", "of those, pages made valid")                          \
	X(page_invalidations, "page_invalidations", "pages that an invalidation asked to be dropped")        \
	X(page_invalidations_handled, "page_invalidations_handled", "of those, pages that were valid")       \
	X(page_prefetch, "page_prefetch", "pages made valid by prefetch")                                    \
	X(page_prefetch_dropped, "page_prefetch_dropped",                                                    \
		"pages whose prefetch was cancelled, held back or failed")                                   \
	X(page_readahead, "page_readahead",                                                                  \
		"pages made valid ahead of a sequential access, beside those it asked for")                  \
	X(faults_minor, "faults_minor", "fault events resolved without waiting for a device or swap")        \
	X(faults_major, "faults_major", "fault events handed to a driver thread because they may sleep")     \
	X(faults_coalesced, "faults_coalesced", "operations that joined a fault already under way")          \
	X(faults_stale, "faults_stale", "accesses that found a valid entry over a page that had gone")       \
	X(faults_retried, "faults_retried", "resolutions repeated because an invalidation came between")     \
	X(faults_failed, "faults_failed",                                                                    \
		"faults that could not be resolved (hole, permission, end of file)")                         \
	X(faults_imprecise, "faults_imprecise",                                                              \
		"fault events that named only the region and the queue pair")                                \
	X(faults_rnr, "faults_rnr",                                                                          \
		"operations refused with receiver-not-ready instead of waiting for a fault")                 \
	X(faults_crowded, "faults_crowded", "operations that waited for room among a region's fault events") \
	X(bytes_in, "bytes_in", "bytes written into memory by the device")                                   \
	X(bytes_out, "bytes_out", "bytes read from memory by the device")

struct unpin_odp_counters {
#define X(field, name, what) _Atomic uint64_t field;
	UNPIN_ODP_COUNTERS(X)
#undef X
};

#define UNPIN_DEVICE_COUNTERS(X)                                                                             \
	X(tx_packets, "tx_packets", "packets sent")                                                          \
	X(rx_packets, "rx_packets", "packets received")                                                      \
	X(tx_bytes, "tx_bytes", "payload bytes sent")                                                        \
	X(rx_bytes, "rx_bytes", "payload bytes received")                                                    \
	X(rx_dropped, "rx_dropped", "packets dropped (no such queue pair, wrong state, malformed)")          \
	X(rnr_nak_sent, "rnr_nak_sent", "receiver-not-ready answers sent")                                   \
	X(rnr_nak_rcvd, "rnr_nak_rcvd", "receiver-not-ready answers received")                               \
	X(retransmits, "retransmits", "requests sent again")                                                 \
	X(naks_sent, "naks_sent", "negative acknowledgements sent")                                          \
	X(req_flushed, "req_flushed", "work requests completed with a flush error")                          \
	X(wakeups, "wakeups", "times the engine thread was woken")                                           \
	X(polled_ticks, "polled_ticks", "backstop ticks while the application polls")                        \
	X(tx_no_credit, "tx_no_credit", "times a packet waited for a slot of the shared-memory wire")        \
	X(wakes_sent, "wakes_sent", "times a sleeping peer was woken")                                       \
	X(tx_lost, "tx_lost", "packets lost by the impaired fabric")                                         \
	X(tx_reordered, "tx_reordered", "packets that the impaired fabric let others overtake")              \
	X(tx_delayed, "tx_delayed", "packets that the impaired fabric held back")

struct unpin_device_counters {
#define X(field, name, what) _Atomic uint64_t field;
	UNPIN_DEVICE_COUNTERS(X)
#undef X
};

/* The steps of a fault that are timed (odp/space.h has the life of a fault). */
enum unpin_step { UNPIN_STEP_QUEUE, UNPIN_STEP_RESOLVE, UNPIN_STEP_RESUME, UNPIN_STEP_TOTAL, UNPIN_STEPS };

/* A storm of major faults or memory stalls: read-ahead is small and prefetch held back while it lasts. */
enum unpin_storm_cause { UNPIN_STORM_NONE, UNPIN_STORM_MAJORS, UNPIN_STORM_STALL };

struct unpin_storm {
	_Atomic uint32_t cause; /* enum unpin_storm_cause, of the storm that lasts; NONE: there is none */
	_Atomic uint32_t last_cause;
	_Atomic uint64_t count;			  /* storms so far */
	_Atomic uint64_t began_ns, ended_ns;	  /* CLOCK_MONOTONIC, of the last one */
	_Atomic uint64_t majors_per_s, stall_ppm; /* as last measured */
};

/*
 * The slowest fault events of late: UNPIN_SLOW_FAULTS places; an event takes that of a faster one, or of one
 * that is older than UNPIN_SLOW_NS. What a prefetch brings in is none.
 */
#define UNPIN_SLOW_NS 30000000000ull

enum unpin_slow_flags {
	UNPIN_SLOW_WRITE = 1,	  /* the access was a write */
	UNPIN_SLOW_MAJOR = 2,	  /* it was handed to a driver thread because it might sleep */
	UNPIN_SLOW_FILE = 4,	  /* memory of a file */
	UNPIN_SLOW_HUGE = 8,	  /* a huge page */
	UNPIN_SLOW_RETRIED = 16,  /* repeated because invalidations came between */
	UNPIN_SLOW_FAILED = 32,	  /* no such memory, or not allowed */
	UNPIN_SLOW_HELD_BACK = 64 /* resolved, then kept for the latency that was asked for */
};

struct unpin_slow_fault {
	/* Odd while the fields change; a reader copies and compares. */
	_Atomic uint32_t sequence;
	_Atomic uint32_t flags;	      /* enum unpin_slow_flags */
	_Atomic uint64_t ended_ns;    /* CLOCK_MONOTONIC; 0: the place is free */
	_Atomic uint64_t addr, pages; /* the first page's address; 4 KiB pages */
	_Atomic uint64_t waited_ns;   /* from being raised until somebody worked on it */
	_Atomic uint64_t resolved_ns; /* from then to the end */
	_Atomic uint64_t reads; /* pages or batches that the kernel read from a disk or swap meanwhile */
};

/* Events that made the kernel read (its major faults, as it counts them for the thread), and their share of
 * the resolve steps' time. The rest of that time is the kernel's and the driver's own work. */
struct unpin_slow {
	_Atomic uint64_t read_events, read_ns;
	/* Nothing faster than this, and no place older than its time, so far as is known. */
	_Atomic uint64_t floor_ns, stale_ns;
	struct unpin_slow_fault fault[UNPIN_SLOW_FAULTS];
};

/*
 * A queue pair. Fields change one by one and without a sequence: each is right by itself, as of the end of
 * the last run of the queue pair.
 */
struct unpin_segment_qp {
	_Atomic uint32_t number;      /* 0: the row is free */
	_Atomic uint32_t state;	      /* enum ibv_qp_state */
	_Atomic uint32_t peer;	      /* the other side's number; 0: not connected */
	_Atomic uint32_t outstanding; /* work requests posted to the send queue that have not completed */
	_Atomic uint32_t receives;    /* posted to the receive queue and not used */
	_Atomic uint32_t parked;      /* bit per lane (requester, completer, responder): waits for a fault */
	_Atomic uint64_t parked_since_ns; /* CLOCK_MONOTONIC; 0: none waits */
	_Atomic uint64_t parkings;	  /* times that an operation began to wait for a fault */
	_Atomic uint64_t retransmits, rnr_naks;
	uint64_t unused;
};

enum unpin_region_kind { UNPIN_REGION_NONE, UNPIN_REGION_PINNED, UNPIN_REGION_ODP, UNPIN_REGION_IMPLICIT };

struct unpin_segment_region {
	/* Odd while the fields up to the counters change; a reader copies and compares. */
	_Atomic uint32_t sequence;
	_Atomic uint32_t kind; /* enum unpin_region_kind; NONE: the row is free */
	_Atomic uint64_t addr, length, iova;
	_Atomic uint32_t lkey, rkey, access, pd;
	_Atomic uint64_t registered_ns; /* CLOCK_MONOTONIC when it was asked for */
	_Atomic uint64_t register_ns;	/* how long the application waited for it */
	struct unpin_odp_counters odp;
};

/*
 * A range that was registered, for as often as it was: every deregistration adds to the row of its address,
 * length, kind and access. Rows are UNPIN_PAST_WAYS to a set, which address and length determine; a range
 * that finds no row takes that which has had no deregistration for longest, and gives it another number.
 */
#define UNPIN_PAST_WAYS 4u
struct unpin_past_region {
	/* Odd while the row changes; a reader copies and compares. */
	_Atomic uint32_t sequence;
	_Atomic uint32_t kind; /* enum unpin_region_kind; NONE: the row is free */
	_Atomic uint32_t access;
	uint32_t unused;
	_Atomic uint64_t number; /* of this range's time in this row; no other has it */
	_Atomic uint64_t addr, length;
	_Atomic uint64_t times;		    /* registrations that have ended */
	_Atomic uint64_t register_ns;	    /* that all of them took */
	_Atomic uint64_t lived_ns;	    /* from registration to deregistration, all of them */
	_Atomic uint64_t first_ns, last_ns; /* CLOCK_MONOTONIC: first registered, last deregistered */
	struct unpin_odp_counters odp;	    /* of all of them */
	struct unpin_usage usage;
};

struct unpin_registrations {
	_Atomic uint64_t begun, ended;
	_Atomic uint64_t register_ns; /* all that have begun */
	_Atomic uint64_t forgotten;   /* that have ended and are in no row of past[] any more */
};

struct unpin_segment {
	_Atomic uint64_t magic; /* stored last */
	uint32_t version;
	uint32_t header_bytes; /* offset of region[] */
	uint64_t total_bytes;
	uint32_t region_bytes; /* size of one row */
	uint32_t region_rows;
	int64_t pid;
	uint64_t start_ns; /* CLOCK_MONOTONIC when the device was opened */
	char device[64];
	char notifier[32];			      /* "interpose", "userfaultfd", "none" */
	char profile[32];			      /* "unpin", "mlx5", ... */
	char fault_mode[16], fault_reply[16];	      /* as the settings of these names */
	_Atomic uint32_t regions_high;		      /* rows ever used: a reader needs to look no further */
	_Atomic uint32_t pds, cqs, qps, mrs;	      /* objects alive */
	_Atomic uint64_t odp_table_bytes, odp_leaves; /* device page table */
	_Atomic uint64_t pinned_bytes;
	struct unpin_device_counters dev;
	struct unpin_odp_counters odp;
	struct unpin_storm storm;
	struct hist step_ns[2][UNPIN_STEPS]; /* [0] minor, [1] major */
	struct unpin_slow slow;
	struct unpin_registrations registrations;
	_Atomic uint32_t qps_high; /* rows of qp[] ever used */
	uint32_t unused[13];	   /* so that rows of qp[] and usage[] begin with a cache line */
	struct unpin_segment_region region[UNPIN_SEGMENT_REGIONS];
	struct unpin_segment_qp qp[UNPIN_SEGMENT_QPS]; /* each in a cache line of its own */
	/* Of the region in the row of the same index; apart from it, so that regions without traffic take no
	 * memory for it. It belongs to the region whose sequence was the same before and after. */
	struct unpin_usage usage[UNPIN_SEGMENT_REGIONS];
	struct unpin_past_region past[UNPIN_PAST_REGIONS];
};

static inline void counter_add(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

#endif

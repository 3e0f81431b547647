/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The room's own structures: what device.h, mr.h, cq.h and qp.h keep opaque, and the calls between the room's
 * files.
 *
 * Type-stable memory: rows of the key table and queue pairs are never freed while the device is open, only
 * reused, and a pointer found in a table is checked again under the object's own lock or rundown. So lookups
 * on the data path take no lock, and a late wake-up of something destroyed finds a dead object and goes away.
 */
#ifndef UNPIN_NIC_NIC_H
#define UNPIN_NIC_NIC_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/rundown.h"
#include "base/segment.h"
#include "base/setting.h"
#include "ib/qp.h"
#include "mm/pin.h"
#include "mm/safecopy.h"
#include "nic/caps.h"
#include "nic/cq.h"
#include "nic/crew.h"
#include "nic/device.h"
#include "nic/event.h"
#include "nic/mr.h"
#include "nic/qp.h"
#include "odp/space.h"
#include "wire/shm.h"

#define NIC_KEYS    65536u
#define NIC_QP_ROWS UNPIN_SEGMENT_QPS
/*
 * A key is 8 high bits of a count of the row's uses, 16 bits of row, 8 low bits of that count. Rows cost
 * memory from their first use on, so a free one is used again before an untouched one is opened up, but only
 * when so many others are free: a key comes back after 256 * 65536 registrations at the soonest. The number
 * of a queue pair has no such count, so more of them rest.
 */
#define NIC_KEY_ROW_SHIFT 8
#define NIC_KEYS_REST	  256u
#define NIC_QPS_REST	  512u
#define NIC_QP_WINDOW	  128u /* request packets in flight per queue pair */

/* Each object holds its context; letting go is the last thing its destruction does, since the device may go
 * with it. True: the context has gone. */
void nic_context_ref(struct nic_context *ctx);
bool nic_context_unref(struct nic_context *ctx);

struct nic_pd {
	struct nic_context *ctx;
	_Atomic int users; /* memory regions and queue pairs */
	uint32_t handle;
};

/* --- memory regions
 * ------------------------------------------------------------------------------------------------ */

struct nic_mr {
	struct rundown users; /* copies and checks that are running; closed while the row is free */
	_Atomic uint32_t key; /* of the current or last use; changes before the row is reused */
	_Atomic(struct nic_pd *) pd;
	_Atomic(const struct nic_context *) ctx; /* the domain's, which may be gone sooner; NULL: no region */
	uint64_t addr, length, iova;		 /* stable while a user is inside */
	int access;
	bool on_demand;
	bool implicit;	 /* all of the address space: addr and iova are 0, length is NIC_MAX_MR_SIZE */
	bool discarded;	 /* its context was closed over it; by whoever closes or destroys, never at once */
	struct pin *pin; /* when pinned */
	struct odp_region region;	     /* when on demand */
	struct unpin_odp_counters *counters; /* in the exported segment */
	struct unpin_usage *usage;	     /* likewise */
	/* What the timeline has been told: at all, and up to how many accesses (usage.c). */
	_Atomic bool told;
	_Atomic uint64_t told_accesses;
	struct nic *nic;
	uint32_t row;
	struct list free; /* under nic->lock */
};

/* Who asks for a copy: carries what a burst of work asks only once. */
struct nic_burst {
	bool asked;
	bool engine; /* our own thread: signals are never blocked */
	bool polled; /* what had arrived has been taken from the wire: timers may be looked at */
	enum safecopy_path path;
};

/*
 * Copies between private memory and a region. pd and access (IBV_ACCESS_*; 0: local read) must fit. 0;
 * -EINPROGRESS: w is queued; -EBUSY: w is NULL and pages have to be faulted in first; -EACCES (key, bounds,
 * rights, protection); -EFAULT; -EAGAIN: another thread must do it.
 */
int nic_mr_copy_in(struct nic *nic, struct nic_burst *b, struct nic_pd *pd, uint32_t key, uint64_t va,
	const void *buf, uint32_t len, int access, struct odp_waiter *w);
int nic_mr_copy_out(struct nic *nic, struct nic_burst *b, struct nic_pd *pd, uint32_t key, uint64_t va,
	void *buf, uint32_t len, int access, struct odp_waiter *w);
int nic_mr_atomic(struct nic *nic, struct nic_burst *b, struct nic_pd *pd, uint32_t key, uint64_t va,
	struct ib_step *step, struct odp_waiter *w);
/* The region of a key, entered, whoever's it is and whatever it allows; NULL: there is none. */
struct nic_mr *nic_mr_enter(struct nic *nic, uint32_t key);
static inline void nic_mr_leave(struct nic_mr *mr)
{
	rundown_leave(&mr->users);
}
/* Key, bounds and rights only. 0 or -EACCES. */
int nic_mr_check(struct nic *nic, struct nic_pd *pd, uint32_t key, uint64_t va, uint64_t len, int access);

/* The context is being closed over it: its memory is let go, and it is still to be destroyed. */
void nic_mr_discard(struct nic_mr *mr);
void nic_keys_init(struct nic *nic);
void nic_keys_fini(struct nic *nic);

/* --- completion queues
 * --------------------------------------------------------------------------------------------- */

struct nic_cqe {
	struct ibv_wc wc;
	struct nic_qp *qp;
	uint32_t index; /* what polling it gives back to its queue */
	bool recv;
};

enum nic_cq_armed { NIC_CQ_QUIET, NIC_CQ_SOLICITED, NIC_CQ_ANY };

struct nic_cq {
	struct nic_context *ctx;
	struct nic_channel *channel;
	struct lock lock; /* ring, size, armed, overrun */
	struct nic_cqe *ring;
	uint32_t size;		     /* a power of two */
	uint32_t capacity;	     /* what the application was promised */
	_Atomic uint32_t head, tail; /* written under the lock; read outside to see emptiness */
	enum nic_cq_armed armed;
	_Atomic bool overrun, overrun_told;
	_Atomic int users; /* queue pairs, counted once per side */
	_Atomic unsigned
		polls; /* completions handed out since the last drive of progress; lost updates do no harm */
	_Atomic uint32_t empty_run; /* polls in a row that found nothing; lost updates do no harm */
	struct nic_event comp_event;
	struct nic_event_source comp_source;
	struct nic_event async_event;
	struct nic_event_source async_source;
};

/* Appends a completion; false: the queue is overrun. The caller moves the queue pair to ERR, then raises. */
bool nic_cq_push(struct nic_cq *cq, struct nic_qp *qp, const struct ib_wc *wc);
/* The asynchronous event of an overrun, once. */
void nic_cq_raise_overrun(struct nic_cq *cq);
/* Drops the completions of a queue pair that goes away. */
void nic_cq_purge(struct nic_cq *cq, struct nic_qp *qp);

/* --- queue pairs
 * --------------------------------------------------------------------------------------------------- */

struct nic_rqe {
	uint64_t wr_id;
	uint32_t num_sge, length;
	struct ibv_sge sge[];
};

struct nic_rq {
	struct lock lock; /* posters */
	uint8_t *ring;
	uint32_t stride, size;
	uint32_t max_wr, max_sge;
	_Atomic uint32_t prod, freed; /* as in ib/sq.h */
	uint32_t next;		      /* under the run lock */
};

static inline struct nic_rqe *nic_rq_at(const struct nic_rq *rq, uint32_t index)
{
	return (struct nic_rqe *)(rq->ring + (size_t)(index & (rq->size - 1)) * rq->stride);
}

/* What the composition keeps per lane of the transport. */
struct nic_lane {
	struct odp_waiter waiter;
	bool parked;	    /* the pending step waits for a fault; under the run lock */
	_Atomic bool ready; /* the fault is over: set by waiter.ready, taken by the run */
	_Atomic bool
		blocked;   /* the pending IB_TX step waits for credit: set by the run, cleared by the wire */
	struct list rxq;   /* packets that wait for the lane, under rx_lock */
	struct list taken; /* those that the run has taken out; under the run lock */
	_Atomic uint32_t
		waiting; /* length of rxq: written under rx_lock, so that an empty one costs no lock */
	struct wire_rx *current; /* the packet the lane works on; under the run lock */
	uint32_t serial;	 /* of the step that is parked or blocked (ib_step.serial) */
	uint32_t scan_from;	 /* imprecise faults: the queue's element behind the step's (scan.c) */
};

enum {
	NIC_QP_EV_COMM_EST,
	NIC_QP_EV_SQ_DRAINED,
	NIC_QP_EV_FATAL,
	NIC_QP_EV_REQ_ERR,
	NIC_QP_EV_ACCESS_ERR,
	NIC_QP_EVENTS
};

struct nic_qp {
	struct nic *nic;
	uint32_t num;
	struct lock run_lock;  /* the transport's state; the only lock held across copies */
	_Atomic uint32_t kick; /* something came up: whoever holds or next takes the run lock looks again */
	bool live;	       /* under run_lock and rx_lock (both to change, either to read) */
	struct ib_qp ib;
	struct nic_lane lane[IB_LANES];
	struct wire_flow flow[2]; /* requests and responses keep separate accounts, so that neither can starve
				     the other */
	struct wire_channel *channel;
	_Atomic uint32_t peer_slot;
	struct nic_cq *overrun; /* a completion did not fit in this one; under the run lock */
	uint32_t budget; /* steps left in this run, and whether they did not suffice; under the run lock */
	bool more;
	/* The last time that a lane was parked, how often, and what the segment's row was told last; under
	 * the run lock. */
	uint64_t parked_ns, parkings, noted;
	bool hand_over; /* the last run stopped at a copy that this thread may not make; under the run lock */
	/* Told by the wire; the run hands them on after the packets before them. A death that comes late,
	 * when the queue pair has been connected to another slot, names a connection that is no more. */
	_Atomic bool peer_lost;
	_Atomic bool recv_posted; /* in ERR: the next run flushes it */
	_Atomic uint32_t connection, dead_connection;

	struct lock rx_lock; /* rxq lists of the lanes, rx_count */
	uint32_t rx_count;

	struct list runq;    /* under nic->runq_lock */
	_Atomic bool queued; /* written under nic->runq_lock */

	struct list timer;	   /* under nic->timer_lock */
	_Atomic uint64_t deadline; /* written under nic->timer_lock */

	struct lock sq_lock; /* posters; lent to the application between ibv_wr_start() and its end */
	struct ib_sq sq;
	uint32_t sq_building; /* WQEs of an open ibv_wr_start */
	int sq_error;
	bool sq_sig_all;
	struct nic_rq rq;

	/* The verbs object */
	struct nic_context *_Atomic ctx; /* who closes another context looks at it without a lock */
	struct nic_pd *pd;
	struct nic_cq *send_cq, *recv_cq;
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr; /* as last set, for query; under run_lock */
	struct nic_event event[NIC_QP_EVENTS];
	struct nic_event_source event_source;
	struct list free; /* under nic->lock */
};

/* Carries on with whatever the queue pair has to do, unless another thread is at it (which then goes on). */
void nic_qp_run(struct nic_qp *qp, struct nic_burst *b);
/* Puts it on the run queue, from anywhere; wakes the engine when nobody is awake. */
void nic_qp_schedule(struct nic_qp *qp);
/* The same, but only the engine thread may carry on (the caller blocks the signals that a copy needs). */
void nic_qp_schedule_engine(struct nic_qp *qp);
/* Every lane's waiter calls this when its fault is over. */
void nic_lane_fault_over(struct odp_waiter *w, int result);
/* Under the run lock: withdraws what lanes wait for; packets waiting are released. */
void nic_qp_withdraw(struct nic_qp *qp, enum ib_lane lane);
void nic_qp_drop_packets(struct nic_qp *qp);
void nic_qp_raise(struct nic_qp *qp, enum ibv_event_type type);

/* scan.c: odp_waiter.scan of every lane, and what it needs noted before a lane may wait (under the run lock).
 */
unsigned nic_scan(struct odp_waiter *w, const struct odp_region *r, unsigned nth, struct odp_extent *out,
	unsigned most);
void nic_scan_prepare(struct nic_qp *qp, enum ib_lane l);

/* The row of a number, alive or not. NULL: never used. */
struct nic_qp *nic_qp_lookup(struct nic *nic, uint32_t num);
/* The context is being closed over it: it stops, and is still to be destroyed. */
void nic_qp_discard(struct nic_qp *qp, const struct nic_context *ctx);
void nic_qps_init(struct nic *nic);
void nic_qps_fini(struct nic *nic);

/* --- the device
 * ---------------------------------------------------------------------------------------------------- */

struct nic {
	uint64_t generation;
	int refs;	     /* contexts; under the registry's lock (device.c) */
	struct settings set; /* as they were when the device was opened */
	struct nic_caps caps;
	struct unpin_segment *seg;
	int seg_fd; /* -1: not a file */
	struct wire *wire;
	struct odp_space *odp;

	struct lock lock; /* key and number tables, free lists, contexts */
	_Atomic(struct nic_mr *) mr[NIC_KEYS];
	uint32_t mr_rows;    /* rows ever made; row 0 is not used */
	struct list mr_free; /* the one that has been free longest first */
	uint32_t mr_resting; /* their number */
	_Atomic(struct nic_qp *) qp[NIC_QP_ROWS];
	uint32_t qp_rows;
	struct list qp_free; /* as mr_free */
	uint32_t qp_resting;

	struct lock runq_lock;
	struct list runq, engine_runq;
	_Atomic uint32_t runq_len, engine_len; /* written under the lock */

	struct lock timer_lock;
	struct list timers;
	_Atomic uint64_t earliest;

	struct crew crew;
	int engine_epfd;
	bool engine_blind; /* the engine's: it cannot sleep on engine_epfd any more */
	bool engine_started;
	_Atomic bool engine_stop;
	_Atomic bool engine_ticking;   /* asleep for one tick in the POLLED state: pollers carry the work */
	_Atomic uint32_t recent_polls; /* polls since the engine last looked; lost updates
					 do no harm */
	_Atomic uint64_t
		engine_until; /* when the sleeping engine looks at timers by itself; 0: it is awake */
	_Atomic bool traffic; /* since the last sweep */

	/* What the timeline is told of memory's usage (usage.c). */
	_Atomic uint64_t tell_at;  /* not before */
	_Atomic uint32_t tell_row; /* the row of mr[] that was looked at last */
	/* Under lock: numbers given out to rows of the segment's past[], the row that was looked at last,
	 * and how many times of each range have been told. */
	uint64_t past_numbers;
	uint32_t past_row;
	uint64_t past_told[UNPIN_PAST_REGIONS];

	struct lock rx_pool_lock;
	_Atomic(struct wire_rx *) rx_spare; /* one free buffer that costs no lock */
	struct list rx_pool;		    /* free wire_rx buffers */
	uint32_t rx_pool_len;
	struct list refused; /* packets that no queue pair takes, until the burst is over */
	_Atomic bool any_refused;
};

int nic_segment_create(struct nic *nic);
void nic_segment_destroy(struct nic *nic);
void nic_segment_region_set(struct nic_mr *mr, uint32_t pd);
void nic_segment_region_clear(struct nic_mr *mr);
enum unpin_region_kind nic_segment_region_kind(const struct nic_mr *mr);
/* A queue pair's row begins; is brought up to date; ends. Under the run lock. Cheap enough for the end of
 * each run. */
void nic_segment_qp_new(struct nic_qp *qp);
void nic_segment_qp_set(struct nic_qp *qp);
void nic_segment_qp_clear(const struct nic_qp *qp);

/* usage.c. A region begins; the application asked for it then. Before it is shown in the segment. */
void nic_usage_begin(struct nic_mr *mr, uint64_t asked_ns);
/* It has ended, nobody uses it; it still says what it was. Takes nic->lock. */
void nic_usage_end(struct nic_mr *mr);
/* Tells the timeline what has happened to regions since it was told last: once a second at most; now, since
 * there is nothing more to do for some time; or all of it, at the end. Otherwise some of them, if there are
 * many. Nothing when there is no timeline. Takes nic->lock. */
enum nic_usage_tell { NIC_TELL_TICK, NIC_TELL_REST, NIC_TELL_END };
void nic_usage_tell(struct nic *nic, uint64_t now, enum nic_usage_tell when);

int nic_engine_start(struct nic *nic);
void nic_engine_stop(struct nic *nic);
/* What the thread at the helm does until the device closes or it is relieved (crew.h). */
void nic_engine_loop(struct nic *nic);
/* One round of progress by the calling thread. Returns whether anything was done. */
bool nic_progress(struct nic *nic, struct nic_burst *b);
/* Somebody polled; one poll that did work counts for several that did not. */
void nic_engine_polled(struct nic *nic, uint32_t weight);
/* The application is about to sleep on a completion channel: the engine takes over. */
void nic_engine_sleeping(struct nic *nic);
/* The queue pair's next deadline, after each run. */
void nic_timer_set(struct nic_qp *qp, uint64_t deadline);
void nic_engine_wake(struct nic *nic);
/* Buffers of received packets. */
struct wire_rx *nic_rx_get(struct nic *nic);
void nic_rx_put(struct nic *nic, struct wire_rx *rx);
/* Counts and releases a packet that is not wanted; tells the sender of a request. Takes locks of the wire. */
void nic_rx_drop(struct nic *nic, struct wire_rx *rx);
extern const struct wire_ops nic_wire_ops;

#endif

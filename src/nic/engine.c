/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Progress: driven by whoever polls; the engine thread covers who does not.
 *
 *   POLLED  an application thread polls: peers do not wake us; the engine only keeps a 1 ms backstop tick
 *   ARMED   nobody polls: the engine sleeps until a peer, a fault, credit or a timer wakes it
 *
 * A thread that polls now and then looks like one that polls all the time, but its peers find their packets
 * left lying: they nudge (wire/watch.h). An engine that is nudged often does not believe in pollers for a
 * while and stays ARMED, which costs peers a wake-up per burst and this process nothing.
 *
 * The engine alone moves between the two. It turns to POLLED when it finds that the queues were polled again
 * and again over a window of time, and to ARMED when they did not (the wire stores ARMED, fences and rechecks
 * every ring; then the run queue is rechecked here). An application that asks to be notified resets the
 * count, so one that sleeps on events is never taken for a poller.
 *
 * Run queue: queue pairs with something to do. Whoever makes progress takes from it; nic_qp_schedule() adds
 * and, when ARMED, wakes. Its length and the armed state are sequentially consistent: one side always sees
 * the other.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "mm/facility.h"
#include "nic/nic.h"

#define BURST		 32	       /* packets taken from the wire per round */
#define RUNS		 64	       /* queue pairs run per round */
#define TICK_NS		 NSEC_PER_MSEC /* backstop while POLLED */
#define LONGEST_SLEEP_NS NSEC_PER_SEC
#define SPIN_NS		 (6 * NSEC_PER_USEC) /* wait for more before falling asleep, if that pays: */
#define SPIN_GAIN	 2		     /* a success makes up for this many failures */
#define SPIN_BEST	 8
#define SPIN_TRY	 16 /* when it does not pay: one in so many is tried */
#define SWEEP_NS	 (250 * NSEC_PER_MSEC)
#define WINDOW_NS	 (200 * NSEC_PER_USEC) /* polls are counted over at least this long */
#define POLLER_AT	 64 /* polls in a window that make a poller: a busy one does thousands */
#define NUDGES		 8  /* within this time... */
#define NUDGE_WINDOW_NS	 (5 * NSEC_PER_MSEC)
#define DISTRUST_NS	 (100 * NSEC_PER_MSEC) /* ...and pollers are not believed in for this long */
#define RX_POOL_MAX	 1024		       /* free packet buffers kept */
#define RX_PER_QP                                                                                            \
	(4 * NIC_QP_WINDOW) /* packets that may wait for one queue pair, beside those that its last run has  \
			     taken: a decent peer never has that many out */
#define SLICE_NS (100 * NSEC_PER_USEC) /* scheduling slice asked for: woken soon, gone soon */

/* --- the run queue
 * ------------------------------------------------------------------------------------------------- */

static void runq_add(struct nic_qp *qp, struct list *queue, _Atomic uint32_t *len)
{
	struct nic *nic = qp->nic;

	/* Who takes it off the queue says so before he looks for work, and the work was there before we look
	 * here: one of the two sees the other. */
	if (atomic_load(&qp->queued))
		return;
	lock_take(&nic->runq_lock);
	if (!atomic_load_explicit(&qp->queued, memory_order_relaxed)) {
		atomic_store(&qp->queued, true);
		list_add_tail(queue, &qp->runq);
		atomic_fetch_add(len, 1);
	}
	lock_drop(&nic->runq_lock);
}

void nic_engine_wake(struct nic *nic)
{
	wire_kick(nic->wire);
}

void nic_qp_schedule(struct nic_qp *qp)
{
	runq_add(qp, &qp->nic->runq, &qp->nic->runq_len);
	if (wire_armed(qp->nic->wire))
		nic_engine_wake(qp->nic);
	else if (atomic_load_explicit(&qp->nic->crew.busy_since, memory_order_relaxed))
		crew_call_hand(qp->nic);
}

void nic_qp_schedule_engine(struct nic_qp *qp)
{
	runq_add(qp, &qp->nic->engine_runq, &qp->nic->engine_len);
	nic_engine_wake(qp->nic);
}

static struct nic_qp *runq_take(struct nic *nic, struct list *queue, _Atomic uint32_t *len)
{
	struct nic_qp *qp = NULL;
	struct list *node;

	lock_take(&nic->runq_lock);
	node = list_pop(queue);
	if (node) {
		qp = container_of(node, struct nic_qp, runq);
		atomic_store(&qp->queued, false);
		atomic_fetch_sub(len, 1);
	}
	lock_drop(&nic->runq_lock);
	return qp;
}

static bool runq_run(struct nic *nic, struct list *queue, _Atomic uint32_t *len, struct nic_burst *b)
{
	struct nic_qp *qp;
	int n = 0;

	while (n < RUNS && atomic_load(len) && (qp = runq_take(nic, queue, len))) {
		/* An application's thread does its own work; the engine's may be shared. */
		if (b->engine && atomic_load(len))
			crew_call_hand(nic);
		nic_qp_run(qp, b);
		n++;
	}
	return n > 0;
}

/* --- packets
 * ------------------------------------------------------------------------------------------------------- */

struct wire_rx *nic_rx_get(struct nic *nic)
{
	struct wire_rx *spare = atomic_exchange(&nic->rx_spare, NULL);
	struct list *node;

	if (spare)
		return spare;
	lock_take(&nic->rx_pool_lock);
	node = list_pop(&nic->rx_pool);
	if (node)
		nic->rx_pool_len--;
	lock_drop(&nic->rx_pool_lock);
	return node ? container_of(node, struct wire_rx, node) : malloc(sizeof(struct wire_rx));
}

void nic_rx_put(struct nic *nic, struct wire_rx *rx)
{
	struct wire_rx *none = NULL;

	if (atomic_compare_exchange_strong(&nic->rx_spare, &none, rx))
		return;
	lock_take(&nic->rx_pool_lock);
	if (nic->rx_pool_len < RX_POOL_MAX) {
		list_init(&rx->node);
		list_add_head(&nic->rx_pool, &rx->node);
		nic->rx_pool_len++;
		rx = NULL;
	}
	lock_drop(&nic->rx_pool_lock);
	free(rx);
}

static struct wire_rx *on_get(void *ctx)
{
	return nic_rx_get(ctx);
}

/* Queues the packet with its queue pair. false: there is none, or it holds back too many. */
static bool enqueue(struct nic *nic, struct wire_rx *rx, enum ib_lane l)
{
	struct nic_qp *qp = nic_qp_lookup(nic, rx->dest_qpn);
	bool ok;

	if (!qp)
		return false;
	lock_take(&qp->rx_lock);
	ok = qp->live && qp->rx_count < RX_PER_QP;
	if (ok) {
		list_init(&rx->node);
		list_add_tail(&qp->lane[l].rxq, &rx->node);
		qp->rx_count++;
		atomic_fetch_add(&qp->lane[l].waiting, 1);
	}
	lock_drop(&qp->rx_lock);
	/* No waking: whoever takes packets from the wire runs the queue next. */
	if (ok)
		runq_add(qp, &nic->runq, &nic->runq_len);
	return ok;
}

/* Under the wire's rx lock: only queues. What nobody takes is dealt with after the burst (drop_refused). */
static void on_put(void *ctx, struct wire_rx *rx)
{
	struct nic *nic = ctx;
	struct ib_packet pkt;

	if (!rx->hdrlen) {
		nic_rx_put(nic, rx);
		return;
	}
	if (!ib_packet_decode(&pkt, rx->hdr, rx->hdrlen) && pkt.dest_qpn == rx->dest_qpn &&
		enqueue(nic, rx, ib_lane_of(pkt.opcode)))
		return;
	lock_take(&nic->rx_pool_lock);
	list_init(&rx->node);
	list_add_tail(&nic->refused, &rx->node);
	atomic_store_explicit(&nic->any_refused, true, memory_order_relaxed);
	lock_drop(&nic->rx_pool_lock);
}

void nic_rx_drop(struct nic *nic, struct wire_rx *rx)
{
	struct ib_packet pkt;

	counter_add(&nic->seg->dev.rx_dropped, 1);
	/* The sender of a request would wait for ever: on this wire its timer runs only when it is told. */
	if (!ib_packet_decode(&pkt, rx->hdr, rx->hdrlen) && ib_lane_of(pkt.opcode) == IB_RESPONDER)
		wire_notify_dropped(nic->wire, rx->src_slot, rx->src_qpn);
	wire_release(nic->wire, rx);
	nic_rx_put(nic, rx);
}

static void drop_refused(struct nic *nic)
{
	struct list refused = LIST_INIT(refused), *node;

	lock_take(&nic->rx_pool_lock);
	list_splice_tail(&refused, &nic->refused);
	atomic_store_explicit(&nic->any_refused, false, memory_order_relaxed);
	lock_drop(&nic->rx_pool_lock);
	while ((node = list_pop(&refused)))
		nic_rx_drop(nic, container_of(node, struct wire_rx, node));
}

/* Every live queue pair that talks to the slot (or only number qpn) learns of a loss or a death. */
static void tell_peers(struct nic *nic, uint32_t slot, uint32_t qpn, bool dead)
{
	for (uint32_t i = 0; i < NIC_QP_ROWS; i++) {
		struct nic_qp *qp = atomic_load(&nic->qp[i]);

		uint32_t connection;

		if (!qp || (qpn && qp->num != qpn))
			continue;
		connection = atomic_load(&qp->connection);
		if (atomic_load(&qp->peer_slot) != slot)
			continue;
		if (dead)
			atomic_store(&qp->dead_connection, connection);
		else
			atomic_store(&qp->peer_lost, true);
		nic_qp_schedule(qp);
	}
}

static void on_dropped(void *ctx, uint32_t peer_slot, uint32_t qpn)
{
	tell_peers(ctx, peer_slot, qpn, false);
}

static void on_gone(void *ctx, uint32_t peer_slot, bool dead)
{
	log_debug("peer in slot %u %s", peer_slot, dead ? "died" : "closed its device");
	tell_peers(ctx, peer_slot, 0, dead);
}

static void on_credit(void *ctx, struct wire_flow *flow)
{
	struct nic_qp *qp = flow->owner;

	(void)ctx;
	atomic_store(&qp->lane[flow == &qp->flow[0] ? IB_REQUESTER : IB_RESPONDER].blocked, false);
	nic_qp_schedule(qp);
}

const struct wire_ops nic_wire_ops = {
	.get = on_get,
	.put = on_put,
	.dropped = on_dropped,
	.credit = on_credit,
	.gone = on_gone,
};

/* --- timers
 * -------------------------------------------------------------------------------------------------------- */

void nic_timer_set(struct nic_qp *qp, uint64_t deadline)
{
	struct nic *nic = qp->nic;

	if (atomic_load_explicit(&qp->deadline, memory_order_relaxed) == deadline)
		return;
	lock_take(&nic->timer_lock);
	list_del(&qp->timer);
	atomic_store(&qp->deadline, deadline);
	if (deadline != UINT64_MAX) {
		list_add_tail(&nic->timers, &qp->timer);
		if (deadline < atomic_load(&nic->earliest))
			atomic_store(&nic->earliest, deadline);
	}
	lock_drop(&nic->timer_lock);
	if (deadline < atomic_load(&nic->engine_until))
		nic_engine_wake(nic);
}

/* Puts what is due on the run queue; the run then ticks the transport and sets the next deadline. */
static void timers_expire(struct nic *nic, uint64_t now)
{
	uint64_t earliest = UINT64_MAX;

	lock_take(&nic->timer_lock);
	list_for_each_safe (node, &nic->timers) {
		struct nic_qp *qp = container_of(node, struct nic_qp, timer);
		uint64_t deadline = atomic_load(&qp->deadline);

		if (deadline <= now) {
			list_del(&qp->timer);
			atomic_store(&qp->deadline, UINT64_MAX);
			runq_add(qp, &nic->runq, &nic->runq_len);
		} else if (deadline < earliest) {
			earliest = deadline;
		}
	}
	atomic_store(&nic->earliest, earliest);
	lock_drop(&nic->timer_lock);
}

/* --- progress
 * ------------------------------------------------------------------------------------------------------ */

bool nic_progress(struct nic *nic, struct nic_burst *b)
{
	bool did = wire_poll(nic->wire, BURST) > 0;
	uint64_t earliest = atomic_load_explicit(&nic->earliest, memory_order_relaxed), now;

	b->polled = true;
	if (atomic_load_explicit(&nic->any_refused, memory_order_relaxed))
		drop_refused(nic);
	if (earliest != UINT64_MAX && (now = clock_ns()) >= earliest)
		timers_expire(nic, now);
	did |= runq_run(nic, &nic->runq, &nic->runq_len, b);
	if (b->engine)
		did |= runq_run(nic, &nic->engine_runq, &nic->engine_len, b);
	if (did && !atomic_load_explicit(&nic->traffic, memory_order_relaxed))
		atomic_store_explicit(&nic->traffic, true, memory_order_relaxed);
	return did;
}

void nic_engine_polled(struct nic *nic, uint32_t weight)
{
	uint32_t n = atomic_load_explicit(&nic->recent_polls, memory_order_relaxed);

	atomic_store_explicit(&nic->recent_polls, n + weight, memory_order_relaxed);
}

void nic_engine_sleeping(struct nic *nic)
{
	atomic_store(&nic->recent_polls, 0);
	if (atomic_load(&nic->engine_ticking))
		nic_engine_wake(nic);
}

/* --- the engine thread
 * --------------------------------------------------------------------------------------------- */

/*
 * The program has closed the descriptor that the engine sleeps on, so nothing wakes it: what there is to do
 * is looked for once in a tick.
 */
static int sleep_blind(struct nic *nic)
{
	const struct timespec tick = { 0, TICK_NS };

	if (!nic->engine_blind)
		log_warn("the program has closed descriptors of the device; other processes can not be "
			 "reached");
	nic->engine_blind = true;
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &tick, NULL);
	return 0;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* From now on until then. */
static struct timespec time_left(uint64_t until)
{
	uint64_t now = clock_ns(), left = until > now ? until - now : 0;

	return (struct timespec){ (time_t)(left / NSEC_PER_SEC), (long)(left % NSEC_PER_SEC) };
}

/* A descriptor of epoll can be polled as any other. Who may not even do that must not spin. */
static int sleep_otherwise(int epfd, const struct timespec *timeout)
{
	struct pollfd p = { .fd = epfd, .events = POLLIN };
	struct timespec ts = *timeout;
	int n = (int)syscall(SYS_ppoll, &p, 1ul, &ts, NULL, 0ul);

	if (n >= 0 || errno == EINTR)
		return n;
	ts = (struct timespec){ 0, TICK_NS };
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ts, NULL);
	return 1;
}

/* Sleeps until the wire's descriptor has something, or until the time or the first timer before it. */
static void engine_sleep(struct nic *nic, uint64_t until)
{
	struct epoll_event ev;
	struct timespec ts;
	int n;

	/* Whoever closes the descriptors while the engine sleeps on them leaves it asleep: it looks now and
	 * then. */
	until = min_u64(until, clock_ns() + LONGEST_SLEEP_NS);
	atomic_store(&nic->engine_until, until);
	/* Who sets a timer before this store does not wake us; who sets one after it does. */
	ts = time_left(min_u64(until, atomic_load(&nic->earliest)));
	n = (int)syscall(SYS_epoll_pwait2, nic->engine_epfd, &ev, 1, &ts, NULL, 0);
	if (n < 0 && errno != EINTR && !fd_is_ours(nic->engine_epfd))
		n = sleep_blind(nic);
	/* Absent before Linux 5.11, or refused by a filter. */
	else if (n < 0 && errno != EINTR)
		n = sleep_otherwise(nic->engine_epfd, &ts);
	atomic_store(&nic->engine_until, 0);
	if (n > 0)
		wire_service(nic->wire, clock_ns());
}

/* When the engine must be awake though nobody wakes it. */
static uint64_t next_wake(struct nic *nic, uint64_t sweep_at)
{
	return min_u64(atomic_load(&nic->earliest), sweep_at);
}

static void tick_polled(struct nic *nic)
{
	wire_disarm(nic->wire);
	atomic_store(&nic->engine_ticking, true);
	counter_add(&nic->seg->dev.polled_ticks, 1);
	engine_sleep(nic, clock_ns() + TICK_NS);
	atomic_store(&nic->engine_ticking, false);
}

static void sleep_armed(struct nic *nic, uint64_t sweep_at)
{
	if (wire_arm(nic->wire))
		return;
	if (!atomic_load(&nic->runq_len) && !atomic_load(&nic->engine_len) &&
		!atomic_load(&nic->engine_stop)) {
		engine_sleep(nic, next_wake(nic, sweep_at));
		counter_add(&nic->seg->dev.wakeups, 1);
	}
	wire_disarm(nic->wire);
}

/* The residency sweep follows traffic: it goes on until everything has been looked at, then rests until there
 * is traffic again. */
static uint64_t sweep(struct nic *nic, uint64_t at, uint64_t now)
{
	bool traffic;

	if (now < at && at != UINT64_MAX)
		return at;
	traffic = atomic_exchange(&nic->traffic, false);
	if (at == UINT64_MAX)
		return traffic ? now + SWEEP_NS : UINT64_MAX;
	if (odp_space_sweep(nic->odp, now) || traffic) {
		nic_usage_tell(nic, now, NIC_TELL_TICK);
		return now + SWEEP_NS;
	}
	nic_usage_tell(nic, now, NIC_TELL_REST);
	return UINT64_MAX;
}

/* A short slice lets a woken engine in before a spinning application thread has used up its own (Linux 6.12
 * and newer). */
#define SCHED_ATTR_BYTES 48u /* the first version of the kernel's structure */

static void ask_for_slice(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { 0 };

	/* Only the slice: policy and niceness are the application's choice. */
	if (!mm_have(MM_SCHED_SLICE) || syscall(SYS_sched_getattr, 0, &attr, SCHED_ATTR_BYTES, 0) ||
		attr.policy != SCHED_OTHER)
		return;
	attr.size = SCHED_ATTR_BYTES;
	attr.runtime = SLICE_NS;
	if (syscall(SYS_sched_setattr, 0, &attr, 0))
		log_debug("no short scheduling slice: %s", strerror(errno));
}

struct poll_window {
	uint64_t since;
	bool polled;
	uint64_t nudged_since; /* begin of the window in which nudges are counted */
	uint32_t nudges;
	uint64_t distrust_until;
};

/* Counts nudges; true: there were some, so packets lie in the rings. */
static bool nudged(struct nic *nic, struct poll_window *win, uint64_t now)
{
	uint32_t n = wire_nudges(nic->wire);

	if (!n)
		return false;
	if (now - win->nudged_since > NUDGE_WINDOW_NS) {
		win->nudged_since = now;
		win->nudges = 0;
	}
	win->nudges += n;
	if (win->nudges >= NUDGES) {
		win->nudges = 0;
		win->distrust_until = now + DISTRUST_NS;
	}
	return true;
}

/* Does the application poll? Judged anew when a window is over; an application that goes to sleep on events
 * ends it at once. */
static bool somebody_polls(struct nic *nic, struct poll_window *win, uint64_t now)
{
	uint32_t polls = atomic_load_explicit(&nic->recent_polls, memory_order_relaxed);

	if (polls == 0) {
		win->since = now;
		win->polled = false;
	} else if (now - win->since >= WINDOW_NS) {
		win->since = now;
		win->polled = polls >= POLLER_AT && now >= win->distrust_until;
		atomic_store_explicit(&nic->recent_polls, 0, memory_order_relaxed);
		return win->polled;
	}
	return win->polled;
}

struct idle_spin {
	unsigned score;	 /* how well it has paid lately; 0: not at all */
	unsigned passed; /* sleeps without it since then */
};

/*
 * A stream's next packet comes within a microsecond or two: worth waiting for, since falling asleep and being
 * woken costs tens. But where packets come one at a time, each wait takes the processor from whoever they are
 * for. So it is done as long as it pays, and tried again now and then.
 */
static bool spin_for_more(struct nic *nic, struct nic_burst *burst, struct idle_spin *spin)
{
	uint64_t end;

	if (!spin->score && ++spin->passed % SPIN_TRY)
		return false;
	end = clock_ns() + SPIN_NS;
	do {
		if (nic_progress(nic, burst)) {
			spin->score =
				spin->score + SPIN_GAIN < SPIN_BEST ? spin->score + SPIN_GAIN : SPIN_BEST;
			return true;
		}
	} while (clock_ns() < end);
	spin->score -= spin->score ? 1 : 0;
	return false;
}

void nic_engine_loop(struct nic *nic)
{
	struct nic_burst burst = { .engine = true };
	struct poll_window win = { 0 };
	struct idle_spin spin = { 0 };
	uint64_t sweep_at = UINT64_MAX, served = 0, now;
	bool did;

	ask_for_slice();
	while (!atomic_load(&nic->engine_stop)) {
		now = clock_ns();
		sweep_at = sweep(nic, sweep_at, now);
		if (!nudged(nic, &win, now) && somebody_polls(nic, &win, now)) {
			tick_polled(nic);
			/* Pollers do the rest, but for what only this thread may do. */
			if (!atomic_load(&nic->engine_len))
				continue;
			now = clock_ns();
		}
		crew_busy(nic, now);
		did = nic_progress(nic, &burst) || spin_for_more(nic, &burst, &spin);
		if (!crew_done(nic, now))
			return;
		/* Work without end must not hold up meetings, deaths and drop notices. */
		if (!did) {
			sleep_armed(nic, sweep_at);
		} else if (now - served >= TICK_NS) {
			engine_sleep(nic, 0);
			served = now;
		}
	}
}

int nic_engine_start(struct nic *nic)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int err;

	nic->engine_epfd = fd_move_high(epoll_create1(EPOLL_CLOEXEC));
	if (nic->engine_epfd < 0)
		return log_refused("epoll_create1", -errno);
	err = epoll_ctl(nic->engine_epfd, EPOLL_CTL_ADD, wire_fd(nic->wire), &ev)
		      ? -errno
		      : crew_start(nic, (uint32_t)nic->set.value[SETTING_ENGINE_THREADS_ID]);
	if (err) {
		fd_close(nic->engine_epfd);
		return err;
	}
	nic->engine_started = true;
	return 0;
}

void nic_engine_stop(struct nic *nic)
{
	if (!nic->engine_started)
		return;
	atomic_store(&nic->engine_stop, true);
	nic_engine_wake(nic);
	crew_stop(nic);
	/* The wire wants every packet back before it closes. */
	drop_refused(nic);
	fd_close(nic->engine_epfd);
	nic->engine_started = false;
}

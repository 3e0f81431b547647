/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * The wake-up protocol, in every order of its steps: POLLED and ARMED with nudges (wire/door.h, wire/watch.h,
 * wire_commit, wire_arm, the engine's loop and nic_qp_schedule), and credit (wire_reserve, wire_release,
 * inbound's `consumed`).
 *
 * A model, since the order of single accesses to memory is what matters: each step is one access, and names
 * the function that it stands for. Threads have store buffers as on x86 (TSO): a plain store is seen by
 * others when its thread's buffer lets go of it, at any time later; a sequentially consistent store and a
 * read-modify-write wait until the buffer is empty. Without buffers the same walk is that of sequential
 * consistency.
 *
 * There are no ticks but in POLLED, where the engine sleeps with one. Found are runs in which something is
 * left undone for ever: a packet in a ring, a queue pair on the run queue, a flow without its credit. Each
 * thing that the protocol needs can be left out (enum leave_out), and the walk must find what is lost then: a
 * model that cannot fail proves nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "../explore.h"

/* What is left out. */
enum leave_out {
	NOTHING,
	COMMIT_FENCE,	/* ring_put() publishes with a plain store */
	ARM_FENCE,	/* door_arm() stores plainly */
	RECHECK,	/* wire_arm() does not look at the rings again */
	BUSY_IS_WORK,	/* wire_arm() takes rings that another thread looks at for empty */
	RUNQ_RECHECK,	/* the engine does not look at the run queue after arming */
	ARMING_NUMBER,	/* all armings have the same number */
	SCHEDULE_FENCE, /* nic_qp_schedule() adds with a plain store */
	WANT_FENCE,	/* set_hungry() stores plainly */
	WANT_RECHECK,	/* wire_reserve() does not look again after it has said that it wants */
	CREDIT_RECHECK, /* wire_arm() does not look for credit */
	RELEASE_FENCE,	/* wire_release() stores plainly */
	CONSUMED_FENCE, /* the index at a quarter of the ring is stored plainly */
};

static enum leave_out without;
static bool buffers; /* else sequentially consistent */

/* --- memory --- */

enum {
	RING0, /* packets published by sender 0 */
	RING1,
	CONSUMED0, /* read by watching senders */
	CONSUMED1,
	RUNQ,
	RX_LOCK,
	DOOR,  /* number << 1 | armed */
	RUNG0, /* the sender's doorbells: the state that was woken last */
	RUNG1,
	RECENT, /* polls that the engine counts */
	WANT,
	HUNGRY, /* wire.nhungry */
	RELEASED0,
	RELEASED1,
	CHANNEL_LOCK,
	VARS
};

#define THREADS 5u
#define DEPTH	4u /* of a store buffer */
#define NOBODY	0xffu

struct thread {
	uint8_t pc, r, k, n, count;
	uint8_t buffered, var[DEPTH], value[DEPTH];
};

struct world {
	uint8_t var[VARS];
	uint8_t event;	 /* of the one sleeping engine: bytes on its sockets, or its eventfd */
	uint8_t nudge;	 /* one of them was a nudge */
	uint8_t pos[2];	 /* rx_lock: what the receiver has taken */
	uint8_t did;	 /* the engine's: progress in this round */
	uint8_t free;	 /* channel lock: slots, or what the ring has room for, in the sender's eyes */
	uint8_t sent;	 /* the sender's position */
	uint8_t granted; /* the flow may try again */
	struct thread t[THREADS];
};

_Static_assert(sizeof(struct world) <= EXPLORE_STATE, "a world is a state");

static uint8_t load(const struct world *w, const struct thread *t, unsigned var)
{
	for (unsigned i = t->buffered; i--;)
		if (t->var[i] == var)
			return t->value[i];
	return w->var[var];
}

/* A plain store. false: the buffer is full; it will let go of something. */
static bool store(struct world *w, struct thread *t, unsigned var, uint8_t value)
{
	if (!buffers) {
		w->var[var] = value;
		return true;
	}
	if (t->buffered == DEPTH)
		return false;
	t->var[t->buffered] = (uint8_t)var;
	t->value[t->buffered++] = value;
	return true;
}

/* A sequentially consistent store, or a read-modify-write. */
static bool fenced(struct world *w, struct thread *t, unsigned var, uint8_t value)
{
	if (t->buffered)
		return false;
	w->var[var] = value;
	return true;
}

static bool store_unless(struct world *w, struct thread *t, enum leave_out plain, unsigned var, uint8_t value)
{
	return without == plain ? store(w, t, var, value) : fenced(w, t, var, value);
}

static bool let_go(struct world *w, unsigned i)
{
	struct thread *t = &w->t[i];

	if (!t->buffered)
		return false;
	w->var[t->var[0]] = t->value[0];
	t->buffered--;
	memmove(t->var, t->var + 1, DEPTH - 1);
	memmove(t->value, t->value + 1, DEPTH - 1);
	t->var[t->buffered] = t->value[t->buffered] = 0;
	return true;
}

/*
 * Locks only acquire and release, which is less than x86's do: an earlier store may be seen after the lock
 * is. 1: taken, 0: somebody has it, -1: not yet, our own unlocking has not been seen.
 */
static int try_lock(struct world *w, struct thread *t, unsigned lock)
{
	for (unsigned i = 0; i < t->buffered; i++)
		if (t->var[i] == lock)
			return -1;
	if (w->var[lock])
		return 0;
	w->var[lock] = 1;
	return 1;
}

static bool unlock(struct world *w, struct thread *t, unsigned lock)
{
	return store(w, t, lock, 0);
}

/* Always goes to the next step. */
static bool go(struct thread *t, unsigned pc)
{
	t->pc = (uint8_t)pc;
	return true;
}

/* --- doors (door.c) --- */

#define ARMED(state) ((state)&1)

static uint8_t armed_next(const struct world *w)
{
	uint8_t most = w->var[DOOR] >> 1;

	if (without == ARMING_NUMBER)
		return 1 << 1 | 1;
	for (unsigned i = RUNG0; i <= RUNG1; i++)
		most = w->var[i] != NOBODY && w->var[i] >> 1 > most ? w->var[i] >> 1 : most;
	for (unsigned i = 0; i < THREADS; i++) {
		const struct thread *t = &w->t[i];

		most = t->r != NOBODY && t->r >> 1 > most ? t->r >> 1 : most;
		for (unsigned b = 0; b < t->buffered; b++)
			most = t->var[b] == DOOR && t->value[b] >> 1 > most ? t->value[b] >> 1 : most;
	}
	return (uint8_t)((most + 1) << 1 | 1);
}

static void renumber(uint8_t *state, uint8_t map[128], uint8_t *next)
{
	if (*state == NOBODY)
		return;
	if (map[*state >> 1] == NOBODY)
		map[*state >> 1] = (*next)++;
	*state = (uint8_t)(map[*state >> 1] << 1 | ARMED(*state));
}

/* Numbers of armings are compared for equality only, and grow without end. */
static void canonical(void *state)
{
	struct world *w = state;
	uint8_t map[128], next = 0;

	if (without == ARMING_NUMBER)
		return;
	memset(map, NOBODY, sizeof(map));
	renumber(&w->var[DOOR], map, &next);
	for (unsigned i = RUNG0; i <= RUNG1; i++)
		renumber(&w->var[i], map, &next);
	for (unsigned i = 0; i < THREADS; i++) {
		struct thread *t = &w->t[i];

		renumber(&t->r, map, &next);
		for (unsigned b = 0; b < t->buffered; b++)
			if (t->var[b] == DOOR)
				renumber(&t->value[b], map, &next);
	}
}

/* doorbell_due() and meet_ring(), from pc on; four steps, then after. */
static bool ring_bell(struct world *w, struct thread *t, unsigned pc, unsigned bell, unsigned after)
{
	switch (t->pc - pc) {
	case 0:
		t->r = load(w, t, DOOR);
		return go(t, ARMED(t->r) ? pc + 1 : pc + 3);
	case 1:
		return go(t, load(w, t, bell) == t->r ? pc + 3 : pc + 2);
	case 2: /* atomic_exchange; the message is a system call right behind it */
		if (t->buffered)
			return false;
		if (w->var[bell] != t->r)
			w->event = 1;
		w->var[bell] = t->r;
		return go(t, pc + 3);
	default:
		t->r = NOBODY;
		return go(t, after);
	}
}

/* door_disarm(): two steps. */
static bool disarm(struct world *w, struct thread *t, unsigned pc, unsigned after)
{
	uint8_t state = load(w, t, DOOR);

	if (t->pc == pc)
		return go(t, ARMED(state) ? pc + 1 : after);
	return fenced(w, t, DOOR, w->var[DOOR] & 0xfe) && go(t, after);
}

static uint8_t *seen(struct thread *t)
{
	return &t->n;
}

/* --- packets: two senders, an engine, a thread that polls for a while, one that schedules --- */

enum { SENDER0, SENDER1, ENGINE, POLLER, SCHEDULER };

static uint8_t packets[2], polls, schedules;

/* inbound_poll_all() under the lock, from pc on: takes what is there; four steps for each sender, then after.
 */
static bool take(struct world *w, struct thread *t, unsigned pc, unsigned after)
{
	switch (t->pc - pc) {
	case 0:
		*seen(t) = load(w, t, RING0 + t->k);
		return go(t, *seen(t) > w->pos[t->k] ? pc + 1 : pc + 3);
	case 1: /* nic's put(): the queue pair goes on the run queue, waking nobody */
		return fenced(w, t, RUNQ, 1) && go(t, pc + 2);
	case 2: /* the index: a plain store */
		if (!store(w, t, CONSUMED0 + t->k, *seen(t)))
			return false;
		w->pos[t->k] = *seen(t);
		w->did |= t == &w->t[ENGINE];
		return go(t, pc + 3);
	default:
		*seen(t) = 0;
		t->k = !t->k && packets[1];
		return go(t, t->k ? pc : after);
	}
}

/* runq_run(): two steps. */
static bool run_queue(struct world *w, struct thread *t, unsigned pc, unsigned after)
{
	if (t->pc == pc)
		return go(t, load(w, t, RUNQ) ? pc + 1 : after);
	if (!fenced(w, t, RUNQ, 0))
		return false;
	w->did |= t == &w->t[ENGINE];
	return go(t, after);
}

/* wire_commit() for each packet; then a look at the receiver, as polls take now and then (watch.c). */
enum { S_COMMIT, S_BELL, S_NEXT = S_BELL + 4, S_WATCH, S_DONE };

static bool step_sender(struct world *w, unsigned i)
{
	struct thread *t = &w->t[i];

	switch (t->pc) {
	case S_COMMIT:
		if (t->k == packets[i])
			return go(t, S_DONE);
		if (!store_unless(w, t, COMMIT_FENCE, RING0 + i, t->k + 1))
			return false;
		t->k++;
		return go(t, S_BELL);
	case S_NEXT:
		return go(t, t->k < packets[i] ? S_COMMIT : S_WATCH);
	case S_WATCH: /* watch.c is free to nudge or not: it knows the time, and the flag may be lost */
		return go(t, S_DONE);
	case S_DONE:
		return false;
	default:
		return ring_bell(w, t, S_BELL, RUNG0 + i, S_NEXT);
	}
}

/* watch_poll(): packets lie in front of a receiver that promised to poll. */
static bool step_nudge(struct world *w)
{
	struct thread *t = &w->t[SENDER0];

	if (t->pc != S_WATCH || t->buffered || load(w, t, CONSUMED0) == packets[0])
		return false;
	w->event = w->nudge = 1;
	return go(t, S_DONE);
}

enum {
	E_TOP,
	E_POLLED,	       /* tick_polled() */
	E_TICK = E_POLLED + 2, /* asleep, for a tick */
	E_PROGRESS,	       /* wire_poll() */
	E_TAKE,
	E_UNLOCK = E_TAKE + 4,
	E_RUN,
	E_IDLE = E_RUN + 2,
	E_ARM,
	E_LOOK,
	E_PEEK,
	E_PEEKED = E_PEEK + 2,
	E_WORK, /* disarms */
	E_RUNQ = E_WORK + 2,
	E_ASLEEP,
	E_SERVICE,
};

/* wire_arm() after the store: are the rings empty, and is nobody else looking at them? */
static bool step_recheck(struct world *w, struct thread *t)
{
	int locked;

	switch (t->pc) {
	case E_LOOK:
		if (without == RECHECK)
			return go(t, E_RUNQ);
		locked = try_lock(w, t, RX_LOCK);
		if (locked < 0)
			return false;
		return go(t, locked ? E_PEEK : without == BUSY_IS_WORK ? E_RUNQ : E_WORK);
	case E_PEEK:
	case E_PEEK + 1:
		t->k |= load(w, t, RING0 + t->pc - E_PEEK) > w->pos[t->pc - E_PEEK];
		return go(t, packets[1] ? t->pc + 1 : E_PEEKED);
	default:
		if (!unlock(w, t, RX_LOCK))
			return false;
		go(t, t->k ? E_WORK : E_RUNQ);
		t->k = 0;
		return true;
	}
}

/* nic_engine_loop(). believe: that somebody polls. */
static bool step_engine(struct world *w, bool believe)
{
	struct thread *t = &w->t[ENGINE];
	int locked;

	if (believe && t->pc != E_TOP)
		return false;
	switch (t->pc) {
	case E_TOP:
		w->did = 0;
		if (believe && (!w->var[RECENT] || w->nudge))
			return false;
		if (believe) /* the count begins anew: one more window at most, when polls have ended */
			w->var[RECENT] = 0;
		w->nudge = 0;
		return go(t, believe ? E_POLLED : E_PROGRESS);
	case E_POLLED:
	case E_POLLED + 1:
		return disarm(w, t, E_POLLED, E_TICK);
	case E_TICK: /* a tick ends it, or a message */
		w->event = 0;
		return go(t, E_TOP);
	case E_PROGRESS:
		locked = try_lock(w, t, RX_LOCK);
		return locked >= 0 && go(t, locked ? E_TAKE : E_RUN);
	case E_UNLOCK:
		return unlock(w, t, RX_LOCK) && go(t, E_RUN);
	case E_RUN:
	case E_RUN + 1:
		return run_queue(w, t, E_RUN, E_IDLE);
	case E_IDLE:
		return go(t, w->did ? E_TOP : E_ARM);
	case E_ARM:
		return store_unless(w, t, ARM_FENCE, DOOR, armed_next(w)) && go(t, E_LOOK);
	case E_LOOK:
	case E_PEEK:
	case E_PEEK + 1:
	case E_PEEKED:
		return step_recheck(w, t);
	case E_WORK:
	case E_WORK + 1:
		return disarm(w, t, E_WORK, E_TOP);
	case E_RUNQ: /* sleep_armed() */
		return go(t, without != RUNQ_RECHECK && load(w, t, RUNQ) ? E_WORK : E_ASLEEP);
	case E_ASLEEP:
		return w->event && go(t, E_SERVICE);
	case E_SERVICE: /* wire_service() reads the messages away */
		w->event = 0;
		return go(t, E_WORK);
	default:
		return take(w, t, E_TAKE, E_UNLOCK);
	}
}

/* nic_progress() by a thread in ibv_poll_cq(3), which does not come back one day. */
enum { P_POLL, P_TAKE, P_UNLOCK = P_TAKE + 4, P_RUN, P_COUNT = P_RUN + 2, P_DONE };

static bool step_poller(struct world *w)
{
	struct thread *t = &w->t[POLLER];
	int locked;

	switch (t->pc) {
	case P_POLL:
		if (t->count == polls)
			return go(t, P_DONE);
		locked = try_lock(w, t, RX_LOCK);
		return locked >= 0 && go(t, locked ? P_TAKE : P_RUN);
	case P_UNLOCK:
		return unlock(w, t, RX_LOCK) && go(t, P_RUN);
	case P_RUN:
	case P_RUN + 1:
		return run_queue(w, t, P_RUN, P_COUNT);
	case P_COUNT: /* nic_engine_polled() */
		w->var[RECENT] = 1;
		t->count++;
		return go(t, P_POLL);
	case P_DONE:
		return false;
	default:
		return take(w, t, P_TAKE, P_UNLOCK);
	}
}

/* nic_qp_schedule(): a fault is over, or credit has come. */
enum { N_ADD, N_LOOK, N_KICK, N_DONE };

static bool step_scheduler(struct world *w)
{
	struct thread *t = &w->t[SCHEDULER];

	switch (t->pc) {
	case N_ADD:
		if (!schedules)
			return go(t, N_DONE);
		return store_unless(w, t, SCHEDULE_FENCE, RUNQ, 1) && go(t, N_LOOK);
	case N_LOOK:
		return go(t, ARMED(load(w, t, DOOR)) ? N_KICK : N_DONE);
	case N_KICK:
		w->event = 1;
		return go(t, N_DONE);
	default:
		return false;
	}
}

enum { DO_BELIEVE = THREADS, DO_NUDGE, DO_LET_GO, CHOICES = DO_LET_GO + THREADS };

static bool choose_packets(struct world *w, unsigned choice)
{
	switch (choice) {
	case SENDER0:
	case SENDER1:
		return step_sender(w, choice);
	case ENGINE:
	case DO_BELIEVE:
		return step_engine(w, choice == DO_BELIEVE);
	case DO_NUDGE:
		return step_nudge(w);
	case POLLER:
		return step_poller(w);
	case SCHEDULER:
		return step_scheduler(w);
	default:
		return let_go(w, choice - DO_LET_GO);
	}
}

/* Steps that touch nothing that others see are made at once with the one before: their order does not matter.
 */
static bool is_private(const struct world *w, unsigned i)
{
	switch (w->t[i].pc) {
	case S_BELL + 3:
	case S_NEXT:
		return i == SENDER0 || i == SENDER1;
	case E_TAKE + 3:
	case E_IDLE:
		return i == ENGINE;
	default:
		return i == POLLER && w->t[i].pc == P_TAKE + 3;
	}
}

static bool step_packets(void *state, unsigned choice)
{
	struct world *w = state;

	if (!choose_packets(w, choice))
		return false;
	for (unsigned i = 0; i < THREADS; i++)
		while (is_private(w, i))
			choose_packets(w, i);
	return true;
}

static bool quiet(const struct world *w)
{
	for (unsigned i = 0; i < THREADS; i++)
		if (w->t[i].buffered)
			return false;
	return !w->event;
}

static bool packets_done(const void *state)
{
	const struct world *w = state;

	return quiet(w) && w->t[SENDER0].pc == S_DONE && w->t[SENDER1].pc == S_DONE &&
	       w->t[POLLER].pc == P_DONE && w->t[SCHEDULER].pc == N_DONE && w->t[ENGINE].pc == E_ASLEEP &&
	       w->pos[0] == packets[0] && w->pos[1] == packets[1] && !w->var[RUNQ];
}

static const char *packets_name(unsigned choice)
{
	static const char *const names[CHOICES] = { "sender 0", "sender 1", "engine", "poller", "scheduler",
		"engine believes in pollers", "sender 0 nudges", "sender 0's store is seen",
		"sender 1's store is seen", "engine's store is seen", "poller's store is seen",
		"scheduler's store is seen" };

	return names[choice];
}

static const struct explore_model packets_model = { .size = sizeof(struct world),
	.choices = CHOICES,
	.step = step_packets,
	.done = packets_done,
	.canonical = canonical,
	.name = packets_name };

/* --- credit: a flow, its engine, and receivers that release or take --- */

enum { FLOW, OWNER, RELEASER0, RELEASER1, TAKER = RELEASER0 };

#define SIZE	8u /* of the ring */
#define QUARTER (SIZE / 4)

static uint8_t wanted; /* packets that the flow sends; the ring is full at first, or no slot is free */
static bool ring_room; /* the flow waits for room in the ring, else for a slot */

/* collect(), from pc on: two steps, then after. */
static bool collect(struct world *w, struct thread *t, unsigned pc, unsigned after)
{
	unsigned i = t->pc - pc;

	if (ring_room) {
		w->free = load(w, t, CONSUMED0);
		return go(t, after);
	}
	if (load(w, t, RELEASED0 + i)) {
		if (!fenced(w, t, RELEASED0 + i, 0))
			return false;
		w->free++;
	}
	return go(t, i ? after : pc + 1);
}

static bool has_credit(const struct world *w)
{
	return ring_room ? (uint8_t)(w->sent - w->free) < SIZE : w->free > 0;
}

/* wire_reserve() and wire_commit(), again and again. */
enum {
	F_LOCK,
	F_COLLECT,
	F_FOUND = F_COLLECT + 2,
	F_HUNGRY,
	F_WANT,
	F_STOP,
	F_TAKE = F_STOP + 2,
	F_UNLOCK,
	F_BLOCK,
	F_WAIT,
	F_DONE
};

static bool found(struct world *w, struct thread *t)
{
	if (!has_credit(w))
		return go(t, t->n ? F_BLOCK : F_HUNGRY);
	return go(t, t->n ? F_STOP : F_TAKE);
}

static bool take_credit(struct world *w, struct thread *t)
{
	if (ring_room) {
		if (!fenced(w, t, RING0, w->sent + 1))
			return false;
		w->sent++;
	} else {
		w->free--;
	}
	t->count++;
	t->n = 0;
	return go(t, F_UNLOCK);
}

static bool step_flow(struct world *w)
{
	struct thread *t = &w->t[FLOW];

	switch (t->pc) {
	case F_LOCK:
		return try_lock(w, t, CHANNEL_LOCK) > 0 && go(t, F_COLLECT);
	case F_COLLECT:
	case F_COLLECT + 1:
		return collect(w, t, F_COLLECT, F_FOUND);
	case F_FOUND:
		return found(w, t);
	case F_HUNGRY: /* wait_for_credit() */
		return fenced(w, t, HUNGRY, 1) && go(t, F_WANT);
	case F_WANT:
		t->n = 1;
		return store_unless(w, t, WANT_FENCE, WANT, 1) &&
		       go(t, without == WANT_RECHECK ? F_BLOCK : F_COLLECT);
	case F_STOP: /* stop_waiting() */
		return fenced(w, t, HUNGRY, 0) && go(t, F_STOP + 1);
	case F_STOP + 1:
		return fenced(w, t, WANT, 0) && go(t, F_TAKE);
	case F_TAKE:
		return take_credit(w, t);
	case F_UNLOCK:
		return unlock(w, t, CHANNEL_LOCK) && go(t, t->count == wanted ? F_DONE : F_LOCK);
	case F_BLOCK:
		t->n = 0;
		return unlock(w, t, CHANNEL_LOCK) && go(t, F_WAIT);
	case F_WAIT: /* run again, when credit() has put it on the run queue */
		if (!w->granted)
			return false;
		w->granted = 0;
		return go(t, F_LOCK);
	default:
		return false;
	}
}

/* The flow's engine: give_credit(), wire_arm() with credit_waits(), sleep. */
enum {
	O_TOP,
	O_LOCK,
	O_COLLECT,
	O_GIVE = O_COLLECT + 2,
	O_UNWANT,
	O_UNLOCK,
	O_ARM,
	O_LOOK,
	O_LOOK_LOCK,
	O_LOOK_COLLECT,
	O_HAS = O_LOOK_COLLECT + 2,
	O_WORK,
	O_ASLEEP = O_WORK + 2,
	O_SERVICE
};

static bool give(struct world *w, struct thread *t)
{
	if (!w->var[HUNGRY] || !has_credit(w))
		return go(t, O_UNLOCK);
	w->did = 1;
	return fenced(w, t, HUNGRY, 0) && go(t, O_UNWANT);
}

static bool step_owner(struct world *w)
{
	struct thread *t = &w->t[OWNER];

	switch (t->pc) {
	case O_TOP:
		w->did = 0;
		return go(t, load(w, t, HUNGRY) ? O_LOCK : O_ARM);
	case O_LOCK:
		return try_lock(w, t, CHANNEL_LOCK) > 0 && go(t, O_COLLECT);
	case O_COLLECT:
	case O_COLLECT + 1:
		return collect(w, t, O_COLLECT, O_GIVE);
	case O_GIVE:
		return give(w, t);
	case O_UNWANT:
		w->granted = 1;
		return fenced(w, t, WANT, 0) && go(t, O_UNLOCK);
	case O_UNLOCK:
		return unlock(w, t, CHANNEL_LOCK) && go(t, w->did ? O_TOP : O_ARM);
	case O_ARM:
		return store_unless(w, t, ARM_FENCE, DOOR, armed_next(w)) && go(t, O_LOOK);
	case O_LOOK:
		return go(t, without != CREDIT_RECHECK && load(w, t, HUNGRY) ? O_LOOK_LOCK : O_ASLEEP);
	case O_LOOK_LOCK:
		return try_lock(w, t, CHANNEL_LOCK) > 0 && go(t, O_LOOK_COLLECT);
	case O_LOOK_COLLECT:
	case O_LOOK_COLLECT + 1:
		return collect(w, t, O_LOOK_COLLECT, O_HAS);
	case O_HAS:
		return unlock(w, t, CHANNEL_LOCK) &&
		       go(t, has_credit(w) && w->var[HUNGRY] ? O_WORK : O_ASLEEP);
	case O_WORK:
	case O_WORK + 1:
		return disarm(w, t, O_WORK, O_TOP);
	case O_ASLEEP:
		return w->event && go(t, O_SERVICE);
	default:
		w->event = 0;
		return go(t, O_WORK);
	}
}

/* wire_release(): two threads, one doorbell. */
enum { R_RELEASE, R_WANT, R_BELL, R_DONE = R_BELL + 4 };

static bool step_releaser(struct world *w, unsigned i)
{
	struct thread *t = &w->t[RELEASER0 + i];

	switch (t->pc) {
	case R_RELEASE:
		return store_unless(w, t, RELEASE_FENCE, RELEASED0 + i, 1) && go(t, R_WANT);
	case R_WANT:
		return go(t, load(w, t, WANT) ? R_BELL : R_DONE);
	case R_DONE:
		return false;
	default:
		return ring_bell(w, t, R_BELL, RUNG0, R_DONE);
	}
}

/* inbound.c's take(), with a budget of one or three. */
enum { V_TAKE, V_INDEX, V_WANT, V_BELL, V_DONE = V_BELL + 4 };

static bool step_taker(struct world *w, uint8_t budget)
{
	struct thread *t = &w->t[TAKER];
	uint8_t there;

	if (t->pc != V_TAKE && budget > 1)
		return false;
	switch (t->pc) {
	case V_TAKE:
		there = load(w, t, RING0) - w->pos[0];
		if (w->pos[0] == SIZE + wanted)
			return go(t, V_DONE);
		if (!there)
			return false; /* polls */
		t->k = w->pos[0];
		w->pos[0] += there < budget ? there : budget;
		return go(t, V_INDEX);
	case V_INDEX:
		if (t->k / QUARTER == w->pos[0] / QUARTER) {
			t->k = 0;
			return store(w, t, CONSUMED0, w->pos[0]) && go(t, V_TAKE);
		}
		t->k = 0;
		return store_unless(w, t, CONSUMED_FENCE, CONSUMED0, w->pos[0]) && go(t, V_WANT);
	case V_WANT:
		return go(t, load(w, t, WANT) ? V_BELL : V_TAKE);
	case V_DONE:
		return false;
	default:
		return ring_bell(w, t, V_BELL, RUNG0, V_TAKE);
	}
}

static bool choose_credit(struct world *w, unsigned choice)
{
	switch (choice) {
	case FLOW:
		return step_flow(w);
	case OWNER:
		return step_owner(w);
	case RELEASER0:
		return ring_room ? step_taker(w, 1) : step_releaser(w, 0);
	case RELEASER1:
		return ring_room ? step_taker(w, 3) : step_releaser(w, 1);
	default:
		return choice >= DO_LET_GO && let_go(w, choice - DO_LET_GO);
	}
}

static bool step_credit(void *state, unsigned choice)
{
	struct world *w = state;

	if (!choose_credit(w, choice))
		return false;
	if (w->t[FLOW].pc == F_FOUND)
		step_flow(w);
	for (unsigned i = RELEASER0; i <= RELEASER1; i++)
		if (w->t[i].pc == (ring_room ? V_BELL + 3 : R_BELL + 3))
			choose_credit(w, i);
	return true;
}

static bool credit_done(const void *state)
{
	const struct world *w = state;

	if (!quiet(w) || w->t[FLOW].pc != F_DONE || w->t[OWNER].pc != O_ASLEEP)
		return false;
	return ring_room ? w->t[TAKER].pc == V_DONE
			 : w->t[RELEASER0].pc == R_DONE && w->t[RELEASER1].pc == R_DONE;
}

static const char *credit_name(unsigned choice)
{
	static const char *const names[CHOICES] = { "flow", "engine", "receiver",
		"second receiver, or more at once", "", "", "", "flow's store is seen",
		"engine's store is seen", "receiver's store is seen", "second receiver's store is seen", "" };

	return names[choice];
}

static const struct explore_model credit_model = { .size = sizeof(struct world),
	.choices = CHOICES,
	.step = step_credit,
	.done = credit_done,
	.canonical = canonical,
	.name = credit_name };

/* --- the walks --- */

#define MOST 4000000u

static void first_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->var[RUNG0] = w->var[RUNG1] = NOBODY;
	for (unsigned i = 0; i < THREADS; i++)
		w->t[i].r = NOBODY;
}

static struct explore_result walk_packets(
	enum leave_out what, bool tso, uint8_t first, uint8_t second, uint8_t poll, uint8_t schedule)
{
	struct explore_result r;
	struct world w;

	first_world(&w);
	without = what;
	buffers = tso;
	packets[0] = first;
	packets[1] = second;
	polls = poll;
	schedules = schedule;
	explore(&packets_model, &w, MOST, &r);
	assert_false(r.cut);
	return r;
}

static struct explore_result walk_credit(enum leave_out what, bool tso, bool ring)
{
	struct explore_result r;
	struct world w;

	first_world(&w);
	without = what;
	buffers = tso;
	ring_room = ring;
	wanted = 2;
	if (ring) {
		w.sent = w.var[RING0] = SIZE;
		wanted = 3;
	}
	explore(&credit_model, &w, MOST, &r);
	assert_false(r.cut);
	return r;
}

/* Nothing is ever lost, and it is never too late: from every state the end can be reached. */
static void nothing_is_lost(const struct explore_model *m, const struct explore_result *r)
{
	if (r->stuck || r->endless || !r->done)
		explore_print(m, r);
	assert_int_equal(r->stuck, 0);
	assert_int_equal(r->endless, 0);
	assert_true(r->done > 0);
}

static void packets_and_scheduled_work_are_never_left(void **state)
{
	static const uint8_t worlds[][4] = { { 2, 0, 2, 0 }, { 1, 0, 1, 1 }, { 1, 1, 0, 1 }, { 2, 1, 0, 0 } };

	(void)state;
	for (unsigned i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		for (unsigned tso = 0; tso < 2; tso++) {
			struct explore_result r = walk_packets(
				NOTHING, tso, worlds[i][0], worlds[i][1], worlds[i][2], worlds[i][3]);

			print_message("packets %u + %u, polls %u, scheduled %u, %s: %zu states\n",
				worlds[i][0], worlds[i][1], worlds[i][2], worlds[i][3],
				tso ? "buffers" : "none", r.states);
			nothing_is_lost(&packets_model, &r);
		}
	}
}

static void credit_is_never_left(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct explore_result r = walk_credit(NOTHING, i & 1, i & 2);

		print_message("%s, %s: %zu states\n", i & 2 ? "ring" : "slots", i & 1 ? "buffers" : "none",
			r.states);
		nothing_is_lost(&credit_model, &r);
	}
}

/* What is left out is found: by orders of steps alone, or by store buffers only. */
static void must_lose_packets(
	enum leave_out what, bool buffers_only, uint8_t first, uint8_t poll, uint8_t schedule)
{
	struct explore_result plain = walk_packets(what, false, first, 0, poll, schedule);
	struct explore_result tso = walk_packets(what, true, first, 0, poll, schedule);

	assert_int_equal(plain.stuck > 0, !buffers_only);
	assert_true(tso.stuck > 0);
}

static void without_the_fence_a_wakeup_is_lost(void **state)
{
	(void)state;
	must_lose_packets(COMMIT_FENCE, true, 1, 0, 0);
	must_lose_packets(ARM_FENCE, true, 1, 0, 0);
	must_lose_packets(SCHEDULE_FENCE, true, 0, 0, 1);
}

static void without_looking_again_after_arming_a_packet_is_left(void **state)
{
	(void)state;
	must_lose_packets(RECHECK, false, 1, 0, 0);
	must_lose_packets(RUNQ_RECHECK, false, 0, 0, 1);
}

static void rings_that_another_thread_looks_at_are_not_known_to_be_empty(void **state)
{
	(void)state;
	must_lose_packets(BUSY_IS_WORK, false, 1, 1, 0);
}

static void without_a_new_number_the_second_arming_is_not_woken(void **state)
{
	(void)state;
	must_lose_packets(ARMING_NUMBER, false, 2, 0, 0);
}

static void must_lose_credit(enum leave_out what, bool buffers_only, bool ring)
{
	struct explore_result plain = walk_credit(what, false, ring), tso = walk_credit(what, true, ring);

	assert_int_equal(plain.stuck > 0, !buffers_only);
	assert_true(tso.stuck > 0);
}

static void without_the_fence_credit_is_lost(void **state)
{
	(void)state;
	must_lose_credit(WANT_FENCE, true, false);
	must_lose_credit(WANT_FENCE, true, true);
	must_lose_credit(RELEASE_FENCE, true, false);
	must_lose_credit(CONSUMED_FENCE, true, true);
	must_lose_credit(ARM_FENCE, true, false);
}

static void without_looking_again_credit_is_lost(void **state)
{
	(void)state;
	must_lose_credit(WANT_RECHECK, false, false);
	must_lose_credit(CREDIT_RECHECK, false, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_and_scheduled_work_are_never_left),
		cmocka_unit_test(credit_is_never_left),
		cmocka_unit_test(without_the_fence_a_wakeup_is_lost),
		cmocka_unit_test(without_looking_again_after_arming_a_packet_is_left),
		cmocka_unit_test(rings_that_another_thread_looks_at_are_not_known_to_be_empty),
		cmocka_unit_test(without_a_new_number_the_second_arming_is_not_woken),
		cmocka_unit_test(without_the_fence_credit_is_lost),
		cmocka_unit_test(without_looking_again_credit_is_lost),
	};

	return cmocka_run_group_tests_name("wire/wakeup_model", tests, NULL, NULL);
}

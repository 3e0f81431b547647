/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "mm/sigchain.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "mm/behind.h"
#include "mm/generation.h"
#include "mm/safecopy.h"

#define EXPORT __attribute__((visibility("default")))

#ifndef SA_EXPOSE_TAGBITS
#define SA_EXPOSE_TAGBITS 0x00000800
#endif
/* Linux adds it to what a C library on x86 installs; reported back like any other flag. */
#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000
#endif

/* libc's own, under the name that nobody interposes. */
int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);

static int next_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	behind_sigaction_fn *next = BEHIND(sigaction);

	return next ? next(sig, act, old) : __sigaction(sig, act, old);
}

/* ---- The table of what the application has installed ----
 *
 * An action is written into a free record and becomes current by one atomic exchange, which also yields the
 * action it replaces; the replaced record is free again. Every publication has a ticket of its own, so a
 * reader who sees the same word before and after copying a record has copied what was current. No one ever
 * waits: it works in signal handlers and in a child forked in the middle of anything (which at worst loses a
 * record).
 */

struct action {
	void *handler;
	void *restorer;
	uint64_t mask; /* the kernel's 64 signals */
	int flags;
};

struct record {
	_Atomic uintptr_t handler, restorer;
	_Atomic uint64_t mask;
	_Atomic int flags;
};

#define RECORDS 64

static struct record record[RECORDS];
static _Atomic uint64_t records_used; /* one bit each */
static _Atomic uint64_t ticket;

/* Per signal: ticket << 8 | record index; 0: not taken over yet. */
static _Atomic uint64_t current[2];
/* Set when sigchain_install() begins, per signal when our handler stands in front and current[] is filled. */
static atomic_bool fronting;
static atomic_bool fronted[2];

static int slot_of(int sig)
{
	return sig == SIGSEGV ? 0 : sig == SIGBUS ? 1 : -1;
}

static unsigned record_claim(void)
{
	uint64_t used = atomic_load(&records_used);
	unsigned i;

	for (;;) {
		if (used == UINT64_MAX) {
			used = atomic_load(&records_used);
			continue;
		}
		i = (unsigned)__builtin_ctzll(~used);
		if (atomic_compare_exchange_weak(&records_used, &used, used | 1ull << i))
			return i;
	}
}

static void record_release(unsigned i)
{
	atomic_fetch_and(&records_used, ~(1ull << i));
}

static void record_write(unsigned i, const struct action *a)
{
	atomic_store_explicit(&record[i].handler, (uintptr_t)a->handler, memory_order_relaxed);
	atomic_store_explicit(&record[i].restorer, (uintptr_t)a->restorer, memory_order_relaxed);
	atomic_store_explicit(&record[i].mask, a->mask, memory_order_relaxed);
	atomic_store_explicit(&record[i].flags, a->flags, memory_order_relaxed);
}

static struct action record_read(unsigned i)
{
	return (struct action){
		.handler = (void *)atomic_load_explicit(&record[i].handler, memory_order_acquire),
		.restorer = (void *)atomic_load_explicit(&record[i].restorer, memory_order_acquire),
		.mask = atomic_load_explicit(&record[i].mask, memory_order_acquire),
		.flags = atomic_load_explicit(&record[i].flags, memory_order_acquire),
	};
}

static const struct action default_action = { .handler = (void *)SIG_DFL };

/* The current action; *word identifies it. */
static struct action table_get(int slot, uint64_t *word)
{
	struct action a;
	uint64_t seen = atomic_load(&current[slot]);

	for (;;) {
		*word = seen;
		if (!seen)
			return default_action;
		a = record_read(seen & 0xff);
		seen = atomic_load(&current[slot]);
		if (seen == *word)
			return a;
	}
}

static uint64_t record_publishable(const struct action *a)
{
	unsigned i = record_claim();

	record_write(i, a);
	return (atomic_fetch_add(&ticket, 1) + 1) << 8 | i;
}

/* Installs a; returns what it replaces. */
static struct action table_swap(int slot, const struct action *a)
{
	uint64_t word = atomic_exchange(&current[slot], record_publishable(a));
	struct action old;

	if (!word)
		return default_action;
	old = record_read(word & 0xff);
	record_release(word & 0xff);
	return old;
}

/* The same, if word is still current. */
static bool table_swap_if(int slot, uint64_t word, const struct action *a)
{
	uint64_t next = record_publishable(a);

	if (!atomic_compare_exchange_strong(&current[slot], &word, next)) {
		record_release(next & 0xff);
		return false;
	}
	if (word)
		record_release(word & 0xff);
	return true;
}

/* ---- Between libc's struct and ours ---- */

static bool is_function(const struct action *a)
{
	return a->handler != (void *)SIG_DFL && a->handler != (void *)SIG_IGN;
}

static struct action from_libc(const struct sigaction *act)
{
	struct action a = {
		.handler = (void *)act->sa_handler,
		.restorer = (void *)act->sa_restorer,
		.flags = act->sa_flags,
	};

	memcpy(&a.mask, &act->sa_mask, sizeof(a.mask));
	return a;
}

static void to_libc(const struct action *a, struct sigaction *act)
{
	memset(act, 0, sizeof(*act));
	act->sa_handler = (__sighandler_t)a->handler;
	act->sa_restorer = (void (*)(void))a->restorer;
	act->sa_flags = a->flags;
	memcpy(&act->sa_mask, &a->mask, sizeof(a->mask));
}

/* ---- Our handler ---- */

static void on_fault(int sig, siginfo_t *info, void *context);

static bool is_ours(const struct sigaction *act)
{
	return act->sa_sigaction == on_fault;
}

static void set_mask(uint64_t mask)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* Raised by the very instruction that was interrupted, as opposed to sent. */
static bool is_synchronous(int sig, const siginfo_t *info)
{
	return info->si_code > 0 && !(sig == SIGBUS && info->si_code == BUS_MCEERR_AO);
}

/*
 * The default action, as if we did not exist: the kernel gets SIG_DFL, and the same signal becomes pending
 * for this thread, blocked until our return restores the interrupted registers and mask. Where it cannot be
 * queued, the instruction faults again by itself.
 */
static void die(int sig, siginfo_t *info, ucontext_t *context)
{
	const struct sigaction dfl = { .sa_handler = SIG_DFL };

	/* The kernel does not deliver what has no handler to the first process of a container, unless it is a
	 * fault. */
	if (!is_synchronous(sig, info) && getpid() == 1)
		return;
	/* libc's: here it is the kernel that must know. */
	__sigaction(sig, &dfl, NULL);
	sigdelset(&context->uc_sigmask, sig);
	syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), sig, info);
}

static void call_application(int sig, siginfo_t *info, ucontext_t *context, const struct action *a)
{
	uint64_t mask;

	memcpy(&mask, &context->uc_sigmask, sizeof(mask));
	mask |= a->mask;
	if (!(a->flags & SA_NODEFER))
		mask |= 1ull << (sig - 1);
	set_mask(mask);
	/* The kernel passes all three with or without SA_SIGINFO, and old programs look at them. */
	((void (*)(int, siginfo_t *, void *))a->handler)(sig, info, context);
}

/* What the kernel would have done. Runs with every signal blocked. */
static void deliver(int sig, siginfo_t *info, ucontext_t *context)
{
	struct action a, once;
	uint64_t word;

	for (;;) {
		a = table_get(slot_of(sig), &word);
		if (a.handler == (void *)SIG_IGN && !is_synchronous(sig, info))
			return;
		if (!is_function(&a)) {
			die(sig, info, context);
			return;
		}
		if (!(a.flags & SA_RESETHAND))
			break;
		/* One delivery gets the handler; whoever comes next finds the default. */
		once = a;
		once.handler = (void *)SIG_DFL;
		if (table_swap_if(slot_of(sig), word, &once))
			break;
	}
	call_application(sig, info, context, &a);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	/* errno needs no care: nothing on the way to a repair sets it, and what the application's handler
	 * does to it is the application's. */
	if (is_synchronous(sig, info) && safecopy_repair(sig, info->si_code, context))
		return;
	deliver(sig, info, context);
}

/* ---- Being in front ---- */

/* Our handler, with those flags that the kernel must see: the stack it runs on and what becomes of system
 * calls. */
static void make_front(struct sigaction *act, const struct action *app)
{
	memset(act, 0, sizeof(*act));
	act->sa_sigaction = on_fault;
	act->sa_flags = SA_SIGINFO;
	/* Everything blocked until the application's own mask is known. */
	memset(&act->sa_mask, 0xff, sizeof(act->sa_mask));
	if (is_function(app))
		act->sa_flags |= app->flags & (SA_ONSTACK | SA_RESTART | SA_EXPOSE_TAGBITS);
	else
		act->sa_flags |= SA_ONSTACK | SA_RESTART;
}

/* Puts our handler in the kernel to match the table, and again if the table has changed meanwhile. */
static int front(int sig, struct sigaction *displaced)
{
	struct sigaction act;
	struct action app;
	uint64_t word, now;

	app = table_get(slot_of(sig), &word);
	for (;;) {
		make_front(&act, &app);
		if (next_sigaction(sig, &act, displaced))
			return -errno;
		app = table_get(slot_of(sig), &now);
		if (now == word)
			return 0;
		word = now;
		displaced = NULL;
	}
}

static bool same_action(const struct action *a, const struct action *b)
{
	return a->handler == b->handler && a->flags == b->flags && a->mask == b->mask;
}

/*
 * Takes over: what the kernel has becomes the table's action, then ours goes in. An action that slipped in
 * between (a thread inside libc, a raw system call) is displaced by ours and adopted.
 */
static int take_over(int sig)
{
	int slot = slot_of(sig), err;
	struct sigaction seen, displaced;
	struct action app, now;
	uint64_t word;

	if (next_sigaction(sig, NULL, &seen))
		return -errno;
	app = from_libc(&seen);
	if (!is_ours(&seen))
		table_swap_if(slot, 0, &app);
	err = front(sig, &displaced);
	if (err)
		return err;
	app = from_libc(&displaced);
	now = table_get(slot, &word);
	if (!is_ours(&displaced) && !same_action(&app, &now)) {
		table_swap_if(slot, word, &app);
		err = front(sig, NULL);
	}
	if (!err)
		atomic_store(&fronted[slot], true);
	return err;
}

/* Which process's actions the table has, and in which generation that was. */
static _Atomic pid_t owner;
static _Atomic uint64_t owner_generation;

/*
 * A child of vfork(), or of clone() with CLONE_VM alone, has actions of its own but this memory: what it
 * installs must not get into the table. After fork() the generation is another, and the table a copy.
 */
static bool borrowed(void)
{
	pid_t of = atomic_load(&owner);

	return of && generation_now() == atomic_load(&owner_generation) && (pid_t)syscall(SYS_getpid) != of;
}

static void own_table(void)
{
	if (generation_begin())
		return; /* borrowed() says no */
	atomic_store(&owner, 0);
	atomic_store(&owner_generation, generation_now());
	atomic_store(&owner, (pid_t)syscall(SYS_getpid));
}

int sigchain_install(void)
{
	int saved = errno, err;

	if (borrowed())
		return 0;
	own_table();
	atomic_store(&fronting, true);
	err = take_over(SIGSEGV);
	if (!err)
		err = take_over(SIGBUS);
	errno = saved;
	return err;
}

bool sigchain_installed(void)
{
	return atomic_load_explicit(&fronted[0], memory_order_acquire) &&
	       atomic_load_explicit(&fronted[1], memory_order_acquire);
}

/* ---- The interposed functions ---- */

/* The restorer that libc adds to every action it installs, learnt from our own. */
static void add_restorer(int sig, struct action *a)
{
	struct sigaction ours;

	if (next_sigaction(sig, NULL, &ours) || !is_ours(&ours))
		return;
	a->flags |= ours.sa_flags & SA_RESTORER;
	a->restorer = (void *)ours.sa_restorer;
}

/* What the kernel keeps of an action: not every flag, and neither SIGKILL nor SIGSTOP in the mask. */
static struct action as_installed(int sig, const struct sigaction *act)
{
	struct action a = from_libc(act);

	a.flags &= SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER |
		   (int)SA_RESETHAND | SA_EXPOSE_TAGBITS;
	a.mask &= ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1));
	add_restorer(sig, &a);
	return a;
}

static int table_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct action a, was;
	uint64_t word;
	int err = 0;

	if (!atomic_load(&fronted[slot_of(sig)]))
		err = take_over(sig);
	if (!err && act) {
		a = as_installed(sig, act);
		was = table_swap(slot_of(sig), &a);
		err = front(sig, NULL);
	} else {
		was = table_get(slot_of(sig), &word);
	}
	if (err) {
		errno = -err;
		return -1;
	}
	if (old)
		to_libc(&was, old);
	return 0;
}

/* Before the table counts. If sigchain_install() begins meanwhile, the action just set may have displaced
 * ours. */
static int plain_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction was;
	struct action app;
	uint64_t word;

	if (next_sigaction(sig, act, &was))
		return -1;
	if (is_ours(&was)) {
		app = table_get(slot_of(sig), &word);
		to_libc(&app, &was);
	}
	if (old)
		*old = was;
	if (act && slot_of(sig) >= 0 && atomic_load(&fronting))
		take_over(sig);
	return 0;
}

/* Of a child that shares this memory: only the kernel, which has the child's actions, is told. */
static int borrowed_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction was;
	struct action app;
	uint64_t word;

	if (__sigaction(sig, act, &was))
		return -1;
	if (is_ours(&was)) {
		app = table_get(slot_of(sig), &word);
		to_libc(&app, &was);
	}
	if (old)
		*old = was;
	return 0;
}

/* The one door for all functions below. */
static int chained_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	if (slot_of(sig) >= 0 && borrowed())
		return borrowed_sigaction(sig, act, old);
	if (slot_of(sig) >= 0 && atomic_load(&fronting))
		return table_sigaction(sig, act, old);
	if (slot_of(sig) >= 0)
		return plain_sigaction(sig, act, old);
	return next_sigaction(sig, act, old);
}

EXPORT int sigaction(int sig, const struct sigaction *restrict act, struct sigaction *restrict old)
{
	return chained_sigaction(sig, act, old);
}

/* Signals whose handlers, set by signal(), interrupt system calls: siginterrupt(3) decides. */
static _Atomic uint64_t interrupting;

static bool valid(int sig)
{
	return sig >= 1 && sig < NSIG;
}

static __sighandler_t set_handler(int sig, __sighandler_t handler, int flags, bool mask_itself)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags }, old;

	if (handler == SIG_ERR || !valid(sig)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (mask_itself)
		sigaddset(&act.sa_mask, sig);
	return chained_sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

/*
 * Only two signals are ours to look after. For every other one the next function of the same name is called,
 * with nothing of ours in between.
 */
static bool looked_after(int sig)
{
	return slot_of(sig) >= 0;
}

/* libc's headers may send signal() to another name, or take one of these for a macro. */
#undef signal
#undef sigset
#undef sigignore

static __sighandler_t set_by_signal(int sig, __sighandler_t handler)
{
	bool interrupts = valid(sig) && atomic_load(&interrupting) >> (sig - 1) & 1;

	return set_handler(sig, handler, interrupts ? 0 : SA_RESTART, true);
}

EXPORT __sighandler_t signal(int sig, __sighandler_t handler)
{
	behind_signal_fn *next = looked_after(sig) ? NULL : BEHIND(signal);

	return next ? next(sig, handler) : set_by_signal(sig, handler);
}

EXPORT __sighandler_t bsd_signal(int sig, __sighandler_t handler);
EXPORT __sighandler_t bsd_signal(int sig, __sighandler_t handler)
{
	behind_bsd_signal_fn *next = looked_after(sig) ? NULL : BEHIND(bsd_signal);

	return next ? next(sig, handler) : set_by_signal(sig, handler);
}

EXPORT __sighandler_t ssignal(int sig, __sighandler_t handler)
{
	behind_ssignal_fn *next = looked_after(sig) ? NULL : BEHIND(ssignal);

	return next ? next(sig, handler) : set_by_signal(sig, handler);
}

static __sighandler_t set_once(int sig, __sighandler_t handler)
{
	return set_handler(sig, handler, (int)SA_RESETHAND | SA_NODEFER, false);
}

EXPORT __sighandler_t __sysv_signal(int sig, __sighandler_t handler)
{
	behind___sysv_signal_fn *next = looked_after(sig) ? NULL : BEHIND(__sysv_signal);

	return next ? next(sig, handler) : set_once(sig, handler);
}

EXPORT __sighandler_t sysv_signal(int sig, __sighandler_t handler)
{
	behind_sysv_signal_fn *next = looked_after(sig) ? NULL : BEHIND(sysv_signal);

	return next ? next(sig, handler) : set_once(sig, handler);
}

EXPORT int siginterrupt(int sig, int flag)
{
	behind_siginterrupt_fn *next = looked_after(sig) ? NULL : BEHIND(siginterrupt);
	struct sigaction act;

	if (next)
		return next(sig, flag);
	if (!valid(sig) || chained_sigaction(sig, NULL, &act)) {
		errno = EINVAL;
		return -1;
	}
	if (flag) {
		atomic_fetch_or(&interrupting, 1ull << (sig - 1));
		act.sa_flags &= ~SA_RESTART;
	} else {
		atomic_fetch_and(&interrupting, ~(1ull << (sig - 1)));
		act.sa_flags |= SA_RESTART;
	}
	return chained_sigaction(sig, &act, NULL);
}

EXPORT int sigignore(int sig)
{
	behind_sigignore_fn *next = looked_after(sig) ? NULL : BEHIND(sigignore);

	if (next)
		return next(sig);
	return set_handler(sig, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

#ifndef SIG_HOLD
#define SIG_HOLD ((__sighandler_t)2)
#endif

EXPORT __sighandler_t sigset(int sig, __sighandler_t disposition)
{
	behind_sigset_fn *next = looked_after(sig) ? NULL : BEHIND(sigset);
	struct sigaction now;
	sigset_t just, before;
	__sighandler_t was;

	if (next)
		return next(sig, disposition);
	if (disposition == SIG_ERR || !valid(sig)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&just);
	sigaddset(&just, sig);
	if (disposition == SIG_HOLD) {
		if (sigprocmask(SIG_BLOCK, &just, &before) || chained_sigaction(sig, NULL, &now))
			return SIG_ERR;
		return sigismember(&before, sig) ? SIG_HOLD : now.sa_handler;
	}
	was = set_handler(sig, disposition, 0, false);
	if (was == SIG_ERR || sigprocmask(SIG_UNBLOCK, &just, &before))
		return SIG_ERR;
	return sigismember(&before, sig) ? SIG_HOLD : was;
}

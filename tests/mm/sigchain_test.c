/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Each test acts in a forked child, since handlers and their absence are of the whole process. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <cmocka.h>

#include "mm/safecopy.h"
#include "mm/sigchain.h"
#include "tests/mm/child.h"

#define PAGE 4096ul

/* Old names are tested, and a stack is overflowed. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Winfinite-recursion"

/* In a child: what is not so ends it, with the line as its status. */
#define MUST(what)                                                                                           \
	do {                                                                                                 \
		if (!(what)) {                                                                               \
			fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                   \
			_exit(101);                                                                          \
		}                                                                                            \
	} while (0)

static sigjmp_buf back;
static volatile sig_atomic_t calls;
static volatile siginfo_t last_info; /* libc says that raise() calls nobody back */
static sigset_t mask_inside;
static void *stack_inside;
static unsigned char *nowhere; /* a page without rights */

static void note(int sig, siginfo_t *info, void *context)
{
	char here;

	calls++;
	last_info = *info;
	stack_inside = &here;
	sigprocmask(SIG_BLOCK, NULL, &mask_inside);
}

static void note_and_jump(int sig, siginfo_t *info, void *context)
{
	note(sig, info, context);
	siglongjmp(back, 1);
}

static void jump_plain(int sig)
{
	calls++;
	siglongjmp(back, 1);
}

static void note_plain(int sig)
{
	calls++;
}

static void set(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction act = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	sigaddset(&act.sa_mask, SIGUSR1);
	MUST(!sigaction(sig, &act, NULL));
}

static void set_plain(int sig, void (*handler)(int), int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags };

	MUST(!sigaction(sig, &act, NULL));
}

static void fault(void)
{
	if (!nowhere)
		nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	poke(nowhere + 123);
}

/* True: came back by the handler's jump. */
static bool fault_and_return(void)
{
	if (sigsetjmp(back, 1))
		return true;
	fault();
	return false;
}

/* Our copies go on being repaired. */
static bool copies_survive(void)
{
	unsigned char *p = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte = 0;
	bool ok =
		safecopy_path() != SAFECOPY_FIXUP || safecopy_to_user(SAFECOPY_FIXUP, p, &byte, 1, NULL) == 0;

	munmap(p, PAGE);
	return ok;
}

static void check_noted_fault(void)
{
	MUST(calls == 1);
	MUST(last_info.si_code == SEGV_ACCERR);
	MUST(last_info.si_addr == nowhere + 123);
	MUST(sigismember(&mask_inside, SIGUSR1));
	MUST(!sigismember(&mask_inside, SIGUSR2));
	MUST(sigismember(&mask_inside, SIGSEGV));
	MUST(copies_survive());
	MUST(calls == 1);
}

static int handler_before(void)
{
	set(SIGSEGV, note_and_jump, 0);
	MUST(!sigchain_install());
	MUST(fault_and_return());
	check_noted_fault();
	return 0;
}

static int handler_after(void)
{
	MUST(!sigchain_install());
	set(SIGSEGV, note_and_jump, 0);
	MUST(fault_and_return());
	check_noted_fault();
	return 0;
}

static int handler_plain(void)
{
	MUST(!sigchain_install());
	set_plain(SIGSEGV, jump_plain, 0);
	MUST(fault_and_return());
	MUST(fault_and_return());
	MUST(calls == 2);
	MUST(copies_survive());
	return 0;
}

static void the_applications_handler_gets_its_faults(void **state)
{
	assert_true(exited(in_child(handler_before), 0));
	assert_true(exited(in_child(handler_after), 0));
	assert_true(exited(in_child(handler_plain), 0));
}

static int no_handler(void)
{
	MUST(!sigchain_install());
	MUST(copies_survive());
	fault();
	return 0;
}

static int default_again(void)
{
	set_plain(SIGSEGV, note_plain, 0);
	MUST(!sigchain_install());
	MUST(signal(SIGSEGV, SIG_DFL) == note_plain);
	MUST(copies_survive());
	fault();
	return 0;
}

static int past_the_file(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	unsigned char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	MUST(!sigchain_install());
	poke(p);
	return 0;
}

static int ignored_fault(void)
{
	MUST(!sigchain_install());
	MUST(signal(SIGSEGV, SIG_IGN) == SIG_DFL);
	MUST(copies_survive());
	fault();
	return 0;
}

static int blocked_fault(void)
{
	sigset_t all;

	MUST(!sigchain_install());
	set(SIGSEGV, note_and_jump, 0);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	fault_and_return();
	return 0;
}

static void a_fault_without_a_handler_kills_with_its_own_signal(void **state)
{
	assert_true(killed(in_child(no_handler), SIGSEGV));
	assert_true(killed(in_child(default_again), SIGSEGV));
	assert_true(killed(in_child(past_the_file), SIGBUS));
	assert_true(killed(in_child(ignored_fault), SIGSEGV));
	assert_true(killed(in_child(blocked_fault), SIGSEGV));
}

static int once(void)
{
	struct sigaction now;

	MUST(!sigchain_install());
	set(SIGSEGV, note_and_jump, (int)SA_RESETHAND);
	MUST(fault_and_return());
	MUST(!sigaction(SIGSEGV, NULL, &now));
	MUST(now.sa_handler == SIG_DFL);
	MUST(copies_survive());
	MUST(calls == 1);
	fault_and_return();
	return 0;
}

static void a_handler_that_resets_itself_is_called_once(void **state)
{
	assert_true(killed(in_child(once), SIGSEGV));
}

static void fault_in_handler(int sig, siginfo_t *info, void *context)
{
	if (++calls < 3)
		fault();
	siglongjmp(back, 1);
}

static int nested(void)
{
	MUST(!sigchain_install());
	set(SIGSEGV, fault_in_handler, SA_NODEFER);
	MUST(fault_and_return());
	MUST(calls == 3);
	return 0;
}

static int nested_deferred(void)
{
	MUST(!sigchain_install());
	set(SIGSEGV, fault_in_handler, 0);
	fault_and_return();
	return 0;
}

static void a_handler_may_fault_itself_only_if_it_asked_for_that(void **state)
{
	assert_true(exited(in_child(nested), 0));
	assert_true(killed(in_child(nested_deferred), SIGSEGV));
}

static int jump_restores_mask(void)
{
	sigset_t now, usr2;

	MUST(!sigchain_install());
	set(SIGSEGV, note_and_jump, 0);
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	for (int i = 0; i < 5; i++)
		MUST(fault_and_return());
	MUST(sigismember(&mask_inside, SIGUSR2));
	sigprocmask(SIG_BLOCK, NULL, &now);
	MUST(!sigismember(&now, SIGSEGV) && !sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2));
	/* A jump that does not restore the mask leaves that of the handler, and no more. */
	if (!sigsetjmp(back, 0))
		fault();
	sigprocmask(SIG_BLOCK, NULL, &now);
	MUST(sigismember(&now, SIGSEGV) && sigismember(&now, SIGUSR1) && sigismember(&now, SIGUSR2));
	MUST(!sigismember(&now, SIGALRM) && !sigismember(&now, SIGTERM));
	MUST(calls == 6);
	return 0;
}

static void jumping_out_of_the_handler_leaves_the_right_mask(void **state)
{
	assert_true(exited(in_child(jump_restores_mask), 0));
}

static void skip_store(int sig, siginfo_t *info, void *context)
{
	calls++;
	errno = 55;
	/* Makes the page writable: the store is done again when the handler returns. */
	mprotect(nowhere, PAGE, PROT_READ | PROT_WRITE);
}

static int repair_and_return(void)
{
	sigset_t now;

	MUST(!sigchain_install());
	set(SIGSEGV, skip_store, 0);
	fault();
	MUST(calls == 1 && nowhere[123] == 1);
	MUST(errno == 55);
	sigprocmask(SIG_BLOCK, NULL, &now);
	MUST(!sigismember(&now, SIGSEGV) && !sigismember(&now, SIGUSR1));
	errno = 66;
	MUST(copies_survive());
	MUST(errno == 66);
	return 0;
}

static void a_handler_may_mend_and_return(void **state)
{
	assert_true(exited(in_child(repair_and_return), 0));
}

/* ---- Sent, not raised ---- */

static int sent(void)
{
	union sigval value = { .sival_int = 4711 };

	MUST(!sigchain_install());
	set(SIGSEGV, note, 0);
	set(SIGBUS, note, 0);
	kill(getpid(), SIGSEGV);
	MUST(calls == 1 && last_info.si_code == SI_USER && last_info.si_pid == getpid());
	raise(SIGBUS);
	MUST(calls == 2 && last_info.si_code == SI_TKILL && last_info.si_signo == SIGBUS);
	sigqueue(getpid(), SIGSEGV, value);
	MUST(calls == 3 && last_info.si_code == SI_QUEUE && last_info.si_value.sival_int == 4711);
	return 0;
}

static int sent_ignored(void)
{
	MUST(!sigchain_install());
	MUST(!sigignore(SIGSEGV));
	kill(getpid(), SIGSEGV);
	raise(SIGSEGV);
	MUST(copies_survive());
	return 7;
}

static int sent_default(void)
{
	MUST(!sigchain_install());
	kill(getpid(), SIGSEGV);
	return 0;
}

static int raised_default(void)
{
	MUST(!sigchain_install());
	raise(SIGBUS);
	return 0;
}

/* Taken within sigsuspend(), whose mask differs from the one to be restored. */
static int sent_while_suspended(void)
{
	sigset_t all, none;

	MUST(!sigchain_install());
	sigfillset(&all);
	sigemptyset(&none);
	sigprocmask(SIG_BLOCK, &all, NULL);
	kill(getpid(), SIGSEGV);
	sigsuspend(&none);
	return 0;
}

static void a_signal_that_was_sent_is_the_applications(void **state)
{
	assert_true(exited(in_child(sent), 0));
	assert_true(exited(in_child(sent_ignored), 7));
	assert_true(killed(in_child(sent_default), SIGSEGV));
	assert_true(killed(in_child(raised_default), SIGBUS));
	assert_true(killed(in_child(sent_while_suspended), SIGSEGV));
}

static atomic_bool copying_stops;

static void *copy_for_ever(void *arg)
{
	static unsigned char from[1 << 16], to[1 << 16];

	while (!atomic_load(&copying_stops))
		if (safecopy_to_user(SAFECOPY_FIXUP, to, from, sizeof(to), NULL) != sizeof(to))
			return (void *)1;
	return NULL;
}

/* Most of these interrupt a copy, and must not end it. */
static int sent_into_copies(void)
{
	pthread_t thread;
	void *short_copy;

	MUST(!sigchain_install());
	if (safecopy_path() != SAFECOPY_FIXUP)
		return 0;
	set(SIGSEGV, note, 0);
	pthread_create(&thread, NULL, copy_for_ever, NULL);
	for (int i = 0; i < 2000; i++)
		pthread_kill(thread, SIGSEGV);
	atomic_store(&copying_stops, true);
	pthread_join(thread, &short_copy);
	MUST(!short_copy && calls > 0);
	return 0;
}

static void a_signal_sent_into_a_copy_does_not_end_it(void **state)
{
	assert_true(exited(in_child(sent_into_copies), 0));
}

/* The state of the first thread of a process, as in proc_pid_stat(5); 0: there is none. */
static char state_of(pid_t pid)
{
	char path[32], line[128] = "", *name_end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
	f = fopen(path, "re");
	if (f && !fgets(line, sizeof(line), f))
		line[0] = 0;
	if (f)
		fclose(f);
	name_end = strrchr(line, ')');
	return name_end ? name_end[2] : 0;
}

/* Or has ended, and nobody waits for anything any more. */
static void until_asleep(pid_t pid)
{
	char state;

	while ((state = state_of(pid)) && state != 'S' && state != 'Z')
		sched_yield();
}

static int read_interrupted(int flags)
{
	int fds[2];
	char byte;
	pid_t self = getpid(), sender;
	ssize_t n;

	MUST(!pipe(fds));
	MUST(!sigchain_install());
	set(SIGSEGV, note, flags);
	sender = fork();
	if (!sender) {
		until_asleep(self);
		kill(self, SIGSEGV);
		/* A signal wakes it at once: when it sleeps again, the handler has returned. */
		until_asleep(self);
		MUST(write(fds[1], "x", 1) == 1);
		_exit(0);
	}
	n = read(fds[0], &byte, 1);
	while (waitpid(sender, NULL, 0) < 0 && errno == EINTR)
		;
	MUST(calls == 1);
	return n == 1 ? 1 : 2;
}

static int read_restarts(void)
{
	return read_interrupted(SA_RESTART);
}

static int read_fails(void)
{
	return read_interrupted(0);
}

static void system_calls_restart_as_the_application_asked(void **state)
{
	assert_true(exited(in_child(read_restarts), 1));
	assert_true(exited(in_child(read_fails), 2));
}

/* ---- Stacks ---- */

static unsigned char *other_stack;
#define OTHER_STACK 65536ul

static bool on_other_stack(const void *p)
{
	return (const unsigned char *)p >= other_stack &&
	       (const unsigned char *)p < other_stack + OTHER_STACK;
}

static void use_other_stack(void)
{
	stack_t st = { .ss_size = OTHER_STACK };

	other_stack = mmap(NULL, OTHER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	st.ss_sp = other_stack;
	MUST(!sigaltstack(&st, NULL));
}

static int stack_choice(void)
{
	MUST(!sigchain_install());
	use_other_stack();
	set(SIGSEGV, note_and_jump, SA_ONSTACK);
	MUST(fault_and_return());
	MUST(on_other_stack(stack_inside));
	set(SIGSEGV, note_and_jump, 0);
	MUST(fault_and_return());
	MUST(!on_other_stack(stack_inside));
	return 0;
}

static int __attribute__((noinline)) deeper(volatile char *above)
{
	volatile char here[1024];

	here[0] = *above;
	return deeper(here) + here[0];
}

static int overflow_caught(void)
{
	const struct rlimit small = { 1 << 20, RLIM_INFINITY };
	volatile char top = 0;

	setrlimit(RLIMIT_STACK, &small);
	MUST(!sigchain_install());
	use_other_stack();
	set(SIGSEGV, note_and_jump, SA_ONSTACK);
	if (!sigsetjmp(back, 1))
		deeper(&top);
	MUST(calls == 1 && on_other_stack(stack_inside));
	return 0;
}

static void the_handler_runs_on_the_stack_it_asked_for(void **state)
{
	assert_true(exited(in_child(stack_choice), 0));
	assert_true(exited(in_child(overflow_caught), 0));
}

/* ---- What is reported back ---- */

struct step {
	int sig;
	void *handler;
	int flags;
	uint64_t mask;
};

static const struct step steps[] = {
	{ SIGSEGV, (void *)note, SA_SIGINFO, 0 },
	{ SIGSEGV, (void *)note_plain, SA_RESTART | SA_ONSTACK,
		1ull << (SIGUSR1 - 1) | 1ull << (SIGKILL - 1) },
	{ SIGBUS, (void *)jump_plain, (int)SA_RESETHAND | SA_NODEFER, UINT64_MAX },
	{ SIGBUS, (void *)SIG_IGN, 0, 4 },
	{ SIGSEGV, (void *)SIG_DFL, SA_NOCLDSTOP | SA_NOCLDWAIT, 1 },
	{ SIGSEGV, (void *)note, SA_SIGINFO | 0x00000400 | 0x20000000, 1 },
	{ SIGBUS, (void *)SIG_DFL, 0, 0 },
};

struct answer {
	void *handler, *restorer;
	int flags, result, error;
	uint64_t mask;
};

#define ANSWERS (2 * sizeof(steps) / sizeof(steps[0]))

typedef int sigaction_fn(int, const struct sigaction *, struct sigaction *);

static void ask(sigaction_fn *fn, int sig, const struct sigaction *act, struct answer *out)
{
	struct sigaction old;

	memset(&old, 0, sizeof(old));
	out->result = fn(sig, act, &old);
	out->handler = (void *)old.sa_handler;
	out->restorer = (void *)old.sa_restorer;
	out->flags = old.sa_flags;
	memcpy(&out->mask, &old.sa_mask, sizeof(out->mask));
}

static void take_steps(sigaction_fn *fn, struct answer *out)
{
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct sigaction act = { .sa_handler = (__sighandler_t)steps[i].handler,
			.sa_flags = steps[i].flags };

		memcpy(&act.sa_mask, &steps[i].mask, sizeof(steps[i].mask));
		ask(fn, steps[i].sig, &act, &out[2 * i]);
		ask(fn, steps[i].sig, NULL, &out[2 * i + 1]);
	}
}

static int reports_equal_libcs(void)
{
	sigaction_fn *libc = (sigaction_fn *)dlsym(dlopen("libc.so.6", RTLD_NOW), "sigaction");
	static struct answer without[ANSWERS], with[ANSWERS];

	MUST(libc && libc != (sigaction_fn *)sigaction);
	take_steps(libc, without);
	MUST(!sigchain_install());
	take_steps((sigaction_fn *)sigaction, with);
	for (unsigned i = 0; i < ANSWERS; i++)
		if (memcmp(&without[i], &with[i], sizeof(with[i])) && i) {
			/* The first of each signal reports what was before: never set there, set by the first
			 * round here. */
			if (steps[i / 2].sig == SIGBUS && i == 4)
				continue;
			fprintf(stderr, "step %u: %p %x %llx, not %p %x %llx\n", i, with[i].handler,
				with[i].flags, (unsigned long long)with[i].mask, without[i].handler,
				without[i].flags, (unsigned long long)without[i].mask);
			return 1;
		}
	MUST(sigaction(SIGKILL, &(struct sigaction){ .sa_handler = note_plain }, NULL) == -1 &&
		errno == EINVAL);
	MUST(sigaction(0, NULL, NULL) == -1 && errno == EINVAL);
	MUST(sigaction(65, NULL, NULL) == -1 && errno == EINVAL);
	return 0;
}

static void sigaction_reports_what_the_kernel_would(void **state)
{
	assert_true(exited(in_child(reports_equal_libcs), 0));
}

typedef __sighandler_t handler_fn(int, __sighandler_t);

static void same_setting(const char *name, handler_fn *ours, int sig)
{
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	handler_fn *theirs = (handler_fn *)dlsym(libc, name);
	sigaction_fn *real = (sigaction_fn *)dlsym(libc, "sigaction");
	struct sigaction a, b;

	MUST(theirs && theirs != ours);
	MUST(ours(sig, note_plain) == SIG_DFL);
	MUST(!sigaction(sig, NULL, &a));
	MUST(!sigaction(sig, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL));
	/* For comparison on a signal that is libc's alone. */
	MUST(theirs(SIGUSR2, note_plain) == SIG_DFL);
	MUST(!real(SIGUSR2, NULL, &b));
	MUST(!real(SIGUSR2, &(struct sigaction){ .sa_handler = SIG_DFL }, NULL));
	if (sigismember(&b.sa_mask, SIGUSR2)) {
		sigdelset(&b.sa_mask, SIGUSR2);
		sigaddset(&b.sa_mask, sig);
	}
	MUST(a.sa_handler == b.sa_handler && a.sa_flags == b.sa_flags);
	MUST(!memcmp(&a.sa_mask, &b.sa_mask, 8));
	MUST(ours(sig, SIG_ERR) == SIG_ERR && errno == EINVAL);
	MUST(ours(0, SIG_DFL) == SIG_ERR && errno == EINVAL);
	MUST(ours(65, SIG_DFL) == SIG_ERR && errno == EINVAL);
}

__sighandler_t bsd_signal(int sig, __sighandler_t handler);

static int all_the_names(void)
{
	sigset_t blocked;

	MUST(!sigchain_install());
	same_setting("signal", signal, SIGSEGV);
	same_setting("ssignal", ssignal, SIGBUS);
	same_setting("bsd_signal", bsd_signal, SIGSEGV);
	same_setting("sysv_signal", sysv_signal, SIGSEGV);
	same_setting("__sysv_signal", __sysv_signal, SIGBUS);
	same_setting("sigset", sigset, SIGSEGV);
	same_setting("signal", signal, SIGUSR1);
	/* siginterrupt() speaks for later calls of signal() too. */
	MUST(signal(SIGSEGV, note_plain) == SIG_DFL && !siginterrupt(SIGSEGV, 1));
	struct sigaction a;
	MUST(!sigaction(SIGSEGV, NULL, &a) && !(a.sa_flags & SA_RESTART) && a.sa_handler == note_plain);
	MUST(signal(SIGSEGV, jump_plain) == note_plain);
	MUST(!sigaction(SIGSEGV, NULL, &a) && !(a.sa_flags & SA_RESTART));
	MUST(!siginterrupt(SIGSEGV, 0));
	MUST(!sigaction(SIGSEGV, NULL, &a) && (a.sa_flags & SA_RESTART));
	MUST(siginterrupt(0, 1) == -1 && errno == EINVAL);
	/* sigset() holds and releases. */
	MUST(sigset(SIGSEGV, SIG_HOLD) == jump_plain);
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	MUST(sigismember(&blocked, SIGSEGV));
	MUST(sigset(SIGSEGV, note_plain) == SIG_HOLD);
	sigprocmask(SIG_BLOCK, NULL, &blocked);
	MUST(!sigismember(&blocked, SIGSEGV));
	MUST(!sigignore(SIGSEGV) && signal(SIGSEGV, SIG_DFL) == SIG_IGN);
	MUST(copies_survive());
	return 0;
}

static void all_ways_to_set_a_handler_do_what_libcs_do(void **state)
{
	assert_true(exited(in_child(all_the_names), 0));
}

static int taken_and_retaken(void)
{
	sigaction_fn *libc = (sigaction_fn *)dlsym(dlopen("libc.so.6", RTLD_NOW), "sigaction");
	struct sigaction act = { .sa_sigaction = note_and_jump, .sa_flags = SA_SIGINFO }, now;

	MUST(!sigchain_install());
	MUST(!libc(SIGSEGV, &act, NULL));
	MUST(!sigchain_install());
	MUST(sigchain_installed());
	MUST(copies_survive());
	MUST(!calls);
	MUST(!sigaction(SIGSEGV, NULL, &now) && now.sa_sigaction == note_and_jump);
	MUST(fault_and_return());
	MUST(calls == 1);
	return 0;
}

static void a_place_taken_behind_our_back_is_taken_back(void **state)
{
	assert_true(exited(in_child(taken_and_retaken), 0));
}

/* ---- Threads ---- */

static void *copy_into_nowhere(void *arg)
{
	unsigned char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char from[64] = { 0 };

	mprotect(p + PAGE, PAGE, PROT_NONE);
	while (!atomic_load(&copying_stops))
		if (safecopy_to_user(SAFECOPY_FIXUP, p + PAGE - 20, from, 64, NULL) != 20)
			return (void *)1;
	return NULL;
}

static int both_kinds(void)
{
	pthread_t thread;
	void *bad;

	MUST(!sigchain_install());
	if (safecopy_path() != SAFECOPY_FIXUP)
		return 0;
	set(SIGSEGV, note_and_jump, 0);
	pthread_create(&thread, NULL, copy_into_nowhere, NULL);
	for (int i = 0; i < 2000; i++)
		MUST(fault_and_return());
	atomic_store(&copying_stops, true);
	pthread_join(thread, &bad);
	MUST(!bad && calls == 2000);
	return 0;
}

static void faults_of_the_application_and_of_copies_do_not_mix(void **state)
{
	assert_true(exited(in_child(both_kinds), 0));
}

static void *set_for_ever(void *handler)
{
	struct sigaction act = { .sa_handler = (__sighandler_t)handler }, old;

	memset(&act.sa_mask, (int)(uintptr_t)handler & 0x7f, 8);
	while (!atomic_load(&copying_stops)) {
		sigaction(SIGBUS, &act, &old);
		/* Whatever is reported was set as a whole. */
		if (old.sa_handler != SIG_DFL &&
			(((unsigned char *)&old.sa_mask)[4] & 0x7f) != ((uintptr_t)old.sa_handler & 0x7f))
			return (void *)1;
	}
	return NULL;
}

static int set_by_many(void)
{
	pthread_t thread[3];
	void *bad;

	MUST(!sigchain_install());
	pthread_create(&thread[0], NULL, set_for_ever, (void *)note_plain);
	pthread_create(&thread[1], NULL, set_for_ever, (void *)jump_plain);
	pthread_create(&thread[2], NULL, set_for_ever, (void *)_exit);
	for (int i = 0; i < 1000; i++)
		MUST(copies_survive());
	atomic_store(&copying_stops, true);
	for (int i = 0; i < 3; i++) {
		pthread_join(thread[i], &bad);
		MUST(!bad);
	}
	return 0;
}

static void threads_may_set_handlers_at_the_same_time(void **state)
{
	assert_true(exited(in_child(set_by_many), 0));
}

/* ---- What a core dump would show: the last stop before death, seen by a tracer ---- */

static int traced_fault(void)
{
	MUST(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	MUST(!sigchain_install());
	fault();
	return 0;
}

static void the_core_dump_shows_the_fault_and_not_us(void **state)
{
#if defined(__x86_64__)
	const struct rlimit no_core = { 0, 0 };
	siginfo_t info = { 0 };
	struct user_regs_struct regs;
	int status, stops = 0;
	pid_t pid;

	nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid = fork();
	if (!pid) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGSEGV, SIG_DFL);
		alarm(20);
		_exit(traced_fault());
	}
	while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		assert_int_equal(WSTOPSIG(status), SIGSEGV);
		assert_int_equal(ptrace(PTRACE_GETSIGINFO, pid, NULL, &info), 0);
		assert_int_equal(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0);
		stops++;
		ptrace(PTRACE_CONT, pid, NULL, (void *)(long)SIGSEGV);
	}
	assert_true(killed(status, SIGSEGV));
	/* Once for our handler, once for the default action. */
	assert_int_equal(stops, 2);
	assert_int_equal(info.si_code, SEGV_ACCERR);
	assert_ptr_equal(info.si_addr, nowhere + 123);
	assert_ptr_equal((void *)regs.rip, poke_at);
	assert_int_equal(regs.rdi, nowhere + 123);
#else
	skip();
#endif
}

/* ---- The first process of a container ---- */

static int as_init(void)
{
	int status;
	pid_t pid = (pid_t)syscall(SYS_clone, 0x20000000 /* CLONE_NEWPID */ | SIGCHLD, 0, 0, 0, 0);

	if (pid < 0)
		return 77;
	if (!pid) {
		MUST(getpid() == 1);
		MUST(!sigchain_install());
		/* The kernel does not send its init what it does not handle. */
		kill(getpid(), SIGSEGV);
		MUST(copies_survive());
		fault();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return killed(status, SIGSEGV) ? 0 : 1;
}

static void the_first_process_of_a_container_ignores_what_is_sent_and_dies_of_faults(void **state)
{
	int status = in_child(as_init);

	if (exited(status, 77)) {
		print_message("no right to make a process namespace\n");
		skip();
	}
	assert_true(exited(status, 0));
}

static int forked(void)
{
	int status;
	pid_t pid;

	MUST(!sigchain_install());
	set(SIGSEGV, note_and_jump, 0);
	pid = fork();
	if (!pid) {
		MUST(sigchain_installed());
		MUST(copies_survive());
		MUST(fault_and_return());
		MUST(calls == 1);
		_exit(9);
	}
	waitpid(pid, &status, 0);
	return exited(status, 9) ? 0 : 1;
}

static void a_forked_child_is_as_well_off(void **state)
{
	assert_true(exited(in_child(forked), 0));
}

/* As those do that start a program: everything is put back before the exec. */
static int reset_by_a_child_in_our_memory(void)
{
	struct sigaction now;
	int status;
	pid_t pid;

	set(SIGSEGV, note_and_jump, 0);
	MUST(!sigchain_install());
	set_plain(SIGBUS, note_plain, 0);
	pid = vfork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_IGN);
		sigaction(SIGSEGV, NULL, &now);
		_exit(now.sa_handler == SIG_DFL ? 0 : 3);
	}
	MUST(waitpid(pid, &status, 0) == pid && exited(status, 0));
	MUST(!sigaction(SIGBUS, NULL, &now) && now.sa_handler == note_plain);
	MUST(fault_and_return());
	check_noted_fault();
	return 0;
}

static int asked_by_a_child_in_our_memory(void)
{
	struct sigaction now;
	int status;
	pid_t pid;

	set(SIGSEGV, note_and_jump, 0);
	MUST(!sigchain_install());
	pid = vfork();
	if (!pid) {
		sigaction(SIGSEGV, NULL, &now);
		_exit(now.sa_sigaction == note_and_jump ? 0 : 3);
	}
	MUST(waitpid(pid, &status, 0) == pid && exited(status, 0));
	return 0;
}

static void a_child_that_shares_the_memory_keeps_its_actions_to_itself(void **state)
{
	assert_true(exited(in_child(reset_by_a_child_in_our_memory), 0));
	assert_true(exited(in_child(asked_by_a_child_in_our_memory), 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_applications_handler_gets_its_faults),
		cmocka_unit_test(a_fault_without_a_handler_kills_with_its_own_signal),
		cmocka_unit_test(a_handler_that_resets_itself_is_called_once),
		cmocka_unit_test(a_handler_may_fault_itself_only_if_it_asked_for_that),
		cmocka_unit_test(jumping_out_of_the_handler_leaves_the_right_mask),
		cmocka_unit_test(a_handler_may_mend_and_return),
		cmocka_unit_test(a_signal_that_was_sent_is_the_applications),
		cmocka_unit_test(a_signal_sent_into_a_copy_does_not_end_it),
		cmocka_unit_test(system_calls_restart_as_the_application_asked),
		cmocka_unit_test(the_handler_runs_on_the_stack_it_asked_for),
		cmocka_unit_test(sigaction_reports_what_the_kernel_would),
		cmocka_unit_test(all_ways_to_set_a_handler_do_what_libcs_do),
		cmocka_unit_test(a_place_taken_behind_our_back_is_taken_back),
		cmocka_unit_test(faults_of_the_application_and_of_copies_do_not_mix),
		cmocka_unit_test(threads_may_set_handlers_at_the_same_time),
		cmocka_unit_test(the_core_dump_shows_the_fault_and_not_us),
		cmocka_unit_test(the_first_process_of_a_container_ignores_what_is_sent_and_dies_of_faults),
		cmocka_unit_test(a_forked_child_is_as_well_off),
		cmocka_unit_test(a_child_that_shares_the_memory_keeps_its_actions_to_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

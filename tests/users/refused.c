/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Refused is not absent. For each system call, and part of one, that the library uses, a program runs without
 * it: once the kernel says EPERM, as the filter of a container does, and once ENOSYS, as an older kernel
 * does. Two processes move data to and from pinned and on-demand memory, sleep on an event, fork, and one is
 * killed. Either all of that works, or the first thing that fails is named by a message of the library.
 * Nobody waits for ever, and nobody spins.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

#define LENGTH	  (64 * PAGE)
#define MOST_TIME 15 /* seconds; what hangs is ended then, before pair.h gives up waiting */

/* A system call, or of those with an argument of this value only: which one (1 to 6), 0 for none. */
struct refusal {
	const char *name;
	int nr, arg;
	unsigned value;
	bool may_fail;	     /* nothing can take its place: a message is enough */
	const char *disable; /* UNPIN_DISABLE */
	int also;	     /* another system call, or 0 */
};

#define CALL(name)                                                                                           \
	{                                                                                                    \
#name, SYS_##name, 0, 0, false, NULL, 0                                                      \
	}
#define PART(name, arg, value, what)                                                                         \
	{                                                                                                    \
		what, SYS_##name, arg, value, false, NULL, 0                                                 \
	}
#define NEEDED(name)                                                                                         \
	{                                                                                                    \
#name, SYS_##name, 0, 0, true, NULL, 0                                                       \
	}
#define NEEDED_PART(name, arg, value, what)                                                                  \
	{                                                                                                    \
		what, SYS_##name, arg, value, true, NULL, 0                                                  \
	}
#define INSTEAD(name, of, may_fail)                                                                          \
	{                                                                                                    \
#name " in place of " of, SYS_##name, 0, 0, may_fail, of, 0                                  \
	}

static const struct refusal refusals[] = {
	/* The engine and the wire. */
	PART(epoll_pwait2, 0, 0, "epoll_pwait2"),
	NEEDED(epoll_create1),
	CALL(epoll_pwait),
	NEEDED(eventfd2),
	NEEDED(timerfd_create),
	NEEDED(timerfd_settime),
	NEEDED(memfd_create),
	NEEDED(ftruncate),
	NEEDED(fstatfs),
	CALL(fallocate),
	NEEDED(socket),
	PART(socket, 1, 16, "netlink"),
	NEEDED(bind),
	NEEDED(listen),
	NEEDED(connect),
	NEEDED(accept4),
	NEEDED(getsockopt),
	PART(getsockopt, 3, 77, "SO_PEERPIDFD"),
	CALL(pidfd_open),
	{ "SO_PEERPIDFD, and pidfd_open", SYS_getsockopt, 3, 77, false, NULL, SYS_pidfd_open },
	CALL(ppoll),
	{ "epoll_pwait2, and ppoll", SYS_epoll_pwait2, 0, 0, false, NULL, SYS_ppoll },
	{ "epoll_pwait2, and epoll_pwait", SYS_epoll_pwait2, 0, 0, true, NULL, SYS_epoll_pwait },
	NEEDED(epoll_ctl),
	NEEDED(sendmsg),
	NEEDED(recvmsg),
	NEEDED(sendto),
	NEEDED(recvfrom),
	CALL(shutdown),
	CALL(pidfd_send_signal),
	CALL(sched_getattr),
	CALL(sched_setattr),
	CALL(sched_yield),
	CALL(getrandom),
	CALL(prlimit64),
	NEEDED(clone3),
	/* Memory. */
	CALL(io_uring_setup),
	CALL(io_uring_enter),
	CALL(io_uring_register),
	CALL(process_vm_readv),
	CALL(process_vm_writev),
	CALL(userfaultfd),
	CALL(membarrier),
	CALL(capget),
	CALL(preadv2),
	CALL(readlinkat),
	CALL(ioctl),
	PART(ioctl, 2, 0xc0606610, "PAGEMAP_SCAN"),
	PART(ioctl, 2, 0xc0686611, "PROCMAP_QUERY"),
	NEEDED(madvise),
	PART(madvise, 3, 22, "MADV_POPULATE_READ"),
	PART(madvise, 3, 23, "MADV_POPULATE_WRITE"),
	NEEDED_PART(madvise, 3, 18, "MADV_WIPEONFORK"),
	NEEDED_PART(madvise, 3, 10, "MADV_DONTFORK"),
	/* What takes the place of something else. */
	INSTEAD(mlock, "io_uring", true),
	INSTEAD(msync, "io_uring", false),
	INSTEAD(mincore, "pagemap_scan,pagemap", false),
	INSTEAD(ioctl, "populate", false),
	INSTEAD(process_vm_readv, "populate", false),
	/* Signals. */
	CALL(rt_tgsigqueueinfo),
	CALL(sigaltstack),
};

/* --- the program that runs without it --- */

static void refuse(const struct refusal *r, int err)
{
	unsigned skip = r->arg ? 3 : 1;
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)r->nr, 0, (unsigned char)skip),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			offsetof(struct seccomp_data, args[r->arg ? r->arg - 1 : 0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, r->value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(f), f };

	if (!r->arg) {
		f[2] = f[4];
		f[3] = f[5];
	}
	check_sys(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	check_sys(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static double cpu_seconds(void)
{
	struct rusage u;

	check_sys(getrusage(RUSAGE_SELF, &u) == 0);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

struct offer {
	struct window pinned, on_demand;
};

/* Cold memory, some of which can only be read, between mappings of other kinds. */
static char *cold(void)
{
	char *memory = fresh(LENGTH);

	check_sys(!mprotect(memory + LENGTH / 2, PAGE, PROT_READ));
	return memory;
}

static void serve(int sock, void *arg)
{
	struct options opt = {
		.retry_set = true, .retry_cnt = 1, .rnr_retry = 7, .timeout = 10, .events = true
	};
	struct ibv_mr *pinned, *on_demand;
	struct ibv_cq *cq;
	struct offer offer;
	struct end e;
	void *context;

	(void)arg;
	/* Whom it serves may end with what a filter made fail. prctl is not among the calls that are refused.
	 */
	check_sys(!prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
	end_open(&e, &opt);
	pinned = reg(&e, fresh(LENGTH), LENGTH, REMOTE);
	on_demand = reg(&e, cold(), LENGTH, REMOTE | ODP);
	offer = (struct offer){ window_of(pinned), window_of(on_demand) };
	exchange(&e, sock);
	check_int(ibv_req_notify_cq(e.cq, 0), 0);
	post_recv(&e, pinned, pinned->addr, 8);
	tell(sock, &offer, sizeof(offer));
	/* Asleep until the SEND comes. */
	check_int(ibv_get_cq_event(e.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	wait_for(&e, IBV_WC_SUCCESS);
	tell(sock, "", 1);
	for (;;)
		pause();
}

static void move(struct end *e, struct ibv_mr *here, const struct window *w)
{
	char *mine = here->addr;

	for (size_t at = 0; at < LENGTH; at += LENGTH / 4) {
		uint64_t there = w->addr + at + (at == LENGTH / 2) * PAGE;

		fill(mine, PAGE, (unsigned)at + 1);
		post(e, IBV_WR_RDMA_WRITE, here, mine, PAGE, (void *)(uintptr_t)there, w->rkey);
		wait_for(e, IBV_WC_SUCCESS);
		memset(mine, 0, PAGE);
		post(e, IBV_WR_RDMA_READ, here, mine, PAGE, (void *)(uintptr_t)there, w->rkey);
		wait_for(e, IBV_WC_SUCCESS);
		check_filled(mine, PAGE, (unsigned)at + 1);
	}
}

/* A hole is an error, and what is mapped beside it is not. */
static void look_for_holes(void)
{
	char *memory = fresh_apart(4 * PAGE), *mine = fresh(PAGE);
	struct ibv_mr *here, *there;
	struct pair p;

	drop(memory + PAGE, PAGE);
	check_sys(!mprotect(memory + 2 * PAGE, PAGE, PROT_READ));
	pair_open(&p, NULL);
	here = reg(&p.a, mine, PAGE, LOCAL | ODP);
	there = reg(&p.b, memory, 4 * PAGE, REMOTE | ODP);
	fill(mine, 64, 3);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 64, memory, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	post(&p.a, IBV_WR_RDMA_READ, here, mine, 64, memory + 2 * PAGE, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	check_zero(mine, 64);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 64, memory + 3 * PAGE, there->rkey);
	wait_for(&p.a, IBV_WC_SUCCESS);
	post(&p.a, IBV_WR_RDMA_WRITE, here, mine, 64, memory + PAGE, there->rkey);
	wait_for(&p.a, IBV_WC_REM_ACCESS_ERR);
	dereg(here);
	dereg(there);
	pair_close(&p);
}

static void all_of_it(void)
{
	struct options opt = { .retry_set = true, .retry_cnt = 1, .rnr_retry = 7, .timeout = 10 };
	struct peer peer = peer_start(serve, NULL);
	struct ibv_mr *here, *on_demand;
	struct offer offer;
	struct end e;
	double before;
	char word;
	pid_t child;
	int status;

	end_open(&e, &opt);
	here = reg(&e, fresh(PAGE), PAGE, LOCAL);
	on_demand = reg(&e, fresh(PAGE), PAGE, LOCAL | ODP);
	exchange(&e, peer.sock);
	hear(peer.sock, &offer, sizeof(offer));
	move(&e, here, &offer.pinned);
	move(&e, on_demand, &offer.on_demand);
	before = cpu_seconds();
	nap(200);
	check(cpu_seconds() - before < 0.1);
	child = fork();
	check_sys(child >= 0);
	if (!child)
		_exit(0);
	check_sys(waitpid(child, &status, 0) == child);
	check_int(status, 0);
	move(&e, on_demand, &offer.on_demand);
	post(&e, IBV_WR_SEND, here, here->addr, 8, NULL, 0);
	wait_for(&e, IBV_WC_SUCCESS);
	hear(peer.sock, &word, 1);
	kill(peer.pid, SIGKILL);
	check_sys(waitpid(peer.pid, &status, 0) == peer.pid);
	post(&e, IBV_WR_RDMA_WRITE, here, here->addr, PAGE, (void *)(uintptr_t)offer.pinned.addr,
		offer.pinned.rkey);
	wait_for(&e, IBV_WC_RETRY_EXC_ERR);
	dereg(here);
	dereg(on_demand);
	end_close(&e);
	look_for_holes();
}

/* --- one after the other --- */

/* The program again, from its beginning: what the library does as it is loaded is refused as well. */
static pid_t start(const struct refusal *r, int err, int log)
{
	char number[16];
	pid_t pid = fork();

	check_sys(pid >= 0);
	if (pid)
		return pid;
	snprintf(number, sizeof(number), "%d", err);
	dup2(log, 1);
	dup2(log, 2);
	if (r->disable)
		setenv("UNPIN_DISABLE", r->disable, 1);
	if (r->also)
		refuse(&(struct refusal){ .nr = r->also }, err);
	if (r->nr >= 0)
		refuse(r, err);
	else
		setenv("REFUSED_ROOT", "1", 1);
	execl("/proc/self/exe", "refused", "--without", r->name, number, (char *)NULL);
	_exit(127);
}

static void print_log(int log)
{
	char text[4096];
	ssize_t n = pread(log, text, sizeof(text), 0);

	if (n > 0)
		fwrite(text, 1, (size_t)n, stderr);
}

/* Something of the library's beside notes. */
static bool says_something(int log)
{
	char text[16384];
	ssize_t n = pread(log, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return strstr(text, "unpin: warn") || strstr(text, "unpin: error");
}

static bool goes_well(const struct refusal *r, int err)
{
	int log = (int)syscall(SYS_memfd_create, "log", MFD_CLOEXEC), status = 0;
	double end = now() + MOST_TIME;
	const char *fault = NULL;
	pid_t pid;

	check_sys(log >= 0);
	pid = start(r, err, log);
	while (waitpid(pid, &status, WNOHANG) != pid) {
		nap(2);
		if (now() < end)
			continue;
		kill(pid, SIGKILL);
		check_sys(waitpid(pid, &status, 0) == pid);
		fault = "does not end";
		break;
	}
	if (!fault && WIFSIGNALED(status))
		fault = "was killed";
	else if (!fault && status && !r->may_fail)
		fault = "does not work";
	else if (!fault && status && !says_something(log))
		fault = "does not say what is missing";
	if (fault || getenv("REFUSED_VERBOSE")) {
		fprintf(stderr, "without %s (%s) the program %s, %.1f s\n", r->name, strerrorname_np(err),
			fault	 ? fault
			: status ? "says what is missing"
				 : "works",
			now() - (end - MOST_TIME));
		print_log(log);
	}
	close(log);
	check_goes_on();
	return !fault;
}

static void try_all(int err)
{
	unsigned faults = 0;
	pid_t probe = fork();
	int status;

	if (!probe) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
			_exit(1);
		refuse(&refusals[0], err);
		_exit(0);
	}
	check_sys(waitpid(probe, &status, 0) == probe);
	if (status)
		check_skip("filters of system calls are refused");
	for (size_t i = 0; i < COUNT(refusals); i++)
		faults += !goes_well(&refusals[i], err);
	check_int(faults, 0);
}

static void what_a_filter_forbids(void)
{
	try_all(EPERM);
}

static void what_the_kernel_does_not_have(void)
{
	try_all(ENOSYS);
}

/* --- a root directory with nothing in it --- */

static const struct refusal no_root[] = {
	{ "an empty root directory", -1, 0, 0, false, NULL, 0 },
	{ "an empty root directory and io_uring", -1, 0, 0, false, "io_uring", 0 },
	{ "an empty root directory and populate", -1, 0, 0, false, "populate", 0 },
};

static void without_proc_and_dev(void)
{
	unsigned faults = 0;

	if (geteuid())
		check_skip("needs root");
	for (size_t i = 0; i < COUNT(no_root); i++)
		faults += !goes_well(&no_root[i], 0);
	check_int(faults, 0);
}

/* The library is loaded, and nothing of it has been used yet. */
static void leave_everything(void)
{
	char path[] = "/tmp/unpin-refused-XXXXXX";

	check_sys(mkdtemp(path) && !chdir(path) && !rmdir(path) && !chroot("."));
	check_sys(access("/proc", F_OK) < 0 && access("/dev/null", F_OK) < 0);
}

static void one_without(void)
{
	if (getenv("REFUSED_ROOT"))
		leave_everything();
	all_of_it();
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(what_a_filter_forbids),
		CASE(what_the_kernel_does_not_have),
		CASE(without_proc_and_dev),
	};
	if (argc == 4 && !strcmp(argv[1], "--without")) {
		one_without();
		return 0;
	}
	return check_main(cases, COUNT(cases), argc, argv);
}

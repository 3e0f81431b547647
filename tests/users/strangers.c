/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Who may reach whom: processes of one user, on one device name, in one network namespace; whatever their
 * user and pid namespaces, whoever has taken their names, and whoever they have become since they opened the
 * device.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum stranger { OTHER_USER, OTHER_NAMESPACE, OTHER_DEVICE, FRIEND };

/* Tries one SEND to the other side and says what became of it. */
static void reach(int sock, void *arg)
{
	struct options opt = { .retry_set = true, .retry_cnt = 1, .rnr_retry = 1, .timeout = 10 };
	enum ibv_wc_status status;
	struct address mine, theirs;
	struct end e;

	switch (*(enum stranger *)arg) {
	case OTHER_USER:
		check_sys(setgid(65534) == 0 && setuid(65534) == 0);
		check_sys(prctl(PR_SET_DUMPABLE, 1) == 0);
		break;
	case OTHER_NAMESPACE:
		check_sys(unshare(CLONE_NEWNET) == 0);
		break;
	case OTHER_DEVICE:
		setenv("UNPIN_DEVICE", "elsewhere", 1);
		break;
	default:
		break;
	}
	end_open(&e, &opt);
	mine = end_address(&e);
	tell(sock, &mine, sizeof(mine));
	hear(sock, &theirs, sizeof(theirs));
	end_connect(&e, &theirs);
	meet(sock);
	post(&e, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	status = wait_any(&e).status;
	tell(sock, &status, sizeof(status));
	end_close(&e);
}

static void check_reach(enum stranger who, enum ibv_wc_status want)
{
	struct peer peer;
	struct address mine, theirs;
	enum ibv_wc_status status;
	struct ibv_wc wc;
	struct end e;

	if (geteuid() && (who == OTHER_USER || who == OTHER_NAMESPACE))
		check_skip("needs root");
	peer = peer_start(reach, &who);
	end_open(&e, NULL);
	post_recv(&e, NULL, NULL, 0);
	mine = end_address(&e);
	hear(peer.sock, &theirs, sizeof(theirs));
	tell(peer.sock, &mine, sizeof(mine));
	end_connect(&e, &theirs);
	meet(peer.sock);
	hear(peer.sock, &status, sizeof(status));
	if (status != want)
		check_failed(
			__FILE__, __LINE__, "%s, not %s", ibv_wc_status_str(status), ibv_wc_status_str(want));
	check_int(poll_for(&e, &wc, want == IBV_WC_SUCCESS ? 1000 : 50), want == IBV_WC_SUCCESS);
	peer_done(&peer);
	end_close(&e);
}

static void a_process_of_the_same_user_reaches_it(void)
{
	check_reach(FRIEND, IBV_WC_SUCCESS);
}

static void another_user_does_not(void)
{
	check_reach(OTHER_USER, IBV_WC_RETRY_EXC_ERR);
}

static void another_network_namespace_does_not(void)
{
	check_reach(OTHER_NAMESPACE, IBV_WC_RETRY_EXC_ERR);
}

static void another_device_does_not(void)
{
	check_reach(OTHER_DEVICE, IBV_WC_RETRY_EXC_ERR);
}

/* --- two processes that are not as this one --- */

enum what { A_PID_NAMESPACE = 1, NO_MAP = 2, NEW_USER_LATER = 4 };

/* Beside the statuses of completions: the peer cannot even be connected to. */
#define UNREACHABLE ((enum ibv_wc_status)1000)

struct person {
	uid_t uid; /* 0: as the test */
	unsigned what;
	bool sends;
};

static void become(uid_t uid)
{
	check_sys(setgid(uid) == 0 && setuid(uid) == 0);
	check_sys(prctl(PR_SET_DUMPABLE, 1) == 0);
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	check_sys(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* The rest of the process runs in a pid namespace of its own, in a child; this one waits for it. */
static void enter_pid_namespace(void)
{
	uid_t uid = geteuid();
	char map[64];
	int status;
	pid_t pid;

	check_sys(unshare(CLONE_NEWPID | (uid ? CLONE_NEWUSER : 0)) == 0);
	if (uid) {
		snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
		write_text("/proc/self/uid_map", map);
	}
	pid = fork();
	check_sys(pid >= 0);
	if (!pid) {
		check_sys(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
		return;
	}
	check_sys(waitpid(pid, &status, 0) == pid);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void live(int sock, void *arg)
{
	struct options opt = { .retry_set = true, .retry_cnt = 1, .rnr_retry = 7, .timeout = 10 };
	const struct person *p = arg;
	enum ibv_wc_status status;
	struct address mine, theirs;
	struct ibv_wc wc;
	struct end e;
	char go;
	int err;

	if (p->uid && !(p->what & NEW_USER_LATER))
		become(p->uid);
	if (p->what & NO_MAP)
		check_sys(unshare(CLONE_NEWUSER) == 0);
	if (p->what & A_PID_NAMESPACE)
		enter_pid_namespace();
	end_open(&e, &opt);
	if (!p->sends)
		post_recv(&e, NULL, NULL, 0);
	if (p->what & NEW_USER_LATER)
		become(p->uid);
	mine = end_address(&e);
	tell(sock, &mine, sizeof(mine));
	hear(sock, &theirs, sizeof(theirs));
	err = end_try_connect(&e, &theirs);
	tell(sock, "", 1);
	hear(sock, &go, 1);
	if (err) {
		status = err == EHOSTUNREACH ? UNREACHABLE : IBV_WC_GENERAL_ERR;
		tell(sock, &status, sizeof(status));
	} else if (p->sends) {
		post(&e, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
		status = wait_any(&e).status;
		tell(sock, &status, sizeof(status));
	} else if (poll_for(&e, &wc, 1000 * WAIT_SECONDS)) {
		status = wc.status;
		tell(sock, &status, sizeof(status));
	}
	pause();
}

/* One sends to the other. Returns what becomes of the request; *there is what the receiver gets, unless it
 * is NULL. */
static enum ibv_wc_status send_between(struct person from, struct person to, enum ibv_wc_status *there)
{
	struct peer a, b;
	struct address of_a, of_b;
	enum ibv_wc_status here;
	char ready;

	from.sends = true;
	to.sends = false;
	a = peer_start(live, &from);
	b = peer_start(live, &to);
	hear(a.sock, &of_a, sizeof(of_a));
	hear(b.sock, &of_b, sizeof(of_b));
	tell(a.sock, &of_b, sizeof(of_b));
	tell(b.sock, &of_a, sizeof(of_a));
	hear(a.sock, &ready, 1);
	hear(b.sock, &ready, 1);
	tell(b.sock, "", 1);
	tell(a.sock, "", 1);
	hear(a.sock, &here, sizeof(here));
	if (there)
		hear(b.sock, there, sizeof(*there));
	kill(a.pid, SIGKILL);
	kill(b.pid, SIGKILL);
	peer_wait(&a);
	peer_wait(&b);
	return here;
}

static void check_status(enum ibv_wc_status got, enum ibv_wc_status want)
{
	if (got != want)
		check_failed(
			__FILE__, __LINE__, "%s, not %s", ibv_wc_status_str(got), ibv_wc_status_str(want));
}

static void check_they_meet(struct person from, struct person to)
{
	enum ibv_wc_status there;

	check_status(send_between(from, to, &there), IBV_WC_SUCCESS);
	check_status(there, IBV_WC_SUCCESS);
}

static bool can_unshare(int what)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(unshare(what) ? 1 : 0);
	check_sys(waitpid(pid, &status, 0) == pid);
	return !status;
}

static void need_namespaces(bool as_root, int what)
{
	if (as_root && geteuid())
		check_skip("needs root");
	if (!can_unshare(what | (geteuid() ? CLONE_NEWUSER : 0)))
		check_skip("unshare is refused");
}

/* Linux 6.9: pidfds are files of a file system of their own, whose inodes tell processes apart. */
static bool pidfds_have_numbers(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct statfs fs;
	bool yes = fd >= 0 && !fstatfs(fd, &fs) && fs.f_type == 0x50494446;

	if (fd >= 0)
		close(fd);
	return yes;
}

static void two_pid_namespaces(struct person from, struct person to)
{
	need_namespaces(false, CLONE_NEWPID);
	if (pidfds_have_numbers())
		check_they_meet(from, to);
	else
		check_skip("before Linux 6.9 they cannot meet");
}

static void pid_namespaces_that_hide_each_other(void)
{
	two_pid_namespaces(
		(struct person){ .what = A_PID_NAMESPACE }, (struct person){ .what = A_PID_NAMESPACE });
}

/* An option of getsockopt that the kernel does not have yet. */
static void hide_peerpidfd(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 77, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(f), f };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		check_skip("filters of system calls are refused");
}

/* As before Linux 6.5: nobody waits, whichever of the two cannot see the other. */
static void pid_namespaces_on_an_older_kernel(void)
{
	const struct person out = { 0 }, in = { .what = A_PID_NAMESPACE };
	enum ibv_wc_status there;

	need_namespaces(false, CLONE_NEWPID);
	hide_peerpidfd();
	check_int(send_between(in, in, &there), UNREACHABLE);
	check_int(there, UNREACHABLE);
	check_int(send_between(in, out, NULL), UNREACHABLE);
	check_int(send_between(out, in, &there), IBV_WC_RETRY_EXC_ERR);
	check_int(there, UNREACHABLE);
}

static void a_pid_namespace_and_the_one_around_it(void)
{
	two_pid_namespaces((struct person){ .what = A_PID_NAMESPACE }, (struct person){ 0 });
	two_pid_namespaces((struct person){ 0 }, (struct person){ .what = A_PID_NAMESPACE });
}

/* To the namespace both have number 65534. */
static void two_users_without_a_number(void)
{
	need_namespaces(true, CLONE_NEWUSER);
	check_status(send_between((struct person){ .uid = 1001, .what = NO_MAP },
			     (struct person){ .uid = 1002, .what = NO_MAP }, NULL),
		IBV_WC_RETRY_EXC_ERR);
}

static void one_user_without_a_number(void)
{
	need_namespaces(true, CLONE_NEWUSER);
	check_they_meet((struct person){ .uid = 1001, .what = NO_MAP },
		(struct person){ .uid = 1001, .what = NO_MAP });
}

static void two_that_drop_their_privileges_later(void)
{
	struct person p = { .uid = 65534, .what = NEW_USER_LATER };

	if (geteuid())
		check_skip("needs root");
	check_they_meet(p, p);
	check_they_meet(p, (struct person){ 0 });
	check_they_meet((struct person){ 0 }, p);
}

/* Who opened as one user is not reached by another who is now what it has become. */
static void dropped_privileges_are_no_bridge(void)
{
	if (geteuid())
		check_skip("needs root");
	check_status(send_between((struct person){ .uid = 65534 },
			     (struct person){ .uid = 65534, .what = NEW_USER_LATER }, NULL),
		IBV_WC_RETRY_EXC_ERR);
}

static void a_process_reaches_itself_as_another_user(void)
{
	struct pair p;
	struct end *ends[] = { &p.a, &p.b };
	struct address at[2];

	if (geteuid())
		check_skip("needs root");
	for (int i = 0; i < 2; i++) {
		memset(ends[i], 0, sizeof(*ends[i]));
		end_open(ends[i], NULL);
	}
	become(65534);
	for (int i = 0; i < 2; i++)
		at[i] = end_address(ends[i]);
	end_connect(&p.a, &at[1]);
	end_connect(&p.b, &at[0]);
	post_recv(&p.b, NULL, NULL, 0);
	post(&p.a, IBV_WR_SEND, NULL, NULL, 0, NULL, 0);
	wait_for(&p.a, IBV_WC_SUCCESS);
	wait_for(&p.b, IBV_WC_SUCCESS);
}

/* --- somebody who takes our names --- */

/* All that can be known beforehand, and some that look like those that cannot. */
static void squat(int sock, void *arg)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct rlimit limit;
	uid_t victim = geteuid();
	char ready = 0;

	(void)arg;
	check_sys(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	check_sys(!setrlimit(RLIMIT_NOFILE, &limit));
	become(65534);
	for (int slot = 1; slot < 4096; slot++) {
		for (int more = 0; more < 2; more++) {
			int len = snprintf(addr.sun_path + 1, sizeof(addr.sun_path) - 1,
				more ? "unpin/%u/squatted/%d/0123456789abcdef" : "unpin/%u/squatted/%d",
				(unsigned)victim, slot);
			int s = socket(AF_UNIX, SOCK_SEQPACKET, 0);

			check_sys(s >= 0);
			check_sys(!bind(s, (void *)&addr,
				(socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)));
			check_sys(!listen(s, 0));
		}
	}
	tell(sock, &ready, 1);
	pause();
}

static void names_taken_by_another_user_do_no_harm(void)
{
	struct rlimit limit;
	struct peer squatter;
	char ready;

	if (geteuid())
		check_skip("needs root");
	check_sys(!getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_max < 9000)
		check_skip("may open %lu files only", (unsigned long)limit.rlim_max);
	setenv("UNPIN_DEVICE", "squatted", 1);
	squatter = peer_start(squat, NULL);
	hear(squatter.sock, &ready, 1);
	check_they_meet((struct person){ 0 }, (struct person){ 0 });
	kill(squatter.pid, SIGKILL);
	peer_wait(&squatter);
}

int main(int argc, char **argv)
{
	static const struct check_case cases[] = {
		CASE(a_process_of_the_same_user_reaches_it),
		CASE(another_user_does_not),
		CASE(another_network_namespace_does_not),
		CASE(another_device_does_not),
		CASE(pid_namespaces_that_hide_each_other),
		CASE(a_pid_namespace_and_the_one_around_it),
		CASE(pid_namespaces_on_an_older_kernel),
		CASE(two_users_without_a_number),
		CASE(one_user_without_a_number),
		CASE(two_that_drop_their_privileges_later),
		CASE(dropped_privileges_are_no_bridge),
		CASE(a_process_reaches_itself_as_another_user),
		CASE(names_taken_by_another_user_do_no_harm),
	};

	return check_main(cases, COUNT(cases), argc, argv);
}
